"""Forests in the layouts that the kernels of trees read: all trees of a forest level by level, at once."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from jitonnx.ir.forest import EQUAL, GREATER, LESS, UNORDERED, Forest
from jitonnx.kernels.trees.spec import (
    PADDING,
    LeafMasksSpec,
    MixedTreesSpec,
    TreesSpec,
    leaf_elements,
    level_elements,
    table_elements,
    top_levels,
)
from jitonnx.support.records import NamedTuple

MOST_LEAVES = {16: 128, 8: 32, 4: 32}
"""The most leaves of trees whose nodes are all asked, by the elements of a vector: with more it takes longer than to go
down. With AVX-512, 128 leaves take 0.33 to 0.63 of the time, 256 1.2 to 2.5 times as long; with AVX2, 64 leaves 0.36
for many rows and 1.6 times as long for one (Zen 5, bench.trees)."""
MOST_FEATURES = 1024
"""That such trees ask for: a block of rows has all of them in memory."""
ALONE = {16: 10, 8: 4, 4: 4}
"""Fewer rows than so many are asked for one by one: a vector of rows costs as much."""
_NOTHING = np.int64(np.iinfo(np.int64).min)
"""It stands in the place of a node or leaf: a place of a full level that no row reaches."""


class Packed(NamedTuple):
    """A forest for a kernel: its spec, and the arrays of the buffers that are not x and out, by their names."""

    spec: TreesSpec | LeafMasksSpec | MixedTreesSpec
    arrays: Mapping[str, np.ndarray]


class _Compared(NamedTuple):
    """Nodes that all compare alike: x relation threshold leads to the second child."""

    relation: str
    mixed: bool
    thresholds: np.ndarray
    first: np.ndarray
    second: np.ndarray
    missing_second: np.ndarray


def packed(forest: Forest, aggregate: str, lanes: int) -> Packed:
    """The forest for a CPU with vectors of `lanes` float32 elements."""
    goals = _goals(forest)
    leaves = "all" if goals is None else "one"
    weights = _weights(forest, aggregate, every=goals is None)
    goals = np.zeros(len(forest.roots), np.int32) if goals is None else goals
    compared = _compared(forest) if forest.weights.dtype == np.float32 else None
    bits = max(forest.feature_count - 1, 1).bit_length()
    if compared is not None and (masks := _LeafMasks.of(forest, compared, lanes)) is not None:
        return masks.packed(aggregate, leaves, goals, weights)
    if compared is not None:
        built = _Records(forest, compared, min(top_levels(lanes), forest.depth), weights)
        if built.largest < 1 << (31 - bits):
            return built.packed(aggregate, leaves, lanes, bits, goals)
    arrays = {
        "thresholds": forest.thresholds,
        "features": forest.features,
        "truths": forest.truths.astype(np.int32),
        "true": forest.true,
        "false": forest.false,
        "values": weights,
        "roots": np.concatenate([forest.roots, np.full(PADDING, -1, np.int32)]),
        "goals": goals,
    }
    return Packed(MixedTreesSpec(aggregate, leaves, forest.weights.dtype.name), arrays)


def _goals(forest: Forest) -> np.ndarray | None:
    """Each tree's target, if none has weights for another and no leaf has two weights, else None."""
    counts = np.diff(forest.starts)
    if counts.max(initial=0) > 1:
        return None
    trees, leaves = forest.reached
    weighted = counts[leaves] == 1
    trees, targets = trees[weighted], forest.targets[forest.starts[leaves[weighted]]]
    goals = np.zeros(len(forest.roots), np.int32)
    goals[trees] = targets
    return goals if (goals[trees] == targets).all() else None


def _weights(forest: Forest, aggregate: str, *, every: bool) -> np.ndarray:
    """The weights of each leaf: of `every` target [leaves, targets], or the only one [leaves, 1].

    Where a leaf has none it has what changes nothing. Several weights for one target are combined.
    """
    combine, nothing = {
        "sum": (np.add, 0.0),
        "min": (np.minimum, np.inf),
        "max": (np.maximum, -np.inf),
    }[aggregate]
    counts = np.diff(forest.starts)
    owner = np.repeat(np.arange(len(counts)), counts)
    weights = np.full((len(counts), forest.target_count if every else 1), nothing, forest.weights.dtype)
    targets = forest.targets if every else np.zeros_like(forest.targets)
    combine.at(weights, (owner, targets), forest.weights)
    return weights


def _compared(forest: Forest) -> _Compared | None:
    """The nodes as such that all compare alike; None where some cannot."""
    kinds = forest.truths & (LESS | EQUAL | GREATER)
    missing_true = (forest.truths & UNORDERED) != 0
    low_is_true = np.isin(kinds, (LESS, LESS | EQUAL))
    strict = np.isin(kinds, (LESS, EQUAL | GREATER))  # the low child has what is less than the threshold
    if not (low_is_true | np.isin(kinds, (GREATER, EQUAL | GREATER))).all():
        return None
    thresholds = forest.thresholds
    if strict.any() and not strict.all():
        # x < t is x <= the number before t
        if not (np.abs(thresholds[strict]) <= np.finfo(thresholds.dtype).max).all():
            return None
        before = np.nextafter(thresholds, thresholds.dtype.type(-np.inf))
        thresholds, strict = np.where(strict, before, thresholds), np.zeros_like(strict)
    low, high = (np.where(low_is_true, *pair) for pair in ((forest.true, forest.false), (forest.false, forest.true)))
    missing_high = low_is_true != missing_true
    all_strict = bool(strict.all())
    if missing_high.all():
        relation, nowhere = "lt" if all_strict else "le", np.zeros_like(missing_high)
        return _Compared(relation, mixed=False, thresholds=thresholds, first=high, second=low, missing_second=nowhere)
    relation = "ge" if all_strict else "gt"
    return _Compared(relation, bool(missing_high.any()), thresholds, low, high, missing_high)


class _LeafMasks:
    """The nodes of all trees as tests that clear leaves."""

    @classmethod
    def of(cls, forest: Forest, nodes: _Compared, lanes: int) -> _LeafMasks | None:
        """None for trees of too many leaves or features, and for graphs that are none."""
        if not len(forest.features) or forest.shared or len(np.unique(forest.features)) > MOST_FEATURES:
            return None
        made = cls(forest, nodes, lanes)
        return made if made._most <= MOST_LEAVES[lanes] else None

    def __init__(self, forest: Forest, nodes: _Compared, lanes: int) -> None:
        self._forest, self._nodes, self._lanes = forest, nodes, lanes
        trees = len(forest.roots)
        places, owner = forest.roots.astype(np.int64), np.arange(trees)
        levels: list[np.ndarray] = []
        self._tree = np.full(len(forest.features), -1)
        """The tree of each node, -1 of those that are reached from no root."""
        while len(places):
            inner = places >= 0
            places, owner = places[inner], owner[inner]
            levels.append(places)
            self._tree[places] = owner
            places = np.stack([nodes.first[places], nodes.second[places]], axis=1).ravel().astype(np.int64)
            owner = np.repeat(owner, 2)
        below = np.ones((len(self._tree), 2), np.int64)
        """Leaves behind both children of a node."""
        for level in reversed(levels):
            for side, children in enumerate((nodes.first[level], nodes.second[level])):
                inner = children >= 0
                below[level[inner], side] = below[children[inner]].sum(1)
        self._most = int(below[forest.roots[forest.roots >= 0]].sum(1).max(initial=1))
        self._below = below[:, 0]
        self._start = np.zeros(len(self._tree), np.int64)
        """The number of the first leaf behind a node, in its tree."""
        bare = forest.roots < 0
        found = [(~forest.roots[bare].astype(np.int64), np.zeros(bare.sum(), np.int64), np.flatnonzero(bare))]
        for level in levels:
            for side, children in enumerate((nodes.first[level], nodes.second[level])):
                start = self._start[level] + (self._below[level] if side else 0)
                inner = children >= 0
                self._start[children[inner]] = start[inner]
                found.append((~children[~inner].astype(np.int64), start[~inner], self._tree[level[~inner]]))
        self._leaves = [np.concatenate(parts) for parts in zip(*found, strict=True)]
        """Leaves, their numbers in their trees, and these."""

    def packed(self, aggregate: str, leaves: str, goals: np.ndarray, weights: np.ndarray) -> Packed:
        forest, lanes, trees = self._forest, self._lanes, len(self._forest.roots)
        words, groups = -(-self._most // 32), -(-trees // lanes)
        used, column = np.unique(forest.features[self._tree >= 0], return_inverse=True)
        columns = np.zeros(len(forest.features), np.int64)
        columns[self._tree >= 0] = column
        # Nodes that lead missing values to the second child come first; then each has a place in its tree's column.
        order = np.lexsort((~self._nodes.missing_second, self._tree))
        order = order[self._tree[order] >= 0]
        tree, led = self._tree[order], self._nodes.missing_second[order]
        counts = np.stack([np.bincount(tree[some], minlength=groups * lanes) for some in (led, ~led)])
        of_group = counts.reshape(2, groups, lanes).max(2, initial=0)
        begin = np.cumsum(of_group.sum(0)) - of_group.sum(0)
        rank = np.arange(len(order)) - (np.cumsum(counts.sum(0)) - counts.sum(0))[tree]
        rank = np.where(led, rank, rank - counts[0][tree] + of_group[0][tree // lanes])
        place = begin[tree // lanes] + rank, tree % lanes
        total = int(of_group.sum())
        thresholds, features = np.zeros((total, lanes), np.float32), np.zeros((total, lanes), np.int32)
        masks = np.full((total, words, lanes), 0xFFFFFFFF, np.uint32)
        thresholds[place], features[place] = self._nodes.thresholds[order], columns[order]
        start, end = self._start[order], self._start[order] + self._below[order]
        for word in range(words):
            masks[place[0], word, place[1]] = ~_bits_between(start - 32 * word, end - 32 * word)
        values = np.zeros((groups * lanes, 32 * words, weights.shape[1]), np.float32)
        leaf, number, owner = self._leaves
        values[owner, number] = weights[leaf]
        table = np.zeros((groups, 4), np.int32)
        table[:, 0], table[:, 1:3], table[:, 3] = begin, of_group.T, np.arange(groups) * lanes * 32 * words
        spec = LeafMasksSpec(
            aggregate,
            leaves,
            relation=self._nodes.relation,
            mixed=self._nodes.mixed,
            words=words,
            used=len(used),
            alone=ALONE[lanes],
        )
        arrays = {
            "columns": np.concatenate([used, np.zeros(PADDING)]).astype(np.int32),
            "thresholds": thresholds,
            "features": features,
            "masks": masks.view(np.int32),
            "counts": table,
            "values": values,
            "goals": goals,
        }
        return Packed(spec, arrays)


def _bits_between(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Words with the bits from `start` to `end` set, counted from the highest; what is beyond 32 is cut off."""
    start, end = (np.clip(bound, 0, 32).astype(np.uint64) for bound in (start, end))
    whole = np.uint64(0xFFFFFFFF)
    return ((whole >> start) & ~(whole >> end)).astype(np.uint32)


class _Records:
    """The records of all trees, and the tables of their first levels."""

    def __init__(self, forest: Forest, nodes: _Compared, top: int, weights: np.ndarray) -> None:
        self._forest, self._nodes, self._top, self._weights = forest, nodes, top, weights
        trees = len(forest.roots)
        self._levels: list[np.ndarray] = []
        """It says for each of the first levels what is at its places [trees, places]: a node, ~leaf or nothing."""
        places = forest.roots.astype(np.int64)[:, None]
        for _ in range(top):
            self._levels.append(places)
            inner = places >= 0
            below = np.full((*places.shape, 2), _NOTHING)
            below[..., 0] = np.where(inner, nodes.first[np.where(inner, places, 0)] if len(nodes.first) else 0, places)
            below[..., 1] = np.where(
                inner, nodes.second[np.where(inner, places, 0)] if len(nodes.second) else 0, _NOTHING
            )
            places = below.reshape(trees, -1)
        self._bottom = places
        self._place()

    def _place(self) -> None:
        """Fill in the records of everything below the first levels: children behind their parents, side by side."""
        trees, width = self._bottom.shape
        tree, content = np.repeat(np.arange(trees), width), self._bottom.ravel()
        record = np.tile(np.arange(width) + width - 1, trees)
        following = np.full(trees, 2 * width - 1)
        self.rounds = np.zeros(trees, np.int32)
        found: list[np.ndarray] = []
        while len(tree):
            inner = content >= 0
            left = record.copy()
            counts = np.bincount(tree[inner], minlength=trees)
            rank = np.arange(inner.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            left[inner] = following[tree[inner]] + 2 * rank
            found.append(np.stack([tree, record, content, left]))
            following += 2 * counts
            self.rounds += counts > 0
            tree, record = np.repeat(tree[inner], 2), (left[inner][:, None] + [0, 1]).ravel()
            nodes = content[inner]
            content = np.stack([self._nodes.first[nodes], self._nodes.second[nodes]], axis=1).ravel().astype(np.int64)
        self._found = np.concatenate(found, axis=1) if found else np.empty((4, 0), np.int64)
        self._counts = following
        self._offsets = np.cumsum(following) - following
        self.largest = int(following.max(initial=0))

    def packed(self, aggregate: str, leaves: str, lanes: int, bits: int, goals: np.ndarray) -> Packed:
        deep = bool(self.rounds.any())
        spec = TreesSpec(
            aggregate,
            leaves,
            relation=self._nodes.relation,
            mixed=self._nodes.mixed,
            bits=bits,
            top=self._top,
            deep=deep,
        )
        total = int(self._counts.sum())
        thresholds, words = np.full(total, np.nan, np.float32), np.zeros(total, np.uint32)
        tables = np.zeros((len(goals), table_elements(lanes, self._top, deep=deep)), np.float32)
        size = level_elements(lanes, self._top) if self._top else 0
        tables[:, :size] = np.nan
        for level, content in enumerate(self._levels):
            inner, node = content >= 0, np.where(content >= 0, content, 0)
            value, word = self._node_words(node, inner, bits)
            place = (1 << level) - 1 + np.arange(content.shape[1])
            records = self._offsets[:, None] + place
            thresholds[records], words[records] = value, word | ((2 * place + 1) << (bits + 1)).astype(np.uint32)
            at = place if level < lanes.bit_length() - 1 else (1 << level) + np.arange(content.shape[1])
            tables[:, at] = value
            tables.view(np.uint32)[:, size + at] = word
        tree, record, content, left = self._found
        inner, records = content >= 0, self._offsets[tree] + record
        value, word = self._node_words(np.where(inner, content, 0), inner, bits)
        thresholds[records], words[records] = value, word | (left.astype(np.uint32) << np.uint32(bits + 1))
        values = np.zeros((total, self._weights.shape[1]), np.float32)
        at_leaf = (content < 0) & (content != _NOTHING)
        values[records[at_leaf]] = self._weights[~content[at_leaf]]
        if not deep and self._top and leaves == "one":
            width = 1 << self._top
            last = self._offsets[:, None] + width - 1 + np.arange(width)
            tables[:, 2 * size : 2 * size + width] = values[last, 0]
            assert tables.shape[1] == 2 * size + leaf_elements(lanes, self._top)
        arrays: dict[str, np.ndarray] = {
            "tables": tables,
            "records": np.stack([thresholds.view(np.uint32), words], axis=1).view(np.int64).ravel(),
            "values": values,
            "offsets": np.concatenate([self._offsets, np.zeros(PADDING)]).astype(np.int32),
            "rounds": self.rounds,
            "goals": goals,
        }
        return Packed(spec, arrays)

    def _node_words(self, node: np.ndarray, inner: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
        """Thresholds, and features with what becomes of missing values, where there are nodes."""
        if not len(self._nodes.thresholds):
            return np.full(node.shape, np.nan, np.float32), np.zeros(node.shape, np.uint32)
        led = self._nodes.missing_second[node].astype(np.uint32) << np.uint32(bits)
        word = np.where(inner, self._forest.features[node].astype(np.uint32) | led, 0).astype(np.uint32)
        return np.where(inner, self._nodes.thresholds[node], np.nan).astype(np.float32), word
