"""Arithmetic with constants moved into weights, where it costs nothing.

`absorb` handles a product or sum with a constant behind something that has weights: what the constant does to each
output channel is done to the weights of that channel once. Which operator takes what is said by one function for each.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Node, Value
from jitonnx.ir.operator import Operator
from jitonnx.ops.onnx.arithmetic import Add, Div, Mul, Sub
from jitonnx.ops.onnx.convolution import Conv, ConvTranspose
from jitonnx.ops.onnx.matmul import Gemm, MatMul
from jitonnx.ops.onnx.normalization import (
    BatchNormalization,
    GroupNormalization,
    InstanceNormalization,
    LayerNormalization,
    RMSNormalization,
)
from jitonnx.ops.onnx.shape import Transpose
from jitonnx.passes.report import Reason
from jitonnx.passes.rewriting import Decline, Edit, Result, array, ranked, rule
from jitonnx.support.records import dataclass

LARGE = 1 << 20
"""Weights of more bytes are not copied while somebody else reads them too."""


@rule(
    "batch normalization",
    BatchNormalization,
    equation="(x - mean) / sqrt(var + eps) * scale + bias = x * f + (bias - mean * f), f = scale / sqrt(var + eps)",
)
def batch_normalization(node: Node, edit: Edit) -> Result:
    """The norm with fixed statistics as a product and a sum by channel, which what stands before may absorb."""
    operator = node.operator
    assert isinstance(operator, BatchNormalization)
    if operator.training_mode:
        raise Decline(Reason.ATTRIBUTE, "training_mode")
    parameters = [array(value) for value in node.inputs[1:] if value is not None]
    x = node.inputs[0]
    if x is not None and x.dtype is DType.FLOAT16:
        raise Decline(Reason.DTYPE, "float16, to which f, and weights times f, would be rounded")
    if x is None or not ranked(node) or any(parameter is None for parameter in parameters):
        raise Decline(Reason.NOT_CONSTANT, "scale, bias, mean and variance")
    scale, bias, mean, variance = (p.astype(np.float64) for p in parameters if p is not None)
    factor = scale / np.sqrt(variance + operator.epsilon)
    shape = (-1, *(1,) * (len(x.shape) - 2)) if operator.spatial and len(x.shape) > 2 else factor.shape
    summand = bias - mean * factor
    scaled = edit.add(Mul(), x, finite_constant(factor.reshape(shape), x, edit))
    return edit.add(Add(), scaled, finite_constant(summand.reshape(shape), x, edit))


@rule("gemm", Gemm, equation="alpha A' B' + beta C = A' (alpha B') + (beta C)")
def gemm(node: Node, edit: Edit) -> Result:
    """A matrix product and a sum, for which other rewrites are written; transposes and factors go into constants."""
    operator = node.operator
    assert isinstance(operator, Gemm)
    a, b, c = (*node.inputs, None)[:3]
    if a is None or b is None or not ranked(node):
        return None
    if not node.output.dtype.is_float:
        raise Decline(Reason.DTYPE, f"{node.output.dtype.text}")
    if operator.transA:
        a = edit.add(Transpose(perm=(1, 0)), a)
    if operator.transB:
        b = _transposed(b, edit)
    y = edit.add(MatMul(), a, _times(b, operator.alpha, edit))
    return y if c is None or operator.beta == 0 else edit.add(Add(), y, _times(c, operator.beta, edit))


def plain_product(node: Node) -> tuple[Value, Value, Value | None, bool] | None:
    """a, b and bias of a MatMul, or of a Gemm without factors and with a as it is, and whether b is transposed."""
    a, b, bias = (*node.inputs, None)[:3]
    if a is None or b is None:
        return None
    operator = node.operator
    if not isinstance(operator, Gemm):
        return a, b, bias, False
    if operator.alpha != 1 or operator.transA or (bias is not None and operator.beta != 1):
        return None
    return a, b, bias, bool(operator.transB)


def _transposed(value: Value, edit: Edit) -> Value:
    elements = array(value)
    return edit.add(Transpose(perm=(1, 0)), value) if elements is None else edit.constant(elements.T)


def _times(value: Value, factor: float, edit: Edit) -> Value:
    if factor == 1:
        return value
    elements = array(value)
    if elements is not None:
        return finite_constant(elements.astype(wide(elements.dtype)) * factor, value, edit)
    return edit.add(Mul(), value, finite_constant(np.asarray(factor), value, edit))


def wide(dtype: np.dtype) -> np.dtype:
    """The type in which a constant is computed: float32 for weights of that size, float64 above."""
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)


def finite_constant(elements: np.ndarray, like: Value, edit: Edit) -> Value:
    """A constant in the element type of `like`. Decline if it would not be finite there."""
    with np.errstate(over="ignore"):
        given = np.asarray(elements.astype(like.dtype.numpy, copy=False))
    if given.size <= LARGE and not np.isfinite(given.astype(np.float64, copy=False)).all():
        raise Decline(Reason.NOT_FINITE, f"in {like.dtype.text}")
    return edit.constant(given)


# ---------------------------------------------------------------- absorbing


@dataclass(frozen=True)
class Step:
    """y * factor + summand, with constants that broadcast to y; None: no such part."""

    factor: np.ndarray | None
    summand: np.ndarray | None

    def along(self, axis: int, size: int, rank: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Factor and summand as vectors along one axis of y, if they vary along no other."""
        vectors = [_vector(part, axis, size, rank, default) for part, default in ((self.factor, 1), (self.summand, 0))]
        return None if vectors[0] is None or vectors[1] is None else (vectors[0], vectors[1])


def _vector(part: np.ndarray | None, axis: int, size: int, rank: int, default: int) -> np.ndarray | None:
    if part is None:
        return np.full(size, default, np.float64)
    if part.ndim > rank:
        return None
    full = part.reshape((1,) * (rank - part.ndim) + part.shape)
    if full.shape[axis] not in (1, size) or full.size != full.shape[axis]:
        return None
    return np.broadcast_to(full.reshape(-1), (size,)).astype(np.float64)


@rule("absorb", Mul, Add, Sub, Div, equation="(x W + b) * f + s = x (W f) + (b f + s)")
def absorb(node: Node, edit: Edit) -> Result:
    """A product, quotient, sum or difference with a constant by channel goes into the weights before it.

    before: Conv -> Mul by [64,1,1] -> Add of [64,1,1]
    after:  Conv with other weights and bias
    """
    found = constant_operand(node)
    if found is None or not ranked(node) or not node.output.dtype.is_float:
        return None
    y, step = found
    above = y.producer
    if above is None or y is not above.outputs[0] or node.output.shape != y.shape:
        return None
    absorber = _ABSORBERS.get(type(above.operator))
    if absorber is None:
        return None
    rewritten = absorber(above, step, edit)
    return rewritten


def constant_operand(node: Node) -> tuple[Value, Step] | None:
    """What a product, quotient, sum or difference does with a constant, and to what; None if it has none."""
    a, b = node.inputs
    if a is None or b is None:
        return None
    operator = node.operator
    if operator.commutative and array(b) is None:
        a, b = b, a
    elements = array(b)
    if elements is None or a.producer is None or b.dtype is None or not b.dtype.is_float:
        return None
    exact = elements.astype(np.float64)
    if isinstance(operator, Mul):
        return a, Step(exact, None)
    if isinstance(operator, Div):
        return (a, Step(1 / exact, None)) if (exact != 0).all() else None
    return a, Step(None, exact if isinstance(operator, Add) else -exact)


Absorber = Callable[[Node, Step, Edit], "Value | None"]


def _convolution(above: Node, step: Step, edit: Edit) -> Value | None:
    """W [M, C / group, kernel...], or [C, M / group, kernel...] of ConvTranspose; M is axis 1 of the result."""
    x, weight, bias = (*above.inputs, None)[:3]
    operator = above.operator
    assert isinstance(operator, Conv | ConvTranspose) and x is not None and weight is not None
    elements = _weights(weight, "W")
    offset = _weights(bias, "B") if bias is not None else None
    transposed = isinstance(operator, ConvTranspose)
    channels = elements.shape[1] * operator.group if transposed else elements.shape[0]
    vectors = step.along(1, channels, len(above.output.shape))
    if vectors is None:
        return None
    edit.consume([above])
    factor, summand = vectors
    if step.factor is not None:
        check_copy(weight, above)
        kernel = (1,) * (elements.ndim - 2)
        if transposed:
            split = elements.reshape(operator.group, -1, *elements.shape[1:])
            scaled = split * factor.astype(wide(elements.dtype)).reshape(operator.group, 1, -1, *kernel)
        else:
            scaled = elements * factor.astype(wide(elements.dtype)).reshape(-1, 1, *kernel)
        weight = finite_constant(scaled.reshape(elements.shape), weight, edit)
    total = summand if offset is None else offset.astype(np.float64) * factor + summand
    if bias is not None or step.summand is not None:
        bias = finite_constant(total, above.output, edit)
    return edit.add(operator, x, weight, bias) if bias is not None else edit.add(operator, x, weight)


def _weights(value: Value, name: str) -> np.ndarray:
    elements = array(value)
    if elements is None:
        raise Decline(Reason.NOT_CONSTANT, name)
    return elements


def check_copy(weight: Value, node: Node) -> None:
    """Decline to make a second copy of a large tensor that others read."""
    elements = array(weight)
    if elements is not None and elements.nbytes > LARGE and any(user is not node for user in weight.users):
        raise Decline(Reason.TOO_LARGE, f"{weight.name} is read elsewhere too")


def _matmul(above: Node, step: Step, edit: Edit) -> Value | None:
    """x W scaled by column. A sum stays: it is the bias."""
    x, weight = above.inputs
    if step.factor is None or x is None or weight is None or array(weight) is None or len(weight.shape) < 2:
        return None
    elements = _weights(weight, "B")
    vectors = step.along(len(above.output.shape) - 1, elements.shape[-1], len(above.output.shape))
    if vectors is None:
        return None
    edit.consume([above])
    check_copy(weight, above)
    scaled = elements * vectors[0].astype(wide(elements.dtype))
    return edit.add(above.operator, x, finite_constant(scaled, weight, edit))


def _add(above: Node, step: Step, edit: Edit) -> Value | None:
    """(z + b) * f = z f + b f, where z absorbs f; (z + b) + s = z + (b + s)."""
    found = constant_operand(above)
    if found is None:
        return None
    z, inner = found
    if z.producer is None or inner.summand is None:
        return None
    if step.factor is None:
        assert step.summand is not None
        edit.consume([above])
        return edit.add(Add(), z, finite_constant(inner.summand + step.summand, above.output, edit))
    absorber = _ABSORBERS.get(type(z.producer.operator))
    if absorber is None or absorber is _add or z.shape != above.output.shape or z is not z.producer.outputs[0]:
        return None
    edit.consume([above])
    scaled = absorber(z.producer, step, edit)
    if scaled is None:
        return None
    return edit.add(Add(), scaled, finite_constant(inner.summand * step.factor, above.output, edit))


def _mul(above: Node, step: Step, edit: Edit) -> Value | None:
    """(z * g) * f = z * (g f)."""
    found = constant_operand(above)
    if found is None or step.factor is None or found[1].factor is None:
        return None
    z, inner = found
    assert inner.factor is not None
    edit.consume([above])
    return edit.add(Mul(), z, finite_constant(inner.factor * step.factor, above.output, edit))


def _channel_norm(above: Node, step: Step, edit: Edit) -> Value | None:
    """GroupNormalization and InstanceNormalization: scale and bias by channel."""
    x, scale, bias = above.inputs
    assert x is not None and scale is not None and bias is not None
    if isinstance(above.operator, GroupNormalization) and above.operator.by_group:
        return None
    given = [_weights(scale, "scale").astype(np.float64), _weights(bias, "bias").astype(np.float64)]
    vectors = step.along(1, given[0].shape[0], len(x.shape))
    if vectors is None:
        return None
    edit.consume([above])
    factor, summand = vectors
    parameters = (given[0] * factor, given[1] * factor + summand)
    return edit.add(above.operator, x, *(finite_constant(one, scale, edit) for one in parameters))


def _trailing_norm(above: Node, step: Step, edit: Edit) -> Value | None:
    """LayerNormalization and RMSNormalization: scale (and bias) over the axes normalised."""
    operator = above.operator
    assert isinstance(operator, LayerNormalization | RMSNormalization)
    x, scale, bias = (*above.inputs, None)[:3]
    assert x is not None and scale is not None
    if any(value.users or value in edit.graph.results for value in above.outputs[1:]):
        raise Decline(Reason.OTHER_USES, "the statistics are read")
    if isinstance(operator, RMSNormalization) and step.summand is not None:
        return None
    axes = len(x.shape) - operator.axis % len(x.shape)
    given = [_weights(scale, "Scale"), _weights(bias, "B") if bias is not None else np.zeros(())]
    parts = [part for part in (step.factor, step.summand) if part is not None]
    if any(part.size > 1 and _inner_rank(part) > axes for part in parts):
        return None
    edit.consume([above])
    shape = np.broadcast_shapes(given[0].shape, *(_inner(part).shape for part in parts))
    factor = _inner(step.factor) if step.factor is not None else np.ones(())
    summand = _inner(step.summand) if step.summand is not None else np.zeros(())
    inputs = [x, finite_constant(np.broadcast_to(given[0] * factor, shape), scale, edit)]
    if bias is not None or step.summand is not None:
        inputs.append(finite_constant(np.broadcast_to(given[1] * factor + summand, shape), scale, edit))
    return edit.add(operator, *inputs)


def _inner(part: np.ndarray) -> np.ndarray:
    """A constant without its leading axes of size 1."""
    return part.reshape(part.shape[part.ndim - _inner_rank(part) :])


def _inner_rank(part: np.ndarray) -> int:
    return next((part.ndim - axis for axis, size in enumerate(part.shape) if size != 1), 0)


_ABSORBERS: dict[type[Operator], Absorber] = {
    Conv: _convolution,
    ConvTranspose: _convolution,
    MatMul: _matmul,
    Add: _add,
    Sub: _add,
    Mul: _mul,
    GroupNormalization: _channel_norm,
    InstanceNormalization: _channel_norm,
    LayerNormalization: _trailing_norm,
    RMSNormalization: _trailing_norm,
}
"""What has weights, and how it takes a factor and a summand."""


RULES = (batch_normalization, gemm, absorb)
