"""The kernel that adds up blocks of images, against its definition on NumPy."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from jitonnx.kernels.col2im.kernel import build
from jitonnx.kernels.col2im.spec import MAX_AXES, FoldSpec
from jitonnx.target.machine import host
from tests.kernels.harness import Compiled
from tests.targets import named

WIDTHS = sorted({8, host().lanes(4)})


@functools.cache
def compiled(spec: FoldSpec, lanes: int) -> Compiled:
    return Compiled(build(spec, lanes), host() if lanes == host().lanes(4) else named("haswell"))


def check(
    image: tuple[int, ...],
    kernel: tuple[int, ...],
    steps: tuple[int, ...],
    dilations: tuple[int, ...],
    before: tuple[int, ...],
    blocks: tuple[int, ...],
    lanes: int,
    dtype: type = np.float32,
) -> None:
    """AssertionError unless the sums are right; whole numbers, so that their order does not matter."""
    x = np.random.default_rng(0).integers(-50, 50, (3, *kernel, *blocks)).astype(dtype)
    y = np.full((3, *image), 99, dtype)
    parts = image, blocks, kernel, steps, dilations, before
    given = [3, *(n for part in parts for n in (*part, *[1] * (MAX_AXES - len(image))))]
    spec = FoldSpec(len(image), kernel[-1], steps[-1], dilations[-1], before[-1], np.dtype(dtype).name)
    sizes = spec.complete(spec.given(given))
    compiled(spec, lanes)([x, y], sizes, spec.tasks(sizes), spec.scratch_bytes(sizes), pieces=3)
    expected = np.zeros_like(y)
    for tap in np.ndindex(*kernel):
        for block in np.ndindex(*blocks):
            place = np.array(block) * steps - before + np.array(tap) * dilations
            if (place >= 0).all() and (place < image).all():
                expected[(slice(None), *place)] += x[(slice(None), *tap, *block)]
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("lanes", WIDTHS)
def test_steps_dilations_and_edges(lanes: int) -> None:
    for width in (1, 7, lanes, 2 * lanes + 3):
        check((5, width), (3, 3), (1, 1), (1, 1), (1, 1), (5, width), lanes)
        check((4, width), (2, 3), (2, 3), (1, 2), (0, 2), (3, width // 3 + 1), lanes)
        check((4, width), (2, 7), (1, 6), (2, 1), (1, 0), (2, width // 6), lanes)
    check((50,), (4,), (2,), (1,), (1,), (26,), lanes)
    check((3, 4, 20), (2, 3, 2), (1, 2, 2), (1, 1, 3), (0, 1, 2), (2, 2, 11), lanes)


@pytest.mark.parametrize("dtype", [np.float64, np.int8, np.int16, np.int64])
def test_elements(dtype: type) -> None:
    check((5, 40), (3, 3), (1, 2), (1, 1), (1, 1), (5, 20), host().lanes(4), dtype)


def test_nothing_to_do_and_wrong_specs() -> None:
    check((0, 4), (2, 2), (1, 1), (1, 1), (0, 0), (0, 3), host().lanes(4))
    check((4, 0), (2, 2), (1, 1), (1, 1), (0, 0), (3, 0), host().lanes(4))
    for wrong in ((4, 1, 1, 1, 0), (2, 1, 1, 1, 0, "uint8")):
        with pytest.raises(ValueError, match="no kernel folds"):
            FoldSpec(*wrong)
    with pytest.raises(ValueError, match="at least 1"):
        FoldSpec(2, 3, 0, 1, 0)
