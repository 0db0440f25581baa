"""Half precision in generated code: every number there is converted, rounding, and expressions against their meaning.

On this CPU, on one with AVX2, on the same without F16C, and on one with SSE only.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from jitonnx.codegen.region import region_kernel
from jitonnx.emit.module import emit_module
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.dtypes import DType
from jitonnx.plan.region import region_call
from jitonnx.target.machine import Target, host
from tests.codegen.test_region import _tensor, check, run_region
from tests.kernels.harness import assembly
from tests.targets import named

TARGETS = {
    "host": host(),
    "avx2": named("haswell"),
    "no f16c": replace(named("haswell"), features="-f16c"),
    "sse": named("x86-64-v2"),
}
HALVES = (DType.FLOAT16, DType.BFLOAT16)
on_every_target = pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
of_each_type = pytest.mark.parametrize("dtype", HALVES, ids=lambda dtype: dtype.text)


def _every_number(dtype: DType) -> np.ndarray:
    """All 65536 numbers of a half-precision type."""
    return np.arange(1 << 16, dtype=np.uint16).view(dtype.numpy)


def _run(expr: e.Expr, *inputs: np.ndarray, target: Target) -> np.ndarray:
    output = np.zeros(np.broadcast_shapes(*(x.shape for x in inputs)), expr.dtype.numpy)
    run_region([expr], inputs, [output], target)
    return output


def _same(actual: np.ndarray, expected: np.ndarray) -> None:
    """Equal bits, but for those of NaN."""
    assert actual.dtype == expected.dtype
    with np.errstate(invalid="ignore"):  # ml_dtypes asks for signalling NaNs with the flag set
        nan = np.isnan(expected)
        np.testing.assert_array_equal(np.isnan(actual), nan)
    word = f"u{actual.itemsize}"
    np.testing.assert_array_equal(actual.view(word)[~nan], expected.view(word)[~nan])


@on_every_target
@of_each_type
def test_widening_every_number(dtype: DType, target: Target) -> None:
    numbers = _every_number(dtype)
    wide = _run(e.cast(e.operand(0, dtype), DType.FLOAT), numbers, target=target)
    _same(wide, numbers.astype(np.float32))
    _same(_run(e.cast(e.operand(0, DType.FLOAT), dtype), wide, target=target), numbers)


@on_every_target
@of_each_type
@pytest.mark.parametrize("source", [DType.FLOAT, DType.DOUBLE], ids=lambda dtype: dtype.text)
def test_rounding(source: DType, dtype: DType, target: Target) -> None:
    """Halfway between neighbours, next to that on both sides, and at random; from double, too, rounded once."""
    numbers = _every_number(dtype)
    sorted_ = np.sort(numbers[np.isfinite(numbers.astype(np.float32))].astype(np.float64))
    middle = ((sorted_[1:] + sorted_[:-1]) / 2).astype(source.numpy)
    up, down = (np.nextafter(middle, np.array(limit, source.numpy)) for limit in (np.inf, -np.inf))
    rng = np.random.default_rng(0)
    scale = 10.0 ** rng.uniform(-9, 6, 5000)
    edges = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 65519.99, 65520, 3.3e38, -3.4e38, 1e-45, 1e-30])
    values = np.concatenate([middle, up, down, (rng.standard_normal(5000) * scale).astype(source.numpy), edges])
    values = values.astype(source.numpy)
    with np.errstate(over="ignore"):
        expected = values.astype(dtype.numpy)
    _same(_run(e.cast(e.operand(0, source), dtype), values, target=target), expected)


@on_every_target
@pytest.mark.parametrize("count", [1, 16, 37, 4099])
def test_rounding_for_products(count: int, target: Target) -> None:
    """As all rounding, but that denormal numbers may become zeros of their signs."""
    rng = np.random.default_rng(5)
    values = (rng.standard_normal(count) * 10.0 ** rng.uniform(-40, 38, count)).astype(np.float32)
    edges = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, -1e-39, 1.00390625, 1.01171875, 1.2e-38], np.float32)
    values[: len(edges)] = edges[:count]
    actual = _run(e.cast_for_products(e.operand(0, DType.FLOAT)), values, target=target)
    expected = values.astype(DType.BFLOAT16.numpy)
    small = np.abs(values) < np.finfo(np.float32).smallest_normal
    flushed = small & (actual == 0)
    _same(actual[~flushed], expected[~flushed])
    np.testing.assert_array_equal(np.signbit(actual[flushed]), np.signbit(values[flushed]))


@on_every_target
@of_each_type
@pytest.mark.parametrize("op", ["add", "sub", "mul", "div", "sqrt"])
def test_arithmetic_is_numpys(op: str, dtype: DType, target: Target) -> None:
    """Computed in float32 and rounded once, these are exact to the bit: NumPy computes the same."""
    rng = np.random.default_rng(1)
    a, b = (rng.permutation(_every_number(dtype)) for _ in range(2))
    wide = [e.cast(e.operand(i, dtype), DType.FLOAT) for i in range(2)]
    arguments = [a] if op == "sqrt" else [a, b]
    expr = e.sqrt(wide[0]) if op == "sqrt" else e.binary(op, *wide)
    with np.errstate(all="ignore"):
        expected = {**e.UNARY, "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}[op](*arguments)
    _same(_run(e.cast(expr, dtype), *arguments, target=target), expected)


@on_every_target
@of_each_type
def test_every_step_is_rounded(dtype: DType, target: Target) -> None:
    """A product and a sum are not contracted over the rounding between them."""
    rng = np.random.default_rng(2)
    a, b, c = ((rng.standard_normal(4099)).astype(dtype.numpy) for _ in range(3))
    wide = [e.cast(e.operand(i, dtype), DType.FLOAT) for i in range(3)]
    product = e.cast(e.cast(wide[0] * wide[1], dtype), DType.FLOAT)
    _same(_run(e.cast(product + wide[2], dtype), a, b, c, target=target), a * b + c)


@of_each_type
def test_expressions(dtype: DType) -> None:
    """Choices move bits; comparisons, predicates and constants mean numbers; the rest is computed in float32."""
    rng = np.random.default_rng(3)
    a, b = ((rng.standard_normal((3, 37)) * 4).astype(dtype.numpy) for _ in range(2))
    a[0, :4] = [0.0, -0.0, np.nan, np.inf]
    b[0, :4] = [-0.0, 0.0, 1.0, np.inf]
    x, y = (e.operand(i, dtype) for i in range(2))
    narrow = 3e-3 if dtype is DType.FLOAT16 else 2e-2
    for expr in (
        e.where(x > y, x, y),
        e.where(e.equal(x, y), 1.0, -x),
        e.where(e.isnan(x), e.constant(0.1, dtype), e.maximum(x, y)),
        e.maximum(e.minimum(x, 1.5), -1.5),
        e.exp(x) + y,
    ):
        check(expr, a, b, tolerance=narrow)
    finite = np.nan_to_num(a.astype(np.float32), posinf=3).astype(dtype.numpy)
    for target in (DType.INT32, DType.INT8, DType.BOOL, DType.DOUBLE):
        check(e.cast(x, target), finite)
    for source in (DType.INT64, DType.UINT8, DType.BOOL):
        numbers = (rng.standard_normal(61) * 100).astype(source.numpy)
        check(e.cast(e.operand(0, source), dtype), numbers)
    other = HALVES[1 - HALVES.index(dtype)]
    check(e.cast(x, other), finite)


@of_each_type
@pytest.mark.parametrize("width", [1, 7, 33])
def test_layouts(width: int, dtype: DType) -> None:
    """Broadcast, strided and partial vectors, and a result that is strided itself."""
    rng = np.random.default_rng(4)
    a = rng.standard_normal((width, 5)).astype(dtype.numpy).T
    b = rng.standard_normal((5, 1)).astype(dtype.numpy)
    expr = e.cast(e.cast(e.operand(0, dtype), DType.FLOAT) + e.cast(e.operand(1, dtype), DType.FLOAT), dtype)
    _same(_run(expr, a, b, target=host()), a + b)
    output = np.zeros((5, 2 * width), dtype.numpy)[:, ::2]
    run_region([expr], [a, b], [output], host())
    _same(np.ascontiguousarray(output), np.ascontiguousarray(a + b))


def test_instructions() -> None:
    """F16C where the CPU has it, and no call of a library where it has not."""
    x = np.zeros(64, np.float16)
    expr = e.cast(e.cast(e.operand(0, DType.FLOAT16), DType.FLOAT) * 0.5, DType.FLOAT16)
    call = region_call([expr], [_tensor(x)], [_tensor(x)], label="", origin=(), reason="")
    texts = {
        name: assembly(region_kernel(call.spec, target.lanes(4)), target)  # type: ignore[arg-type]
        for name, target in TARGETS.items()
    }
    assert "vcvtph2ps" in texts["avx2"] and "vcvtps2ph" in texts["avx2"]
    for name in ("no f16c", "sse"):
        assert "cvtph2ps" not in texts[name] and "call" not in texts[name]


def test_nothing_is_rounded_twice() -> None:
    """Choices between numbers and changes of sign need no rounding behind one."""
    x = np.zeros(64, np.float16)
    product = e.cast(e.cast(e.operand(0, DType.FLOAT16), DType.FLOAT) * 0.3, DType.FLOAT16)
    relu = e.cast(e.maximum(e.cast(product, DType.FLOAT), 0), DType.FLOAT16)
    half = e.cast(-e.cast(relu, DType.FLOAT) + e.cast(e.operand(0, DType.FLOAT16), DType.FLOAT), DType.FLOAT16)
    call = region_call([half], [_tensor(x)], [_tensor(x)], label="", origin=(), reason="")
    text = str(emit_module(region_kernel(call.spec, host().lanes(4)), "region", named("x86-64-v4")))  # type: ignore[arg-type]
    assert text.count("= fptrunc") == 2 * 2, text  # of the product and the sum, in the body and in the tail
    rng = np.random.default_rng(5)
    values = rng.standard_normal(1000).astype(np.float16)
    _same(_run(half, values, target=host()), values - np.maximum(_times(values, 0.3), 0))


def _times(x: np.ndarray, factor: float) -> np.ndarray:
    """The product with a float32, rounded to float16."""
    return (x.astype(np.float32) * np.float32(factor)).astype(np.float16)


@of_each_type
def test_is_rounded(dtype: DType) -> None:
    x, wide = e.operand(0, dtype), e.operand(1, DType.FLOAT)
    number = e.cast(x, DType.FLOAT)
    assert e.is_rounded(number, dtype) and e.is_rounded(e.maximum(-number, 0.5), dtype)
    assert e.is_rounded(e.where(wide > 0.1, number, e.floor(number)), dtype)
    assert not e.is_rounded(number + number, dtype) and not e.is_rounded(e.maximum(number, 0.1), dtype)
    assert not e.is_rounded(wide, dtype) and e.is_rounded(wide, dtype, {1})
    other = HALVES[1 - HALVES.index(dtype)]
    assert not e.is_rounded(number, other)


@of_each_type
def test_what_is_computed_in_another_type_is_converted(dtype: DType) -> None:
    """An integer's sign, and numbers that a type of 16 bits has, in float64: they are not float32."""
    integer, wide = e.operand(0, DType.INT32), e.operand(0, DType.DOUBLE)
    for number in (e.sign(integer), e.where(integer > 0, e.constant(2, DType.INT32), 1), e.where(wide > 0, 2.0, wide)):
        assert not e.is_rounded(number, dtype)
