"""The depthwise convolution of planes of pixels, against sums in float64: every edge of a tile, strides, dilations."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from jitonnx.emit import types
from jitonnx.emit.arguments import by_name
from jitonnx.emit.ssa import at_least
from jitonnx.kernels.convolution.choose import choose_depthwise_planes
from jitonnx.kernels.convolution.kernel import build
from jitonnx.kernels.convolution.spec import DepthwisePlanesSizes, DepthwisePlanesSpec
from tests.kernels.harness import Compiled
from tests.kernels.layouts import planes_to_planes
from tests.kernels.test_convolution import TARGETS, Case, reference
from tests.targets import named

CASES = [
    Case((9, 16), 3, 3),
    Case((17, 40), 2, 2, images=2),
    Case((1, 1), 2, 2),
    Case((3, 7), 5, 5),
    Case((10, 33), 2, 2, strides=(2, 2)),
    Case((19, 70), 2, 2, strides=(2, 2), pads=(0, 0, 1, 1)),
    Case((7, 75), 2, 2, kernel=(2, 5), strides=(1, 2), pads=(0, 2, 0, 2)),
    Case((9, 72), 2, 2, strides=(2, 2), dilations=(1, 2), pads=(1, 2, 1, 1)),
    Case((12, 37), 2, 2, strides=(3, 1), pads=(2, 0, 0, 2)),
    Case((12, 37), 2, 2, strides=(1, 2), pads=(1, 2, 1, 2)),
    Case((8, 35), 2, 2, kernel=(5, 5), pads=(2, 2, 2, 2)),
    Case((8, 66), 2, 2, kernel=(5, 4), strides=(2, 2), pads=(2, 3, 1, 0)),
    Case((9, 34), 2, 2, kernel=(2, 1), pads=(0, 0, 0, 0)),
    Case((6, 50), 2, 2, kernel=(1, 3), pads=(0, 1, 0, 1)),
    Case((20, 45), 2, 2, dilations=(2, 3), pads=(2, 3, 2, 3)),
    Case((20, 75), 2, 2, dilations=(3, 3), strides=(2, 2), pads=(3, 3, 3, 3)),
    Case((4, 5), 2, 2, dilations=(9, 9), pads=(9, 9, 9, 9)),
    Case((2, 18), 2, 2, kernel=(7, 7), pads=(3, 3, 3, 3)),
    Case((19, 40), 2, 2, kernel=(7, 7), pads=(3, 3, 3, 3)),
    Case((11, 37), 2, 2, kernel=(6, 7), strides=(2, 1), dilations=(1, 2), pads=(2, 5, 3, 6)),
    Case((9, 5), 2, 2, kernel=(5, 7), pads=(2, 3, 2, 3)),
]
CASES = [replace(case, groups=case.channels) for case in CASES]


@functools.cache
def bias_residual_relu(lanes: int, first_size: int) -> Any:
    """relu(x + bias[row] + residual[batch, row, column]): shows whether an epilogue is told the right place."""

    def epilogue(code, x, batch, row, column, active):
        bias, residual = code.buffer(3, types.float32), code.buffer(4, types.float32)
        where = batch * code.size(first_size) + row * code.size(first_size + 1) + column
        return at_least(x + bias.load(row).splat(lanes) + residual.load(where, lanes, active), 0.0)

    return epilogue


@functools.cache
def compiled(spec: DepthwisePlanesSpec, target_name: str, with_epilogue: bool) -> Compiled:
    target = named(target_name)
    lanes = target.lanes(4)
    epilogue = bias_residual_relu(lanes, spec.size_count) if with_epilogue else None
    return Compiled(build(spec, lanes, epilogue), target, spec.prescheduled)


def in_planes(x: np.ndarray, gap: int, fill: float) -> tuple[np.ndarray, np.ndarray, tuple[int, int, int]]:
    """Images [N, H, W, C] as planes with `fill` between rows, planes and images: the buffer, a view, its strides."""
    images, height, width, channels = x.shape
    row = width + gap
    plane = height * row + gap
    image = channels * plane + gap
    buffer = np.full(images * image + 80, fill, np.float32)
    strides = [4 * stride for stride in (image, row, 1, plane)]
    view = np.lib.stride_tricks.as_strided(buffer, x.shape, strides, writeable=True)
    view[...] = x
    return buffer, view, (image, plane, row)


def check(case: Case, rows: int, target: str, epilogue: bool = True, special: bool = False) -> None:
    """Right values, nothing written beside them, the same bits however the tasks are split."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((case.images, *case.size, case.channels)).astype(np.float32)
    if special:
        places = rng.choice(x.size, min(4, x.size), replace=False)
        x.flat[places] = np.array([np.nan, np.inf, -np.inf, -0.0])[: len(places)]
    w = rng.standard_normal(case.weights_shape).astype(np.float32)
    with np.errstate(invalid="ignore"):
        expected = reference(case, x, w)
    bias = rng.standard_normal(case.channels).astype(np.float32)
    height, width = case.out_size
    residual = rng.standard_normal((case.images, case.channels, height, width)).astype(np.float32)
    if epilogue:
        expected = np.maximum(expected + bias + residual.transpose(0, 2, 3, 1), 0)
    spec = DepthwisePlanesSpec(case.kernel, case.strides, case.dilations, rows)
    x_buffer, _, x_strides = in_planes(x, 2, np.nan)
    y_buffer, y, y_strides = in_planes(np.zeros(expected.shape, np.float32), 3, 77)
    shape = (case.images, case.channels, *case.size)
    planes = planes_to_planes(shape, x_strides, (height, width), y_strides)
    sizes = spec.complete(DepthwisePlanesSizes(**planes, **by_name("pad_top pad_left", case.pads[:2])))
    assert len(sizes) == spec.size_count
    arguments = [*sizes, case.channels * height * width, height * width]
    results = []
    for pieces in (1, 3):
        y[...] = 77
        buffers = [x_buffer, spec.pack_weights(w), y_buffer, bias, residual]
        compiled(spec, target, epilogue)(buffers, arguments, spec.tasks(sizes), 0, pieces)
        results.append(y_buffer.copy())
    np.testing.assert_array_equal(results[0], results[1])
    scale = np.sqrt(case.kernel[0] * case.kernel[1])
    np.testing.assert_allclose(y, expected, rtol=0, atol=2e-6 * (scale + 1) ** 1.5)
    y[...] = 77
    assert (y_buffer == 77).all(), "written beside the output"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_depthwise_planes(case: Case, target: str) -> None:
    check(case, 8 if named(target).vector_registers >= 32 else 4, target)


@pytest.mark.parametrize("rows", (1, 2, 3))
@pytest.mark.parametrize("case", CASES[::3], ids=str)
def test_tiles_of_any_number_of_rows(case: Case, rows: int) -> None:
    check(case, rows, "host", epilogue=False)


@pytest.mark.parametrize("case", CASES[:5], ids=str)
def test_numbers_that_are_not_finite(case: Case) -> None:
    check(case, 4, "host", epilogue=False, special=True)


def test_nothing_to_do() -> None:
    spec = DepthwisePlanesSpec((3, 3), (1, 1), (1, 1), 4)
    for images, channels, height, width in [(0, 3, 5, 5), (2, 0, 5, 5), (2, 3, 0, 5), (2, 3, 5, 0)]:
        planes = planes_to_planes((images, channels, 5, 5), (75, 25, 5), (height, width), (75, 25, 5))
        sizes = spec.complete(DepthwisePlanesSizes(**planes, pad_top=1, pad_left=1))
        assert spec.tasks(sizes) == 0


@pytest.mark.parametrize(
    ("kernel", "strides", "width", "chosen"),
    [
        ((3, 3), (1, 1), 112, ["x86-64-v4", "haswell"]),
        ((3, 3), (2, 2), 56, ["x86-64-v4", "haswell"]),
        ((3, 3), (1, 1), None, ["x86-64-v4", "haswell"]),
        ((3, 3), (3, 3), 112, []),
        ((3, 3), (1, 1), 7, []),
        ((7, 7), (1, 1), 112, ["x86-64-v4"]),
        ((7, 7), (1, 1), 20, []),
    ],
)
def test_where_planes_are_faster(
    kernel: tuple[int, int], strides: tuple[int, int], width: int | None, chosen: list[str]
) -> None:
    """Copies into channels-last, which planes save, cost a vector of few lanes less."""
    cpus = ["x86-64-v4", "haswell", "x86-64-v2"]
    specs = {cpu: choose_depthwise_planes(kernel, strides, (1, 1), (width, width), named(cpu)) for cpu in cpus}
    assert [cpu for cpu, spec in specs.items() if spec is not None] == chosen
