"""Attention in the spellings of exporters."""

from __future__ import annotations

import numpy as np
import pytest

from jitonnx.ops.fused import Attention
from jitonnx.ops.onnx.arithmetic import Add, Div, IsNaN, Mul
from jitonnx.ops.onnx.concat_split import Split
from jitonnx.ops.onnx.generators import Range
from jitonnx.ops.onnx.logic import And, Equal, Greater, GreaterOrEqual, Less, LessOrEqual, Not, Where
from jitonnx.ops.onnx.matmul import MatMul
from jitonnx.ops.onnx.reduction import ReduceMax
from jitonnx.ops.onnx.shape import Expand, Reshape, Shape, Squeeze, Transpose, Unsqueeze
from jitonnx.ops.onnx.softmax import Softmax
from jitonnx.passes.report import Reason
from tests.passes.graphs import Build, Value, normal, only, operators, rewritten

f = np.float32
LOWEST = float(np.finfo(f).min)


def qkv(b: Build, *lead: int, rows: int = 5, columns: int = 5) -> list[Value]:
    """q [lead, rows, 4], k and v [lead, columns, 4]."""
    return [b.input(normal(*lead, size, 4, seed=i)) for i, size in enumerate((rows, columns, columns))]


def swapped(b: Build, k: Value) -> Value:
    rank = len(k.shape)
    return b.op(Transpose(perm=(*range(rank - 2), rank - 1, rank - 2)), k)


def attend(b: Build, scores: Value, v: Value, zeroed: bool = False) -> Value:
    """softmax(scores) v, with NaN set to 0 or not."""
    p = b.op(Softmax(axis=-1), scores)
    return b.op(MatMul(), b.op(Where(), b.op(IsNaN(), p), f(0), p) if zeroed else p, v)


def scale_both(b: Build, q: Value, k: Value) -> Value:
    return b.op(MatMul(), b.op(Mul(), q, f(0.7)), b.op(Mul(), swapped(b, k), f(0.7)))


def scale_scores(b: Build, q: Value, k: Value) -> Value:
    return b.op(Div(), b.op(MatMul(), q, swapped(b, k)), f(2))


def scale_query(b: Build, q: Value, k: Value) -> Value:
    return b.op(MatMul(), b.op(Div(), q, f(2)), swapped(b, k))


def unscaled(b: Build, q: Value, k: Value) -> Value:
    return b.op(MatMul(), q, swapped(b, k))


@pytest.mark.parametrize(
    ("scores", "scale"), [(scale_both, 0.49), (scale_scores, 0.5), (scale_query, 0.5), (unscaled, 1.0)]
)
@pytest.mark.parametrize("lead", [(2, 3), (6,)])
@pytest.mark.parametrize("zeroed", [False, True])
def test_scales(scores, scale, lead, zeroed) -> None:
    def author(b: Build) -> Value:
        q, k, v = qkv(b, *lead, columns=7)
        return attend(b, scores(b, q, k), v, zeroed)

    graph, _ = rewritten(author)
    operator = only(graph, Attention).operator
    assert operator.scale == pytest.approx(scale)
    assert operator.masked_rows_zero is zeroed
    assert set(operators(graph)) <= {"Attention", "Reshape"}


@pytest.mark.parametrize("shape", [(2, 1, 1, 5), (2, 3, 5, 5), (5,), (1, 5, 1)])
def test_added_masks(shape) -> None:
    def author(b: Build) -> Value:
        q, k, v = qkv(b, 2, 3)
        return attend(b, b.op(Add(), b.input(normal(*shape, seed=9)), scale_scores(b, q, k)), v)

    graph, _ = rewritten(author)
    assert len(only(graph, Attention).inputs) == 4


def test_a_mask_of_three_axes_gets_one_for_the_head() -> None:
    def author(b: Build) -> Value:
        q, k, v = qkv(b, 6)
        return attend(b, b.op(Add(), unscaled(b, q, k), b.input(normal(6, 1, 5, seed=9))), v)

    graph, _ = rewritten(author)
    assert only(graph, Attention).inputs[3].shape == (6, 1, 1, 5)


def test_a_mask_that_blocks_nothing_is_dropped() -> None:
    def author(b: Build) -> Value:
        q, k, v = qkv(b, 2, 3)
        return attend(b, b.op(Where(), np.ones((1, 1, 5, 5), bool), unscaled(b, q, k), f(-np.inf)), v)

    assert len(only(rewritten(author)[0], Attention).inputs) == 3


@pytest.mark.parametrize("low", [-np.inf, LOWEST])
def test_a_constant_triangle_is_causal(low) -> None:
    triangle = np.where(np.tri(5) > 0, f(0), f(low))[None, None]

    def author(b: Build) -> Value:
        q, k, v = qkv(b, 2, 3)
        return attend(b, b.op(Add(), scale_scores(b, q, k), triangle), v)

    node = only(rewritten(author)[0], Attention)
    assert node.operator.causal
    assert len(node.inputs) == 3


@pytest.mark.parametrize("mask", [np.tri(5, k=1), np.tri(5).T, np.tri(5, 5, -1)])
def test_other_triangles_are_masks(mask) -> None:
    def author(b: Build) -> Value:
        q, k, v = qkv(b, 2, 3)
        return attend(b, b.op(Add(), unscaled(b, q, k), np.where(mask > 0, f(0), f(-np.inf))), v, zeroed=True)

    node = only(rewritten(author)[0], Attention)
    assert not node.operator.causal
    assert len(node.inputs) == 4


def test_a_triangle_of_small_numbers_is_a_mask() -> None:
    def author(b: Build) -> Value:
        q, k, v = qkv(b, 2, 3)
        return attend(b, b.op(Add(), unscaled(b, q, k), np.where(np.tri(5) > 0, f(0), f(-10000))), v)

    assert not only(rewritten(author)[0], Attention).operator.causal


COMPARISONS = {
    "column <= row": lambda b, i, j: b.op(LessOrEqual(), j, i),
    "row >= column": lambda b, i, j: b.op(GreaterOrEqual(), i, j),
    "column < row + 1": lambda b, i, j: b.op(Less(), j, b.op(Add(), i, np.array(1))),
    "row + 1 > column": lambda b, i, j: b.op(Greater(), b.op(Add(), i, np.array(1)), j),
}


@pytest.mark.parametrize("comparison", COMPARISONS)
@pytest.mark.parametrize("low", [-np.inf, LOWEST])
@pytest.mark.parametrize("added", [False, True])
def test_a_triangle_of_unknown_size_is_causal(comparison, low, added) -> None:
    def author(b: Build) -> Value:
        q, k, v = (b.input(normal(2, 3, 5, 4, seed=i), (2, 3, "seq", 4)) for i in range(3))
        size = b.op(Squeeze(), b.op(Shape(start=2, end=3), q), [0])
        places = b.op(Range(), np.array(0), size, np.array(1))
        keep = COMPARISONS[comparison](b, b.op(Unsqueeze(), places, [1]), b.op(Unsqueeze(), places, [0]))
        if added:
            return attend(b, b.op(Add(), unscaled(b, q, k), b.op(Where(), keep, f(0), f(low))), v)
        return attend(b, b.op(Where(), keep, unscaled(b, q, k), f(low)), v)

    graph, _ = rewritten(author)
    assert only(graph, Attention).operator.causal
    assert operators(graph) == {"Attention": 1}


def test_an_upper_triangle_of_unknown_size_is_a_mask() -> None:
    def author(b: Build) -> Value:
        q, k, v = (b.input(normal(2, 3, 5, 4, seed=i), (2, 3, "seq", 4)) for i in range(3))
        size = b.op(Squeeze(), b.op(Shape(start=2, end=3), q), [0])
        places = b.op(Range(), np.array(0), size, np.array(1))
        keep = b.op(LessOrEqual(), b.op(Unsqueeze(), places, [1]), b.op(Unsqueeze(), places, [0]))
        return attend(b, b.op(Where(), keep, unscaled(b, q, k), f(-np.inf)), v)

    node = only(rewritten(author)[0], Attention)
    assert not node.operator.causal
    assert len(node.inputs) == 4


@pytest.mark.parametrize("low", [-np.inf, LOWEST])
@pytest.mark.parametrize("inverted", [False, True])
def test_chosen_masks(low, inverted) -> None:
    keep = np.random.default_rng(0).random((2, 1, 1, 5)) < 0.7
    keep[0] = False  # rows of which nothing is left

    def author(b: Build) -> Value:
        q, k, v = qkv(b, 2, 3)
        scores, given = unscaled(b, q, k), b.input(keep)
        if inverted:
            return attend(b, b.op(Where(), b.op(Not(), given), f(low), scores), v)
        return attend(b, b.op(Where(), given, scores, f(low)), v)

    graph, _ = rewritten(author)
    assert operators(graph)["Attention"] == 1


def test_causal_and_padding_together() -> None:
    keep = np.ones((2, 1, 1, 5), bool)
    keep[0, ..., 3:] = False

    def author(b: Build) -> Value:
        q, k, v = qkv(b, 2, 3)
        both = b.op(And(), (np.tri(5) > 0)[None, None], b.input(keep))
        return attend(b, b.op(Where(), both, unscaled(b, q, k), f(-np.inf)), v)

    graph, _ = rewritten(author)
    assert only(graph, Attention).operator.causal
    assert operators(graph) == {"Attention": 1}


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("of_mask", [False, True])
def test_blocked_rows_found_by_their_maximum(swap, of_mask) -> None:
    """ONNX's function of Attention spells it so."""
    mask = np.zeros((2, 1, 5, 5), f)
    mask[0, 0, 2] = -np.inf

    def author(b: Build) -> Value:
        q, k, v = qkv(b, 2, 3)
        given = b.input(mask)
        scores = b.op(Add(), unscaled(b, q, k), given)
        largest = b.op(ReduceMax(), given if of_mask else scores, np.array([-1]))
        blocked = b.op(Equal(), f(-np.inf), largest) if swap else b.op(Equal(), largest, f(-np.inf))
        return b.op(MatMul(), b.op(Where(), blocked, f(0), b.op(Softmax(), scores)), v)

    node = only(rewritten(author)[0], Attention)
    assert node.operator.masked_rows_zero


def test_two_masks_are_added() -> None:
    def author(b: Build) -> Value:
        q, k, v = qkv(b, 2, 3)
        scores = b.op(Add(), b.op(Add(), unscaled(b, q, k), b.input(normal(5, seed=7))), b.input(normal(3, 5, 5)))
        return attend(b, scores, v)

    assert operators(rewritten(author)[0]) == {"Add": 1, "Attention": 1}


def test_keys_transposed_by_way_of_three_axes() -> None:
    def author(b: Build) -> Value:
        q, k, v = qkv(b, 2, 3)
        flat = b.op(Transpose(perm=(0, 2, 1)), b.op(Reshape(), k, [6, 5, 4]))
        return attend(b, b.op(MatMul(), q, b.op(Reshape(), flat, [2, 3, 4, 5])), v)

    assert operators(rewritten(author)[0]) == {"Attention": 1}


def test_repeated_keys_and_values_are_shared() -> None:
    def author(b: Build) -> Value:
        q = b.input(normal(2, 6, 5, 4))
        repeated = []
        for seed in (1, 2):
            few = b.op(Unsqueeze(), b.input(normal(2, 3, 5, 4, seed=seed)), [2])
            repeated.append(b.op(Reshape(), b.op(Expand(), few, [2, 3, 2, 5, 4]), [2, 6, 5, 4]))
        k, v = repeated
        return attend(b, scale_scores(b, q, k), v)

    graph, _ = rewritten(author)
    assert operators(graph) == {"Attention": 1}
    assert only(graph, Attention).inputs[1].shape == (2, 3, 5, 4)


def test_one_head_of_keys_and_values_is_shared_by_broadcasting() -> None:
    def author(b: Build) -> Value:
        q, k, v = b.input(normal(2, 6, 5, 4)), b.input(normal(2, 1, 7, 4, seed=1)), b.input(normal(2, 1, 7, 4, seed=2))
        return attend(b, b.op(Add(), scale_scores(b, q, k), b.input(normal(2, 1, 1, 7, seed=3))), v)

    graph, _ = rewritten(author)
    assert operators(graph) == {"Attention": 1}
    assert only(graph, Attention).inputs[1].shape == (2, 1, 7, 4)


@pytest.mark.parametrize(
    "shape", [None, (3, 5, 7), (2, 4, 3, 5, 7), (2, 4, 1, 1, 7), (1, 1, 3, 5, 7), (4, 1, 5, 7), (2, 1, 3, 5, 7)]
)
def test_more_leading_axes_than_two(shape) -> None:
    def author(b: Build) -> Value:
        q, k, v = qkv(b, 2, 4, 3, columns=7)
        scores = scale_scores(b, q, k)
        return attend(b, scores if shape is None else b.op(Add(), scores, b.input(normal(*shape, seed=9))), v)

    graph, _ = rewritten(author)
    node = only(graph, Attention)
    assert node.inputs[0].shape == (8, 3, 5, 4)
    assert set(operators(graph)) <= {"Attention", "Reshape", "Expand"}


@pytest.mark.parametrize("zeroed", [False, True])
@pytest.mark.parametrize("together", ["before the softmax", "behind the softmax"])
@pytest.mark.parametrize("bias", [None, (6, 1, 7), (1, 5, 7), (5, 7)])
def test_heads_in_the_batch_but_for_the_mask(bias, together, zeroed) -> None:
    """Models with torch.bmm have it: [B H, S, T] becomes [B, H, S, T] to be masked, and is put together again."""

    def author(b: Build) -> Value:
        q, k, v = qkv(b, 6, columns=7)
        scores = scale_scores(b, q, k)
        scores = scores if bias is None else b.op(Add(), scores, b.input(normal(*bias, seed=8)))
        scores = b.op(Reshape(), scores, [2, 3, 5, 7])
        scores = b.op(Add(), scores, b.input(normal(2, 1, 1, 7, seed=9)))
        if together == "before the softmax":
            return attend(b, b.op(Reshape(), scores, [6, 5, 7]), v, zeroed)
        p = b.op(Softmax(axis=-1), scores)
        p = b.op(Where(), b.op(IsNaN(), p), f(0), p) if zeroed else p
        return b.op(MatMul(), b.op(Reshape(), p, [6, 5, 7]), v)

    graph, _ = rewritten(author)
    node = only(graph, Attention)
    assert isinstance(node.operator, Attention)
    assert node.operator.scale == pytest.approx(0.5) and node.operator.masked_rows_zero is zeroed
    assert node.inputs[0].shape == (2, 3, 5, 4)
    assert set(operators(graph)) <= {"Attention", "Reshape", "Add"}


def test_a_bias_for_the_heads_and_a_mask_for_the_windows() -> None:
    def author(b: Build) -> Value:
        q, k, v = qkv(b, 8, 3)
        scores = b.op(Add(), scale_scores(b, q, k), b.input(normal(1, 3, 5, 5, seed=8)))
        scores = b.op(Add(), b.op(Reshape(), scores, [2, 4, 3, 5, 5]), b.input(normal(1, 4, 1, 5, 5, seed=9)))
        return attend(b, b.op(Reshape(), scores, [8, 3, 5, 5]), v)

    graph, _ = rewritten(author)
    assert operators(graph)["Softmax"] == 0
    assert only(graph, Attention).inputs[0].shape == (8, 3, 5, 4)


# ---------------------------------------------------------------- what stays


def test_weights_that_are_read_elsewhere() -> None:
    def author(b: Build) -> list[Value]:
        q, k, v = qkv(b, 2, 3)
        p = b.op(Softmax(axis=-1), scale_scores(b, q, k))
        return [b.op(MatMul(), p, v), p]

    graph, report = rewritten(author)
    assert operators(graph)["Attention"] == 0
    assert Reason.OTHER_USES in {entry.reason for entry in report.declined}


def regrouped_masks(b: Build, scores: Value) -> Value:
    """A mask that is the same along one of the axes that are put together."""
    masked = b.op(Add(), scores, b.input(normal(2, 1, 5, 5, seed=9)))
    return b.op(Reshape(), b.op(Add(), b.op(Reshape(), masked, [6, 5, 5]), b.input(normal(6, 1, 1))), [2, 3, 5, 5])


@pytest.mark.parametrize(
    ("author", "reason"),
    [
        (lambda b, q, k, v: b.op(MatMul(), b.op(Softmax(axis=2), unscaled(b, q, k)), v), Reason.ATTRIBUTE),
        (
            lambda b, q, k, v: attend(b, b.op(Where(), (np.tri(5) > 0), unscaled(b, q, k), f(-1e4)), v),
            Reason.NOT_EXACT,
        ),
        (lambda b, q, k, v: attend(b, b.op(Add(), unscaled(b, q, k), normal(7, 2, 3, 5, 5)), v), Reason.SHAPE),
        (lambda b, q, k, v: attend(b, regrouped_masks(b, unscaled(b, q, k)), v), Reason.SHAPE),
    ],
)
def test_declined(author, reason) -> None:
    graph, report = rewritten(lambda b: author(b, *qkv(b, 2, 3)))
    assert operators(graph)["Attention"] == 0
    assert reason in {entry.reason for entry in report.declined}


def test_attention_within_windows() -> None:
    """Swin has it so: a bias for each head, a mask for each window behind a reshape that tells images apart."""

    def author(b: Build) -> Value:
        x = b.op(Reshape(), b.op(MatMul(), b.input(normal(6, 9, 8)), normal(8, 24, seed=1)), [6, 9, 3, 2, 4])
        parts = b.ops(Split(axis=2), 3, x, [1, 1, 1])
        q, k, v = (b.op(Transpose(perm=(0, 2, 1, 3)), b.op(Squeeze(), part, [2])) for part in parts)
        scores = b.op(MatMul(), b.op(Mul(), q, f(0.5)), swapped(b, k))
        scores = b.op(Reshape(), b.op(Add(), scores, normal(1, 2, 9, 9, seed=2)), [1, 6, 2, 9, 9])
        scores = b.op(Reshape(), b.op(Add(), scores, normal(1, 6, 1, 9, 9, seed=3)), [6, 2, 9, 9])
        return attend(b, scores, v)

    graph, _ = rewritten(author)
    node = only(graph, Attention)
    assert isinstance(node.operator, Attention)
    assert node.operator.scale == 0.5
    assert node.inputs[3].shape == (6, 2, 9, 9)
    assert "Mul" not in operators(graph)
