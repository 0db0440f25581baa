"""What kernels over rows share: going through a row by vectors, folding it, and functions applied on the way."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from jitonnx.emit import simd, types
from jitonnx.emit.builder import REGISTER_LANE_BYTES, KernelBuilder, gathered, larger, remainder, shuffled, smaller
from jitonnx.emit.epilogue import Epilogue, Stage
from jitonnx.emit.simd import convert
from jitonnx.emit.ssa import SSAValue, from_bits, select, to_float
from jitonnx.target import tuning

VECTORS = 4
"""Vectors of a row worked on at once: their chains of dependent operations hide each other's latency."""


def unit_range(
    code: KernelBuilder, begin: SSAValue, end: SSAValue, units: SSAValue, unit_elements: SSAValue
) -> tuple[SSAValue, SSAValue]:
    """The units [first, stop) of tasks [begin, end), as `sharing.units_per_task` cuts them."""
    each = larger(code.integer(tuning.TASK_ELEMENTS) / larger(unit_elements, 1), 1)
    return begin * each, smaller(end * each, units)


class Vectors:
    """Rows of `element`s gone through by vectors of `lanes`, with a prologue and an epilogue, each maybe None.

    result: the elements that the epilogue gives, where they are not `element`s."""

    def __init__(
        self,
        code: KernelBuilder,
        element: types.ElementType,
        lanes: int,
        prologue: Stage | None = None,
        epilogue: Stage | None = None,
        result: types.ElementType | None = None,
    ) -> None:
        self.code, self.element, self.lanes = code, element, lanes
        self.has_prologue = prologue is not None
        self._prologue = Epilogue(code, prologue, element, lanes)
        self._epilogue = Epilogue(code, epilogue, element, lanes, result)
        # A long prologue or epilogue is not repeated more than need be.
        self.vectors = VECTORS if prologue is None and epilogue is None else 2

    def each(self, columns: SSAValue, body: Callable[[int, SSAValue, SSAValue | None], None], rows: int = 1) -> None:
        """body(slot, column, live) for every vector of a row; live is None where all lanes are.

        Slots 0 <= slot < self.slots(rows) are emitted one after the other for neighbouring vectors; the rest of the
        row, whole vectors and a part of one, uses slot 0. rows: how many rows the body goes through at a time.
        """
        slots = self.slots(rows)
        block = slots * self.lanes
        whole = columns - remainder(columns, self.code.integer(block))
        with self.code.loop(whole, 0, block) as column:
            for slot in range(slots):
                body(slot, column + slot * self.lanes, None)
        with self.code.loop(columns, whole, self.lanes) as column:
            body(0, column, columns - column)

    def slots(self, rows: int = 1) -> int:
        """How many vectors of each of `rows` rows are worked on at once."""
        return max(1, self.vectors // rows)

    def fold(
        self,
        columns: SSAValue,
        initial: float,
        combine: Callable[[SSAValue, SSAValue], SSAValue],
        value: Callable[[SSAValue, SSAValue | None], SSAValue],
    ) -> SSAValue:
        """The vector combine(…) of value(column, live) over a row; lanes that are not live count as `initial`."""
        return self.folds(1, columns, initial, combine, lambda column, active: [value(column, active)])[0]

    def folds(
        self,
        rows: int,
        columns: SSAValue,
        initial: float,
        combine: Callable[[SSAValue, SSAValue], SSAValue],
        values: Callable[[SSAValue, SSAValue | None], list[SSAValue]],
    ) -> list[SSAValue]:
        """What `fold` gives, for several rows at a time: values(column, live) has one of each."""
        start = self.code.number(self.element, initial, self.lanes)
        totals = [[self.code.variable(start) for _ in range(rows)] for _ in range(self.slots(rows))]

        def body(slot: int, column: SSAValue, active: SSAValue | None) -> None:
            for total, x in zip(totals[slot], values(column, active), strict=True):
                total.set(combine(total.get(), self.only_live(x, active, initial)))

        self.each(columns, body, rows)
        results = [[total.get() for total in slot] for slot in totals]
        while len(results) > 1:
            pairs = zip(results[::2], results[1::2], strict=True)
            results = [[combine(a, b) for a, b in zip(*pair, strict=True)] for pair in pairs]
        return results[0]

    def only_live(self, x: SSAValue, active: SSAValue | None, other: float) -> SSAValue:
        """x with `other` in the lanes that are not live."""
        if active is None:
            return x
        mask = SSAValue(x.builder, types.boolean, self.code.active(active, self.lanes).value)
        return select(mask, x, other)

    def prologue(
        self, x: SSAValue, batch: SSAValue, row: SSAValue, column: SSAValue, active: SSAValue | None
    ) -> SSAValue:
        return self._apply(self._prologue, x, batch, row, column, active)

    def epilogue(
        self, x: SSAValue, batch: SSAValue, row: SSAValue, column: SSAValue, active: SSAValue | None
    ) -> SSAValue:
        return self._apply(self._epilogue, x, batch, row, column, active)

    def _apply(
        self, function: Epilogue, x: SSAValue, batch: SSAValue, row: SSAValue, column: SSAValue, active: SSAValue | None
    ) -> SSAValue:
        return function(self.code, x, batch, row, column, self.lanes if active is None else active)

    def sum(self, vector: SSAValue) -> SSAValue:
        return simd.reduce_add(vector)

    def across(self, rows: Sequence[SSAValue], combine: Callable[[SSAValue, SSAValue], SSAValue]) -> SSAValue:
        """Each row combined across its lanes, in a lane each; rows: a power of two, no more than there are lanes."""
        lanes, parts = self.lanes, list(rows)
        while lanes > len(rows):
            lanes //= 2
            parts = [combine(self.code.part(part, 0, lanes), self.code.part(part, lanes, lanes)) for part in parts]
        (total,) = across_rows([(part,) for part in parts], lambda a, b: (combine(*a, *b),))
        return total

    def sums(self, rows: Sequence[SSAValue]) -> SSAValue:
        """The sum across each row's lanes, as `across`."""
        return self.across(rows, lambda a, b: a + b)

    def largest(self, vector: SSAValue) -> SSAValue:
        """The largest lane; any lane if one is NaN."""
        best = self.across([vector], larger_lanes)
        return vector.like(vector.builder.extract_element(best.value, self.code.integer(0).value))


Parts = tuple[SSAValue, ...]
"""Vectors that belong together lane by lane: values, or values and the index of each."""


def across_rows(rows: Sequence[Parts], combine: Callable[[Parts, Parts], Parts]) -> Parts:
    """Each of as many rows as they have lanes combined across its lanes: lane i of the result is that of rows[i].

    Each round halves the vectors: of a pair, half the lanes of both are combined with the other halves. A row costs
    two shuffles and one operation, where on its own it would take log2(lanes) of each, one waiting for the other.
    """
    vectors, lanes = list(rows), len(rows)
    register_lane = min(lanes, REGISTER_LANE_BYTES * 8 // vectors[0][0].element.bitwidth)
    owner = [0] * lanes  # of each lane, which row of this vector's it holds a part of
    while len(vectors) > 1:
        within = register_lane if len(set(owner)) < register_lane else lanes
        low, high = _halves(owner, within)
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [combine(_shuffled_parts(a, b, low), _shuffled_parts(a, b, high)) for a, b in pairs]
        both = [*owner, *(row + len(set(owner)) for row in owner)]
        owner = [both[lane] for lane in low]
    return _shuffled_parts(vectors[0], vectors[0], [owner.index(row) for row in range(lanes)])


def across_packed(vectors: Sequence[Parts], length: int, combine: Callable[[Parts, Parts], Parts]) -> Parts:
    """Rows of `length` elements, one after the other in `length` vectors, each combined: lane i has that of row i.

    As long as rows are of even length, neighbours are combined: that halves rows and vectors. Then each column is
    gathered, and these are combined.
    """
    rows, lanes = list(vectors), vectors[0][0].value.type.count
    while length > 1 and length % 2 == 0:
        even, odd = range(0, 2 * lanes, 2), range(1, 2 * lanes, 2)
        pairs = zip(rows[::2], rows[1::2], strict=True)
        rows = [combine(_shuffled_parts(a, b, even), _shuffled_parts(a, b, odd)) for a, b in pairs]
        length //= 2
    places = [range(column, length * lanes, length) for column in range(length)]
    columns = [tuple(gathered(part, place) for part in zip(*rows, strict=True)) for place in places]
    return functools.reduce(combine, columns)


def _shuffled_parts(a: Parts, b: Parts, order: Sequence[int]) -> Parts:
    return tuple(shuffled(x, y, order) for x, y in zip(a, b, strict=True))


def in_all_lanes(x: SSAValue, lanes: int) -> list[SSAValue]:
    """The vectors that have one lane of a vector in all `lanes`, for each."""
    return [shuffled(x, x, [lane] * lanes) for lane in range(x.value.type.count)]


def _halves(owner: Sequence[int], within: int) -> tuple[list[int], list[int]]:
    """Lanes of a pair of vectors such that each row of both has as many in the first list as in the second.

    They come from the same stretch of `within` lanes, from the first vector, then from the second: what one shuffle
    instruction does.
    """
    halves: tuple[list[int], list[int]] = ([], [])
    for start in range(0, len(owner), within):
        stretch = range(start, start + within)
        for first in (0, len(owner)):
            for lane in stretch:
                before = sum(owner[other] == owner[lane] for other in stretch if other < lane)
                count = sum(owner[other] == owner[lane] for other in stretch)
                halves[2 * before >= count].append(first + lane)
    return halves


def as_element(count: SSAValue, element: types.ElementType) -> SSAValue:
    """An int64 as a float."""
    return convert(to_float(count), element)


def float_from_bits(size: SSAValue, element: types.ElementType) -> SSAValue:
    """A size that is the bit pattern of a float64, as a float."""
    return convert(from_bits(size), element)


def larger_lanes(a: SSAValue, b: SSAValue) -> SSAValue:
    """The larger one in each lane, by one instruction; either of them where one is NaN."""
    return select(a > b, a, b)
