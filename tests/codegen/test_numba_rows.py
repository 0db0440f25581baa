"""Reductions, softmax and normalisations as Numba kernels, against LLVM's: kinds, types, axes, stages, tasks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jitonnx.ir.computation import expressions as e
from jitonnx.ir.dtypes import DType
from jitonnx.kernels.normalization.spec import (
    GroupApplyBuffers,
    GroupApplySizes,
    GroupApplySpec,
    GroupNormSizes,
    GroupNormSpec,
    GroupStatisticsBuffers,
    GroupStatisticsSizes,
    GroupStatisticsSpec,
    LayerNormBuffers,
    LayerNormSizes,
    LayerNormSpec,
    NormalizationBuffers,
    float_bits,
)
from jitonnx.kernels.parts.layouts import KeptAxis, UnaryBuffers
from jitonnx.kernels.reduction.spec import ARG_KINDS, FLOAT_KINDS, KINDS, ReductionSizes, ReductionSpec
from jitonnx.kernels.softmax.spec import SoftmaxSpec
from jitonnx.kernels.transpose.spec import TransposeBuffers, TransposeSizes, TransposeSpec
from jitonnx.plan.calls import KernelCall, Stage
from tests.codegen.numba_kernels import results, run, tensor

SCALE = e.operand(0, DType.FLOAT) * 2.0 + e.operand(1, DType.FLOAT)


def agree(call: KernelCall, inputs: list[np.ndarray], outputs: list[np.ndarray], rtol: float, python: bool) -> None:
    found = results(call, inputs, outputs, ways=("llvm", "numba", "python") if python else ("llvm", "numba"))
    for way in found:
        for got, wanted in zip(found[way], found["llvm"], strict=True):
            np.testing.assert_allclose(got, wanted, rtol, rtol / 10, err_msg=f"{way}: {call.spec}")


def numbers(shape: tuple[int, ...], element: str, edge: float | None = None) -> np.ndarray:
    rng = np.random.default_rng(sum(shape))
    x = rng.standard_normal(shape) * 3 + 1 if element.startswith("float") else rng.integers(-5, 100, shape)
    x = x.astype(element)
    if edge is not None:
        x.reshape(-1)[x.size // 2] = edge
    return x


def strides(shape: tuple[int, int, int], last: bool) -> dict[str, int]:
    return {"x_outer": shape[1] * shape[2], "x_step": 1 if last else shape[2], "y_outer": 1 if last else shape[2]}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("shape", "element", "edge", "python"),
    [((5, 37, 1), "float32", None, True), ((3, 20, 70), "float32", np.nan, False),
     ((300, 200, 1), "float64", -np.inf, False),
     ((2, 7, 200), "int32", None, True), ((4, 11, 1), "int64", None, True)],
    ids=str,
)  # fmt: skip
def test_reductions(shape: tuple[int, int, int], element: str, edge: float | None, python: bool) -> None:
    last = shape[2] == 1
    x = numbers(shape, element, edge)
    if element.startswith("float"):
        x = np.abs(x) if edge is None else x
    for kind in (*KINDS, *ARG_KINDS) if python else ("mean", "max", "arg_min"):
        if kind in FLOAT_KINDS and element.startswith("int"):
            continue
        if kind == "prod":
            x = (x / 7).astype(element)
        y = np.zeros((shape[0], shape[2]), np.int64 if kind in ARG_KINDS else element)
        sizes = dict(zip(("outer", "length", "inner"), shape, strict=True), **strides(shape, last), count=shape[1])
        for last_index in (False, True) if kind in ARG_KINDS else (False,):
            spec = ReductionSpec(kind, last, element, last_index)
            call = KernelCall(spec, UnaryBuffers(x=tensor(x), y=tensor(y)), ReductionSizes(**sizes))
            agree(call, [x], [y], 1e-5 if element == "float32" else 1e-12, python)


def test_reductions_in_parts_and_of_bytes() -> None:
    for last in (True, False):
        shape = (2, 1000, 1 if last else 33)
        x, y = numbers(shape, "float32"), np.zeros((2, 16, shape[2]), np.float32)
        sizes = ReductionSizes(
            outer=2, length=1000, inner=shape[2], count=1000, **strides(shape, last) | {"y_outer": 16 * shape[2]}
        )
        call = KernelCall(ReductionSpec("sum", last, parts=16), UnaryBuffers(x=tensor(x), y=tensor(y)), sizes)
        agree(call, [x], [y], 1e-5, False)
    x, y = numbers((5, 33, 1), "int8"), np.zeros(5, np.int32)
    sizes = ReductionSizes(outer=5, length=33, inner=1, count=33, **strides((5, 33, 1), True))
    spec = ReductionSpec("sum", element="int32", stored="int8")
    agree(KernelCall(spec, UnaryBuffers(x=tensor(x), y=tensor(y)), sizes), [x], [y], 0, False)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["softmax", "log_softmax"])
@pytest.mark.parametrize(
    ("shape", "element", "edge"),
    [((5, 37, 1), "float32", None), ((300, 150, 1), "float32", np.nan), ((3, 20, 70), "float64", -np.inf),
     ((4, 1, 3), "float32", np.inf)],
    ids=str,
)  # fmt: skip
def test_softmax(shape: tuple[int, int, int], element: str, edge: float | None, kind: str) -> None:
    last = shape[2] == 1
    x = numbers(shape, element, edge)
    y = np.zeros_like(x)
    sizes: dict[str, Any] = dict(zip(("outer", "length", "inner"), shape, strict=True), **strides(shape, last))
    sizes |= {"y_outer": sizes["x_outer"], "y_step": sizes["x_step"]}
    call = KernelCall(SoftmaxSpec(kind, last, element), UnaryBuffers(x=tensor(x), y=tensor(y)), KeptAxis(**sizes))
    agree(call, [x], [y], 3e-6 if element == "float32" else 1e-14, x.size < 500)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("rows", [1, 300])
@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_rows_with_stages(rows: int, kind: str) -> None:
    """A residual in front, which is kept, and a bias behind."""
    x, residual, bias, scale = (numbers(shape, "float32") for shape in ((rows, 65), (rows, 65), (65,), (65,)))
    y, kept = np.zeros_like(x), np.zeros_like(x)
    added = e.operand(0, DType.FLOAT) + e.operand(1, DType.FLOAT)
    prologue = Stage(added, (1,), (1,), (DType.FLOAT,), 5, 6)
    epilogue = Stage(SCALE, (0,), (1,), (DType.FLOAT,), 6, 8)
    call = KernelCall(
        LayerNormSpec(kind, keep=True),
        LayerNormBuffers(x=tensor(x), scale=tensor(scale), bias=tensor(bias), y=tensor(y), kept=tensor(kept)),
        LayerNormSizes(rows=rows, columns=65, x_row=65, y_row=65, kept_row=65, epsilon_bits=float_bits(1e-5)),
        stage_tensors=[tensor(residual), tensor(bias)],
        stage_sizes=[0, 65, 0, 0],
        prologue=prologue,
        epilogue=epilogue,
    )
    found = {}
    for way in ("llvm", "numba", *(["python"] if rows < 10 else [])):
        y[...] = kept[...] = 0
        sizes = [*map(int, (*call.sizes, *call.stage_sizes))]
        run(call, [x, scale, bias, y, kept, residual, bias], sizes, way)
        found[way] = y.copy(), kept.copy()
        np.testing.assert_allclose(found[way][0], found["llvm"][0], 2e-5, 2e-5, err_msg=way)
        np.testing.assert_array_equal(found[way][1], x + residual)


@pytest.mark.parametrize(("groups", "outside"), [(1, False), (3, True)])
def test_groups_of_channels(groups: int, outside: bool) -> None:
    x, scale, bias = (numbers(shape, "float32") for shape in ((2, 6, 35), (6,), (6,)))
    y = np.zeros_like(x)
    sizes = GroupNormSizes(
        **{"images": 2, "channels": 6, "positions": 35, "groups": groups, "x_image": 210, "x_channel": 35},
        **{"y_image": 210, "y_channel": 35, "epsilon_bits": float_bits(1e-5)},
    )
    buffers = NormalizationBuffers(x=tensor(x), scale=tensor(scale), bias=tensor(bias), y=tensor(y))
    call = KernelCall(GroupNormSpec(outside=outside), buffers, sizes)
    found = {}
    for way in ("llvm", "numba", "python"):
        y[...] = 0
        run(call, [x, scale, bias, y], list(map(int, sizes)), way)
        found[way] = y.copy()
        np.testing.assert_allclose(found[way], found["llvm"], 2e-5, 2e-5, err_msg=way)


@pytest.mark.parametrize(("pixels", "channels", "groups"), [(700, 48, 4), (5, 6, 6)])
def test_groups_of_channels_in_two_steps(pixels: int, channels: int, groups: int) -> None:
    """Images whose channels lie side by side, in blocks of pixels."""
    shape = (2, pixels, channels)
    x, scale, bias = numbers(shape, "float32"), numbers((channels,), "float32"), numbers((channels,), "float32")
    y = np.zeros_like(x)
    given = {"images": 2, "pixels": pixels, "channels": channels, "x_image": pixels * channels, "x_pixel": channels}
    sums = GroupStatisticsSpec()
    blocks = sums.blocks(GroupStatisticsSizes(**given))
    partial = np.zeros((2, blocks, 2, channels), np.float32)
    first = KernelCall(
        sums, GroupStatisticsBuffers(x=tensor(x), partial=tensor(partial)), GroupStatisticsSizes(**given)
    )
    more = {"groups": groups, "y_image": pixels * channels, "y_pixel": channels, "epsilon_bits": float_bits(1e-5)}
    buffers = dict(zip(("x", "partial", "scale", "bias", "y"), map(tensor, (x, partial, scale, bias, y)), strict=True))
    second = KernelCall(GroupApplySpec(), GroupApplyBuffers(**buffers), GroupApplySizes(**given, **more))
    found = {}
    for way in ("llvm", "numba", *(["python"] if pixels < 10 else [])):
        y[...] = partial[...] = 0
        run(first, [x, partial], list(map(int, first.sizes)), way)
        run(second, [x, partial, scale, bias, y], list(map(int, second.sizes)), way)
        found[way] = y.copy()
        np.testing.assert_allclose(found[way], found["llvm"], 2e-5, 2e-5, err_msg=way)


@pytest.mark.parametrize(
    ("shape", "axes"), [((3, 40, 50), (0, 2, 1)), ((200, 300), (1, 0)), ((7,), (0,)), ((0, 3), (1, 0))]
)
def test_copies(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    for dtype in (np.float32, np.float16, np.bool_):
        source = np.random.default_rng(0).integers(0, 100, shape).astype(dtype).transpose(axes)[::-1]
        target = np.zeros(source.shape, dtype)
        sizes = TransposeSizes(
            extents=source.shape,
            sources=[stride // source.itemsize for stride in source.strides],
            targets=[stride // target.itemsize for stride in target.strides],
        )
        spec = TransposeSpec(source.itemsize)
        call = KernelCall(spec, TransposeBuffers(source=tensor(source), target=tensor(target)), sizes)
        ways = ("llvm", "numba", "python") if source.size < 100 else ("llvm", "numba")
        for way, (got,) in results(call, [source], [target], ways=ways).items():
            np.testing.assert_array_equal(got, source, err_msg=way)
