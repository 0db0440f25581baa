"""The picture of models' times."""

import json
from pathlib import Path

import pytest

from bench import model_chart


def test_rows_are_drawn(tmp_path: Path) -> None:
    rows = [
        {"model": name, "threads": threads, "jitonnx": 1.0, "onnxruntime": 2.0, "openvino": openvino}
        for name, openvino in (("resnet18", 1.5), ("mlp_tiny", float("nan")))
        for threads in (1, 2)
    ]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    model_chart.main([str(tmp_path / "rows.json"), str(tmp_path / "chart.png"), "--title", "a CPU"])
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="no row is for 4 threads"):
        model_chart.draw(rows, 4, "a CPU", tmp_path / "none.png")
