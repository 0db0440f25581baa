"""Kernels of products and convolutions in bfloat16: operands rounded, sums in float32."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest

from bench.inner_loops import innermost_loops
from jitonnx.emit.builder import KernelBuilder
from jitonnx.emit.half import narrow_bfloat16
from jitonnx.emit.ssa import SSAValue
from jitonnx.kernels.bfloat16.kernel import build
from jitonnx.kernels.bfloat16.matrices import HEIGHTS
from jitonnx.kernels.bfloat16.spec import STRIP, Bfloat16Spec, DotsSpec, choose
from jitonnx.kernels.parts.amx_products import chosen
from jitonnx.kernels.parts.bfloat16 import rounded
from jitonnx.kernels.parts.layouts import WindowProduct
from tests.kernels.harness import Compiled, assembly
from tests.kernels.layouts import row_product, window_product
from tests.kernels.windows import convolved
from tests.targets import BFLOAT16_TARGET, named, needs_bfloat16_target, needs_bfloat16_tiles

PRODUCTS = BFLOAT16_TARGET.bfloat16_products


def widened(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def as_half(
    code: KernelBuilder, x: SSAValue, batch: SSAValue, row: SSAValue, column: SSAValue, active: SSAValue
) -> SSAValue:
    return narrow_bfloat16(x * 0.5)


@functools.cache
def compiled(spec: Bfloat16Spec) -> Compiled:
    stage = as_half if spec.result == "bfloat16" else None
    return Compiled(build(spec, BFLOAT16_TARGET.lanes(4), stage), BFLOAT16_TARGET, prescheduled=spec.prescheduled)


def aligned(array: np.ndarray) -> np.ndarray:
    raw = np.zeros(array.nbytes + 128, np.uint8)
    start = -raw.ctypes.data % 64
    view = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


def run(spec: Bfloat16Spec, x: np.ndarray, w: np.ndarray, given: WindowProduct, pieces: int = 1) -> np.ndarray:
    """y [rows, outputs] as float32. x: bits of bfloat16; w [outputs, taps, channels] float32."""
    rows, outputs = given.images * given.out_height * given.out_width, given.out_channels
    half = spec.result == "bfloat16"
    y = np.full((rows, given.y_pixel), 77, np.uint16 if half else np.float32)
    sizes = spec.complete(given)
    buffers = [aligned(x if spec.x_type == "bfloat16" else widened(x)), spec.pack(w), y]
    compiled(spec)(buffers, sizes, spec.tasks(sizes), spec.scratch_bytes(sizes), pieces)
    assert (y[:, outputs:] == 77).all()
    return widened(y[:, :outputs]) * 2 if half else y[:, :outputs]


def close(y: np.ndarray, exact: np.ndarray, spec: Bfloat16Spec) -> None:
    """Sums of exact products: apart by the rounding of sums alone."""
    scale = np.abs(exact).max(initial=1e-30)
    error = 2.0**-8 if spec.result == "bfloat16" else 2e-6
    np.testing.assert_allclose(y, exact, rtol=error, atol=2e-6 * scale)


def product(way: str, m: int, n: int, k: int, x_type: str, result: str, gap: int = 0, whole: bool = False) -> None:
    random = np.random.default_rng(m * 1000 + n * 10 + k)
    draw = (lambda *s: random.integers(-8, 9, s)) if whole else (lambda *s: random.standard_normal(s))
    x, w = rounded(draw(m, k + gap).astype(np.float32)), draw(n, 1, k).astype(np.float32)
    spec = choose(PRODUCTS, way, n, (k,), m, x_type, result)
    given = row_product(m, n, k, k + gap, n + 3)
    y = run(spec, x, w, given, pieces=2)
    exact = widened(x[:, :k]).astype(float) @ widened(rounded(w[:, 0])).astype(float).T
    if whole:  # sums that float32 holds
        np.testing.assert_array_equal(y, exact if result == "float32" else widened(rounded(exact / 2)) * 2)
    else:
        close(y, exact, spec)


SIZES = [
    (1, 1, 1),
    (1, 70, 100),
    (15, 33, 32),
    (16, 48, 3),
    (17, 65, 131),
    (33, 130, 257),
    (64, 16, 64),
    (100, 700, 96),
]


@needs_bfloat16_target
@pytest.mark.parametrize("x_type", ["float32", "bfloat16"])
@pytest.mark.parametrize("result", ["float32", "bfloat16"])
@pytest.mark.parametrize("whole", [True, False])
def test_products_of_rows_that_are_copied(x_type: str, result: str, whole: bool) -> None:
    for m, n, k in SIZES:
        product("copied", m, n, k, x_type, result, gap=m % 3, whole=whole)


@needs_bfloat16_target
@pytest.mark.parametrize("result", ["float32", "bfloat16"])
def test_products_of_rows_in_place(result: str) -> None:
    for m, n, k in [(1, 40, 32), (16, 31, 64), (17, 33, 32), (31, 64, 96), (50, 17, 160), (129, 800, 1024)]:
        product("in place", m, n, k, "bfloat16", result, gap=32 * (m % 2), whole=True)
        product("in place", m, n, k, "bfloat16", result, gap=7)


def test_rounding() -> None:
    x = np.array([1.0, 1 + 2.0**-8, 1 + 3 * 2.0**-8, -1 - 2.0**-9, np.inf, -np.inf, 3.4e38, np.nan], np.float32)
    expected = [1.0, 1.0, 1 + 2.0**-6, -1.0, np.inf, -np.inf, np.inf, np.nan]
    np.testing.assert_array_equal(widened(rounded(x)), np.array(expected, np.float32))
    strange = np.array([0x7F800001, 0xFFFFFFFF], np.uint32).view(np.float32)
    assert np.isnan(widened(rounded(strange))).all()


@needs_bfloat16_target
def test_activations_are_rounded_to_the_nearest() -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((40, 64)).astype(np.float32)
    x[0, :4] = 1 + 2.0**-8, 1 + 3 * 2.0**-8, 1e-39, np.inf
    spec = choose(PRODUCTS, "copied", 64, (64,), 40, "float32", "float32")
    given = row_product(40, 64, 64, 64, 64)
    sizes = spec.complete(given)
    y = np.zeros((40, 64), np.float32)
    w = spec.pack(np.eye(64, dtype=np.float32)[:, None])
    with np.errstate(invalid="ignore"):
        compiled(spec)([x, w, y], sizes, spec.tasks(sizes), spec.scratch_bytes(sizes))
    expected = widened(rounded(x))
    expected[0, 2] = 0
    assert np.isnan(y[0, 4:]).all() and y[0, 3] == np.inf  # 0 times infinity
    np.testing.assert_array_equal(y[1:], expected[1:])


CONVOLUTIONS = [
    # images, height, width, channels, outputs, kernel, strides, dilations, pads, out
    (1, 5, 5, 3, 4, (3, 3), (1, 1), (1, 1), (1, 1), (5, 5)),
    (2, 9, 7, 16, 33, (3, 2), (2, 1), (1, 1), (1, 0), (5, 6)),
    (1, 8, 11, 70, 20, (3, 3), (1, 2), (2, 3), (2, 3), (8, 6)),
    (1, 6, 6, 130, 65, (1, 1), (2, 2), (1, 1), (0, 0), (3, 3)),
    (3, 12, 13, 32, 5, (5, 5), (1, 1), (1, 1), (2, 2), (12, 13)),
    (2, 14, 14, 64, 64, (3, 3), (1, 1), (1, 1), (1, 1), (14, 14)),
    (1, 20, 9, 40, 48, (3, 3), (1, 1), (2, 2), (2, 2), (20, 9)),
    (2, 7, 7, 512, 40, (3, 3), (1, 1), (1, 1), (1, 1), (7, 7)),
    (1, 30, 35, 96, 33, (2, 3), (1, 1), (1, 1), (0, 0), (29, 33)),
    (2, 23, 21, 3, 40, (7, 7), (2, 2), (1, 1), (3, 3), (12, 11)),
    (1, 1, 40, 8, 9, (1, 7), (1, 3), (1, 1), (0, 3), (1, 14)),
    (1, 16, 17, 24, 40, (3, 3), (1, 1), (2, 1), (2, 1), (16, 17)),
    (1, 40, 41, 2, 8, (31, 31), (1, 1), (1, 1), (0, 0), (10, 11)),  # more pieces of taps than are written out
]


@needs_bfloat16_target
@pytest.mark.parametrize("x_type", ["float32", "bfloat16"])
@pytest.mark.parametrize("way", ["gathered", "im2col", "padded", "padded, high"])
@pytest.mark.parametrize("gap", [0, 5])
def test_convolutions(x_type: str, way: str, gap: int) -> None:
    way, _, blocks = way.partition(", ")
    if way == "padded" and PRODUCTS == "dots":
        pytest.skip("dot products gather the taps of such windows")
    for images, height, width, channels, outputs, kernel, strides, dilations, pads, out in CONVOLUTIONS:
        if (way == "padded" and strides != (1, 1)) or (way == "im2col" and dilations[1] != 1):
            continue
        random = np.random.default_rng(channels)
        x = rounded(random.integers(-4, 5, (images, height, width, channels + gap)).astype(np.float32))
        w = random.integers(-4, 5, (outputs, kernel[0] * kernel[1], channels)).astype(np.float32)
        spec = choose(PRODUCTS, way, outputs, (*kernel, channels), out[0] * out[1] * images, x_type, "float32")
        if blocks and PRODUCTS == "tiles":
            spec = replace(spec, **chosen(way, 64, 1 << 30, 64))
        pixel = channels + gap
        given = window_product(
            (images, height, width, channels),
            (*out, outputs),
            (kernel, strides, dilations, pads),
            (height * width * pixel, width * pixel, pixel),
            outputs + 1,
        )
        y = run(spec, x, w, given, pieces=3)
        expected = convolved(
            widened(x[..., :channels]), w.reshape(outputs, *kernel, channels), strides, dilations, pads, out
        )
        np.testing.assert_array_equal(y, expected.reshape(-1, outputs))


@needs_bfloat16_tiles
@pytest.mark.parametrize("x_type", ["float32", "bfloat16"])
@pytest.mark.parametrize("channels", [2, 3, 4])
def test_images_in_planes(x_type: str, channels: int) -> None:
    for images, height, width, gap, kernel, strides, pads in [
        (2, 9, 40, 0, (3, 3), (1, 1), (1, 1)),
        (1, 37, 70, 3, (7, 7), (2, 2), (3, 3)),
        (1, 5, 5, 1, (2, 3), (1, 2), (0, 0)),
        (1, 4, 3, 0, (5, 5), (1, 1), (2, 2)),
    ]:
        out = tuple((n + 2 * p - k) // s + 1 for n, p, k, s in zip((height, width), pads, kernel, strides, strict=True))
        random = np.random.default_rng(channels)
        x = rounded(random.integers(-4, 5, (images, channels, height, width + gap)).astype(np.float32))
        w = random.integers(-4, 5, (40, kernel[0] * kernel[1], channels)).astype(np.float32)
        spec = choose(PRODUCTS, "im2col", 40, (*kernel, channels), out[0] * out[1] * images, x_type, "float32")
        spec = replace(spec, planes=channels)
        row = width + gap
        given = window_product(
            (images, height, width, channels),
            (*out, 40),
            (kernel, strides, (1, 1), pads),
            (channels * height * row, row, height * row),
            41,
        )
        y = run(spec, x, w, given, pieces=2)
        pixels = widened(x[..., :width]).transpose(0, 2, 3, 1)
        expected = convolved(pixels, w.reshape(40, *kernel, channels), strides, (1, 1), pads, out)
        np.testing.assert_array_equal(y, expected.reshape(-1, 40))


@needs_bfloat16_target
def test_empty() -> None:
    for m, n, k in [(0, 4, 3), (3, 4, 0)]:
        for way in ("copied", "in place"):
            spec = choose(PRODUCTS, way, n, (k,), None, "bfloat16", "float32")
            given = row_product(m, n, k, k, n)
            y = run(spec, np.zeros((m, k), np.uint16), np.zeros((n, 1, k), np.float32), given)
            assert not y.any()


def test_what_cpus_have() -> None:
    ways = {
        "": ("haswell", "cascadelake", "sapphirerapids", "neoverse-n1", "apple-m1"),
        "matrices": ("neoverse-v1", "neoverse-v2"),
        "dots": ("znver4", "znver5", "cooperlake"),
    }
    for way, names in ways.items():
        assert {named(name).bfloat16_products for name in names} == {way}
    tiles = replace(named("sapphirerapids"), features="+amx-bf16,+avx512bf16")
    assert tiles.bfloat16_products == "tiles"
    without = replace(named("neoverse-v1"), features="+i8mm,-bf16")
    assert without.bfloat16_products == ""


@pytest.mark.parametrize("way", ["in place", "copied", "gathered", "im2col", "padded"])
def test_sums_of_matrices_stay_in_registers(way: str) -> None:
    target = named("neoverse-v1")
    spec = choose(target.bfloat16_products, way, 64, (256,), None, "bfloat16", "float32")
    text = assembly(build(spec, target.lanes(4)), target, spec.prescheduled)
    loops = innermost_loops(text, r"\tbfmmla\tv", target)
    each = [rows // 2 * (STRIP // 2) * 2 for rows in HEIGHTS]  # two rows, two columns and four of eight elements
    assert {loop.multiply_adds for loop in loops} == set(each)
    assert not any(loop.stack_accesses for loop in loops)


@pytest.mark.parametrize("way", ["in place", "copied", "gathered", "im2col"])
@pytest.mark.parametrize("columns", [64, 48, 32, 16])
def test_sums_of_pairs_stay_in_registers(way: str, columns: int) -> None:
    target = named("znver4")
    spec = choose(target.bfloat16_products, way, columns, (256,), None, "bfloat16", "float32")
    assert isinstance(spec, DotsSpec)
    text = assembly(build(spec, target.lanes(4)), target, spec.prescheduled)
    loops = innermost_loops(text, r"\tvdpbf16ps\t.*%zmm", target)
    assert {loop.multiply_adds for loop in loops} == {height * columns // 16 for height in spec.heights}
    assert not any(loop.stack_accesses for loop in loops)
    assert all(text.count("vbroadcastss") for loop in loops)


def test_rounding_takes_an_instruction_for_a_vector() -> None:
    target = named("neoverse-v1")
    spec = choose(target.bfloat16_products, "copied", 64, (256,), None, "float32", "float32")
    assert "bfcvtn2" in assembly(build(spec, target.lanes(4)), target, spec.prescheduled)
