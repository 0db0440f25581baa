"""Unique in models: sizes that only a run tells, outputs that nobody asks for, nodes behind it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from jitonnx import InferenceSession
from jitonnx.engine.pipeline import Engine
from jitonnx.engine.schedule import NativeStep
from jitonnx.ops.onnx.selection import Unique

NAMES = ("y", "indices", "inverse", "counts")


def session_of(nodes: list[Any], shape: list[Any], outputs: dict[str, int]) -> InferenceSession:
    graph = helper.make_graph(
        nodes,
        "unique",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, dtype, None) for name, dtype in outputs.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return InferenceSession(model.SerializeToString())


def is_native(session: InferenceSession) -> bool:
    engine = session.engine
    assert isinstance(engine, Engine) and engine.schedule is not None
    return all(isinstance(step, NativeStep) for step in engine.schedule.steps)


@pytest.mark.parametrize("wanted", [(0,), (3,), (1, 3), (2,), (0, 2, 3), (0, 1, 2, 3)], ids=str)
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_outputs_and_sizes(axis: int | None, wanted: tuple[int, ...]) -> None:
    names = [name if number in (0, *wanted) else "" for number, name in enumerate(NAMES)][: max(wanted) + 1]
    attributes = {} if axis is None else {"axis": axis}
    types = {NAMES[number]: TensorProto.INT64 if number else TensorProto.FLOAT for number in wanted}
    random = np.random.default_rng(1)
    for order in (0, 1):
        node = helper.make_node("Unique", ["x"], names, sorted=order, **attributes)
        session = session_of([node], ["a", "b", "c"], types)
        for shape in ((3, 2, 4), (1, 9, 1), (0, 2, 3), (2, 0, 3), (40, 3, 2), (3, 2, 0)):
            x = random.integers(-1, 2, shape).astype(np.float32)
            expected = Unique(axis=axis, sorted=order).evaluate(x)
            for number, result in zip(wanted, session.run(None, {"x": x}), strict=True):
                np.testing.assert_array_equal(result, expected[number])
        assert is_native(session)


def test_no_elements_in_fixed_sizes() -> None:
    """The number of distinct slices is told also where none of them has an element."""
    session = session_of([helper.make_node("Unique", ["x"], ["y"], axis=2)], [0, 2, 3], {"y": TensorProto.FLOAT})
    assert session.run(None, {"x": np.zeros((0, 2, 3), np.float32)})[0].shape == (0, 2, 1)


def test_what_is_behind() -> None:
    """The share of each distinct element, and the input made of them again."""
    nodes = [
        helper.make_node("Unique", ["x"], NAMES),
        helper.make_node("Cast", ["counts"], ["many"], to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["many"], ["all"]),
        helper.make_node("Div", ["many", "all"], ["shares"]),
        helper.make_node("Mul", ["y", "many"], ["sums"]),
        helper.make_node("Gather", ["y", "inverse"], ["again"]),
    ]
    session = session_of(nodes, ["n"], dict.fromkeys(("shares", "sums", "again"), TensorProto.FLOAT))
    for length in (1, 5, 100, 7) * 4:
        x = np.random.default_rng(length).integers(0, 9, length).astype(np.float32)
        shares, sums, again = session.run(None, {"x": x})
        values, counts = np.unique(x, return_counts=True)
        np.testing.assert_allclose(shares, counts / np.float32(length), 1e-6)
        np.testing.assert_array_equal(sums, values * counts)
        np.testing.assert_array_equal(again, x)
    assert is_native(session)
