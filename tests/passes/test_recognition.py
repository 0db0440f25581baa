"""Activations, norms and softmax that exporters spell out."""

from __future__ import annotations

import math

import numpy as np
import pytest

from jitonnx.ops.onnx.activation import Gelu, HardSigmoid, Mish, Sigmoid, Softplus, Swish, Tanh
from jitonnx.ops.onnx.arithmetic import Add, Clip, Div, Erf, Exp, Mul, Pow, Reciprocal, Sqrt, Sub
from jitonnx.ops.onnx.normalization import (
    GroupNormalization,
    InstanceNormalization,
    LayerNormalization,
    RMSNormalization,
)
from jitonnx.ops.onnx.reduction import ReduceMax, ReduceMean, ReduceSum
from jitonnx.ops.onnx.shape import Reshape
from jitonnx.passes.report import Reason
from tests.passes.graphs import Build, Value, normal, only, operators, rewritten

f = np.float32


def gelu_erf(b: Build, x: Value) -> Value:
    factor = b.op(Add(), b.op(Erf(), b.op(Div(), x, f(math.sqrt(2)))), f(1))
    return b.op(Mul(), b.op(Mul(), x, factor), f(0.5))


def gelu_tanh(b: Build, x: Value) -> Value:
    cube = b.op(Mul(), b.op(Pow(), x, f(3)), f(0.044715))
    inner = b.op(Mul(), b.op(Add(), x, cube), f(math.sqrt(2 / math.pi)))
    return b.op(Mul(), b.op(Mul(), x, f(0.5)), b.op(Add(), b.op(Tanh(), inner), f(1)))


def gelu_tanh_factored(b: Build, x: Value) -> Value:
    inner = b.op(Add(), b.op(Mul(), b.op(Mul(), x, x), f(0.044715)), f(1))
    inner = b.op(Mul(), b.op(Mul(), x, f(0.79788456)), inner)
    return b.op(Mul(), b.op(Mul(), x, f(0.5)), b.op(Add(), f(1), b.op(Tanh(), inner)))


def silu(b: Build, x: Value) -> Value:
    return b.op(Mul(), b.op(Sigmoid(), x), x)


def quick_gelu(b: Build, x: Value) -> Value:
    return b.op(Mul(), x, b.op(Sigmoid(), b.op(Mul(), x, f(1.702))))


def hard_swish(b: Build, x: Value) -> Value:
    return b.op(Mul(), x, b.op(HardSigmoid(alpha=1 / 6, beta=0.5), x))


def hard_swish_clipped(b: Build, x: Value) -> Value:
    return b.op(Div(), b.op(Mul(), x, b.op(Clip(), b.op(Add(), x, f(3)), f(0), f(6))), f(6))


def hard_sigmoid_clipped(b: Build, x: Value) -> Value:
    return b.op(Div(), b.op(Clip(), b.op(Add(), x, f(3)), f(0), f(6)), f(6))


def mish(b: Build, x: Value) -> Value:
    return b.op(Mul(), x, b.op(Tanh(), b.op(Softplus(), x)))


@pytest.mark.parametrize(
    ("author", "expected"),
    [
        (gelu_erf, Gelu()),
        (gelu_tanh, Gelu(approximate="tanh")),
        (gelu_tanh_factored, Gelu(approximate="tanh")),
        (silu, Swish()),
        (hard_swish, None),
        (hard_swish_clipped, None),
        (hard_sigmoid_clipped, HardSigmoid(alpha=1 / 6, beta=0.5)),
        (mish, Mish()),
    ],
)
def test_activations(author, expected) -> None:
    x = np.concatenate([normal(50) * 3, [0, -0.0, 40, -40, 3, -3]]).astype(f)
    graph, report = rewritten(lambda b: author(b, b.input(x)), rtol=1e-5, atol=1e-5)
    (node,) = graph
    assert node.operator.name == "HardSwish" if expected is None else node.operator == expected
    assert len(report.applied[-1].origin) >= 2


def test_scaled_swish() -> None:
    graph, _ = rewritten(lambda b: quick_gelu(b, b.input(normal(9))))
    assert only(graph, Swish).operator.alpha == pytest.approx(1.702)


def test_a_part_that_is_read_elsewhere_keeps_a_gelu_apart() -> None:
    def author(b: Build) -> list[Value]:
        x = b.input(normal(9))
        sigmoid = b.op(Sigmoid(), x)
        return [b.op(Mul(), x, sigmoid), b.op(Tanh(), sigmoid)]

    graph, report = rewritten(author)
    assert operators(graph) == {"Sigmoid": 1, "Mul": 1, "Tanh": 1}
    (declined,) = report.declined
    assert (declined.rewrite, declined.reason) == ("swish", Reason.OTHER_USES)
    assert declined in report.of(declined.origin[0])


def test_a_part_that_is_a_graph_output_keeps_it_apart() -> None:
    def author(b: Build) -> list[Value]:
        x = b.input(normal(9))
        sigmoid = b.op(Sigmoid(), x)
        return [b.op(Mul(), x, sigmoid), sigmoid]

    _, report = rewritten(author)
    assert [entry.reason for entry in report.declined] == [Reason.OTHER_USES]


def test_no_recognition_at_the_basic_level() -> None:
    graph, _ = rewritten(lambda b: silu(b, b.input(normal(9))), level=1)
    assert operators(graph) == {"Sigmoid": 1, "Mul": 1}


# ---------------------------------------------------------------- norms


def spelled_norm(b: Build, x: Value, axes: list[int], twice: bool, inverse: bool, affine: bool) -> Value:
    """Layer normalisation by means; the deviation computed once or twice."""
    mean = b.op(ReduceMean(), x, np.array(axes))
    deviation = b.op(Sub(), x, mean)
    other = b.op(Sub(), x, b.op(ReduceMean(), x, np.array(axes))) if twice else deviation
    square = b.op(Mul(), other, other) if inverse else b.op(Pow(), other, f(2))
    root = b.op(Sqrt(), b.op(Add(), b.op(ReduceMean(), square, np.array(axes)), f(1e-5)))
    y = b.op(Mul(), deviation, b.op(Reciprocal(), root)) if inverse else b.op(Div(), deviation, root)
    if not affine:
        return y
    return b.op(Add(), b.op(Mul(), y, normal(8, seed=2)), normal(8, seed=3))


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("affine", [False, True])
def test_layer_normalization(twice: bool, inverse: bool, affine: bool) -> None:
    x = normal(3, 5, 8) * 3 + 1
    graph, _ = rewritten(lambda b: spelled_norm(b, b.input(x), [-1], twice, inverse, affine), atol=1e-5)
    assert operators(graph) == {"LayerNormalization": 1}
    node = only(graph, LayerNormalization)
    assert node.operator.epsilon == pytest.approx(1e-5)
    assert len(node.inputs) == (3 if affine else 2)


def test_layer_normalization_over_two_axes() -> None:
    graph, _ = rewritten(lambda b: spelled_norm(b, b.input(normal(3, 5, 8)), [1, 2], False, False, True), atol=1e-5)
    assert only(graph, LayerNormalization).operator.axis == 1


def test_layer_normalization_over_inner_axes_is_declined() -> None:
    _, report = rewritten(lambda b: spelled_norm(b, b.input(normal(3, 5, 8)), [1], False, False, False), atol=1e-5)
    assert {entry.reason for entry in report.declined} == {Reason.SHAPE}


def test_layer_normalization_over_an_unknown_size_is_declined() -> None:
    def author(b: Build) -> Value:
        return spelled_norm(b, b.input(normal(3, 5), (3, "n")), [1], False, False, False)

    assert {entry.reason for entry in rewritten(author, atol=1e-5)[1].declined} == {Reason.UNKNOWN_SHAPE}


@pytest.mark.parametrize("order", [0, 1])
def test_rms_normalization(order: int) -> None:
    def author(b: Build) -> Value:
        x = b.input(normal(3, 8))
        root = b.op(Sqrt(), b.op(Add(), b.op(ReduceMean(), b.op(Pow(), x, f(2)), np.array([-1])), f(1e-6)))
        y = b.op(Mul(), x, b.op(Reciprocal(), root)) if order else b.op(Div(), x, root)
        return b.op(Mul(), normal(8), y)

    graph, _ = rewritten(author)
    assert operators(graph) == {"RMSNormalization": 1}
    assert only(graph, RMSNormalization).operator.axis == 1


def test_softmax() -> None:
    def author(b: Build) -> Value:
        x = b.input(normal(3, 8) * 20)
        e = b.op(Exp(), b.op(Sub(), x, b.op(ReduceMax(), x, np.array([1]))))
        return b.op(Div(), e, b.op(ReduceSum(), e, np.array([1])))

    assert operators(rewritten(author)[0]) == {"Softmax": 1}


@pytest.mark.parametrize("affine", [False, True])
def test_group_normalization(affine: bool) -> None:
    def author(b: Build) -> Value:
        x = b.input(normal(2, 6, 4, 5))
        groups = b.op(Reshape(), x, np.array([0, 3, -1]))
        y = b.op(InstanceNormalization(), groups, normal(3, seed=1), normal(3, seed=2))
        y = b.op(Reshape(), y, np.array([2, 6, 4, 5]))
        return b.op(Add(), b.op(Mul(), y, normal(6, 1, 1)), normal(6, 1, 1, seed=5)) if affine else y

    graph, _ = rewritten(author, atol=1e-5)
    assert operators(graph) == {"GroupNormalization": 1}
    assert only(graph, GroupNormalization).operator.num_groups == 3
