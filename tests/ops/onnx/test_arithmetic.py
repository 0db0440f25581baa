"""Arithmetic: every version, every element type, integer division, broadcasting as it was before version 7."""

import ml_dtypes
import numpy as np
import pytest

from tests.ops.harness import Case, case, check, each_version, retyped

RANDOM = np.random.default_rng(1)
X = RANDOM.normal(size=(3, 4, 5)).astype(np.float32) * 3
Y = RANDOM.normal(size=(3, 4, 5)).astype(np.float32) * 3
ROW = RANDOM.normal(size=(5,)).astype(np.float32)
POSITIVE = np.abs(X) + np.float32(0.1)
EDGES = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-30, -1e30, 0.5, 1.5, -2.5], np.float32)
K = RANDOM.integers(-50, 50, (3, 4))
J = np.where((J0 := RANDOM.integers(-9, 9, (4,))) == 0, 5, J0)
SMALL_INTEGERS = (np.int8, np.int16, np.int32, np.int64)
UNSIGNED = (np.uint8, np.uint16, np.uint32, np.uint64)
NARROW = (np.float16, ml_dtypes.bfloat16)

BINARY = ("Add", "Sub", "Mul", "Div")
UNARY = ("Abs", "Ceil", "Exp", "Floor", "Log", "Neg", "Reciprocal", "Round", "Sign", "Sqrt", "Erf")
NEWEST = {"Round": 22}


def by_channel(function: np.ufunc) -> np.ndarray:
    """What versions before 7 compute with axis=1 and a second input of shape [4]."""
    return function(X, X[0, :, 0][:, None])


CASES: list[Case] = [
    *(c for name in BINARY for c in each_version(name, X, Y)),
    *(c for name in BINARY for c in each_version(name, X, ROW, since=7)),
    *(case(name, 14, X[:, :1], Y[:1]) for name in BINARY),
    *(case(name, 14, np.float32(2), X) for name in BINARY),
    *(case(name, 14, X[:0], ROW) for name in BINARY),
    *(c for name in BINARY for c in retyped(case(name, 14, K, J), *SMALL_INTEGERS)),
    *(c for name in BINARY for c in retyped(case(name, 14, np.abs(K), np.abs(J)), *UNSIGNED)),
    *(c for name in BINARY for c in retyped(case(name, 14, X, ROW), np.float64, *NARROW)),
    *(
        case(name, version, X, X[0, :, 0].copy(), broadcast=1, axis=1, expected=by_channel(function))
        for name, function in zip(BINARY, (np.add, np.subtract, np.multiply, np.divide), strict=True)
        for version in (1, 6)
    ),
    case("Add", 6, X, ROW, broadcast=1, expected=X + ROW),
    case("Add", 1, X, Y, consumed_inputs=[0, 0], expected=X + Y),
    case("Div", 14, EDGES, EDGES[::-1].copy()),
    case(
        "Div",
        14,
        np.array([-(2**31), 7, -7, 7, -7], np.int32),
        np.array([-1, 2, 2, -2, -2], np.int32),
        expected=np.array([-(2**31), 3, -3, -3, 3], np.int32),
    ),
    case(
        "Div",
        14,
        np.array([-(2**63), 9], np.int64),
        np.array([-1, -2], np.int64),
        expected=np.array([-(2**63), -4], np.int64),
    ),
    case("Div", 14, np.array([-128, 100], np.int8), np.array([-1, 7], np.int8), expected=np.array([-128, 14], np.int8)),
    # Mod
    *each_version("Mod", K, J),
    *each_version("Mod", X, Y, fmod=1),
    *retyped(case("Mod", 13, K, J), *SMALL_INTEGERS),
    *retyped(case("Mod", 13, np.abs(K), np.abs(J)), *UNSIGNED),
    *retyped(case("Mod", 13, K, J, fmod=1), np.int8, np.int32, np.int64, np.float64),
    case("Mod", 28, X, ROW, expected=np.mod(X, ROW)),
    # Pow
    *each_version("Pow", POSITIVE, Y),
    *(case("Pow", 15, X, np.float32(power)) for power in (0, 1, 2, 3, 4, 5, -1, -2)),
    *(case("Pow", 15, EDGES, np.float32(power), constants=(1,)) for power in (0, 0.5, 1, 2, 3, 4, -1, -2)),
    *(case("Pow", 15, X, np.array(2, dtype)) for dtype in (np.int32, np.int64, np.float64)),
    case("Pow", 15, X.astype(np.float64), ROW.astype(np.float32) * 0 + 3),
    case("Pow", 13, np.array([1, 2, 3, -3], np.int32), np.array([3, 2, 0, 3], np.int32)),
    case("Pow", 13, np.array([1, 2, 3, -3], np.int64), np.array([3, 2, 0.5, 3], np.float32)),
    case(
        "Pow",
        13,
        np.array([1, -1, 2], np.int32),
        np.array([-1, -3, -1], np.int32),
        expected=np.array([1, -1, 0], np.int32),
    ),
    *(  # beyond the digits of a float64
        case("Pow", 15, np.array([15, -7, 3000000019, -3, -1], np.int64), powers, expected=np.array(exact, np.int64))
        for powers, exact in (
            (np.array([15, 19, 2, 39, 10**12 + 1], np.int64), [15**15, -(7**19), 3000000019**2, -(3**39), -1]),
            (np.array([16, 17, 1, 0, 63], np.uint8), [15**16, -(7**17), 3000000019, 1, -1]),
        )
    ),
    case("Pow", 15, POSITIVE.astype(np.float16), np.array([0.5], np.float16)),
    case(
        "Pow",
        1,
        POSITIVE,
        POSITIVE[0, :, 0].copy(),
        broadcast=1,
        axis=1,
        expected=POSITIVE ** POSITIVE[0, :, 0][:, None],
    ),
    # BitShift
    *(
        case("BitShift", 11, np.array([1, 2, 77, 200], dtype), np.array([1, 3, 2, 7], dtype), direction=way)
        for dtype in UNSIGNED
        for way in ("LEFT", "RIGHT")
    ),
    case(
        "BitShift",
        28,
        np.array([255, 255], np.uint8),
        np.array([8, 200], np.uint8),
        direction="LEFT",
        expected=np.array([0, 0], np.uint8),
    ),
    case(
        "BitShift",
        28,
        np.array([255, 255], np.uint8),
        np.array([8, 200], np.uint8),
        direction="RIGHT",
        expected=np.array([0, 0], np.uint8),
    ),
    case(
        "BitShift",
        28,
        np.array([-8, -8, -8, 64, 8], np.int8),
        np.array([1, 8, -1, 9, 2], np.int8),
        direction="RIGHT",
        expected=np.array([-4, -1, -1, 0, 2], np.int8),
    ),
    case(
        "BitShift",
        28,
        np.array([-8, 64, 3], np.int8),
        np.array([1, 1, 9], np.int8),
        direction="LEFT",
        expected=np.array([-16, -128, 0], np.int8),
    ),
    # Any number of inputs
    *(c for name in ("Max", "Min", "Sum", "Mean") for c in each_version(name, X, Y, X[::-1].copy())),
    *(c for name in ("Max", "Min", "Sum", "Mean") for c in each_version(name, X)),
    *(c for name in ("Max", "Min", "Sum", "Mean") for c in each_version(name, X, ROW, X[:1], since=8)),
    *(
        c
        for name in ("Max", "Min")
        for c in retyped(case(name, 13, K, J), *SMALL_INTEGERS, *UNSIGNED, np.float64, *NARROW)
    ),
    case("Max", 13, EDGES, EDGES[::-1].copy()),
    case("Min", 13, EDGES, EDGES[::-1].copy()),
    # Clip
    case("Clip", 1, X, min=-1.0, max=2.0, expected=np.clip(X, -1, 2)),
    case("Clip", 1, X, max=2.0, expected=np.minimum(X, 2)),
    case("Clip", 6, X, min=-1.0, max=2.0),
    case("Clip", 6, EDGES),
    case("Clip", 6, X.astype(np.float16), expected=X.astype(np.float16)),
    *each_version("Clip", X, np.float32(-1), np.float32(2), since=11),
    *each_version("Clip", X, np.float32(-1), np.float32(2), since=11, constants=(1, 2)),
    *each_version("Clip", X, None, np.float32(2), since=11),
    *each_version("Clip", X, np.float32(-1), since=11),
    *each_version("Clip", X, since=11),
    case("Clip", 13, X, np.float32(2), np.float32(-1), expected=np.full_like(X, -1), note="min above max"),
    case("Clip", 13, EDGES, np.float32(-1), np.float32(2), constants=(1, 2)),
    *retyped(case("Clip", 13, K, np.int64(-7), np.int64(20)), *SMALL_INTEGERS, np.float64, *NARROW),
    *retyped(case("Clip", 13, np.abs(K), np.int64(7), np.int64(20)), *UNSIGNED),
    # One input
    *(c for name in UNARY for c in each_version(name, POSITIVE)),
    *(c for name in UNARY for c in retyped(case(name, NEWEST.get(name, 13), POSITIVE), np.float64, *NARROW)),
    *(case(name, NEWEST.get(name, 13), EDGES) for name in UNARY),
    *(case(name, NEWEST.get(name, 13), X[:0]) for name in UNARY),
    *(c for name in ("Abs", "Neg", "Sign") for c in retyped(case(name, 13, K), *SMALL_INTEGERS)),
    *(c for name in ("Abs", "Sign") for c in retyped(case(name, 13, np.abs(K)), *UNSIGNED)),
    *retyped(case("Erf", 9, K, expected=None), np.int32, np.int8),
    case("Exp", 1, X, consumed_inputs=[0], expected=np.exp(X)),
    *each_version("IsInf", EDGES),
    case("IsInf", 20, EDGES, detect_negative=0),
    case("IsInf", 20, EDGES, detect_positive=0),
    case("IsInf", 20, EDGES, detect_positive=0, detect_negative=0),
    case("IsInf", 20, EDGES.astype(ml_dtypes.float8_e5m2)),
    *each_version("IsNaN", EDGES),
    *retyped(case("IsNaN", 20, EDGES), np.float64, *NARROW, ml_dtypes.float8_e4m3fn),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_arithmetic(case: Case) -> None:
    check(case)
