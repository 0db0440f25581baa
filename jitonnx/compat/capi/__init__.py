"""onnxruntime's modules below `onnxruntime.capi`, from which packages import: the same names, and nothing of its own.

`from jitonnx.capi.onnxruntime_pybind11_state import InvalidArgument`, and so on.
"""

import importlib
from typing import Any

_MODULES = frozenset(
    (
        "_ld_preload",
        "_pybind_state",
        "build_and_package_info",
        "convert_npz_to_onnx_adapter",
        "onnxruntime_inference_collection",
        "onnxruntime_pybind11_state",
        "onnxruntime_validation",
    )
)


def __getattr__(name: str) -> Any:
    if name in _MODULES:  # code writes `onnxruntime.capi.onnxruntime_pybind11_state.Fail` and imports onnxruntime alone
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
