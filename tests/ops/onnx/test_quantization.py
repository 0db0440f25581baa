"""Quantised numbers: rounding and saturation, scales by tensor, axis and block, exact sums of integers."""

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.ops.harness import Case, case, check, check_refused, each_version

RANDOM = np.random.default_rng(0)
EDGES = np.array([-1e9, -3.5, -2.5, -0.5, 0.5, 1.5, 2.5, 127.4, 300, 1e9, -0.0, 0.0, np.inf, -np.inf], np.float32)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


def whole(*shape: int, dtype: Any = np.uint8) -> np.ndarray:
    info = np.iinfo(dtype)
    return RANDOM.integers(info.min, info.max + 1, shape).astype(dtype)


def scale(value: float) -> np.ndarray:
    return np.array(value, np.float32)


def finite(dtype: Any) -> tuple[float, float]:
    info = ml_dtypes.finfo(dtype)
    return float(info.min), float(info.max)


U8, S8 = np.uint8, np.int8
FLOAT8 = (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz)
WIDE = np.array([0.1, -3.0, 447.0, 1e5, -1e6, 0.0], np.float32)
QUANTIZE = [
    *(
        c
        for zero in (None, U8(3), S8(-5))
        for c in (
            *each_version("QuantizeLinear", EDGES, scale(1.0), zero, until=25),
            *each_version("QuantizeLinear", EDGES[1:-5], scale(1.0), zero, since=28),
        )
    ),
    *each_version("QuantizeLinear", normal(3, 4, 5) * 9, scale(0.1), U8(100)),
    *(
        c
        for axis in (0, 1, -1)
        for c in each_version(
            "QuantizeLinear", normal(4, 4, 4), abs(normal(4)) / 9, whole(4, dtype=S8), since=13, axis=axis
        )
    ),
    *(
        case("QuantizeLinear", 21, EDGES * 90, scale(0.5), dtype(7), note=np.dtype(dtype).name)
        for dtype in (np.uint16, np.int16)
    ),
    *(
        case("QuantizeLinear", 21, normal(3, 4), scale(0.2), output_dtype=number, note=str(number))
        for number in (3, 4, 5, 21, 22)
    ),
    *(
        case("QuantizeLinear", version, normal(3, 7, 2), abs(normal(3, 4, 2)), whole(3, 4, 2), axis=1, block_size=2)
        for version in (21, 23, 24, 25, 28)
    ),
    *(
        case("QuantizeLinear", 21, normal(5).astype(dtype), np.array(0.25, dtype), U8(9), widen=False)
        for dtype in (np.float16, ml_dtypes.bfloat16)
    ),
    case("QuantizeLinear", 23, np.array([1, -7, 300], np.int32), scale(2.0), U8(1), expected=np.array([1, 0, 151], U8)),
    case("QuantizeLinear", 23, normal(6), scale(0.3), U8(9), precision=10, widen=False),
    *(
        case("QuantizeLinear", 19, WIDE, scale(0.5), np.array(0, dtype), saturate=saturate, expected=y.astype(dtype))
        for dtype in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)
        for saturate, y in ((0, WIDE * 2), (1, np.clip(WIDE * 2, *finite(dtype))))
    ),
    case("QuantizeLinear", 13, normal(4), np.array([0.1], np.float32), np.array([7], U8)),
    case("QuantizeLinear", 13, normal(4), scale(0.1), np.array([7], U8)),
]
SIX_BITS = ((27, ml_dtypes.float6_e2m3fn, 7.5), (28, ml_dtypes.float6_e3m2fn, 28))
QUANTIZE += [
    case(
        "QuantizeLinear", 28, WIDE, scale(2.0), output_dtype=number, expected=np.clip(WIDE / 2, -top, top).astype(kind)
    )
    for number, kind, top in SIX_BITS
]
DEQUANTIZE = [
    *(
        case("DequantizeLinear", 28, codes, scale(2.0), expected=codes.astype(np.float32) * 2)
        for _, kind, _ in SIX_BITS
        for codes in [np.arange(64, dtype=np.uint8).view(kind)]
    ),
    *(c for zero in (None, U8(3)) for c in each_version("DequantizeLinear", whole(3, 4), scale(0.1), zero)),
    *each_version("DequantizeLinear", whole(3, 4, dtype=S8), scale(0.1), S8(-8)),
    *each_version("DequantizeLinear", np.array([5, -2, 1 << 20], np.int32), scale(0.25)),
    *(
        c
        for axis in (0, 1, -1)
        for c in each_version("DequantizeLinear", whole(4, 4, 4), abs(normal(4)), whole(4), since=13, axis=axis)
    ),
    *(
        case("DequantizeLinear", 21, whole(5, dtype=dtype), scale(0.5), dtype(7), note=np.dtype(dtype).name)
        for dtype in (np.uint16, np.int16)
    ),
    *(
        case("DequantizeLinear", version, whole(3, 7, 2), abs(normal(3, 4, 2)), whole(3, 4, 2), block_size=2)
        for version in (21, 23, 24, 25, 28)
    ),
    *(
        case("DequantizeLinear", 21, RANDOM.integers(0, 7, 6).astype(dtype), scale(0.5), np.array(1, dtype))
        for dtype in (ml_dtypes.uint4, ml_dtypes.int4)
    ),
    case("DequantizeLinear", 19, normal(6).astype(ml_dtypes.float8_e4m3fn), scale(0.5), widen=False),
    case("DequantizeLinear", 21, whole(6), np.array(0.25, np.float16), U8(9), widen=False),
    case("DequantizeLinear", 23, whole(6), scale(0.25), U8(9), output_dtype=10),
]
A, B = whole(3, 4), whole(4, 5, dtype=S8)
ROWS, COLUMNS = whole(3), whole(5, dtype=S8)
Q = (A, scale(0.1), U8(7), B, scale(0.2), S8(-3), scale(9.0), U8(30))


def quantised_product(of_a: Any, of_b: Any, of_y: Any) -> Case:
    """Multiply 8-bit floats, and these with integers: the products are whole numbers, what is too large saturates."""
    a, b = np.array([[2, 1], [0, 6], [-7, 28]]).astype(of_a), np.array([[3, 1], [-4, 5]]).astype(of_b)
    y = (a.astype(np.float32) - 1) @ (b.astype(np.float32) - 2) * 8
    if np.dtype(of_y).kind in "iu":
        expected = np.clip(y + 3, *((info := np.iinfo(of_y)).min, info.max)).astype(of_y)
    else:
        expected = np.clip(y + 3, *finite(of_y)).astype(of_y)
    zeros = (np.array(zero, kind) for zero, kind in ((1, of_a), (2, of_b), (3, of_y)))
    (a_zero, b_zero, y_zero), scales = zeros, (scale(2.0), scale(1.0), scale(0.25))
    inputs = (a, scales[0], a_zero, b, scales[1], b_zero, scales[2], y_zero)
    return case("QLinearMatMul", 21, *inputs, expected=expected, widen=False, rtol=0)


PRODUCTS = [
    *(quantised_product(*types) for types in itertools.product((np.int8, *FLOAT8), repeat=3)),
    *(
        case("MatMulInteger", 10, a, b, *zeros)
        for a, b in ((A, B), (whole(2, 3, 4), whole(2, 4, 5)), (whole(4), whole(4, 3)), (A[:0], B))
        for zeros in ((), (U8(3),), (U8(200), b.dtype.type(5)))
    ),
    # onnxruntime leaves sums of nothing as memory was.
    case("MatMulInteger", 10, A[:, :0], B[:0], expected=np.zeros((3, 5), np.int32)),
    case("MatMulInteger", 10, A, B, ROWS, COLUMNS, expected=(np.int32(A) - ROWS[:, None]) @ (np.int32(B) - COLUMNS)),
    case("MatMulInteger", 10, whole(3, 4, dtype=S8), whole(4, 5), S8(-100), U8(255)),
    *each_version("QLinearMatMul", *Q),
    *each_version("QLinearMatMul", *Q[:4], abs(normal(5)), whole(5, dtype=S8), *Q[6:]),
    case("QLinearMatMul", 10, whole(2, 3, 4), *Q[1:]),
]
CONVOLUTIONS = [
    *(
        case("ConvInteger", 10, whole(2, 4, *size), whole(6, 4 // groups, *taps), *zeros, group=groups, **attributes)
        for zeros in ((), (U8(9),), (U8(120), U8(131)))
        for size, taps, groups, attributes in (
            ((7, 6), (3, 3), 1, {"pads": [1, 1, 1, 1]}),
            ((7, 6), (3, 2), 2, {"strides": [2, 1], "dilations": [2, 2]}),
            ((5, 5), (1, 1), 1, {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
        )
    ),
    case("ConvInteger", 10, whole(2, 3, 9), whole(4, 3, 3), U8(3), strides=[2]),
    case("ConvInteger", 10, whole(1, 2, 5, 5), whole(3, 2, 3, 3), U8(3), whole(3)),
    *(
        case(
            *("QLinearConv", 10, whole(1, 4, 6, 6), scale(0.02), U8(7), whole(6, 4, 3, 3, dtype=S8)),
            *(weights, zeros, scale(0.7), U8(100), *bias),
            pads=[1, 1, 1, 1],
        )
        for weights, zeros in ((scale(0.03), S8(0)), (abs(normal(6)) / 20, np.zeros(6, S8)))
        for bias in ((), (whole(6, dtype=np.int32) >> 16,))
    ),
    *(
        case("ConvInteger", 10, x, whole(20, 1, *taps, dtype=S8), *zeros, group=20, **attributes)
        for x, zeros in ((whole(2, 20, 9, 7), (U8(120),)), (whole(2, 20, 9, 7, dtype=S8), (S8(-3), S8(0))))
        for taps, attributes in (
            ((3, 3), {"pads": [1, 1, 1, 1]}),
            ((5, 5), {"pads": [2, 2, 2, 2], "strides": [2, 2]}),
            ((3, 2), {"dilations": [2, 3]}),
        )
    ),
    case(
        *("QLinearConv", 10, whole(1, 4, 6, 6), scale(0.02), U8(7), whole(4, 1, 3, 3), scale(0.02), U8(130)),
        *(scale(0.05), U8(100)),
        group=4,
    ),
]
DYNAMIC = [
    case("DynamicQuantizeLinear", 11, x, outputs=3)
    for x in (
        normal(3, 4),
        abs(normal(5)) + 1,
        -abs(normal(5)) - 1,
        np.zeros(4, np.float32),
        np.array([[0.5]], np.float32),
    )
]
CASES: list[Case] = [*QUANTIZE, *DEQUANTIZE, *PRODUCTS, *CONVOLUTIONS, *DYNAMIC]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_quantization(case: Case) -> None:
    check(case)


@pytest.mark.parametrize(
    ("refused", "text"),
    [
        (case("QuantizeLinear", 21, normal(3, 4), abs(normal(3)), axis=1), r"axis 1 of .* has 4 places"),
        (case("QuantizeLinear", 21, normal(3, 4), abs(normal(3, 3)), block_size=2), r"need \[3,2\]"),
        (case("QuantizeLinear", 21, normal(3, 4), abs(normal(3, 3))), "a scalar, or a vector"),
        (case("QuantizeLinear", 21, normal(3, 4), scale(1.0), np.zeros(4, U8)), "different shapes"),
        (case("QuantizeLinear", 21, normal(3), scale(1.0), output_dtype=1), "not quantised to"),
        (case("DequantizeLinear", 21, whole(3), scale(1.0), S8(1)), "different element types"),
        (case("MatMulInteger", 10, whole(3, 4), whole(3, 4)), "no matrix product"),
        (case("ConvInteger", 10, whole(1, 3, 5, 5), whole(2, 2, 3, 3)), "x has 3 channels"),
        (case("ConvInteger", 10, whole(1, 3, 5, 5), whole(2, 3, 3)), "they must be equal"),
    ],
    ids=str,
)
def test_refused(refused: Case, text: str) -> None:
    check_refused(refused, text)
