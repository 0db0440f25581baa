"""The benchmark of memory that processes share, on a small model."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from bench import sharing
from bench.start import prepare
from tests.session import models


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="PSS is Linux's")
def test_total(tmp_path: Path) -> None:
    path = tmp_path / "relu_add.onnx"
    path.write_bytes(models.relu_add())
    np.savez(path.with_suffix(".npz"), x=np.ones((2, 3), np.float32))
    artifact = prepare(path, tmp_path, 1)["artifact"]
    one, two = (sharing.total(artifact, tmp_path, count) for count in (1, 2))
    assert 0 < one < two < 3 * one, sys.version
