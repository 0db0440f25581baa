"""Winograd convolution without compiling it: the spec, its blocking, and the transforms' coefficients.

The outputs of a 3x3 convolution of stride 1 are made in tiles of m x m. An input tile d of n x n, n = m + 2, and the
kernel g are transformed, multiplied element by element and summed over the input channels, and transformed back
(Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2015):

    Y = A^T [ (G g G^T) * (B^T d B) ] A        n * n products for m * m outputs: 2.25 times fewer for m = 2, 4 for m = 4

The matrices follow from polynomial interpolation (Toom-Cook) at the points 0, ±p for p in `POINTS[m]`, and infinity.
Points symmetric about 0 make the transforms short. That ±3/4, ±3/2 are used for m = 4 rather than ±1, ±2 makes the
error four times smaller: 2e-6 of the largest output with 256 channels against 8e-6 (direct sums: 3e-7), measured
against float64 on normal random data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from jitonnx.kernels.convolution.problem import Problem
from jitonnx.kernels.packing import blocks, for_each, zeros
from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.records import dataclass

POINTS: dict[int, tuple[float, ...]] = {2: (1.0,), 4: (0.75, 1.5)}
_PACKED_CHANNELS = 16
"""Channels whose weights are transformed at once: 0.2 MB, and a product too small for a BLAS to start threads for."""
_PAD = 16  # elements between planes, so that the planes' equal places do not all fall into one set of a cache


class WinogradBlocking(NamedTuple):
    """What `WinogradSpec.complete` appends to `Problem`."""

    tile_rows: int
    tile_columns: int
    tiles: int
    """Output tiles of all images."""
    task_tiles: int
    tile_blocks: int
    output_blocks: int
    chunk: int
    """Blocks of output channels of a task."""
    chunks: int
    input_plane: int
    """Elements of transformed input for one of the n * n positions: [channel block][tile][CHANNEL_BLOCK]."""
    product_plane: int
    """Elements of one block's products for one position: [tile][channel in block]."""
    ahead: int
    """Elements of each row of the next block's weights that a product of `rows` tiles asks for; 0: none."""
    tasks: int
    scratch_bytes: int


@dataclass(frozen=True)
class WinogradSpec(KernelSpec):
    """A 3x3 convolution, stride, dilation and groups 1, x_channel = 1, channels a multiple of CHANNEL_BLOCK.

    SIZES are those of `DirectSpec`. A task transforms the input of `task_tiles` tiles, unless the task before did; then
    for each of the n * n positions multiplies [tiles, channels] by [channels, output channels] for a chunk of output
    blocks; then transforms the products back, tile by tile, through the epilogue. Scratch memory holds, in this order,
    a pixel of zeros (the padding), the transformed input and the products.
    """

    lanes: int
    outputs: int
    """Outputs of a tile along each axis, m: 2 or 4."""
    rows: int
    """Tiles that the innermost product takes at once."""
    vectors: int
    """Vectors of output channels it takes at once."""
    l2_bytes: int = 1 << 20

    BUFFERS: ClassVar[tuple[str, ...]] = ("x", "w", "y")
    SIZES: ClassVar[tuple[str, ...]] = Problem._fields

    @property
    def block(self) -> int:
        """Output channels of a block."""
        return self.vectors * self.lanes

    @property
    def points(self) -> int:
        """n: input rows and columns of a tile."""
        return self.outputs + 2

    @property
    def size_count(self) -> int:
        return len(Problem._fields) + len(WinogradBlocking._fields)

    def complete(self, sizes: Sequence[int]) -> Sequence[int]:
        """`Problem`, then `WinogradBlocking`."""
        p = Problem(*sizes)
        rows, columns = -(-p.out_height // self.outputs), -(-p.out_width // self.outputs)
        tiles, output_blocks = p.images * rows * columns, -(-p.out_channels // self.block)
        task_tiles = self.task_tiles(tiles, p.channels, output_blocks)
        tile_blocks = -(-tiles // task_tiles)
        input_plane = p.channels * task_tiles + _PAD
        product_plane = task_tiles * self.block + _PAD
        positions = self.points**2
        # A task's products take a quarter of L2, if there are enough tasks with so many blocks.
        chunk = min(self.l2_bytes // 4 // (4 * positions * product_plane), output_blocks * tile_blocks // 8)
        chunk = max(1, min(chunk, output_blocks))
        chunks = -(-output_blocks // chunk)
        scratch = 4 * (p.channels + positions * (input_plane + chunk * product_plane))
        ahead = self._ahead(p.channels, p.out_channels, -(-min(tiles, task_tiles) // self.rows))
        blocking = WinogradBlocking(
            *(rows, columns, tiles, task_tiles, tile_blocks, output_blocks, chunk, chunks),
            *(input_plane, product_plane, ahead, tile_blocks * chunks, scratch),
        )
        return [*p, *blocking]

    def _ahead(self, channels: int, out_channels: int, products: int) -> int:
        """`WinogradBlocking.ahead`, where `products` of `rows` tiles use a block's weights.

        Weights that L2 does not hold come from the third-level cache. A CPU foresees long blocks of them; one of up to
        16 KiB is over before it has caught up, so the products share out asking for the next: 13 x 13 x 64 to 256 took
        520 µs without and 317 with it. A single product has no time for it.
        """
        weights = 4 * self.points**2 * channels * out_channels
        far = weights > self.l2_bytes * 3 // 4 and 4 * channels * self.block <= 16 << 10
        return self.block // products if far and products > 1 else 0

    def task_tiles(self, tiles: int, channels: int, output_blocks: int) -> int:
        """Tiles of a task, a multiple of `rows`.

        The transformed weights are read once a block of tiles, 64 / task_tiles bytes a cycle on a core that does one
        multiply-add of 16 lanes a cycle: 28 tiles at least if they are too large for three quarters of L2, else 14.
        More are good as long as the transformed input stays in half of L2 and there are 16 tasks.
        """
        position_bytes = 4 * self.points**2 * max(channels, 1)
        least = 14 if position_bytes * output_blocks * self.block <= self.l2_bytes * 3 // 4 else 28
        wanted = tiles // max(1, -(-16 // max(output_blocks, 1)))
        count = max(1, min(tiles, max(least, min(self.l2_bytes // 2 // position_bytes, wanted))))
        even = -(-max(tiles, 1) // -(-max(tiles, 1) // count))
        return -(-even // self.rows) * self.rows

    def _blocking(self, sizes: Sequence[int]) -> WinogradBlocking:
        start = len(Problem._fields)
        return WinogradBlocking(*sizes[start : start + len(WinogradBlocking._fields)])

    def tasks(self, sizes: Sequence[int]) -> int:
        return self._blocking(sizes).tasks

    def grain(self, sizes: Sequence[int]) -> int:
        """The tasks that share a transformed input: a thread that takes fewer transforms it again for the next."""
        return self._blocking(sizes).chunks

    def scratch_bytes(self, sizes: Sequence[int]) -> int:
        return self._blocking(sizes).scratch_bytes

    def work(self, sizes: Sequence[int]) -> Work:
        """Operations of the products alone."""
        p, blocking = Problem(*sizes[: len(Problem._fields)]), self._blocking(sizes)
        x = p.images * p.height * p.width * p.channels
        y = p.images * p.out_height * p.out_width * p.out_channels
        weights = self.points**2 * p.channels * p.out_channels
        return Work(2 * blocking.tiles * weights, 4 * (x + y + weights))

    def pack_weights(self, weights: np.ndarray) -> np.ndarray:
        """Weights [M, C, 3, 3] transformed (in float64, rounded once): [position][block of M][C][M in block]."""
        outputs, channels = weights.shape[:2]
        taps, kernel = np.asarray(weights).reshape(outputs, channels, 9), kernel_matrix(self.outputs)
        transform = np.kron(kernel, kernel)
        parts = blocks(outputs, self.block)
        packed = zeros(len(transform) * len(parts) * channels * self.block, np.float32)
        whole = packed.reshape(len(transform), len(parts), channels, self.block)

        def pack(part: int) -> None:
            """One block of outputs, some channels at a time, so that everything stays in the cache."""
            block = taps[parts[part]]
            given = np.zeros((9, _PACKED_CHANNELS, self.block))
            for some in blocks(channels, _PACKED_CHANNELS):
                count = some.stop - some.start
                given[:, :count, : len(block)] = block[:, some].transpose(2, 1, 0)
                transformed = (transform @ given.reshape(9, -1)).reshape(-1, _PACKED_CHANNELS, self.block)
                whole[:, part, some] = transformed[:, :count]

        for_each(pack, len(parts), packed.nbytes)
        return packed


def kernel_matrix(outputs: int) -> np.ndarray:
    """G [n, 3]: for each finite point p [1, p, p^2] / Π (p - q) over the other points q; for infinity [0, 0, 1]."""
    finite = [0.0, *(sign * p for p in POINTS[outputs] for sign in (1, -1))]
    rows = [np.array([1, p, p * p]) / np.prod([p - q for q in finite if q != p]) for p in finite]
    return np.array([*rows, [0, 0, 1]])
