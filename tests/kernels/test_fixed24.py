"""Packing weights as 24-bit fixed-point numbers."""

from __future__ import annotations

import numpy as np
import pytest

from jitonnx.kernels.parts import fixed24


def _unpacked(packed: np.ndarray) -> np.ndarray:
    """The numbers [..., 4, lanes] that kernels make of [..., 3, lanes]."""
    a, b, c = np.moveaxis(packed.view(np.uint32), -2, 0)
    d = (a << 24) | (((b << 24) | (c >> 8)) >> 8)
    return np.stack([a, b, c << 8, d], -2).view(np.int32)


@pytest.mark.parametrize("lanes", [1, 8, 16])
@pytest.mark.parametrize("largest", [1e-27, 0.06, 1.0, 3e38])
def test_error_is_half_a_unit_of_the_largest(lanes: int, largest: float) -> None:
    random = np.random.default_rng(lanes)
    weights = (random.uniform(-1, 1, (3, 40, lanes)) * largest).astype(np.float32)
    weights[0, :4, 0] = [largest, -largest, 0, -0.0]
    scales = fixed24.scales(np.moveaxis(weights, 1, -1))
    numbers = fixed24.numbers(weights, scales[:, None])
    unpacked = _unpacked(fixed24.pack(numbers.reshape(3, 10, 4, lanes))).reshape(weights.shape)
    error = np.abs(unpacked * scales[:, None].astype(np.float64) - weights).max(1)
    assert (error <= np.abs(weights).max(1) * (2.0**-24 + 2.0**-31)).all()


def test_extremes_of_all_four() -> None:
    """Neither the largest number nor the smallest overflows, whatever the bytes below it are."""
    ends = np.array([-1, 1, 0], np.float32)
    weights = np.stack(np.meshgrid(ends, ends, ends, ends), -1).reshape(-1, 4, 1)
    scales = fixed24.scales(np.ones((1, 1), np.float32))
    unpacked = _unpacked(fixed24.pack(fixed24.numbers(weights, scales)))
    assert np.abs(unpacked * scales.astype(np.float64) - weights).max() <= 2.0**-24 + 2.0**-31


def test_which_weights_fit() -> None:
    weights = np.random.default_rng(0).normal(size=(2, 3, 100)).astype(np.float32)
    assert (
        fixed24.fit_24_bits(weights)
        and fixed24.fit_24_bits(np.zeros((2, 3), np.float32))
        and fixed24.fit_24_bits(weights[..., :0])
    )
    assert fixed24.fit_24_bits(weights * np.float32(1e-20)) and not fixed24.fit_24_bits(weights * np.float32(1e-30))
    for value in (100.0, np.inf, np.nan):
        spoilt = weights.copy()
        spoilt[1, 2, 50] = value
        assert not fixed24.fit_24_bits(spoilt)
