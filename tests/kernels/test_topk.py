"""The kernel of TopK against NumPy's stable sort."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from jitonnx.kernels.topk.kernel import build
from jitonnx.kernels.topk.spec import ELEMENTS, TopKSpec
from jitonnx.target.machine import host
from tests.kernels.guarded import guarded
from tests.kernels.harness import Compiled
from tests.targets import named

TARGETS = {"host": host(), "haswell": named("haswell")}
LENGTHS = (1, 2, 3, 15, 16, 17, 63, 64, 65, 100, 255, 256, 257, 600, 1023)


@functools.cache
def compiled(spec: TopKSpec, target: str) -> Compiled:
    cpu = TARGETS[target]
    return Compiled(build(spec, cpu.lanes(max(4, np.dtype(spec.element).itemsize))), cpu)


def expected(x: np.ndarray, k: int, largest: bool) -> tuple[np.ndarray, np.ndarray]:
    """NumPy sorts NaN behind all numbers; the last of equal elements is the first when read backwards."""
    if largest:
        order = x.shape[1] - 1 - np.argsort(x[:, ::-1], axis=1, kind="stable")[:, ::-1]
    else:
        order = np.argsort(x, axis=1, kind="stable")
    return np.take_along_axis(x, order[:, :k], 1), order[:, :k]


def top_k(x: np.ndarray, k: int, largest: bool, target: str = "host", pieces: int = 1) -> tuple[Any, Any]:
    """Values and indices by the kernel; rows of the values are 3 elements apart."""
    spec, (rows, length) = TopKSpec(x.dtype.name, largest), x.shape
    values, indices = np.zeros((rows, k + 3), x.dtype), np.zeros((rows, k), np.int64)
    sizes = spec.complete(spec.given([rows, length, k, length, k + 3, k]))
    buffers = [guarded(x), values, indices]
    compiled(spec, target)(buffers, sizes, spec.tasks(sizes), spec.scratch_bytes(sizes), pieces)
    assert (values[:, k:] == 0).all()
    return values[:, :k], indices


def check(x: np.ndarray, k: int, largest: bool, target: str = "host") -> None:
    for result, value in zip(top_k(x, k, largest, target), expected(x, k, largest), strict=True):
        np.testing.assert_array_equal(result, value)


def numbers(shape: tuple[int, ...], dtype: str, spread: float = 1e9) -> np.ndarray:
    random = np.random.default_rng(shape[-1])
    if dtype.startswith("float"):
        return (random.normal(size=shape) * spread).astype(dtype)
    limits = np.iinfo(dtype)
    spread = int(min(spread, limits.max))
    return random.integers(max(limits.min, -spread), spread, shape, dtype, endpoint=True)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("element", ELEMENTS)
def test_top_k(element: str, largest: bool, target: str) -> None:
    for length in LENGTHS:
        for k in sorted({1, min(5, length), length // 2 + 1, length}):
            check(numbers((3, length), element), k, largest, target)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("element", ["float32", "float64", "int64", "uint32"])
def test_of_equal_elements_the_first(element: str, largest: bool) -> None:
    for length in LENGTHS:
        check(numbers((2, length), element, 2), length // 2 + 1, largest)
        check(np.zeros((2, length), element), min(3, length), largest)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("element", ["float32", "float64"])
def test_nan_infinity_and_negative_zero(element: str, largest: bool) -> None:
    x = numbers((4, 700), element)
    x[0, ::7], x[1, ::5], x[2, ::3], x[3] = np.nan, np.inf, -np.inf, 0
    x[0, ::14] = -np.float64(np.nan)
    x[3, ::2] = -0.0
    for k in (1, 5, 150, 700):
        check(x, k, largest)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("step", [1, -1])
def test_sorted_rows(step: int, largest: bool) -> None:
    x = np.arange(5000, dtype=np.float32)[None, ::step]
    for k in (1, 7, 100, 2000, 5000):
        check(np.ascontiguousarray(x), k, largest)


def test_rows_that_are_one_task_and_several() -> None:
    x = numbers((70, 1000), "float32")
    for pieces in (1, 3):
        values, indices = top_k(x, 9, True, pieces=pieces)
        np.testing.assert_array_equal(indices, expected(x, 9, True)[1])
        np.testing.assert_array_equal(values, expected(x, 9, True)[0])
    spec = TopKSpec()
    assert spec.tasks(spec.complete(spec.given([70, 1000, 9, 1000, 9, 9]))) > 3
    assert spec.tasks(spec.complete(spec.given([70, 1000, 0, 1000, 0, 0]))) == 0


@pytest.mark.parametrize("element", ["float32", "int64"])
def test_long_rows(element: str) -> None:
    for k in (50, 3000):
        check(numbers((2, 50_000), element), k, True)


def test_wrong_specs_are_refused() -> None:
    with pytest.raises(ValueError, match="bool"):
        TopKSpec("bool")
