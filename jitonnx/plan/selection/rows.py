"""Computations along rows: softmax, normalisations, reductions."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from jitonnx.emit.arguments import by_name
from jitonnx.ir.computation import computations as c
from jitonnx.ir.dims import DimLike, concrete, product
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.kernels.normalization.spec import (
    BLOCKS,
    GroupApplyBuffers,
    GroupApplySizes,
    GroupApplySpec,
    GroupNormSizes,
    GroupNormSpec,
    GroupStatisticsBuffers,
    GroupStatisticsSizes,
    GroupStatisticsSpec,
    LayerNormBuffers,
    LayerNormSizes,
    NormalizationBuffers,
    choose_rows,
    float_bits,
)
from jitonnx.kernels.parts.layouts import KeptAxis, UnaryBuffers
from jitonnx.kernels.reduction.spec import BYTES, ELEMENTS, ReductionSizes
from jitonnx.kernels.reduction.spec import choose as choose_reduction
from jitonnx.kernels.softmax.spec import choose as choose_softmax
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group
from jitonnx.plan.region import memory_order
from jitonnx.plan.tensor import (
    StridedTensor,
    broadcast_to,
    channels_last_order,
    in_order,
    is_channels_last,
    pixel_strides,
    pixels_as_rows,
    plane_strides,
    reshape_strides,
    same_strides,
)
from jitonnx.support.records import NamedTuple
from jitonnx.target import tuning

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


class Loops(NamedTuple):
    """A tensor as outer x length x inner elements: what lies outside of some axes in memory, they, what is inside."""

    outer: DimLike
    length: DimLike
    inner: DimLike
    strides: tuple[tuple[DimLike, DimLike, DimLike], ...]
    """Each tensor has them by outer, along the axes, by inner."""

    def sizes(self) -> KeptAxis:
        """What kernels are given that make a tensor of another, these two, along the axes."""
        of_x, of_y = self.strides
        return KeptAxis(
            **by_name("outer length inner", self[:3]),
            **by_name("x_outer x_step", of_x[:2]),
            **by_name("y_outer y_step", of_y[:2]),
        )


def three_loops(axes: Sequence[int], *tensors: StridedTensor) -> Loops | None:
    """Tensors of one shape as three nested loops, `axes` the middle one; None if their memory does not allow it.

    The order is the first tensor's in memory. The innermost loop that is not trivial has stride 1 in all of them.
    """
    groups = _nest(axes, tensors[0])
    if groups is None:
        return None
    extents = [product(tensors[0].shape[axis] for axis in group) for group in groups]
    strides = []
    for tensor in tensors:
        merged = [_merge(tensor, group) for group in groups]
        if None in merged:
            return None
        strides.append((merged[0], merged[1], merged[2]))
    if any((inside if groups[2] else along) != 1 for _, along, inside in strides):
        return None
    return Loops(extents[0], extents[1], extents[2], tuple(strides))  # type: ignore[arg-type]


_Nest = tuple[list[int], list[int], list[int]]


def _nest(axes: Sequence[int], tensor: StridedTensor) -> _Nest | None:
    """The axes of an outer loop, `axes`, and the axes of an inner loop; None if memory does not allow it.

    Outer is what lies outside of `axes` in memory, inner what lies inside. Where that makes no three loops, all that is
    not innermost is the outer loop, if the inner one is then long enough to be done in vectors: a maximum over the
    first axis of every other row of a matrix.
    """
    order = [axis for axis in memory_order(tensor) if tensor.shape[axis] != 1]
    middle = [axis for axis in order if axis in axes]
    if not middle:
        return order, [], []
    before, behind = order.index(middle[0]), order.index(middle[-1]) + 1
    nests = [(order[:before], middle, order[behind:])] if behind - before == len(middle) else []
    inside = next((order[i:] for i in range(behind, len(order)) if _merge(tensor, order[i:]) == 1), [])
    if (concrete(product(tensor.shape[axis] for axis in inside)) or 0) >= tuning.INNER_ELEMENTS:
        nests.append(([axis for axis in order if axis not in (*middle, *inside)], middle, inside))
    return next((nest for nest in nests if all(_merge(tensor, group) is not None for group in nest)), None)


def _merge(tensor: StridedTensor, axes: Sequence[int]) -> DimLike | None:
    """The stride of some axes walked as one; None if there is none."""
    shape = [tensor.shape[axis] for axis in axes]
    merged = reshape_strides(shape, [tensor.strides[axis] for axis in axes], (product(shape),))
    return None if merged is None else merged[0]


def in_three_loops(
    planner: Planner, source: Value, result: Value, axis: int
) -> tuple[StridedTensor, StridedTensor, Loops]:
    """The operand and a place for a result of its shape, both as loops outside, along and inside of `axis`."""
    x = planner.tensor(source)
    if three_loops([axis], x) is None:
        x = planner.copy(x, tuple(range(x.rank)), "needed as rows")
    y, loops = planner.place_as(result, memory_order(x), lambda y: three_loops([axis], x, y))
    return x, y, loops


def _check_float(planner: Planner, value: Value) -> None:
    if value.dtype not in (DType.FLOAT, DType.DOUBLE):
        # ONNX defines these for floats alone, and half precision is widened.
        planner.unplannable(f"its kernel does not take {value.dtype.text}")


def softmax(planner: Planner, group: Group, computation: c.Softmax, source: Value) -> None:
    """Softmax or LogSoftmax along one axis."""
    _check_float(planner, source)
    x, y, loops = in_three_loops(planner, source, group.output, computation.axis)
    kind = "log_softmax" if computation.log else "softmax"
    extents = concrete(loops.outer), concrete(loops.length), concrete(loops.inner)
    spec = choose_softmax(*extents, kind, x.dtype.numpy.name, _result(x, y))
    reason = "; ".join(group.reasons)
    call = KernelCall(spec, UnaryBuffers(x=x, y=y), loops.sizes(), label=spec.kind, reason=reason)
    nest = _nest([computation.axis], x)
    assert nest is not None
    planner.epilogue(
        group, call, functools.partial(_row_strides if spec.last else _nest_strides, nest), memory_order(x)
    )
    planner.call(call)


def normalize(
    planner: Planner,
    group: Group,
    computation: c.Normalize,
    image: Value,
    scale: Value | None = None,
    bias: Value | None = None,
) -> None:
    """LayerNormalization or RMSNormalization: rows of all axes from one on."""
    _check_float(planner, image)
    x = planner.tensor(image)
    axes = range(computation.axis, x.rank)
    x, y, loops = _as_rows(planner, x, group.output, axes)
    order = [axis - computation.axis for axis in memory_order(x) if axis in axes]
    vectors = [
        None if value is None else _row_vector(planner, value, x.shape[computation.axis :], order)
        for value in (scale, bias)
    ]
    scaled, shifted = (vector is not None for vector in vectors)
    rows, columns = concrete(loops.outer), concrete(loops.length)
    spec = choose_rows(
        computation.kind,
        scale=scaled,
        bias=shifted,
        element=x.dtype.numpy.name,
        rows=rows,
        columns=columns,
        result=_result(x, y),
    )
    (x_row, _, _), (y_row, _, _) = loops.strides
    sizes = LayerNormSizes(
        rows=loops.outer,
        columns=loops.length,
        x_row=x_row,
        y_row=y_row,
        kept_row=0,
        epsilon_bits=float_bits(computation.epsilon),
    )
    buffers = LayerNormBuffers(x=x, scale=vectors[0] or y, bias=vectors[1] or y, y=y, kept=y)
    call = KernelCall(spec, buffers, sizes, label=f"{spec.kind} norm", reason="; ".join(group.reasons))
    nest = _nest(axes, x)
    assert nest is not None
    planner.epilogue(group, call, functools.partial(_row_strides, nest), memory_order(x))
    planner.call(call)


def _row_strides(nest: _Nest, tensor: StridedTensor) -> tuple[DimLike, DimLike, DimLike] | None:
    """A tensor's strides by (0, row, column) of a kernel over rows; None if rows or columns are not evenly spaced."""
    row, column = _merge(tensor, nest[0]), _merge(tensor, nest[1])
    return None if row is None or column is None else (0, row, column)


def _nest_strides(nest: _Nest, tensor: StridedTensor) -> tuple[DimLike, DimLike, DimLike] | None:
    """A tensor's strides by the three loops of a kernel; None if one of them is not evenly spaced."""
    outer, along, inside = (_merge(tensor, axes) for axes in nest)
    return None if outer is None or along is None or inside is None else (outer, along, inside)


def _result(x: StridedTensor, y: StridedTensor) -> str:
    """The element type of a result where it is another than the operand's."""
    return "" if x.dtype is y.dtype else y.dtype.numpy.name


def _as_rows(
    planner: Planner, x: StridedTensor, value: Value, axes: Sequence[int]
) -> tuple[StridedTensor, StridedTensor, Loops]:
    """x and a place for the result, both as rows of `axes`; x is copied if it lies otherwise."""

    def rows(*tensors: StridedTensor) -> Loops | None:
        loops = three_loops(axes, *tensors)
        return None if loops is None or loops.inner != 1 else loops

    if rows(x) is None:
        x = planner.copy(x, tuple(range(x.rank)), "needed as rows")
    y, loops = planner.place_as(value, memory_order(x), lambda y: rows(x, y))
    return x, y, loops


def _row_vector(planner: Planner, value: Value, shape: Sequence[DimLike], order: Sequence[int]) -> StridedTensor:
    """A scale or bias as one dense vector of a row's elements, whose axes lie in memory in this order."""
    tensor = broadcast_to(planner.tensor(value), shape)
    if same_strides(tensor, in_order(shape, order)):
        return tensor
    if tensor.constant is not None:
        back = np.argsort(order)
        return planner.packed(tensor, lambda array: array.transpose(order).copy().transpose(back), tuple(order))
    return planner.copy(tensor, order, "needed dense, in the order of the rows")


def group_normalize(
    planner: Planner, group: Group, computation: c.GroupNormalize, image: Value, scale: Value | None, bias: Value | None
) -> None:
    """InstanceNormalization, GroupNormalization, and MeanVarianceNormalization of images by themselves."""
    _check_float(planner, image)
    x = planner.tensor(image)
    scales = [None if value is None else _row_vector(planner, value, value.shape, [0]) for value in (scale, bias)]
    matrix = pixels_as_rows(x) if is_channels_last(x) else None
    if matrix is None and x.contiguous:
        y = planner.place(group.output, tuple(range(x.rank)))
        if y.contiguous:
            _group_normalize_planes(planner, group, computation, scales, x, y)
            return
    if matrix is None:
        x = planner.copy(x, channels_last_order(x.rank), "needed channels-last, pixels evenly spaced")
    _group_normalize_channels_last(planner, group, computation, x, scales)


def _group_normalize_planes(
    planner: Planner,
    group: Group,
    computation: c.GroupNormalize,
    scales: Sequence[StridedTensor | None],
    x: StridedTensor,
    y: StridedTensor,
) -> None:
    """One call for x, scale, bias and y; x and y are contiguous."""
    sizes = GroupNormSizes(
        images=x.shape[0],
        channels=x.shape[1],
        positions=product(x.shape[2:]),
        groups=computation.groups or x.shape[1],
        **by_name("x_image x_channel", x.strides[:2]),
        **by_name("y_image y_channel", y.strides[:2]),
        epsilon_bits=float_bits(computation.epsilon),
    )
    scaled, shifted = (s is not None for s in scales)
    spec = GroupNormSpec(scaled, shifted, x.dtype.numpy.name, computation.outside)
    buffers = NormalizationBuffers(x=x, **by_name("scale bias", [s or y for s in scales]), y=y)
    call = KernelCall(spec, buffers, sizes, label="group norm", reason="channels first")
    planner.epilogue(group, call, plane_strides, tuple(range(x.rank)))
    planner.call(call)


def _group_normalize_channels_last(
    planner: Planner,
    group: Group,
    computation: c.GroupNormalize,
    x: StridedTensor,
    scales: Sequence[StridedTensor | None],
) -> None:
    """The channels' statistics, then the normalised image."""
    matrix = pixels_as_rows(x)
    y, out = planner.place_as(group.output, channels_last_order(x.rank), pixels_as_rows, strict=True)
    assert matrix is not None, "Bug: dense channels-last pixels are not evenly spaced"
    images, pixels, channels = matrix.shape
    element = x.dtype.numpy.name
    partial = planner.temporary((images, BLOCKS, 2, channels), x.dtype)
    read = by_name("images pixels channels x_image x_pixel", (images, pixels, channels, *matrix.strides[:2]))
    buffers = GroupStatisticsBuffers(x=x, partial=partial)
    first = KernelCall(GroupStatisticsSpec(element), buffers, GroupStatisticsSizes(**read), label="group statistics")
    first.reason = "; ".join(group.reasons)
    planner.call(first)
    sizes = GroupApplySizes(
        **read,
        groups=computation.groups or channels,
        **by_name("y_image y_pixel", out.strides[:2]),
        epsilon_bits=float_bits(computation.epsilon),
    )
    scaled, shifted = (s is not None for s in scales)
    apply = GroupApplySpec(scaled, shifted, element, computation.outside)
    given = GroupApplyBuffers(x=x, partial=partial, **by_name("scale bias", [s or y for s in scales]), y=y)
    call = KernelCall(apply, given, sizes, label="group norm", reason="channels last")
    planner.epilogue(group, call, pixel_strides)
    planner.call(call)


def reduce(planner: Planner, group: Group, computation: c.Reduce, source: Value) -> None:
    """ReduceSum and its like, over any axes."""
    _reduce(planner, group, source, computation.kind, computation.axes, keepdims=computation.keepdims, last=False)


def arg_reduce(planner: Planner, group: Group, computation: c.ArgReduce, source: Value) -> None:
    """ArgMax and ArgMin."""
    kind, axes = f"arg_{computation.kind}", (computation.axis,)
    _reduce(planner, group, source, kind, axes, keepdims=computation.keepdims, last=computation.last)


def _reduce(
    planner: Planner,
    group: Group,
    source: Value,
    kind: str,
    axes: Sequence[int],
    *,
    keepdims: bool,
    last: bool,
) -> None:
    x = planner.tensor(source)
    if x.dtype.numpy.name not in (*ELEMENTS, *BYTES):
        # The operators widen other types to these.
        planner.unplannable(f"no reduction of {x.dtype.text}")
    loops = three_loops(axes, x)
    if loops is None:
        x = planner.copy(x, [*(a for a in range(x.rank) if a not in axes), *axes], "reduced axes needed innermost")
        loops = three_loops(axes, x)
    assert loops is not None, "Bug: a dense tensor is not three loops"
    kept = [axis for axis in memory_order(x) if keepdims or axis not in axes]
    order = [sorted(kept).index(axis) for axis in kept]
    y, y_outer = planner.place_as(group.output, order, lambda y: _outer_stride(x, y, axes, keepdims=keepdims))
    outer, length, inner = loops[:3]
    x_outer, x_step, _ = loops.strides[0]
    known = {"outer": concrete(outer), "length": concrete(length), "x_outer": concrete(x_outer)}
    specs = choose_reduction(kind, concrete(inner), x.dtype.numpy.name, select_last_index=last, **known)
    if specs[0].stored and not specs[0].is_index:
        specs = [replace(spec, element=group.output.dtype.numpy.name) for spec in specs]
    *first, spec = specs
    strides, rest = (x_outer, x_step), length
    for of_parts in first:
        parts = of_parts.parts
        partial = planner.temporary((outer, parts, inner), group.output.dtype)
        sizes = ReductionSizes(
            outer=outer,
            length=length,
            inner=inner,
            **by_name("x_outer x_step", strides),
            y_outer=parts * inner,
            count=length,
        )
        label, reason = f"reduce {of_parts.kind} of {parts} parts", "few long slices are shared by threads in parts"
        planner.call(KernelCall(of_parts, UnaryBuffers(x=x, y=partial), sizes, label=label, reason=reason))
        x, strides, rest = partial, (parts * inner, inner), parts
    sizes = ReductionSizes(
        outer=outer,
        length=rest,
        inner=inner,
        **by_name("x_outer x_step", strides),
        y_outer=y_outer,
        count=length,
    )
    label, reason = f"reduce {kind}", "; ".join(group.reasons)
    planner.call(KernelCall(spec, UnaryBuffers(x=x, y=y), sizes, label=label, reason=reason))


def _outer_stride(x: StridedTensor, y: StridedTensor, axes: Sequence[int], *, keepdims: bool) -> DimLike | None:
    """How far apart in y the results of neighbouring outer steps of x lie; None if no two loops write y."""
    nest = _nest(axes, x)
    assert nest is not None
    position = {axis: axis if keepdims else axis - sum(a < axis for a in axes) for axis in range(x.rank)}
    merged = []
    for loop in (nest[0], nest[2]):
        shape, strides = ([part[position[axis]] for axis in loop] for part in (y.shape, y.strides))
        merged.append(reshape_strides(shape, strides, (product(shape),)))
    if None in merged or (nest[2] and merged[1] != (1,)):
        return None
    return merged[0][0]  # type: ignore[index]
