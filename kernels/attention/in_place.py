"""Attention of few query rows: k and v are read once, where they lie, as fast as memory gives them.

To copy k and v to panels, which tiles of many rows read from the second-level cache, takes longer than the products of
a few rows. Here rows of k and of v are read one behind the other, which CPUs see, and fetch them ahead: 85 to 98 GB/s
from the third-level cache on a Zen 4 core, and not more with prefetches among the loads. Of several rows, which are
multiplied with what was loaded once, prefetches make 16 to 25 GB/s 28 to 42 on a Zen 5 core, where memory gives 41.
They stand among the products, a row's with each row: many at a time wait for each other, and loads wait for them. They
go on behind the last row of k with what is read next (`rows_ahead`), as short sequences are not much longer than what
is asked for ahead.
"""

from __future__ import annotations

from collections.abc import Sequence

from jitonnx.emit import types
from jitonnx.emit.builder import KernelBuilder, Mask, Pointer, Variable, larger, remainder, shuffled, smaller
from jitonnx.emit.ssa import SSAValue, fma, select
from jitonnx.kernels.parts.layouts import LINE
from jitonnx.kernels.parts.microkernel import emit_prefetch, in_chains
from jitonnx.support.records import NamedTuple
from jitonnx.target import tuning

_KEYS = 4
"""Keys whose scores are made at a time: their sums are added across lanes together."""
_AHEAD = 12 << 10
"""Bytes ahead that rows are asked for where several rows of q take longer to multiply than to read them: a third of it
made 25 GB/s of 64 columns for 8 heads what is 36 on a Zen 5 core."""
_ALL = 1 << 32
"""More rows than there are."""
_BY_ONE, _BY_TWO = ((0, 0), (1, 0), (0, 1), (1, 1)), ((0, 0), (0, 1), (1, 0), (1, 1))


class Matrix(NamedTuple):
    """Rows of unit stride, of float32 or what is loaded as that."""

    start: Pointer
    step: SSAValue
    """Elements from a row to the next."""
    rows: SSAValue
    columns: SSAValue

    def row(self, number: SSAValue | int) -> Pointer:
        return self.start.at(self.step * number)


def rows_within(code: KernelBuilder, matrix: Matrix) -> SSAValue:
    """How many rows ahead of its use a row is asked for."""
    return larger(code.integer(8 * _AHEAD // matrix.start.element.bitwidth) / larger(matrix.columns, 1), 1)


class Asked(NamedTuple):
    """Rows that are asked for while others are multiplied, one with each."""

    start: Pointer
    step: SSAValue
    rows: SSAValue

    def row(self, number: SSAValue | int) -> Pointer:
        return self.start.at(self.step * number)


def rows_ahead(code: KernelBuilder, first: SSAValue, read: Sequence[Matrix]) -> Asked:
    """Rows from `first` on of matrices that are read one behind the other, as far as one of them goes; behind the last
    one its last row, of a single one what lies behind it."""
    last, starts = read[-1], [first]
    if len(read) == 1:
        return Asked(last.row(first), last.step, code.integer(_ALL))
    for matrix in read[:-1]:
        starts.append(starts[-1] - matrix.rows)
    number, behind = starts[-1], starts[-1] >= last.rows
    start = last.row(larger(smaller(number, last.rows - 1), 0))
    step, rows = select(behind, 0, last.step), select(behind, code.integer(_ALL), last.rows - number)
    for matrix, number in reversed(list(zip(read[:-1], starts[:-1], strict=True))):
        within = number < matrix.rows
        start = start.unless(within, matrix.row(number))
        step, rows = select(within, matrix.step, step), select(within, matrix.rows - number, rows)
    return Asked(start, step, rows)


def _ask(code: KernelBuilder, places: Sequence[Pointer]) -> None:
    """Have lines brought to the first-level cache."""
    for place in places:
        emit_prefetch(code.builder, place.value, level=1)


def emit_scores(
    code: KernelBuilder,
    parts: Sequence[tuple[Matrix, Matrix]],
    height: int,
    scores: Pointer,
    score_row: SSAValue,
    lanes: int,
    later: Sequence[Matrix] = (),
) -> None:
    """scores[row * score_row + key] = Σ q[row][i] * k[key][i] over all columns of all parts (q, k), of `height` rows.

    Keys are done by fours, of which the last end with the last key, and take it several times if there are fewer. So up
    to three elements behind the last key are written. later: what is read behind k, and is asked for ahead.
    """
    keys = parts[0][1].rows
    offsets = [smaller(code.integer(number), larger(keys - 1, 0)) * parts[0][1].step for number in range(_KEYS)]
    together = min(height, 4 if code.target.vector_registers >= 32 else 2)
    whole = height // together * together
    with code.loop(keys, step=_KEYS) as first:
        key = smaller(first, larger(keys - _KEYS, 0))
        rows = [[k.row(key).at(offset) for offset in offsets] for _, k in parts]
        asked: list[Pointer] = []
        if together > 1:  # all parts lie in the same bytes
            k = parts[0][1]
            ahead = key + rows_within(code, k)
            asked = [rows_ahead(code, ahead + number, [k, *later]).start for number in range(_KEYS)]
        for count, begin, end in ((together, 0, whole), (height - whole, whole, height)):
            if begin < end:
                with code.loop(code.integer(end), begin, count) as r:
                    products = _scores(code, parts, rows, r, count, lanes, asked)
                    for number, score in enumerate(products):
                        scores.store((r + number) * score_row + key, score)


def _scores(
    code: KernelBuilder,
    parts: Sequence[tuple[Matrix, Matrix]],
    rows: Sequence[Sequence[Pointer]],
    first: SSAValue,
    count: int,
    lanes: int,
    asked: Sequence[Pointer],
) -> list[SSAValue]:
    """Of `count` rows of q from the first on, the scores of four rows of k, of each part: vectors of four. asked: rows
    that are asked for meanwhile."""
    zero, columns = code.number(types.float32, 0.0, lanes), parts[0][1].columns
    whole = columns - remainder(columns, code.integer(lanes))
    rest = code.active(columns - whole, lanes)
    sums = [[code.variable(zero) for _ in range(_KEYS)] for _ in range(count)]
    for part, ((q, _), some) in enumerate(zip(parts, rows, strict=True)):
        soon = () if part else asked

        def add(
            column: SSAValue,
            active: Mask | None,
            q: Matrix = q,
            some: Sequence[Pointer] = some,
            soon: Sequence[Pointer] = soon,
        ) -> None:
            values = [row.load(column, lanes, active) for row in some]
            _ask(code, [row.at(column) for row in soon])
            for number, totals in enumerate(sums):
                _add_products(totals, values, q.row(first + number).load(column, lanes, active))

        with code.loop(whole, 0, lanes) as column:
            add(column, None)
        with code.if_then(whole < columns):
            add(whole, rest)
    return [_sums_of_lanes(code, [total.get() for total in totals]) for totals in sums]


def emit_results(  # noqa: PLR0913  (what is passed on as a function's arguments)
    code: KernelBuilder,
    weights: Pointer,
    weight_row: SSAValue,
    height: int,
    v: Matrix,
    y: Matrix,
    width: int,
    lanes: int,
    *,
    adds: bool = False,
    asked: tuple[Asked, Asked] | None = None,
) -> None:
    """y[r][column] = Σ weights[r * weight_row + key] * v[key][column] for r < height, column < width; or add that to y.

    Of v, no more is read than its columns, which may be fewer than `width`. asked: rows that are asked for meanwhile,
    by the number of the key, and those behind the last of them.
    """
    starts, in_line = range(0, width, lanes), 8 * LINE // v.start.element.bitwidth
    active = [code.active(v.columns - start, lanes) for start in starts]
    zero = code.number(types.float32, 0.0, lanes)
    sums = [[code.variable(zero) for _ in starts] for _ in range(height)]
    flat, kept = [total for of_row in sums for total in of_row], [y.row(r).at(s) for r in range(height) for s in starts]
    others = (code.integer(int(adds)), code.integer(1))  # what is kept behind the last chain is the result

    def add(*, whole: bool) -> None:
        with (
            in_chains(code, flat, kept, (larger(v.rows, 1), 0, tuning.SUM_STEPS), others) as (first, end),
            code.loop(smaller(end, v.rows), first) as key,
        ):
            row = v.row(key)
            values = [
                row.load(start, lanes, None if whole else mask) for start, mask in zip(starts, active, strict=True)
            ]
            if asked is not None:
                within, behind = asked
                soon = behind.row(key).unless(key < within.rows, within.row(key))
                _ask(code, [soon.at(start) for start in range(0, width, in_line)])
            for r in range(height):
                _add_products(sums[r], values, code.splat(weights.load(weight_row * r + key), lanes))

    with code.if_else(v.columns >= width) as (all_columns, some):
        with all_columns:
            add(whole=True)
        with some:
            add(whole=False)


def _add_products(sums: Sequence[Variable], values: Sequence[SSAValue], factor: SSAValue) -> None:
    for total, value in zip(sums, values, strict=True):
        total.set(fma(value, factor, total.get()))


def _sums_of_lanes(code: KernelBuilder, vectors: Sequence[SSAValue]) -> SSAValue:
    """The sums of the lanes of each of four vectors, as a vector of four."""
    a, b, c, d = vectors
    total = _folded(_folded(a, b, _BY_ONE), _folded(c, d, _BY_ONE), _BY_TWO)
    lanes = a.value.type.count
    while lanes > _KEYS:
        lanes //= 2
        total = code.part(total, 0, lanes) + code.part(total, lanes, lanes)
    return total


def _folded(x: SSAValue, y: SSAValue, order: Sequence[tuple[int, int]]) -> SSAValue:
    """Add, of each four lanes of x, and of y, the first two and the last two, in this order of (x or y, lane)."""
    lanes = x.value.type.count
    first = [four + side * lanes + lane for four in range(0, lanes, 4) for side, lane in order]
    low, high = (shuffled(x, y, [lane + half for lane in first]) for half in (0, 2))
    return low + high
