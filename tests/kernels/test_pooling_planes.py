"""The pooling kernel for planes beside the channels-last one, whose results tests/kernels/test_pooling.py settles."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

from jitonnx.emit import types
from jitonnx.emit.arguments import by_name
from jitonnx.emit.simd import convert
from jitonnx.emit.ssa import at_least
from jitonnx.kernels.pooling.kernel import build
from jitonnx.kernels.pooling.spec import PoolPlanesSizes, PoolPlanesSpec, PoolSpec, choose, choose_planes
from jitonnx.target.machine import host
from tests.kernels.guarded import guarded
from tests.kernels.harness import Compiled
from tests.kernels.layouts import planes_to_planes, pool_sizes
from tests.targets import named

WIDTHS = sorted({8, host().lanes(4)})


class Case(NamedTuple):
    """x [images, channels, height, width], and the window: height, width."""

    shape: tuple[int, int, int, int]
    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    before: tuple[int, int] = (0, 0)
    after: tuple[int, int] = (0, 0)
    ceil: bool = False

    @property
    def output(self) -> tuple[int, int]:
        result = []
        for extent, k, s, b, a in zip(self.shape[2:], *self[1:5], strict=True):
            room = extent + b + a - k
            size = -(-room // s) + 1 if self.ceil else room // s + 1
            result.append(size - (self.ceil and (size - 1) * s >= extent + b))
        return result[0], result[1]


CASES = [
    Case((2, 3, 8, 34), (2, 2), (2, 2)),
    Case((1, 2, 9, 33), (3, 3), (2, 2), (1, 1), (1, 1)),
    Case((1, 5, 35, 35), (3, 3), (1, 1), (1, 1), (1, 1)),
    Case((1, 2, 6, 50), (3, 3)),
    Case((1, 1, 4, 18), (2, 4), (1, 1), (0, 3), (1, 0)),
    Case((2, 1, 10, 31), (3, 2), (2, 2), (1, 0), (0, 1), ceil=True),
    Case((1, 3, 13, 13), (5, 5), (1, 1), (2, 2), (2, 2)),
    Case((1, 2, 13, 14), (7, 6), (3, 2), (6, 5), (6, 5)),
    Case((1, 2, 11, 70), (3, 3), (3, 3), (0, 1), (2, 1)),
    Case((1, 2, 7, 100), (4, 4), (1, 4), (1, 0), (1, 0)),
    Case((1, 2, 13, 70), (4, 4), (2, 2), (1, 1), (2, 2)),
    Case((3, 2, 1, 40), (1, 2), (1, 2)),
    Case((1, 1, 1, 1), (1, 1)),
    Case((1, 2, 120, 150), (3, 3), (2, 2), (1, 1), (0, 0)),
]

COMPILED: dict[Any, Compiled] = {}


def compiled(spec: PoolPlanesSpec | PoolSpec, lanes: int, epilogue: Any = None) -> Compiled:
    """A kernel, compiled once for the tests of this module."""
    key = (spec, lanes, epilogue)
    if key not in COMPILED:
        target = host() if lanes == host().lanes(4) else named("haswell")
        COMPILED[key] = Compiled(build(spec, lanes, epilogue), target, spec.prescheduled)
    return COMPILED[key]


def example(case: Case, gap: int) -> tuple[np.ndarray, np.ndarray]:
    """x as a part of a larger array, and y within one of 77s, with `gap` elements between rows."""
    images, channels, height, width = case.shape
    wide = np.random.default_rng(width).normal(size=(images, channels, height + min(gap, 1), width + gap)) * 50
    x = wide.astype(np.float32)[:, :, :height, :width]
    y = np.full((images, channels, case.output[0], case.output[1] + gap), 77, np.float32)
    return x, y


def given(case: Case, x_steps: Sequence[int], y_steps: Sequence[int]) -> PoolPlanesSizes:
    """The sizes of a call. steps: by image, channel and row."""
    return PoolPlanesSizes(
        **planes_to_planes(case.shape, x_steps, case.output, y_steps),
        **by_name("kernel_height kernel_width", case.kernel),
        stride_height=case.strides[0],
        **by_name("pad_height pad_width", case.before),
        **by_name("pad_height_after pad_width_after", case.after),
    )


def run(case: Case, spec: PoolPlanesSpec, x: np.ndarray, y: np.ndarray, lanes: int, epilogue: Any = None) -> np.ndarray:
    """y's elements after the call; no others are touched, and nothing behind the end of x is read."""
    end = sum((extent - 1) * step for extent, step in zip(x.shape, x.strides, strict=True)) // 4 + 1
    exact = guarded(np.lib.stride_tricks.as_strided(x, (end,), (4,)))
    of_x, of_y = ([step // 4 for step in array.strides[:3]] for array in (x, y))
    sizes = spec.complete(given(case, of_x, of_y))
    assert len(sizes) == spec.size_count
    call = compiled(spec, lanes, epilogue)
    call([exact, y], sizes, spec.tasks(sizes), spec.scratch_bytes(sizes), pieces=3)
    assert (y[..., case.output[1] :] == 77).all()
    return y[..., : case.output[1]]


def channels_last(case: Case, spec: PoolSpec, x: np.ndarray) -> np.ndarray:
    """What the channels-last kernel makes of x."""
    source = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    images, channels, height, width = case.shape
    target = np.empty((images, *case.output, channels), np.float32)
    of_x, of_y = ([step // 4 for step in (a.strides[0], 0, a.strides[1], a.strides[2])] for a in (source, target))
    window = ((1, *case.kernel), (1, *case.strides), (1, 1, 1), (0, *case.before), (0, *case.after))
    sizes = pool_sizes((images, 1, height, width, channels), (1, *case.output), of_x, of_y, window)
    compiled(spec, host().lanes(4))([source, target, target], sizes, spec.tasks(sizes))
    return target.transpose(0, 3, 1, 2)


KINDS = [("max", False, 2), ("average", False, 2), ("average", True, 2), ("lp", False, 2), ("lp", False, 3)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES)
def test_as_channels_last(case: Case, kind: tuple[str, bool, int], lanes: int) -> None:
    name, include, power = kind
    spec = choose_planes(name, case.kernel, case.strides, count_include_pad=include, power=power)
    for gap in (0, 5):
        x, y = example(case, gap)
        expected = channels_last(case, choose(name, count_include_pad=include, power=power), x)
        if name != "max":  # sums are of another order
            np.testing.assert_allclose(run(case, spec, x, y, lanes), expected, 1e-6, 1e-5)
        else:
            np.testing.assert_array_equal(run(case, spec, x, y, lanes), expected)


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("case", CASES)
def test_special_numbers(case: Case, lanes: int) -> None:
    spec, (x, y) = choose_planes("max", case.kernel, case.strides), example(case, 0)
    special = np.random.default_rng(1).choice([np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0], x.shape, p=[0.3, *[0.14] * 5])
    x = special.astype(np.float32)
    np.testing.assert_array_equal(run(case, spec, x, y, lanes), channels_last(case, choose("max"), x))
    spec = choose_planes("average", case.kernel, case.strides)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(run(case, spec, x, y, lanes), channels_last(case, choose("average"), x), 1e-6)


@pytest.mark.parametrize("lanes", WIDTHS)
def test_epilogue_is_given_each_element_with_its_place(lanes: int) -> None:
    def epilogue(code, x, batch, row, column, active):
        return at_least(x, 0.0) + convert(batch * 10000 + row * 1000 + column, types.float32).splat(x.lanes)

    for case in (CASES[0], CASES[2]):
        spec, (x, y) = choose_planes("max", case.kernel, case.strides), example(case, 0)
        plain = run(case, spec, x, y.copy(), lanes)
        given = run(case, spec, x, y, lanes, epilogue)
        pixels = np.arange(np.prod(case.output)).reshape(case.output)
        image, channel = np.ogrid[: case.shape[0], : case.shape[1]]
        starts = pixels[:, ::lanes].repeat(lanes, axis=1)[:, : case.output[1]]
        place = (image * 10000 + channel * 1000)[..., None, None] + starts
        np.testing.assert_array_equal(given, np.maximum(plain, 0) + place.astype(np.float32))


def test_nothing_to_do() -> None:
    spec = choose_planes("max", (2, 2), (2, 2))
    for shape in ((0, 1, 4, 4), (1, 0, 4, 4)):
        case = Case(shape, (2, 2), (2, 2))  # type: ignore[arg-type]
        sizes = spec.complete(given(case, (0, 0, 0), (0, 0, 0)))
        assert spec.tasks(sizes) == 0


def test_equal_code_has_equal_specs() -> None:
    assert choose_planes("max", (3, 3), (2, 2), count_include_pad=True, power=3) == choose_planes("max", (3, 3), (2, 2))
    assert choose_planes("max", (7, 9), (3, 1)) == choose_planes("max", (5, 5), (1, 1))
    for kernel, strides in itertools.product([(3, 3), (1, 3)], [(1, 1), (2, 1)]):
        spec = choose_planes("lp", kernel, strides)
        assert (spec.rows > 1) == (kernel[0] > 1 and strides[0] == 1)
