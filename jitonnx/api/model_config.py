"""Options that a model brings: onnxruntime's JSON under the key `ort_config` of the model's metadata.

They are read where the environment variable ORT_LOAD_CONFIG_FROM_MODEL is "1", and count more than what the program
says.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

from jitonnx import errors
from jitonnx.api.enumerations import Enumeration, ExecutionMode, GraphOptimizationLevel
from jitonnx.api.options import SessionOptions
from jitonnx.support.log import logger

_KEY = "ort_config"
_NUMBERS = ("intra_op_num_threads", "inter_op_num_threads")
_PROFILING = "enable_profiling"
_CHOICES: Mapping[str, type[Enumeration]] = {
    "execution_mode": ExecutionMode,
    "graph_optimization_level": GraphOptimizationLevel,
}


def configured(options: SessionOptions, source: Any) -> SessionOptions:
    """The options with what the model says; themselves if it says nothing. RuntimeException for what makes no sense."""
    from jitonnx.model.load import parsed

    text = next((entry.value for entry in parsed(source)[0].metadata_props if entry.key == _KEY), None)
    if text is None:
        return options
    try:
        config = json.loads(text)
    except ValueError as error:
        raise _refused(f"Json stored in the `{_KEY}` key cannot be parsed. Error message: {error}") from error
    given = config.get("session_options") if isinstance(config, dict) else None
    if not isinstance(given, dict):
        return options
    made = copy.copy(options)
    for name, value in given.items():
        if name in (*_NUMBERS, *_CHOICES, _PROFILING) and type(value) is not int:
            raise _refused(f"{name} option in the model file must be an integer; it is {value!r}")
        if name in _NUMBERS:
            if value < 0:
                raise _refused(f"Unsupported value for {name}: {value}")
            setattr(made, name, value)
        elif name in _CHOICES:
            if value not in [int(one) for one in _CHOICES[name]]:
                raise _refused(f"Unsupported {name} value in ORT config: {value}")
            setattr(made, name, _CHOICES[name](value))
        elif name == _PROFILING:
            if value not in (0, 1):
                raise _refused(f"Unsupported value for enable_profiling option: {value}")
            made.enable_profiling = bool(value)
        else:
            logger.warning("Ignoring unsupported session option in ORT config: %s", name)
    return made


def _refused(text: str) -> errors.RuntimeException:
    return errors.RuntimeException(f"Could not finalize session options while constructing the session. {text}")
