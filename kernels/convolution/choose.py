"""Which kernel for which convolution, and with which tile: by the machine's registers and caches, and counts of work.

`choose_convolution`, `choose_depthwise_planes`, `choose_transposed` and `choose_narrow` answer for a layer's sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias

from jitonnx.kernels.convolution.narrow_spec import NarrowSpec
from jitonnx.kernels.convolution.problem import CHANNEL_BLOCK, ConvolutionShape
from jitonnx.kernels.convolution.spec import (
    DepthwisePlanesSpec,
    DepthwiseSpec,
    DirectSpec,
    GroupedSpec,
    Layout,
    TransposedSpec,
)
from jitonnx.kernels.convolution.taps import Taps, readers
from jitonnx.kernels.convolution.transforms import WinogradSpec, tiles_along
from jitonnx.kernels.gemm.choose import tile_cost
from jitonnx.target import tuning
from jitonnx.target.choosing import cheapest

if TYPE_CHECKING:
    from jitonnx.target.machine import Target

_NARROW_GROUPS = (2, 4, 8)
"""Channels of groups that `GroupedSpec` is for, on CPUs that permute a vector of so many lanes by an index. With 16
channels, a vector of AVX-512, the direct kernel needs no permutations and is as fast."""


_DIRECT_SHARE = 0.9
"""Winograd is to take no more than so much of the time of direct sums."""
_NARROW_OUTPUTS, _NARROW_STEP = 8, 256
"""Output channels of a group that `NarrowSpec` is for at most, and multiply-adds that are spelled out."""
_NARROW_COST, _NARROW_COST_TRANSPOSING = 1.25, 2.0
"""What its multiply-adds cost beside others, if x lies in planes and if not."""

_REST_SUMS = 8
"""Sums of the tiles that end rows: no fewer, or a core would wait for its results."""


_Tile: TypeAlias = "tuple[int, int, int]"
_GROUPED: _Tile = (0, 0, 0)
"""Stands for `GroupedSpec`, whose tile is chosen by itself."""


def choose_convolution(
    shape: ConvolutionShape,
    target: Target,
    *,
    channels_last: bool = True,
    winograd: bool = True,
    usual_sizes: Sequence[tuple[int, int]] = (),
) -> DirectSpec | DepthwiseSpec | WinogradSpec:
    """The kernel for ONNX's Conv. channels_last: whether x has x_channel = 1. An NCHW input needs no copy into NHWC: it
    is as fast where channels are few, and allowed for any number. winograd: whether errors of 3e-6 of the largest
    output (with 256 channels) are allowed, and that a NaN or an infinity reaches all outputs of its tile. usual_sizes:
    an output's sizes to choose between direct sums and Winograd by, where its size is not known; without any they are
    direct.

    Depthwise when every channel is a group; in groups of 2, 4 or 8 channels by permutations where the CPU has such of a
    whole vector; Winograd, of several groups with whole blocks of channels, where it saves time; else direct. In
    scratch memory, up to 4 channels stay side by side ("interleaved": its sums run over kernel_width * channels
    neighbours at once); more are worth blocks of a cache line.
    """
    lanes, out_size = target.lanes(4), shape.out_size
    kernel, strides, dilations = shape.kernel, shape.strides, shape.dilations
    groups, channels, out_channels = shape.groups, shape.channels, shape.out_channels
    if groups == channels == out_channels > 1 and channels_last:
        rows, pixels = cheapest(
            "depthwise tile",
            shape.text,
            _depthwise_tiles(kernel, dilations, out_size[1], target),
            lambda tile: f"{tile[0]} x {tile[1]} pixels",
        )
        return DepthwiseSpec(kernel, strides, dilations, pixels, rows)
    shares: dict[WinogradSpec | None, float] = {None: 1.0}
    if winograd and strides == (1, 1) and channels_last:
        down, across = out_size
        likely = usual_sizes if down is None or across is None else [(down, across)]
        shares = _winograd_shares(shape, likely, target)
    width = channels // groups
    permuted = width in _NARROW_GROUPS and channels_last and lanes >= max(_NARROW_GROUPS)
    narrow = permuted and width == out_channels // groups
    merged = _merged_groups(groups, out_channels, lanes)
    tile_costs = {_GROUPED: 1.0} if narrow else _tile_costs(out_channels // groups * merged, out_size, target)
    unit = shares.pop(None) / (min(tile_costs.values()) or 1)  # without outputs there is nothing to choose by
    costs: dict[WinogradSpec | _Tile, float] = {tile: unit * cost for tile, cost in tile_costs.items()}
    chosen = cheapest(
        "convolution",
        shape.text,
        {**costs, **{spec: share for spec, share in shares.items() if spec is not None}},
        _way_text,
    )
    if isinstance(chosen, WinogradSpec):
        return chosen
    if narrow:
        tile_rows, pixels = _grouped_tile(shape.columns, out_size, target.vector_registers)
        return GroupedSpec(
            *(lanes, pixels, 1, tile_rows),
            chained=False,
            merged_groups=CHANNEL_BLOCK // width,
            l2_bytes=target.l2_bytes,
            group_width=width,
            columns=shape.columns,
        )
    return _direct(shape, chosen, merged, target, channels_last=channels_last, usual_sizes=usual_sizes)


def _direct(
    shape: ConvolutionShape,
    tile: _Tile,
    merged: int,
    target: Target,
    *,
    channels_last: bool,
    usual_sizes: Sequence[tuple[int, int]],
) -> DirectSpec:
    """The kernel of direct sums in a tile. merged: groups that run as one; others: see `choose_convolution`."""
    lanes, in_size, out_size, pads = target.lanes(4), shape.in_size, shape.out_size, shape.pads
    kernel, strides, dilations = shape.kernel, shape.strides, shape.dilations
    own = shape.channels // shape.groups * merged
    tile_rows, pixels, vectors = tile
    layout: Layout = "blocked"
    step, tap_step = CHANNEL_BLOCK, 1
    if not channels_last or (own <= 4 and dilations[1] != 1):
        layout, step, tap_step = "planar", strides[1], dilations[1]
    elif own <= 4:
        layout, step = "interleaved", strides[1] * own
    rest = None
    if out_size[1] is None and usual_sizes:
        pixels, rest = _open_row(pixels, vectors, [width for _, width in usual_sizes], target)
    far_taps = layout == "blocked" and dilations[1] >= pixels
    sizes = (*in_size, *out_size, *pads)
    if layout == "blocked" and max(dilations) > 1 and None not in sizes:
        axes = zip(kernel, pads, strides, dilations, out_size, in_size, strict=True)
        active = [Taps(taps, -(pad or 0), *steps).active(size or 0) for taps, pad, *steps, size in axes]
        tile_rows, pixels, vectors, far_taps = _dilated_tile(
            active, (tile_rows, pixels, vectors), shape.out_channels // shape.groups * merged, target
        )
    panel_bytes = 4 * own * kernel[0] * kernel[1] * vectors * lanes
    prefetch_distance = target.steps_near(
        None if layout == "blocked" else panel_bytes
    )  # few kernels for most layers of a model
    row = (layout, step, tap_step, far_taps)
    if rest is None:
        rest = 0 if far_taps and out_size[1] is not None else _rest(out_size[1], pixels, vectors, target)
    direct = DirectSpec(
        *(lanes, pixels, vectors, tile_rows, *row, merged, target.l2_bytes),
        prefetch_distance=prefetch_distance,
        chained=layout == "blocked" or own * kernel[0] * kernel[1] > tuning.SUM_STEPS,
        rest=rest,
    )
    tiles = -(-(out_size[0] or 0) // tile_rows) * -(-(out_size[1] or 0) // pixels)  # 0: not known
    return replace(direct, paced_prefetch=prefetch_distance > 0 and direct.lists_blocks and 0 < tiles <= direct.block)


def _way_text(way: WinogradSpec | _Tile) -> str:
    if isinstance(way, WinogradSpec):
        rows, columns = way.outputs
        return f"Winograd of {rows} x {columns} outputs, {way.rows} tiles x {way.vectors} vectors"
    rows, pixels, vectors = way
    return "grouped" if way == _GROUPED else f"direct, {rows} x {pixels} pixels x {vectors} vectors"


def choose_depthwise_planes(
    kernel: tuple[int, int],
    strides: tuple[int, int],
    dilations: tuple[int, int],
    out_size: tuple[int | None, int | None],
    target: Target,
) -> DepthwisePlanesSpec | None:
    """The kernel for a depthwise convolution whose image lies in planes and whose result is wanted so; None where it
    takes longer than copies into channels-last and back. An unknown size is taken for a large one.

    In multiply-adds for a vector of outputs, as measured: a tap costs 1.45, as its inputs seldom begin with a cache
    line, and 1.15 where weights do not fit into registers, so that there are more products for an input; 2.2 and 2.4 if
    every second element is picked; channels-last one, and every element copied a half. With 3x3 taps, planes take 0.55
    of the time on 112 x 112 and 56 x 56 pixels (with strides of 2, 0.5), 0.75 on 28 x 28; with 7x7, 0.6 and 0.9 on 112
    x 112 and 56 x 56, and 1.1 on 28 x 28.
    """
    lanes, (down, across), (height, width) = target.lanes(4), strides, out_size
    if across > 2 or (width is not None and width < lanes):
        return None
    most = 8 if target.vector_registers >= 32 else 4
    rows = min(range(most // 2 + 1, most + 1), key=lambda rows: (-(-(height or most) // rows) * rows, -rows))
    spec = DepthwisePlanesSpec(kernel, strides, dilations, rows)
    taps, holds_weights = kernel[0] * kernel[1], spec.holds_weights(target.vector_registers)
    step = lanes // 2 if spec.halves(lanes) and not holds_weights else lanes
    vectors = 1.0 if width is None else -(-width // step) * step / width
    tap = (1.45 if across == 1 else 2.2) if holds_weights else (1.15 if across == 1 else 2.4)
    if vectors * (tap * taps + 2) > taps + 0.5 * lanes * (1 + down * across):
        return None
    return spec


def least_planar_width(
    kernel: tuple[int, int], strides: tuple[int, int], dilations: tuple[int, int], target: Target
) -> int:
    """The columns of a result from which on `choose_depthwise_planes` chooses a kernel, as of `parting`; 0 where it
    never does."""
    widths = range(1, 8 * target.lanes(4))
    planar = [choose_depthwise_planes(kernel, strides, dilations, (None, width), target) for width in widths]
    return parting([spec is not None for spec in planar]) or 0


def parting(answers: Sequence[bool]) -> int | None:
    """The size from which on the answer is taken to be yes, so that it is for the most sizes as given for 1, 2, 3 and
    so on; None where it is no for all."""
    if not any(answers):
        return None
    return 1 + min(range(len(answers)), key=lambda below: sum(answers[:below]) + answers[below:].count(False))


def _read_taps(shape: ConvolutionShape) -> list[float]:
    """Taps along both axes that an output reads on average, those that read padding left out if dilation is wide."""

    def read(kernel: int, pad: int | None, stride: int, dilation: int, outputs: int | None, size: int | None) -> float:
        if dilation == 1 or not outputs or size is None or pad is None:
            return kernel
        return sum(map(len, Taps(kernel, -pad, stride, dilation, outputs).active(size))) / outputs

    windows = (shape.kernel, shape.pads, shape.strides, shape.dilations)
    return [read(*axis) for axis in zip(*windows, shape.out_size, shape.in_size, strict=True)]


def _winograd_tiles(kernel: tuple[int, int], *, narrow: bool) -> list[tuple[int, int]]:
    """Outputs of a tile along both axes for which errors stay as promised: 2 to 4, one on an axis of one tap; of 8
    inputs along an axis only if the other is such. A square kernel has square tiles; where weights are read slowly
    also those of 4 x 2 (`narrow`), in which more tiles share the reading of fewer weights than in those of 4 x 4."""
    inputs = (4, 6) if 1 not in kernel else (4, 6, 8)
    along = [[1] if taps == 1 else [n + 1 - taps for n in inputs if 2 <= n + 1 - taps <= 4] for taps in kernel]
    shapes = [(rows, columns) for rows in along[0] for columns in along[1]]
    if kernel[0] != kernel[1]:
        return shapes
    return [(r, c) for r, c in shapes if c > 1 and (r == c or (r > c and narrow))]


def _winograd_shares(
    shape: ConvolutionShape, out_sizes: Sequence[tuple[int, int]], target: Target
) -> dict[WinogradSpec | None, float]:
    """What Winograd kernels cost over the least, and what direct sums do (None), which Winograd has to outrun by a
    tenth. Of several sizes of an output that is what they cost, compared with the best for each, where it is most. In
    cycles, for one image:

    direct      pixels * taps * C * M / lanes, at 0.95 of the peak
    Winograd    tiles * n^2 * C * M / lanes, at 0.88 (sums are short: C products), or, if that takes longer, the
                transformed weights read from the third-level cache or memory (`_weights_rate`)
                + tiles * 9 n^2 for the transforms of each vector of input and of output channels (measured: most
                of it waits for the second-level cache)

    C are the channels of a group, M the outputs of all. On cores with wide tiles that wait for their third-level cache,
    products cost what `tile_cost` says of the tiles that they are done in, and the time that memory takes to
    give the weights counts in both (`_waiting`): so it was measured with weights that other layers' had driven out (128
    channels of 28 x 28 pixels, 256 of 14 x 14, 512 of 7 x 7).
    """
    own, own_outputs = shape.channels // shape.groups, shape.out_channels // shape.groups
    if not own or not own_outputs or not out_sizes or any(0 in size for size in out_sizes):
        return {None: 1.0}
    taps = _read_taps(shape)
    if 0 in taps:  # all that it would read is padding
        return {None: 1.0}
    costs = [_winograd_costs(shape, taps, size, target) for size in out_sizes]
    least = [min(of_size.values()) for of_size in costs]
    return {spec: max(of_size[spec] / best for of_size, best in zip(costs, least, strict=True)) for spec in costs[0]}


def outruns_bfloat16(shape: ConvolutionShape, out_size: tuple[int, int], target: Target, *, winograd: bool) -> bool:
    """Whether a convolution of one group takes less time in float32, by Winograd if that is allowed or by sums that
    leave out what reads padding, than by sums over all taps at the core's rate of bfloat16, for an output of this size.
    """
    shape = replace(shape, out_size=out_size)
    taps, kernel = _read_taps(shape), shape.kernel
    if not shape.channels or not shape.out_channels or 0 in out_size or 0 in taps:
        return False
    costs = _winograd_costs(shape, taps, out_size, target)
    direct = costs.pop(None) / _DIRECT_SHARE
    least = min((direct, *costs.values())) if winograd and shape.strides == (1, 1) else direct
    all_taps = kernel[0] * kernel[1] / (taps[0] * taps[1])
    return bool(least * target.core.bfloat16_rate < direct * all_taps)


def _winograd_costs(
    shape: ConvolutionShape, taps: Sequence[float], out_size: tuple[int, int], target: Target
) -> dict[WinogradSpec | None, float]:
    """The cycles of `_winograd_shares` for an output of this size by spec, nine tenths of direct sums' by None."""
    (height, width), kernel, dilations = out_size, shape.kernel, shape.dilations
    groups, channels, out_channels = shape.groups, shape.channels, shape.out_channels
    own, own_outputs = channels // groups, out_channels // groups
    part_block = own % CHANNEL_BLOCK != 0
    lanes, wide = target.lanes(4), target.vector_registers >= 32
    waits = _waits(target)
    vectors = 2 if own_outputs > lanes else 1
    if groups > 1:
        vectors = 1 if own_outputs % (2 * lanes) else 2
    outputs_padded = -(-out_channels // (vectors * lanes)) * vectors
    direct = height * width * taps[0] * taps[1] * own * outputs_padded / 0.95
    if waits:
        direct *= 0.95 * tile_cost(14, 2, target) / 28
        direct = _waiting(4 * kernel[0] * kernel[1] * own * out_channels, direct, target)
    costs: dict[WinogradSpec | None, float] = {None: _DIRECT_SHARE * direct}
    if groups > 1 and (own_outputs % lanes or part_block):
        return costs
    for outputs in _winograd_tiles(kernel, narrow=waits):
        tiles = [
            tiles_along(size, tile, dilation) * dilation
            for size, tile, dilation in zip((height, width), outputs, dilations, strict=True)
        ]
        for rows in (8, 14) if waits else (8,) if wide else (6,):
            tile = (outputs, kernel, rows, vectors)
            spec = WinogradSpec(lanes, *tile, target.l2_bytes, part_block, target.steps_near())
            costs[spec] = _winograd_cost(spec, tiles[0] * tiles[1], groups, channels, out_channels, target)
    return costs


def _winograd_cost(
    spec: WinogradSpec, tiles: int, groups: int, channels: int, out_channels: int, target: Target
) -> float:
    """The cycles of `_winograd_shares` for one image, or the times of an FMA on cores that do two a cycle."""
    output_blocks, own = -(-out_channels // spec.block), channels // groups
    weights = 4 * spec.positions * own * out_channels
    parts = spec.tile_blocks(tiles, own, output_blocks)
    reads = 1 if weights <= spec.l2_bytes * 3 // 4 else parts
    transforms = tiles * 9 * spec.positions * (-(-channels // spec.lanes) + output_blocks * spec.vectors)
    if _waits(target):
        steps = parts * spec.positions * own * output_blocks
        products = steps * sum(tile_cost(rows, spec.vectors, target) for rows in spec.products(-(-tiles // parts)))
        again = (reads - 1) * target.core.memory_bytes / target.core.l3_bytes
        return _waiting((1 + again) * weights, products, target) + transforms
    products = max(tiles, spec.product_rows[-1]) * spec.positions * own * output_blocks * spec.vectors / 0.88
    return max(products, reads * weights / _weights_rate(weights, target)) + transforms


def _weights_rate(weights: int, target: Target) -> float:
    """Bytes of so many transformed weights that are read in the time of an FMA. Cores that wait for their third-level
    cache were measured to read 37 MB, of 512 channels in tiles of 4 x 4, as fast as memory: 2.6 ms with AVX2, 1.9 in
    tiles of 2 x 2, which take more products and fewer weights."""
    if not target.waits_for_l3:
        return 6
    return target.core.l3_bytes if weights <= tuning.WINOGRAD_NEAR_WEIGHTS else target.core.memory_bytes


def _waits(target: Target) -> bool:
    """Whether Winograd's products go by the loads of their tiles, and by how long their weights take to come."""
    return target.waits_for_l3 and target.vector_registers >= 32


def _waiting(weights: float, products: float, target: Target) -> float:
    """Products that take so long, in the times of an FMA, with so many bytes of weights from memory: half of what is
    shorter comes on top of what is longer. In the 4 x 4 tiles of 7 x 7 pixels, 512 channels take 2.9 ms, of which
    products are 0.6 and 38 MB of weights 2.6; in tiles of 2 x 2 with 17 MB 1.3, in those of 4 x 2 with 25 MB 2.1."""
    memory = weights / target.core.memory_bytes
    return max(products, memory) + min(products, memory) / 2


def choose_transposed(
    strides: tuple[int, int],
    groups: int,
    out_channels: int,
    out_size: tuple[int | None, int | None],
    target: Target,
) -> TransposedSpec:
    """The kernel for ONNX's ConvTranspose (x_channel = 1); `out_channels` are those of all groups."""
    lanes = target.lanes(4)
    merged = _merged_groups(groups, out_channels, lanes)
    phase_width = None if out_size[1] is None else -(-out_size[1] // strides[1])
    costs = _tile_costs(out_channels // groups * merged, (1, phase_width), target)
    _, pixels, vectors = min(costs, key=costs.__getitem__)
    prefetch_distance = target.steps_near()
    return TransposedSpec(
        *(lanes, pixels, vectors),
        merged_groups=merged,
        l2_bytes=target.l2_bytes,
        prefetch_distance=prefetch_distance,
        rest=0 if phase_width is None else _rest(phase_width, pixels, vectors, target),
        strides=strides,
    )


def choose_narrow(
    shape: ConvolutionShape, target: Target, *, planes: bool, transposed: bool = False
) -> NarrowSpec | None:
    """The kernel for few output channels; None where vectors of them are as fast, or where it cannot do it. planes:
    whether x lies in such; transposed: whether this is ONNX's ConvTranspose, whose padding is known then. An unknown
    size is taken for a large one.

    In multiply-adds of vectors: those of pixels, which cost more for loads that straddle cache lines and for the copy,
    and those of channels, which are not full.
    """
    outputs, (taps, stride, _), pad = shape.out_channels // shape.groups, shape.columns, shape.pads[1]
    phases, down = (stride, shape.strides[0]) if transposed else (1, 1)
    sums = 24 if target.vector_registers >= 32 else 12
    if not 0 < outputs <= _NARROW_OUTPUTS or phases > sums or (not transposed and stride != 1) or taps < 1:
        return None
    block = max(n for n in range(1, outputs + 1) if outputs % n == 0 and n * phases <= sums)
    most = max(1, min(sums // (block * phases), _NARROW_STEP // (taps * block)))
    lanes, (height, width) = target.lanes(4), shape.out_size
    cost = _NARROW_COST if planes else _NARROW_COST_TRANSPOSING
    vectors = min(most, 2)
    if width is not None:
        pixels = max(-(-width // phases), 1)
        tiles = -(-pixels // (most * lanes))
        vectors = -(-pixels // (tiles * lanes))
        if cost * outputs * vectors * tiles >= pixels * -(-outputs // lanes):
            return None
    elif cost * outputs >= lanes:
        return None
    rows = most if height is None else -(-height // down)
    return NarrowSpec(
        *(lanes, block, shape.columns, transposed, (pad or 0) % stride if transposed else 0),
        *(down, max(1, min(most // vectors, rows)), vectors, planes, target.l2_bytes),
    )


def _rest(width: int | None, pixels: int, vectors: int, target: Target) -> int:
    """Pixels of narrower tiles for the end of a row; 0 where these save nothing. A known width is cut evenly, which
    leaves no more than a pixel or two over in tiles of AVX-512. Tiles of 6 make 30 of 28: with one of 4 at the end a
    3x3 convolution with strides of 2 takes 0.95 of the time."""
    rest = max(3, _REST_SUMS // vectors)
    if width is None:
        return rest
    whole = max(width - 2 * rest + pixels - 1, 0) // pixels * pixels
    covered = whole + -(-max(width - whole, 0) // rest) * rest
    return rest if target.vector_registers < 32 and covered < -(-width // pixels) * pixels else 0


def _open_row(most: int, vectors: int, widths: Sequence[int], target: Target) -> tuple[int, int]:
    """(pixels, rest) of the tiles of rows of an open width that is usually one of `widths`: what costs, compared with
    the best for each, least where that is most; the widest tiles unless others save a tenth. Rows of 7 pixels take one
    tile of 7 and not two of 4: 0.8 of the time of 3x3 with strides of 2, 256 to 512 channels."""

    def cost(tiles: tuple[int, int], width: int) -> float:
        pixels, rest = tiles
        whole = max(width - 2 * rest + pixels - 1, 0) // pixels
        ends = -(-max(width - whole * pixels, 0) // rest)
        return whole * tile_cost(pixels, vectors, target) + ends * tile_cost(rest, vectors, target)

    widest = (most, _rest(None, most, vectors, target))
    choices = [widest, *((pixels, min(widest[1], (pixels - 1) // 2)) for pixels in range(most - 1, most // 2 - 1, -1))]
    choices = [tiles for tiles in choices if tiles[1] > 0]
    least = [min(cost(tiles, width) for tiles in choices) for width in widths]

    def worst(tiles: tuple[int, int]) -> float:
        return max(cost(tiles, width) / best for width, best in zip(widths, least, strict=True))

    best = min(choices, key=worst)
    return best if worst(best) < 0.9 * worst(widest) else widest


def _grouped_tile(
    columns: tuple[int, int, int], out_size: tuple[int | None, int | None], registers: int
) -> tuple[int, int]:
    """(rows, pixels) of a tile of a convolution in narrow groups: by a count of cycles as in `_tile_costs`.

    Sums, the taps of a kernel row, the permutation and inputs stay in registers; with 32 of these more than 16 sums
    bring nothing. A step is the multiply-adds of one channel, but at least what a sum has to wait for itself (4 cycles
    each), a third of the permutations and loads that stand beside them, and 3 for the loop.
    """
    (taps, stride, dilation), (height, width) = columns, out_size
    wide = registers >= 32
    most = 16 if wide else max(registers - min(taps, 7) - 4, 6)

    def step(rows: int, pixels: int) -> float:
        loaded = rows * len(readers(pixels, stride, taps, dilation))
        return taps * max(rows * pixels, 4 if wide else 8) + (loaded + taps) / 3 + 3

    def time(shape: tuple[int, int]) -> float:
        rows, pixels = shape
        tiles = 1 / pixels if width is None else -(-max(width, 1) // pixels)
        single = (height or 1) % rows
        return tiles * ((height or 1) // rows * step(rows, pixels) + single * step(1, pixels))

    shapes = [(rows, pixels) for rows in (1, 2, 3, 4) for pixels in range(1, most // rows + 1)]
    allowed = [(rows, pixels) for rows, pixels in shapes if rows == 1 or (pixels == width and rows <= (height or 1))]
    return min(allowed, key=time)


def _merged_groups(groups: int, out_channels: int, lanes: int) -> int:
    """How many groups run as one: as many as fill a vector with output channels.

    A vector that g groups share takes g times the products and g times fewer vectors: the same work as with one group
    in a vector that is 1 / g full, with fuller tiles and unmasked stores.
    """
    outputs = max(out_channels // groups, 1)
    return max((n for n in range(1, groups + 1) if groups % n == 0 and n * outputs <= lanes), default=1)


def _most_pixels(target: Target) -> dict[int, int]:
    """How many pixels a tile has at most by its number of vectors, the first of which is preferred.

    Sums and weights stay in registers. With AVX-512 the multiply-add spreads the input; with 16 registers one more
    holds it spread; NEON multiplies by an element of a register, of which LLVM has several loaded ahead.
    """
    if target.vector_bytes == 64:
        return {2: 14, 3: 9, 1: 28}
    return {2: 12, 3: 8, 1: 24} if target.vector_registers >= 32 else {2: 6, 3: 4, 1: 12}


def _load_share(target: Target) -> float:
    """What a load costs beside a multiply-add: more with narrow vectors, of which a core multiplies twice as many a
    cycle."""
    return 0.1 if target.vector_bytes == 64 else 0.3


def _tile_costs(out_channels: int, out_size: tuple[int | None, int | None], target: Target) -> dict[_Tile, float]:
    """What tiles of (rows, pixels, vectors) cost, by a rough count.

    rows * pixels * vectors sums stay in registers (`_most_pixels`). A row of tiles is cut evenly: 32 pixels are 3 * 11,
    not 2 * 14 + 4. Rows that fill half a tile or less share one. The count: multiply-adds, those for padding included,
    and a share for loads; with narrow vectors, fewer than 10 sums leave a core waiting for results.
    """
    height, width = out_size
    wide, share, lanes = target.vector_bytes == 64, _load_share(target), target.lanes(4)
    costs = {}
    for vectors, most in _most_pixels(target).items():
        pixels, columns = most, 1.0
        if width is not None:
            tiles = -(-max(width, 1) // most)
            pixels = -(-max(width, 1) // tiles)
            columns = tiles * pixels / max(width, 1)
        rows = 1 if width is None else max(1, min(most // pixels, height or 1))
        sums = rows * pixels * vectors
        loads = (rows * pixels + vectors) / sums
        time = -(-out_channels // (vectors * lanes)) * vectors * columns * (1 + loads * share)
        time *= 1.0 if vectors == 2 else 1.02  # few different kernels in a model
        costs[rows, pixels, vectors] = time if wide else time * max(1.0, 10 / sums)
    return costs


def _dilated_tile(
    active: Sequence[Sequence[frozenset[int]]],
    dense: tuple[int, int, int],
    out_channels: int,
    target: Target,
) -> tuple[int, int, int, bool]:
    """(rows, pixels, vectors, far_taps) for a dilated convolution; live: the taps of every output row and column.

    `dense` is the best tile without regard to taps, which does those that any of its pixels reads; a tile cut at
    padding does only what all its pixels read, but many are not full. The count is that of `_tile_costs` times the
    taps, where a step of fewer than 6 pixels waits for its weights. Cut tiles must save a tenth: they are a kernel of
    their own.
    """
    share, lanes = _load_share(target), target.lanes(4)

    def step(rows: int, pixels: int, vectors: int) -> float:
        sums = rows * pixels
        return max(6, sums + (sums + vectors) / vectors * share) * -(-out_channels // (vectors * lanes)) * vectors

    def cut(rows: int, pixels: int, vectors: int) -> float:
        columns = sum(taps * -(-length // pixels) for taps, length in runs[1])
        whole = sum(taps * (length // rows) for taps, length in runs[0])
        single = sum(taps * (length % rows) for taps, length in runs[0])
        return columns * (whole * step(rows, pixels, vectors) + single * step(1, pixels, vectors))

    runs = [[(len(taps), len(list(same))) for taps, same in groupby(axis)] for axis in active]
    shapes = [
        (rows, pixels, vectors)
        for vectors, sums in _most_pixels(target).items()
        for rows in (1, 2, 3, 4)
        for pixels in range(1, sums // rows + 1)
    ]
    best = min(shapes, key=lambda shape: cut(*shape))
    uncut = step(*dense) * _tile_taps(active[0], dense[0]) * _tile_taps(active[1], dense[1])
    far = cut(*best) < 0.9 * uncut
    return (*(best if far else dense), far)


def _tile_taps(active: Sequence[frozenset[int]], size: int) -> int:
    """The taps of all tiles of `size` neighbours, each doing what any of its outputs reads."""
    return sum(len(frozenset().union(*active[at : at + size])) for at in range(0, len(active), size))


def _depthwise_tiles(
    kernel: tuple[int, int], dilations: tuple[int, int], width: int | None, target: Target
) -> dict[tuple[int, int], float]:
    """(rows, pixels) of depthwise tiles, the usual one at a cost of 1, others that may be worth measuring: sums, the
    weights of a row of taps and the inputs in flight stay in registers.

    2 x 4 for kernels of up to 3 rows and for dilated ones: an input comes from the second-level cache 2 times instead
    of 3, which is what bounds them; with 32 registers, on cores whose third-level cache keeps up, 4 x 4 (1.5 times):
    0.9 of the time on 112 x 112 and 56 x 56 pixels, 0.8 on 14 x 14, 0.5 to 0.7 on 7 x 7, where weights are loaded half
    as often (Zen 5), but not for dilated ones (5 x 5 taps two apart: 1.2). Larger kernels have products enough for
    every input, and would take long to compile: a single row, of 7 pixels where that divides the width (112, 56, 28, 14
    and 7 are common), else an even cut.
    """
    registers = target.vector_registers
    if kernel[0] <= 3 or max(dilations) > 1:
        usual = (4, 4) if registers >= 32 and not target.waits_for_l3 and max(dilations) == 1 else (2, 4)
        return {usual: 1.0} | {tile: 1.1 for tile in ((2, 4), (4, 4), (3, 4), (2, 7)) if tile != usual}
    most = 8 if registers >= 32 else max(4, min(8, registers - 2 - kernel[1]))
    pixels = most
    if width is not None:
        even = -(-max(width, 1) // -(-max(width, 1) // most))
        pixels = 7 if width % 7 == 0 and most >= 7 else even
    return {(1, pixels): 1.0} | {(1, other): 1.1 for other in (4, most) if other != pixels}
