"""Products of dequantised numbers, which become products of integers."""

import numpy as np
import pytest

from jitonnx.ops.onnx.activation import Relu
from jitonnx.ops.onnx.arithmetic import Add
from jitonnx.ops.onnx.convolution import Conv
from jitonnx.ops.onnx.matmul import Gemm, MatMul
from jitonnx.ops.onnx.quantization import DequantizeLinear, QuantizeLinear
from tests.passes.graphs import Build, Value, normal, operators, rewritten


def whole(*shape: int, dtype: type = np.int8) -> np.ndarray:
    info = np.iinfo(dtype)
    return np.random.default_rng(0).integers(info.min, info.max + 1, shape).astype(dtype)


def quantised(b: Build, *shape: int, zero: int = 100) -> Value:
    """What a quantised model has in front of a layer: an input, quantised and back."""
    scale, zero_point = np.float32(0.05), np.uint8(zero)
    numbers = b.op(QuantizeLinear(), b.input(normal(*shape)), scale, zero_point)
    return b.op(DequantizeLinear(), numbers, scale, zero_point)


def weights(b: Build, *shape: int, axis: int = 0, scales: int = 1) -> Value:
    steps = (np.abs(normal(scales)) + 0.1) / 50 if scales > 1 else np.float32(0.01)
    zeros = np.zeros(scales, np.int8) if scales > 1 else np.int8(3)
    return b.op(DequantizeLinear(axis=axis), whole(*shape), steps.astype(np.float32), zeros)


def kinds(b: Build, kind: str) -> Value:
    if kind == "conv":
        return b.op(Conv(pads=(1, 1, 1, 1)), quantised(b, 1, 4, 6, 6), weights(b, 8, 4, 3, 3))
    if kind == "conv by channel":
        bias = b.op(DequantizeLinear(), whole(8, dtype=np.int32) >> 20, np.float32(0.001))
        return b.op(Conv(), quantised(b, 2, 4, 6, 6), weights(b, 8, 4, 3, 3, scales=8), bias)
    if kind == "grouped":
        return b.op(Conv(group=4), quantised(b, 1, 4, 6, 6), weights(b, 8, 1, 3, 3, scales=8), normal(8))
    if kind == "matmul":
        return b.op(MatMul(), quantised(b, 3, 16), weights(b, 16, 5, axis=1, scales=5))
    if kind == "gemm":
        return b.op(Gemm(transB=True), quantised(b, 3, 16), weights(b, 5, 16, axis=0, scales=5), normal(5))
    assert kind == "deep", "sums beyond what float32 holds exactly"
    return b.op(MatMul(), quantised(b, 3, 3000, zero=0), weights(b, 3000, 5))


@pytest.mark.parametrize("kind", ["conv", "conv by channel", "grouped", "matmul", "gemm", "deep"])
def test_integers(kind: str) -> None:
    graph, report = rewritten(lambda b: kinds(b, kind), atol=1e-4)  # floats of the size of 100 are what it replaces
    name = "ConvInteger" if "conv" in kind or kind == "grouped" else "MatMulInteger"
    assert operators(graph)[name] == 1
    assert report.counts["integer convolution" if name == "ConvInteger" else "integer product"] == 1


@pytest.mark.parametrize(
    "author",
    [
        lambda b: b.op(MatMul(), quantised(b, 3, 4), normal(4, 5)),
        lambda b: b.op(MatMul(), b.input(normal(3, 4)), weights(b, 4, 5)),
        lambda b: b.op(Gemm(alpha=0.5), quantised(b, 3, 4), weights(b, 4, 5)),
        lambda b: b.op(MatMul(), quantised(b, 3, 4), weights(b, 4, 5, axis=0, scales=4)),
    ],
    ids=["float weights", "float input", "alpha", "scales along the depth"],
)
def test_left_alone(author: object) -> None:
    graph, _ = rewritten(author)  # type: ignore[arg-type]
    assert not any(name.endswith("Integer") for name in operators(graph))


def test_requantised_by_a_multiplication() -> None:
    """Behind a layer of integers; the quantisation of an input stays a division."""

    def author(b: Build) -> Value:
        y = b.op(Relu(), b.op(Add(), kinds(b, "matmul"), b.input(normal(3, 5))))
        return b.op(QuantizeLinear(), y, np.float32(0.3), np.uint8(7))

    graph, report = rewritten(author)
    assert report.counts["requantisation"] == 1
    scales = [node.inputs[1].constant for node in graph if isinstance(node.operator, QuantizeLinear)]
    assert sorted(float(scale) for scale in scales) == [np.float32(0.05), 1.0]
