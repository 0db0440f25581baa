"""Resizing: two spatial axes of an image in one kernel, channels-last or in planes; other axes one after the other.

The kernels work from tables of positions and weights. Where sizes are known these are constants of the plan; else they
are made with each program (`plan/tables.py`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from jitonnx.emit.arguments import by_name
from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation.lowering import Statement
from jitonnx.ir.computation.resampling import antialias_taps
from jitonnx.ir.dims import (
    DimLike,
    ceil_divide,
    exact_divide,
    integers,
    known,
    maximum,
    minimum,
    not_negative,
    product,
    usual,
)
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.kernels.parts.layouts import UnaryBuffers
from jitonnx.kernels.resize.spec import (
    REPEATS,
    RepeatPlanesSizes,
    RepeatPlanesSpec,
    ResizeAxisBuffers,
    ResizeAxisSizes,
    ResizeAxisSpec,
    ResizeBuffers,
    ResizePlanesBuffers,
    ResizePlanesSizes,
    ResizePlanesSpec,
    ResizeSizes,
    pack_windows,
)
from jitonnx.kernels.resize.spec import choose as choose_resize
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group
from jitonnx.plan.selection.planes import planes, planes_to_planes
from jitonnx.plan.tables import ResamplingTable, WindowTable
from jitonnx.plan.tensor import StridedTensor, channels_last_order, in_planes, pixel_strides, plane_strides
from jitonnx.support.records import dataclass
from jitonnx.target import tuning

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


def resize(planner: Planner, group: Group, computation: c.Resize, image: Value) -> None:
    """Resize: both spatial axes of an image in one kernel, other axes one after the other."""
    source, shape = planner.tensor(image), computation.shape
    changing = _resampled_axes(computation, source.shape)
    if source.dtype is not DType.FLOAT and computation.mode != "nearest":
        # Images of double occur in no model; small integers are resampled in float32 by the operator.
        planner.unplannable(f"resampling of {source.dtype.text}")
    if _is_image_resize(computation, source.shape):
        if (factors := _repeats(planner, group, computation, source)) is not None:
            _repeat_pixels(planner, group, source, *factors)
            return
        if found := _plane_windows(planner, group, computation, source):
            _resize_planes(planner, group, computation, source, found)
            return
        _resize_image(planner, group, computation, planner.channels_last(image))
        return
    assert group.expr is None, "Bug: resampling axis by axis has no epilogue"
    if source.dtype is not DType.FLOAT:
        # As above, for what is no image.
        planner.unplannable(f"resampling of axes {changing} of {source.dtype.text}")
    tensor = planner.dense(image)
    growth = {axis: usual(shape[axis]) / usual(source.shape[axis]) for axis in changing}
    for axis in sorted(changing, key=lambda axis: growth[axis]):  # the one that shrinks most first
        tensor = _resize_axis(planner, computation, source, tensor, axis)
    out = planner.place(group.output)
    planner.copy_into(tensor, out, "resampled axis by axis")


def resizes_images(statement: Statement) -> bool:
    """Whether a Resize is done by the kernel for images, which takes an epilogue."""
    assert isinstance(statement.computation, c.Resize) and statement.inputs[0] is not None
    return _is_image_resize(statement.computation, statement.inputs[0].shape)


def _is_image_resize(computation: c.Resize, shape: Sequence[DimLike]) -> bool:
    return len(shape) == 4 and set(_resampled_axes(computation, shape)) <= {2, 3}


def _resampled_axes(computation: c.Resize, shape: Sequence[DimLike]) -> list[int]:
    """The axes that are not copied as they are; one that keeps its size may yet be scaled or cut to a region."""
    rank = len(shape)
    scales, roi = computation.scales, computation.roi or ((0.0, 1.0),) * rank
    return [
        axis
        for axis in range(rank)
        if shape[axis] != computation.shape[axis] or scales[axis] not in (None, 1.0) or roi[axis] != (0.0, 1.0)
    ]


def _repeats(planner: Planner, group: Group, computation: c.Resize, x: StridedTensor) -> tuple[int, int] | None:
    """(rows, columns) that each pixel becomes, if planes of pixels become larger ones by mere repetition."""
    target = planner.destination(group.output)
    if computation.mode != "nearest" or group.expr is not None or target is None or not target.contiguous:
        return None
    if not in_planes(x):
        return None
    factors: list[int] = []
    for axis in (2, 3):
        table = _Table.of(computation, x, axis)
        factor = exact_divide(table.output, table.length)
        if not isinstance(factor, int) or not factor or not _repeats_elements(table.maker, factor):
            return None
        factors.append(factor)
    if max(factors) == 1 or factors[1] not in REPEATS:
        return None
    if not all(planner.assume(minimum(x.shape[axis], _LENGTHS), x.shape[axis]) for axis in (2, 3)):
        return None
    return factors[0], factors[1]


_LENGTHS = 1 << 14
"""Axes of so many elements at most are looked at; in longer ones rounding would decide at some."""


@functools.cache
def _repeats_elements(maker: ResamplingTable, factor: int) -> bool:
    """Whether axes of up to _LENGTHS elements become `factor` times as long by the repetition of each.

    Where that is so for the longest it is for all: the positions in the input depend on the scale.
    """
    for length in (1, 2, 3, _LENGTHS):
        output = length * factor
        if not np.array_equal(maker.table((length, output, 1)).positions[:, 0], np.arange(output) // factor):
            return False
    return True


def _repeat_pixels(planner: Planner, group: Group, x: StridedTensor, down: int, across: int) -> None:
    y = planner.place(group.output)
    sizes = RepeatPlanesSizes(**planes(x), down=down)
    spec, buffers = RepeatPlanesSpec(x.dtype.itemsize, across), UnaryBuffers(x=x, y=y)
    call = KernelCall(spec, buffers, sizes, label="resize nearest")
    call.reason = f"each pixel {down} x {across} times"
    planner.call(call)


_TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
"""The keys are the modes, without antialias."""


def _plane_windows(planner: Planner, group: Group, computation: c.Resize, source: StridedTensor) -> int | None:
    """How many vectors the windows of columns have, if an image is to be resized in planes of pixels."""
    target = planner.destination(group.output)
    if computation.antialias or computation.roi is not None:
        return None
    if source.dtype is not DType.FLOAT or target is None or not in_planes(target):
        return None
    grows = product(target.shape[2:]) - tuning.GROWTH_FOR_PLANES * product(source.shape[2:])
    if not in_planes(source) and not not_negative(grows):
        return None
    table, lanes = _Table.of(computation, source, 3), planner.target.lanes(4)
    return next((vectors for vectors in (1, 2) if _windows_fit(table, lanes, vectors)), None)


def _windows_fit(table: _Table, lanes: int, vectors: int) -> bool:
    """Whether each vector of outputs surely reads columns that lie within so many vectors."""
    if known(table.sizes):
        sizes = integers(table.sizes)
        return pack_windows(table.maker.table(sizes), sizes[0], lanes, vectors) is not None
    growth = table.maker.scale
    if growth is None:  # an axis of one element becomes no more than one, or a longer one of at least 3 / 2
        doubles = not_negative(table.output - 2 * table.length + 1)
        growth = 1.5 if doubles else 1.0 if not_negative(table.output - table.length) else 0.0
    if not growth or table.maker.policy:
        return False
    apart, coordinates = (lanes - 1) / growth, table.maker.coordinates
    if coordinates == "align_corners" and table.maker.scale is not None and growth < 2:
        # There are fewer outputs than a scale gives, by a fraction: they lie further apart, most if they fill a vector.
        apart = (lanes + 1) / growth - 1
    exact = math.frexp(growth)[0] == 0.5 and coordinates not in ("align_corners", "half_pixel_symmetric")
    rounding = 0.0 if exact else 1e-3
    return math.ceil(apart + rounding) + integers([table.taps])[0] <= vectors * lanes


def _resize_planes(planner: Planner, group: Group, computation: c.Resize, x: StridedTensor, vectors: int) -> None:
    if not in_planes(x):
        x = planner.copy(x, tuple(range(4)), "grows much, and is bound for planes of pixels")
    y = planner.place(group.output)
    rows, columns = (_Table.of(computation, x, axis) for axis in (2, 3))
    windows = columns.windows(planner, vectors)
    spec = ResizePlanesSpec(integers([rows.taps])[0], vectors, 2 if not_negative(2 * y.shape[2] - x.shape[2]) else 1)
    sizes = ResizePlanesSizes(**planes_to_planes(x, y))
    buffers = ResizePlanesBuffers(
        x=x,
        **by_name("rows row_weights", rows.constants(planner)),
        **by_name("starts columns column_weights", windows),
        y=y,
    )
    call = KernelCall(spec, buffers, sizes)
    call.label = f"resize {computation.mode} in planes"
    call.reason = rows.reason
    planner.epilogue(group, call, plane_strides, (0, 1, 2, 3))
    planner.call(call)


@dataclass(frozen=True)
class _Table:
    """The table of an axis: what makes it, and of which sizes."""

    maker: ResamplingTable
    sizes: tuple[DimLike, ...]

    @classmethod
    def of(cls, computation: c.Resize, x: StridedTensor, axis: int) -> _Table:
        """That of an axis of `x`, of as many taps as the mode has without antialias at least."""
        length, output = x.shape[axis], computation.shape[axis]
        maker = ResamplingTable(
            computation.mode,
            computation.coordinates,
            computation.nearest,
            computation.cubic_coefficient,
            computation.exclude_outside,
            computation.antialias,
            computation.roi[axis] if computation.roi is not None else None,
            scale := computation.scales[axis],
            computation.policy if scale is None else "",
        )
        pairs = computation.aspect if maker.policy else ()
        taps: DimLike = _TAPS[computation.mode]
        if computation.antialias:
            taps = _antialias_taps(maker, length, output, pairs)
        return cls(maker, (length, output, taps, *(size for pair in pairs for size in pair)))

    @property
    def length(self) -> DimLike:
        return self.sizes[0]

    @property
    def output(self) -> DimLike:
        return self.sizes[1]

    @property
    def taps(self) -> DimLike:
        return self.sizes[2]

    @property
    def extrapolates(self) -> bool:
        """Whether outputs may lie outside the input."""
        return self.maker.coordinates == "tf_crop_and_resize"

    @property
    def reason(self) -> str:
        """When the table is made."""
        when = "the plan" if known(self.sizes) else "a program"
        return f"tables of positions and weights made with {when}"

    def constants(self, planner: Planner) -> list[StridedTensor]:
        """Positions and weights."""
        shape = (self.output, self.taps)
        kinds = (DType.INT32, DType.FLOAT)
        return [planner.computed(self.maker, part, self.sizes, shape, kind) for part, kind in enumerate(kinds)]

    def windows(self, planner: Planner, vectors: int) -> list[StridedTensor]:
        """Starts, columns and weights of windows."""
        lanes = planner.target.lanes(4)
        windows = WindowTable(**vars(self.maker), lanes=lanes, vectors=vectors)
        count = ceil_divide(self.output, lanes)
        kinds = (
            (DType.INT32, (count,)),
            (DType.INT32, (self.taps, count * lanes)),
            (DType.FLOAT, (self.taps, count * lanes)),
        )
        return [planner.computed(windows, part, self.sizes, shape, kind) for part, (kind, shape) in enumerate(kinds)]


def _antialias_taps(
    maker: ResamplingTable, length: DimLike, output: DimLike, pairs: Sequence[tuple[DimLike, DimLike]]
) -> DimLike:
    """How many elements an antialiased output is made of at most."""
    if maker.scale is not None:
        fraction = maker.scale.as_integer_ratio()
        return antialias_taps(maker.mode, fraction[1], fraction[0])
    if not maker.policy:
        return antialias_taps(maker.mode, length, output)
    choose = maximum if maker.policy == "not_larger" else minimum
    return functools.reduce(choose, [antialias_taps(maker.mode, size, wanted) for wanted, size in pairs])


def _resize_image(planner: Planner, group: Group, computation: c.Resize, x: StridedTensor) -> None:
    y = planner.place(group.output, channels_last_order(4), strict=True)
    rows, columns = (_Table.of(computation, x, axis) for axis in (2, 3))
    outside = computation.extrapolation if rows.extrapolates else None
    few = max(taps if isinstance(taps, int) else 3 for taps in (rows.taps, columns.taps))
    spec = choose_resize(computation.mode, few, few, x.dtype.itemsize, outside)
    sizes = ResizeSizes(
        images=x.shape[0],
        channels=x.shape[1],
        **by_name("height width", x.shape[2:]),
        **by_name("out_height out_width", y.shape[2:]),
        row_taps=rows.taps,
        column_taps=columns.taps,
        **by_name("x_image x_row x_pixel", (x.strides[0], *x.strides[2:])),
        **by_name("y_image y_row y_pixel", (y.strides[0], *y.strides[2:])),
    )
    buffers = ResizeBuffers(
        x=x,
        **by_name("rows row_weights", rows.constants(planner)),
        **by_name("columns column_weights", columns.constants(planner)),
        y=y,
    )
    call = KernelCall(spec, buffers, sizes, label=f"resize {computation.mode}")
    call.reason = rows.reason
    planner.epilogue(group, call, pixel_strides)
    planner.call(call)


def _resize_axis(
    planner: Planner, computation: c.Resize, source: StridedTensor, x: StridedTensor, axis: int
) -> StridedTensor:
    """A dense tensor with one axis resampled."""
    table = _Table.of(computation, source, axis)
    shape = [*x.shape[:axis], table.output, *x.shape[axis + 1 :]]
    y = planner.temporary(shape, x.dtype)
    inner = product(shape[axis + 1 :])
    sizes = ResizeAxisSizes(
        outer=product(shape[:axis]),
        outputs=table.output,
        inner=inner,
        taps=table.taps,
        x_outer=table.length * inner,
        x_step=inner,
        y_outer=table.output * inner,
        y_step=inner,
    )
    buffers = ResizeAxisBuffers(x=x, **by_name("positions weights", table.constants(planner)), y=y)
    spec = ResizeAxisSpec(computation.extrapolation if table.extrapolates else None)
    call = KernelCall(spec, buffers, sizes, label=f"resize axis {axis}")
    call.reason = computation.mode
    planner.call(call)
    return y
