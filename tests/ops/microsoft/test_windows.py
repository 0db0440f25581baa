"""Windows of com.microsoft, against onnxruntime."""

from functools import partial

import numpy as np
import pytest

from tests.ops.harness import Case, check, check_refused
from tests.ops.harness import case as any_case

case = partial(any_case, domain="com.microsoft")
RANDOM = np.random.default_rng(28)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


def masked(shape: tuple[int, ...], mask: tuple[int, ...], **attributes: object) -> Case:
    x, kept = normal(*shape), RANDOM.integers(0, 4, mask).astype(np.int32)
    x.flat[x.size // 2] = np.nan
    return case("MaxpoolWithMask", 1, x, kept, **attributes)


BYTES = RANDOM.integers(-128, 128, (2, 7, 6, 5)).astype(np.int8)
CASES: list[Case] = [
    masked((1, 3, 9), (1, 1, 9), kernel_shape=[3]),
    masked((2, 3, 9), (2, 3, 9), kernel_shape=[3], strides=[2], pads=[1, 1]),
    masked((2, 3, 5, 7), (1, 1, 5, 7), kernel_shape=[1, 3], pads=[0, 1, 0, 1]),
    masked((2, 2, 5, 7), (2, 2, 5, 7), kernel_shape=[3, 2], strides=[2, 3], pads=[1, 0, 1, 1]),
    masked((1, 2, 5, 4, 6), (1, 1, 5, 4, 6), kernel_shape=[2, 2, 3], pads=[0, 1, 1, 1, 0, 1]),
    case("NhwcMaxPool", 1, BYTES, kernel_shape=[3, 2], pads=[1, 0, 1, 1], strides=[2, 1]),
    case("NhwcMaxPool", 1, BYTES.view(np.uint8), kernel_shape=[2, 2], dilations=[2, 1], ceil_mode=1, strides=[2, 2]),
    case("UnfoldTensor", 1, normal(2, 7, 3), size=3, dim=1, step=2),
    case("UnfoldTensor", 1, RANDOM.integers(0, 9, (2, 5)), size=5),
    case("UnfoldTensor", 1, normal(6), size=1, dim=-1, step=4),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_windows(case: Case) -> None:
    check(case)


REFUSED = [
    (masked((1, 3, 9), (1, 1, 9), kernel_shape=[3, 3]), "kernel_shape"),
    (masked((1, 3, 9), (1, 9), kernel_shape=[3]), "mask of that rank"),
    (masked((1, 3, 9), (1, 1, 9), kernel_shape=[3], auto_pad="SAME_UPPER"), "auto_pad"),
    (case("NhwcMaxPool", 1, BYTES[0, 0], kernel_shape=[1]), "spatial"),
    (case("UnfoldTensor", 1, normal(6), size=0), "size 0"),
    (case("UnfoldTensor", 1, normal(6), size=1, dim=1), "dim 1"),
]


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_refused(case: Case, text: str) -> None:
    check_refused(case, text)
