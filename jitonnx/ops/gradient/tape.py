"""What rules of differentiation are written with: nodes of a graph by short names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jitonnx.ir.computation import expressions as e
from jitonnx.ir.dims import DimLike
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Graph, Value
from jitonnx.ir.operator import Operator
from jitonnx.ops.fused import Pointwise
from jitonnx.ops.onnx.arithmetic import Add, Div, Mul, Neg, Sub
from jitonnx.ops.onnx.cast import Cast
from jitonnx.ops.onnx.matmul import MatMul
from jitonnx.ops.onnx.padding import Pad
from jitonnx.ops.onnx.reduction import ReduceSum
from jitonnx.ops.onnx.shape import Expand, Reshape, Transpose
from jitonnx.ops.onnx.slice import Slice


class Tape:
    """Adds nodes to a graph, all on behalf of one node of the model."""

    def __init__(self, graph: Graph, origin: tuple[str, ...]) -> None:
        self.graph, self.origin = graph, origin

    def add(self, operator: Operator, *inputs: Value | None) -> Value:
        """A new node's first output."""
        return self.graph.add(operator, inputs, origin=self.origin)[0]

    def add_many(self, operator: Operator, inputs: Sequence[Value | None], count: int) -> tuple[Value, ...]:
        """A new node with several outputs."""
        names = [f"{operator.name}_gradient_{len(self.graph)}_{place}" for place in range(count)]
        return self.graph.add(operator, inputs, outputs=names, origin=self.origin)

    def constant(self, array: Any, dtype: DType | None = None) -> Value:
        """A constant, of a type if one is given."""
        return self.graph.add_constant(np.asarray(array, None if dtype is None else dtype.numpy))

    def axes(self, axes: Sequence[int]) -> Value:
        """A vector of axes, or of other integers."""
        return self.graph.add_constant(np.asarray(axes, np.int64).reshape(-1))

    def dims(self, dims: Sequence[DimLike]) -> Value:
        """A vector of sizes, known or not."""
        return self.graph.add_dims(list(dims)) if dims else self.axes([])

    # ------------------------------------------------------------ elements

    def plus(self, a: Value, b: Value) -> Value:
        return self.add(Add(), a, b)

    def minus(self, a: Value, b: Value) -> Value:
        return self.add(Sub(), a, b)

    def times(self, a: Value, b: Value | float) -> Value:
        return self.add(Mul(), a, b if isinstance(b, Value) else self.constant(b, a.dtype))

    def over(self, a: Value, b: Value | float) -> Value:
        return self.add(Div(), a, b if isinstance(b, Value) else self.constant(b, a.dtype))

    def negative(self, a: Value) -> Value:
        return self.add(Neg(), a)

    def map(self, expression: e.Expr, *operands: Value) -> Value:
        """An expression of the operands' elements."""
        return self.add(Pointwise(expression=expression), *operands)

    def cast(self, x: Value, dtype: DType) -> Value:
        return x if x.dtype is dtype else self.add(Cast(to=int(dtype)), x)

    def full(self, value: float, shape: Sequence[DimLike], dtype: DType) -> Value:
        """A tensor of one number."""
        return self.add(Expand(), self.constant(value, dtype), self.dims(shape))

    def zeros(self, like: Value) -> Value:
        return self.full(0, like.shape, like.dtype)

    # ------------------------------------------------------------ shapes

    def reshape(self, x: Value, shape: Sequence[DimLike]) -> Value:
        return x if tuple(shape) == x.shape else self.add(Reshape(allowzero=1), x, self.dims(shape))

    def transpose(self, x: Value, order: Sequence[int]) -> Value:
        return x if list(order) == list(range(len(order))) else self.add(Transpose(perm=tuple(order)), x)

    def swapped(self, x: Value) -> Value:
        """The last two axes exchanged."""
        order = list(range(len(x.shape)))
        return self.transpose(x, [*order[:-2], order[-1], order[-2]])

    def expand(self, x: Value, shape: Sequence[DimLike]) -> Value:
        return x if tuple(shape) == x.shape else self.add(Expand(), x, self.dims(shape))

    def sum(self, x: Value, axes: Sequence[int], *, keepdims: bool = True) -> Value:
        """The sum over axes; over none: x."""
        return self.add(ReduceSum(keepdims=int(keepdims)), x, self.axes(axes)) if axes else x

    def sum_to(self, x: Value, shape: Sequence[DimLike]) -> Value:
        """The adjoint of broadcasting from `shape` to x's."""
        leading = len(x.shape) - len(shape)
        wider = [leading + axis for axis, size in enumerate(shape) if size == 1 and x.shape[leading + axis] != 1]
        axes = [*range(leading), *wider]
        return self.reshape(self.sum(x, axes), shape)

    def slice(self, x: Value, axis: int, start: DimLike, stop: DimLike) -> Value:
        """x[start:stop] along one axis."""
        return self.add(Slice(), x, self.dims([start]), self.dims([stop]), self.axes([axis]))

    def pad(self, x: Value, before: Sequence[DimLike], after: Sequence[DimLike]) -> Value:
        """Zeros around x; where a number is negative, elements taken off."""
        if all(size == 0 for size in (*before, *after)):
            return x
        return self.add(Pad(), x, self.dims([*before, *after]))

    def matmul(self, a: Value, b: Value) -> Value:
        return self.add(MatMul(), a, b)
