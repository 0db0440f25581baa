"""Resampling along one axis: which input elements make an output element of Resize, and with which weights.

Resize works axis by axis. `axis_table` gives for each output position of an axis the input positions that it is made
of; the coordinates are computed in float32, as onnxruntime does, since a rounding error decides at ties of "nearest".
"""

from __future__ import annotations

import math

import numpy as np

from jitonnx.ir.dims import DimLike, ceil_divide, floor_divide, maximum
from jitonnx.support import fork_safety
from jitonnx.support.records import NamedTuple

COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
    "tf_half_pixel_for_nn",  # version 11 only
)
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


class AxisTable(NamedTuple):
    """Has for each output position of one axis the input positions, their weights, and whether it lies outside the
    input."""

    indices: np.ndarray
    """int64 [output, taps], within the input."""
    weights: np.ndarray
    """float64 [output, taps]."""
    outside: np.ndarray | None
    """bool [output]: takes extrapolation_value instead; None: no position does."""


def scaled(length: DimLike, scale: float) -> DimLike:
    """floor(length * scale) for a scale in float32.

    The scale is taken as the simplest fraction that rounds to it, since 0.7 in float32 is a little less than 7 / 10,
    and a tensor of 10 is meant to become one of 7.
    """
    with fork_safety.critical:
        from fractions import Fraction  # with `decimal` 3 ms, of which other models have no use

    fraction = Fraction(scale)
    for limit in (10**power for power in range(8)):
        simple = Fraction(scale).limit_denominator(limit)
        if np.float32(simple.numerator / simple.denominator) == np.float32(scale):
            fraction = simple
            break
    return floor_divide(length * fraction.numerator, fraction.denominator)


def axis_table(  # noqa: PLR0913  (the attributes of Resize, by name)
    length: int,
    output: int,
    scale: float,
    roi: tuple[float, float] | None,
    *,
    mode: str,
    coordinates: str,
    nearest: str,
    cubic_coefficient: float = -0.75,
    exclude_outside: bool = False,
    antialias: bool = False,
    taps: int | None = None,
) -> AxisTable:
    """The table of one axis of `length` input elements and `output` output elements, with the attributes of Resize.

    taps: how many inputs an antialiased output is made of, as `antialias_taps` says; None: what the scale tells.
    """
    x = original_coordinates(coordinates, length, output, scale, roi)
    outside = ((x < 0) | (x > length - 1)) if coordinates == "tf_crop_and_resize" else None
    if mode == "nearest":
        indices = np.clip(_round(x, nearest), 0, length - 1).astype(np.int64)[:, None]
        return AxisTable(indices, np.ones(indices.shape), outside)
    first = np.floor(x)
    shrink = min(scale, 1.0) if antialias else 1.0
    radius = 1 if mode == "linear" else 2
    start = math.floor(-radius / shrink) + 1 if taps is None else 1 - taps // 2
    offsets = np.arange(start, 2 - start)
    distances = np.abs((offsets - (x - first).astype(np.float64)[:, None]) * shrink)
    weights = np.clip(1 - distances, 0, 1) if mode == "linear" else _cubic(distances, cubic_coefficient)
    positions = first.astype(np.int64)[:, None] + offsets
    if antialias:
        weights = weights / weights.sum(axis=1, keepdims=True)
    if exclude_outside:
        weights = np.where((positions >= 0) & (positions < length), weights, 0)
        total = weights.sum(axis=1, keepdims=True)
        weights = weights / np.where(total == 0, 1, total)
    if antialias:
        weights = _gathered_at_ends(positions, weights, length)
    if antialias or (scale == 1 and np.array_equal(x, np.arange(output))):  # an axis that stays is not resampled
        positions, weights = _without_zeros(positions, weights)
    return AxisTable(*clamped(positions, weights, length), outside)


def clamped(positions: np.ndarray, weights: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions [output, taps] within an axis of `length` elements, and their weights: where both of two taps are one
    element each has half of it, as in onnxruntime. Weights 1 and 0 would make NaN of infinity."""
    indices = np.clip(positions, 0, length - 1)
    if weights.shape[1] == 2:
        weights = np.where(indices[:, :1] == indices[:, 1:], weights.dtype.type(0.5), weights)
    return indices, weights


def _gathered_at_ends(positions: np.ndarray, weights: np.ndarray, length: int) -> np.ndarray:
    """Weights [output, taps] where what lies outside the axis is added to its end: of weights of both signs infinity
    would make NaN."""
    result = weights.copy()
    for outside, end in ((positions < 0, 0), (positions >= length, length - 1)):
        at_end = positions == end
        moved = outside & at_end.any(axis=1, keepdims=True)
        result += at_end * (weights * moved).sum(axis=1, keepdims=True)
        result[moved] = 0
    return result


_NEXT_TO_NOTHING = float(np.finfo(np.float32).tiny)
"""A weight that changes no sum, but leaves infinity what it is."""


def _without_zeros(positions: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Taps of which those that weigh nothing lie where the heaviest of their output does: an element that an output is
    not made of does not count, were it infinite."""
    heaviest = np.take_along_axis(positions, weights.argmax(axis=1)[:, None], axis=1)
    nothing = weights == 0
    return np.where(nothing, heaviest, positions), np.where(nothing, _NEXT_TO_NOTHING, weights)


def antialias_taps(mode: str, length: DimLike, output: DimLike) -> DimLike:
    """How many inputs make an output at most where `output` elements are made of `length`, antialiased."""
    radius = 1 if mode == "linear" else 2
    return maximum(2 * ceil_divide(radius * length, output), 2 * radius)


def original_coordinates(
    mode: str, length: int, output: int, scale: float, roi: tuple[float, float] | None
) -> np.ndarray:
    """Places in the input, float32, of all output positions of an axis, by ONNX's coordinate transformations.

    Aligned corners are those of the tensors as they are, of `length` and `output` elements, also where a scale asks for
    a fraction of an element more: so does onnxruntime. ONNX's reference takes the fraction.
    """
    one = np.float32
    x, half, factor = np.arange(output, dtype=one), one(0.5), one(scale)
    if mode == "align_corners":
        return x * one(length - 1) / one(output - 1) if output > 1 else np.zeros_like(x)
    if mode == "asymmetric":
        return x / factor
    if mode == "tf_half_pixel_for_nn":
        return (x + half) / factor
    if mode == "tf_crop_and_resize":
        start, end = map(one, roi or (0.0, 1.0))
        if output <= 1:
            return np.full_like(x, half * (start + end) * one(length - 1))
        return start * one(length - 1) + x * (end - start) * one(length - 1) / one(output - 1)
    if mode == "pytorch_half_pixel" and output <= 1:
        return np.zeros_like(x)
    shift = one(0)
    if mode == "half_pixel_symmetric":
        shift = one(length / 2) * (1 - one(output) / (factor * one(length)))
    return shift + (x + half) / factor - half


_TIE = 1e-6
"""What lies less than that below a half is one to onnxruntime, where halves go up: a quotient by a rounded scale."""


def _round(x: np.ndarray, nearest: str) -> np.ndarray:
    if nearest == "floor":
        lower: np.ndarray = np.floor(x)
        return lower
    if nearest == "ceil":
        upper: np.ndarray = np.ceil(x)
        return upper
    if nearest == "round_prefer_floor":
        return np.ceil(x - np.float32(0.5))
    return np.floor(x.astype(np.float64) + (0.5 + _TIE))


def _cubic(distance: np.ndarray, a: float) -> np.ndarray:
    """Keys' cubic convolution kernel (IEEE 1163711, equation 4) at distances >= 0."""
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0))


def resample(x: np.ndarray, axis: int, table: AxisTable, extrapolation: float) -> np.ndarray:
    """x resampled along one axis: elements taken where there is one tap, else their weighted sums."""
    if table.weights.shape[1] == 1:
        y = np.take(x, table.indices[:, 0], axis)
    else:
        column = (-1, *(1,) * (x.ndim - axis - 1))
        y = np.zeros((*x.shape[:axis], len(table.indices), *x.shape[axis + 1 :]), x.dtype)
        for tap in range(table.weights.shape[1]):
            weights = table.weights[:, tap].astype(x.dtype).reshape(column)
            y += np.take(x, table.indices[:, tap], axis) * weights
    if table.outside is not None:
        y[(slice(None),) * axis + (table.outside,)] = extrapolation
    return y
