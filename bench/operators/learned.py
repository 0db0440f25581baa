"""Cases of domain ai.onnx.ml: trees, support vector machines, features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from bench.operators.net import ML, Build, Net


def learned(
    operator: str, rows: int, columns: int, outputs: int = 1, low: float | None = None, **attributes: Any
) -> Build:
    """An operator of ai.onnx.ml over rows of features, from the standard normal distribution or whole from [low, 9)."""

    def build(net: Net) -> list[str]:
        x = net.feed((rows, columns)) if low is None else net.feed((rows, columns), low, 9, "int64")
        return net.nodes_outputs(operator, outputs, x, domain=ML, **attributes)

    return build


def coefficients(*shape: int) -> list[float]:
    """Learned numbers, small enough for sums over the last axis to stay near 1."""
    drawn = np.random.default_rng(1).standard_normal(shape) / shape[-1] ** 0.5
    return [float(number) for number in drawn.ravel()]


def support_vectors(count: int, columns: int, kernel: str, classes: int = 0) -> dict[str, Any]:
    """The attributes of a support vector machine of so many vectors; of a regression without classes."""
    found: dict[str, Any] = {
        "kernel_type": kernel,
        "kernel_params": [1 / columns, 0.5, 3.0],
        "support_vectors": coefficients(count, columns),
    }
    if not classes:
        return {**found, "coefficients": coefficients(1, count), "rho": [0.3], "n_supports": count}
    pairs = classes * (classes - 1) // 2
    return {
        **found,
        "classlabels_ints": list(range(classes)),
        "coefficients": coefficients(classes - 1, count),
        "rho": coefficients(1, pairs),
        "vectors_per_class": [count // classes] * classes,
    }


def chosen_features(rows: int, columns: int, count: int) -> Build:
    """ArrayFeatureExtractor of `count` columns."""

    def build(net: Net) -> str:
        places = net.constant(np.arange(count) * 5 % columns, "int64")
        return net.node("ArrayFeatureExtractor", net.feed((rows, columns)), places, domain=ML)

    return build


def joined_features(rows: int, widths: Sequence[int]) -> Build:
    def build(net: Net) -> str:
        parts = (net.feed((rows, width)) for width in widths)
        return net.node("FeatureVectorizer", *parts, domain=ML, inputdimensions=list(widths))

    return build


def forest(operator: str, rows: int, columns: int, trees: int, depth: int) -> Build:
    """Full trees of `depth` levels of comparisons; scores are sums of leaves, a classifier has two classes."""
    inner, leaves = 2**depth - 1, 2**depth
    nodes = inner + leaves
    random = np.random.default_rng(1)
    splits = random.standard_normal((trees, nodes)).astype(np.float32)
    features = random.integers(0, columns, (trees, nodes))
    weights = (random.standard_normal((trees, leaves)) / trees).astype(np.float32)
    number = np.arange(nodes)

    def build(net: Net) -> str | list[str]:
        x = net.feed((rows, columns))
        if operator == "TreeEnsemble":
            net.versions[ML] = 5
            return net.node(operator, x, domain=ML, **_forest_of_5(trees, depth, splits, features, weights))
        kind = "class" if operator == "TreeEnsembleClassifier" else "target"
        attributes: dict[str, Any] = {
            "nodes_treeids": np.repeat(np.arange(trees), nodes),
            "nodes_nodeids": np.tile(number, trees),
            "nodes_featureids": features.ravel(),
            "nodes_values": splits.ravel(),
            "nodes_modes": (["BRANCH_LEQ"] * inner + ["LEAF"] * leaves) * trees,
            "nodes_truenodeids": np.tile(np.where(number < inner, 2 * number + 1, 0), trees),
            "nodes_falsenodeids": np.tile(np.where(number < inner, 2 * number + 2, 0), trees),
            f"{kind}_treeids": np.repeat(np.arange(trees), leaves),
            f"{kind}_nodeids": np.tile(number[inner:], trees),
            f"{kind}_ids": np.zeros(trees * leaves, int),
            f"{kind}_weights": weights.ravel(),
        }
        more: dict[str, Any] = {"classlabels_int64s": [0, 1]} if kind == "class" else {"n_targets": 1}
        plain = {name: list(value) if isinstance(value, list) else value.tolist() for name, value in attributes.items()}
        return net.nodes_outputs(operator, 2 if kind == "class" else 1, x, domain=ML, **plain, **more)

    return build


def _forest_of_5(
    trees: int, depth: int, splits: np.ndarray, features: np.ndarray, weights: np.ndarray
) -> dict[str, Any]:
    """The attributes of TreeEnsemble, whose inner nodes and leaves are numbered apart, over all trees."""
    inner, leaves = 2**depth - 1, 2**depth
    number = np.arange(inner)
    below = 2 * number[:, None] + [1, 2]
    last = below >= inner
    first = np.arange(trees)[:, None, None]
    places = np.where(last, below - inner + first * leaves, below + first * inner)

    def tensor(name: str, array: np.ndarray) -> onnx.TensorProto:
        return numpy_helper.from_array(array, name)

    return {
        "tree_roots": (np.arange(trees) * inner).tolist(),
        "nodes_featureids": features[:, :inner].ravel().tolist(),
        "nodes_splits": tensor("splits", splits[:, :inner].ravel()),
        "nodes_modes": tensor("modes", np.zeros(trees * inner, np.uint8)),
        "nodes_truenodeids": places[..., 0].ravel().tolist(),
        "nodes_falsenodeids": places[..., 1].ravel().tolist(),
        "nodes_trueleafs": np.tile(last[:, 0], trees).astype(int).tolist(),
        "nodes_falseleafs": np.tile(last[:, 1], trees).astype(int).tolist(),
        "leaf_targetids": [0] * (trees * leaves),
        "leaf_weights": tensor("weights", weights.ravel()),
        "n_targets": 1,
    }
