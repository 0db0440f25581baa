"""Ranges whose size only a run tells, from floats and from a delta that is fed: compiled as evaluated, as NumPy."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

from jitonnx import InferenceSession, errors
from jitonnx.engine.interpreter import evaluate
from jitonnx.model import load
from tests.session.models import model, node, tensor

TYPES = {
    np.float32: TensorProto.FLOAT,
    np.float64: TensorProto.DOUBLE,
    np.float16: TensorProto.FLOAT16,
    ml_dtypes.bfloat16: TensorProto.BFLOAT16,
    np.int16: TensorProto.INT16,
    np.int32: TensorProto.INT32,
    np.int64: TensorProto.INT64,
}
WHOLE = [
    (0, 10, 1),
    (5, -3, -2),
    (3, 3, 1),
    (5, 1, 1),
    (1, 5, -1),
    (-5, 5, 3),
    (-2, -9, -3),
    (0, 100, 7),
    (1, 2, 100),
]
FRACTIONS = [(0.1, 2, 0.3), (1, 0, -0.25), (0.5, 0.5, 1), (-1.75, 60, 0.5)]


def ranges(dtype: Any, shape: tuple[int, ...] = ()) -> bytes:
    """A model of one Range, all of whose inputs are fed."""
    kind = TYPES[dtype]
    inputs = [tensor(name, shape, kind) for name in ("start", "limit", "delta")]
    return model(
        [node("Range", ["start", "limit", "delta"], ["y"])],
        inputs,
        [tensor("y", [None], kind)],
        opset_imports=[helper.make_opsetid("", 27)],
    )


def feeds(dtype: Any, values: tuple[float, float, float], shape: tuple[int, ...] = ()) -> dict[str, np.ndarray]:
    names = ("start", "limit", "delta")
    return {name: np.full(shape, value, dtype) for name, value in zip(names, values, strict=True)}


@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_every_type(dtype: Any) -> None:
    data = ranges(dtype)
    session, graph = InferenceSession(data), load(data).graph
    assert not session.engine.schedule or not list(session.engine.schedule.host_steps())
    for values in [*WHOLE, *(FRACTIONS if np.dtype(dtype).kind != "i" else ()), *WHOLE]:
        given = feeds(dtype, values)
        (y,) = session.run(None, given)
        (expected,) = evaluate(graph, given)
        assert y.dtype == expected.dtype and y.shape == expected.shape
        # A multiply-add rounds once where NumPy rounds twice.
        rtol = 4 * float(ml_dtypes.finfo(dtype).eps) if np.dtype(dtype).kind != "i" else 0
        np.testing.assert_allclose(y.astype(np.float64), expected.astype(np.float64), rtol=rtol)


def test_inputs_with_an_axis_and_sizes_that_are_read_on() -> None:
    """What comes behind takes the size as any other: here it is a number of rows."""
    one = [tensor(name, [1]) for name in ("start", "limit", "delta")]
    nodes = [
        node("Range", ["start", "limit", "delta"], ["r"]),
        node("Unsqueeze", ["r", "axis"], ["column"]),
        node("Mul", ["column", "row"], ["product"]),
        node("ReduceSum", ["product", "axis"], ["y"], keepdims=0),
    ]
    constants = {"axis": np.array([1]), "row": np.arange(5, dtype=np.float32)[None]}
    session = InferenceSession(
        model(nodes, one, [tensor("y", [None])], constants, opset_imports=[helper.make_opsetid("", 17)])
    )
    for values in WHOLE * 2:
        (y,) = session.run(None, feeds(np.float32, values, (1,)))
        np.testing.assert_array_equal(y, 10 * np.arange(*values, dtype=np.float32))


@pytest.mark.parametrize("limit", [math.inf, -math.inf, math.nan])
def test_no_end(limit: float) -> None:
    session = InferenceSession(ranges(np.float32))
    for _ in range(3):
        assert session.run(None, feeds(np.float32, (0, limit, 1)))[0].shape == (0,)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int64])
def test_no_delta(dtype: Any) -> None:
    session = InferenceSession(ranges(dtype))
    for values in ((0, 5, 0), (5, 0, 0), (0, 0, 0)):
        with pytest.raises(errors.Error, match="delta is 0"):
            session.run(None, feeds(dtype, values))
        assert session.run(None, feeds(dtype, (0, 3, 1)))[0].tolist() == [0, 1, 2]


def test_more_than_memory_holds() -> None:
    session = InferenceSession(ranges(np.float64))
    for limit in (1e300, 1e19, 1e14):
        with pytest.raises(errors.Error, match=r"beyond all memory|memory for output"):
            session.run(None, feeds(np.float64, (0, limit, 1)))


def test_in_a_loop() -> None:
    """The size is another in each iteration."""
    kind = TensorProto.FLOAT
    body = helper.make_graph(
        [
            node("Add", ["most", "step"], ["more"]),
            node("Range", ["none", "more", "step"], ["r"]),
            node("ReduceSum", ["r"], ["sum"], keepdims=0),
            node("Identity", ["go"], ["on"]),
        ],
        "body",
        [tensor("i", [], TensorProto.INT64), tensor("go", [], TensorProto.BOOL), tensor("most", [], kind)],
        [tensor("on", [], TensorProto.BOOL), tensor("more", [], kind), tensor("sum", [], kind)],
    )
    nodes = [node("Loop", ["times", "", "first"], ["last", "sums"], body=body)]
    inputs = [tensor(name, [], kind) for name in ("none", "step", "first")]
    made = model(
        nodes,
        inputs,
        [tensor("sums", [None], kind)],
        {"times": np.array(4)},
        opset_imports=[helper.make_opsetid("", 17)],
    )
    session = InferenceSession(made)
    for step in (1, 0.5, 2):
        given = {"none": np.float32(0), "step": np.float32(step), "first": np.float32(0)}
        expected = [np.arange(0, step * (n + 1), step, np.float32).sum() for n in range(4)]
        np.testing.assert_array_equal(session.run(None, given)[0], np.array(expected, np.float32))
