"""The onnx package's own node tests, made when they are first asked for: importing should not take seconds."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

from onnx.backend.test.loader import load_model_tests

ALIGNED = {f"test_resize_downsample_scales_{mode}_align_corners" for mode in ("cubic", "linear")}
"""The reference that made what these store takes 0.6 * 4 = 2.4 for the length of a result of two elements, so that its
last corner is not aligned; by onnxruntime it is, as by ONNX's text ("length_resized: length of the resized tensor")."""


def by_onnxruntime(test: Any) -> list[tuple[list[Any], list[Any]]]:
    """Inputs of a test, and what onnxruntime makes of them."""
    import onnxruntime

    session = onnxruntime.InferenceSession(test.model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    given = [list(inputs) for inputs, _ in test.data_sets]
    return [(inputs, session.run(None, dict(zip(names, inputs, strict=True)))) for inputs in given]


@cache
def node_tests() -> dict[str, Any]:
    """All of them, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # making the cases overflows on purpose here and there
        return {test.name: test for test in load_model_tests(kind="node")}
