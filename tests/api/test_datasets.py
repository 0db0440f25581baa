"""The models that onnxruntime's package comes with."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnxruntime import datasets

import jitonnx


@pytest.mark.parametrize("name", ["logreg_iris.onnx", "mul_1.onnx", "sigmoid.onnx"])
def test_examples(name: str) -> None:
    path = datasets.get_example(name)
    results = []
    for package in (onnxruntime, jitonnx):
        session = package.InferenceSession(path, providers=["CPUExecutionProvider"])
        (given,) = session.get_inputs()
        x = np.linspace(-1, 5, int(np.prod(given.shape)), dtype=np.float32).reshape(given.shape)
        results.append(session.run(None, {given.name: x}))
    for theirs, ours in zip(*results, strict=True):
        if isinstance(theirs, list):  # of probabilities by class
            theirs, ours = ([list(row.values()) for row in rows] for rows in (theirs, ours))
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
