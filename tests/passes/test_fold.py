"""Constants, shapes and coordinates, folded before the run."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from jitonnx.ir.dtypes import DType
from jitonnx.ops.onnx.activation import Relu
from jitonnx.ops.onnx.arithmetic import Add, Div, Max, Mul, Pow, Sub
from jitonnx.ops.onnx.cast import Cast
from jitonnx.ops.onnx.concat_split import Concat
from jitonnx.ops.onnx.gather import Gather, GatherElements, GatherND
from jitonnx.ops.onnx.generators import ConstantOfShape, Range
from jitonnx.ops.onnx.logic import And, GreaterOrEqual, Not, Or, Where, Xor
from jitonnx.ops.onnx.scatter import ScatterND
from jitonnx.ops.onnx.shape import Expand, Reshape, Shape, Squeeze, Transpose, Unsqueeze
from jitonnx.ops.onnx.slice import Slice
from jitonnx.ops.onnx.tile import Tile
from jitonnx.passes import optimize
from jitonnx.passes.report import Reason
from tests.passes.graphs import Build, Value, normal, only, operators, rewritten


def test_arithmetic_on_constants() -> None:
    def author(b: Build) -> Value:
        table = b.op(Transpose(perm=(1, 0)), b.op(Mul(), normal(3, 4), np.float32(2)))
        return b.op(Add(), b.input(normal(4, 3)), table)

    graph, report = rewritten(author)
    assert operators(graph) == {"Add": 1}
    assert report.counts["constants"] == 2


def test_a_folded_transpose_shares_the_memory_of_its_constant() -> None:
    weight = normal(30, 40)

    def author(b: Build) -> Value:
        return b.op(Add(), b.input(normal(40, 30)), b.op(Transpose(perm=(1, 0)), weight))

    graph, _ = rewritten(author)
    assert np.shares_memory(only(graph, Add).inputs[1].constant, weight)


def test_a_constant_far_larger_than_its_inputs_is_not_made() -> None:
    def author(b: Build) -> Value:
        return b.op(Add(), b.input(normal(1)), b.op(Tile(), normal(4), np.array([1 << 17])))

    graph, report = rewritten(author)
    assert operators(graph)["Tile"] == 1
    assert [entry.reason for entry in report.declined] == [Reason.TOO_LARGE]


def test_a_chain_of_nodes_that_double_a_constant_ends() -> None:
    """The result of each is only twice as large as what it is made of."""

    def author(b: Build) -> Value:
        value = b.op(Concat(axis=0), normal(64), normal(64))
        for _ in range(15):
            value = b.op(Concat(axis=0), value, value)
        return b.op(Gather(), value, b.input(np.array([3])))

    graph, report = rewritten(author)
    assert {entry.reason for entry in report.declined} == {Reason.TOO_LARGE}
    constants = [value.constant for node in graph for value in node.inputs if value is not None]
    assert max(array.nbytes for array in constants if array is not None) <= 1 << 20


def test_one_element_repeated_takes_no_memory() -> None:
    def author(b: Build) -> Value:
        return b.op(Add(), b.input(normal(1)), b.op(ConstantOfShape(), np.array([1 << 21])))

    (node,) = rewritten(author)[0]
    assert node.inputs[1].constant.strides == (0,)


def test_what_fails_on_constants_is_left_to_the_run() -> None:
    b = Build()
    b.graph.outputs = [b.op(Add(), b.input(normal(1)), b.op(Gather(), normal(3), np.full(5000, 7)))]
    report = optimize(b.graph)
    assert Reason.REFUSED in {entry.reason for entry in report.declined}


def test_shapes_leave_nothing() -> None:
    def author(b: Build) -> Value:
        x = b.op(Relu(), b.input(normal(2, 5, 12), ("batch", "seq", 12)))
        size = b.op(Slice(), b.op(Shape(), x), [0], [2], [0])
        heads = b.op(Concat(axis=0), size, np.array([-1]), np.array([4]))
        return b.op(Relu(), b.op(Reshape(), x, heads))

    assert operators(rewritten(author)[0]) == {"Relu": 1, "Reshape": 1}


def test_a_size_that_is_computed_with_becomes_a_dimension() -> None:
    def author(b: Build) -> Value:
        x = b.input(normal(2, 5), ("batch", "seq"))
        size = b.op(Squeeze(), b.op(Gather(), b.op(Shape(), x), np.array([1])), [0])
        return b.op(Div(), x, b.op(Cast(to=int(DType.FLOAT)), size))

    assert operators(rewritten(author)[0]) == {"Div": 1, "Cast": 1, "Reshape": 1}


# ---------------------------------------------------------------- coordinates


def sizes(b: Build, x: Value) -> tuple[Value, Value]:
    """Batch and sequence length as scalars."""
    return tuple(b.op(Squeeze(), b.op(Shape(start=axis, end=axis + 1), x), [0]) for axis in (0, 1))  # type: ignore[return-value]


def test_the_mask_of_a_sentence_encoder() -> None:
    """torch.onnx writes it so: GatherND(mask != 0, grid of batch and column) and column >= 0."""

    def author(b: Build) -> Value:
        mask = b.input(np.array([[1, 1, 0], [1, 0, 0]]), ("batch", "seq"))
        rows, columns = (b.op(Range(), np.array(0), size, np.array(1)) for size in sizes(b, mask))
        row, column = b.op(Unsqueeze(), rows, [1, 2, 3]), b.op(Unsqueeze(), columns, [0, 1, 2])
        shape = b.op(Shape(), b.op(Max(), row, column))
        grid = [b.op(Unsqueeze(), b.op(Expand(), index, shape), [-1]) for index in (row, column)]
        kept = b.op(GatherND(), b.op(Cast(to=int(DType.BOOL)), mask), b.op(Concat(axis=-1), *grid))
        inside = b.op(GreaterOrEqual(), b.op(Unsqueeze(), columns, [0, 1, 3]), np.array(0))
        both = b.op(And(), b.op(And(), np.array(True), inside), kept)
        return b.op(Where(), both, np.float32(0), np.float32(-1e38))

    graph, _ = rewritten(author)
    assert operators(graph) == {"Cast": 1, "Where": 1, "Reshape": 1, "Expand": 1}


def test_positions_gathered_from_a_table_are_a_slice_of_it() -> None:
    table = normal(16, 4)

    def author(b: Build) -> Value:
        x = b.input(normal(2, 5, 4), ("batch", "seq", 4))
        positions = b.op(Range(), np.array(0), sizes(b, x)[1], np.array(1))
        return b.op(Add(), x, b.op(Gather(), table, b.op(Add(), positions, np.array(2))))

    assert operators(rewritten(author)[0]) == {"Slice": 1, "Add": 1}


def test_equal_indices_gather_one_row() -> None:
    def author(b: Build) -> Value:
        x = b.input(normal(2, 5, 4), ("batch", "seq", 4))
        zeros = b.op(GatherElements(axis=1), np.zeros((1, 9), np.int64), np.arange(3)[None])
        return b.op(Mul(), x, b.op(Gather(), normal(2, 4), b.op(Slice(), zeros, [0], [1], [1])))

    assert operators(rewritten(author)[0]) == {"Mul": 1}


@pytest.mark.parametrize(
    ("indices", "expected"),
    [
        (np.array(-1), {"Slice": 1, "Reshape": 1}),
        (np.array([2, 1, 0]), {"Slice": 1}),
        (np.array([[0, 1], [2, 3]]), {"Gather": 1}),  # one index of two coordinates
        (np.array([0, 2, 1]), {"Gather": 1}),
    ],
)
def test_gather_by_constants(indices, expected) -> None:
    assert operators(rewritten(lambda b: b.op(Gather(), b.input(normal(5, 3)), indices))[0]) == expected


def test_gather_nd_transposes_and_expands() -> None:
    grid = np.stack(np.meshgrid(np.arange(4), np.arange(3), indexing="ij")[::-1], -1)[None].repeat(2, 0)
    graph, _ = rewritten(lambda b: b.op(GatherND(), b.input(normal(3, 4, 2)), grid))
    assert operators(graph) == {"Transpose": 1, "Reshape": 1, "Expand": 1}


def test_a_diagonal_is_declined() -> None:
    grid = np.stack([np.arange(3)] * 2, -1)
    graph, report = rewritten(lambda b: b.op(GatherND(), b.input(normal(3, 3)), grid))
    assert operators(graph) == {"GatherND": 1}
    assert [entry.reason for entry in report.declined] == [Reason.SHAPE]


def test_indices_of_unknown_sign_are_declined() -> None:
    def author(b: Build) -> Value:
        x = b.input(normal(6, 5), (6, "seq"))
        positions = b.op(Range(), np.array(0), sizes(b, x)[1], np.array(1))
        return b.op(Gather(), b.op(Relu(), x), b.op(Sub(), positions, np.array(2)))

    graph, report = rewritten(author)
    assert operators(graph)["Gather"] == 1
    assert Reason.UNDECIDED in {entry.reason for entry in report.declined}


def box_of_indices(*ranges: range) -> np.ndarray:
    return np.stack(np.meshgrid(*(np.array(one) for one in ranges), indexing="ij"), -1)


BOXES: list[tuple[tuple[range, ...], dict[str, int]]] = [
    ((range(2), range(1, 5), range(1, 6)), {"Slice": 2, "Concat": 2}),
    ((range(2), range(4), range(1, 5)), {"Slice": 3, "Concat": 2}),
    ((range(2), range(1, 5)), {"Slice": 1, "Concat": 1}),
    ((range(1, 2),), {"Slice": 1, "Concat": 1, "Reshape": 1}),
    ((range(-1, 0), range(-5, -1)), {"ScatterND": 1}),  # 24 of 60
    ((range(2), range(-5, -1)), {"Slice": 1, "Concat": 1}),
    ((range(2), range(5), range(6)), {}),
]
"""Ranges along the first axes of data [2, 5, 6], and what is left: slices around the box, joined."""


@pytest.mark.parametrize(("ranges", "expected"), BOXES, ids=str)
def test_scatter_nd_of_a_box_joins_pieces(ranges: tuple[range, ...], expected: dict[str, int]) -> None:
    indices = box_of_indices(*ranges)

    def author(b: Build) -> Value:
        data, updates = b.input(normal(2, 5, 6)), b.input(normal(*indices.shape[:-1], *(2, 5, 6)[len(ranges) :]))
        return b.op(Relu(), b.op(ScatterND(), data, indices, updates))

    found = Counter(operators(rewritten(author)[0]))
    assert found - Counter({"Reshape": 1}) == Counter({"Relu": 1, **expected}) - Counter({"Reshape": 1})


@pytest.mark.parametrize(
    ("indices", "reduction"),
    [
        (box_of_indices(range(0, 6, 2), range(5)), "none"),
        (box_of_indices(range(5, -1, -1), range(5)), "none"),
        (box_of_indices(range(6), range(5)).swapaxes(0, 1), "none"),
        (np.stack([np.arange(5)] * 2, -1), "none"),
        (box_of_indices(range(6), range(1))[:, [0] * 5], "none"),
        (box_of_indices(range(6), range(4)), "add"),
    ],
    ids=["gaps", "backwards", "transposed", "diagonal", "repeated", "added"],
)
def test_scatter_nd_of_other_indices_stays(indices: np.ndarray, reduction: str) -> None:
    def author(b: Build) -> Value:
        updates = normal(*indices.shape[:-1])
        if reduction == "none":
            updates[:] = 1  # what is written several times is the same
        return b.op(ScatterND(reduction=reduction), b.input(normal(6, 6)), indices, b.input(updates))

    assert operators(rewritten(author)[0]) == {"ScatterND": 1}


def test_scatter_nd_into_sizes_of_a_run_stays() -> None:
    def author(b: Build) -> Value:
        data = b.input(normal(6, 5), (6, "seq"))
        return b.op(ScatterND(), data, box_of_indices(range(6), range(4)), b.input(normal(6, 4)))

    assert operators(rewritten(author)[0]) == {"ScatterND": 1}


# ---------------------------------------------------------------- neutral operands


@pytest.mark.parametrize(
    ("operator", "constant", "swapped"),
    [
        (Add(), np.float32(0), False),
        (Add(), np.zeros((3, 1), np.float32), True),
        (Sub(), np.float32(0), False),
        (Mul(), np.ones(4, np.float32), True),
        (Div(), np.float32(1), False),
        (Pow(), np.float32(1), False),
    ],
)
def test_neutral_numbers(operator, constant, swapped) -> None:
    def author(b: Build) -> Value:
        x = b.op(Relu(), b.input(normal(3, 4)))
        return b.op(operator, constant, x) if swapped else b.op(operator, x, constant)

    assert operators(rewritten(author)[0]) == {"Relu": 1}


@pytest.mark.parametrize(
    ("operator", "constant"),
    [(Sub(), np.float32(0)), (Div(), np.float32(1)), (Pow(), np.float32(1)), (Mul(), np.float32(0))],
)
def test_numbers_that_are_not_neutral_in_front(operator, constant) -> None:
    x = normal(3)
    x[0] = np.inf
    graph, _ = rewritten(lambda b: b.op(operator, constant, b.input(x)))
    assert operators(graph) == {operator.name: 1}


def test_a_neutral_operand_may_make_the_other_one_larger() -> None:
    graph, _ = rewritten(lambda b: b.op(Add(), b.input(normal(1, 4)), np.zeros((3, 4), np.float32)))
    assert operators(graph) == {"Expand": 1}


@pytest.mark.parametrize(
    ("operator", "constant", "expected"),
    [
        (And(), True, {}),
        (Or(), False, {}),
        (Xor(), False, {}),
        (Xor(), True, {"Xor": 1}),
        (And(), False, {}),
        (Or(), True, {}),
    ],
)
def test_logic_with_a_constant(operator, constant, expected) -> None:
    def author(b: Build) -> Value:
        x = b.op(GreaterOrEqual(), b.input(normal(3, 4)), np.float32(0))
        return b.op(operator, np.full((3, 1), constant), x)

    found = dict(operators(rewritten(author)[0]))
    found.pop("GreaterOrEqual", None)
    found.pop("Identity", None)
    assert found == expected


def test_where() -> None:
    def author(b: Build) -> list[Value]:
        x, y = b.op(Relu(), b.input(normal(3, 4))), b.input(normal(4))
        condition = b.op(GreaterOrEqual(), b.input(normal(3, 1)), np.float32(0))
        return [
            b.op(Where(), np.ones((3, 1), bool), x, y),
            b.op(Where(), np.array(False), x, y),
            b.op(Where(), condition, y, y),
            b.op(Where(), b.op(Not(), condition), x, y),
        ]

    assert operators(rewritten(author)[0]) == {"Relu": 1, "GreaterOrEqual": 1, "Expand": 2, "Where": 1}
