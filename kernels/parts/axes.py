"""The axes of tensors as loops: strides of dense tensors, and neighbouring axes merged. For specs, without LLVM."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

MAX_RANK = 8
"""Axes that kernels over tensors of any rank are told of."""


def dense(shape: Sequence[int]) -> list[int]:
    """Row-major strides, in elements."""
    return [prod(shape[axis + 1 :]) for axis in range(len(shape))]


def merged(axes: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """(extent, strides…) from the outermost on, without extents of 1; neighbours that all run through as one."""
    result: list[tuple[int, ...]] = []
    for axis in axes:
        if axis[0] == 1:
            continue
        if result and all(above == axis[0] * stride for above, stride in zip(result[-1][1:], axis[1:], strict=True)):
            axis = (result.pop()[0] * axis[0], *axis[1:])
        result.append(axis)
    return result
