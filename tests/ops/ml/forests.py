"""Random tree ensembles, as the attributes of ONNX's operators, from NumPy alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

BRANCHES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def tree(rng: np.random.Generator, depth: int, fullness: float = 0.7) -> list[tuple[int, int]]:
    """A tree as the children of each node, (-1, -1) for a leaf; nodes in the order of a walk down to the left first."""
    nodes: list[tuple[int, int]] = []

    def grow(level: int) -> int:
        place = len(nodes)
        nodes.append((-1, -1))
        if level < depth and (level == 0 or rng.random() < fullness):
            true = grow(level + 1)
            nodes[place] = (true, grow(level + 1))
        return place

    grow(0)
    return nodes


def nodes_of(
    rng: np.random.Generator,
    trees: int,
    depth: int,
    features: int,
    modes: Sequence[str] = ("BRANCH_LEQ",),
    missing: str = "none",
    fullness: float = 0.7,
    thresholds: Sequence[float] = (-1.0, -0.5, 0.0, 0.25, 1.0),
) -> tuple[dict[str, Any], list[tuple[int, int]]]:
    """The nodes_... attributes of TreeEnsembleClassifier and TreeEnsembleRegressor, and (tree, node) of each leaf.

    missing: none (no attribute), false, true or mixed. Thresholds are few, so that features are equal to them.
    """
    attributes: dict[str, list[Any]] = {
        f"nodes_{name}": []
        for name in ("treeids", "nodeids", "modes", "featureids", "values", "truenodeids", "falsenodeids")
    }
    missing_true: list[int] = []
    leaves = []
    for number in range(trees):
        for node, (true, false) in enumerate(tree(rng, depth, fullness)):
            leaf = true < 0
            if leaf:
                leaves.append((number, node))
            row = {
                "treeids": number,
                "nodeids": node,
                "modes": "LEAF" if leaf else str(rng.choice(modes)),
                "featureids": 0 if leaf else int(rng.integers(features)),
                "values": 0.0 if leaf else float(rng.choice(thresholds)),
                "truenodeids": max(true, 0),
                "falsenodeids": max(false, 0),
            }
            for name, value in row.items():
                attributes[f"nodes_{name}"].append(value)
            missing_true.append({"false": 0, "true": 1}.get(missing, int(rng.integers(2))))
    if missing != "none":
        attributes["nodes_missing_value_tracks_true"] = missing_true
    return attributes, leaves


def weights_of(
    rng: np.random.Generator,
    leaves: Sequence[tuple[int, int]],
    targets: Sequence[int],
    kind: str = "all",
    signed: bool = True,
) -> tuple[list[int], list[int], list[int], list[float]]:
    """Trees, nodes, targets and weights of leaves. kind: all (of `targets`), one by tree, one, or some."""
    rows: list[tuple[int, int, int]] = []
    for number, node in leaves:
        if kind == "all":
            chosen = list(targets)
        elif kind == "tree":
            chosen = [targets[number % len(targets)]]
        elif kind == "one":
            chosen = [int(rng.choice(targets))]
        else:
            chosen = [target for target in targets if rng.random() < 0.6]
        rows += [(number, node, target) for target in chosen]
    weights = rng.standard_normal(len(rows)) if signed else rng.random(len(rows))
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
    return columns[0], columns[1], columns[2], [float(np.float32(w)) for w in weights]


def classifier(
    rng: np.random.Generator,
    classes: Sequence[int | str],
    weighted: Sequence[int],
    kind: str,
    signed: bool = True,
    **options: Any,
) -> dict[str, Any]:
    """The attributes of a TreeEnsembleClassifier, but for base values and transform."""
    nodes, leaves = nodes_of(rng, **options)
    trees, places, ids, weights = weights_of(rng, leaves, weighted, kind, signed)
    labels = "classlabels_strings" if isinstance(classes[0], str) else "classlabels_int64s"
    return {
        **nodes,
        "class_treeids": trees,
        "class_nodeids": places,
        "class_ids": ids,
        "class_weights": weights,
        labels: list(classes),
    }


def regressor(rng: np.random.Generator, targets: int, kind: str, **options: Any) -> dict[str, Any]:
    """The attributes of a TreeEnsembleRegressor, but for base values, transform and aggregate."""
    nodes, leaves = nodes_of(rng, **options)
    trees, places, ids, weights = weights_of(rng, leaves, range(targets), kind)
    return {
        **nodes,
        "target_treeids": trees,
        "target_nodeids": places,
        "target_ids": ids,
        "target_weights": weights,
        "n_targets": targets,
    }


def features(rng: np.random.Generator, rows: int, columns: int, missing: float = 0.1) -> np.ndarray:
    """Rows of features, many of them equal to thresholds, some missing, some infinite."""
    values = np.array([-2, -1, -0.5, -0.0, 0, 0.25, 0.7, 1, 3, np.inf, -np.inf], np.float32)
    x = rng.choice(values, (rows, columns))
    x[rng.random(x.shape) < missing] = np.nan
    return x.astype(np.float32)
