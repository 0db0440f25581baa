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
