"""What the kernels of decision trees are, without compiling them.

Both give the scores of rows: out[row, target] = the weights of the leaves that the row's features lead to, one leaf in
each tree, summed up in the order of the trees (or their minimum or maximum). Rows of x have stride 1 inside, x_row
elements apart; out is dense.

Two ways of doing that, chosen by the number of rows:

- A vector of rows goes down one tree. Several such vectors do so in turns, since each of their steps waits for memory:
  that of the tree, which stays in the first-level cache, as a piece of rows passes one tree after the other.
- A row alone goes down a vector of trees.

Small trees are not gone down: all of their nodes are asked (`LeafMasksSpec`).

Task: BLOCK rows, or, where rows go one by one, all of them.
"""

from __future__ import annotations

import numpy as np

from jitonnx.emit.arguments import Arguments, Buffer, Size, computed, result
from jitonnx.kernels.parts.sizes import below, larger, smaller
from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.support.records import dataclass
from jitonnx.target import tuning

AGGREGATES = ("sum", "min", "max")
RELATIONS = ("gt", "ge", "le", "lt")
BLOCK = 64
"""Rows of a task."""
PADDING = 64
"""Trees that a row alone goes down at once at most."""


def _check(aggregate: str, leaves: str) -> None:
    if aggregate not in AGGREGATES or leaves not in ("one", "all"):
        raise ValueError(f"no kernel for the {aggregate} of {leaves} weights of leaves")


class TreesSizes(Arguments):
    rows: Size
    x_row: Size
    features: Size
    trees: Size
    targets: Size
    depth: Size
    """Nodes on the longest way down."""
    piece: Size = computed()
    """Rows that pass all trees together."""
    one_by_one: Size = computed()
    """Whether rows do that alone."""


@dataclass(frozen=True)
class _Spec(KernelSpec):
    """What both kinds of trees share.

    aggregate: one of AGGREGATES. leaves: "one", a leaf has one weight, for the target of its tree; "all", it has one
    for each target.
    """

    aggregate: str = "sum"
    leaves: str = "one"
    element: str = "float32"
    SIZES = TreesSizes

    def __post_init__(self) -> None:
        _check(self.aggregate, self.leaves)

    @property
    def few(self) -> int:
        """So many rows go down one by one."""
        return 8

    def complete(self, sizes: TreesSizes) -> TreesSizes:
        item = np.dtype(self.element).itemsize
        blocks = tuning.TREES_PIECE_BYTES // (BLOCK * item * larger(sizes.features, sizes.targets, 1))
        piece = BLOCK * smaller(larger(blocks, 1), tuning.TREES_PIECE_BLOCKS)
        return TreesSizes.following(sizes, piece=piece, one_by_one=below(sizes.rows, self.few))

    def tasks(self, sizes: TreesSizes) -> int:
        return -(-sizes.rows // BLOCK)  # rows that go one by one are fewer than a block

    def scratch_bytes(self, sizes: TreesSizes) -> int:
        """Sums of a piece's rows by target; or, of a row alone, its leaves in all trees."""
        item = np.dtype(self.element).itemsize
        return larger(sizes.piece * sizes.targets * item, (sizes.trees + PADDING) * 4)

    def work(self, sizes: TreesSizes) -> Work:
        item = np.dtype(self.element).itemsize
        ways = sizes.rows * sizes.trees * larger(sizes.depth, 1)
        return Work(2 * ways, ways * 4 + sizes.rows * (sizes.features + sizes.targets) * item)


@dataclass(frozen=True)
class _AlikeSpec(_Spec):
    """Trees whose nodes all compare alike, in float32: x `relation` threshold leads to the second child. mixed: whether
    a missing value leads there from some nodes and not from others."""

    relation: str = "gt"
    mixed: bool = False

    def __post_init__(self) -> None:
        _check(self.aggregate, self.leaves)
        if self.relation not in RELATIONS or self.element != "float32":
            raise ValueError(f"no kernel for trees of {self.element} with {self.relation}")


class TreesBuffers(Arguments):
    x: Buffer
    tables: Buffer
    records: Buffer
    values: Buffer
    offsets: Buffer
    rounds: Buffer
    goals: Buffer
    out: Buffer = result()


@dataclass(frozen=True)
class TreesSpec(_AlikeSpec):
    """Trees whose nodes all compare alike, in float32, with two children side by side.

    A node is a record of 8 bytes: the threshold, and 32 bits: the feature (`bits` bits), whether a missing value leads
    to the second child (one bit, used if `mixed`), the place of the first child in its tree. x `relation` threshold
    leads to the second. Leaves have themselves as first child, and NaN for threshold, so that no value leads on from
    them. The first `top` levels of a tree are full, made up with nodes whose threshold is NaN, and all children lie
    behind their parents, level by level: after these levels a row is at the record 2**top - 1 + its place in the level.

    Thresholds and features of these levels are in tables as well, which registers hold while rows pass the tree: a
    register's worth for the first levels, one for the next, two for another. Where trees have no more levels
    (`deep` false) the weights of leaves are in the table, too.

    offsets (int32): where each tree's records begin. values: the weights of each record, one or `targets` of them.
    rounds (int32): the levels of each tree below the top. goals (int32): each tree's target. Behind the last offset
    there is room for PADDING more, all 0.
    """

    bits: int = 8
    top: int = 0
    deep: bool = True

    BUFFERS = TreesBuffers


def top_levels(lanes: int) -> int:
    """How many levels registers of `lanes` elements hold: first the levels that fit one, then two more levels."""
    return lanes.bit_length() - 1 + 2 if lanes >= 8 else 0


def table_elements(lanes: int, top: int, *, deep: bool) -> int:
    """Elements of a tree's table: thresholds, features, and weights, by registers of `lanes` elements.

    One register for the levels that fit it; one for the next level, two for the one behind it.
    """
    return (2 * level_elements(lanes, top) + (0 if deep else leaf_elements(lanes, top))) if top else 0


def level_elements(lanes: int, top: int) -> int:
    """Elements of the thresholds in a tree's table: 1, 2 or 4 registers."""
    return lanes << max(0, top - (lanes.bit_length() - 1))


def leaf_elements(lanes: int, top: int) -> int:
    """Elements of the weights in a tree's table: a register, or as many as there are leaves."""
    return max(lanes, 1 << top)


class LeafMasksBuffers(Arguments):
    x: Buffer
    columns: Buffer
    thresholds: Buffer
    features: Buffer
    masks: Buffer
    counts: Buffer
    values: Buffer
    goals: Buffer
    out: Buffer = result()


@dataclass(frozen=True)
class LeafMasksSpec(_AlikeSpec):
    """Trees of up to 32 * words leaves, whose nodes all compare alike, in float32, by bit vectors of leaves.

    Each leaf of a tree is a bit, from the left (the first child) the highest bit of the first word on. All bits are set
    at first; a node whose second child is led to clears those of the leaves behind its first child, and the first bit
    that is left is the leaf that the row reaches, in whatever order nodes are asked (QuickScorer: Lucchese and others,
    SIGIR 2015; by vectors of rows: RapidScorer, KDD 2018). So nothing is waited for: all nodes of a tree are asked.

    Trees lie by groups of a vector of them: node for node, the thresholds, features and masks (by words) of all trees
    of the group side by side. Those of a vector of rows read a tree's, a row alone reads a group's. columns (int32):
    the `used` features that are asked for; nodes have numbers of these. counts (int32, four a group): where its nodes
    begin; how many of them lead missing values to the second child, and how many the first (if `mixed` the first count
    is not 0 everywhere); and where the values of its leaves begin. Trees of fewer nodes are made up with nodes that
    clear nothing. values: the weights of leaves, a tree's 32 * words side by side. relation, goals: as in `TreesSpec`.
    """

    words: int = 1
    used: int = 1
    alone: int = 1
    """Rows that are asked for one by one, if there are fewer."""

    BUFFERS = LeafMasksBuffers

    @property
    def few(self) -> int:
        return self.alone

    def scratch_bytes(self, sizes: TreesSizes) -> int:
        """The features of a block of rows, column by column, and its sums; of a row alone, features and leaves."""
        return 4 * larger(BLOCK * (self.used + sizes.targets), self.used + sizes.trees + 2 * PADDING)


class MixedTreesBuffers(Arguments):
    x: Buffer
    thresholds: Buffer
    features: Buffer
    truths: Buffer
    true: Buffer
    false: Buffer
    values: Buffer
    roots: Buffer
    goals: Buffer
    out: Buffer = result()


@dataclass(frozen=True)
class MixedTreesSpec(_Spec):
    """Trees whose nodes compare in any way, in float32 or float64.

    truths (int32) holds, for each node, which outcomes lead to its true child: 1 less, 2 equal, 4 greater, 8 unordered.
    Children (int32) and roots are numbers of nodes, or ~leaf. values: the weights of each leaf. Behind the last root
    there is room for PADDING more, all -1.
    """

    BUFFERS = MixedTreesBuffers
