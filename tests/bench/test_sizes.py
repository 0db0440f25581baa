"""The benchmark of models of open sizes: its own models are what it says, and the table holds what was measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from bench import sizes, text_models
from jitonnx.ir.dims import evaluate
from jitonnx.model import load
from tests.session import models


@pytest.mark.parametrize(
    ("name", "shape", "result"),
    [
        ("detector", (1, 3, 64, 96), (1, 1, 64, 96)),
        ("recogniser", (2, 3, 48, 80), (2, 10, text_models.CHARACTERS)),
    ],
)
def test_own_models(name: str, shape: tuple[int, ...], result: tuple[int, ...]) -> None:
    source = getattr(text_models, name)()
    onnx.checker.check_model(source)
    session = onnxruntime.InferenceSession(source.SerializeToString(), providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": np.ones(shape, np.float32)})
    assert y.shape == result and np.isfinite(y).all()
    (value,) = load(source).graph.outputs
    given = {"n": shape[0], "h": shape[2], "w": shape[3]}
    assert tuple(evaluate(dim, given) for dim in value.shape) == result


def test_drawn_shapes() -> None:
    rng = np.random.default_rng(0)
    axes = {"ids": [{"n": [1, 8]}, [1, 200]], "mask": ["n", 1], "x": [[32, 96, 32]]}
    for _ in range(50):
        shapes = sizes.drawn(axes, rng)
        assert 1 <= shapes["ids"][0] == shapes["mask"][0] <= 8 and 1 <= shapes["ids"][1] <= 200
        assert shapes["mask"][1] == 1 and shapes["x"] in ((32,), (64,), (96,))


def test_measured_in_turns(tmp_path: Path) -> None:
    path = tmp_path / "relu_add.onnx"
    path.write_bytes(models.relu_add())
    found = sizes.measure(path, {"x": [[1, 40], 3]}, 6, 1, sizes.CLOCKS["wall"])
    assert found["difference"] == 0 and set(found["start"]) == {"jitonnx", "onnxruntime"}
    assert all(len(times) == 5 for which in ("first", "again") for times in found[which].values())


def test_the_table() -> None:
    first = {"jitonnx": [0.1] * 4 + [0.2], "onnxruntime": [0.1] * 4 + [0.8]}
    again = {"jitonnx": [0.1] * 5, "onnxruntime": [0.2] * 5}
    found = {"start": {"jitonnx": 1.0, "onnxruntime": 0.5}, "first": first, "again": again, "difference": 1e-6}
    line = sizes.row("model", "empty", found).split()
    assert line == ["model", "empty", "1.00", "2.0", "0.600", "0.50", "2.00", "1.00", "2.00", "0.00", "1e-06"]
    assert len(sizes.HEAD.replace(", ", "").replace("of ort", "of").split()) == len(line)
