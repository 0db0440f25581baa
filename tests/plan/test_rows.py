"""Normalizations of rows that do what follows them: which kernels, and what they compute."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from onnx import helper, numpy_helper

import jitonnx
from jitonnx.engine.interpreter import evaluate
from jitonnx.ir.computation.lowering import lower
from jitonnx.model import load
from jitonnx.passes.pipeline import optimize
from jitonnx.plan.make import make_plan
from jitonnx.target.machine import host

SHAPE = (2, 3, 5, 20)


def model(operator: str, shape: Sequence[int | str], axis: int, residual: Sequence[int], turned: bool) -> bytes:
    """relu(operator(x) + r); with `turned`, x and r are the inputs with their second and third axes exchanged."""
    known = [size if isinstance(size, int) else 1 for size in shape]
    scale = np.random.default_rng(1).normal(size=known[axis:]).astype(np.float32)
    used = [numpy_helper.from_array(scale, "scale")]
    nodes = [
        helper.make_node(
            "Transpose" if turned else "Identity", [name], [read], **({"perm": [0, 2, 1, 3]} if turned else {})
        )
        for name, read in (("x", "a"), ("r", "s"))
    ]
    nodes += [
        helper.make_node("Abs", ["a"], ["b"]),
        helper.make_node(operator, ["b", "scale"], ["c"], axis=axis),
        helper.make_node("Add", ["c", "s"], ["d"]),
        helper.make_node("Relu", ["d"], ["y"]),
    ]

    def given(dims: Sequence[int | str]) -> list[int | str]:
        return [dims[0], dims[2], dims[1], dims[3]] if turned else list(dims)

    inputs = [helper.make_tensor_value_info(name, 1, given(dims)) for name, dims in (("x", shape), ("r", residual))]
    graph = helper.make_graph(nodes, "graph", inputs, [helper.make_tensor_value_info("y", 1, None)], used)
    opsets = [helper.make_opsetid("", 23)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def test_scale_of_rows_that_lie_in_another_order() -> None:
    """Constant and computed: in the order in which the elements of a row lie in memory."""
    scale = np.random.default_rng(1).normal(size=SHAPE[1:]).astype(np.float32)
    for computed in (False, True):
        nodes = [
            helper.make_node("Abs", ["x"], ["a"]),
            helper.make_node("Transpose", ["a"], ["b"], perm=[0, 2, 1, 3]),
            helper.make_node("Exp", ["s"], ["e"]),
            helper.make_node("LayerNormalization", ["b", "e" if computed else "scale", "s"], ["y"], axis=1),
        ]
        inputs = [
            helper.make_tensor_value_info("x", 1, [2, 5, 3, 20]),
            helper.make_tensor_value_info("s", 1, SHAPE[1:]),
        ]
        outputs, used = [helper.make_tensor_value_info("y", 1, None)], [numpy_helper.from_array(scale, "scale")]
        graph = helper.make_graph(nodes, "graph", inputs, outputs, used)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
        data = made.SerializeToString()
        feeds = {"x": np.random.default_rng(2).normal(size=(2, 5, 3, 20)).astype(np.float32), "s": scale}
        (result,) = jitonnx.InferenceSession(data).run(None, feeds)
        (expected,) = evaluate(load(data).graph, feeds)
        np.testing.assert_allclose(result, expected, 1e-5, 1e-5)


def labels(data: bytes) -> list[str]:
    graph = load(data).graph
    optimize(graph, 99)
    return [call.label.split()[0] for call in make_plan(lower(graph), host()).calls]


@pytest.mark.parametrize("operator", ["LayerNormalization", "RMSNormalization"])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("shape", "axis", "residual"),
    [
        (SHAPE, 3, SHAPE),
        (SHAPE, 2, SHAPE),
        (SHAPE, 1, SHAPE),
        (SHAPE, 3, (1, 1, 1, 20)),
        (SHAPE, 3, (2, 3, 5, 1)),
        (SHAPE, 2, (1, 1, 5, 20)),
        (SHAPE, 2, (2, 1, 1, 20)),
        (SHAPE, 3, (1, 3, 1, 20)),
        ((2, 3, 5, 1), 3, (2, 3, 5, 1)),
        ((1, 1, 1, 20), 3, (1, 1, 1, 20)),
        (("batch", 3, 5, 20), 3, (1, 3, 5, 20)),
    ],
)
def test_normalized_rows_and_what_follows(
    operator: str, shape: tuple[int | str, ...], axis: int, residual: tuple[int, ...], turned: bool
) -> None:
    data = model(operator, shape, axis, residual, turned)
    random = np.random.default_rng(0)
    sizes = [size if isinstance(size, int) else 4 for size in shape]
    feeds = {"x": random.normal(size=sizes), "r": random.normal(size=residual)}
    order = (0, 2, 1, 3) if turned else (0, 1, 2, 3)
    feeds = {name: np.ascontiguousarray(array.transpose(order), np.float32) for name, array in feeds.items()}
    (result,) = jitonnx.InferenceSession(data).run(None, feeds)
    (expected,) = evaluate(load(data).graph, feeds)
    np.testing.assert_allclose(result, expected, 1e-5, 1e-5)


@pytest.mark.parametrize("residual", [SHAPE, (1, 1, 1, 20), (2, 3, 5, 1)])
def test_what_follows_takes_no_kernel_of_its_own(residual: tuple[int, ...]) -> None:
    assert labels(model("LayerNormalization", SHAPE, 3, residual, False)) == ["region", "layer"]
