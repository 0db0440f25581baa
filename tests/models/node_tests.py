"""The onnx package's own node tests, made when they are first asked for: importing should not take seconds."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

from onnx.backend.test.loader import load_model_tests


@cache
def node_tests() -> dict[str, Any]:
    """All of them, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # making the cases overflows on purpose here and there
        return {test.name: test for test in load_model_tests(kind="node")}
