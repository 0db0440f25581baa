"""Local response normalisation against its definition in NumPy (float64)."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from jitonnx.emit import types
from jitonnx.emit.simd import convert
from jitonnx.kernels.lrn.kernel import build
from jitonnx.kernels.lrn.spec import LRNSpec
from jitonnx.kernels.parts.layouts import Pixels
from jitonnx.target.machine import host
from tests.kernels.harness import Compiled
from tests.kernels.layouts import pixels
from tests.targets import named

WIDTHS = sorted({8, host().lanes(4)})


@functools.cache
def compiled(spec: LRNSpec, lanes: int, epilogue: Any) -> Compiled:
    return Compiled(build(spec, lanes, epilogue), host() if lanes == host().lanes(4) else named("haswell"))


def run(spec: LRNSpec, x: np.ndarray, lanes: int, epilogue: Any = None) -> np.ndarray:
    """x [N, H, W, C], in a buffer with gaps between pixels."""
    images, height, width, channels = x.shape
    wide_x, wide_y = (np.full((*x.shape[:3], channels + 3), 99, np.float32) for _ in range(2))
    wide_x[..., :channels] = x
    strides = [step // 4 for step in wide_x.strides[:3]]
    sizes = Pixels(**pixels((images, height, width, channels), strides, strides))
    compiled(spec, lanes, epilogue)([wide_x, wide_y], sizes, spec.tasks(sizes), spec.scratch_bytes(sizes), pieces=3)
    assert (wide_y[..., channels:] == 99).all()
    return wide_y[..., :channels]


def reference(spec: LRNSpec, x: np.ndarray) -> np.ndarray:
    x = x.astype(float)
    squares = np.zeros_like(x)
    for c in range(x.shape[-1]):
        first, stop = max(0, c - (spec.size - 1) // 2), c + spec.size // 2 + 1
        squares[..., c] = (x[..., first:stop] ** 2).sum(axis=-1)
    return x / (spec.bias + spec.alpha / spec.size * squares) ** spec.beta


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("beta", [0.75, 0.5, 1.0, 0.6])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 40])
def test_sizes_and_powers(size: int, beta: float, lanes: int) -> None:
    spec = LRNSpec(size, 0.3, beta, 1.5)
    for channels in (1, 7, 16, 33, 100):
        x = (np.random.default_rng(size).normal(size=(2, 3, 4, channels)) * 3).astype(np.float32)
        np.testing.assert_allclose(run(spec, x, lanes), reference(spec, x), 2e-6, 1e-6)


def test_epilogue() -> None:
    def epilogue(code, x, batch, row, column, active):
        return x * 2.0 + convert(batch * 10000 + row * 100, types.float32).splat(x.lanes)

    spec, lanes = LRNSpec(5, 0.3, 0.75, 1.0), host().lanes(4)
    x = np.random.default_rng(0).normal(size=(2, 3, 4, 40)).astype(np.float32)
    place = np.arange(2)[:, None, None, None] * 10000 + np.arange(12).reshape(3, 4, 1) * 100
    np.testing.assert_allclose(run(spec, x, lanes, epilogue), reference(spec, x) * 2 + place, 1e-6, 1e-6)


def test_nothing_to_do_and_wrong_specs() -> None:
    spec = LRNSpec(5, 0.3, 0.75, 1.0)
    for shape in ((0, 2, 2, 3), (1, 2, 2, 0)):
        run(spec, np.zeros(shape, np.float32), host().lanes(4))
    with pytest.raises(ValueError, match="at least 1"):
        LRNSpec(0, 0.3, 0.75, 1.0)
