"""Execution providers, as far as there are any: jitonnx has one, the CPU's. Names of others get a warning."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jitonnx.api.options import SessionOptions
from jitonnx.errors import Error, InvalidArgument

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


def check_providers(
    providers: Any, provider_options: Any, options: SessionOptions, stacklevel: int = 3, *, falls_back: bool = False
) -> None:
    """Warn of providers that are not here. InvalidArgument if the options forbid the CPU's.

    providers: None, a name, or a sequence of names and of (name, options) pairs. ValueError for others, and for options
    that do not go with them; where it falls back to the CPU's, as onnxruntime's sessions do, a warning says the same.
    TypeError for what is no sequence.
    """
    if providers is not None and not isinstance(providers, Iterable):
        raise TypeError(str(_no_provider(providers)))
    given = [providers] if isinstance(providers, str) else list(providers or ())
    try:
        check_and_normalize_provider_args(given, provider_options, [CPU], stacklevel + 1)
    except ValueError as error:
        if not falls_back:
            raise
        warnings.warn(f"{error} The session runs with {CPU!r} alone.", UserWarning, stacklevel=stacklevel)
    if options.entry(_FORBIDS_CPU) == "1":
        raise InvalidArgument(
            f"the session configuration entry {_FORBIDS_CPU} is 1, but jitonnx runs models on the CPU alone"
        )


def check_known(providers: Any) -> None:
    """RuntimeError for names that onnxruntime does not know either."""
    for entry in [providers] if isinstance(providers, str) else providers or ():
        name, _ = _parts(entry)
        if name not in ALL:
            raise Error(f"Unknown Provider Type: {name}; there are {', '.join(ALL)}")


def check_and_normalize_provider_args(
    providers: Any, provider_options: Any, available_provider_names: Sequence[str], stacklevel: int = 2
) -> tuple[list[str], list[dict[str, str]]]:
    """The providers' names, and their options as text. Warns of names that are not available, and of duplicates.

    Arguments as for `check_providers`; ValueError for others: what is no name, and no pair of a name and options, or
    options given twice.
    """
    if providers is not None and not isinstance(providers, Iterable):
        raise _no_provider(providers)
    given = [providers] if isinstance(providers, str) else list(providers or ())
    if provider_options is not None and (text := _misfit(given, provider_options)):
        raise ValueError(text)
    known: dict[str, dict[str, str]] = {}
    for number, entry in enumerate(given):
        name, options = _parts(entry)
        if name in known:
            warnings.warn(f"Duplicate provider '{name}' encountered, ignoring.", UserWarning, stacklevel=stacklevel)
            continue
        if name not in available_provider_names:
            unknown = "" if name in ALL else f" No such provider is known at all; did you mean '{CPU}'?"
            warnings.warn(
                f"Specified provider '{name}' is not in available provider names.Available providers: "
                f"'{', '.join(available_provider_names)}'{unknown}",
                UserWarning,
                stacklevel=stacklevel,
            )
        settings = options if provider_options is None else provider_options[number]
        known[name] = {str(key): str(value) for key, value in settings.items()}
    return list(known), list(known.values())


def _misfit(given: Sequence[Any], provider_options: Any) -> str | None:
    """What is wrong with options that are no dict for each provider, or are there beside those of a pair."""
    if not isinstance(provider_options, Sequence) or not all(isinstance(one, Mapping) for one in provider_options):
        return f"'provider_options' should be a sequence of dicts; got {provider_options!r}."
    if len(provider_options) != len(given):
        return "'providers' and 'provider_options' should be the same length if both are given."
    if not all(isinstance(entry, str) for entry in given):
        return "Only string values for 'providers' are supported if 'provider_options' is given."
    return None


def _parts(entry: Any) -> tuple[str, Mapping[Any, Any]]:
    if isinstance(entry, str):
        return entry, {}
    match entry:
        case (str() as name, Mapping() as options) if isinstance(entry, Sequence):
            return name, options
    raise _no_provider(entry)


def _no_provider(given: Any) -> ValueError:
    kinds = "names, or pairs of a name and a dict of options"
    return ValueError(f"'providers' should be a sequence of {kinds}; got {given!r}")
