"""The benchmark of runs beside a compile, on a small model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench import background
from tests.session import models


def test_runs_beside_a_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "relu_add.onnx"
    path.write_bytes(models.relu_add())
    np.savez(path.with_suffix(".npz"), x=np.ones((2, 3), np.float32))
    monkeypatch.setattr(background, "SECONDS_BEHIND", 0.02)
    monkeypatch.setenv("JITONNX_CACHE_DIR", str(tmp_path / "first"))
    seen = background.run_meanwhile(str(path), 1)
    assert seen.on_numpy and seen.compiled_runs and seen.compiled >= sum(seen.on_numpy)
    monkeypatch.setenv("JITONNX_CACHE_DIR", str(tmp_path / "second"))
    other = background.run_beside(str(path), 1)
    assert other.steady and other.beside and other.compiled > 0
    assert len(background.line(path.stem, seen, other).split()) == 1 + len(background.COLUMNS)


def test_columns_stand_apart_however_wide_they_are() -> None:
    seen = background.ObservedLoop(3.5, 23.1, 2e-5, [7e-4], [6e-6])
    other = background.SeenBeside(0.1, [3e-7], [3e-7, 0.3], 6.0)
    assert len(background.line("relu_add", seen, other).split()) == 1 + len(background.COLUMNS)
