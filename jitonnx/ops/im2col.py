"""Convolutions as products of unfolded images: where the kernels for windows do not serve.

These take constant weights, of float, over one to three axes (transposed: one or two). What is here takes weights that
only a run tells, every element type that products have, and any number of axes, at the price of a copy of the image for
each tap.
"""

from __future__ import annotations

import itertools

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dims import DimLike, integers, product
from jitonnx.ir.graph import Value
from jitonnx.ir.types import TensorType
from jitonnx.ops.windows import Windows, extent


def convolve_unfolded(to: Lowering, x: Value, w: Value, windows: Windows, groups: int) -> Value:
    """The convolution of x [N, C, spatial...] with w [M, C / groups, kernel...], whose kernel's size is known."""
    images, channels = x.shape[:2]
    outputs, own, rank = w.shape[0], w.shape[1], len(windows.output)
    kernel, pixels = integers(w.shape[2:]), product(windows.output)
    padded = _padded(to, x, (0, 0, *windows.before), (0, 0, *windows.after))
    reads = []
    for tap in itertools.product(*map(range, kernel)):
        starts = (0, 0, *(t * d for t, d in zip(tap, windows.dilations, strict=True)))
        read = to.slice(padded, starts, (1, 1, *windows.strides), (images, channels, *windows.output))
        reads.append(to.reshape(read, (images, groups, own, pixels)))
    im2col = reads[0] if len(reads) == 1 else to.concat(reads, 2)
    by_tap = to.transpose(w, (0, *range(2, 2 + rank), 1))
    matrices = to.reshape(by_tap, (1, groups, outputs // groups, len(reads) * own))
    return to.reshape(to.matmul(matrices, im2col), (images, outputs, *windows.output))


def convolve_transposed_unfolded(to: Lowering, x: Value, w: Value, windows: Windows, groups: int) -> Value:
    """The transposed convolution of x with w [C, M / groups, kernel...], whose kernel's size is known."""
    kernel = integers(w.shape[2:])
    apart = kernel == windows.strides and all(dilation == 1 for dilation in windows.dilations)
    if apart and all(
        before == 0 and out == size * step
        for before, out, size, step in zip(windows.before, windows.output, x.shape[2:], windows.strides, strict=True)
    ):
        return _blocks(to, x, w, kernel, groups)
    spread = x
    for axis, step in enumerate(windows.strides, 2):
        spread = _spread(to, spread, axis, step)
    reach = [cover - 1 for cover in extent(kernel, windows.dilations)]
    before = tuple(most - cut for most, cut in zip(reach, windows.before, strict=True))
    after = tuple(
        out + most - first - size
        for out, most, first, size in zip(windows.output, reach, before, spread.shape[2:], strict=True)
    )
    plain = windows._replace(strides=(1,) * len(kernel), before=before, after=after)
    return convolve_unfolded(to, spread, _turned(to, w, kernel, groups), plain, groups)


def _blocks(to: Lowering, x: Value, w: Value, kernel: tuple[int, ...], groups: int) -> Value:
    """Each element of x becomes a block of its own, of the kernel's size."""
    images, channels, *size = x.shape
    own, each, rank = channels // groups, w.shape[1], len(kernel)
    pixels, taps = product(size), product(kernel)
    matrices = to.transpose(to.reshape(w, (1, groups, own, each * taps)), (0, 1, 3, 2))
    made = to.matmul(matrices, to.reshape(x, (images, groups, own, pixels)))
    apart = to.reshape(made, (images, groups * each, *kernel, *size))
    order = [axis for n in range(rank) for axis in (2 + rank + n, 2 + n)]
    sizes = [length * step for length, step in zip(size, kernel, strict=True)]
    return to.reshape(to.transpose(apart, (0, 1, *order)), (images, groups * each, *sizes))


def _spread(to: Lowering, x: Value, axis: int, step: int) -> Value:
    """x with step - 1 zeros behind each element along an axis."""
    if step == 1:
        return x
    shape, rank = list(x.shape), len(x.shape) + 1
    apart = to.reshape(x, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
    zeros = tuple(step - 1 if place == axis + 1 else 0 for place in range(rank))
    shape[axis] = shape[axis] * step
    return to.reshape(_padded(to, apart, (0,) * rank, zeros), shape)


def _turned(to: Lowering, w: Value, kernel: tuple[int, ...], groups: int) -> Value:
    """Weights [C, M / groups, kernel...] of a transposed convolution as those of one: [M, C / groups, kernel...]."""
    channels, each, rank = w.shape[0], w.shape[1], len(kernel)
    starts = (0, 0, *(size - 1 for size in kernel))
    backwards = to.slice(w, starts, (1, 1, *(-1,) * rank), w.shape) if any(n > 1 for n in kernel) else w
    by_group = to.reshape(backwards, (groups, channels // groups, each, *kernel))
    turned = to.transpose(by_group, (0, 2, 1, *range(3, 3 + rank)))
    return to.reshape(turned, (groups * each, channels // groups, *kernel))


def _padded(to: Lowering, x: Value, before: tuple[DimLike, ...], after: tuple[DimLike, ...]) -> Value:
    """x with zeros around it; or, for what is negative, with its edges cut off."""
    if all(size == 0 for size in (*before, *after)):
        return x
    sizes = tuple(a + size + b for a, size, b in zip(before, x.shape, after, strict=True))
    return to.emit(c.Pad(before, after, "constant"), (x,), TensorType(x.dtype, sizes))
