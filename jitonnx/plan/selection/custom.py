"""Users' kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation.lowering import Statement
from jitonnx.kernels.custom.spec import CompiledSpec
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


def user_kernel(planner: Planner, group: Group, statement: Statement) -> None:
    """A function over arrays, which are all dense."""
    computation = statement.computation
    assert isinstance(computation, c.UserKernel)
    inputs = [planner.dense(value) for value in statement.inputs if value is not None]
    outputs = [planner.place(value) for value in statement.outputs]
    outputs = [
        place if place.contiguous else planner.move(value, tuple(range(place.rank)))
        for value, place in zip(statement.outputs, outputs, strict=True)
    ]
    operands = [*inputs, *outputs]
    errors = [planner.flag(f"its function {computation.function!r} raised {text}") for text in computation.errors]
    spec = CompiledSpec(
        tuple(tensor.rank for tensor in operands),
        tuple(tensor.dtype.itemsize for tensor in operands),
        len(inputs),
        len(errors),
        computation.cost,
        computation.function,
        computation.ir,
    )
    buffers = spec.BUFFERS(inputs=inputs, outputs=outputs, errors=errors)
    sizes = spec.SIZES(items=computation.items, extents=[size for tensor in operands for size in tensor.shape])
    planner.call(
        KernelCall(spec, buffers, sizes, label=f"kernel {computation.function}", reason="a function compiled by Numba")
    )
