"""Normalizations against NumPy in double precision."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from jitonnx.emit import types
from jitonnx.kernels.normalization import channels_last
from jitonnx.kernels.normalization.kernel import build
from jitonnx.kernels.normalization.spec import (
    GroupApplySpec,
    GroupNormSpec,
    GroupStatisticsSpec,
    LayerNormSpec,
    choose_rows,
    float_bits,
)
from jitonnx.target.machine import Target, host
from tests.kernels.harness import Compiled
from tests.targets import named

TARGETS = (host(), named("haswell"))
EPSILON = 1e-5


def layer_reference(x: np.ndarray, spec: LayerNormSpec, scale: np.ndarray, bias: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64)
    centred = x - x.mean(1, keepdims=True) if spec.kind == "layer" else x
    y = centred / np.sqrt((centred**2).mean(1, keepdims=True) + EPSILON)
    y = y * scale if spec.scale else y
    return y + bias if spec.bias else y


@functools.cache
def compiled_layer(spec: LayerNormSpec, target: Target, **fused: Any) -> Compiled:
    return Compiled(build(spec, target.lanes(np.dtype(spec.element).itemsize), **fused), target, spec.prescheduled)


def run_layer(spec: LayerNormSpec, target: Target, x: np.ndarray, pieces: int = 1, others: Any = (), **fused: Any):
    rng = np.random.default_rng(7)
    scale, bias = (rng.standard_normal(x.shape[1]).astype(x.dtype) for _ in range(2))
    wide = np.full((x.shape[0], x.shape[1] + 3), 7, x.dtype)
    y, kept = wide[:, : x.shape[1]], np.empty_like(wide)
    sizes = spec.given([*x.shape, *(a.strides[0] // a.itemsize for a in (x, y, kept)), float_bits(EPSILON)])
    compiled_layer(spec, target, **fused)([x, scale, bias, y, kept, *others], sizes, spec.tasks(sizes), pieces=pieces)
    assert (wide[:, x.shape[1] :] == 7).all()
    return y, kept[:, : x.shape[1]], scale, bias


@pytest.mark.parametrize("target", TARGETS, ids=["host", "avx2"])
@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize("affine", [(True, True), (True, False), (False, True), (False, False)])
def test_layer_norm(kind: str, affine: tuple[bool, bool], target: Target) -> None:
    spec = LayerNormSpec(kind, *affine)
    for columns in (1, 3, 16, 17, 64, 100, 768):
        x = (np.random.default_rng(columns).standard_normal((5, columns + 2)) * 3 + 1).astype(np.float32)[:, :columns]
        y, _, scale, bias = run_layer(spec, target, x, 2)
        np.testing.assert_allclose(y, layer_reference(x, spec, scale, bias), rtol=3e-6, atol=5e-6)


@pytest.mark.parametrize("target", TARGETS, ids=["host", "avx2"])
@pytest.mark.parametrize("element", ["float32", "float64"])
@pytest.mark.parametrize("together", [1, 2, 4])
def test_rows_together(together: int, element: str, target: Target) -> None:
    spec = LayerNormSpec(element=element, together=together)
    for rows in (1, 2, 3, 4, 5, 9):
        x = np.random.default_rng(rows).standard_normal((rows, 53)).astype(element)
        x[rows // 2, 7] = np.nan  # which spoils its own row only
        y, _, scale, bias = run_layer(spec, target, x)
        np.testing.assert_allclose(y, layer_reference(x, spec, scale, bias), rtol=3e-6, atol=5e-6)


def test_choose_rows() -> None:
    assert [
        choose_rows("rms", scale=True, bias=False, element="float32", rows=rows, columns=columns).together
        for rows, columns in ((1, 768), (None, 768), (5, 768), (5, 4096), (5, None))
    ] == [1, 4, 4, 2, 4]
    assert choose_rows("rms", scale=True, bias=False, element="float64", rows=5, columns=768).together == 2


def test_nothing_to_normalize() -> None:
    for shape in ((0, 5), (5, 0)):
        run_layer(LayerNormSpec(), host(), np.zeros(shape, np.float32))


def test_layer_norm_keeps_small_variance_on_a_large_mean() -> None:
    """A mean of 1000 is as exact as sums of float32 are, which are longer in shorter vectors: errors grow with the
    square root of what a lane adds up."""
    x = (1000 + np.random.default_rng(1).standard_normal((4, 512))).astype(np.float32)
    y, _, scale, bias = run_layer(LayerNormSpec(), host(), x)
    allowed = 3e-4 * np.sqrt(16 / host().lanes(4))
    np.testing.assert_allclose(y, layer_reference(x, LayerNormSpec(), scale, bias), atol=allowed)


def test_layer_norm_float64() -> None:
    x = np.random.default_rng(1).standard_normal((300, 77))
    y, _, scale, bias = run_layer(LayerNormSpec(element="float64"), host(), x, 3)
    np.testing.assert_allclose(y, layer_reference(x, LayerNormSpec(), scale, bias), rtol=1e-13, atol=1e-13)


def test_layer_norm_with_residual_and_activation() -> None:
    """kept = x + residual; y = 2 * layer_norm(kept)."""
    lanes = host().lanes(4)

    def prologue(code, x, batch, row, column, active):
        return x + code.buffer(5, types.float32).load(row * 100 + column, lanes, active)

    def epilogue(code, x, batch, row, column, active):
        return x * 2.0

    rng = np.random.default_rng(3)
    x, residual = (rng.standard_normal((6, 100)).astype(np.float32) for _ in range(2))
    for keep in (True, False):
        spec = LayerNormSpec(keep=keep)
        y, kept, scale, bias = run_layer(spec, host(), x, 1, [residual], epilogue=epilogue, prologue=prologue)
        np.testing.assert_allclose(y, 2 * layer_reference(x + residual, spec, scale, bias), rtol=3e-6, atol=1e-5)
        if keep:
            np.testing.assert_array_equal(kept, x + residual)


@pytest.mark.parametrize("rows", [1, 2, 7])
@pytest.mark.parametrize("target", TARGETS, ids=["host", "avx2"])
def test_layer_norm_in_place(target: Target, rows: int) -> None:
    """The result over x, and the sum over the residual: the last of an odd number of rows is done twice at once."""
    lanes = target.lanes(4)

    def prologue(code, x, batch, row, column, active):
        return x + code.buffer(5, types.float32).load(row * code.size(1) + column, lanes, active)

    rng = np.random.default_rng(3)
    for columns in (5, 100, 160):
        x, residual = (rng.standard_normal((rows, columns)).astype(np.float32) for _ in range(2))
        scale, bias = (rng.standard_normal(columns).astype(np.float32) for _ in range(2))
        total, spec = x + residual, LayerNormSpec(keep=True)
        sizes = spec.given([rows, columns, columns, columns, columns, float_bits(EPSILON)])
        kernel = Compiled(build(spec, lanes, prologue=prologue), target)
        kernel([x, scale, bias, x, residual, residual], sizes, spec.tasks(sizes))
        np.testing.assert_array_equal(residual, total)
        np.testing.assert_allclose(x, layer_reference(total, spec, scale, bias), rtol=3e-6, atol=1e-5)


def group_reference(x: np.ndarray, groups: int, scale: np.ndarray, bias: np.ndarray, spec: Any) -> np.ndarray:
    """x: [images, channels, positions]."""
    split = x.astype(np.float64).reshape(x.shape[0], groups, -1)
    inside, outside = (0.0, EPSILON) if spec.outside else (EPSILON, 0.0)
    split = (split - split.mean(2, keepdims=True)) / (np.sqrt(split.var(2, keepdims=True) + inside) + outside)
    y = split.reshape(x.shape)
    y = y * scale[:, None] if spec.scale else y
    return y + bias[:, None] if spec.bias else y


def affine(channels: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    return rng.standard_normal(channels).astype(np.float32), rng.standard_normal(channels).astype(np.float32)


SHAPES = [(1, 4, 1, 2), (2, 6, 5, 3), (1, 32, 49, 8), (3, 20, 130, 20), (2, 18, 1000, 1), (1, 96, 333, 32)]


@pytest.mark.parametrize("target", TARGETS, ids=["host", "avx2"])
@pytest.mark.parametrize("spec", [GroupNormSpec(), GroupNormSpec(False, False, outside=True)])
@pytest.mark.parametrize("shape", SHAPES)
def test_group_norm_channels_first(shape: tuple[int, ...], spec: GroupNormSpec, target: Target) -> None:
    _, channels, positions, groups = shape
    x = (np.random.default_rng(0).standard_normal(shape[:3]) * 2 + 3).astype(np.float32)
    scale, bias = affine(channels)
    y = np.empty_like(x)
    strides = [channels * positions, positions] * 2
    sizes = spec.given([*shape, *strides, float_bits(EPSILON)])
    Compiled(build(spec, target.lanes(4)), target)([x, scale, bias, y], sizes, spec.tasks(sizes), pieces=2)
    np.testing.assert_allclose(y, group_reference(x, groups, scale, bias, spec), rtol=5e-6, atol=5e-6)


@pytest.mark.parametrize("target", TARGETS, ids=["host", "avx2"])
def test_group_norm_of_many_blocks(target: Target) -> None:
    """Parts of channels and several channels at a time, with a mean that the variance drowns in."""
    for shape in ((2, 3, 9001, 3), (1, 4, 9001, 2), (1, 66, 200, 2), (1, 3, 4096, 3)):
        _, channels, positions, groups = shape
        x = np.random.default_rng(0).standard_normal(shape[:3]).astype(np.float32)
        x += (1000 * np.arange(shape[1], dtype=np.float32) // (channels // groups))[:, None]
        scale, bias = affine(channels)
        y, spec = np.empty_like(x), GroupNormSpec(False, False)
        strides = [channels * positions, positions] * 2
        sizes = spec.given([*shape, *strides, float_bits(EPSILON)])
        Compiled(build(spec, target.lanes(4)), target)([x, scale, bias, y], sizes, spec.tasks(sizes))
        np.testing.assert_allclose(y, group_reference(x, groups, scale, bias, spec), atol=5e-4)


@pytest.mark.parametrize("target", TARGETS, ids=["host", "avx2"])
def test_group_norm_of_a_mean_too_large_to_be_squared(target: Target) -> None:
    x = (1e20 + 1e15 * np.arange(2 * 9).reshape(1, 2, 9)).astype(np.float32)
    y, spec = np.empty_like(x), GroupNormSpec(False, False)
    sizes = spec.given([1, 2, 9, 2, 18, 9, 18, 9, float_bits(EPSILON)])
    Compiled(build(spec, target.lanes(4)), target)([x, y, y, y], sizes, spec.tasks(sizes))
    np.testing.assert_allclose(y, group_reference(x, 2, *affine(2), spec), atol=1e-2)


def run_channels_last(x: np.ndarray, groups: int, spec: GroupApplySpec, target: Target, pieces: int, **fused: Any):
    """x: [images, pixels, channels]; gives y and the tasks."""
    images, pixels, channels = x.shape
    scale, bias = affine(channels)
    first = GroupStatisticsSpec()
    read = [*x.shape, x.strides[0] // 4, x.strides[1] // 4]
    sizes = first.given(read)
    partial = np.full((images, first.blocks(sizes), 2, channels), np.nan, np.float32)
    prologue = {"prologue": fused["prologue"]} if "prologue" in fused else {}
    statistics = Compiled(channels_last.build(first, target.lanes(4), **prologue), target)
    statistics([x, partial], sizes, first.tasks(sizes), pieces=pieces)
    y = np.zeros((images, pixels, channels + 1), np.float32)[:, :, :channels]
    sizes = spec.given([*read, groups, y.strides[0] // 4, y.strides[1] // 4, float_bits(EPSILON)])
    apply = Compiled(channels_last.build(spec, target.lanes(4), **fused), target, spec.prescheduled)
    apply([x, partial, scale, bias, y], sizes, spec.tasks(sizes), spec.scratch_bytes(sizes), pieces)
    return y, scale, bias


@pytest.mark.sampled(3)
@pytest.mark.parametrize("target", TARGETS, ids=["host", "avx2"])
@pytest.mark.parametrize("spec", [GroupApplySpec(), GroupApplySpec(False, False, outside=True)])
@pytest.mark.parametrize("shape", [*SHAPES, (2, 64, 4096, 16)])
def test_group_norm_channels_last(shape: tuple[int, ...], spec: GroupApplySpec, target: Target) -> None:
    images, channels, positions, groups = shape
    wide = (np.random.default_rng(0).standard_normal((images, positions, channels + 3)) * 2 + 3).astype(np.float32)
    x = wide[:, :, :channels]
    y, scale, bias = run_channels_last(x, groups, spec, target, 1)
    expected = group_reference(x.transpose(0, 2, 1), groups, scale, bias, spec).transpose(0, 2, 1)
    np.testing.assert_allclose(y, expected, rtol=5e-6, atol=5e-6)
    np.testing.assert_array_equal(run_channels_last(x, groups, spec, target, 3)[0], y)


def test_group_norm_channels_last_with_prologue_and_epilogue() -> None:
    def halve(code, x, batch, row, column, active):
        return x * 0.5

    def negate(code, x, batch, row, column, active):
        return -x

    x = np.random.default_rng(0).standard_normal((2, 50, 24)).astype(np.float32)
    spec = GroupApplySpec()
    y, scale, bias = run_channels_last(x, 4, spec, host(), 1, prologue=halve, epilogue=negate)
    expected = group_reference(x.transpose(0, 2, 1) / 2, 4, scale, bias, spec).transpose(0, 2, 1)
    np.testing.assert_allclose(y, -expected, rtol=5e-6, atol=5e-6)
