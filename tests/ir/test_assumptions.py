"""What is taken for granted about sizes, and what follows from it."""

from __future__ import annotations

import numpy as np

from jitonnx.ir.assumptions import (
    Assumptions,
    holds,
    replacements,
    solve,
)
from jitonnx.ir.dims import maximum, minimum, rebuilt, taking, variable
from jitonnx.ir.dtypes import DType
from jitonnx.ir.extract import solved
from jitonnx.ir.graph import Graph
from jitonnx.ir.inference import InferenceContext, inferring
from jitonnx.ir.types import TensorType
from jitonnx.ops.onnx.matmul import MatMul
from jitonnx.ops.onnx.shape import Flatten

N, M, K = variable("n"), variable("m"), variable("k")


def test_what_is_certain_is_not_noted() -> None:
    noted = Assumptions()
    with inferring(noted) as context:
        assert context.assume_equal(N + M, M + N) and not context.assume_equal(N, N + 1) and context.demand_equal(3, 3)
        assert not context.demand_equal(2 * N + 4 * M, 3), "no sizes at all"
    assert list(noted) == []


def test_usual_sizes_are_taken_for_granted() -> None:
    noted = Assumptions()
    context = InferenceContext(noted, lambda: "the node")
    assert context.assume_equal(N, M) and context.demand_equal(K, 7)
    assert not context.is_one(N) and not context.shown_equal(M, 0)
    assert context.demand_equal(N, M) and context.assume_equal(K, 7)
    usual = (minimum(N, maximum(2 - N, 0)), 0)
    assert list(noted) == [(N, M), (K, 7), usual]
    assert [noted.demanded_by(pair) for pair in noted] == ["the node", "the node", ""]
    assert [holds(usual, {"n": size}) for size in (0, 1, 2, 3)] == [True, False, True, True]


def test_examples_answer() -> None:
    noted = Assumptions({"n": 1, "m": 4, "k": 0})
    with inferring(noted) as context:
        assert (
            context.is_one(N) and not context.is_one(M) and not context.assume_equal(N, M) and context.shown_equal(K, 0)
        )
        assert context.broadcast_shapes((M, 5), (N, K + 5)) == (M, 5)
        assert context.broadcast_shapes((M,), (5,)) is None
    assert set(noted) == {(N, 1), (K, 0), (minimum(M, maximum(2 - M, 0)), 0), (5, K + 5)}
    assert all(holds(pair, {"n": 1, "m": 4, "k": 0}) for pair in noted)


def test_a_division_by_zero_holds_for_nothing() -> None:
    assert holds((N // M, 2), {"n": 4, "m": 2}) and not holds((N // M, 2), {"n": 4, "m": 0})


def test_variables_are_solved_for() -> None:
    values, used = solve([(K, N), (3 * M, 12), (N * M, 8), (K + N, M), (minimum(N, K), 3)], ["n", "m", "k"])
    assert values == {"k": 2, "m": 4, "n": 2} and used == [(K, N), (3 * M, 12), (N * M, 8)]
    assert solve([(2 * N, 7), (N, -1), (N * N, 9), (N, M + 1)], ["n", "m"]) == ({}, [])


def test_sizes_that_are_fixed_are_put_in_their_places() -> None:
    """Twice: the second product tells a size that the first one made a multiple of."""
    graph = Graph()
    x = graph.add_input("x", TensorType(DType.FLOAT, (N, K, M)))
    first = graph.add_constant(np.zeros((7, 5), np.float32), "first")
    second = graph.add_constant(np.zeros((15, 2), np.float32), "second")
    (a,) = graph.add(MatMul(), [x, first], name="a")
    (b,) = graph.add(Flatten(), [a], name="b")
    graph.outputs = list(graph.add(MatMul(), [b, second], name="c"))
    known = solved(graph)
    assert known.inputs[0].shape == (N, 3, 7) and known.given_shapes == [(N, K, M)]
    assert known.outputs[0].shape == (N, 2)
    assert [known.assumptions.demanded_by(pair) for pair in known.assumptions] == ["MatMul node 'a'", "MatMul node 'c'"]


def test_a_size_that_is_fixed_but_no_variable() -> None:
    graph = Graph()
    x = graph.add_input("x", TensorType(DType.FLOAT, (N, K, M)))
    (flat,) = graph.add(Flatten(), [x])
    graph.outputs = list(graph.add(MatMul(), [flat, graph.add_constant(np.zeros((12, 5), np.float32))]))
    known = solved(graph)
    assert [value.shape for node in known for value in node.outputs] == [(N, 12), (N, 5)]
    assert list(known.assumptions) == [(K * M, 12)]


def test_a_graph_of_which_no_size_is_fixed_is_left_alone() -> None:
    graph = Graph()
    x = graph.add_input("x", TensorType(DType.FLOAT, (N, 7)))
    graph.outputs = list(graph.add(MatMul(), [x, graph.add_constant(np.zeros((7, 5), np.float32))]))
    assert solved(graph) is graph


def test_expressions_that_are_equal_are_built_as_one() -> None:
    """The sizes of feature maps, each half of the one before, and of the deeper ones enlarged."""
    halves = [(N + 2**level - 1) // 2**level for level in range(6)]
    noted = Assumptions()
    with inferring(noted) as context:
        assert all(context.assume_equal(halves[level], 2 * halves[level + 1]) for level in (4, 3, 2))
    taken = replacements(noted, ["n"])
    assert taken is not None
    with taking(taken):
        assert [rebuilt(half) for half in halves[2:]] == [8 * halves[5], 4 * halves[5], 2 * halves[5], halves[5]]
        assert 8 * halves[5] * M == (N + 3) // 4 * M and halves[1] == (N + 1) // 2
        assert N * ((N + 7) // 8) // ((N + 15) // 16) == 2 * N
    assert (N + 3) // 4 == halves[2] != 8 * halves[5]


def test_expressions_that_are_numbers_or_of_other_variables() -> None:
    taken = replacements([((N + 15) // 48, 1), (M // 2, K), (maximum(N - 3, 0), N - 3)], ["n", "k"])
    assert taken is not None
    with taking(taken):
        assert (N + 15) // 48 * K == K and maximum(N - 3, 0) == N - 3 and M // 2 != K
    assert replacements([(N * M, 12), (N * (M // 2), 4)], ["n", "m"]) is None
