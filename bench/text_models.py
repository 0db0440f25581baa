"""Two models of open sizes, as pipelines that read text have them: a detector with a feature pyramid, and a recogniser.

Their weights are drawn from a seed. The graphs are of the kind that exporters write: sizes come from Shape, Gather and
Concat, activations are spelt out, maps are resized by 2 or to each other's size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

CHARACTERS = 6625
"""What a recogniser tells apart."""


def detector() -> ModelProto:
    """Images [n, 3, h, w], h and w multiples of 32, to maps [n, 1, h, w] of where text is.

    Bottlenecks with gates down to 1 / 32, a pyramid by nearest neighbours, and two transposed convolutions.
    """
    net = _Net(0)
    x, channels = net.conv("x", 3, 16, 3, 2, "hard swish"), 16
    levels = []
    for width, outputs, stride, blocks, size in (
        (32, 16, 2, 2, 3),
        (72, 24, 2, 2, 3),
        (120, 56, 2, 3, 5),
        (336, 112, 2, 3, 5),
    ):
        for block in range(blocks):
            step = stride if block == 0 else 1
            narrow = net.bottleneck(x, channels, width, outputs, size, step, gated=size == 5)
            x = net.add("Add", [narrow, x]) if step == 1 else narrow
            channels = outputs
        levels.append((x, channels))
    maps = [net.conv(x, channels, 96, 1) for x, channels in levels]
    for level in (2, 1, 0):
        maps[level] = net.add("Add", [maps[level], net.doubled(maps[level + 1], 2)])
    parts = [net.doubled(net.conv(x, 96, 24, 3), 2**level) for level, x in enumerate(maps)]
    x = net.conv(net.add("Concat", parts[::-1], axis=1), 96, 24, 3, 1, "relu")
    x = net.add("Relu", [net.transposed(x, 24, 24)])
    return net.model(net.add("Sigmoid", [net.transposed(x, 24, 1)]), ("n", 3, "h", "w"), 4)


def recogniser() -> ModelProto:
    """Lines of text [n, 3, 48, w] to the probabilities [n, w / 8, CHARACTERS] of characters.

    Convolutions, two layers of attention over all columns, a product with a large matrix, a softmax.
    """
    net = _Net(1)
    x, channels = net.conv("x", 3, 16, 3, 2, "hard swish"), 16
    for outputs, stride in ((32, (1, 1)), (64, (2, 2)), (128, (2, 1)), (240, (2, 2)), (240, (3, 1))):
        x = net.conv(x, channels, channels, 3, stride, "hard swish", group=channels)
        x, channels = net.conv(x, channels, outputs, 1, 1, "hard swish"), outputs
    x = net.conv(x, channels, 120, 1, 1, "swish")
    size = net.add("Shape", [x])
    images, columns = (net.add("Gather", [size, net.constant([axis])]) for axis in (0, 3))
    flat = net.add("Concat", [images, net.constant([120]), net.constant([-1])], axis=0)
    x = net.add("Transpose", [net.add("Reshape", [x, flat])], perm=[0, 2, 1])
    for _ in range(2):
        x = net.add("Add", [x, net.attention(net.norm(x, 120), images, columns, 120, 8)])
        hidden = net.activation(net.linear(net.norm(x, 120), 120, 240), "swish")
        x = net.add("Add", [x, net.linear(hidden, 240, 120)])
    y = net.add("Softmax", [net.linear(net.norm(x, 120), 120, CHARACTERS)], axis=2)
    return net.model(y, ("n", 3, 48, "w"), 3)


class _Net:
    """Nodes and weights as they come; methods give the name of what they add."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._nodes: list[Any] = []
        self._weights: list[Any] = []

    def add(self, operator: str, inputs: Sequence[str], **attributes: Any) -> str:
        """The output of a node."""
        name = f"v{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, inputs, [name], name=f"{operator}_{name}", **attributes))
        return name

    def constant(self, values: Any, dtype: Any = np.int64) -> str:
        """A constant."""
        name = f"c{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def random(self, *shape: int, reads: int) -> str:
        """Weights that keep the size of numbers, `reads` of which make one."""
        return self.constant(self._random.standard_normal(shape) / np.sqrt(reads), np.float32)

    def conv(
        self, x: str, channels: int, outputs: int, size: int, stride: Any = 1, activation: str = "", group: int = 1
    ) -> str:
        """A convolution that keeps the size, or divides it by `stride`."""
        own = channels // group
        weights = self.random(outputs, own, size, size, reads=own * size * size)
        strides = [stride, stride] if isinstance(stride, int) else list(stride)
        bias = self.constant(0.1 * self._random.standard_normal(outputs), np.float32)
        y = self.add("Conv", [x, weights, bias], strides=strides, pads=[size // 2] * 4, group=group)
        return self.activation(y, activation)

    def activation(self, x: str, name: str) -> str:
        """An activation as exporters spell it."""
        if name == "relu":
            return self.add("Relu", [x])
        if name == "hard swish":
            return self.add("Mul", [x, self.add("HardSigmoid", [x], alpha=1 / 6, beta=0.5)])
        return self.add("Mul", [x, self.add("Sigmoid", [x])]) if name == "swish" else x

    def bottleneck(self, x: str, channels: int, width: int, outputs: int, size: int, stride: int, gated: bool) -> str:
        """1x1, depthwise, a gate for each channel, 1x1."""
        x = self.conv(x, channels, width, 1, 1, "hard swish" if gated else "relu")
        x = self.conv(x, width, width, size, stride, "hard swish" if gated else "relu", group=width)
        if gated:
            gate = self.conv(self.add("GlobalAveragePool", [x]), width, width // 4, 1, 1, "relu")
            gate = self.add("HardSigmoid", [self.conv(gate, width // 4, width, 1)], alpha=0.2, beta=0.5)
            x = self.add("Mul", [x, gate])
        return self.conv(x, width, outputs, 1)

    def doubled(self, x: str, times: int) -> str:
        """Each pixel times x times."""
        if times == 1:
            return x
        scales = self.constant([1, 1, times, times], np.float32)
        modes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return self.add("Resize", [x, "", scales], **modes)

    def transposed(self, x: str, channels: int, outputs: int) -> str:
        """An image twice as large."""
        return self.add("ConvTranspose", [x, self.random(channels, outputs, 2, 2, reads=channels)], strides=[2, 2])

    def linear(self, x: str, size: int, outputs: int) -> str:
        """A product with a bias."""
        y = self.add("MatMul", [x, self.random(size, outputs, reads=size)])
        return self.add("Add", [y, self.constant(0.1 * self._random.standard_normal(outputs), np.float32)])

    def norm(self, x: str, size: int) -> str:
        """A layer normalisation in its parts."""
        off = self.add("Sub", [x, self.add("ReduceMean", [x, self.constant([-1])])])
        squares = self.add("Pow", [off, self.constant(2.0, np.float32)])
        mean = self.add(
            "Add", [self.add("ReduceMean", [squares, self.constant([-1])]), self.constant(1e-5, np.float32)]
        )
        y = self.add("Div", [off, self.add("Sqrt", [mean])])
        return self.add("Mul", [y, self.constant(np.ones(size), np.float32)])

    def attention(self, x: str, images: str, columns: str, size: int, heads: int) -> str:
        """Attention of all columns, heads of [n, w, 3, heads, size / heads] apart."""
        own = size // heads
        parts = [self.constant([3]), self.constant([heads]), self.constant([own])]
        shape = self.add("Concat", [images, columns, *parts], axis=0)
        each = self.add(
            "Transpose", [self.add("Reshape", [self.linear(x, size, 3 * size), shape])], perm=[2, 0, 3, 1, 4]
        )
        q, k, v = (self.add("Gather", [each, self.constant(part)]) for part in range(3))
        q = self.add("Mul", [q, self.constant(own**-0.5, np.float32)])
        scores = self.add("MatMul", [q, self.add("Transpose", [k], perm=[0, 1, 3, 2])])
        y = self.add("MatMul", [self.add("Softmax", [scores], axis=-1), v])
        merged = self.add("Concat", [images, columns, self.constant([size])], axis=0)
        y = self.add("Reshape", [self.add("Transpose", [y], perm=[0, 2, 1, 3]), merged])
        return self.linear(y, size, size)

    def model(self, y: str, shape: Sequence[int | str], rank: int) -> ModelProto:
        """The model from "x" to y."""
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, list(shape))
        result = helper.make_tensor_value_info(y, TensorProto.FLOAT, [None] * rank)
        graph = helper.make_graph(self._nodes, "text", [x], [result], self._weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
