"""Conversions: every pair of common types, the corners of narrow types, and text."""

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

from jitonnx import InferenceSession
from tests.ops.harness import Case, case, check, each_version

T = TensorProto
X = np.array([0.0, -0.0, 1.5, -1.5, 2.5, 100.25, -100.25, 7.0], np.float32)
INTEGERS = np.array([-300, -129, -1, 0, 1, 127, 128, 255, 256, 70000], np.int64)
WILD = np.array([-1, 256, 300.7, np.nan, np.inf, -np.inf, 3e9, -3e9, 5e18, 1e30], np.float32)
TYPES = {
    T.FLOAT: np.float32,
    T.DOUBLE: np.float64,
    T.FLOAT16: np.float16,
    T.INT8: np.int8,
    T.INT16: np.int16,
    T.INT32: np.int32,
    T.INT64: np.int64,
    T.UINT8: np.uint8,
    T.UINT16: np.uint16,
    T.UINT32: np.uint32,
    T.UINT64: np.uint64,
    T.BOOL: np.bool_,
}
FLOAT8 = {
    T.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn,
    T.FLOAT8E4M3FNUZ: ml_dtypes.float8_e4m3fnuz,
    T.FLOAT8E5M2: ml_dtypes.float8_e5m2,
    T.FLOAT8E5M2FNUZ: ml_dtypes.float8_e5m2fnuz,
}
CORNERS = np.array([0, -0.0, np.nan, np.inf, -np.inf, 1e6, -1e6, 1.0625, 3.3, -0.01], np.float32)


def as_float8(saturated: list[float], dtype: type) -> np.ndarray:
    return np.array(saturated, np.float32).astype(dtype)


SIXTHS = np.array([0, -0.0, 1, -1.25, 3.3, 7.5, 100, -100, np.inf, -np.inf, 0.07], np.float32)


def codes(exponent: int, mantissa: int) -> np.ndarray:
    """What the 64 codes of a 6-bit float mean, whose exponent and mantissa have so many bits: as the text has it."""
    bias = 2 ** (exponent - 1) - 1
    found = []
    for code in range(64):
        power, fraction = code >> mantissa & (1 << exponent) - 1, (code & (1 << mantissa) - 1) / (1 << mantissa)
        size = fraction * 2.0 ** (1 - bias) if power == 0 else (1 + fraction) * 2.0 ** (power - bias)
        found.append(-size if code >> 5 else size)
    return np.array(found, np.float32)


def corners(to: int, saturate: int) -> np.ndarray:
    """The tables in the text of ONNX's Cast."""
    dtype = FLOAT8[to]
    largest = float(ml_dtypes.finfo(dtype).max)
    overflow = largest if saturate else (np.inf if to == T.FLOAT8E5M2 else np.nan)
    return as_float8([0, -0.0, np.nan, overflow, -overflow, overflow, -overflow, 1.0625, 3.3, -0.01], dtype)


CASES: list[Case] = [
    *each_version("Cast", X, to=T.INT32, since=6),
    case("Cast", 1, X, to="INT32", expected=X.astype(np.int32)),
    case("Cast", 1, X, to="double", expected=X.astype(np.float64)),
    *(
        case("Cast", 13, X.astype(source), to=to, widen=False)
        for to in TYPES
        for source in (np.float32, np.float64, np.float16)
    ),
    *(
        case("Cast", 13, INTEGERS.astype(source), to=to)
        for to in TYPES
        for source in (np.int8, np.int32, np.int64, np.uint8, np.uint32, np.uint64)
    ),
    *(case("Cast", 13, np.array([True, False]), to=to) for to in TYPES),
    *(case("Cast", 13, WILD, to=to) for to in (T.INT8, T.UINT8, T.INT16, T.UINT16, T.INT32, T.INT64, T.BOOL)),
    case("Cast", 13, X, to=T.BFLOAT16, expected=X.astype(ml_dtypes.bfloat16)),
    case(
        "Cast", 13, X.astype(ml_dtypes.bfloat16), to=T.FLOAT, expected=X.astype(ml_dtypes.bfloat16).astype(np.float32)
    ),
    *(case("Cast", 19, CORNERS, to=to, saturate=s, expected=corners(to, s)) for to in FLOAT8 for s in (0, 1)),
    case(
        "Cast",
        21,
        INTEGERS,
        to=T.INT4,
        expected=np.array([4, -1, -1, 0, 1, -1, 0, -1, 0, 0], np.int8).astype(ml_dtypes.int4),
    ),
    case(
        "Cast",
        21,
        np.array([3, 18, 255], np.uint8),
        to=T.UINT4,
        expected=np.array([3, 2, 15], np.uint8).astype(ml_dtypes.uint4),
    ),
    case(
        "Cast",
        25,
        np.array([-3, 2, 1], np.int8),
        to=T.INT2,
        expected=np.array([1, -2, 1], np.int8).astype(ml_dtypes.int2),
    ),
    case(
        "Cast",
        23,
        np.array([0.3, -5.1, 100], np.float32),
        to=T.FLOAT4E2M1,
        expected=np.array([0.5, -6, 6], np.float32).astype(ml_dtypes.float4_e2m1fn),
    ),
    *(
        case("Cast", 28, SIXTHS.astype(given), to=to, expected=np.clip(SIXTHS, -top, top).astype(kind))
        for to, kind, top in (
            (T.FLOAT6E2M3, ml_dtypes.float6_e2m3fn, 7.5),
            (T.FLOAT6E3M2, ml_dtypes.float6_e3m2fn, 28),
        )
        for given in (np.float32, np.float16, np.float64)
    ),
    *(
        case("Cast", 28, np.arange(64, dtype=np.uint8).view(kind), to=T.FLOAT, expected=codes(*bits))
        for kind, bits in ((ml_dtypes.float6_e2m3fn, (2, 3)), (ml_dtypes.float6_e3m2fn, (3, 2)))
    ),
    *(
        case(
            "Cast",
            24,
            np.array([1, 1.4, 1.6, 3, np.nan], np.float32),
            to=T.FLOAT8E8M0,
            round_mode=mode,
            expected=np.array([*values, np.nan], np.float32).astype(ml_dtypes.float8_e8m0fnu),
        )
        for mode, values in (("up", [1, 2, 2, 4]), ("down", [1, 1, 1, 2]), ("nearest", [1, 1, 2, 4]))
    ),
    case(
        "Cast",
        13,
        np.array([1, 0.1, 1e10, 1e-7, -2.5, np.nan, np.inf, -np.inf], np.float32),
        to=T.STRING,
        expected=np.array(["1", "0.1", "1e+10", "1e-07", "-2.5", "NaN", "INF", "-INF"], object),
    ),
    case("Cast", 13, np.array([1, -20], np.int64), to=T.STRING),
    case("Cast", 13, np.array(["1.5", "-2e3", "NaN", "INF", "-inf"], object), to=T.FLOAT),
    case("Cast", 13, np.array(["15", "-20"], object), to=T.INT32),
    *each_version("CastLike", X, np.array([1], np.int64)),
    case(
        "CastLike",
        25,
        X,
        np.array(["a"], object),
        expected=np.array(["0", "-0", "1.5", "-1.5", "2.5", "100.25", "-100.25", "7"], object),
    ),
    case(
        "BitCast", 26, np.array([1, -2], np.float32), to=T.INT32, expected=np.array([1, -2], np.float32).view(np.int32)
    ),
    case("BitCast", 26, np.array([0, 255], np.uint8), to=T.INT8, expected=np.array([0, -1], np.int8)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_cast(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("behind", ["nothing", "arithmetic", "views"])
def test_bits_are_read_where_they_lie(behind: str) -> None:
    """float32 to int32 and back, the bits of NaN too, from inputs, results and parts of results."""
    nodes = [
        helper.make_node("Neg" if behind == "arithmetic" else "Identity", ["x"], ["a"]),
        helper.make_node("Transpose" if behind == "views" else "Identity", ["a"], ["b"]),
        helper.make_node("BitCast", ["b"], ["bits"], to=T.INT32),
        helper.make_node("BitwiseAnd", ["bits", "mask"], ["masked"]),
        helper.make_node("BitCast", ["masked"], ["y"], to=T.FLOAT),
        helper.make_node("Concat", ["bits", "masked"], ["both"], axis=0),
    ]
    graph = helper.make_graph(
        nodes,
        "bits",
        [helper.make_tensor_value_info("x", T.FLOAT, ["n", 5])],
        [
            helper.make_tensor_value_info("bits", T.INT32, None),
            helper.make_tensor_value_info("y", T.FLOAT, None),
            helper.make_tensor_value_info("both", T.INT32, None),
        ],
        [helper.make_tensor("mask", T.INT32, [], [0x7FFFFFFF])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 26)], ir_version=12)
    x = np.random.default_rng(3).normal(size=(7, 5)).astype(np.float32)
    x.view(np.int32)[0] = [0x7FC00123, -1, 1, -0x80000000, 0x7F800000]
    bits, y, both = InferenceSession(model.SerializeToString()).run(None, {"x": x})
    expected = (-x if behind == "arithmetic" else x.T if behind == "views" else x).copy().view(np.int32)
    np.testing.assert_array_equal(bits, expected)
    np.testing.assert_array_equal(y.view(np.int32), expected & 0x7FFFFFFF)
    np.testing.assert_array_equal(both, np.concatenate([expected, expected & 0x7FFFFFFF]))
