"""Convolutions to few channels in whole models: fixed and open sizes, in front of and behind other kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnxruntime
import pytest
from onnx import numpy_helper, parser

import jitonnx
from jitonnx.ir.computation.lowering import lower
from jitonnx.model import load
from jitonnx.passes.pipeline import optimize
from jitonnx.plan.make import make_plan
from tests.targets import named


def model(body: str, shape: Sequence[int | str], **weights: np.ndarray) -> bytes:
    """The function y of x that `body` computes."""
    signature = f"(float[{', '.join(map(str, shape))}] x) => (float[] y)"
    made = parser.parse_model(f'<ir_version: 9, opset_import: ["": 18]> g {signature} {{ {body} }}')
    made.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    made.graph.output[0].CopyFrom(type(made.graph.output[0])(name="y"))
    made.graph.output[0].type.tensor_type.elem_type = 1
    return made.SerializeToString()


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


MODELS = {
    "decoder": (
        "a = Conv(x, v) b = Relu(a) c = ConvTranspose<strides=[2,2], pads=[1,1,1,1]>(b, w, s) y = Sigmoid(c)",
        {"v": normal(20, 5, 1, 1), "w": normal(20, 3, 4, 4) / 9, "s": normal(3)},
        [("n", 5, "h", "w"), (1, 5, 9, 20), (2, 5, 3, 41)],
    ),
    "residual": (
        "a = LeakyRelu<alpha=0.1>(x) b = Conv<pads=[6,6], dilations=[3]>(a, w, s) y = Add(b, x)",
        {"w": normal(2, 2, 5) / 4, "s": normal(2)},
        [("n", 2, "l"), (1, 2, 500), (3, 2, 7)],
    ),
    "between": (
        "a = Conv<pads=[1,1,1,1]>(x, v) b = Conv<pads=[1,1,1,1]>(a, w) y = Conv<pads=[1,1,1,1]>(b, u)",
        {"v": normal(24, 3, 3, 3) / 5, "w": normal(2, 24, 3, 3) / 9, "u": normal(20, 2, 3, 3) / 4},
        [("n", 3, "h", "w"), (1, 3, 12, 40), (2, 3, 5, 19)],
    ),
    "upsampling": (
        "y = ConvTranspose<group=6, strides=[2,2], pads=[1,1,1,1], output_padding=[1,0]>(x, w)",
        {"w": normal(6, 1, 4, 4)},
        [("n", 6, "h", "w"), (1, 6, 9, 20), (2, 6, 3, 41)],
    ),
    "vocoder": (
        "a = ConvTranspose<strides=[8], pads=[4,4]>(x, w) b = Conv<pads=[3,3], group=8>(a, v) y = Tanh(b)",
        {"w": normal(16, 8, 16) / 9, "v": normal(8, 1, 7) / 3},
        [("n", 16, "l"), (1, 16, 33), (2, 16, 5)],
    ),
}


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_as_onnxruntime(name: str, fixed: bool) -> None:
    body, weights, (shape, *sizes) = MODELS[name]
    for given in (sizes[:1], sizes[1:]) if fixed else (sizes,):
        data = model(body, given[0] if fixed else shape, **weights)
        session = jitonnx.InferenceSession(data)
        other = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
        for size in given:
            x = np.random.default_rng(1).normal(size=size).astype(np.float32)
            (y,), (expected,) = session.run(None, {"x": x}), other.run(None, {"x": x})
            np.testing.assert_allclose(y, expected, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("cpu", ["x86-64-v4", "haswell", "neoverse-n1"])
def test_where(cpu: str) -> None:
    """To 1 and 3 channels on all CPUs; to 8 where vectors have more lanes than that."""
    for outputs, chosen in ((1, True), (3, True), (8, cpu == "x86-64-v4")):
        graph = load(model("y = Conv<pads=[1,1,1,1]>(x, w)", (1, 6, 30, 64), w=normal(outputs, 6, 3, 3))).graph
        optimize(graph, 99)
        reasons = [call.reason for call in make_plan(lower(graph), named(cpu)).calls]
        assert any("vectors of pixels" in reason for reason in reasons) == chosen, outputs
