"""Tree ensembles: every mode, way of missing values, aggregate and transform, in few rows and many."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jitonnx import InferenceSession
from jitonnx.engine.interpreter import evaluate
from jitonnx.model import load
from tests.ops.harness import Case, build, case, check, check_refused
from tests.ops.ml import forests

ML = "ai.onnx.ml"
TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")
FEATURES = 6
ROWS = (1, 2, 9, 70)


def _x(seed: int, rows: int, dtype: Any = np.float32, missing: float = 0.1) -> np.ndarray:
    x = forests.features(np.random.default_rng(seed), rows, FEATURES, missing)
    if np.dtype(dtype).kind == "i":
        x = np.nan_to_num(x, posinf=5, neginf=-5)
    return x.astype(dtype)


def _regressor(seed: int, targets: int = 1, kind: str = "tree", **options: Any) -> dict[str, Any]:
    return forests.regressor(
        np.random.default_rng(seed), targets, kind, **{"trees": 5, "depth": 4, "features": FEATURES, **options}
    )


def _classifier(seed: int, classes: Any, weighted: Any, kind: str = "all", **options: Any) -> dict[str, Any]:
    return forests.classifier(
        np.random.default_rng(seed),
        classes,
        weighted,
        kind,
        **{"trees": 5, "depth": 3, "features": FEATURES, **options},
    )


def _based(attributes: dict[str, Any], base: list[float]) -> dict[str, Any]:
    return attributes | ({"base_values": base} if base else {})


def _tensors(attributes: dict[str, Any], dtype: Any, *names: str) -> dict[str, Any]:
    """Attributes with some of them as tensors, as from version 3 on."""
    return {
        f"{name}_as_tensor" if name in names else name: np.array(value, dtype) if name in names else value
        for name, value in attributes.items()
    }


def _v5(
    seed: int,
    dtype: Any,
    members: bool = False,
    targets: int = 2,
    roots: tuple[int, ...] = (0, 3, 6),
    **attributes: Any,
) -> Case:
    """TreeEnsemble: two trees of three nodes each, and one that is a leaf."""
    rng = np.random.default_rng(seed)
    modes = rng.integers(0, 6, 7).astype(np.uint8)
    if members:
        modes[[1, 4]] = 6
        attributes["membership_values"] = np.array([0.25, 1, np.nan, -1, np.nan], dtype)
    return case(
        "TreeEnsemble",
        5,
        _x(seed, 20, dtype, 0),
        domain=ML,
        expected=attributes.pop("expected", None),
        nodes_modes=modes,
        nodes_splits=rng.choice([-0.5, 0, 0.25, 1], 7).astype(dtype),
        nodes_featureids=rng.integers(0, FEATURES, 7).tolist(),
        nodes_truenodeids=[1, 0, 2, 4, 4, 5, 8],
        nodes_trueleafs=[0, 1, 1, 0, 1, 1, 1],
        nodes_falsenodeids=[2, 1, 3, 5, 6, 7, 8],
        nodes_falseleafs=[0, 1, 1, 0, 1, 1, 1],
        tree_roots=list(roots),
        leaf_targetids=(rng.integers(0, targets, 9)).tolist(),
        leaf_weights=rng.standard_normal(9).astype(dtype),
        n_targets=targets,
        **attributes,
    )


def _scored(seed: int, transform: str, *arguments: Any, **options: Any) -> dict[str, Any]:
    """A classifier whose scores are probabilities where the transform wants such, far from where it cancels."""
    attributes = _classifier(seed, *arguments, **options)
    if transform == "PROBIT":
        attributes["class_weights"] = [0.01 + abs(weight) / 40 for weight in attributes["class_weights"]]
    return attributes | {"post_transform": transform}


REGRESSORS = [
    *(
        case(
            "TreeEnsembleRegressor",
            3,
            _x(n, rows),
            domain=ML,
            note=f"{mode} {missing}",
            **_regressor(n, modes=[mode], missing=missing),
        )
        for n, (mode, missing) in enumerate(
            (m, w) for m in forests.BRANCHES for w in ("none", "false", "true", "mixed")
        )
        for rows in (ROWS[n % len(ROWS)],)
    ),
    *(
        case(
            "TreeEnsembleRegressor",
            3,
            _x(rows, rows),
            domain=ML,
            note=kind,
            **_regressor(rows, targets, kind, modes=modes, missing="mixed"),
        )
        for rows in ROWS
        for targets, kind in ((1, "tree"), (3, "tree"), (2, "all"), (3, "one"), (9, "some"), (18, "all"))
        for modes in (("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT"), forests.BRANCHES)
    ),
    *(
        case(
            "TreeEnsembleRegressor",
            1,
            _x(3, 70),
            domain=ML,
            aggregate_function=aggregate,
            **_based(_regressor(7, targets, kind), base),
        )
        for aggregate in ("SUM", "AVERAGE", "MIN", "MAX")
        for targets, kind, base in ((1, "tree", [0.5]), (2, "all", [0.5, -1.0]), (2, "some", []))
    ),
    *(
        case(
            "TreeEnsembleRegressor",
            3,
            _x(4, 30),
            domain=ML,
            atol=1e-5,
            post_transform=transform,
            **_regressor(9, 3, "all"),
        )
        for transform in TRANSFORMS[:4]
    ),
    *(
        case("TreeEnsembleRegressor", 3, _x(5, 40, np.float64), domain=ML, **_regressor(11, 2, kind, modes=modes))
        for kind, modes in (("all", ["BRANCH_LEQ"]), ("tree", forests.BRANCHES))
    ),
    case(
        "TreeEnsembleRegressor",
        3,
        _x(6, 40, np.float64) + 1e-12,
        domain=ML,
        note="thresholds of double",
        **_tensors(_regressor(13), np.float64, "nodes_values", "target_weights"),
    ),
    *(
        case(
            "TreeEnsembleRegressor",
            3,
            _x(7, rows),
            domain=ML,
            note=f"depth {depth}",
            **_regressor(depth, depth=depth, fullness=0.85, trees=3),
        )
        for rows in (1, 90)
        for depth in (0, 1, 2, 5, 6, 7, 8, 12)
    ),
    case("TreeEnsembleRegressor", 3, _x(8, 20), domain=ML, note="70 trees", **_regressor(15, trees=70)),
    case("TreeEnsembleRegressor", 3, _x(8, 2), domain=ML, note="70 trees", **_regressor(15, 3, "all", trees=70)),
    case("TreeEnsembleRegressor", 3, _x(8, 1)[0], domain=ML, note="a vector", **_regressor(16)),
    case("TreeEnsembleRegressor", 3, _x(8, 600), domain=ML, note="pieces", **_regressor(17, 2, "all")),
    case("TreeEnsembleRegressor", 3, _x(8, 0), domain=ML, note="no rows", **_regressor(18, 2, "all")),
]

CLASSIFIERS = [
    *(
        case(
            "TreeEnsembleClassifier",
            3,
            _x(n, 12),
            outputs=2,
            domain=ML,
            atol=1e-4,
            **_scored(n, transform, classes, weighted, kind, signed=signed),
        )
        for n, transform in enumerate(TRANSFORMS)
        for classes, weighted, kind in (
            ([10, 20], [1], "all"),
            ([10, 20], [0, 1], "all"),
            ([3, 5, 7], [0, 1, 2], "all"),
            ([3, 5, 7], [0, 1, 2], "tree"),
            (["a", "b", "c"], [0, 1, 2], "all"),
            (["a", "b"], [1], "all"),
        )
        for signed in (True, False)
    ),
    *(
        case(
            "TreeEnsembleClassifier",
            1,
            _x(n, 30),
            outputs=2,
            domain=ML,
            note=f"{kind} {len(base)}",
            **_based(_classifier(n, classes, weighted, kind), base),
        )
        for n, (classes, weighted, base) in enumerate(
            (
                ([0, 1], [0], []),
                ([0, 1], [0], [0.25]),
                ([0, 1], [1], [0.25]),
                ([0, 1], [0], [0.25, 0.5]),
                ([0, 1], [1], [0.25, 0.5]),
                ([0, 1], [0, 1], [0.25, 0.5]),
                ([0, 1, 2], [0, 1, 2], [0.25, -0.5, 0.0]),
                ([1], [0], [0.5]),
            )
        )
        for kind in ("all", "some")
    ),
    *(
        case(
            "TreeEnsembleClassifier",
            3,
            _x(5, 40, dtype),
            outputs=2,
            domain=ML,
            **_classifier(3, [4, 2, 9], [0, 1, 2], "some"),
        )
        for dtype in (np.float64, np.int32, np.int64)
    ),
]

ENSEMBLES = [
    *(
        _v5(n, dtype, aggregate_function=aggregate)
        for n, dtype in enumerate((np.float32, np.float64))
        for aggregate in range(4)
    ),
    *(_v5(n, np.float32, targets=3, post_transform=n) for n in (0, 3)),
    *(_v5(n, np.float32, members=True) for n in range(2)),
    _v5(3, np.float64, members=True, nodes_missing_value_tracks_true=[0, 1] * 3 + [0]),
    _v5(4, np.float16, roots=(0, 3)),  # the reference takes another leaf for a tree that is one
]

REFUSED = [
    (case("TreeEnsembleRegressor", 3, _x(0, 2), domain=ML, **(_regressor(0) | {"post_transform": "CUBE"})), "CUBE"),
    (case("TreeEnsembleRegressor", 3, _x(0, 2), domain=ML, **(_regressor(0) | {"aggregate_function": "SOME"})), "SOME"),
    (case("TreeEnsembleRegressor", 3, _x(0, 2)[:, :2], domain=ML, **_regressor(0)), "the trees look at 6 features"),
    (case("TreeEnsembleRegressor", 3, _x(0, 2), domain=ML, **(_regressor(0) | {"nodes_values": [1.0]})), "1 values"),
    (
        case("TreeEnsembleRegressor", 3, _x(0, 2), domain=ML, **(_regressor(0) | {"target_nodeids": [9999] * 1000})),
        "trees, nodes, ids",
    ),
    (
        case(
            "TreeEnsembleRegressor",
            3,
            _x(0, 2),
            domain=ML,
            nodes_treeids=[0, 0],
            nodes_nodeids=[0, 1],
            nodes_modes=["BRANCH_LEQ", "BRANCH_LEQ"],
            nodes_featureids=[0, 0],
            nodes_values=[0.0, 0.0],
            nodes_truenodeids=[1, 0],
            nodes_falsenodeids=[1, 0],
        ),
        "reached from itself",
    ),
    (
        case(
            "TreeEnsembleRegressor",
            3,
            _x(0, 2),
            domain=ML,
            nodes_treeids=[0],
            nodes_nodeids=[0],
            nodes_modes=["BRANCH_LEQ"],
            nodes_featureids=[0],
            nodes_values=[0.0],
            nodes_truenodeids=[1],
            nodes_falsenodeids=[2],
        ),
        "tree 0 has no node of the number 1",
    ),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", [*REGRESSORS, *CLASSIFIERS, *ENSEMBLES], ids=str)
def test_trees(case: Case) -> None:
    check(case)


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=lambda value: str(value)[:40])
def test_trees_refused(case: Case, text: str) -> None:
    check_refused(case, text)


def _evaluated(given: Case) -> np.ndarray:
    (result,) = evaluate(load(build(given)).graph, {"x0": given.inputs[0]})
    return np.asarray(result)


@pytest.mark.parametrize("number", [1, 2])
def test_transforms_of_tree_ensemble_have_the_numbers_that_onnx_gives_them(number: int) -> None:
    """1 is SOFTMAX and 2 LOGISTIC; onnxruntime has them the other way round."""
    scores = _evaluated(_v5(1, np.float32, targets=3))
    powers = np.exp(scores)
    expected = powers / powers.sum(axis=1, keepdims=True) if number == 1 else 1 / (1 + 1 / powers)
    check(_v5(1, np.float32, targets=3, post_transform=number, expected=expected))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("modes", [["BRANCH_LEQ"], forests.BRANCHES], ids=len)
def test_integers_are_compared_as_floats(dtype: Any, modes: Any) -> None:
    """onnxruntime's regressor takes floats alone."""
    x, attributes = _x(5, 40, dtype), _regressor(11, 2, "all", modes=modes)
    expected = _evaluated(case("TreeEnsembleRegressor", 3, x.astype(np.float32), domain=ML, **attributes))
    check(case("TreeEnsembleRegressor", 3, x, domain=ML, expected=expected, **attributes))


def test_rows_of_a_batch_have_the_bits_of_rows_alone() -> None:
    given = case("TreeEnsembleRegressor", 3, _x(1, 50), domain=ML, **_regressor(3, 2, "all", trees=40, depth=9))
    session = InferenceSession(build(given, "open").SerializeToString())
    (together,) = session.run(None, {"x0": given.inputs[0]})
    for row in range(0, 50, 7):
        (alone,) = session.run(None, {"x0": given.inputs[0][row : row + 1]})
        assert alone.tobytes() == together[row : row + 1].tobytes()
