"""What the resampling kernels are, and the tables they work from; without LLVM.

A table says for each output position of an axis which input positions it is made of (its taps) and with which weights.
Whatever ONNX's Resize means by its attributes is in the tables; the kernels only sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar, NamedTuple

import numpy as np

from jitonnx.kernels.parts.sizes import larger, smaller
from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.records import dataclass

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

    BUFFERS: ClassVar[tuple[str, ...]] = ("x", "rows", "row_weights", "columns", "column_weights", "y")
    SIZES: ClassVar[tuple[str, ...]] = (
        *("images", "width", "channels", "out_height", "out_width", "row_taps", "column_taps"),
        *("x_image", "x_row", "x_pixel", "y_image", "y_row", "y_pixel"),
    )

    def __post_init__(self) -> None:
        if self.mode not in MODES or self.itemsize not in (1, 2, 4, 8):
            raise ValueError(f"no resampling kernel of mode {self.mode!r} for elements of {self.itemsize} bytes")
        if self.itemsize != 4 and (self.mode != "nearest" or self.extrapolation is not None):
            raise ValueError(f"resampling of mode {self.mode!r}, or with an extrapolation value, is for float32")

    def tasks(self, sizes: Sequence[int]) -> int:
        images, _, channels, out_height, out_width = sizes[:5]
        return images * out_height if channels * out_width else 0

    def scratch_bytes(self, sizes: Sequence[int]) -> int:
        """A row of x's pixels."""
        return 4 * sizes[1] * sizes[2] if self.mode == "separable" else 0

    def work(self, sizes: Sequence[int]) -> Work:
        images, width, channels, out_height, out_width, row_taps, column_taps = sizes[:7]
        outputs = images * out_height * out_width * channels
        if self.mode == "nearest":
            return Work(0, 2 * self.itemsize * outputs)
        rows = images * out_height * channels * width * row_taps
        flops = 2 * (rows + outputs * column_taps) if self.mode == "separable" else 8 * outputs
        return Work(flops, self.itemsize * (rows + outputs))


@dataclass(frozen=True)
class ResizeAxisSpec(KernelSpec):
    """y[o, j, i] = Σ weights[j, t] * x[o, positions[j, t], i]: one axis resampled, for tensors of any rank, float32.

    Element (o, p, i) of x lies at o * x_outer + p * x_step + i, and y's likewise; i < inner. An axis at a time, the
    one that shrinks most first, resamples any tensor. Task: one (o, j), o * outputs + j.
    """

    extrapolation: float | None = None
    """What outputs outside the input get; None: the table has none."""

    BUFFERS: ClassVar[tuple[str, ...]] = ("x", "positions", "weights", "y")
    SIZES: ClassVar[tuple[str, ...]] = ("outer", "outputs", "inner", "taps", "x_outer", "x_step", "y_outer", "y_step")

    def tasks(self, sizes: Sequence[int]) -> int:
        outer, outputs, inner = sizes[:3]
        return outer * outputs if inner else 0

    def work(self, sizes: Sequence[int]) -> Work:
        elements, taps = prod(sizes[:3]), sizes[3]
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


@dataclass(frozen=True)
class ResizePlanesSpec(KernelSpec):
    """As `ResizeSpec`, but pixels of x and y lie side by side, and the taps of an output are neighbours, each way.

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

    BUFFERS: ClassVar[tuple[str, ...]] = ("x", "rows", "row_weights", "starts", "columns", "column_weights", "y")
    SIZES: ClassVar[tuple[str, ...]] = (
        *("images", "channels", "height", "width", "out_height", "out_width"),
        *("x_image", "x_channel", "x_row", "y_image", "y_channel", "y_row"),
    )

    @property
    def places(self) -> int:
        """Groups of `together` rows that are kept: as many as hold taps of one output."""
        return -(-(self.taps - 1) // self.together) + 1

    def complete(self, sizes: Sequence[int]) -> Sequence[int]:
        """SIZES, then row_block, for 16 tasks or more, and pitch: elements of a row of out_width that is kept."""
        images, channels, _, _, height, width, *_ = sizes
        blocks = -(-16 // larger(images * channels, 1))
        return [*sizes, larger(1, -(-height // blocks)), width + _OVERHANG]

    @property
    def size_count(self) -> int:
        return len(self.SIZES) + 2

    def tasks(self, sizes: Sequence[int]) -> int:
        images, channels, _, _, height, width, *_ = sizes
        return images * channels * -(-height // sizes[len(self.SIZES)]) if width else 0

    def scratch_bytes(self, sizes: Sequence[int]) -> int:
        """The rows that are kept."""
        return self.places * self.together * 4 * sizes[-1]

    def work(self, sizes: Sequence[int]) -> Work:
        images, channels, _, _, height, width, *_ = sizes
        outputs = images * channels * height * width
        return Work(4 * self.taps * outputs, 4 * outputs)


REPEATS = (1, 2, 3, 4)
"""How often pixels can be repeated along a row."""
_REPEAT_BYTES = 32 << 10


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

    BUFFERS: ClassVar[tuple[str, ...]] = ("x", "y")
    SIZES: ClassVar[tuple[str, ...]] = (
        *("images", "channels", "height", "width", "down", "x_image", "x_channel", "x_row"),
    )

    def complete(self, sizes: Sequence[int]) -> Sequence[int]:
        """SIZES, then the rows of x in a task."""
        _, _, height, width, down, *_ = sizes
        written = width * self.across * down * self.itemsize
        return [*sizes, larger(1, smaller(height, _REPEAT_BYTES // larger(written, 1)))]

    @property
    def size_count(self) -> int:
        return len(self.SIZES) + 1

    def tasks(self, sizes: Sequence[int]) -> int:
        images, channels, height, width, *_ = sizes
        return images * channels * -(-height // sizes[-1]) if width else 0

    def work(self, sizes: Sequence[int]) -> Work:
        elements = prod(sizes[:4])
        return Work(0, self.itemsize * elements * (1 + self.across * sizes[4]))


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
