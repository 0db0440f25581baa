"""Images between their pixels: what GridSample and DeformConv read, on NumPy.

An image is read at coordinates, in elements along each spatial axis. Each axis contributes taps: positions and their
weights, that of a position outside the image being left to `outside`. Axes are combined one after the other.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from jitonnx.support.records import NamedTuple

MODES = {"nearest": 1, "linear": 2, "cubic": 4}
"""How an element between others is made, with the taps along each axis."""
OUTSIDES = ("zeros", "border", "reflection")
CUBIC = -0.75
"""The coefficient of Keys' cubic convolution (IEEE 1163711, equation 4)."""


class Taps(NamedTuple):
    """What one coordinate reads along an axis, in the shape of the coordinates."""

    position: np.ndarray
    """The position lies within the axis."""
    inside: np.ndarray
    """Whether it is read at all."""
    weight: np.ndarray


def sample(x: np.ndarray, coordinates: np.ndarray, mode: str, outside: str, *, aligned: bool) -> np.ndarray:
    """x [N, C, spatial...] at coordinates [N, axes, P]: [N, C, P], of x's type, a float unless the mode is nearest.

    aligned: elements are reflected at the centres of the outermost ones, not at their edges. Coordinates of the modes
    nearest are whole numbers already, those that reflect lie within what they are reflected at.
    """
    images, channels, *shape = x.shape
    places = coordinates.shape[2]
    nothing: Any = "" if x.dtype == object else np.zeros((), x.dtype)
    result = np.full((images, channels, places), nothing, x.dtype)
    if 0 in result.shape or 0 in shape:
        return result
    axes = [
        axis_taps(coordinates[:, axis], length, mode, outside, aligned=aligned) for axis, length in enumerate(shape)
    ]
    image = np.arange(images)[:, None, None]
    channel = np.arange(channels)[None, :, None]
    for taps in itertools.product(*axes):
        values = x[(image, channel, *(tap.position[:, None] for tap in taps))]
        inside = np.logical_and.reduce([tap.inside for tap in taps])[:, None]
        if mode == "nearest":
            result = np.where(inside, values, nothing)
        else:
            weight = np.ones((), x.dtype)
            for tap in taps:
                weight = weight * tap.weight
            result += np.where(inside, values * weight[:, None], nothing)
    return result


def axis_taps(x: np.ndarray, length: int, mode: str, outside: str, *, aligned: bool) -> list[Taps]:
    """The taps of coordinates x on an axis of `length` elements."""
    whole = x if mode == "nearest" else np.floor(x)
    first = np.clip(np.nan_to_num(whole), -4, length + 4).astype(np.int64)
    taps = []
    for offset, weight in _weights(x - whole, mode):
        position = first + offset
        inside = np.ones(position.shape, bool)
        if outside == "zeros":
            inside = (position >= 0) & (position < length)
        elif outside == "reflection":
            shift = 0 if aligned else 1
            for _ in range(2):
                position = np.where(position < 0, -shift - position, position)
                position = np.where(position > length - 1, 2 * (length - 1) + shift - position, position)
        taps.append(Taps(np.clip(position, 0, length - 1), inside, weight))
    return taps


def _weights(t: np.ndarray, mode: str) -> list[tuple[int, np.ndarray]]:
    """Offsets and weights of the taps around a coordinate that is t behind the element in front of it."""
    if mode == "nearest":
        return [(0, np.ones_like(t))]
    if mode == "linear":
        return [(0, 1 - t), (1, t)]
    return [(offset, keys(np.abs(t - offset))) for offset in (-1, 0, 1, 2)]


def keys(distance: np.ndarray) -> np.ndarray:
    """The weight of an element at a distance of at most 2."""
    a = CUBIC
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    factors: np.ndarray = np.where(distance <= 1, near, far)
    return factors
