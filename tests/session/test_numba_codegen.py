"""Sessions whose regions Numba compiles: equal results, keys of their own, notes where LLVM is the way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import jitonnx
from jitonnx import InferenceSession, SessionOptions
from jitonnx.errors import InvalidArgument
from jitonnx.tools.cli import main
from jitonnx.tools.explain import as_html, explain, numba_sources


def made(nodes: list[onnx.NodeProto], shape: list[int | str], dtype: int = TensorProto.FLOAT) -> bytes:
    inputs = [helper.make_tensor_value_info("x", dtype, shape)]
    outputs = [helper.make_empty_tensor_value_info(nodes[-1].output[0])]
    scale = helper.make_tensor("scale", dtype, [33], np.linspace(0.5, 2, 33).tolist())
    graph = helper.make_graph(nodes, "test", inputs, outputs, [scale])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return model.SerializeToString()


NODES = [
    helper.make_node("Transpose", ["x"], ["turned"], "turn", perm=[0, 2, 1]),
    helper.make_node("Mul", ["turned", "scale"], ["scaled"], "multiply"),
    helper.make_node("Tanh", ["scaled"], ["curved"], "tanh"),
    helper.make_node("LayerNormalization", ["curved", "scale", "scale"], ["normal"], "norm"),
    helper.make_node("Softmax", ["normal"], ["shares"], "softmax", axis=1),
    helper.make_node("ReduceMean", ["shares"], ["mean"], "mean", keepdims=1),
    helper.make_node("Sub", ["shares", "mean"], ["centred"], "sub"),
    helper.make_node("Softmax", ["centred"], ["result"], "softmax2", axis=-1),
]


def session(model: bytes, codegen: str = "numba", **entries: str) -> InferenceSession:
    options = SessionOptions()
    options.intra_op_num_threads = 2
    for key, value in {"codegen": codegen, "compile": "before", **entries}.items():
        options.add_session_config_entry(f"jitonnx.{key}", value)
    return InferenceSession(model, options)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("level", [0, 99])
def test_results_are_equal(level: int) -> None:
    model = made(NODES, ["batch", 33, 70])
    options = SessionOptions()
    options.graph_optimization_level = jitonnx.GraphOptimizationLevel(level)
    options.add_session_config_entry("jitonnx.codegen", "numba")
    by_numba, by_llvm = InferenceSession(model, options), session(model, "llvm")
    rng = np.random.default_rng(0)
    for batch in (1, 5, 0):
        x = rng.standard_normal((batch, 33, 70)).astype(np.float32)
        np.testing.assert_allclose(by_numba.run(None, {"x": x})[0], by_llvm.run(None, {"x": x})[0], 1e-5, 1e-7)


def test_sources_are_told_and_run() -> None:
    model = made(NODES, [2, 33, 70])
    opened = session(model)
    explained = explain(opened, {"x": (2, 33, 70)})
    regions = [kernel for kernel in explained.kernels if kernel.numba]
    assert {"region", "reduction", "softmax", "normalization"} <= {kernel.family for kernel in regions}
    assert all("compiled by Numba" in kernel.notes for kernel in regions)
    text = numba_sources(explained)
    exec(compile(text, "sources", "exec"), {"__name__": "sources"})
    assert "Tanh 'tanh'" in text
    assert "np.tanh(" in as_html(explained)
    emitted = explain(session(model, "llvm"), {"x": (2, 33, 70)})
    assert numba_sources(emitted) == text
    symbols = [{kernel.symbol for kernel in one.kernels if kernel.numba} for one in (explained, emitted)]
    assert not symbols[0] & symbols[1], "code of both ways is kept by keys of its own"


def test_what_numba_has_no_kernel_of_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from jitonnx.codegen.numba import expression

    monkeypatch.setattr(expression, "_NUMPY", {})
    nodes = [helper.make_node("Tanh", ["x"], ["result"], "tanh")]
    opened = session(made(nodes, [2, 3]), keep_model="0")
    (kernel,) = explain(opened, {"x": (2, 3)}).kernels
    assert "emitted as LLVM IR, as there is no Numba kernel of tanh of float" in kernel.notes
    assert "# none: tanh of float" in numba_sources(explain(opened, {"x": (2, 3)}))
    x = np.ones((2, 3), np.float32)
    np.testing.assert_allclose(opened.run(None, {"x": x})[0], np.tanh(x), 1e-6)


def test_an_artifact_holds_the_code(tmp_path: Path) -> None:
    """It and the cache are opened without Numba."""
    nodes = [helper.make_node("Tanh", ["x"], ["t"], "tanh"), helper.make_node("Mul", ["t", "x"], ["y"], "mul")]
    path, artifact = tmp_path / "model.onnx", tmp_path / "model.jitonnx"
    path.write_bytes(made(nodes, [2, 3]))
    opened = session(path.read_bytes())
    opened.save(artifact, {"x": (2, 3)})
    x = np.ones((2, 3), np.float32)
    script = (
        "import sys, numpy as np, jitonnx\n"
        "options = jitonnx.SessionOptions()\n"
        "options.add_session_config_entry('jitonnx.codegen', 'numba')\n"
        "options.add_session_config_entry('jitonnx.compile', 'cached')\n"
        "x = {'x': np.ones((2, 3), np.float32)}\n"
        f"a = jitonnx.load({str(artifact)!r}).run(None, x)[0]\n"
        f"b = jitonnx.InferenceSession({str(path)!r}, options).run(None, x)[0]\n"
        "assert (a == b).all() and abs(a - np.tanh(1)).max() < 1e-6\n"
        "assert not any(name.partition('.')[0] == 'numba' for name in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
    np.testing.assert_allclose(opened.run(None, {"x": x})[0], np.tanh(x), 1e-6)


def test_what_cannot_be_chosen() -> None:
    with pytest.raises(InvalidArgument, match=r"jitonnx\.codegen is 'gcc'; give 'llvm' or 'numba'"):
        session(made(NODES, [2, 33, 70]), "gcc")


def test_numba_that_may_not_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    with pytest.raises(InvalidArgument, match="NUMBA_DISABLE_JIT"):
        session(made(NODES, [2, 33, 70]))


def test_what_numba_fails_to_compile_is_emitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a warning: it is a defect."""
    from jitonnx.codegen.numba import compiling

    def fail(*_: object) -> None:
        raise TypeError("no such luck")

    monkeypatch.setattr(compiling, "module_of", fail)
    monkeypatch.setenv("JITONNX_STRICT", "0")
    nodes = [helper.make_node("Cos", ["x"], ["c"], "cos"), helper.make_node("Mul", ["c", "x"], ["y"], "mul")]
    x = np.ones((2, 3), np.float32)
    with pytest.warns(match="Numba kernel of cos, mul"):
        opened = session(made(nodes, [2, 3]), keep_model="0")
    np.testing.assert_allclose(opened.run(None, {"x": x})[0], np.cos(x), 1e-6)
    (kernel,) = explain(opened, {"x": (2, 3)}).kernels
    assert "emitted as LLVM IR, as Numba failed to compile it" in kernel.notes


def test_the_command_prints_sources(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(made(NODES, [2, 33, 70]))
    assert not main(["explain", str(path), "--numba"])
    assert "def softmax_softmax2(" in capsys.readouterr().out
