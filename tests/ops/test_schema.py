"""The signatures of operators by version: as ONNX and onnxruntime have them, and what nodes are refused for."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from jitonnx import InferenceSession, errors
from jitonnx.ir.dtypes import DType
from jitonnx.ir.schema import schemas_in
from jitonnx.model import load
from jitonnx.ops.generate import short_type
from jitonnx.ops.registry import FOLDERS
from tests.ops.harness import has_onnxruntime
from tests.ops.test_registry import schemas

OF_THE_NEWEST = "com.microsoft"
"""Its operators are those of the newest onnxruntime, with which `.ci/run` calls these tests, too."""


def test_the_tables_are_up_to_date() -> None:
    ran = subprocess.run([sys.executable, "-m", "jitonnx.ops.generate", "--check"], capture_output=True, text=True)
    stale = [line for line in ran.stdout.splitlines() if line.endswith(".py")]
    if not has_onnxruntime("1.32"):
        stale = [line for line in stale if FOLDERS[OF_THE_NEWEST] not in line]
    assert not stale and not ran.stderr, ran.stdout + ran.stderr


@pytest.mark.conformance("mapping")
def test_every_version_of_onnx_is_there() -> None:
    for (domain, name), versions in schemas().items():
        if domain in FOLDERS and (domain != OF_THE_NEWEST or has_onnxruntime("1.32")):
            found = {schema.version: schema for schema in schemas_in(f"jitonnx.ops.{FOLDERS[domain]}", domain, name)}
            assert set(found) == set(versions)
            for version, theirs in versions.items():
                ours = found[version]
                assert [p.name for p in ours.inputs] == [p.name for p in theirs.inputs]
                assert [p.optional for p in ours.outputs] == [p.option.name == "Optional" for p in theirs.outputs]
                for mine, other in zip(ours.inputs, theirs.inputs, strict=True):
                    kinds = {f"tensor({kind.text})" if isinstance(kind, DType) else kind for kind in mine.kinds}
                    assert kinds == set(map(short_type, other.types))
                required = {key: attribute.required for key, attribute in theirs.attributes.items()}
                assert {key: needed for key, (_, needed) in ours.attributes.items()} == required


X = ("x", np.zeros((2, 3), np.float32))
AXES = ("axes", np.array([0], np.int64))
WHOLE = ("i", np.zeros((2, 3), np.int32))
SCALAR = ("s", np.float32(1))


def model(operator: str, opset: int, *inputs: Any, domain: str = "", outputs: int = 1, **attributes: Any) -> Any:
    """A model of one node. Each input: a name and an array, or None."""
    node = helper.make_node(
        operator,
        [given[0] if given else "" for given in inputs],
        [f"y{n}" for n in range(outputs)],
        name="node",
        domain=domain,
        **attributes,
    )
    given = dict.fromkeys(given[0] for given in inputs if given)
    arrays = dict(one for one in inputs if one)
    infos = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(np.asarray(arrays[name]).dtype), np.shape(arrays[name])
        )
        for name in given
    ]
    graph = helper.make_graph([node], "graph", infos, [onnx.ValueInfoProto(name=f"y{n}") for n in range(outputs)])
    opsets = [helper.make_opsetid("", opset), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


REFUSED = [
    # Inputs and attributes of other versions.
    (model("Squeeze", 11, X, AXES), r"Squeeze:11\) has input size 2 not in range \[min=1, max=1\]"),
    (model("ReduceSum", 11, X, AXES), "input size 2"),
    (model("ReduceMax", 13, X, AXES), "input size 2"),
    (model("Clip", 6, X, SCALAR), "input size 2"),
    (model("Dropout", 7, X, SCALAR), "input size 2"),
    (model("Pad", 2, X, AXES, pads=[0, 0, 0, 0]), "input size 2"),
    (model("Slice", 9, X, AXES, AXES, starts=[0], ends=[1]), "input size 3"),
    (model("TopK", 9, X, AXES, k=1, outputs=2), "input size 2"),
    (model("Squeeze", 13, X, axes=[0]), "Unrecognized attribute: axes for operator Squeeze; version 13 knows none"),
    (model("ReduceSum", 11, X, noop_with_empty_axes=1), "Unrecognized attribute: noop_with_empty_axes"),
    (model("Split", 13, X, num_outputs=1), "Unrecognized attribute: num_outputs"),
    (model("Cast", 13, X, to=1, saturate=1), "Unrecognized attribute: saturate"),
    (model("Shape", 13, X, start=0), "Unrecognized attribute: start"),
    (model("Reshape", 13, X, AXES, allowzero=1), "Unrecognized attribute: allowzero"),
    (model("MaxPool", 8, ("x", np.zeros((1, 1, 4), np.float32)), kernel_shape=[2], ceil_mode=1), "ceil_mode"),
    (model("ArgMax", 11, X, select_last_index=1), "Unrecognized attribute: select_last_index"),
    (model("Relu", 6, X, consumed_inputs=[0]), "Unrecognized attribute: consumed_inputs"),
    # Attributes.
    (model("LeakyRelu", 16, X, alpha=1), "Mismatched attribute type in ' : alpha'. Expected: 'FLOAT', actual: 'INT'"),
    (model("Transpose", 13, X, perm=[0.0, 1.0]), "Expected: 'INTS', actual: 'FLOATS'"),
    (model("Concat", 13, X), "Required attribute 'axis' is missing"),
    (model("Constant", 9, value_ints=[1]), "Unrecognized attribute: value_ints"),
    (model("Constant", 13, X, value_ints=[1]), "input size 1"),
    # Inputs that are absent, outputs that there are not.
    (model("Add", 14, X, None), "input 'B' is absent"),
    (model("Add", 14, None, X), "input 'A' is absent, and not optional"),
    (model("Relu", 14, X, outputs=2), r"output size 2 not in range \[min=\d, max=1\]"),
    # Types.
    (model("Relu", 14, ("b", np.zeros(3, bool))), "'b' is of type bool"),
    (model("Relu", 6, WHOLE), "'i' is of type int32; allowed are double, float, float16"),
    (model("Reshape", 14, X, WHOLE), "allowed are int64 for shape"),
    (model("BitShift", 11, WHOLE, WHOLE, direction="LEFT"), "is of type int32"),
    (model("Add", 14, X, WHOLE), r"Type parameter \(T\) of Optype \(Add\) bound to different types"),
    (model("Max", 13, X, X, WHOLE), r"Type parameter \(T\) of Optype \(Max\) bound to different types"),
    (model("QLinearAdd", 17, X, domain="com.microsoft"), "input size 1"),
    (model("Gelu", 17, WHOLE, domain="com.microsoft"), "'i' is of type int32"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "text"), REFUSED, ids=lambda value: "" if isinstance(value, str) else None)
def test_a_node_that_breaks_its_signature_is_refused(given: Any, text: str) -> None:
    with pytest.raises(errors.Error, match=text) as caught:
        load(given)
    assert "'node'" in str(caught.value)
    assert refused_by_others(given)


def refused_by_others(given: Any) -> bool:
    """Whether onnxruntime, or onnx's checker, refuses a model, too."""
    try:
        onnxruntime.InferenceSession(given.SerializeToString(), providers=["CPUExecutionProvider"])
        onnx.checker.check_model(given)
    except Exception:
        return True
    return False


def test_an_attribute_that_is_there_twice() -> None:
    given = model("LeakyRelu", 16, X, alpha=0.5)
    given.graph.node[0].attribute.append(helper.make_attribute("alpha", 0.25))
    with pytest.raises(errors.InvalidGraph, match="attribute 'alpha' is there twice"):
        load(given)


def test_a_value_that_is_not_where_the_kind_says() -> None:
    given = model("LeakyRelu", 16, X, alpha=0.5)
    given.graph.node[0].attribute[0].i = 1
    with pytest.raises(
        errors.InvalidGraph, match="attribute 'alpha' is of kind FLOAT, but has a value in the field 'i'"
    ):
        load(given)


def test_types_that_a_version_added_are_taken_from_it_on() -> None:
    bfloat16 = helper.make_tensor_value_info("x", TensorProto.BFLOAT16, [3])
    for opset, taken in ((12, False), (13, True)):
        graph = helper.make_graph(
            [helper.make_node("Relu", ["x"], ["y"])], "g", [bfloat16], [onnx.ValueInfoProto(name="y")]
        )
        given = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        if taken:
            load(given)
        else:
            with pytest.raises(errors.InvalidGraph, match="is of type bfloat16"):
                load(given)


@pytest.mark.parametrize("elem", [TensorProto.FLOAT, TensorProto.INT64])
def test_element_types_are_known_where_ranks_are_not(elem: int) -> None:
    """Not even the rank of what Reshape gives is known before the run, but whether the sum has a meaning."""
    nodes = [helper.make_node("Reshape", ["x", "s"], ["r"]), helper.make_node("Add", ["r", "i"], ["y"], name="sum")]
    infos = [
        helper.make_tensor_value_info(name, kind, [None])
        for name, kind in (("x", elem), ("s", TensorProto.INT64), ("i", TensorProto.INT64))
    ]
    graph = helper.make_graph(nodes, "graph", infos, [onnx.ValueInfoProto(name="y")])
    given = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    if elem == TensorProto.INT64:
        feed = {"x": np.arange(4), "s": np.array([2, 2]), "i": np.array([1, 2])}
        (y,) = InferenceSession(given.SerializeToString()).run(None, feed)
        np.testing.assert_array_equal(y, [[1, 3], [3, 5]])
    else:
        with pytest.raises(errors.Error, match=r"Add node.*sum.*bound to different types"):
            InferenceSession(given.SerializeToString())
