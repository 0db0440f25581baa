"""`check_model`, `jitonnx check` and reports: places, severities, hints, and what a session makes of it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import jitonnx
from jitonnx.model.checker import Finding, check_model
from jitonnx.model.checker.report import KEPT
from jitonnx.tools.cli import main
from tests.model.models import add_model, model_of, tensor_input


def relu(source: str, target: str, name: str = "") -> onnx.NodeProto:
    return helper.make_node("Relu", [source], [target], name=name)


def found(model: onnx.ModelProto, rule: str) -> Finding:
    """The one finding of a rule."""
    (finding,) = (each for each in check_model(model) if each.rule == rule)
    return finding


def test_a_model_without_faults() -> None:
    model = add_model()
    model.domain = "org.example"
    model.graph.output[0].type.CopyFrom(tensor_input("y").type)
    assert len(check_model(model)) == 0


def test_all_faults_are_told_of() -> None:
    nodes = [relu("x", "y"), relu("hiden", "z"), helper.make_node("Foo", ["x"], ["w"]), relu("y", "hidden", "last")]
    nodes[0].attribute.append(helper.make_attribute("slope", 1.0))
    report = check_model(model_of(nodes, ["x", "x"], ["nothing"]))
    rules = {finding.rule for finding in report if finding.severity == "error"}
    assert rules >= {"names.undefined", "operators.unknown", "signature.attributes", "names.twice", "names.output"}
    assert report.refused and report.errors >= 5


def test_a_place_in_a_nested_graph() -> None:
    inner = helper.make_graph([relu("hiden", "r", "deep")], "body", [], [onnx.ValueInfoProto(name="r")])
    node = helper.make_node("If", ["c"], ["y"], name="choice", then_branch=inner, else_branch=inner)
    model = model_of([relu("x", "hidden"), node], ["x", tensor_input("c", (), onnx.TensorProto.BOOL)], ["y"])
    first = next(each for each in check_model(model) if each.rule == "names.undefined")
    assert first.place.graph == "graph 'g' / If node 1 'choice' / else_branch"
    assert (first.place.node, first.place.number, first.place.value) == ("deep", 0, "hiden")
    assert first.hint == "did the exporter mean 'hidden'?"
    with pytest.raises(
        jitonnx.errors.InvalidArgument, match=r"'hiden'.*graph 'g' / If node 1 'choice' / else_branch, nod"
    ):
        jitonnx.InferenceSession(model.SerializeToString())


def test_types_of_all_nodes_are_looked_at() -> None:
    """Behind a node that cannot be built the checker goes on."""
    nodes = [
        helper.make_node("Add", ["x", "i"], ["a"], name="first"),
        relu("a", "b"),
        helper.make_node("Add", ["x", "i"], ["c"], name="second"),
    ]
    model = model_of(nodes, ["x", tensor_input("i", dtype=onnx.TensorProto.INT64)], ["b", "c"])
    assert [each.place.node for each in check_model(model) if each.rule == "build"] == ["first", "second"]


def test_declarations_that_contradict_what_is_inferred() -> None:
    model = model_of([relu("x", "h"), relu("h", "y")], ["x"], ["y"])
    model.graph.value_info.append(tensor_input("h", (7,)))
    assert found(model, "shapes.mismatch").severity == "warning"
    model.graph.value_info[0].CopyFrom(tensor_input("h", dtype=onnx.TensorProto.INT64))
    assert found(model, "types.mismatch").place.value == "h"
    with pytest.raises(jitonnx.errors.Fail, match=r"Type \(tensor\(float\)\) of output arg \(h\)"):
        jitonnx.InferenceSession(model.SerializeToString())


def test_an_error_of_form_is_no_reason_for_a_session() -> None:
    model = model_of([relu("h", "y"), relu("x", "h")], ["x"], ["y"])
    finding = found(model, "order.unsorted")
    assert finding.severity == "error" and not finding.refused
    assert jitonnx.InferenceSession(model.SerializeToString()).run(None, {"x": np.ones((2, 3), np.float32)})


def test_a_report_keeps_a_bounded_number_of_findings() -> None:
    nodes = [relu(f"nothing_{place}", f"y{place}") for place in range(KEPT + 500)]
    report = check_model(model_of(nodes, ["x"], ["y0"]))
    assert len(report.findings) == KEPT and len(report) > KEPT + 499


def test_a_long_name_costs_no_time() -> None:
    long = "x" * 50_000
    model = model_of([relu(long + "a", "y"), relu("x", long)], ["x"], ["y"])
    started = time.process_time()
    text = found(model, "names.undefined").text
    assert time.process_time() - started < 2 and len(text) < 1000


def test_digests_of_external_data(tmp_path: Path) -> None:
    model = add_model()
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    assert not check_model(path).errors
    changed = onnx.load(path, load_external_data=False)
    changed.graph.initializer[0].external_data.add(key="checksum", value="0" * 40)
    path.write_bytes(changed.SerializeToString())
    assert [each.rule for each in check_model(path) if each.severity == "error"] == ["external.checksum"]
    (tmp_path / "w.bin").write_bytes(b"short")
    assert [each.rule for each in check_model(path) if each.severity == "error"] == ["external.range"]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "good.onnx", tmp_path / "bad.onnx"
    good.write_bytes(model_of([relu("x", "y")], ["x"], ["y"]).SerializeToString())
    bad.write_bytes(model_of([relu("hiden", "y", "n1")], ["hidden"], ["y"]).SerializeToString())
    assert main(["check", str(good)]) == 0
    assert "1 warning" in capsys.readouterr().out
    assert main(["check", str(good), "--strict"]) == 1
    capsys.readouterr()
    assert main(["check", str(bad)]) == 1
    text = capsys.readouterr().out
    assert (
        "error: This is an invalid model" in text
        and "did the exporter mean 'hidden'" in text
        and "node 0, Relu 'n1'" in text
    )
    assert main(["check", str(bad), "--json"]) == 1
    content = json.loads(capsys.readouterr().out)
    assert content["errors"] == 1 and content["refused"]
    (finding,) = (each for each in content["findings"] if each["severity"] == "error")
    assert (finding["rule"], finding["node"], finding["index"]) == ("names.undefined", "n1", 0)
    assert main(["check", str(tmp_path / "nothing.onnx")]) == 1


def test_an_initializer_that_contradicts_its_input() -> None:
    w = numpy_helper.from_array(np.zeros((2, 3), np.float32), "w")
    model = model_of([relu("w", "y")], [tensor_input("w", (2, 4))], ["y"], [w])
    assert found(model, "initializers.declared").place.value == "w"
