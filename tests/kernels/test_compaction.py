"""The kernels of NonZero and Compress against NumPy."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from jitonnx.kernels.compaction.kernel import build
from jitonnx.kernels.compaction.spec import CompressSpec, NonZeroSizes, NonZeroSpec
from jitonnx.target.machine import host
from tests.kernels.guarded import guarded
from tests.kernels.harness import Compiled
from tests.targets import named

TARGETS = {"host": host(), "haswell": named("haswell")}
SHAPES = (
    (1,),
    (63,),
    (64,),
    (65,),
    (200,),
    (3, 1),
    (5, 7),
    (2, 130),
    (3, 4, 5),
    (2, 1, 3, 33),
    (0,),
    (3, 0),
    (0, 4, 2),
)


@functools.cache
def compiled(spec: NonZeroSpec | CompressSpec, target: str) -> Compiled:
    cpu = TARGETS[target]
    return Compiled(build(spec, cpu.lanes(4)), cpu)


def non_zero(x: np.ndarray, target: str) -> np.ndarray:
    spec = NonZeroSpec(x.ndim, x.dtype.itemsize, x.dtype.kind == "f")
    out, count = np.full(x.ndim * x.size, -1, np.int64), np.full(1, -1, np.int64)
    sizes = NonZeroSizes(extents=x.shape)
    compiled(spec, target)([guarded(x), out, count], sizes, spec.tasks(sizes))
    used = x.ndim * int(count[0])
    assert (out[used:] == -1).all()
    return out[:used].reshape(x.ndim, -1)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["bool", "uint16", "int32", "int64", "float16", "float32", "float64"])
def test_non_zero(dtype: str, target: str) -> None:
    random = np.random.default_rng(1)
    for shape in SHAPES:
        for share in (0.0, 0.1, 0.7, 1.0):
            x = (random.random(shape) < share).astype(dtype)
            np.testing.assert_array_equal(non_zero(x, target), np.stack(np.nonzero(x)))


def test_of_floats_both_zeros_are_left_out_and_no_nan() -> None:
    for dtype in (np.float16, np.float32, np.float64):
        x = np.array([0, -0.0, np.nan, -1, np.inf, np.finfo(dtype).smallest_subnormal], dtype)
        np.testing.assert_array_equal(non_zero(x, "host"), [[2, 3, 4, 5]])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("dtype", "run"), [("int8", 1), ("int16", 1), ("int32", 1), ("int64", 1), ("int8", 3)])
def test_compress(dtype: str, run: int, target: str) -> None:
    random = np.random.default_rng(2)
    for outer, length, inner in ((1, 1, 1), (1, 130, 1), (3, 64, 5), (4, 3, 200), (0, 3, 2), (2, 0, 2)):
        for conditions in (length, max(0, length - 2)):
            x = random.integers(-100, 100, (outer, length, inner * run)).astype(dtype)
            condition = random.random(conditions) < 0.5
            nbytes = inner * run * x.dtype.itemsize
            spec = CompressSpec(nbytes if nbytes in (1, 2, 4, 8) else 0)
            out, count = np.zeros(x.size, dtype), np.full(1, -1, np.int64)
            sizes = spec.given([outer, length, nbytes, conditions])
            buffers = [guarded(x), guarded(condition), out, count]
            compiled(spec, target)(buffers, sizes, spec.tasks(sizes), spec.scratch_bytes(sizes))
            expected = np.compress(condition, x, 1)
            assert count[0] == expected.shape[1]
            np.testing.assert_array_equal(out[: expected.size].reshape(expected.shape), expected)
