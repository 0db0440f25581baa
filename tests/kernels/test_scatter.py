"""Scattering kernels against NumPy's unbuffered operations, which apply updates in order."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from jitonnx.kernels.scatter.kernel import build
from jitonnx.kernels.scatter.spec import ELEMENTS, REDUCTIONS, ScatterElementsSpec, ScatterRowsSpec, word
from jitonnx.target.machine import host
from tests.kernels.harness import Compiled
from tests.targets import named

TARGETS = {"host": host(), "haswell": named("haswell")}
COMBINE: dict[str, Any] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


@functools.cache
def compiled(spec: Any, target: str) -> Compiled:
    cpu = TARGETS[target]
    return Compiled(build(spec, cpu.lanes(max(4, np.dtype(spec.element).itemsize))), cpu)


def run(spec: Any, sizes: Any, arrays: list[np.ndarray], target: str = "host", pieces: int = 3) -> bool:
    """Calls the kernel with indices, updates and out; returns whether it found an index out of range."""
    error = np.zeros(1, np.int64)
    compiled(spec, target)([*arrays, error], sizes, spec.tasks(sizes), pieces=pieces)
    return bool(error[0])


def numbers(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    kind = np.dtype(dtype).kind
    return np.random.default_rng(1).integers(0 if kind == "u" else -100, 100, shape).astype(dtype)


def indices_for(extent: int, shape: tuple[int, ...], dtype: str = "int64") -> np.ndarray:
    return np.random.default_rng(2).integers(-extent, extent, shape).astype(dtype)


def write(data: np.ndarray, places: tuple[Any, ...], updates: np.ndarray, reduction: str) -> np.ndarray:
    """The expected result: one update after the other."""
    out = data.copy()
    with np.errstate(all="ignore"):
        if reduction == "none":
            np.put(out, np.ravel_multi_index(np.broadcast_arrays(*places), out.shape, mode="wrap"), updates)
        else:
            COMBINE[reduction].at(out, places, updates)
    return out


def check_elements(
    shape: tuple[int, ...],
    indices_shape: tuple[int, ...],
    axis: int,
    spec: ScatterElementsSpec,
    dtype: Any,
    target: str,
) -> None:
    data, updates = numbers(shape, dtype), numbers(indices_shape, dtype)[::-1].copy()
    indices = indices_for(shape[axis], indices_shape, spec.index)
    places: list[Any] = list(np.indices(indices_shape, sparse=True))
    places[axis] = indices
    out = data.copy()
    assert not run(spec, spec.arguments(shape, indices_shape, axis), [indices, updates, out], target)
    np.testing.assert_array_equal(out, write(data, tuple(places), updates, spec.reduction))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_scatter_elements_along_each_axis(reduction: str, index: str, target: str) -> None:
    spec = ScatterElementsSpec(index, "uint32" if reduction == "none" else "float32", reduction)
    for shape in ((5, 6, 7), (8,), (1, 300), (20, 3, 1, 4), (3, 1100)):
        for axis in range(len(shape)):
            smaller = tuple(extent if i == axis else max(1, extent - 1) for i, extent in enumerate(shape))
            for indices_shape in (smaller, shape, (*shape[:axis], 11, *shape[axis + 1 :])):
                check_elements(shape, indices_shape, axis, spec, np.float32, target)


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_scatter_elements_of_every_type(reduction: str, element: str) -> None:
    itemsize = np.dtype(element).itemsize
    spec = ScatterElementsSpec("int64", word(itemsize) if reduction == "none" else element, reduction)
    for axis in (0, 1):
        check_elements((6, 9), (4, 9) if axis == 0 else (6, 12), axis, spec, element, "host")


def check_rows(shape: tuple[int, ...], width: int, count: int, spec: ScatterRowsSpec, dtype: Any, target: str) -> None:
    data, updates = numbers(shape, dtype), numbers((count, *shape[width:]), dtype)[::-1].copy()
    indices = np.stack([indices_for(extent, (count,), spec.index) for extent in shape[:width]], axis=-1)
    expected = data.copy()
    for place, update in zip(indices, updates, strict=True):
        with np.errstate(all="ignore"):
            old = expected[tuple(place)]
            expected[tuple(place)] = update if spec.reduction == "none" else COMBINE[spec.reduction](old, update)
    out = data.copy()
    assert not run(spec, spec.arguments(shape, indices.shape), [indices, updates, out], target)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_scatter_rows(reduction: str, index: str, target: str) -> None:
    spec = ScatterRowsSpec(index, "uint32" if reduction == "none" else "float32", reduction)
    for run_shape in ((), (1,), (3,), (7, 1), (8,), (17,), (63,), (70, 30)):
        for width, leading in ((1, (9,)), (2, (4, 5)), (3, (3, 2, 4))):
            check_rows((*leading, *run_shape), width, 12, spec, np.float32, target)


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_scatter_rows_of_every_type(reduction: str, element: str) -> None:
    itemsize = np.dtype(element).itemsize
    spec = ScatterRowsSpec("int64", word(itemsize) if reduction == "none" else element, reduction)
    for run_length in (1, 5, 16, 37, 200):
        check_rows((4, 5, run_length), 2, 30, spec, element, "host")


def test_long_runs_are_shared_out() -> None:
    spec = ScatterRowsSpec("int64", "float32", "add")
    assert spec.tasks(spec.arguments((5, 3000), (64, 1))) > 5
    check_rows((5, 3000), 1, 64, spec, np.float32, "host")


@pytest.mark.parametrize("reduction", ["max", "min"])
def test_nan_wins(reduction: str) -> None:
    spec = ScatterRowsSpec("int64", "float32", reduction)
    for length in (1, 40):
        out, updates = np.ones((2, length), np.float32), np.full((2, length), 2, np.float32)
        out[0], updates[1] = np.nan, np.nan
        run(spec, spec.arguments(out.shape, (2, 1)), [np.array([[0], [1]]), updates, out])
        assert np.isnan(out).all()


@pytest.mark.parametrize("wrong", [5, -6, 2**40, -(2**40)])
def test_index_out_of_range_is_noted_and_writes_nothing(wrong: int) -> None:
    indices, updates = np.array([[1], [wrong], [4]]), np.arange(9, dtype=np.float32).reshape(3, 3)
    rows = ScatterRowsSpec("int64", "uint32")
    out = np.full((5, 3), 9, np.float32)
    assert run(rows, rows.arguments(out.shape, indices.shape), [indices, updates, out])
    np.testing.assert_array_equal(out, [[9] * 3, updates[0], [9] * 3, [9] * 3, updates[2]])
    elements = ScatterElementsSpec("int64", "uint32")
    out = np.full((5, 3), 9, np.float32)
    assert run(elements, elements.arguments((5, 3), (3, 1), 0), [indices, updates[:, 0].copy(), out])
    np.testing.assert_array_equal(out[:, 0], [9, 0, 9, 9, 6])
    assert (out[:, 1:] == 9).all()


def test_nothing_to_do() -> None:
    rows, elements = ScatterRowsSpec("int64", "uint32"), ScatterElementsSpec("int64", "uint32")
    assert rows.tasks(rows.arguments((4, 3), (0, 1))) == 0
    assert rows.tasks(rows.arguments((4, 0), (2, 1))) == 0
    assert elements.tasks(elements.arguments((4, 3), (0, 3), 0)) == 0
    assert elements.tasks(elements.arguments((4, 0), (2, 0), 0)) == 0


def test_wrong_specs_are_refused() -> None:
    with pytest.raises(ValueError, match="int16"):
        ScatterRowsSpec("int16", "uint32")
    with pytest.raises(ValueError, match="bool"):
        ScatterElementsSpec("int64", "bool")
    with pytest.raises(ValueError, match="at most 8 axes"):
        ScatterElementsSpec("int64", "uint32").arguments([1] * 9, [1] * 9, 0)
    with pytest.raises(ValueError, match="at most 8 axes"):
        ScatterRowsSpec("int64", "uint32").arguments([1] * 9, [1, 9])
