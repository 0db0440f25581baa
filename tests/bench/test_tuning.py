"""`python -m bench.tuning` prints both of its tables."""

from pathlib import Path

import numpy as np
import pytest

from bench.tuning import main
from tests.session.test_tuning import layers


def test_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "layers.onnx").write_bytes(layers())
    np.savez(tmp_path / "layers.npz", x=np.ones((1, 16, 14, 14), np.float32))
    main([str(tmp_path), "--rounds", "1"])
    out = capsys.readouterr().out
    assert "usual / tuned" in out and "geometric mean" in out and "best taken" in out and "depthwise tile" in out
