"""Quantising by the least and the largest element: in one task, and by parts."""

from functools import cache

import numpy as np
import pytest

from jitonnx.kernels.dynamic_quantization.kernel import build
from jitonnx.kernels.dynamic_quantization.spec import PARTS_MOST, ExtremesSpec, QuantiseSpec, RowsSizes
from jitonnx.ops.onnx.quantization import DynamicQuantizeLinear
from jitonnx.target import tuning
from tests.kernels.harness import Compiled
from tests.targets import named

TARGETS = ("host", "znver4", "skylake-avx512", "haswell", "x86-64-v2")


@cache
def compiled(spec: ExtremesSpec | QuantiseSpec, target: str) -> Compiled:
    return Compiled(build(spec, named(target).lanes(4)), named(target), True)


def run(x: np.ndarray, target: str, alone: bool, gap: int = 0) -> tuple[np.ndarray, ...]:
    """y, scale and zero point of x [rows, length], whose rows are `gap` elements apart."""
    rows, length = x.shape
    lies = np.full((rows, length + gap), 1e30, np.float32)
    lies[:, :length] = x
    y = np.full((rows, length + gap), 77, np.uint8)
    scale, zero = np.zeros((), np.float32), np.zeros((), np.uint8)
    given = RowsSizes(rows=rows, length=length, x_row=length + gap, y_row=length + gap)
    extremes = np.full((2, PARTS_MOST), np.inf, np.float32)
    if not alone:
        first = ExtremesSpec()
        sizes = first.complete(given)
        assert first.tasks(sizes) <= PARTS_MOST
        compiled(first, target)([lies, extremes], sizes, first.tasks(sizes), pieces=3)
    spec = QuantiseSpec(alone)
    sizes = spec.complete(given)
    buffers = [lies, extremes, y, scale, zero]
    compiled(spec, target)(buffers, sizes, spec.tasks(sizes), pieces=1 if alone else 2)
    assert (y[:, length:] == 77).all()
    return y[:, :length], scale, zero


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("alone", [False, True])
def test_numbers(target: str, alone: bool) -> None:
    random = np.random.default_rng(3)
    shapes = [(1, 1), (3, 7), (1, 100), (5, 131), (0, 4), (4, 0)]
    if not alone:
        shapes += [(1, 3 * tuning.TASK_ELEMENTS + 5), (2, 2 * tuning.TASK_ELEMENTS + 1), (700, 100)]
    for shape in shapes:
        for size, shift in ((1.0, 0.0), (1e-3, 1.0), (1e30, 0.0), (1.0, -5.0)):
            x = (random.standard_normal(shape) * size + shift).astype(np.float32)
            expected = DynamicQuantizeLinear().evaluate(x)
            for given, wanted in zip(run(x, target, alone, gap=3), expected, strict=True):
                np.testing.assert_array_equal(given, wanted)


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize("alone", [False, True])
def test_extremes(alone: bool) -> None:
    """A scale of which the reciprocal overflows; zeros alone; halves, which are rounded to the even."""
    ramp = np.linspace(-1, 1, 511, dtype=np.float32)
    for x in (ramp * 1e-36, ramp * 3e38, ramp * 0, np.arange(256, dtype=np.float32) / 2, np.arange(-255, 0.5, 0.5)):
        x = x[None].astype(np.float32)
        for given, wanted in zip(run(x, "host", alone), DynamicQuantizeLinear().evaluate(x), strict=True):
            np.testing.assert_array_equal(given, wanted)
