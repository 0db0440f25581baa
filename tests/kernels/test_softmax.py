"""Softmax and LogSoftmax against NumPy in double precision."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from jitonnx.emit import types
from jitonnx.kernels.softmax.kernel import build
from jitonnx.kernels.softmax.spec import SoftmaxSpec, choose
from jitonnx.target.machine import host
from tests.kernels.harness import Compiled
from tests.targets import named

TARGETS = (host(), named("haswell"))
LENGTHS = (0, 1, 2, 7, 8, 15, 16, 17, 33, 63, 64, 65, 130, 1000)


def reference(x: np.ndarray, axis: int, kind: str) -> np.ndarray:
    x = x.astype(np.float64)
    with np.errstate(all="ignore"):
        shifted = x - x.max(axis, keepdims=True, initial=-np.inf)
        total = np.exp(shifted).sum(axis, keepdims=True)
        return np.exp(shifted) / total if kind == "softmax" else shifted - np.log(total)


def run(spec: SoftmaxSpec, compiled: Compiled, x: np.ndarray, y: np.ndarray, pieces: int, *others: np.ndarray) -> None:
    """x, y: [outer, length] or [outer, length, inner] views of larger arrays."""

    def step(a: np.ndarray, axis: int) -> int:
        return a.strides[axis] // a.itemsize

    inner, steps = (1, (1, 1)) if spec.last else (x.shape[2], (step(x, 1), step(y, 1)))
    sizes = spec.given([x.shape[0], x.shape[1], inner, step(x, 0), steps[0], step(y, 0), steps[1]])
    compiled([x, y, *others], sizes, spec.tasks(sizes), spec.scratch_bytes(sizes), pieces)


@pytest.fixture(scope="module", params=itertools.product(("softmax", "log_softmax"), (1, 4), TARGETS), ids=str)
def rows(request):
    kind, together, target = request.param
    spec = SoftmaxSpec(kind, True, together=together)
    return spec, Compiled(build(spec, target.lanes(4)), target, spec.prescheduled)


@pytest.mark.parametrize("length", LENGTHS)
def test_rows(rows, length: int) -> None:
    spec, compiled = rows
    rng = np.random.default_rng(length)
    for outer in (0, 1, 5):
        x = (rng.standard_normal((outer, length + 3)) * 8).astype(np.float32)[:, :length]
        y = np.full((outer, length + 5), 7, np.float32)
        run(spec, compiled, x, y[:, :length], 2)
        np.testing.assert_allclose(y[:, :length], reference(x, 1, spec.kind), rtol=2e-6, atol=2e-6)
        assert (y[:, length:] == 7).all()


def test_rows_in_place_and_many_tasks(rows) -> None:
    spec, compiled = rows
    x = np.random.default_rng(0).standard_normal((700, 129)).astype(np.float32)
    expected, other = reference(x, 1, spec.kind), np.empty_like(x)
    run(spec, compiled, x, other, 1)
    run(spec, compiled, x, x, 3)
    np.testing.assert_array_equal(x, other)
    np.testing.assert_allclose(x, expected, rtol=2e-6, atol=2e-6)


def test_extreme_rows(rows) -> None:
    spec, compiled = rows
    inf, nan = np.inf, np.nan
    x = np.array([[-inf] * 20, [inf] + [0] * 19, [nan] + [1] * 19, [-inf] * 19 + [3], [3e38] * 20, [-3e38] * 20])
    x = np.concatenate([x, np.linspace(-200, 200, 20)[None]]).astype(np.float32)
    y = np.empty_like(x)
    run(spec, compiled, x, y, 1)
    atol = 2e-38 if spec.kind == "softmax" else 2e-6
    np.testing.assert_allclose(y, reference(x, 1, spec.kind), rtol=2e-6, atol=atol)


@pytest.fixture(scope="module", params=[(k, t) for k in ("softmax", "log_softmax") for t in TARGETS], ids=str)
def columns(request):
    kind, target = request.param
    spec = SoftmaxSpec(kind, False)
    return spec, Compiled(build(spec, target.lanes(4)), target, spec.prescheduled)


@pytest.mark.parametrize("inner", (0, 1, 3, 16, 17, 63, 64, 65, 140))
def test_columns(columns, inner: int) -> None:
    spec, compiled = columns
    rng = np.random.default_rng(inner)
    for outer, length in ((1, 1), (3, 5), (2, 40), (0, 3), (2, 0)):
        x = (rng.standard_normal((outer, length, inner + 2)) * 8).astype(np.float32)[:, :, :inner]
        y = np.full((outer, length, inner + 1), 7, np.float32)
        run(spec, compiled, x, y[:, :, :inner], 2)
        np.testing.assert_allclose(y[:, :, :inner], reference(x, 1, spec.kind), rtol=2e-6, atol=2e-6)
        assert (y[:, :, inner:] == 7).all()


def test_float64() -> None:
    for last, together in ((True, 1), (True, 4), (False, 1)):
        spec = SoftmaxSpec("softmax", last, "float64", together)
        x = np.random.default_rng(1).standard_normal((3, 37) if last else (3, 37, 11)) * 30
        y = np.empty_like(x)
        run(spec, Compiled(build(spec, host().lanes(8))), x, y, 1)
        np.testing.assert_allclose(y, reference(x, 1, "softmax"), rtol=1e-14)


@pytest.mark.parametrize(("last", "together"), [(True, 1), (True, 4), (False, 1)])
@pytest.mark.parametrize("kind", ["softmax", "log_softmax"])
def test_prologue_and_epilogue(kind: str, last: bool, together: int) -> None:
    """softmax(x * 0.5 + mask[column]) * gate[column]."""
    lanes = host().lanes(4)

    def prologue(code, x, batch, row, column, active):
        return x * 0.5 + code.buffer(2, types.float32).load(column, lanes, active)

    def epilogue(code, x, batch, row, column, active):
        return x * code.buffer(3, types.float32).load(column, lanes, active)

    spec = SoftmaxSpec(kind, last, together=together)
    shape = (5, 75) if last else (2, 9, 75)
    rng = np.random.default_rng(2)
    x, mask, gate = (rng.standard_normal(s).astype(np.float32) for s in (shape, 75, 75))
    y = np.empty_like(x)
    run(spec, Compiled(build(spec, lanes, epilogue, prologue)), x, y, 1, mask, gate)
    np.testing.assert_allclose(y, reference(x * 0.5 + mask, 1, kind) * gate, rtol=3e-6, atol=3e-6)


def test_choose() -> None:
    extents = ((100, 29, 1), (None, 29, 1), (1, 29, 1), (100, None, 1), (100, 1000, 1), (100, 29, 7))
    assert [choose(*extent, kind="softmax").together for extent in extents] == [4, 4, 1, 1, 1, 1]
