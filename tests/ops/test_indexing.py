"""Gathering, slicing, splitting, joining, padding and filling: every version, negative and overshooting positions."""

from typing import Any

import numpy as np
import pytest

from jitonnx.errors import Fail
from jitonnx.ir import dims
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Graph, Value
from jitonnx.ir.types import TensorType
from jitonnx.model import load
from jitonnx.ops.indexing import Concat, Gather, Range, Slice
from jitonnx.ops.shape import Shape
from tests.ops.harness import Case, build, case, check, each_version, retyped

RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(3, 4, 5)).astype(np.float32)
WORDS = np.array(["a", "b", "c"], object)
TYPES = (np.float64, np.float16, np.int8, np.int32, np.uint8, np.int64, bool)
INDICES = np.array([[0, -1], [2, 1]])
MAX, MIN = np.iinfo(np.int64).max, np.iinfo(np.int64).min


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def sliced(*bounds: list[int], opset: int = 13, x: np.ndarray = X) -> Case:
    """A Slice with starts, ends, axes, steps as initializers."""
    return case("Slice", opset, x, *(ints(*bound) for bound in bounds), constants=(1, 2, 3, 4)[: len(bounds)])


CASES: list[Case] = [
    # Gather
    *each_version("Gather", X, INDICES),
    *(
        case("Gather", 13, X, INDICES, axis=axis, constants=constants)
        for axis in (1, 2, -2)
        for constants in ((), (1,))
    ),
    *(case("Gather", 13, X, np.array(at), axis=1, constants=(1,)) for at in (0, 2, -1)),
    case("Gather", 13, X, ints(2), axis=0, constants=(1,)),
    case("Gather", 13, X, INDICES.astype(np.int32), axis=1),
    case("Gather", 13, X, np.zeros((0, 2), np.int64)),
    *retyped(case("Gather", 13, X, INDICES[:1, :1], constants=(1,)), *TYPES),
    case("Gather", 13, WORDS, ints(2, 0), expected=np.array(["c", "a"], object)),
    *each_version("GatherElements", X, RANDOM.integers(-3, 3, (2, 4, 5))),
    *(case("GatherElements", 13, X, RANDOM.integers(-3, 3, (3, 2, 4)), axis=axis) for axis in (1, 2, -1)),
    *each_version("GatherND", X, np.array([[0, 1], [2, -1]])),
    case("GatherND", 13, X, np.array([[[0, 1, 2]], [[1, 1, 1]]])),
    case("GatherND", 13, X, np.array([[1], [0], [3]]), batch_dims=1),
    case("GatherND", 12, X, RANDOM.integers(0, 4, (3, 2, 1)), batch_dims=1),
    case("GatherND", 13, X, RANDOM.integers(0, 5, (3, 4, 2, 1)), batch_dims=2),
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
    # Range
    *each_version("Range", np.int64(2), np.int64(11), np.int64(3), constants=(0, 1, 2)),
    *(
        case("Range", 11, *(np.array(v, dtype) for v in values), constants=(0, 1, 2))
        for dtype in (np.float32, np.float64, np.int16, np.int32)
        for values in ((1, 10, 2), (10, 1, -3), (3, 3, 1), (5, 1, 1))
    ),
    case("Range", 11, np.float32(0.1), np.float32(2), np.float32(0.3)),
    case(
        "Range",
        27,
        np.float16(1),
        np.float16(3),
        np.float16(0.25),
        constants=(0, 1, 2),
        expected=np.arange(1, 3, 0.25, np.float16),
    ),
    # ConstantOfShape
    *each_version("ConstantOfShape", ints(2, 3), constants=(0,)),
    *each_version("ConstantOfShape", ints(2, 0), value=np.int64([7]), constants=(0,)),
    case("ConstantOfShape", 9, np.zeros(0, np.int64), value=np.array([True]), constants=(0,)),
    case("ConstantOfShape", 9, ints(2, 2), value=np.float16([1.5])),
    # OneHot
    *each_version("OneHot", np.array([0, 2, 1]), np.int64(3), np.float32([-1, 4]), constants=(1,)),
    case(
        "OneHot",
        9,
        np.array([0, -1, 1]),
        np.int64(3),
        np.int32([2, 5]),
        constants=(1,),
        expected=np.int32([[5, 2, 2], [2, 2, 2], [2, 5, 2]]),
    ),
    case("OneHot", 11, np.array([[0, -1], [5, -9]]), ints(3), np.float32([2, 5]), axis=1, constants=(1,)),
    case("OneHot", 11, np.float32([1, 0]), np.float32(3), np.float32([0, 1]), axis=0, constants=(1,)),
    case("OneHot", 11, np.array(1), np.int64(2), np.float32([0, 1]), constants=(1,)),
    # EyeLike, Trilu
    *each_version("EyeLike", X[0]),
    *(case("EyeLike", 9, X[0], k=k, dtype=dtype) for k in (1, -2, 9) for dtype in (1, 6, 11)),
    case("EyeLike", 22, X[0], dtype=9, expected=np.eye(4, 5, dtype=bool)),
    *each_version("Trilu", X),
    *(
        case("Trilu", 14, X, np.int64(k), upper=up, constants=c)
        for k in (0, 1, -2, 9)
        for up in (0, 1)
        for c in ((), (1,))
    ),
    *retyped(case("Trilu", 14, X), *TYPES),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_indexing(case: Case) -> None:
    check(case)


FAULTS = [
    (case("Gather", 13, X, INDICES, axis=3), "outside"),
    (case("Gather", 13, X, np.float32([1])), "int32 or int64"),
    (case("GatherElements", 13, X, ints(0)), "different ranks"),
    (case("GatherND", 13, X, ints(0, 0, 0, 0)), "do not address"),
    (case("Concat", 13, X, X[:, :2], axis=0), "differ outside axis 0"),
    (case("Split", 13, X, ints(1, 1), axis=1, outputs=2, constants=(1,)), "does not add up"),
    (case("Pad", 13, X, ints(1, 1), constants=(1,)), "two an axis"),
    (case("Slice", 13, X, ints(0), ints(1), ints(0), ints(0), constants=(1, 2, 3, 4)), "step 0"),
]


@pytest.mark.parametrize(("case", "text"), FAULTS, ids=str)
def test_fault_is_named(case: Case, text: str) -> None:
    with pytest.raises(Fail, match=text) as caught:
        load(build(case))
    assert f"{case.operator} node 'node'" in str(caught.value)


# ---------------------------------------------------------------------------------------------- symbolic sizes


N = dims.variable("n")


def input_of(graph: Graph, *shape: Any) -> Value:
    return graph.add_input("x", TensorType(DType.FLOAT, shape))


def slice_of(graph: Graph, x: Value, start: Value, end: Value, axis: int) -> Value:
    return graph.add(Slice(), [x, start, end, graph.add_constant(ints(axis))])[0]


@pytest.mark.parametrize(
    ("start", "end", "size"),
    [(0, MAX, N), (1, MAX, N - 1), (-1, MAX, 1), (0, -1, N - 1), (0, 3, dims.minimum(3, N)), (0, 0, 0)],
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
    assert graph.assumptions == {(dims.minimum(512, N), N)}


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
