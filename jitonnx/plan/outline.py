"""What of a plan makes programs: numbers over the dimension variables, and which of them each call takes.

A session makes its programs with it, and so does an artifact that serves ranges of shapes. It is plain data, and
this module imports nothing that plans or compiles.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from jitonnx import forks
from jitonnx.ir import dims
from jitonnx.ir.dims import Dim, DimLike
from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.plan.memory import ALIGNMENT, Lifetime, assign_offsets
from jitonnx.runtime.program import (
    SPACES,
    Program,
    Shapes,
    Space,
    Steps,
    TensorKinds,
    Tensors,
    TensorSpec,
    Wiring,
    Words,
    arena_beyond_memory,
    beyond_memory,
)

if TYPE_CHECKING:
    from jitonnx.plan.tables import Maker

GRAIN_MICROSECONDS = 10.0
"""The estimated time on one core of what a thread takes of a call at a time, at least. Taking costs 20 to 100 ns."""

SERIAL_MICROSECONDS = 6.0
"""A call estimated to take less is done by the calling thread alone. Measured on models of many short calls (ShuffleNet
v2, MobileNet v3 small, two threads): 2 to 8 differ by less than 1 %, 12 costs 1 to 3 %, 20 costs 3 to 10 %."""

GIL_STEPS, GIL_MICROSECONDS = 64, 20.0
"""Runs of fewer steps that are estimated to take less time keep the GIL: letting it go and taking it again costs about
0.1 microseconds, and where other threads want it a switch to them and back."""

_ROOM_BYTES = 512
"""Room in the arena is counted in so many bytes at least where sizes vary."""

_NO_WORDS = np.zeros(0, np.int64)


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
    numbers: `STEP_COLUMNS`, the first left at 0.
    """

    complete: tuple[int, ...]
    sizes: Words
    microseconds: float
    numbers: tuple[int, ...]


class ArenaBuffer(NamedTuple):
    """Memory for an intermediate result. bytes: which number says how many."""

    bytes: int
    life: Lifetime


class Contents(NamedTuple):
    """A constant whose elements are numbers. elements: which, row-major."""

    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    elements: tuple[int, ...]

    def array(self, values: Sequence[int]) -> Array:
        """The constant for the values of all numbers."""
        return np.array([values[row] for row in self.elements], self.dtype).reshape(self.shape)


class Computed(NamedTuple):
    """A constant that `maker` makes of numbers: array number `part` of those that it makes. sizes: which numbers."""

    maker: Maker
    part: int
    sizes: tuple[int, ...]

    def array(self, values: Sequence[int]) -> Array:
        """The constant for the values of all numbers."""
        from jitonnx.plan.tables import made

        return made(self.maker, tuple([values[row] for row in self.sizes]))[self.part]


class PlanTensor(NamedTuple):
    """An input or output. shape: which numbers are its sizes."""

    name: str
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]


Array: TypeAlias = npt.NDArray[np.generic]
Constant: TypeAlias = "Array | Contents | Computed"


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
        self._own_constants = [
            (place, constant) for place, constant in enumerate(constants) if isinstance(constant, Contents | Computed)
        ]
        self._evaluate = _Evaluator([*numbers, 1])
        self.input_kinds, self._input_rows = _kinds(inputs), _shape_rows(inputs, len(numbers))
        self.output_kinds, self._output_rows = _kinds(outputs), _shape_rows(outputs, len(numbers))
        self.sizes = Sizing([[numbers[row] for row in tensor.shape] for tensor in inputs], self.assumed())
        """Values of the dimension variables for the inputs' shapes; None if these are not what the plan assumes."""
        self._arena = _Arena(arena, numbers)
        operands = [operand for call in calls for operand in call.operands]
        self._offset_rows = np.array([operand.offset for operand in operands], np.int64)
        self._in_arena = np.array([n for n, operand in enumerate(operands) if operand.space == "arena"], np.int64)
        self._buffers = np.array([operands[place].index for place in self._in_arena], np.int64)
        kinds: dict[_Kind, int] = {}
        kind_of = [kinds.setdefault(_Kind(call.spec, call.sizes, call.stage_sizes), len(kinds)) for call in calls]
        self._kind_of = np.array(kind_of, np.int64)
        self._derivations = [_Derivation(kind) for kind in kinds]

    def wiring(self, symbols: Sequence[str]) -> Wiring:
        """That of all programs. `symbols`: the kernel symbol of each call."""
        operands = [operand for call in self.calls for operand in call.operands]
        return Wiring(
            symbols,
            [call.label for call in self.calls],
            np.cumsum([len(call.operands) for call in self.calls], dtype=np.int64),
            np.array([SPACES.index(operand.space) for operand in operands], np.int64),
            # Buffers of the arena are told apart by their offsets.
            np.array([0 if operand.space == "arena" else operand.index for operand in operands], np.int64),
        )

    def instantiate(self, sizes: Mapping[str, int], wiring: Wiring) -> Program:
        """The program for values of the dimension variables. Fail for tensors beyond all memory.

        This is what a new shape costs: Python that goes by kinds of calls, and NumPy that goes by calls and operands.
        """
        values = self._evaluate(sizes)
        numbers = self._words(values)
        arena, arena_bytes = self._arena(numbers)
        offsets = numbers[self._offset_rows]
        offsets[self._in_arena] += arena[self._buffers]
        return Program(
            self._steps(wiring, offsets, [derivation(values) for derivation in self._derivations]),
            arena_bytes,
            self._all_constants(values),
            Tensors(self.input_kinds, numbers[self._input_rows]),
            Tensors(self.output_kinds, numbers[self._output_rows]),
        )

    def _all_constants(self, values: Sequence[int]) -> list[Array]:
        constants: list[Any] = [*self.constants]
        for place, constant in self._own_constants:
            constants[place] = constant.array(values)
        return constants

    def _steps(self, wiring: Wiring, offsets: Words, derived: Sequence[Derived]) -> Steps:
        """derived: of each kind of calls."""
        kinds = np.array([one.numbers for one in derived] or np.zeros((0, 6)), np.int64).T
        kinds[0] = kinds[1].cumsum() - kinds[1]
        sizes = np.concatenate([_NO_WORDS, *[one.sizes for one in derived]])
        return Steps(wiring, offsets, sizes, np.take(kinds, self._kind_of, axis=1))

    def _words(self, values: Sequence[int]) -> Words:
        try:
            return self._evaluate.words(values)
        except OverflowError:
            for tensor in (*self.inputs, *self.outputs):
                shape = tuple([values[row] for row in tensor.shape])
                if math.prod(shape) * tensor.dtype.itemsize >= 1 << 63:
                    raise beyond_memory(TensorSpec(tensor.name, tensor.dtype, shape)) from None
            raise arena_beyond_memory(max(values)) from None

    def completed(self, sizes: Mapping[str, int]) -> Iterator[tuple[int, ...]]:
        """The sizes that each call's kernel gets for values of the dimension variables, its stages' left out.

        Fail for tensors beyond all memory.
        """
        values = self._evaluate(sizes)
        self._words(values)
        return (self._derivations[kind](values).complete for kind in self._kind_of)

    def is_short(self, program: Program, sizes: Mapping[str, int]) -> bool:
        """Whether a run of the program for these sizes is too short to let go of the GIL for."""
        if len(program.steps) > GIL_STEPS:
            return False
        values = self._evaluate(sizes)
        derived = [derivation(values) for derivation in self._derivations]
        return sum(derived[kind].microseconds for kind in self._kind_of) <= GIL_MICROSECONDS

    def arrays(self) -> list[Array]:
        """The constants that are the same in all programs."""
        return [constant for constant in self.constants if isinstance(constant, np.ndarray)]

    def assumed(self) -> list[tuple[DimLike, DimLike]]:
        """What has to be equal for the plan to hold."""
        return [(self.numbers[a], self.numbers[b]) for a, b in self.assumptions]


class Sizing:
    """Reads the values of dimension variables off input shapes.

    declared: the dimensions of each input. assumptions: pairs that have to be equal.
    """

    def __init__(self, declared: Iterable[Iterable[DimLike]], assumptions: Iterable[tuple[DimLike, DimLike]]) -> None:
        self._variables = [
            (number, axis, str(dim))
            for number, dimensions in enumerate(declared)
            for axis, dim in enumerate(dimensions)
            if isinstance(dim, Dim)
        ]
        self._assumed = _Evaluator([dim for pair in assumptions for dim in pair])

    def __call__(self, shapes: Shapes) -> dict[str, int] | None:
        """The values; None if inputs disagree on one, or what has to be equal is not."""
        sizes = self.bound(shapes)
        if sizes is None:
            return None
        try:
            assumed = self._assumed(sizes)
        except ZeroDivisionError:
            return None
        return sizes if assumed[::2] == assumed[1::2] else None

    def bound(self, shapes: Shapes) -> dict[str, int] | None:
        """As a call, but for the assumptions."""
        sizes: dict[str, int] = {}
        for number, axis, name in self._variables:
            size = shapes[number][axis]
            if sizes.setdefault(name, size) != size:
                return None
        return sizes


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
        self._spec, self._given = kind.spec, len(kind.sizes)
        self._pick = _picker((*kind.sizes, *kind.stage_sizes))
        self._last: tuple[tuple[int, ...], Derived] | None = None

    def __call__(self, values: Sequence[int]) -> Derived:
        last, key = self._last, self._pick(values)
        if last is not None and last[0] == key:
            return last[1]
        derived = _derived(self._spec, key[: self._given], key[self._given :])
        self._last = key, derived
        return derived


def _picker(rows: tuple[int, ...]) -> Callable[[Sequence[int]], tuple[int, ...]]:
    """Takes these items of a sequence."""
    if len(rows) > 1:
        return operator.itemgetter(*rows)
    return lambda values: tuple([values[row] for row in rows])


class _Placed(NamedTuple):
    """Where the buffers of an arena lie if they have at most `room` bytes each; at least `least` get the same room."""

    room: Words
    least: Words
    offsets: Words
    total: int


class _Arena:
    """Places the buffers of an arena, and keeps where it has placed them last.

    Buffers whose sizes are not always the same are given room for an eighth more: so sizes that grow a little, as those
    of caches do from token to token, leave all where it is.
    """

    def __init__(self, arena: Sequence[ArenaBuffer], numbers: Sequence[DimLike]) -> None:
        self._rows = np.array([buffer.bytes for buffer in arena], np.int64)
        self._varies = np.array([not isinstance(numbers[buffer.bytes], int) for buffer in arena], np.bool_)
        self._lives = [buffer.life for buffer in arena]
        self._last: _Placed | None = None

    def __call__(self, numbers: Words) -> tuple[Words, int]:
        """The offset of each buffer, and the arena's size."""
        nbytes = numbers[self._rows]
        last = self._last
        if last is None or (nbytes > last.room).any() or (nbytes < last.least).any():
            self._last = last = self._placed(nbytes)
        return last.offsets, last.total

    def _placed(self, nbytes: Words) -> _Placed:
        below = (1 << np.frexp(nbytes)[1].astype(np.int64)) >> 1  # the power of two at or below
        steps = np.where(self._varies, np.maximum(below >> 3, _ROOM_BYTES), ALIGNMENT)
        room = -(-nbytes // steps) * steps
        least = np.maximum(room - steps + 1, np.where(steps > _ROOM_BYTES, below, 0))
        offsets, total = assign_offsets(room.tolist(), self._lives)
        return _Placed(room, least, np.array(offsets, np.int64), total)


def _derived(spec: KernelSpec, given: Sequence[int], stages: Sequence[int]) -> Derived:
    complete = tuple(spec.complete(given))
    tasks = spec.tasks(complete)
    if tasks == 0:
        return Derived(complete, _NO_WORDS, 0.0, (0, 0, 0, 1, 1, 0))
    estimate = microseconds(spec.work(complete))
    grain = max(spec.grain(complete), grain_for(estimate, tasks))
    words = np.array([*complete, *stages], np.int64)
    shares = threads_for(estimate, tasks, tasks)
    return Derived(complete, words, estimate, (0, len(words), tasks, shares, grain, spec.scratch_bytes(complete)))


class _Evaluator:
    """One generated function that evaluates every expression for values of the variables."""

    def __init__(self, numbers: Sequence[DimLike]) -> None:
        self._settled = [dim if isinstance(dim, int) else 0 for dim in numbers]
        self._rows = [row for row, dim in enumerate(numbers) if not isinstance(dim, int)]
        symbolic = [numbers[row] for row in self._rows]
        found = dims.atoms(symbolic)
        # Names of dimensions need not be identifiers, and are not ours.
        names = {atom: f"v{number}" for number, atom in enumerate(found)}
        variables = [atom for atom in found if atom.function == "variable"]
        self._names = [atom.text for atom in variables]
        lines = [f"{names[atom]} = {dims.atom_source(atom, names)}" for atom in found if atom.function != "variable"]
        result = "".join(f"{dims.python_source(dim, names)}, " for dim in symbolic)
        head = f"def evaluate({', '.join(names[atom] for atom in variables)}):"
        scope: dict[str, Any] = {}
        exec("\n    ".join([head, *lines, f"return ({result})"]), scope)
        self._function = scope["evaluate"]

    def __call__(self, sizes: Mapping[str, int]) -> list[int]:
        values = list(self._settled)
        for row, result in zip(self._rows, self._function(*[sizes[name] for name in self._names]), strict=True):
            values[row] = result
        return values

    @forks.cached_property
    def _first_words(self) -> Words:
        return np.array(self._settled, np.int64)

    def words(self, values: Sequence[int]) -> Words:
        """What a call has given as an array. OverflowError for a number beyond 64 bits."""
        words = self._first_words.copy()
        words[self._rows] = [values[row] for row in self._rows]
        return words


def _kinds(tensors: Sequence[PlanTensor]) -> TensorKinds:
    return TensorKinds.of(
        [tensor.name for tensor in tensors],
        [tensor.dtype for tensor in tensors],
        [len(tensor.shape) for tensor in tensors],
    )


def _shape_rows(tensors: Sequence[PlanTensor], one: int) -> Words:
    """Which numbers `Tensors.shapes` are. one: which number is 1."""
    rank = max((len(tensor.shape) for tensor in tensors), default=0)
    rows = [(*tensor.shape, *(one for _ in range(rank - len(tensor.shape)))) for tensor in tensors]
    return np.array(rows, np.int64).reshape(len(tensors), rank)
