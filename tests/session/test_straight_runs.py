"""Pipelines of strings, run again and again with sizes that change: as onnxruntime, with native look-ups or without."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper, shape_inference

from jitonnx import InferenceSession, load
from jitonnx.errors import Error
from jitonnx.runtime import strings

VALUES = [f"v{number}" for number in range(12)]


def ml(operator: str, inputs: list[str], outputs: list[str], **attributes: Any) -> Any:
    return helper.make_node(operator, inputs, outputs, domain="ai.onnx.ml", **attributes)


def model(nodes: list[Any], inputs: list[Any], outputs: list[str], **constants: Any) -> bytes:
    initializers = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph(nodes, "g", inputs, results, initializers)
    domains = {"": 18, "ai.onnx.ml": 3, "com.microsoft": 1}
    opsets = [helper.make_opsetid(domain, version) for domain, version in domains.items()]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    return shape_inference.infer_shapes(made).SerializeToString()


TEXTS = helper.make_tensor_value_info("x", TensorProto.STRING, ["n", 3])
NUMBERS = helper.make_tensor_value_info("f", TensorProto.FLOAT, ["n", 3])


def columns() -> bytes:
    """One-hot rows of columns cut in several ways, beside numbers, and a product."""
    nodes = [
        ml("ArrayFeatureExtractor", ["x", "i0"], ["c0"]),
        helper.make_node("Gather", ["x", "i1"], ["c1"], axis=1),
        helper.make_node("Slice", ["x", "b", "e", "a"], ["c2"]),
        *(ml("OneHotEncoder", [f"c{k}"], [f"h{k}"], cats_strings=VALUES[k : k + 5]) for k in range(3)),
        *(helper.make_node("Reshape", [f"h{k}", "s"], [f"r{k}"]) for k in range(3)),
        ml("Scaler", ["f"], ["g"], offset=[0.1, 0.2, 0.3], scale=[1.0, 2.0, 3.0]),
        helper.make_node("Concat", ["g", "r0", "r1", "r2"], ["j"], axis=1),
        helper.make_node("MatMul", ["j", "w"], ["y"]),
    ]
    w = np.random.default_rng(0).normal(size=(18, 2)).astype(np.float32)
    places = {"i0": [0], "i1": [-2], "b": [2], "e": [2**62], "a": [-1], "s": [-1, 5]}
    return model(nodes, [TEXTS, NUMBERS], ["y"], w=w, **{name: np.int64(array) for name, array in places.items()})


def encoders() -> bytes:
    nodes = [
        ml("LabelEncoder", ["x"], ["a"], keys_strings=VALUES[:5], values_int64s=[5, 4, 3, 2, 1], default_int64=-7),
        ml("LabelEncoder", ["x"], ["b"], keys_strings=VALUES[:5], values_strings=list("abcde"), default_string="?"),
        ml("LabelEncoder", ["x"], ["c"], keys_strings=VALUES[:3], values_floats=[0.5, 1.5, 2.5], default_float=-1.0),
        ml("CategoryMapper", ["x"], ["d"], cats_strings=VALUES[:3], cats_int64s=[7, 8, 9]),
        ml("LabelEncoder", ["d"], ["e"], keys_int64s=[0, 1, 2], values_strings=list("pqr")),
        helper.make_node("Concat", ["x", "b"], ["j"], axis=1),
        helper.make_node("Transpose", ["j"], ["t"], perm=[1, 0]),
        helper.make_node("Unsqueeze", ["x", "z"], ["u"]),
    ]
    return model(nodes, [TEXTS], [*"abcdetu"], z=np.int64([0]))


def counted(mode: str) -> bytes:
    attributes = {"min_gram_length": 1, "max_gram_length": 1, "max_skip_count": 0, "ngram_counts": [0]}
    indexes, weights = [3, 0, 5, 1, 4], [0.1, 0.7, 0.3, 1.5, 2.5]
    node = helper.make_node(
        *("TfIdfVectorizer", ["x"], ["y"]),
        **{**attributes, "mode": mode, "ngram_indexes": indexes, "pool_strings": VALUES[:5], "weights": weights},
    )
    return model([node], [TEXTS], ["y"])


def labelled() -> bytes:
    nodes = [
        ml(
            *("LinearClassifier", ["f"], ["l", "p"]),
            **{"coefficients": [0.5, -1.0, 2.0, 1.0, 0.25, -0.5, -2.0, 1.5, 0.75], "intercepts": [0.1, 0.2, 0.3]},
            **{"classlabels_strings": ["rose", "lily", "iris"], "post_transform": "SOFTMAX"},
        ),
        ml("ZipMap", ["p"], ["z"], classlabels_strings=["rose", "lily", "iris"]),
    ]
    return model(nodes, [NUMBERS], ["l", "p", "z"])


def words() -> bytes:
    """Texts in lower case, their words counted, however many there are."""
    nodes = [
        helper.make_node("Reshape", ["x", "s"], ["r"]),
        helper.make_node("StringNormalizer", ["r"], ["n"], case_change_action="LOWER", is_case_sensitive=0, locale="C"),
        helper.make_node(
            *("Tokenizer", ["n"], ["t"]),
            domain="com.microsoft",
            **{"mark": 0, "mincharnum": 1, "pad_value": "#", "tokenexp": "[a-z0-9]+"},
        ),
        helper.make_node("Flatten", ["t"], ["f"]),
        helper.make_node(
            *("TfIdfVectorizer", ["f"], ["c"]),
            **{"max_gram_length": 1, "min_gram_length": 1, "max_skip_count": 0, "mode": "TF", "ngram_counts": [0]},
            **{"ngram_indexes": [2, 0, 1], "pool_strings": ["v1", "v2", "v3"]},
        ),
        helper.make_node("MatMul", ["c", "w"], ["y"]),
    ]
    return model(nodes, [TEXTS], ["y"], s=np.int64([-1]), w=np.float32([[1, 2], [3, 4], [5, 6]]))


def named() -> bytes:
    """Labels by computed places of a table, scores of labels in no order, and a native step of two inputs."""
    nodes = [
        helper.make_node("ArgMax", ["f"], ["m"], axis=1),
        ml("ArrayFeatureExtractor", ["classes", "m"], ["a"]),
        helper.make_node("Reshape", ["a", "s"], ["l"]),
        ml("ZipMap", ["f"], ["z"], classlabels_strings=["rose", "lily", "iris"]),
        ml("LabelEncoder", ["x"], ["c"], keys_strings=VALUES[:3], values_floats=[0.5, 1.5, 2.5], default_float=-1.0),
        helper.make_node("Add", ["c", "f"], ["y"]),
    ]
    classes = np.array(["rose", "lily", "iris"], object)
    return model(nodes, [TEXTS, NUMBERS], ["l", "z", "y", "c"], classes=classes, s=np.int64([-1]))


MODELS = {
    "columns": columns(),
    "named": named(),
    "words": words(),
    "encoders": encoders(),
    "labelled": labelled(),
    **{mode: counted(mode) for mode in ("TF", "IDF", "TFIDF")},
}


def feeds_of(session: Any, rows: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    given = {
        "x": rng.choice(VALUES, (rows, 3)).astype(object),
        "f": rng.normal(size=(rows, 3)).astype(np.float32),
    }
    return {entry.name: given[entry.name] for entry in session.get_inputs()}


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_as_onnxruntime(name: str, native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if native:
        end = time.monotonic() + 60
        while strings.supported() and not strings.ready():
            assert time.monotonic() < end
            time.sleep(0.001)
    else:
        monkeypatch.setattr(strings, "ready", lambda: False)
    session = InferenceSession(MODELS[name])
    theirs = onnxruntime.InferenceSession(MODELS[name], providers=["CPUExecutionProvider"])
    for seed, rows in enumerate((1, 1, 1, 4, 4, 4, 1, 1)):
        feeds = feeds_of(session, rows, seed)
        kept = {key: array.copy() for key, array in feeds.items()}
        for ours, expected in zip(session.run(None, feeds), theirs.run(None, feeds), strict=True):
            if isinstance(expected, list):
                assert [list(row) for row in ours] == [sorted(row) for row in expected]
                np.testing.assert_allclose(
                    [[*row.values()] for row in ours], [[row[key] for key in sorted(row)] for row in expected], 1e-5
                )
                continue
            assert ours.dtype == expected.dtype and ours.shape == expected.shape
            assert ours.flags.owndata and ours.flags.carray
            assert not any(ours is array for array in feeds.values())
            if ours.dtype == object:
                assert ours.tolist() == expected.tolist()
            else:
                np.testing.assert_allclose(ours, expected, 1e-5, 1e-6)
        assert all(np.array_equal(feeds[key], array) for key, array in kept.items())


def test_artifacts(tmp_path: Path) -> None:
    """As sessions: a saved pipeline settles its runs, too."""
    session, path = InferenceSession(MODELS["columns"]), str(tmp_path / "columns.jitonnx")
    session.save(path, {"x": ((1, 9), 3)})
    saved = load(path)
    for seed, rows in enumerate((1, 1, 1, 1, 5, 5, 5, 1)):
        feeds = feeds_of(session, rows, seed)
        (ours,), (expected,) = saved.run(None, feeds), session.run(None, feeds)
        np.testing.assert_array_equal(ours, expected)


def test_other_elements_are_written_out() -> None:
    """As in a first run: bytes are decoded, numbers written, also where runs before were of str alone."""
    session = InferenceSession(MODELS["encoders"])
    for _ in range(3):
        session.run(None, {"x": np.array([["v0", "v1", "zz"]], object)})
    texts = session.run(["t"], {"x": np.array([[b"v0", 7, np.str_("v2")]], object)})[0]
    assert texts.ravel().tolist() == ["v0", "7", "v2", "a", "?", "c"]
    with pytest.raises(Error, match="UTF-8"):
        session.run(None, {"x": np.array([["v0", "\ud800", "v2"]], object)})


def test_an_index_outside() -> None:
    """The error names the node, in later runs as in the first."""
    nodes = [ml("ArrayFeatureExtractor", ["x", "i"], ["c"])]
    inputs = [helper.make_tensor_value_info("x", TensorProto.STRING, ["n", "k"])]
    session = InferenceSession(model(nodes, inputs, ["c"], i=np.int64([2])))
    good, bad = np.array([["a", "b", "c"]], object), np.array([["a", "b"]], object)
    for x in (good, good, good, bad, bad, bad, good):
        if x is good:
            assert session.run(None, {"x": x})[0].tolist() == [["c"]]
        else:
            with pytest.raises(Error, match="index"):
                session.run(None, {"x": x})
