"""Mixtures of experts: layers of which a router chooses a few for each token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.operator import DataDependentError, InferenceError
from jitonnx.ops.composite import Parts
from jitonnx.ops.microsoft.base import Contributed, of_type
from jitonnx.ops.microsoft.nbits import MatMulNBits, unpacked
from jitonnx.ops.onnx.activation import Gelu, Relu, Sigmoid, Swish
from jitonnx.ops.onnx.arithmetic import Add, Clip, Div, Log, Max, Mul
from jitonnx.ops.onnx.concat_split import Concat
from jitonnx.ops.onnx.gather import Gather, GatherElements
from jitonnx.ops.onnx.generators import ConstantOfShape
from jitonnx.ops.onnx.logic import Greater, Where
from jitonnx.ops.onnx.matmul import MatMul
from jitonnx.ops.onnx.reduction import ReduceSum
from jitonnx.ops.onnx.scatter import ScatterElements
from jitonnx.ops.onnx.selection import TopK
from jitonnx.ops.onnx.shape import Expand, Flatten, Reshape, Shape, Transpose, Unsqueeze
from jitonnx.ops.onnx.slice import Slice
from jitonnx.ops.onnx.softmax import Softmax
from jitonnx.ops.parts import as_type, numbers, widened
from jitonnx.support.records import NamedTuple

Layer = Callable[[Value], Value]
"""What all experts make of rows [experts or 1, T, size], [experts, T, columns]."""

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
    swiglu_limit_after_activation: bool = False
    use_sparse_mixer: bool = False

    among_chosen: ClassVar[bool] = False
    """Whether the softmax is over the k experts that are chosen, not over all."""

    def compose(  # noqa: PLR0913  (the operator's inputs)
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
        return self._mixed(
            parts,
            x,
            router,
            lambda rows: self._layer(parts, rows, w1, b1),
            lambda rows: self._layer(parts, rows, w2, b2),
        )

    def _mixed(self, parts: Parts, x: Value, router: Value, first: Layer, second: Layer) -> Value:
        rows = widened(parts, parts.add(Flatten(axis=len(x.shape) - 1), x))
        hidden = first(parts.add(Unsqueeze(), rows, numbers(parts, 0)))
        results = second(self._activated(parts, hidden))
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
        if self.swiglu_limit_after_activation:
            raise InferenceError("swiglu_limit_after_activation is not supported, as by onnxruntime on CPUs")
        if self.activation_type == "swiglu" and self.swiglu_fusion != 1:
            raise InferenceError(f"swiglu_fusion is {self.swiglu_fusion}: only 1, columns in turn, is supported")

    def _factors(self, parts: Parts, router: Value) -> Value:
        """Each expert's factor for each token, [T, experts]; 0 for those that are not chosen."""
        probabilities = router if self.among_chosen else parts.add(Softmax(axis=1), router)
        backwards = [numbers(parts, number) for number in (-1, -LAST - 1, 1, -1)]
        turned = parts.add(Slice(), probabilities, *backwards)  # the later of equals first
        best, places = parts.add_many(TopK(axis=1), (turned, numbers(parts, self.k)), 2)
        if self.among_chosen:
            best = parts.add(Softmax(axis=1), best)
        elif self.normalize_routing_weights:
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


class _Weights(NamedTuple):
    """A layer's weights [experts, columns, size * bits / 8] and what decodes them, all constants but the bias."""

    numbers: Any
    scales: Any
    zeros: Any
    bias: Any
    bits: int


class QMoE(MoE):
    """MoE of weights of 4 or 8 bits: (q - zero point) * scale, by columns, or by blocks of block_size along rows.

    The softmax is over the k experts that are chosen. Scales are [experts, columns] or [experts, columns, blocks],
    zero points, packed as weights are, [experts, columns * bits / 8] or [experts, columns, blocks * bits / 8].
    """

    accuracy_level: int = 0
    block_size: int | None = None
    expert_weight_bits: int = 4
    fc1_expert_weight_bits: int | None = None
    fc2_expert_weight_bits: int | None = None
    fc3_expert_weight_bits: int | None = None
    quant_type: str = "int"
    weights_prepacked: int = -1

    among_chosen = True

    def compose(self, parts: Parts, x: Value, router: Value, w1: Value, *others: Any) -> Value:
        s1, b1, w2, s2, b2, w3, s3, b3, z1, z2, z3, *more = (*others, *(None,) * 18)[:18]
        if self.quant_type != "int" or self.weights_prepacked > 0:
            raise InferenceError(
                f"quant_type is {self.quant_type!r}, weights_prepacked {self.weights_prepacked}: integers as they were "
                "quantised are supported"
            )
        if any(one is not None for one in (w3, s3, b3, z3, *more)):
            raise InferenceError("fc3's weights, router_weights and scales of activations are not supported")
        self._check(x, router, w1, w2)
        bits = (self.fc1_expert_weight_bits, self.fc2_expert_weight_bits)
        first, second = (
            _Weights(*given, each or self.expert_weight_bits)
            for given, each in zip(((w1, s1, z1, b1), (w2, s2, z2, b2)), bits, strict=True)
        )
        for name, layer in (("fc1", first), ("fc2", second)):
            if layer.bits not in (4, 8):
                raise InferenceError(f"weights of {name} have {layer.bits} bits; 4 and 8 are supported")
            if layer.scales is None:
                raise InferenceError(f"{name}_scales are missing")
            if any(one is not None and one.constant is None for one in layer[:3]):
                raise InferenceError(f"weights, scales and zero points of {name} have to be constants")
        return self._mixed(
            parts,
            x,
            router,
            lambda rows: self._decoded(parts, rows, first),
            lambda rows: self._decoded(parts, rows, second),
        )

    def _decoded(self, parts: Parts, x: Value, layer: _Weights) -> Value:
        experts, columns, packed = layer.numbers.constant.shape
        size = packed * 8 // layer.bits
        if self.block_size:
            return self._by_blocks(
                parts, x, layer, MatMulNBits(K=size, N=columns, block_size=self.block_size, bits=layer.bits)
            )
        elements = unpacked(layer.numbers.constant.reshape(experts * columns, -1), layer.bits).astype(np.float32)
        zeros: Any = np.float32(1 << (layer.bits - 1))
        if layer.zeros is not None:
            zeros = unpacked(layer.zeros.constant, layer.bits)[:, :columns].reshape(-1, 1).astype(np.float32)
        decoded = (elements - zeros) * layer.scales.constant.astype(np.float32).reshape(-1, 1)
        return self._layer(parts, x, parts.constant(decoded.reshape(experts, columns, size)), layer.bias)

    def _by_blocks(self, parts: Parts, x: Value, layer: _Weights, product: MatMulNBits) -> Value:
        """Each expert's product for itself, of weights as they are."""
        experts, results = layer.numbers.constant.shape[0], []
        for expert in range(experts):
            shape = (product.N, product.blocks, product.block_size * product.bits // 8)
            q = parts.constant(np.ascontiguousarray(layer.numbers.constant[expert]).reshape(shape))
            scales = parts.constant(layer.scales.constant[expert].reshape(-1).astype(np.float32))
            zeros = None if layer.zeros is None else parts.constant(layer.zeros.constant[expert].reshape(-1))
            rows = x if x.shape[0] == 1 else parts.add(Gather(axis=0), x, numbers(parts, expert))
            results.append(parts.add(product, rows, q, scales, zeros))
        y = parts.add(Concat(axis=0), *results)
        if layer.bias is None:
            return y
        return parts.add(Add(), y, parts.add(Unsqueeze(), widened(parts, layer.bias), numbers(parts, 1)))


class MoEGroupRouter(Contributed):
    """What a mixture of experts takes as router_probs [T, experts] of logits [..., experts]: log(max(s, 1e-20)) of
    s = sigmoid(logits) for the top_k experts by s + expert_bias, else router_sentinel.

    They are chosen out of topk_group of n_group groups: those whose group_topk largest have the largest sum. Or all of
    s + expert_bias and all of s, as selection_scores and router_weights. projection_weight [experts, width] makes the
    logits of what is given in their place, [T, width].
    """

    group_topk: int = 2
    n_group: int = 1
    router_sentinel: float = -10000.0
    top_k: int
    topk_group: int = 1

    def compose(self, parts: Parts, x: Value, bias: Value, projection: Value | None = None) -> tuple[Value, ...]:
        rows = as_type(parts, parts.add(Flatten(axis=len(x.shape) - 1), x), DType.FLOAT)
        if projection is not None:
            rows = parts.add(MatMul(), rows, parts.add(Transpose(perm=(1, 0)), as_type(parts, projection, DType.FLOAT)))
        weights = parts.add(Sigmoid(), rows)
        scores = parts.add(Add(), weights, bias)
        if not parts.wanted(0):
            return scores, scores, weights  # nobody reads the first
        places = parts.add_many(TopK(axis=1), (self._among(parts, scores), numbers(parts, self.top_k)), 2)[1]
        likely = parts.add(Max(), parts.add(GatherElements(axis=1), weights, places), of_type(parts, 1e-20, rows))
        others = parts.add(Expand(), of_type(parts, self.router_sentinel, rows), parts.add(Shape(), rows))
        y = parts.add(ScatterElements(axis=1), others, places, parts.add(Log(), likely))
        return as_type(parts, y, x.dtype), scores, weights

    def _among(self, parts: Parts, scores: Value) -> Value:
        """The scores [T, experts] of the groups that are chosen; of others the least there is."""
        experts = scores.shape[1]
        if not isinstance(experts, int):
            raise DataDependentError(f"how large a group is depends on {scores.type}")
        if min(self.n_group, self.topk_group, self.top_k, self.group_topk) < 1 or experts % self.n_group:
            raise InferenceError(
                f"{experts} experts, n_group {self.n_group}, topk_group {self.topk_group}, top_k {self.top_k}, "
                f"group_topk {self.group_topk}: n_group groups of one size, and at least one of each are needed"
            )
        size = experts // self.n_group
        if self.topk_group > self.n_group or self.top_k > self.topk_group * size:
            raise InferenceError(
                f"top_k {self.top_k} of {self.topk_group} groups of {size} experts, of {self.n_group}: there are fewer"
            )
        if self.topk_group == self.n_group:
            return scores
        groups = parts.add(Reshape(), scores, numbers(parts, 0, self.n_group, size))
        largest = parts.add_many(TopK(axis=2), (groups, numbers(parts, min(self.group_topk, size))), 2)[0]
        sums = parts.add(ReduceSum(keepdims=False), largest, numbers(parts, 2))
        best = parts.add_many(TopK(axis=1), (sums, numbers(parts, self.topk_group)), 2)[1]
        kept = parts.add(
            ScatterElements(axis=1),
            parts.add(ConstantOfShape(), parts.add(Shape(), sums)),
            best,
            parts.add(Expand(), of_type(parts, 1.0, sums), parts.add(Shape(), best)),
        )
        there = parts.add(Unsqueeze(), parts.add(Greater(), kept, of_type(parts, 0.0, kept)), numbers(parts, 2))
        masked = parts.add(Where(), there, groups, of_type(parts, -np.inf, groups))
        return parts.add(Reshape(), masked, numbers(parts, 0, -1))
