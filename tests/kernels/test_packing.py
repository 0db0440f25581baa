"""Packing: memory of zeros, work shared out, and columns copied in blocks."""

import threading

import numpy as np
import pytest

from jitonnx.kernels.parts import packing


@pytest.mark.parametrize("elements", [0, 1, 1000, 65_536, 100_003, 5_000_000])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_zeros(elements: int, dtype: str) -> None:
    first, second = packing.zeros(elements, dtype), packing.zeros(elements, dtype)
    assert first.shape == (elements,) and first.dtype == dtype and not first.any() and not second.any()
    first[:] = 1
    assert not second.any() and not np.shares_memory(first, second)
    assert not elements or first.ctypes.data % 64 == second.ctypes.data % 64 == 0


def test_zeros_on_many_threads() -> None:
    found: list[np.ndarray] = []

    def take(number: int) -> None:
        for _ in range(20):
            array = packing.zeros(100_000, np.float32)
            array[:] = number
            found.append(array)

    threads = [threading.Thread(target=take, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(float(array[0]) for array in found) == sorted(list(range(4)) * 20)
    assert all((array == array[0]).all() for array in found)


@pytest.mark.parametrize("parts", [0, 1, 2, 7])
@pytest.mark.parametrize("size", [0, 64 << 20])
def test_for_each(parts: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_allowed_cpus", lambda: 3)
    done: list[int] = []
    packing.for_each(done.append, parts, size)
    assert sorted(done) == list(range(parts))

    def fail(part: int) -> None:
        raise ZeroDivisionError(part)

    if parts:
        with pytest.raises(ZeroDivisionError):
            packing.for_each(fail, parts, size)


@pytest.mark.parametrize("rows", [0, 1, 2, 511, 512, 513, 1500])
@pytest.mark.parametrize("columns", [1, 3, 48])
@pytest.mark.parametrize("column_major", [False, True])
def test_copy_columns(rows: int, columns: int, column_major: bool) -> None:
    source = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
    source = np.asfortranarray(source) if column_major else source
    target = np.zeros((rows, 64), np.float32)
    packing.copy_columns(source, target[:, :columns])
    assert np.array_equal(target[:, :columns], source) and not target[:, columns:].any()


def test_blocks() -> None:
    assert packing.blocks(5, 2) == [slice(0, 2), slice(2, 4), slice(4, 5)] and packing.blocks(0, 2) == []


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "uint16"])
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (7, 3)])
def test_aligned(shape: tuple[int, ...], dtype: str) -> None:
    """Small arrays that begin within a cache line are copied, what begins with one stays."""
    size = int(np.prod(shape))
    memory = np.zeros(size * np.dtype(dtype).itemsize + 128, np.uint8)
    start = -memory.ctypes.data % 64 + 8
    source = memory[start : start + size * np.dtype(dtype).itemsize].view(dtype).reshape(shape)
    source[...] = np.arange(size).reshape(shape)
    found = packing.aligned(source)
    assert not size or found.ctypes.data % 64 == 0
    assert found.dtype == source.dtype and found.flags.c_contiguous
    assert found.shape == shape and np.array_equal(found, source)
    assert packing.aligned(found) is found


def test_aligned_leaves_large_arrays() -> None:
    large = np.zeros((1 << 20) + 1, np.float32)
    assert packing.aligned(large[1:]).base is large
