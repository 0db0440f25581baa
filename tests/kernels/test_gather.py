"""Gathering kernels against NumPy's indexing."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from jitonnx.kernels.gather.kernel import build
from jitonnx.kernels.gather.spec import PIECES, GatherElementsSpec, GatherRowsSpec, ReverseSequenceSpec
from jitonnx.target.machine import host
from tests.kernels.guarded import guarded
from tests.kernels.harness import Compiled
from tests.targets import named

DTYPES = {1: np.int8, 2: np.float16, 4: np.float32, 8: np.float64}
WIDTHS = sorted({8, host().lanes(4)})


@functools.cache
def compiled(spec: Any, lanes: int) -> Compiled:
    return Compiled(build(spec, lanes), host() if lanes == host().lanes(4) else named("haswell"))


def changed(sizes: Any, **others: int) -> Any:
    """The sizes but for some."""
    values = dict(zip(sizes.names(), sizes, strict=True)) | others
    return sizes.make(values.values())


def run(
    spec: Any, sizes: Any, data: np.ndarray, indices: np.ndarray, out: np.ndarray, lanes: int, pieces: int = 3
) -> bool:
    """Calls the kernel; returns whether it found an index out of range."""
    error = np.zeros(1, np.int64)
    compiled(spec, lanes)([data, indices, out, error], sizes, spec.tasks(sizes), pieces=pieces)
    return bool(error[0])


def numbers(shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(1).integers(-100, 100, shape).astype(dtype)


def indices_for(extent: int, shape: tuple[int, ...], dtype: str = "int64") -> np.ndarray:
    return np.random.default_rng(2).integers(-extent, extent, shape).astype(dtype)


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("itemsize", [1, 2, 4, 8])
def test_gather_along_each_axis(itemsize: int, index: str, lanes: int) -> None:
    spec = GatherRowsSpec(index)
    for shape in ((50, 37), (3, 7, 20), (4, 5, 6, 1), (2, 9, 3)):
        data = numbers(shape, DTYPES[itemsize])
        for axis in range(len(shape)):
            indices = indices_for(shape[axis], (4, 3), index)
            expected = np.take(data, indices, axis=axis)
            out = np.zeros_like(expected)
            assert not run(spec, spec.gather(shape, axis, 12, itemsize), data, indices, out, lanes)
            np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("piece", PIECES)
def test_runs_moved_at_once(piece: int, lanes: int) -> None:
    data = numbers((3, 20, piece), np.uint8)
    indices, out = indices_for(20, (50,)), np.zeros((3, 50, piece), np.uint8)
    spec = GatherRowsSpec("int64", piece=piece)
    sizes = spec.gather(data.shape, 1, 50, 1)
    sizes = changed(sizes, task_rows=7)  # tasks that begin and end within a batch
    assert not run(spec, sizes, guarded(data), guarded(indices), out, lanes)
    np.testing.assert_array_equal(out, data[:, indices])


def test_gather_into_a_wider_buffer() -> None:
    spec, data, indices = GatherRowsSpec("int64"), numbers((100, 24)), indices_for(100, (3000,))
    whole = np.full((3000, 30), 7, np.float32)
    sizes = spec.gather(data.shape, 0, 3000, 4)
    sizes = changed(sizes, out_row=120)
    assert spec.tasks(sizes) >= 8
    assert not run(spec, sizes, data, indices, whole, host().lanes(4))
    np.testing.assert_array_equal(whole[:, :24], data[indices])
    assert (whole[:, 24:] == 7).all()


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("batch_dims", [0, 1, 2])
@pytest.mark.parametrize("width", [1, 2])
def test_gather_nd(width: int, batch_dims: int, lanes: int) -> None:
    shape = (3, 4, 5, 6, 2)
    for index, dtype in (("int64", np.float32), ("int32", np.int8)):
        spec, data = GatherRowsSpec(index, width), numbers(shape, dtype)
        batch, extents = shape[:batch_dims], shape[batch_dims : batch_dims + width]
        indices = np.stack([indices_for(extent, (*batch, 7), index) for extent in extents], axis=-1)
        out = np.zeros((*batch, 7, *shape[batch_dims + width :]), dtype)
        sizes = spec.gather_nd(shape, batch_dims, indices.shape, data.itemsize)
        assert not run(spec, sizes, data, indices, out, lanes)
        for place in np.ndindex(*batch, 7):
            np.testing.assert_array_equal(out[place], data[(*place[:batch_dims], *indices[place])])


@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("itemsize", [1, 2, 4, 8])
def test_gather_elements(itemsize: int, index: str) -> None:
    spec, lanes = GatherElementsSpec(index, itemsize), host().lanes(4)
    for shape in ((5, 6, 7), (8,), (1, 300), (20, 3, 1, 4)):
        data = numbers(shape, DTYPES[itemsize])
        for axis in range(len(shape)):
            smaller = tuple(extent if i == axis else max(1, extent - 1) for i, extent in enumerate(shape))
            for indices_shape in (smaller, (*shape[:axis], 11, *shape[axis + 1 :])):
                indices = indices_for(shape[axis], indices_shape, index)
                out = np.zeros(indices_shape, data.dtype)
                assert not run(spec, spec.arguments(shape, indices_shape, axis), data, indices, out, lanes)
                cut = tuple(slice(None if i == axis else n) for i, n in enumerate(indices_shape))
                np.testing.assert_array_equal(out, np.take_along_axis(data[cut], indices, axis))


def reverse(x: np.ndarray, lengths: list[int], time_axis: int, lanes: int) -> tuple[np.ndarray, bool]:
    """x with sequences reversed by the kernel, where lengths allow it, and whether one does not."""
    spec, out = ReverseSequenceSpec(time_axis), np.full_like(x, 9)
    run_bytes = int(np.prod(x.shape[2:])) * x.itemsize
    sizes = spec.complete(spec.given([*x.shape[:2], run_bytes, *x.strides[:2], *out.strides[:2]]))
    return out, run(spec, sizes, x, np.array(lengths, np.int64), out, lanes)


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("time_axis", [0, 1])
def test_reverse_sequence(time_axis: int, lanes: int) -> None:
    for rest in ((), (1,), (3, 5), (0,), (40,)):
        for dtype in DTYPES.values():
            x, lengths = numbers((7, 6, *rest), dtype), [0, 1, 2, 5, 6, 3, 4]
            lengths = lengths[: x.shape[1 - time_axis]]
            expected = np.moveaxis(x.copy(), time_axis, 0)
            for batch, length in enumerate(lengths):
                expected[:length, batch] = expected[:length, batch][::-1].copy()
            out, wrong = reverse(x, lengths, time_axis, lanes)
            assert not wrong
            np.testing.assert_array_equal(out, np.moveaxis(expected, 0, time_axis))


@pytest.mark.parametrize("length", [-1, 6, 2**40])
def test_wrong_length_of_a_sequence_is_noted(length: int) -> None:
    x = numbers((5, 3, 2))
    out, wrong = reverse(x, [0, length, 5], 0, host().lanes(4))
    assert wrong
    np.testing.assert_array_equal(out, np.stack([x[:, 0], np.full_like(x[:, 1], 9), x[::-1, 2]], 1))


@pytest.mark.parametrize("wrong", [5, -6, 2**40, -(2**40)])
def test_index_out_of_range_is_noted_and_reads_nothing(wrong: int) -> None:
    lanes, data, indices = host().lanes(4), numbers((5, 3)), np.array([1, wrong, 4])
    rows = GatherRowsSpec("int64")
    out = np.full((3, 3), 9, np.float32)
    assert run(rows, rows.gather(data.shape, 0, 3, 4), data, indices, out, lanes)
    np.testing.assert_array_equal(out, [data[1], [9] * 3, data[4]])
    elements = GatherElementsSpec("int64", 4)
    out = np.full((3, 1), 9, np.float32)
    assert run(elements, elements.arguments((5, 3), (3, 1), 0), data, indices, out, lanes)
    np.testing.assert_array_equal(out, [data[1, :1], [9], data[4, :1]])


def test_nothing_to_do_and_empty_data() -> None:
    lanes, spec = host().lanes(4), GatherRowsSpec("int64")
    assert not run(spec, spec.gather((4, 0), 0, 3, 4), numbers((4, 0)), np.zeros(3, np.int64), numbers((3, 0)), lanes)
    assert not run(spec, spec.gather((4, 2), 0, 0, 4), numbers((4, 2)), np.zeros(0, np.int64), numbers((0, 2)), lanes)
    assert run(spec, spec.gather((0, 2), 0, 1, 4), numbers((0, 2)), np.zeros(1, np.int64), numbers((1, 2)), lanes)


def test_wrong_specs_are_refused() -> None:
    with pytest.raises(ValueError, match="int16"):
        GatherRowsSpec("int16")
    with pytest.raises(ValueError, match="width 9"):
        GatherRowsSpec("int32", 9)
    with pytest.raises(ValueError, match="piece 24"):
        GatherRowsSpec("int64", piece=24)
    with pytest.raises(ValueError, match="itemsize 3"):
        GatherElementsSpec("int32", 3)
    with pytest.raises(ValueError, match="at most 8 axes"):
        GatherElementsSpec("int32", 4).arguments([1] * 9, [1] * 9, 0)
    with pytest.raises(ValueError, match="time_axis 2"):
        ReverseSequenceSpec(2)
