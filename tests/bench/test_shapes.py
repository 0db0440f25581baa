"""The benchmark of changing shapes, on a small model."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bench import shapes
from bench.shapes import Result
from tests.session import models


def test_a_stream(tmp_path: Path) -> None:
    path = tmp_path / "relu_add.onnx"
    path.write_bytes(models.relu_add())
    feeds = shapes.stream_of(path, 7, 8, 4, seed=3)
    sizes = [one["x"].shape for one in feeds]
    assert len(set(sizes)) == 7 and all(1 <= rows <= 8 and columns == 3 for rows, columns in sizes)
    runs = shapes.opened(path, 1, feeds[0])
    results = shapes.measure(runs, feeds[1:])
    assert {name: len(result.stream) for name, result in results.items()} == {"jitonnx": 6, "onnxruntime": 6}
    assert all(result.worst > 0 for result in results.values())


def test_the_table() -> None:
    ours = Result(np.array([0.2, 0.4]), np.array([0.1, 0.1]))
    theirs = Result(np.array([0.4, 0.4]), np.array([0.4, 0.2]))
    assert ours.worst == 4
    _, first, second = shapes.table({"jitonnx": ours, "onnxruntime": theirs}).splitlines()
    assert first.split() == ["jitonnx", "0.600", "0.200", "200.00", "4.0", "0.75"]
    assert second.split() == ["onnxruntime", "0.800", "0.600", "100.00", "2.0", "1.00"]
