"""Convolutions and products of 8-bit integers with constant weights: kernels whose rows are pixels or rows."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.dims import DimLike, concrete, integers
from jitonnx.ir.dims import product as joined
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.kernels.integer.spec import IntegerBuffers, IntegerSpec, beginnings, by_runs, choose, fits_byte_pairs
from jitonnx.kernels.integer_amx.spec import IntegerAmxSpec, choose_tiles
from jitonnx.kernels.integer_depthwise.spec import DepthwiseIntegerSpec, choose_depthwise
from jitonnx.kernels.parts.amx_products import RowsWay
from jitonnx.kernels.parts.layouts import LINE, WindowProduct
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group
from jitonnx.plan.selection.amx_rows import rows_together, way_of_rows, way_of_windows
from jitonnx.plan.selection.windows import evenly_spaced, place_rows, row_strides, rows_as_windows, window_sizes
from jitonnx.plan.tensor import StridedTensor, apart, channels_last_order, pair
from jitonnx.support.records import NamedTuple
from jitonnx.target import tuning
from jitonnx.target.products import INTEGERS

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


def matmul(
    planner: Planner,
    group: Group,
    computation: c.IntegerWeightMatMul,
    left: Value,
    right: Value,
    zero: Value | None = None,
) -> None:
    """(a - zero) @ b: the rows of all leading axes of a are rows of one product."""
    order = tuple(range(len(left.shape)))
    a, a_row = evenly_spaced(planner, planner.unit_inner(left))
    y, y_row = place_rows(planner, group.output, order, order[:-1])
    m, k, n = joined(a.shape[:-1]), a.shape[-1], y.shape[-1]
    given = rows_as_windows(m, n, k, a_row) | {"y_pixel": y_row}
    weights = planner.tensor(right)
    columns = replace(weights, shape=weights.shape[::-1], strides=weights.strides[::-1])
    way = way_of_rows(a, a_row, LINE, as_taken=True)
    product = _Product(a, zero, columns, y, order[:-1], given, f"product {m}x{n}x{k}")
    _call(planner, group, _chosen(planner, product, way, concrete(m)), product)


def convolution(
    planner: Planner,
    group: Group,
    computation: c.IntegerConvolution,
    image: Value,
    kernel: Value,
    zero: Value | None = None,
) -> None:
    """A convolution of an image: rows are output pixels, gathered unless they are the input's. A depthwise one has a
    kernel of its own."""
    x, weights, pixels = planner.channels_last(image), planner.tensor(kernel), (0, 2, 3)
    y, y_row = place_rows(planner, group.output, channels_last_order(4), pixels)
    given = window_sizes(x, y, weights.shape[2:], computation) | {"y_pixel": y_row}
    label = f"{'x'.join(map(str, weights.shape[2:]))} {x.shape[1]}->{y.shape[1]}"
    if computation.depthwise:
        depthwise = choose_depthwise(
            *(pair(integers(weights.shape[2:])), pair(computation.strides), pair(computation.dilations)),
            planner.target,
            signed=x.dtype is DType.INT8,
            shifted=is_shifted(zero),
            result=y.dtype.numpy.name,
        )
        _call(planner, group, depthwise, _Product(x, zero, weights, y, pixels, given, f"depthwise convolution {label}"))
        return
    taps, steps = integers(weights.shape[2:]), (computation.strides, computation.dilations)
    pads = (*computation.pads_before, *computation.pads_after)
    as_they_lie = weights.shape[2:] == (1, 1) and all(step == 1 for step in computation.strides) and not any(pads)
    x_row = apart(x, pixels) if as_they_lie else None
    if x_row is not None:
        given["x_pixel"] = x_row
        way = way_of_rows(replace(x, shape=(x.shape[0], *x.shape[2:], x.shape[1])), x_row, LINE, as_taken=True)
    else:
        way = way_of_windows(x.shape[1], y.shape[3], taps, *steps, LINE)
    by_tap = replace(
        weights,
        shape=tuple(weights.shape[axis] for axis in (0, 2, 3, 1)),
        strides=tuple(weights.strides[axis] for axis in (0, 2, 3, 1)),
    )
    together = rows_together([y.shape[axis] for axis in pixels], way, taps, computation.dilations)
    product = _Product(x, zero, by_tap, y, pixels, given, f"convolution {label}")
    _call(
        planner, group, _chosen(planner, product, way, together, padded=_in_padded_rows(product, computation)), product
    )


def _in_padded_rows(product: _Product, computation: c.IntegerConvolution) -> bool:
    """Whether vectors are to read taps from rows of the image with their padding: those of a row lie side by side, and
    are enough for a loop of their own; windows overlap from row to row, so that gathering would copy more."""
    _, high, wide, channels = integers(product.weights.shape)
    side_by_side = wide == 1 or computation.dilations[1] == 1
    overlapping = high > 1 and high * wide > math.prod(computation.strides)
    return side_by_side and overlapping and wide * channels >= tuning.INTEGER_RUN_ELEMENTS


def is_shifted(zero: Value | None) -> bool:
    """Whether numbers have a zero point that may not be 0."""
    return zero is not None and (zero.constant is None or bool(zero.constant.any()))


class _Product(NamedTuple):
    """Rows of x times constant weights."""

    x: StridedTensor
    zero: Value | None
    """Its zero point."""
    weights: StridedTensor
    """[outputs, depth...]."""
    y: StridedTensor
    rows: Sequence[int]
    """The axes of y that are rows of the product."""
    given: dict[str, DimLike]
    """Fields of `WindowProduct`."""
    label: str


def _chosen(
    planner: Planner, product: _Product, way: RowsWay, together: int | None, *, padded: bool = False
) -> IntegerSpec | IntegerAmxSpec:
    """The kernel. way: how tiles would read the rows; together: how many they would multiply with all weights at
    once; padded: whether vectors read taps from rows of the image with their padding."""
    x, zero, weights, y, rows, _, _ = product
    columns, *deep = integers(weights.shape)
    of_y, windows = concrete(joined(y.shape[axis] for axis in rows)), way not in ("in place", "copied")
    signed, shifted, result = x.dtype is DType.INT8, is_shifted(zero), y.dtype.numpy.name
    assert weights.constant is not None
    arranged = _by_runs(weights.constant, INTEGERS["byte pairs"].group) if padded else _matrix(weights.constant)
    in_byte_pairs = planner.target.integer_products == "pairs" and fits_byte_pairs(arranged)
    spec = choose(
        *(columns, of_y, planner.target),
        depth=math.prod(deep),
        in_byte_pairs=in_byte_pairs,
        signed=signed,
        shifted=shifted,
        windows=windows,
        padded=padded,
        result=result,
    )
    if spec.multiply == "tiles":
        return choose_tiles(way, columns, deep, together, signed=signed, shifted=shifted, result=result)
    return spec


def _call(
    planner: Planner,
    group: Group,
    spec: IntegerSpec | IntegerAmxSpec | DepthwiseIntegerSpec,
    product: _Product,
) -> None:
    """The kernel's call."""
    x, zero, weights, y, rows, given, label = product
    packing: Hashable = spec
    arranged = _matrix
    if isinstance(spec, IntegerAmxSpec):
        packing, arranged, how = spec.packing, _by_taps, f"{INTEGERS['tiles'].text}, x {spec.way}"
    elif isinstance(spec, IntegerSpec) and spec.padded:
        arranged, how = partial(_by_runs, group=spec.group), f"{INTEGERS[spec.multiply].text}, x padded"
    else:
        how = INTEGERS[spec.multiply].text
    packed = planner.packed(weights, lambda w: spec.pack(arranged(w)), packing)
    (column,) = {*range(len(y.shape))} - {*rows}
    begun = None if spec.shifted and (zero is None or zero.constant is None) else _with_bias(group, column)
    if begun is None:
        sums = planner.packed(weights, lambda w: spec.column_sums(arranged(w)), ("sums", packing))
    else:
        group, bias = begun
        of_x = 0 if zero is None or not spec.shifted else int(zero.constant.item())  # type: ignore[union-attr]
        spec = replace(spec, begun=True)
        key = ("begun", packing, of_x, bias.tobytes())
        sums = planner.packed(
            weights, lambda w: beginnings(spec.column_sums(arranged(w)), spec.gathered(of_x), bias), key
        )
    zeros = planner.tensor(zero) if zero is not None and spec.shifted else x
    call = KernelCall(spec, IntegerBuffers(x=x, zero=zeros, w=packed, sums=sums, y=y), WindowProduct(**given))
    call.label = f"integer {label}"
    call.reason = "; ".join([how, *group.reasons])
    planner.epilogue(group, call, row_strides(rows))
    planner.call(call)


def _with_bias(group: Group, column: int) -> tuple[Group, np.ndarray] | None:
    """The group without the sum that its epilogue begins with, and the constant in it, int32, one or one for each place
    along axis `column`; None where it does not begin so. Sums start with it in place of 0, at no cost."""
    if group.expr is None:
        return None
    nodes = e.children_first(group.expr)
    users = [node for node in nodes if any(a.op == "operand" and a.value == 0 for a in node.arguments)]
    if len(users) != 1 or users[0].op != "add" or users[0].dtype is not DType.INT32:
        return None
    added = [a for a in users[0].arguments if a.op == "operand" and a.value != 0]
    if len(added) != 1 or sum(added[0] in node.arguments for node in nodes) != 1:
        return None
    given = group.operands[added[0].value - 1]
    bias, rank = given.constant, len(group.output.shape)
    if not isinstance(bias, np.ndarray) or bias.dtype != np.int32:
        return None
    by_axis = bias.reshape((1,) * (rank - bias.ndim) + bias.shape)
    if any(size != 1 for axis, size in enumerate(by_axis.shape) if axis != column):
        return None
    left = [value for value in group.operands if value is not given]
    done: dict[e.Expr, e.Expr] = {}
    for node in nodes:
        if node is users[0]:
            done[node] = e.operand(0, DType.INT32)
        elif node.op == "operand" and node.value and node is not added[0]:
            done[node] = e.operand(left.index(group.operands[node.value - 1]) + 1, node.dtype)
        else:
            done[node] = e.rebuild(node, [done[argument] for argument in node.arguments])
    expr = done[group.expr]
    return replace(group, expr=None if expr.op == "operand" else expr, operands=left), bias.reshape(-1)


def _matrix(weights: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(weights).reshape(len(weights), -1)


def _by_runs(weights: np.ndarray, group: int) -> np.ndarray:
    """[outputs, depth], the taps of each row in whole groups."""
    outputs, high = weights.shape[:2]
    return by_runs(np.ascontiguousarray(weights).reshape(outputs, high, -1), group)


def _by_taps(weights: np.ndarray) -> np.ndarray:
    """[outputs, taps, channels]"""
    return np.ascontiguousarray(weights).reshape(len(weights), math.prod(weights.shape[1:-1]), weights.shape[-1])
