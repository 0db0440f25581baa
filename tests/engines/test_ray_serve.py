"""Ray Serve's application of docs/serving.md: `.ci/engines` installs what it needs."""

from __future__ import annotations

import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

import jitonnx
from tests.serving.pages import application

pytestmark = pytest.mark.engines

MODEL = '<ir_version: 8, opset_import: ["": 18]> g (float[N,16] x) => (float[N,16] y) { y = Relu(x) }'


def test_the_application_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve = pytest.importorskip("ray.serve")
    ray = pytest.importorskip("ray")
    artifact = tmp_path / "model.jitonnx"
    session = jitonnx.InferenceSession(onnx.parser.parse_model(MODEL).SerializeToString())
    session.save(artifact, {"x": ((1, 32), 16)})
    (tmp_path / "application.py").write_text(application("Ray Serve").replace('"model.jitonnx"', repr(str(artifact))))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    ray.init(num_cpus=3, log_to_driver=False, include_dashboard=False)
    try:
        serve.start(http_options={"port": 8125})
        serve.run(__import__("application").app)
        x = np.random.default_rng(0).standard_normal((40, 16)).astype(np.float32)

        def ask(row: np.ndarray) -> list[float]:
            body = json.dumps({"x": row.tolist()}).encode()
            with urllib.request.urlopen("http://127.0.0.1:8125/", body, timeout=60) as answer:
                made: list[float] = json.loads(answer.read())
            return made

        with ThreadPoolExecutor(8) as pool:
            np.testing.assert_array_equal(np.array(list(pool.map(ask, x)), np.float32), np.maximum(x, 0))
    finally:
        serve.shutdown()
        ray.shutdown()
