"""What the resampling kernels are, and the tables they work from; without LLVM.

A table says for each output position of an axis which input positions it is made of (its taps) and with which weights.
Whatever ONNX's Resize means by its attributes is in the tables; the kernels only sum.
"""

from __future__ import annotations

import numpy as np

from jitonnx.emit.arguments import Arguments, Buffer, Size, computed, result
from jitonnx.kernels.parts.layouts import Pixels, Planes, PlanesToPlanes, UnaryBuffers
from jitonnx.kernels.parts.sizes import larger, smaller
from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.support.records import NamedTuple, dataclass
from jitonnx.target import tuning

MODES = ("nearest", "linear", "separable")
OUTSIDE = -1
"""The first position of an output that lies outside the input: it gets the extrapolation value."""


class Table(NamedTuple):
    """The taps of an axis, as the kernels read them."""

    positions: np.ndarray
    """int32 [outputs, taps]."""
    weights: np.ndarray
    """float32 [outputs, taps]."""


def pack_table(
    indices: np.ndarray, weights: np.ndarray, outside: np.ndarray | None = None, taps: int | None = None
) -> Table:
    """Table of input positions [outputs, n] and weights [outputs, n]; outside: bool [outputs].

    `taps` > n repeats the last position with weight 0.
    """
    missing = (taps or indices.shape[1]) - indices.shape[1]
    positions = np.pad(indices.astype(np.int32), ((0, 0), (0, missing)), mode="edge")
    if outside is not None:
        positions[outside, 0] = OUTSIDE
    return Table(positions, np.pad(weights.astype(np.float32), ((0, 0), (0, missing))))


class ResizeBuffers(Arguments):
    x: Buffer
    rows: Buffer
    row_weights: Buffer
    columns: Buffer
    column_weights: Buffer
    y: Buffer = result()


class ResizeSizes(Pixels):
    out_height: Size
    out_width: Size
    row_taps: Size
    column_taps: Size


@dataclass(frozen=True)
class ResizeSpec(KernelSpec):
    """y[n, oh, ow, c] = Σ row_weights[oh, i] * column_weights[ow, j] * x[n, rows[oh, i], columns[ow, j], c].

    x and y are channels-last: element (n, h, w, c) of x lies at n * x_image + h * x_row + w * x_pixel + c, and y's
    likewise. rows [out_height, row_taps] and columns [out_width, column_taps] are the positions of a `Table`, with
    their weights; extents are in elements. Task: a row of output pixels, n * out_height + oh.

    Modes: "nearest" copies, with one tap and no weights, elements of any size; "linear" is for two taps each way;
    "separable" for any number: the rows are summed first, to scratch, then the columns.
    """

    mode: str
    itemsize: int = 4
    """Bytes of an element; only "nearest" without an epilogue takes others than float32."""
    extrapolation: float | None = None
    """What outputs outside the input get (float32 elements only); None: the tables have none."""

    BUFFERS = ResizeBuffers
    SIZES = ResizeSizes

    def __post_init__(self) -> None:
        if self.mode not in MODES or self.itemsize not in (1, 2, 4, 8):
            raise ValueError(f"no resampling kernel of mode {self.mode!r} for elements of {self.itemsize} bytes")
        if self.itemsize != 4 and (self.mode != "nearest" or self.extrapolation is not None):
            raise ValueError(f"resampling of mode {self.mode!r}, or with an extrapolation value, is for float32")

    def tasks(self, sizes: ResizeSizes) -> int:
        return sizes.images * sizes.out_height if sizes.channels * sizes.out_width else 0

    def scratch_bytes(self, sizes: ResizeSizes) -> int:
        """A row of x's pixels."""
        return 4 * sizes.width * sizes.channels if self.mode == "separable" else 0

    def work(self, sizes: ResizeSizes) -> Work:
        pixels = sizes.images * sizes.out_height * sizes.channels
        outputs = pixels * sizes.out_width
        if self.mode == "nearest":
            return Work(0, 2 * self.itemsize * outputs)
        rows = pixels * sizes.width * sizes.row_taps
        flops = 2 * (rows + outputs * sizes.column_taps) if self.mode == "separable" else 8 * outputs
        return Work(flops, self.itemsize * (rows + outputs))


class ResizeAxisBuffers(Arguments):
    x: Buffer
    positions: Buffer
    weights: Buffer
    y: Buffer = result()


class ResizeAxisSizes(Arguments):
    outer: Size
    outputs: Size
    inner: Size
    taps: Size
    x_outer: Size
    x_step: Size
    y_outer: Size
    y_step: Size


@dataclass(frozen=True)
class ResizeAxisSpec(KernelSpec):
    """y[o, j, i] = Σ weights[j, t] * x[o, positions[j, t], i]: one axis resampled, for tensors of any rank, float32.

    Element (o, p, i) of x lies at o * x_outer + p * x_step + i, and y's likewise; i < inner. An axis at a time, the
    one that shrinks most first, resamples any tensor. Task: one (o, j), o * outputs + j.
    """

    extrapolation: float | None = None
    """What outputs outside the input get; None: the table has none."""

    BUFFERS = ResizeAxisBuffers
    SIZES = ResizeAxisSizes

    def tasks(self, sizes: ResizeAxisSizes) -> int:
        return sizes.outer * sizes.outputs if sizes.inner else 0

    def work(self, sizes: ResizeAxisSizes) -> Work:
        elements, taps = sizes.outer * sizes.outputs * sizes.inner, sizes.taps
        return Work(2 * elements * taps, 4 * elements * (taps + 1))


_OVERHANG = 32
"""Elements behind a row of out_width that whole vectors may touch: two vectors of 16."""


class Windows(NamedTuple):
    """The columns of a `ResizePlanesSpec`: vectors of outputs, each of which reads a window of one or two vectors."""

    starts: np.ndarray
    """int32 [vectors]: the first column of each window; windows lie within the row, if that is so long."""
    columns: np.ndarray
    """int32 [taps, vectors * lanes]: the columns that outputs read, counted from the start of their window."""
    weights: np.ndarray
    """float32 [taps, vectors * lanes]."""


def pack_windows(table: Table, width: int, lanes: int, vectors: int) -> Windows | None:
    """Windows of one or two vectors for a table; None if some vector of outputs reads columns too far apart."""
    outputs, taps = table.positions.shape
    padding = ((0, -outputs % lanes), (0, 0))
    positions = np.pad(table.positions, padding, mode="edge").reshape(-1, lanes * taps)
    starts = np.minimum(positions.min(axis=1, initial=width), max(0, width - vectors * lanes)).astype(np.int32)
    columns = (positions - starts[:, None]).reshape(-1, taps)
    if columns.size and columns.max() >= vectors * lanes:
        return None
    weights = np.pad(table.weights, padding)
    return Windows(starts, np.ascontiguousarray(columns.T), np.ascontiguousarray(weights.T))


class ResizePlanesBuffers(Arguments):
    x: Buffer
    rows: Buffer
    row_weights: Buffer
    starts: Buffer
    columns: Buffer
    column_weights: Buffer
    y: Buffer = result()


class ResizePlanesSizes(PlanesToPlanes):
    row_block: Size = computed()
    """Rows of a task, for 16 tasks or more."""
    pitch: Size = computed()
    """Elements of a row of out_width that is kept."""


@dataclass(frozen=True)
class ResizePlanesSpec(KernelSpec):
    """What `ResizeSpec` is, but pixels of x and y lie side by side, and the taps of an output are neighbours,
    each way.

    Element (n, c, h, w) of x lies at n * x_image + c * x_channel + h * x_row + w, and y's likewise. An input row is
    brought to out_width once and kept for the output rows that need it; its vectors are put together from `Windows` by
    permutations. Rows that shrink to less than half have no windows. Task: a block of rows of one plane. float32; to
    the epilogue, batch is n, row c and column oh * out_width + ow.
    """

    taps: int
    """1: nearest; 2: linear; 4: cubic."""
    window: int = 2
    """Vectors of a window: one, for which a simpler permutation does, where rows grow; else two."""
    together: int = 1
    """So many input rows are brought to out_width at a time: two that follow each other, unless few rows are read."""

    BUFFERS = ResizePlanesBuffers
    SIZES = ResizePlanesSizes

    @property
    def places(self) -> int:
        """Groups of `together` rows that are kept: as many as hold taps of one output."""
        return -(-(self.taps - 1) // self.together) + 1

    def complete(self, sizes: ResizePlanesSizes) -> ResizePlanesSizes:
        blocks = -(-16 // larger(sizes.images * sizes.channels, 1))
        row_block = larger(1, -(-sizes.out_height // blocks))
        return ResizePlanesSizes.following(sizes, row_block=row_block, pitch=sizes.out_width + _OVERHANG)

    def tasks(self, sizes: ResizePlanesSizes) -> int:
        planes = sizes.images * sizes.channels
        return planes * -(-sizes.out_height // sizes.row_block) if sizes.out_width else 0

    def scratch_bytes(self, sizes: ResizePlanesSizes) -> int:
        """The rows that are kept."""
        return self.places * self.together * 4 * sizes.pitch

    def work(self, sizes: ResizePlanesSizes) -> Work:
        outputs = sizes.images * sizes.channels * sizes.out_height * sizes.out_width
        return Work(4 * self.taps * outputs, 4 * outputs)


REPEATS = (1, 2, 3, 4)
"""How often pixels can be repeated along a row."""


class RepeatPlanesSizes(Planes):
    down: Size
    row_block: Size = computed()
    """Rows of x in a task."""


@dataclass(frozen=True)
class RepeatPlanesSpec(KernelSpec):
    """y[p, h * down + i, w * across + j] = x[p, h, w] for planes p of pixels that lie side by side.

    x's element (n, c, h, w) lies at n * x_image + c * x_channel + h * x_row + w; y is dense. Vectors of x are shuffled
    to `across` vectors, each of which is stored `down` times. Task: a block of rows of one plane.
    """

    itemsize: int
    """Bytes of an element: 1, 2, 4 or 8."""
    across: int
    """One of REPEATS."""

    BUFFERS = UnaryBuffers
    SIZES = RepeatPlanesSizes
    COMBINING = True

    def complete(self, sizes: RepeatPlanesSizes) -> RepeatPlanesSizes:
        written = sizes.width * self.across * sizes.down * self.itemsize
        row_block = larger(1, smaller(sizes.height, tuning.TASK_BYTES // larger(written, 1)))
        return RepeatPlanesSizes.following(sizes, row_block=row_block)

    def tasks(self, sizes: RepeatPlanesSizes) -> int:
        return sizes.images * sizes.channels * -(-sizes.height // sizes.row_block) if sizes.width else 0

    def work(self, sizes: RepeatPlanesSizes) -> Work:
        elements = sizes.images * sizes.channels * sizes.height * sizes.width
        return Work(0, self.itemsize * elements * (1 + self.across * sizes.down))


def choose(
    mode: str, row_taps: int, column_taps: int, itemsize: int = 4, extrapolation: float | None = None
) -> ResizeSpec:
    """The spec for a resampling of two axes by ONNX's `mode` with tables of so many taps.

    Two taps each way are summed directly: 4 products an element. More are separable: row_taps products for each
    element of x's rows and column_taps for each of y's. For "linear", tables of one tap (an axis that stays) are to
    be packed with taps=2.
    """
    if mode == "nearest":
        return ResizeSpec("nearest", itemsize, extrapolation)
    return ResizeSpec("linear" if max(row_taps, column_taps) <= 2 else "separable", itemsize, extrapolation)
