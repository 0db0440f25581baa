"""What exported models call: computations as NumPy does them, each a function of its operands and fields.

A package gets the definitions that it calls and what these call (`copied`), those of other modules, too; so what is
here knows NumPy and the standard library alone, and of jitonnx only functions that do so themselves.

Images are [N, C, spatial...]; what is said of computations in `jitonnx.ir.computation.computations` holds here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jitonnx.ir.computation.resampling import axis_table, resample
from jitonnx.ir.computation.sampling import sample
from jitonnx.ops.onnx.convolution import convolve, convolve_transposed
from jitonnx.ops.onnx.cumulative import cumulate
from jitonnx.ops.onnx.gather import gather_elements, gather_nd
from jitonnx.ops.onnx.linear_attention import linear_attention
from jitonnx.ops.onnx.normalization import group_normalize, local_response_normalize
from jitonnx.ops.onnx.padding import pad
from jitonnx.ops.onnx.pooling import average_pool, lp_pool, max_pool
from jitonnx.ops.onnx.recurrent import recurrent
from jitonnx.ops.onnx.reduction import arg_reduce, reduced
from jitonnx.ops.onnx.reverse_sequence import reverse_sequence
from jitonnx.ops.onnx.scatter import scatter_elements, scatter_nd
from jitonnx.ops.onnx.selection import top_k
from jitonnx.ops.onnx.softmax import softmax
from jitonnx.ops.windows import Windows, fold

EVALUATIONS = (
    *(arg_reduce, average_pool, cumulate, fold, gather_elements, gather_nd, group_normalize, linear_attention),
    *(local_response_normalize, lp_pool, max_pool, pad, recurrent, reverse_sequence, scatter_elements, scatter_nd),
    *(softmax, top_k),
)
"""What evaluates operators, too."""

# ---------------------------------------------------------------- inputs, outputs, weights


def load_weight(folder: Any, name: str) -> np.ndarray:
    """A weight, mapped from its file: it takes memory when it is read."""
    return np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r"))


def take_input(name: str, given: Any, dtype: Any, shape: tuple[int | str, ...], sizes: dict[str, int]) -> np.ndarray:
    """An input as an array of its type and shape, in the machine's order of bytes.

    shape: numbers, and names of sizes, which are put into `sizes` and have to be the same for all inputs.
    ValueError says what does not fit.
    """
    array = np.asarray(given)
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype != dtype:
        raise ValueError(f"input {name!r} is of {array.dtype}, but the model takes {np.dtype(dtype)}")
    fits = array.ndim == len(shape) and all(
        size == (sizes.setdefault(wanted, size) if isinstance(wanted, str) else wanted)
        for size, wanted in zip(array.shape, shape, strict=True)
    )
    if not fits:
        known = {wanted: sizes[wanted] for wanted in shape if isinstance(wanted, str) and wanted in sizes}
        where = f", with {known} as told by the inputs so far" if known else ""
        wanted = f"({', '.join(map(str, shape))})"
        raise ValueError(f"input {name!r} has the shape {array.shape}, but the model takes {wanted}{where}")
    return array


def require(holds: bool, text: str) -> None:
    """ValueError with the text where sizes are not as the package needs them."""
    if not holds:
        raise ValueError(text)


def owned(array: np.ndarray) -> np.ndarray:
    """A result as an array of its own, row-major: results may be views of inputs and weights."""
    return np.array(array, order="C")


def check(condition: np.ndarray, text: str) -> None:
    """ValueError with the text where the condition holds anywhere."""
    if condition.any():
        raise ValueError(text)


# ---------------------------------------------------------------- views and data movement


def strided(x: np.ndarray, starts: Sequence[int], steps: Sequence[int], shape: Sequence[int]) -> np.ndarray:
    """Elements starts[a] + i * steps[a] of each axis a, as a view."""
    places = []
    for start, step, size in zip(starts, steps, shape, strict=True):
        stop = start + step * size
        places.append(slice(start, stop if stop >= 0 else None, step) if size else slice(0, 0))
    return x[tuple(places)]


def bit_cast(x: np.ndarray, dtype: Any) -> np.ndarray:
    """The bits read as another type of as many."""
    return x.view(dtype)


def cache_update(past: np.ndarray | None, new: np.ndarray, start: np.ndarray, *, rows: int) -> np.ndarray:
    """past [B, H, C, D] with new [B, H, S, D] in its rows from start[b] on, as [B, H, rows, D]."""
    batch, heads, count, depth = new.shape
    y = np.zeros((batch, heads, rows, depth), new.dtype)
    if past is not None:
        y[:, :, : past.shape[2]] = past
    for b, first in enumerate(start.tolist()):
        y[b, :, first : first + count] = new[b]
    return y


# ---------------------------------------------------------------- reductions and normalisations


def reduce(x: np.ndarray, *, kind: str, axes: tuple[int, ...], keepdims: bool, wide: bool = False) -> np.ndarray:
    """x reduced over axes. Of int8 and uint8 it is int32, or int64 if `wide`; means of integers are cut off."""
    x = x.astype(np.int64 if wide else np.int32) if x.dtype.itemsize == 1 else x
    return np.asarray(reduced(x, kind=kind, axes=axes, keepdims=keepdims), x.dtype)


def normalize(
    x: np.ndarray,
    scale: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    *,
    kind: str,
    axis: int,
    epsilon: float,
) -> np.ndarray:
    """Layer or root-mean-square normalisation over the axes from `axis` on."""
    axes = tuple(range(axis, x.ndim))
    if kind == "layer":
        x = x - x.mean(axis=axes, keepdims=True)
    y = x / np.sqrt((x * x).mean(axis=axes, keepdims=True) + x.dtype.type(epsilon))
    y = y if scale is None else y * scale
    return y if bias is None else y + bias


# ---------------------------------------------------------------- products


def determinant(x: np.ndarray) -> np.ndarray:
    """The determinants of matrices."""
    return np.asarray(np.linalg.det(x), x.dtype)


def reduce_segments(x: np.ndarray, offsets: np.ndarray, *, kind: str) -> np.ndarray:
    """Rows offsets[i] to offsets[i + 1] of x, reduced to row i; zeros of no rows."""
    y = np.zeros((len(offsets) - 1, *x.shape[1:]), x.dtype)
    for row, first, end in zip(y, offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        if first < end:
            row[...] = getattr(x[first:end], kind)(axis=0)
    return y


def _whole_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product of matrices of small whole numbers, which float64 holds, as int32."""
    return np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.int32)


def integer_product(
    a: np.ndarray, b: np.ndarray, a_zero: np.ndarray | None = None, b_zero: np.ndarray | None = None
) -> np.ndarray:
    """(a - a_zero) @ (b - b_zero) of bytes, in int32."""
    a, b = (
        x.astype(np.int32) - (0 if zero is None else zero.astype(np.int32)) for x, zero in ((a, a_zero), (b, b_zero))
    )
    return _whole_product(a, b)


def nbits_product(
    a: np.ndarray, q: np.ndarray, scales: np.ndarray, zeros: np.ndarray | None = None, *, bits: int, block: int
) -> np.ndarray:
    """a @ wᵀ with weights of few bits, which lie in bytes, the first in the lowest bits, and are scaled by blocks."""

    def unpacked(x: np.ndarray) -> np.ndarray:
        parts = [(x >> shift) & ((1 << bits) - 1) for shift in range(0, 8, bits)]
        return np.stack(parts, axis=-1).reshape(*x.shape[:-1], x.shape[-1] * len(parts))

    rows, blocks = q.shape[:2]
    offset: Any = np.float32(1 << (bits - 1))
    if zeros is not None:
        offset = zeros.reshape(rows, -1) if zeros.dtype.kind == "f" else unpacked(zeros.reshape(rows, -1))
        offset = offset[:, :blocks, None].astype(np.float32)
    weights = (unpacked(q).astype(np.float32) - offset) * scales.reshape(rows, blocks, 1)
    return np.matmul(a, weights.reshape(rows, -1)[:, : a.shape[-1]].T)


def dynamic_quantize(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x as uint8, with the scale and the zero point that its least and its largest element ask for."""
    low, high = np.float32(x.min(initial=0)), np.float32(x.max(initial=0))
    scale = np.float32(1) if high == low else (high - low) / np.float32(255)
    zero = np.rint(np.clip(-low / scale, 0, 255))
    y = np.clip(np.rint(x / scale) + zero, 0, 255)
    return np.asarray(y, np.uint8), np.asarray(scale, np.float32), np.asarray(zero, np.uint8)


def lookup(x: np.ndarray, table: np.ndarray) -> np.ndarray:
    """The elements of a table of 256 at the places that bytes are as unsigned numbers."""
    return table[x.view(np.uint8)]


def attention(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    mask: np.ndarray | None = None,
    *,
    scale: float,
    causal: bool,
    masked_rows_zero: bool,
) -> np.ndarray:
    """softmax(scale * q kᵀ + mask) v for each head; several heads of q share one of k and v."""
    repeats = q.shape[1] // k.shape[1]
    k, v = (x if repeats == 1 else np.repeat(x, repeats, axis=1) for x in (k, v))
    k, v = k.astype(q.dtype, copy=False), v.astype(q.dtype, copy=False)
    scores = np.matmul(q, k.swapaxes(2, 3)) * q.dtype.type(scale)
    nothing = q.dtype.type(-np.inf)
    if mask is not None:
        scores = np.where(mask, scores, nothing) if mask.dtype == bool else scores + mask
    if causal:  # query i attends keys 0 to i
        scores = np.where(np.tri(*scores.shape[2:]) > 0, scores, nothing)
    weights = np.exp(scores - scores.max(axis=3, keepdims=True, initial=-np.inf))
    weights = weights / weights.sum(axis=3, keepdims=True)
    if masked_rows_zero:
        weights = np.where(np.isnan(weights), q.dtype.type(0), weights)
    return np.matmul(weights, v)


# ---------------------------------------------------------------- windows


def _plus_bias(y: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    return y if bias is None else y + bias.reshape(-1, *(1,) * (y.ndim - 2))


def convolution(
    x: np.ndarray, w: np.ndarray, bias: np.ndarray | None = None, *, windows: Windows, group: int
) -> np.ndarray:
    """The convolution of x with w [M, C / group, kernel...]."""
    return _plus_bias(convolve(x, w, windows, group), bias)


def integer_convolution(
    x: np.ndarray, w: np.ndarray, zero: np.ndarray | None = None, *, windows: Windows, depthwise: bool
) -> np.ndarray:
    """The convolution of bytes less a zero point, in int32; float64 holds all sums."""
    wide = x.astype(np.float64) - (0 if zero is None else zero.astype(np.float64))
    return convolve(wide, w.astype(np.float64), windows, x.shape[1] if depthwise else 1).astype(np.int32)


def transposed_convolution(
    x: np.ndarray, w: np.ndarray, bias: np.ndarray | None = None, *, windows: Windows, group: int
) -> np.ndarray:
    """Each element of x spreads w [C, M / group, kernel...]; what overlaps is added."""
    return _plus_bias(convolve_transposed(x, w, windows, group), bias)


def resize(  # noqa: PLR0913  (an operator's inputs, and its attributes by name)
    x: np.ndarray,
    *,
    shape: tuple[int, ...],
    scales: tuple[float | None, ...],
    roi: tuple[tuple[float, float], ...] | None,
    mode: str,
    coordinates: str,
    nearest: str,
    cubic_coefficient: float,
    exclude_outside: bool,
    extrapolation: float,
    antialias: bool,
    policy: str,
    aspect: tuple[tuple[int, int], ...],
) -> np.ndarray:
    """x resampled to a shape, axis by axis."""
    if 0 in shape:
        return np.empty(shape, x.dtype)
    quotients = [wanted / size for wanted, size in aspect]
    for axis, (size, out) in enumerate(zip(x.shape, shape, strict=True)):
        scale = scales[axis]
        if scale is None:
            scale = out / size if not quotients else min(quotients) if policy == "not_larger" else max(quotients)
        area = roi[axis] if roi else None
        if scale == 1 and size == out and area in (None, (0.0, 1.0)):
            continue
        table = axis_table(
            size,
            out,
            scale,
            area,
            mode=mode,
            coordinates=coordinates,
            nearest=nearest,
            cubic_coefficient=cubic_coefficient,
            exclude_outside=exclude_outside,
            antialias=antialias,
        )
        x = resample(x, axis, table, extrapolation)
    return x


def grid_sample(
    x: np.ndarray,
    coordinates: np.ndarray,
    factors: np.ndarray | None = None,
    *,
    mode: str,
    outside: str,
    aligned: bool,
) -> np.ndarray:
    """x [N, C, spatial...] at places [N, axes, P], times factors [N, P]: [N, C, P]."""
    y = sample(x, coordinates, mode, outside, aligned=aligned)
    return y if factors is None else y * factors[:, None]
