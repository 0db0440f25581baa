"""Pools: windows of all kinds, what counts at the border, indices, and the pools over everything."""

from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime
import pytest

import jitonnx
from jitonnx.errors import Error
from tests.ops.harness import Case, build, case, check, check_refused, each_version, oracle, retyped

RANDOM = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


# Attributes and input size: one to three axes, pads on one side, automatic pads.
WINDOWS: tuple[tuple[dict[str, Any], tuple[int, ...]], ...] = (
    ({"kernel_shape": [3, 2]}, (7, 6)),
    ({"kernel_shape": [3, 2], "strides": [2, 3], "pads": [1, 0, 1, 1]}, (7, 6)),
    ({"kernel_shape": [3], "strides": [2], "pads": [1, 0]}, (7,)),
    ({"kernel_shape": [2, 3, 2], "strides": [2, 1, 2], "pads": [1, 0, 1, 0, 1, 0]}, (4, 5, 6)),
    ({"kernel_shape": [3, 4], "strides": [2, 3], "auto_pad": "SAME_UPPER"}, (7, 8)),
    ({"kernel_shape": [3, 4], "strides": [2, 3], "auto_pad": "SAME_LOWER"}, (7, 8)),
    ({"kernel_shape": [3, 4], "strides": [2, 3], "auto_pad": "VALID"}, (7, 8)),
)
CEILED: tuple[tuple[dict[str, Any], tuple[int, ...]], ...] = (
    ({"kernel_shape": [3, 2], "strides": [2, 3]}, (8, 7)),
    ({"kernel_shape": [3, 2], "strides": [2, 3], "pads": [1, 1, 1, 1]}, (7, 6)),
    ({"kernel_shape": [1, 1], "strides": [2, 2]}, (2, 2)),  # the last window would start behind the input
    ({"kernel_shape": [2, 2], "strides": [3, 3], "pads": [0, 0, 1, 1]}, (5, 6)),
    ({"kernel_shape": [3, 2], "strides": [2, 3], "auto_pad": "VALID"}, (8, 7)),
)
DILATED = {"kernel_shape": [3, 2], "dilations": [2, 3], "pads": [1, 0, 2, 1]}


def old(operator: str, x: np.ndarray, **options: Any) -> Case:
    """A case of version 1, which no oracle has right, with what the newest version gives."""
    expected = oracle(template := case(operator, 22, x, **options), {"x0": template.inputs[0]})
    return case(
        operator, 1, x, **{**options, "p": float(options["p"])} if "p" in options else options, expected=tuple(expected)
    )


CASES: list[Case] = []
for attributes, size in WINDOWS:
    x = normal(2, 3, *size)
    CASES += [
        *each_version("MaxPool", x, until=1, **attributes),
        *each_version("MaxPool", x, since=8, outputs=2, **attributes),
        *each_version("MaxPool", x, since=8, outputs=2, storage_order=1, **attributes),
        old("AveragePool", x, **attributes),
        *each_version("AveragePool", x, since=7, **attributes),
        *each_version("AveragePool", x, since=7, count_include_pad=1, **attributes),
        old("LpPool", x, **attributes),
        old("LpPool", x, p=3, **attributes),
        *each_version("LpPool", x, since=2, p=3, **attributes),
    ]
for attributes, size in CEILED:
    x = normal(2, 3, *size)
    CASES += [
        *each_version("MaxPool", x, since=10, outputs=2, ceil_mode=1, **attributes),
        *each_version("AveragePool", x, since=10, ceil_mode=1, **attributes),
        *each_version("AveragePool", x, since=10, ceil_mode=1, count_include_pad=1, **attributes),
        *each_version("LpPool", x, since=18, ceil_mode=1, **attributes),
    ]
X, IMAGE = normal(2, 3, 9, 8), normal(1, 2, 5, 5)
PADDED = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
CASES += [
    *each_version("MaxPool", X, since=10, outputs=2, **DILATED),
    *each_version("AveragePool", X, since=19, **DILATED),
    *each_version("LpPool", X, since=18, **DILATED),
    # The padding of SAME is what windows without dilation want, negative below longer strides: as in onnxruntime. By
    # ONNX's text dilated windows have more.
    *(
        c
        for side in ("SAME_UPPER", "SAME_LOWER")
        for options in (
            {"kernel_shape": [3, 2], "dilations": [2, 3], "auto_pad": side},
            {"kernel_shape": [3, 1], "dilations": [2, 3], "strides": [2, 3], "auto_pad": side},
        )
        for c in (
            *each_version("MaxPool", X, since=10, outputs=2, **options),
            *each_version("AveragePool", X, since=19, **options),
            *each_version("LpPool", X, since=18, **options),
        )
    ),
    *each_version("MaxPool", X, since=10, kernel_shape=[3, 2], dilations=[2, 3], auto_pad="SAME_UPPER", ceil_mode=1),
    *each_version("AveragePool", X, since=19, kernel_shape=[1, 2], strides=[3, 4], auto_pad="SAME_UPPER"),
    case(
        "LpPool",
        1,
        np.array([[[3, 4]]], np.float32),
        kernel_shape=[2],
        p=1.5,
        expected=np.array([[[(3**1.5 + 8) ** (2 / 3)]]], np.float32),
    ),
    *retyped(case("MaxPool", 22, IMAGE * 40, outputs=2, **PADDED), np.int8, np.float64, np.float16, ml_dtypes.bfloat16),
    *retyped(case("MaxPool", 12, abs(IMAGE) * 40, outputs=2, **PADDED), np.uint8),
    *retyped(case("AveragePool", 22, IMAGE, **PADDED), np.float64, np.float16, ml_dtypes.bfloat16),
    # Padding is -inf, or the smallest integer (onnxruntime starts from the smallest finite number).
    case("MaxPool", 22, ENDS := np.full((1, 1, 4), -np.inf, np.float32), kernel_shape=[3], pads=[1, 1], expected=ENDS),
    case("MaxPool", 22, np.zeros((0, 3, 4, 4), np.float32), kernel_shape=[2, 2]),
    *(
        c
        for operator in ("GlobalAveragePool", "GlobalMaxPool")
        for shape in ((2, 3, 4, 5), (2, 3, 4), (2, 3, 4, 2, 2))
        for c in each_version(operator, normal(*shape))
    ),
    *retyped(case("GlobalAveragePool", 22, IMAGE), np.float64, np.float16, ml_dtypes.bfloat16),
    *(
        case("GlobalLpPool", version, IMAGE, p=float(p) if version == 1 else p, expected=norm)
        for version in (1, 2, 22)
        for p in (1, 2, 3)
        for norm in [(abs(IMAGE) ** p).sum((2, 3), keepdims=True) ** np.float32(1 / p)]
    ),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_pooling(case: Case) -> None:
    check(case)


def test_a_nan_is_the_maximum_of_a_window_if_it_is_the_first() -> None:
    x = np.array([[[1, np.nan, np.nan, 3, np.nan, np.nan, 9, 2]]], np.float32)
    y, indices = np.array([[[1, np.nan, np.nan, 9]]], np.float32), np.array([[[0, 2, 4, 6]]], np.int64)
    check(case("MaxPool", 22, x, kernel_shape=[2], strides=[2], outputs=2, expected=(y, indices)))
    check(case("MaxPool", 22, x, kernel_shape=[2], strides=[2], outputs=2))  # so says onnxruntime


OVERHANGING: tuple[tuple[dict[str, Any], tuple[int, ...]], ...] = (
    ({"kernel_shape": [5], "strides": [2]}, (4,)),
    ({"kernel_shape": [7], "strides": [2]}, (4,)),  # by more than a stride: none
    ({"kernel_shape": [2, 2], "strides": [2, 2]}, (1, 5)),  # what is left of a small image
    ({"kernel_shape": [4, 5], "strides": [3, 2], "pads": [1, 0, 0, 2]}, (2, 4)),
    ({"kernel_shape": [5, 3, 2], "strides": [2, 1, 3], "auto_pad": "VALID"}, (4, 4, 1)),
)


@pytest.mark.parametrize(
    "given", [("MaxPool", 12), ("LpPool", 18), *(("AveragePool", v, i) for v in (11, 22) for i in (0, 1))], ids=str
)
def test_first_windows_that_reach_over_the_end(given: tuple[Any, ...]) -> None:
    """There is one if it does so by less than a stride, as onnxruntime has it, also where a run tells the size."""
    operator, version, *include = given
    for attributes, size in OVERHANGING:
        options = {**attributes, **({"count_include_pad": 1} if include == [1] else {})}
        x = normal(2, 3, *size)
        template = case(operator, version, x, **options)
        (expected,) = onnxruntime.InferenceSession(build(template).SerializeToString()).run(None, {"x0": x})
        check(case(operator, version, x, **options, expected=(expected,)))
        session = jitonnx.InferenceSession(build(template, "open").SerializeToString())
        larger = normal(2, 3, *(length + 5 for length in size))
        for fed in (larger, x, larger):
            want = expected if fed is x else oracle(case(operator, version, fed, **options), {"x0": fed})[0]
            np.testing.assert_allclose(session.run(None, {"x0": fed})[0], want, rtol=1e-5, atol=1e-6)


def test_a_window_that_a_fed_image_does_not_hold() -> None:
    model = build(case("MaxPool", 12, normal(1, 1, 9), kernel_shape=[8], strides=[2]), "open").SerializeToString()
    with pytest.raises(Error, match=r"MaxPool node 'node'.*window of extent \[8\].*\[3\], padded by \[0\] and \[0\]"):
        jitonnx.InferenceSession(model).run(None, {"x0": normal(1, 1, 3)})


@pytest.mark.parametrize(
    ("refused", "text"),
    [
        (case("MaxPool", 22, IMAGE, kernel_shape=[3]), "kernel_shape .* 2 entries"),
        (
            case("MaxPool", 22, IMAGE, kernel_shape=[9, 9], pads=[1, 0, 0, 0]),
            r"window of extent \[9, 9\] is larger than the padded input \[\d, \d\], padded by \[1, 0\] and \[0, 0\]",
        ),
        (case("MaxPool", 22, normal(2, 3), kernel_shape=[1]), "no spatial axes"),
        (case("MaxPool", 22, IMAGE), "Required attribute 'kernel_shape' is missing"),
        (case("LpPool", 22, IMAGE, kernel_shape=[2, 2], p=0), "p is 0"),
        (case("GlobalMaxPool", 22, normal(3)), "no channels"),
    ],
    ids=str,
)
def test_refused(refused: Case, text: str) -> None:
    check_refused(refused, text)
