"""Long sums of float32 stay exact: products and convolutions add up chains of `tuning.SUM_STEPS` products."""

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

import jitonnx
from jitonnx.target import tuning

TENTH = np.float32(0.1)
KINDS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "rows": ((20, 20_000), (20_000, 24), {}),
    "one row": ((1, 20_000), (20_000, 24), {}),
    "pixels": ((1, 5_000, 3, 3), (32, 5_000, 1, 1), {}),
    "taps": ((1, 1_000, 9, 9), (32, 1_000, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "far taps": ((1, 1_500, 9, 9), (32, 1_500, 3, 3), {"dilations": [6, 6], "pads": [6, 6, 6, 6]}),
    "few channels": ((1, 3, 70, 70), (32, 3, 64, 64), {"strides": [2, 2]}),
    "few outputs": ((1, 1_000, 20, 20), (2, 1_000, 3, 3), {}),
    "one axis": ((1, 1_000, 40), (32, 1_000, 9), {}),
    "groups": ((1, 2_048, 9, 9), (64, 1_024, 3, 3), {"group": 2}),
    "spread": ((1, 2_000, 5, 5), (2_000, 32, 3, 3), {"strides": [2, 2]}),
}


def session(x: np.ndarray, weights: np.ndarray, options: dict[str, Any], settings: dict[str, str]) -> Any:
    """A model of one product or convolution with constant weights."""
    operator = "MatMul" if x.ndim == 2 else "ConvTranspose" if len(weights) == x.shape[1] else "Conv"
    node = helper.make_node(operator, ["x", "w"], ["y"], **options)
    info = helper.make_tensor_value_info("x", 1, x.shape), helper.make_tensor_value_info("y", 1, None)
    graph = helper.make_graph([node], "sums", info[:1], info[1:], [numpy_helper.from_array(weights, "w")])
    given = jitonnx.SessionOptions()
    for key, value in settings.items():
        given.add_session_config_entry(key, value)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return jitonnx.InferenceSession(model.SerializeToString(), given)


@pytest.mark.parametrize(
    ("kind", "cpu"), [*((kind, "host") for kind in KINDS), *((kind, "haswell") for kind in ("rows", "taps", "spread"))]
)
def test_equal_products(kind: str, cpu: str) -> None:
    """The error is one of a chain and of the sum of chains. A sum of equal products in one chain is rounded in the same
    direction again and again: 20,000 of 0.1 are wrong by 1e-4."""
    shape, weights, options = KINDS[kind]
    run = session(np.empty(shape), np.ones(weights, np.float32), options, {"jitonnx.cpu": cpu, "jitonnx.winograd": "0"})
    counts = run.run(None, {"x": np.ones(shape, np.float32)})[0].astype(np.float64)
    found = run.run(None, {"x": np.full(shape, TENTH)})[0].astype(np.float64)
    long = counts > 4 * tuning.SUM_STEPS
    assert long.any()
    exact = counts[long] * float(TENTH)
    steps = 2 * tuning.SUM_STEPS + counts[long] / tuning.SUM_STEPS + 16  # chains end at whole blocks of 16 channels
    assert (np.abs(found[long] - exact) / exact <= steps * 2.0**-24).all()


def test_winograd() -> None:
    """Transforms enlarge errors, of 1,024 channels in one chain to 5e-6 of the largest sum."""
    rng = np.random.default_rng(0)
    x = np.maximum(rng.standard_normal((1, 1024, 14, 14), np.float32), 0)
    w = rng.standard_normal((32, 1024, 3, 3), np.float32)
    found = session(x, w, {}, {}).run(None, {"x": x})[0].astype(np.float64)
    windows = np.lib.stride_tricks.sliding_window_view(x[0].astype(np.float64), (3, 3), (1, 2))
    exact = np.einsum("chwij,ocij->ohw", windows, w.astype(np.float64), optimize=True)
    assert np.abs(found[0] - exact).max() <= 2.5e-6 * np.abs(exact).max()


@pytest.mark.parametrize("queries", [40, 4, 1])
def test_attention(queries: int) -> None:
    """Of equal scores, the mean of 20,000 equal values is that value."""
    sizes = {"q": queries, "k": 20_000, "v": 20_000}
    node = helper.make_node("Attention", list(sizes), ["y"])
    feeds = {name: np.full((1, 1, size, 16), 0 if name == "q" else TENTH, np.float32) for name, size in sizes.items()}
    inputs = [helper.make_tensor_value_info(name, 1, feed.shape) for name, feed in feeds.items()]
    graph = helper.make_graph([node], "sums", inputs, [helper.make_tensor_value_info("y", 1, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    (found,) = jitonnx.InferenceSession(model.SerializeToString()).run(None, feeds)
    steps = 4 * tuning.SUM_STEPS + sizes["k"] / tuning.SUM_STEPS
    assert np.abs(found.astype(np.float64) / float(TENTH) - 1).max() <= steps * 2.0**-24
