"""The operators of onnxruntime-extensions, compared with onnxruntime's sessions."""

import io
import subprocess
import sys
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx.helper import np_dtype_to_tensor_dtype

import jitonnx

extensions = pytest.importorskip("onnxruntime_extensions")
DOMAIN = "ai.onnx.contrib"
VOCABULARY = "[UNK]\n[CLS]\n[SEP]\n[PAD]\n[MASK]\nun\n##want\n##ed\nrunning\n,\nhello\nworld\né\n"


def texts(*given: Any) -> np.ndarray:
    return np.array(given, object)


SOME = texts("Hello, World", "", "ÄÖ ß unwanted", "a;b;;c")
CASES: dict[str, tuple[dict[str, Any], list[np.ndarray], int]] = {
    "StringUpper": ({}, [SOME], 1),
    "StringLower": ({}, [SOME.reshape(2, 2)], 1),
    "StringStrip": ({}, [texts("  a b ", "c", "\t")], 1),
    "StringLength": ({}, [SOME], 1),
    "StringConcat": ({}, [SOME, SOME[::-1]], 1),
    "StringEqual": ({}, [SOME, texts("Hello, World", "x", "", "a;b;;c")], 1),
    "StringJoin": ({}, [SOME.reshape(2, 2), texts(";"), np.array([1])], 1),
    "StringSplit": ({}, [SOME, texts(";"), np.array([True])], 3),
    "StringToHashBucket": ({}, [SOME, np.array([17])], 1),
    "StringToHashBucketFast": ({}, [SOME, np.array([17])], 1),
    "StringRegexReplace": ({"global_replace": 1}, [SOME, texts(r"([a-z])\1"), texts(r"<\1>")], 1),
    "StringECMARegexReplace": ({"ignore_case": 1}, [SOME, texts("(l+)o"), texts("$1")], 1),
    "StringRegexSplitWithOffsets": ({}, [SOME, texts(r"(\s)"), texts(r"(\s)")], 4),
    "StringToVector": ({"map": "a\t1\nb\t3", "unk": "-1"}, [texts("b", "x", "a")], 1),
    "VectorToString": ({"map": "a\t1\nb\t3", "unk": "?"}, [np.array([3, 7, 1])], 1),
    "StringMapping": ({"map": "a;\tx\nc\ty"}, [texts("c", "d")], 1),
    "MaskedFill": ({}, [SOME, np.array([True, False, True, True])], 1),
    "SegmentSum": ({}, [np.arange(12, dtype=np.float32).reshape(4, 3), np.array([0, 0, 1, 1])], 1),
    "Inverse": ({}, [np.array([[2, 1], [1, 3]], np.float32)], 1),
    "NegPos": ({}, [np.array([[-1, 2], [3, -4]], np.float32)], 2),
    "WordpieceTokenizer": (
        {
            "vocab": '{"[UNK]": 0, "un": 1, "##want": 2, "##ed": 3, "hello": 4}',
            "suffix_indicator": "##",
            "unknown_token": "[UNK]",
        },
        [texts("hello unwanted x"), np.array([0])],
        4,
    ),
    "BertTokenizer": ({"vocab_file": VOCABULARY}, [texts("Hello, unwanted world running é x")], 3),
}


def model(nodes: Any, feeds: dict[str, np.ndarray], outputs: list[str]) -> bytes:
    given = [
        helper.make_tensor_value_info(
            name, TensorProto.STRING if x.dtype == object else np_dtype_to_tensor_dtype(x.dtype), [None] * x.ndim
        )
        for name, x in feeds.items()
    ]
    graph = helper.make_graph(nodes, "g", given, [helper.make_empty_tensor_value_info(name) for name in outputs])
    imports = [
        helper.make_opsetid(name, version) for name, version in (("", 18), (DOMAIN, 1), ("com.microsoft.extensions", 1))
    ]
    return helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()


def sessions(given: bytes) -> list[Any]:
    made = []
    for module in (onnxruntime, jitonnx):
        options = module.SessionOptions()
        options.register_custom_ops_library(extensions.get_library_path())
        made.append(module.InferenceSession(given, options, providers=["CPUExecutionProvider"]))
    return made


def same(expected: list[Any], results: list[Any]) -> None:
    for one, other in zip(expected, results, strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        if one.dtype == object:
            assert one.tolist() == other.tolist()
        else:
            np.testing.assert_allclose(other, one, rtol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_an_operator(name: str) -> None:
    attributes, inputs, count = CASES[name]
    feeds = {f"x{place}": np.asarray(x) for place, x in enumerate(inputs)}
    outputs = [f"y{place}" for place in range(count)]
    node = helper.make_node(name, list(feeds), outputs, domain=DOMAIN, **attributes)
    theirs, ours = sessions(model([node], feeds, outputs))
    for _ in range(2):
        same(theirs.run(None, feeds), ours.run(None, feeds))


def test_what_a_kernel_refuses() -> None:
    node = helper.make_node("StringJoin", ["x0", "x1", "x2"], ["y"], domain=DOMAIN, name="joined")
    feeds = {"x0": SOME.reshape(2, 2), "x1": texts(";"), "x2": np.array([5])}
    failures = []
    for session in sessions(model([node], feeds, ["y"])):
        with pytest.raises(Exception, match=r"StringJoin node.*Name:'joined'") as failure:
            session.run(None, feeds)
        failures.append((type(failure.value).__name__, str(failure.value).rpartition("Status Message: ")[2]))
    assert failures[0] == failures[1]


def test_an_image_and_what_is_compiled_behind_it() -> None:
    image = pytest.importorskip("PIL.Image")
    weights = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("DecodeImage", ["x"], ["pixels"], domain="com.microsoft.extensions"),
        helper.make_node("Cast", ["pixels"], ["a"], to=TensorProto.FLOAT),
        helper.make_node("Transpose", ["a"], ["b"], perm=[2, 0, 1]),
        helper.make_node("Unsqueeze", ["b", "axes"], ["c"]),
        helper.make_node("Conv", ["c", "w"], ["y"]),
    ]
    nodes.insert(0, helper.make_node("Constant", [], ["axes"], value_ints=[0]))
    tensor = helper.make_tensor("w", TensorProto.FLOAT, weights.shape, weights.ravel())
    nodes.insert(0, helper.make_node("Constant", [], ["w"], value=tensor))
    theirs, ours = sessions(model(nodes, {"x": np.zeros(1, np.uint8)}, ["y"]))
    for height, width in ((20, 30), (17, 5), (20, 30)):
        pixels = np.random.default_rng(height).integers(0, 255, (height, width, 3), np.uint8)
        file = io.BytesIO()
        image.fromarray(pixels).save(file, "PNG")
        feeds = {"x": np.frombuffer(file.getvalue(), np.uint8)}
        np.testing.assert_allclose(ours.run(None, feeds)[0], theirs.run(None, feeds)[0], rtol=1e-3, atol=1e-2)


def test_operators_in_python_of_the_package() -> None:
    text = """
import numpy as np, jitonnx
from onnx import helper, TensorProto
from onnxruntime_extensions import PyCustomOpDef, get_library_path, onnx_op
@onnx_op(op_type="Tripled", inputs=[PyCustomOpDef.dt_float], outputs=[PyCustomOpDef.dt_float])
def tripled(x):
    return 3 * x
info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None]) for name in "xy"]
node = helper.make_node("Tripled", ["x"], ["y"], domain="ai.onnx.contrib")
graph = helper.make_graph([node], "g", info[:1], info[1:])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("ai.onnx.contrib", 1)], ir_version=10)
options = jitonnx.SessionOptions()
options.register_custom_ops_library(get_library_path())
session = jitonnx.InferenceSession(model.SerializeToString(), options)
print(session.run(None, {"x": np.ones(2, np.float32)}))
"""
    done = subprocess.run(
        [sys.executable, "-m", "jitonnx", "exec", "-c", text], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "3., 3." in done.stdout
