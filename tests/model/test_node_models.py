"""The onnx package's own node tests, as far as their operators are declared: loaded, evaluated, compared.

These models are written by the people who write the standard, one or more an operator and version.
"""

import warnings
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

from jitonnx.errors import NotImplemented
from jitonnx.ir.dtypes import of_numpy
from jitonnx.model import Model, evaluate, load

UNDECLARED = "Could not find an implementation for operators of the model"
FLOOR = 1500
"""Fewer cases than this mean that something keeps models from being loaded."""
DISPUTED = {
    "test_resize_downsample_scales_linear_align_corners": "takes the size before rounding, onnxruntime the one after",
    "test_resize_downsample_scales_cubic_align_corners": "the same",
}
"""Expected values that onnxruntime, too, does not reproduce."""


@cache
def node_tests() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # making the cases overflows on purpose here and there
        return {test.name: test for test in load_model_tests(kind="node")}


@cache
def loaded(name: str) -> Model | None:
    """The model of a test; None if it uses an operator that is not declared."""
    test = node_tests()[name]
    try:
        return load(test.model)
    except NotImplemented as error:
        if UNDECLARED in str(error):
            return None
        raise


def arrays(values: Any) -> list[Any]:
    """Values of a test as jitonnx has them: arrays, lists for sequences, None for an optional without a value."""
    return [_value(value) for value in values]


def _value(value: Any) -> Any:
    if isinstance(value, onnx.SequenceProto):
        return numpy_helper.to_list(value)
    if isinstance(value, onnx.OptionalProto):
        return numpy_helper.to_optional(value)
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


@pytest.mark.parametrize("name", sorted(set(node_tests()) - set(DISPUTED)))
def test_node(name: str) -> None:
    model = loaded(name)
    if model is None:
        return
    test = node_tests()[name]
    for inputs, outputs in test.data_sets:
        feeds = dict(zip((value.name for value in test.model.graph.input), arrays(inputs), strict=False))
        for result, expected in zip(evaluate(model.graph, feeds), arrays(outputs), strict=True):
            assert_close(result, expected, test)


def assert_close(result: Any, expected: Any, test: Any) -> None:
    """AssertionError unless two values are alike: of sequences, element by element."""
    if expected is None:
        assert result is None
        return
    if isinstance(expected, list):
        assert isinstance(result, list) and len(result) == len(expected)
        for one, other in zip(result, expected, strict=True):
            assert_close(one, other, test)
        return
    result, expected = np.asarray(result), np.asarray(expected)
    assert result.shape == expected.shape and of_numpy(result.dtype) is of_numpy(expected.dtype)
    dtype = of_numpy(expected.dtype)
    if not dtype.is_float and expected.dtype.kind != "c":
        np.testing.assert_array_equal(result, expected)
        return
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    rtol = {1: 0.15, 2: 2e-2}.get(dtype.itemsize, test.rtol)  # a step of the narrow types is that large
    np.testing.assert_allclose(result.astype(wide), expected.astype(wide), rtol, max(test.atol, rtol * 1e-2))


def test_most_of_them_are_covered() -> None:
    assert sum(loaded(name) is not None for name in node_tests()) >= FLOOR
