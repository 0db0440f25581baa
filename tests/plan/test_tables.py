"""Tables of regular scales are cut from those of longer axes: they are what is made for each axis. Windows fit."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from jitonnx.ir.computation.resampling import COORDINATES
from jitonnx.ir.dims import variable
from jitonnx.kernels.resize.spec import pack_windows
from jitonnx.plan.selection.resizing import _Table, _windows_fit
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


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("coordinates", [name for name in COORDINATES if name != "tf_crop_and_resize"])
def test_windows_of_an_open_axis_are_wide_enough_for_all_lengths(coordinates: str, mode: str) -> None:
    """Windows of which it is said, before a run tells the length, that they fit, do."""
    taps, length = {"nearest": 1, "linear": 2, "cubic": 4}[mode], variable("n")
    for scale in map(float, np.float32([0.5, 0.6, 0.75, 1.0, 1.1, 1.5, 2.0])):
        maker = ResamplingTable(mode, coordinates, "floor", -0.75, False, False, None, scale, "")
        table = _Table(maker, (length, variable("m"), taps))
        fitting = [pair for pair in itertools.product((8, 16), (1, 2)) if _windows_fit(table, *pair)]
        for n in range(1, 47) if fitting else ():
            made = maker.table((n, math.floor(scale * n), taps))
            assert all(pack_windows(made, n, *pair) for pair in fitting), (scale, n)
