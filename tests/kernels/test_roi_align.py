"""The kernels that bring regions of images to one size, in both layouts, against their evaluation on NumPy."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from jitonnx.kernels.roi_align.kernel import build
from jitonnx.kernels.roi_align.spec import MODES, RoiAlignSpec, bits
from jitonnx.ops.onnx.regions import MaxRoiPool, RoiAlign
from jitonnx.target.machine import host
from tests.kernels.harness import Compiled
from tests.targets import named

WIDTHS = sorted({8, host().lanes(4)})


@functools.cache
def compiled(spec: RoiAlignSpec, lanes: int) -> Compiled:
    return Compiled(build(spec, lanes), host() if lanes == host().lanes(4) else named("haswell"))


def run(
    spec: RoiAlignSpec, x: np.ndarray, rois: np.ndarray, images: np.ndarray, size: tuple[int, int], lanes: int
) -> tuple[np.ndarray, int]:
    """y [R, C, height, width] for a scale of 0.5, and the error word."""
    order = (0, 2, 3, 1) if spec.pixels else (0, 1, 2, 3)
    back = np.argsort(order)
    lying = x.transpose(order).copy()
    y = np.full([(len(rois), x.shape[1], *size)[axis] for axis in order], 99, x.dtype)
    strides = [step // x.itemsize for array in (lying, y) for step in array.transpose(back).strides]
    given = [len(rois), x.shape[1], *size, x.shape[0], *x.shape[2:], *strides, bits(0.5)]
    sizes, error = spec.complete(spec.given(given)), np.zeros(1, np.int64)
    call = compiled(spec, lanes)
    call([lying, rois, images, y, error], sizes, spec.tasks(sizes), spec.scratch_bytes(sizes), pieces=3)
    return y.transpose(back), int(error[0])


def expected(
    spec: RoiAlignSpec, x: np.ndarray, rois: np.ndarray, images: np.ndarray, size: tuple[int, int]
) -> np.ndarray:
    if spec.mode == "pool":
        operator = MaxRoiPool(pooled_shape=size, spatial_scale=0.5)
        return operator.evaluate(x, np.concatenate([images[:, None].astype(x.dtype), rois], axis=1))
    return RoiAlign(
        mode=spec.mode,
        output_height=size[0],
        output_width=size[1],
        sampling_ratio=spec.sampling,
        spatial_scale=0.5,
        coordinate_transformation_mode="half_pixel" if spec.half_pixel else "output_half_pixel",
    ).evaluate(x, rois, images)


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("pixels", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_layouts_sizes_and_samples(mode: str, pixels: bool, lanes: int) -> None:
    random = np.random.default_rng(2)
    single, double = (np.float32, 3, (3, 5)), (np.float64, 17, (7, 2))
    for half_pixel, sampling, cases in (
        (False, 0, (double,)),
        (mode != "pool", 2, (single, (np.float32, 40, (1, 33)))),
    ):
        for dtype, channels, size in cases:
            spec = RoiAlignSpec(mode, half_pixel, sampling, pixels, np.dtype(dtype).name)
            x = random.normal(size=(2, channels, 9, 21)).astype(dtype)
            rois = (random.uniform(-0.2, 1.2, (7, 4)) * [42, 18, 42, 18]).astype(dtype)  # some are turned round
            images = random.integers(0, 2, 7)
            result, error = run(spec, x, rois, images, size, lanes)
            np.testing.assert_allclose(result, expected(spec, x, rois, images, size), 1e-5, 1e-5)
            assert not error


@pytest.mark.parametrize("pixels", [True, False])
def test_images_that_are_not_there(pixels: bool) -> None:
    x, rois = np.ones((2, 3, 4, 4), np.float32), np.array([[0, 0, 4, 4]] * 3, np.float32)
    result, error = run(RoiAlignSpec("avg", True, 1, pixels), x, rois, np.array([-1, 1, 2]), (2, 2), host().lanes(4))
    assert error == 1
    assert (result[[0, 2]] == 99).all() and (result[1] == 1).all()


def test_nothing_to_do_and_wrong_specs() -> None:
    for pixels in (True, False):
        spec = RoiAlignSpec("avg", True, 1, pixels)
        for regions, channels in ((0, 3), (2, 0)):
            x, rois = np.zeros((1, channels, 4, 4), np.float32), np.zeros((regions, 4), np.float32)
            run(spec, x, rois, np.zeros(regions, np.int64), (2, 2), host().lanes(4))
    for wrong in (("min", True, 1, True), ("avg", True, -1, True), ("avg", True, 1, True, "int32")):
        with pytest.raises(ValueError, match="no kernel"):
            RoiAlignSpec(*wrong)
