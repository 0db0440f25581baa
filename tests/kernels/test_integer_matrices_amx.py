"""Kernels of products of two computed matrices of bytes in tile registers: exact sums."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest

from jitonnx.kernels.integer_matrices_amx.kernel import build
from jitonnx.kernels.integer_matrices_amx.spec import IntegerMatricesAmxSpec, IntegerPackingSpec, choose_tile_matrices
from jitonnx.kernels.parts.amx_matrices import AmxMatricesSizes, PackingSizes
from jitonnx.target.machine import host
from tests.kernels.harness import Compiled
from tests.kernels.test_bfloat16 import aligned
from tests.kernels.test_bfloat16_matrices import SHAPES, one_pixel
from tests.kernels.test_integer_matrices import whole

pytestmark = pytest.mark.skipif(not host().has_integer_tiles, reason="this CPU has no tile registers for bytes")


@functools.cache
def compiled(spec: IntegerMatricesAmxSpec | IntegerPackingSpec) -> Compiled:
    return Compiled(build(spec, host().lanes(4)), host(), prescheduled=spec.prescheduled)


def packing(spec: IntegerMatricesAmxSpec, b: np.ndarray, lies: np.ndarray, pieces: int) -> np.ndarray:
    """Matrices b [outer, inner, k, n], which lie as the spec wants it, as the kernel packs them."""
    outer, inner, k, n = b.shape
    kernel = IntegerPackingSpec(spec.width, spec.b_signed, spec.by_column)
    sizes = PackingSizes(
        outer=outer, inner=inner, k=k, n=n, x_outer=inner * k * n, x_inner=k * n, x_step=lies.shape[-1]
    )
    y = aligned(np.full(outer * inner * spec.packed_bytes(k, n), 55, np.uint8))
    compiled(kernel)([lies, y], sizes, kernel.tasks(sizes), kernel.scratch_bytes(sizes), pieces)
    return y


def product(
    shape: tuple[int, int, int, int, int],
    of_a: Any,
    of_b: Any,
    *,
    packs: bool,
    way: str = "copied",
    by_column: bool = False,
    zeros: tuple[int | None, int | None] = (None, None),
    shared: tuple[bool, bool] = (False, False),
    gap: int = 0,
    pieces: int = 1,
) -> None:
    """(a - a_zero) @ (b - b_zero) of shape (outer, inner, rows, columns, depth). zeros: None for those that are not
    there. shared: whether b is one matrix along outer, inner."""
    outer, inner, m, n, k = shape
    random = np.random.default_rng(m * 100 + n + k)
    a = whole(random, of_a, outer, inner, m, k + gap)
    b = whole(random, of_b, 1 if shared[0] else outer, 1 if shared[1] else inner, k, n)
    lies = np.ascontiguousarray(b.swapaxes(-1, -2)) if by_column else b
    spec = choose_tile_matrices(
        way,
        (m, n, k),
        n,
        packs=packs,
        signed=(of_a is np.int8, of_b is np.int8),
        shifted=(zeros[0] is not None, zeros[1] is not None),
        by_column=by_column,
        result="int32",
    )
    right, matrix = (lies, k * n) if packs else (packing(spec, b, lies, pieces), spec.packed_bytes(k, n))
    c = np.full((outer, m, inner, n + 3), 77, np.int32)
    sizes = spec.complete(
        AmxMatricesSizes(
            **one_pixel(outer * inner, m, n, k),
            x_pixel=k + gap,
            y_pixel=inner * (n + 3),
            inner=inner,
            x_outer=inner * m * (k + gap),
            x_inner=m * (k + gap),
            w_outer=0 if shared[0] else b.shape[1] * matrix,
            w_inner=0 if shared[1] else matrix,
            w_step=lies.shape[-1],
            y_outer=m * inner * (n + 3),
            y_inner=n + 3,
        )
    )
    given = [np.array(99 if zero is None else zero, kind) for zero, kind in zip(zeros, (of_a, of_b), strict=True)]
    buffers = [aligned(a), given[0], right, given[1], c]
    compiled(spec)(buffers, sizes, spec.tasks(sizes), spec.scratch_bytes(sizes), pieces)
    found, untouched = c[..., :n].swapaxes(1, 2), c[..., n:]
    assert (untouched == 77).all()
    wide = [x.astype(np.int64) - (zero or 0) for x, zero in zip((a[..., :k], b), zeros, strict=True)]
    np.testing.assert_array_equal(found, wide[0] @ wide[1])


@pytest.mark.parametrize("packs", [True, False])
@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize(("of_a", "of_b"), list(itertools.product([np.uint8, np.int8], repeat=2)))
def test_sums(packs: bool, by_column: bool, of_a: Any, of_b: Any) -> None:
    for number, shape in enumerate([*SHAPES, (1, 3, 2, 65, 130), (2, 1, 33, 31, 63), (1, 2, 5, 20, 64)]):
        zeros = (3, 101 if of_b is np.uint8 else -77)
        product(shape, of_a, of_b, packs=packs, by_column=by_column, zeros=zeros, gap=number % 3, pieces=1 + number % 4)


@pytest.mark.parametrize("packs", [True, False])
@pytest.mark.parametrize("zeros", [(None, None), (200, None), (None, 255), (0, 0)])
def test_zero_points(packs: bool, zeros: tuple[int | None, int | None]) -> None:
    product((2, 3, 40, 50, 70), np.uint8, np.uint8, packs=packs, zeros=zeros, pieces=2)


@pytest.mark.parametrize("packs", [True, False])
def test_shared_right_matrices(packs: bool) -> None:
    for shared in itertools.product([False, True], repeat=2):
        product((3, 2, 20, 40, 33), np.uint8, np.int8, packs=packs, zeros=(7, 8), shared=shared, pieces=2)


def test_rows_in_place() -> None:
    for shape, gap in [((2, 3, 33, 40, 64), 0), ((1, 4, 16, 20, 64), 64), ((2, 2, 100, 33, 128), 0)]:
        product(shape, np.uint8, np.int8, packs=True, way="in place", zeros=(9, -9), gap=gap, pieces=3)


def test_rows_of_a_matrix_are_several_tasks() -> None:
    for packs in (True, False):
        product((1, 2, 700, 130, 300), np.uint8, np.uint8, packs=packs, zeros=(1, 2), pieces=5)
        product((1, 1, 130, 900, 1500), np.int8, np.uint8, packs=packs, zeros=(1, 2), pieces=3)


def test_empty() -> None:
    for shape in [(0, 2, 5, 7, 3), (2, 2, 0, 7, 3), (2, 2, 5, 0, 3), (2, 2, 40, 7, 0)]:
        for packs in (True, False):
            product(shape, np.uint8, np.uint8, packs=packs, zeros=(1, 2))
