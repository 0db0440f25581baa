"""Quantised operators of com.microsoft, against onnxruntime.

Scales are powers of two wherever a result is rounded to an integer, so that ties are ties in every order of computing.
"""

from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.ops.harness import Case, check, check_refused
from tests.ops.harness import case as any_case
from tests.targets import on_x86_64

case = partial(any_case, domain="com.microsoft", rtol=1e-4, atol=1e-5)
RANDOM = np.random.default_rng(5)
FINE, COARSE, MIDDLE = np.float32(1 / 64), np.float32(1 / 16), np.float32(1 / 32)
BYTES = (np.uint8, np.int8)


def of(dtype: type, *shape: int) -> np.ndarray:
    info = np.iinfo(dtype)
    return RANDOM.integers(info.min, info.max + 1, shape).astype(dtype)


def pairs(operator: str, function: Any) -> list[Case]:
    """Without zero points, which onnxruntime has no kernel for, the result is that of the definition."""
    found = []
    for dtype in BYTES:
        a, b, zero, info = of(dtype, 2, 5, 7), of(dtype, 7), dtype(3), np.iinfo(dtype)
        exact = function(a * FINE, a[:, :1] * COARSE) / MIDDLE
        expected = np.clip(np.rint(exact), info.min, info.max).astype(dtype)
        found += [
            case(operator, 1, a, FINE, zero, b, COARSE, dtype(1), MIDDLE, dtype(9), constants=(1, 2, 4, 5, 6, 7)),
            case(operator, 1, a, FINE, None, a[:, :1], COARSE, None, MIDDLE, expected=expected),
        ]
    return found


def alone(operator: str, **attributes: Any) -> list[Case]:
    return [
        case(operator, 1, of(dtype, 2, 3, 8, 6), COARSE, dtype(7), FINE, dtype(2), constants=(1, 2, 3, 4), **attributes)
        for dtype in BYTES
    ]


IMAGES, KERNELS = of(np.uint8, 1, 4, 6, 5), of(np.int8, 3, 4, 3, 3)
A, B = of(np.uint8, 5, 9), of(np.int8, 9, 6)
SCALES, ZEROS = np.array([0.5, 0.25, 1, 2, 0.125, 4], np.float32), np.array([0, 1, -2, 3, 4, -5], np.int8)
BIAS = RANDOM.normal(size=6).astype(np.float32)

CASES: list[Case] = [
    *pairs("QLinearAdd", np.add),
    *pairs("QLinearMul", np.multiply),
    *alone("QLinearSigmoid"),
    *alone("QLinearLeakyRelu"),
    *alone("QLinearLeakyRelu", alpha=0.3),
    *alone("QLinearAveragePool", kernel_shape=[2, 2], strides=[2, 2]),
    *alone("QLinearAveragePool", kernel_shape=[2, 4], pads=[1, 0, 1, 2], count_include_pad=1),
    *alone("QLinearAveragePool", kernel_shape=[1, 2], channels_last=1),
    *(
        case("QLinearGlobalAveragePool", 1, of(dtype, 2, 4, 8, 4), COARSE, dtype(7), FINE, dtype(2), channels_last=last)
        for dtype in BYTES
        for last in (0, 1)
    ),
    *(
        case("QLinearConcat", 1, MIDDLE, z, of(d, 2, 3), FINE, d(3), of(d, 2, 5), COARSE, d(5), axis=1)
        for d, z in ((np.uint8, np.uint8(4)), (np.int8, np.int8(4)))
    ),
    case(
        "QLinearWhere",
        1,
        np.array([[True], [False]]),
        *(of(np.uint8, 2, 3), FINE, np.uint8(3)),
        *(of(np.uint8, 2, 3), COARSE, np.uint8(1)),
        MIDDLE,
        np.uint8(2),
    ),
    case(
        "QLinearConv",
        1,
        IMAGES,
        FINE,
        np.uint8(9),
        KERNELS,
        FINE,
        np.int8(0),
        np.float32(0.5),
        np.uint8(99),
        constants=(1, 2, 3, 4, 5, 6, 7),
    ),
    case(
        "QLinearConv",
        1,
        np.moveaxis(IMAGES, 1, -1),
        FINE,
        np.uint8(9),
        KERNELS,
        FINE,
        np.int8(0),
        np.float32(0.5),
        np.uint8(99),
        channels_last=1,
        pads=[1, 1, 1, 1],
        constants=(1, 2, 3, 4, 5, 6, 7),
    ),
    case("QuantizeLinear", 1, BIAS * 9, MIDDLE, np.uint8(7)),
    case(
        "QuantizeLinear",
        1,
        BIAS.reshape(2, 3) * 99,
        np.array([1, 2, 4], np.float32),
        np.array([1, 2, 3], np.int8),
        axis=1,
    ),
    case("QuantizeLinear", 1, BIAS * 999, MIDDLE, np.int16(7)),
    case("DequantizeLinear", 1, A, FINE, np.uint8(7)),
    case("DequantizeLinear", 1, A, np.float32(0.3)),
    case("DequantizeLinear", 1, of(np.uint16, 3, 4), np.array([1, 0.1, 3], np.float32), of(np.uint16, 3), axis=0),
    case("MatMulIntegerToFloat", 1, A, B, FINE, np.float32(0.3), np.uint8(7), np.int8(0)),
    case("MatMulIntegerToFloat", 1, A, B, FINE, SCALES, None, None, BIAS, constants=(1, 3)),
    case("MatMulIntegerToFloat", 1, A, B, FINE, SCALES, np.uint8(4), ZEROS, BIAS, constants=(1, 3, 5, 6)),
    case("DynamicQuantizeMatMul", 1, RANDOM.normal(size=(2, 5, 9)).astype(np.float32), B, np.array([0.1], np.float32)),
    case(
        "DynamicQuantizeMatMul",
        1,
        RANDOM.normal(size=(5, 9)).astype(np.float32),
        B,
        SCALES,
        ZEROS,
        BIAS,
        constants=(1, 2, 3, 4),
    ),
    case("QGemm", 1, A, FINE, np.uint8(3), B, COARSE, np.int8(1)),
    case("QGemm", 1, A, FINE, np.uint8(3), B, COARSE, np.int8(1), of(np.int16, 6).astype(np.int32), alpha=0.5),
    case(
        "QGemm",
        1,
        A,
        FINE,
        np.uint8(3),
        B,
        SCALES,
        ZEROS,
        of(np.int16, 6).astype(np.int32),
        np.float32(64),
        np.uint8(7),
    ),
    case(
        "QGemm",
        1,
        A.T.copy(),
        FINE,
        np.uint8(3),
        B.T.copy(),
        COARSE,
        np.int8(1),
        None,
        np.float32(2),
        np.uint8(7),
        transA=1,
        transB=1,
    ),
    *(
        case(
            "QLinearSoftmax",
            1,
            of(np.uint8, 3, 4),
            COARSE,
            np.uint8(9),
            np.float32(1 / 256),
            np.uint8(0),
            attributes={"opset": opset, "axis": axis},
        )
        for opset, axis in ((13, 1), (13, 0), (12, 1))
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_quantization(case: Case) -> None:
    check(case)


@on_x86_64
@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize(
    "shapes", [((256, 256), (256, 256)), ((64, 256), (64, 1)), ((64, 1), (64, 256)), ((3, 1), (1,))]
)
def test_sums_are_rounded_as_by_onnxruntime(shapes: tuple[tuple[int, ...], ...], dtype: type) -> None:
    """Scales are no powers of two, and many sums lie half way between two integers but for roundings."""
    rng, least = np.random.default_rng(8), np.iinfo(dtype).min
    for double in (False, True):
        a_scale, b_scale, y_scale = rng.uniform(0.003, 0.3, 3).astype(np.float32)
        if double:
            b_scale, y_scale = a_scale, 2 * a_scale
        zeros = (rng.integers(0, 256, 3) + least).astype(dtype)
        a, b = (rng.integers(least, least + 256, shape).astype(dtype) for shape in shapes)
        constants = (1, 2, 4, 5, 6, 7)
        check(
            any_case(
                *("QLinearAdd", 1, a, a_scale, zeros[0], b, b_scale, zeros[1], y_scale, zeros[2]),
                domain="com.microsoft",
                constants=constants,
                rtol=0,
                atol=0,
            )
        )


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize(
    "window", [{"kernel_shape": [2, 2], "strides": [2, 2]}, {"kernel_shape": [4, 4], "pads": [1] * 4}]
)
@pytest.mark.parametrize("last", [0, 1])
def test_means_are_rounded_as_by_onnxruntime(last: int, window: dict[str, Any], dtype: type) -> None:
    """Of the numbers' scale, one in so many lies half way between two integers; the zero point is odd."""
    images, scale, zero = of(dtype, 1, 6, 12, 14), np.float32(0.0376), dtype(101)
    operands, constants = (images, scale, zero, scale, zero), (1, 2, 3, 4)
    given = {"constants": constants, "channels_last": last, "rtol": 0, "atol": 0}
    check(any_case("QLinearAveragePool", 1, *operands, domain="com.microsoft", **given, **window))


REFUSED = [
    (case("QLinearConcat", 1, MIDDLE, np.uint8(4), A, FINE, axis=0), "three a tensor"),
    (case("QGemm", 1, A, FINE, np.uint8(3), B, COARSE, np.int8(1), None, FINE), "given together"),
]


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_refused(case: Case, text: str) -> None:
    check_refused(case, text)
