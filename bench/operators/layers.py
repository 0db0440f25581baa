"""Cases that are layers of networks: convolutions, products, attention, normalisations, recurrent layers, losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from bench.operators.net import PREVIEW, Build, Net, Shape, newest, op


def activated(net: Net, y: str, then: str) -> str:
    """`then`: an activation behind a product or convolution, as exporters write it; "" for none."""
    if then == "silu":
        return net.node("Mul", y, net.node("Sigmoid", y))
    if then == "relu6":
        return net.node("Clip", y, net.constant(0, "float32"), net.constant(6, "float32"))
    if then == "gelu":
        root = net.node("Div", y, net.constant(2**0.5, "float32"))
        factor = net.node("Add", net.node("Erf", root), net.constant(1, "float32"))
        return net.node("Mul", net.node("Mul", y, factor), net.constant(0.5, "float32"))
    return net.node(then, y) if then else y


# ---------------------------------------------------------------- convolution


def conv(
    shape: Shape,
    filters: int,
    kernel: int,
    stride: int = 1,
    dilation: int = 1,
    groups: int = 1,
    pad: int | None = None,
    then: str = "Relu",
    residual: bool = False,
) -> Build:
    """Convolution of [N, C, *sizes] with a bias, its size kept (or divided by the stride) unless `pad` is given."""
    axes = len(shape) - 2
    pad = dilation * (kernel - 1) // 2 if pad is None else pad

    def build(net: Net) -> str:
        x = net.feed(shape)
        weights = net.weight(filters, shape[1] // groups, *[kernel] * axes)
        y = net.node(
            "Conv",
            x,
            weights,
            net.weight(filters),
            kernel_shape=[kernel] * axes,
            strides=[stride] * axes,
            dilations=[dilation] * axes,
            pads=[pad] * 2 * axes,
            group=groups,
        )
        if residual:
            y = net.node("Add", y, net.feed((shape[0], filters, *(size // stride for size in shape[2:]))))
        return activated(net, y, then)

    return build


def depthwise(shape: Shape, kernel: int, stride: int = 1, then: str = "relu6") -> Build:
    """A convolution with a filter for each channel."""
    return conv(shape, shape[1], kernel, stride, groups=shape[1], then=then)


def conv_transpose(shape: Shape, filters: int, kernel: int, stride: int, pad: int = 0) -> Build:
    def build(net: Net) -> str:
        weights = net.weight(shape[1], filters, kernel, kernel)
        sizes = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
        return net.node("ConvTranspose", net.feed(shape), weights, net.weight(filters), **sizes)

    return build


def squeeze_excite(channels: int, size: int, squeezed: int) -> Build:
    """The block of MobileNetV3 and EfficientNet: channels weighted by what their means say."""

    def build(net: Net) -> str:
        x = net.feed((1, channels, size, size))
        mean = net.node("GlobalAveragePool", x)
        inner = net.node("Conv", mean, net.weight(squeezed, channels, 1, 1), net.weight(squeezed))
        outer = net.node("Conv", activated(net, inner, "silu"), net.weight(channels, squeezed, 1, 1))
        return net.node("Mul", x, net.node("Sigmoid", outer))

    return build


# ---------------------------------------------------------------- products


def dense(rows: Shape, inner: int, columns: int, then: str = "", bias: bool = True, residual: bool = False) -> Build:
    """[*rows, inner] @ constant [inner, columns], and what follows in a transformer."""

    def build(net: Net) -> str:
        y = net.node("MatMul", net.feed((*rows, inner)), net.weight(inner, columns))
        if bias:
            y = net.node("Add", y, net.weight(columns))
        if residual:
            y = net.node("Add", y, net.feed((*rows, columns)))
        return activated(net, y, then)

    return build


def gemm(rows: int, inner: int, columns: int, then: str = "") -> Build:
    """Gemm with weights as PyTorch's Linear has them: [columns, inner], transposed by the node."""

    def build(net: Net) -> str:
        y = net.node("Gemm", net.feed((rows, inner)), net.weight(columns, inner), net.weight(columns), transB=1)
        return activated(net, y, then)

    return build


# ---------------------------------------------------------------- attention


def attention(
    heads: int, queries: int, size: int, keys: int | None = None, batch: int = 1, mask: str = "", packed: bool = False
) -> Build:
    """softmax(q @ kᵀ / √size + mask) @ v as exporters write it.

    mask: "" none; "padding" [batch, 1, 1, keys] added; "causal" a constant triangle, chosen by Where.
    packed: q, k and v are [batch, sequence, heads * size], are reshaped and transposed first, and the result back.
    """
    keys = keys or queries

    def split(net: Net, rows: int, order: Sequence[int]) -> str:
        x = net.feed((batch, rows, heads * size))
        return net.node("Transpose", net.node("Reshape", x, net.integers(batch, rows, heads, size)), perm=order)

    def build(net: Net) -> str:
        if packed:
            q, kt = split(net, queries, (0, 2, 1, 3)), split(net, keys, (0, 2, 3, 1))
            v = split(net, keys, (0, 2, 1, 3))
        else:
            q, k, v = (net.feed((batch, heads, rows, size)) for rows in (queries, keys, keys))
            kt = net.node("Transpose", k, perm=[0, 1, 3, 2])
        scores = net.node("Div", net.node("MatMul", q, kt), net.constant(size**0.5, "float32"))
        if mask == "padding":
            scores = net.node("Add", scores, net.feed((batch, 1, 1, keys)))
        elif mask == "causal":
            triangle = net.constant(np.tri(queries, keys, keys - queries, dtype=bool)[None, None])
            scores = net.node("Where", triangle, scores, net.constant(np.finfo(np.float32).min))
        y = net.node("MatMul", net.node("Softmax", scores, axis=-1), v)
        if packed:
            y = net.node("Transpose", y, perm=[0, 2, 1, 3])
            y = net.node("Reshape", y, net.integers(batch, queries, heads * size))
        return y

    return build


def attention_node(q: Shape, kv: Shape, **attributes: Any) -> Build:
    """ONNX's own Attention on [batch, heads, sequence, size]."""
    return op("Attention", q, kv, kv, **attributes)


def linear_attention(steps: int, rule: str, heads: int = 8, size: int = 64) -> Build:
    """LinearAttention of one sequence, from a state on."""

    def build(net: Net) -> list[str]:
        rows = (1, steps, heads * size)
        q, k, v = (net.feed(rows, -0.1, 0.1) for _ in range(3))
        state = net.feed((1, heads, size, size), -0.1, 0.1)
        decay = net.feed((1, steps, heads), -1, 0) if "gated" in rule else ""
        beta = net.feed((1, steps, heads), 0, 1) if "delta" in rule else ""
        inputs = [q, k, v, state, decay, beta]
        while not inputs[-1]:
            inputs.pop()
        return net.nodes_outputs("LinearAttention", 2, *inputs, q_num_heads=heads, kv_num_heads=heads, update_rule=rule)

    return newest(build)


def causal_conv(channels: int, length: int, kernel: int = 4) -> Build:
    """CausalConvWithState with SiLU, behind a state."""

    def build(net: Net) -> list[str]:
        x, state = net.feed((1, channels, length)), net.feed((1, channels, kernel - 1))
        inputs = x, net.weight(channels, 1, kernel), net.weight(channels), state
        return net.nodes_outputs("CausalConvWithState", 2, *inputs, activation="silu")

    return newest(build)


def flex_attention(heads: int, length: int, size: int) -> Build:
    """FlexAttention whose scores are capped by a tanh, as some language models do it."""

    def build(net: Net) -> str:
        q, k, v = (net.feed((1, heads, length, size)) for _ in range(3))
        nodes = [
            helper.make_node("Constant", [], ["cap"], value_float=30.0),
            helper.make_node("Div", ["score", "cap"], ["part"]),
            helper.make_node("Tanh", ["part"], ["bent"]),
            helper.make_node("Mul", ["bent", "cap"], ["capped"]),
        ]
        given, made = (
            [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [None] * 4)] for name in ("score", "capped")
        )
        graph = helper.make_graph(nodes, "score_mod", given, made)
        return net.node("FlexAttention", q, k, v, domain=PREVIEW, score_mod=graph)

    return newest(build)


def rotary_embedding(heads: int, length: int, size: int) -> Build:
    """RotaryEmbedding of [1, heads, length, size] by tables of as many positions."""

    def build(net: Net) -> str:
        cos, sin = (net.constant(np.cos(np.arange(length * size // 2).reshape(length, -1) / 99 + n)) for n in (0, 1))
        for name in (cos, sin):
            net.weights[name] = net.weights[name].astype(np.float32)
        positions = net.constant(np.arange(length)[None], "int64")
        return net.node("RotaryEmbedding", net.feed((1, heads, length, size)), cos, sin, positions)

    return build


# ---------------------------------------------------------------- quantisation


def quantize(shape: Shape) -> Build:
    """QuantizeLinear to uint8, one scale for all."""
    return lambda net: net.node(
        "QuantizeLinear", net.feed(shape), net.constant(0.02, "float32"), net.constant(128, "uint8")
    )


def dequantize(shape: Shape) -> Build:
    """DequantizeLinear of uint8, one scale for all."""
    return lambda net: net.node(
        "DequantizeLinear", net.feed(shape, 0, 256, "uint8"), net.constant(0.02, "float32"), net.constant(128, "uint8")
    )


def integers_alone(operator: str, shape: Shape, weights: Shape, **attributes: Any) -> Build:
    """MatMulInteger or ConvInteger of uint8 with a zero point and constant int8 weights, to int32."""

    def build(net: Net) -> str:
        x, _, zero = _uint8(net, shape)
        return net.node(operator, x, _int8_weights(net, *weights), zero, **attributes)

    return build


def integer_product(rows: int, depth: int, columns: int) -> Build:
    """A matrix of uint8 times constant int8 weights with a scale for each column, to uint8."""

    def build(net: Net) -> str:
        weights = _int8_weights(net, depth, columns)
        scales = net.constant(np.linspace(1, 2, columns) / depth, "float32")
        return net.node("QLinearMatMul", *_uint8(net, (rows, depth)), weights, scales, *_zeros(net, columns))

    return build


def integer_conv(shape: Shape, outputs: int, kernel: int, stride: int = 1) -> Build:
    """A convolution of an image of uint8, channels-last in memory as between layers, with constant int8 weights and a
    scale for each channel, to uint8."""

    def build(net: Net) -> str:
        taps = (outputs, shape[1], kernel, kernel)
        images, channels, height, width = shape
        x, *rest = _uint8(net, (images, height, width, channels))
        x = net.node("Transpose", x, perm=[0, 3, 1, 2])
        scales = net.constant(np.linspace(1, 2, outputs) / int(np.prod(taps[1:])), "float32")
        inputs = (x, *rest, _int8_weights(net, *taps), scales, *_zeros(net, outputs))
        padding = {"pads": [kernel // 2] * 4, "strides": [stride] * 2}
        y = net.node("QLinearConv", *inputs, net.constant(np.zeros(outputs), "int32"), **padding)
        return net.node("Transpose", y, perm=[0, 2, 3, 1])

    return build


def _uint8(net: Net, shape: Shape) -> tuple[str, str, str]:
    """An input with its scale and zero point."""
    return net.feed(shape, 0, 256, "uint8"), net.constant(0.02, "float32"), net.constant(120, "uint8")


def _int8_weights(net: Net, *shape: int) -> str:
    return net.constant(np.random.default_rng(1).integers(-127, 128, shape), "int8")


def _zeros(net: Net, columns: int) -> tuple[str, str, str]:
    """The zero points of weights; scale and zero point of a result."""
    return net.constant(np.zeros(columns), "int8"), net.constant(0.05, "float32"), net.constant(128, "uint8")


# ---------------------------------------------------------------- normalisation


def layer_norm(*shape: int, written_out: bool = False, residual: bool = False) -> Build:
    """LayerNormalization of the last axis; `written_out`: as exporters wrote it before operator set 17."""
    size = shape[-1]

    def build(net: Net) -> str:
        x = net.feed(shape)
        if residual:
            x = net.node("Add", x, net.feed(shape))
        scale, bias = net.weight(size), net.weight(size)
        if not written_out:
            return net.node("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-5)
        centred = net.node("Sub", x, net.node("ReduceMean", x, net.integers(-1)))
        squares = net.node("Pow", centred, net.constant(2, "float32"))
        variance = net.node("ReduceMean", squares, net.integers(-1))
        root = net.node("Sqrt", net.node("Add", variance, net.constant(1e-5, "float32")))
        return net.node("Add", net.node("Mul", net.node("Div", centred, root), scale), bias)

    return build


def scaled(operator: str, shape: Shape, biased: bool = True, **attributes: Any) -> Build:
    """A normalisation with a scale, and a bias, for each channel (axis 1; the last of RMSNormalization)."""
    channels = shape[-1] if operator == "RMSNormalization" else shape[1]

    def build(net: Net) -> str:
        parameters = [net.weight(channels), *([net.weight(channels)] if biased else [])]
        return net.node(operator, net.feed(shape), *parameters, **attributes)

    return build


def batch_norm(shape: Shape, then: str = "") -> Build:
    def build(net: Net) -> str:
        channels = np.linspace(0.5, 1.5, shape[1], dtype=np.float32)
        parameters = [net.constant(channels) for _ in range(4)]
        return activated(net, net.node("BatchNormalization", net.feed(shape), *parameters), then)

    return build


# ---------------------------------------------------------------- recurrent layers


def recurrent(
    operator: str,
    steps: int,
    batch: int,
    inputs: int,
    hidden: int,
    both: bool = False,
    longest: int | None = None,
    **more: int,
) -> Build:
    """LSTM, GRU or RNN over [steps, batch, inputs]; `both`: in both directions. All its outputs are made.

    longest: sequences have lengths of their own, so many steps and fewer; None: all go through all steps.
    """
    gates, directions = {"LSTM": 4, "GRU": 3, "RNN": 1}[operator], 2 if both else 1

    def build(net: Net) -> list[str]:
        weights = net.weight(directions, gates * hidden, inputs), net.weight(directions, gates * hidden, hidden)
        return net.nodes_outputs(
            operator,
            3 if operator == "LSTM" else 2,
            net.feed((steps, batch, inputs)),
            *weights,
            net.weight(directions, 2 * gates * hidden),
            "" if longest is None else net.feed_array(np.linspace(longest, 1, batch).astype(np.int32)),
            hidden_size=hidden,
            direction="bidirectional" if both else "forward",
            **more,
        )

    return build


# ---------------------------------------------------------------- losses


def loss(operator: str, *shape: int, weighted: bool = False, **attributes: Any) -> Build:
    """A loss of scores or logarithms [N, C, d...]; weighted: with weights and a class that is ignored."""

    def build(net: Net) -> str:
        target = net.feed((shape[0], *shape[2:]), 0, shape[1], "int64")
        others = [net.feed(shape[1:2], 0)] if weighted else []
        ignored = {"ignore_index": 0} if weighted else {}
        return net.node(operator, net.feed(shape), target, *others, **ignored, **attributes)

    return build
