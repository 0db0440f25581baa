"""Maps as inputs and outputs of sessions: dicts, and lists of dicts."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto as T
from onnx import helper

import jitonnx
from jitonnx.errors import Error, InvalidArgument

tensor = helper.make_tensor_type_proto
MAP_OPERATORS = ("ZipMap", "CastMap", "DictVectorizer")
"""Those that are tested here, at their only version."""


def mapping(key: int, value: int) -> Any:
    return helper.make_map_type_proto(key, tensor(value, []))


def model(operator: str, given: Any, result: Any, **attributes: Any) -> bytes:
    node = helper.make_node(operator, ["x"], ["y"], name="node", domain="ai.onnx.ml", **attributes)
    values = [helper.make_value_info(name, type) for name, type in (("x", given), ("y", result))]
    graph = helper.make_graph([node], "maps", values[:1], values[1:])
    opsets = [helper.make_opsetid("ai.onnx.ml", 1), helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


SCORES = np.random.default_rng(0).random((4, 3)).astype(np.float32)
ZIPPED: dict[str, tuple[Any, np.ndarray]] = {
    "integers": ({"classlabels_int64s": [5, 1, 3]}, SCORES),
    "strings": ({"classlabels_strings": ["b", "c", "a"]}, SCORES),
    "one row": ({"classlabels_int64s": [5, 1, 3]}, SCORES[:1]),
    "a vector": ({"classlabels_int64s": [5, 1, 3]}, SCORES[0]),
    "no rows": ({"classlabels_int64s": [5, 1, 3]}, SCORES[:0]),
}


@pytest.mark.parametrize("name", ZIPPED)
@pytest.mark.conformance("value-types")
def test_zip_map_gives_a_list_of_dicts(name: str) -> None:
    attributes, x = ZIPPED[name]
    key = T.STRING if "classlabels_strings" in attributes else T.INT64
    result = helper.make_sequence_type_proto(mapping(key, T.FLOAT))
    data = model("ZipMap", tensor(T.FLOAT, [None] * x.ndim), result, **attributes)
    ours, theirs = (module.InferenceSession(data) for module in (jitonnx, onnxruntime))
    assert ours.get_outputs()[0].type == theirs.get_outputs()[0].type
    assert ours.run(None, {"x": x}) == theirs.run(None, {"x": x})


WORDS = {"string_vocabulary": ["a", "b", "c"]}
NUMBERS = {"int64_vocabulary": [3, 1, 2]}
SPARSE = {"map_form": "SPARSE", "max_map": 4}
MADE: list[tuple[str, Any, int, dict[str, Any], Any, Any]] = [
    ("DictVectorizer", mapping(T.STRING, T.FLOAT), T.FLOAT, WORDS, {"a": 1.5, "c": 2}, [[1.5, 0, 2]]),
    ("DictVectorizer", mapping(T.STRING, T.DOUBLE), T.DOUBLE, WORDS, {}, [[0, 0, 0]]),
    ("DictVectorizer", mapping(T.STRING, T.INT64), T.INT64, WORDS, {"b": 1 << 60, "z": 2}, [[0, 1 << 60, 0]]),
    ("DictVectorizer", mapping(T.INT64, T.FLOAT), T.FLOAT, NUMBERS, {3: 0.5, np.int64(2): 7}, [[0.5, 0, 7]]),
    ("DictVectorizer", mapping(T.INT64, T.DOUBLE), T.DOUBLE, NUMBERS, {1: 0.1}, [[0, 0.1, 0]]),
    ("DictVectorizer", mapping(T.INT64, T.STRING), T.STRING, NUMBERS, {1: "x"}, [["", "x", ""]]),
    ("CastMap", mapping(T.INT64, T.FLOAT), T.FLOAT, {}, {3: 1.5, 0: 2}, [[2, 1.5]]),
    (
        "CastMap",
        mapping(T.INT64, T.FLOAT),
        T.STRING,
        {"cast_to": "TO_STRING"},
        {3: 1.5, 0: 2},
        [["2.000000", "1.500000"]],
    ),
    ("CastMap", mapping(T.INT64, T.FLOAT), T.INT64, {"cast_to": "TO_INT64"}, {3: -1.5}, [[-1]]),
    (
        "CastMap",
        mapping(T.INT64, T.STRING),
        T.INT64,
        {"cast_to": "TO_INT64", **SPARSE},
        {3: "7", 0: "2"},
        [[2, 0, 0, 7]],
    ),
    ("CastMap", mapping(T.INT64, T.STRING), T.FLOAT, SPARSE, {1: "7.5", 9: "2"}, [[0, 7.5, 0, 0]]),
    (
        "CastMap",
        mapping(T.INT64, T.STRING),
        T.STRING,
        {"cast_to": "TO_STRING", **SPARSE},
        {3: "7"},
        [["0.f"] * 3 + ["7"]],
    ),
]


@pytest.mark.parametrize(("operator", "given", "element", "attributes", "x", "expected"), MADE)
def test_tensors_are_made_of_dicts(
    operator: str, given: Any, element: int, attributes: dict[str, Any], x: Any, expected: Any
) -> None:
    session = jitonnx.InferenceSession(model(operator, given, tensor(element, None), **attributes))
    (result,) = session.run(None, {"x": x})
    assert result.dtype == helper.tensor_dtype_to_np_dtype(element)
    assert result.tolist() == np.array(expected, result.dtype).tolist()


def test_dicts_that_do_not_fit_are_told() -> None:
    session = jitonnx.InferenceSession(
        model("DictVectorizer", mapping(T.STRING, T.FLOAT), tensor(T.FLOAT, None), **WORDS)
    )
    for x, text in (([1], "give a dict, not a list"), ({1: 2.0}, "keys are strings, one is 1"), ({"a": "q"}, "'q'")):
        with pytest.raises(InvalidArgument, match=text):
            session.run(None, {"x": x})
    with pytest.raises(Error, match="has the key -1"):
        sparse = model("CastMap", mapping(T.INT64, T.FLOAT), tensor(T.FLOAT, None), **SPARSE)
        jitonnx.InferenceSession(sparse).run(None, {"x": {-1: 2.0}})


REFUSED: list[tuple[str, Any, Any, dict[str, Any], str]] = [
    (
        "ZipMap",
        tensor(T.FLOAT, [2, 2]),
        helper.make_sequence_type_proto(mapping(T.INT64, T.FLOAT)),
        {"classlabels_int64s": [1]},
        "1 labels",
    ),
    ("DictVectorizer", mapping(T.STRING, T.FLOAT), tensor(T.FLOAT, None), NUMBERS, "other keys"),
    ("DictVectorizer", mapping(T.STRING, T.FLOAT), tensor(T.FLOAT, None), {}, "one of int64_vocabulary and"),
    ("CastMap", mapping(T.STRING, T.FLOAT), tensor(T.FLOAT, None), {}, "allowed are map"),
]


@pytest.mark.parametrize(("operator", "given", "result", "attributes", "text"), REFUSED)
def test_maps_refused(operator: str, given: Any, result: Any, attributes: dict[str, Any], text: str) -> None:
    with pytest.raises(Error, match=text):
        jitonnx.InferenceSession(model(operator, given, result, **attributes))
