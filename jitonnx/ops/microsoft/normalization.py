"""Layer normalizations of sums, as transformers have them: of a residual connection, and of embeddings."""

from __future__ import annotations

import numpy as np

from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.operator import InferenceError, Operator, Tensor
from jitonnx.ops.composite import Parts
from jitonnx.ops.microsoft.base import Contributed
from jitonnx.ops.onnx.activation import Sigmoid, Swish
from jitonnx.ops.onnx.arithmetic import Add, Mul
from jitonnx.ops.onnx.cast import Cast
from jitonnx.ops.onnx.concat_split import Concat
from jitonnx.ops.onnx.gather import Gather
from jitonnx.ops.onnx.generators import ConstantOfShape, Range
from jitonnx.ops.onnx.logic import Equal
from jitonnx.ops.onnx.normalization import LayerNormalization, RMSNormalization
from jitonnx.ops.onnx.quantization import DequantizeLinear
from jitonnx.ops.onnx.reduction import ReduceSum
from jitonnx.ops.onnx.shape import Reshape, Shape, Squeeze
from jitonnx.ops.parts import as_type


class SkipLayerNormalization(Contributed):
    """LayerNormalization of input + skip + bias over the last axis; the statistics, and the sum itself."""

    epsilon: float = 1e-12

    def compose(
        self,
        parts: Parts,
        x: Value,
        skip: Value,
        gamma: Value,
        beta: Value | None = None,
        bias: Value | None = None,
    ) -> tuple[Value, ...]:
        total = _sum(parts, x, skip, bias)
        scaling = [gamma] if beta is None else [gamma, beta]
        if not (parts.wanted(1) or parts.wanted(2)):
            y = parts.add(LayerNormalization(epsilon=self.epsilon), total, *scaling)
            return y, y, y, total  # nobody reads the two in the middle
        return (*parts.add_many(LayerNormalization(epsilon=self.epsilon), [total, *scaling], 3), total)


class SkipSimplifiedLayerNormalization(Contributed):
    """RMSNormalization of input + skip + bias over the last axis, and the sum itself.

    onnxruntime does not say what its outputs 1 and 2 are.
    """

    epsilon: float = 1e-12

    def compose(
        self, parts: Parts, x: Value, skip: Value, gamma: Value, bias: Value | None = None
    ) -> tuple[Value, ...]:
        if parts.wanted(1) or parts.wanted(2):
            raise InferenceError("mean and inv_std_var are outputs for training, which are not supported")
        total = _sum(parts, x, skip, bias)
        y = parts.add(RMSNormalization(epsilon=self.epsilon), total, gamma)
        return y, y, y, total  # nobody reads the two in the middle


def _sum(parts: Parts, x: Value, skip: Value, bias: Value | None) -> Value:
    total = parts.add(Add(), x, skip)
    return total if bias is None else parts.add(Add(), total, bias)


class EmbedLayerNormalization(Contributed):
    """LayerNormalization of the sum of the embeddings of words, positions and segments.

    output [batch, length, hidden]; mask_index [batch], how many elements of each row of `mask` are 1 (0 without one);
    embedding_sum, what is normalized. Position n of a row is n where position_ids are not given.
    """

    epsilon: float = 1e-12
    mask_index_type: int | None = None

    def compose(
        self, parts: Parts, ids: Value, segments: Value | None, words: Value, *others: Value | None
    ) -> tuple[Value, ...]:
        positions, segment_embedding, gamma, beta, mask, position_ids = (*others, None, None)[:6]
        if len(ids.shape) != 2:
            raise InferenceError(f"input_ids is {ids.type}; [batch, length] is needed")
        if (segments is None) != (segment_embedding is None):
            raise InferenceError("segment_ids and segment_embedding are given together, or neither")
        if position_ids is None:
            length = parts.add(Squeeze(), parts.add(Shape(start=1, end=2), ids))
            zero, one = (parts.constant(np.int64(number)) for number in (0, 1))
            position_ids = parts.add(Range(), zero, length, one)
        total = parts.add(Add(), parts.add(Gather(), words, ids), parts.add(Gather(), positions, position_ids))
        if segments is not None:
            total = parts.add(Add(), total, parts.add(Gather(), segment_embedding, segments))
        y = parts.add(LayerNormalization(epsilon=self.epsilon), total, gamma, beta)
        return y, self._counts(parts, ids, mask) if parts.wanted(1) else y, total

    def _counts(self, parts: Parts, ids: Value, mask: Value | None) -> Value:
        if mask is None:
            nothing = np.zeros(1, np.int32)
            return parts.add(ConstantOfShape(value=Tensor(nothing)), parts.add(Shape(start=0, end=1), ids))
        ones = parts.add(Equal(), mask, parts.constant(np.int32(1)))
        counted = parts.add(Cast(to=int(DType.INT32)), ones)
        return parts.add(ReduceSum(keepdims=False), counted, parts.constant(np.array([1], np.int64)))


class QEmbedLayerNormalization(Contributed):
    """EmbedLayerNormalization whose embeddings, scale and bias are integers, each with a scale and a zero point."""

    epsilon: float = 1e-12

    def compose(self, parts: Parts, ids: Value, segments: Value | None, *others: Value | None) -> tuple[Value, ...]:
        quantized, mask = (*others[:3], *others[3:5]), others[5]
        scales, zeros = others[6:11], (*others[11:], None)[:5]
        words, positions, kinds, gamma, beta = (
            None if x is None else parts.add(DequantizeLinear(), x, scale, zero)
            for x, scale, zero in zip(quantized, scales, zeros, strict=True)
        )
        operator = EmbedLayerNormalization(epsilon=self.epsilon)
        return operator.compose(parts, ids, segments, words, positions, kinds, gamma, beta, mask)[:2]  # type: ignore[arg-type]


class BranchwiseRMSNorm(Contributed):
    """RMSNormalization over the last axis, or over each of num_branches equal parts of it, in float32.

    scale: [last axis], [branches, elements of each], or [branches * elements of each].
    """

    epsilon: float = 1e-5
    num_branches: int = 0

    def compose(self, parts: Parts, x: Value, scale: Value | None = None) -> Value:
        wide = as_type(parts, x, DType.FLOAT)
        if self.num_branches:
            wide = parts.add(Reshape(), wide, _apart(parts, x, self.num_branches))
        y = parts.add(RMSNormalization(epsilon=self.epsilon), wide, parts.constant(np.ones(1, np.float32)))
        if scale is not None:
            factor = as_type(parts, scale, DType.FLOAT)
            rows = parts.add(Concat(axis=0), parts.constant(np.array([-1], np.int64)), parts.add(Shape(start=-1), wide))
            y = parts.add(Mul(), y, parts.add(Reshape(), factor, rows))
        return parts.add(Reshape(), as_type(parts, y, x.dtype), parts.add(Shape(), x))


class GatedRMSNorm(Contributed):
    """RMSNormalization of each group of as many elements of the last axis as `scale` has, times an activation of gate
    (silu, which is also called swish, or sigmoid), in float32."""

    activation: str = "silu"
    epsilon: float = 1e-5

    def compose(self, parts: Parts, x: Value, scale: Value, gate: Value) -> Value:
        activations: dict[str, Operator] = {"silu": Swish(), "swish": Swish(), "sigmoid": Sigmoid()}
        if self.activation not in activations:
            raise InferenceError(f"activation {self.activation!r}: one of {', '.join(activations)} expected")
        shape = parts.add(Concat(axis=0), parts.add(Shape(end=-1), x), parts.constant(np.array([-1], np.int64)))
        shape = parts.add(Concat(axis=0), shape, parts.add(Shape(), scale))
        groups = parts.add(Reshape(), as_type(parts, x, DType.FLOAT), shape)
        y = parts.add(RMSNormalization(epsilon=self.epsilon), groups, as_type(parts, scale, DType.FLOAT))
        factor = parts.add(activations[self.activation], as_type(parts, gate, DType.FLOAT))
        y = parts.add(Mul(), parts.add(Reshape(), y, parts.add(Shape(), x)), factor)
        return as_type(parts, y, x.dtype)


def _apart(parts: Parts, x: Value, count: int) -> Value:
    """The shape of x with its last axis as `count` parts."""
    return parts.add(Concat(axis=0), parts.add(Shape(end=-1), x), parts.constant(np.array([count, -1], np.int64)))
