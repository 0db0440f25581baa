"""Small models whose weights and activations are float16 or bfloat16, or float32 with casts between."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference

ELEMENTS = {
    "float16": (TensorProto.FLOAT16, np.dtype(np.float16)),
    "bfloat16": (TensorProto.BFLOAT16, np.dtype(ml_dtypes.bfloat16)),
    "float32": (TensorProto.FLOAT, np.dtype(np.float32)),
}


class Builder:
    """Nodes one behind the other: `b("Relu", x)` adds one and gives its output's name."""

    def __init__(self, kind: str) -> None:
        self.element, self.dtype = ELEMENTS[kind]
        self._nodes: list[object] = []
        self._constants: list[object] = []
        self._random = np.random.default_rng(0)

    def __call__(self, operator: str, *inputs: str, **attributes: object) -> str:
        output = f"v{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, inputs, [output], name=f"{operator}_{output}", **attributes))
        return output

    def constant(self, array: object) -> str:
        name = f"c{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def weights(self, *shape: int, scale: float | None = None) -> str:
        """Random numbers, of a scale that keeps what is multiplied with them in size."""
        fan_in = np.prod(shape[1:]) if len(shape) > 2 else shape[0]
        array = self._random.standard_normal(shape) * (scale or fan_in**-0.5)
        return self.constant(array.astype(self.dtype))

    def ints(self, *numbers: int) -> str:
        return self.constant(np.array(numbers, np.int64))

    def model(self, shape: tuple[int | str, ...], output: str) -> bytes:
        """The model's bytes, with an input x of `shape`."""
        x, y = helper.make_tensor_value_info("x", self.element, shape), helper.make_empty_tensor_value_info(output)
        graph = helper.make_graph(self._nodes, "half", [x], [y], self._constants)
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
        return shape_inference.infer_shapes(proto).SerializeToString()


def mlp(kind: str) -> bytes:
    """Products with bias and GELU."""
    b, x, width = Builder(kind), "x", 40
    for _ in range(2):
        x = b("Gelu", b("Add", b("MatMul", x, b.weights(width, width)), b.weights(width, scale=0.1)))
    return b.model(("N", width), x)


def cnn(kind: str) -> bytes:
    """Convolutions with a residual, max pooling, a concatenation, a mean and a classifier."""
    b, width = Builder(kind), 16
    x = b("Relu", b("Conv", "x", b.weights(width, 3, 3, 3), b.weights(width, scale=0.1), pads=[1] * 4))
    y = b("Relu", b("Conv", x, b.weights(width, width, 3, 3), b.weights(width, scale=0.1), pads=[1] * 4))
    x = b("Relu", b("Add", x, b("Conv", y, b.weights(width, width, 3, 3), pads=[1] * 4)))
    x = b("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = b("Concat", x, b("Conv", x, b.weights(width, width, 1, 1)), axis=1)
    x = b("Flatten", b("GlobalAveragePool", x))
    return b.model((2, 3, 14, 14), b("Softmax", b("Gemm", x, b.weights(2 * width, 10), b.weights(10, scale=0.1))))


def block(kind: str) -> bytes:
    """A transformer's block: attention and two products, each behind a normalisation and beside a residual."""
    b, length, width, heads = Builder(kind), 13, 32, 4

    def normalised(x: str) -> str:
        return b("LayerNormalization", x, b.weights(width, scale=1), b.weights(width, scale=0.1), axis=-1)

    def projected(x: str, rows: int, columns: int) -> str:
        return b("Add", b("MatMul", x, b.weights(rows, columns)), b.weights(columns, scale=0.1))

    n = normalised("x")
    shape = b.ints(1, length, heads, width // heads)
    q, k, v = (b("Transpose", b("Reshape", projected(n, width, width), shape), perm=[0, 2, 1, 3]) for _ in range(3))
    scores = b("Div", b("MatMul", q, b("Transpose", k, perm=[0, 1, 3, 2])), b.constant(np.full((), 3, b.dtype)))
    mixed = b("Transpose", b("MatMul", b("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    x = b("Add", "x", projected(b("Reshape", mixed, b.ints(1, length, width)), width, width))
    hidden = b("Gelu", projected(normalised(x), width, 4 * width))
    return b.model((1, length, width), b("Add", x, projected(hidden, 4 * width, width)))


def mixed(kind: str) -> bytes:
    """float32 with casts to half precision and back around products, as converters write it; outputs of both."""
    b = Builder("float32")
    half = ELEMENTS[kind][0]
    x = "x"
    for _ in range(2):
        narrow = b("Cast", x, to=half)
        weights = b("Cast", b.weights(24, 24), to=half)
        product = b("Cast", b("MatMul", narrow, weights), to=TensorProto.FLOAT)
        x = b("Add", b("Tanh", product), x)
    return b.model((5, 24), b("Cast", b("Slice", x, b.ints(1), b.ints(20), b.ints(1)), to=half))


def elementwise(kind: str) -> bytes:
    """Nothing but elementwise operators and movement."""
    b = Builder(kind)
    x = b("Relu", b("Sub", b("Mul", "x", b.weights(7, scale=1)), b.weights(1, scale=1)))
    x = b("Transpose", x, perm=[0, 2, 1])
    x = b("Concat", x, b("Gather", x, b.ints(3, 0), axis=1), axis=1)
    return b.model((3, 5, 7), b("Clip", x, b.constant(np.full((), 0.1, b.dtype))))


def gated(kind: str) -> bytes:
    """A squeeze-and-excite block: a depthwise convolution, a gate for each of its channels, a product."""
    b, width = Builder(kind), 32
    x = b("Conv", "x", b.weights(width, 3, 1, 1))
    x = b("Conv", x, b.weights(width, 1, 3, 3), b.weights(width, scale=0.1), pads=[1] * 4, group=width)
    x = b("Mul", x, b("Sigmoid", x))
    small = b("Relu", b("Conv", b("GlobalAveragePool", x), b.weights(4, width, 1, 1), b.weights(4, scale=0.1)))
    gate = b("Sigmoid", b("Conv", small, b.weights(width, 4, 1, 1), b.weights(width, scale=0.1)))
    return b.model((2, 3, 14, 14), b("Conv", b("Mul", x, gate), b.weights(8, width, 1, 1)))


def batch_normalized(kind: str) -> bytes:
    """Convolutions, each in front of a batch normalisation of fixed statistics."""
    b, x = Builder(kind), "x"
    for before, after in ((3, 24), (24, 16), (16, 16)):
        x = b("Conv", x, b.weights(after, before, 3, 3), pads=[1] * 4)
        factors, shifts, means = (b.weights(after, scale=scale) for scale in (1, 0.1, 0.1))
        variances = b.constant((0.5 + np.arange(after) / after).astype(b.dtype))
        x = b("Relu", b("BatchNormalization", x, factors, shifts, means, variances))
    return b.model((2, 3, 14, 14), x)


def in_float32(data: bytes) -> bytes:
    """A model of half precision with the same numbers as float32, in which nothing is rounded to 16 bits."""
    model = onnx.load_from_string(data)
    halves = (TensorProto.FLOAT16, TensorProto.BFLOAT16)

    def widen(tensor: onnx.TensorProto) -> None:
        if tensor.data_type in halves:
            array = numpy_helper.to_array(tensor).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))

    for tensor in model.graph.initializer:
        widen(tensor)
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                widen(attribute.t)
            if node.op_type == "Cast" and attribute.i in halves:
                attribute.i = TensorProto.FLOAT
    for value in (*model.graph.input, *model.graph.output):
        if value.type.tensor_type.elem_type in halves:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    del model.graph.value_info[:]
    return model.SerializeToString()


MODELS: dict[str, Callable[[str], bytes]] = {
    "mlp": mlp,
    "cnn": cnn,
    "block": block,
    "mixed": mixed,
    "elementwise": elementwise,
    "gated": gated,
    "batch_normalized": batch_normalized,
}


def feed(name: str, kind: str, seed: int = 1) -> np.ndarray:
    """An input of a model."""
    shape = {"mlp": (9, 40), "block": (1, 13, 32), "mixed": (5, 24), "elementwise": (3, 5, 7)}
    shape |= dict.fromkeys(("cnn", "gated", "batch_normalized"), (2, 3, 14, 14))
    dtype = np.dtype(np.float32) if name == "mixed" else ELEMENTS[kind][1]
    return np.random.default_rng(seed).standard_normal(shape[name]).astype(dtype)
