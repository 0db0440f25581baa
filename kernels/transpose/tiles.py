"""Square tiles of a matrix transposed in registers: for copies to another layout, on their own or within a kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice

from jitonnx.emit.builder import REGISTER_LANE_BYTES, KernelBuilder, Pointer, larger, shuffled, smaller
from jitonnx.emit.simd import LINE_BYTES
from jitonnx.emit.ssa import SSAValue, select
from jitonnx.kernels.transpose.spec import LARGEST_TILE
from jitonnx.support.records import NamedTuple


def tile_size(vector_bytes: int, itemsize: int) -> int:
    """Rows and columns of a tile of such elements."""
    return min(LARGEST_TILE, vector_bytes // itemsize)


class TileOrder(NamedTuple):
    """How a copy goes through the tiles of a matrix."""

    b_first: SSAValue
    """Whether they follow each other along b first (else along a)."""
    before: Sequence[SSAValue]
    """How many elements in front of the first, along a and b, the grid of tiles begins."""
    streams: bool
    """Whether whole lines of the caches are written past them."""


def copy_transposed(
    code: KernelBuilder,
    source: Pointer,
    source_step: SSAValue,
    targets: Callable[[SSAValue], Iterator[Pointer]],
    counts: tuple[SSAValue, SSAValue],
    vector_bytes: int,
    order: TileOrder | None = None,
) -> None:
    """target[b][a] = source[a * source_step + b] for a < counts[0], b < counts[1].

    Vectors along b become vectors along a. `targets(b)` gives the places of target[b], target[b + 1], …; `evenly` makes
    it where they are evenly apart. Without an order, tiles follow each other along b from the first element on. The
    first and the last tile along an axis overlap their neighbours where they would stand out.
    """
    itemsize = source.element.bitwidth // 8
    tile = tile_size(vector_bytes, itemsize)
    b_first, before, streams = order or TileOrder(
        code.integer(0) < 1, (code.integer(0), code.integer(0)), streams=False
    )
    streams = streams and tile * itemsize == LINE_BYTES
    before_a, before_b = before
    grid = (counts[0] + before_a, counts[1] + before_b)
    tiles_a, tiles_b = ((extent + (tile - 1)) / code.integer(tile) for extent in grid)
    slow, fast = select(b_first, tiles_a, tiles_b), select(b_first, tiles_b, tiles_a)
    whole_tiles = (counts[0] >= tile) & (counts[1] >= tile)
    with code.loop(slow) as i, code.loop(fast) as j:
        a, b = select(b_first, i, j) * tile - before_a, select(b_first, j, i) * tile - before_b
        first_a, first_b = larger(a, 0), larger(b, 0)
        with code.if_else(whole_tiles) as (whole, part):
            with whole:
                a_whole, b_whole = smaller(first_a, counts[0] - tile), smaller(first_b, counts[1] - tile)
                from_ = source.at(a_whole * source_step + b_whole)
                vectors = [from_.load(source_step * n, tile) for n in range(tile)]
                for target, vector in zip(targets(b_whole), transposed(vectors), strict=False):
                    _store(code, target.at(a_whole), vector, streams=streams)
            with part:
                active = (smaller(a + tile, counts[0]) - first_a, smaller(b + tile, counts[1]) - first_b)
                to = [target.at(first_a) for target in islice(targets(first_b), tile)]
                _copy_part(code, source.at(first_a * source_step + first_b), source_step, to, active, vector_bytes)


def evenly(target: Pointer, step: SSAValue) -> Callable[[SSAValue], Iterator[Pointer]]:
    """Places `step` elements apart."""
    return lambda b: (target.at((b + n) * step) for n in count())


def _store(code: KernelBuilder, target: Pointer, vector: SSAValue, *, streams: bool) -> None:
    """A vector, past the caches if it `streams` and is an aligned line of them."""
    if not streams:
        target.store(0, vector)
        return
    with code.if_else(target.misalignment(LINE_BYTES).equals(0)) as (aligned, other):
        with aligned:
            target.stream(0, vector)
        with other:
            target.store(0, vector)


def _copy_part(
    code: KernelBuilder,
    source: Pointer,
    source_step: SSAValue,
    targets: Sequence[Pointer],
    active: tuple[SSAValue, SSAValue],
    vector_bytes: int,
) -> None:
    """A tile at the edge: with masks, where the CPU has them for such elements, else element by element."""
    (live_a, live_b), tile = active, len(targets)
    by_mask = source.element.bitwidth >= 32 or vector_bytes >= 64
    mask_a, mask_b = (code.active(count, tile) if by_mask else None for count in active)
    if by_mask:  # rows that are not there are read as the last one
        places = [source_step * smaller(code.integer(n), live_a - 1) for n in range(tile)]
        vectors = transposed([source.load(place, tile, mask_b) for place in places])
    for n, target in enumerate(targets):
        with code.if_then(live_b > n):
            if by_mask:
                target.store(0, vectors[n], mask_a)
                continue
            with code.loop(live_a) as a:
                target.store(a, source.load(a * source_step + n))


def transposed(vectors: list[SSAValue]) -> list[SSAValue]:
    """The columns of a square matrix given as its rows.

    Blocks of as many elements as a lane of 128 bits holds are transposed within the lanes (unpack instructions), then
    whole lanes change places.
    """
    size, group = len(vectors), REGISTER_LANE_BYTES * 8 // vectors[0].element.bitwidth
    columns = [_transposed_in_lanes(vectors[first : first + group]) for first in range(0, size, group)]
    result = [_transposed_lanes([block[column] for block in columns], group) for column in range(group)]
    return [result[column][lane] for lane in range(size // group) for column in range(group)]


def _transposed_in_lanes(vectors: list[SSAValue]) -> list[SSAValue]:
    """Every lane of n vectors of n elements a lane, seen as the rows of a matrix, transposed.

    Each round interleaves a row with the one half the matrix further on; log2(n) rounds do it.
    """
    group, width = len(vectors), vectors[0].value.type.count
    halves = [
        [lane + start + i // 2 + (i % 2) * width for lane in range(0, width, group) for i in range(group)]
        for start in (0, group // 2)
    ]
    for _ in range(group.bit_length() - 1):
        pairs = zip(vectors[: group // 2], vectors[group // 2 :], strict=True)
        vectors = [shuffled(low, high, half) for low, high in pairs for half in halves]
    return vectors


def _transposed_lanes(vectors: list[SSAValue], group: int) -> list[SSAValue]:
    """Turn as many vectors as they have lanes: lane i of result j is lane j of vector i.

    Even lanes of neighbours make the even results, odd ones the odd results: the same problem at half the size.
    """
    if len(vectors) == 1:
        return vectors
    width = vectors[0].value.type.count
    lanes = [[first * group + i for first in range(odd, 2 * width // group, 2) for i in range(group)] for odd in (0, 1)]
    pairs = list(zip(vectors[::2], vectors[1::2], strict=True))
    even, odd = (_transposed_lanes([shuffled(*pair, order) for pair in pairs], group) for order in lanes)
    return [vector for both in zip(even, odd, strict=True) for vector in both]
