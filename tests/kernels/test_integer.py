"""Kernels of 8-bit integers: exact sums, the same on every CPU."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from typing import Any

import numpy as np
import pytest

from bench.inner_loops import innermost_loops
from jitonnx.emit import types
from jitonnx.emit.builder import KernelBuilder
from jitonnx.emit.simd import convert, maximum, minimum
from jitonnx.emit.ssa import SSAValue, rint
from jitonnx.kernels.integer.kernel import build
from jitonnx.kernels.integer.spec import IntegerSpec, by_runs, choose, fits_byte_pairs
from jitonnx.kernels.integer_amx.kernel import build as build_tiles
from jitonnx.kernels.integer_amx.spec import IntegerAmxSpec, choose_tiles
from jitonnx.kernels.integer_depthwise.kernel import build as build_depthwise
from jitonnx.kernels.integer_depthwise.spec import DepthwiseIntegerSpec, choose_depthwise
from jitonnx.kernels.parts.amx_products import chosen, pieces
from jitonnx.kernels.parts.layouts import LINE, WindowProduct
from jitonnx.target.cpu import available
from jitonnx.target.machine import host
from tests.kernels.harness import Compiled, assembly
from tests.kernels.layouts import row_product, window_product
from tests.kernels.windows import convolved
from tests.targets import named

FEATURES = ("amx-int8", "amx-tile")
needs_tiles = pytest.mark.skipif(available(FEATURES) != set(FEATURES), reason="this CPU has no tiles of integers")
AnySpec = IntegerSpec | IntegerAmxSpec | DepthwiseIntegerSpec

TARGETS = {
    "host": dataclasses.replace(host(), features=host().features.replace("+amx-int8", "-amx-int8")),
    "znver4": named("znver4"),
    "cascadelake": named("cascadelake"),
    "skylake-avx512": named("skylake-avx512"),
    "haswell": named("haswell"),
    "x86-64-v2": named("x86-64-v2"),
}
CPUS = TARGETS | {"tiles": host()}
if "+i8mm" in host().features:  # such an AArch64 CPU stands for one without as well
    TARGETS["without i8mm"] = CPUS["without i8mm"] = dataclasses.replace(
        host(), features=host().features.replace("+i8mm", "-i8mm")
    )


@functools.cache
def compiled(spec: AnySpec, target: str) -> Compiled:
    cpu = CPUS[target]
    stage = None if spec.result == "int32" else STAGES[spec.result]
    made = {IntegerSpec: build, IntegerAmxSpec: build_tiles, DepthwiseIntegerSpec: build_depthwise}[type(spec)]
    return Compiled(made(spec, cpu.lanes(4), stage), cpu, prescheduled=spec.prescheduled)


def as_float(
    code: KernelBuilder, x: SSAValue, batch: SSAValue, row: SSAValue, column: SSAValue, active: SSAValue
) -> SSAValue:
    return convert(x, types.float32) * 0.5


def as_byte(
    code: KernelBuilder, x: SSAValue, batch: SSAValue, row: SSAValue, column: SSAValue, active: SSAValue
) -> SSAValue:
    """As many operations as quantising an output anew has: tiles go through these in a certain order."""
    scaled = convert(x, types.float32) * 2.0**-6
    bounded = minimum(maximum(scaled, scaled.constant(-100.0)), scaled.constant(100.0))
    return convert(convert(rint(bounded), types.int32) + 100, types.uint8)


def of_as_byte(sums: np.ndarray) -> np.ndarray:
    return np.rint(np.clip(sums * 2.0**-6, -100, 100)) + 100


STAGES = {"float32": as_float, "uint8": as_byte}


def run(
    spec: AnySpec,
    target: str,
    x: np.ndarray,
    zero: int,
    w: np.ndarray,
    given: WindowProduct,
    pieces: int = 1,
) -> np.ndarray:
    rows, outputs = given.images * given.out_height * given.out_width, given.out_channels
    y = np.full((rows, given.y_pixel), 77, spec.result)
    matrix = np.ascontiguousarray(w.reshape(outputs, -1))
    if isinstance(spec, IntegerSpec) and spec.padded:
        matrix = by_runs(w.reshape(outputs, given.kernel_height, -1), spec.group)
    if isinstance(spec, IntegerAmxSpec):
        matrix = matrix.reshape(outputs, math.prod(w.shape[1:-1]), w.shape[-1])
    buffers = [x, np.array([zero], x.dtype), spec.pack(matrix), spec.column_sums(matrix), y]
    sizes = spec.complete(given)
    compiled(spec, target)(buffers, sizes, spec.tasks(sizes), spec.scratch_bytes(sizes), pieces)
    assert (y[:, outputs:] == 77).all()
    return y[:, :outputs]


def product(
    target: str,
    m: int,
    n: int,
    k: int,
    dtype: Any,
    result: str = "int32",
    zero: int = 3,
    way: str = "",
    **options: Any,
) -> None:
    """One product compared with NumPy's; `way`: of tiles, or "" for vectors."""
    random = np.random.default_rng(m * 1000 + n * 10 + k)
    low, high = (-128, 128) if dtype is np.int8 else (0, 256)
    x = random.integers(low, high, (m, k)).astype(dtype)
    w = random.integers(-128, 128, (n, k)).astype(np.int8)
    x[:1], w[:1] = low if dtype is np.int8 else 255, -128  # extremes
    shifted = dtype is np.uint8 or zero != 0
    kind = {"signed": dtype is np.int8, "shifted": shifted, "result": result}
    spec: AnySpec = (
        choose_tiles(way, n, (k,), m, **kind) if way else choose(n, m, TARGETS[target], depth=k, windows=False, **kind)
    )
    spec = dataclasses.replace(spec, **options)
    given = row_product(m, n, k, k, n + 3)
    y = run(spec, target, x, zero, w, given, pieces=2)
    expected = (x.astype(np.int64) - (zero if shifted else 0)) @ w.astype(np.int64).T
    if result == "float32":
        expected = expected * np.float32(0.5)
    if result == "uint8":
        expected = of_as_byte(expected)
    np.testing.assert_array_equal(y, expected.astype(result))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_products(target: str, dtype: Any) -> None:
    for m, n, k in [(1, 1, 1), (1, 70, 100), (7, 33, 64), (6, 48, 3), (13, 65, 131), (40, 17, 64), (33, 130, 257)]:
        product(target, m, n, k, dtype)


@needs_tiles
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_products_in_tiles(dtype: Any) -> None:
    for m, n, k in [(1, 1, 1), (1, 70, 100), (7, 33, 64), (6, 48, 3), (16, 65, 131), (40, 17, 64), (33, 130, 257)]:
        product("tiles", m, n, k, dtype, way="copied")
    for m, n, k in [(1, 70, 128), (15, 33, 64), (17, 16, 192), (32, 32, 64), (49, 40, 64), (100, 65, 128)]:
        product("tiles", m, n, k, dtype, way="in place")
        product("tiles", m, n, k, dtype, way="in place", prefetch_distance=False, fetched=2)
        product(
            "tiles",
            m,
            n,
            k,
            dtype,
            zero=0,
            way="in place",
            result="uint8",
            prefetch_distance=False,
            fetched=1,
            once=True,
        )


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("result", ["float32", "uint8"])
def test_epilogues_give_other_types(target: str, result: str) -> None:
    for m, n, k in [(5, 21, 40), (19, 64, 64)]:
        product(target, m, n, k, np.uint8, result)
        product(target, m, n, k, np.int8, result, zero=0)


@needs_tiles
@pytest.mark.parametrize("result", ["float32", "uint8"])
def test_epilogues_of_tiles_give_other_types(result: str) -> None:
    for m, n, k in [(5, 21, 40), (19, 64, 64), (70, 33, 130)]:
        product("tiles", m, n, k, np.uint8, result, way="copied")
        product("tiles", m, n, k, np.int8, result, zero=0, way="copied")


@pytest.mark.parametrize("target", TARGETS)
def test_words_for_cpus_without_dot_products(target: str) -> None:
    for m, n, k in [(7, 33, 65), (1, 16, 5)]:
        product(target, m, n, k, np.int8, multiply="words")


CONVOLUTIONS = [
    # images, height, width, channels, outputs, kernel, strides, dilations, pads, out
    (1, 5, 5, 3, 4, (3, 3), (1, 1), (1, 1), (1, 1), (5, 5)),
    (2, 9, 7, 16, 33, (3, 2), (2, 1), (1, 1), (1, 0), (5, 6)),
    (1, 8, 11, 70, 20, (3, 3), (1, 2), (2, 3), (2, 3), (8, 6)),
    (1, 6, 6, 130, 65, (1, 1), (2, 2), (1, 1), (0, 0), (3, 3)),
    (1, 12, 13, 1, 5, (5, 5), (1, 1), (1, 1), (2, 2), (12, 13)),
    (1, 1, 40, 8, 9, (1, 7), (1, 3), (1, 1), (0, 3), (1, 14)),
]


def convolutions(
    cases: list[tuple[Any, ...]], target: str, dtype: Any, gap: int, result: str = "int32", way: str = "", **blocks: Any
) -> None:
    """Convolutions compared with NumPy's; `way`: of tiles, or "" for vectors; blocks: other fields of the spec."""
    for images, height, width, channels, outputs, kernel, strides, dilations, pads, out in cases:
        random = np.random.default_rng(channels)
        low, high = (-128, 128) if dtype is np.int8 else (0, 256)
        whole = random.integers(low, high, (images, height, width, channels + gap)).astype(dtype)
        w = random.integers(-128, 128, (outputs, *kernel, channels)).astype(np.int8)
        rows, kind = out[0] * out[1] * images, {"signed": dtype is np.int8, "shifted": True, "result": result}
        if way:
            spec: AnySpec = choose_tiles(way, outputs, w.shape[1:], rows, **kind)
            spec = dataclasses.replace(spec, **blocks)
        else:
            spec = choose(outputs, rows, TARGETS[target], depth=w[0].size, windows=True, **kind)
            spec = dataclasses.replace(spec, **blocks)
        pixel = channels + gap
        given = window_product(
            (images, height, width, channels),
            (*out, outputs),
            (kernel, strides, dilations, pads),
            (height * width * pixel, width * pixel, pixel),
            outputs + 1,
        )
        y = run(spec, target, whole, 5, w, given, pieces=3)
        expected = convolved(
            whole[..., :channels].astype(np.int64) - 5, w.astype(np.int64), strides, dilations, pads, out
        ).reshape(-1, outputs)
        np.testing.assert_array_equal(y, of_as_byte(expected) if result == "uint8" else expected)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("gap", [0, 5])
def test_convolutions(target: str, dtype: Any, gap: int) -> None:
    convolutions(CONVOLUTIONS, target, dtype, gap)


OVERLAPPING = [
    (1, 5, 5, 3, 17, (3, 3), (1, 1), (1, 1), (1, 1), (5, 5)),
    (3, 5, 9, 20, 33, (3, 3), (1, 1), (1, 1), (1, 1), (5, 9)),
    (2, 9, 7, 16, 33, (3, 2), (2, 1), (1, 1), (1, 0), (5, 6)),
    (1, 8, 11, 70, 20, (3, 3), (1, 2), (2, 1), (2, 1), (8, 6)),
    (2, 9, 5, 4, 33, (2, 1), (1, 1), (3, 2), (0, 1), (6, 7)),
    (1, 4, 3, 9, 20, (2, 2), (1, 1), (1, 1), (3, 4), (9, 10)),  # whole windows of padding
    (1, 40, 200, 100, 20, (3, 3), (1, 1), (1, 1), (1, 1), (40, 200)),  # rows for several tasks
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("dtype", "gap"), [(np.uint8, 0), (np.int8, 5)])
def test_taps_are_read_from_rows_of_the_image(target: str, dtype: Any, gap: int) -> None:
    convolutions(OVERLAPPING, target, dtype, gap, padded=True)


UNSTRIDED = [
    (2, 5, 9, 64, 33, (3, 3), (1, 1), (1, 1), (1, 1), (5, 9)),
    (1, 8, 11, 70, 65, (3, 3), (1, 1), (2, 3), (2, 3), (8, 11)),
    (1, 14, 14, 128, 32, (3, 3), (1, 1), (1, 1), (1, 1), (14, 14)),
    (1, 3, 40, 20, 9, (2, 7), (1, 1), (1, 1), (0, 3), (2, 40)),
    (1, 4, 3, 66, 16, (1, 1), (1, 1), (1, 1), (2, 2), (8, 7)),
]
UNDILATED = [
    (1, 5, 5, 3, 4, (3, 3), (1, 1), (1, 1), (1, 1), (5, 5)),
    (2, 20, 23, 3, 64, (7, 7), (2, 2), (1, 1), (3, 3), (10, 12)),
    (1, 12, 13, 1, 5, (5, 5), (1, 1), (1, 1), (2, 2), (12, 13)),
    (1, 9, 9, 33, 40, (3, 3), (2, 1), (1, 1), (1, 1), (5, 9)),
    (1, 1, 40, 8, 9, (1, 7), (1, 3), (1, 1), (0, 3), (1, 14)),
    (1, 9, 40, 3, 16, (9, 1), (4, 4), (1, 1), (4, 0), (3, 10)),
    (1, 16, 17, 3, 8, (3, 3), (1, 1), (2, 1), (2, 1), (16, 17)),
    (1, 40, 41, 2, 8, (31, 31), (1, 1), (1, 1), (0, 0), (10, 11)),  # more pieces of taps than are written out
]


@needs_tiles
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("gap", [0, 5])
def test_convolutions_in_tiles(dtype: Any, gap: int) -> None:
    convolutions([*CONVOLUTIONS, *UNSTRIDED], "tiles", dtype, gap, way="gathered")
    convolutions(UNSTRIDED, "tiles", dtype, gap, way="padded")
    convolutions(UNSTRIDED, "tiles", dtype, gap, "uint8", way="padded")
    convolutions(UNSTRIDED, "tiles", dtype, gap, way="padded", **chosen("padded", 64, 1 << 30, 64))
    convolutions(UNDILATED, "tiles", dtype, gap, way="im2col")


def test_few_taps_are_copied_piece_by_piece() -> None:
    kind = {"signed": False, "shifted": True, "result": "uint8"}
    windows = [choose_tiles("im2col", 64, taps, None, **kind).window for taps in [(7, 7, 3), (3, 3, 24), (31, 31, 3)]]
    assert windows == [(7, 21), (3, 72), (0, 0)]
    assert pieces((3, 24), LINE) == [[(0, 0), (1, 24), (2, 48)], [(2, -16)]]
    assert pieces((2, 64), LINE) == [[(0, 0)], [(1, 0)]]


DEPTHWISE = [
    # images, height, width, channels, kernel, strides, dilations, pads, out
    (1, 5, 5, 3, (3, 3), (1, 1), (1, 1), (1, 1), (5, 5)),
    (2, 9, 21, 16, (3, 3), (2, 2), (1, 1), (1, 0), (5, 10)),
    (1, 11, 12, 70, (5, 5), (1, 2), (1, 1), (2, 3), (11, 7)),
    (2, 8, 8, 33, (7, 7), (1, 1), (1, 1), (3, 3), (8, 8)),
    (1, 14, 17, 130, (3, 3), (1, 1), (2, 4), (2, 4), (14, 17)),
    (1, 1, 40, 20, (1, 7), (1, 3), (1, 1), (0, 3), (1, 14)),
    (1, 30, 1, 17, (4, 1), (3, 1), (1, 1), (0, 0), (9, 1)),
    (1, 4, 4, 5, (2, 3), (1, 1), (1, 1), (9, 9), (20, 20)),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("gap", [0, 5])
def test_depthwise(target: str, dtype: Any, gap: int) -> None:
    for images, height, width, channels, kernel, strides, dilations, pads, out in DEPTHWISE:
        random = np.random.default_rng(channels)
        low, high = (-128, 128) if dtype is np.int8 else (0, 256)
        whole = random.integers(low, high, (images, height, width, channels + gap)).astype(dtype)
        w = random.integers(-128, 128, (channels, *kernel, 1)).astype(np.int8)
        whole[:, ::2], w[:1] = (low if dtype is np.int8 else 255), -128  # extremes
        cpu = TARGETS[target]
        kind = {"signed": dtype is np.int8, "shifted": True, "result": "int32"}
        spec = choose_depthwise(kernel, strides, dilations, cpu, **kind)
        pixel = channels + gap
        given = window_product(
            (images, height, width, channels),
            (*out, channels),
            (kernel, strides, dilations, pads),
            (height * width * pixel, width * pixel, pixel),
            channels + 1,
        )
        y = run(spec, target, whole, 5, w, given, pieces=3)
        expected = [
            convolved(
                whole[..., c : c + 1].astype(np.int64) - 5, w[c : c + 1].astype(np.int64), strides, dilations, pads, out
            )
            for c in range(channels)
        ]
        np.testing.assert_array_equal(y, np.concatenate(expected, 2).reshape(-1, channels))


@pytest.mark.parametrize("way", ["", pytest.param("copied", marks=needs_tiles)])
def test_empty(way: str) -> None:
    kind = {"signed": False, "shifted": True, "result": "int32"}
    for m, n, k in [(0, 4, 3), (3, 4, 0)]:
        spec: AnySpec = (
            choose_tiles(way, n, (k,), None, **kind)
            if way
            else choose(n, None, TARGETS["host"], depth=k, windows=False, **kind)
        )
        given = row_product(m, n, k, k, n)
        y = run(spec, "tiles" if way else "host", np.zeros((m, k), np.uint8), 3, np.zeros((n, k), np.int8), given)
        assert not y.any()


@pytest.mark.parametrize("target", ["haswell", "skylake-avx512"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_small_weights_are_multiplied_in_pairs_of_bytes(target: str, dtype: Any) -> None:
    random = np.random.default_rng(0)
    for m, n, k in [(1, 5, 7), (7, 33, 64), (13, 70, 131)]:
        x = random.integers(*((-128, 128) if dtype is np.int8 else (0, 256)), (m, k)).astype(dtype)
        w = random.integers(-64, 65, (n, k)).astype(np.int8)
        x[0] = -128 if dtype is np.int8 else 255
        w[0], w[1], w[2, ::2], w[2, 1::2] = 64, -64, 127, 1  # sums of 32640, the largest that fit
        assert fits_byte_pairs(w)
        kind: dict[str, Any] = {"signed": dtype is np.int8, "shifted": True, "windows": False, "result": "int32"}
        spec = choose(n, m, TARGETS[target], depth=k, in_byte_pairs=True, **kind)
        assert spec.multiply == "byte pairs"
        y = run(spec, target, x, 3, w, row_product(m, n, k, k, n + 3))
        np.testing.assert_array_equal(y, (x.astype(np.int64) - 3) @ w.astype(np.int64).T)


def test_which_weights_fit_pairs_of_bytes() -> None:
    for pair, fits in [
        ((64, 64), True),
        ((65, 64), False),
        ((-64, -64), True),
        ((-65, -64), False),
        ((-127, 127), True),
    ]:
        w = np.zeros((3, 7), np.int8)
        w[1, 1:3] = 127, 127  # of two pairs
        w[2, 2:4] = pair
        assert fits_byte_pairs(w) is fits


def test_what_cpus_have() -> None:
    ways = {
        "pairs": ("x86-64-v2", "haswell", "skylake-avx512"),
        "dot": ("cascadelake", "alderlake"),
        "words": ("cortex-a72",),
        "signed dot": ("neoverse-n1", "apple-m1"),
        "signed matrices": ("neoverse-v1", "neoverse-v2"),
    }
    for way, names in ways.items():
        assert {named(name).integer_products for name in names} == {way}


def test_one_or_two_rows_do_not_wait_for_tile_registers() -> None:
    target = dataclasses.replace(named("cascadelake"), features="+amx-int8,+amx-tile")
    ways = {
        rows: choose(64, rows, target, signed=False, shifted=True, windows=False, result="int32").multiply
        for rows in (1, 2, 3, None)
    }
    assert ways == {1: "dot", 2: "dot", 3: "tiles", None: "tiles"}


@pytest.mark.parametrize(
    ("cpu", "instruction", "register"),
    [
        ("neoverse-v1", "smmla", ".4s"),
        ("neoverse-n1", "sdot", ".4s"),
        ("cortex-a72", "mla", ".4s"),
        ("cascadelake", "vpdpbusd", "zmm"),
        ("haswell", "vpmaddwd", "ymm"),
    ],
)
def test_sums_stay_in_registers(cpu: str, instruction: str, register: str) -> None:
    target = named(cpu)
    spec = choose(64, None, target, signed=False, shifted=True, windows=True, result="int32")
    text = assembly(build(spec, target.lanes(4)), target)
    loops = innermost_loops(text, rf"\t{instruction}\t.*{re.escape(register)}", target)
    assert max(loop.multiply_adds for loop in loops) == spec.rows[0] * spec.width // target.lanes(4)
    assert not any(loop.spilled_vectors for loop in loops)
