"""Products of the elements of a tensor with one matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jitonnx.ops.onnx.activation import Relu
from jitonnx.ops.onnx.arithmetic import Add
from jitonnx.ops.onnx.concat_split import Split
from jitonnx.ops.onnx.gather import Gather
from jitonnx.ops.onnx.matmul import Gemm, MatMul
from jitonnx.ops.onnx.shape import Squeeze
from jitonnx.ops.onnx.slice import Slice
from tests.passes.graphs import Build, Value, normal, operators, rewritten

STEPS = 6


def recurrent(b: Build, axis: int, how: str, gemm: bool, steps: int = STEPS) -> Value:
    """A recurrent layer whose steps are written one by one."""
    shape = [2, 2, 5]
    shape[axis] = STEPS
    x = b.op(Relu(), b.input(normal(*shape)))
    w, r, bias = (b.graph.add_constant(normal(*shape)) for shape in ((7, 5), (7, 7), (7,)))
    turned = b.graph.add_constant(normal(5, 7))
    h: Any = b.op(Relu(), b.input(normal(2, 7)))
    split = b.ops(Split(axis=axis, num_outputs=STEPS), STEPS, x) if how == "split" else None
    for t in range(steps):
        element: Any
        if how == "gather":
            element = b.op(Gather(axis=axis), x, np.array(t - STEPS if t > 3 else t))
        elif split is not None:
            element = b.op(Squeeze(), split[t], [axis])
        else:
            element = b.op(Squeeze(), b.op(Slice(), x, [t], [t + 1], [axis]), [axis])
        if gemm:
            given = b.op(Gemm(transB=True, alpha=0.5), element, w, bias)
        else:
            given = b.op(Add(), b.op(MatMul(), element, turned), bias)
        h = b.op(Relu(), b.op(Add(), given, b.op(Gemm(transB=True), h, r)))
    return h


@pytest.mark.parametrize("gemm", [True, False])
@pytest.mark.parametrize("how", ["gather", "split", "slice"])
@pytest.mark.parametrize("axis", [0, 1])
def test_the_inputs_of_all_steps_are_multiplied_at_once(axis: int, how: str, gemm: bool) -> None:
    graph, report = rewritten(lambda b: recurrent(b, axis, how, gemm))
    assert report.counts["products of slices"] == 1
    assert operators(graph)["MatMul"] == 1 + STEPS


def test_few_of_many_elements_are_multiplied_alone() -> None:
    _, report = rewritten(lambda b: recurrent(b, 0, "gather", True, steps=2))
    assert "products of slices" not in report.counts


def test_the_axis_that_products_sum_over_is_none() -> None:
    def author(b: Build) -> list[Value]:
        x = b.op(Relu(), b.input(normal(3, 5, 2)))
        w = b.graph.add_constant(normal(5, 4))
        return [b.op(MatMul(), b.op(Gather(axis=2), x, np.array(t)), w) for t in range(2)]

    _, report = rewritten(author)
    assert "products of slices" not in report.counts
