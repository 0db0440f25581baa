"""Slicing, splitting, joining, repeating and padding: every version, negative and overshooting positions."""

from typing import Any

import numpy as np
import pytest

from jitonnx.ir import dims
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Graph, Value
from jitonnx.ir.types import TensorType
from jitonnx.ops.filling import Range
from jitonnx.ops.gather import Gather
from jitonnx.ops.pieces import Concat, Slice
from jitonnx.ops.shape import Shape
from tests.ops.harness import Case, case, check, check_refused, each_version, ints, retyped

RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(3, 4, 5)).astype(np.float32)
WORDS = np.array(["a", "b", "c"], object)
TYPES = (np.float64, np.float16, np.int8, np.int32, np.uint8, np.int64, bool)
MAX, MIN = np.iinfo(np.int64).max, np.iinfo(np.int64).min


def sliced(*bounds: list[int], opset: int = 13, x: np.ndarray = X) -> Case:
    """A Slice with starts, ends, axes, steps as initializers."""
    return case("Slice", opset, x, *(ints(*bound) for bound in bounds), constants=(1, 2, 3, 4)[: len(bounds)])


CASES: list[Case] = [
    # Slice
    case("Slice", 1, X, starts=[1, 0], ends=[3, 2], axes=[1, 2]),
    case("Slice", 1, X, starts=[0, -3], ends=[2, -1], expected=X[:2, -3:-1]),
    *(sliced([1], [3], [1], opset=version) for version in (10, 11, 13)),
    sliced([1, 0], [-1, 100], [1, 2]),
    sliced([0, 0, 0], [2, 3, 4]),
    sliced([-1], [MIN], [1], [-1]),
    sliced([10, -1], [0, -100], [1, 2], [-2, -1]),
    sliced([0], [MAX], [-1], [2]),
    sliced([3], [1], [2]),
    sliced([-100], [100], [0], [1]),
    sliced([1], [4], [2], [3], x=X.astype(np.int32)),
    case("Slice", 13, X, *(np.int32([v]) for v in (1, 3, -1)), constants=(1, 2, 3)),
    case("Slice", 13, X, ints(1), ints(3), ints(1)),
    sliced([1], [3], x=WORDS),
    # Split
    case("Split", 1, X, axis=1, split=[1, 3], outputs=2, expected=(X[:, :1], X[:, 1:])),
    *each_version("Split", X[:, :3], outputs=3, until=13, since=2, axis=1),
    *(case("Split", version, X, split=[1, 3], axis=1, outputs=2) for version in (2, 11)),
    *each_version("Split", X, ints(1, 0, 3), since=13, axis=-2, outputs=3, constants=(1,)),
    *(case("Split", 18, X, axis=2, num_outputs=count, outputs=count) for count in (2, 3, 5)),
    case("Split", 18, X, axis=1, num_outputs=2, outputs=2),
    # Concat
    case("Concat", 1, X, X[:, :1], expected=np.concatenate([X, X[:, :1]], 1)),
    *each_version("Concat", X, X[:, :2], X[:, :0], axis=1),
    *retyped(case("Concat", 13, X, X[..., :2], axis=-1), *TYPES),
    case("Concat", 13, X, axis=0),
    case("Concat", 13, WORDS, WORDS, axis=0),
    # Tile
    case("Tile", 1, X, np.float32([2]), np.float32([1]), constants=(1, 2), expected=np.tile(X, (1, 2, 1))),
    *each_version("Tile", X, ints(2, 1, 3), since=6, constants=(1,)),
    case("Tile", 13, X, ints(1, 0, 2), constants=(1,)),
    case("Tile", 13, X, ints(1, 2, 1)),
    # Pad
    case(
        "Pad",
        1,
        X,
        paddings=[0, 1, 0, 0, 2, 3],
        value=1.5,
        expected=np.pad(X, ((0, 0), (1, 2), (0, 3)), constant_values=1.5),
    ),
    case("Pad", 2, X, pads=[0, 1, 0, 0, 2, 3], value=1.5),
    *(case("Pad", 2, X, pads=[0, 1, 2, 0, 2, 1], mode=mode) for mode in ("reflect", "edge")),
    *each_version("Pad", X, ints(0, 1, -1, 0, 2, 3), np.float32(2.5), since=11, constants=(1, 2)),
    *each_version("Pad", X, ints(0, 1, 2, 0, 2, 1), since=11, constants=(1,)),
    *(case("Pad", 19, X, ints(0, 1, 2, 0, 2, 1), constants=(1,), mode=mode) for mode in ("reflect", "edge", "wrap")),
    *each_version("Pad", X, ints(1, 2), None, ints(-1), since=18, constants=(1, 3)),
    case("Pad", 18, X, ints(1, 2), np.float32(3), np.int32([1])),
    *retyped(case("Pad", 18, X, ints(1, 2, 0, 0, 0, 1), constants=(1,)), *TYPES),
    case("Pad", 13, WORDS, ints(1, 0), np.array("z", object), expected=np.array(["z", "a", "b", "c"], object)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pieces(case: Case) -> None:
    check(case)


REFUSED = [
    (case("Concat", 13, X, X[:, :2], axis=0), "differ outside axis 0"),
    (case("Split", 13, X, ints(1, 1), axis=1, outputs=2, constants=(1,)), "does not add up"),
    (case("Pad", 13, X, ints(1, 1), constants=(1,)), "two an axis"),
    (case("Slice", 13, X, ints(0), ints(1), ints(0), ints(0), constants=(1, 2, 3, 4)), "step 0"),
]


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_refused(case: Case, text: str) -> None:
    check_refused(case, text)


# ---------------------------------------------------------------------------------------------- symbolic sizes


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
    """As position embeddings do: the first n of a fixed number of rows."""
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
