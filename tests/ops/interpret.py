"""Computations read on NumPy: what a lowered graph means, before any planner or kernel has a say.

What operators share is read here (maps, views, data movement, reductions, products), and in `readings` the computations
that stand for one operator, such as Convolution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from jitonnx.ir import dims
from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation import drawing
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import Lowered
from jitonnx.ir.graph import Value
from jitonnx.ir.operator import evaluate_arrays
from jitonnx.ops.base import is_narrow
from jitonnx.ops.onnx.cumulative import CumProd, CumSum
from jitonnx.ops.onnx.gather import GatherElements, GatherND
from jitonnx.ops.onnx.reduction import ArgMax, ArgMin, reduced
from jitonnx.ops.onnx.reverse_sequence import ReverseSequence
from jitonnx.ops.onnx.scatter import ScatterElements, ScatterND
from jitonnx.ops.onnx.selection import TopK
from tests.ops import readings


def interpret(lowered: Lowered, feeds: Mapping[str, np.ndarray], sizes: Mapping[str, int]) -> list[np.ndarray]:
    """The outputs of a lowered graph for `feeds` and the values of its dimension variables."""
    arrays: dict[Value, Any] = {value: feeds[value.name] for value in lowered.inputs}

    def array_of(value: Value | None) -> Any:
        if value is None:
            return None
        if value not in arrays:
            assert value.contents is not None, f"{value} is not computed"
            contents = value.contents
            if value.constant is None:
                contents = np.vectorize(lambda dim: dims.evaluate(dim, sizes), otypes=[np.int64])(contents)
            arrays[value] = contents.astype(value.dtype.numpy)
        return arrays[value]

    for statement in lowered.statements:
        shapes = [_sizes(value.shape, sizes) for value in statement.outputs]
        operands = [array_of(value) for value in statement.inputs]
        with np.errstate(all="ignore"):
            results = _compute(statement.computation, operands, shapes, sizes)
        for value, result in zip(statement.outputs, results, strict=True):
            assert result.shape == _sizes(value.shape, sizes), f"{statement}: {result.shape}"
            arrays[value] = result.astype(value.dtype.numpy, copy=False)
    return [array_of(value) for value in lowered.outputs]


def _sizes(shape: Any, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(dims.evaluate(dim, sizes) for dim in shape)


def _compute(
    computation: c.Computation, operands: list[Any], shapes: list[tuple[int, ...]], sizes: Mapping[str, int]
) -> tuple[np.ndarray, ...]:
    if isinstance(computation, c.Host):
        return tuple(np.asarray(x) for x in evaluate_arrays(computation.operator, operands)[: len(shapes)])
    results = _READERS[type(computation)](computation, operands, shapes[0], sizes)
    return results[: len(shapes)] if isinstance(results, tuple) else (np.asarray(results),)


def _map(computation: Any, operands: list[np.ndarray], shape: tuple[int, ...], sizes: Mapping[str, int]) -> np.ndarray:
    return np.broadcast_to(e.evaluate(computation.expr, operands, shape), shape)


def _slice(x: Any, operands: list[np.ndarray], shape: tuple[int, ...], sizes: Mapping[str, int]) -> np.ndarray:
    starts = _sizes(x.starts, sizes)
    positions = [start + np.arange(n) * step for start, step, n in zip(starts, x.steps, shape, strict=True)]
    return operands[0][np.ix_(*positions)] if positions else operands[0]


def _pad(x: Any, operands: list[np.ndarray], shape: tuple[int, ...], sizes: Mapping[str, int]) -> np.ndarray:
    before, after = _sizes(x.before, sizes), _sizes(x.after, sizes)
    data = operands[0][
        tuple(slice(max(-a, 0), n - max(-b, 0)) for a, b, n in zip(before, after, operands[0].shape, strict=True))
    ]
    widths = [(max(a, 0), max(b, 0)) for a, b in zip(before, after, strict=True)]
    if x.mode != "constant":
        return np.pad(data, widths, mode=x.mode)
    return np.pad(data, widths, constant_values=operands[1].item() if len(operands) > 1 else 0)


def _reduce(x: Any, operands: list[np.ndarray], shape: tuple[int, ...], sizes: Mapping[str, int]) -> np.ndarray:
    data = operands[0]
    wide = data.astype(np.float32) if is_narrow(data.dtype) else data
    found: np.ndarray = reduced(wide, kind=x.kind, axes=x.axes, keepdims=x.keepdims).astype(data.dtype)
    return found


def _arg_reduce(x: Any, operands: list[np.ndarray], shape: tuple[int, ...], sizes: Mapping[str, int]) -> np.ndarray:
    operator = ArgMax if x.kind == "max" else ArgMin
    return operator(axis=x.axis, keepdims=int(x.keepdims), select_last_index=int(x.last)).evaluate(operands[0])


def _cumulate(x: Any, operands: list[np.ndarray], shape: tuple[int, ...], sizes: Mapping[str, int]) -> np.ndarray:
    operator = CumSum if x.kind == "sum" else CumProd
    return operator(exclusive=int(x.exclusive), reverse=int(x.reverse)).evaluate(operands[0], np.array(x.axis))


def _draw(x: Any, operands: list[np.ndarray], shape: tuple[int, ...], sizes: Mapping[str, int]) -> np.ndarray:
    count = math.prod(shape)
    if x.seed is None:
        return drawing.drawn(x.distribution, count, x.dtype.numpy).reshape(shape)
    return drawing.seeded(x.distribution, x.seed, count, x.dtype.numpy).reshape(shape)


def _check(x: Any, operands: list[np.ndarray], shape: tuple[int, ...], sizes: Mapping[str, int]) -> np.ndarray:
    assert not operands[0].any(), x.text
    return np.zeros(shape, np.bool_)


_READERS: dict[type[c.Computation], Callable[..., Any]] = {
    c.Check: _check,
    **readings.READERS,
    c.Map: _map,
    c.Fill: lambda x, _, shape, sizes: np.broadcast_to(e.evaluate(x.expr, [], shape), shape),
    c.Draw: _draw,
    c.Search: lambda x, operands, shape, sizes: (operands[0][:, None] <= operands[1][..., None]).sum(axis=-1),
    c.BitCast: lambda x, operands, shape, sizes: operands[0].view(x.dtype.numpy),
    c.Transpose: lambda x, operands, shape, sizes: operands[0].transpose(x.permutation),
    c.Reshape: lambda x, operands, shape, sizes: operands[0].reshape(shape),
    c.Broadcast: lambda x, operands, shape, sizes: np.broadcast_to(operands[0], shape),
    c.Slice: _slice,
    c.Concat: lambda x, operands, shape, sizes: np.concatenate(operands, x.axis),
    c.Pad: _pad,
    c.Gather: lambda x, operands, shape, sizes: np.take(operands[0], operands[1].astype(np.int64), x.axis),
    c.GatherElements: lambda x, operands, shape, sizes: GatherElements(axis=x.axis).evaluate(*operands),
    c.GatherND: lambda x, operands, shape, sizes: GatherND(batch_dims=x.batch_dims).evaluate(*operands),
    c.ScatterElements: lambda x, operands, shape, sizes: ScatterElements(axis=x.axis, reduction=x.reduction).evaluate(
        *operands
    ),
    c.ScatterND: lambda x, operands, shape, sizes: ScatterND(reduction=x.reduction).evaluate(*operands),
    c.ReverseSequence: lambda x, operands, shape, sizes: ReverseSequence(
        batch_axis=x.batch_axis, time_axis=x.time_axis
    ).evaluate(*operands),
    c.Reduce: _reduce,
    c.ArgReduce: _arg_reduce,
    c.Cumulate: _cumulate,
    c.TopK: lambda x, operands, shape, sizes: TopK(axis=x.axis, largest=int(x.largest)).evaluate(
        operands[0], np.array(shape[x.axis])
    ),
    c.Trees: lambda x, operands, shape, sizes: x.forest.scores(operands[0], x.aggregate)[0],
    c.MatMul: lambda x, operands, shape, sizes: operands[0] @ operands[1],
}
