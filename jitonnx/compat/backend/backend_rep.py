"""A model that the backend interface has prepared."""

from __future__ import annotations

import importlib
from collections.abc import Collection, Mapping
from typing import Any

from jitonnx.api.options import RunOptions, SessionOptions
from jitonnx.api.session import InferenceSession

_OPTIONS = frozenset(("log_severity_level", "log_verbosity_level", "logid", "only_execute_path_to_fetches"))


class OnnxRuntimeBackendRep:
    """A session behind `run` with inputs in order."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session

    def run(self, inputs: Any, **options: Any) -> list[Any]:
        """The outputs for these inputs: a list, or an array for a single one. options: attributes of `RunOptions`."""
        chosen = RunOptions()
        set_options(chosen, options, _OPTIONS)
        names = [entry.name for entry in self._session.get_inputs()]
        given = inputs if isinstance(inputs, list | tuple) else [inputs]
        if len(given) > len(names) or (given is not inputs and len(names) != 1):
            raise RuntimeError(f"Model expect {len(names)} inputs; {len(given)} were given")
        return self._session.run(None, dict(zip(names, given, strict=False)), chosen)


def set_options(target: SessionOptions | RunOptions, options: Mapping[str, Any], allowed: Collection[str]) -> None:
    """Set the options that are allowed; RuntimeError for others of the same object, nothing for unknown ones."""
    for name, value in options.items():
        if name in allowed:
            setattr(target, name, value)
        elif hasattr(target, name):
            raise RuntimeError(f"{type(target).__name__} attribute '{name}' is not permitted via the backend API.")


def __getattr__(name: str) -> Any:
    if name != "BackendRep":  # what onnxruntime's module has from onnx: there where that is installed
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module("onnx.backend.base").BackendRep
