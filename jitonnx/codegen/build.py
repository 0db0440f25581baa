"""From a kernel's spec and stages to the Python function that Numba lowers, and on to object code. Imports Numba."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from jitonnx.codegen.code import Code
from jitonnx.codegen.emit import emit_object
from jitonnx.codegen.region import region_function
from jitonnx.codegen.stages import stage_function
from jitonnx.kernels.jit import lower
from jitonnx.plan.region import RegionSpec
from jitonnx.target import Target


def kernel_function(code: Code, target: Target) -> Callable[..., Any]:
    """The kernel, for vectors as wide as the target's registers; elements narrower than float32 count as that."""
    lanes = target.lanes(max(4, np.dtype(getattr(code.spec, "element", "float32")).itemsize))
    if isinstance(code.spec, RegionSpec):
        return region_function(code.spec, lanes)
    module = importlib.import_module(f"jitonnx.kernels.{code.spec.family}.kernel")
    stages = {"prologue": stage_function(code.prologue, lanes), "epilogue": stage_function(code.epilogue, lanes)}
    return module.build(code.spec, lanes, **{name: stage for name, stage in stages.items() if stage is not None})  # type: ignore[no-any-return]


def make_object(code: Code, symbol: str, target: Target) -> bytes:
    """Object code that defines the kernel as `symbol`: built, lowered through Numba, optimised, emitted."""
    return emit_object(lower(kernel_function(code, target), symbol, target), target)
