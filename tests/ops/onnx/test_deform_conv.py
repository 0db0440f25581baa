"""DeformConv: versions, groups of both kinds, masks, strides and dilations, one to three axes, types."""

import ml_dtypes
import numpy as np
import pytest

from tests.ops.harness import Case, case, check, check_refused, each_version, retyped

RANDOM = np.random.default_rng(9)


def inputs(
    x: tuple[int, ...], w: tuple[int, ...], out: tuple[int, ...], groups: int = 1, bias: bool = True, mask: bool = True
) -> list[np.ndarray | None]:
    """X, W, offset, B and mask, offsets reaching outside of X here and there."""
    taps, axes = int(np.prod(w[2:])), len(out)
    return [
        RANDOM.normal(size=x).astype(np.float32),
        RANDOM.normal(size=w).astype(np.float32),
        RANDOM.normal(size=(x[0], groups * taps * axes, *out)).astype(np.float32) * 2,
        RANDOM.normal(size=w[:1]).astype(np.float32) if bias else None,
        RANDOM.random((x[0], groups * taps, *out)).astype(np.float32) if mask else None,
    ]


PLAIN = inputs((2, 3, 6, 7), (4, 3, 3, 3), (4, 5))
LINE = inputs((2, 3, 9), (4, 3, 2), (8,))
VOLUME = inputs((1, 2, 3, 4, 4), (3, 2, 2, 2, 2), (2, 3, 3))


def in_double(arrays: list[np.ndarray | None]) -> np.ndarray:
    """The convolution over all axes but one of size 1 by its definition, for what no oracle has."""
    x, w, offset, bias, mask = arrays
    taps = list(np.ndindex(w.shape[2:]))
    images, axes, out = len(x), w.ndim - 2, offset.shape[2:]
    moved = offset.reshape(images, len(taps), axes, *out).astype(float)
    y = np.zeros((images, len(w), *out))
    for n in range(images):
        for place in np.ndindex(out):
            for number, tap in enumerate(taps):
                at = np.add(place, tap) + moved[(n, number, slice(None), *place)]
                low = np.floor(at).astype(int)
                for corner in np.ndindex((2,) * axes):
                    where = low + corner
                    if (where < 0).any() or (where >= x.shape[2:]).any():
                        continue
                    weight = np.prod(np.where(corner, at - low, 1 - (at - low))) * mask[(n, number, *place)]
                    y[(n, slice(None), *place)] += (
                        weight * w[(slice(None), slice(None), *tap)] @ x[(n, slice(None), *where)]
                    )
    return (y + bias.reshape(-1, *(1,) * axes)).astype(np.float32)


CASES: list[Case] = [
    *each_version("DeformConv", *PLAIN, atol=1e-5),
    case("DeformConv", 19, *inputs((1, 3, 6, 7), (4, 3, 3, 3), (4, 5), bias=False, mask=False)[:3], atol=1e-5),
    case("DeformConv", 19, *inputs((1, 3, 6, 7), (4, 3, 2, 3), (5, 5), bias=False), kernel_shape=[2, 3], atol=1e-5),
    case("DeformConv", 19, *inputs((2, 3, 8, 7), (4, 3, 3, 3), (4, 3)), strides=[2, 3], pads=[1, 0, 1, 2], atol=1e-5),
    case("DeformConv", 19, *inputs((1, 3, 8, 9), (4, 3, 3, 3), (4, 9)), dilations=[2, 1], pads=[0, 1, 0, 1], atol=1e-5),
    case("DeformConv", 19, *inputs((2, 6, 6, 7), (4, 6, 3, 3), (4, 5), 3), offset_group=3, atol=1e-5),
    case("DeformConv", 19, *inputs((2, 6, 6, 7), (4, 3, 3, 3), (4, 5)), group=2, atol=1e-5),
    case("DeformConv", 19, *inputs((2, 12, 6, 7), (6, 4, 3, 3), (4, 5), 2), group=3, offset_group=2, atol=1e-5),
    *(  # as many channels as make pixels, and weights that are known before the run
        case("DeformConv", 19, *inputs((2, 32, 6, 7), (8, 32 // group, 3, 3), (4, 5), offset_group),
             group=group, offset_group=offset_group, constants=(1, 3), atol=1e-4)
        for group in (1, 2)
        for offset_group in (1, 2)
    ),
    case("DeformConv", 22, *LINE, expected=in_double(LINE), atol=1e-5),
    case("DeformConv", 22, *VOLUME, expected=in_double(VOLUME), atol=1e-5),
    case("DeformConv", 19, PLAIN[0][:0], PLAIN[1], PLAIN[2][:0], expected=np.zeros((0, 4, 4, 5), np.float32)),
    *retyped(case("DeformConv", 22, *PLAIN, atol=1e-5), np.float64, np.float16, ml_dtypes.bfloat16),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_deform_conv(case: Case) -> None:
    check(case)


X, W, OFFSET, B, MASK = PLAIN
REFUSED = [
    (case("DeformConv", 19, X, W[:, :2], OFFSET), "takes 2 channels in 1 groups"),
    (case("DeformConv", 19, X, W, OFFSET[:, :8]), "should have the shape"),
    (case("DeformConv", 19, X, W, OFFSET, B[:2]), r"should have the shape \[4\]"),
    (case("DeformConv", 19, X, W, OFFSET, B, MASK[:, :3]), "should have the shape"),
    (case("DeformConv", 19, X, W, OFFSET, offset_group=2), "not divisible into 2 groups"),
    (case("DeformConv", 19, X, W, OFFSET, kernel_shape=[2, 2]), r"kernel_shape is \[2, 2\]"),
    (case("DeformConv", 19, X, W[0], OFFSET), "different ranks"),
    (case("DeformConv", 19, X, W.astype(np.float64), OFFSET), "different element types"),
]


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_refused(case: Case, text: str) -> None:
    check_refused(case, text)
