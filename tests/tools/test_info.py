"""`jitonnx info`: what a file says of its model, and what a run costs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from jitonnx.tools import demo, info
from jitonnx.tools.cli import main
from jitonnx.versioning import pack_semver
from tests.session import models
from tests.tools.test_cli import call


def product(tmp_path: Path) -> str:
    """y = relu(twice(x @ w)) + 0.5 where a function says what twice is; x is [N, 8] or [N, "K"]."""
    w = numpy_helper.from_array(np.ones((8, 16), np.float32), "w")
    half = numpy_helper.from_array(np.array(0.5, np.float32), "half")
    twice = helper.make_function("local", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])],
                                 [helper.make_opsetid("", 13)])  # fmt: skip
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Twice", ["m"], ["t"], domain="local"),
        helper.make_node("Relu", ["t"], ["r"]),
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.ones(16, np.float32))),
        helper.make_node("Mul", ["r", "c"], ["s"]),
        helper.make_node("Add", ["s", "half"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 8], "the rows"),
              helper.make_tensor_value_info("half", TensorProto.FLOAT, [])]  # fmt: skip
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 16])]
    graph = helper.make_graph(nodes, "body", inputs, outputs, [w, half], doc_string="of the graph")
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("local", 1)]
    made = helper.make_model(graph, opset_imports=opsets, functions=[twice], ir_version=10, producer_name="tests",
                             producer_version="7", domain="org.example", doc_string="two\nlines",
                             model_version=pack_semver(1, 2, 3))  # fmt: skip
    helper.set_model_props(made, {"model_author": "A. Writer", "model_license": "MIT"})
    path = tmp_path / "product.onnx"
    path.write_bytes(made.SerializeToString())
    return str(path)


@pytest.mark.conformance("metadata")
def test_all_metadata(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = product(tmp_path)
    content = json.loads(call(capsys, "info", path, "--json", "--dim", "N=10"))
    work = content.pop("work")
    assert content.pop("file_bytes") == Path(path).stat().st_size
    inputs, outputs, operators = (content.pop(name) for name in ("inputs", "outputs", "operators"))
    assert content == {
        "model": path,
        "ir_version": 10,
        "producer_name": "tests",
        "producer_version": "7",
        "domain": "org.example",
        "model_version": 0x1000200000003,
        "semver": "1.2.3",
        "doc_string": "two\nlines",
        "graph_name": "body",
        "graph_doc_string": "of the graph",
        "metadata": {"model_author": "A. Writer", "model_license": "MIT"},
        "opsets": {"": 20, "local": 1},
        "nodes": 7,
        "functions": ["local:Twice"],
        "training_infos": 0,
        "parameters": {"tensors": 2, "elements": 129, "bytes": 516, "types": {"float": 129}},
        "constants": {"tensors": 1, "elements": 16, "bytes": 64, "types": {"float": 16}},
        "external_files": [],
    }
    assert inputs == [
        {"name": "x", "type": "tensor(float)", "shape": ["N", 8], "has_default": False, "doc_string": "the rows"},
        {"name": "half", "type": "tensor(float)", "shape": [], "has_default": True, "doc_string": ""},
    ]
    assert [(each["name"], each["shape"]) for each in outputs] == [("y", ["N", 16])]
    found = {(each["domain"], each["name"], each["version"]): each["nodes"] for each in operators}
    assert found == {("", name, version): count for name, version, count in (
        ("Add", 14, 1), ("Add", 13, 1), ("MatMul", 13, 1), ("Relu", 14, 1), ("Mul", 14, 1), ("Constant", 19, 1),
    )} | {("local", "Twice", None): 1}  # fmt: skip
    assert [each["name"] for each in operators if each["is_function"]] == ["Twice"]
    assert work["shapes"] == {"x": [10, 8]} and work["assumed"] == [] and work["notes"] == []
    assert 2 * 10 * 8 * 16 <= work["flops"] <= 2 * 10 * 8 * 16 + 10 * 16 * 8


@pytest.mark.conformance("metadata")
def test_as_text(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = call(capsys, "info", product(tmp_path))
    for part in ("tests 7", "org.example", "(1.2.3)", "two\n               lines", "of the graph", "model_license: MIT",
                 "ai.onnx 20, local 1", "local:Twice", "129 in 2 tensors, 516 B (float 129)", "[N, 8]", "has a default",
                 "FLOP for x [1, 8]", "taken as 1: N; set with --dim"):  # fmt: skip
        assert part in text, part
    assert "FLOP" not in call(capsys, "info", product(tmp_path), "--file")
    assert "FLOP for x [4, 8]" in call(capsys, "info", product(tmp_path), "--shape", "x=4,8")
    assert main(["info", product(tmp_path), "--dim", "M=4"]) == 1
    assert "the model has no dimension 'M'" in capsys.readouterr().err


def test_flops_of_products_and_convolutions() -> None:
    """Those of the textbook, whichever algorithm runs."""
    x, w = models.tensor("x", ("N", 3, 32, 32)), np.ones((16, 3, 3, 3), np.float32)
    nodes = [models.node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])]
    data = models.model(nodes, [x], [models.tensor("y", None)], {"w": w})
    for batch in (1, 5):
        assert info.work_of(data, dimensions={"N": batch}).flops == 2 * batch * 16 * 32 * 32 * 27
    assert info.work_of(demo.model_path()).flops > 100_000


def test_what_is_left_out() -> None:
    x = models.tensor("x", (6,))
    nodes = [
        models.node("NonZero", ["x"], ["n"]),
        models.node("Cast", ["n"], ["f"], to=1),
        models.node("Exp", ["f"], ["y"]),
    ]
    work = info.work_of(models.model(nodes, [x], [models.tensor("y", None)]))
    assert any("only a run tells" in note for note in work.notes)


def test_models_that_no_session_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "other.onnx"
    made = onnx.ModelProto.FromString(models.relu_add())
    made.graph.node[0].op_type = "Rectify"
    path.write_bytes(made.SerializeToString())
    text = call(capsys, "info", str(path))
    assert "not known" in text and "Rectify" in text
    content = json.loads(call(capsys, "info", str(path), "--json"))
    assert "Rectify" in content["work"]["error"]
    assert {"domain": "", "name": "Rectify", "version": None, "nodes": 1, "is_function": False} in content["operators"]
    path.write_bytes(b"")
    assert main(["info", str(path)]) == 1
    assert "No graph was found" in capsys.readouterr().err
