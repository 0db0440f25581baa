"""Scaling, completing and choosing features."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ops.harness import Case, case, check, check_refused, ints, retyped

ML = "ai.onnx.ml"
X = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
WHOLE = np.array([[0, 3, -7, 5], [2, 0, 0, -1], [0, 0, 0, 0]], np.float32)
HOLES = np.where(X > 0.7, np.float32(np.nan), X)
FLOATS, INTEGERS = (np.float32, np.float64), (np.int32, np.int64)


def own(operator: str, *inputs: Any, **options: Any) -> Case:
    return case(operator, 1, *inputs, domain=ML, **options)


def strings(*texts: str) -> np.ndarray:
    return np.array(texts, object)


FEATURES = [
    *(own("Binarizer", X.astype(dtype), threshold=threshold) for dtype in FLOATS for threshold in (0.0, 0.3)),
    *(own("Binarizer", WHOLE.astype(dtype), threshold=2.5, expected=(WHOLE > 2.5).astype(dtype)) for dtype in INTEGERS),
    own("Binarizer", X[0]),
    own("Imputer", HOLES, imputed_value_floats=[1.0, 2.0, 3.0, 4.0], replaced_value_float=float("nan")),
    own("Imputer", HOLES, imputed_value_floats=[1.5], replaced_value_float=float("nan")),
    own("Imputer", WHOLE, imputed_value_floats=[1.5], replaced_value_float=0.0),
    own("Imputer", WHOLE[0], imputed_value_floats=[1.0, 2.0, 3.0, 4.0], replaced_value_float=3.0),
    own("Imputer", WHOLE.astype(np.int64), imputed_value_int64s=[9, 8, 7, 6], replaced_value_int64=0),
    own("Imputer", WHOLE.astype(np.int32), imputed_value_int64s=[9], replaced_value_int64=0),
    own("Imputer", HOLES.astype(np.float64), imputed_value_floats=[1.5], replaced_value_float=float("nan")),
    *retyped(own("Scaler", X, offset=[0.5, 1.0, -1.0, 0.25], scale=[2.0, 1.0, 0.5, -1.0]), *FLOATS),
    *retyped(own("Scaler", WHOLE, offset=[0.5], scale=[2.0]), *FLOATS, *INTEGERS),
    own("Scaler", X[0], offset=[0.5], scale=[2.0]),
    *(
        own("Normalizer", x.astype(dtype), norm=norm)
        for norm in ("MAX", "L1", "L2")
        for x in (X, WHOLE)
        for dtype in FLOATS
    ),
    *(own("Normalizer", WHOLE.astype(dtype), norm=norm) for norm in ("MAX", "L1", "L2") for dtype in INTEGERS),
    own("Normalizer", X[0], norm="L2"),
    own("Normalizer", X[:0], norm="L2"),
    *retyped(own("ArrayFeatureExtractor", X, ints(2, 0, 2), constants=(1,)), *FLOATS, *INTEGERS),
    own("ArrayFeatureExtractor", X, ints(3)),
    own("ArrayFeatureExtractor", X[0], ints(3, 1)),
    own("ArrayFeatureExtractor", X.reshape(5, 2, 2), ints(1)),
    own("ArrayFeatureExtractor", strings("a", "b", "c"), ints(2, 0)),
    *retyped(own("FeatureVectorizer", X, inputdimensions=[4]), *FLOATS, *INTEGERS),
    own(
        "FeatureVectorizer",
        X,
        WHOLE[[0, 1, 2, 0, 1]].astype(np.float32),
        inputdimensions=[4, 4],
        expected=np.concatenate([X, WHOLE[[0, 1, 2, 0, 1]]], axis=1),
    ),
    own("FeatureVectorizer", X, X[:, :2], X, inputdimensions=[2, 3, 4]),
    own("FeatureVectorizer", X[0], X[1], inputdimensions=[4, 4]),
    own("FeatureVectorizer", X, X[:, :1], expected=np.concatenate([X, X[:, :1]], axis=1)),
]

REFUSED = [
    (own("Imputer", X), "one of imputed_value_floats and imputed_value_int64s"),
    (own("Imputer", X, imputed_value_int64s=[1]), "of the other kind"),
    (own("Imputer", X, imputed_value_floats=[1.0, 2.0]), "2 imputed values are given"),
    (own("Scaler", X, offset=[1.0], scale=[1.0, 2.0]), "1 offsets and 2 scales"),
    (own("Normalizer", X, norm="L3"), "norm is 'L3'"),
    (own("ArrayFeatureExtractor", X, np.zeros(1, np.int32)), "allowed are int64"),
    (own("FeatureVectorizer", X, X[:2], inputdimensions=[4, 4]), "different numbers of rows"),
    (own("FeatureVectorizer", X, inputdimensions=[4, 4]), "2 inputdimensions"),
]


@pytest.mark.parametrize("case", FEATURES, ids=str)
def test_features(case: Case) -> None:
    check(case)


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_features_refused(case: Case, text: str) -> None:
    check_refused(case, text)
