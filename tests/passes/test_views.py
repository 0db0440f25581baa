"""The algebra of views against NumPy, and the chains that it writes."""

from __future__ import annotations

import numpy as np
import pytest

from jitonnx.ir.dims import variable
from jitonnx.ops.onnx.activation import Relu
from jitonnx.ops.onnx.concat_split import Split
from jitonnx.ops.onnx.identity import Identity
from jitonnx.ops.onnx.shape import Flatten, Reshape, Squeeze, Transpose, Unsqueeze
from jitonnx.ops.onnx.slice import Slice
from jitonnx.ops.onnx.softmax import Softmax
from jitonnx.passes.views import INT64_MIN, Step, apply_step, identity
from tests.passes.graphs import Build, Value, normal, operators, rewritten

batch, seq = variable("batch"), variable("seq")


def written(shape, *steps: Step) -> list[Step] | None:
    """The canonical chain for a chain of steps; None where some do not compose."""
    view = identity(shape)
    for step in steps:
        view = apply_step(view, step)
        if view is None:
            return None
    return view.steps()


def run(array: np.ndarray, steps: list[Step]) -> np.ndarray:
    """A chain of steps on an array."""
    for kind, *arguments in steps:
        if kind == "reshape":
            array = array.reshape(arguments[0])
        elif kind == "transpose":
            array = array.transpose(arguments[0])
        else:
            index = (start + step * np.arange(size) for start, step, size in zip(*arguments, strict=True))
            array = array[np.ix_(*index)]
    return array


CHAINS = [
    ((2, 3, 4), [("reshape", (6, 4)), ("transpose", (1, 0)), ("reshape", (4, 2, 3))], [("transpose", (2, 0, 1))]),
    ((2, 3, 4), [("transpose", (2, 0, 1)), ("transpose", (1, 2, 0))], []),
    ((5, 1, 7), [("transpose", (1, 0, 2))], [("reshape", (1, 5, 7))]),
    ((6,), [("reshape", (2, 3)), ("reshape", (3, 2))], [("reshape", (3, 2))]),
    # keys transposed by way of three axes
    (
        (2, 12, 8, 4),
        [("reshape", (24, 8, 4)), ("transpose", (0, 2, 1)), ("reshape", (2, 12, 4, 8))],
        [("transpose", (0, 1, 3, 2))],
    ),
    # heads put together
    (
        (1, 12, 8, 4),
        [("transpose", (0, 2, 1, 3)), ("reshape", (8, 48))],
        [("transpose", (0, 2, 1, 3)), ("reshape", (8, 48))],
    ),
    # the second of three projections
    (
        (8, 1, 36),
        [("reshape", (8, 1, 3, 12)), ("slice", (0, 0, 1, 0), (1, 1, 1, 1), (8, 1, 1, 12)), ("reshape", (8, 3, 4))],
        [("slice", (0, 0, 12), (1, 1, 1), (8, 1, 12)), ("reshape", (8, 3, 4))],
    ),
    ((8,), [("slice", (1,), (2,), (3,)), ("slice", (1,), (1,), (2,))], [("slice", (3,), (2,), (2,))]),
    ((8,), [("slice", (7,), (-1,), (8,)), ("slice", (7,), (-1,), (8,))], []),
]


@pytest.mark.parametrize(("shape", "steps", "expected"), CHAINS)
def test_a_chain_is_written_in_its_shortest_form(shape, steps, expected) -> None:
    array = np.arange(np.prod(shape)).reshape(shape)
    assert written(shape, *steps) == expected
    np.testing.assert_array_equal(run(array, expected), run(array, steps))


def test_symbolic_shapes_compose_too() -> None:
    split = ("reshape", (batch * 12, seq, 32))
    assert written((batch, 12, seq, 32), split, ("transpose", (0, 2, 1)), ("reshape", (batch, 12, 32, seq))) == [
        ("transpose", (0, 1, 3, 2))
    ]


def test_what_does_not_compose_is_left_alone() -> None:
    assert written((4, 3), ("transpose", (1, 0)), ("reshape", (2, 6))) is None  # 2 splits an axis of 3
    assert written((batch, seq), ("reshape", (seq, batch))) is None
    assert written((4, 6), ("reshape", (24,)), ("slice", (1,), (1,), (23,))) is None


@pytest.mark.parametrize("seed", range(60))
def test_random_chains_mean_the_same(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape: tuple[int, ...] = tuple(int(size) for size in rng.choice([1, 2, 3, 4, 6], 3))
    array = np.arange(np.prod(shape)).reshape(shape)
    view, current = identity(shape), array
    for _ in range(6):
        kind = rng.integers(3)
        if kind == 0:
            step: Step = ("transpose", tuple(int(axis) for axis in rng.permutation(current.ndim)))
        elif kind == 1:
            sizes = [size for old in current.shape for size in ((old // 2, 2) if old % 2 == 0 else (old,))]
            step = ("reshape", tuple(sizes) if rng.random() < 0.5 else (current.size,))
        else:
            cut = [int(rng.integers(1, size + 1)) for size in current.shape]
            starts = tuple(int(rng.integers(0, size - part + 1)) for size, part in zip(current.shape, cut, strict=True))
            step = ("slice", starts, (1,) * current.ndim, tuple(cut))
        further = apply_step(view, step)
        if further is None or current.ndim > 8:
            continue
        view, current = further, run(current, [step])
        assert view.shape == current.shape
        if (steps := view.steps()) is not None:
            np.testing.assert_array_equal(run(array, steps), current)


# ---------------------------------------------------------------- in graphs


def test_views_that_cancel_disappear() -> None:
    def author(b: Build) -> Value:
        x = b.op(Relu(), b.input(normal(2, 3, 4)))
        y = b.op(Identity(), b.op(Transpose(perm=(1, 0, 2)), x))
        return b.op(Softmax(), b.op(Transpose(perm=(1, 0, 2)), y))

    graph, report = rewritten(author)
    assert operators(graph) == {"Relu": 1, "Softmax": 1}
    assert report.counts["views"] == 1


def test_squeeze_unsqueeze_and_flatten_become_one_reshape() -> None:
    def author(b: Build) -> Value:
        x = b.op(Unsqueeze(), b.input(normal(2, 1, 4)), [0])
        return b.op(Softmax(), b.op(Flatten(axis=1), b.op(Squeeze(), x, [2])))

    graph, _ = rewritten(author)
    assert operators(graph) == {"Reshape": 1, "Softmax": 1}


def test_views_look_through_a_split_below_a_reshape() -> None:
    def author(b: Build) -> list[Value]:
        x = b.op(Reshape(), b.op(Relu(), b.input(normal(4, 6))), [1, 4, 6])
        parts = b.ops(Split(axis=2), 3, x, [2, 2, 2])
        return [b.op(Relu(), b.op(Reshape(), part, [4, 2])) for part in parts]

    graph, _ = rewritten(author)
    assert operators(graph) == {"Relu": 4, "Slice": 3}


def test_a_graph_output_keeps_its_name_when_a_view_of_an_input_is_dropped() -> None:
    def author(b: Build) -> list[Value]:
        x = b.input(normal(3, 1))
        return [b.op(Reshape(), x, [3, 1]), b.op(Identity(), x), b.op(Transpose(perm=(0, 1)), x)]

    graph, _ = rewritten(author)
    assert operators(graph) == {"Identity": 3}


def test_slices_of_slices_with_symbolic_sizes() -> None:
    def author(b: Build) -> Value:
        x = b.input(normal(5, 9), ("batch", 9))
        x = b.op(Slice(), b.op(Relu(), x), [1], [8], [1], [1])
        return b.op(Relu(), b.op(Slice(), x, [2], [6], [1], [2]))

    graph, _ = rewritten(author)
    assert operators(graph) == {"Relu": 2, "Slice": 1}


def test_two_reshapes_are_one_even_where_axes_do_not_factor() -> None:
    def author(b: Build) -> Value:
        x = b.op(Reshape(), b.op(Relu(), b.input(normal(2, 3))), [3, 2])
        return b.op(Softmax(), b.op(Reshape(), x, [6, 1]))

    assert operators(rewritten(author)[0]) == {"Relu": 1, "Reshape": 1, "Softmax": 1}


@pytest.mark.parametrize("size", [3, "size"])
def test_slices_of_nothing(size: int | str) -> None:
    """A place before the start, where such a slice would end, may count from the end."""

    def author(b: Build) -> Value:
        x = b.op(Slice(), b.input(normal(3), (size,)), [0], [-6], [0], [2])
        return b.op(Relu(), b.op(Flatten(axis=1), b.op(Flatten(axis=0), x)))

    assert operators(rewritten(author)[0]) == {"Reshape": 1, "Slice": 1, "Relu": 1}


def test_a_reversed_slice_with_an_open_size_ends_before_the_first_element() -> None:
    """The place -1, once sizes are known, is no place behind the last element."""

    def author(b: Build) -> Value:
        x = b.op(Transpose(perm=(1, 0)), b.input(normal(3, 4), ("rows", "columns")))
        return b.op(Transpose(perm=(1, 0)), b.op(Slice(), x, [-2], [-5], [0], [-1]))

    assert operators(rewritten(author)[0]) == {"Slice": 1}


@pytest.mark.parametrize("columns", [3, 4])
@pytest.mark.parametrize(
    ("bounds", "steps"), [((-1, INT64_MIN), (-1, -2)), ((0, -7), (1, 2)), ((0, 2**40), (1, 2)), ((-1, 0), (-1, -2))]
)
def test_slices_of_slices_with_steps_and_open_sizes(
    columns: int, bounds: tuple[int, int], steps: tuple[int, int]
) -> None:
    start, end = bounds

    def author(b: Build) -> Value:
        x = b.input(normal(2, columns), ("rows", "columns"))
        x = b.op(Transpose(perm=(1, 0)), b.op(Slice(), x, [start], [end], [1], [steps[0]]))
        x = b.op(Slice(), x, [start], [end], [0], [steps[1]])
        return b.op(Relu(), b.op(Transpose(perm=(1, 0)), x))

    rewritten(author)
