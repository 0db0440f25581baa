"""Real models behind the session's face. Slow: the models are large, and compiling them takes a while."""

import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from bench import zoo
from jitonnx import InferenceSession
from jitonnx.explain import as_html, as_text, explain

pytestmark = pytest.mark.slow

MODELS = ["mlp_tiny", "resnet18", "mobilenet_v3_large", "minilm_l6", "lstm_tagger"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("zoo")
    zoo.materialize(folder, MODELS)
    return folder


@pytest.mark.parametrize("name", MODELS)
def test_outputs_are_those_of_onnxruntime(folder: Path, name: str) -> None:
    path, feeds = str(folder / f"{name}.onnx"), zoo.feeds(name)
    session = InferenceSession(path)
    assert session.engine.cut is None, "nothing is left to NumPy"
    expected = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert [output.name for output in session.get_outputs()] == [output.name for output in expected.get_outputs()]
    for _ in range(2):
        for ours, theirs in zip(session.run(None, feeds), expected.run(None, feeds), strict=True):
            assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
            assert np.abs(ours - theirs).max() <= 1e-4 * np.abs(theirs).max()


@pytest.mark.parametrize("name", MODELS)
def test_explanations(folder: Path, name: str) -> None:
    session = InferenceSession(str(folder / f"{name}.onnx"))
    explanation = explain(session, {key: array.shape for key, array in zoo.feeds(name).items()})
    assert all(fate.kind != "numpy" for fate in explanation.nodes)
    text, page = as_text(explanation, details=True), as_html(explanation)
    for kernel in explanation.kernels:
        assert kernel.symbol in text and f'data-id="k{kernel.number}"' in page


def test_a_run_of_resnet18_is_few_python_calls(folder: Path) -> None:
    session, feeds = InferenceSession(str(folder / "resnet18.onnx")), zoo.feeds("resnet18")
    session.run(None, feeds)
    calls: list[str] = []
    sys.setprofile(lambda frame, event, argument: calls.append(event) if "call" in event else None)
    session.run(None, feeds)
    sys.setprofile(None)
    assert len(calls) <= 4


def test_new_shapes_of_minilm_need_no_compiler(folder: Path) -> None:
    """For the second and later shapes only sizes are worked out: 20 ms at most."""
    path = str(folder / "minilm_l6.onnx")
    session = InferenceSession(path)
    expected = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    given = zoo.feeds("minilm_l6")
    seconds = []
    for batch, length in ((1, 8), (2, 17), (3, 64), (1, 1)):
        feeds = {name: np.ascontiguousarray(np.resize(array, (batch, length))) for name, array in given.items()}
        shapes = tuple(feeds[declared.name].shape for declared in session.declared_inputs)
        started = time.perf_counter()
        assert session.engine.program(shapes) is not None
        seconds.append(time.perf_counter() - started)
        for ours, theirs in zip(session.run(None, feeds), expected.run(None, feeds), strict=True):
            assert np.abs(ours - theirs).max() <= 1e-4 * np.abs(theirs).max()
    assert sorted(seconds[1:])[1] < 0.020, seconds
