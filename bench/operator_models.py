"""How the small models of `bench.operators` are made: one operator, or a few that exporters write together.

A function here returns a `Build`, which adds nodes to a `Net` and says what comes out. Inputs and weights are drawn
from fixed seeds, so that a build is the same model with the same feeds every time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import helper, numpy_helper

from jitonnx.model import load

OPSET = 23
"""The operator set of cases: the newest that onnxruntime has most kernels for."""
IR_VERSION = 10
ML, PREVIEW, TRAINING, MICROSOFT = "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training", "com.microsoft"
DOMAINS = {ML: 3, PREVIEW: 1, TRAINING: 1, MICROSOFT: 1}
"""The operator sets of other domains."""

Build: TypeAlias = "Callable[[Net], str | list[str]]"
"""Adds nodes and returns the outputs' names."""
Shape: TypeAlias = Sequence[int]


class Net:
    """A model in the making, and what to feed it."""

    def __init__(self) -> None:
        self.feeds: dict[str, np.ndarray] = {}
        self.weights: dict[str, np.ndarray] = {}
        self.nodes: list[onnx.NodeProto] = []
        self.opset, self.versions = OPSET, dict(DOMAINS)
        self.picked: str | None = None
        """An input or weight of which no more is read than comes out: what Gather or Slice picks from."""
        self._random = np.random.default_rng(0)

    def feed(self, shape: Shape, low: float | None = None, high: float = 1.0, dtype: str = "float32") -> str:
        """An input of values from the standard normal distribution, or evenly from [low, high)."""
        return self.feed_array(self._draw(shape, low, high, dtype))

    def feed_array(self, array: np.ndarray) -> str:
        """An input with this value."""
        name = f"x{len(self.feeds)}"
        self.feeds[name] = array
        return name

    def weight(self, *shape: int, dtype: str = "float32") -> str:
        """A constant of random values, small enough for sums over its rows to stay near 1."""
        fan_in = int(np.prod(shape[1:])) if len(shape) > 1 else 1
        return self.constant(self._draw(shape, None, 1.0, dtype) / np.asarray(fan_in**0.5, dtype))

    def constant(self, value: Any, dtype: str | None = None) -> str:
        """A constant: an array, a list or a number."""
        name = f"w{len(self.weights)}"
        self.weights[name] = np.asarray(value, dtype)
        return name

    def integers(self, *values: int) -> str:
        """A constant int64 vector: axes, sizes, splits."""
        return self.constant(values, "int64")

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output; an absent input is ''. Returns the output's name."""
        return self.nodes_outputs(operator, 1, *inputs, **attributes)[0]

    def nodes_outputs(self, operator: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        """Add a node with `count` outputs."""
        outputs = [f"y{len(self.nodes)}_{number}" for number in range(count)]
        self.nodes.append(helper.make_node(operator, inputs, outputs, **attributes))
        return outputs

    def model(self, outputs: str | list[str]) -> onnx.ModelProto:
        """The finished model, checked, with every value's shape inferred."""
        names = [outputs] if isinstance(outputs, str) else outputs
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in self.feeds.items()
        ]
        weights = [numpy_helper.from_array(array, name) for name, array in self.weights.items()]
        results = [onnx.ValueInfoProto(name=name) for name in names]
        graph = helper.make_graph(self.nodes, "case", inputs, results, weights)
        opsets = [helper.make_opsetid("", self.opset)]
        domains = sorted({node.domain for node in self.nodes} - {""})
        opsets += [helper.make_opsetid(domain, self.versions[domain]) for domain in domains]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
        typed = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
        if any(not info.type.tensor_type.HasField("shape") for info in typed.graph.output):  # ONNX infers none
            for info, value in zip(typed.graph.output, load(model.SerializeToString()).graph.outputs, strict=True):
                sizes = [size if isinstance(size, int) else None for size in value.shape]
                info.CopyFrom(helper.make_tensor_value_info(info.name, value.dtype, sizes))
        return typed

    def _draw(self, shape: Shape, low: float | None, high: float, dtype: str) -> np.ndarray:
        if low is None:
            return self._random.standard_normal(shape, np.float32).astype(dtype)
        if np.dtype(dtype).kind in "iub":
            return self._random.integers(int(low), int(high), shape).astype(dtype)
        return self._random.uniform(low, high, shape).astype(dtype)


# ---------------------------------------------------------------- shorthand


def op(operator: str, *shapes: Shape, low: float | None = None, high: float = 1.0, **attributes: Any) -> Build:
    """One operator over float32 inputs of these shapes."""
    return lambda net: net.node(operator, *(net.feed(shape, low, high) for shape in shapes), **attributes)


def typed(operator: str, dtype: str, *shapes: Shape, low: float = 0, high: float = 100, **attributes: Any) -> Build:
    """One operator over inputs of another element type, evenly from [low, high)."""
    return lambda net: net.node(operator, *(net.feed(shape, low, high, dtype) for shape in shapes), **attributes)


def with_integers(operator: str, shape: Shape, *lists: Sequence[int], **attributes: Any) -> Build:
    """One operator over a float32 input with constant int64 vectors behind it: axes, sizes, repeats."""
    return lambda net: net.node(operator, net.feed(shape), *(net.integers(*values) for values in lists), **attributes)


def positive(operator: str, shape: Shape, axes: Sequence[int]) -> Build:
    """A reduction of numbers from [0, 1)."""
    return lambda net: net.node(operator, net.feed(shape, 0), net.integers(*axes))


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


def in_opset(version: int, build: Build) -> Build:
    """The model in another operator set."""

    def other(net: Net) -> str | list[str]:
        net.opset = version
        return build(net)

    return other


def before_22(build: Build) -> Build:
    """The model in operator set 21: onnxruntime lacks some operators in 22, which changed them in types alone."""
    return in_opset(21, build)


def newest(build: Build) -> Build:
    """The model in ONNX's newest operator set."""
    return in_opset(onnx.defs.onnx_opset_version(), build)


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


# ---------------------------------------------------------------- numbers chosen


def unique(count: int, different: int, outputs: int) -> Build:
    """Unique of `count` numbers, of which no more than so many are different."""

    def build(net: Net) -> list[str]:
        x = net.feed_array(np.random.default_rng(2).integers(0, different, count).astype(np.float32))
        return net.nodes_outputs("Unique", outputs, x)

    return build


def suppression(boxes: int, classes: int) -> Build:
    """NonMaxSuppression of boxes of an image, of which it keeps up to 100 of each class."""

    def build(net: Net) -> str:
        corners = np.random.default_rng(3).uniform(0, 500, (1, boxes, 2))
        sizes = np.random.default_rng(4).uniform(10, 120, (1, boxes, 2))
        given = np.concatenate([corners, corners + sizes], 2).astype(np.float32)
        limits = net.constant([100], "int64"), net.constant([0.5], "float32"), net.constant([0.2], "float32")
        return net.node("NonMaxSuppression", net.feed_array(given), net.feed((1, classes, boxes), 0), *limits)

    return build


def compress(rows: int, columns: int) -> Build:
    """About every second row."""
    return lambda net: net.node("Compress", net.feed((rows, columns)), net.feed((rows,), 0, 2, "bool"), axis=0)


def fed_range(count: int, dtype: str) -> Build:
    """Range of 0 to `count`, whose start, limit and delta are fed."""
    return lambda net: net.node("Range", *(net.feed_array(np.array(value, dtype)) for value in (0, count, 1)))


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


# ---------------------------------------------------------------- signals


def fourier(rows: int, length: int) -> Build:
    """DFT of real rows, half of which is given."""
    return lambda net: net.node("DFT", net.feed((rows, length, 1)), "", net.constant(-2, "int64"), onesided=1)


def short_time_fourier(length: int, frame: int, step: int) -> Build:
    """STFT of one signal under a window."""

    def build(net: Net) -> str:
        window = net.constant(np.hanning(frame), "float32")
        given = net.feed((1, length, 1)), net.constant(step, "int64"), window, net.constant(frame, "int64")
        return net.node("STFT", *given, onesided=1)

    return build


def mel_weights(bands: int, length: int) -> Build:
    """MelWeightMatrix of so many bands for a transform of `length`; the sample rate and the bounds are fed."""

    def build(net: Net) -> str:
        sizes = [net.constant(value, "int64") for value in (bands, length)]
        given = (16000, np.float32(0), np.float32(8000))
        return net.node("MelWeightMatrix", *sizes, *(net.feed_array(np.array(value)) for value in given))

    return build


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


# ---------------------------------------------------------------- moving elements


def gather(data: Shape, indices: Shape, axis: int = 0) -> Build:
    """Gather from a constant table."""

    def build(net: Net) -> str:
        net.picked = net.weight(*data)
        return net.node("Gather", net.picked, net.feed(indices, 0, data[axis], "int64"), axis=axis)

    return build


def gather_nd(data: Shape, count: int, width: int) -> Build:
    def build(net: Net) -> str:
        net.picked = net.feed(data)
        tuples = np.random.default_rng(1).integers(0, data[:width], (count, width))
        return net.node("GatherND", net.picked, net.feed_array(tuples))

    return build


def gather_elements(shape: Shape, axis: int) -> Build:
    return lambda net: net.node("GatherElements", net.feed(shape), net.feed(shape, 0, shape[axis], "int64"), axis=axis)


def scatter_nd(shape: Shape, rows: int) -> Build:
    """Whole rows of the first axis replaced: each once."""

    def build(net: Net) -> str:
        places = np.random.default_rng(1).permutation(shape[0])[:rows, None]
        return net.node("ScatterND", net.feed(shape), net.feed_array(places), net.feed((rows, *shape[1:])))

    return build


def scatter_elements(shape: Shape, axis: int, operator: str = "ScatterElements") -> Build:
    """Every element of the result written, in another order along `axis`."""

    def build(net: Net) -> str:
        order = np.argsort(np.random.default_rng(1).random(shape), axis)
        return net.node(operator, net.feed(shape), net.feed_array(order), net.feed(shape), axis=axis)

    return build


def tensor_scatter(length: int, new: int) -> Build:
    """So many rows written into a cache of `length`, of 12 heads of size 64."""

    def build(net: Net) -> str:
        given = net.feed((1, 12, length, 64)), net.feed((1, 12, new, 64)), net.feed_array(np.array([100]))
        return net.node("TensorScatter", *given)

    return build


def slice_(shape: Shape, starts: Sequence[int], ends: Sequence[int], steps: Sequence[int]) -> Build:
    """Slice of the last axes."""

    def build(net: Net) -> str:
        axes = range(len(shape) - len(starts), len(shape))
        net.picked = net.feed(shape)
        return net.node("Slice", net.picked, *(net.integers(*values) for values in (starts, ends, axes, steps)))

    return build


def split(shape: Shape, parts: int, axis: int) -> Build:
    return lambda net: net.nodes_outputs("Split", parts, net.feed(shape), axis=axis, num_outputs=parts)


def resize(shape: Shape, scale: float, mode: str, **attributes: Any) -> Build:
    """Height and width by `scale`."""

    def build(net: Net) -> str:
        scales = net.constant([1, 1, scale, scale], "float32")
        return net.node("Resize", net.feed(shape), "", scales, mode=mode, **attributes)

    return build


def top_k(shape: Shape, count: int) -> Build:
    return lambda net: net.nodes_outputs("TopK", 2, net.feed(shape), net.integers(count), axis=-1)


def cast(dtype: str, target: str, shape: Shape) -> Build:
    to = helper.np_dtype_to_tensor_dtype(np.dtype(target))
    return lambda net: net.node("Cast", net.feed(shape, -100, 100, dtype), to=to)


def where(shape: Shape) -> Build:
    return lambda net: net.node("Where", net.feed(shape, 0, 2, "bool"), net.feed(shape), net.feed(shape))


def prelu(shape: Shape) -> Build:
    return lambda net: net.node("PRelu", net.feed(shape), net.weight(shape[1], 1, 1))


def clip(shape: Shape) -> Build:
    return lambda net: activated(net, net.feed(shape), "relu6")


def chain(then: str, shape: Shape) -> Build:
    """An activation that exporters spell out."""
    return lambda net: activated(net, net.feed(shape), then)


def tanh_gelu(shape: Shape) -> Build:
    """Gelu by tanh as GPT-2 spells it out."""

    def build(net: Net) -> str:
        x = net.feed(shape)
        cube = net.node("Pow", x, net.constant(3, "float32"))
        sum_ = net.node("Add", x, net.node("Mul", cube, net.constant(0.044715, "float32")))
        tanh = net.node("Tanh", net.node("Mul", sum_, net.constant((2 / np.pi) ** 0.5, "float32")))
        half = net.node("Mul", x, net.constant(0.5, "float32"))
        return net.node("Mul", half, net.node("Add", tanh, net.constant(1, "float32")))

    return build


def power(shape: Shape, exponent: float) -> Build:
    return lambda net: net.node("Pow", net.feed(shape, 0.1, 4.0), net.constant(exponent, "float32"))


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


# ---------------------------------------------------------------- images sampled, regions, blocks


def grid_sample(image: Shape, points: Shape, **attributes: Any) -> Build:
    """An image sampled at a grid that is a little bent; points outside are few."""

    def build(net: Net) -> str:
        axes = [np.linspace(-1, 1, size) for size in points]
        grid = np.stack(np.meshgrid(*axes, indexing="ij")[::-1], -1)
        bent = grid + np.random.default_rng(1).normal(size=(image[0], *grid.shape)) * 0.05
        return net.node("GridSample", net.feed(image), net.feed_array(bent.astype(np.float32)), **attributes)

    return build


def affine_grid(images: int, *size: int) -> Build:
    return lambda net: net.node("AffineGrid", net.feed((images, 2, 3)), net.integers(images, 3, *size))


def deform_conv(shape: Shape, filters: int, groups: int = 1) -> Build:
    """A 3x3 convolution of the image's size, modulated."""

    def build(net: Net) -> str:
        images, channels, *size = shape
        x, weights = net.feed(shape), net.weight(filters, channels, 3, 3)
        offsets, mask = net.feed((images, 18 * groups, *size)), net.feed((images, 9 * groups, *size), 0)
        return net.node(
            "DeformConv", x, weights, offsets, net.weight(filters), mask, pads=[1, 1, 1, 1], offset_group=groups
        )

    return build


def roi_align(shape: Shape, regions: int, size: int, then: str = "", **attributes: Any) -> Build:
    """Regions of an image of 16 times the size of the feature map. then: the image is that of a 1x1 convolution."""

    def build(net: Net) -> str:
        x = net.feed(shape)
        if then == "Conv":
            x = net.node("Conv", x, net.weight(shape[1], shape[1], 1, 1))
        random = np.random.default_rng(1)
        corners = np.sort(random.uniform(0, 1, (regions, 2, 2)), axis=1) * [shape[3] * 16, shape[2] * 16]
        rois = net.feed_array(corners.reshape(regions, 4).astype(np.float32))
        images = net.feed_array(random.integers(0, shape[0], regions))
        options = {"spatial_scale": 1 / 16, "output_height": size, "output_width": size, **attributes}
        return net.node("RoiAlign", x, rois, images, **options)

    return build


def max_roi_pool(shape: Shape, regions: int, size: int) -> Build:
    """Do what `roi_align` does, with one image."""

    def build(net: Net) -> str:
        corners = np.sort(np.random.default_rng(1).uniform(0, 1, (regions, 2, 2)), axis=1)
        rois = np.pad((corners * [shape[3] * 16, shape[2] * 16]).reshape(regions, 4), ((0, 0), (1, 0)))
        options = {"spatial_scale": 1 / 16, "pooled_shape": [size, size]}
        return net.node("MaxRoiPool", net.feed(shape), net.feed_array(rois.astype(np.float32)), **options)

    return build


def col2im(images: int, channels: int, size: int, block: int, step: int, pad: int) -> Build:
    def build(net: Net) -> str:
        count = ((size + 2 * pad - block) // step + 1) ** 2
        x = net.feed((images, channels * block * block, count))
        windows = {"strides": [step] * 2, "pads": [pad] * 4}
        return net.node("Col2Im", x, net.integers(size, size), net.integers(block, block), **windows)

    return build


def max_unpool(*shape: int) -> Build:
    """What a 2x2 pool took is put back."""

    def build(net: Net) -> str:
        images, channels, height, width = shape
        places = np.random.default_rng(1).integers(0, 2, (2, *shape)) + 2 * np.indices((height, width))[:, None, None]
        planes = np.arange(images * channels).reshape(images, channels, 1, 1)
        indices = (planes * 2 * height + places[0]) * 2 * width + places[1]
        return net.node("MaxUnpool", net.feed(shape), net.feed_array(indices), kernel_shape=[2, 2], strides=[2, 2])

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


def learned(
    operator: str, rows: int, columns: int, outputs: int = 1, low: float | None = None, **attributes: Any
) -> Build:
    """An operator of ai.onnx.ml over rows of features, from the standard normal distribution or whole from [low, 9)."""

    def build(net: Net) -> list[str]:
        x = net.feed((rows, columns)) if low is None else net.feed((rows, columns), low, 9, "int64")
        return net.nodes_outputs(operator, outputs, x, domain=ML, **attributes)

    return build


def coefficients(*shape: int) -> list[float]:
    """Learned numbers, small enough for sums over the last axis to stay near 1."""
    drawn = np.random.default_rng(1).standard_normal(shape) / shape[-1] ** 0.5
    return [float(number) for number in drawn.ravel()]


def support_vectors(count: int, columns: int, kernel: str, classes: int = 0) -> dict[str, Any]:
    """The attributes of a support vector machine of so many vectors; of a regression without classes."""
    found: dict[str, Any] = {
        "kernel_type": kernel,
        "kernel_params": [1 / columns, 0.5, 3.0],
        "support_vectors": coefficients(count, columns),
    }
    if not classes:
        return {**found, "coefficients": coefficients(1, count), "rho": [0.3], "n_supports": count}
    pairs = classes * (classes - 1) // 2
    return {
        **found,
        "classlabels_ints": list(range(classes)),
        "coefficients": coefficients(classes - 1, count),
        "rho": coefficients(1, pairs),
        "vectors_per_class": [count // classes] * classes,
    }


def chosen_features(rows: int, columns: int, count: int) -> Build:
    """ArrayFeatureExtractor of `count` columns."""

    def build(net: Net) -> str:
        places = net.constant(np.arange(count) * 5 % columns, "int64")
        return net.node("ArrayFeatureExtractor", net.feed((rows, columns)), places, domain=ML)

    return build


def joined_features(rows: int, widths: Sequence[int]) -> Build:
    def build(net: Net) -> str:
        parts = (net.feed((rows, width)) for width in widths)
        return net.node("FeatureVectorizer", *parts, domain=ML, inputdimensions=list(widths))

    return build


def forest(operator: str, rows: int, columns: int, trees: int, depth: int) -> Build:
    """Full trees of `depth` levels of comparisons; scores are sums of leaves, a classifier has two classes."""
    inner, leaves = 2**depth - 1, 2**depth
    nodes = inner + leaves
    random = np.random.default_rng(1)
    splits = random.standard_normal((trees, nodes)).astype(np.float32)
    features = random.integers(0, columns, (trees, nodes))
    weights = (random.standard_normal((trees, leaves)) / trees).astype(np.float32)
    number = np.arange(nodes)

    def build(net: Net) -> str | list[str]:
        x = net.feed((rows, columns))
        if operator == "TreeEnsemble":
            net.versions[ML] = 5
            return net.node(operator, x, domain=ML, **_forest_of_5(trees, depth, splits, features, weights))
        kind = "class" if operator == "TreeEnsembleClassifier" else "target"
        attributes: dict[str, Any] = {
            "nodes_treeids": np.repeat(np.arange(trees), nodes),
            "nodes_nodeids": np.tile(number, trees),
            "nodes_featureids": features.ravel(),
            "nodes_values": splits.ravel(),
            "nodes_modes": (["BRANCH_LEQ"] * inner + ["LEAF"] * leaves) * trees,
            "nodes_truenodeids": np.tile(np.where(number < inner, 2 * number + 1, 0), trees),
            "nodes_falsenodeids": np.tile(np.where(number < inner, 2 * number + 2, 0), trees),
            f"{kind}_treeids": np.repeat(np.arange(trees), leaves),
            f"{kind}_nodeids": np.tile(number[inner:], trees),
            f"{kind}_ids": np.zeros(trees * leaves, int),
            f"{kind}_weights": weights.ravel(),
        }
        more: dict[str, Any] = {"classlabels_int64s": [0, 1]} if kind == "class" else {"n_targets": 1}
        plain = {name: list(value) if isinstance(value, list) else value.tolist() for name, value in attributes.items()}
        return net.nodes_outputs(operator, 2 if kind == "class" else 1, x, domain=ML, **plain, **more)

    return build


def _forest_of_5(
    trees: int, depth: int, splits: np.ndarray, features: np.ndarray, weights: np.ndarray
) -> dict[str, Any]:
    """The attributes of TreeEnsemble, whose inner nodes and leaves are numbered apart, over all trees."""
    inner, leaves = 2**depth - 1, 2**depth
    number = np.arange(inner)
    below = 2 * number[:, None] + [1, 2]
    last = below >= inner
    first = np.arange(trees)[:, None, None]
    places = np.where(last, below - inner + first * leaves, below + first * inner)

    def tensor(name: str, array: np.ndarray) -> onnx.TensorProto:
        return numpy_helper.from_array(array, name)

    return {
        "tree_roots": (np.arange(trees) * inner).tolist(),
        "nodes_featureids": features[:, :inner].ravel().tolist(),
        "nodes_splits": tensor("splits", splits[:, :inner].ravel()),
        "nodes_modes": tensor("modes", np.zeros(trees * inner, np.uint8)),
        "nodes_truenodeids": places[..., 0].ravel().tolist(),
        "nodes_falsenodeids": places[..., 1].ravel().tolist(),
        "nodes_trueleafs": np.tile(last[:, 0], trees).astype(int).tolist(),
        "nodes_falseleafs": np.tile(last[:, 1], trees).astype(int).tolist(),
        "leaf_targetids": [0] * (trees * leaves),
        "leaf_weights": tensor("weights", weights.ravel()),
        "n_targets": 1,
    }


# ---------------------------------------------------------------- training, control flow


def optimizer(operator: str, states: int, **attributes: Any) -> Build:
    """A step on 512 x 512 weights. states: how many tensors there are beside weights and gradient."""

    def build(net: Net) -> list[str]:
        head = net.feed_array(np.array(0.01, np.float32)), net.feed_array(np.array(7))
        tensors = net.feed((512, 512)), net.feed((512, 512)), *(net.feed((512, 512), 0) for _ in range(states))
        return net.nodes_outputs(operator, 1 + states, *head, *tensors, domain=TRAINING, **attributes)

    return build


def _state_and_row(size: int) -> tuple[list[onnx.NodeProto], list[onnx.ValueInfoProto], list[onnx.ValueInfoProto]]:
    """The nodes of a step: state = tanh(state + row), which is stacked, too."""
    nodes = [
        helper.make_node("Add", ["state", "row"], ["sum"]),
        helper.make_node("Tanh", ["sum"], ["next"]),
        helper.make_node("Identity", ["next"], ["stacked"]),
    ]
    given, made = ([_float_info(name, size) for name in names] for names in (("state", "row"), ("next", "stacked")))
    return nodes, given, made


def _float_info(name: str, *shape: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)


def scan(steps: int, size: int) -> Build:
    """A recurrence over rows."""

    def build(net: Net) -> list[str]:
        nodes, inputs, outputs = _state_and_row(size)
        body = helper.make_graph(nodes, "step", inputs, outputs)
        return net.nodes_outputs("Scan", 2, net.feed((size,)), net.feed((steps, size)), body=body, num_scan_inputs=1)

    return build


def counted_loop(steps: int, size: int) -> Build:
    """The same by Loop, which gathers its row by the number of the iteration."""

    def build(net: Net) -> list[str]:
        nodes, (state, _), outputs = _state_and_row(size)
        rows = net.feed((steps, size))
        nodes = [
            helper.make_node("Gather", [rows, "number"], ["row"], axis=0),
            helper.make_node("Identity", ["go"], ["goes_on"]),
            *nodes,
        ]
        number, go, goes_on = (
            helper.make_tensor_value_info(name, kind, [])
            for name, kind in (("number", onnx.TensorProto.INT64), ("go", 9), ("goes_on", 9))
        )
        body = helper.make_graph(nodes, "step", [number, go, state], [goes_on, *outputs])
        return net.nodes_outputs("Loop", 2, net.feed_array(np.array(steps)), "", net.feed((size,)), body=body)

    return build


def choice(shape: Shape) -> Build:
    """If: one of two activations."""

    def build(net: Net) -> str:
        x = net.feed(shape)
        branches = {
            f"{name}_branch": helper.make_graph(
                [helper.make_node(operator, [x], [name])], name, [], [_float_info(name, *shape)]
            )
            for name, operator in (("then", "Relu"), ("else", "Tanh"))
        }
        return net.node("If", net.feed_array(np.array(True)), **branches)

    return build
