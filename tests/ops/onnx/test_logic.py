"""Truth values, comparisons, bits and Where: every version, every element type, and comparisons of shapes."""

import ml_dtypes
import numpy as np
import pytest

from jitonnx.ir.dims import variable
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Graph
from jitonnx.ir.types import TensorType
from jitonnx.ops.onnx.logic import Equal, Greater
from jitonnx.ops.onnx.shape import Shape
from tests.ops.harness import Case, case, check, each_version, retyped

RANDOM = np.random.default_rng(3)
X = RANDOM.integers(-3, 3, (3, 4)).astype(np.float32)
Y = RANDOM.integers(-3, 3, (3, 4)).astype(np.float32)
P, Q = X > 0, Y > 0
EDGES = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0], np.float32)
SIGNED = (np.int8, np.int16, np.int32, np.int64)
UNSIGNED = (np.uint8, np.uint16, np.uint32, np.uint64)
FLOATS = (np.float16, ml_dtypes.bfloat16, np.float64)
WORDS = np.array(["a", "bc", "ü"], object)

TRUTH = {"And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor}
COMPARISONS = {
    "Equal": np.equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
}

CASES: list[Case] = [
    *(c for name in TRUTH for c in each_version(name, P, Q)),
    *(case(name, 7, P, Q[0]) for name in TRUTH),
    *(
        case(name, 1, P, Q[:, 0].copy(), broadcast=1, axis=0, expected=function(P, Q[:, :1]))
        for name, function in TRUTH.items()
    ),
    *each_version("Not", P),
    *(
        c
        for name in COMPARISONS
        for c in each_version(name, X.astype(np.int32), Y.astype(np.int32), until=8)
        if name == "Equal"
    ),
    *(c for name in COMPARISONS for c in each_version(name, X, Y, since=1 if name in ("Greater", "Less") else 9)),
    *(c for name in COMPARISONS for c in retyped(case(name, 19, X, Y[0]), *SIGNED, *FLOATS)),
    *(c for name in COMPARISONS for c in retyped(case(name, 19, np.abs(X), np.abs(Y)), *UNSIGNED)),
    *(case(name, 19, EDGES, EDGES[:, None]) for name in COMPARISONS),
    *(
        case(name, 1, values, values[:, 0].copy(), broadcast=1, axis=0, expected=function(values, values[:, :1]))
        for name, function, values in (
            ("Greater", np.greater, X),
            ("Less", np.less, X),
            ("Equal", np.equal, X.astype(np.int64)),
        )
    ),
    case("Equal", 19, P, Q),
    case("Equal", 19, WORDS, np.array(["a", "b", "ü"], object), expected=np.array([True, False, True])),
    *each_version("Where", P, X, Y),
    *retyped(case("Where", 16, P, X[0], Y, constants=(0,)), *SIGNED, *FLOATS, np.complex64, bool),
    case("Where", 16, np.array(True), X, Y[0]),
    case("Where", 16, np.array([True, False, True]), WORDS, WORDS[::-1].copy()),
    *(
        c
        for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")
        for c in retyped(case(name, 18, X.astype(np.int64) * 37, Y.astype(np.int64) * 11), *SIGNED, *UNSIGNED)
    ),
    *retyped(case("BitwiseNot", 18, X.astype(np.int64) * 37), *SIGNED, *UNSIGNED),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_logic(case: Case) -> None:
    check(case)


def test_comparison_of_shapes_is_decided_where_it_holds_for_all_sizes() -> None:
    graph = Graph()
    x = graph.add_input("x", TensorType(DType.FLOAT, (variable("n"), 4)))
    (shape,) = graph.add(Shape(), [x])
    minus_one, zero = graph.add_constant(np.array([-1, -1], np.int64)), graph.add_constant(np.array([0, 0], np.int64))
    (equal,) = graph.add(Equal(), [shape, minus_one])
    (greater,) = graph.add(Greater(), [shape, minus_one])
    (undecided,) = graph.add(Equal(), [shape, zero])
    assert equal.constant.tolist() == [False, False] and greater.constant.tolist() == [True, True]
    assert undecided.contents is None and undecided.type == TensorType(DType.BOOL, (2,))
