"""Regions: compiled loop nests against the expression's meaning on NumPy: shapes, strides, types, edge values."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jitonnx.codegen.region import region_kernel
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.dtypes import DType, of_numpy
from jitonnx.plan.region import RegionSpec, region_call
from jitonnx.plan.tensor import Buffer, StridedTensor
from jitonnx.target.machine import Target, host
from tests.kernels.harness import Compiled, assembly
from tests.targets import named

X, Y = e.operand(0, DType.FLOAT), e.operand(1, DType.FLOAT)
EDGES = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, 3e38, -2.5], np.float32)
AVX2 = named("haswell")
_compiled: dict[tuple[RegionSpec, Target], Compiled] = {}


def run_region(
    exprs: Sequence[e.Expr],
    inputs: Sequence[np.ndarray],
    outputs: Sequence[np.ndarray],
    target: Target,
    streams: bool = False,
) -> RegionSpec:
    """Compute `outputs` in place with a compiled region; equal specs are compiled once."""
    tensors = [_tensor(a) for a in inputs], [_tensor(a) for a in outputs]
    call = region_call(exprs, *tensors, label="", origin=(), reason="", streams=streams)
    assert isinstance(call.spec, RegionSpec)
    key = call.spec, target
    if key not in _compiled:
        _compiled[key] = Compiled(region_kernel(call.spec, target.lanes(4)), target, call.spec.prescheduled)
    sizes = call.spec.complete(call.sizes)
    _compiled[key]([*inputs, *outputs], sizes, call.spec.tasks(sizes), pieces=3)
    return call.spec


def _tensor(array: np.ndarray) -> StridedTensor:
    strides = tuple(stride // array.itemsize for stride in array.strides)
    return StridedTensor(Buffer("test", "arena", array.size, of_numpy(array.dtype)), 0, array.shape, strides)


def check(expr: e.Expr, *inputs: np.ndarray, target: Target | None = None, tolerance: float = 1e-6) -> None:
    """The compiled expression equals the evaluated one, on row-major output."""
    shape = np.broadcast_shapes(*(a.shape for a in inputs))
    output = np.zeros(shape, expr.dtype.numpy)
    run_region([expr], inputs, [output], target or host())
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(output, e.evaluate(expr, inputs, shape), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("target", [host(), named("haswell")], ids=["host", "avx2"])
@pytest.mark.parametrize("dtype", [DType.FLOAT, DType.DOUBLE], ids=str)
def test_functions_that_are_used_often_are_called(dtype: DType, target: Target) -> None:
    """The bits are those of functions that are written out; regions that use few have no calls."""
    x = (np.random.default_rng(0).standard_normal((3, 37)) * 3).astype(dtype.numpy)
    x[0, : len(EDGES)] = EDGES
    for uses, functions in ((3, 0), (12, 2)):
        whole, value = e.operand(0, dtype), x
        for number in range(uses):
            operation = (e.tanh, e.exp)[number % 2]
            whole, before = operation(whole * 0.5), value
            value = np.zeros_like(x)
            run_region([operation(e.operand(0, dtype) * 0.5)], [before], [value], target)
        output = np.zeros_like(x)
        spec = run_region([whole], [x], [output], target)
        np.testing.assert_array_equal(output, value)
        text = assembly(region_kernel(spec, target.lanes(4)), target, spec.prescheduled)
        assert len(set(re.findall(r"call\S*\s+.*(tanh|exp)\.", text))) == functions


@pytest.mark.parametrize("target", [host(), named("haswell")], ids=["host", "avx2"])
@pytest.mark.parametrize(
    "shapes",
    [
        ((3, 5, 37), (37,)),
        ((3, 5, 37), (5, 1)),
        ((4, 1), (4, 33)),
        ((), ()),
        ((0, 3), (3,)),
        ((2, 3, 40, 7), (3, 1, 1)),
        ((20000,), (1,)),
        ((3, 17000), (3, 1)),
    ],
    ids=str,
)
def test_broadcasting(shapes: tuple[tuple[int, ...], ...], target: Target) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    check(e.maximum(X * Y + 0.5, 0.0), *arrays, target=target)


@settings(max_examples=40)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=4), st.data())
def test_any_strides(shape: list[int], data: st.DataObject) -> None:
    rng = np.random.default_rng(sum(shape))
    permutation = data.draw(st.permutations(range(len(shape))))
    dense = rng.standard_normal([shape[axis] for axis in permutation]).astype(np.float32)
    source = dense.transpose(np.argsort(permutation))
    output = np.zeros([2 * dim for dim in shape], np.float32)[tuple(slice(None, None, 2) for _ in shape)]
    run_region([X + 1.0], [source], [output], host())
    np.testing.assert_array_equal(output, source + 1)


def test_edge_values() -> None:
    a, b = np.meshgrid(EDGES, EDGES)
    for expr in (X + Y, X * Y, X / Y, e.maximum(X, Y), e.minimum(X, Y), e.maximum(X, 0.0), e.where(X < Y, X, Y)):
        check(expr, a, b)
    check(e.isnan(X), EDGES)
    check(e.isinf(X), EDGES)


def test_integers_truncate_and_never_trap() -> None:
    i, j = e.operand(0, DType.INT32), e.operand(1, DType.INT32)
    lowest = np.iinfo(np.int32).min
    a, b = np.meshgrid(np.array([lowest, -7, -1, 0, 1, 7], np.int32), np.array([-3, -1, 1, 2], np.int32))
    output = np.zeros_like(a)
    run_region([e.binary("div", i, j)], [a, b], [output], host())
    usual = ~((a == lowest) & (b == -1))
    np.testing.assert_array_equal(output[usual], e.evaluate(e.binary("div", i, j), [a, b])[usual])
    assert (output[~usual] == lowest).all()
    run_region([e.mod(i, j)], [a, b], [output], host())
    np.testing.assert_array_equal(output, np.mod(a, b))
    run_region([e.binary("div", i, j)], [a, np.zeros_like(b)], [output], host())  # no trap: the process lives


@pytest.mark.parametrize("target", [host(), AVX2], ids=["host", "avx2"])
def test_nearest_integers(target: Target) -> None:
    """Ties to even; NaN and what is out of range at the bounds."""
    halves = np.arange(-300, 300, dtype=np.float32) / 2
    numbers = np.concatenate([EDGES, halves, [2.0**21, 2.0**21 - 0.5, -(2.0**21) - 1, 1e9, 1e-30, 0.49999997]])
    inside = e.within(X, -(2.0**21), 2.0**21)
    check(inside, numbers.astype(np.float32), target=target, tolerance=0)
    check(e.nearest(inside), numbers.astype(np.float32), target=target, tolerance=0)
    zero = e.cast(e.operand(1, DType.UINT8), DType.INT32)
    bytes_of = (
        e.minimum(e.maximum(e.nearest(inside) + zero, 0), 255),
        e.nearest_low(e.within(X, -77.0, 178.0)) + zero,
    )
    for byte in bytes_of:
        check(
            e.cast(byte, DType.UINT8),
            *(numbers.astype(np.float32), np.full(1, 77, np.uint8)),
            target=target,
            tolerance=0,
        )


@pytest.mark.parametrize("target", [host(), AVX2, named("x86-64-v2")], ids=["host", "avx2", "no multiply-adds"])
def test_multiply_adds_round_once(target: Target) -> None:
    """Beside products that are not made part of other sums."""
    rng = np.random.default_rng(2)
    a = rng.integers(-128, 256, 999).astype(np.float32)
    b, c = (rng.normal(size=999).astype(np.float32) for _ in range(2))
    x, y, z = (e.operand(position, DType.FLOAT) for position in range(3))
    exact = (a.astype(np.float64) * b + c).astype(np.float32)
    assert (exact != a * b + c).any()
    np.testing.assert_array_equal(e.evaluate(e.fma(x, y, z), [a, b, c]), exact)
    check(e.fma(x, y, z), a, b, c, target=target, tolerance=0)
    check(x * y + e.fma(x, y, z), a, b, c, target=target, tolerance=0)


def test_types_meet() -> None:
    rng = np.random.default_rng(1)
    a, c = rng.integers(-9, 9, (3, 50)), rng.random(50) > 0.5
    i = e.operand(0, DType.INT64)
    check(e.cast(i, DType.FLOAT) * 0.5, a)
    check(e.logical_and(i > 0, e.logical_not(e.operand(1, DType.BOOL))), a, c)
    check(e.where(e.index(1) >= e.index(0), e.cast(i, DType.FLOAT), -1.0), a)
    check(e.cast(X, DType.INT32), np.array([1.9, -1.9, 0.0, 300.0], np.float32))


def test_several_outputs() -> None:
    x = np.linspace(-2, 2, 77, dtype=np.float32)
    first, second = np.zeros_like(x), np.zeros_like(x)
    run_region([X * 2.0, e.absolute(X)], [x], [first, second], host())
    np.testing.assert_array_equal(first, x * 2)
    np.testing.assert_array_equal(second, np.abs(x))


@pytest.mark.parametrize("target", [host(), named("haswell")], ids=["host", "avx2"])
@pytest.mark.parametrize("dtype", [DType.FLOAT, DType.DOUBLE, DType.INT64])
@pytest.mark.parametrize("shape", [(20001,), (3, 300), (2, 3, 257), (40000,)], ids=str)
def test_streamed_output(shape: tuple[int, ...], dtype: DType, target: Target) -> None:
    """Whatever its alignment and gaps; what lies between its rows stays."""
    x = (np.random.default_rng(0).standard_normal(shape) * 50).astype(dtype.numpy)
    operand = e.operand(0, dtype)
    for start, gap in ((0, 0), (1, 5), (15, 1)):
        whole = np.full((*shape[:-1], start + shape[-1] + gap), 77, dtype.numpy)
        spec = run_region([operand + operand], [x], [whole[..., start : start + shape[-1]]], target, streams=True)
        assert spec.streams
        np.testing.assert_array_equal(whole[..., start : start + shape[-1]], x + x)
        assert (whole[..., :start] == 77).all() and (whole[..., start + shape[-1] :] == 77).all()


def test_what_can_be_streamed() -> None:
    x, short, flags = np.ones(3000, np.float32), np.ones((40, 20, 3), np.float32), np.zeros(3000, bool)
    assert "vmovntps" in assembly(region_kernel(run_region([X * 2.0], [x], [x], AVX2, True), 8), AVX2)
    assert not run_region([X * 2.0], [short[..., 0]], [short[..., 0]], AVX2, True).streams  # with gaps
    assert not run_region([X * 2.0], [short[0]], [short[0, :, ::-1]], AVX2, True).streams
    assert not run_region([X > 2.0], [x], [flags], AVX2, True).streams
    assert not run_region([X * 2.0, X * 3.0], [x], [x, np.ones_like(x)], AVX2, True).streams
    assert not run_region([X * 2.0], [x], [x], AVX2).streams


@pytest.mark.parametrize(
    ("target", "register"), [(named("znver4"), "zmm"), (named("haswell"), "ymm")], ids=["avx512", "avx2"]
)
def test_code_uses_vector_registers(target: Target, register: str) -> None:
    x = np.zeros(64, np.float32)
    call = region_call([e.exp(X) * 2.0], [_tensor(x)], [_tensor(x)], label="", origin=(), reason="")
    assert isinstance(call.spec, RegionSpec)
    text = assembly(region_kernel(call.spec, target.lanes(4)), target)
    assert text.count(register) > 20
    assert "vfmadd" in text


@pytest.mark.parametrize("target", [host(), AVX2], ids=["host", "avx2"])
@pytest.mark.parametrize("dtype", [DType.BOOL, DType.INT8, DType.UINT8, DType.INT16, DType.UINT16])
def test_narrow_elements_fill_vectors(dtype: DType, target: Target) -> None:
    """Regions of small types alone have more lanes; mixed with wider ones they do not."""
    rng = np.random.default_rng(0)
    high = 2 if dtype is DType.BOOL else 100
    both = e.operand(0, dtype), e.operand(1, dtype)
    chosen = e.where(e.binary("ne", *both), *both)
    exprs = [e.binary("eq", *both), chosen, e.cast(chosen, DType.FLOAT)]
    exprs.append(e.logical_and(*both) if dtype is DType.BOOL else e.maximum(*both))
    for shape in ((1,), (33,), (200,), (3, 65), (20001,)):
        a, b = (rng.integers(0, high, shape).astype(dtype.numpy) for _ in range(2))
        for expr in exprs:
            check(expr, a, b, target=target)
    spread = rng.integers(0, high, (5, 1)).astype(dtype.numpy), rng.integers(0, high, (5, 70)).astype(dtype.numpy)
    for expr in exprs:
        check(expr, *spread, target=target)


@pytest.mark.parametrize("target", [host(), named("haswell")], ids=["host", "avx2"])
def test_results_lie_anywhere(target: Target) -> None:
    """Long rows are written to aligned places, from wherever they begin; what lies beside them stays."""
    for dtype in (DType.FLOAT, DType.DOUBLE, DType.UINT8, DType.BOOL):
        expr = e.cast(X, dtype) if dtype is not DType.BOOL else X > 0.0
        for size in (1, 100, 255, 256, 257, 300, 1100, 4099):
            x = np.abs(np.random.default_rng(size).normal(size=size)).astype(np.float32) * 9
            expected = e.evaluate(expr, [x], x.shape)
            for begin in (0, 1, 3, 7, 8, 15, 63):
                memory = np.full(size + 130, 7, dtype.numpy)
                start = -memory.ctypes.data % 64 // memory.itemsize + begin
                run_region([expr], [x], [memory[start : start + size]], target)
                np.testing.assert_array_equal(memory[start : start + size], expected)
                assert (memory[:start] == memory[-1]).all() and (memory[start + size :] == memory[-1]).all()
