"""Reshapes moved below elementwise operators, and products freed of the transposes around them."""

from __future__ import annotations

import numpy as np
import pytest

from jitonnx.ops.onnx.activation import Gelu, Relu
from jitonnx.ops.onnx.arithmetic import Add, Mul
from jitonnx.ops.onnx.convolution import Conv
from jitonnx.ops.onnx.matmul import MatMul
from jitonnx.ops.onnx.shape import Reshape, Transpose
from jitonnx.ops.onnx.softmax import Softmax
from tests.passes.graphs import Build, Value, normal, only, operators, rewritten

CASES = [
    # before the reshape, behind it, the constant, the constant as it is added before; None: the reshape stays
    ([6, 3, 4, 4], [1, 6, 3, 4, 4], [1, 6, 1, 4, 4], (6, 1, 4, 4)),
    ([6, 3, 4, 4], [2, 3, 3, 4, 4], [1, 3, 1, 4, 4], None),
    ([6, 3, 4, 4], [2, 3, 3, 4, 4], [4, 4], (4, 4)),
    ([6, 3, 4, 4], [2, 3, 3, 16], [3, 1], (3, 1, 1)),
    ([6, 3, 4, 4], [2, 3, 3, 16], [2, 3, 1, 1], (6, 1, 1, 1)),
    ([6, 3, 4, 4], [18, 16], [16], (4, 4)),
    ([6, 3, 4, 4], [18, 16], [18, 1], (6, 3, 1, 1)),
    ([6, 3, 4, 4], [18, 16], [1, 1, 1], None),
    ([4, 6], [3, 8], [8], None),
    ([4, 6], [3, 8], [3, 8], (4, 6)),
    ([4, 6], [3, 8], [1, 1], (1,)),
    ([1, 5, 1], [5], [5], (5, 1)),
]


@pytest.mark.parametrize(("before", "behind", "constant", "moved"), CASES)
def test_reshape_below_an_operator_with_a_constant(before, behind, constant, moved) -> None:
    def author(b: Build) -> Value:
        x = b.op(Softmax(), b.input(normal(*before)))
        return b.op(Softmax(), b.op(Add(), b.op(Reshape(), x, behind), normal(*constant, seed=1)))

    graph, _ = rewritten(author)
    added = only(graph, Add)
    assert added.inputs[0] is not None and added.inputs[1] is not None
    assert added.inputs[0].shape == tuple(before if moved else behind)
    if moved:
        assert added.inputs[1].shape == moved


def test_a_constant_is_regrouped_where_sizes_are_symbolic() -> None:
    def author(b: Build) -> Value:
        x = b.op(Softmax(), b.input(normal(2, 3, 4, 5), ("batch", "rows", 4, 5)))
        x = b.op(Mul(), b.op(Reshape(), x, [0, 0, 20]), normal(20, seed=1))
        return b.op(Softmax(), b.op(Add(), x, normal(1, 1, 1, seed=2)))

    graph, _ = rewritten(author)
    assert only(graph, Mul).inputs[1].shape == (4, 5)


@pytest.mark.parametrize("seed", range(40))
def test_random_regroupings(seed: int) -> None:
    random = np.random.default_rng(seed)
    sizes = [int(size) for size in random.choice([1, 2, 3, 4], size=random.integers(2, 6))]

    def shape() -> list[int]:
        cuts = np.sort(random.choice(len(sizes) + 1, size=random.integers(1, 4)))
        parts = [int(np.prod(part)) for part in np.split(sizes, cuts)]
        return [part for part in parts if part != 1 or random.random() < 0.5]

    before, behind = shape(), shape()
    constant = [size if random.random() < 0.6 else 1 for size in behind][random.integers(0, 2) :]

    def author(b: Build) -> Value:
        x = b.op(Relu(), b.input(normal(*before)))
        return b.op(Relu(), b.op(Add(), b.op(Reshape(), x, np.array(behind, np.int64)), normal(*constant, seed=1)))

    graph, _ = rewritten(author)
    assert operators(graph)["Add"] == 1


def swapped(b: Build, x: Value) -> Value:
    rank = len(x.shape)
    return b.op(Transpose(perm=(*range(rank - 2), rank - 1, rank - 2)), x)


@pytest.mark.parametrize("lead", [(), (1,), (2,), (2, 3)])
@pytest.mark.parametrize("constant", [(6,), (5, 1), (5, 6), (1, 5, 6), (1, 1), ()])
def test_products_between_transposes(lead, constant) -> None:
    """MLP-Mixer has it so: [tokens, channels] are mixed along the tokens."""

    def author(b: Build) -> Value:
        x = b.op(Softmax(), b.input(normal(*lead, 4, 5)))
        y = b.op(MatMul(), swapped(b, x), normal(4, 7, seed=1))
        y = b.op(Gelu(), b.op(Add(), y, normal(7, seed=2)))
        y = b.op(MatMul(), y, normal(7, 6, seed=3))
        return b.op(Softmax(), swapped(b, b.op(Relu(), b.op(Add(), y, normal(*constant, seed=4)))))

    graph, _ = rewritten(author)
    fits = len(constant) <= len(lead) + 2
    assert operators(graph).get("Transpose", 0) == (0 if fits else 2)
    assert operators(graph)["MatMul"] == 2


def test_a_product_between_transposes_that_others_read() -> None:
    def author(b: Build) -> list[Value]:
        x = b.op(Softmax(), b.input(normal(2, 4, 5)))
        y = b.op(MatMul(), swapped(b, x), normal(4, 6, seed=1))
        return [b.op(Softmax(), swapped(b, y)), b.op(Softmax(), y)]

    graph, _ = rewritten(author)
    assert operators(graph)["Transpose"] == 2


@pytest.mark.parametrize(("first", "second"), [((0, 2, 1), (1, 0, 2)), ((1, 0, 2), (0, 2, 1))])
def test_other_transposes_stay_around_a_product(first, second) -> None:
    def author(b: Build) -> Value:
        x = b.op(Transpose(perm=first), b.op(Softmax(), b.input(normal(3, 4, 4))))
        y = b.op(MatMul(), x, normal(4, 4, seed=1))
        return b.op(Softmax(), b.op(Transpose(perm=second), y))

    graph, _ = rewritten(author)
    assert operators(graph)["Transpose"] == 2


@pytest.mark.parametrize("permutation", [(0, 3, 1, 2), (0, 2, 3, 1)])
def test_a_residual_that_a_convolution_gives_is_added_before_the_transpose(permutation) -> None:
    """ConvNeXt has it so: what a convolution gives is read by a layer and added to its result."""

    def author(b: Build) -> Value:
        x = b.op(Conv(), b.input(normal(1, 4, 4, 4)), normal(4, 4, 1, 1, seed=1))
        y = x
        for seed in (2, 4):
            h = b.op(MatMul(), b.op(Relu(), b.op(Transpose(perm=(0, 2, 3, 1)), y)), normal(4, 4, seed=seed))
            y = b.op(Add(), b.op(Transpose(perm=permutation), h), y)
        return b.op(Softmax(), y)

    graph, _ = rewritten(author)
    added = [node for node in graph if isinstance(node.operator, Add)]
    channels_last = permutation == (0, 3, 1, 2)
    assert [isinstance(node.inputs[0].producer.operator, MatMul) for node in added] == [channels_last] * 2


def test_a_product_of_two_results_between_transposes_stays() -> None:
    def author(b: Build) -> Value:
        x = b.op(Softmax(), b.input(normal(3, 4, 4)))
        return b.op(Softmax(), swapped(b, b.op(MatMul(), swapped(b, x), b.op(Relu(), x))))

    graph, _ = rewritten(author)
    assert operators(graph)["Transpose"] == 2
