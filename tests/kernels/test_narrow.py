"""Convolutions to few output channels by vectors of pixels, against sums in float64: every edge of a tile, both ways in
which x may lie, strides, dilations, groups and phases."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jitonnx.emit.arguments import by_name
from jitonnx.kernels.convolution.choose import choose_narrow
from jitonnx.kernels.convolution.kernel import build
from jitonnx.kernels.convolution.narrow_spec import NarrowSizes, NarrowSpec
from jitonnx.kernels.convolution.problem import ConvolutionShape
from tests.kernels.harness import Compiled
from tests.kernels.test_convolution import GUARD, TARGETS, Case, reference
from tests.kernels.test_depthwise_planes import bias_residual_relu, in_planes
from tests.targets import named

CONVOLUTIONS = [
    Case((9, 40), 5, 3),
    Case((20, 33), 7, 1, images=2),
    Case((1, 300), 2, 2, kernel=(1, 11), pads=(0, 5, 0, 5)),
    Case((1, 77), 3, 8, kernel=(1, 7), dilations=(1, 3), pads=(0, 9, 0, 9)),
    Case((3, 5), 2, 2, kernel=(5, 5), pads=(2, 2, 2, 2)),
    Case((13, 17), 4, 3, kernel=(4, 2), strides=(3, 1), dilations=(2, 1), pads=(3, 1, 0, 0)),
    Case((6, 18), 1, 1, kernel=(1, 1), pads=(0, 0, 0, 0)),
    Case((5, 20), 2, 3, kernel=(3, 3), pads=(4, 5, 6, 3)),
    Case((8, 9), 6, 6, groups=6, kernel=(3, 7), pads=(1, 3, 1, 3)),
    Case((7, 50), 8, 6, groups=2),
]
TRANSPOSED = [
    Case((5, 20), 6, 3, kernel=(4, 4), strides=(2, 2)),
    Case((5, 20), 6, 1, strides=(2, 2), out_extra=(1, 1), images=2),
    Case((6, 33), 4, 3),
    Case((5, 6), 8, 4, groups=4, kernel=(4, 4), strides=(2, 2)),
    Case((4, 7), 3, 2, kernel=(3, 2), strides=(3, 5), pads=(0, 0, 1, 0), out_extra=(2, 4)),
    Case((5, 6), 3, 2, strides=(4, 6), dilations=(2, 3), pads=(1, 2, 0, 0)),
    Case((5, 6), 3, 2, strides=(2, 3), dilations=(2, 2), pads=(2, 5, 0, 3)),
    Case((1, 19), 5, 8, kernel=(1, 16), strides=(1, 8), pads=(0, 4, 0, 4)),
    Case((7, 6), 4, 1, kernel=(5, 5), pads=(4, 4, 4, 4)),
]
CASES = [*CONVOLUTIONS, *(replace(case, transposed=True) for case in TRANSPOSED)]


@functools.cache
def compiled(spec: NarrowSpec, target_name: str) -> Compiled:
    target = named(target_name)
    return Compiled(build(spec, spec.lanes, bias_residual_relu(spec.lanes, spec.size_count)), target, spec.prescheduled)


def spec_of(case: Case, target: str, *, planes: bool, block: int, rows: int, vectors: int) -> NarrowSpec:
    stride = case.strides[1] if case.transposed else 1
    return NarrowSpec(
        *(named(target).lanes(4), block, (case.kernel[1], case.strides[1], case.dilations[1]), case.transposed),
        *(case.pads[1] % stride, case.strides[0] if case.transposed else 1, rows, vectors, planes),
    )


def check(case: Case, spec: NarrowSpec, target: str, seed: int = 0) -> None:
    """Right values, nothing written beside them or behind scratch memory, the same bits however tasks are split."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((case.images, *case.size, case.channels)).astype(np.float32)
    w = rng.standard_normal(case.weights_shape).astype(np.float32)
    bias = rng.standard_normal(case.outputs).astype(np.float32)
    height, width = case.out_size
    residual = rng.standard_normal((case.images, case.outputs, height, width)).astype(np.float32)
    expected = np.maximum(reference(case, x, w) + bias + residual.transpose(0, 2, 3, 1), 0)
    if spec.planes:
        x_buffer, _, (image, channel, row) = in_planes(x, 2, np.nan)
        pixel = 1
    else:
        x_buffer, channel, pixel = np.append(x.ravel(), np.nan).astype(np.float32), 1, case.channels
        row, image = case.size[1] * pixel, case.size[0] * case.size[1] * pixel
    y_buffer, y, y_strides = in_planes(np.zeros(expected.shape, np.float32), 3, 77)
    sizes = spec.complete(
        NarrowSizes(
            images=case.images,
            groups=case.groups,
            channels=case.channels // case.groups,
            output_blocks=case.outputs // case.groups // spec.outputs,
            **by_name("height width", case.size),
            **by_name("x_image x_channel x_row x_pixel", (image, channel, row, pixel)),
            **by_name("out_height out_width", case.out_size),
            **by_name("y_image y_channel y_row", y_strides),
            kernel_height=case.kernel[0],
            stride_height=case.strides[0],
            dilation_height=case.dilations[0],
            **by_name("pad_top pad_left", case.pads[:2]),
        )
    )
    assert len(sizes) == spec.size_count
    packed = spec.pack_weights(w, case.groups, case.dilations[0])
    results = []
    for pieces in (1, 3):
        y[...] = 77
        run = compiled(spec, target).bind(
            *([x_buffer, packed, y_buffer, bias, residual], [*sizes, case.outputs * height * width, height * width]),
            *(spec.tasks(sizes), spec.scratch_bytes(sizes) + GUARD, pieces),
        )
        run()
        raw = run.keep[2]  # type: ignore[attr-defined]
        assert not raw[-raw.ctypes.data % 64 + spec.scratch_bytes(sizes) :].any(), "written behind scratch memory"
        results.append(y_buffer.copy())
    np.testing.assert_array_equal(results[0], results[1])
    scale = np.sqrt(case.kernel[0] * case.kernel[1] * case.channels)
    np.testing.assert_allclose(y, expected, rtol=0, atol=2e-6 * (scale + 1) ** 1.5)
    y[...] = 77
    assert (y_buffer == 77).all(), "written beside the output"


def largest_block(case: Case) -> int:
    return case.outputs // case.groups


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_narrow(case: Case, target: str) -> None:
    wide = case.out_size[1] > 40
    check(
        case,
        spec_of(case, target, planes=True, block=largest_block(case), rows=1 if wide else 2, vectors=2 if wide else 1),
        target,
    )


@pytest.mark.parametrize("case", [case for case in CASES if case.groups == 1][::2], ids=str)
def test_channels_side_by_side(case: Case) -> None:
    check(case, spec_of(case, "host", planes=False, block=1, rows=3, vectors=1), "host")


@settings(max_examples=12, deadline=None)
@given(
    size=st.tuples(st.integers(1, 9), st.integers(1, 70)),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 3)),
    pads=st.tuples(*[st.integers(0, 3)] * 4),
    images=st.integers(1, 2),
    transposed=st.booleans(),
)
def test_any_sizes(
    size: tuple[int, int], kernel: tuple[int, int], pads: tuple[int, ...], images: int, transposed: bool
) -> None:
    kernel = kernel[0], 3
    strides = (2, 2) if transposed else (2, 1)
    pads = (pads[0], 2, *pads[2:])
    case = Case(size, 3, 2, kernel, strides, (1, 1), pads, 1, images, transposed)  # type: ignore[arg-type]
    if min(case.out_size) > 0:
        check(case, spec_of(case, "host", planes=True, block=2, rows=2, vectors=1), "host")


def test_blocks_of_rows_and_columns() -> None:
    """Little room for the copy cuts rows and columns."""
    case = Case((40, 150), 9, 2, kernel=(5, 3), pads=(2, 1, 2, 1))
    spec = spec_of(case, "host", planes=True, block=2, rows=2, vectors=1)
    check(case, replace(spec, l2_bytes=1 << 15), "host")


def test_nothing_to_do() -> None:
    spec = spec_of(CASES[0], "host", planes=True, block=3, rows=2, vectors=2)
    given = dict.fromkeys(NarrowSizes._given[0], 1)
    for name in ("images", "out_height", "out_width"):
        assert spec.tasks(spec.complete(NarrowSizes(**{**given, name: 0}))) == 0


@pytest.mark.parametrize(
    ("outputs", "width", "planes", "chosen"),
    [
        (3, 64, True, ["x86-64-v4", "haswell"]),
        (3, None, True, ["x86-64-v4", "haswell"]),
        (1, 5, True, ["x86-64-v4", "haswell"]),
        (8, 128, True, ["x86-64-v4"]),
        (8, 128, False, []),
        (12, 128, True, []),
    ],
)
def test_where_vectors_of_pixels_are_faster(outputs: int, width: int | None, planes: bool, chosen: list[str]) -> None:
    layer = ConvolutionShape((3, 3), (1, 1), (1, 1), 1, 16, outputs, (width, width))
    specs = {cpu: choose_narrow(layer, named(cpu), planes=planes) for cpu in ("x86-64-v4", "haswell")}
    assert [cpu for cpu, spec in specs.items() if spec is not None] == chosen
