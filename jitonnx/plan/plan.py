"""A plan: the calls of a model in order, with symbolic sizes, and how a program for concrete sizes is made of it.

Planning happens once a model. `instantiate` only evaluates expressions: sizes, offsets, tasks, the arena.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from jitonnx.ir.assumptions import Assumptions
from jitonnx.ir.dims import DimLike
from jitonnx.ir.graph import Value
from jitonnx.ir.types import Shape
from jitonnx.kernels.parts.packing import aligned
from jitonnx.plan.arena import Lifetime, lifetimes
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.extents import is_certain
from jitonnx.plan.parametric_program import (
    ArenaBuffer,
    Bound,
    Computed,
    Constant,
    ConstantNumbers,
    OperandPlace,
    ParametricProgram,
    PlanTensor,
    ProgramCall,
)
from jitonnx.plan.tensor import Buffer, StridedTensor
from jitonnx.runtime.program import Flag, Program
from jitonnx.support.records import dataclass


@dataclass
class Plan:
    """A model's calls over buffers. Everything symbolic is over the model's dimension variables."""

    inputs: list[Value]
    outputs: list[Value]
    given_shapes: list[Shape]
    """They are those of the inputs, over all variables that the assumptions are about; see `Graph.given_shapes`."""
    assumptions: Assumptions
    calls: list[KernelCall] = field(default_factory=list)
    constants: list[Buffer] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    flags: list[Flag] = field(default_factory=list)

    def prepare(self) -> None:
        """Settle what all instantiations share: lifetimes, and the outline that programs are made of."""
        self.outline = _outline(self, lifetimes(self.calls))

    @property
    def features(self) -> set[str]:
        """What its kernels' code needs of a CPU beyond what LLVM makes use of by itself."""
        return {feature for call in self.calls for feature in call.spec.features}

    def instantiate(self, sizes: Mapping[str, int], symbols: Sequence[str]) -> Program:
        """The program for values of the dimension variables. `symbols`: the kernel symbol of each call."""
        return self.outline.instantiate(sizes, self.outline.wiring(symbols))

    def sized(self, sizes: Mapping[str, int]) -> Iterator[tuple[KernelCall, Any]]:
        """Each call with the sizes that its kernel gets for values of the dimension variables, its stages' left out."""
        return zip(self.calls, self.outline.completed(sizes), strict=True)


class _Rows:
    """Distinct dimension expressions, by number."""

    def __init__(self) -> None:
        self.numbers: dict[DimLike, int] = {}

    def add(self, dim: DimLike) -> int:
        return self.numbers.setdefault(dim, len(self.numbers))

    def add_all(self, dims: Sequence[DimLike]) -> tuple[int, ...]:
        return tuple([self.add(dim) for dim in dims])


def _outline(plan: Plan, lives: Mapping[Buffer, Lifetime]) -> ParametricProgram:
    rows = _Rows()
    indices = {buffer: number for number, buffer in enumerate(plan.constants)}
    indices |= {buffer: number for number, buffer in enumerate(lives)}

    def operand(tensor: StridedTensor) -> OperandPlace:
        buffer = tensor.buffer
        index = indices[buffer] if buffer.space in ("arena", "constant") else buffer.index
        offset = rows.add(tensor.offset * buffer.dtype.itemsize)
        return OperandPlace(buffer.space, index, offset)

    calls = [
        ProgramCall(
            call.spec.plain,
            rows.add_all(call.sizes),
            rows.add_all(call.stage_sizes),
            tuple(map(operand, call.tensors)),
            call.label,
        )
        for call in plan.calls
    ]
    operands = [(number, tensor) for number, call in enumerate(plan.calls) for tensor in call.tensors]
    return ParametricProgram(
        inputs=[
            PlanTensor(value.name, value.dtype.numpy, rows.add_all(shape))
            for value, shape in zip(plan.inputs, plan.given_shapes, strict=True)
        ],
        outputs=[PlanTensor(value.name, value.dtype.numpy, rows.add_all(value.shape)) for value in plan.outputs],
        calls=calls,
        arena=[ArenaBuffer(rows.add(buffer.bytes), life) for buffer, life in lives.items()],
        constants=[_constant(rows, buffer) for buffer in plan.constants],
        assumptions=[(rows.add(a), rows.add(b)) for a, b in sorted(plan.assumptions, key=str)],
        bounds=[
            Bound(
                place,
                call,
                rows.add(tensor.buffer.bytes),
                tensor.buffer.dtype.itemsize,
                rows.add_all(tensor.shape),
                rows.add_all(tensor.strides),
            )
            for place, (call, tensor) in enumerate(operands)
            if not is_certain(tensor)
        ],
        numbers=list(rows.numbers),
    )


def _constant(rows: _Rows, buffer: Buffer) -> Constant:
    if buffer.made is not None:
        return Computed(buffer.made.maker, buffer.made.part, rows.add_all(buffer.made.sizes))
    if buffer.contents is None:
        assert buffer.array is not None
        return aligned(buffer.array)
    return ConstantNumbers(buffer.dtype.numpy, buffer.contents.shape, rows.add_all(list(buffer.contents.flat)))
