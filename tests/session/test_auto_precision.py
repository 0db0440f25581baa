"""`jitonnx.precision` = "auto": bfloat16 where the error on the user's inputs is within a bound."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jitonnx
from jitonnx.api import auto_precision
from jitonnx.api.auto_precision import error_of
from jitonnx.api.session import InferenceSession
from jitonnx.errors import InvalidArgument
from jitonnx.tools.cli import main
from tests.session.models import model, node, tensor
from tests.targets import needs_bfloat16_products

RANDOM = np.random.default_rng(3)
WEIGHTS = RANDOM.standard_normal((128, 96)).astype(np.float32)


def product() -> bytes:
    """y = x @ w."""
    nodes = [node("MatMul", ["x", "w"], ["y"])]
    return model(nodes, [tensor("x", ("N", 128))], [tensor("y", ("N", 96))], {"w": WEIGHTS})


@pytest.fixture
def feeds(tmp_path: Path) -> str:
    path = tmp_path / "feeds.npz"
    np.savez(path, x=RANDOM.standard_normal((5, 128)).astype(np.float32))
    return str(path)


def session(source: Any, feeds: str, bound: str, **entries: str) -> InferenceSession:
    options = jitonnx.SessionOptions()
    given = {"precision": "auto", "calibration": feeds, "precision_bound": bound} | entries
    for key, value in given.items():
        options.add_session_config_entry(f"jitonnx.{key}", value)
    return InferenceSession(source, options)


def labels(made: InferenceSession) -> list[str]:
    return [call.label for call in made.engine.compiled.plan.calls]


@needs_bfloat16_products
def test_the_bound_decides(feeds: str) -> None:
    x = np.load(feeds)["x"]
    exact = x.astype(float) @ WEIGHTS
    loose, strict = session(product(), feeds, "0.05"), session(product(), feeds, "1e-5")
    assert loose.precision[0] == "bfloat16" and labels(loose)[0].startswith("bfloat16")
    assert strict.precision[0] == "float32" and not labels(strict)[0].startswith("bfloat16")
    errors = [np.abs(one.run(None, {"x": x})[0] - exact).max() / np.abs(exact).max() for one in (loose, strict)]
    assert 1e-5 < errors[0] < 0.05 and errors[1] < 1e-6
    assert float(loose.precision[1].split("off by ")[1].split()[0]) == pytest.approx(errors[0], rel=0.1)


@needs_bfloat16_products
def test_all_inputs_count(feeds: str, tmp_path: Path) -> None:
    zeros, both = tmp_path / "zeros.npz", tmp_path / "more.npz"
    np.savez(zeros, x=np.zeros((3, 128), np.float32))
    np.savez(both, x=np.load(feeds)["x"])
    assert session(product(), str(zeros), "1e-5").precision[0] == "bfloat16"
    assert session(product(), f"{zeros};{both}", "1e-5").precision[0] == "float32"


@needs_bfloat16_products
def test_the_error_is_kept(feeds: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITONNX_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "product.onnx"
    path.write_bytes(product())
    first = session(str(path), feeds, "0.05")
    monkeypatch.setattr(auto_precision, "error_of", lambda *_: pytest.fail("measured again"))
    assert session(str(path), feeds, "0.05").precision == first.precision
    assert session(str(path), feeds, "1e-5").precision[0] == "float32"
    np.savez(feeds, x=np.ones((2, 128), np.float32))
    monkeypatch.setattr(auto_precision, "error_of", lambda *_: 1.0)
    assert session(str(path), feeds, "0.05").precision[0] == "float32"


@needs_bfloat16_products
def test_what_is_made_of_the_session(feeds: str, tmp_path: Path) -> None:
    made, x = session(product(), feeds, "0.05"), np.load(feeds)["x"]
    (expected,) = made.run(None, {"x": x})
    again = pickle.loads(pickle.dumps(made))
    assert again.precision == made.precision
    artifact = tmp_path / "product.jitonnx"
    made.save(artifact)
    np.testing.assert_array_equal(jitonnx.load(artifact).run(None, {"x": x})[0], expected)
    assert jitonnx.load(str(artifact), made.get_session_options()).precision[0] == ""
    assert made.get_session_options().get_session_config_entry("jitonnx.precision") == "auto"


def test_cpus_without_tiles_measure_nothing(feeds: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Plain:
        bfloat16_products = ""

    monkeypatch.setattr(auto_precision, "host", Plain)
    precision, reason = session(product(), feeds, "0.05").precision
    assert precision == "float32" and "no matrix instructions" in reason


def test_what_is_missing_is_told(feeds: str) -> None:
    for bound in ("", "much", "-1", "nan", "inf"):
        with pytest.raises(InvalidArgument, match="precision_bound"):
            session(product(), feeds, bound)
    with pytest.raises(InvalidArgument, match="which is no file"):
        session(product(), "nowhere.npz", "0.1")
    with pytest.raises(InvalidArgument, match="npz files of inputs by name"):
        session(product(), "", "0.1")
    with pytest.raises(InvalidArgument, match="calibration goes with"):
        session(product(), feeds, "0.1", precision="bfloat16")
    with pytest.raises(InvalidArgument, match="code for another CPU"):
        session(product(), feeds, "0.1", cpu="haswell")
    assert InferenceSession(product()).precision[0] == "float32"


def test_errors_of_outputs() -> None:
    a = np.array([1.0, -4.0, np.inf, np.nan], np.float32)
    assert error_of([a], [a]) == 0
    assert error_of([a], [a + np.array([0, 1, 0, 0], np.float32)]) == 0.25
    assert error_of([a], [np.array([1, -4, 3, np.nan], np.float32)]) == np.inf
    assert error_of([a], [np.array([np.nan, -4, np.inf, np.nan], np.float32)]) == np.inf
    assert error_of([np.zeros(3)], [np.zeros(3)]) == 0 and error_of([np.zeros(3)], [np.ones(3)]) == np.inf
    assert error_of([np.zeros(3)], [np.zeros(4)]) == np.inf
    assert error_of([np.arange(3)], [np.array([0, 1, 3])]) == np.inf
    assert error_of([[a, a]], [[a, a]]) == 0 and error_of([[a, a]], [[a]]) == np.inf
    assert error_of([np.array(["a"], object)], [np.array(["b"], object)]) == np.inf
    assert error_of([np.array([2j])], [np.array([2j + 1])]) == 0.5
    assert error_of([], []) == 0


@needs_bfloat16_products
def test_on_the_command_line(feeds: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "product.onnx"
    path.write_bytes(product())
    arguments = [str(path), "--precision", "auto", "--calibration", feeds, "--precision-bound", "0.05"]
    main(["run", *arguments, "--shape", "x=2,128"])
    assert "precision: bfloat16, as in bfloat16 outputs are off by" in capsys.readouterr().err
