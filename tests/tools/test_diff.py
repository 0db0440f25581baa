"""`jitonnx diff`: what changed of a model's signature, by the rules for models' versions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from jitonnx import errors
from jitonnx.tools import changes
from jitonnx.tools.cli import main
from jitonnx.versioning import pack_semver

FLOAT, INT32, INT64, STRING = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64, TensorProto.STRING


def info(name: str, shape: Sequence[Any] | None = ("N", 3), kind: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    inputs: Sequence[onnx.ValueInfoProto] = (info("x"),),
    outputs: Sequence[onnx.ValueInfoProto] = (info("y"),),
    defaults: Sequence[str] = (),
    factor: float = 2.0,
    version: int = 0,
    opset: int = 20,
    size: int = 3,
) -> bytes:
    """A model with this signature; what it computes does not fit it."""
    w = numpy_helper.from_array(np.full(size, factor, np.float32), "w")
    given = [numpy_helper.from_array(np.ones(3, np.float32), name) for name in defaults]
    graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"])], "g", inputs, outputs, [w, *given])
    made = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10, model_version=version
    )
    return made.SerializeToString()


SEQUENCE = [helper.make_value_info("x", helper.make_sequence_type_proto(helper.make_tensor_type_proto(kind, [2])))
            for kind in (INT32, INT64)]  # fmt: skip
OPTIONAL = helper.make_value_info("x", helper.make_optional_type_proto(info("x").type))
BASE = model()
TWO = model([info("x"), info("z")], [info("y"), info("v")])

CASES = {
    "nothing": (BASE, BASE, []),
    "another name of a dimension": (
        TWO,
        model([info("x", ("B", 3)), info("z", ("B", 3))], [info("y", ("B", 3)), info("v", ("B", 3))]),
        [],
    ),
    "other weights": (BASE, model(factor=3.0), ["content: graph: nodes, constants or default values are others"]),
    "input: incompatible type": (
        model([info("x", kind=INT32)]),
        model([info("x", kind=STRING)]),
        ["breaking: input 'x': it is tensor(string), and was tensor(int32)"],
    ),
    "input: wider type": (
        model([info("x", kind=INT32)]),
        model([info("x", kind=INT64)]),
        ["compatible: input 'x': it is tensor(int64), and was tensor(int32)"],
    ),
    "input: wider float": (
        model([info("x", kind=TensorProto.FLOAT16)]),
        BASE,
        ["compatible: input 'x': it is tensor(float), and was tensor(float16)"],
    ),
    "input: narrower type": (
        model([info("x", kind=INT64)]),
        model([info("x", kind=INT32)]),
        ["breaking: input 'x': it is tensor(int32), and was tensor(int64)"],
    ),
    "input: another kind": (
        BASE,
        model([SEQUENCE[0]]),
        ["breaking: input 'x': it is seq(tensor(int32)), and was tensor(float)"],
    ),
    "input: a wider sequence": (
        model([SEQUENCE[0]]),
        model([SEQUENCE[1]]),
        ["compatible: input 'x': it is tensor(int64), and was tensor(int32)"],
    ),
    "input: may be absent": (
        BASE,
        model([OPTIONAL]),
        ["compatible: input 'x': it is optional(tensor(float)), and was tensor(float)"],
    ),
    "input: may not be absent": (
        model([OPTIONAL]),
        BASE,
        ["breaking: input 'x': it is tensor(float), and was optional(tensor(float))"],
    ),
    "input: new": (BASE, model([info("x"), info("z")]), ["breaking: input 'z': it is new, and has no default"]),
    "input: new, with a default": (
        BASE,
        model([info("x"), info("z", [3])], defaults=["z"]),
        [
            "compatible: input 'z': it is new, and has a default",
            "content: graph: nodes, constants or default values are others",
        ],
    ),
    "input: gone": (model([info("x"), info("z")]), BASE, ["breaking: input 'z': it is gone: who feeds it is refused"]),
    "input: gets a default": (
        model([info("x"), info("z", [3])]),
        model([info("x"), info("z", [3])], defaults=["z"]),
        [
            "compatible: input 'z': it has a default now",
            "content: graph: nodes, constants or default values are others",
        ],
    ),
    "input: loses its default": (
        model([info("x"), info("z", [3])], defaults=["z"]),
        model([info("x"), info("z", [3])]),
        [
            "breaking: input 'z': it has no default any more, and has to be fed",
            "content: graph: nodes, constants or default values are others",
        ],
    ),
    "input: order": (
        TWO,
        model([info("z"), info("x")], [info("y"), info("v")]),
        ["breaking: input 'z': it stands where 'x' stood: the order is another"],
    ),
    "input: opened size": (
        model([info("x", (2, 3))]),
        model([info("x", ("N", 3))]),
        ["compatible: input 'x': its size along axis 0 was 2, and is open now"],
    ),
    "input: fixed size": (
        model([info("x", ("N", 3))]),
        model([info("x", (2, 3))]),
        ["breaking: input 'x': its size along axis 0 was open, and is 2 now"],
    ),
    "input: another size": (
        model([info("x", (2, 3))]),
        model([info("x", (2, 4))]),
        ["breaking: input 'x': its size along axis 1 is 4, and was 3"],
    ),
    "input: another rank": (
        model([info("x", (2, 3))]),
        model([info("x", (2, 3, 1))]),
        ["breaking: input 'x': its rank is 3, and was 2"],
    ),
    "input: any shape": (
        model([info("x", (2, 3))]),
        model([info("x", None)]),
        ["compatible: input 'x': it may have any shape now"],
    ),
    "input: no more any shape": (
        model([info("x", None)]),
        model([info("x", (2, 3))]),
        ["breaking: input 'x': its rank was open, and is not any more"],
    ),
    "inputs: need not be equal": (
        TWO,
        model([info("x"), info("z", ("M", 3))], [info("y"), info("v")]),
        ["compatible: input 'z': axis 0 and axis 0 of 'x' need not be equal any more"],
    ),
    "inputs: have to be equal": (
        model([info("x"), info("z", (None, 3))]),
        model([info("x"), info("z")]),
        ["breaking: input 'z': axis 0 and axis 0 of 'x' have to be equal now"],
    ),
    "output: gone": (TWO, model([info("x"), info("z")]), ["breaking: output 'v': it is gone"]),
    "output: new": (BASE, model(outputs=[info("y"), info("v")]), ["compatible: output 'v': it is new"]),
    "output: new in front": (
        BASE,
        model(outputs=[info("v"), info("y")]),
        ["breaking: output 'v': it is new, and stands in front of others, which get other positions"],
    ),
    "output: wider type": (
        BASE,
        model(outputs=[info("y", kind=TensorProto.DOUBLE)]),
        ["compatible: output 'y': it is tensor(double), and was tensor(float)"],
    ),
    "output: fixed size": (
        BASE,
        model(outputs=[info("y", (2, 3))]),
        ["compatible: output 'y': its size along axis 0 was open, and is 2 now"],
    ),
    "output: opened size": (
        model(outputs=[info("y", (2, 3))]),
        BASE,
        ["breaking: output 'y': its size along axis 0 was 2, and is open now"],
    ),
    "output: another dimension": (
        BASE,
        model(outputs=[info("y", ("M", 3))]),
        ["breaking: output 'y': axis 0 is not known to equal axis 0 of 'x' now"],
    ),
    "output: a known dimension": (
        model(outputs=[info("y", ("M", 3))]),
        BASE,
        ["compatible: output 'y': axis 0 equals axis 0 of 'x' now"],
    ),
}


@pytest.mark.conformance("signature-breaking", "signature-compatible")
@pytest.mark.parametrize("name", CASES)
def test_changes(name: str) -> None:
    old, new, expected = CASES[name]
    found = changes.compare(old, new)
    assert [f"{each.severity}: {each.place}: {each.text}" for each in found.changes] == expected
    grades = [text.partition(":")[0] for text in expected]
    assert found.signature == next((grade for grade in ("breaking", "compatible") if grade in grades), "none")
    assert found.bump == (
        {"breaking": "major", "compatible": "minor", "content": "patch"}[grades[0]] if grades else "none"
    )


@pytest.mark.conformance("signature-breaking", "signature-compatible")
@pytest.mark.parametrize(
    ("new", "before", "after", "fits"),
    [
        (model(factor=3.0), (1, 2, 3), (1, 2, 4), True),
        (model(factor=3.0), (1, 2, 3), (1, 2, 3), False),
        (model(outputs=[info("y"), info("v")]), (1, 2, 3), (1, 2, 4), False),
        (model(outputs=[info("y"), info("v")]), (1, 2, 3), (1, 3, 0), True),
        (model(outputs=[info("v")]), (1, 2, 3), (1, 3, 0), False),
        (model(outputs=[info("v")]), (1, 2, 3), (2, 0, 0), True),
        (BASE, (1, 2, 3), (1, 2, 3), True),
        (BASE, (1, 2, 3), (1, 2, 2), False),
    ],
)
def test_bumps(new: bytes, before: tuple[int, int, int], after: tuple[int, int, int], fits: bool) -> None:
    for bits in (32, 64):
        first, second = onnx.ModelProto.FromString(BASE), onnx.ModelProto.FromString(new)
        first.model_version, second.model_version = pack_semver(*before, bits=bits), pack_semver(*after, bits=bits)
        assert changes.compare(first, second).is_bumped is fits
    first.model_version, second.model_version = 3, 4
    assert changes.compare(first, second).is_bumped
    second.model_version = 3
    assert changes.compare(first, second).is_bumped is (changes.compare(BASE, new).bump == "none")


def test_large_weights_and_other_files(tmp_path: Path) -> None:
    """Weights that stay where they are in a file are compared by what is in them."""
    assert changes.compare(model(size=9000), model(size=9000)).bump == "none"
    assert changes.compare(model(size=9000), model(size=9000, factor=3.0)).bump == "patch"
    for name, factor in (("a", 2.0), ("b", 2.0), ("c", 3.0)):
        made = onnx.ModelProto.FromString(model(size=9000, factor=factor))
        onnx.save_model(made, tmp_path / f"{name}.onnx", save_as_external_data=True, location=f"{name}.data")
    paths = {name: tmp_path / f"{name}.onnx" for name in "abc"}
    assert changes.compare(paths["a"], paths["b"]).bump == "none"
    assert changes.compare(paths["a"], model(size=9000)).bump == "none"
    assert changes.compare(paths["a"], paths["c"]).bump == "patch"


@pytest.mark.conformance("signature-breaking", "signature-compatible")
def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def call(old: bytes, new: bytes, *options: str) -> tuple[int, str]:
        for name, data in (("old", old), ("new", new)):
            (tmp_path / name).write_bytes(data)
        status = main(["diff", str(tmp_path / "old"), str(tmp_path / "new"), *options])
        return status, capsys.readouterr().out

    assert call(BASE, BASE) == (0, "signature: none; asks for no bump, which it has (model_version 0 -> 0)\n")
    old, new = model(version=pack_semver(1, 0, 0)), model([info("x", (5, 3))], version=pack_semver(1, 1, 0), opset=13)
    status, text = call(old, new)
    assert status == 4 and "note: operator set ai.onnx 13, was 20: Mul 14 -> 13" in text
    assert "a bump of the major version, which it lacks (model_version 1.0.0 -> 1.1.0)" in text
    status, text = call(BASE, model(outputs=[info("y"), info("v")], version=1), "--json")
    content = json.loads(text)
    assert (status, content["signature"], content["bump"], content["bumped"]) == (3, "compatible", "minor", True)
    assert content["changes"] == [{"severity": "compatible", "place": "output 'v'", "text": "it is new"}]
    assert call(old, new, "--bumped")[0] == 3 and call(BASE, BASE, "--bumped")[0] == 0
    assert main(["diff", str(tmp_path / "old"), str(tmp_path / "none")]) == 1


def test_what_is_no_model() -> None:
    with pytest.raises(errors.InvalidArgument, match="No graph"):
        changes.compare(b"", BASE)
