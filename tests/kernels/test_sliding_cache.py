"""The kernel that moves a cache of the last positions on, also where the past is the present."""

from __future__ import annotations

import numpy as np
import pytest

from jitonnx.kernels.sliding_cache.kernel import build
from jitonnx.kernels.sliding_cache.spec import SlidingSizes, SlidingSpec
from jitonnx.target.machine import host
from tests.kernels.harness import Compiled

RANDOM = np.random.default_rng(0)


def held(total: int, capacity: int, window: int) -> int:
    """How many positions a cache holds after `total` steps of one each."""
    rows = 0
    for _ in range(total):
        rows = window if rows == capacity else rows + 1
    return rows


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32, np.float64])
def test_positions(dtype: type) -> None:
    """Rows are those of all positions that there were, cut out of one sequence."""
    spec = SlidingSpec(np.dtype(dtype).itemsize)
    kernel = Compiled(build(spec, host().lanes(spec.itemsize)))
    heads, depth, longest = 3, 7, 40
    for capacity, window in ((4, 4), (6, 4), (5, 1), (9, 3), (1, 1)):
        for steps, earlier in ((1, (0, 3)), (1, (4, 17)), (3, (0, 0)), (3, (5, 6)), (12, (0, 20)), (2, (7, 15))):
            every = (RANDOM.normal(size=(2, heads, longest, depth)) * 50).astype(dtype)
            past, new = np.zeros((2, heads, capacity, depth), dtype), np.zeros((2, steps, heads, depth + 3), dtype)
            rows = min(window - 1 + steps, max(earlier) + steps)
            seen, present = np.zeros((2, heads, rows, depth), dtype), np.zeros_like(past)
            for batch, before in enumerate(earlier):
                count, total = held(before, capacity, window), before + steps
                past[batch, :, :count] = every[batch, :, before - count : before]
                past[batch, :, count:] = 99
                new[batch, :, :, :depth] = every[batch, :, before:total].transpose(1, 0, 2)
                visible = min(before, window - 1)
                seen[batch, :, : visible + steps] = every[batch, :, before - visible : total]
                count = held(total, capacity, window)
                present[batch, :, :count] = every[batch, :, total - count : total]
            sizes = SlidingSizes(
                batch=2,
                heads=heads,
                capacity=capacity,
                window=window,
                seen_rows=rows,
                steps=steps,
                depth=depth,
                new_batch=steps * heads * (depth + 3),
                new_head=depth + 3,
                new_row=heads * (depth + 3),
            )
            got, cache, error = np.full_like(seen, 98), np.full_like(past, 98), np.zeros(1, np.int64)
            kernel([past, new, np.array(earlier), got, cache, error], sizes, spec.tasks(sizes), pieces=2)
            np.testing.assert_array_equal(got, seen)
            np.testing.assert_array_equal(cache, present)
            kernel([past, new, np.array(earlier), got, past, error], sizes, spec.tasks(sizes), pieces=2)
            np.testing.assert_array_equal(past, present)
            assert error[0] == 0


def test_rows_that_do_not_fit() -> None:
    spec = SlidingSpec(4)
    kernel = Compiled(build(spec, host().lanes(4)))
    names = "batch heads capacity window seen_rows steps depth new_batch new_head new_row"
    sizes = SlidingSizes(**dict(zip(names.split(), (1, 1, 4, 4, 3, 1, 2, 2, 2, 2), strict=True)))
    for before in (-1, 3):
        past, new, seen = (np.zeros((1, 1, rows, 2), np.float32) for rows in (4, 1, 3))
        error = np.zeros(1, np.int64)
        kernel([past, new, np.array([before]), seen, np.zeros_like(past), error], sizes, 1)
        assert error[0] == 1
