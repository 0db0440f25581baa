"""Winograd convolution without compiling it: the spec, its blocking, and the transforms' coefficients.

The outputs of a convolution of r x r taps and stride 1 are made in tiles of m x m. An input tile d of n x n, n = m + r
- 1, and the kernel g are transformed, multiplied element by element and summed over the input channels, and transformed
back (Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2015):

    Y = A^T [ (G g G^T) * (B^T d B) ] A        n * n products for m * m outputs, which take m * m * r * r else:
                                               r = 3: 2.25 times fewer for m = 2, 4 for m = 4; r = 5: 2.8 for m = 2

Along an axis on which the kernel has a single tap nothing is transformed: a convolution of r taps over one axis takes
n products for m outputs, with 3 taps 1.5 or 2 times fewer, with 5 1.7 or 2.5, with 7 1.75.

The matrices follow from polynomial interpolation (Toom-Cook) at the points 0, ±p for p in `POINTS[n]`, and infinity.
Points symmetric about 0 make the transforms short. That ±3/4, ±3/2 are used for n = 6 rather than ±1, ±2 makes the
error four times smaller: 2e-6 to 3e-6 of the largest output with 256 channels against 8e-6 (direct sums, 2304 products
one after the other: 2e-6), measured against float64 on normal random data; of all pairs of eighths up to 2 none is
better by more than a sixteenth. Most of the error comes from summing so many products of larger numbers. On pictures,
whose neighbours are alike, it is half of direct sums'. Five taps instead of three change nothing, and n = 8 over one
axis has the error of n = 6 over two.
"""

from __future__ import annotations

import numpy as np

from jitonnx.emit.arguments import Size, computed
from jitonnx.kernels.convolution.problem import CHANNEL_BLOCK, ConvolutionBuffers, Problem
from jitonnx.kernels.parts.packing import blocks, for_each, zeros
from jitonnx.kernels.parts.sizes import larger, smaller
from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.support.records import dataclass

POINTS: dict[int, tuple[float, ...]] = {4: (1.0,), 6: (0.75, 1.5), 8: (0.5, 1.0, 2.0)}
"""The points by n, the number of a tile's inputs along an axis."""
_PACKED_CHANNELS = 16
"""Channels whose weights are transformed at once: 0.2 MB, and a product too small for a BLAS to start threads for."""
_PAD = 16  # elements between planes, so that the planes' equal places do not all fall into one set of a cache


class WinogradSizes(Problem):
    """What `WinogradSpec` is called with: how the tiles of a `Problem` are cut up."""

    tile_rows: Size = computed()
    """Rows of tiles of an image; if dilated, of each phase."""
    tile_columns: Size = computed()
    tiles: Size = computed()
    """Output tiles of all images."""
    task_tiles: Size = computed()
    """The most tiles of a task that there is room for in scratch memory."""
    tile_blocks: Size = computed()
    output_blocks: Size = computed()
    padded_channels: Size = computed()
    """Input channels, rounded up to whole blocks."""
    group_channels: Size = computed()
    """Input channels of a group."""
    group_blocks: Size = computed()
    """Blocks of output channels of a group."""
    chunk: Size = computed()
    """Blocks of output channels of a task: whole groups if there are several."""
    chunks: Size = computed()
    input_plane: Size = computed()
    """Elements of transformed input for one of the n * n positions: [channel block][tile][CHANNEL_BLOCK]."""
    product_plane: Size = computed()
    """Elements of one block's products for one position: [tile][channel in block]."""
    ahead: Size = computed()
    """Elements of each row of the next weights that a product asks for; 0: none."""
    tasks: Size = computed()
    scratch_bytes: Size = computed()


@dataclass(frozen=True)
class WinogradSpec(KernelSpec):
    """A convolution of stride 1, x_channel = 1. Of several groups the input channels are a multiple of CHANNEL_BLOCK
    each, and the output channels of `block`.

    SIZES are those of `DirectSpec`. A task transforms the input of some tiles, of the groups it needs, unless the task
    before did; then for each position multiplies [tiles, channels] by [channels, output channels] for a chunk of output
    blocks; then transforms the products back, tile by tile, through the epilogue. Scratch memory holds, in this order,
    a pixel of zeros (the padding), the transformed input and the products.

    A convolution of dilation d is one of every d-th pixel for each of the d phases of an axis.
    """

    lanes: int
    outputs: tuple[int, int]
    """Outputs of a tile along each axis, m; 1 along an axis on which the kernel has one tap."""
    taps: tuple[int, int]
    """The kernel's height and width, r. `POINTS` has the n = m + r - 1 of an axis, unless that is 1."""
    rows: int
    """The most tiles that the innermost product takes at once."""
    vectors: int
    """Vectors of output channels it takes at once."""
    l2_bytes: int = 1 << 20
    part_block: bool = False
    """Whether the last block of input channels is not full: it is then read by masks."""
    prefetch_distance: int = 0
    """How many steps ahead of their use weights are asked for, into the first-level cache; 0: not at all."""

    BUFFERS = ConvolutionBuffers
    SIZES = WinogradSizes
    PRESCHEDULED = True

    @property
    def block(self) -> int:
        """Output channels of a block."""
        return self.vectors * self.lanes

    @property
    def points(self) -> tuple[int, int]:
        """n: input rows and columns of a tile."""
        (rows, columns), (row_taps, column_taps) = self.outputs, self.taps
        return rows + row_taps - 1, columns + column_taps - 1

    @property
    def positions(self) -> int:
        """Products for each tile, input and output channel."""
        return self.points[0] * self.points[1]

    @property
    def product_rows(self) -> tuple[int, int, int]:
        """How many tiles an innermost product may take: `rows`, or fewer, so that at most one of a task's is idle where
        it has many."""
        return self.rows, self.rows - 2, self.rows - 4

    def products(self, tiles: int) -> list[int]:
        """The tiles that each innermost product takes of a task of so many, as the kernel does it."""
        most, fewer, _ = self.product_rows
        whole = max(tiles - 3, 0) // most * most
        rows, left = [most] * (whole // most), tiles - whole
        if left > most:
            rows, left = [*rows, fewer], left - fewer
        return [*rows, min(size for size in self.product_rows if size >= left)] if left else rows

    def complete(self, sizes: Problem) -> WinogradSizes:
        p = sizes
        rows = tiles_along(p.out_height, self.outputs[0], p.dilation_height)
        columns = tiles_along(p.out_width, self.outputs[1], p.dilation_width)
        tiles = p.images * rows * p.dilation_height * columns * p.dilation_width
        output_blocks = -(-p.out_channels // self.block)
        group_channels, group_blocks = p.channels // p.groups, larger(1, output_blocks // p.groups)
        padded = -(-p.channels // CHANNEL_BLOCK) * CHANNEL_BLOCK
        tile_blocks = self.tile_blocks(tiles, group_channels, output_blocks)
        task_tiles = -(-tiles // tile_blocks)
        product_plane = (task_tiles + self.rows) * self.block + _PAD
        # A task's products take a quarter of L2, if there are enough tasks with so many blocks.
        chunk = smaller(self.l2_bytes // 4 // (4 * self.positions * product_plane), output_blocks * tile_blocks // 8)
        chunk, held = larger(1, smaller(chunk, output_blocks)), padded
        if p.groups > 1:
            chunk = self._whole_groups(chunk, group_channels, group_blocks, task_tiles)
            held = chunk // group_blocks * group_channels
        chunks = -(-output_blocks // chunk)
        input_plane = held * task_tiles + _PAD
        scratch = 4 * (padded + self.positions * (input_plane + chunk * product_plane))
        ahead = self._ahead(group_channels, p.out_channels, -(-task_tiles // self.rows))
        return WinogradSizes.following(
            sizes,
            tile_rows=rows,
            tile_columns=columns,
            tiles=tiles,
            task_tiles=task_tiles,
            tile_blocks=tile_blocks,
            output_blocks=output_blocks,
            padded_channels=padded,
            group_channels=group_channels,
            group_blocks=group_blocks,
            chunk=chunk,
            chunks=chunks,
            input_plane=input_plane,
            product_plane=product_plane,
            ahead=ahead,
            tasks=tile_blocks * chunks if tiles else 0,
            scratch_bytes=scratch,
        )

    def _whole_groups(self, chunk: int, channels: int, blocks: int, tiles: int) -> int:
        """About `chunk` output blocks that are whole groups of `channels` and `blocks` each: so many that the
        transformed input of `tiles` tiles, too, takes a quarter of L2 at most."""
        fitting = self.l2_bytes // 4 // larger(4 * self.positions * channels * tiles, 1)
        return larger(1, smaller(chunk // blocks, fitting)) * blocks

    def _ahead(self, channels: int, out_channels: int, products: int) -> int:
        """`WinogradSizes.ahead`, where `products` of up to `rows` tiles use a block's weights.

        Weights that L2 does not hold come from the third-level cache or from memory, and a CPU foresees them within a
        page of 4 KiB only: so the products share out asking for the next.
        """
        weights = 4 * self.positions * channels * out_channels
        return self.block // larger(products, 1) if weights > self.l2_bytes * 3 // 4 else 0

    def tile_blocks(self, tiles: int, channels: int, output_blocks: int) -> int:
        """Into how many equal parts tasks cut the tiles.

        Transformed input and products of a part and a block's weights share L2. So if all transformed weights fit into
        three quarters of it, a part has 16 tiles (64 channels, 224 x 224 pixels: 12.6 ms with 12 to 16 tiles, 14.2 with
        56), or 14 where there would be fewer than 16 tasks, or products take so many. Larger weights are read once a
        part, 64 / tiles bytes a cycle on a core that does one multiply-add of 16 lanes a cycle: parts have 28 tiles, or
        64 from 8 times L2 on, most of which comes from memory (from 4 times on where a core waits for the third-level
        cache). Of 3 to 11 parts 4, 8 or 12 are made, of more an even number, which threads can share evenly.
        """
        weights = 4 * self.positions * channels * output_blocks * self.block
        if weights <= self.l2_bytes * 3 // 4:
            count = 16 if self.rows < 14 and tiles * output_blocks >= 16 * 16 else 14
        else:
            count = 28 if weights < (4 if self.prefetch_distance else 8) * self.l2_bytes else 64
        parts = -(-larger(tiles, 1) // count)
        even = 1 if parts <= 2 else 4 if parts < 12 else 2
        return -(-parts // even) * even

    def tasks(self, sizes: WinogradSizes) -> int:
        return sizes.tasks

    def grain(self, sizes: WinogradSizes) -> int:
        """The tasks that share a transformed input: a thread that takes fewer transforms it again for the next."""
        return sizes.chunks if sizes.group_blocks == sizes.output_blocks else 1

    def scratch_bytes(self, sizes: WinogradSizes) -> int:
        return sizes.scratch_bytes

    def work(self, sizes: WinogradSizes) -> Work:
        """Operations of the products alone."""
        p = sizes
        x = p.images * p.height * p.width * p.channels
        y = p.images * p.out_height * p.out_width * p.out_channels
        weights = self.positions * p.group_channels * p.out_channels
        return Work(2 * p.tiles * weights, 4 * (x + y + weights))

    def pack_weights(self, weights: np.ndarray) -> np.ndarray:
        """Weights [M, C / groups, kH, kW] transformed (in float64, rounded once): [block of M][position][channel of the
        group][M in block]."""
        outputs, channels = weights.shape[:2]
        taps = np.asarray(weights).reshape(outputs, channels, -1)
        transform = np.kron(*map(kernel_matrix, self.points, self.taps))
        parts = blocks(outputs, self.block)
        packed = zeros(len(transform) * len(parts) * channels * self.block, np.float32)
        whole = packed.reshape(len(parts), len(transform), channels, self.block)

        def pack(part: int) -> None:
            """One block of outputs, some channels at a time, so that everything stays in the cache."""
            block = taps[parts[part]]
            given = np.zeros((taps.shape[2], _PACKED_CHANNELS, self.block))
            for some in blocks(channels, _PACKED_CHANNELS):
                count = some.stop - some.start
                given[:, :count, : len(block)] = block[:, some].transpose(2, 1, 0)
                transformed = (transform @ given.reshape(len(given), -1)).reshape(-1, _PACKED_CHANNELS, self.block)
                whole[part, :, some] = transformed[:, :count]

        for_each(pack, len(parts), packed.nbytes)
        return packed


def kernel_matrix(points: int, taps: int) -> np.ndarray:
    """G [n, r], or [[1]] for one tap: for each finite point p [1, p, ..., p^(r - 1)] / Π (p - q) over the other
    points q; for infinity [0, ..., 0, 1]."""
    if taps == 1:
        return np.ones((1, 1))
    finite = [0.0, *(sign * p for p in POINTS[points] for sign in (1, -1))]
    rows = [np.power(p, np.arange(taps)) / np.prod([p - q for q in finite if q != p]) for p in finite]
    return np.array([*rows, np.eye(taps)[-1]])


def tiles_along(outputs: int, tile: int, dilation: int) -> int:
    """Tiles of `tile` outputs along one axis; for a dilated convolution, in each phase."""
    return -(-outputs // (tile * dilation))
