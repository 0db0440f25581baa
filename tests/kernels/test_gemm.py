"""GEMM: every tile edge, stride, batch, element type and vector length against NumPy; tiles stay in registers."""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.inner_loops import multiplying_loops
from jitonnx.emit import types
from jitonnx.emit.builder import KernelBuilder
from jitonnx.emit.epilogue import Epilogue
from jitonnx.emit.mathematics.vecmath import gelu
from jitonnx.emit.module import emit_module
from jitonnx.emit.ssa import SSAValue, at_least
from jitonnx.kernels.gemm.blas import BlasSpec, build_blas
from jitonnx.kernels.gemm.choose import GemmExtents, choose_gemm
from jitonnx.kernels.gemm.kernel import build
from jitonnx.kernels.gemm.spec import ELEMENTS, GemmSpec, ScaleSpec
from jitonnx.kernels.parts.microkernel import steps_of_round
from jitonnx.target import tuning
from jitonnx.target.machine import host
from tests.kernels.guarded import guarded
from tests.kernels.harness import Compiled, assembly
from tests.targets import named

CPUS = ["host", "haswell"]
WIDEST = {"host": GemmSpec((6, 4, 1), (64, 32, 16)), "haswell": GemmSpec((4, 2, 1), (24, 8))}
"""A spec with several tiles in both directions for each CPU."""


@functools.cache
def bias_relu(lanes: int) -> Any:
    """max(x + bias[column], 0), bias being the first buffer behind GEMM's."""

    def epilogue(code, x, batch, row, column, active):
        return at_least(x + code.buffer(3, types.float32).load(column, lanes, active), 0.0)

    return epilogue


@functools.cache
def residual(lanes: int) -> Any:
    """x + other[batch, row, column]; the strides of `other` are the sizes behind GEMM's."""

    def epilogue(code, x, batch, row, column, active):
        return x + code.buffer(3, types.float32).load(
            batch * code.size(18) + row * code.size(19) + column, lanes, active
        )

    return epilogue


@functools.cache
def bias_gelu(lanes: int) -> Any:
    """GELU of x + bias[column]: a long epilogue, which is not repeated for each register."""

    def epilogue(code, x, batch, row, column, active):
        return gelu(x + code.buffer(3, types.float32).load(column, lanes, active))

    return epilogue


@functools.cache
def compiled(spec: GemmSpec, cpu: str, lanes: int, epilogue: Any = None) -> Compiled:
    return Compiled(build(spec, lanes, epilogue(lanes) if epilogue else None), named(cpu), spec.prescheduled)


def matrices(rng: np.random.Generator, *shape: int, dtype: str = "float32") -> np.ndarray:
    """Small whole numbers, whose sums are exact in every type and order."""
    return rng.integers(0 if dtype.startswith("u") else -4, 5, shape).astype(dtype)


def product(
    kernel: Compiled,
    spec: GemmSpec,
    a: np.ndarray,
    b: np.ndarray,
    *others: np.ndarray,
    pieces: int = 2,
    more_sizes: tuple[int, ...] = (),
) -> np.ndarray:
    """Run the kernel on a [outer, inner, m, k] and b [outer, inner, k, n] of any strides (0 shares); gives c.

    The rows of c lie in wider ones, and what is between them must stay as it was.
    """
    outer, inner, m, k = a.shape
    n = b.shape[-1]
    strides = {
        f"a_{name}": a.strides[axis] // a.itemsize for axis, name in enumerate(("outer", "inner", "row", "column"))
    }
    strides |= {
        f"b_{name}": b.strides[axis] // b.itemsize for axis, name in enumerate(("outer", "inner", "row", "column"))
    }
    if spec.b_packed:
        packed = spec.pack_b(b)
        strides["b_outer"] = inner * packed.shape[-1]
        strides["b_inner"] = packed.shape[-1]
        b = guarded(packed)
    wide = np.full((outer, inner, m, n + 5), 77, a.dtype)
    strides |= {"c_row": n + 5, "c_inner": m * (n + 5), "c_outer": inner * m * (n + 5)}
    sizes = spec.arguments(m=m, n=n, k=k, outer=outer, inner=inner, **strides)
    kernel([a, b, wide, *others], [*sizes, *more_sizes], spec.tasks(sizes), spec.scratch_bytes(sizes), pieces)
    assert (wide[..., n:] == 77).all()
    return wide[..., :n]


def lanes_of(cpu: str, element: str = "float32") -> int:
    return named(cpu).lanes(np.dtype(element).itemsize)


# ---------------------------------------------------------------- values


@pytest.mark.parametrize(
    "asking",
    [
        {},
        {"prefetch_distance": 24, "paced_prefetch": True},
        {"prefetch_distance": 24, "paced_prefetch": True, "depth": 3},
    ],
    ids=["lines", "paced_prefetch", "parts"],
)
@pytest.mark.parametrize("cpu", CPUS)
def test_gemm_tile_edges(cpu: str, asking: dict[str, Any]) -> None:
    """Whichever way memory is asked for what comes next, and also where k is taken in parts."""
    spec, lanes = replace(WIDEST[cpu], **asking), lanes_of(cpu)
    kernel = compiled(spec, cpu, lanes)
    rng = np.random.default_rng(0)
    edges = sorted({0, 1, *(w + d for w in (lanes, *spec.widths) for d in (-1, 0, 1)), 3 * spec.widths[0] + 1})
    for m, n, k in itertools.product((0, 1, 2, 3, 4, 5, 6, 7, 25), edges, (0, 1, 2, 7)):
        a, b = matrices(rng, 1, 1, m, k), matrices(rng, 1, 1, k, n)
        np.testing.assert_array_equal(product(kernel, spec, guarded(a), b), a @ b, f"{m}x{n}x{k}")


@pytest.mark.parametrize("joins_halves", [False, True])
@pytest.mark.parametrize("epilogue", [None, bias_relu, bias_gelu])
@pytest.mark.parametrize("cpu", CPUS)
def test_gemm_half_vectors(cpu: str, epilogue: Any, joins_halves: bool) -> None:
    """Panels that end in half a vector, the last one and others: nothing behind a panel is written. Also where the
    halves of two rows are summed in one vector, of whose rows the last one is left over."""
    lanes = lanes_of(cpu)
    half = lanes // 2
    rng = np.random.default_rng(9)
    for widths in [(half,), (lanes + half,), (2 * lanes, lanes + half)]:
        spec = GemmSpec((3, 2) if joins_halves else (3, 1), widths, joins_halves=joins_halves)
        kernel = compiled(spec, cpu, lanes, epilogue)
        rows, depths = (2, 5) if joins_halves else (1, 4), (1, 5) if epilogue else (1, 2 * tuning.SUM_STEPS + 5)
        for m, n, k in itertools.product(rows, range(1, 2 * widths[0] + 2), depths):
            a, b, bias = matrices(rng, 1, 1, m, k), matrices(rng, 1, 1, k, n), matrices(rng, n)
            others = (guarded(bias),) if epilogue else ()
            expected = a @ b
            if epilogue is bias_relu:
                expected = np.maximum(expected + bias, 0)
            if epilogue is bias_gelu:
                x = (expected + bias).astype(np.float64)
                expected = x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2
            result = product(kernel, spec, guarded(a), b, *others)
            np.testing.assert_allclose(result, expected, 1e-6, 1e-6, err_msg=f"{widths}: {m}x{n}x{k}")


@pytest.mark.parametrize("kind", ["float64", "float16", "bfloat16"])
def test_gemm_joined_halves_of_other_numbers(kind: str) -> None:
    """Of wider elements, and of a matrix that is widened as it is read."""
    element = kind if kind == "float64" else "float32"
    lanes = lanes_of("host", element)
    spec = GemmSpec((5, 1), (lanes + lanes // 2,), element, b_stored="" if kind == element else kind, joins_halves=True)
    kernel = compiled(spec, "host", lanes)
    rng = np.random.default_rng(3)
    for m, n in itertools.product((1, 5, 11), (1, lanes, lanes + 1, 2 * lanes, 3 * lanes)):
        a, b = (matrices(rng, 1, 1, *shape).astype(element) for shape in ((m, 7), (7, n)))
        np.testing.assert_array_equal(product(kernel, spec, guarded(a), b), a @ b, f"{m}x{n}")


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("packed", [True, False])
def test_gemm_of_wanted_rows(cpu: str, packed: bool) -> None:
    """The first rows of all matrices, as many as a buffer says, are right; whole tiles behind them are left."""
    lanes = lanes_of(cpu)
    rng = np.random.default_rng(11)
    for rows, (outer, inner, m) in itertools.product(
        [(4, 2, 1), (5, 3)], [(1, 1, 23), (3, 2, 8), (5, 1, 1), (1, 1, 400)]
    ):
        if rows[-1] != 1 and any(m % 5 % height for height in rows[1:]):
            continue
        spec = GemmSpec(rows, (2 * lanes,), b_packed=packed, wanted=3)
        kernel = compiled(spec, cpu, lanes)
        a, b = matrices(rng, outer, inner, m, 9), matrices(rng, outer, inner, 9, 5 * lanes)
        exact = (a @ b).reshape(-1, 5 * lanes)
        for wanted in (-1, 0, 1, m - 1, m, m + 3, outer * inner * m, 10**6):
            result = product(kernel, spec, a, b, np.array([wanted]), pieces=3).reshape(exact.shape)
            end = max(0, wanted)
            np.testing.assert_array_equal(result[:end], exact[:end], f"{outer}x{inner}x{m}: {wanted}")
            assert (result[end + rows[0] :] == 77).all()


@pytest.mark.parametrize("cpu", CPUS)
def test_gemm_bias_relu(cpu: str) -> None:
    """Real numbers: within k roundings of the sum of absolute products."""
    spec, lanes = WIDEST[cpu], lanes_of(cpu)
    kernel = compiled(spec, cpu, lanes, bias_relu)
    rng = np.random.default_rng(1)
    for m, n, k in [(13, 77, 129), (128, 192, 64), (1, 100, 300), (11, 7, 1000)]:
        a, b = (rng.standard_normal(shape, np.float32) for shape in ((1, 1, m, k), (1, 1, k, n)))
        bias = rng.standard_normal(n, np.float32)
        exact = np.maximum(a.astype(np.float64) @ b.astype(np.float64) + bias, 0)
        bound = (k + 2) * np.finfo(np.float32).eps / 2 * (np.abs(a) @ np.abs(b) + np.abs(bias))
        assert (np.abs(product(kernel, spec, guarded(a), b, guarded(bias)) - exact) <= bound).all(), f"{m}x{n}x{k}"


@pytest.mark.parametrize("cpu", CPUS)
def test_gemm_epilogue_place(cpu: str) -> None:
    """The epilogue is told the right batch, row and column, also by tiles of the last rows and columns."""
    spec, lanes = WIDEST[cpu], lanes_of(cpu)
    rng = np.random.default_rng(2)
    a, b = matrices(rng, 2, 3, 11, 9), matrices(rng, 2, 3, 9, 83)
    other = matrices(rng, 6, 11, 83)
    kernel = compiled(spec, cpu, lanes, residual)
    result = product(kernel, spec, a, b, guarded(other), more_sizes=(11 * 83, 83), pieces=4)
    np.testing.assert_array_equal(result, a @ b + other.reshape(2, 3, 11, 83))


@pytest.mark.parametrize("cpu", CPUS)
def test_gemm_long_epilogue(cpu: str) -> None:
    spec, lanes = WIDEST[cpu], lanes_of(cpu)

    def has_long_epilogue(code: KernelBuilder, *_: SSAValue) -> None:
        assert not Epilogue(code, bias_gelu(lanes), types.float32, lanes).unrolls

    emit_module(has_long_epilogue, "has_long_epilogue", named(cpu))
    rng = np.random.default_rng(3)
    a, b, bias = matrices(rng, 1, 1, 15, 9), matrices(rng, 1, 1, 9, 83), rng.standard_normal(83, np.float32)
    x = (a @ b).astype(np.float64) + bias
    expected = x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2
    result = product(compiled(spec, cpu, lanes, bias_gelu), spec, a, b, guarded(bias))
    np.testing.assert_allclose(result, expected, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("a_in_place", [True, False])
def test_gemm_strides(cpu: str, a_in_place: bool) -> None:
    """Operands as they come: transposed, spread out, shared between matrices, and with nothing readable around them."""
    lanes = lanes_of(cpu)
    spec = GemmSpec((4, 2, 1), (2 * lanes,), a_in_place=a_in_place, b_packed=False)
    kernel = compiled(spec, cpu, lanes)
    rng = np.random.default_rng(4)
    for (m, n, k), form in itertools.product(
        [(1, 1, 1), (3, lanes, 2), (9, 2 * lanes + 3, lanes + 1), (37, 5 * lanes - 1, 3 * lanes - 1), (5, 3, 0)],
        ["plain", "transposed", "spread"],
    ):
        a, b = guarded(matrices(rng, 2, 3, m, k)), guarded(matrices(rng, 2, 3, k, n))
        if form == "transposed":
            b = guarded(b.swapaxes(2, 3)).swapaxes(2, 3)
            a = a if a_in_place else guarded(a.swapaxes(2, 3)).swapaxes(2, 3)
        elif form == "spread":
            b = guarded(matrices(rng, 2, 3, k, 3 * n))[..., ::3]
            a = guarded(matrices(rng, 2, 3, m, 2 * k))[..., : 2 * k : 1 if a_in_place else 2][..., :k]
        np.testing.assert_array_equal(product(kernel, spec, a, b), a @ b, f"{m}x{n}x{k} {form}")
        shared = np.broadcast_to(b[:1, :1], b.shape)
        np.testing.assert_array_equal(product(kernel, spec, a, shared), a @ shared, f"{m}x{n}x{k} {form} shared")


@pytest.mark.parametrize("rows", [7, 16, 60, 70])
@pytest.mark.parametrize("least", [{}, {"near_bytes": 1 << 10, "few_rows": 16, "prefetches_rows": False}])
def test_gemm_large_runtime_b(rows: int, least: dict[str, Any]) -> None:
    """Too large to be read in place by many rows: panels are copied."""
    lanes = lanes_of("host")
    spec = GemmSpec((4, 2, 1), (2 * lanes,), b_packed=False, **least)
    rng = np.random.default_rng(5)
    a, b = matrices(rng, 1, 1, rows, 900), matrices(rng, 1, 1, 900, 1001)
    np.testing.assert_array_equal(product(compiled(spec, "host", lanes), spec, a, b), a @ b)


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("element", ELEMENTS)
def test_gemm_elements(cpu: str, element: str) -> None:
    lanes = lanes_of(cpu, element)
    spec = choose_gemm(GemmExtents(None, 3 * lanes + 1, None), named(cpu), element=element)
    kernel = compiled(spec, cpu, lanes)
    rng = np.random.default_rng(6)
    a, b = matrices(rng, 1, 1, 19, 21, dtype=element), matrices(rng, 1, 1, 21, 3 * lanes + 1, dtype=element)
    np.testing.assert_array_equal(product(kernel, spec, a, b), a @ b)
    if np.dtype(element).kind != "f":
        largest = np.iinfo(element).max
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(product(kernel, spec, a * 0 + largest, b), (a * 0 + largest) @ b)


def test_gemm_short_vectors() -> None:
    """Vectors of 128 bits, as on CPUs without AVX."""
    spec = GemmSpec((4, 2, 1), (12, 4), a_in_place=False, b_packed=False)
    kernel = compiled(spec, "haswell", 4)
    rng = np.random.default_rng(7)
    for m, n, k in [(1, 1, 1), (7, 13, 5), (9, 31, 17)]:
        a, b = matrices(rng, 1, 1, k, m).swapaxes(2, 3), matrices(rng, 1, 1, n, k).swapaxes(2, 3)
        np.testing.assert_array_equal(product(kernel, spec, a, b), a @ b)


def test_gemm_nan_and_infinity() -> None:
    spec, lanes = WIDEST["host"], lanes_of("host")
    a, b = np.ones((1, 1, 8, 5), np.float32), np.ones((1, 1, 5, 70), np.float32)
    a[0, 0, 1, 2], a[0, 0, 2, 0], b[0, 0, 3, 69] = np.nan, np.inf, -np.inf
    kernel = compiled(spec, "host", lanes, bias_relu)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(
            product(kernel, spec, a, b, np.zeros(70, np.float32)), np.maximum(a @ b, np.float32(0))
        )


def test_gemm_pieces_agree() -> None:
    """However tasks are shared out, the result is the same to the last bit."""
    spec, lanes = WIDEST["host"], lanes_of("host")
    rng = np.random.default_rng(8)
    a, b = (rng.standard_normal(shape, np.float32) for shape in ((2, 1, 130, 200), (2, 1, 200, 330)))
    kernel = compiled(spec, "host", lanes)
    whole = product(kernel, spec, a, b, pieces=1)
    for pieces in (2, 3, 7, 100):
        np.testing.assert_array_equal(product(kernel, spec, a, b, pieces=pieces), whole)


@pytest.mark.parametrize(("widths", "epilogue"), [((3, 1), residual), ((2.5,), bias_gelu)])
@pytest.mark.parametrize("cpu", CPUS)
def test_gemm_parts_of_k_agree(cpu: str, widths: tuple[float, ...], epilogue: Any) -> None:
    """The result is the same to the last bit if k is taken in parts, several panels and blocks of rows a task."""
    lanes = lanes_of(cpu)
    whole = GemmSpec((4, 2, 1), tuple(int(width * lanes) for width in widths))
    parts = replace(whole, depth=tuning.SUM_STEPS, prefetch_distance=24, paced_prefetch=True)
    kernels = [compiled(spec, cpu, lanes, epilogue) for spec in (whole, parts)]
    rng = np.random.default_rng(8)
    for m, n, k, task_rows in [(70, 9 * lanes, 600, 32), (7, lanes + 1, 512, 8), (41, 7 * lanes + 3, 257, 44)]:
        a, b = (rng.standard_normal(shape, np.float32) for shape in ((1, 2, m, k), (1, 2, k, n)))
        other, strides = rng.standard_normal((2, m, n), np.float32), (m * n, n)
        others = [guarded(other if epilogue is residual else other[0, 0])]
        expected = product(kernels[0], whole, a, b, *others, more_sizes=strides)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(GemmSpec, "blocks", lambda *_, each=(task_rows, 2 * whole.widths[0]): each)
            for pieces in (1, 3):
                found = product(kernels[1], parts, a, b, *others, more_sizes=strides, pieces=pieces)
                np.testing.assert_array_equal(found, expected, f"{m}x{n}x{k}")


@settings(max_examples=60)
@given(
    m=st.integers(0, 40),
    n=st.integers(0, 150),
    k=st.integers(0, 70),
    outer=st.integers(1, 2),
    inner=st.integers(0, 3),
    a_transposed=st.booleans(),
    b_transposed=st.booleans(),
    pieces=st.integers(1, 5),
)
def test_gemm_any(
    m: int, n: int, k: int, outer: int, inner: int, a_transposed: bool, b_transposed: bool, pieces: int
) -> None:
    lanes = lanes_of("host")
    rng = np.random.default_rng(9)
    a = matrices(rng, outer, inner, k, m).swapaxes(2, 3) if a_transposed else matrices(rng, outer, inner, m, k)
    b = matrices(rng, outer, inner, n, k).swapaxes(2, 3) if b_transposed else matrices(rng, outer, inner, k, n)
    spec = GemmSpec((4, 2, 1), (3 * lanes, lanes), a_in_place=not a_transposed, b_packed=False)
    np.testing.assert_array_equal(product(compiled(spec, "host", lanes), spec, a, b, pieces=pieces), a @ b)


# ---------------------------------------------------------------- choosing, packing, code


def test_choose_gemm_covers_and_fits() -> None:
    sizes = [None, 0, 1, 2, 7, 10, 24, 49, 64, 100, 197, 768, 1000]
    for cpu, m, n in itertools.product(CPUS, sizes, sizes):
        target = named(cpu)
        lanes = target.lanes(4)
        spec = choose_gemm(GemmExtents(m, n, 64), target)
        vectors = -(-spec.widths[0] // lanes)
        assert spec.rows[0] * vectors + vectors + 1 <= target.vector_registers
        for width in spec.widths:
            # Half a vector ends the last panel only.
            assert width % lanes == 0 or (width % (lanes // 2) == 0 and n and n % spec.widths[0] <= width)
        for rows in [m] if m is not None else range(20):
            arguments = spec.arguments(m=rows, n=n or 5, k=3)
            assert (spec.tasks(arguments) == 0) == (rows == 0)


def test_gemm_asks_for_b_as_the_core_needs_it() -> None:
    intel, zen = named("sapphirerapids"), named("znver4")
    far = choose_gemm(GemmExtents(128, 3072, 768), intel)
    assert (far.prefetch_distance, far.paced_prefetch) == (24, True)
    assert choose_gemm(GemmExtents(128, 3072, 64), intel).prefetch_distance == 0, (
        "the panel stays in the first-level cache"
    )
    assert not choose_gemm(GemmExtents(128, 16, 768), intel).paced_prefetch, "there is one panel"
    unpacked = choose_gemm(GemmExtents(128, 3072, 768), intel, packed_b=False)
    assert (
        not unpacked.prefetch_distance
        and unpacked.near_bytes < choose_gemm(GemmExtents(128, 3072, 768), zen, packed_b=False).near_bytes
    )
    assert unpacked.prefetches_rows and not choose_gemm(GemmExtents(128, 3072, 768), named("haswell")).prefetches_rows
    assert [choose_gemm(GemmExtents(196, 256, k), named("haswell")).prefetch_distance for k in (128, 1000)] == [0, 24]
    row = choose_gemm(GemmExtents(1, 4096, 4096), intel)
    assert (row.rows, row.widths, row.paced_prefetch) == ((1,), (16,), False)
    prefetch_distance = choose_gemm(GemmExtents(1, 128, intel.l2_bytes // 4 // 128), intel)
    assert prefetch_distance.widths == (64,), "several sums at once where b stays in the second-level cache"
    for m, n in ((128, 3072), (1, 4096)):
        spec = choose_gemm(GemmExtents(m, n, 768), zen)
        assert (spec.prefetch_distance, spec.paced_prefetch) == (0, False)


def test_gemm_takes_k_in_parts_where_rows_would_not_stay_near() -> None:
    intel, zen = named("sapphirerapids"), named("znver4")
    assert [choose_gemm(GemmExtents(m, 768, 3072), intel).depth for m in (197, 64, None)] == [1024, 512, 512]
    assert choose_gemm(GemmExtents(128, 384, 1500), intel).depth == 768
    assert [
        choose_gemm(GemmExtents(197, 3072, 768), intel).depth,
        choose_gemm(GemmExtents(197, 768, 3072), zen).depth,
    ] == [0, 0]
    assert choose_gemm(GemmExtents(197, 768, 3072), intel, a_in_place=False).depth == 0
    spec = choose_gemm(GemmExtents(197, 768, 3072), intel)
    assert spec.blocks(197, 768, 3072, 1) == (198, 96), "all rows, of which a part stays near for two panels"


def test_gemm_tasks_cover_known_rows_only() -> None:
    spec = GemmSpec((6, 4), (64,))
    with pytest.raises(ValueError, match="leaves 1 of 785 rows undone"):
        spec.tasks(spec.arguments(m=785, n=64, k=64))


def test_gemm_is_cut_into_tasks_to_share() -> None:
    target = host()
    for m, n, k in [
        (128, 768, 768),
        (49, 512, 2048),
        (197, 768, 3072),
        (3136, 64, 64),
        (12544, 64, 147),
        (1, 1000, 2048),
    ]:
        spec = choose_gemm(GemmExtents(m, n, k), target)
        assert spec.tasks(spec.arguments(m=m, n=n, k=k)) >= 8


@pytest.mark.parametrize("cpu", CPUS)
def test_gemm_makes_whole_rows_where_b_is_near(cpu: str) -> None:
    for m, n, k in [(3136, 256, 64), (12544, 96, 16)]:
        spec = choose_gemm(GemmExtents(m, n, k), named(cpu))
        rows, columns = spec.blocks(m, n, k, 1)
        assert columns >= n and rows <= 100
    spec = choose_gemm(GemmExtents(784, 512, 128), named(cpu))
    rows, columns = spec.blocks(784, 512, 128, 1)
    assert rows <= 100 and -(-784 // rows) * -(-512 // columns) >= 16
    far = choose_gemm(GemmExtents(784, 512, 1024), named(cpu))
    assert far.blocks(784, 512, 1024, 1)[1] == far.widths[0]


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize(
    ("pieces", "paced_prefetch", "depth"), [(1, False, 0), (3, False, 0), (3, True, 0), (2, True, 9)]
)
def test_gemm_asking_for_what_later_kernels_read(cpu: str, pieces: int, paced_prefetch: bool, depth: int) -> None:
    """It computes the same, and only asks: for a buffer of one element, and beyond any, without touching them."""
    rng, lanes = np.random.default_rng(5), lanes_of(cpu)
    spec = GemmSpec((6, 4, 1), (32, 16), paced_prefetch=paced_prefetch, depth=depth)
    asking = replace(spec, later=(4, 18, 3, 20))
    plain, kernel = compiled(spec, cpu, lanes, bias_relu), compiled(asking, cpu, lanes, bias_relu)
    for m, n, k in [(1, 1, 1), (6, 32, 3), (97, 83, 40), (500, 33, 17)]:
        a, b, bias = matrices(rng, 1, 1, m, k), matrices(rng, 1, 1, k, n), guarded(matrices(rng, n))
        expected = product(plain, spec, a, b, bias, pieces=pieces)
        for shares in [(0, 0, 0, 0), (1, 16, 2, 1 << 20), (2, 160, 2, 16), (1 << 30, 32, 1 << 31, 32)]:
            found = product(kernel, asking, a, b, bias, guarded(bias[:1]), pieces=pieces, more_sizes=shares)
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("element", ["float32", "float64"])
def test_scale_weights(cpu: str, element: str) -> None:
    """Rows of packed matrices times the factors of two images, for panels of every width and odd strides."""
    target = named(cpu)
    spec, lanes = ScaleSpec(element), target.lanes(np.dtype(element).itemsize)
    kernel = Compiled(build(spec, lanes), target)
    rng = np.random.default_rng(0)
    for widths, n, k in itertools.product([(4 * lanes, lanes // 2), (3 * lanes, lanes)], (1, 9, 48, 96, 113), (1, 37)):
        packing = GemmSpec(rows=(1,), widths=widths, element=element)
        b, factors = matrices(rng, k, n, dtype=element), matrices(rng, 2, k, 3, dtype=element)
        packed = packing.pack_b(b)
        scaled = np.full((2, packed.size + 1), 7, element)
        full, last = packing.panels(n)
        sizes = spec.given([2, k, full, widths[0], last, 3 * k, 3])
        kernel([packed, factors, scaled], sizes, spec.tasks(sizes), pieces=2)
        expected = [packing.pack_b(b * factors[image, :, :1]) for image in range(2)]
        np.testing.assert_array_equal(scaled.ravel()[: 2 * packed.size], np.ravel(expected))
        assert (scaled.ravel()[2 * packed.size :] == 7).all()


def test_pack_b() -> None:
    spec = GemmSpec((6, 1), (8, 4))
    b = np.arange(3 * 2 * 11, dtype=np.float32).reshape(3, 2, 11)
    packed = spec.pack_b(b)
    assert packed.shape == (3, 24) == (3, spec.packed_elements(11, 2))
    np.testing.assert_array_equal(packed[1, :16], b[1, :, :8].ravel())
    np.testing.assert_array_equal(packed[1, 16:].reshape(2, 4), np.pad(b[1, :, 8:], ((0, 0), (0, 1))))


@pytest.mark.parametrize("cpu", [*CPUS, "znver5", "neoverse-n1"])
@pytest.mark.parametrize("shape", [(128, 768), (196, 256), (784, 24), (3136, 64), (None, 768), (5, 40), (100, 16)])
def test_gemm_tiles_stay_in_registers(cpu: str, shape: tuple[int | None, int]) -> None:
    """The loops over k hold multiply-adds of full vectors, on x86 those of two steps, and nothing from the stack."""
    target = named(cpu)
    spec = choose_gemm(GemmExtents(*shape, 256), target)
    loops = multiplying_loops(assembly(build(spec, target.lanes(4)), target, spec.prescheduled), target)
    vectors, part = divmod(spec.widths[0], target.lanes(4))
    sums, whole = spec.rows[0] * vectors, not part
    if part and spec.joins_halves:
        sums, whole = sums + spec.rows[0] // 2, spec.rows[0] % 2 == 0
    assert max(loop.multiply_adds for loop in loops) == sums * steps_of_round(target.architecture, sums, whole=whole)
    for loop in loops:
        assert not loop.stack_accesses, loop.text
        if target.on_arm:  # multiplications by an element, which is loaded alone
            assert "ld1r" not in loop.text


# ---------------------------------------------------------------- BLAS


@pytest.mark.parametrize("element", ["float32", "float64"])
@pytest.mark.parametrize("a_transposed", [False, True])
@pytest.mark.parametrize("b_transposed", [False, True])
def test_blas(element: str, a_transposed: bool, b_transposed: bool) -> None:
    spec = BlasSpec(element, a_transposed, b_transposed)
    if not spec.available:
        with pytest.raises(RuntimeError, match="SciPy"):
            spec.complete(spec.given([1] * 6))
        return
    kernel = Compiled(build_blas(spec))
    rng = np.random.default_rng(10)
    for m, n, k in [(1, 1, 1), (5, 7, 3), (20, 31, 40), (3, 2, 0)]:
        a = matrices(rng, *((k, m) if a_transposed else (m, k)), dtype=element)
        b = matrices(rng, *((n, k) if b_transposed else (k, n)), dtype=element)
        c = np.full((m, n + 2), 77, element)
        sizes = spec.complete(spec.given([m, n, k, a.shape[1], b.shape[1], n + 2]))
        kernel([a, b, c], sizes, spec.tasks(sizes))
        np.testing.assert_array_equal(c[:, :n], (a.T if a_transposed else a) @ (b.T if b_transposed else b))
        assert (c[:, n:] == 77).all()
