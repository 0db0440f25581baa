"""Dropout in inference, with its masks; where all or nothing is dropped, in training too."""

import numpy as np
import pytest

from tests.ops.harness import Case, case, check, each_version

RANDOM = np.random.default_rng(4)
X = RANDOM.normal(size=(2, 3, 4)).astype(np.float32)


CASES: list[Case] = [
    *each_version("Dropout", X, since=7),
    *(case("Dropout", version, X, outputs=2, expected=(X, np.ones_like(X))) for version in (1, 6, 7)),
    case("Dropout", 6, X, is_test=1, ratio=0.3, expected=X),
    case("Dropout", 10, X, outputs=2, expected=(X, np.ones(X.shape, bool))),  # onnxruntime says the contrary here
    *each_version("Dropout", X, since=12, outputs=2),
    *each_version("Dropout", X, np.float32(0.3), since=12, outputs=2),
    *each_version("Dropout", X, np.float32(0.3), np.array(False), since=12, outputs=2, constants=(2,)),
    case("Dropout", 13, X, np.float32(0), np.array(True), outputs=2),
    case("Dropout", 13, X, np.float32(1), np.array(True), expected=np.zeros_like(X)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_dropout(case: Case) -> None:
    check(case)
