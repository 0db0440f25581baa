"""Planning and compiling grow with a model, not faster: counted in calls and in lines of code, not in seconds."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import numpy as np
import pytest

import jitonnx
from bench.chains import COLUMNS, KINDS, ROWS, model
from jitonnx.codegen.build import kernel_of
from jitonnx.codegen.code import code_of
from jitonnx.emit import llvm_ir
from jitonnx.emit.builder import KernelBuilder
from jitonnx.emit.module import SIGNATURE, _Module
from jitonnx.engine.interpreter import evaluate
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import lower
from jitonnx.model import load
from jitonnx.passes.pipeline import optimize
from jitonnx.plan.make import make_plan
from jitonnx.plan.plan import Plan
from jitonnx.plan.region import RegionSpec
from jitonnx.target import tuning
from jitonnx.target.machine import host


def planned(data: bytes) -> Plan:
    graph = load(data).graph
    optimize(graph, 99)
    return make_plan(lower(graph), host())


def calls_of_functions(data: bytes) -> int:
    """How many functions are called to plan a model."""
    count = 0

    def step(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(step)
    try:
        planned(data)
    finally:
        sys.setprofile(before)
    return count


def lines_of_code(plan: Plan) -> int:
    """How long the LLVM IR of all kernels is together."""
    lines = 0
    for code in {code_of(call) for call in plan.calls}:
        module = _Module(host())
        function = llvm_ir.Function(module, SIGNATURE, "kernel")
        buffers, sizes, begin, end, scratch = function.args
        written = KernelBuilder(llvm_ir.IRBuilder(function.append_basic_block()), (buffers, sizes, scratch))
        kernel_of(code, host())(written, written.integer(begin), written.integer(end))
        written.builder.ret_void()
        lines += str(module).count("\n")
    return lines


@pytest.mark.parametrize("kind", KINDS)
def test_planning_takes_in_proportion_to_the_nodes(kind: str) -> None:
    calls_of_functions(model(kind, 64))  # imports what it needs
    short, middle, long = (calls_of_functions(model(kind, nodes)) for nodes in (200, 400, 800))
    assert long - middle < 2 * 1.1 * (middle - short)


@pytest.mark.parametrize("kind", KINDS)
def test_code_grows_with_the_nodes_at_most(kind: str) -> None:
    short, long = (lines_of_code(planned(model(kind, nodes))) for nodes in (400, 1600))
    assert long < 4 * 1.1 * short


@pytest.mark.parametrize("kind", KINDS)
def test_a_region_takes_in_so_many_statements_at_most(kind: str) -> None:
    plan = planned(model(kind, 500))
    specs = [call.spec for call in plan.calls]
    assert len(specs) == -(-500 // tuning.MOST_STATEMENTS)
    for spec in specs:
        assert isinstance(spec, RegionSpec)
        operations = {node for root in spec.exprs for node in e.children_first(root) if node.arguments}
        assert len(operations) <= tuning.MOST_STATEMENTS


@pytest.mark.parametrize("kind", KINDS)
def test_chains_compute_what_they_say(kind: str) -> None:
    data = model(kind, 100)
    feeds = {"x": np.linspace(-1, 1, ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)}
    (result,) = jitonnx.InferenceSession(data).run(None, feeds)
    (expected,) = evaluate(load(data).graph, feeds)
    np.testing.assert_allclose(result, expected, 1e-5, 1e-6)
