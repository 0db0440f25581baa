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
from jitonnx.plan.memory import ALIGNMENT, Lifetime, assign_offsets
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


class Derived(NamedTuple):
    """What follows of a call from its spec and the values of its sizes.

    complete: the sizes that the kernel gets, its stages' left out; sizes: with these. microseconds: a rough time.
    """

    complete: tuple[int, ...]
    sizes: tuple[int, ...]
    tasks: int
    microseconds: float
    grain: int
    scratch: int


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
        self._lives = [buffer.life for buffer in arena]
        self._last_arena: tuple[list[int], tuple[list[int], int]] | None = None
        places: dict[Operand, int] = {}
        self._places = [[places.setdefault(operand, len(places)) for operand in call.operands] for call in calls]
        self._operands = [(operand, _settled(operand, numbers)) for operand in places]
        kinds: dict[_Kind, int] = {}
        self._kind_of = [kinds.setdefault(_Kind(call.spec, call.sizes, call.stage_sizes), len(kinds)) for call in calls]
        self._derivations = [_Derivation(kind) for kind in kinds]

    def instantiate(self, sizes: Mapping[str, int], symbols: Sequence[str], threads: int) -> Program:
        """The program for values of the dimension variables. `symbols`: the kernel symbol of each call."""
        values = self._evaluate(sizes)
        offsets, arena_bytes = self._arena(values)
        slots = [settled or _slot(operand, offsets, values) for operand, settled in self._operands]
        steps = []
        for call, symbol, places, derived in zip(self.calls, symbols, self._places, self._derive(values), strict=True):
            if derived.tasks == 0:
                continue
            steps.append(
                Step(
                    symbol,
                    tuple([slots[place] for place in places]),
                    derived.sizes,
                    derived.tasks,
                    threads_for(derived.microseconds, derived.tasks, threads),
                    derived.grain,
                    derived.scratch,
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
        return (derived.complete for derived in self._derive(self._evaluate(sizes)))

    def is_short(self, program: Program, sizes: Mapping[str, int]) -> bool:
        """Whether a run of the program for these sizes is too short to let go of the GIL for."""
        if len(program.steps) > GIL_STEPS:
            return False
        return sum(derived.microseconds for derived in self._derive(self._evaluate(sizes))) <= GIL_MICROSECONDS

    def _arena(self, values: Sequence[int]) -> tuple[list[int], int]:
        """`assign_offsets` for the arena; what it gave last is kept, as sizes in cache lines change seldom."""
        lines = [-(-values[buffer.bytes] // ALIGNMENT) * ALIGNMENT for buffer in self.arena]
        last = self._last_arena
        if last is None or last[0] != lines:
            self._last_arena = last = lines, assign_offsets(lines, self._lives)
        return last[1]

    def _derive(self, values: Sequence[int]) -> list[Derived]:
        """What follows of each call. Calls of a kind, such as those of equal layers, share it."""
        derived = [derivation(values) for derivation in self._derivations]
        return [derived[kind] for kind in self._kind_of]

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


def threads_for(microseconds: float, tasks: int, threads: int) -> int:
    """How many of `threads` threads a call of an estimated time is shared among."""
    return 1 if microseconds < SERIAL_MICROSECONDS else max(1, min(threads, tasks))


def grain_for(microseconds: float, tasks: int) -> int:
    """How many tasks of a call of an estimated time a thread takes at a time at least."""
    return min(tasks, math.ceil(tasks * GRAIN_MICROSECONDS / max(microseconds, GRAIN_MICROSECONDS)))


class _Kind(NamedTuple):
    """What calls with the same `Derived` have in common. sizes, stage_sizes: as those of `Call`."""

    spec: KernelSpec
    sizes: tuple[int, ...]
    stage_sizes: tuple[int, ...]


class _Derivation:
    """Makes the `Derived` of a kind of calls, and keeps the last: most sizes are those of the program before."""

    def __init__(self, kind: _Kind) -> None:
        self._kind = kind
        self._last: tuple[list[int], Derived] | None = None

    def __call__(self, values: Sequence[int]) -> Derived:
        spec, sizes, stage_sizes = self._kind
        given = [values[row] for row in sizes]
        stages = [values[row] for row in stage_sizes]
        last, key = self._last, [*given, *stages]
        if last is not None and last[0] == key:
            return last[1]
        derived = _derived(spec, given, stages)
        self._last = key, derived
        return derived


def _derived(spec: KernelSpec, given: Sequence[int], stages: Sequence[int]) -> Derived:
    complete = tuple(spec.complete(given))
    tasks = spec.tasks(complete)
    if tasks == 0:
        return Derived(complete, (), 0, 0.0, 1, 0)
    estimate = microseconds(spec.work(complete))
    grain = max(spec.grain(complete), grain_for(estimate, tasks))
    return Derived(complete, (*complete, *stages), tasks, estimate, grain, spec.scratch_bytes(complete))


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
