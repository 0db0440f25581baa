"""Convolution kernels against NumPy in float64, on the vector widths of AVX-512 and AVX2."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.inner_loops import multiplying_loops
from jitonnx.emit import types
from jitonnx.emit.arguments import by_name
from jitonnx.emit.ssa import at_least
from jitonnx.kernels.convolution.choose import choose_convolution, choose_transposed
from jitonnx.kernels.convolution.kernel import build
from jitonnx.kernels.convolution.problem import CHANNEL_BLOCK, ConvolutionShape, Problem
from jitonnx.kernels.convolution.spec import (
    DepthwiseSizes,
    DepthwiseSpec,
    DirectSpec,
    GroupedSpec,
    TransposedSpec,
    WinogradSpec,
)
from jitonnx.kernels.convolution.taps import live_taps
from jitonnx.kernels.parts.microkernel import steps_of_round
from jitonnx.kernels.spec import KernelSpec
from jitonnx.target.machine import Target, host
from tests.kernels.harness import Compiled, assembly
from tests.kernels.layouts import pixels
from tests.targets import named

TARGETS = ("host", "haswell")
NARROW = "host" if host().lanes(4) < 16 else "haswell"
"""One whose kernels list the inputs of blocks of channels."""
GUARD = 4096  # bytes behind scratch memory that must stay as they are


@dataclass(frozen=True)
class Case:
    """One convolution. pads: top, left, bottom, right; for transposed ones output_padding is within `out_extra`."""

    size: tuple[int, int]
    channels: int
    outputs: int
    kernel: tuple[int, int] = (3, 3)
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (1, 1, 1, 1)
    groups: int = 1
    images: int = 1
    transposed: bool = False
    out_extra: tuple[int, int] = (0, 0)

    @property
    def out_size(self) -> tuple[int, int]:
        def out(axis: int) -> int:
            reach = self.dilations[axis] * (self.kernel[axis] - 1) + 1
            pad = self.pads[axis] + self.pads[axis + 2]
            if self.transposed:
                return self.strides[axis] * (self.size[axis] - 1) + reach - pad + self.out_extra[axis]
            return (self.size[axis] + pad - reach) // self.strides[axis] + 1

        return out(0), out(1)

    @property
    def weights_shape(self) -> tuple[int, ...]:
        first, second = (self.channels, self.outputs) if self.transposed else (self.outputs, self.channels)
        return (first, second // self.groups, *self.kernel)


def reference(case: Case, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """y [N, OH, OW, M] of x [N, H, W, C] and ONNX's weights, in float64."""
    pixels = x.astype(np.float64).reshape(*x.shape[:3], case.groups, 1, case.channels // case.groups)
    matrices = w.astype(np.float64).reshape(case.groups, w.shape[0] // case.groups, *w.shape[1:])
    if not case.transposed:  # to [group, input channel, output channel, kernel row, kernel column], as the others are
        matrices = matrices.swapaxes(1, 2)
    y = np.zeros((case.images, *case.out_size, case.groups, 1, case.outputs // case.groups))
    for k in range(case.kernel[0]):
        rows, i = _taken(case, 0, k)
        for j in range(case.kernel[1]):
            columns, q = _taken(case, 1, j)
            y[:, rows[:, None], columns] += pixels[:, i[:, None], q] @ matrices[..., k, j]
    return y.reshape(case.images, *case.out_size, case.outputs)


def _taken(case: Case, axis: int, tap: int) -> tuple[np.ndarray, np.ndarray]:
    """Tell along an axis which outputs read an input at `tap`, and which inputs these are."""
    out, stride = np.arange(case.out_size[axis]), case.strides[axis]
    if case.transposed:
        index, rest = np.divmod(out + case.pads[axis] - tap * case.dilations[axis], stride)
    else:
        index, rest = out * stride - case.pads[axis] + tap * case.dilations[axis], np.zeros_like(out)
    read = (rest == 0) & (index >= 0) & (index < case.size[axis])
    return out[read], index[read]


@functools.cache
def bias_residual_relu(lanes: int, first_size: int) -> Any:
    """relu(x + bias[column] + residual[batch, row, column]): shows whether an epilogue is told the right place."""

    def epilogue(code, x, batch, row, column, active):
        bias, residual = code.buffer(3, types.float32), code.buffer(4, types.float32)
        where = batch * code.size(first_size) + row * code.size(first_size + 1) + column
        total = x + bias.load(column, lanes, active) + residual.load(where, lanes, active)
        return at_least(total, 0.0)

    return epilogue


@functools.cache
def compiled(spec: KernelSpec, target_name: str, with_epilogue: bool) -> Compiled:
    target = named(target_name)
    lanes = target.lanes(4)
    epilogue = bias_residual_relu(lanes, spec.size_count) if with_epilogue else None
    return Compiled(build(spec, lanes, epilogue), target, spec.prescheduled)


def choose(case: Case, target: Target, channels_last: bool = True, known_size: bool = True) -> KernelSpec:
    out_size = case.out_size if known_size else (None, None)
    if case.transposed:
        return choose_transposed(case.strides, case.groups, case.outputs, out_size, target)
    layer = ConvolutionShape(
        *(case.kernel, case.strides, case.dilations, case.groups, case.channels, case.outputs, out_size),
        in_size=case.size if known_size else (None, None),
        pads=case.pads[:2],
    )
    return choose_convolution(layer, target, channels_last=channels_last, winograd=False)


def check(
    case: Case,
    spec: KernelSpec,
    target_name: str,
    channels_last: bool = True,
    epilogue: bool = True,
    seed: int = 0,
    gap: int = 5,
) -> None:
    """Run `case`: right values, nothing written beside them, the same bits however the tasks are split. `gap`: elements
    between the output's rows."""
    rng = np.random.default_rng(seed)
    (height, width), (out_height, out_width) = case.size, case.out_size
    x = rng.standard_normal((case.images, height, width, case.channels)).astype(np.float32)
    w = rng.standard_normal(case.weights_shape).astype(np.float32)
    expected = reference(case, x, w)
    x_buffer, x_strides = _in_memory(x, channels_last)
    y_strides = _out_strides(case, spec, gap)
    y = np.full(case.images * y_strides[0] + 1, 77, np.float32)
    bias = rng.standard_normal(case.outputs).astype(np.float32)
    residual = rng.standard_normal((case.images, out_height * out_width, case.outputs)).astype(np.float32)
    if epilogue:
        expected = np.maximum(expected + bias + residual.reshape(expected.shape), 0)
    weights = _pack(case, spec, w)
    sizes = spec.complete(_sizes(case, spec, x_strides, y_strides if _writes_planes(spec) else y_strides[:3]))
    assert len(sizes) == spec.size_count
    arguments = [*sizes, prod(residual.shape[1:]), case.outputs]
    results = []
    for pieces in (1, 3):
        y[:] = 77
        run = compiled(spec, target_name, epilogue).bind(
            *([x_buffer, weights, y, bias, residual], arguments, spec.tasks(sizes)),
            *(spec.scratch_bytes(sizes) + GUARD, pieces),
        )
        run()
        raw = run.keep[2]  # type: ignore[attr-defined]
        assert not raw[-raw.ctypes.data % 64 + spec.scratch_bytes(sizes) :].any(), "written behind scratch memory"
        results.append(y.copy())
    assert np.array_equal(results[0], results[1])
    view = np.lib.stride_tricks.as_strided(y, expected.shape, [4 * s for s in y_strides], writeable=True)
    scale = np.sqrt(prod(case.kernel) * case.channels / case.groups)
    tolerance = 2e-5 * np.abs(expected).max(initial=0) if isinstance(spec, WinogradSpec) else 2e-6 * (scale + 1) ** 1.5
    np.testing.assert_allclose(view, expected, rtol=0, atol=tolerance)
    view[...] = 77
    assert (y == 77).all(), "written beside the output"


def _writes_planes(spec: KernelSpec) -> bool:
    return isinstance(spec, DirectSpec) and spec.y_planes


def _out_strides(case: Case, spec: KernelSpec, gap: int) -> tuple[int, int, int, int]:
    """y's strides (image, row, pixel, channel), with gaps between images and pixels or planes."""
    out_height, out_width = case.out_size
    if _writes_planes(spec):
        y_row = out_width + gap
        y_channel = out_height * y_row + 3
        return case.outputs * y_channel + 7, y_row, 1, y_channel
    # Rows of several images rows a tile must be dense; pixels are apart in any case, as in a channels-last concat.
    y_pixel = case.outputs + 3
    y_row = out_width * y_pixel + (0 if getattr(spec, "spans_rows", False) else gap)
    return out_height * y_row + 7, y_row, y_pixel, 1


def _in_memory(x: np.ndarray, channels_last: bool) -> tuple[np.ndarray, tuple[int, int, int, int]]:
    """x in a buffer with NaN around, and its strides (image, row, pixel, channel)."""
    images, height, width, channels = x.shape
    if channels_last:
        pixel = channels + 3
        row = width * pixel + 2
        strides = (height * row + 5, row, pixel, 1)
    else:
        row = width + 2
        strides = ((height * row + 1) * channels, row, 1, height * row + 1)
    buffer = np.full(images * strides[0] + 64, np.nan, np.float32)
    np.lib.stride_tricks.as_strided(buffer, x.shape, [4 * s for s in strides], writeable=True)[...] = x
    return buffer, strides


def _pack(case: Case, spec: KernelSpec, w: np.ndarray) -> np.ndarray:
    if isinstance(spec, TransposedSpec):
        return spec.pack_weights(w, case.groups, case.dilations)
    if isinstance(spec, DirectSpec):
        return spec.pack_weights(w, case.groups)
    assert isinstance(spec, DepthwiseSpec | WinogradSpec)
    return spec.pack_weights(w)


def _sizes(
    case: Case, spec: KernelSpec, x_strides: tuple[int, ...], y_strides: tuple[int, ...]
) -> DepthwiseSizes | Problem:
    """strides: by image, row, pixel and, but for y, where it is 1 if not given, channel."""
    shared = {
        **pixels((case.images, *case.size, case.channels), x_strides[:3], y_strides[:3]),
        **by_name("out_height out_width", case.out_size),
        **by_name("pad_top pad_left", case.pads[:2]),
    }
    if isinstance(spec, DepthwiseSpec):
        return DepthwiseSizes(**shared)
    return Problem(
        **shared,
        out_channels=case.outputs,
        groups=case.groups,
        **by_name("kernel_height kernel_width", case.kernel),
        **by_name("stride_height stride_width", case.strides),
        **by_name("dilation_height dilation_width", case.dilations),
        x_channel=x_strides[3],
        y_channel=y_strides[3] if len(y_strides) == 4 else 1,
    )


DIRECT = [
    Case((7, 7), 16, 32),
    Case((7, 7), 40, 64),
    Case((9, 14), 16, 33),
    Case((6, 28), 5, 48),
    Case((5, 13), 17, 16),
    Case((4, 15), 20, 70, images=3),
    Case((3, 3), 18, 33),
    Case((2, 2), 18, 33),
    Case((1, 1), 33, 20),
    Case((5, 4), 8, 31),
    Case((11, 5), 8, 96),
    Case((9, 10), 16, 32, kernel=(1, 1), strides=(2, 2), pads=(0, 0, 0, 0)),
    Case((13, 15), 20, 32, strides=(2, 2)),
    Case((13, 16), 20, 32, strides=(3, 2), pads=(0, 1, 2, 0)),
    Case((12, 16), 7, 24, kernel=(2, 2), strides=(2, 2), pads=(0, 0, 0, 0)),
    Case((14, 17), 6, 17, kernel=(4, 5), strides=(4, 3), pads=(2, 0, 1, 3)),
    Case((16, 16), 18, 32, dilations=(2, 2), pads=(2, 2, 2, 2)),
    Case((8, 16), 18, 32, dilations=(12, 12), pads=(12, 12, 12, 12)),
    Case((8, 16), 18, 32, dilations=(36, 36), pads=(36, 36, 36, 36)),
    Case((9, 30), 33, 32, strides=(1, 2), dilations=(5, 15), pads=(5, 15, 5, 15)),
    Case((16, 16), 33, 40, dilations=(12, 12), pads=(12, 12, 12, 12), images=2),
    Case((13, 17), 20, 70, strides=(2, 3), dilations=(8, 9), pads=(7, 9, 8, 5)),
    Case((17, 19), 9, 20, kernel=(3, 2), strides=(2, 3), dilations=(3, 2), pads=(2, 1, 3, 4)),
    Case((1, 29), 12, 35, kernel=(1, 5), pads=(0, 2, 0, 2), images=2),
    Case((1, 40), 80, 35, kernel=(1, 3), strides=(1, 2), pads=(0, 1, 0, 1)),
    Case((12, 14), 3, 64, kernel=(7, 7), strides=(2, 2), pads=(3, 3, 3, 3)),
    Case((32, 33), 3, 40, kernel=(16, 16), strides=(16, 16), pads=(0, 0, 0, 0)),
    Case((10, 11), 1, 16, kernel=(5, 5), pads=(2, 2, 2, 2)),
    Case((10, 11), 4, 6, dilations=(2, 2)),
    Case((9, 9), 32, 64, groups=2),
    Case((9, 9), 24, 24, groups=6),
    Case((6, 7), 12, 30, groups=3),
    Case((6, 7), 10, 20, groups=10),
    Case((5, 6), 66, 66, groups=2, kernel=(1, 1), pads=(0, 0, 0, 0)),
    Case((4, 4), 3, 8, kernel=(9, 9), pads=(5, 4, 6, 4)),
    Case((5, 20), 3, 20, kernel=(5, 3), strides=(2, 1), dilations=(7, 2), pads=(9, 2, 30, 2)),
    Case((6, 14), 2, 20, kernel=(3, 1), strides=(3, 1), pads=(7, 0, 8, 0), images=2),
]
GROUPED = [
    Case((9, 9), 24, 24, groups=6),
    Case((9, 14), 32, 32, groups=8, images=2),
    Case((7, 7), 40, 40, groups=5),
    Case((7, 7), 104, 104, groups=13, strides=(2, 2)),
    Case((9, 28), 36, 36, groups=18, kernel=(5, 5), pads=(2, 2, 2, 2)),
    Case((13, 16), 20, 20, groups=5, strides=(3, 2), dilations=(2, 3), pads=(0, 1, 2, 0)),
    Case((3, 40), 16, 16, groups=2, kernel=(1, 7), strides=(1, 3), dilations=(1, 2), pads=(0, 3, 0, 9)),
    Case((5, 6), 8, 8, groups=4, kernel=(1, 1), strides=(2, 2), pads=(0, 0, 0, 0)),
    Case((8, 17), 12, 12, groups=3, dilations=(12, 12), pads=(12, 12, 12, 12)),
    Case((3, 4), 48, 48, groups=6, kernel=(9, 8), pads=(5, 4, 6, 4)),
]
DEPTHWISE = [
    Case((7, 7), 16, 16),
    Case((9, 14), 35, 35, images=2),
    Case((5, 23), 48, 48, strides=(2, 2)),
    Case((5, 8), 5, 5),
    Case((8, 15), 17, 17, kernel=(5, 5), pads=(2, 2, 2, 2)),
    Case((8, 15), 17, 17, kernel=(5, 5), strides=(2, 2), pads=(1, 2, 2, 1)),
    Case((7, 6), 33, 33, kernel=(7, 7), pads=(3, 3, 3, 3)),
    Case((2, 3), 16, 16, kernel=(7, 7), pads=(3, 3, 3, 3)),
    Case((9, 9), 16, 16, kernel=(5, 5), dilations=(2, 2), pads=(4, 4, 4, 4)),
    Case((9, 20), 20, 20, kernel=(3, 2), dilations=(3, 5), strides=(2, 3), pads=(0, 4, 3, 0)),
    Case((1, 31), 20, 20, kernel=(1, 4), pads=(0, 2, 0, 1)),
    Case((2, 2), 16, 16, dilations=(5, 5), pads=(5, 5, 5, 5)),
    Case((6, 6), 16, 16, kernel=(1, 1), strides=(2, 2), pads=(0, 0, 0, 0)),
    Case((1, 3), 20, 20, images=2),
    Case((16, 16), 35, 35, kernel=(5, 5), dilations=(4, 4), pads=(8, 8, 8, 8)),
    Case((11, 19), 16, 16, dilations=(4, 6), strides=(2, 4), pads=(4, 5, 3, 7)),
    Case((5, 75), 270, 270, kernel=(7, 7), pads=(3, 3, 3, 3), images=2),  # in parts of channels
]
TRANSPOSED = [
    Case((4, 5), 16, 32, kernel=(2, 2), strides=(2, 2), pads=(0, 0, 0, 0)),
    Case((5, 4), 7, 20, strides=(2, 2), out_extra=(1, 1)),
    Case((5, 4), 7, 20, kernel=(4, 4), strides=(2, 2), images=2),
    Case((6, 15), 18, 33),
    Case((5, 6), 8, 8, kernel=(3, 2), strides=(3, 5), pads=(0, 0, 1, 0), out_extra=(2, 4)),
    Case((5, 6), 8, 8, kernel=(1, 1), strides=(2, 2), pads=(0, 0, 0, 0)),
    Case((5, 6), 8, 12, strides=(2, 3), dilations=(2, 2), pads=(2, 1, 0, 3)),
    Case((5, 6), 8, 12, strides=(4, 6), dilations=(2, 3), pads=(1, 2, 0, 0)),
    Case((4, 5), 12, 18, strides=(2, 2), groups=3),
    Case((1, 9), 12, 18, kernel=(1, 5), strides=(1, 3), pads=(0, 2, 0, 1)),
    Case((7, 6), 4, 4, kernel=(5, 5), pads=(4, 4, 4, 4)),
]
WINOGRAD = [
    Case((7, 7), 16, 32),
    Case((8, 12), 32, 33),
    Case((5, 13), 48, 16, pads=(0, 1, 2, 0)),
    Case((29, 30), 16, 70, pads=(0, 0, 0, 0)),
    Case((6, 3), 16, 5, pads=(2, 2, 2, 2), images=3),
    Case((1, 1), 32, 40),
    Case((33, 18), 16, 20, images=2),
    Case((28, 39), 32, 33),
    Case((9, 13), 16, 33, dilations=(2, 3), pads=(2, 3, 2, 3), images=2),
    Case((5, 4), 32, 16, dilations=(4, 6), pads=(5, 6, 3, 6)),
    Case((1, 75), 32, 20, kernel=(1, 3), pads=(0, 1, 0, 1)),
    Case((11, 6), 16, 40, kernel=(1, 3), dilations=(1, 2), pads=(0, 0, 0, 1), images=2),
    Case((9, 7), 16, 33, kernel=(3, 1), dilations=(2, 1), pads=(1, 0, 2, 0)),
]
WINOGRAD_PARTS = [
    Case((7, 7), 26, 26),
    Case((9, 30), 52, 33, images=2),
    Case((14, 5), 20, 40, dilations=(1, 2), pads=(0, 2, 1, 2)),
    Case((6, 6), 3, 17),
    Case((1, 33), 31, 16, kernel=(1, 3), pads=(0, 1, 0, 1)),
]
"""Input channels that are no multiple of CHANNEL_BLOCK."""
WINOGRAD_GROUPS = [
    Case((7, 7), 80, 80, groups=5),
    Case((14, 15), 64, 96, groups=2, images=2),
    Case((9, 30), 96, 32, groups=2, dilations=(2, 1), pads=(2, 1, 0, 2)),
    Case((29, 11), 192, 192, groups=4),
]
WINOGRAD_TAPS = [
    ((2, 2), Case((13, 14), 32, 33, kernel=(5, 5), pads=(2, 2, 2, 2), images=2)),
    ((2, 4), Case((9, 15), 16, 33, kernel=(5, 3), pads=(2, 1, 0, 1))),
    ((3, 3), Case((10, 11), 16, 40, kernel=(2, 4), pads=(1, 0, 0, 2))),
    ((1, 4), Case((1, 75), 48, 20, kernel=(1, 5), pads=(0, 4, 0, 0))),
    ((1, 2), Case((1, 19), 16, 20, kernel=(1, 5), dilations=(1, 3), pads=(0, 6, 0, 6))),
    ((1, 2), Case((5, 13), 20, 36, kernel=(1, 7), pads=(0, 3, 0, 3))),
    ((2, 1), Case((17, 5), 32, 16, kernel=(7, 1), pads=(3, 0, 3, 0), images=2)),
    ((2, 2), Case((7, 9), 64, 64, kernel=(5, 5), pads=(2, 2, 2, 2), groups=2)),
]
"""Outputs of a tile, and kernels of other sizes than three taps."""
TRANSPOSED = [replace(case, transposed=True) for case in TRANSPOSED]
DEPTHWISE = [replace(case, groups=case.channels) for case in DEPTHWISE]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", DIRECT, ids=str)
def test_direct(case: Case, target: str) -> None:
    spec = choose(case, named(target))
    assert isinstance(spec, DirectSpec)
    check(case, spec, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", GROUPED, ids=str)
def test_narrow_groups(case: Case, target: str) -> None:
    """They go by permutations where the CPU has such of a whole vector, else by merged groups."""
    spec = choose(case, named(target))
    assert type(spec) is (GroupedSpec if named(target).lanes(4) >= 8 else DirectSpec)
    check(case, spec, target)


def test_other_groups_are_merged_or_direct() -> None:
    """Groups of 3, 12 or 16 channels, those of other outputs than inputs, and vectors that a CPU does not permute."""
    for case in (Case((9, 9), 24, 24, groups=8), Case((9, 9), 24, 24, groups=2), Case((9, 9), 32, 32, groups=2)):
        assert type(choose(case, named("x86-64-v4"))) is DirectSpec
    assert type(choose(Case((9, 9), 16, 32, groups=4), named("x86-64-v4"))) is DirectSpec
    assert type(choose(Case((9, 9), 16, 16, groups=4), named("x86-64-v2"))) is DirectSpec
    assert type(choose(Case((9, 9), 16, 16, groups=4), named("x86-64-v3"))) is GroupedSpec


@pytest.mark.sampled(4)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", [*DIRECT, *GROUPED, *TRANSPOSED], ids=str)
def test_planes(case: Case, target: str) -> None:
    """Input and output in planes of pixels, whose rows lie together or apart."""
    spec = choose(case, named(target))
    assert isinstance(spec, DirectSpec)
    check(case, replace(spec, y_planes=True), target, gap=5)
    if spec.layout == "blocked":
        check(case, replace(spec, x_planes=True, y_planes=True), target, channels_last=False, gap=0)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", DEPTHWISE, ids=str)
def test_depthwise(case: Case, target: str) -> None:
    spec = choose(case, named(target))
    assert isinstance(spec, DepthwiseSpec)
    check(case, spec, target)


@pytest.mark.parametrize("rows", (1, 2, 3))
@pytest.mark.parametrize("case", DEPTHWISE, ids=str)
def test_depthwise_tiles_of_any_number_of_rows(case: Case, rows: int) -> None:
    check(case, DepthwiseSpec(case.kernel, case.strides, case.dilations, 3, rows), "host")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("outputs", ((2, 2), (4, 4), (4, 2)))
@pytest.mark.parametrize("case", WINOGRAD, ids=str)
def test_winograd(case: Case, outputs: tuple[int, int], target: str) -> None:
    down, across = (tile if taps > 1 else 1 for tile, taps in zip(outputs, case.kernel, strict=True))
    check(case, WinogradSpec(named(target).lanes(4), (down, across), case.kernel, rows=5, vectors=2), target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("outputs", ((2, 2), (4, 4)))
@pytest.mark.parametrize("case", WINOGRAD_PARTS, ids=str)
def test_winograd_of_any_number_of_channels(case: Case, outputs: tuple[int, int], target: str) -> None:
    down, across = (tile if taps > 1 else 1 for tile, taps in zip(outputs, case.kernel, strict=True))
    spec = WinogradSpec(named(target).lanes(4), (down, across), case.kernel, rows=5, vectors=2, part_block=True)
    check(case, spec, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("outputs", "case"), WINOGRAD_TAPS, ids=str)
def test_winograd_of_other_kernels(outputs: tuple[int, int], case: Case, target: str) -> None:
    part = case.channels % 16 != 0
    spec = WinogradSpec(named(target).lanes(4), outputs, case.kernel, rows=5, vectors=2, part_block=part)
    check(case, spec, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("l2_bytes", (1 << 16, 1 << 20))
@pytest.mark.parametrize("case", WINOGRAD_GROUPS, ids=str)
def test_winograd_in_groups(case: Case, l2_bytes: int, target: str) -> None:
    """Few or many groups a task, and one or several blocks of outputs a group."""
    check(case, WinogradSpec(named(target).lanes(4), (4, 4), (3, 3), rows=8, vectors=1, l2_bytes=l2_bytes), target)
    if case.outputs // case.groups % 32 == 0:
        check(case, WinogradSpec(named(target).lanes(4), (2, 2), (3, 3), rows=8, vectors=2, l2_bytes=l2_bytes), target)


@pytest.mark.parametrize("case", WINOGRAD, ids=str)
def test_winograd_with_products_of_many_tiles(case: Case) -> None:
    outputs = [tile if taps > 1 else 1 for tile, taps in zip((4, 2), case.kernel, strict=True)]
    check(
        case,
        WinogradSpec(host().lanes(4), (outputs[0], outputs[1]), case.kernel, rows=14, vectors=2, prefetch_distance=24),
        "host",
    )


@pytest.mark.parametrize(
    ("kernel", "outputs", "bound"),
    [
        ((3, 3), (2, 2), 2e-6),
        ((3, 3), (4, 4), 5e-6),
        ((3, 3), (4, 2), 5e-6),
        ((5, 5), (2, 2), 5e-6),
        ((1, 5), (1, 4), 5e-6),
        ((7, 1), (2, 1), 5e-6),
    ],
)
def test_winograd_is_as_exact_as_promised(kernel: tuple[int, int], outputs: tuple[int, int], bound: float) -> None:
    """The largest error over the largest output, normal random data of 256 channels."""
    rng = np.random.default_rng(0)
    case = Case((12, 12), 256, 32, kernel=kernel, pads=(kernel[0] // 2, kernel[1] // 2) * 2)
    x = rng.standard_normal((1, 12, 12, 256)).astype(np.float32)
    w = (rng.standard_normal(case.weights_shape) / 48).astype(np.float32)
    expected = reference(case, x, w)
    spec = WinogradSpec(host().lanes(4), outputs, kernel, rows=5, vectors=2)
    y = np.zeros(expected.shape, np.float32)
    sizes = spec.complete(_sizes(case, spec, (36864, 3072, 256, 1), (4608, 384, 32)))
    compiled(spec, "host", False)([x, spec.pack_weights(w), y], sizes, spec.tasks(sizes), spec.scratch_bytes(sizes))
    assert np.abs(y - expected).max() <= bound * np.abs(expected).max()


def test_winograd_is_chosen_where_it_saves_time() -> None:
    def outputs(
        channels: int,
        out_channels: int,
        size: int | None,
        strides: tuple[int, int] = (1, 1),
        dilation: int = 1,
        groups: int = 1,
        cpu: str = "x86-64-v4",
    ) -> tuple[int, int] | None:
        sizes = ((size, size), (size, size), (dilation, dilation))
        layer = ConvolutionShape((3, 3), strides, (dilation, dilation), groups, channels, out_channels, *sizes)
        spec = choose_convolution(layer, named(cpu))
        return spec.outputs if isinstance(spec, WinogradSpec) else None

    assert outputs(64, 64, 56) == outputs(128, 128, 28) == outputs(128, 128, 32) == outputs(256, 256, 28) == (4, 4)
    assert outputs(256, 256, 14) == (4, 2) and outputs(256, 256, 14, cpu="znver4") == (4, 4)  # 6 MB, and not 9
    assert outputs(512, 512, 7) == outputs(512, 512, 7, cpu="haswell") == (2, 2)  # 17 MB of weights instead of 37
    assert outputs(256, 256, 14, cpu="haswell") == outputs(512, 512, 7, cpu="znver3") == (4, 4)
    assert outputs(256, 256, 28, dilation=2) == outputs(512, 512, 28, dilation=4) == (4, 4)
    assert outputs(256, 256, 28, dilation=12) is outputs(256, 256, 28, dilation=24) is None
    row = choose_convolution(ConvolutionShape((1, 3), (1, 1), (1, 1), 1, 80, 384, (1, 3000)), named("x86-64-v4"))
    assert isinstance(row, WinogradSpec) and row.outputs == (1, 4)
    row = choose_convolution(ConvolutionShape((1, 5), (1, 1), (1, 1), 1, 192, 384, (1, 120)), named("x86-64-v4"))
    assert isinstance(row, WinogradSpec) and row.outputs == (1, 4)
    square = choose_convolution(ConvolutionShape((5, 5), (1, 1), (1, 1), 1, 48, 64, (28, 28)), named("x86-64-v4"))
    assert isinstance(square, WinogradSpec) and square.outputs == (2, 2)
    assert outputs(512, 512, 14, groups=32) == outputs(512, 512, 14, groups=8, cpu="znver4") == (4, 4)
    assert outputs(512, 512, 14, groups=8) == (4, 2)
    assert outputs(256, 256, 28, groups=32) is outputs(480, 480, 14, groups=20) is None  # 8, 24 channels a group
    assert outputs(26, 26, 56) == outputs(104, 104, 28) == outputs(104, 104, 14, cpu="znver4") == (4, 4)
    assert outputs(3, 64, 224) is outputs(64, 64, 56, (2, 2)) is outputs(64, 64, None) is outputs(16, 16, 1) is None


def test_winograd_tiles_of_open_sizes_suit_all_that_are_usual() -> None:
    """What is best for the larger size, 4 x 4 tiles, takes twice the time for the smaller: its weights take longest."""

    def spec(channels: int, *sizes: int) -> WinogradSpec:
        usual = [(size, size) for size in sizes]
        layer = ConvolutionShape((3, 3), (1, 1), (1, 1), 1, channels, channels, (None, None))
        found = choose_convolution(layer, named("x86-64-v4"), usual_sizes=usual)
        assert isinstance(found, WinogradSpec)
        return found

    assert (spec(256, 20).outputs, spec(256, 20).rows) == ((4, 4), 14)
    assert (spec(256, 14, 20).outputs, spec(256, 14, 20).rows) == ((4, 4), 8)
    assert spec(512, 20).outputs == (4, 4)
    assert spec(512, 7, 10).outputs == (2, 2)


def test_winograd_products_take_all_tiles_of_a_task() -> None:
    for rows in (5, 6, 8, 14):
        spec = WinogradSpec(16, (4, 4), (3, 3), rows=rows, vectors=2)
        for tiles in range(70):
            products = spec.products(tiles)
            assert set(products) <= set(spec.product_rows)
            assert tiles <= sum(products) < tiles + max(spec.product_rows[-1], 2)
    assert WinogradSpec(16, (4, 4), (3, 3), rows=8, vectors=2).products(25) == [8, 8, 6, 4]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", TRANSPOSED, ids=str)
def test_transposed(case: Case, target: str) -> None:
    check(case, choose(case, named(target)), target)


@pytest.mark.parametrize("case", [*DIRECT[::4], *GROUPED[::4], *DEPTHWISE[::5], *TRANSPOSED[::5]], ids=str)
def test_size_unknown_when_chosen(case: Case) -> None:
    check(case, choose(case, host(), known_size=False), "host")


@pytest.mark.parametrize("case", [*DIRECT[::5], *DEPTHWISE[:2]], ids=str)
def test_channels_first_input(case: Case) -> None:
    spec = choose(case, host(), channels_last=False)
    assert isinstance(spec, DirectSpec) and spec.layout == "planar"
    check(case, spec, "host", channels_last=False)


@pytest.mark.parametrize("case", [DIRECT[0], DIRECT[2], GROUPED[0], DEPTHWISE[1], TRANSPOSED[1]], ids=str)
def test_without_epilogue(case: Case) -> None:
    check(case, choose(case, host()), "host", epilogue=False)


def test_nothing_to_do() -> None:
    spec = choose(Case((7, 7), 16, 32), host())
    assert isinstance(spec, DirectSpec)
    for case in (Case((7, 7), 16, 32, images=0), Case((7, 7), 16, 0), Case((2, 0), 3, 4, pads=(0, 0, 0, 0))):
        empty = replace(case, kernel=(1, 1), pads=(0, 0, 0, 0))
        check(empty, spec, "host")
        check(empty, replace(spec, y_planes=True), "host")
    # Weights that do not stay near are asked for ahead, by the products of an empty batch's no tiles.
    deep = Case((7, 7), 32, 32, kernel=(3, 3), pads=(1, 1, 1, 1), images=0)
    check(deep, WinogradSpec(host().lanes(4), (4, 4), (3, 3), rows=8, vectors=2, l2_bytes=1 << 16), "host")
    check(replace(GROUPED[0], images=0), choose(GROUPED[0], host()), "host")
    check(replace(DEPTHWISE[0], images=0), choose(DEPTHWISE[0], host()), "host")


def test_without_input_channels_the_epilogue_remains() -> None:
    check(Case((4, 5), 0, 20), choose(Case((4, 5), 16, 20), host()), "host")


@st.composite
def problems(draw: Callable[..., Any], pixels: int | None = None) -> Case:
    """Any convolution that a spec without constants serves; with `pixels`, one of that output width."""
    integer = lambda low, high: draw(st.integers(low, high))  # noqa: E731
    kernel, strides, dilations = ((integer(1, 4), integer(1, 4)) for _ in range(3))
    pads = (integer(0, 4), integer(0, 4), integer(0, 4), integer(0, 4))
    reach = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
    out = (integer(1, 6), pixels or integer(1, 20))
    size = [
        max(1, (o - 1) * s + r - pads[a] - pads[a + 2])
        for a, (o, s, r) in enumerate(zip(out, strides, reach, strict=True))
    ]
    if any(size[a] + pads[a] + pads[a + 2] < reach[a] for a in range(2)):
        pads = (*pads[:2], pads[2] + reach[0], pads[3] + reach[1])
    groups = draw(st.sampled_from((1, 1, 2)))
    return Case(
        (size[0], size[1]),
        integer(1, 20) * groups,
        integer(1, 40) * groups,
        kernel,
        strides,
        dilations,
        pads,
        groups,
        integer(1, 2),
    )


@settings(max_examples=30)
@given(case=problems(), vectors=st.sampled_from(((14, 2), (5, 3))))
def test_direct_on_any_problem(case: Case, vectors: tuple[int, int]) -> None:
    check(case, DirectSpec(host().lanes(4), *vectors), "host")


@settings(max_examples=30)
@given(
    case=problems(),
    tile=st.sampled_from(((9, 2, 3), (5, 3, 2), (14, 1, 8))),
    far_taps=st.booleans(),
    y_planes=st.booleans(),
    target=st.sampled_from(("host", NARROW)),
)
def test_narrower_tiles_end_rows_on_any_problem(
    case: Case, tile: tuple[int, int, int], far_taps: bool, y_planes: bool, target: str
) -> None:
    pixels, vectors, rest = tile
    spec = DirectSpec(named(target).lanes(4), pixels, vectors, far_taps=far_taps, rest=rest)
    if y_planes:
        check(case, replace(spec, x_planes=True, y_planes=True), target, channels_last=False, gap=0)
    else:
        check(case, spec, target)


@settings(max_examples=30)
@given(case=problems(pixels=3))
def test_tiles_of_several_rows_on_any_problem(case: Case) -> None:
    if case.out_size[1] == 3:
        check(case, DirectSpec(host().lanes(4), 3, 2, tile_rows=3), "host")


@settings(max_examples=30)
@given(
    case=problems(), channels=st.sampled_from((16, 40, 100)), tile=st.sampled_from(((1, 6, 2), (1, 4, 3), (3, 3, 1)))
)
def test_inputs_of_blocks_are_listed_on_any_problem(case: Case, channels: int, tile: tuple[int, int, int]) -> None:
    rows, pixels, vectors = tile
    case = replace(case, channels=channels * case.groups)
    if rows == 1 or case.out_size[1] == pixels:
        check(
            case,
            DirectSpec(named(NARROW).lanes(4), pixels, vectors, rows, prefetch_distance=24, paced_prefetch=True),
            NARROW,
        )


@settings(max_examples=30)
@given(case=problems(), extra=st.tuples(st.integers(0, 3), st.integers(0, 3)), channels=st.sampled_from((16, 56)))
def test_inputs_of_transposed_blocks_are_listed_on_any_problem(
    case: Case, extra: tuple[int, int], channels: int
) -> None:
    case = replace(case, transposed=True, strides=(3, 2), out_extra=extra, channels=channels * case.groups)
    if min(case.out_size) > 0:
        check(case, TransposedSpec(named(NARROW).lanes(4), 5, 2, prefetch_distance=24, strides=(3, 2)), NARROW)


def test_inputs_of_blocks_are_listed_where_all_of_them_are_copied() -> None:
    """3x3 lists four blocks of 16 channels at a time, and none where dilation reads further than what is copied."""

    def listed(case: Case, spec: DirectSpec) -> int:
        (height, width), (out_height, out_width) = case.size, case.out_size
        strides = (height * width * case.channels, width * case.channels, case.channels, 1)
        y_strides = (out_height * out_width * case.outputs, out_width * case.outputs, case.outputs)
        sizes = spec.complete(spec.given(_sizes(case, spec, strides, y_strides)))
        return sizes.listed

    narrow, wide = DirectSpec(8, 6, 2), DirectSpec(16, 14, 2)
    strided = Case((56, 56), 128, 64, strides=(2, 2))
    assert listed(strided, narrow) == 4
    assert listed(replace(strided, channels=40), narrow) == 2
    assert listed(replace(strided, channels=7), narrow) == listed(strided, wide) == 0
    assert listed(Case((56, 56), 128, 64, dilations=(1, 12), pads=(1, 12, 1, 12)), narrow) == 0
    assert listed(Case((28, 28), 64, 64, kernel=(7, 7), pads=(3, 3, 3, 3)), narrow) == 1


@settings(max_examples=30)
@given(case=problems(), width=st.sampled_from((2, 4, 8)), groups=st.integers(1, 9), pixels=st.sampled_from((3, 14)))
def test_narrow_groups_on_any_problem(case: Case, width: int, groups: int, pixels: int) -> None:
    case = replace(case, channels=width * groups, outputs=width * groups, groups=groups)
    columns = (case.kernel[1], case.strides[1], case.dilations[1])
    target = "host" if host().lanes(4) >= 8 else "haswell"  # one that permutes whole vectors
    spec = GroupedSpec(
        named(target).lanes(4), pixels, 1, merged_groups=CHANNEL_BLOCK // width, group_width=width, columns=columns
    )
    check(case, spec, target)
    check(case, replace(spec, x_planes=True, y_planes=True), target, channels_last=False, gap=0)


@settings(max_examples=20)
@given(case=problems(), tile=st.sampled_from(((1, 14, 2, False), (2, 3, 2, True))), gap=st.sampled_from((0, 3)))
def test_planes_on_any_problem(case: Case, tile: tuple[int, int, int, bool], gap: int) -> None:
    rows, pixels, vectors, far_taps = tile
    spec = DirectSpec(host().lanes(4), pixels, vectors, rows, far_taps=far_taps, x_planes=True, y_planes=True)
    check(case, spec, "host", channels_last=False, gap=gap)


@settings(max_examples=30)
@given(case=problems(), tile=st.sampled_from(((1, 5, 2), (2, 3, 2), (3, 2, 3))))
def test_tiles_cut_at_padding_on_any_problem(case: Case, tile: tuple[int, int, int]) -> None:
    rows, pixels, vectors = tile
    check(case, DirectSpec(host().lanes(4), pixels, vectors, rows, far_taps=True), "host")


def test_tiles_of_small_images_ask_for_the_next_weights() -> None:
    """7x7 pixels are four tiles of 2 x 7, which take a quarter each; 28x28 are too many."""

    def ahead(size: int, target: str, paced_prefetch: bool = False) -> int:
        case = Case((size, size), 512, 512)
        spec = DirectSpec(named(target).lanes(4), 7, 2, tile_rows=2, paced_prefetch=paced_prefetch)
        sizes = spec.complete(_sizes(case, spec, (512 * size**2, 512 * size, 512, 1), (512 * size**2, 512 * size, 512)))
        return sizes.ahead

    assert ahead(7, "x86-64-v4") == 8
    assert ahead(28, "x86-64-v4") == ahead(7, "haswell") == 0
    assert ahead(7, "haswell", paced_prefetch=True) == 4

    def paced_prefetch(size: int, target: str) -> bool:
        spec = choose_convolution(ConvolutionShape((3, 3), (2, 2), (1, 1), 1, 256, 512, (size, size)), named(target))
        assert isinstance(spec, DirectSpec)
        return spec.paced_prefetch

    assert (
        paced_prefetch(7, "haswell")
        and not paced_prefetch(28, "haswell")
        and not paced_prefetch(7, "x86-64-v4")
        and not paced_prefetch(7, "znver3")
    )


def test_rows_end_with_narrower_tiles_where_those_save_sums() -> None:
    def rest(width: int, target: str) -> int:
        spec = choose_convolution(ConvolutionShape((3, 3), (2, 2), (1, 1), 1, 128, 128, (width, width)), named(target))
        assert isinstance(spec, DirectSpec)
        return spec.rest

    assert (rest(28, "haswell"), rest(14, "haswell"), rest(12, "haswell"), rest(28, "x86-64-v4")) == (4, 4, 0, 0)
    for width in (28, 14):
        case = Case((2 * width, 2 * width), 16, 24, strides=(2, 2))
        spec = choose_convolution(ConvolutionShape((3, 3), (2, 2), (1, 1), 1, 16, 24, (width, width)), named(NARROW))
        check(case, spec, NARROW)


def test_tiles_of_rows_of_an_open_width_suit_those_that_are_usual() -> None:
    """Rows that are usually 7 pixels take a tile of 7, not two of 4; those that are usually wide, the widest."""

    def spec(*widths: int, cpu: str = "x86-64-v4") -> DirectSpec:
        layer = ConvolutionShape((3, 3), (2, 2), (1, 1), 1, 20, 40, (None, None))
        found = choose_convolution(layer, named(cpu), usual_sizes=[(width, width) for width in widths])
        assert isinstance(found, DirectSpec)
        return found

    assert (spec(7, 10).pixels, spec(7, 10).rest) == (7, 3)
    assert spec(56, 80) == spec(224, 320) == spec()
    for width in (1, 5, 7, 8, 13, 14, 20):
        check(Case((5, 2 * width), 20, 40, strides=(2, 2)), spec(7, 10, cpu="host"), "host")


def test_tiles_are_cut_where_that_leaves_out_taps() -> None:
    """3x3 of dilation 12: on 16 x 16 pixels taps live on stretches of 4, 8 and 4; on 128 x 128 padding is rare."""

    def spec(size: int, dilation: int) -> DirectSpec:
        sizes = ((size, size), (size, size), (dilation, dilation))
        layer = ConvolutionShape((3, 3), (1, 1), (dilation, dilation), 1, 960, 256, *sizes)
        found = choose_convolution(layer, named("x86-64-v4"), winograd=False)
        assert isinstance(found, DirectSpec)
        return found

    assert spec(16, 12).far_taps and spec(16, 12).pixels == 4
    assert not spec(128, 12).far_taps and not spec(28, 2).far_taps


@settings(max_examples=20)
@given(case=problems(), extra=st.tuples(st.integers(0, 3), st.integers(0, 3)))
def test_transposed_on_any_problem(case: Case, extra: tuple[int, int]) -> None:
    case = replace(case, transposed=True, strides=(2, 3), out_extra=extra)
    if min(case.out_size) > 0:
        spec = TransposedSpec(host().lanes(4), 5, 2, strides=(2, 3))
        check(case, spec, "host")
        check(case, replace(spec, x_planes=True, y_planes=True), "host", channels_last=False, gap=extra[0])


def test_taps_that_read_only_padding_can_be_cut_off() -> None:
    assert live_taps(3, 1, 24, 24, 16, 16) == slice(1, 2)
    assert live_taps(3, 1, 12, 12, 16, 16) == slice(0, 3)
    assert live_taps(5, 2, 1, 1, 1, 2) == slice(0, 2)
    assert live_taps(2, 1, 1, 9, 3, 3) == slice(0, 0)
    check(Case((4, 5), 16, 20, kernel=(1, 1), pads=(-1, -2, 0, 0)), choose(Case((3, 3), 16, 20), host()), "host")


def test_nan_and_infinity_pass_through() -> None:
    """They come out where a window holds them, and nowhere else: padding and neighbours do not spread them."""
    for groups, outputs in ((1, 32), (4, 16), (16, 16)):
        case = Case((6, 9), 16, outputs, groups=groups)
        spec = choose(case, host())
        x, w = np.ones((1, 6, 9, 16), np.float32), np.ones(case.weights_shape, np.float32)
        x[0, 1, 2, 3], x[0, 4, 7, 5] = np.nan, np.inf
        y = np.zeros((1, 6, 9, outputs), np.float32)
        sizes = spec.complete(_sizes(case, spec, (864, 144, 16, 1), (54 * outputs, 9 * outputs, outputs)))
        compiled(spec, "host", False)([x, _pack(case, spec, w), y], sizes, spec.tasks(sizes), spec.scratch_bytes(sizes))
        np.testing.assert_array_equal(y, reference(case, x, w).astype(np.float32))


def test_a_model_needs_few_kernels() -> None:
    """ResNet-50's convolutions other than 1x1 of stride 1: one kernel, one for 7x7 images, one for the first layer."""
    layers = [(3, 64, 224, 7, 2)]
    for inner, size in ((64, 56), (128, 28), (256, 14), (512, 7)):
        layers += [(inner, inner, size, 3, 1), (inner, inner, 2 * size, 3, 2), (2 * inner, 4 * inner, 2 * size, 1, 2)]
    specs = {
        choose_convolution(
            ConvolutionShape((k, k), (s, s), (1, 1), 1, c, m, (-(-size // s), -(-size // s))),
            named("x86-64-v4"),
            channels_last=c > 3,
            winograd=False,
        )
        for c, m, size, k, s in layers
    }
    assert len(specs) == 3


@pytest.mark.parametrize("cpu", [*TARGETS, "neoverse-n1"])
def test_sums_stay_in_registers(cpu: str) -> None:
    """The innermost loop of a direct convolution has pixels * vectors multiply-adds in a step of k, and nothing from
    the stack."""
    target = named(cpu)
    spec = choose(Case((14, 14), 256, 256), target)
    assert isinstance(spec, DirectSpec)
    loops = multiplying_loops(assembly(build(spec, target.lanes(4)), target, spec.prescheduled), target)
    sums = spec.pixels * spec.vectors
    assert max(loop.multiply_adds for loop in loops) == sums * steps_of_round(target.architecture, sums)
    for loop in loops:
        assert not loop.stack_accesses, loop.text
