"""The onnx package's own node tests: each model evaluated, rewritten and evaluated again, and run by a session.

These models are written by the people who write the standard, one or more an operator and version: operators in their
plainest use, and functions spelled out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from jitonnx import InferenceSession
from jitonnx.engine.interpreter import evaluate
from jitonnx.ir.dtypes import of_numpy
from jitonnx.model import load
from jitonnx.passes import optimize
from tests.models.node_tests import ALIGNED, by_onnxruntime, node_tests

DRAWN = "test_bernoulli"
"""What these tests' names begin with: their expected values were drawn at random, as an example (so ONNX's comment)."""

NO_OWN: Mapping[str, float] = {}
REWRITTEN = {"": 1e-4, "bfloat16": 2e-2, "float16": 2e-3}
"""Tolerances behind rewrites: what is recognised rounds once where what it stands for rounds at each step."""
COMPILED = {"bfloat16": 0.05, "float16": 0.05}
"""The same for compiled code, where more is fused."""


def values(given: Any) -> list[Any]:
    """Values of a test as jitonnx has them: arrays, lists for sequences, None for an optional without a value."""
    return [_value(value) for value in given]


def _value(value: Any) -> Any:
    if isinstance(value, onnx.SequenceProto):
        return numpy_helper.to_list(value)
    if isinstance(value, onnx.OptionalProto):
        return numpy_helper.to_optional(value)
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


@pytest.mark.parametrize("name", sorted(node_tests()))
def test_node(name: str) -> None:
    test = node_tests()[name]
    data = test.model.SerializeToString()
    graph, rewritten, session = load(data).graph, load(data).graph, InferenceSession(data)
    optimize(rewritten, verify_fully=True)
    for inputs, outputs in by_onnxruntime(test) if name in ALIGNED else test.data_sets:
        feeds = dict(zip((value.name for value in test.model.graph.input), values(inputs), strict=False))
        if name.startswith(DRAWN):
            for results in (evaluate(graph, feeds), evaluate(rewritten, feeds), session.run(None, feeds)):
                assert_drawn(results, values(outputs))
            continue
        wanted, evaluated = values(outputs), evaluate(graph, feeds)
        assert_close(evaluated, wanted, test)
        assert_close(evaluate(rewritten, feeds), evaluated, test, REWRITTEN)
        assert_close(session.run(None, feeds), wanted, test, COMPILED)


def assert_drawn(results: Any, expected: list[Any]) -> None:
    """AssertionError unless results have the expected types and shapes, and consist of zeros and ones."""
    for result, value in zip(results, expected, strict=True):
        assert (result.dtype, result.shape) == (value.dtype, value.shape)
        assert set(np.unique(result)) <= {0, 1}


def assert_close(result: Any, expected: Any, test: Any, tolerances: Mapping[str, float] = NO_OWN) -> None:
    """AssertionError unless two values are alike; of sequences, element by element.

    tolerances: by type, relative and absolute, "" for others; else those of the test, or a step of a narrow type.
    """
    if expected is None:
        assert result is None
        return
    if isinstance(expected, list):
        assert isinstance(result, list | tuple)
        for one, other in zip(result, expected, strict=True):
            assert_close(one, other, test, tolerances)
        return
    result, expected = np.asarray(result), np.asarray(expected)
    assert result.shape == expected.shape and of_numpy(result.dtype) is of_numpy(expected.dtype)
    dtype = of_numpy(expected.dtype)
    if not dtype.is_float and expected.dtype.kind != "c":
        np.testing.assert_array_equal(result, expected)
        return
    rtol = {1: 0.15, 2: 2e-2}.get(dtype.itemsize, test.rtol)
    atol = max(test.atol, rtol * 1e-2)
    own = tolerances.get(expected.dtype.name, tolerances.get(""))
    if own is not None:
        rtol = atol = own
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    np.testing.assert_allclose(result.astype(wide), expected.astype(wide), rtol, atol)
