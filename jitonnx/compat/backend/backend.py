"""ONNX's backend interface as a class."""

from __future__ import annotations

import importlib
import os
import unittest
from typing import Any, NoReturn

from jitonnx.api.environment import get_available_providers, get_device
from jitonnx.api.options import SessionOptions
from jitonnx.api.session import InferenceSession
from jitonnx.compat.backend.backend_rep import OnnxRuntimeBackendRep, set_options

__all__ = [
    "OnnxRuntimeBackend",
    "OnnxRuntimeBackendRep",
    "get_available_providers",
    "get_device",
    "is_compatible",
    "prepare",
    "run",
    "supports_device",
    "unittest",
]

_ONNX = {
    "Backend": ("onnx.backend.base", "Backend"),
    "ModelProto": ("onnx", "ModelProto"),
    "check_model": ("onnx.checker", "check_model"),
    "helper": ("onnx.helper", ""),
    "packaging": ("packaging", ""),
    "version": ("onnx.version", "version"),
}
"""Names that onnxruntime's module has from packages that jitonnx does without: there where they are installed."""

_OPTIONS = frozenset(
    (
        "enable_cpu_mem_arena",
        "enable_mem_pattern",
        "enable_mem_reuse",
        "execution_mode",
        "execution_order",
        "graph_optimization_level",
        "inter_op_num_threads",
        "intra_op_num_threads",
        "log_severity_level",
        "log_verbosity_level",
        "logid",
        "use_deterministic_compute",
        "use_per_session_threads",
    )
)
"""Attributes of `SessionOptions` that may be set from here: those that write no files."""


class OnnxRuntimeBackend:
    """What `onnx.backend.base.Backend` asks for. There is one device, "CPU"."""

    allowReleasedOpsetsOnly = os.environ.get("ALLOW_RELEASED_ONNX_OPSET_ONLY", "1") == "1"

    @classmethod
    def is_opset_supported(cls, model: Any) -> tuple[bool, str]:
        """Whether a ModelProto asks for released operator sets alone, and what speaks against it, or "".

        Where `allowReleasedOpsetsOnly` is false, nothing does. The onnx package says what is released.
        """
        released = importlib.import_module("onnx.helper").OP_SET_ID_VERSION_MAP if cls.allowReleasedOpsetsOnly else {}
        for opset in model.opset_import if cls.allowReleasedOpsetsOnly else ():
            domain = opset.domain or "ai.onnx"
            if (domain, opset.version) not in released:
                return False, (
                    "Skipping this test as only released onnx opsets are supported."
                    "To run this test set env variable ALLOW_RELEASED_ONNX_OPSET_ONLY to 0."
                    f" Got Domain '{domain}' version '{opset.version}'."
                )
        return True, ""

    @classmethod
    def is_compatible(cls, model: Any, device: str | None = None, **_: Any) -> bool:
        """Whether the device is the CPU; nothing is asked of the model."""
        return cls.supports_device(device or "CPU")

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether the device is the CPU."""
        return device == "CPU"

    @classmethod
    def prepare(cls, model: Any, device: str | None = None, **options: Any) -> OnnxRuntimeBackendRep:
        """A model ready to run: from a path, bytes, a ModelProto, a session, or what this has returned.

        options: attributes of `SessionOptions`; RuntimeError for those that would write files.
        """
        if device is not None and not cls.supports_device(device):
            raise RuntimeError(f"Incompatible device expected '{device}', got 'CPU'")
        if isinstance(model, OnnxRuntimeBackendRep):
            return model
        if isinstance(model, InferenceSession):
            return OnnxRuntimeBackendRep(model)
        chosen = SessionOptions()
        set_options(chosen, options, _OPTIONS)
        return OnnxRuntimeBackendRep(InferenceSession(model, chosen))

    @classmethod
    def run_model(cls, model: Any, inputs: Any, device: str | None = None, **options: Any) -> list[Any]:
        """The outputs for these inputs: a list, or an array for a single one."""
        return cls.prepare(model, device, **options).run(inputs, **options)

    @classmethod
    def run_node(cls, node: Any, inputs: Any, device: str | None = None, **_: Any) -> NoReturn:
        """NotImplementedError: models are run, and not nodes."""
        raise NotImplementedError("It is much more efficient to run a whole model than every node independently.")


is_compatible = OnnxRuntimeBackend.is_compatible
prepare = OnnxRuntimeBackend.prepare
run = OnnxRuntimeBackend.run_model
supports_device = OnnxRuntimeBackend.supports_device


def __getattr__(name: str) -> Any:
    if name not in _ONNX:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    place, member = _ONNX[name]
    module = importlib.import_module(place)
    return getattr(module, member) if member else module
