"""Decision trees as arrays: what the tree ensembles of every version of ONNX come to.

A node compares one feature with a threshold. There are four outcomes, of which any set may lead to its true child, so
that all of ONNX's modes, and the way that missing values go, are one form:

    LEQ: LESS | EQUAL      NEQ: LESS | GREATER | UNORDERED      GT, missing values true: GREATER | UNORDERED
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence

import numpy as np

LESS, EQUAL, GREATER, UNORDERED = 1, 2, 4, 8
"""How a feature compares with a threshold; UNORDERED where one of them is NaN."""

MODES = {
    "BRANCH_LEQ": LESS | EQUAL,
    "BRANCH_LT": LESS,
    "BRANCH_GTE": GREATER | EQUAL,
    "BRANCH_GT": GREATER,
    "BRANCH_EQ": EQUAL,
    "BRANCH_NEQ": LESS | GREATER | UNORDERED,
}
"""ONNX's modes of nodes, but BRANCH_MEMBER, which is several nodes."""


class Forest:
    """Trees over the features of a row. It compares and hashes by what is in it.

    features (int32), thresholds, truths (uint8; the outcomes that lead to the true child), true, false (int32): one
    element a node. Children and `roots` (int32, one a tree) are numbers of nodes, or ~leaf. starts (int64): where the
    weights of each leaf begin in `targets` (int32) and `weights`, and, last, where they end. `weights` have the type of
    `thresholds`, float32 or float64, in which features are compared and weights combined.
    ValueError for children that are not there, or from which a node can be reached again.
    """

    NAMES = ("features", "thresholds", "truths", "true", "false", "roots", "starts", "targets", "weights")

    def __init__(  # noqa: PLR0913  (the fields of ONNX's nodes)
        self,
        features: np.ndarray,
        thresholds: np.ndarray,
        truths: np.ndarray,
        true: np.ndarray,
        false: np.ndarray,
        roots: np.ndarray,
        starts: np.ndarray,
        targets: np.ndarray,
        weights: np.ndarray,
        target_count: int,
    ) -> None:
        self.features, self.true, self.false = (np.ascontiguousarray(x, np.int32) for x in (features, true, false))
        self.thresholds = np.ascontiguousarray(thresholds)
        self.truths = np.ascontiguousarray(truths, np.uint8)
        self.roots, self.starts = np.ascontiguousarray(roots, np.int32), np.ascontiguousarray(starts, np.int64)
        self.targets, self.weights = np.ascontiguousarray(targets, np.int32), np.ascontiguousarray(weights)
        self.target_count = target_count
        self._check()

    def _check(self) -> None:
        nodes, leaves = len(self.features), len(self.starts) - 1
        for places in (self.true, self.false, self.roots):
            if places.size and (places.max() >= nodes or places.min() < -leaves):
                raise ValueError(f"a node leads to a place outside of the {nodes} nodes and {leaves} leaves")
        if self.targets.size and not 0 <= self.targets.min() <= self.targets.max() < self.target_count:
            raise ValueError(f"a leaf has a weight for a target outside of the {self.target_count} there are")
        if nodes and self.features.min() < 0:
            raise ValueError(f"a node looks at feature {self.features.min()}")
        if self.depth > nodes:
            raise ValueError("a node can be reached from itself")

    # ------------------------------------------------------------ as a value

    @functools.cached_property
    def _key(self) -> tuple[object, ...]:
        arrays = [getattr(self, name) for name in self.NAMES]
        return self.target_count, *(array.dtype.str for array in arrays), *(array.tobytes() for array in arrays)

    @functools.cached_property
    def _hash(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Forest) and self._hash == other._hash and self._key == other._key)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Forest({len(self.roots)} trees, {len(self.features)} nodes, {self.target_count} targets)"

    # ------------------------------------------------------------ what is there

    @functools.cached_property
    def shared(self) -> bool:
        """Whether a node can be reached in two ways, as none can in trees proper."""
        children = np.concatenate([self.true, self.false, self.roots])
        return bool((np.bincount(children[children >= 0], minlength=1) > 1).any())

    @functools.cached_property
    def depth(self) -> int:
        """Nodes on the longest way from a root to a leaf; more than there are nodes, if that is circular."""
        level, count = self.roots[self.roots >= 0], 0
        while level.size and count <= len(self.features):
            below = np.concatenate([self.true[level], self.false[level]])
            level, count = below[below >= 0], count + 1
            if self.shared:
                level = _distinct(level)
        return count

    @property
    def feature_count(self) -> int:
        """How many features a row has at least."""
        return int(self.features.max()) + 1 if len(self.features) else 0

    @functools.cached_property
    def reached(self) -> tuple[np.ndarray, np.ndarray]:
        """Every pair of a tree and one of its leaves, once: the trees' numbers and the leaves'."""
        trees, places = np.arange(len(self.roots)), self.roots.astype(np.int64)
        found = []
        while places.size:
            inner = places >= 0
            found.append(np.stack([trees[~inner], ~places[~inner]]))
            trees, nodes = trees[inner], places[inner]
            if self.shared:
                trees, nodes = _unique_pairs(trees, nodes)
            trees, places = np.concatenate([trees, trees]), np.concatenate([self.true[nodes], self.false[nodes]])
        return _unique_pairs(*np.concatenate(found, axis=1)) if found else (trees, places)

    @functools.cached_property
    def scored(self) -> np.ndarray:
        """A number for each target: 2 if every row has a weight for it, 0 if none has, 1 if that depends on the row."""
        trees, leaves = self.reached
        sizes = np.bincount(trees, minlength=len(self.roots))
        counts = self.starts[leaves + 1] - self.starts[leaves]
        entries = np.repeat(self.starts[leaves] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        named = np.repeat(np.arange(len(leaves)), counts) * self.target_count + self.targets[entries]
        if counts.max(initial=0) > 1:
            named = _distinct(named)  # a leaf may name a target twice
        pairs = trees[named // self.target_count] * self.target_count + named % self.target_count
        having = np.bincount(pairs, minlength=len(sizes) * self.target_count).reshape(len(sizes), -1)
        return np.where((having == sizes[:, None]).any(axis=0), 2, (having > 0).any(axis=0)).astype(np.int8)

    def presence(self) -> Forest:
        """The same trees, whose every weight is 1: how often a row has a weight for each target."""
        made = copy.copy(self)
        made.weights = np.ones_like(self.weights)
        for name in ("_key", "_hash"):
            made.__dict__.pop(name, None)
        return made

    # ------------------------------------------------------------ evaluation

    def leaves(self, x: np.ndarray) -> np.ndarray:
        """The leaf of each row of x [rows, features], of the thresholds' type, in each tree: int64 [rows, trees]."""
        at = np.broadcast_to(self.roots, (len(x), len(self.roots))).astype(np.int64)
        rows = np.arange(len(x))[:, None]
        while (inner := at >= 0).any():
            node = np.where(inner, at, 0)
            value, threshold = x[rows, self.features[node]], self.thresholds[node]
            outcome = np.full(at.shape, UNORDERED, np.uint8)
            for relation, holds in (
                (LESS, value < threshold),
                (EQUAL, value == threshold),
                (GREATER, value > threshold),
            ):
                outcome[holds] = relation
            below = np.where(self.truths[node] & outcome, self.true[node], self.false[node])
            at = np.where(inner, below, at)
        return ~at

    def scores(self, x: np.ndarray, aggregate: str) -> tuple[np.ndarray, np.ndarray]:
        """The weights of each row's leaves combined by target, tree by tree, and which targets had any.

        aggregate: sum, min or max. [rows, targets] both; a target without weights gets 0.
        """
        combine = {"sum": np.add, "min": np.minimum, "max": np.maximum}[aggregate]
        scores = np.zeros((len(x), self.target_count), self.weights.dtype)
        has = np.zeros(scores.shape, bool)
        for leaf in self.leaves(x).T:
            first, count = self.starts[leaf], self.starts[leaf + 1] - self.starts[leaf]
            for place in range(int(count.max(initial=0))):
                rows = np.flatnonzero(count > place)
                entry = first[rows] + place
                targets, weights = self.targets[entry], self.weights[entry]
                old = scores[rows, targets]
                scores[rows, targets] = np.where(has[rows, targets], combine(old, weights), weights)
                has[rows, targets] = True
        return scores, has


def _distinct(numbers: np.ndarray) -> np.ndarray:
    """Each number once, in order: by sorting, which takes a tenth of the time of NumPy's tables for so many."""
    ordered = np.sort(numbers)
    return ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])] if len(ordered) else ordered


def _unique_pairs(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    span = int(b.max(initial=0)) + 1
    pairs = _distinct(a * span + b)
    return pairs // span, pairs % span


def of_nodes(  # noqa: PLR0913  (the fields of ONNX's nodes)
    tree_ids: Sequence[int],
    node_ids: Sequence[int],
    modes: np.ndarray,
    features: Sequence[int],
    thresholds: np.ndarray,
    missing_true: np.ndarray,
    true_ids: Sequence[int],
    false_ids: Sequence[int],
    weights: tuple[Sequence[int], Sequence[int], Sequence[int], np.ndarray],
    target_count: int,
) -> Forest:
    """The forest of nodes that are named by a tree's and a node's number; the first node of a tree is its root.

    modes: the outcomes that lead to the true child, 0 for a leaf. weights: trees, nodes, targets and weights.
    ValueError for a name that is not there, or twice.
    """
    trees, names = np.asarray(tree_ids, np.int64), np.asarray(node_ids, np.int64)
    place = _places(trees, names)
    leaf = modes == 0
    inner, leaves = np.flatnonzero(~leaf), np.flatnonzero(leaf)
    number = np.empty(len(trees), np.int64)
    number[inner], number[leaves] = np.arange(len(inner)), ~np.arange(len(leaves))
    true, false = (number[place(trees[inner], np.asarray(ids, np.int64)[inner])] for ids in (true_ids, false_ids))
    first = np.sort(np.unique(trees, return_index=True)[1])
    weight_trees, weight_nodes, targets, values = weights
    owner = number[place(np.asarray(weight_trees, np.int64), np.asarray(weight_nodes, np.int64))]
    goals = np.asarray(targets, np.int64)
    used = owner < 0  # the weights of inner nodes are never reached
    order = np.argsort(~owner[used], kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(~owner[used], minlength=len(leaves)))])
    return Forest(
        np.asarray(features, np.int64)[inner],
        thresholds[inner],
        modes[inner] | np.where(missing_true[inner], UNORDERED, 0),
        true,
        false,
        number[first],
        starts,
        goals[used][order],
        values[used][order],
        target_count,
    )


class _places:
    """Finds nodes by their names."""

    def __init__(self, trees: np.ndarray, nodes: np.ndarray) -> None:
        if nodes.size and nodes.min() < 0:
            raise ValueError(f"a node has the number {nodes.min()}")
        self._trees, self._span = np.unique(trees), int(nodes.max(initial=0)) + 1
        self._names = self._name(trees, nodes)
        self._order = np.argsort(self._names, kind="stable")
        self._sorted = self._names[self._order]
        if (twice := np.flatnonzero(self._sorted[1:] == self._sorted[:-1])).size:
            at = self._order[twice[0]]
            raise ValueError(f"tree {trees[at]} has two nodes of the number {nodes[at]}")

    def _name(self, trees: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        places: np.ndarray = np.searchsorted(self._trees, trees) * self._span + nodes
        return places

    def __call__(self, trees: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        known = np.isin(trees, self._trees) & (nodes >= 0) & (nodes < self._span)
        names = self._name(trees, nodes)
        found = np.minimum(np.searchsorted(self._sorted, names), max(len(self._sorted) - 1, 0))
        wrong = ~known | (self._sorted[found] != names) if len(self._sorted) else np.ones(len(trees), bool)
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            raise ValueError(f"tree {trees[at]} has no node of the number {nodes[at]}")
        return self._order[found]
