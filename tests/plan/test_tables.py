"""Tables of regular scales are cut from those of longer axes: they are what is made for each axis."""

from __future__ import annotations

import numpy as np
import pytest

from jitonnx.plan.tables import ResamplingTable


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "asymmetric", "tf_half_pixel_for_nn", "align_corners"])
@pytest.mark.parametrize("scale", [2.0, 8.0, 0.25, 1.5, None])
def test_tables_of_regular_scales(mode: str, coordinates: str, scale: float | None) -> None:
    for nearest in ("round_prefer_floor", "ceil") if mode == "nearest" else ("floor",):
        maker = ResamplingTable(mode, coordinates, nearest, -0.75, False, False, None, scale, "")
        for length in (1, 2, 3, 7, 16, 33, 100):
            factor = scale or 3.0
            outputs, taps = int(length * factor), {"nearest": 1, "linear": 2, "cubic": 4}[mode]
            found = maker.table((length, outputs, taps))
            made = maker._made(length, outputs, outputs / length if scale is None else factor, taps)
            for a, b in zip(found, made, strict=True):
                np.testing.assert_array_equal(a, b)
                assert a.dtype == b.dtype and a.flags.c_contiguous
