"""Arithmetic moved into weights."""

from __future__ import annotations

import numpy as np
import pytest

from jitonnx.ir.dtypes import DType
from jitonnx.ir.extract import specialise
from jitonnx.ir.types import TensorType
from jitonnx.ops.onnx.activation import Relu
from jitonnx.ops.onnx.arithmetic import Add, Div, Mul, Sub
from jitonnx.ops.onnx.concat_split import Split
from jitonnx.ops.onnx.convolution import Conv, ConvTranspose
from jitonnx.ops.onnx.matmul import Gemm, MatMul
from jitonnx.ops.onnx.normalization import (
    BatchNormalization,
    GroupNormalization,
    InstanceNormalization,
    LayerNormalization,
    RMSNormalization,
)
from jitonnx.ops.onnx.padding import Pad
from jitonnx.ops.onnx.pooling import AveragePool, MaxPool
from jitonnx.ops.onnx.shape import Reshape, Transpose
from jitonnx.passes import optimize
from jitonnx.passes.report import Reason
from tests.passes.graphs import Build, Value, normal, only, operators, rewritten

f = np.float32


def batch_norm(b: Build, x: Value, channels: int) -> Value:
    scale, bias, mean = (normal(channels, seed=seed) for seed in (1, 2, 3))
    return b.op(BatchNormalization(epsilon=1e-3), x, scale, bias, mean, np.abs(normal(channels, seed=4)) + 0.1)


def conv(b: Build) -> Value:
    return b.op(Conv(pads=(1, 1, 1, 1)), b.input(normal(2, 4, 5, 5)), normal(6, 4, 3, 3))


def conv_with_bias(b: Build) -> Value:
    return b.op(Conv(), b.input(normal(2, 4, 5, 5)), normal(6, 4, 3, 3), normal(6))


def grouped_conv(b: Build) -> Value:
    return b.op(Conv(group=2), b.input(normal(2, 4, 5, 5)), normal(6, 2, 3, 3))


def conv_transpose(b: Build) -> Value:
    return b.op(ConvTranspose(strides=(2, 2)), b.input(normal(2, 4, 5, 5)), normal(4, 6, 3, 3), normal(6))


def grouped_conv_transpose(b: Build) -> Value:
    return b.op(ConvTranspose(group=2), b.input(normal(2, 4, 5, 5)), normal(4, 3, 3, 3))


CONVOLUTIONS = [conv, conv_with_bias, grouped_conv, conv_transpose, grouped_conv_transpose]


@pytest.mark.parametrize("author", CONVOLUTIONS)
def test_batch_normalization_into_convolutions(author) -> None:
    graph, report = rewritten(lambda b: batch_norm(b, author(b), 6), rtol=1e-4, atol=1e-5)
    (node,) = graph
    assert len(node.inputs) == 3
    assert report.counts["absorb"] == 2


@pytest.mark.parametrize("author", CONVOLUTIONS)
@pytest.mark.parametrize(
    ("operator", "constant"),
    [
        (Mul(), normal(6, 1, 1)),
        (Mul(), normal(1, 6, 1, 1)),
        (Mul(), f(3)),
        (Div(), np.abs(normal(6, 1, 1)) + f(0.5)),
        (Add(), normal(6, 1, 1)),
        (Sub(), normal(1, 6, 1, 1)),
        (Add(), np.full((1, 1, 1), 2, f)),
    ],
)
def test_constants_by_channel_into_convolutions(author, operator, constant) -> None:
    assert len(rewritten(lambda b: b.op(operator, author(b), constant), rtol=1e-4, atol=1e-5)[0]) == 1


@pytest.mark.parametrize(
    ("operator", "constant"),
    [(Mul(), normal(3)), (Add(), normal(6, 3, 3)), (Mul(), normal(2, 1, 1, 1)), (Div(), np.zeros((6, 1, 1), f))],
)
def test_other_constants_stay(operator, constant) -> None:
    assert len(rewritten(lambda b: b.op(operator, grouped_conv(b), constant))[0]) == 2


def test_a_result_read_by_others_is_not_scaled() -> None:
    def author(b: Build) -> list[Value]:
        y = conv(b)
        return [b.op(Mul(), y, f(3)), b.op(Relu(), y)]

    graph, report = rewritten(author)
    assert operators(graph) == {"Conv": 1, "Mul": 1, "Relu": 1}
    assert [entry.reason for entry in report.declined] == [Reason.OTHER_USES]


def test_weights_that_are_fed_stay() -> None:
    def author(b: Build) -> Value:
        return b.op(Mul(), b.op(Conv(), b.input(normal(1, 2, 3, 3)), b.input(normal(4, 2, 1, 1))), f(3))

    graph, report = rewritten(author)
    assert len(graph) == 2
    assert [entry.reason for entry in report.declined] == [Reason.NOT_CONSTANT]


def test_large_shared_weights_are_not_copied() -> None:
    weight = normal(600, 500)

    def author(b: Build) -> list[Value]:
        x, shared = b.input(normal(2, 600)), b.graph.add_constant(weight)
        return [b.op(Mul(), b.op(MatMul(), x, shared), f(3)), b.op(Add(), shared, b.input(normal(500)))]

    graph, report = rewritten(author, rtol=1e-4, atol=1e-4)
    assert operators(graph) == {"MatMul": 1, "Mul": 1, "Add": 1}
    assert [entry.reason for entry in report.declined] == [Reason.TOO_LARGE]


def test_large_weights_shared_with_the_graph_copied_are_scaled() -> None:
    build = Build()
    x = build.input(normal(2, 600), ("rows", 600))
    build.graph.outputs = [build.op(Mul(), build.op(MatMul(), x, normal(600, 500)), f(3))]
    graph = specialise(build.graph, [TensorType(DType.FLOAT, (2, 600))])
    optimize(graph)
    assert operators(graph) == {"MatMul": 1}
    assert operators(build.graph) == {"MatMul": 1, "Mul": 1}


def test_constants_that_leave_the_range_of_half_precision() -> None:
    def author(b: Build) -> Value:
        x = b.input(normal(1, 2, dtype=np.float16))
        return b.op(Mul(), b.op(MatMul(), x, np.full((2, 3), 3e4, np.float16)), np.float16(4))

    graph, report = rewritten(author)
    assert operators(graph) == {"MatMul": 1, "Mul": 1}
    assert [entry.reason for entry in report.declined] == [Reason.NOT_FINITE]


def test_batch_normalization_alone_is_a_product_and_a_sum() -> None:
    graph, _ = rewritten(lambda b: batch_norm(b, b.input(normal(2, 6, 3)), 6), atol=1e-5)
    assert operators(graph) == {"Mul": 1, "Add": 1}


def test_batch_normalization_with_statistics_that_are_fed() -> None:
    def author(b: Build) -> Value:
        ones = np.ones(6, f)
        return b.op(BatchNormalization(), b.input(normal(2, 6, 3)), ones, ones, ones, b.input(ones))

    graph, report = rewritten(author)
    assert operators(graph) == {"BatchNormalization": 1}
    assert [entry.reason for entry in report.declined] == [Reason.NOT_CONSTANT]


def test_batch_normalization_behind_a_gemm() -> None:
    def author(b: Build) -> Value:
        return batch_norm(b, b.op(Gemm(transB=True), b.input(normal(3, 4)), normal(6, 4), normal(6)), 6)

    assert operators(rewritten(author, rtol=1e-4, atol=1e-5)[0]) == {"MatMul": 1, "Add": 1}


@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize("beta", [1.0, 0.5, 0.0])
def test_gemm(flipped, beta) -> None:
    def author(b: Build) -> Value:
        x, w = normal(*((4, 3) if flipped else (3, 4))), normal(*((5, 4) if flipped else (4, 5)))
        return b.op(Gemm(transA=flipped, transB=flipped, alpha=2.0, beta=beta), b.input(x), w, b.input(normal(3, 1)))

    found = dict(operators(rewritten(author)[0]))
    assert found.pop("Gemm", 0) == 0
    assert found.pop("Transpose", 0) == flipped
    assert found == {"MatMul": 1} | ({"Add": 1} if beta else {}) | ({"Mul": 1} if beta == 0.5 else {})


def test_gemm_of_integers_stays() -> None:
    graph, report = rewritten(lambda b: b.op(Gemm(), b.input(np.ones((2, 2), np.int32)), np.ones((2, 2), np.int32)))
    assert operators(graph) == {"Gemm": 1}
    assert [entry.reason for entry in report.declined] == [Reason.DTYPE]


def test_a_scaled_projection() -> None:
    """The scale of an attention moves through the bias into the weights."""

    def author(b: Build) -> Value:
        q = b.op(Add(), normal(6), b.op(MatMul(), b.input(normal(2, 3, 4)), normal(4, 6)))
        return b.op(Div(), b.op(Mul(), q, normal(6)), f(8))

    assert operators(rewritten(author)[0]) == {"MatMul": 1, "Add": 1}


def test_constants_in_a_row() -> None:
    def author(b: Build) -> list[Value]:
        x = b.op(Relu(), b.input(normal(2, 3)))
        return [
            b.op(Mul(), b.op(Div(), b.op(Mul(), x, f(3)), f(4)), normal(3)),
            b.op(Add(), b.op(Sub(), b.op(Add(), x, f(3)), normal(2, 1)), normal(3)),
        ]

    assert operators(rewritten(author)[0]) == {"Relu": 1, "Mul": 1, "Add": 1}


NORMS = [
    (lambda b, x: b.op(LayerNormalization(), x, normal(5), normal(5)), normal(5, seed=6), 4),
    (lambda b, x: b.op(LayerNormalization(axis=2), x, normal(4, 5)), normal(4, 5, seed=6), 4),
    (lambda b, x: b.op(LayerNormalization(axis=2), x, normal(5)), normal(4, 1, seed=6), 4),
    (lambda b, x: b.op(GroupNormalization(num_groups=3), x, normal(6), normal(6)), normal(6, 1, 1, seed=6), 4),
    (lambda b, x: b.op(InstanceNormalization(), x, normal(6), normal(6)), normal(1, 6, 1, 1, seed=6), 4),
]


@pytest.mark.parametrize(("norm", "constant", "rank"), NORMS)
def test_norms_take_scale_and_bias(norm, constant, rank) -> None:
    def author(b: Build) -> Value:
        y = b.op(Mul(), norm(b, b.input(normal(2, 6, 4, 5))), constant)
        return b.op(Sub(), y, constant * f(0.5))

    assert len(rewritten(author, rtol=1e-4, atol=1e-5)[0]) == 1


def test_a_constant_over_axes_that_are_not_normalised_stays() -> None:
    graph, _ = rewritten(
        lambda b: b.op(Mul(), b.op(LayerNormalization(), b.input(normal(2, 4, 5)), normal(5)), normal(4, 1))
    )
    assert len(graph) == 2


def test_rms_normalization_takes_a_scale_only() -> None:
    def author(b: Build) -> Value:
        y = b.op(Mul(), b.op(RMSNormalization(), b.input(normal(2, 5)), normal(5)), normal(5, seed=3))
        return b.op(Add(), y, normal(5, seed=4))

    assert operators(rewritten(author)[0]) == {"RMSNormalization": 1, "Add": 1}


# ---------------------------------------------------------------- padding

SIDES = np.array([0, 0, 1, 2, 0, 0, 3, 0])


def padded(b: Build, value: float = 0.0, mode: str = "constant") -> Value:
    return b.op(Pad(mode=mode), b.input(normal(1, 2, 6, 6)), SIDES, f(value))


@pytest.mark.parametrize(
    ("author", "operator"),
    [
        (lambda b: b.op(Conv(pads=(1, 0, 1, 0)), padded(b), normal(3, 2, 3, 3)), Conv),
        (lambda b: b.op(Conv(auto_pad="VALID", strides=(2, 2)), padded(b), normal(3, 2, 3, 3)), Conv),
        (lambda b: b.op(AveragePool(kernel_shape=(3, 3)), padded(b)), AveragePool),
        (
            lambda b: b.op(AveragePool(kernel_shape=(3, 3), pads=(1, 1, 1, 1), count_include_pad=True), padded(b)),
            AveragePool,
        ),
        (lambda b: b.op(MaxPool(kernel_shape=(3, 3), strides=(2, 2)), padded(b, -np.inf)), MaxPool),
    ],
)
def test_pad_into_windows(author, operator) -> None:
    graph, _ = rewritten(author)
    assert len(graph) == 1
    assert any(only(graph, operator).operator.pads)


@pytest.mark.parametrize(
    ("author", "reason"),
    [
        (lambda b: b.op(Conv(), padded(b, 1.0), normal(3, 2, 3, 3)), Reason.NOT_EXACT),
        (lambda b: b.op(Conv(), padded(b, mode="edge"), normal(3, 2, 3, 3)), Reason.ATTRIBUTE),
        (lambda b: b.op(Conv(auto_pad="SAME_UPPER"), padded(b), normal(3, 2, 3, 3)), Reason.ATTRIBUTE),
        (lambda b: b.op(MaxPool(kernel_shape=(3, 3)), padded(b)), Reason.NOT_EXACT),
        (lambda b: b.op(AveragePool(kernel_shape=(3, 3), pads=(1, 1, 1, 1)), padded(b)), Reason.ATTRIBUTE),
        (lambda b: b.op(AveragePool(kernel_shape=(3, 3), ceil_mode=True, strides=(2, 2)), padded(b)), Reason.ATTRIBUTE),
    ],
)
def test_pads_that_stay(author, reason) -> None:
    graph, report = rewritten(author)
    assert operators(graph)["Pad"] == 1
    assert [entry.reason for entry in report.declined] == [reason]


# ---------------------------------------------------------------- merged projections


@pytest.mark.parametrize("biased", [(True, True, True), (False, False, False), (True, False, True)])
def test_projections_are_merged(biased) -> None:
    def author(b: Build) -> list[Value]:
        x = b.op(Relu(), b.input(normal(2, 3, 4)))
        results = []
        for i, (bias, width) in enumerate(zip(biased, (5, 6, 6), strict=True)):
            y = b.op(MatMul(), x, normal(4, width, seed=i))
            results.append(b.op(Relu(), b.op(Add(), y, normal(width)) if bias else y))
        return results

    graph, report = rewritten(author)
    assert operators(graph)["MatMul"] == 1
    assert report.counts["merged projections"] == 1
    assert only(graph, Split).inputs[1].constant.tolist() == [5, 6, 6]


def test_products_of_different_tensors_are_not_merged() -> None:
    def author(b: Build) -> list[Value]:
        return [b.op(MatMul(), b.input(normal(2, 3, seed=i)), normal(3, 4)) for i in range(2)]

    assert operators(rewritten(author)[0]) == {"MatMul": 2}


# ---------------------------------------------------------------- moves


def test_a_residual_stream_stays_in_one_layout() -> None:
    """Transposes around each block of a network meet behind the sum and cancel."""

    def author(b: Build) -> Value:
        x = b.op(Transpose(perm=(0, 3, 1, 2)), b.op(Relu(), b.input(normal(1, 3, 4, 8))))
        for _ in range(3):
            y = b.op(LayerNormalization(), b.op(Transpose(perm=(0, 2, 3, 1)), x), normal(8), normal(8))
            y = b.op(Transpose(perm=(0, 3, 1, 2)), b.op(MatMul(), y, normal(8, 8) / f(4)))
            x = b.op(Add(), b.op(Mul(), normal(8, 1, 1), y), x)
        return x

    graph, _ = rewritten(author, rtol=1e-4, atol=1e-4)
    assert operators(graph) == {"Relu": 1, "LayerNormalization": 3, "MatMul": 3, "Add": 3, "Transpose": 1}


def test_leading_axes_pass_through_products() -> None:
    def author(b: Build) -> Value:
        x = b.op(Relu(), b.input(normal(2, 3, 4)))
        y = b.op(Gemm(), b.op(Reshape(), x, [-1, 4]), normal(4, 5), normal(5))
        return b.op(Add(), b.op(Reshape(), b.op(Relu(), y), [2, 3, 5]), b.input(normal(2, 3, 5)))

    assert operators(rewritten(author)[0]) == {"Relu": 2, "MatMul": 1, "Add": 2}
