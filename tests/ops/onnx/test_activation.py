"""Activation functions: every version, every element type, and the numbers at which they are delicate."""

import ml_dtypes
import numpy as np
import pytest

from jitonnx.ir.operator import Operator
from jitonnx.ops.onnx.activation import HardSigmoid, LeakyRelu
from tests.ops.harness import Case, case, check, check_refused, each_version, retyped

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(3, 4, 5)).astype(np.float32) * 3
EDGES = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-30, -1e-30, 88.0, -88.0, 1e30, -1e30], np.float32)
INTEGERS = RANDOM.integers(-9, 9, (3, 4))
NARROW = (np.float16, ml_dtypes.bfloat16)

PLAIN = [
    "Celu",
    "Elu",
    "Gelu",
    "HardSigmoid",
    "HardSwish",
    "LeakyRelu",
    "Mish",
    "Relu",
    "Selu",
    "Sigmoid",
    "Softplus",
    "Softsign",
    "Swish",
    "Tanh",
    "ThresholdedRelu",
]
NEWEST = {"Celu": 28, "Swish": 24, "Gelu": 20, "HardSwish": 22}

CASES: list[Case] = [
    *(c for name in PLAIN for c in each_version(name, X, since=6 if name == "Selu" else 1)),
    *(case(name, NEWEST.get(name, 22), X.astype(dtype)) for name in PLAIN for dtype in (np.float64, *NARROW)),
    *(case(name, NEWEST.get(name, 22), np.zeros((0, 3), np.float32)) for name in PLAIN),
    *(case(name, NEWEST.get(name, 22), np.float32(-0.5)) for name in PLAIN),
    *(case(name, 22, EDGES) for name in ("Relu", "Sigmoid", "Tanh", "Elu", "LeakyRelu", "HardSigmoid", "Softplus")),
    case("Gelu", 20, EDGES[:-2]),
    case("Gelu", 20, X, approximate="tanh"),
    case("Celu", 12, X, alpha=0.3),
    case("Elu", 22, X, alpha=2.5),
    case("Elu", 1, X, alpha=2.5, consumed_inputs=[0], expected=np.where(X < 0, 2.5 * np.expm1(X), X)),
    case("HardSigmoid", 6, X, alpha=0.5, beta=0.25),
    case("LeakyRelu", 16, X, alpha=0.3),
    case("Relu", 1, X, consumed_inputs=[0], expected=np.maximum(X, 0)),
    *retyped(case("Relu", 14, INTEGERS), np.int8, np.int16, np.int32, np.int64),
    case("Selu", 6, X, alpha=1.5, gamma=1.2),
    case("Selu", 1, X, expected=np.where(X > 0, 1.0507 * X, 1.0507 * 1.6732 * np.expm1(X)).astype(np.float32)),
    case("Swish", 24, X, alpha=1.7),
    case("ThresholdedRelu", 10, X, alpha=0.3),
    # PRelu: the slope belongs to channels before version 7.
    case("PRelu", 1, X, np.array([0.1], np.float32), expected=np.where(X < 0, X * np.float32(0.1), X)),
    case(
        "PRelu",
        6,
        X,
        np.array([0.1, 0.2, 0.3, 0.4], np.float32),
        expected=np.where(X < 0, X * np.array([[0.1], [0.2], [0.3], [0.4]], np.float32), X),
    ),
    *each_version("PRelu", X, RANDOM.normal(size=(4, 1)).astype(np.float32), since=7),
    *retyped(case("PRelu", 16, X, RANDOM.normal(size=(4, 5))), np.float64, np.int32, np.int64, *NARROW),
    case("PRelu", 16, np.array([1, 2], np.uint32), np.array([3], np.uint32), expected=np.array([1, 2], np.uint32)),
    *retyped(case("Shrink", 9, X, bias=0.75, lambd=1.5), np.float32, np.float64, np.int32, np.int64, np.int8),
    case("Shrink", 9, np.array([0, 1, 2, 200], np.uint8), bias=1.0, lambd=1.5),
    *(  # NaN is neither below -lambd nor above lambd
        case(
            "Shrink",
            9,
            np.array([np.nan, 2, -np.inf, np.inf, -0.0], dtype),
            lambd=0.5,
            expected=np.array([0, 2, -np.inf, np.inf, 0], dtype),
        )
        for dtype in (np.float32, np.float64, np.float16)
    ),
    case("SwiGLU", 28, X, X[::-1].copy(), alpha=1.3),
    case("SwiGLU", 28, X.astype(np.float16), X[::-1].astype(np.float16)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_activation(case: Case) -> None:
    check(case)


def test_inputs_of_swiglu_of_two_shapes_are_refused() -> None:
    check_refused(case("SwiGLU", 28, X, X[:1]), "both need one shape")


@pytest.mark.parametrize(("operator", "given"), [(HardSigmoid, {"alpha": 0.2}), (LeakyRelu, {"alpha": 0.01})])
def test_a_default_is_the_number_that_a_file_has(operator: type[Operator], given: dict[str, float]) -> None:
    """Attributes are float32 numbers in files, which float64 tells from what is written in a declaration."""
    assert operator() == operator(**{name: float(np.float32(number)) for name, number in given.items()})
