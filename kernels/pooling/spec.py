"""What the pooling kernels are, without compiling them."""

from __future__ import annotations

import numpy as np

from jitonnx.emit.arguments import Arguments, Buffer, Size, computed, result
from jitonnx.kernels.parts.layouts import Pixels, PlanesToPlanes, UnaryBuffers
from jitonnx.kernels.parts.sizes import larger, smaller
from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.support.records import dataclass
from jitonnx.target import tuning

KINDS = ("max", "average", "lp")
ELEMENTS = {
    "max": ("float32", "float16", "bfloat16", "float64", "int8", "uint8"),
    "average": ("float32", "float16", "float64"),
    "lp": ("float32", "float16", "float64"),
}


class PoolBuffers(Arguments):
    x: Buffer
    y: Buffer = result()
    indices: Buffer = result()


class PoolSizes(Pixels):
    """Extents, strides in elements, the window and the padding before and after. index_*: what a step along an axis of
    x adds to a reported index: for x [N, C, H, W] and storage_order 0 these are C*H*W, H*W, 0, W, 1, and for
    storage_order 1 C*H*W, H*W, 0, 1, H. Only count_include_pad needs the padding after, only with_indices index_*."""

    depth: Size
    out_depth: Size
    out_height: Size
    out_width: Size
    x_plane: Size
    y_plane: Size
    kernel_depth: Size
    kernel_height: Size
    kernel_width: Size
    stride_depth: Size
    stride_height: Size
    stride_width: Size
    dilation_depth: Size
    dilation_height: Size
    dilation_width: Size
    pad_depth: Size
    pad_height: Size
    pad_width: Size
    pad_depth_after: Size
    pad_height_after: Size
    pad_width_after: Size
    index_image: Size
    index_channel: Size
    index_plane: Size
    index_row: Size
    index_pixel: Size


@dataclass(frozen=True)
class PoolSpec(KernelSpec):
    """ONNX's MaxPool, AveragePool and LpPool over one to three spatial axes; missing ones have size and window 1.

    Element (n, d, h, w, c) of x lies at n * x_image + d * x_plane + h * x_row + w * x_pixel + c, and y's likewise;
    `indices`, int64, is laid out as y. Task: one row of output pixels, (n * out_depth + d) * out_height + h.
    The epilogue's row is the linear output pixel (d * out_height + h) * out_width + w.

    Maximum: the first tap is taken, then each that is greater. So a NaN stays if it is the first and loses otherwise,
    as in ONNX's reference and in onnxruntime's MaxPool with indices; onnxruntime's without indices depends on its
    vectors. A window that lies in the padding altogether gives the lowest number.

    Average: taps are added up row by row; `by_columns`, sums of columns one after the other at strides up to
    `LONGEST_STRIDE_BY_COLUMNS`.
    """

    kind: str
    """"max", "average" or "lp"."""
    element: str = "float32"
    """Element type of x and y, as NumPy names it; float16 is summed in float32. bfloat16 without indices."""
    with_indices: bool = False
    """Max only: a second output, where in ONNX's x each maximum was found (the first of equals)."""
    count_include_pad: bool = False
    """Average only: divide by the number of taps within the padded x, not within x."""
    power: int = 2
    """Lp only: the exponent p >= 1."""
    by_columns: bool = False
    long_pixels: bool = True
    """Whether an epilogue finds its operands for columns beyond the channels too, as those of the next pixels: pixels
    of a row are then made as one where windows move by one. A single channel would else fill one lane."""

    BUFFERS = PoolBuffers
    SIZES = PoolSizes

    def __post_init__(self) -> None:
        if self.kind not in KINDS or self.element not in ELEMENTS[self.kind]:
            raise ValueError(f"no pooling kernel of kind {self.kind!r} for {self.element!r}")
        if self.with_indices and (self.kind != "max" or self.element == "bfloat16"):
            raise ValueError(f"pooling of kind {self.kind!r} of {self.element!r} has no indices")
        if self.power < 1:
            raise ValueError(f"LpPool: p must be at least 1, not {self.power}")

    @property
    def itemsize(self) -> int:
        """Bytes of an element; NumPy need not know bfloat16 for it."""
        return 2 if self.element == "bfloat16" else np.dtype(self.element).itemsize

    def tasks(self, sizes: PoolSizes) -> int:
        there = sizes.channels * sizes.out_width * sizes.depth * sizes.height * sizes.width > 0
        return sizes.images * sizes.out_depth * sizes.out_height if there else 0

    def work(self, sizes: PoolSizes) -> Work:
        pixels = sizes.images * sizes.channels
        inputs = pixels * sizes.depth * sizes.height * sizes.width
        outputs = pixels * sizes.out_depth * sizes.out_height * sizes.out_width
        window = sizes.kernel_depth * sizes.kernel_height * sizes.kernel_width
        item = self.itemsize
        return Work(outputs * window, item * (inputs + outputs) + 8 * outputs * self.with_indices)


LONGEST_STRIDE_BY_COLUMNS = 2
"""Strides along the width up to which averages that go by columns do so; at longer ones all taps are added in a row: as
in onnxruntime (MLAS, pooling.cpp), whose vectors take strides up to this."""
PLANE_STRIDES = (1, 2, 3, 4)
"""Strides along the width for which planes have a kernel: shuffles take outputs out of so many vectors."""

_UNROLLED = 4
"""Windows of up to so many rows and columns have code of their own."""
_ROWS_TOGETHER = 3
"""Output rows made together where windows move by one row: loads that straddle cache lines bind, and share rows."""
_LONGEST_VECTOR = 16


class PoolPlanesSizes(PlanesToPlanes):
    kernel_height: Size
    kernel_width: Size
    stride_height: Size
    pad_height: Size
    pad_width: Size
    pad_height_after: Size
    pad_width_after: Size
    rows_each: Size = computed()
    """Output rows of a task."""
    margin: Size = computed()
    """x begins there in a copied row."""
    reach: Size = computed()
    """Elements of a row from its padding on that whole vectors read."""
    pitch: Size = computed()
    """Elements from one copied row to the next."""
    padded: Size = computed()
    """Whether windows reach beyond the width."""


@dataclass(frozen=True)
class PoolPlanesSpec(KernelSpec):
    """The pool that `PoolSpec` of float32 is over one or two axes, without dilation, but pixels of a row lie side by
    side: vectors are of output pixels. Every window has a tap within x.

    Element (n, c, h, w) of x lies at n * x_image + c * x_channel + h * x_row + w, of y likewise; steps of x are not
    negative. Task: a block of output rows of a plane. Where windows reach beyond x, or vectors beyond its end, the
    rows that a task reads are copied first, with padding all around: zeros to be added, or the nearest elements again
    to be compared. Maxima and the order of sums are as of `PoolSpec`. To the epilogue, batch is n, row c and column
    oh * out_width + ow.
    """

    kind: str
    count_include_pad: bool
    power: int
    by_columns: bool
    stride: int
    """It is the stride along the width, one of PLANE_STRIDES."""
    window: tuple[int, int] = (0, 0)
    """Its height and width; (0, 0): any."""
    rows: int = 1
    """So many output rows are made together, which read mostly the same rows: for windows that move by one row."""

    BUFFERS = UnaryBuffers
    SIZES = PoolPlanesSizes
    PRESCHEDULED = True

    def complete(self, sizes: PoolPlanesSizes) -> PoolPlanesSizes:
        vectors = -(-sizes.out_width // _LONGEST_VECTOR)
        reach = vectors * _LONGEST_VECTOR * self.stride + sizes.kernel_width - 1
        margin = _whole_vectors(sizes.pad_width)
        pitch = margin + _whole_vectors(larger(reach - sizes.pad_width, sizes.width))
        beyond = (sizes.out_width - 1) * self.stride + sizes.kernel_width > sizes.width
        rows = (tuning.POOLING_BLOCK_BYTES // (4 * pitch) - sizes.kernel_height) // sizes.stride_height + 1
        return PoolPlanesSizes.following(
            sizes,
            rows_each=larger(1, smaller(rows, sizes.out_height)),
            margin=margin,
            reach=reach,
            pitch=pitch,
            padded=int(beyond or sizes.pad_width > 0),
        )

    def tasks(self, sizes: PoolPlanesSizes) -> int:
        blocks = -(-sizes.out_height // sizes.rows_each)
        there = smaller(sizes.height, sizes.width, sizes.out_width) > 0
        return sizes.images * sizes.channels * blocks if there else 0

    def scratch_bytes(self, sizes: PoolPlanesSizes) -> int:
        """The rows that a task reads, if it has to copy them."""
        return 4 * ((sizes.rows_each - 1) * sizes.stride_height + sizes.kernel_height) * sizes.pitch

    def work(self, sizes: PoolPlanesSizes) -> Work:
        planes, window = sizes.images * sizes.channels, sizes.kernel_height * sizes.kernel_width
        outputs = planes * sizes.out_height * sizes.out_width
        return Work(outputs * window, 4 * (planes * sizes.height * sizes.width + outputs))


def _whole_vectors(elements: int) -> int:
    return -(-elements // _LONGEST_VECTOR) * _LONGEST_VECTOR


def choose_planes(
    kind: str,
    window: tuple[int, int],
    strides: tuple[int, int],
    *,
    count_include_pad: bool = False,
    power: int = 2,
    by_columns: bool = False,
) -> PoolPlanesSpec:
    """The spec for pooling planes with windows of this height and width; unused fields have their defaults."""
    include, power = count_include_pad and kind == "average", power if kind == "lp" else 2
    by_columns = by_columns and kind == "average" and strides[1] <= LONGEST_STRIDE_BY_COLUMNS
    if max(window) > _UNROLLED:
        return PoolPlanesSpec(kind, include, power, by_columns, strides[1])
    rows = _ROWS_TOGETHER if window[0] > 1 and strides[0] == 1 else 1
    return PoolPlanesSpec(kind, include, power, by_columns, strides[1], window, rows)


def choose(
    kind: str,
    element: str = "float32",
    *,
    with_indices: bool = False,
    count_include_pad: bool = False,
    power: int = 2,
    by_columns: bool = False,
) -> PoolSpec:
    """The spec for a pooling node. The window's sizes are arguments: one kernel serves them all at the same speed.

    Fields that the kind does not use are brought to their defaults, so that equal code has equal specs.
    """
    return PoolSpec(
        kind,
        element,
        with_indices and kind == "max",
        count_include_pad and kind == "average",
        power if kind == "lp" else 2,
        by_columns and kind == "average",
    )
