"""Makes the function that emits a kernel's code of its spec and stages, and object code of that. Imports LLVM."""

from __future__ import annotations

import importlib

import llvmlite.binding as llvm
import numpy as np

from jitonnx.codegen.code import KernelCode
from jitonnx.codegen.optimization import emit_object
from jitonnx.codegen.region import region_kernel
from jitonnx.codegen.stages import stage_function
from jitonnx.emit.builder import Kernel
from jitonnx.emit.module import emit_module, triple_of
from jitonnx.ir.computation.linked import SYMBOL
from jitonnx.kernels.custom.spec import CompiledSpec
from jitonnx.plan.region import RegionSpec
from jitonnx.target.machine import Target


def kernel_of(code: KernelCode, target: Target) -> Kernel:
    """The kernel, for vectors as wide as the target's registers; elements narrower than float32 count as that.

    ValueError for a prologue or an epilogue where the kernel's `build` takes none.
    """
    element = getattr(code.spec, "element", "float32")
    lanes = target.lanes(4 if element == "bfloat16" else max(4, np.dtype(element).itemsize))  # NumPy lacks that type
    if isinstance(code.spec, RegionSpec):
        return region_kernel(code.spec, lanes)
    module = importlib.import_module(f"jitonnx.kernels.{code.spec.family}.kernel")
    stages = {"prologue": stage_function(code.prologue), "epilogue": stage_function(code.epilogue)}
    given = {name: stage for name, stage in stages.items() if stage is not None}
    for name in given.keys() - module.build.__annotations__.keys():
        raise ValueError(f"{code.spec} takes no {name}")
    return module.build(code.spec, lanes, **given)  # type: ignore[no-any-return]


def _compiled(spec: CompiledSpec, symbol: str, target: Target) -> llvm.ModuleRef:
    """The module of a user's kernel, under the name and for the CPU that are wanted."""
    module = llvm.parse_assembly(spec.ir.replace(SYMBOL, symbol))
    module.triple = triple_of(target)
    return module


def make_object(code: KernelCode, symbol: str, target: Target) -> bytes:
    """Object code that defines the kernel as `symbol`: LLVM IR is emitted, or made by Numba, and optimised."""
    if code.source is not None:
        from jitonnx.codegen.numba.compiling import module_of

        return emit_object(module_of(code.source, symbol, target), target)
    if isinstance(code.spec, CompiledSpec):
        return emit_object(_compiled(code.spec, symbol, target), target)
    prescheduled = code.spec.prescheduled
    return emit_object(
        emit_module(kernel_of(code, target), symbol, target, prescheduled=prescheduled),
        target,
        prescheduled=prescheduled,
        combining=code.spec.COMBINING,
    )
