"""`python -m bench.tuning` prints both of its tables."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.tuning import Sample, fit, main, misjudged
from jitonnx.kernels.gemm.choose import GemmExtents, extents_of, tile_costs, tile_text
from jitonnx.target.cores import KEEPING_TILES
from tests.session.test_tuning import layers
from tests.targets import named


def test_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "layers.onnx").write_bytes(layers())
    np.savez(tmp_path / "layers.npz", x=np.ones((1, 16, 14, 14), np.float32))
    main([str(tmp_path), "--rounds", "1", "--fit"])
    out = capsys.readouterr().out
    assert "usual / tuned" in out and "geometric mean" in out and "best taken" in out and "depthwise tile" in out
    assert "fitted: the chosen tile takes" in out or "there is nothing to fit" in out


def test_fit() -> None:
    """Where measured times are as other constants estimate them, these choose like those."""
    target = named("znver4")
    true = KEEPING_TILES._replace(vector=1.5, row=0.3)
    slower = replace(target, core=target.core._replace(tiles=true))
    found = []
    for sizes in ((196, 96, 64), (50, 128, 256), (3136, 24, 96), (49, 33, 576)):
        extents = GemmExtents(*sizes)
        costs = tile_costs(extents, slower)
        best = sorted(costs, key=costs.__getitem__)[:12:3]
        shares = {tile_text(tile, 1): costs[tile] / costs[best[-1]] for tile in best}
        found.append(Sample(extents, True, "float32", shares))
    fitted = fit(found, target)
    before, after = (sum(misjudged(sample, costs, target) for sample in found) for costs in (KEEPING_TILES, fitted))
    assert after < 0.5 * before
    assert extents_of(f"{found[0].extents.text()} float32, packed") == found[0].extents
