"""Kernels of products of two computed matrices in bfloat16: right matrices packed in a run, sums in tile registers."""

from __future__ import annotations

import functools
import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from jitonnx.kernels.bfloat16.spec import choose
from jitonnx.kernels.bfloat16_matrices.kernel import build
from jitonnx.kernels.bfloat16_matrices.spec import Bfloat16MatricesSpec, Bfloat16PackingSpec, choose_matrices
from jitonnx.kernels.parts.amx_matrices import AmxMatricesSizes, PackingSizes
from jitonnx.kernels.parts.bfloat16 import rounded
from tests.kernels.harness import Compiled
from tests.kernels.test_bfloat16 import PRODUCTS, aligned, as_half
from tests.targets import BFLOAT16_TARGET, needs_packing_target


@functools.cache
def compiled(spec: Bfloat16MatricesSpec | Bfloat16PackingSpec) -> Compiled:
    stage = as_half if isinstance(spec, Bfloat16MatricesSpec) and spec.result == "bfloat16" else None
    return Compiled(build(spec, BFLOAT16_TARGET.lanes(4), stage), BFLOAT16_TARGET, prescheduled=spec.prescheduled)


def given(x: np.ndarray, kind: str) -> np.ndarray:
    """Numbers of bfloat16 as float32 or as their bits, in aligned memory."""
    return aligned(x if kind == "float32" else rounded(x))


def drawn(seed: int, *shape: int) -> np.ndarray:
    """Small whole numbers, whose sums of products float32 holds."""
    return np.random.default_rng(seed).integers(-8, 9, shape).astype(np.float32)


def packing(b: np.ndarray, width: int, kind: str, by_column: bool, gap: int, pieces: int) -> np.ndarray:
    """Matrices b [outer, inner, k, n] as the kernel packs them, [outer * inner, bytes]."""
    outer, inner, k, n = b.shape
    lies = b.swapaxes(-1, -2) if by_column else b
    memory = np.full((*lies.shape[:-1], lies.shape[-1] + gap), 99, np.float32)
    memory[..., : lies.shape[-1]] = lies
    spec = Bfloat16PackingSpec(width, kind, by_column, PRODUCTS)
    matrix = memory.shape[-2] * memory.shape[-1]
    sizes = PackingSizes(
        outer=outer, inner=inner, k=k, n=n, x_outer=inner * matrix, x_inner=matrix, x_step=memory.shape[-1]
    )
    y = aligned(np.zeros((outer * inner, -(-k // 32) * -(-n // width) * width * 64), np.uint8))
    compiled(spec)([given(memory, kind), y], sizes, spec.tasks(sizes), spec.scratch_bytes(sizes), pieces)
    return y


@needs_packing_target
@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize("by_column", [False, True])
def test_packing_is_that_of_constant_weights(kind: str, by_column: bool) -> None:
    for k, n, width in [
        (1, 1, 16),
        (32, 16, 16),
        (33, 17, 32),
        (63, 31, 32),
        (64, 64, 32),
        (100, 130, 32),
        (31, 48, 32),
    ]:
        b = drawn(k, 2, 2, k, n)
        found = packing(b, width, kind, by_column, gap=k % 3, pieces=3)
        like = replace(choose(PRODUCTS, "copied", n, (k,), 1, "float32", "float32"), width=width)
        for matrix, ours in zip(b.reshape(4, k, n), found, strict=True):
            theirs = like.pack(np.ascontiguousarray(matrix.T)[:, None]).view(np.uint8)
            # Columns behind the last one may be left as they are.
            np.testing.assert_array_equal(*(by_columns(there, -(-n // width), width)[:n] for there in (ours, theirs)))


def by_columns(packed: np.ndarray, panels: int, width: int) -> np.ndarray:
    """A packed matrix as [column][word][4 bytes]."""
    if PRODUCTS == "dots":
        found = packed.reshape(panels, -1, width, 4).swapaxes(1, 2)
    else:
        found = packed.reshape(panels, -1, width // 16, 16, 16, 4).transpose(0, 2, 4, 1, 3, 5)
    return found.reshape(panels * width, -1, 4)


def product(
    shape: tuple[int, int, int, int, int],
    *,
    packs: bool,
    way: str = "copied",
    by_column: bool = False,
    types: tuple[str, str, str] = ("float32",) * 3,
    shared: tuple[bool, bool] = (False, False),
    gap: int = 0,
    pieces: int = 1,
) -> None:
    """y = x @ w of shape (outer, inner, rows, columns, depth). shared: whether w is one matrix along outer, inner.
    Results of bfloat16 are halved."""
    outer, inner, m, n, k = shape
    x_type, w_type, result = types
    x, w = drawn(1, outer, inner, m, k), drawn(2, 1 if shared[0] else outer, 1 if shared[1] else inner, k, n)
    exact = x.astype(float) @ w.astype(float)
    x_memory = np.full((outer, inner, m, k + gap), 99, np.float32)
    x_memory[..., :k] = x
    spec = choose_matrices(
        PRODUCTS, way, (m, n, k), n, packs=packs, x_type=x_type, w_type=w_type, by_column=by_column, result=result
    )
    if packs:
        memory = given(np.ascontiguousarray(w.swapaxes(-1, -2)) if by_column else w, w_type)
        step, matrix = memory.shape[-1], k * n
    else:
        memory, step, matrix = packing(w, spec.width, w_type, by_column, 0, 1), 0, spec.packed_bytes(k, n)
    y = np.full((outer, m, inner, n + 3), 77, np.float32 if result == "float32" else np.uint16)  # heads inside
    sizes = spec.complete(
        AmxMatricesSizes(
            **one_pixel(outer * inner, m, n, k),
            x_pixel=k + gap,
            y_pixel=inner * (n + 3),
            inner=inner,
            x_outer=inner * m * (k + gap),
            x_inner=m * (k + gap),
            w_outer=0 if shared[0] else w.shape[1] * matrix,
            w_inner=0 if shared[1] else matrix,
            w_step=step,
            y_outer=m * inner * (n + 3),
            y_inner=n + 3,
        )
    )
    buffers = [given(x_memory, x_type), memory, y]
    compiled(spec)(buffers, sizes, spec.tasks(sizes), spec.scratch_bytes(sizes), pieces)
    found, untouched = y[..., :n].swapaxes(1, 2), y[..., n:]
    assert (untouched == 77).all()
    expected = exact if result == "float32" else rounded((exact / 2).astype(np.float32))
    np.testing.assert_array_equal(found, expected)


def one_pixel(images: int, m: int, n: int, k: int) -> dict[str, Any]:
    ones = ("width", "out_width", "kernel_height", "kernel_width", "stride_height", "stride_width")
    zeros = ("pad_top", "pad_left", "x_image", "x_row")
    return {
        **dict.fromkeys((*ones, "dilation_height", "dilation_width"), 1),
        **dict.fromkeys(zeros, 0),
        **{"images": images, "height": m, "out_height": m, "channels": k, "out_channels": n},
    }


SHAPES = [
    (1, 1, 1, 1, 1),
    (2, 3, 16, 32, 32),
    (1, 5, 17, 33, 31),
    (3, 1, 33, 10, 100),
    (2, 2, 70, 100, 65),
    (4, 2, 5, 16, 3),
    (1, 2, 40, 70, 1),
]


@needs_packing_target
@pytest.mark.parametrize("packs", [True, False])
@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize(
    "types", [("float32",) * 3, ("bfloat16", "float32", "bfloat16"), ("float32", "bfloat16", "float32")]
)
def test_products(packs: bool, by_column: bool, types: tuple[str, str, str]) -> None:
    for number, shape in enumerate(SHAPES):
        product(shape, packs=packs, by_column=by_column, types=types, gap=number % 3, pieces=1 + number % 4)


@needs_packing_target
@pytest.mark.parametrize("packs", [True, False])
def test_shared_right_matrices(packs: bool) -> None:
    for shared in itertools.product([False, True], repeat=2):
        product((3, 2, 20, 40, 33), packs=packs, shared=shared, pieces=2)


@needs_packing_target
def test_rows_in_place() -> None:
    for shape, gap in [((2, 3, 33, 40, 64), 0), ((1, 4, 16, 20, 32), 32), ((2, 2, 100, 33, 96), 0)]:
        product(shape, packs=True, way="in place", types=("bfloat16", "float32", "float32"), gap=gap, pieces=3)


@needs_packing_target
def test_rows_of_a_matrix_are_several_tasks() -> None:
    for packs in (True, False):
        product((1, 2, 700, 130, 300), packs=packs, pieces=5)
        product((1, 1, 130, 700, 1100), packs=packs, pieces=3)  # panels that do not stay in the cache


@needs_packing_target
def test_empty() -> None:
    for shape in [(0, 2, 5, 7, 3), (2, 2, 0, 7, 3), (2, 2, 5, 0, 3), (2, 2, 40, 7, 0)]:
        for packs in (True, False):
            product(shape, packs=packs)
