"""What of a plan makes programs: numbers over the dimension variables, and which of them each call takes.

A session makes its programs with it, and so does an artifact that serves ranges of shapes. It is plain data, and
this module imports nothing that plans or compiles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from jitonnx.ir import dims
from jitonnx.ir.dims import Dim, DimLike
from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.plan.memory import Lifetime, assign_offsets
from jitonnx.runtime.program import Program, Shapes, Slot, Space, Step, TensorSpec

GRAIN_MICROSECONDS = 10.0
"""The estimated time on one core of what a thread takes of a call at a time, at least. Taking costs 20 to 100 ns."""

SERIAL_MICROSECONDS = 6.0
"""A call estimated to take less is done by the calling thread alone. Measured on models of many short calls (ShuffleNet
v2, MobileNet v3 small, two threads): 2 to 8 differ by less than 1 %, 12 costs 1 to 3 %, 20 costs 3 to 10 %."""

GIL_STEPS, GIL_MICROSECONDS = 64, 20.0
"""Runs of fewer steps that are estimated to take less time keep the GIL: letting it go and taking it again costs about
0.1 microseconds, and where other threads want it a switch to them and back."""


class Operand(NamedTuple):
    """Where an operand lies: in constant, input or output number `index`, or in buffer `index` of the arena.

    offset: which number says how many bytes from the beginning.
    """

    space: Space
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody misses
    offset: int


class Call(NamedTuple):
    """One kernel's call. sizes, stage_sizes: which numbers are those of the kernel, and of prologue and epilogue."""

    spec: KernelSpec
    sizes: tuple[int, ...]
    stage_sizes: tuple[int, ...]
    operands: tuple[Operand, ...]
    label: str


class ArenaBuffer(NamedTuple):
    """Memory for an intermediate result. bytes: which number says how many."""

    bytes: int
    life: Lifetime


class Contents(NamedTuple):
    """A constant whose elements are numbers. elements: which, row-major."""

    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    elements: tuple[int, ...]


class PlanTensor(NamedTuple):
    """An input or output. shape: which numbers are its sizes."""

    name: str
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]


Array: TypeAlias = npt.NDArray[np.generic]
Constant: TypeAlias = Array | Contents


class Outline:
    """A plan as programs need it; all that says "which number" names one of `numbers` by its position.

    numbers: integers, and expressions over the dimension variables; distinct.
    assumptions: pairs of numbers that have to be equal.
    """

    def __init__(
        self,
        inputs: Sequence[PlanTensor],
        outputs: Sequence[PlanTensor],
        calls: Sequence[Call],
        arena: Sequence[ArenaBuffer],
        constants: Sequence[Constant],
        assumptions: Sequence[tuple[int, int]],
        numbers: Sequence[DimLike],
    ) -> None:
        self.inputs, self.outputs, self.calls = inputs, outputs, calls
        self.arena, self.constants, self.assumptions, self.numbers = arena, constants, assumptions, numbers
        self._evaluate = _evaluator(numbers)
        self._settled = [[_settled(operand, numbers) for operand in call.operands] for call in calls]
        self._lives = [buffer.life for buffer in arena]

    def instantiate(self, sizes: Mapping[str, int], symbols: Sequence[str], threads: int) -> Program:
        """The program for values of the dimension variables. `symbols`: the kernel symbol of each call."""
        values = self._evaluate(sizes)
        offsets, arena_bytes = assign_offsets([values[buffer.bytes] for buffer in self.arena], self._lives)
        steps = []
        for call, symbol, settled in zip(self.calls, symbols, self._settled, strict=True):
            complete = _complete(call, values)
            tasks = call.spec.tasks(complete)
            if tasks == 0:
                continue
            slots = [
                slot or _slot(operand, offsets, values) for slot, operand in zip(settled, call.operands, strict=True)
            ]
            work = call.spec.work(complete)
            steps.append(
                Step(
                    symbol,
                    tuple(slots),
                    (*complete, *[values[row] for row in call.stage_sizes]),
                    tasks,
                    threads_for(work, tasks, threads),
                    max(call.spec.grain(complete), grain_for(work, tasks)),
                    call.spec.scratch_bytes(complete),
                    call.label,
                )
            )
        return Program(
            steps,
            arena_bytes,
            [_array(constant, values) for constant in self.constants],
            [_tensor_spec(tensor, values) for tensor in self.inputs],
            [_tensor_spec(tensor, values) for tensor in self.outputs],
        )

    def completed(self, sizes: Mapping[str, int]) -> Iterator[tuple[int, ...]]:
        """The sizes that each call's kernel gets for values of the dimension variables, its stages' left out."""
        values = self._evaluate(sizes)
        return (_complete(call, values) for call in self.calls)

    def is_short(self, program: Program, sizes: Mapping[str, int]) -> bool:
        """Whether a run of the program for these sizes is too short to let go of the GIL for."""
        if len(program.steps) > GIL_STEPS:
            return False
        estimate = 0.0
        for call, complete in zip(self.calls, self.completed(sizes), strict=True):
            estimate += microseconds(call.spec.work(complete))
            if estimate > GIL_MICROSECONDS:
                return False
        return True

    def assumed(self) -> list[tuple[DimLike, DimLike]]:
        """What has to be equal for the plan to hold."""
        return [(self.numbers[a], self.numbers[b]) for a, b in self.assumptions]

    def sizes(self, shapes: Shapes) -> dict[str, int] | None:
        """Values of the dimension variables for the inputs' shapes; None if these are not what the plan assumes."""
        sizes = self.bound(shapes)
        return sizes if sizes is not None and holds(self.assumed(), sizes) else None

    def bound(self, shapes: Shapes) -> dict[str, int] | None:
        """As `sizes`, but for the assumptions."""
        return bind([[self.numbers[row] for row in tensor.shape] for tensor in self.inputs], shapes)


def bind(declared: Iterable[Iterable[DimLike]], shapes: Shapes) -> dict[str, int] | None:
    """Values of the dimension variables for concrete input shapes; None if inputs disagree on one."""
    sizes: dict[str, int] = {}
    for dimensions, shape in zip(declared, shapes, strict=True):
        for dim, size in zip(dimensions, shape, strict=False):
            if isinstance(dim, Dim) and sizes.setdefault(str(dim), size) != size:
                return None
    return sizes


def holds(assumptions: Iterable[tuple[DimLike, DimLike]], sizes: Mapping[str, int]) -> bool:
    """Whether the pairs are equal for values of the dimension variables."""
    return all(dims.evaluate(a, sizes) == dims.evaluate(b, sizes) for a, b in assumptions)


def microseconds(work: Work) -> float:
    """A rough time on one core: whatever binds, arithmetic at 50 GFLOP/s or memory at 20 GB/s."""
    return max(work.flops / 50e3, work.bytes / 20e3)


def threads_for(work: Work, tasks: int, threads: int) -> int:
    """How many of `threads` threads a call is shared among."""
    return 1 if microseconds(work) < SERIAL_MICROSECONDS else max(1, min(threads, tasks))


def grain_for(work: Work, tasks: int) -> int:
    """How many tasks of a call a thread takes at a time at least."""
    return min(tasks, math.ceil(tasks * GRAIN_MICROSECONDS / max(microseconds(work), GRAIN_MICROSECONDS)))


def _evaluator(numbers: Sequence[DimLike]) -> Callable[[Mapping[str, int]], list[int]]:
    """One generated function that evaluates every expression for values of the variables."""
    settled = [dim if isinstance(dim, int) else 0 for dim in numbers]
    symbolic = [(row, dim) for row, dim in enumerate(numbers) if not isinstance(dim, int)]
    names = sorted(set().union(*(dims.variables(dim) for _, dim in symbolic)))
    # Names of dimensions need not be identifiers, and are not ours.
    short = {name: f"v{number}" for number, name in enumerate(names)}
    renamed = {name: dims.variable(identifier) for name, identifier in short.items()}
    body = ", ".join(dims.python_source(dims.substitute(dim, renamed)) for _, dim in symbolic)
    function = eval(f"lambda {', '.join(short.values())}: ({body}{',' if body else ''})")

    def evaluate(sizes: Mapping[str, int]) -> list[int]:
        values = list(settled)
        for (row, _), result in zip(symbolic, function(*(sizes[name] for name in names)), strict=True):
            values[row] = result
        return values

    return evaluate


def _complete(call: Call, values: Sequence[int]) -> tuple[int, ...]:
    return tuple(call.spec.complete([values[row] for row in call.sizes]))


def _settled(operand: Operand, numbers: Sequence[DimLike]) -> Slot | None:
    """Where an operand lies if that is the same for all sizes."""
    offset = numbers[operand.offset]
    if not isinstance(offset, int) or operand.space == "arena":
        return None
    return Slot(operand.space, operand.index, offset)


def _slot(operand: Operand, arena: Sequence[int], values: Sequence[int]) -> Slot:
    offset = values[operand.offset]
    if operand.space == "arena":
        return Slot("arena", 0, arena[operand.index] + offset)
    return Slot(operand.space, operand.index, offset)


def _array(constant: Constant, values: Sequence[int]) -> Array:
    if not isinstance(constant, Contents):
        return constant
    return np.array([values[row] for row in constant.elements], constant.dtype).reshape(constant.shape)


def _tensor_spec(tensor: PlanTensor, values: Sequence[int]) -> TensorSpec:
    return TensorSpec(tensor.name, tensor.dtype, tuple(values[row] for row in tensor.shape))
