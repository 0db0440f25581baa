"""Reductions against NumPy."""

from __future__ import annotations

import functools
import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from jitonnx.emit import types
from jitonnx.kernels.reduction.kernel import build
from jitonnx.kernels.reduction.spec import ARG_KINDS, FLOAT_KINDS, KINDS, ReductionSizes, ReductionSpec, choose
from jitonnx.target.machine import Target, host
from tests.kernels.harness import Compiled
from tests.targets import named

TARGETS = (host(), named("haswell"))


@functools.cache
def compiled(spec: ReductionSpec, target: Target, epilogue: Any = None, prologue: Any = None) -> Compiled:
    return Compiled(
        build(spec, target.lanes(np.dtype(spec.element).itemsize), epilogue, prologue), target, spec.prescheduled
    )


def reference(x: np.ndarray, spec: ReductionSpec) -> np.ndarray:
    """Reduce over axis 1 of x."""
    if spec.is_index:
        flip = spec.select_last_index
        index = (np.argmax if spec.kind == "arg_max" else np.argmin)(x[:, ::-1] if flip else x, 1)
        return x.shape[1] - 1 - index if flip else index
    wide = x.astype(np.float64) if spec.element.startswith("float") else x
    with np.errstate(all="ignore"):
        limit = (np.inf, -np.inf) if wide.dtype == np.float64 else (np.iinfo(x.dtype).max, np.iinfo(x.dtype).min)
        match spec.kind:
            case "max":
                return wide.max(1, initial=limit[1])
            case "min":
                return wide.min(1, initial=limit[0])
            case "prod":
                return wide.prod(1, dtype=wide.dtype)
            case "mean":
                total = wide.sum(1, dtype=wide.dtype)
                return total / x.shape[1] if wide.dtype == np.float64 else np.trunc(total / max(1, x.shape[1]))
            case "l1":
                return np.abs(wide).sum(1)
            case "l2":
                return np.sqrt((wide**2).sum(1))
            case "sum_square":
                return (wide**2).sum(1)
            case "log_sum":
                return np.log(wide.sum(1))
            case "log_sum_exp":
                return np.logaddexp.reduce(wide, 1) if x.shape[1] else np.full(np.delete(x.shape, 1), -np.inf)
        return wide.sum(1, dtype=wide.dtype)


def run(spec: ReductionSpec, x: np.ndarray, target: Target, pieces: int = 2, others: Any = (), **fused: Any):
    """x: [outer, length] or [outer, length, inner]."""
    shape = (x.shape[0], 4) if spec.last else (x.shape[0], x.shape[2] + 2)
    y = np.full(shape, 7, np.int64 if spec.is_index else x.dtype)
    inner, step = (1, 1) if spec.last else (x.shape[2], x.strides[1] // x.itemsize)
    sizes = spec.given([x.shape[0], x.shape[1], inner, x.strides[0] // x.itemsize, step, shape[1], x.shape[1]])
    compiled(spec, target, **fused)([x, y, *others], sizes, spec.tasks(sizes), pieces=pieces)
    used = 1 if spec.last else x.shape[2]
    assert (y[:, used:] == 7).all()
    return y[:, 0] if spec.last else y[:, :used]


def sample(shape: tuple[int, ...], spec: ReductionSpec) -> np.ndarray:
    rng = np.random.default_rng(sum(shape))
    if spec.element.startswith("int"):
        return rng.integers(-9, 9, shape).astype(spec.element)
    x = rng.standard_normal(shape)
    if spec.kind == "prod":
        x = np.exp(x / 8)
    return (np.abs(x) if spec.kind == "log_sum" else x).astype(spec.element)


def compare(y: np.ndarray, x: np.ndarray, spec: ReductionSpec) -> None:
    expected = reference(x, spec)
    if y.dtype.kind == "i":
        np.testing.assert_array_equal(y, expected)
    else:
        tolerance = 1e-5 if spec.element == "float32" else 1e-13
        np.testing.assert_allclose(y, expected, rtol=tolerance, atol=tolerance * 3)


SPECS = [
    ReductionSpec(kind, last, element)
    for kind in KINDS + ARG_KINDS
    for element in ("float32", "float64", "int32", "int64")
    for last in (True, False)
    if not (kind in FLOAT_KINDS and element.startswith("int"))
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda s: f"{s.kind}-{s.element}-{'row' if s.last else 'column'}")
def test_all_kinds_and_elements(spec: ReductionSpec) -> None:
    for length in (1, 5, 16, 65, 200):
        shape = (3, length) if spec.last else (2, length, 37)
        x = sample((*shape[:-1], shape[-1] + 3), spec)[..., : shape[-1]]
        compare(run(spec, x, host()), x, spec)


@pytest.mark.parametrize("kind", ["sum", "max", "log_sum_exp", "arg_max"])
def test_avx2_and_sizes(kind: str) -> None:
    for target in TARGETS:
        for inner in (1, 7, 8, 63, 64, 65, 129):
            spec = ReductionSpec(kind, False)
            x = sample((2, 9, inner), spec)
            compare(run(spec, x, target), x, spec)
        for length in (1, 7, 8, 9, 31, 33, 1000):
            spec = ReductionSpec(kind, True)
            x = sample((5, length), spec)
            compare(run(spec, x, target), x, spec)


@pytest.mark.parametrize("kind", ["mean", "prod", "log_sum_exp"])
def test_equal_columns_have_equal_results(kind: str) -> None:
    """Whichever vector a column lies in: the order of the sum does not depend on the number of columns."""
    spec, column = ReductionSpec(kind, False), np.random.default_rng(0).uniform(0.5, 1.5, (1, 169, 1))
    for target in TARGETS:
        results = [run(spec, np.repeat(column.astype(np.float32), n, 2), target) for n in (1000, 130, 24, 3)]
        assert len({float(value) for y in results for value in y.ravel()}) == 1


@pytest.mark.parametrize("target", TARGETS, ids=["host", "avx2"])
@pytest.mark.parametrize("kind", ["sum", "mean", "max", "min", "l2"])
def test_many_columns(kind: str, target: Target) -> None:
    """Those whose totals lie in memory have the bits of those in registers, NaN and where columns are cut included."""
    for element in ("float32", "float64", *(["int64"] if kind != "l2" else [])):
        spec = ReductionSpec(kind, False, element)
        for length, inner in itertools.product((32, 45), (129, 300, 1024, 2300)):
            x = sample((2, length, inner), spec)
            if element != "int64":
                x[0, length // 2, 1::7] = np.nan
                x[1, -1, -1] = np.nan
            alone = np.concatenate([run(spec, x[:, :, c : c + 100].copy(), target) for c in range(0, inner, 100)], 1)
            compare(alone, x, spec)
            for pieces in (1, 5):
                np.testing.assert_array_equal(run(spec, x, target, pieces), alone)


@pytest.mark.parametrize("spec", [s for s in SPECS if not s.is_index and s.element in ("float32", "int64")], ids=str)
def test_empty_slices(spec: ReductionSpec) -> None:
    x = np.zeros((2, 0) if spec.last else (2, 0, 5), spec.element)
    compare(run(spec, x, host()), x, spec)
    none = np.zeros((0, 3) if spec.last else (2, 3, 0), spec.element)
    assert run(spec, none, host()).size == 0


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("kind", ["max", "min", "sum", "log_sum_exp"])
def test_infinities_and_nan(kind: str, last: bool) -> None:
    inf = np.inf
    rows = [[-inf] * 20, [inf] * 20, [1.0] * 19 + [inf], [np.nan] + [1.0] * 19, [1.0] * 19 + [np.nan], [700.0] * 20]
    x = np.array(rows, np.float32)
    x = x if last else np.ascontiguousarray(x.T)[None]
    spec = ReductionSpec(kind, last)
    y = run(spec, x, host())
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(y, reference(x, spec), rtol=1e-6)


@pytest.mark.parametrize("last_index", [True, False])
@pytest.mark.parametrize("kind", ARG_KINDS)
def test_index_of_ties_and_nan(kind: str, last_index: bool) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 3, (50, 77)).astype(np.float32)
    x[10:20] = -np.inf
    x[20:30][rng.random((10, 77)) < 0.05] = np.nan
    x[30:40] = np.inf
    for last in (True, False):
        spec = ReductionSpec(kind, last, select_last_index=last_index)
        data = x if last else np.ascontiguousarray(x.T)[None]
        np.testing.assert_array_equal(np.ravel(run(spec, data, host())), reference(x, spec))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("stored", [np.int8, np.uint8])
@pytest.mark.parametrize("widened", ["int32", "int64"])
def test_bytes_are_summed(stored: Any, widened: str, target: Target) -> None:
    info = np.iinfo(stored)
    for shape in [(3, 7), (2, 1000), (1, 5), (2, 40, 33), (1, 300, 16), (3, 2, 5), (2, 0, 4), (40, 4)]:
        x = np.random.default_rng(len(shape)).integers(info.min, info.max + 1, shape).astype(stored)
        inner = shape[2] if len(shape) == 3 else 1
        for known in ({}, {"outer": shape[0], "length": shape[1], "x_outer": shape[1] * inner}):
            (spec,) = choose("sum", inner, np.dtype(stored).name, **known)
            spec = replace(spec, element=widened)
            y = np.full((shape[0], inner), 7, widened)
            sizes = spec.given([shape[0], shape[1], inner, shape[1] * inner, inner, inner, shape[1]])
            compiled(spec, target)([x, y], sizes, spec.tasks(sizes), pieces=2)
            np.testing.assert_array_equal(y, x.sum(1, dtype=np.int32).reshape(y.shape))


def test_choose() -> None:
    assert choose("sum", 1) == [ReductionSpec("sum", True)]
    assert choose("sum", 7) == choose("sum", None) == [ReductionSpec("sum", False)]
    assert choose("mean", 32, outer=1, length=12544) == [
        ReductionSpec("sum", False, parts=16),
        ReductionSpec("mean", False),
    ]
    assert choose("l1", 1, outer=1, length=None) == [ReductionSpec("l1", parts=16), ReductionSpec("sum")]
    assert len(choose("mean", 32, outer=1, length=49)) == len(choose("mean", 1, outer=512, length=49_000)) == 1
    assert len(choose("arg_max", 1, outer=1, length=1 << 20)) == 1


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_slices_in_parts(kind: str, last: bool) -> None:
    """Sixteen parts, some of them shorter or empty, reduced again; the same bits however tasks are split."""
    for element in ("float32", "int32"):
        if kind in FLOAT_KINDS and element == "int32":
            continue
        inner, outer = (1 if last else 37), (1 if kind == "prod" else 2)
        parts, whole = choose(kind, inner, element, outer=outer, length=None)
        for length in (1, 15, 17, 200, 4099):
            data = np.ones((outer, length, inner), element) if kind == "prod" else sample((outer, length, inner), whole)
            if kind == "prod":
                data[:, ::7] = -1
            first = parts.given([outer, length, inner, length * inner, inner, 16 * inner, length])
            second = whole.given([outer, 16, inner, 16 * inner, inner, inner, length])
            results = []
            for pieces in (1, 5):
                partial, y = np.zeros((outer, 16, inner), element), np.zeros((outer, inner), element)
                compiled(parts, host())([data, partial], first, parts.tasks(first), pieces=pieces)
                compiled(whole, host())([partial, y], second, whole.tasks(second), pieces=pieces)
                results.append(y)
            np.testing.assert_array_equal(*results)
            compare(results[0], data, ReductionSpec(kind, False, element))


def test_prologue_and_epilogue() -> None:
    """mean(x**2) * gate."""
    lanes = host().lanes(4)

    def square(code, x, batch, row, column, active):
        return x * x

    def gate(code, x, batch, row, column, active):
        return x * code.buffer(2, types.float32).load(column, lanes, active)

    rng = np.random.default_rng(2)
    for last, shape, count in ((True, (70, 33), 70), (False, (1, 40, 99), 99)):
        x, gates = rng.standard_normal(shape).astype(np.float32), rng.standard_normal(count).astype(np.float32)
        spec = ReductionSpec("mean", last)
        y = run(spec, x, host(), others=[gates], epilogue=gate, prologue=square)
        np.testing.assert_allclose(np.ravel(y), np.ravel((x.astype(float) ** 2).mean(1)) * gates, rtol=1e-5)


def test_many_tasks_give_the_same_bits_however_split() -> None:
    x = np.random.default_rng(2).standard_normal((64, 3000)).astype(np.float32)
    for spec, data in ((ReductionSpec("sum"), x), (ReductionSpec("sum", False), x.reshape(4, 16, 3000))):
        np.testing.assert_array_equal(run(spec, data, host(), 1), run(spec, data, host(), 5))


@pytest.mark.parametrize("kind", ["sum", "max", "min", "prod", "mean", "l2"])
def test_many_rows_at_once(kind: str) -> None:
    """Groups of rows that end anywhere, into dense results: the same bits however the rows are shared out."""
    for target in TARGETS:
        for element in ("float32", "float64"):
            spec = ReductionSpec(kind, True, element)
            for outer, length in ((1, 1), (7, 4), (16, 17), (33, 49), (1000, 129), (70, 300)):
                x = sample((outer, length), spec)
                if kind in ("max", "min"):
                    x[outer // 2, length // 3] = np.nan
                    x[0] = -np.inf if kind == "max" else np.inf
                sizes = ReductionSizes.make([outer, length, 1, length, 1, 1, length])
                results = []
                for pieces in (1, 3):
                    y = np.full(outer + 3, 7, element)
                    compiled(spec, target)([x, y], sizes, spec.tasks(sizes), pieces=pieces)
                    assert (y[outer:] == 7).all()
                    results.append(y[:outer])
                np.testing.assert_array_equal(*results)
                compare(results[0], x, spec)


@pytest.mark.parametrize("last_index", [True, False])
def test_index_among_several_vectors(last_index: bool) -> None:
    """Ties and NaN that lie in different vectors of one step through a row."""
    rng = np.random.default_rng(1)
    for target in TARGETS:
        for kind in ARG_KINDS:
            x = rng.integers(0, 2, (40, 517)).astype(np.float32)
            x[20:][rng.random((20, 517)) < 0.01] = np.nan
            for last in (True, False):
                spec = ReductionSpec(kind, last, select_last_index=last_index)
                given = x if last else np.ascontiguousarray(x.T)[None]
                compare(run(spec, given, target), given, spec)


@pytest.mark.parametrize("target", TARGETS, ids=["host", "avx2"])
@pytest.mark.parametrize("kind", ["mean", "max", "prod", "sum_square", "log_sum", "arg_max", "arg_min"])
def test_packed_slices(kind: str, target: Target) -> None:
    for length, element in itertools.product((2, 3, 4, 5, 6, 16), ("float32", "int64")):
        if kind in FLOAT_KINDS and element == "int64":
            continue
        (spec,) = choose(kind, 1, element, select_last_index=kind == "arg_min", outer=35, length=length, x_outer=length)
        assert spec.packed == length
        x = sample((35, length), spec)
        if element == "float32" and kind != "log_sum":
            x[::5, length // 2], x[3] = np.nan, -np.inf
        x[20:30] = 1  # ties
        compare(run(spec, x, target), x, spec)
        y = np.empty(38, np.int64 if spec.is_index else x.dtype)
        y[35:] = 7
        sizes = ReductionSizes.make([35, length, 1, length, 1, 1, length])
        compiled(spec, target)([x, y], sizes, spec.tasks(sizes))
        compare(y[:35], x, spec)
        assert (y[35:] == 7).all()


@pytest.mark.parametrize("target", TARGETS, ids=["host", "avx2"])
@pytest.mark.parametrize("element", ["float32", "float64", "int32"])
@pytest.mark.parametrize("last_index", [False, True])
def test_indices_of_many_rows(last_index: bool, element: str, target: Target) -> None:
    for kind, length in itertools.product(ARG_KINDS, (1, 7, 21, 80)):
        spec = ReductionSpec(kind, element=element, select_last_index=last_index)
        x = np.random.default_rng(length).integers(0, 6, (37, length)).astype(element)
        if element != "int32":
            x[5:30:4, length // 2 :: 2] = np.nan
        compare(run(spec, x, target), x, spec)


def test_what_is_packed() -> None:
    def packed(length: int, x_outer: int, kind: str = "sum", inner: int = 1) -> int:
        return choose(kind, inner, outer=100, length=length, x_outer=x_outer)[0].packed

    assert [length for length in range(20) if packed(length, length)] == [2, 3, 4, 5, 6, 8, 10, 12, 16]
    assert packed(4, 5) == packed(4, 4, "log_sum_exp") == packed(4, 4, inner=8) == 0
    with pytest.raises(ValueError, match="takes no prologue"):
        build(ReductionSpec("sum", packed=4), 16, prologue=print)
