"""What of a plan makes programs: numbers over the dimension variables, and which of them each call takes.

A session makes its programs with it, and so does an artifact that serves ranges of shapes. It is plain data, and
this module imports nothing that plans or compiles.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from jitonnx.ir.dims import Dim, DimLike
from jitonnx.kernels.spec import KernelSpec
from jitonnx.plan.arena import ArenaPlacement, Lifetime
from jitonnx.plan.size_program import Derived, Evaluator, Kind, SizeProgram, completed
from jitonnx.runtime.instantiation import Bounds, Instantiation, Rows
from jitonnx.runtime.instantiation import SizedConstant as OwnContents
from jitonnx.runtime.layout import ALIGNMENT, STEP_COLUMNS
from jitonnx.runtime.program import (
    SPACES,
    OutOfBounds,
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
from jitonnx.support import fork_safety
from jitonnx.support.records import NamedTuple

if TYPE_CHECKING:
    import numpy.typing as npt

    from jitonnx.plan.tables import Maker
    from jitonnx.runtime.tables import Tables

GIL_STEPS, GIL_NANOSECONDS = 64, 20_000
"""Runs of fewer steps that are estimated to take less time keep the GIL: letting it go and taking it again costs about
0.1 microseconds, and where other threads want it a switch to them and back."""

_ROOM_BYTES = 512
"""Room in the arena is counted in so many bytes at least where sizes vary."""


class OperandPlace(NamedTuple):
    """An operand's place: in constant, input or output number `index`, or in buffer `index` of the arena.

    offset: which number says how many bytes from the beginning.
    """

    space: Space
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody misses
    offset: int


class ProgramCall(NamedTuple):
    """One kernel's call. sizes, stage_sizes: which numbers are those of the kernel, and of prologue and epilogue."""

    spec: KernelSpec
    sizes: tuple[int, ...]
    stage_sizes: tuple[int, ...]
    operands: tuple[OperandPlace, ...]
    label: str


class ArenaBuffer(NamedTuple):
    """Memory for an intermediate result. bytes: which number says how many."""

    bytes: int
    life: Lifetime


class Bound(NamedTuple):
    """An operand that has to be looked at, whether it lies in its memory. operand: which of those of all calls.

    call: which call's. bytes: which number says how large its memory is. shape, strides: which numbers are its sizes,
    and how many elements of `itemsize` bytes lie between neighbours along each axis.
    """

    operand: int
    call: int
    bytes: int
    itemsize: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class ConstantNumbers(NamedTuple):
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


class PlanTensor(NamedTuple):
    """An input or output. shape: which numbers are its sizes."""

    name: str
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]


Array: TypeAlias = "npt.NDArray[np.generic]"
Constant: TypeAlias = "Array | ConstantNumbers | Computed"


class ParametricProgram:
    """A plan as programs need it; all that says "which number" names one of `numbers` by its position.

    numbers: integers, and expressions over the dimension variables; distinct.
    assumptions: pairs of numbers that have to be equal. bounds: of the operands that may not lie in their memory.
    """

    def __init__(  # noqa: PLR0913  (the fields of its message)
        self,
        inputs: Sequence[PlanTensor],
        outputs: Sequence[PlanTensor],
        calls: Sequence[ProgramCall],
        arena: Sequence[ArenaBuffer],
        constants: Sequence[Constant],
        assumptions: Sequence[tuple[int, int]],
        bounds: Sequence[Bound],
        numbers: Sequence[DimLike],
    ) -> None:
        self.inputs, self.outputs, self.calls = inputs, outputs, calls
        self.arena, self.constants, self.assumptions, self.numbers = arena, constants, assumptions, numbers
        self.bounds = bounds
        self._bounds = Bounds(
            np.array([bound[:4] for bound in bounds], np.int64).reshape(len(bounds), 4).T.copy(),
            _padded([bound.shape for bound in bounds], len(numbers)),
            _padded([bound.strides for bound in bounds], len(numbers)),
        )
        self._contents = [
            (n, constant) for n, constant in enumerate(constants) if isinstance(constant, ConstantNumbers)
        ]
        self._computed: dict[tuple[Maker, tuple[int, ...]], list[tuple[int, int]]] = {}
        """Which constants are which of the arrays that a maker makes, by maker and sizes."""
        for place, constant in enumerate(constants):
            if isinstance(constant, Computed):
                self._computed.setdefault((constant.maker, constant.sizes), []).append((place, constant.part))
        self.input_kinds, self._input_rows = _kinds(inputs), _shape_rows(inputs, len(numbers))
        self.output_kinds, self._output_rows = _kinds(outputs), _shape_rows(outputs, len(numbers))
        self.sizes = Sizing([[numbers[row] for row in tensor.shape] for tensor in inputs], self.assumed())
        """Values of the dimension variables for the inputs' shapes; None if these are not what the plan assumes."""
        self._arena = _Arena(arena, numbers)
        operands = [operand for call in calls for operand in call.operands]
        self._offset_rows = np.array([operand.offset for operand in operands], np.int64)
        self._in_arena = np.array([n for n, operand in enumerate(operands) if operand.space == "arena"], np.int64)
        self._buffers = np.array([operands[place].index for place in self._in_arena], np.int64)
        kinds: dict[Kind, int] = {}
        kind_of = [kinds.setdefault(Kind(call.spec, call.sizes, call.stage_sizes), len(kinds)) for call in calls]
        self._kind_of, self._call_kinds = np.array(kind_of, np.int64), list(kinds)
        self._derivation = SizeProgram([*numbers, 1], self._call_kinds)

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
            self._shared(operands),
        )

    def _shared(self, operands: Sequence[OperandPlace]) -> frozenset[tuple[int, int]]:
        """Which inputs and outputs may be the same memory: see `Wiring`."""
        found = []
        for call in self.calls:
            for names in call.spec.IN_PLACE:
                read, written = (call.operands[call.spec.BUFFERS.place(name)] for name in names)
                whole = all(self.numbers[operand.offset] == 0 for operand in (read, written))
                if (read.space, written.space) == ("input", "output") and whole:
                    readers = sum(one.space == "input" and one.index == read.index for one in operands)
                    found += [(read.index, written.index)] if readers == 1 else []
        return frozenset(found)

    def instantiate(self, sizes: Mapping[str, int], wiring: Wiring) -> Program:
        """The program for values of the dimension variables. Fail for tensors beyond all memory, OutOfBounds where an
        operand would lie outside of its own.

        This is what a new shape costs: native code that goes by kinds of calls, and NumPy by calls and operands.
        """
        derived = self._derived(sizes)
        numbers = derived.numbers
        arena, arena_bytes = self._arena(numbers)
        offsets = numbers[self._offset_rows]
        columns = np.take(derived.columns, self._kind_of, axis=1)
        self._bound(offsets, numbers, columns[STEP_COLUMNS.index("tasks")], wiring)
        offsets[self._in_arena] += arena[self._buffers]
        return Program(
            Steps(wiring, offsets, derived.sizes, columns),
            arena_bytes,
            self._all_constants(numbers),
            Tensors(self.input_kinds, numbers[self._input_rows]),
            Tensors(self.output_kinds, numbers[self._output_rows]),
        )

    def _bound(self, offsets: Words, numbers: Words, tasks: Words, wiring: Wiring) -> None:
        """Have operands without elements lie at the beginning of their buffers; OutOfBounds for others outside, but for
        those of calls that are passed over. tasks: of each call."""
        (operands, calls, nbytes, itemsizes), *axes = self._bounds
        sizes, strides = (numbers[rows] for rows in axes)
        spans = (sizes - 1) * strides * itemsizes[:, None]
        begin = offsets[operands] + np.minimum(spans, 0).sum(axis=1)
        end = offsets[operands] + itemsizes + np.maximum(spans, 0).sum(axis=1)
        empty = (sizes <= 0).any(axis=1)
        offsets[operands[empty]] = 0
        for place in operands[((begin < 0) | (end > numbers[nbytes])) & ~empty & (tasks[calls] > 0)].tolist():
            raise OutOfBounds(wiring, place)

    def instantiate_natively(
        self, sizes: Mapping[str, int], native: Instantiation, threads: int
    ) -> tuple[Program, Tables] | None:
        """What `instantiate` gives, by native code, with the program's tables; None where that has to be done by
        Python."""
        with self._derivation.lock:
            recorded = self._derivation.recorded
            if recorded is None:
                return None
            arithmetic, variables, first = recorded
            return native(arithmetic, [sizes[name] for name in variables], first, threads)

    @property
    def derivation(self) -> SizeProgram:
        """What works out what follows from sizes."""
        return self._derivation

    @fork_safety.cached_property
    def rows(self) -> Rows:
        """What native code makes programs of."""
        contents = [(number, one) for number, one in self._contents if one.dtype == np.int64]
        own = len(self._contents) + len(self._computed)
        in_arena = np.full(len(self._offset_rows), -1, np.int64)
        in_arena[self._in_arena] = self._buffers
        return Rows(
            self._kind_of,
            *self._arena.rows,
            self._offset_rows,
            in_arena,
            self._bounds,
            self._input_rows,
            self._output_rows,
            [OwnContents(number, one.shape, one.elements) for number, one in contents],
            self._made_constants if own > len(contents) else None,
            len(self.numbers),
        )

    def _made_constants(self, numbers: Words) -> dict[int, Array]:
        """The constants of each program's own that are no int64 elements."""
        values = numbers.tolist()
        made = {n: constant.array(values) for n, constant in self._contents if constant.dtype != np.int64}
        if self._computed:
            from jitonnx.plan import tables

            for (maker, rows), parts in self._computed.items():
                arrays = tables.made(maker, tuple([values[row] for row in rows]))
                made.update((place, arrays[part]) for place, part in parts)
        return made

    def _derived(self, sizes: Mapping[str, int]) -> Derived:
        try:
            return self._derivation(sizes)
        except OverflowError:
            values = self._derivation.evaluate(sizes)
            for tensor in (*self.inputs, *self.outputs):
                shape = tuple([values[row] for row in tensor.shape])
                if math.prod(shape) * tensor.dtype.itemsize >= 1 << 63:
                    raise beyond_memory(TensorSpec(tensor.name, tensor.dtype, shape)) from None
            raise arena_beyond_memory(max(values)) from None

    def _all_constants(self, numbers: Words) -> Sequence[Any]:
        if not self._contents and not self._computed:
            return self.constants
        constants: list[Any] = [*self.constants]
        values = numbers.tolist()
        for place, constant in self._contents:
            constants[place] = constant.array(values)
        for place, array in self._made_constants(numbers).items():
            constants[place] = array
        return constants

    def completed(self, sizes: Mapping[str, int]) -> Iterator[Any]:
        """The sizes that each call's kernel gets for values of the dimension variables, its stages' left out.

        Fail for tensors beyond all memory.
        """
        values = self._derived(sizes).numbers.tolist()
        return (completed(self._call_kinds[kind], values) for kind in self._kind_of)

    def is_short(self, program: Program) -> bool:
        """Whether a run of the program is too short to let go of the GIL for."""
        return program.nanoseconds <= self.quick

    @property
    def quick(self) -> int:
        """The estimated nanoseconds of a run up to which it is too short for that; -1 if none is."""
        return GIL_NANOSECONDS if len(self.calls) <= GIL_STEPS else -1

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
        self._assumed = Evaluator([dim for pair in assumptions for dim in pair])

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
        """Bind them as a call does, but for the assumptions."""
        sizes: dict[str, int] = {}
        for number, axis, name in self._variables:
            size = shapes[number][axis]
            if sizes.setdefault(name, size) != size:
                return None
        return sizes


class _Placed(NamedTuple):
    """The places of an arena's buffers if they have at most `room` bytes each; at least `least` get the same
    room."""

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
        self._place = ArenaPlacement([buffer.life for buffer in arena])
        self.rows = self._rows, np.where(self._varies, _ROOM_BYTES, ALIGNMENT), *self._place.lives
        """Those of `runtime.instantiation.Rows`."""
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
        return _Placed(room, least, *self._place(room))


def _kinds(tensors: Sequence[PlanTensor]) -> TensorKinds:
    return TensorKinds.of(
        [tensor.name for tensor in tensors],
        [tensor.dtype for tensor in tensors],
        [len(tensor.shape) for tensor in tensors],
    )


def _shape_rows(tensors: Sequence[PlanTensor], one: int) -> Words:
    """Which numbers `Tensors.shapes` are. one: which number is 1."""
    return _padded([tensor.shape for tensor in tensors], one)


def _padded(shapes: Sequence[Sequence[int]], one: int) -> Words:
    """Rows of numbers of equal length, filled up with `one`."""
    rank = max(map(len, shapes), default=0)
    rows = [(*shape, *(one for _ in range(rank - len(shape)))) for shape in shapes]
    return np.array(rows, np.int64).reshape(len(shapes), rank)
