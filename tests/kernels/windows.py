"""Convolutions on NumPy, to compare kernels of products of windows with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def convolved(
    x: np.ndarray,
    w: np.ndarray,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    out: Sequence[int],
) -> np.ndarray:
    """[images, out pixels, outputs] of x [images, height, width, channels] and w [outputs, height, width, channels].

    Sums are of the type of x and w, and padding is 0. pads: before, by height and width; out: those of the result.
    """
    (top, left), (height, width) = pads, out
    big = np.zeros((x.shape[0], 64 + x.shape[1], 64 + x.shape[2], x.shape[3]), x.dtype)
    big[:, top : top + x.shape[1], left : left + x.shape[2]] = x
    y = np.zeros((x.shape[0], height, width, w.shape[0]), x.dtype)
    for i in range(w.shape[1]):
        for j in range(w.shape[2]):
            a = big[:, i * dilations[0] :: strides[0], j * dilations[1] :: strides[1]][:, :height, :width]
            y += a @ w[:, i, j].T
    return y.reshape(x.shape[0], -1, w.shape[0])
