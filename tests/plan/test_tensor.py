"""Views as strides: what a view of a tensor addresses is what NumPy's view shows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitonnx.ir.computation import computations as c
from jitonnx.ir.dims import variable
from jitonnx.ir.dtypes import DType
from jitonnx.plan.tensor import (
    Buffer,
    StridedTensor,
    apply_view,
    channels_last,
    in_order,
    orders_around,
    reshape_strides,
    row_major,
)


def tensor_of(array: np.ndarray) -> StridedTensor:
    """A constant tensor holding `array`, row-major."""
    buffer = Buffer("test", "constant", array.size, DType.INT64, np.ascontiguousarray(array))
    return StridedTensor(buffer, 0, array.shape, row_major(array.shape))


@st.composite
def views(draw: st.DrawFn) -> tuple[np.ndarray, list[c.View], np.ndarray]:
    """An array, a chain of views, and what NumPy makes of them."""
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    base = array = np.arange(np.prod(shape), dtype=np.int64).reshape(shape)
    chain: list[c.View] = []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["transpose", "slice", "broadcast", "reshape"]))
        if kind == "transpose":
            permutation = tuple(draw(st.permutations(range(array.ndim))))
            chain.append(c.Transpose(permutation))
            array = array.transpose(permutation)
        elif kind == "slice":
            starts = tuple(draw(st.integers(0, dim - 1)) for dim in array.shape)
            steps = tuple(draw(st.sampled_from([-2, -1, 1, 2])) for _ in array.shape)
            slices = tuple(slice(start, None, step) for start, step in zip(starts, steps, strict=True))
            array = array[slices]
            chain.append(c.Slice(starts, steps, array.shape))
        elif kind == "broadcast":
            array = np.broadcast_to(array, (draw(st.integers(1, 3)), *array.shape))
            chain.append(c.Broadcast(array.shape))
        else:
            array = array.reshape(draw(st.permutations([*array.shape, 1])))
            chain.append(c.Reshape(array.shape))
    return base, chain, array


@given(views())
def test_chains_of_views(case: tuple[np.ndarray, list[c.View], np.ndarray]) -> None:
    base, chain, expected = case
    tensor = tensor_of(base)
    for view in chain:
        seen = apply_view(view, tensor)
        if seen is None:  # a reshape across gaps: the planner copies
            array = tensor.constant
            assert array is not None
            seen = apply_view(view, tensor_of(array))
            assert seen is not None
        tensor = seen
    np.testing.assert_array_equal(tensor.constant, expected)


@pytest.mark.parametrize(
    ("old", "strides", "new", "expected"),
    [
        ((2, 3, 4), (12, 4, 1), (6, 4), (4, 1)),
        ((2, 3, 4), (24, 4, 1), (6, 4), None),
        ((1, 64, 7, 7), channels_last((1, 64, 7, 7)), (1, 64, 49), (1, 1, 64)),
        ((1, 64, 7, 7), channels_last((1, 64, 7, 7)), (1, 3136), None),
        ((1, 64, 1, 1), channels_last((1, 64, 1, 1)), (1, 64), (1, 1)),
        ((6, 4), (4, 1), (2, 3, 2, 2), (12, 4, 2, 1)),
        ((5,), (3,), (5, 1), (3, 3)),
        ((), (), (1, 1), (1, 1)),
    ],
)
def test_reshape(old: tuple, strides: tuple, new: tuple, expected: tuple | None) -> None:
    found = reshape_strides(old, strides, new)
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert [s for s, dim in zip(found, new, strict=True) if dim != 1] == [
            s for s, dim in zip(expected, new, strict=True) if dim != 1
        ]


def test_reshape_of_symbolic_shapes() -> None:
    b, s = variable("b"), variable("s")
    assert reshape_strides((b, s, 384), row_major((b, s, 384)), (b, s, 12, 32)) == (384 * s, 384, 32, 1)
    assert reshape_strides((b * s, 384), (384, 1), (b, s, 384)) == (384 * s, 384, 1)
    assert reshape_strides((b, 12, s, 32), (s * 384, 32, 384, 1), (b * 12, s, 32)) is None


@given(views(), st.randoms())
def test_orders_around_views(case: tuple[np.ndarray, list[c.View], np.ndarray], random: Any) -> None:
    """An operand that lies in the order that was found can be seen through the view, its innermost axis last."""
    shape = case[0].shape
    for view in case[1]:
        order = random.sample(range(len(shape)), len(shape))
        found = orders_around(view, shape, order)
        behind = tuple(shape[axis] for axis in view.permutation) if isinstance(view, c.Transpose) else view.shape
        if found is not None:
            assert sorted(found[0]) == list(range(len(shape)))
            assert sorted(found[1]) == list(range(len(behind)))
            inner = [axis for axis in order if shape[axis] != 1]
            buffer = Buffer("test", "arena", int(np.prod(shape)), DType.INT64)
            seen = apply_view(view, StridedTensor(buffer, 0, shape, in_order(shape, found[0])))
            assert seen is not None
            if inner and isinstance(view, c.Reshape):
                last = [axis for axis in found[1] if behind[axis] != 1][-1]
                assert seen.strides[last] == 1
        else:
            assert isinstance(view, c.Broadcast)
        shape = behind
