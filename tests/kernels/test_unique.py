"""The kernel of Unique against NumPy."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from jitonnx.kernels.unique.kernel import build
from jitonnx.kernels.unique.spec import UniqueSizes, UniqueSpec
from jitonnx.target.machine import host
from tests.kernels.guarded import guarded
from tests.kernels.harness import Compiled
from tests.targets import named

TARGETS = {"host": host(), "haswell": named("haswell")}
LENGTHS = (0, 1, 2, 3, 4, 5, 16, 17, 100, 257)
SLICES = ((1, 5, 3), (3, 7, 1), (2, 40, 2), (2, 3, 70), (4, 1, 2), (3, 0, 2), (0, 3, 2), (2, 3, 0))
NAMES = {"float32": "float", "float64": "double"}
FLOATS = (-0.0, 0.0, np.nan, -np.nan, 1, -1, 1e-45, np.inf, -np.inf, 2)


@functools.cache
def compiled(spec: UniqueSpec, target: str) -> Compiled:
    cpu = TARGETS[target]
    return Compiled(build(spec, cpu.lanes(4)), cpu)


def unique(x: np.ndarray, ascending: bool, target: str, element: str = "") -> list[np.ndarray]:
    """values, indices, inverse and counts by the kernel, of elements or of slices [outer, length, inner].

    element: what x is the bits of."""
    outer, length, inner = x.shape if x.ndim > 1 else (1, x.size, 1)
    run = inner * x.itemsize
    element = element or NAMES.get(x.dtype.name, x.dtype.name)
    spec = UniqueSpec(element, x.ndim > 1, ascending, run if run in (1, 2, 4, 8) else 0)
    sizes = UniqueSizes(outer=outer, length=length, inner=inner)
    values, numbers = guarded(np.zeros(x.size, x.dtype)), [guarded(np.full(length, -1)) for _ in range(3)]
    told = [guarded(np.full(1, -1)) for _ in range(3)]
    compiled(spec, target)([guarded(x), values, *numbers, *told], sizes, spec.tasks(sizes), spec.scratch_bytes(sizes))
    (found,) = {int(count[0]) for count in told}
    indices, inverse, counts = numbers
    assert (indices[found:] == -1).all() and (counts[found:] == -1).all()
    shape = (outer, found, inner) if x.ndim > 1 else (found,)
    return [values[: outer * found * inner].reshape(shape), indices[:found], inverse, counts[:found]]


def expected(x: np.ndarray, ascending: bool) -> list[Any]:
    axis = 1 if x.ndim > 1 else 0
    data = x.astype(np.float32) if x.dtype == np.float16 else x  # of which NumPy takes -0 for less than 0 in slices
    _, first, inverse, counts = np.unique(data, return_index=True, return_inverse=True, return_counts=True, axis=axis)
    order = np.arange(len(first)) if ascending else np.argsort(first)
    return [np.take(x, first[order], axis), first[order], np.argsort(order)[inverse.reshape(-1)], counts[order]]


def check(x: np.ndarray, target: str) -> None:
    for ascending in (True, False):
        for result, value in zip(unique(x, ascending, target), expected(x, ascending), strict=True):
            np.testing.assert_array_equal(result, value)
            if result.dtype.kind == "f":  # the first of equal ones: also of zeros
                np.testing.assert_array_equal(np.signbit(result), np.signbit(value))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [*(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), "bool"])
def test_integers(dtype: str, target: str) -> None:
    random = np.random.default_rng(1)
    low, high = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    few = np.array([low, high, 0, 1], dtype)
    for shape in (*((length,) for length in LENGTHS), *SLICES):
        check(random.choice(few, shape), target)
        if dtype != "bool":
            check(random.integers(low, high, shape, dtype, endpoint=True), target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_floats(dtype: str, target: str) -> None:
    """NaN is one element, and slices with one are distinct; -0 equals 0."""
    random = np.random.default_rng(2)
    for shape in (*((length,) for length in LENGTHS), *SLICES):
        for numbers in (FLOATS, FLOATS[:2], FLOATS[4:6]):
            check(random.choice(np.array(numbers, dtype), shape), target)
        check(random.normal(size=shape).astype(dtype), target)


def test_bfloat16() -> None:
    """Elements are the upper halves of the float32 that they are."""
    random = np.random.default_rng(3)
    for length in LENGTHS:
        wide = (random.choice(np.array(FLOATS, np.float32), length).view(np.uint32) & 0xFFFF0000).view(np.float32)
        upper = (wide.view(np.uint32) >> 16).astype(np.uint16)
        _, *numbers = expected(wide, True)
        for result, value in zip(unique(upper, True, "host", "bfloat16"), [upper[numbers[0]], *numbers], strict=True):
            np.testing.assert_array_equal(result, value)


@pytest.mark.parametrize("slices", [1, 3])
def test_orders_that_merging_finds_hard(slices: int) -> None:
    for x in (np.arange(1000), np.arange(1000)[::-1], np.arange(1000) % 2, np.arange(1000) // 7, np.zeros(1000)):
        x = x.astype(np.int32)
        check(x if slices == 1 else np.repeat(x[None, :, None], slices, 2), "host")
