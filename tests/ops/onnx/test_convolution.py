"""Conv and ConvTranspose: padding of all kinds, groups, dilations, one to three spatial axes."""

import ml_dtypes
import numpy as np
import pytest

from tests.ops.harness import Case, case, check, check_refused, each_version, retyped

RANDOM = np.random.default_rng(0)
AUTO_PADS = ("SAME_UPPER", "SAME_LOWER", "VALID")


def normal(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


# Kernel, strides, dilations, input size: odd and even padding, none, windows that leave gaps.
GEOMETRIES = (
    ((3, 3), (1, 1), (1, 1), (7, 8)),
    ((2, 3), (2, 1), (1, 1), (7, 8)),
    ((4, 2), (3, 2), (1, 1), (9, 6)),
    ((3, 3), (2, 2), (2, 2), (9, 10)),
    ((1, 1), (2, 2), (1, 1), (5, 4)),
    ((2, 2), (5, 5), (1, 1), (12, 6)),
)
X = normal(2, 4, 7, 8)
W = normal(6, 4, 3, 2)

CASES: list[Case] = [
    *(
        c
        for pad in AUTO_PADS
        for kernel, strides, dilations, size in GEOMETRIES
        for c in each_version(
            "Conv",
            normal(2, 3, *size),
            normal(4, 3, *kernel),
            normal(4),
            **{"auto_pad": pad, "strides": strides, "dilations": dilations, "kernel_shape": kernel},
        )
    ),
    *each_version("Conv", X, W, normal(6)),
    *each_version("Conv", X, normal(6, 2, 3, 2), pads=[1, 2, 0, 1], strides=[2, 1], group=2),
    *each_version("Conv", X, normal(8, 1, 3, 3), normal(8), pads=[1, 1, 1, 1], group=4),
    *each_version("Conv", normal(2, 4, 9), normal(6, 4, 3), normal(6), pads=[1, 1], dilations=[2]),
    # One tap is left of those that read only padding, and more outputs than there are pixels.
    case("Conv", 22, normal(1, 3, 1), normal(2, 3, 2), pads=[2, 1], dilations=[2]),
    case("Conv", 22, normal(1, 1, 1, 1), normal(2, 1, 2, 3), pads=[0, 1, 3, 1]),
    case("Conv", 22, normal(1, 2, 1, 5, 5), normal(3, 2, 2, 1, 1), pads=[0, 0, 0, 2, 0, 0]),
    *each_version("Conv", normal(1, 2, 4, 5, 6), normal(3, 2, 3, 2, 2), normal(3), pads=[1, 1, 1, 0, 1, 0]),
    *each_version("Conv", normal(0, 2, 4, 5), normal(3, 2, 3, 2), normal(3)),
    *each_version("Conv", normal(2, 2, 3, 3), normal(3, 2, 3, 3), normal(3)),
    *retyped(case("Conv", 22, X, W, normal(6), pads=[1, 1, 1, 1]), np.float64, np.float16, ml_dtypes.bfloat16),
]

TRANSPOSED: tuple[dict, ...] = (
    {},
    {"strides": [2, 3]},
    {"strides": [2, 3], "pads": [1, 0, 1, 1]},
    {"strides": [2, 3], "output_padding": [1, 2]},
    {"strides": [2, 2], "output_shape": [8, 9]},
    {"strides": [2, 2], "output_shape": [8, 9], "auto_pad": "SAME_UPPER"},
    {"strides": [2, 2], "auto_pad": "SAME_LOWER"},
    {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
    {"strides": [2, 2], "auto_pad": "SAME_UPPER", "output_padding": [1, 1]},
    {"dilations": [2, 2]},
    {"auto_pad": "VALID", "strides": [2, 2]},
    {"auto_pad": "VALID", "strides": [4, 4]},
)
V = normal(3, 2, 3, 2)

CASES += [
    *(c for options in TRANSPOSED for c in each_version("ConvTranspose", normal(2, 3, 4, 5), V, normal(2), **options)),
    *each_version("ConvTranspose", normal(2, 6, 4, 5), normal(6, 2, 3, 2), group=3, strides=[2, 2], pads=[1, 1, 1, 1]),
    *each_version("ConvTranspose", normal(2, 3, 5), normal(3, 2, 3), strides=[2]),
    *each_version(
        "ConvTranspose", normal(1, 3, 3, 4, 2), normal(3, 2, 3, 2, 2), strides=[2, 1, 2], dilations=[1, 2, 1]
    ),
    *retyped(case("ConvTranspose", 22, normal(2, 3, 4, 5), V, normal(2)), np.float64, np.float16, ml_dtypes.bfloat16),
    # SAME cuts the result to input size times stride, and adds nothing where windows do not reach so far.
    case(
        "ConvTranspose",
        22,
        np.array([[[1, 2]]], np.float32),
        np.array([[[1]]], np.float32),
        strides=[3],
        auto_pad="SAME_UPPER",
        expected=np.array([[[1, 0, 0, 2]]], np.float32),
    ),
    *(
        c
        for same in ("SAME_UPPER", "SAME_LOWER")
        for c in each_version(
            "ConvTranspose", normal(1, 3, 5, 4), normal(3, 2, 2, 4), normal(2), strides=[3, 3], auto_pad=same
        )
    ),
    *retyped(
        case("ConvTranspose", 22, normal(1, 3, 5), normal(3, 2, 2), strides=[3], auto_pad="SAME_LOWER"),
        np.float32,
        np.float16,
    ),
    case(
        "ConvTranspose",
        22,
        normal(1, 2, 3, 2, 2),
        normal(2, 2, 1, 2, 3),
        strides=[2, 3, 1],
        dilations=[1, 2, 1],
        auto_pad="SAME_UPPER",
    ),
    case("ConvTranspose", 22, normal(1, 3, 5), normal(3, 2, 2), strides=[4], output_padding=[1], auto_pad="SAME_UPPER"),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_convolution(case: Case) -> None:
    check(case)


@pytest.mark.parametrize(
    ("refused", "text"),
    [
        (case("Conv", 22, X, normal(6, 3, 3, 3)), "X has 4 channels, but W and group 1 take 3"),
        (case("Conv", 22, X, normal(5, 2, 3, 3), group=2), "5 output channels do not divide into 2 groups"),
        (case("Conv", 22, X, W, kernel_shape=[3, 3]), "kernel_shape .* contradicts"),
        (case("Conv", 22, X, W, normal(5)), "B has the shape"),
        (case("Conv", 22, X, normal(6, 4, 9, 3)), "larger than the padded input"),
        (case("Conv", 22, X, W, strides=[0, 1]), "strides .* at least 1"),
        (case("Conv", 22, X, W, pads=[1, 1]), "pads .* 4 entries"),
        (case("Conv", 22, X, W, auto_pad="SAME"), "auto_pad 'SAME'"),
        (case("Conv", 22, normal(2, 4), W), "no spatial axes"),
        (case("ConvTranspose", 22, X, V), "X has 4 channels"),
        (case("ConvTranspose", 22, normal(1, 3, 1, 1), V, pads=[3, 3, 3, 3]), "leave nothing"),
    ],
    ids=str,
)
def test_refused(refused: Case, text: str) -> None:
    check_refused(refused, text)
