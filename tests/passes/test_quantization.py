"""Products of dequantised numbers, which become products of integers."""

from typing import Any

import numpy as np
import pytest

from jitonnx.ir.dtypes import DType
from jitonnx.ops.onnx.activation import LeakyRelu, Relu, Sigmoid
from jitonnx.ops.onnx.arithmetic import Add, Clip, IsNaN, Mul
from jitonnx.ops.onnx.cast import Cast
from jitonnx.ops.onnx.concat_split import Concat, Split
from jitonnx.ops.onnx.convolution import Conv, ConvTranspose
from jitonnx.ops.onnx.depth_to_space import DepthToSpace
from jitonnx.ops.onnx.logic import Where
from jitonnx.ops.onnx.matmul import Gemm, MatMul
from jitonnx.ops.onnx.pooling import AveragePool, GlobalAveragePool, MaxPool
from jitonnx.ops.onnx.quantization import DequantizeLinear, QLinearConv, QLinearMatMul, QuantizeLinear
from jitonnx.ops.onnx.reduction import ReduceMean
from jitonnx.ops.onnx.shape import Reshape, Transpose
from jitonnx.ops.onnx.slice import Slice
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


@pytest.mark.parametrize("kind", ["conv", "gemm", "matmul"])
def test_weights_that_the_graph_quantises(kind: str) -> None:
    """The file has them as floats, with QuantizeLinear and DequantizeLinear behind (`AddQDQPairToWeight`)."""

    def author(b: Build) -> Value:
        shape = {"conv": (8, 4, 3, 3), "gemm": (8, 4), "matmul": (4, 8)}[kind]
        steps, zeros, axis = np.full(8, 0.02, np.float32), np.zeros(8, np.int8), 1 if kind == "matmul" else 0
        numbers = b.op(QuantizeLinear(axis=axis), normal(*shape), steps, zeros)
        w = b.op(DequantizeLinear(axis=axis), numbers, steps, zeros)
        if kind == "conv":
            return b.op(Conv(), quantised(b, 1, 4, 6, 6), w)
        return b.op(Gemm(transB=True) if kind == "gemm" else MatMul(), quantised(b, 3, 4), w)

    graph, report = rewritten(author, atol=1e-4)
    assert report.counts["quantised constants"] == 1
    assert operators(graph)["ConvInteger"] + operators(graph)["MatMulInteger"] == 1


@pytest.mark.parametrize("name", ["int4", "uint4", "int2", "uint2"])
@pytest.mark.parametrize("zero", [False, True])
def test_weights_of_few_bits(name: str, zero: bool) -> None:
    dtype = DType[name.upper()].numpy

    def author(b: Build) -> Value:
        low, high = {"int4": (-8, 8), "uint4": (0, 16), "int2": (-2, 2), "uint2": (0, 4)}[name]
        w = np.random.default_rng(1).integers(low, high, (8, 4, 3, 3)).astype(dtype)
        steps = np.linspace(0.01, 0.05, 8, dtype=np.float32)
        zeros = [np.ones(8).astype(dtype)] if zero or name.startswith("u") else []
        return b.op(Conv(), quantised(b, 1, 4, 6, 6), b.op(DequantizeLinear(axis=0), w, steps, *zeros))

    graph, report = rewritten(author, atol=1e-4)
    assert report.counts["bytes of few bits"] == report.counts["integer convolution"] == 1
    assert operators(graph)["ConvInteger"] == 1


@pytest.mark.parametrize("scales", [1, 5])
def test_weights_that_are_transposed(scales: int) -> None:
    """As a linear layer of PyTorch is exported: its matrix has a row for each output."""

    def author(b: Build) -> Value:
        return b.op(MatMul(), quantised(b, 3, 16), b.op(Transpose(perm=(1, 0)), weights(b, 5, 16, scales=scales)))

    graph, report = rewritten(author, atol=1e-4)
    assert report.counts["transposed weights"] == report.counts["integer product"] == 1
    assert operators(graph)["MatMulInteger"] == 1 and not operators(graph)["Transpose"]


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


@pytest.mark.parametrize(
    ("author", "rewrite"),
    [
        (lambda b: b.op(MatMul(), quantised(b, 3, 4), weights(b, 4, 5, axis=0, scales=4)), "integer product"),
        (lambda b: b.op(Conv(), quantised(b, 1, 4, 3, 3), quantised(b, 2, 4, 1, 1)), "integer convolution"),
    ],
    ids=["scales along the depth", "computed weights"],
)
def test_what_is_done_in_float32_is_told(author: object, rewrite: str) -> None:
    _, report = rewritten(author)  # type: ignore[arg-type]
    (declined,) = report.declined
    assert declined.rewrite == rewrite
    assert "float32" in declined.detail


@pytest.mark.parametrize(("kind", "added"), [("matmul", False), ("conv with whole bias", False), ("matmul", True)])
def test_requantised_by_a_multiplication(kind: str, added: bool) -> None:
    """Sums of integers are; inputs are divided by the scale, and so is what else is added to sums."""

    def author(b: Build) -> Value:
        y = with_whole_bias(b, 1.0) if kind == "conv with whole bias" else kinds(b, kind)
        y = b.op(Add(), y, b.input(normal(3, 5))) if added else y
        return b.op(QuantizeLinear(), b.op(Relu(), y), np.float32(0.3), np.uint8(7))

    graph, report = rewritten(author, atol=1)
    assert report.counts.get("requantisation", 0) == (not added)
    scales = [node.inputs[1].constant for node in graph if isinstance(node.operator, QuantizeLinear)]
    assert sorted(float(scale) for scale in scales) == [np.float32(0.05), np.float32(0.3) if added else 1.0]


def with_whole_bias(b: Build, factor: float) -> Value:
    """A convolution with a bias of int32, whose scales are `factor` times those of the sums."""
    steps = (np.abs(normal(8)) + 0.1).astype(np.float32) / 50
    w = b.op(DequantizeLinear(axis=0), whole(8, 4, 3, 3), steps, np.zeros(8, np.int8))
    scales = (np.float32(0.05) * steps * np.float32(factor)).astype(np.float32)
    bias = b.op(DequantizeLinear(axis=0), whole(8, dtype=np.int32) >> 20, scales, np.zeros(8, np.int32))
    return b.op(Conv(), quantised(b, 2, 4, 6, 6), w, bias)


@pytest.mark.parametrize(("factor", "whole"), [(1, True), (1 + 1e-7, True), (1.01, False)])
def test_bias_of_integers_is_added_to_their_sums(factor: float, whole: bool) -> None:
    graph, _ = rewritten(lambda b: with_whole_bias(b, factor), atol=1e-4)
    (added,) = (node for node in graph if isinstance(node.operator, Add))
    assert added.output.dtype is (DType.INT32 if whole else DType.FLOAT)


@pytest.mark.parametrize("kind", ["conv", "by channel", "matmul", "sum", "mean"])
def test_integers_are_those_of_the_operators_in_their_order(kind: str) -> None:
    """QLinearConv's for products, by one multiplication, and for what else is done between integers each node's own."""
    random = np.random.default_rng(7)
    steps = [np.float32(step) for step in (random.random(3) + 0.1) / 20]
    x, other = (random.integers(0, 256, (3, 4, 30, 30)).astype(np.uint8) for _ in range(2))

    def author(b: Build) -> Value:
        numbers = b.op(DequantizeLinear(), b.input(x), steps[0], np.uint8(100))
        if kind == "sum":
            y = b.op(Relu(), b.op(Add(), numbers, b.op(DequantizeLinear(), b.input(other), steps[1], np.uint8(3))))
        elif kind == "mean":
            y = b.op(GlobalAveragePool(), numbers)
        elif kind == "matmul":
            y = b.op(MatMul(), numbers, b.op(DequantizeLinear(), whole(30, 8), steps[1], np.int8(0)))
        else:
            scales = (np.abs(normal(8)) / 50 + 0.001).astype(np.float32) if kind == "by channel" else steps[1]
            zeros = np.zeros(np.shape(scales), np.int8)
            bias = b.op(DequantizeLinear(axis=0), whole(8, dtype=np.int32) >> 20, steps[0] * scales)
            y = b.op(Conv(), numbers, b.op(DequantizeLinear(axis=0), whole(8, 4, 3, 3), scales, zeros), bias)
        return b.op(QuantizeLinear(), y, steps[2] * np.float32(9.7), np.uint8(0 if kind == "sum" else 120))

    graph, _ = rewritten(author, atol=0 if kind == "sum" else 1)
    step = steps[2] * np.float32(9.7)
    if kind == "sum":
        assert operators(graph) == {"DequantizeLinear": 2, "Add": 1, "QuantizeLinear": 1}
        return
    (quantise,) = (node for node in graph if isinstance(node.operator, QuantizeLinear))
    (scaled,) = (node for node in graph if isinstance(node.operator, Mul))
    assert quantise.inputs[1].constant == 1
    factor = steps[0] / (step * np.float32(900)) if kind == "mean" else None
    if kind in ("conv", "matmul"):
        factor = steps[0] * steps[1] / step
    if factor is not None:
        np.testing.assert_array_equal(scaled.inputs[1].constant, factor)


def requantised(b: Build, x: Value, scale: float = 0.3, zero: int = 7) -> Value:
    return b.op(QuantizeLinear(), x, np.float32(scale), np.uint8(zero))


@pytest.mark.parametrize(
    ("activation", "zero", "left", "cut"),
    [
        (lambda b, x: b.op(Relu(), x), 0, 0, True),
        (lambda b, x: b.op(Relu(), x), 7, 1, False),
        (lambda b, x: b.op(Clip(), x, np.float32(0), np.float32(6)), 0, 1, True),  # 6 is within 255 * 0.3
        (lambda b, x: b.op(Clip(), x, np.float32(0), np.float32(80)), 0, 0, True),
        (lambda b, x: b.op(Clip(), x, np.float32(-50), None), 100, 0, True),
        (lambda b, x: b.op(Clip(), x, np.float32(-20), None), 100, 1, False),
    ],
)
def test_activation_that_quantising_repeats(activation: object, zero: int, left: int, cut: bool) -> None:
    def author(b: Build) -> Value:
        y = b.op(Add(), kinds(b, "matmul"), normal(5))
        return requantised(b, activation(b, y), zero=zero)  # type: ignore[operator]

    graph, report = rewritten(author, atol=1)
    assert ("cut off by quantising" in report.counts) == cut
    assert operators(graph)["Relu"] + operators(graph)["Clip"] == left


def residual(b: Build, beside: Value, reader: type = Add) -> Value:
    inner = requantised(b, kinds(b, "matmul"))
    return requantised(b, b.op(reader(), b.op(DequantizeLinear(), inner, np.float32(0.3), np.uint8(7)), beside), 0.5)


def test_result_that_a_residual_is_added_to_stays_in_registers() -> None:
    graph, report = rewritten(lambda b: residual(b, quantised(b, 3, 5)), atol=1)
    assert report.counts["rounded in place"] == report.counts["requantisation"] == 1
    assert operators(graph)["QuantizeLinear"] == 3  # of two inputs and the result


def test_casts_that_change_nothing_are_seen_through() -> None:
    """As PyTorch exports quantised models: one stands between each QuantizeLinear and its DequantizeLinear."""

    def author(b: Build) -> Value:
        inner = b.op(Cast(to=int(DType.UINT8)), requantised(b, kinds(b, "matmul")))
        numbers = b.op(DequantizeLinear(), inner, np.float32(0.3), np.uint8(7))
        return requantised(b, b.op(Add(), numbers, quantised(b, 3, 5)), 0.5)

    _, report = rewritten(author, atol=1)
    assert report.counts["rounded in place"] == 1


def sixteen(b: Build, dtype: type, zero: int, scale: float, other: int | None = None) -> Value:
    """An input, of which some numbers are beyond the range, quantised to 16 bits and back."""
    x = b.input((normal(5, 40) * 40000).astype(np.float32))
    numbers = b.op(QuantizeLinear(), x, np.float32(scale), dtype(zero))
    return b.op(DequantizeLinear(), numbers, np.float32(scale), dtype(zero if other is None else other))


@pytest.mark.parametrize(("dtype", "zero"), [(np.int16, 0), (np.int16, -77), (np.uint16, 32000), (np.uint16, 0)])
def test_numbers_of_16_bits_stay_floats(dtype: type, zero: int) -> None:
    graph, report = rewritten(lambda b: sixteen(b, dtype, zero, 0.7), atol=0)
    assert report.counts["rounded to 16 bits"] == 1
    assert not operators(graph)["QuantizeLinear"]


@pytest.mark.parametrize(
    "author",
    [
        lambda b: sixteen(b, np.int16, 3, 0.7, other=4),
        lambda b: sixteen(b, np.int16, 0, 1e-35),
        lambda b: b.op(DequantizeLinear(), b.op(QuantizeLinear(), b.input(normal(3)), np.float32(1), np.int16(0)),
                       b.input(np.float32(0.5))),
    ],
    ids=["two zero points", "tiny scale", "computed scale"],
)  # fmt: skip
def test_numbers_of_16_bits_that_become_integers(author: object) -> None:
    _, report = rewritten(author)  # type: ignore[arg-type]
    assert "rounded to 16 bits" not in report.counts


@pytest.mark.parametrize(
    "author",
    [
        lambda b: residual(b, normal(3, 5)),
        lambda b: residual(b, b.input(normal(3, 5))),
        lambda b: residual(b, weights(b, 5, 4), MatMul),
    ],
    ids=["constant beside", "float beside", "for a product"],
)
def test_result_that_is_stored(author: object) -> None:
    _, report = rewritten(author, atol=1)  # type: ignore[arg-type]
    assert "rounded in place" not in report.counts


@pytest.mark.parametrize("kind", ["conv", "by channel", "matmul"])
def test_operator_on_integers(kind: str) -> None:
    def author(b: Build) -> Value:
        x = b.op(QuantizeLinear(), b.input(normal(2, 4, 6, 6)), np.float32(0.05), np.uint8(100))
        front = [x, np.float32(0.05), np.uint8(100)]
        behind = (
            [np.float32(0.7), np.int8(-5)] if kind == "conv" else [np.array([0.7], np.float32), np.array([9], np.uint8)]
        )
        if kind == "matmul":
            return b.op(QLinearMatMul(), *front, whole(6, 5), np.float32(0.01), np.int8(3), *behind)
        if kind == "conv":
            return b.op(QLinearConv(), *front, whole(8, 4, 3, 3), np.float32(0.01), np.int8(0), *behind)
        steps = (np.abs(normal(8)) + 0.1).astype(np.float32) / 50
        last = [steps, np.zeros(8, np.int8), *behind, whole(8, dtype=np.int32) >> 20]
        return b.op(QLinearConv(pads=(1, 1, 1, 1)), *front, whole(8, 4, 3, 3), *last)

    graph, report = rewritten(author, atol=1)
    assert report.counts["quantised operator"] == report.counts["requantisation"] == 1
    assert operators(graph)["MatMulInteger" if kind == "matmul" else "ConvInteger"] == 1


def test_operator_on_integers_of_which_one_is_an_input() -> None:
    def author(b: Build) -> Value:
        scale, x = np.float32(0.05), b.input(whole(3, 4, dtype=np.uint8))
        return b.op(QLinearMatMul(), x, scale, np.uint8(3), b.input(whole(4, 5)), scale, np.int8(0), scale, np.uint8(9))

    _, report = rewritten(author)
    assert "quantised operator" not in report.counts


def activated(b: Build, x: Value, zero: int = 7) -> Value:
    """SiLU between quantised tensors, whose sigmoid is quantised, too."""
    numbers = b.op(DequantizeLinear(), x, np.float32(0.3), np.uint8(zero))
    sigmoid = b.op(QuantizeLinear(), b.op(Sigmoid(), numbers), np.float32(1 / 255), np.uint8(0))
    gate = b.op(DequantizeLinear(), sigmoid, np.float32(1 / 255), np.uint8(0))
    return requantised(b, b.op(Mul(), numbers, gate), 0.25, 3)


def test_activation_is_a_table() -> None:
    graph, report = rewritten(lambda b: activated(b, requantised(b, kinds(b, "matmul"))), atol=1)
    assert operators(graph)["Lookup"] == 1
    assert operators(graph)["QuantizeLinear"] == 2  # of the input, and of the product
    assert report.counts["table of bytes"] == 2


@pytest.mark.parametrize(
    "author",
    [
        lambda b: requantised(b, b.op(Sigmoid(), b.input(normal(3, 5)))),
        lambda b: requantised(b, b.op(Add(), quantised(b, 3, 5), np.float32(0.5))),
        lambda b: requantised(b, b.op(Sigmoid(), b.op(Add(), quantised(b, 3, 5), normal(5)))),
        lambda b: requantised(b, b.op(Sigmoid(), b.op(Add(), quantised(b, 3, 5), quantised(b, 3, 5)))),
    ],
    ids=["float", "cheap", "by column", "two tensors"],
)
def test_no_table(author: object) -> None:
    _, report = rewritten(author, atol=1)  # type: ignore[arg-type]
    assert "table of bytes" not in report.counts


@pytest.mark.parametrize(
    "move",
    [
        lambda b, x: b.op(Reshape(), x, np.array([2, -1])),
        lambda b, x: b.op(Transpose(perm=(0, 2, 3, 1)), x),
        lambda b, x: b.op(MaxPool(kernel_shape=(2, 2)), x),
        lambda b, x: b.op(Slice(), x, np.array([1]), np.array([3]), np.array([1])),
    ],
    ids=["reshape", "transpose", "max pool", "slice"],
)
@pytest.mark.parametrize("scale", [0.05, 0.06])
def test_moved_integers(move: object, scale: float) -> None:
    graph, report = rewritten(lambda b: requantised(b, move(b, quantised(b, 2, 4, 6, 5)), scale, 100), atol=1)  # type: ignore[operator]
    assert report.counts["moved integers"] == 1
    assert report.counts.get("quantised again", 0) == (1 if scale == 0.05 else 0)
    left = operators(graph)["QuantizeLinear"] + operators(graph)["Lookup"]
    assert left == (1 if scale == 0.05 else 2)  # the input, and bytes that have another scale


def test_moved_bytes_of_another_scale_are_looked_up() -> None:
    """Nothing computes them, in whose epilogue they could be multiplied."""
    graph, _ = rewritten(lambda b: requantised(b, b.op(Transpose(perm=(1, 0)), quantised(b, 3, 5)), 0.06), atol=1)
    assert operators(graph)["Lookup"] == 1
    graph, _ = rewritten(lambda b: requantised(b, quantised(b, 3, 5), 0.06), atol=1)
    assert operators(graph)["Lookup"] == 0


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("zero", [0, 100])
def test_product_of_two_computed_tensors(turned: bool, zero: int) -> None:
    """Attention's scores, and what they weigh."""

    def author(b: Build) -> Value:
        left = quantised(b, 2, 3, 7, 5, zero=zero)
        right = quantised(b, *((2, 3, 9, 5) if turned else (2, 3, 5, 9)))
        return b.op(MatMul(), left, b.op(Transpose(perm=(0, 1, 3, 2)), right) if turned else right)

    graph, report = rewritten(author, atol=1e-4)
    assert operators(graph)["MatMulInteger"] == 1
    assert report.counts["integer product"] == 1


@pytest.mark.parametrize(
    "mean",
    [
        lambda b, x: b.op(GlobalAveragePool(), x),
        lambda b, x: b.op(ReduceMean(), x, np.array([-1, -2])),
        lambda b, x: b.op(ReduceMean(keepdims=0), x, np.array([1])),
    ],
    ids=["pool", "kept", "gone"],
)
def test_mean_of_integers(mean: object) -> None:
    graph, report = rewritten(lambda b: mean(b, quantised(b, 2, 4, 6, 5)))  # type: ignore[operator]
    assert report.counts["mean of integers"] == 1
    assert operators(graph)["SumOfBytes"] == 1


@pytest.mark.parametrize("mean", [GlobalAveragePool(), ReduceMean(keepdims=0)], ids=["pool", "all"])
@pytest.mark.parametrize("shape", [(2, 3, "h", "w"), ("n", 3, 6, "w"), ("n", "c", "h", "w")])
@pytest.mark.parametrize("zero", [0, 113])
def test_mean_of_an_open_number_of_integers(zero: int, shape: tuple[int | str, ...], mean: Any) -> None:
    """Requantised, it is one multiplication by what the sizes of a run tell."""

    def author(b: Build) -> Value:
        numbers = b.input(whole(2, 3, 6, 5, dtype=np.uint8), shape)
        x = b.op(DequantizeLinear(), numbers, np.float32(0.05), np.uint8(zero))
        return b.op(QuantizeLinear(), b.op(mean, x), np.float32(0.0071), np.uint8(90))

    graph, report = rewritten(author)
    assert report.counts["mean of integers"] == report.counts["requantisation"] == 1
    assert operators(graph)["SumOfBytes"] == 1


@pytest.mark.parametrize("size", [300, 2903], ids=["32 bits", "64 bits"])
def test_mean_of_many_integers(size: int) -> None:
    """The sum of more than 2**31 / 255 bytes has 64 bits."""
    numbers = np.full((1, 1, size, size), 255, np.uint8)
    graph, report = rewritten(
        lambda b: b.op(GlobalAveragePool(), b.op(DequantizeLinear(), b.input(numbers), np.float32(0.01)))
    )
    assert report.counts["mean of integers"] == 1
    assert operators(graph)["SumOfBytes"] == 1


@pytest.mark.parametrize(
    "author",
    [
        lambda b: b.op(GlobalAveragePool(), b.input(normal(1, 3, 4, 4))),
        lambda b: b.op(GlobalAveragePool(), b.op(DequantizeLinear(), b.input(whole(1, 3, 4, 4)), normal(3))),
    ],
    ids=["float", "scales by channel"],
)
def test_mean_that_stays_float(author: object) -> None:
    _, report = rewritten(author)  # type: ignore[arg-type]
    assert "mean of integers" not in report.counts


@pytest.mark.parametrize("sizes", [{"pads": (1, 1, 1, 1)}, {"pads": (0, 1, 1, 2), "count_include_pad": True}, {}])
@pytest.mark.parametrize("strides", [(1, 1), (2, 3)])
def test_average_of_integers(sizes: dict[str, Any], strides: tuple[int, int]) -> None:
    def author(b: Build) -> Value:
        pool = AveragePool(kernel_shape=(3, 2), strides=strides, **sizes)
        return b.op(QuantizeLinear(), b.op(pool, quantised(b, 2, 5, 7, 6)), np.float32(0.0437), np.uint8(100))

    graph, report = rewritten(author)
    assert report.counts["average of integers"] == report.counts["integer convolution"] == 1
    assert operators(graph)["ConvInteger"] == 1 and "AveragePool" not in operators(graph)


@pytest.mark.parametrize(
    "author",
    [
        lambda b: b.op(AveragePool(kernel_shape=(2, 2)), b.input(normal(1, 3, 4, 4))),
        lambda b: b.op(AveragePool(kernel_shape=(2, 2), strides=(2, 2), ceil_mode=True), quantised(b, 1, 3, 5, 5)),
        lambda b: b.op(
            AveragePool(kernel_shape=(2, 2), pads=(1, 1, 1, 1)),
            b.op(DequantizeLinear(), b.input(whole(1, 3, 4, 4), (1, 3, "h", 4)), np.float32(2)),
        ),
    ],
    ids=["float", "ceil mode", "open"],
)
def test_average_that_stays_float(author: object) -> None:
    _, report = rewritten(author)  # type: ignore[arg-type]
    assert "average of integers" not in report.counts


@pytest.mark.parametrize("scales", [1, 6])
@pytest.mark.parametrize("activation", [None, Relu(), LeakyRelu(alpha=0.25)])
def test_transposed_convolution_of_integers(activation: Any, scales: int) -> None:
    """The bytes are moved, and not what they are quantised of."""

    def author(b: Build) -> Value:
        bias = b.op(DequantizeLinear(), whole(6, dtype=np.int32) >> 20, np.float32(0.001))
        x, w = quantised(b, 2, 4, 3, 5), weights(b, 4, 6, 2, 2, axis=1, scales=scales)
        y = b.op(ConvTranspose(strides=(2, 2)), x, w, bias)
        y = y if activation is None else b.op(activation, y)
        return b.op(QuantizeLinear(), y, np.float32(0.1037), np.uint8(80))

    graph, report = rewritten(author)
    assert report.counts["transposed convolution of integers"] == report.counts["integer convolution"] == 1
    (moved,) = (node for node in graph if isinstance(node.operator, DepthToSpace))
    assert moved.output.dtype is DType.UINT8


@pytest.mark.parametrize(
    "attributes",
    [{"strides": (1, 1)}, {"strides": (2, 2), "pads": (1, 1, 1, 1)}, {"strides": (2, 2), "output_padding": (1, 1)}],
    ids=["overlap", "padding", "output padding"],
)
def test_transposed_convolution_that_stays_float(attributes: dict[str, Any]) -> None:
    def author(b: Build) -> Value:
        return b.op(ConvTranspose(**attributes), quantised(b, 1, 4, 3, 5), weights(b, 4, 6, 2, 2, axis=1))

    graph, report = rewritten(author)
    assert "transposed convolution of integers" not in report.counts and operators(graph)["ConvTranspose"] == 1


@pytest.mark.parametrize("scales", [1, 96])
def test_grouped_convolution_of_integers(scales: int) -> None:
    def author(b: Build) -> Value:
        w = weights(b, 96, 32, 3, 3, scales=scales)
        y = b.op(Relu(), b.op(Conv(group=3, pads=(1, 1, 1, 1)), quantised(b, 1, 96, 5, 4), w, normal(96)))
        return b.op(QuantizeLinear(), y, np.float32(0.1037), np.uint8(80))

    graph, report = rewritten(author)
    assert report.counts["grouped convolution of integers"] == 1
    assert operators(graph)["ConvInteger"] == 3 and "DequantizeLinear" not in operators(graph)


@pytest.mark.parametrize("kind", ["narrow", "not quantised", "added to"])
def test_groups_that_stay_together(kind: str) -> None:
    def author(b: Build) -> Value:
        depth = 8 if kind == "narrow" else 32
        x = quantised(b, 1, 3 * depth, 5, 4)
        y = b.op(Conv(group=3, pads=(1, 1, 1, 1)), x, weights(b, 3 * depth, depth, 3, 3))
        if kind == "not quantised":
            return b.op(Relu(), y)
        return b.op(QuantizeLinear(), b.op(Add(), y, x) if kind == "added to" else y, np.float32(0.1137), np.uint8(80))

    _, report = rewritten(author, rtol=1e-4, atol=1e-4)
    assert "grouped convolution of integers" not in report.counts and report.counts["integer convolution"] == 1


def test_concatenated_integers() -> None:
    """The part that has the result's scale is taken as it is."""
    graph, report = rewritten(
        lambda b: requantised(b, b.op(Concat(axis=1), quantised(b, 3, 5), quantised(b, 3, 4, zero=90)), 0.05, 100),
        atol=1,
    )
    assert report.counts["concatenated integers"] == 1
    assert report.counts["quantised again"] == 1
    assert operators(graph)["DequantizeLinear"] == 1


@pytest.mark.parametrize(
    "author",
    [
        lambda b: requantised(b, b.op(Concat(axis=1), quantised(b, 3, 5), b.input(normal(3, 4)))),
        lambda b: _read_twice(b, b.op(Concat(axis=1), quantised(b, 3, 5), quantised(b, 3, 4))),
        lambda b: _parts_read_twice(b, quantised(b, 3, 5), quantised(b, 3, 4)),
    ],
    ids=["float", "read twice", "parts read twice"],
)
def test_concatenated_floats(author: object) -> None:
    _, report = rewritten(author, atol=1)  # type: ignore[arg-type]
    assert "concatenated integers" not in report.counts


def _parts_read_twice(b: Build, x: Value, y: Value) -> tuple[Value, Value]:
    return requantised(b, b.op(Concat(axis=1), x, y)), b.op(Sigmoid(), x)


def masked(b: Build, asked: Value, y: Value) -> Value:
    return b.op(Where(), b.op(IsNaN(), asked), np.float32(0), y)


def test_integers_are_no_nan() -> None:
    def author(b: Build) -> Value:
        x = quantised(b, 3, 5)
        return masked(b, x, x)

    graph, report = rewritten(author)
    assert report.counts["no NaN among integers"] == 1
    assert not operators(graph)["Where"]


@pytest.mark.parametrize(
    "author",
    [
        lambda b: masked(b, *[b.input(normal(3, 5))] * 2),
        lambda b: masked(b, b.op(DequantizeLinear(), b.input(whole(3, 5)), np.float32(np.inf)), b.input(normal(3, 5))),
        lambda b: masked(b, quantised(b, 3, 5), b.input(normal(5))),
    ],
    ids=["float", "infinite scale", "broadcast"],
)
def test_what_may_be_nan(author: object) -> None:
    _, report = rewritten(author)  # type: ignore[arg-type]
    assert "no NaN among integers" not in report.counts


@pytest.mark.parametrize(
    "move",
    [
        lambda b, x: b.op(Reshape(), x, np.array([5, -1])),
        lambda b, x: b.op(Transpose(perm=(1, 0)), x),
    ],
    ids=["reshape", "transpose"],
)
def test_activation_that_is_moved_is_a_table(move: object) -> None:
    """Exporters put a Reshape between an activation and the product behind it."""

    def author(b: Build) -> Value:
        activation = b.op(Sigmoid(), quantised(b, 3, 5))
        return requantised(b, move(b, activation), 0.01)  # type: ignore[operator]

    graph, report = rewritten(author, atol=1)
    assert report.counts["quantised before it is moved"] == 1
    assert report.counts["table of bytes"] == 1
    assert operators(graph)["Lookup"] == 1


@pytest.mark.parametrize(
    "author",
    [
        lambda b: _read_twice(b, b.op(Reshape(), b.op(Sigmoid(), b.input(normal(3, 5))), np.array([5, 3]))),
        lambda b: requantised(b, b.op(Reshape(), b.input(normal(3, 5)), np.array([5, 3]))),
        lambda b: requantised(
            b, b.op(Slice(), b.op(Sigmoid(), b.input(normal(4, 5))), np.array([1]), np.array([3]), np.array([0]))
        ),
        lambda b: b.op(
            QuantizeLinear(axis=0),
            b.op(Reshape(), b.op(Sigmoid(), b.input(normal(3, 5))), np.array([5, 3])),
            np.full(5, 0.1, np.float32),
            np.zeros(5, np.uint8),
        ),
    ],
    ids=["read twice", "an input", "a part", "scales by place"],
)
def test_quantised_where_it_is_moved(author: object) -> None:
    _, report = rewritten(author, atol=1)  # type: ignore[arg-type]
    assert "quantised before it is moved" not in report.counts


def _read_twice(b: Build, x: Value) -> tuple[Value, Value]:
    return requantised(b, x), b.op(Relu(), x)


def test_negative_scale_in_front_of_a_max_pool() -> None:
    def author(b: Build) -> Value:
        x = b.op(DequantizeLinear(), b.input(whole(1, 2, 4, 4)), np.float32(-0.1))
        return b.op(MaxPool(kernel_shape=(2, 2)), x)

    _, report = rewritten(author)
    assert "moved integers" not in report.counts


def test_part_of_a_split_is_quantised_by_a_division() -> None:
    def author(b: Build) -> Value:
        return requantised(b, b.ops(Split(axis=1, num_outputs=2), 2, b.input(normal(3, 6)))[0])

    _, report = rewritten(author)
    assert "requantisation" not in report.counts
