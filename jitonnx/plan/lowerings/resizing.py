"""Resizing: two spatial axes of an image in one kernel, channels-last or in planes; other axes one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from jitonnx.ir import computation as c
from jitonnx.ir.dims import DimLike, concrete, integers, known, product
from jitonnx.ir.dtypes import DType
from jitonnx.ir.lowering import Statement
from jitonnx.ir.resampling import axis_table
from jitonnx.kernels.resize.spec import (
    OUTSIDE,
    REPEATS,
    RepeatPlanesSpec,
    ResizeAxisSpec,
    ResizePlanesSpec,
    Table,
    Windows,
    pack_table,
    pack_windows,
)
from jitonnx.kernels.resize.spec import choose as choose_resize
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group
from jitonnx.plan.tensor import (
    Tensor,
    channels_last_order,
    in_planes,
    pixel_strides,
    plane_strides,
)

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


def resize(planner: Planner, group: Group, statement: Statement) -> None:
    """Resize: both spatial axes of an image in one kernel, other axes one after the other."""
    computation = statement.computation
    assert isinstance(computation, c.Resize) and statement.inputs[0] is not None and group.output is not None
    source, shape = planner.tensor(statement.inputs[0]), computation.shape
    changing = _resampled_axes(computation, source.shape)
    planner.need_concrete([source.shape[axis] for axis in changing] + [shape[axis] for axis in changing])
    if source.dtype is not DType.FLOAT and computation.mode != "nearest":
        planner.unplannable(f"resampling of {source.dtype.text}")
    if _is_image_resize(computation, source.shape):
        if (factors := _repeats(planner, group, computation, source)) is not None:
            _repeat_pixels(planner, group, source, *factors)
            return
        if found := _plane_windows(planner, group, computation, source):
            _resize_planes(planner, group, computation, source, *found)
            return
        _resize_image(planner, group, computation, planner.channels_last(statement.inputs[0]))
        return
    assert group.expr is None, "Bug: resampling axis by axis has no epilogue"
    if source.dtype is not DType.FLOAT:
        planner.unplannable(f"resampling of axes {changing} of {source.dtype.text}")
    tensor = planner.dense(statement.inputs[0])
    lengths, outputs = (integers([dims[axis] for axis in changing]) for dims in (source.shape, shape))
    growth = {axis: output / max(length, 1) for axis, length, output in zip(changing, lengths, outputs, strict=True)}
    for axis in sorted(changing, key=lambda axis: growth[axis]):  # the one that shrinks most first
        tensor = _resize_axis(planner, computation, source, tensor, axis)
    out = planner.place(statement.outputs[0])
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
    scales, roi = computation.scales or (1.0,) * rank, computation.roi or ((0.0, 1.0),) * rank
    return [
        axis
        for axis in range(rank)
        if shape[axis] != computation.shape[axis] or scales[axis] != 1.0 or roi[axis] != (0.0, 1.0)
    ]


def _repeats(planner: Planner, group: Group, computation: c.Resize, x: Tensor) -> tuple[int, int] | None:
    """(rows, columns) that each pixel becomes, if planes of pixels become larger ones by mere repetition."""
    assert group.output is not None
    target = planner.destination(group.output)
    if computation.mode != "nearest" or group.expr is not None or target is None or not target.contiguous:
        return None
    if not known([*x.shape[2:], *target.shape[2:]]):
        return None
    factors = []
    for axis in (2, 3):
        length, output = integers([x.shape[axis], target.shape[axis]])
        factor, rest = divmod(output, max(length, 1))
        table = _packed_table(planner, computation, x, axis, 1)
        if rest or not factor or not np.array_equal(table.positions[:, 0], np.arange(output) // factor):
            return None
        factors.append(factor)
    return (factors[0], factors[1]) if in_planes(x) and max(factors) > 1 and factors[1] in REPEATS else None


def _repeat_pixels(planner: Planner, group: Group, x: Tensor, down: int, across: int) -> None:
    assert group.output is not None
    y = planner.place(group.output)
    sizes = [*x.shape, down, *x.strides[:3]]
    call = KernelCall(RepeatPlanesSpec(x.dtype.itemsize, across), [x, y], sizes, 1, 1, label="resize nearest")
    call.reason = f"each pixel {down} x {across} times"
    planner.call(call)


_TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
"""Of each mode, without antialias."""
_GROWTH_FOR_PLANES = 4
"""An image that grows so much is better copied to planes first than copied when it is large."""


def _plane_windows(planner: Planner, group: Group, computation: c.Resize, source: Tensor) -> tuple[Windows, int] | None:
    """The windows of its columns, and their vectors, if an image is to be resized in planes of pixels."""
    assert group.output is not None
    target = planner.destination(group.output)
    if computation.antialias or computation.roi is not None:
        return None
    if computation.mode == "cubic" and set(_resampled_axes(computation, source.shape)) != {2, 3}:
        return None  # taps of weight 0, for an axis that stays, would make NaN of infinity
    if source.dtype is not DType.FLOAT or target is None or not in_planes(target):
        return None
    before, behind = (concrete(product(image.shape[2:])) for image in (source, target))
    if before is None or behind is None or (not in_planes(source) and behind < _GROWTH_FOR_PLANES * before):
        return None
    table, width = (
        _packed_table(planner, computation, source, 3, _TAPS[computation.mode]),
        integers(source.shape[3:])[0],
    )
    for vectors in (1, 2):  # as few as can be
        if (windows := pack_windows(table, width, planner.target.lanes(4), vectors)) is not None:
            return windows, vectors
    return None


def _resize_planes(
    planner: Planner, group: Group, computation: c.Resize, x: Tensor, windows: Windows, vectors: int
) -> None:
    assert group.output is not None
    if not in_planes(x):
        x = planner.copy(x, tuple(range(4)), "grows much, and is bound for planes of pixels")
    y = planner.place(group.output)
    rows, taps, _ = _table(planner, computation, x, 2, _TAPS[computation.mode])
    columns = [planner.constant(array) for array in windows]
    height, out_height = integers([x.shape[2], y.shape[2]])
    spec = ResizePlanesSpec(taps, vectors, 2 if height <= 2 * out_height else 1)
    sizes = [*x.shape, *y.shape[2:], *x.strides[:3], *y.strides[:3]]
    call = KernelCall(spec, [x, *rows, *columns, y], sizes, 1, 6)
    call.label = f"resize {computation.mode} in planes"
    call.reason = "tables of positions and weights made with the plan"
    planner.epilogue(group, call, plane_strides, (0, 1, 2, 3))
    planner.call(call)


def _table(
    planner: Planner, computation: c.Resize, source: Tensor, axis: int, taps: int
) -> tuple[list[Tensor], int, bool]:
    """The table of an axis as constants (positions, weights), its taps, and whether some outputs lie outside."""
    packed = _packed_table(planner, computation, source, axis, taps)
    constants = [planner.constant(packed.positions), planner.constant(packed.weights)]
    outside = packed.positions.size > 0 and packed.positions[:, 0].min() == OUTSIDE
    return constants, packed.positions.shape[1], bool(outside)


def _packed_table(planner: Planner, computation: c.Resize, source: Tensor, axis: int, taps: int) -> Table:
    """The table of an axis, filled up to `taps` taps."""
    length, output = source.shape[axis], computation.shape[axis]
    planner.need_concrete([length, output])
    assert isinstance(length, int) and isinstance(output, int)
    table = axis_table(
        length,
        output,
        computation.scales[axis] if computation.scales is not None else output / max(length, 1),
        computation.roi[axis] if computation.roi is not None else None,
        mode=computation.mode,
        coordinates=computation.coordinates,
        nearest=computation.nearest,
        cubic_coefficient=computation.cubic_coefficient,
        exclude_outside=computation.exclude_outside,
        antialias=computation.antialias,
    )
    return pack_table(table.indices, table.weights, table.outside, max(taps, table.indices.shape[1]))


def _resize_image(planner: Planner, group: Group, computation: c.Resize, x: Tensor) -> None:
    assert group.output is not None
    y = planner.place(group.output, channels_last_order(4), strict=True)
    taps = 2 if computation.mode == "linear" else 1
    rows, row_taps, rows_outside = _table(planner, computation, x, 2, taps)
    columns, column_taps, columns_outside = _table(planner, computation, x, 3, taps)
    outside = computation.extrapolation if rows_outside or columns_outside else None
    spec = choose_resize(computation.mode, row_taps, column_taps, x.dtype.itemsize, outside)
    sizes = [x.shape[0], x.shape[3], x.shape[1], *y.shape[2:], row_taps, column_taps]
    sizes += [x.strides[0], *x.strides[2:], y.strides[0], *y.strides[2:]]
    call = KernelCall(spec, [x, *rows, *columns, y], list(sizes), 1, 5, label=f"resize {computation.mode}")
    call.reason = "tables of positions and weights made with the plan"
    planner.epilogue(group, call, pixel_strides)
    planner.call(call)


def _resize_axis(planner: Planner, computation: c.Resize, source: Tensor, x: Tensor, axis: int) -> Tensor:
    """A dense tensor with one axis resampled."""
    table, taps, outside = _table(planner, computation, source, axis, 1)
    shape = [*x.shape[:axis], computation.shape[axis], *x.shape[axis + 1 :]]
    y = planner.temporary(shape, x.dtype)
    inner = product(shape[axis + 1 :])
    sizes = [product(shape[:axis]), shape[axis], inner, taps, x.shape[axis] * inner, inner, shape[axis] * inner, inner]
    spec = ResizeAxisSpec(computation.extrapolation if outside else None)
    planner.call(KernelCall(spec, [x, *table, y], sizes, 1, 3, label=f"resize axis {axis}", reason=computation.mode))
    return y
