"""Scanning kernels against NumPy's cumulative sums and products."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest

from jitonnx.kernels.parts.layouts import KeptAxis
from jitonnx.kernels.scan.kernel import build
from jitonnx.kernels.scan.spec import ELEMENTS, ScanSpec
from jitonnx.target.machine import host
from tests.kernels.harness import Compiled
from tests.targets import named

TARGETS = {"host": host(), "haswell": named("haswell")}
MODES = list(itertools.product((False, True), (False, True)))


@functools.cache
def compiled(spec: ScanSpec, target: str) -> Compiled:
    cpu = TARGETS[target]
    return Compiled(build(spec, cpu.lanes(np.dtype(spec.element).itemsize)), cpu)


def scan(spec: ScanSpec, x: np.ndarray, target: str = "host", pieces: int = 1) -> np.ndarray:
    """x [outer, length, inner] scanned along its middle axis by the kernel, into an array with gaps between slices."""
    outer, length, inner = x.shape
    y = np.full((outer, length, inner + (0 if spec.last else 3)), 77, x.dtype)
    sizes = [outer, length, inner, length * inner, inner, *(stride // y.itemsize for stride in y.strides[:2])]
    sizes = spec.given(sizes)
    compiled(spec, target)([x, y], sizes, spec.tasks(sizes), pieces=pieces)
    assert (y[..., inner:] == 77).all()
    return y[..., :inner]


def expected(spec: ScanSpec, x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64) if x.dtype.kind == "f" else x
    wide = wide[:, ::-1] if spec.reverse else wide
    total = (np.cumsum if spec.kind == "sum" else np.cumprod)(wide, axis=1, dtype=wide.dtype)
    if spec.exclusive and x.shape[1]:
        total = np.concatenate([np.full_like(total[:, :1], 0 if spec.kind == "sum" else 1), total[:, :-1]], 1)
    return total[:, ::-1] if spec.reverse else total


def numbers(shape: tuple[int, ...], dtype: Any, kind: str) -> np.ndarray:
    random = np.random.default_rng(3)
    if np.dtype(dtype).kind == "f":
        return (random.normal(size=shape) if kind == "sum" else random.uniform(0.9, 1.1, shape)).astype(dtype)
    return random.integers(-(2**20), 2**20, shape).astype(dtype)  # long products wrap around


def check(spec: ScanSpec, x: np.ndarray, target: str, pieces: int = 1) -> None:
    tolerance = {"float32": 1e-5, "float64": 1e-13}.get(spec.element, 0)
    np.testing.assert_allclose(scan(spec, x, target, pieces), expected(spec, x), tolerance, tolerance * 10)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("kind", ["sum", "prod"])
@pytest.mark.parametrize(("exclusive", "reverse"), MODES)
def test_along_rows(kind: str, exclusive: bool, reverse: bool, element: str, target: str) -> None:
    spec = ScanSpec(kind, True, exclusive, reverse, element)
    for length in (0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 101):
        check(spec, numbers((3, length, 1), element, kind), target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("kind", ["sum", "prod"])
@pytest.mark.parametrize(("exclusive", "reverse"), MODES)
def test_across_rows(kind: str, exclusive: bool, reverse: bool, element: str, target: str) -> None:
    spec = ScanSpec(kind, False, exclusive, reverse, element)
    for inner in (1, 2, 7, 8, 9, 16, 17, 63, 64, 65, 131):
        check(spec, numbers((2, 5, inner), element, kind), target)


@pytest.mark.parametrize("last", [True, False])
def test_results_do_not_depend_on_how_tasks_are_split(last: bool) -> None:
    spec = ScanSpec("sum", last)
    x = numbers((40, 3000, 1) if last else (3, 300, 500), np.float32, "sum")
    assert spec.tasks(spec.given([*x.shape, 0, 0, 0, 0])) > 5
    np.testing.assert_array_equal(scan(spec, x), scan(spec, x, pieces=5))


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize(("exclusive", "reverse"), MODES)
def test_nan_and_infinity_stay_behind_where_they_stand(exclusive: bool, reverse: bool, last: bool) -> None:
    spec = ScanSpec("sum", last, exclusive, reverse)
    x = numbers((1, 50, 1 if last else 20), np.float32, "sum")
    x[:, 11], x[:, 30], x[:, 37] = np.inf, -np.inf, np.nan
    np.testing.assert_allclose(scan(spec, x), expected(spec, x), 1e-5, 1e-5)


def test_nothing_to_do() -> None:
    for last, shape in (
        (True, (0, 4, 1)),
        (True, (4, 0, 1)),
        (False, (0, 4, 3)),
        (False, (2, 0, 3)),
        (False, (2, 4, 0)),
    ):
        assert ScanSpec("sum", last).tasks(KeptAxis.make([*shape, 0, 0, 0, 0])) == 0


def test_wrong_specs_are_refused() -> None:
    with pytest.raises(ValueError, match="max"):
        ScanSpec("max")
    with pytest.raises(ValueError, match="uint8"):
        ScanSpec("sum", element="uint8")
