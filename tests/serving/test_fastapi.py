"""FastAPI's application of docs/serving.md: `.ci/serving` installs what it needs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

from tests.serving.pages import application

pytestmark = pytest.mark.serving

MODEL = '<ir_version: 8, opset_import: ["": 18]> g (float[N,16] x) => (float[N,16] y) { y = Relu(x) }'


def test_the_application_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    testclient = pytest.importorskip("fastapi.testclient")
    monkeypatch.chdir(tmp_path)
    Path("model.onnx").write_bytes(onnx.parser.parse_model(MODEL).SerializeToString())
    Path("application.py").write_text(application("FastAPI"))
    monkeypatch.syspath_prepend(str(tmp_path))
    app = __import__("application").app
    x = np.random.default_rng(0).standard_normal((40, 2, 16)).astype(np.float32)
    with testclient.TestClient(app) as client, ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda rows: client.post("/predict", json={"x": rows.tolist()}).json(), x))
        np.testing.assert_array_equal(np.array(made, np.float32), np.maximum(x, 0))
        wrong = client.post("/predict", json={"x": [[1.0, 2.0]]})
        assert wrong.status_code == 422 and "16" in wrong.json()["detail"]
