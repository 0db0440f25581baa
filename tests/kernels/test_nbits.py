"""Products with matrices of 2, 4 and 8 bits: every way of a CPU, against float64."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from bench.inner_loops import innermost_loops
from jitonnx.emit.builder import KernelBuilder
from jitonnx.emit.ssa import SSAValue
from jitonnx.kernels.nbits.kernel import build
from jitonnx.kernels.nbits.spec import (
    BITS,
    GROUP_ROWS,
    NBitsSizes,
    NBitsSpec,
    RowsSizes,
    RowsSpec,
    choose,
    stored_scales,
)
from jitonnx.target.machine import host, of_any_architecture
from tests.kernels.harness import Compiled, assembly
from tests.targets import named

TARGETS = {
    name: host() if name == "host" else named(name) for name in ("host", "znver4", "cascadelake", "skylake-avx512")
}
TARGETS |= {name: named(name) for name in ("haswell", "alderlake", "x86-64-v2")}
QUANTISING = ("znver4", "cascadelake", "alderlake", "skylake-avx512", "haswell")
"""Those with dot products of bytes or of pairs of them, and, as kernels see them, no tile registers."""


def half(
    code: KernelBuilder, x: SSAValue, batch: SSAValue, row: SSAValue, column: SSAValue, active: SSAValue
) -> SSAValue:
    return x * 0.5


@functools.cache
def compiled(spec: NBitsSpec | RowsSpec, target: str) -> Compiled:
    cpu = TARGETS[target]
    stage = half if isinstance(spec, NBitsSpec) else None
    return Compiled(build(spec, cpu.lanes(4), stage), cpu, prescheduled=spec.prescheduled)


def numbers(q: np.ndarray, bits: int) -> np.ndarray:
    """[n, blocks, bytes] -> [n, elements]."""
    places = [(q >> shift) & ((1 << bits) - 1) for shift in range(0, 8, bits)]
    return np.stack(places, -1).reshape(len(q), -1)


def multiplied(spec: NBitsSpec, target: str, a: np.ndarray, q: np.ndarray, s: np.ndarray, z: np.ndarray) -> np.ndarray:
    """What the kernels give for a [m, k], half of the product."""
    (m, k), n, blocks = a.shape, len(q), s.shape[1]
    apart = np.full((m, k + 3), np.nan, np.float32)
    apart[:, :k] = a
    rows = spec.rows_spec
    few = min(m, rows.most_rows or m)
    left = np.full(rows.left_bytes(m, few, spec.padded(k)) + 64, 77, np.uint8)
    factors = np.full((few, blocks, 2), np.nan, np.float32)
    given = RowsSizes(m=m, k=k, a_row=k + 3)
    compiled(rows, target)([apart, left, factors], given, rows.tasks(given))
    y = np.full((m, n + 5), 9, np.float32)
    sizes = spec.complete(NBitsSizes(m=m, n=n, k=k, a_row=k + 3, y_row=n + 5))
    buffers = [apart, left, factors, spec.pack_numbers(q), spec.pack_scales(s), spec.pack_blocks(z), y]
    compiled(spec, target)(buffers, sizes, spec.tasks(sizes), spec.scratch_bytes(sizes), pieces=3)
    assert (y[:, n:] == 9).all()
    return y[:, :n]


def example(bits: int, block: int, m: int, n: int, k: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    random = np.random.default_rng(seed)
    blocks = -(-k // block)
    q = random.integers(0, 256, (n, blocks, block * bits // 8), np.uint8)
    s = random.normal(size=(n, blocks)).astype(np.float32)
    return random.normal(size=(m, k)).astype(np.float32), q, s


CASES = [
    *[(bits, 32, zeros) for bits in (2, 4, 8) for zeros in ("", "uint8", "float32")],
    *[(4, block, "uint8") for block in (16, 64, 128, 256)],
    *[(8, 16, ""), (8, 256, "uint8"), (2, 16, "uint8"), (2, 128, "")],
]


EVERYWHERE = [(2, 32, "uint8"), (4, 32, ""), (8, 64, "float32")]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("target", "bits", "block", "zeros"),
    [(name, *case) for name in TARGETS for case in (CASES if name in ("host", "haswell") else EVERYWHERE)],
)
def test_product(target: str, bits: int, block: int, zeros: str) -> None:
    check_sizes(choose(bits, block, zeros, TARGETS[target]), target)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("target", "bits", "block", "zeros"),
    [(name, *case) for name in QUANTISING for case in (CASES if name in ("cascadelake", "haswell") else EVERYWHERE)],
)
def test_product_of_quantised_rows(target: str, bits: int, block: int, zeros: str) -> None:
    spec = choose(bits, block, zeros, TARGETS[target], quantised=True)
    assert spec.digits == (0 if bits == 8 and "dot" not in spec.multiply else 1)
    check_sizes(spec, target)


@pytest.mark.parametrize("target", QUANTISING)
def test_any_number_of_quantised_rows(target: str) -> None:
    """Tiles that are full or not, groups of rows, strips of blocks that end within."""
    spec = choose(4, 32, "", TARGETS[target], quantised=True)
    for m in [*range(2, 19), GROUP_ROWS, GROUP_ROWS + 1, GROUP_ROWS + 10]:
        check(spec, target, m, spec.width + 1, 32 * 18 - 5 * m)


def of_type(scales: np.ndarray, kind: str) -> np.ndarray:
    """Scales as numbers of a 16-bit type, in float32."""
    if kind == "float16":
        return scales.astype(np.float16).astype(np.float32)
    return (scales.view(np.uint32) & 0xFFFF0000).view(np.float32)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@pytest.mark.parametrize("is_quantised", [False, True])
@pytest.mark.parametrize("target", TARGETS)
def test_scales_of_16_bits_change_no_bit(target: str, is_quantised: bool, kind: str) -> None:
    """One row and a few, a group of quantised rows, many; panels and strips that end within, odd numbers of blocks."""
    wide = choose(4, 32, "uint8", TARGETS[target], quantised=is_quantised)
    spec = choose(4, 32, "uint8", TARGETS[target], quantised=is_quantised, scales=kind)
    for m, n, blocks in ((1, spec.width, 1), (1, spec.width + 3, 19), (4, 5, 3), (13, spec.width * 2 - 1, 11)):
        a, q, s = example(4, 32, m, n, 32 * blocks - 7)
        s = of_type(s, kind)
        s[0, 0] = 0
        s[-1, -1] = 2.0**-24  # denormal as float16
        z = np.random.default_rng(2).integers(0, 16, s.shape).astype(np.uint8)
        assert spec.pack_scales(s).nbytes * 2 == wide.pack_scales(s).nbytes
        results = [multiplied(one, target, a, q, s, z) for one in (wide, spec)]
        assert results[0].tobytes() == results[1].tobytes()


def test_which_type_holds_all_scales() -> None:
    scales = example(4, 32, 1, 5, 96)[2]
    haswell, old = named("haswell"), named("x86-64-v2")
    assert stored_scales(scales, haswell) == "float32"
    for kind, other in (("float16", 1.0), ("bfloat16", 2.0**20)):  # float16 ends at 65504
        exact = of_type(scales, kind)
        exact[0, 0] = other
        assert stored_scales(exact, haswell) == kind
        assert stored_scales(exact, old) == ("float32" if kind == "float16" else kind)
        exact[-1, -1] = 1 + 2.0**-12
        assert stored_scales(exact, haswell) == "float32"
    exact = of_type(scales, "bfloat16")
    assert stored_scales(exact, haswell) == "float16"
    exact[0, 0] = np.inf
    assert stored_scales(exact, haswell) == "float16"
    exact[0, 0] = np.nan
    assert stored_scales(exact, haswell) == "bfloat16"


def check_sizes(spec: NBitsSpec, target: str) -> None:
    width, block = spec.width, spec.block
    for m, n, k in ((1, width, block), (1, width + 1, 3 * block), (4, 3, 2 * block - 5), (7, 2 * width + 3, 5 * block)):
        check(spec, target, m, n, k)
    for m in (9, 12, 13, 31):
        check(spec, target, m, width * 2 - 7, 2 * block - 3)


@pytest.mark.skipif(not host().has_bfloat16_tiles, reason="the CPU has no tile registers for bfloat16")
@pytest.mark.parametrize(("bits", "block", "zeros"), [case for case in CASES if case[1] >= 32])
def test_product_of_many_rows_in_tiles(bits: int, block: int, zeros: str) -> None:
    spec = choose(bits, block, zeros, TARGETS["host"], rounded=True)
    assert spec.rounded
    width = spec.width
    for m, n, k in ((1, width, block), (8, 3, 2 * block - 5), (9, 1, 7), (16, 17, 3 * block), (17, width + 1, block)):
        check(spec, "host", m, n, k, 2**-7)
    for m in (31, 32, 33, 50, 700):
        check(spec, "host", m, width * 2 - 7, 2 * block - 3, 2**-7)


def test_blocks_that_fill_no_tile_are_summed_in_float32() -> None:
    assert not choose(4, 16, "", TARGETS["host"], rounded=True).rounded
    assert not choose(4, 32, "", TARGETS["cascadelake"], rounded=True).rounded


def check(spec: NBitsSpec, target: str, m: int, n: int, k: int, error: float = 4e-7) -> None:
    a, q, s = example(spec.bits, spec.block, m, n, k, seed=m + n)
    random = np.random.default_rng(1)
    whole = numbers(q, spec.bits).astype(np.float64)
    z = np.full(s.shape, float(1 << (spec.bits - 1)))
    given = np.zeros(s.shape, np.uint8)
    if spec.zeros == "uint8":
        given = random.integers(0, 1 << spec.bits, s.shape).astype(np.uint8)
        z = given.astype(np.float64)
    elif spec.zeros == "float32":
        given = (random.normal(size=s.shape) + z).astype(np.float32)
        z = given.astype(np.float64)
    w = (whole - np.repeat(z, spec.block, 1)) * np.repeat(s.astype(np.float64), spec.block, 1)
    y = multiplied(spec, target, a, q, s, given)
    if spec.digits == 1:
        a = quantised(a, spec.block)
    expected = 0.5 * a.astype(np.float64) @ w[:, :k].T
    bound = 0.5 * np.abs(a).astype(np.float64) @ (whole + np.repeat(z, spec.block, 1))[:, :k].T * np.abs(s).max()
    assert (np.abs(y - expected) <= error * bound.max()).all()


def quantised(a: np.ndarray, block: int) -> np.ndarray:
    """a [m, k] as blocks of int8 hold it."""
    m, k = a.shape
    blocks = np.zeros((m, -(-k // block) * block), np.float32)
    blocks[:, :k] = a
    blocks = blocks.reshape(m, -1, block)
    largest = np.abs(blocks).max(-1, keepdims=True)
    integers = np.rint(blocks * (np.float32(127) / largest))
    return (integers * (largest / np.float32(127))).reshape(m, -1)[:, :k]


@pytest.mark.parametrize(
    ("target", "is_quantised"), [*((name, False) for name in TARGETS), *((name, True) for name in QUANTISING)]
)
def test_magnitudes(target: str, is_quantised: bool) -> None:
    """Blocks of very different magnitudes, all zeros, of tiny numbers, NaN and infinities."""
    spec = choose(4, 32, "", TARGETS[target], quantised=is_quantised)
    a, q, s = example(4, 32, 6, 5, 32 * 6)
    a[0] *= np.repeat(10.0 ** np.arange(-15, 15, 5), 32).astype(np.float32)
    a[1] = 0
    a[2] *= np.float32(1e-36)
    a[3, 40] = np.nan
    a[4, 40] = np.inf
    y = multiplied(spec, target, a, q, s, np.zeros(s.shape, np.uint8))
    w = (numbers(q, 4).astype(np.float64) - 8) * np.repeat(s.astype(np.float64), 32, 1)
    expected = 0.5 * a.astype(np.float64) @ w.T
    if is_quantised:
        expected[5] = 0.5 * quantised(a[5:], 32)[0].astype(np.float64) @ w.T
    assert np.allclose(y[5], expected[5], rtol=1e-5, atol=1e-5)
    assert is_quantised or np.allclose(y[0], expected[0], rtol=1e-5)
    assert (y[1] == 0).all()
    assert (np.abs(y[2] - expected[2]) < 1e-30).all()
    assert np.isnan(y[3]).all()
    assert not np.isfinite(y[4]).any()


def test_same_bits_on_all_cpus_with_dot_products() -> None:
    """The sums of a block are exact integers."""
    a, q, s = example(4, 32, 1, 64, 256)
    zeros = np.zeros(s.shape, np.uint8)
    results = []
    for target in ("host", "znver4", "cascadelake"):
        spec = choose(4, 32, "", TARGETS[target])
        if spec.multiply == "dot":
            results.append(multiplied(spec, target, a, q, s, zeros))
    assert all(np.array_equal(results[0], other) for other in results)


@pytest.mark.parametrize(
    ("target", "bits", "is_quantised", "scales"),
    [
        *(("cascadelake", 4, is_quantised, "float32") for is_quantised in (False, True)),
        *((name, 4, True, "float32") for name in ("alderlake", "haswell", "skylake-avx512")),
        *((name, bits, False, "float32") for name, bits in (("haswell", 2), ("haswell", 4))),
        *(("cortex-a72", bits, False, "float32") for bits in BITS),
        *((name, 4, True, "float16") for name in ("cascadelake", "alderlake", "haswell")),
        *(
            (name, 4, False, kind)
            for name in ("cascadelake", "haswell", "cortex-a72")
            for kind in ("float16", "bfloat16")
        ),
    ],
)
def test_inner_loops_keep_to_registers(target: str, bits: int, is_quantised: bool, scales: str) -> None:
    cpu = of_any_architecture(target)
    spec = choose(bits, 32, "", cpu, quantised=is_quantised, scales=scales)
    text = assembly(build(spec, cpu.lanes(4)), cpu, prescheduled=spec.prescheduled)
    of_bytes = {"dot": r"\t(\{vex\}\s*)?vpdpbusd\t", "byte pairs": r"\tvpmaddubsw\t"}
    multiply_add = of_bytes.get(spec.multiply, r"\t(vfn?madd\w+ps|fmla)\t")
    loops = innermost_loops(text, multiply_add, cpu)
    assert loops
    assert not any(loop.spilled_vectors for loop in loops)
