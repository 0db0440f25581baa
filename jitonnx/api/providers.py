"""Execution providers, as far as there are any: jitonnx has one, the CPU's. Names of others get a warning."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jitonnx.api.options import SessionOptions
from jitonnx.errors import InvalidArgument

CPU = "CPUExecutionProvider"

ALL = (
    "NvTensorRTRTXExecutionProvider",
    "TensorrtExecutionProvider",
    "CUDAExecutionProvider",
    "MIGraphXExecutionProvider",
    "OpenVINOExecutionProvider",
    "DnnlExecutionProvider",
    "VitisAIExecutionProvider",
    "QNNExecutionProvider",
    "NnapiExecutionProvider",
    "VSINPUExecutionProvider",
    "JsExecutionProvider",
    "CoreMLExecutionProvider",
    "ACLExecutionProvider",
    "DmlExecutionProvider",
    "RknpuExecutionProvider",
    "WebNNExecutionProvider",
    "WebGpuExecutionProvider",
    "XnnpackExecutionProvider",
    "CANNExecutionProvider",
    "AzureExecutionProvider",
    CPU,
)
"""Every name that onnxruntime knows."""

_FORBIDS_CPU = "session.disable_cpu_ep_fallback"


def check_providers(providers: Any, provider_options: Any, options: SessionOptions, stacklevel: int = 3) -> None:
    """Warn of providers that are not here. InvalidArgument if the options forbid the CPU's.

    providers: None, a name, or a sequence of names and of (name, options) pairs.
    """
    if providers is not None and not isinstance(providers, Iterable):
        raise TypeError(f"providers are names, or pairs of a name and a dict of options; got {providers!r}")
    given = [providers] if isinstance(providers, str) else list(providers or ())
    if provider_options is not None and len(provider_options) != len(given):
        raise ValueError("'providers' and 'provider_options' should be the same length if both are given.")
    seen: set[str] = set()
    for entry in given:
        name = _name(entry)
        if name in seen:
            warnings.warn(f"Duplicate provider '{name}' encountered, ignoring.", UserWarning, stacklevel=stacklevel)
        elif name != CPU:
            unknown = "" if name in ALL else f" No such provider is known at all; did you mean '{CPU}'?"
            warnings.warn(
                f"Specified provider '{name}' is not in available provider names.Available providers: '{CPU}'{unknown}",
                UserWarning,
                stacklevel=stacklevel,
            )
        seen.add(name)
    if options.entry(_FORBIDS_CPU) == "1":
        raise InvalidArgument(
            f"the session configuration entry {_FORBIDS_CPU} is 1, but jitonnx runs models on the CPU alone"
        )


def _name(entry: Any) -> str:
    if isinstance(entry, str):
        return entry
    match entry:
        case (str() as name, Mapping()) if isinstance(entry, Sequence):
            return name
    raise ValueError(f"providers are names, or pairs of a name and a dict of options; got {entry!r}")
