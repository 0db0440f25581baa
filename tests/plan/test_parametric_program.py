"""Programs for ever new sizes: what is kept of the one before must not show."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper

import jitonnx
from jitonnx.engine.programs import CompiledParametricProgram
from jitonnx.ir.computation.lowering import lower
from jitonnx.model import load
from jitonnx.passes.pipeline import optimize
from jitonnx.plan.make import make_plan
from jitonnx.plan.plan import Plan
from jitonnx.runtime.program import Program
from jitonnx.runtime.tables import make_tables
from jitonnx.target.machine import host

LAYERS, WIDTH = 3, 8


def decoder() -> bytes:
    """Equal layers that append a row to a cache and look at all its rows, as decoders of text do."""
    nodes = [helper.make_node("Identity", ["x"], ["x0"])]
    inputs = [helper.make_tensor_value_info("x", 1, ["batch", 1, WIDTH])]
    outputs = []
    for layer in range(LAYERS):
        past, present, scores = f"past{layer}", f"present{layer}", f"scores{layer}"
        nodes += [
            helper.make_node("MatMul", [f"x{layer}", "w"], [f"q{layer}"]),
            helper.make_node("Concat", [past, f"q{layer}"], [present], axis=1),
            helper.make_node("Transpose", [present], [f"k{layer}"], perm=[0, 2, 1]),
            helper.make_node("MatMul", [f"q{layer}", f"k{layer}"], [scores]),
            helper.make_node("Softmax", [scores], [f"p{layer}"], axis=-1),
            helper.make_node("MatMul", [f"p{layer}", present], [f"x{layer + 1}"]),
        ]
        inputs.append(helper.make_tensor_value_info(past, 1, ["batch", "past", WIDTH]))
        outputs.append(helper.make_tensor_value_info(present, 1, None))
    outputs.append(helper.make_tensor_value_info(f"x{LAYERS}", 1, None))
    weights = np.random.default_rng(0).standard_normal((WIDTH, WIDTH)).astype(np.float32)
    graph = helper.make_graph(nodes, "graph", inputs, outputs, [numpy_helper.from_array(weights, "w")])
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def planned() -> Plan:
    graph = load(decoder()).graph
    optimize(graph, 99)
    return make_plan(lower(graph), host())


def program(plan: Plan, batch: int, past: int) -> Program:
    sizes = {"batch": batch, "past": past}
    return plan.instantiate(sizes, [str(number) for number in range(len(plan.calls))])


SIZES = [(1, 4), (1, 5), (1, 5), (3, 5), (3, 0), (0, 5), (1, 100), (1, 4)]


def test_a_program_does_not_depend_on_the_one_before() -> None:
    plan = planned()
    for batch, past in SIZES:
        made, alone = program(plan, batch, past), program(planned(), batch, past)
        assert list(made.steps) == list(alone.steps)
        assert made.arena_bytes == alone.arena_bytes
        assert list(made.inputs) == list(alone.inputs) and list(made.outputs) == list(alone.outputs)


def test_sizes_that_grow_a_little_leave_the_arena_as_it_is() -> None:
    """And where it lies depends on the sizes alone, not on those before."""
    grows, shrinks = planned(), planned()
    sizes = range(100, 3000, 7)
    up = [program(grows, 2, past) for past in sizes]
    down = [program(shrinks, 2, past) for past in reversed(sizes)]
    for one, other in zip(up, reversed(down), strict=True):
        np.testing.assert_array_equal(one.steps.offsets, other.steps.offsets)
        assert one.arena_bytes == other.arena_bytes
    assert len({one.arena_bytes for one in up}) < len(up) / 4


def test_calls_of_equal_layers_share_their_sizes() -> None:
    plan = planned()
    made = program(plan, 1, 8)
    assert len(set(made.steps.columns[0].tolist())) <= len(made.steps) - LAYERS
    assert len(made.steps.sizes) < sum(len(step.sizes) for step in made.steps)
    addresses = {step.kernel: 0 for step in made.steps}
    tables = make_tables(
        made, CompiledParametricProgram(plan.outline, made.steps.wiring.kernels, addresses, plan.flags)._common, 1
    )
    first = tables.records["sizes"].min()
    for step, row in zip(made.steps, tables.records, strict=True):
        begin = int(row["sizes"] - first) // 8
        assert tuple(made.steps.sizes[begin : begin + len(step.sizes)].tolist()) == step.sizes


@pytest.mark.parametrize("threads", [1, 2])
def test_results_for_ever_new_sizes(threads: int) -> None:
    options = jitonnx.SessionOptions()
    options.intra_op_num_threads = threads
    session = jitonnx.InferenceSession(decoder(), options)
    rng = np.random.default_rng(1)
    for batch, past in SIZES:
        feeds = {"x": rng.standard_normal((batch, 1, WIDTH)).astype(np.float32)}
        feeds |= {f"past{i}": rng.standard_normal((batch, past, WIDTH)).astype(np.float32) for i in range(LAYERS)}
        alone = jitonnx.InferenceSession(decoder(), options)
        for found, expected in zip(session.run(None, feeds), alone.run(None, feeds), strict=True):
            np.testing.assert_array_equal(found, expected)
