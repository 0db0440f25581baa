"""The benchmark of sizes that only a run tells: its model is what it says, and nothing of it is left to NumPy."""

from __future__ import annotations

import onnx

from bench import boxes


def test_measured() -> None:
    onnx.checker.check_model(boxes.detector())
    found = boxes.measure(6, 64, 1)
    assert found.steps == ["native"] * 3 and found.engines == found.numpy_runs == 0
    assert found.numbers > 3 and found.alike >= 5
    first, second, third, last = boxes.table(found).splitlines()
    assert first.split() == ["seconds", "ms", "an", "image", "of", "ort"]
    assert second.split()[0] == "jitonnx" and third.split()[::3] == ["onnxruntime", "1.00"]
    assert last.startswith("6 images, ")
