"""Models in onnxruntime's own format give what they give in ONNX's."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import numpy_helper

import jitonnx

RNG = np.random.default_rng(0)


def model(text: str, **initializers: Any) -> bytes:
    made = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 18, "ai.onnx.ml": 3], {text}')
    made.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), k) for k, v in initializers.items())
    return bytes(made.SerializeToString())


def converted(source: bytes, path: Path, level: int = 1, style: str = "") -> str:
    """The path of what onnxruntime writes in its format."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel(level)
    options.optimized_model_filepath = str(path)
    options.log_severity_level = 4
    options.add_session_config_entry("session.save_model_format", "ORT")
    if style:
        options.add_session_config_entry("optimization.minimal_build_optimizations", style)
    onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    return str(path)


BRANCHES = (
    model(
        """producer_name: "me", metadata_props: ["k": "v"]>
        g (float[N,100] x, bool c) => (float[N,100] y, float[N,100] z) {
            a = MatMul(x, w) b = Add(a, bias) y = Relu(b)
            z = If(c) <then_branch = t () => (float[N,100] q) { q = Mul(y, two) },
                       else_branch = e () => (float[N,100] r) { r = Clip(x, , high) }> }""",
        w=RNG.standard_normal((100, 100)).astype(np.float32) / 10,
        bias=np.ones(100, np.float32),
        two=np.full(100, 2, np.float32),
        high=np.float32(0.5),
    ),
    {"x": RNG.standard_normal((3, 100)).astype(np.float32), "c": np.array(True)},
)
TEXTS = (
    model(
        """producer_name: "me"> g (string[N] x) => (int64[N] y, string[N] s) {
            y = ai.onnx.ml.LabelEncoder<keys_strings=["a", "b"], values_int64s=[5, 6], default_int64=-1>(x)
            s = ai.onnx.ml.LabelEncoder<keys_strings=["a"], values_strings=["ü"]>(x) }"""
    ),
    {"x": np.array(["a", "b", "c"], object)},
)
SEQUENCES = (
    model(
        """producer_name: "me"> g (float[6,2] x) => (seq(float[k,2]) y, float[m] z) {
            y = SplitToSequence<axis=0>(x, parts) s = ReduceSum<keepdims=0>(x, one) z = LeakyRelu<alpha=0.25>(s) }""",
        parts=np.array([2, 4], np.int64),
        one=np.array([1], np.int64),
    ),
    {"x": RNG.standard_normal((6, 2)).astype(np.float32)},
)
MODELS = {"branches": BRANCHES, "texts": TEXTS, "sequences": SEQUENCES}


def flat(outputs: list[Any]) -> list[np.ndarray]:
    return [array for output in outputs for array in (output if isinstance(output, list) else [output])]


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_results(name: str, level: int, tmp_path: Path) -> None:
    source, feeds = MODELS[name]
    path = converted(source, tmp_path / "m.ort", level)
    theirs = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for given in (path, Path(path).read_bytes()):
        ours = jitonnx.InferenceSession(given)
        for method in ("get_inputs", "get_outputs"):
            told = [[(one.name, one.type, one.shape) for one in getattr(each, method)()] for each in (theirs, ours)]
            if name != "sequences":
                assert told[0] == told[1]
        assert ours.get_modelmeta().producer_name == "me"
        assert ours.get_modelmeta().custom_metadata_map == theirs.get_modelmeta().custom_metadata_map
        for expected, found in zip(flat(theirs.run(None, feeds)), flat(ours.run(None, feeds)), strict=True):
            if expected.dtype == object:
                assert found.tolist() == expected.tolist()
            else:
                np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_rewrites_for_the_start_are_refused(tmp_path: Path) -> None:
    source = model(
        'producer_name: "me"> g (float[1,3,8,8] x) => (float[a,b,c,d] y) { t = Conv(x, w) y = Relu(t) }',
        w=np.ones((4, 3, 3, 3), np.float32),
    )
    path = converted(source, tmp_path / "m.ort", 2, "save")
    with pytest.raises(jitonnx.Error, match=r"leaves rewrites to onnxruntime's start \(ConvActivationFusion\)"):
        jitonnx.InferenceSession(path)


def test_a_format_that_is_asked_for(tmp_path: Path) -> None:
    source, feeds = BRANCHES
    path = converted(source, tmp_path / "m.ort")
    options = jitonnx.SessionOptions()
    options.add_session_config_entry("session.load_model_format", "ORT")
    assert len(jitonnx.InferenceSession(path, options).run(None, feeds)) == 2
    with pytest.raises(jitonnx.Error, match="no model in onnxruntime's format"):
        jitonnx.InferenceSession(source, options)
    options.add_session_config_entry("session.load_model_format", "ONNX")
    with pytest.raises(jitonnx.Error, match="protobuf parsing failed"):
        jitonnx.InferenceSession(path, options)


def test_broken_files(tmp_path: Path) -> None:
    """Whatever the bytes are, there is an error of ours or a model."""
    data = Path(converted(BRANCHES[0], tmp_path / "m.ort")).read_bytes()
    draw = random.Random(0)
    for number in range(60):
        broken = bytearray(data)
        if number % 3 == 0:
            del broken[draw.randrange(8, len(broken)) :]
        else:
            for _ in range(draw.choice((1, 4, 30))):
                broken[draw.randrange(8, 1500)] = draw.randrange(256)
        try:
            jitonnx.InferenceSession(bytes(broken))
        except jitonnx.Error as error:
            assert "Bug:" not in str(error)
