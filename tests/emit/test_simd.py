"""Vector operations that LLVM would do lane by lane: float to integer, and the remainder of floats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jitonnx.emit import simd, types
from jitonnx.emit.builder import Kernel
from jitonnx.emit.simd import convert
from jitonnx.target.machine import Target
from tests.kernels.harness import Compiled, assembly, lane_by_lane
from tests.targets import named

TARGETS = ("host", "haswell", "x86-64-v2")
FLOATS = {np.float32: types.float32, np.float64: types.float64}
INTEGERS = {
    np.int8: types.int8,
    np.uint8: types.uint8,
    np.int16: types.int16,
    np.uint16: types.uint16,
    np.int32: types.int32,
    np.uint32: types.uint32,
    np.int64: types.int64,
    np.uint64: types.uint64,
}


def _conversion(source: type, target: type, lanes: int) -> Kernel:
    old, new = FLOATS[source], INTEGERS[target]
    return lane_by_lane([lambda x: convert(x, new)], [old], [new], lanes)


def _remainder(name: str, dtype: type, lanes: int) -> Kernel:
    element = FLOATS[dtype]
    return lane_by_lane([getattr(simd, name)], [element, element], [element], lanes)


def _numbers(dtype: type, bounds: tuple[int, int]) -> np.ndarray:
    """Numbers around zero, around both bounds and far out, with NaN and infinities; 64 in all."""
    prefetch_distance = [
        0.0,
        -0.0,
        0.3,
        0.5,
        1.0,
        1.5,
        2.7,
        99.99,
        127.0,
        128.5,
        255.9,
        256.0,
        1e5,
        1e12,
        1e30,
        np.inf,
        np.nan,
        5e-40,
    ]
    ends = np.array([*(float(bound) for bound in bounds), float(bounds[1] + 1)], dtype)
    ends = np.concatenate([ends, np.nextafter(ends, dtype(0)), np.nextafter(ends, dtype(np.inf))])
    numbers = np.concatenate([np.array(prefetch_distance, dtype), -np.array(prefetch_distance, dtype), ends])
    return np.resize(numbers, 64).astype(dtype)


def _saturated(x: np.ndarray, target: type) -> np.ndarray:
    info = np.iinfo(target)
    return np.array([0 if v != v else max(info.min, min(info.max, _truncated(v))) for v in x.tolist()], target)


def _truncated(value: float) -> int:
    return int(value) if abs(value) < float("inf") else int(np.sign(value)) << 70


@pytest.mark.parametrize("cpu", TARGETS)
@pytest.mark.parametrize("source", FLOATS)
def test_float_to_integer_saturates(source: type, cpu: str) -> None:
    target: Target = named(cpu)
    for integer in INTEGERS:
        info = np.iinfo(integer)
        x = _numbers(source, (info.min, info.max))
        y = np.empty(x.size, integer)
        Compiled(_conversion(source, integer, target.lanes(4)), target)([x, y], [x.size], 1)
        np.testing.assert_array_equal(y, _saturated(x, integer), f"to {integer.__name__}")


@pytest.mark.parametrize("integer", [np.uint8, np.int32, np.int64])
def test_float_to_integer_is_done_by_vectors(integer: type) -> None:
    target = named("x86-64-v4")
    assert "vcvttss2si" not in assembly(_conversion(np.float32, integer, target.lanes(4)), target)


def _operands(dtype: type) -> tuple[np.ndarray, np.ndarray]:
    """Every mixture of exponents, small quotients, whole numbers, and all pairs of special numbers."""
    rng, count = np.random.default_rng(5), 4096
    pattern = np.uint32 if dtype == np.float32 else np.uint64
    anything = rng.integers(0, np.iinfo(pattern).max, 2 * count, pattern, endpoint=True).view(dtype)
    special = np.array([0, 1, 3, np.inf, np.nan, np.finfo(dtype).smallest_subnormal, np.finfo(dtype).max, 2.5], dtype)
    pairs = [m.ravel() for m in np.meshgrid(np.append(special, -special), np.append(special, -special))]
    spaced = [
        np.repeat(p, 16) for p in pairs
    ]  # a vector each: one special number makes its neighbours take the slow way
    a = [anything[:count], rng.uniform(-50, 50, count), rng.integers(-99, 99, count), rng.uniform(-1e6, 1e6, count)]
    b = [anything[count:], rng.uniform(-5, 5, count), rng.integers(-9, 9, count), rng.uniform(0.3, 7, count)]
    first, second = np.concatenate([*a, spaced[0]]), np.concatenate([*b, spaced[1]])
    return first.astype(dtype), second.astype(dtype)


@pytest.mark.parametrize("cpu", TARGETS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("name", "exact"), [("remainder", np.fmod), ("modulo", np.mod)])
def test_remainder_of_floats_is_exact(name: str, exact: Any, dtype: type, cpu: str) -> None:
    target = named(cpu)
    with np.errstate(all="ignore"):
        a, b = _operands(dtype)
        expected = exact(a, b)
    y = np.empty_like(a)
    Compiled(_remainder(name, dtype, target.lanes(np.dtype(dtype).itemsize)), target)([a, b, y], [a.size], 1)
    np.testing.assert_array_equal(y, expected)
    if name == "remainder":
        signed = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(y[signed]), np.signbit(expected[signed]))


@pytest.mark.parametrize("name", ["divide_integer", "remainder", "modulo"])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint64])
def test_integer_division_never_traps(name: str, dtype: type) -> None:
    function, element, lanes = getattr(simd, name), INTEGERS[dtype], 16
    info = np.iinfo(dtype)

    a = np.resize(np.array([info.min, info.max, 7, 0], dtype), lanes)
    b = np.repeat(np.array([0, info.max if info.min == 0 else -1, 3, 1], dtype), 4)
    y = np.empty(lanes, dtype)
    Compiled(lane_by_lane([function], [element] * 2, [element], lanes))([a, b, y], [lanes], 1)
    by_zero = {"divide_integer": a[:4], "remainder": np.zeros(4, dtype), "modulo": np.zeros(4, dtype)}[name]
    np.testing.assert_array_equal(y[:4], by_zero)
    if name == "divide_integer" and info.min < 0:
        np.testing.assert_array_equal(y[4:8], np.negative(a[4:8]))  # the smallest integer stays what it is


@pytest.mark.parametrize("cpu", TARGETS)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64])
def test_integer_division_is_exact(dtype: type, cpu: str) -> None:
    """Quotients that nearly are integers, and operands around what floats hold exactly, against Python's integers."""
    target, element, info = named(cpu), INTEGERS[dtype], np.iinfo(dtype)
    lanes = max(2, target.lanes(np.dtype(dtype).itemsize))
    rng = np.random.default_rng(0)
    top = min(info.max, 1 << 53)
    divisors = [1, 2, 3, 7, 10, 127, info.max, info.max - 1, top // 3, min(info.max, (1 << 26) + 1), min(info.max, top)]
    divisors += [int(x) for x in rng.integers(1, info.max, 10, dtype=dtype)]
    pairs = []
    for divisor in divisors:
        for bound in (top, info.max, min(info.max, top + 1)):
            prefetch_distance = bound // divisor * divisor
            pairs += [
                (a, divisor)
                for a in (prefetch_distance - 1, prefetch_distance, prefetch_distance + 1, bound)
                if 0 <= a <= info.max
            ]
    if info.min < 0:
        pairs += [(s * a, t * b) for a, b in pairs for s, t in ((-1, 1), (1, -1), (-1, -1))]
    pairs += [(0, 1)] * (-len(pairs) % lanes)
    a, b = (np.array(numbers, dtype) for numbers in zip(*pairs, strict=True))
    quotients = [abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) for x, y in pairs]
    rests = [x - q * y for (x, y), q in zip(pairs, quotients, strict=True)]

    y, z, m = np.empty_like(a), np.empty_like(a), np.empty_like(a)
    functions = [simd.divide_integer, simd.remainder, simd.modulo]
    kernel = lane_by_lane(functions, [element] * 2, [element] * 3, lanes)
    Compiled(kernel, target)([a, b, y, z, m], [a.size], 1)
    np.testing.assert_array_equal(m, np.array([x % y for x, y in pairs], dtype))
    np.testing.assert_array_equal(y, np.array(quotients, dtype))
    np.testing.assert_array_equal(z, np.array(rests, dtype))
