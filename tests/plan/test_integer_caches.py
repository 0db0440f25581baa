"""Attention over caches of int8 behind DequantizeLinear: read as they lie where scales allow it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import jitonnx
from jitonnx.engine.interpreter import evaluate
from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation.lowering import lower
from jitonnx.model import load
from jitonnx.plan.integer_caches import with_integer_caches
from tests.ops.interpret import interpret

HEADS, SHARED, DEPTH, CAPACITY = 4, 2, 24, 40
RANDOM = np.random.default_rng(0)


def decoder(
    *, axis: int | None = None, side_by_side: bool = False, zero: int = 0, values: bool = True, seen: bool = False
) -> bytes:
    """Steps of a decoder: new rows are quantised and written to caches, which attention reads.

    axis: scales go along it. side_by_side: caches are [1, rows, heads * size]. zero: the zero point. values: those are
    integers, too. seen: what is dequantised is given out.
    """
    value, float32 = helper.make_tensor_value_info, TensorProto.FLOAT
    cache = (1, CAPACITY, SHARED * DEPTH) if side_by_side else (1, SHARED, CAPACITY, DEPTH)
    new: list[Any] = list(cache)
    new[1 if side_by_side else 2] = "S"
    query = [1, "S", HEADS * DEPTH] if side_by_side else [1, HEADS, "S", DEPTH]
    inputs = [value("q", float32, query), value("at", TensorProto.INT64, [1]), value("n", TensorProto.INT64, [1])]
    outputs, nodes, constants, read = [value("y", float32, query)], [], [], []
    places = 1 if side_by_side else 2
    for name, quantised in (("k", True), ("v", values)):
        kind = TensorProto.INT8 if quantised else float32
        inputs += [value(name, float32, new), value(f"{name}_past", kind, cache)]
        outputs.append(value(f"{name}_present", kind, cache))
        if not quantised:
            nodes.append(
                helper.make_node("TensorScatter", [f"{name}_past", name, "at"], [outputs[-1].name], axis=places)
            )
            read.append(outputs[-1].name)
            continue
        scales = RANDOM.uniform(0.02, 0.04, () if axis is None else cache[axis]).astype(np.float32)
        zeros = np.full(scales.shape, zero, np.int8)
        constants += [numpy_helper.from_array(scales, f"{name}_s"), numpy_helper.from_array(zeros, f"{name}_z")]
        by, along = [f"{name}_s", f"{name}_z"], {} if axis is None else {"axis": axis}
        nodes += [
            helper.make_node("QuantizeLinear", [name, *by], [f"{name}_q"], **along),
            helper.make_node("TensorScatter", [f"{name}_past", f"{name}_q", "at"], [outputs[-1].name], axis=places),
            helper.make_node("DequantizeLinear", [outputs[-1].name, *by], [f"{name}_wide"], **along),
        ]
        read.append(f"{name}_wide")
    if seen:
        outputs.append(value("k_wide", float32, cache))
    heads = {"q_num_heads": HEADS, "kv_num_heads": SHARED} if side_by_side else {}
    nodes.append(helper.make_node("Attention", ["q", *read, "", "", "", "n"], ["y"], is_causal=1, **heads))
    graph = helper.make_graph(nodes, "decoder", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", 24)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=11).SerializeToString()


def feeds(session: jitonnx.InferenceSession, steps: int, before: int) -> dict[str, np.ndarray]:
    given: dict[str, np.ndarray] = {"at": np.array([before]), "n": np.array([before + steps])}
    for one in session.get_inputs():
        shape = [steps if size == "S" else size for size in one.shape]
        if one.name not in given:
            made = RANDOM.integers(-128, 128, shape) if one.type == "tensor(int8)" else RANDOM.standard_normal(shape)
            given[one.name] = made.astype(np.int8 if one.type == "tensor(int8)" else np.float32)
    return given


READ: list[dict[str, Any]] = [{}, {"axis": 3}, {"side_by_side": True}]
WIDENED: list[dict[str, Any]] = [
    {"axis": 1},  # queries have more heads than there are scales
    {"side_by_side": True, "axis": 2},
    {"zero": 3},
    {"values": False},
    {"seen": True},
]


@pytest.mark.parametrize("options", [*READ, *WIDENED], ids=str)
def test_steps(options: dict[str, Any]) -> None:
    """A chunk and single steps, near NumPy's evaluation; and whether the kernel reads integers."""
    model = decoder(**options)
    session = jitonnx.InferenceSession(model)
    for steps, before in ((9, 0), (1, 9), (3, 20), (1, 39)):
        given = feeds(session, steps, before)
        results = session.run(None, given)
        for result, expected in zip(results, evaluate(load(model).graph, given), strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-4, atol=2e-5)
    calls = [call for code in session.engine.codes for call in code.plan.calls]
    (call,) = [call for call in calls if call.label.startswith("attention")]
    assert call.spec.stored == ("int8" if options in READ else "float32")


@pytest.mark.parametrize("options", READ, ids=str)
def test_the_statements_say_the_same(options: dict[str, Any]) -> None:
    model = decoder(**options)
    lowered, given = lower(load(model).graph), feeds(jitonnx.InferenceSession(model), 3, 5)
    changed = with_integer_caches(lowered)
    kinds = [
        [v.dtype.text for v in s.inputs[1:3] if v] for s in changed.statements if isinstance(s.computation, c.Attention)
    ]
    assert kinds == [["int8", "int8"]]
    for one, other in zip(*(interpret(each, given, {"S": 3}) for each in (lowered, changed)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-5)
