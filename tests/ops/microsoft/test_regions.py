"""Parts of images, of com.microsoft, against onnxruntime."""

from functools import partial

import numpy as np
import pytest

from tests.ops.harness import Case, check, check_refused
from tests.ops.harness import case as any_case

case = partial(any_case, domain="com.microsoft", rtol=1e-4, atol=1e-4)
RANDOM = np.random.default_rng(14)

X = RANDOM.normal(size=(2, 3, 7, 9)).astype(np.float32)
ROIS = np.array(
    [[0, 0, 1, 1], [0.1, 0.2, 0.6, 0.9], [0.8, 0.7, 0.3, 0.1], [-0.3, 0.2, 0.5, 1.4], [0.25, 0.5] * 2], np.float32
)
IMAGES, SIZE = np.array([0, 1, 1, 0, 1], np.int32), np.array([4, 3], np.int32)

CASES: list[Case] = [
    *(
        case(
            "CropAndResize",
            1,
            X,
            ROIS,
            IMAGES,
            np.array(size, np.int32),
            mode=mode,
            constants=(3,),
            extrapolation_value=7.0,
        )
        for mode in ("bilinear", "nearest")
        for size in ([4, 3], [1, 5], [7, 9], [13, 1])
    ),
    case("CropAndResize", 1, X[:, :, :1], ROIS, IMAGES, SIZE),
    case("CropAndResize", 1, X, ROIS[:0], IMAGES[:0], SIZE, constants=(3,)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_regions(case: Case) -> None:
    check(case)


REFUSED = [
    (case("CropAndResize", 1, X, ROIS, IMAGES, SIZE, mode="cubic"), "mode is 'cubic'"),
    (case("CropAndResize", 1, X, ROIS[:, :3], IMAGES, SIZE), r"\[R, 4\]"),
]


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_refused(case: Case, text: str) -> None:
    check_refused(case, text)
