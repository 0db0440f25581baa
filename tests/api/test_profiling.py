"""Profiles: a line an event, the model's operators by their names, however the code is made."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx.parser
import onnxruntime
import pytest

import jitonnx

MODEL = onnx.parser.parse_model(
    """<ir_version: 10, opset_import: ["": 18]> g (float[N,4] x) => (float[N,4] y) {
        [p] a = MatMul(x, w) [s] c = Softmax(a) [n] d = Neg(c) [e] e = Exp(d) [q] y = MatMul(e, w) }"""
)
MODEL.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((4, 4), np.float32), "w"))


def profile(package: ModuleType, folder: Path, name: str) -> list[dict[str, Any]]:
    options = package.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(folder / name)
    session = package.InferenceSession(MODEL.SerializeToString(), options, providers=["CPUExecutionProvider"])
    session.run(None, {"x": np.ones((3, 4), np.float32)})
    text = Path(session.end_profiling()).read_text()
    events: list[dict[str, Any]] = json.loads(text)
    assert all(line.startswith('{"cat"') for line in text.splitlines()[1 : 1 + len(events)])
    return [event for event in events if event["cat"] == "Node"]


def test_operators_of_nodes(tmp_path: Path) -> None:
    theirs = {event["name"]: event["args"]["op_name"] for event in profile(onnxruntime, tmp_path, "theirs")}
    ours = profile(jitonnx, tmp_path, "ours")
    alone = {event["name"]: event["args"]["op_name"] for event in ours if "," not in event["args"]["nodes"]}
    assert {"p_kernel_time", "s_kernel_time", "q_kernel_time"} <= set(alone)
    assert all(theirs[name] == operator for name, operator in alone.items())
    (several,) = (event["args"] for event in ours if "," in event["args"]["nodes"])
    assert (several["nodes"], several["operators"]) == ("n, e", "Neg, Exp") and several["kernel"] == several["op_name"]


@pytest.mark.parametrize("bound", [False, True])
def test_shapes_that_need_a_plan_of_their_own(bound: bool, tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 18]> g (float[N] x, float[M] z) => (float[K] y) { y = Add(x, z) }'
    )
    options = jitonnx.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "p")
    session = jitonnx.InferenceSession(model, options)
    for sizes in ((3, 3), (1, 4), (5, 5)):
        feeds = {name: np.ones(size, np.float32) for name, size in zip("xz", sizes, strict=True)}
        if bound:
            binding = session.io_binding()
            for name, value in feeds.items():
                binding.bind_cpu_input(name, value)
            binding.bind_output("y")
            session.run_with_iobinding(binding)
        else:
            session.run(None, feeds)
    events = json.loads(Path(session.end_profiling()).read_text())
    assert [event["args"]["op_name"] for event in events if event["cat"] == "Node"] == ["Add"] * 3
