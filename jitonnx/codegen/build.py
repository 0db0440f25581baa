"""From a kernel's spec and stages to the Python function that Numba lowers."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from jitonnx.codegen.code import Code
from jitonnx.codegen.region import region_function
from jitonnx.codegen.stages import stage_function
from jitonnx.plan.region import RegionSpec
from jitonnx.target import Target


def kernel_function(code: Code, target: Target) -> Callable[..., Any]:
    """The kernel, for the target's vector width in float32 lanes."""
    lanes = target.lanes(4)
    if isinstance(code.spec, RegionSpec):
        return region_function(code.spec, lanes)
    module = importlib.import_module(f"jitonnx.kernels.{code.spec.family}.kernel")
    stages = {"prologue": stage_function(code.prologue, lanes), "epilogue": stage_function(code.epilogue, lanes)}
    return module.build(code.spec, lanes, **{name: stage for name, stage in stages.items() if stage is not None})  # type: ignore[no-any-return]
