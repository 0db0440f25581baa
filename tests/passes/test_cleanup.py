"""No-ops and repetitions."""

from __future__ import annotations

import numpy as np
import pytest

from jitonnx.ir.dtypes import DType
from jitonnx.ops.onnx.activation import Relu, Sigmoid
from jitonnx.ops.onnx.arithmetic import Abs, Add, Max, Mul, Neg, Sub, Sum
from jitonnx.ops.onnx.cast import Cast, CastLike
from jitonnx.ops.onnx.concat_split import Concat, Split
from jitonnx.ops.onnx.dropout import Dropout
from jitonnx.ops.onnx.identity import Identity
from jitonnx.ops.onnx.logic import Greater, Not
from jitonnx.ops.onnx.padding import Pad
from jitonnx.ops.onnx.pooling import AveragePool, MaxPool
from jitonnx.ops.onnx.reduction import ReduceMax, ReduceMean, ReduceSum
from jitonnx.ops.onnx.resize import Resize
from jitonnx.ops.onnx.shape import Expand, Reshape
from jitonnx.ops.onnx.slice import Slice
from jitonnx.ops.onnx.tile import Tile
from jitonnx.passes import optimize
from jitonnx.passes.report import Reason
from jitonnx.passes.rules.cleanup import lossless
from tests.passes.graphs import Build, Value, normal, operators, rewritten

f = np.float32


def to(dtype: DType) -> Cast:
    return Cast(to=int(dtype))


NO_OPS = {
    "identity": lambda b, x: b.op(Identity(), x),
    "dropout": lambda b, x: b.op(Dropout(), x),
    "dropout not in training": lambda b, x: b.op(Dropout(), x, f(0.5), np.array(False)),
    "cast to its type": lambda b, x: b.op(to(DType.FLOAT), x),
    "cast there and back": lambda b, x: b.op(to(DType.FLOAT), b.op(to(DType.DOUBLE), x)),
    "negated twice": lambda b, x: b.op(Neg(), b.op(Neg(), x)),
    "sum of one": lambda b, x: b.op(Sum(), x),
    "maximum of one": lambda b, x: b.op(Max(), x),
    "concat of one": lambda b, x: b.op(Concat(axis=0), x),
    "pad by 0": lambda b, x: b.op(Pad(), x, np.zeros(8, np.int64)),
    "tile by 1": lambda b, x: b.op(Tile(), x, np.ones(4, np.int64)),
    "slice of all": lambda b, x: b.op(Slice(), x, [0], [99], [1]),
    "reshape to its shape": lambda b, x: b.op(Reshape(), x, [1, 0, -1, 4]),
    "expand to its shape": lambda b, x: b.op(Expand(), x, [3, 1, 1]),
    "average of one": lambda b, x: b.op(AveragePool(kernel_shape=(1, 1)), x),
    "maximum over one": lambda b, x: b.op(MaxPool(kernel_shape=(1, 1), strides=(1, 1)), x),
    "mean over one": lambda b, x: b.op(ReduceMean(), x, np.array([0])),
    "relu twice": lambda b, x: b.op(Relu(), x),
    "concat of a split": lambda b, x: b.op(Concat(axis=1), *b.ops(Split(axis=1), 2, x, [1, 2])),
}


@pytest.mark.parametrize("case", NO_OPS)
def test_no_ops(case: str) -> None:
    graph, _ = rewritten(lambda b: NO_OPS[case](b, b.op(Relu(), b.input(normal(1, 3, 4, 4)))))
    assert operators(graph) == {"Relu": 1}


def two_casts(first: DType, second: DType, array: np.ndarray):
    return lambda b: b.op(to(second), b.op(to(first), b.input(array)))


@pytest.mark.parametrize(
    ("author", "count"),
    [
        (two_casts(DType.INT64, DType.FLOAT, np.array([True, False])), 1),
        (two_casts(DType.FLOAT, DType.DOUBLE, normal(3, dtype=np.float16)), 1),
        (two_casts(DType.INT32, DType.FLOAT, normal(3) * 9), 2),
        (two_casts(DType.FLOAT16, DType.FLOAT, normal(3)), 2),
        (two_casts(DType.DOUBLE, DType.INT64, np.array([2**62 + 1])), 2),
        (two_casts(DType.BOOL, DType.FLOAT, normal(3)), 2),
    ],
)
def test_casts_in_a_row(author, count) -> None:
    assert len(rewritten(author)[0]) == count


@pytest.mark.parametrize(
    ("narrow", "wide", "expected"),
    [
        (DType.INT8, DType.INT16, True),
        (DType.INT8, DType.UINT8, False),
        (DType.INT32, DType.DOUBLE, True),
        (DType.INT32, DType.FLOAT, False),
        (DType.BFLOAT16, DType.FLOAT, True),
        (DType.BFLOAT16, DType.FLOAT16, False),
        (DType.BOOL, DType.STRING, False),
    ],
)
def test_lossless(narrow, wide, expected) -> None:
    assert lossless(narrow, wide) is expected


def test_cast_like_is_a_cast() -> None:
    assert len(rewritten(lambda b: b.op(CastLike(), b.input(np.arange(3)), b.input(normal(2))))[0]) == 1
    assert operators(rewritten(lambda b: b.op(CastLike(), b.input(normal(3)), normal(2)))[0]) == {"Identity": 1}


def test_variadic_sums_are_sums_of_two() -> None:
    graph, _ = rewritten(lambda b: b.op(Sum(), b.input(normal(3)), b.input(normal(2, 1)), b.input(normal(1))))
    assert operators(graph) == {"Add": 2}


def test_dropout_in_training_stays() -> None:
    def author(b: Build) -> Value:
        return b.op(Dropout(seed=1), b.input(normal(3)), f(0.0), np.array(True))

    graph, report = rewritten(author)
    assert operators(graph) == {"Dropout": 1}
    assert [entry.reason for entry in report.declined] == [Reason.ATTRIBUTE]


def test_negations_of_conditions() -> None:
    def author(b: Build) -> Value:
        return b.op(Not(), b.op(Not(), b.op(Greater(), b.input(normal(3)), f(0))))

    assert operators(rewritten(author)[0]) == {"Greater": 1}


def test_reductions_over_axes_of_one_element_are_reshapes() -> None:
    def author(b: Build) -> list[Value]:
        x = b.op(Sigmoid(), b.input(normal(1, 3, 1)))
        results = [b.op(kind(keepdims=0), x, np.array([0, 2])) for kind in (ReduceSum, ReduceMax)]
        return [b.op(Abs(), result) for result in results]

    assert operators(rewritten(author)[0]) == {"Sigmoid": 1, "Reshape": 1, "Abs": 2}


def test_nested_concats_are_one() -> None:
    def author(b: Build) -> Value:
        x, y, z = (b.input(normal(2, size, seed=size)) for size in (1, 2, 3))
        return b.op(Concat(axis=-1), x, b.op(Concat(axis=1), y, z), x)

    assert operators(rewritten(author)[0]) == {"Concat": 1}


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_one_pixel_resized_is_expanded(mode: str) -> None:
    def author(b: Build) -> Value:
        return b.op(Resize(mode=mode), b.input(normal(2, 3, 1, 1)), None, None, np.array([2, 3, 4, 5]))

    assert operators(rewritten(author)[0]) == {"Expand": 1}


def test_equal_nodes_become_one() -> None:
    def author(b: Build) -> Value:
        x, y = b.input(normal(3)), b.input(normal(3, seed=1))
        first = b.op(Add(), b.op(Relu(), x), b.op(Mul(), x, y))
        second = b.op(Add(), b.op(Mul(), y, x), b.op(Relu(), x))
        return b.op(Mul(), b.op(Sub(), first, f(2)), b.op(Sub(), second, np.array(2, f)))

    graph, report = rewritten(author)
    assert operators(graph) == {"Relu": 1, "Mul": 2, "Add": 1, "Sub": 1}
    assert report.counts["merge equal"] == 4


def test_random_nodes_are_not_merged() -> None:
    def author(b: Build) -> list[Value]:
        x = b.input(normal(3))
        return [b.op(Dropout(), x, b.input(f(0)), b.input(np.array(False))) for _ in range(2)]

    b = Build()
    b.graph.outputs = author(b)
    optimize(b.graph)
    assert operators(b.graph) == {"Dropout": 2}


def test_two_graph_outputs_keep_two_names() -> None:
    graph, _ = rewritten(lambda b: [b.op(Relu(), x) for x in [b.input(normal(3))] for _ in range(2)])
    assert len({value.name for value in graph.outputs}) == 2
