"""Products and convolutions in bfloat16 with constant weights: one kernel, whose rows are pixels or rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from jitonnx.ir.computation import computations as c
from jitonnx.ir.dims import DimLike, concrete, integers
from jitonnx.ir.dims import product as joined
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.kernels.bfloat16.spec import STEP, Bfloat16Buffers, choose
from jitonnx.kernels.parts.amx_products import RowsWay
from jitonnx.kernels.parts.layouts import WindowProduct
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group
from jitonnx.plan.selection.amx_rows import rows_together, way_of_rows, way_of_windows
from jitonnx.plan.selection.windows import (
    add_bias,
    evenly_spaced,
    place_rows,
    row_strides,
    rows_as_windows,
    window_sizes,
)
from jitonnx.plan.tensor import StridedTensor, apart, channels_last_order, in_planes, pair
from jitonnx.support.records import NamedTuple
from jitonnx.target.products import BFLOAT16

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


def matmul(planner: Planner, group: Group, computation: c.Bfloat16WeightMatMul, left: Value, right: Value) -> None:
    """a @ b: the rows of all leading axes of a are rows of one product."""
    order = tuple(range(len(group.output.shape)))
    y, _ = place_rows(planner, group.output, order, order[:-1])
    product(planner, group, planner.unit_inner(left), planner.tensor(right), y)


def product(planner: Planner, group: Group, a: StridedTensor, weights: StridedTensor, y: StridedTensor) -> None:
    """The call y = epilogue(a @ weights), for a whose last axis is innermost, and y whose rows are evenly spaced."""
    a, a_row = evenly_spaced(planner, a)
    out_rows = tuple(range(y.rank - 1))
    m, k, n = joined(a.shape[:-1]), a.shape[-1], y.shape[-1]
    columns = replace(weights, shape=(weights.shape[-1], 1, k), strides=(weights.strides[-1], 0, weights.strides[-2]))
    way, given = way_of_rows(a, a_row, STEP, as_taken=a.dtype is DType.BFLOAT16), rows_as_windows(m, n, k, a_row)
    _call(planner, group, _Product(a, columns, y, out_rows, way, concrete(m), given, f"product {m}x{n}x{k}"))


def convolution(
    planner: Planner,
    group: Group,
    computation: c.Bfloat16Convolution,
    image: Value,
    kernel: Value,
    bias: Value | None = None,
) -> None:
    """A convolution of an image of one or two axes: rows are output pixels."""
    x, weights = planner.tensor(image), planner.tensor(kernel)
    rank = x.rank
    pixels = (0, *range(2, rank))
    y, _ = place_rows(planner, group.output, channels_last_order(rank), pixels)
    if bias is not None:
        add_bias(planner, group, bias, rank)
    taps, strides, dilations = (
        pair(integers(values)) for values in (weights.shape[2:], computation.strides, computation.dilations)
    )
    planes = _planes(planner, x, taps, dilations)
    if not planes:
        x = planner.channels_last(image)
    given = window_sizes(x, y, taps, computation)
    if planes:
        given["x_pixel"] = x.strides[1]
    nothing_padded = not any((*computation.pads_before, *computation.pads_after))
    as_they_lie = taps == (1, 1) and strides == (1, 1) and nothing_padded
    x_row = apart(x, pixels) if as_they_lie else None
    if x_row is not None:
        given["x_pixel"] = x_row
        rows = replace(x, shape=(*x.shape[:1], *x.shape[2:], x.shape[1]))
        way = way_of_rows(rows, x_row, STEP, as_taken=x.dtype is DType.BFLOAT16)
    else:
        way = way_of_windows(x.shape[1], given["out_width"], taps, strides, dilations, STEP)
        if way == "padded" and planner.target.bfloat16_products == "dots":
            way = "gathered"
    columns, channels, *_ = weights.shape
    spatial = tuple(range(2, rank))
    by_tap = replace(
        weights,
        shape=(columns, *(weights.shape[axis] for axis in spatial), channels),
        strides=(weights.strides[0], *(weights.strides[axis] for axis in spatial), weights.strides[1]),
    )
    label = f"convolution {'x'.join(map(str, weights.shape[2:]))} {x.shape[1]}->{y.shape[1]}"
    together = rows_together([y.shape[axis] for axis in pixels], way, taps, dilations)
    _call(planner, group, _Product(x, by_tap, y, pixels, way, together, given, label, planes))


def _planes(planner: Planner, x: StridedTensor, taps: Sequence[int], dilations: Sequence[int]) -> int:
    """How many planes an image of few channels lies in, if the kernel takes the taps of pixels out of these; else 0."""
    if planner.target.bfloat16_products == "matrices" or x.rank != 4 or x.dtype is not DType.FLOAT or not in_planes(x):
        return 0
    channels = concrete(x.shape[1])
    if channels is None or not 1 < channels <= _FEW_PLANES:
        return 0
    return channels if way_of_windows(channels, 1, taps, (1, 1), dilations, STEP) == "im2col" else 0


_FEW_PLANES = 4
"""Planes whose pixels are put side by side as they are rounded, by some shuffles; of more, a copy is made."""


class _Product(NamedTuple):
    """Rows of x times constant weights."""

    x: StridedTensor
    weights: StridedTensor
    """[outputs, taps..., channels]."""
    y: StridedTensor
    rows: Sequence[int]
    """The axes of y that are rows of the product."""
    way: RowsWay
    together: int | None
    """How many rows are multiplied with all columns at once."""
    given: dict[str, DimLike]
    """Fields of `WindowProduct`, but for how far rows of y are apart."""
    label: str
    planes: int = 0
    """The distance of x's planes, if it is not channels-last."""


def _call(planner: Planner, group: Group, product: _Product) -> None:
    """The kernel's call."""
    x, weights, y, rows, way, together, given, label, planes = product
    columns, *deep = integers(weights.shape)
    channels = deep[-1]
    products = planner.target.bfloat16_products
    assert products, "Bug: bfloat16 on a CPU without products of it"
    spec = choose(
        products,
        way,
        columns,
        (math.prod(deep[:-2]), *deep[-2:]),
        together,
        "bfloat16" if x.dtype is DType.BFLOAT16 else "float32",
        "bfloat16" if y.dtype is DType.BFLOAT16 else "float32",
    )
    spec = replace(spec, planes=planes)
    packed = planner.packed(weights, lambda w: spec.pack(w.reshape(columns, -1, channels)), spec.packing)
    y_row = apart(y, rows)
    assert y_row is not None, "Bug: the rows of a dense result are not evenly spaced"
    sizes = WindowProduct(**given, y_pixel=y_row)
    call = KernelCall(spec, Bfloat16Buffers(x=x, w=packed, y=y), sizes, label=f"bfloat16 {label}")
    call.reason = "; ".join([f"operands rounded to bfloat16, {BFLOAT16[products].text}, x {way}", *group.reasons])
    planner.epilogue(group, call, row_strides(rows))
    planner.call(call)
