"""Slices: every version, negative and overshooting positions, symbolic sizes."""

from typing import Any

import numpy as np
import pytest

from jitonnx.ir import dims
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Graph, Value
from jitonnx.ir.types import TensorType
from jitonnx.ops.onnx.concat_split import Concat
from jitonnx.ops.onnx.gather import Gather
from jitonnx.ops.onnx.generators import Range
from jitonnx.ops.onnx.shape import Shape
from jitonnx.ops.onnx.slice import Slice
from tests.ops.harness import Case, case, check, check_refused, ints

RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(3, 4, 5)).astype(np.float32)
WORDS = np.array(["a", "b", "c"], object)
MAX, MIN = np.iinfo(np.int64).max, np.iinfo(np.int64).min


def sliced(*bounds: list[int], opset: int = 13, x: np.ndarray = X) -> Case:
    """A Slice with starts, ends, axes, steps as initializers."""
    return case("Slice", opset, x, *(ints(*bound) for bound in bounds), constants=(1, 2, 3, 4)[: len(bounds)])


CASES: list[Case] = [
    case("Slice", 1, X, starts=[1, 0], ends=[3, 2], axes=[1, 2]),
    case("Slice", 1, X, starts=[0, -3], ends=[2, -1], expected=X[:2, -3:-1]),
    *(sliced([1], [3], [1], opset=version) for version in (10, 11, 13)),
    *(sliced([1, 4], [3, 0], [1, 2], [1, -2], opset=version) for version in (10, 11, 13)),
    sliced([1, 0], [-1, 100], [1, 2]),
    sliced([0, 0, 0], [2, 3, 4]),
    sliced([-1], [MIN], [1], [-1]),
    sliced([10, -1], [0, -100], [1, 2], [-2, -1]),
    sliced([0], [MAX], [-1], [2]),
    sliced([3], [1], [2]),
    sliced([-100], [100], [0], [1]),
    sliced([1], [4], [2], [3], x=X.astype(np.int32)),
    case("Slice", 13, X, *(np.array([v], np.int32) for v in (1, 3, -1)), constants=(1, 2, 3)),
    case("Slice", 13, X, ints(1), ints(3), ints(1)),
    sliced([1], [3], x=WORDS),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_slice(case: Case) -> None:
    check(case)


REFUSED = [
    (case("Slice", 13, X, ints(0), ints(1), ints(0), ints(0), constants=(1, 2, 3, 4)), "step 0"),
]


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_refused(case: Case, text: str) -> None:
    check_refused(case, text)


N = dims.variable("n")


def input_of(graph: Graph, *shape: Any) -> Value:
    return graph.add_input("x", TensorType(DType.FLOAT, shape))


def slice_of(graph: Graph, x: Value, start: Value, end: Value, axis: int) -> Value:
    return graph.add(Slice(), [x, start, end, graph.add_constant(ints(axis))])[0]


@pytest.mark.parametrize(
    ("start", "end", "size"),
    [
        (0, MAX, N),
        (1, MAX, dims.maximum(N - 1, 0)),
        (-1, MAX, 1),
        (0, -1, dims.maximum(N - 1, 0)),
        (0, 3, dims.minimum(3, N)),
        (0, 0, 0),
    ],
)
def test_slice_of_a_symbolic_axis(start: int, end: int, size: dims.DimLike) -> None:
    graph = Graph()
    x = input_of(graph, N, 4)
    part = slice_of(graph, x, graph.add_constant(ints(start)), graph.add_constant(ints(end)), 0)
    assert part.shape == (size, 4)


def test_slice_up_to_a_size_is_assumed_to_fit() -> None:
    """Position embeddings do so: the first n of a fixed number of rows."""
    graph = Graph()
    x = input_of(graph, 2, N)
    (shape,) = graph.add(Shape(start=1), [x])
    table = graph.add_constant(np.zeros((512, 8), np.float32), "table")
    part = slice_of(graph, table, graph.add_constant(ints(0)), shape, 0)
    assert part.shape == (N, 8)
    assert list(graph.assumptions) == [(dims.minimum(512, N), N)]


def test_shape_arithmetic_leaves_expressions() -> None:
    graph = Graph()
    x = input_of(graph, N, 4)
    (shape,) = graph.add(Shape(), [x])
    (rows,) = graph.add(Gather(), [shape, graph.add_constant(ints(0))])
    (joined,) = graph.add(Concat(axis=0), [rows, graph.add_constant(ints(7)), rows])
    assert list(joined.contents) == [N, 7, N]
    (row,) = graph.add(Gather(), [shape, graph.add_constant(np.array(0))])
    zero, one = graph.add_constant(np.array(0)), graph.add_constant(np.array(1))
    (positions,) = graph.add(Range(), [zero, row, one])
    assert positions.type == TensorType(DType.INT64, (N,))
