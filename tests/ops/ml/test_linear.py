"""Linear models and support vector machines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ops.harness import Case, case, check, check_refused, retyped

ML = "ai.onnx.ml"
RNG = np.random.default_rng(0)
X = RNG.standard_normal((7, 4)).astype(np.float32)
TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")
INTEGERS = (np.int32, np.int64)


def own(operator: str, *inputs: Any, **options: Any) -> Case:
    return case(operator, 1, *inputs, domain=ML, **{"rtol": 1e-4, "atol": 1e-5, **options})


def numbers(count: int, scale: float = 1.0) -> list[float]:
    return [float(np.float32(x)) for x in np.random.default_rng(count).standard_normal(count) * scale]


LINEAR = [
    own("LinearRegressor", X, coefficients=numbers(4), intercepts=[0.5]),
    own("LinearRegressor", X, coefficients=numbers(12), intercepts=[0.5, 1.0, -1.0], targets=3),
    own("LinearRegressor", X, coefficients=numbers(12), targets=3),
    own("LinearRegressor", X[0], coefficients=numbers(4)),
    own("LinearRegressor", X[:0], coefficients=numbers(4)),
    *(own("LinearRegressor", X, coefficients=numbers(12), targets=3, post_transform=t) for t in TRANSFORMS[:4]),
    own("LinearRegressor", X, coefficients=[0.01] * 4, intercepts=[0.2], post_transform="PROBIT"),
    *(
        own(
            "LinearClassifier",
            X,
            outputs=2,
            coefficients=numbers(12),
            intercepts=[0.5, 1.0, -1.0],
            post_transform=t,
            **labels,
        )
        for t in TRANSFORMS[:4]
        for labels in ({"classlabels_ints": [4, 2, 9]}, {"classlabels_strings": ["x", "y", "z"]})
    ),
    *(
        own(
            "LinearClassifier",
            X,
            outputs=2,
            coefficients=numbers(4, 0.1),
            intercepts=[0.25],
            post_transform=t,
            **labels,
        )
        for t in TRANSFORMS[:4]
        for labels in ({"classlabels_ints": [4, 2]}, {"classlabels_strings": ["x", "y"]}, {"classlabels_ints": [1]})
    ),
    own("LinearClassifier", X[0], outputs=2, coefficients=numbers(8), intercepts=[0.5, 1.0], classlabels_ints=[0, 1]),
    *retyped(
        own(
            "LinearClassifier",
            np.round(X * 4),
            outputs=2,
            coefficients=numbers(8),
            intercepts=[0.5, 1.0],
            classlabels_ints=[0, 1],
        ),
        np.float64,
        *INTEGERS,
    ),
]


def regressor(kernel: str, **options: Any) -> Case:
    vectors = {"n_supports": 5, "support_vectors": numbers(20), "coefficients": numbers(5)}
    given = {"kernel_type": kernel, "kernel_params": [0.4, 0.3, 3.0], "rho": [0.7], **vectors, **options}
    return own("SVMRegressor", X, **given)


def near_and_far() -> Case:
    """Rows at and beside support vectors that lie far from zero, and such as have no distance."""
    vectors = np.array(numbers(20), np.float32).reshape(5, 4) + np.float32(300)
    rows = np.concatenate([vectors, vectors + np.float32(0.01), X, np.full((3, 4), [[np.inf], [-np.inf], [np.nan]])])
    given = {"n_supports": 5, "support_vectors": [float(x) for x in vectors.ravel()], "rho": [0.7]}
    return own(
        "SVMRegressor",
        rows.astype(np.float32),
        kernel_type="RBF",
        kernel_params=[2.0, 0.0, 0.0],
        coefficients=numbers(5),
        **given,
    )


def classifier(kernel: str, classes: int, probabilities: bool = False, **options: Any) -> Case:
    """Two support vectors for each class, and one more for the first."""
    per_class = [3, *[2] * (classes - 1)]
    total, pairs = sum(per_class), classes * (classes - 1) // 2
    given = {
        "kernel_type": kernel,
        "kernel_params": [0.4, 0.3, 2.0],
        "vectors_per_class": per_class,
        "support_vectors": numbers(4 * total),
        "coefficients": numbers((classes - 1) * total),
        "rho": numbers(pairs),
        "classlabels_ints": list(range(3, 3 + classes)),
    }
    if probabilities:
        given |= {"prob_a": [-abs(x) - 0.5 for x in numbers(pairs)], "prob_b": numbers(pairs)}
    if "classlabels_strings" in options:
        given.pop("classlabels_ints")
    return own("SVMClassifier", options.pop("x", X), outputs=2, **given, **options)


SVM = [
    *(regressor(kernel) for kernel in ("LINEAR", "POLY", "RBF", "SIGMOID")),
    regressor("POLY", kernel_params=[0.4, 3.0, 2.0]),
    regressor("RBF", one_class=1),
    near_and_far(),
    regressor("LINEAR", n_supports=0, coefficients=numbers(4)),
    *(classifier(kernel, classes) for kernel in ("LINEAR", "POLY", "RBF", "SIGMOID") for classes in (2, 3, 4)),
    *(classifier("RBF", classes, True) for classes in (2, 3, 4)),
    *(classifier("RBF", 3, post_transform=t) for t in TRANSFORMS[1:4]),
    *(classifier("LINEAR", 2, post_transform=t) for t in TRANSFORMS[1:4]),
    classifier("RBF", 3, classlabels_strings=["x", "y", "z"]),
    classifier("RBF", 2, True, classlabels_strings=["x", "y"]),
    *(classifier("LINEAR", 3, x=np.round(X * 3).astype(dtype)) for dtype in (np.float64, *INTEGERS)),
    *(
        own(
            "SVMClassifier",
            X,
            outputs=2,
            coefficients=numbers(4 * classes),
            rho=[0.3],
            classlabels_ints=list(range(classes)),
            kernel_params=[0.0, 0.0, 0.0],
        )
        for classes in (2, 3)
    ),
]

REFUSED = [
    (own("LinearRegressor", X, coefficients=numbers(3)), "coefficients for 3 features"),
    (own("LinearRegressor", X, coefficients=numbers(5), targets=2), "5 coefficients are given for 2 targets"),
    (
        own("LinearClassifier", X, outputs=2, coefficients=numbers(8), intercepts=[0.0, 0.0], classlabels_ints=[1]),
        "1 class labels",
    ),
    (regressor("CUBIC"), "kernel_type is 'CUBIC'"),
    (classifier("RBF", 3, post_transform="CUBE"), "post_transform is 'CUBE'"),
    (own("SVMClassifier", X, outputs=2, coefficients=numbers(4), rho=[0.0]), "one of classlabels_ints"),
]


@pytest.mark.parametrize("case", [*LINEAR, *SVM], ids=str)
def test_linear(case: Case) -> None:
    check(case)


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_linear_refused(case: Case, text: str) -> None:
    check_refused(case, text)
