"""Pooling kernels against windows spelled out in NumPy."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import ml_dtypes  # noqa: F401  (NumPy knows bfloat16 by its name then)
import numpy as np
import pytest

from jitonnx.emit import types
from jitonnx.emit.simd import convert
from jitonnx.emit.ssa import at_least
from jitonnx.kernels.pooling.kernel import build
from jitonnx.kernels.pooling.spec import PoolSpec, choose
from jitonnx.target.machine import host
from tests.kernels.harness import Compiled
from tests.kernels.layouts import pool_sizes
from tests.targets import named


class Case(NamedTuple):
    """x's extents (images, depth, height, width), and the window, axis by axis."""

    extents: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...] = (1, 1, 1)
    dilations: tuple[int, ...] = (1, 1, 1)
    before: tuple[int, ...] = (0, 0, 0)
    after: tuple[int, ...] = (0, 0, 0)
    ceil: bool = False

    @property
    def output(self) -> tuple[int, ...]:
        result = []
        for extent, k, s, d, b, a in zip(self.extents[1:], *self[1:6], strict=True):
            room = extent + b + a - d * (k - 1) - 1
            size = -(-room // s) + 1 if self.ceil else room // s + 1
            result.append(size - (self.ceil and (size - 1) * s >= extent + b))
        return tuple(result)


CASES = [
    Case((2, 1, 7, 9), (1, 2, 2), (1, 2, 2)),
    Case((1, 1, 11, 8), (1, 3, 3), (1, 2, 2), before=(0, 1, 1), after=(0, 1, 1)),
    Case((1, 1, 10, 13), (1, 3, 2), (1, 2, 3), before=(0, 1, 0), after=(0, 0, 1), ceil=True),
    Case((1, 1, 9, 12), (1, 3, 2), (1, 1, 2), (1, 2, 3), before=(0, 2, 1), after=(0, 1, 2)),
    Case((2, 5, 4, 6), (3, 2, 3), (2, 1, 2), (1, 2, 1), before=(1, 1, 0), after=(1, 0, 2), ceil=True),
    Case((1, 1, 1, 5), (1, 1, 1)),
    Case((1, 1, 5, 9), (1, 3, 3), dilations=(1, 1, 2), before=(0, 1, 2), after=(0, 1, 2)),
    Case((1, 1, 4, 6), (1, 2, 5), before=(0, 0, 4), after=(0, 1, 2)),
]


class Problem:
    """Operands of one call: x with gaps between pixels and rows, y likewise, the sizes, and the taps of each output."""

    def __init__(self, case: Case, channels: int, dtype: str, storage_order: int = 0, gap: int = 3) -> None:
        random = np.random.default_rng(channels)
        images, depth, height, width = case.extents
        self.case, self.channels = case, channels
        whole = random.normal(size=(images, depth, height + 1, width, channels + gap)) * 50
        self.wide_x = whole.astype(dtype)
        self.x = self.wide_x[:, :, :height, :, :channels]
        self.wide_y = np.full((images, *case.output, channels + gap), 77, dtype)
        self.wide_indices = np.full(self.wide_y.shape, -7, np.int64)
        spatial = depth * height * width
        index = (spatial, 1, depth, depth * height) if storage_order else (spatial, height * width, width, 1)
        window = (case.kernel, case.strides, case.dilations, case.before, case.after)
        steps = self._steps(self.wide_x), self._steps(self.wide_y)
        self.sizes = pool_sizes((*case.extents, channels), case.output, *steps, window, (spatial * channels, *index))
        self.index = index

    @staticmethod
    def _steps(array: np.ndarray) -> list[int]:
        return [step // array.itemsize for step in array.strides[:4]]

    def run(self, compiled: Compiled, spec: PoolSpec, pieces: int = 3) -> tuple[np.ndarray, np.ndarray]:
        buffers = [self.wide_x, self.wide_y, self.wide_indices]
        compiled(buffers, self.sizes, spec.tasks(self.sizes), pieces=pieces)
        assert (self.wide_y[..., self.channels :] == 77).all()
        return self.wide_y[..., : self.channels], self.wide_indices[..., : self.channels]

    def windows(self) -> Any:
        """(output position, values [taps, channels] in row-major order, coordinates of the taps, taps on padded x)."""
        case = self.case
        for image, *out in itertools.product(range(case.extents[0]), *map(range, case.output)):
            starts = [o * s - b for o, s, b in zip(out, case.strides, case.before, strict=True)]
            coordinates, padded = [], 0
            for tap in itertools.product(*map(range, case.kernel)):
                at = [start + t * d for start, t, d in zip(starts, tap, case.dilations, strict=True)]
                extents = case.extents[1:]
                padded += all(-b <= a < e + f for a, b, e, f in zip(at, case.before, extents, case.after, strict=True))
                if all(0 <= a < e for a, e in zip(at, extents, strict=True)):
                    coordinates.append(tuple(at))
            values = np.array([self.x[(image, *at)] for at in coordinates]).reshape(-1, self.channels)
            yield (image, *out), values, coordinates, padded


COMPILED: dict[Any, Compiled] = {}


def compiled(spec: PoolSpec, lanes: int, epilogue: Any = None) -> Compiled:
    """A kernel, compiled once for the tests of this module."""
    key = (spec, lanes, epilogue)
    if key not in COMPILED:
        target = host() if lanes == host().lanes(4) else named("haswell")
        COMPILED[key] = Compiled(build(spec, lanes, epilogue), target, spec.prescheduled)
    return COMPILED[key]


WIDTHS = sorted({8, host().lanes(4)})


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "int8", "uint8"])
@pytest.mark.parametrize("case", CASES)
def test_maximum(case: Case, dtype: str, lanes: int) -> None:
    spec = choose("max", dtype)
    for channels, gap in itertools.product((1, 7, 16, 63, 64, 65, 80), (0, 3)):
        problem = Problem(case, channels, dtype, gap=gap)
        y, _ = problem.run(compiled(spec, lanes), spec)
        for at, values, _, _ in problem.windows():
            np.testing.assert_array_equal(y[at], values.max(axis=0))


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("storage_order", [0, 1])
@pytest.mark.parametrize("case", CASES)
def test_maximum_with_indices(case: Case, storage_order: int, lanes: int) -> None:
    spec = choose("max", with_indices=True)
    for channels in (3, 16, 37):
        problem = Problem(case, channels, "float32", storage_order)
        problem.wide_x[...] = np.rint(problem.wide_x / 40)  # equal values: the first of them counts
        y, indices = problem.run(compiled(spec, lanes), spec)
        spatial, plane, row, pixel = problem.index
        for at, values, coordinates, _ in problem.windows():
            np.testing.assert_array_equal(y[at], values.max(axis=0))
            for channel, best in enumerate(values.argmax(axis=0)):
                z, h, w = coordinates[best]
                expected = (at[0] * channels + channel) * spatial + z * plane + h * row + w * pixel
                assert indices[at][channel] == expected


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize("case", CASES)
def test_average(case: Case, dtype: str, include: bool, lanes: int) -> None:
    spec = choose("average", dtype, count_include_pad=include)
    tolerance = {"float16": 1e-3, "float32": 1e-6, "float64": 1e-14}[dtype]
    for channels, gap in itertools.product((5, 64, 70), (0, 3)):
        problem = Problem(case, channels, dtype, gap=gap)
        y, _ = problem.run(compiled(spec, lanes), spec)
        for at, values, _, padded in problem.windows():
            expected = values.astype(float).sum(axis=0) / (padded if include else len(values))
            np.testing.assert_allclose(y[at], expected, tolerance, tolerance * 50)


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("power", [1, 2, 3])
@pytest.mark.parametrize("case", CASES[:3])
def test_lp(case: Case, power: int, lanes: int) -> None:
    spec = choose("lp", power=power)
    problem = Problem(case, 21, "float32")
    y, _ = problem.run(compiled(spec, lanes), spec)
    for at, values, _, _ in problem.windows():
        expected = (np.abs(values.astype(float)) ** power).sum(axis=0) ** (1 / power)
        np.testing.assert_allclose(y[at], expected, 2e-6)


@pytest.mark.parametrize("lanes", WIDTHS)
def test_epilogue_is_given_each_element_with_its_place(lanes: int) -> None:
    spec = choose("average")

    def epilogue(code, x, batch, row, column, active):
        return at_least(x, 0.0) + convert(batch * 10000 + row * 100 + column, types.float32).splat(x.lanes)

    problem = Problem(CASES[3], 70, "float32")
    plain, _ = problem.run(compiled(spec, lanes), spec)
    plain = plain.copy()
    y, _ = problem.run(compiled(spec, lanes, epilogue), spec)
    images, _, height, width, channels = plain.shape
    image, row, column = np.ogrid[:images, : height * width, : channels // lanes + 1]
    place = (image * 10000 + row * 100 + column * lanes).reshape(images, 1, height, width, -1)
    expected = np.maximum(plain, 0) + np.repeat(place, lanes, axis=-1)[..., :channels].astype(np.float32)
    np.testing.assert_array_equal(y, expected)


def test_nothing_to_do() -> None:
    spec = choose("max")
    for extents, channels in (((0, 1, 4, 4), 3), ((1, 1, 4, 4), 0)):
        problem = Problem(Case(extents, (1, 2, 2)), channels, "float32")
        problem.run(compiled(spec, host().lanes(4)), spec)


@pytest.mark.parametrize("with_indices", [False, True])
def test_nan_stays_if_first(with_indices: bool) -> None:
    spec, case = choose("max", with_indices=with_indices), Case((1, 1, 2, 3), (1, 2, 3))
    problem = Problem(case, 6, "float32")
    for tap in range(6):
        problem.x[0, 0, tap // 3, tap % 3, tap] = np.nan
    y, _ = problem.run(compiled(spec, host().lanes(4)), spec)
    expected = np.nanmax(problem.x, axis=(0, 1, 2, 3))
    expected[0] = np.nan
    np.testing.assert_array_equal(y.ravel(), expected)


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_window_in_the_padding(dtype: str) -> None:
    spec, case = choose("max", dtype), Case((1, 1, 2, 2), (1, 2, 2), (1, 2, 2), before=(0, 2, 2), after=(0, 2, 2))
    problem = Problem(case, 18, dtype)
    y, _ = problem.run(compiled(spec, host().lanes(4)), spec)
    lowest = -np.inf if dtype == "float32" else 0
    np.testing.assert_array_equal(y[0, 0, 1, 1], problem.x.max(axis=(0, 1, 2, 3)))
    assert (y[0, 0, 0] == lowest).all() and (y[0, 0, :, 2] == lowest).all()


def test_equal_code_has_equal_specs_and_wrong_ones_are_refused() -> None:
    assert choose("max", count_include_pad=True, power=3) == choose("max")
    with pytest.raises(ValueError, match="int8"):
        choose("average", "int8")
    with pytest.raises(ValueError, match="at least 1"):
        choose("lp", power=0)
    with pytest.raises(ValueError, match="epilogue"):
        build(choose("max", "int8"), 16, epilogue=object())
