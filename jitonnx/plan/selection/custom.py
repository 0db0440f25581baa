"""Users' kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitonnx.ir.computation import computations as c
from jitonnx.ir.graph import Value
from jitonnx.kernels.custom.spec import CompiledSpec
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


def user_kernel(planner: Planner, group: Group, computation: c.UserKernel, *operands: Value | None) -> None:
    """A function over arrays, which are all dense."""
    inputs = [planner.dense(value) for value in operands if value is not None]
    outputs = [planner.dense_place(value) for value in group.outputs]
    tensors = [*inputs, *outputs]
    errors = [planner.flag(f"its function {computation.function!r} raised {text}") for text in computation.errors]
    spec = CompiledSpec(
        tuple(tensor.rank for tensor in tensors),
        tuple(tensor.dtype.itemsize for tensor in tensors),
        len(inputs),
        len(errors),
        computation.cost,
        computation.function,
        computation.ir,
    )
    buffers = spec.BUFFERS(inputs=inputs, outputs=outputs, errors=errors)
    sizes = spec.SIZES(items=computation.items, extents=[size for tensor in tensors for size in tensor.shape])
    planner.call(
        KernelCall(spec, buffers, sizes, label=f"kernel {computation.function}", reason="a function compiled by Numba")
    )
