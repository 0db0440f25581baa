"""`ModelCompiler`, beside onnxruntime's with the CPU's provider, which compiles nothing into models either."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import jitonnx
from jitonnx import errors

W = np.arange(64, dtype=np.float32).reshape(8, 8)
X = np.ones((2, 8), np.float32)
RESULT = (X @ W) @ W + 1


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A model with an initializer in a file beside it, a small one of its own, and a node that rewrites take away."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Identity", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "v"], ["c"]),
        helper.make_node("Add", ["c", "one"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", 1, ["n", 8])],
        [helper.make_tensor_value_info("y", 1, ["n", 8])],
        [numpy_helper.from_array(array, name) for name, array in (("w", W), ("v", W), ("one", np.ones(1, np.float32)))],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=100)
    return path


def check(path: Path) -> list[str]:
    """Both compute what the model does; returns its operators."""
    for package in (jitonnx, onnxruntime):
        (y,) = package.InferenceSession(str(path)).run(None, {"x": X})
        np.testing.assert_array_equal(y, RESULT)
    return [node.op_type for node in onnx.load(path, load_external_data=False).graph.node]


@pytest.mark.parametrize("level", [0, 1, 99])
def test_a_file(source: Path, level: int) -> None:
    target = source.with_name("other.onnx")
    given = jitonnx.GraphOptimizationLevel(level)
    compiler = jitonnx.ModelCompiler(jitonnx.SessionOptions(), source, graph_optimization_level=given)
    compiler.compile_to_file(target)
    assert ("Identity" in check(target)) == (level == 0)


def test_the_file_beside_the_model(source: Path) -> None:
    jitonnx.ModelCompiler(jitonnx.SessionOptions(), str(source)).compile_to_file()
    assert check(source.with_name("model_ctx.onnx")).count("MatMul") == 2


def test_bytes_and_streams(source: Path) -> None:
    options = jitonnx.SessionOptions()
    model = onnx.load(source).SerializeToString()
    found: list[bytes] = []
    compiler = jitonnx.ModelCompiler(options, model)
    compiler.compile_to_stream(found.append)
    assert b"".join(found) == compiler.compile_to_bytes()
    (y,) = jitonnx.InferenceSession(found[0]).run(None, {"x": X})
    np.testing.assert_array_equal(y, RESULT)
    compiler.compile_to_file(source.with_name("written.onnx"))
    check(source.with_name("written.onnx"))
    with pytest.raises(errors.InvalidArgument, match="say where to write"):
        compiler.compile_to_file()


def test_initializers_in_a_file(source: Path) -> None:
    target = source.with_name("other.onnx")
    options = jitonnx.SessionOptions()
    for given in ("rest.bin", source.with_name("rest.bin")):
        jitonnx.ModelCompiler(
            options, source, external_initializers_file_path=given, external_initializers_size_threshold=255
        ).compile_to_file(target)
        assert source.with_name("rest.bin").stat().st_size >= 2 * W.nbytes
        check(target)
    compiler = jitonnx.ModelCompiler(options, source, external_initializers_file_path="rest.bin")
    with pytest.raises(errors.InvalidArgument, match="use compile_to_file"):
        compiler.compile_to_bytes()


def places(ort: ModuleType, source: Path, target: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """What a function is asked that puts one initializer elsewhere and leaves another where it is; where they are."""
    asked: dict[str, Any] = {}
    elsewhere = target.with_suffix(".bin")

    def locate(name: str, value: Any, info: Any) -> Any:
        asked[name] = (value.numpy().tolist(), info and (info.filepath, info.file_offset, info.byte_size))
        if name != "w":
            return info
        elsewhere.write_bytes(b"____" + value.numpy().tobytes())
        return ort.OrtExternalInitializerInfo(str(elsewhere), 4, W.nbytes)

    ort.ModelCompiler(ort.SessionOptions(), str(source), get_initializer_location_func=locate).compile_to_file(
        str(target)
    )
    graph = onnx.load(target, load_external_data=False).graph
    entries = {one.name: {entry.key: entry.value for entry in one.external_data} for one in graph.initializer}
    return asked, {name: os.path.basename(found.get("location", "")) for name, found in entries.items()}


def test_initializers_where_a_function_says(source: Path) -> None:
    theirs = places(onnxruntime, source, source.with_name("theirs.onnx"))
    ours = places(jitonnx, source, source.with_name("ours.onnx"))
    assert ours[0] == theirs[0]
    assert ours[1] == {"w": "ours.bin", "v": "weights.bin", "one": ""}
    assert theirs[1] == {"w": "theirs.bin", "v": "weights.bin", "one": ""}
    check(source.with_name("ours.onnx"))


def test_flags(source: Path) -> None:
    options, flags = jitonnx.SessionOptions(), jitonnx.OrtCompileApiFlags
    target = source.with_name("other.onnx")
    with pytest.raises(errors.Fail, match="Unable to compile any nodes"):
        jitonnx.ModelCompiler(options, source, flags=flags.ERROR_IF_NO_NODES_COMPILED).compile_to_file(target)
    assert not target.exists()
    compiler = jitonnx.ModelCompiler(options, source, flags=flags.ERROR_IF_OUTPUT_FILE_EXISTS)
    compiler.compile_to_file(target)
    with pytest.raises(errors.Fail, match="exists already"):
        compiler.compile_to_file(target)


def test_what_is_refused(source: Path) -> None:
    options = jitonnx.SessionOptions()
    with pytest.raises(ValueError, match="bytes array is empty"):
        jitonnx.ModelCompiler(options, b"")
    with pytest.raises(TypeError, match="Unable to load from type"):
        jitonnx.ModelCompiler(options, 3)
    with pytest.raises(ValueError, match="both"):
        jitonnx.ModelCompiler(
            options, source, external_initializers_file_path="a", get_initializer_location_func=lambda *_: None
        )
    with pytest.raises(errors.NoSuchFile):
        jitonnx.ModelCompiler(options, source.with_name("absent.onnx")).compile_to_file()

    def refuse(data: bytes) -> None:
        raise ValueError("full")

    with pytest.raises(errors.Fail, match="ValueError: full"):
        jitonnx.ModelCompiler(options, onnx.load(source).SerializeToString()).compile_to_stream(refuse)
    with pytest.raises(errors.InvalidArgument, match="is an OrtExternalInitializerInfo, not 'here'"):
        jitonnx.ModelCompiler(
            options,
            source,
            get_initializer_location_func=lambda *_: "here",  # type: ignore[arg-type, return-value]
        ).compile_to_bytes()
