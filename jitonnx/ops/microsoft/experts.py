"""Mixtures of experts: layers of which a router chooses a few for each token."""

from __future__ import annotations

import numpy as np

from jitonnx.ir.graph import Value
from jitonnx.ir.operator import InferenceError
from jitonnx.ops.composite import Parts
from jitonnx.ops.microsoft.base import Contributed, of_type
from jitonnx.ops.onnx.activation import Gelu, Relu, Swish
from jitonnx.ops.onnx.arithmetic import Add, Clip, Div, Mul
from jitonnx.ops.onnx.generators import ConstantOfShape
from jitonnx.ops.onnx.logic import Greater, Where
from jitonnx.ops.onnx.matmul import MatMul
from jitonnx.ops.onnx.reduction import ReduceSum
from jitonnx.ops.onnx.scatter import ScatterElements
from jitonnx.ops.onnx.selection import TopK
from jitonnx.ops.onnx.shape import Flatten, Reshape, Shape, Transpose, Unsqueeze
from jitonnx.ops.onnx.slice import Slice
from jitonnx.ops.onnx.softmax import Softmax
from jitonnx.ops.parts import as_type, numbers, widened

LAST = np.iinfo(np.int64).max
ACTIVATIONS = {"relu": Relu(), "gelu": Gelu(approximate="tanh"), "silu": Swish(), "identity": None}


class MoE(Contributed):
    """The k experts that a token's router_probs [T, E] are largest for: the sum of what they give, by their softmax.

    input [T, hidden] or [B, S, hidden]; an expert is activation(x @ W1ᵀ + b1) @ W2ᵀ + b2. normalize_routing_weights:
    the k factors of a token are divided by their sum. swiglu: g * sigmoid(alpha * g) * (l + beta) of columns g and l in
    turn, g no more than swiglu_limit, l within it. Of equal factors the later expert's counts first, as in onnxruntime,
    which passes over use_sparse_mixer, too.
    """

    activation_alpha: float = 1.0
    activation_beta: float = 0.0
    activation_type: str = "relu"
    k: int = 1
    normalize_routing_weights: bool = False
    swiglu_fusion: int = 0
    swiglu_limit: float | None = None
    use_sparse_mixer: bool = False

    def compose(
        self,
        parts: Parts,
        x: Value,
        router: Value,
        w1: Value,
        b1: Value | None,
        w2: Value,
        b2: Value | None = None,
        w3: Value | None = None,
        b3: Value | None = None,
    ) -> Value:
        if w3 is not None or b3 is not None:
            raise InferenceError("fc3_experts_weights are not supported: put them beside fc1's, with swiglu_fusion 1")
        self._check(x, router, w1, w2)
        rows = widened(parts, parts.add(Flatten(axis=len(x.shape) - 1), x))
        hidden = self._layer(parts, parts.add(Unsqueeze(), rows, numbers(parts, 0)), w1, b1)
        results = self._layer(parts, self._activated(parts, hidden), w2, b2)
        y = self._combined(parts, results, self._factors(parts, widened(parts, router)))
        return parts.add(Reshape(), as_type(parts, y, x.dtype), parts.add(Shape(), x))

    def _check(self, x: Value, router: Value, w1: Value, w2: Value) -> None:
        if len(x.shape) not in (2, 3) or len(router.shape) != 2 or len(w1.shape) != 3 or len(w2.shape) != 3:
            raise InferenceError(
                f"input {x.type}, router_probs {router.type}, weights {w1.type} and {w2.type}: [T, hidden] or "
                "[B, S, hidden], [T, experts], [experts, columns, hidden] and [experts, hidden, columns] are needed"
            )
        experts = router.shape[1]
        if self.k < 1 or (isinstance(experts, int) and self.k > experts):
            raise InferenceError(f"k is {self.k}: 1 to {experts}, as many as there are experts, are needed")
        if self.activation_type != "swiglu" and self.activation_type not in ACTIVATIONS:
            raise InferenceError(
                f"activation_type is {self.activation_type!r}; one of {', '.join((*ACTIVATIONS, 'swiglu'))} expected"
            )
        if self.activation_type == "swiglu" and self.swiglu_fusion != 1:
            raise InferenceError(f"swiglu_fusion is {self.swiglu_fusion}: only 1, columns in turn, is supported")

    def _factors(self, parts: Parts, router: Value) -> Value:
        """Each expert's factor for each token, [T, experts]; 0 for those that are not chosen."""
        probabilities = parts.add(Softmax(axis=1), router)
        backwards = [numbers(parts, number) for number in (-1, -LAST - 1, 1, -1)]
        turned = parts.add(Slice(), probabilities, *backwards)  # the later of equals first
        best, places = parts.add_many(TopK(axis=1), (turned, numbers(parts, self.k)), 2)
        if self.normalize_routing_weights:
            best = parts.add(Div(), best, parts.add(ReduceSum(), best, numbers(parts, 1)))
        zeros = parts.add(ConstantOfShape(), parts.add(Shape(), turned))
        return parts.add(Slice(), parts.add(ScatterElements(axis=1), zeros, places, best), *backwards)

    def _layer(self, parts: Parts, x: Value, weights: Value, bias: Value | None) -> Value:
        """What all experts make of x [experts or 1, T, size], [experts, T, columns]."""
        turned = parts.add(Transpose(perm=(0, 2, 1)), widened(parts, weights))
        y = parts.add(MatMul(), x, turned)
        if bias is None:
            return y
        return parts.add(Add(), y, parts.add(Unsqueeze(), widened(parts, bias), numbers(parts, 1)))

    def _activated(self, parts: Parts, x: Value) -> Value:
        if self.activation_type != "swiglu":
            activation = ACTIVATIONS[self.activation_type]
            return x if activation is None else parts.add(activation, x)
        gate, linear = (
            parts.add(Slice(), x, *(numbers(parts, number) for number in (first, LAST, 2, 2))) for first in (0, 1)
        )
        if self.swiglu_limit is not None:
            least, most = (of_type(parts, sign * self.swiglu_limit, x) for sign in (-1, 1))
            gate, linear = parts.add(Clip(), gate, None, most), parts.add(Clip(), linear, least, most)
        swish = parts.add(Swish(alpha=self.activation_alpha), gate)
        return parts.add(Mul(), swish, parts.add(Add(), linear, of_type(parts, self.activation_beta, x)))

    def _combined(self, parts: Parts, results: Value, factors: Value) -> Value:
        """The sum of results [experts, T, hidden] times factors [T, experts]; what is not chosen may be anything."""
        column = parts.add(Unsqueeze(), parts.add(Transpose(perm=(1, 0)), factors), numbers(parts, 2))
        zero = of_type(parts, 0.0, results)
        chosen = parts.add(Where(), parts.add(Greater(), column, zero), parts.add(Mul(), results, column), zero)
        return parts.add(ReduceSum(keepdims=False), chosen, numbers(parts, 0))


OPERATORS = (MoE,)
