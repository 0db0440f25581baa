"""Real models behind the session's face. Slow: the models are large, and compiling them takes a while."""

import sys
from pathlib import Path

import pytest

from bench import zoo
from jitonnx import InferenceSession
from jitonnx.tools.explain import as_html, as_text, explain

pytestmark = pytest.mark.slow

MODELS = ["mlp_tiny", "resnet18", "mobilenet_v3_large", "minilm_l6", "lstm_tagger"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("zoo")
    zoo.materialize(folder, MODELS)
    return folder


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
