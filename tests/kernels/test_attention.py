"""Attention against NumPy in double precision."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import pytest

from jitonnx.emit import types
from jitonnx.emit.arguments import by_name
from jitonnx.kernels.attention.kernel import build
from jitonnx.kernels.attention.spec import (
    AttentionSizes,
    AttentionSpec,
    JoinSizes,
    JoinSpec,
    choose,
    most_spans,
    shared_heads,
)
from jitonnx.kernels.normalization.spec import float_bits
from jitonnx.kernels.parts.bfloat16 import rounded
from jitonnx.kernels.spec import KernelSpec
from jitonnx.target.machine import Target, host
from tests.kernels.harness import Compiled
from tests.targets import BFLOAT16_TARGET, named, needs_packing_target

TARGETS = (host(), named("haswell"))
IDS = ("host", "avx2")


@functools.cache
def compiled(spec: KernelSpec, target: Target, epilogue: Any = None) -> Compiled:
    return Compiled(build(spec, target.lanes(4), epilogue), target)


class Problem(NamedTuple):
    """Operands as [batch, heads, rows, size], views of whatever layout; mask [batch, heads, queries, keys]."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    mask: np.ndarray | None = None
    scale: float = 0.125
    causal_offset: int = 0
    fill: float = -np.inf


def make(
    batch: int, heads: int, queries: int, keys: int, depth: int, value_depth: int | None = None, kv_heads: int = 0
) -> Problem:
    """Random operands, the heads side by side in rows: [batch, rows, heads * size]."""
    rng = np.random.default_rng(queries * 1000 + keys + depth)
    kv_heads = kv_heads or heads

    def operand(rows: int, count: int, size: int) -> np.ndarray:
        x = rng.standard_normal((batch, rows, count * size + 3)).astype(np.float32)[:, :, : count * size]
        return (
            x.reshape(batch, rows, count, size).transpose(0, 2, 1, 3)
            if size * count * rows
            else x.reshape(batch, count, rows, size)
        )

    return Problem(
        operand(queries, heads, depth), operand(keys, kv_heads, depth), operand(keys, kv_heads, value_depth or depth)
    )


def reference(p: Problem, spec: AttentionSpec) -> np.ndarray:
    """[batch, queries, heads * value_depth]."""
    q, k, v = (a.astype(np.float64) for a in (p.q, p.k, p.v))
    k, v = (np.repeat(a, q.shape[1] // a.shape[1], 1) for a in (k, v))
    with np.errstate(all="ignore"):
        scores = q @ k.swapaxes(2, 3) * p.scale
        if spec.mask == "float":
            scores = scores + p.mask
        if spec.mask == "bool":
            scores = np.where(p.mask, scores, p.fill)
        if spec.causal:
            seen = np.arange(k.shape[2]) <= np.arange(q.shape[2])[:, None] + p.causal_offset
            scores = np.where(seen, scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
        weights /= weights.sum(-1, keepdims=True)
        if spec.empty_rows_zero:
            weights = np.where(np.isnan(weights), 0, weights)
        result = weights @ v
    return result.transpose(0, 2, 1, 3).reshape(q.shape[0], q.shape[2], -1)


_NO_MASK = np.broadcast_to(np.zeros(1, np.float32), (1, 1, 1, 1))


def sizes_of(p: Problem, y: np.ndarray, k: np.ndarray, v: np.ndarray) -> AttentionSizes:
    """k and v: the operands as they lie."""

    def steps(names: str, a: np.ndarray) -> dict[str, int]:
        return by_name(names, [s // a.itemsize for s in a.strides[: len(names.split())]])

    batch, heads, queries, depth = p.q.shape
    value_depth = p.v.shape[3]
    return AttentionSizes(
        **by_name("batch heads kv_heads queries keys", (batch, heads, p.k.shape[1], queries, p.k.shape[2])),
        **by_name("depth value_depth", (depth, value_depth)),
        **steps("q_batch q_head q_row", p.q),
        **steps("k_batch k_head k_row k_column", k),
        **steps("v_batch v_head v_row v_column", v),
        **by_name("y_batch y_head y_row", (y.strides[0] // 4, value_depth, y.strides[1] // 4)),
        **steps("mask_batch mask_head mask_row", _NO_MASK if p.mask is None else p.mask),
        **by_name("scale_bits causal_offset fill_bits", (float_bits(p.scale), p.causal_offset, float_bits(p.fill))),
    )


def run(
    p: Problem,
    spec: AttentionSpec,
    target: Target,
    pieces: int = 2,
    epilogue: Any = None,
    others: Any = (),
    lie: tuple[np.ndarray, np.ndarray] | None = None,
):
    """lie: k and v as they lie, where that is not as `p` has them."""
    k, v = lie or (p.k, p.v)
    batch, heads, queries, _ = p.q.shape
    width = heads * p.v.shape[3]
    wide = np.full((batch, queries, width + 5), 7, np.float32)
    y = wide[:, :, :width]
    sizes = spec.complete(sizes_of(p, y, k, v))
    mask = np.zeros(1, np.float32) if p.mask is None else p.mask
    spans = np.full((batch, heads, spec.most_spans, p.v.shape[3] + 2), 7, np.float32)
    compiled(spec, target, epilogue)(
        [p.q, k, v, mask, y, spans, *others], sizes, spec.tasks(sizes), spec.scratch_bytes(sizes), pieces
    )
    if spec.most_spans > 1:
        join = JoinSpec(spec.shared, spec.most_spans, spec.natural, spec.empty_rows_zero)
        given = {name: getattr(sizes, name) for name in JoinSizes._given[0]}
        joined = join.complete(JoinSizes(**given))
        compiled(join, target)([spans, y], joined, join.tasks(joined), 0, pieces)
    assert (wide[:, :, width:] == 7).all()
    return y


def check(p: Problem, spec: AttentionSpec, target: Target) -> None:
    np.testing.assert_allclose(run(p, spec, target), reference(p, spec), rtol=1e-5, atol=3e-6)


def general(target: Target, **options: Any) -> AttentionSpec:
    return choose(None, None, None, target, **options)


@pytest.mark.parametrize("target", TARGETS, ids=IDS)
@pytest.mark.parametrize("depth", [1, 5, 16, 32, 33, 64, 80, 96, 128])
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (5, 7), (6, 6), (13, 16), (25, 65), (50, 197), (128, 128)])
def test_sizes(queries: int, keys: int, depth: int, target: Target) -> None:
    check(make(2, 3, queries, keys, depth), general(target), target)


@pytest.mark.parametrize("target", TARGETS, ids=IDS)
def test_chosen_tiles(target: Target) -> None:
    for queries, keys, depth, value_depth in ((3, 40, 24, 8), (197, 197, 64, 64), (7, 130, 20, 70), (12, 9, 9, 3)):
        p = make(1, 2, queries, keys, depth, value_depth)
        check(p, choose(queries, keys, value_depth, target), target)
    assert choose(128, 128, 64, host()).rows == (6,)
    assert choose(1, 128, 64, host()).rows == (1,)


@pytest.mark.parametrize("target", TARGETS, ids=IDS)
@pytest.mark.parametrize("depth", [1, 5, 16, 33, 64, 80])
@pytest.mark.parametrize("queries", [1, 2, 6])
def test_few_rows_in_place(queries: int, depth: int, target: Target) -> None:
    spec = choose(queries, None, None, target, rows_lie=True)
    assert spec.in_place and spec.never_copies
    for keys in (1, 2, 3, 4, 5, 7, 64, 197):
        check(make(2, 6, queries, keys, depth, depth + 3, kv_heads=2), spec, target)


@pytest.mark.parametrize("target", TARGETS, ids=IDS)
def test_rows_unknown_in_place(target: Target) -> None:
    """k and v are copied from one tile's rows on, below they are read in place, by the same kernel."""
    for options in ({}, {"causal": True}):
        spec = general(target, rows_lie=True, **options)
        assert spec.in_place and not spec.never_copies
        for queries, keys in ((1, 9), (5, 33), (6, 33), (14, 40)):
            check(make(2, 3, queries, keys, 20)._replace(causal_offset=keys - queries), spec, target)
    assert not choose(7, None, None, target, rows_lie=True).in_place


def in_halves(p: Problem, kind: str) -> tuple[Problem, Problem]:
    """k and v of half precision as their bits, in the layouts that they have, and as float32."""

    def bits(x: np.ndarray) -> np.ndarray:
        flat = np.ascontiguousarray(x.transpose(0, 2, 1, 3))  # heads side by side
        made = flat.astype(np.float16).view(np.uint16) if kind == "float16" else rounded(flat)
        return made.transpose(0, 2, 1, 3)

    def widened(x: np.ndarray) -> np.ndarray:
        if kind == "float16":
            return np.ascontiguousarray(x).view(np.float16).astype(np.float32)
        return (x.astype(np.uint32) << 16).view(np.float32)

    stored = p._replace(k=bits(p.k), v=bits(p.v))
    return stored, p._replace(k=widened(stored.k), v=widened(stored.v))


@pytest.mark.parametrize("target", TARGETS, ids=IDS)
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_caches_of_half_precision(kind: str, target: Target) -> None:
    for rows_lie in (True, False):
        spec = general(target, rows_lie=rows_lie, stored=kind)
        for queries, keys, depth in ((1, 9, 16), (1, 70, 33), (5, 33, 20), (6, 40, 64), (14, 40, 5)):
            stored, p = in_halves(make(2, 6, queries, keys, depth, depth + 3, kv_heads=2), kind)
            np.testing.assert_allclose(run(stored, spec, target), reference(p, spec), rtol=1e-5, atol=3e-6)
    stored, p = in_halves(make(1, 2, 9, 40, 24), kind)
    turned = stored._replace(k=np.ascontiguousarray(stored.k.transpose(0, 1, 3, 2)).transpose(0, 1, 3, 2))
    spec = general(target, stored=kind)
    np.testing.assert_allclose(run(turned, spec, target), reference(p, spec), rtol=1e-5, atol=3e-6)


def in_integers(p: Problem, kind: str) -> tuple[Problem, tuple[np.ndarray, np.ndarray]]:
    """The problem with k and v of random integers in rows, extremes among them, and these as they lie."""
    random, low = np.random.default_rng(1), -128 if kind == "int8" else -8

    def rows(shape: tuple[int, ...]) -> np.ndarray:
        return random.integers(low, -low, shape).astype(np.int8)

    def packed(x: np.ndarray) -> np.ndarray:
        if kind == "int8":
            return np.ascontiguousarray(x)
        first, second = np.split((x + 8).astype(np.uint8), 2, axis=3)
        return first | second << 4

    k, v = rows(p.k.shape), rows(p.v.shape)
    return p._replace(q=p.q / -low, k=k, v=v), (packed(k), packed(v))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("target", TARGETS, ids=IDS)
@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_caches_of_integers(kind: str, target: Target) -> None:
    for rows_lie in (True, False):
        spec = general(target, rows_lie=rows_lie, stored=kind)
        for queries, keys, depth in ((1, 1, 2), (1, 9, 16), (1, 70, 34), (5, 33, 20), (6, 40, 128), (14, 70, 64)):
            p, lie = in_integers(make(2, 6, queries, keys, depth, depth + 6, kv_heads=2), kind)
            largest = 127 if kind == "int8" else 7
            result, expected = run(p, spec, target, lie=lie), reference(p, spec)
            np.testing.assert_allclose(result, expected, rtol=2e-5, atol=4e-6 * largest)
            fixed = choose(queries, keys, depth + 6, target, rows_lie=rows_lie, stored=kind)
            np.testing.assert_allclose(run(p, fixed, target, lie=lie), expected, rtol=2e-5, atol=4e-6 * largest)


@pytest.mark.parametrize("target", TARGETS, ids=IDS)
@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16", "int8", "int4"])
def test_heads_that_share_keys(kind: str, target: Target) -> None:
    """One query row reads keys and values once for all heads of a group; several rows are done as without groups."""
    mask = "float" if kind == "float32" else ""
    options: dict[str, Any] = {"rows_lie": True, "stored": kind, "shared": 5, "mask": mask}
    spec = general(target, **options)
    assert spec.shared == 5
    for kv_heads, queries, keys, depth in (
        (1, 1, 1, 2),
        (2, 1, 70, 34),
        (1, 1, 33, 128),
        (2, 1, 130, 64),
        (1, 6, 9, 8),
    ):
        p = make(2, 5 * kv_heads, queries, keys, depth, depth + 6, kv_heads)
        given, lie, largest = p, None, 1
        if kind in ("int8", "int4"):
            p, lie = in_integers(p, kind)
            given, largest = p, 127 if kind == "int8" else 7
        elif kind != "float32":
            given, p = in_halves(p, kind)
        else:
            added = np.random.default_rng(0).random((2, 5 * kv_heads, queries, keys)).astype(np.float32)
            given = p = p._replace(mask=added)
        result = run(given, spec, target, lie=lie)
        np.testing.assert_allclose(result, reference(p, spec), rtol=2e-5, atol=4e-6 * largest)


@pytest.mark.parametrize("target", TARGETS, ids=IDS)
@pytest.mark.parametrize("kind", ["float32", "bfloat16", "int4"])
@pytest.mark.parametrize("mask", ["", "float", "bool"])
def test_spans_of_keys(mask: str, kind: str, target: Target) -> None:
    """Keys of one query row are cut into spans where there are few heads, whatever the pieces are that threads do."""
    for batch, heads, kv_heads, keys, depth in ((1, 2, 2, 600, 34), (2, 6, 2, 1300, 16), (1, 4, 1, 256, 8)):
        shared = shared_heads(heads, kv_heads)
        options: dict[str, Any] = {"mask": mask, "empty_rows_zero": bool(mask), "stored": kind, "shared": shared}
        spec = general(target, rows_lie=True, most_spans=most_spans(heads, shared, None), **options)
        p = make(batch, heads, 1, keys, depth, depth + 6, kv_heads)
        given, lie, largest = p, None, 1
        if kind == "int4":
            p, lie = in_integers(p, kind)
            given, largest = p, 7
        elif kind != "float32":
            given, p = in_halves(p, kind)
        if mask:
            seen = np.random.default_rng(0).random((batch, heads, 1, keys)) < 0.9
            seen[0, :, :, 256:] = False  # as of a shorter sequence
            seen[-1, 0] = False
            made = seen if mask == "bool" else np.where(seen, np.float32(0.5), np.float32(-np.inf))
            given, p = given._replace(mask=made), p._replace(mask=made)
        result = run(given, spec, target, lie=lie)
        np.testing.assert_allclose(result, reference(p, spec), rtol=2e-5, atol=4e-6 * largest)
        np.testing.assert_array_equal(run(given, spec, target, 1, lie=lie), run(given, spec, target, 5, lie=lie))


def test_how_keys_are_cut() -> None:
    assert [shared_heads(*pair) for pair in ((32, 8), (8, 1), (8, 8), (0, 0), (7, 2))] == [4, 8, 1, 1, 1]
    assert [most_spans(32, 8, None), most_spans(32, 1, None), most_spans(8, 8, 100), most_spans(0, 1, None)] == [
        *(4, 1, 1, 1)
    ]
    spec, p = general(host(), rows_lie=True, shared=4, most_spans=4), make(1, 16, 1, 3000, 8, kv_heads=4)
    sizes = spec.complete(sizes_of(p, np.zeros((1, 1, 128), np.float32), p.k, p.v))
    assert (sizes.span_keys, sizes.span_count, spec.tasks(sizes)) == (768, 4, 16)
    few = spec.complete(sizes_of(p._replace(k=p.k[:, :, :9]), np.zeros((1, 1, 128), np.float32), p.k, p.v))
    assert (few.span_count, spec.tasks(few)) == (1, 4)


def test_spans_of_lowest_and_infinite_scores() -> None:
    """A mask of finite numbers is seen alike; NaN and infinity spoil their row alone."""
    spec = general(host(), rows_lie=True, mask="bool", most_spans=8)
    unseen = np.zeros((1, 2, 1, 700), bool)
    lowest = float(np.finfo(np.float32).min)
    check(make(1, 2, 1, 700, 16)._replace(mask=unseen, fill=lowest), spec, host())
    check(make(1, 2, 1, 700, 16)._replace(mask=unseen), spec, host())
    p = make(1, 2, 1, 700, 16)
    p.q[0, 0, 0, 3], p.k[0, 0, 600, 3] = 1, np.inf
    y = run(p, general(host(), rows_lie=True, most_spans=8), host())
    assert np.isnan(y[0, 0, :16]).all() and np.isfinite(y[0, 0, 16:]).all()


def test_heads_that_share_keys_of_one_query_row() -> None:
    spec = choose(1, None, None, host(), rows_lie=True, shared=3)
    assert spec.rows == (1,) and choose(2, None, None, host(), rows_lie=True, shared=3).shared == 1
    check(make(2, 6, 1, 70, 34, kv_heads=2), spec, host())


def test_heads_that_share_keys_through_an_epilogue() -> None:
    lanes = host().lanes(4)

    def add_residual(code, x, batch, row, column, active):
        return x + code.buffer(6, types.float32).load((batch + row) * 24 + column, lanes, active)

    p, spec = make(2, 6, 1, 37, 24, kv_heads=2), general(host(), rows_lie=True, shared=3)
    residual = np.random.default_rng(0).standard_normal((2, 1, 6 * 24)).astype(np.float32)
    y = run(p, spec, host(), epilogue=add_residual, others=[residual])
    np.testing.assert_allclose(y, reference(p, spec) + residual, rtol=1e-5, atol=3e-6)


@needs_packing_target
def test_caches_of_integers_in_tiles() -> None:
    spec = general(BFLOAT16_TARGET, rows_lie=True, rounded=True, stored="int8")
    assert spec.rounded and not general(BFLOAT16_TARGET, rows_lie=True, rounded=True, stored="int4").rounded
    for queries, keys, depth in ((2, 9, 16), (8, 40, 33), (33, 70, 64)):
        p, lie = in_integers(make(1, 4, queries, keys, depth, kv_heads=2), "int8")
        np.testing.assert_allclose(run(p, spec, BFLOAT16_TARGET, lie=lie), reference(p, spec), rtol=0.05, atol=2)


@needs_packing_target
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_caches_of_half_precision_in_tiles(kind: str) -> None:
    spec = general(BFLOAT16_TARGET, rows_lie=True, rounded=True, stored=kind)
    for queries, keys, depth in ((2, 9, 16), (8, 40, 33), (33, 70, 64)):
        stored, p = in_halves(make(1, 4, queries, keys, depth, kv_heads=2), kind)
        np.testing.assert_allclose(run(stored, spec, BFLOAT16_TARGET), reference(p, spec), rtol=0.05, atol=0.03)


@pytest.mark.parametrize("target", TARGETS, ids=IDS)
def test_masks_in_place(target: Target) -> None:
    mask = np.random.default_rng(0).random((2, 3, 2, 70)) < 0.7
    mask[:, :, 1] = False
    p = make(2, 3, 2, 70, 16)._replace(mask=mask)
    check(p, choose(2, None, None, target, mask="bool", empty_rows_zero=True, rows_lie=True), target)


def test_no_keys_in_place() -> None:
    spec = choose(1, None, None, host(), rows_lie=True)
    assert np.isnan(run(make(1, 2, 1, 0, 4), spec, host())).all()


def test_nan_in_place() -> None:
    p = make(1, 2, 2, 20, 16)
    p.q[0, 0, 1, 2] = np.nan
    y = run(p, choose(2, None, None, host(), rows_lie=True), host())
    assert np.isnan(y[0, 1, :16]).all() and np.isfinite(y[0, 0]).all() and np.isfinite(y[0, 1, 16:]).all()


@pytest.mark.parametrize("target", TARGETS, ids=IDS)
def test_nothing_to_do(target: Target) -> None:
    for shape in ((0, 2, 5, 5, 4), (1, 2, 0, 5, 4)):
        assert run(make(*shape), general(target), target).size == 0


def test_no_keys() -> None:
    p = make(1, 2, 7, 0, 4)
    assert np.isnan(run(p, general(host()), host())).all()
    assert (run(p, general(host(), empty_rows_zero=True), host()) == 0).all()


@pytest.mark.parametrize("target", TARGETS, ids=IDS)
def test_long_rows_cut_among_tasks(target: Target) -> None:
    p, spec = make(1, 1, 400, 300, 20), general(target)
    assert spec.tasks(spec.complete(sizes_of(p, np.zeros((1, 400, 20), np.float32), p.k, p.v))) > 2
    check(p, spec, target)
    np.testing.assert_array_equal(run(p, spec, target, 1), run(p, spec, target, 3))


def test_other_layouts() -> None:
    """k given transposed, v with columns apart, q contiguous by head."""
    p = make(2, 3, 20, 37, 24)
    turned = np.ascontiguousarray(p.k.transpose(0, 1, 3, 2)).transpose(0, 1, 3, 2)
    spread = np.repeat(p.v, 2, 3)[..., ::2]
    p = p._replace(q=np.ascontiguousarray(p.q), k=turned, v=spread)
    check(p, general(host()), host())


def test_shared_heads() -> None:
    check(make(2, 6, 20, 37, 24, kv_heads=2), general(host()), host())
    check(make(2, 6, 20, 37, 24, kv_heads=1), general(host()), host())


def test_negative_scale() -> None:
    check(make(1, 2, 20, 37, 24)._replace(scale=-0.7), general(host()), host())


@pytest.mark.parametrize("target", TARGETS, ids=IDS)
@pytest.mark.parametrize("shape", [(1, 1, 1, 70), (2, 1, 1, 70), (2, 1, 31, 70), (2, 3, 31, 70), (1, 1, 31, 70)])
@pytest.mark.parametrize("kind", ["float", "bool"])
def test_masks(kind: str, shape: tuple[int, ...], target: Target) -> None:
    rng = np.random.default_rng(0)
    mask = rng.random(shape) < 0.7
    mask[..., 3] = True
    if kind == "float":
        mask = np.where(mask, rng.standard_normal(shape), -np.inf).astype(np.float32)
    p = make(2, 3, 31, 70, 16)._replace(mask=np.broadcast_to(mask, (2, 3, 31, 70)))
    check(p, general(target, mask=kind), target)


@pytest.mark.parametrize("lowest", [-np.inf, float(np.finfo(np.float32).min), -1e4])
def test_rows_that_see_nothing(lowest: float) -> None:
    """All -inf gives NaN or zeros; all equally low gives the mean of v, as the exporters' chains do."""
    visible = np.ones((1, 2, 9, 40), bool)
    visible[:, :, 4] = False
    visible[:, :, 6, 5:] = False
    p = make(1, 2, 9, 40, 16)
    additive = np.where(visible, np.float32(0), np.float32(lowest)).astype(np.float32)
    for zero in (False, True):
        check(p._replace(mask=visible, fill=lowest), general(host(), mask="bool", empty_rows_zero=zero), host())
        spec = general(host(), mask="float", empty_rows_zero=zero)
        got = run(p._replace(mask=additive), spec, host())
        # In single precision the scores vanish beside the lowest float.
        expected = reference(p._replace(mask=visible, fill=lowest), general(host(), mask="bool", empty_rows_zero=zero))
        if lowest == -1e4:
            expected = reference(p._replace(mask=additive), spec)
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=3e-4)


@pytest.mark.parametrize("target", TARGETS, ids=IDS)
@pytest.mark.parametrize("offset", [0, 3, -4, 60])
def test_causal(offset: int, target: Target) -> None:
    for queries, keys in ((31, 31), (130, 133), (5, 50)):
        p = make(1, 2, queries, keys, 16)._replace(causal_offset=offset)
        check(p, general(target, causal=True, empty_rows_zero=offset < 0), target)


def test_causal_with_mask() -> None:
    p = make(1, 2, 50, 50, 16)
    mask = np.random.default_rng(0).standard_normal((1, 2, 50, 50)).astype(np.float32)
    check(p._replace(mask=mask), general(host(), mask="float", causal=True), host())


def test_nan_and_infinity_come_through() -> None:
    p = make(1, 1, 12, 20, 16)
    p.q[0, 0, 3, 2] = np.nan
    y = run(p, general(host()), host())
    assert np.isnan(y[0, 3]).all() and np.isfinite(np.delete(y, 3, 1)).all()


def test_epilogue() -> None:
    lanes = host().lanes(4)

    def add_residual(code, x, batch, row, column, active):
        return x + code.buffer(6, types.float32).load((batch * 20 + row) * 24 + column, lanes, active)

    p = make(1, 2, 20, 37, 24)
    residual = np.random.default_rng(0).standard_normal((2, 20, 24)).astype(np.float32)
    y = run(p, general(host()), host(), epilogue=add_residual, others=[residual])
    expected = reference(p, general(host())) + residual.transpose(1, 0, 2).reshape(1, 20, 48)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=3e-6)


def check_rounded(p: Problem, queries: int | None, **options: Any) -> None:
    """Operands that are numbers of bfloat16; weights are rounded on the way, to 2**-9 of each."""
    for x in (p.q, p.k, p.v):
        x[...] = (rounded(x).astype(np.uint32) << 16).view(np.float32)
    spec = choose(queries, None, None, BFLOAT16_TARGET, rows_lie=True, rounded=True, **options)
    assert spec.rounded
    np.testing.assert_allclose(run(p, spec, BFLOAT16_TARGET), reference(p, spec), rtol=1e-2, atol=1.5e-2)


@needs_packing_target
@pytest.mark.parametrize("queries", [8, 9, 16, 17, 33, 70])
@pytest.mark.parametrize(("keys", "depth", "value_depth"), [(1, 1, 1), (16, 32, 32), (33, 20, 50), (100, 64, 64)])
def test_rounded_sizes(queries: int, keys: int, depth: int, value_depth: int) -> None:
    check_rounded(make(2, 3, queries, keys, depth, value_depth), queries)


@needs_packing_target
def test_rounded_rows_unknown() -> None:
    for queries in (1, 5, 7, 8, 40):
        check_rounded(make(1, 4, queries, 70, 64, kv_heads=2), None)


@needs_packing_target
def test_rounded_masks() -> None:
    for queries, keys in ((12, 40), (45, 77)):
        p = make(2, 2, queries, keys, 32)
        random = np.random.default_rng(keys)
        added = random.standard_normal((2, 2, queries, keys)).astype(np.float32)
        check_rounded(p._replace(mask=added), queries, mask="float")
        check_rounded(p._replace(mask=added > 0.3), queries, mask="bool", empty_rows_zero=True)
        for offset in (0, keys - queries, -3):
            check_rounded(p._replace(causal_offset=offset), queries, causal=True, empty_rows_zero=True)


@needs_packing_target
def test_rounded_long_rows_are_cut_among_tasks() -> None:
    check_rounded(make(1, 1, 700, 50, 40), 700)


@needs_packing_target
def test_rounded_without_keys() -> None:
    check_rounded(make(1, 2, 9, 0, 16), 9, empty_rows_zero=True)
