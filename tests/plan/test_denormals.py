"""Denormal numbers in constants of products, which are taken for 0, and what looks for them."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import jitonnx
from jitonnx.plan.denormals import has_denormals

FLOATS = (np.float32, np.float64)


@pytest.mark.parametrize("kind", FLOATS)
def test_what_is_denormal(kind: Any) -> None:
    least = np.finfo(kind).tiny
    for normal in (0.0, -0.0, 1.0, -least, least, np.inf, -np.inf, np.nan):
        assert not has_denormals(np.array([1, normal, 2], kind)), normal
    for denormal in (np.finfo(kind).smallest_subnormal, np.nextafter(least, kind(0))):
        for sign in (1, -1):
            assert has_denormals(np.array([0, sign * denormal], kind)), denormal
            assert has_denormals(np.array(sign * denormal, kind)), "of rank 0"
    assert not has_denormals(np.zeros((0, 3), kind))
    many = np.ones((3, 50_000), kind)
    many[2, -1] = np.finfo(kind).smallest_subnormal
    assert has_denormals(many) and has_denormals(many[:, ::-7].T) == bool((many[:, ::-7] < least).any())


def _model(node: onnx.NodeProto, constants: dict[str, np.ndarray], shape: list[int]) -> bytes:
    kind = helper.np_dtype_to_tensor_dtype(next(iter(constants.values())).dtype)
    graph = helper.make_graph(
        [node],
        "denormals",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def _decayed(rng: np.random.Generator, kind: Any, *shape: int) -> np.ndarray:
    """Weights, half of which are denormal."""
    weights = rng.standard_normal(shape).astype(kind)
    return np.where(rng.random(shape) < 0.5, weights * np.finfo(kind).tiny / 64, weights).astype(kind)


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("operator", ["MatMul", "Gemm", "Conv", "Conv, depthwise", "ConvTranspose", "LSTM"])
def test_products_take_them_for_zeros(operator: str, kind: Any) -> None:
    """Numbers as large as the others make what the denormal weights add visible."""
    rng = np.random.default_rng(3)
    name, _, depthwise = operator.partition(", ")
    shapes = {
        "MatMul": ([5, 40], [40, 24]),
        "Gemm": ([5, 40], [40, 24]),
        "Conv": ([1, 16, 9, 11], [16, 16, 3, 3]),
        "ConvTranspose": ([1, 16, 9, 11], [16, 8, 3, 3]),
        "LSTM": ([4, 2, 8], [1, 64, 8]),
    }
    shape, weights_shape = shapes[name]
    if depthwise:
        weights_shape = [16, 1, 3, 3]
    constants = {"w": _decayed(rng, kind, *weights_shape)}
    attributes: dict[str, Any] = {"group": 16} if depthwise else {}
    if name == "LSTM":
        constants["r"], attributes = _decayed(rng, kind, 1, 64, 16), {"hidden_size": 16}
    session = jitonnx.InferenceSession(
        _model(helper.make_node(name, ["x", *constants], ["y"], **attributes), constants, shape)
    )
    flushed = {key: np.where(np.abs(w) < np.finfo(kind).tiny, 0, w).astype(kind) for key, w in constants.items()}
    other = jitonnx.InferenceSession(
        _model(helper.make_node(name, ["x", *flushed], ["y"], **attributes), flushed, shape)
    )
    x = rng.standard_normal(shape).astype(kind) * kind(np.finfo(kind).max ** 0.25)
    (found,), (expected,) = session.run(None, {"x": x}), other.run(None, {"x": x})
    np.testing.assert_array_equal(found, expected)


def test_others_keep_them() -> None:
    """A factor that is denormal is a number as others."""
    small = np.array([1e-40, 1], np.float32)
    node = helper.make_node("Mul", ["x", "w"], ["y"])
    x = np.array([1e3, 1], np.float32)
    (y,) = jitonnx.InferenceSession(_model(node, {"w": small}, [2])).run(None, {"x": x})
    np.testing.assert_array_equal(y, small * x)
    assert y[0] > 0
