"""Losses of classifiers: every version, reduction and rank, weights, and targets that are ignored."""

import ml_dtypes
import numpy as np
import pytest

from tests.ops.harness import Case, case, check, check_refused, each_version, retyped

RANDOM = np.random.default_rng(3)
NAMES = ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
X = RANDOM.normal(size=(5, 4)).astype(np.float32)
IMAGE = RANDOM.normal(size=(2, 4, 3, 5)).astype(np.float32)
TARGET, CLASSES = RANDOM.integers(0, 4, 5), RANDOM.integers(0, 4, (2, 3, 5))
WEIGHT = RANDOM.random(4).astype(np.float32)
REDUCTIONS = ("none", "sum", "mean")
IGNORED = np.where(np.arange(15).reshape(3, 5) % 4 == 1, -7, CLASSES)

CASES: list[Case] = [
    *(c for name in NAMES for c in each_version(name, X, TARGET)),
    *(c for name in NAMES for c in each_version(name, IMAGE, CLASSES, WEIGHT, ignore_index=2)),
    *(
        case(name, 13, x, target, *weight, reduction=reduction)
        for name in NAMES
        for reduction in REDUCTIONS
        for x, target in ((X, TARGET), (IMAGE[:, :, 0], CLASSES[:, 0].astype(np.int32)), (IMAGE, CLASSES))
        for weight in ((), (WEIGHT,))
    ),
    *(
        case(name, 13, IMAGE, IGNORED, *weight, reduction=reduction, ignore_index=-7)
        for name in NAMES
        for reduction in REDUCTIONS
        for weight in ((), (WEIGHT,))
    ),
    *(
        case("SoftmaxCrossEntropyLoss", 13, IMAGE * 9, IGNORED, *weight, ignore_index=-7, outputs=2, atol=1e-5)
        for weight in ((), (WEIGHT,))
    ),
    *(c for name in NAMES for c in retyped(case(name, 13, IMAGE, CLASSES, WEIGHT, constants=(1,)), np.float64)),
    *(
        c
        for x, target in ((X, TARGET), (IMAGE, CLASSES))
        for outputs in (1, 2)
        for c in retyped(
            case("SoftmaxCrossEntropyLoss", 13, x, target, WEIGHT, outputs=outputs, constants=(1,)),
            np.float16, ml_dtypes.bfloat16,
        )
    ),
    *retyped(
        case("NegativeLogLikelihoodLoss", 22, IMAGE, CLASSES, WEIGHT, constants=(1,)), np.float16, ml_dtypes.bfloat16
    ),
    # What is ignored counts for nothing, however large its loss.
    case("NegativeLogLikelihoodLoss", 22, np.array([[-np.inf, 1], [2, 3]], np.float32), np.array([0, 1]),
         ignore_index=0, expected=np.float32(-3)),
    case("NegativeLogLikelihoodLoss", 22, X[:0], TARGET[:0], reduction="none", expected=X[:0, 0]),
    case("NegativeLogLikelihoodLoss", 22, X[:0], TARGET[:0], reduction="sum", expected=np.float32(0)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_loss(case: Case) -> None:
    check(case)


REFUSED = [
    (case("SoftmaxCrossEntropyLoss", 13, X, TARGET, reduction="max"), "reduction is 'max'"),
    (case("SoftmaxCrossEntropyLoss", 13, X, TARGET[:3]), "should have the shape"),
    (case("NegativeLogLikelihoodLoss", 13, X, TARGET, WEIGHT[:2]), r"should have the shape \[4\]"),
    (case("NegativeLogLikelihoodLoss", 13, X[0], TARGET), "a batch axis and one of classes"),
    (case("NegativeLogLikelihoodLoss", 13, X, TARGET.astype(np.int16)), "is of type int16"),
]


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_refused(case: Case, text: str) -> None:
    check_refused(case, text)
