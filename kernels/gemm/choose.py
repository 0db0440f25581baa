"""Which tile serves which matrix product on which CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from jitonnx.kernels.gemm.spec import GemmSpec
from jitonnx.support.records import NamedTuple
from jitonnx.target import tuning
from jitonnx.target.choosing import cheapest

if TYPE_CHECKING:
    from jitonnx.target.machine import Target

_ASSUMED_K = 256  # where k is not known
_LINE_BYTES = 64  # of the cache
_PAGE = 4096  # bytes: addresses that far apart map to the same lines of a first-level cache
_PIECE = 1 << 16
_ASSUMED_ROWS = 64  # where m is not known
_GENERAL_SIZES = (1, 2, 3, 4, 6, 8)  # of tiles for unknown extents


class _Cover(NamedTuple):
    """One dimension cut into tiles: their sizes, decreasing, and how often each is used."""

    sizes: tuple[int, ...]
    counts: tuple[float, ...]


class GemmExtents(NamedTuple):
    """`batch` products of m x k by k x n; None: not known before run time."""

    m: int | None
    n: int | None
    k: int | None
    batch: int | None = 1

    def text(self) -> str:
        """What `extents_of` reads."""
        m, n, k, batch = ("any" if extent is None else str(extent) for extent in self)
        return f"{batch} x {m}x{n}x{k}"


def extents_of(text: str) -> GemmExtents:
    """The extents that a text begins with."""
    batch, _, sizes = text.split()[:3]
    m, n, k, count = (None if extent == "any" else int(extent) for extent in (*sizes.split("x"), batch))
    return GemmExtents(m, n, k, count)


Tile: TypeAlias = "tuple[tuple[int, ...], tuple[int, ...]]"
"""Heights and widths of a product's tiles, in rows and in parts of vectors."""


def choose_gemm(
    extents: GemmExtents,
    target: Target,
    *,
    packed_b: bool = True,
    a_in_place: bool = True,
    element: str = "float32",
) -> GemmSpec:
    """The spec that costs least by `tile_cost`.

    A tile's sums, one row of b and one element of a must fit in the registers: with 32 of them that is 6 x 4 vectors
    (24 + 4 + 1), 9 x 3, 14 x 2; with 16 it is 6 x 2 or 4 x 3. Where m is known, the remainder below has a tile of its
    own; where it is not, tiles of about half, a quarter and an eighth of the height make up any remainder. So with n,
    whose remainder is in whole vectors, or in half ones where b is packed and vectors have 64 bytes: CPUs that split
    those in two do half of one in half of the time (Zen 4), some do the halves of two rows in one (`joins_halves`),
    others lose nothing. Every further tile adds some 15 ms of compiling, which counts as half a percent of the run
    time, and as 5 % of that of a small product (some 10 microseconds).
    """
    m, n, k, batch = extents
    lanes = target.lanes(np.dtype(element).itemsize)
    parts = _parts(extents, target, packed_b=packed_b, element=element)

    def problem() -> str:
        return f"{extents.text()} {element}{', packed' * packed_b}"

    heights, widths = cheapest(
        "GEMM tile",
        problem,
        tile_costs(extents, target, packed_b=packed_b, element=element),
        lambda tile: tile_text(tile, parts),
        alike=lambda tile: tile[1][0],
    )
    itemsize = np.dtype(element).itemsize
    waits = packed_b and target.asks_for_panels
    # Tiles of 12 sums have no time for more loads where b stays in the second-level cache: 784 x 512 x 256 reached 0.85
    # of AVX2's FMA limit without, 0.80 with; 128 x 768 x 3072, whose b does not stay there, 0.72 and 0.84.
    stays = (
        target.vector_registers < 32 and n is not None and k is not None and n * k * itemsize <= target.l2_bytes // 2
    )
    if waits and (m, batch) == (1, 1) and n and k and n * k * itemsize > target.l2_bytes and n >= 2 * lanes:
        # A row of a takes no time at all: one stream of b, asked for long ahead, is what memory gives most to. What
        # stays in the second-level cache is read by several sums at once, or the latency of an FMA a step would bind:
        # 1 x 128 x 2112 took 19.6 us in panels of one vector, 7.6 in panels of four.
        return GemmSpec(
            *((1,), (lanes,), element, a_in_place, packed_b),
            prefetch_distance=tuning.GEMM_ONE_ROW_STEPS,
            chained=k > tuning.SUM_STEPS,
        )
    panel_bytes = (k or _ASSUMED_K) * widths[0] * lanes // parts * itemsize
    # A panel that outgrows the first-level cache is worth the loads in any case: 0.91 of the time at 196 x 384 x 512.
    prefetch_distance = target.steps_near(panel_bytes) if waits and (not stays or panel_bytes > target.l1_bytes) else 0
    wide = tuple(width * lanes // parts for width in widths)
    next_panel = n is None or n > wide[0]
    paced_prefetch = waits and not stays and next_panel
    if packed_b:
        prefetch_distance, paced_prefetch = _requests(
            problem, (prefetch_distance, paced_prefetch), next_panel=next_panel
        )
    prefetches_rows = target.vector_registers >= 32 or not target.waits_for_l3
    copies = not packed_b and target.waits_for_l3
    used = ((m or _ASSUMED_ROWS) + 2 * wide[0]) * (k or 0) * itemsize
    in_parts = waits and a_in_place and target.vector_registers >= 32 and 2 * used > target.l2_bytes
    part = tuning.GEMM_LONG_PART_OF_K if (m or 0) >= tuning.GEMM_ROWS_OF_LONG_PARTS else tuning.GEMM_PART_OF_K
    parts_of_k = -(-(k or 0) // part) if in_parts else 1
    return GemmSpec(
        *(heights, wide, element, a_in_place, packed_b),
        near_bytes=tuning.GEMM_WAITING_NEAR_BYTES if copies else tuning.GEMM_NEAR_BYTES,
        few_rows=tuning.GEMM_WAITING_FEW_ROWS if copies else tuning.GEMM_NEAR_ROWS,
        prefetch_distance=prefetch_distance,
        paced_prefetch=paced_prefetch,
        prefetches_rows=prefetches_rows,
        depth=-(-(k or 0) // parts_of_k // tuning.SUM_STEPS) * tuning.SUM_STEPS if parts_of_k > 1 else 0,
        chained=k is None or k > tuning.SUM_STEPS,
        joins_halves=target.core.blends and any(width % lanes for width in wide),
    )


def tile_costs(
    extents: GemmExtents, target: Target, *, packed_b: bool = True, element: str = "float32"
) -> dict[Tile, float]:
    """What each tile costs a step of k of a whole product, by `tile_cost`."""
    m, n, k, _ = extents
    dims = [dim for dim in extents if dim is not None]
    small = len(dims) == 4 and prod(dims) < tuning.GEMM_SMALL_PRODUCTS
    parts = _parts(extents, target, packed_b=packed_b, element=element)
    columns = None if n is None else -(-n * parts // target.lanes(np.dtype(element).itemsize))
    code_penalty = 10 * tuning.GEMM_CODE_PENALTY if small else tuning.GEMM_CODE_PENALTY
    return {
        (down.sizes, across.sizes): _cost(down, across, parts, k, code_penalty, target)
        for height, width in sorted(_tiles(target.vector_registers, parts))
        if (down := _cover(m, height)) and (across := _cover(columns, width))
        if width % parts == 0 or width == columns  # a half vector is stored through a mask: only in the last panel
    }


def tile_text(tile: Tile, parts: int) -> str:
    """What a tile is called whose widths are in such parts of vectors."""
    return " x ".join("+".join(map(str, sizes)) for sizes in tile) + " vectors" + f" / {parts}" * (parts > 1)


def _parts(extents: GemmExtents, target: Target, *, packed_b: bool, element: str) -> int:
    """The parts of a vector that widths are counted in: halves where what remains on the right fits one."""
    lanes, n = target.lanes(np.dtype(element).itemsize), extents.n
    return 2 if packed_b and n is not None and target.vector_bytes == 64 and 0 < n % lanes <= lanes // 2 else 1


def _requests(problem: Callable[[], str], usual: tuple[int, bool], *, next_panel: bool) -> tuple[int, bool]:
    """How many steps ahead of its use a panel is asked for, and whether the next one is at an even pace.
    usual: that of untuned products; next_panel: whether there is one."""
    ahead = tuning.PREFETCH_STEPS
    ways = dict.fromkeys([usual, (0, False), (ahead, next_panel), (ahead, False), (0, next_panel)], 1.1)
    return cheapest(
        "GEMM requests",
        problem,
        ways | {usual: 1.0},
        lambda way: f"panel asked for {way[0]} steps ahead, the next one {'at an even pace' if way[1] else 'at once'}",
    )


def stored_pays(b: np.ndarray, m: int) -> bool:
    """Whether a constant b is better packed in 16 bits, if that loses nothing: see `stored_type`."""
    return b.dtype == np.float32 and b.nbytes >= tuning.GEMM_STORED_BYTES and m <= tuning.GEMM_STORED_ROWS


def stored_type(b: np.ndarray, m: int) -> str:
    """The 16-bit type in which a constant float32 b is packed without loss, where that pays; else "".

    It pays where b comes from memory more slowly than it is multiplied: for few rows. m is the least number of them, as
    the least is then the frequent case (language models make token after token). Measured with b of 2048 x 2048: 0.54
    of the time for one row or two, 0.66 for four, the same for eight, and 1.12 to 1.2 from sixteen on, where every tile
    widens its panel of b anew.
    """
    if not stored_pays(b, m):
        return ""
    flat = b.ravel(order="K")
    pieces = [flat[start : start + _PIECE] for start in range(0, flat.size, _PIECE)]
    if all(not (piece.view(np.uint32) & 0xFFFF).any() for piece in pieces):
        return "bfloat16"
    with np.errstate(over="ignore"):
        exact = all((piece.astype(np.float16) == piece).all() for piece in pieces)
    return "float16" if exact else ""


def tile_cost(rows: int, vectors: float, target: Target, *, far: bool = False) -> float:
    """What one step of k costs a tile, in FMAs of a full vector: whichever binds of

    - the FMAs, rows * vectors;
    - the loads, one an FMA where the caches keep up: b's vectors and a's elements (a CPU does one of each a cycle, or
      two);
    - the latency of an FMA, 4 cycles of two FMAs, or of four (AArch64's wide cores);
    - fetching b's row from the second-level cache, 64 bytes in some 3 FMAs (20 bytes a cycle);

    and of what does not bind a little all the same. How much each is on a core says `Target.tile_costs`.

    Where b is asked for besides, loads and prefetches share two ports, and each costs about half of one of the two FMAs
    a cycle: tiles of two vectors reached 0.83 of the FMA limit where 8 x 3, 9 x 3 and 6 x 4 had 0.90 (Intel's servers).
    There, tiles of few rows and many vectors wait longer for a panel that does not stay in the first-level cache
    (`far`): 50 x 64 x 256 takes 0.84 of the time with 10 x 2 instead of 6 x 4 and 2 x 4, 64 x 512 x 2048 0.88 with 8 x
    3 instead of 6 x 4 and 4 x 4, 10 x 512 x 2048 0.74 with 10 x 2 instead of 5 x 4.
    """
    core, costs = target.core, target.tile_costs
    asked = vectors * target.vector_bytes / _LINE_BYTES + (2 if target.vector_registers >= 32 else 1)
    loads = (rows + vectors + asked) * core.fmas / core.loads  # a, b; lines of b, of the next panel and rows of a
    latency = 4 * max(core.fmas, 2)
    fetch = costs.far * vectors**2 if far and costs.far else costs.fetch * vectors
    most = max(rows * vectors, costs.bound * (rows + vectors), latency, fetch)
    return most + costs.vector * vectors + costs.row * rows + costs.load * loads


def _start_cost(rows: int, vectors: float, target: Target) -> float:
    """What a tile costs besides its steps of k, in FMAs: addresses, zeros, prefetches, stores. As measured: 37 for
    4 x 2 vectors, 84 for 8 x 3, 150 for 14 x 2; with one vector, where FMAs read the elements of a, 20 for 8."""
    costs = target.tile_costs
    return costs.start + (rows * (costs.start_row + vectors) if vectors > 1 else 2 * rows)


def _tiles(registers: int, parts: int) -> Iterator[tuple[int, int]]:
    """Tiles (rows, `parts` of vectors) that leave a register for a's element. Beyond 14 rows addresses run out."""
    for width in range(1, 4 * parts + 1):
        vectors = -(-width // parts)
        for rows in range(1, min(14, (registers - 1 - vectors) // vectors) + 1):
            yield rows, width


def _cover(extent: int | None, size: int) -> _Cover | None:
    """How tiles of `size` cover `extent`; None where a smaller tile would do.

    An unknown extent is taken for 64 and a remainder that needs each of the smaller tiles half of the time, and gets
    tiles of a size that divides many numbers.
    """
    if extent is None:
        sizes = _halves(size)
        return _Cover(sizes, (64 / size, *(0.5 for _ in sizes[1:]))) if size in _GENERAL_SIZES else None
    if size > max(1, extent):
        return None
    count, rest = divmod(extent, size)
    return _Cover((size, rest), (count, 1)) if rest else _Cover((size,), (count,))


def _halves(size: int) -> tuple[int, ...]:
    """size, size // 2, … 1, with at most four parts: 8 4 2 1, 14 7 3 1."""
    return (size, *_halves(size // 2)) if size > 1 else (1,)


def _cost(rows: _Cover, columns: _Cover, parts: int, k: int | None, code_penalty: float, target: Target) -> float:
    """The cost of one step of k over all tiles, with a part of what each tile costs once."""
    panel_bytes = (k or _ASSUMED_K) * columns.sizes[0] * target.vector_bytes // parts
    # A single row waits for nothing but b, however wide the panel.
    far = rows.sizes[0] > 1 and target.vector_registers >= 32 and panel_bytes > target.l1_bytes // 2
    cost = sum(
        row_count
        * column_count
        * (
            tile_cost(row, column / parts, target, far=far)
            + _start_cost(row, column / parts, target) / (k or _ASSUMED_K)
        )
        for row, row_count in zip(*rows, strict=True)
        for column, column_count in zip(*columns, strict=True)
    )
    cost *= 1 + code_penalty * len(rows.sizes) * len(columns.sizes)
    if rows.sizes[0] > target.l1_bytes // _PAGE:
        # The rows of a in use may all map to the same lines, and do at such strides: 0.71 of the FMA limit was measured
        # for 14 x 2 at k = 3072, where 8 x 3 reached 0.98.
        cost *= 1.4 if k is not None and k % 512 == 0 else 1.02
    return cost
