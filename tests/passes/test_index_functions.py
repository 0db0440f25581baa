"""What is known of integers before the run: affine functions, signs, comparisons."""

from __future__ import annotations

import numpy as np
import pytest

from jitonnx.ir.dims import floor_divide, maximum, minimum, variable
from jitonnx.ir.dtypes import DType
from jitonnx.ops.onnx.arithmetic import Add, Mul, Neg, Sub
from jitonnx.ops.onnx.cast import Cast
from jitonnx.ops.onnx.generators import ConstantOfShape, Range
from jitonnx.ops.onnx.logic import And, Equal, Greater, GreaterOrEqual, Less, LessOrEqual
from jitonnx.ops.onnx.shape import Expand, Reshape, Shape, Transpose, Unsqueeze
from jitonnx.ops.onnx.slice import Slice
from jitonnx.passes.index_functions import Affine, Analysis, fit, not_negative
from tests.passes.graphs import Build, Value

batch, seq = variable("batch"), variable("seq")


@pytest.mark.parametrize(
    ("dim", "sizes", "expected"),
    [
        (0, (), True),
        (-1, (), False),
        (seq, (), True),
        (seq - 1, (), False),
        (seq - 1, (seq,), True),
        (batch * seq - 1, (seq, batch), True),
        (seq - batch, (), False),
        (seq - minimum(seq, 512), (), True),
        (maximum(seq, 3) - 3, (), True),
        (minimum(seq, 5), (), True),
        (-1 * minimum(seq, 5) + 5, (), True),
        (floor_divide(seq, 2), (), True),
        (seq % 3 - 1, (), False),
    ],
)
def test_not_negative(dim, sizes, expected) -> None:
    assert not_negative(dim, sizes) is expected


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.arange(5), Affine(0, (1,))),
        (np.arange(12).reshape(3, 4), Affine(0, (4, 1))),
        (np.full((2, 3), 7), Affine(7, (0, 0))),
        (np.arange(3)[::-1, None] * 2 + 1, Affine(5, (-2, 0))),
        (np.array([0, 1, 3]), None),
        (np.zeros(0, np.int64), None),
        (np.array(4), Affine(4, ())),
        (np.array([-100, 100], np.int8), Affine(-100, (200,))),
        (np.array([-(2**63), 2**63 - 1]), None),
        (np.array([2**64 - 1, 0], np.uint64), None),
    ],
)
def test_fit(array, expected) -> None:
    assert fit(array) == expected


def positions(b: Build, x: Value, axes: list[int]) -> Value:
    """Range(seq) with further axes of size 1."""
    size = b.op(Reshape(), b.op(Shape(start=1, end=2), x), np.zeros(0, np.int64))
    return b.op(Unsqueeze(), b.op(Range(), np.array(0), size, np.array(1)), np.array(axes))


def test_affine_through_arithmetic_and_views() -> None:
    b = Build()
    x = b.input(np.zeros((2, 5), np.float32), ("batch", "seq"))
    rows, columns = positions(b, x, [1]), positions(b, x, [0])
    analysis = Analysis(b.graph)
    assert analysis.affine(rows) == Affine(0, (1, 0))
    both = b.op(Add(), b.op(Mul(), rows, np.array(10)), b.op(Neg(), columns))
    assert analysis.affine(both) == Affine(0, (10, -1))
    assert analysis.affine(b.op(Sub(), b.op(Transpose(perm=(1, 0)), both), np.array([3]))) == Affine(-3, (-1, 10))
    cut = b.op(Slice(), both, np.array([2]), np.array([9]), np.array([0]), np.array([2]))
    assert analysis.affine(cut) == Affine(20, (20, -1))
    assert analysis.affine(b.op(Cast(to=int(DType.INT32)), rows)) == Affine(0, (1, 0))
    assert analysis.affine(b.op(Mul(), rows, columns)) is None
    wide = b.op(Expand(), columns, b.graph.add_dims([3, 1, seq]))
    assert analysis.affine(wide) == Affine(0, (0, 0, 1))
    zeros = b.op(ConstantOfShape(), b.graph.add_dims([seq]))
    assert analysis.affine(zeros) is None  # float


@pytest.mark.parametrize(
    ("operator", "shift", "expected"),
    [
        (GreaterOrEqual(), 0, True),
        (Greater(), 0, None),
        (Greater(), -1, True),
        (Less(), 0, False),
        (LessOrEqual(), -1, False),
        (Equal(), -1, False),
        (Equal(), 3, None),
    ],
)
def test_comparisons_that_hold_everywhere(operator, shift, expected) -> None:
    b = Build()
    x = b.input(np.zeros((2, 5), np.float32), ("batch", "seq"))
    answer = b.op(operator, positions(b, x, [1]), np.array([shift]))
    element = Analysis(b.graph).uniform(answer)
    assert (None if element is None else bool(element)) is expected


def test_positions_end_before_the_size() -> None:
    b = Build()
    x = b.input(np.zeros((2, 5), np.float32), ("batch", "seq"))
    below = b.op(Less(), positions(b, x, [1]), b.graph.add_dims([seq]))
    assert bool(Analysis(b.graph).uniform(below)) is True
    assert bool(Analysis(b.graph).uniform(b.op(And(), below, np.array([True])))) is True
