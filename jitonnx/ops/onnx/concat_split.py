"""Tensors one behind the other, and taken apart."""

from __future__ import annotations

from typing import Any

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dims import DimLike, ceil_divide, maximum, minimum
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import EXACT, InferenceContext
from jitonnx.ir.operator import InferenceError, Operator, internal
from jitonnx.ir.raw import RawNode
from jitonnx.ir.types import TensorType
from jitonnx.ops.base import count_of, normalize_axis, open_like
from jitonnx.ops.onnx.cast import Cast


class Split(Operator):
    """Parts of the input along `axis`: of sizes `split`, or one an output, equal but for the last."""

    axis: int = 0
    num_outputs: int | None = None
    equal: bool = internal(default=False)
    """Before version 18 an axis had to be divisible."""

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        if node.version == 1 and len(node.inputs) > 1 and node.inputs[1] is not None:  # of the type of what is split
            node.inputs[1] = node.add(Cast(to=int(DType.INT64)), [node.inputs[1]])
        elif node.version < 13:
            node.attribute_to_input("split", 1)
        if len(node.inputs) < 2:
            node.attributes["num_outputs"] = len(node.outputs)
            node.attributes["equal"] = True

    def _sizes(self, context: InferenceContext, size: DimLike, split: list[Any] | None) -> list[DimLike]:
        if split is not None:
            if not context.demand_equal(size, sum(split)):
                raise InferenceError(f"split {split} does not add up to {size}, the size of axis {self.axis}")
            if any(isinstance(part, int) and part < 0 for part in split):
                raise InferenceError(f"split {split} has a negative size")
            return split
        if self.num_outputs is None or self.num_outputs < 1:
            raise InferenceError("either the input split or num_outputs >= 1 is needed")
        count = self.num_outputs
        if not isinstance(size, int):
            part = size // count
            if (context.demand_equal if self.equal else context.assume_equal)(part * count, size):
                return [part] * count
        if self.equal and size % count != 0:
            raise InferenceError(f"axis {self.axis} of size {size} does not divide into {count} equal parts")
        whole = ceil_divide(size, count)
        return [minimum(whole, maximum(size - position * whole, 0)) for position in range(count)]

    def infer(self, context: InferenceContext, x: Value, split: Value | None = None) -> tuple[TensorType, ...]:
        axis = normalize_axis(self.axis, len(x.shape))
        sizes = self._sizes(context, x.shape[axis], None if split is None else context.constant_of(split, "split"))
        return tuple(TensorType(x.dtype, (*x.shape[:axis], size, *x.shape[axis + 1 :])) for size in sizes)

    def infer_open(self, x: Value, split: Value | None = None) -> tuple[TensorType, ...]:
        return (open_like(x, (self.axis,)),) * count_of(split)

    def evaluate(self, x: np.ndarray, split: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
        axis = normalize_axis(self.axis, x.ndim)
        sizes = self._sizes(EXACT, x.shape[axis], None if split is None else split.tolist())
        ends = np.cumsum(np.array(sizes, np.int64))
        return tuple(np.split(x, ends[:-1], axis))

    def lower(self, to: Lowering, x: Value, split: Value | None = None) -> tuple[Value, ...]:
        axis = normalize_axis(self.axis, len(x.shape))
        parts: list[Value] = []
        position: DimLike = 0
        for type in to.types:
            starts: list[DimLike] = [0] * len(x.shape)
            starts[axis] = position
            parts.append(to.slice(x, starts, (1,) * len(x.shape), type.shape))  # type: ignore[arg-type]
            position = position + type.shape[axis]  # type: ignore[index]
        return tuple(parts)


class Concat(Operator):
    """The inputs one behind the other along `axis`."""

    symbolic = True

    axis: int

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        if node.version < 4:
            node.attributes.setdefault("axis", 1)

    def infer(self, context: InferenceContext, *inputs: Value) -> TensorType:
        if not inputs:
            raise InferenceError("at least one input is needed")
        first = inputs[0].shape
        if not first:
            raise InferenceError("scalars cannot be concatenated")
        axis = normalize_axis(self.axis, len(first))
        shape = list(first)
        for value in inputs[1:]:
            if len(value.shape) != len(first) or not all(
                context.demand_equal(a, b)
                for position, (a, b) in enumerate(zip(shape, value.shape, strict=True))
                if position != axis
            ):
                types = ", ".join(str(v.type) for v in inputs)
                raise InferenceError(f"inputs differ outside axis {axis}: {types}")
            shape = [min_known(a, b) for a, b in zip(shape, value.shape, strict=True)]
        shape[axis] = sum(value.shape[axis] for value in inputs)
        return TensorType(inputs[0].dtype, tuple(shape))

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        return np.concatenate(arrays, axis=self.axis)

    def lower(self, to: Lowering, *inputs: Value) -> Value:
        axis = normalize_axis(self.axis, len(inputs[0].shape))
        return to.emit(c.Concat(axis), inputs, to.type)


def min_known(a: DimLike, b: DimLike) -> DimLike:
    """The one of two sizes assumed equal that is a number."""
    return b if isinstance(b, int) else a
