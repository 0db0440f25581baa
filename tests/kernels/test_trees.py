"""The kernels of trees against the forest's own evaluation, for this CPU and for narrower vectors."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from jitonnx.ir.forest import EQUAL, GREATER, LESS, UNORDERED, Forest
from jitonnx.kernels.trees.kernel import build
from jitonnx.kernels.trees.spec import LeafMasksSpec, MixedTreesSpec, TreesSpec
from jitonnx.plan import forests
from jitonnx.plan.forests import packed
from tests.kernels.harness import Compiled
from tests.targets import named, skip_unless_run_here

LEQ, LT, GT = LESS | EQUAL, LESS, GREATER
ANY = (LEQ, LT, GT, EQUAL, LESS | GREATER | UNORDERED, LEQ | UNORDERED, GREATER | EQUAL)


def forest(
    seed: int, trees: int, depth: int, targets: int, truths: Any, leaves: str, dtype: Any = np.float32
) -> Forest:
    """Trees that are full half way down and ragged below; leaves have one weight each, or one for all targets."""
    rng = np.random.default_rng(seed)
    nodes: list[list[Any]] = []
    goals: list[int] = []

    def grow(level: int, goal: int) -> int:
        if level >= depth or (level > depth // 2 and rng.random() < 0.3):
            goals.append(goal)
            return -len(goals)
        place = len(nodes)
        nodes.append([])
        truth = int(rng.choice(truths))
        children = grow(level + 1, goal), grow(level + 1, goal)
        nodes[place] = [int(rng.integers(5)), rng.choice([-1, 0, 0.5, 1]), truth, *children]
        return place

    roots = [grow(0, number % targets) for number in range(trees)]
    columns = list(zip(*nodes, strict=True)) or [()] * 5
    each = targets if leaves == "all" else 1
    owners = np.tile(np.arange(targets), len(goals)) if leaves == "all" else np.array(goals)
    return Forest(
        np.array(columns[0]),
        np.array(columns[1], dtype),
        np.array(columns[2]),
        np.array(columns[3]),
        np.array(columns[4]),
        np.array(roots),
        np.arange(len(goals) + 1) * each,
        owners,
        rng.standard_normal(len(owners)).astype(dtype),
        targets,
    )


@functools.cache
def compiled(spec: TreesSpec | LeafMasksSpec | MixedTreesSpec, cpu: str) -> Compiled:
    target = named(cpu)
    return Compiled(build(spec, target.lanes(4)), target)


def run(given: Forest, aggregate: str, x: np.ndarray, cpu: str, pieces: int = 1) -> tuple[Any, np.ndarray]:
    target = named(cpu)
    skip_unless_run_here(target)
    spec, arrays = packed(given, aggregate, target.lanes(4))
    out = np.full((len(x), given.target_count), 77, x.dtype)
    wide = np.full((len(x), x.shape[1] + 3), np.nan, x.dtype)
    wide[:, : x.shape[1]] = x
    buffers = [wide, *(np.ascontiguousarray(arrays[name]) for name in spec.BUFFERS.names()[1:-1]), out]
    sizes = spec.complete(
        spec.given([len(x), wide.shape[1], x.shape[1], len(given.roots), given.target_count, given.depth])
    )
    compiled(spec, cpu)(buffers, sizes, spec.tasks(sizes), spec.scratch_bytes(sizes), pieces)
    return spec, out


def features(seed: int, rows: int, dtype: Any = np.float32) -> np.ndarray:
    values = [-1, -0.5, 0, -0.0, 0.5, 1, 2, np.nan, np.inf, -np.inf]
    return np.random.default_rng(seed).choice(values, (rows, 5)).astype(dtype)


WAYS = {"alike": (LEQ,), "missing": (LT, LT | UNORDERED), "any": ANY}
CASES = [
    *(("host", "alike", depth, "one") for depth in (0, 1, 4, 5, 6, 7, 11)),
    *(("host", way, depth, "all") for way in ("alike", "missing") for depth in (4, 9)),
    *(("host", "missing", depth, "one") for depth in (5, 8)),
    *(("haswell", "alike", depth, "one") for depth in (3, 4, 5, 9)),
    ("haswell", "missing", 6, "all"),
    *((cpu, "any", 6, leaves) for cpu in ("host", "haswell") for leaves in ("one", "all")),
    *(("x86-64-v2", way, 5, "one") for way in WAYS),
]
"""CPU, how nodes compare, depth, weights of leaves: every way of looking up levels and leaves in registers."""


@pytest.mark.parametrize(("cpu", "way", "depth", "leaves"), CASES)
def test_scores(cpu: str, way: str, depth: int, leaves: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forests, "MOST_LEAVES", {4: 0, 8: 0, 16: 0})
    compare(cpu, depth, way, leaves, MixedTreesSpec if way == "any" else TreesSpec)


def compare(cpu: str, depth: int, way: str, leaves: str, kind: type) -> None:
    given = forest(depth, 7, depth, 3, WAYS[way], leaves)
    for rows in (1, 7, 8, 65, 200):
        x = features(rows, rows)
        spec, out = run(given, "sum", x, cpu, pieces=2)
        assert isinstance(spec, kind)
        np.testing.assert_array_equal(out, given.scores(x, "sum")[0], err_msg=f"{rows} rows, {spec}")


@pytest.mark.parametrize("cpu", ["host", "haswell", "x86-64-v2"])
@pytest.mark.parametrize(
    "depth, way, leaves", [(1, "alike", "one"), (5, "missing", "one"), (6, "alike", "all"), (7, "missing", "one")]
)
def test_scores_by_masks_of_leaves(
    cpu: str, depth: int, way: str, leaves: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forests, "MOST_LEAVES", {4: 128, 8: 128, 16: 128})
    compare(cpu, depth, way, leaves, LeafMasksSpec)


@pytest.mark.parametrize("width", [3, 40])
@pytest.mark.parametrize("trees", [1, 16, 33])
def test_masks_of_many_trees_and_features(trees: int, width: int) -> None:
    """Features in two registers or in memory; groups that are full or not; trees of one leaf beside others."""
    rng = np.random.default_rng(trees)
    given = forest(trees, trees, 4, 1, (LEQ,), "one")
    given.features[:] = rng.integers(0, width, len(given.features))
    given.roots[trees // 2] = ~0
    for rows in (1, 11, 12, 70):
        x = rng.choice([-1, 0, 0.5, 2, np.nan], (rows, width)).astype(np.float32)
        _, out = run(given, "sum", x, "host")
        np.testing.assert_array_equal(out, given.scores(x, "sum")[0])


@pytest.mark.parametrize("aggregate", ["min", "max"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_extremes(aggregate: str, dtype: Any) -> None:
    given = forest(1, 9, 5, 2, (LEQ, GT), "all", dtype)
    for rows in (3, 100):
        x = features(rows, rows, dtype)
        np.testing.assert_array_equal(run(given, aggregate, x, "host")[1], given.scores(x, aggregate)[0])


@pytest.mark.parametrize(
    ("truths", "mixed"), [((LEQ,), False), ((LT | UNORDERED,), False), ((LEQ, LEQ | UNORDERED), True)]
)
def test_missing_values_take_a_bit_only_where_they_go_both_ways(truths: Any, mixed: bool) -> None:
    spec = packed(forest(2, 3, 4, 1, truths, "one"), "sum", 16).spec
    assert isinstance(spec, LeafMasksSpec) and spec.mixed == mixed


def test_thresholds_that_have_no_number_before_them_are_compared_in_any_way() -> None:
    given = forest(2, 3, 4, 1, (LEQ, LT), "one")
    given.thresholds[given.truths == LT] = -np.inf
    assert isinstance(packed(given, "sum", 16).spec, MixedTreesSpec)
    x = features(3, 40)
    np.testing.assert_array_equal(run(given, "sum", x, "host")[1], given.scores(x, "sum")[0])


@pytest.mark.parametrize("lanes", [8, 16])
def test_places_that_no_row_reaches_hold_nothing(lanes: int) -> None:
    """Of trees that are chains, whose first levels have a node each: a full level has places for more."""
    nodes, trees = 300, 7
    place = np.arange(nodes * trees)
    last = place % nodes == nodes - 1
    chains = Forest(
        place % 5,
        np.zeros(nodes * trees, np.float32),
        np.full(nodes * trees, LEQ),
        np.where(last, ~(place + trees * nodes), place + 1),
        ~place,
        np.arange(trees) * nodes,
        np.arange(2 * nodes * trees + 1),
        np.zeros(2 * nodes * trees, int),
        np.ones(2 * nodes * trees, np.float32),
        1,
    )
    spec, arrays = packed(chains, "sum", lanes)
    assert isinstance(spec, TreesSpec)
    assert len(arrays["records"]) <= trees * (2 * nodes + (2 << spec.top))
