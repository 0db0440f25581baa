"""The kernels that read images between their pixels, against their definition on NumPy in float64."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest

from jitonnx.ir.computation.sampling import sample
from jitonnx.kernels.grid_sample.kernel import build
from jitonnx.kernels.grid_sample.spec import (
    MAX_AXES,
    OUTSIDES,
    TAPS,
    SamplePixelsSpec,
    SamplePlanesSpec,
)
from jitonnx.target.machine import host
from tests.kernels.harness import Compiled
from tests.targets import named

WIDTHS = sorted({8, host().lanes(4)})
KINDS = (SamplePlanesSpec, SamplePixelsSpec)


@functools.cache
def compiled(spec: SamplePlanesSpec | SamplePixelsSpec, lanes: int) -> Compiled:
    return Compiled(build(spec, lanes), host() if lanes == host().lanes(4) else named("haswell"))


def run(
    spec: SamplePlanesSpec | SamplePixelsSpec, x: np.ndarray, coordinates: np.ndarray, factors: np.ndarray, lanes: int
) -> np.ndarray:
    """y [N, C, P]; for pixels x and y lie with their channels innermost."""
    images, channels, *shape = x.shape
    places, axes = coordinates.shape[2], len(shape)
    pixels = isinstance(spec, SamplePixelsSpec)
    lying = np.ascontiguousarray(np.moveaxis(x, 1, -1)) if pixels else x
    y = np.full((images, places + 1, channels) if pixels else (images, channels, places + 1), 99, x.dtype)
    strides = [step // x.itemsize for step in (np.moveaxis(lying, -1, 1) if pixels else x).strides]
    of_y = [step // x.itemsize for step in (y.transpose(0, 2, 1) if pixels else y).strides]
    missing = [0] * (MAX_AXES - axes)
    given = [images, channels, places, *strides[:2], *of_y, axes * places, places, places]
    sizes = spec.complete(spec.given([*given, *shape, *missing, *strides[2:], *missing]))
    buffers = [lying, coordinates, factors, y]
    compiled(spec, lanes)(buffers, sizes, spec.tasks(sizes), spec.scratch_bytes(sizes), pieces=3)
    result = y.transpose(0, 2, 1) if pixels else y
    assert (result[..., places:] == 99).all()
    return result[..., :places]


def coordinates_of(mode: str, outside: str, shape: tuple[int, ...], places: int) -> np.ndarray:
    """Coordinates inside, on edges and, where they may be, far outside."""
    random = np.random.default_rng(places)
    rows = []
    for length in shape:
        row = random.uniform(-2.5, length + 1.5, (2, places))
        row[:, :3] = [0, length - 1, 0.5]
        if outside == "reflection":
            row = np.clip(row, -0.5, length - 0.5)
        elif places > 5:
            row[:, 3:5] = [1e20, -3e9]
        rows.append(np.trunc(row) if mode == "nearest" else row)
    return np.stack(rows, 1)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("outside", OUTSIDES)
@pytest.mark.parametrize("mode", TAPS)
@pytest.mark.parametrize("kind", KINDS)
def test_modes_axes_and_sizes(kind: type, mode: str, outside: str, lanes: int) -> None:
    random = np.random.default_rng(0)
    for shape, channels, places in (((5, 7), 3, 40), ((1, 2), 19, 16), ((6,), 40, 7), ((2, 3, 4), 5, 33)):
        spec = kind(mode, outside, len(shape), element="uint32" if mode == "nearest" else "float32")
        x = random.normal(size=(2, channels, *shape)).astype(np.float32)
        at = coordinates_of(mode, outside, shape, places).astype(np.float32)
        expected = sample(x.astype(np.float64), at.astype(np.float64), mode, outside, aligned=False)
        result = run(spec, x.view(np.uint32) if mode == "nearest" else x, at, at, lanes)
        np.testing.assert_allclose(result.view(np.float32), expected, 2e-5, 2e-5)


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_factors_alignment_and_elements(kind: type, lanes: int) -> None:
    random = np.random.default_rng(1)
    x, factors = random.normal(size=(2, 11, 3, 4)), random.normal(size=(2, 37))
    at = np.clip(coordinates_of("linear", "reflection", (3, 4), 37), 0, 2)
    for dtype, aligned in itertools.product((np.float32, np.float64), (False, True)):
        spec = kind("cubic", "reflection", 2, aligned, np.dtype(dtype).name, True)
        expected = sample(x, at, "cubic", "reflection", aligned=aligned) * factors[:, None]
        result = run(spec, *(array.astype(dtype) for array in (x, at, factors)), lanes)  # type: ignore[call-arg]  # as many as there are
        np.testing.assert_allclose(result, expected, 3e-5, 3e-5)
    whole = np.rint(at).astype(np.float32)
    for dtype in (np.uint8, np.uint16, np.uint64):
        elements = random.integers(0, 200, x.shape).astype(dtype)
        result = run(kind("nearest", "zeros", 2, element=np.dtype(dtype).name), elements, whole, whole, lanes)
        np.testing.assert_array_equal(result, sample(elements, whole, "nearest", "zeros", aligned=False))


def test_nothing_to_do_and_wrong_specs() -> None:
    at = np.zeros((2, 2, 0), np.float32)
    for kind in KINDS:
        run(kind("linear", "zeros", 2), np.zeros((2, 3, 2, 2), np.float32), at, at, host().lanes(4))
        for wrong in (("area", "zeros", 2), ("linear", "wrap", 2), ("linear", "zeros", 4)):
            with pytest.raises(ValueError, match="no kernel"):
                kind(*wrong)
        with pytest.raises(ValueError, match="samples uint8"):
            kind("linear", "zeros", 2, element="uint8")
        with pytest.raises(ValueError, match="not multiplied"):
            kind("nearest", "zeros", 2, element="uint8", weighted=True)
