"""Pooling of images of open sizes that lie in planes of pixels: one plan for all, small ones too, as onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

from jitonnx import InferenceSession
from jitonnx.tools.explain import as_text, explain
from tests.session.models import model, node, tensor

CASES: list[dict[str, Any]] = [
    {"kernel_shape": [2, 2], "strides": [2, 2]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [0, 0, 1, 1], "ceil_mode": 1},
    {"kernel_shape": [3, 2], "strides": [1, 3], "pads": [2, 1, 1, 0]},
    {"kernel_shape": [1, 4], "pads": [0, 2, 0, 1]},
    {"kernel_shape": [2, 4], "strides": [3, 4], "ceil_mode": 1},
]
SIZES = [(5, 5), (6, 17), (20, 33), (3, 130), (64, 48)]


@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("case", CASES, ids=repr)
def test_open_sizes(operator: str, case: dict[str, Any]) -> None:
    data = model(
        [node(operator, ["x"], ["p"], **case), node("Neg", ["p"], ["y"])],
        [tensor("x", ("n", "c", "h", "w"))],
        [tensor("y", (None,) * 4)],
    )
    session = InferenceSession(data)
    assert "in planes" in as_text(explain(session.compiled_model, {"x": (2, 3, 64, 48)}))
    theirs = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    for number, (height, width) in enumerate(SIZES):
        x = np.random.default_rng(number).standard_normal((2, 3, height, width)).astype(np.float32)
        x[0, 1, 2, 3] = np.inf
        (ours,), (expected,) = session.run(None, {"x": x}), theirs.run(None, {"x": x})
        np.testing.assert_allclose(ours, expected, 1e-5, 1e-6)
    assert not session.engine.variants


@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(
    ("shape", "case"),
    [
        ((2, 1, 9, 5, 7), {"kernel_shape": [5, 1, 1]}),
        ((2, 1, 4, 9, 37), {"kernel_shape": [3, 3, 3], "pads": [1, 1, 1, 1, 1, 1]}),
        ((1, 1, 6, 5, 20), {"kernel_shape": [2, 2, 2], "strides": [2, 1, 1]}),
        ((2, 3, 4, 5, 19), {"kernel_shape": [3, 1, 3], "pads": [1, 0, 1, 1, 0, 1]}),
        ((1, 1, 6, 5, 20), {"kernel_shape": [1, 2, 3], "strides": [1, 1, 3]}),
    ],
    ids=repr,
)
@pytest.mark.parametrize("open_sizes", [False, True])
def test_epilogues(operator: str, shape: tuple[int, ...], case: dict[str, Any], open_sizes: bool) -> None:
    """Of few channels: with numbers for all elements, for channels, and for each element."""
    for operand in ("one", "channel", "element"):
        channels, pooled = shape[1], onnxruntime_output(operator, shape, case).shape
        sizes = {"one": (), "channel": (channels, 1, 1, 1), "element": pooled}[operand]
        data = model(
            [node(operator, ["x"], ["p"], **case), node("Mul", ["p", "b"], ["m"]), node("Exp", ["m"], ["y"])],
            [tensor("x", ("n", channels, "d", "h", "w") if open_sizes else shape), tensor("b", sizes)],
            [tensor("y", (None,) * 5)],
        )
        random = np.random.default_rng(1)
        feeds = {name: random.standard_normal(of).astype(np.float32) for name, of in (("x", shape), ("b", sizes))}
        theirs = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
        (ours,), (expected,) = InferenceSession(data).run(None, feeds), theirs.run(None, feeds)
        np.testing.assert_allclose(ours, expected, 1e-5, 1e-6)


def onnxruntime_output(operator: str, shape: tuple[int, ...], case: dict[str, Any]) -> np.ndarray:
    data = model([node(operator, ["x"], ["y"], **case)], [tensor("x", shape)], [tensor("y", (None,) * 5)])
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": np.zeros(shape, np.float32)})[0]
