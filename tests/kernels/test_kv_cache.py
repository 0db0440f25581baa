"""The kernel that adds rows to a cache, also where the past is the present."""

from __future__ import annotations

import numpy as np
import pytest

from jitonnx.kernels.kv_cache.kernel import build
from jitonnx.kernels.kv_cache.spec import CacheSizes, CacheSpec
from jitonnx.target.machine import host
from tests.kernels.harness import Compiled


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32, np.float64])
@pytest.mark.parametrize("past", [True, False])
def test_cache(dtype: type, past: bool) -> None:
    random = np.random.default_rng(0)
    spec = CacheSpec(np.dtype(dtype).itemsize, past)
    kernel = Compiled(build(spec, host().lanes(spec.itemsize)))
    for batch, heads, before, rows, steps, depth in ((2, 3, 5, 9, 2, 7), (1, 1, 6, 6, 1, 64), (3, 2, 0, 4, 4, 20)):
        old = (random.normal(size=(batch, heads, before, depth)) * 50).astype(dtype)
        new = (random.normal(size=(batch, steps, heads, depth + 3)) * 50).astype(dtype)
        start = random.integers(0, rows - steps + 1, batch)
        expected = np.zeros((batch, heads, rows, depth), dtype)
        if past:
            expected[:, :, :before] = old
        for row, first in enumerate(start):
            expected[row, :, first : first + steps] = new[row, :, :, :depth].transpose(1, 0, 2)
        sizes = CacheSizes(
            batch=batch,
            heads=heads,
            past_rows=before,
            rows=rows,
            steps=steps,
            depth=depth,
            new_batch=steps * heads * (depth + 3),
            new_head=depth + 3,
            new_row=heads * (depth + 3),
        )
        present, error = np.full(expected.shape, 99, dtype), np.zeros(1, np.int64)
        kernel([old, new, start, present, error], sizes, spec.tasks(sizes), pieces=2)
        np.testing.assert_array_equal(present, expected)
        if past and before == rows:
            kernel([old, new, start, old, error], sizes, spec.tasks(sizes), pieces=2)
            np.testing.assert_array_equal(old, expected)
        assert error[0] == 0
        kernel([old, new, start + rows, present, error], sizes, spec.tasks(sizes))
        assert error[0] == 1
