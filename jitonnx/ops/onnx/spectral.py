"""Spectra: discrete Fourier transforms (DFT, STFT), the windows they are taken through, and the mel scale.

Complex numbers are pairs on a last axis of size 2. Transforms are matrix products: a short one by a single product with
the matrix of its sines and cosines, a longer one, whose length is A * B, by transforms of length A, a factor for each
element, and transforms of length B (J. W. Cooley and J. W. Tukey, 1965).
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dims import Dim, DimLike, floor_divide, maximum
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import EXACT, InferenceContext
from jitonnx.ir.operator import InferenceError, Operator
from jitonnx.ir.raw import RawNode
from jitonnx.ir.types import Shape, TensorType, contents_array
from jitonnx.ops.base import (
    integers_of,
    lower_halves,
    non_negative,
    normalize_axis,
    open_like,
    widen,
)

_LONGEST_PRODUCT = 1024
"""The most real numbers of a transform that is one product. 1024 of them take as long by products of 32, with their
copies in between."""
_LONGEST_PRIME = 2048
"""The longest transform that has to be one product, as its length does not factor well enough."""
_SHORTEST_BLOCK = 8
"""Elements that frames have to be made of for them to be copied in blocks."""


class DFT(Operator):
    """The discrete Fourier transform along an axis of x [..., n, ..., 1 or 2], of `dft_length` elements: x is cut, or
    padded with zeros. With `onesided` a spectrum is its first half and one more, and the inverse is of such a half,
    real. The inverse is divided by its length."""

    inverse: int = 0
    onesided: int = 0

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        node.attribute_to_input("axis", 2, default=1)

    def _axis(self, x: Shape, axis: Value | None) -> int:
        (number,) = (-2,) if axis is None else integers_of(axis, "axis")
        found = normalize_axis(number, len(x))
        if found == len(x) - 1:
            raise InferenceError(f"axis {number} is the last one, which holds the parts of complex numbers")
        return found

    def _length(self, context: InferenceContext, size: DimLike, dft_length: Value | None) -> DimLike:
        """The length of the transform of `size` elements."""
        if dft_length is not None:
            (length,) = context.constant_of(dft_length, "dft_length")
            if isinstance(length, int | np.integer) and length < 1:
                raise InferenceError(f"dft_length is {length}; 1 is the least")
            return length if isinstance(length, Dim) else int(length)
        return 2 * (size - 1) if self._gives_reals else size

    @property
    def _gives_reals(self) -> bool:
        return bool(self.inverse and self.onesided)

    def infer(
        self, context: InferenceContext, x: Value, dft_length: Value | None = None, axis: Value | None = None
    ) -> TensorType:
        if len(x.shape) < 2:
            raise InferenceError(f"{x.type} has no axis beside the last one, which holds the parts of complex numbers")
        parts = x.shape[-1]
        real = bool(self.onesided and not self.inverse)
        if not _are_parts(context, parts, real=real):
            allowed = "1, as a spectrum has two sides unless its signal is real" if real else "1 or 2"
            raise InferenceError(f"the last axis of {x.type} has the size {parts}; allowed is {allowed}")
        at = self._axis(x.shape, axis)
        length = self._length(context, x.shape[at], dft_length)
        half = floor_divide(length, 2) + 1 if self.onesided and not self.inverse else length
        return TensorType(x.dtype, (*x.shape[:at], half, *x.shape[at + 1 : -1], 1 if self._gives_reals else 2))

    def infer_open(self, x: Value, dft_length: Value | None = None, axis: Value | None = None) -> TensorType:
        sizes = open_like(x).shape or ()
        return TensorType(x.dtype, (*sizes[:-1], 1 if self._gives_reals else 2))

    def evaluate(
        self, x: np.ndarray, dft_length: np.ndarray | None = None, axis: np.ndarray | None = None
    ) -> np.ndarray:
        at = normalize_axis(-2 if axis is None else int(axis.item()), x.ndim)
        length = int(self._length(EXACT, x.shape[at], None) if dft_length is None else dft_length.item())  # type: ignore[arg-type]
        signal = _complex(x)
        if self._gives_reals:
            return np.fft.irfft(signal, length, at)[..., None].astype(x.dtype)
        transformed = (np.fft.ifft if self.inverse else np.fft.fft)(signal, length, at)
        if self.onesided:
            transformed = transformed.take(range(length // 2 + 1), at)
        return _parts(transformed, x.dtype)

    @lower_halves
    def lower(self, to: Lowering, x: Value, dft_length: Value | None = None, axis: Value | None = None) -> Any:
        at = self._axis(x.shape, axis)
        length, parts = self._length(to.context, x.shape[at], dft_length), x.shape[-1]
        if not isinstance(length, int) or not isinstance(parts, int) or not _factors(length):
            return to.host(self, (x, dft_length, axis))
        wanted = length // 2 + 1 if self.onesided else length
        rows = _sized(to, _moved(to, x, at, -2), wanted if self._gives_reals else length)
        if self._gives_reals:
            spectrum = _real_inverse(to, rows, length)
        else:
            spectrum = _transform(to, rows, length, wanted, -1 if self.inverse else 1)
            if self.inverse:
                spectrum = to.map(e.operand(0, x.dtype) * (1 / length), spectrum)
        return _moved(to, spectrum, -2, at)


class STFT(Operator):
    """The DFT of each frame of a signal [batch, length] or [batch, length, 1 or 2]: of `frame_length` elements, times
    the window, `frame_step` behind the frame before. Gives [batch, frames, bins, 2]."""

    onesided: int = 1

    def _sizes(
        self, context: InferenceContext, signal: Shape, step: Value, window: Value | None, frame_length: Value | None
    ) -> tuple[DimLike, DimLike, DimLike]:
        """The frames' step, their length, and how many there are."""
        (hop,) = context.constant_of(step, "frame_step")
        length: DimLike
        if frame_length is not None:
            (length,) = context.constant_of(frame_length, "frame_length")
        else:
            length = signal[1] if window is None else window.shape[0]
        hop, length = (size if isinstance(size, Dim) else int(size) for size in (hop, length))
        for name, size in (("frame_step", hop), ("frame_length", length)):
            if isinstance(size, int) and size < 1:
                raise InferenceError(f"{name} is {size}; 1 is the least")
        return hop, length, maximum(non_negative(floor_divide(signal[1] - length, hop) + 1), 0)

    def infer(
        self,
        context: InferenceContext,
        signal: Value,
        frame_step: Value,
        window: Value | None = None,
        frame_length: Value | None = None,
    ) -> TensorType:
        rank = len(signal.shape)
        if rank == 3 and self.onesided and signal.shape[2] == 2:
            raise InferenceError("onesided is set, but a complex signal has a spectrum of two sides")
        if rank not in (2, 3) or (rank == 3 and not _are_parts(context, signal.shape[2], real=bool(self.onesided))):
            raise InferenceError(f"the signal is {signal.type}; [batch, length] or [batch, length, 1 or 2] is needed")
        _, length, frames = self._sizes(context, signal.shape, frame_step, window, frame_length)
        if window is not None and len(window.shape) != 1:
            raise InferenceError(f"the window is {window.type}; a vector is needed")
        if window is not None and not context.demand_equal(window.shape[0], length):
            raise InferenceError(f"the window has {window.shape[0]} elements, a frame {length}")
        bins = floor_divide(length, 2) + 1 if self.onesided else length
        return TensorType(signal.dtype, (signal.shape[0], frames, bins, 2))

    def evaluate(
        self,
        signal: np.ndarray,
        frame_step: np.ndarray,
        window: np.ndarray | None = None,
        frame_length: np.ndarray | None = None,
    ) -> np.ndarray:
        if frame_length is not None:
            length = int(frame_length.item())
        else:
            length = signal.shape[1] if window is None else window.shape[0]
        hop, bins = int(frame_step.item()), length // 2 + 1 if self.onesided else length
        wide = widen(signal)
        numbers = _complex(wide) if signal.ndim == 3 else wide
        if signal.shape[1] < length:
            return np.zeros((signal.shape[0], 0, bins, 2), signal.dtype)
        frames = np.lib.stride_tricks.sliding_window_view(numbers, length, 1)[:, ::hop]
        weighted = frames if window is None else frames * widen(window)
        return _parts(np.fft.fft(weighted, axis=-1)[..., :bins], signal.dtype)

    @lower_halves
    def lower(
        self,
        to: Lowering,
        signal: Value,
        frame_step: Value,
        window: Value | None = None,
        frame_length: Value | None = None,
    ) -> Any:
        hop, length, frames = self._sizes(to.context, signal.shape, frame_step, window, frame_length)
        parts = signal.shape[2] if len(signal.shape) == 3 else 1
        known = isinstance(hop, int) and isinstance(length, int) and isinstance(parts, int)
        if not known or not _factors(length):  # type: ignore[arg-type]
            return to.host(self, (signal, frame_step, window, frame_length))
        assert isinstance(hop, int) and isinstance(length, int) and isinstance(parts, int)
        numbers = to.reshape(signal, (*signal.shape[:2], parts))
        framed = _frames(to, numbers, hop, length, frames)
        weights = None if window is None or window.constant is None else window.constant
        if window is not None and (weights is None or length * parts > _LONGEST_PRODUCT):
            factors = to.reshape(window, (length, 1))
            framed, weights = to.map(e.operand(0, framed.dtype) * e.operand(1, window.dtype), framed, factors), None
        bins = length // 2 + 1 if self.onesided else length
        return _transform(to, framed, length, bins, 1, None if weights is None else weights.astype(np.float64))


def _are_parts(context: InferenceContext, size: DimLike, *, real: bool) -> bool:
    """Whether the parts of numbers have this size: 1 of real ones, and unless they have to be, 2 of complex ones."""
    return context.demand_equal(size, 1) if real else context.is_one(size) or context.demand_equal(size, 2)


def _complex(x: np.ndarray) -> np.ndarray:
    """Parts on the last axis as complex numbers, of twice x's precision where there is such."""
    wide = x.astype(np.float64)
    return wide[..., 0] if x.shape[-1] == 1 else wide[..., 0] + 1j * wide[..., 1]


def _parts(numbers: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Complex numbers as their parts, on a new last axis."""
    return np.stack([numbers.real, numbers.imag], -1).astype(dtype)


def _moved(to: Lowering, x: Value, axis: int, place: int) -> Value:
    """x with one axis at another place."""
    order = [a for a in range(len(x.shape)) if a != axis % len(x.shape)]
    order.insert(place % len(x.shape), axis % len(x.shape))
    return to.transpose(x, order)


def _sized(to: Lowering, rows: Value, size: int) -> Value:
    """rows [..., n, parts] with `size` elements for n: cut, or padded with zeros."""
    given, rank = rows.shape[-2], len(rows.shape)
    if given == size:
        return rows
    after = (*(0 for _ in range(rank - 2)), size - given, 0)
    shape = (*rows.shape[:-2], size, rows.shape[-1])
    if isinstance(given, int) and given > size:
        return to.slice(rows, (0,) * rank, (1,) * rank, shape)
    return to.emit(c.Pad((0,) * rank, after, "constant"), (rows,), TensorType(rows.dtype, shape))


def _frames(to: Lowering, signal: Value, hop: int, length: int, frames: DimLike) -> Value:
    """signal [batch, n, parts] -> [batch, frames, length, parts].

    Where step and length have a common divisor, a frame is made of blocks of that size, and each of its blocks, of all
    frames, is a slice of the signal's blocks. Else its elements are gathered.
    """
    batch, size, parts = signal.shape
    block = math.gcd(hop, length)
    if block < _SHORTEST_BLOCK:
        position = e.index(0) * hop + e.index(1)
        places = to.fill(position, (frames, length))
        return to.emit(c.Gather(1), (signal, places), TensorType(signal.dtype, (batch, frames, length, parts)))
    blocks = floor_divide(size, block)
    whole = to.slice(signal, (0, 0, 0), (1, 1, 1), (batch, blocks * block, parts))
    rows = to.reshape(whole, (batch, blocks, block, parts))
    shape = (batch, frames, block, parts)
    slices = [to.slice(rows, (0, i, 0, 0), (1, hop // block, 1, 1), shape) for i in range(length // block)]
    return to.reshape(to.concat(slices, 2), (batch, frames, length, parts))


# ---------------------------------------------------------------- transforms as products


def _factors(length: int) -> bool:
    """Whether transforms of this length can be made of products of a bearable size."""
    return (
        length <= _LONGEST_PRODUCT
        or (divisor := _divisor(length)) == length <= _LONGEST_PRIME
        or (divisor < length and _factors(divisor) and _factors(length // divisor))
    )


def _divisor(length: int) -> int:
    """The least divisor from the square root on."""
    return next(length // n for n in range(math.isqrt(length), 0, -1) if length % n == 0)


def _transform(
    to: Lowering, rows: Value, length: int, bins: int, sign: int, weights: np.ndarray | None = None
) -> Value:
    """rows [..., length, 1 or 2] -> [..., bins, 2]: the sums over n of rows[n] * weights[n] * exp(-2i pi sign k n /
    length), k < bins."""
    divisor = _divisor(length)
    if divisor == length or (isinstance(rows.shape[-1], int) and length * rows.shape[-1] <= _LONGEST_PRODUCT):
        return _product(to, rows, _rotations(length, bins, sign), weights)
    # Element n = other * a + b, bin k = j + divisor * l.
    other, lead = length // divisor, rows.shape[:-2]
    rank, parts = len(lead), rows.shape[-1]
    columns = _moved(to, to.reshape(rows, (*lead, divisor, other, parts)), rank, rank + 1)  # [..., b, a, parts]
    inner = _transform(to, columns, divisor, divisor, sign)  # [..., b, j, 2]
    angles = np.outer(np.arange(other), np.arange(divisor)) % length * (-2 * np.pi * sign / length)
    turned = _turned(to, inner, np.exp(1j * angles))
    outer = _transform(to, _moved(to, turned, rank, rank + 1), other, other, sign)  # [..., j, l, 2]
    whole = to.reshape(_moved(to, outer, rank, rank + 1), (*lead, length, 2))
    return _sized(to, whole, bins)


def _rotations(length: int, bins: int, sign: int) -> np.ndarray:
    """exp(-2i pi sign n k / length), [length, bins]; the angle is reduced while it is a whole number."""
    return np.exp(np.outer(np.arange(length), np.arange(bins)) % length * (-2j * np.pi * sign / length))


def _product(to: Lowering, rows: Value, matrix: np.ndarray, weights: np.ndarray | None = None) -> Value:
    """rows [..., n, 1 or 2] times a complex matrix [n, m], whose rows are times `weights`: [..., m, 2]."""
    bins, parts = matrix.shape[1], rows.shape[-1]
    weighted = matrix if weights is None else matrix * weights[:, None]
    real = np.stack([weighted.real, weighted.imag], -1)[:, None]  # [n, 1, m, 2]: what a real part gives
    imaginary = np.stack([-weighted.imag, weighted.real], -1)[:, None]
    both = real if parts == 1 else np.concatenate([real, imaginary], 1)
    return _times(to, rows, both.reshape(-1, 2 * bins), (bins, 2))


def _times(to: Lowering, rows: Value, matrix: np.ndarray, shape: tuple[int, int]) -> Value:
    """The last two axes of rows, as one, times a real matrix, and its columns as two axes."""
    lead = rows.shape[:-2]
    flat = to.reshape(rows, (*lead, matrix.shape[0]))
    if not lead:
        flat = to.reshape(flat, (1, matrix.shape[0]))
    product = to.matmul(flat, to.constant(np.ascontiguousarray(matrix, rows.dtype.numpy)))
    return to.reshape(product, (*lead, *shape))


def _turned(to: Lowering, numbers: Value, factors: np.ndarray) -> Value:
    """Complex numbers [..., b, j, 2] times constants [b, j]."""
    dtype = numbers.dtype
    same = np.stack([factors.real, factors.real], -1).astype(dtype.numpy)
    crossed = np.stack([-factors.imag, factors.imag], -1).astype(dtype.numpy)
    rank = len(numbers.shape)
    swapped = to.slice(numbers, (*(0,) * (rank - 1), 1), (*(1,) * (rank - 1), -1), numbers.shape)
    x, y, a, b = (e.operand(i, dtype) for i in range(4))
    return to.map(x * a + y * b, numbers, swapped, to.constant(same), to.constant(crossed))


def _real_inverse(to: Lowering, rows: Value, length: int) -> Value:
    """The real signal [..., length, 1] of half a spectrum [..., length // 2 + 1, 1 or 2]: the bins between the first
    and, of an even length, the last stand for two each. Of these two the imaginary parts do not count."""
    bins = length // 2 + 1
    counts = np.full(bins, 2.0)
    counts[0] = 1
    if length % 2 == 0:
        counts[-1] = 1
    rotations = _rotations(length, bins, -1).T * (counts / length)[:, None]  # [bins, length]
    both = np.stack([rotations.real, -rotations.imag], 1)  # [bins, 2, length]
    both = both if rows.shape[-1] == 2 else both[:, :1]
    return _times(to, rows, both.reshape(-1, length), (length, 1))


# ---------------------------------------------------------------- windows


class _Window(Operator):
    """A window of `size` elements: a sum of cosines over one period, or, if not `periodic`, over size - 1 steps."""

    output_datatype: int = 1
    periodic: int = 1

    cosines: ClassVar[tuple[float, ...]] = ()
    """The factors of cos(2 pi i n / N) for i = 0, 1, …"""

    def infer(self, context: InferenceContext, size: Value) -> TensorType:
        (count,) = context.constant_of(size, "size")
        if isinstance(count, int | np.integer) and count < 0:
            raise InferenceError(f"size is {count}")
        return TensorType(DType(self.output_datatype), (count if isinstance(count, Dim) else int(count),))

    def evaluate(self, size: np.ndarray) -> np.ndarray:
        count = int(size.item())
        angles = np.arange(count) * (2 * np.pi) / (count if self.periodic else count - 1)
        return np.asarray(sum(f * np.cos(i * angles) for i, f in enumerate(self.cosines))).astype(
            DType(self.output_datatype).numpy
        )

    def lower(self, to: Lowering, size: Value) -> Value:
        shape = to.shape
        dtype = DType(self.output_datatype)
        wide = DType.DOUBLE if dtype is DType.DOUBLE else DType.FLOAT
        steps = to.dimensions(contents_array((shape[0],), ()))
        period = e.operand(0, DType.INT64) if self.periodic else e.operand(0, DType.INT64) - 1
        angle = e.cast(e.index(0), wide) * (2 * math.pi) / e.cast(period, wide)
        total: e.Expr = e.constant(self.cosines[0], wide)
        for i, factor in enumerate(self.cosines[1:], 1):
            total = total + e.cos(angle * i) * factor
        return to.map(e.cast(total, dtype), to.broadcast(to.reshape(steps, (1,)), shape))


class HannWindow(_Window):
    """0.5 - 0.5 cos(2 pi n / N)."""

    cosines = (0.5, -0.5)


class HammingWindow(_Window):
    """25/46 - 21/46 cos(2 pi n / N)."""

    cosines = (25 / 46, -21 / 46)


class BlackmanWindow(_Window):
    """0.42 - 0.5 cos(2 pi n / N) + 0.08 cos(4 pi n / N)."""

    cosines = (0.42, -0.5, 0.08)


class MelWeightMatrix(Operator):
    """[dft_length // 2 + 1, num_mel_bins]: what each bin of a spectrum adds to each of the triangles that lie evenly on
    the mel scale between two frequencies."""

    output_datatype: int = 1

    def infer(
        self, context: InferenceContext, bins: Value, length: Value, rate: Value, lower: Value, upper: Value
    ) -> TensorType:
        (columns,), (points,) = context.constant_of(bins, "num_mel_bins"), context.constant_of(length, "dft_length")
        rows = floor_divide(points if isinstance(points, Dim) else int(points), 2) + 1
        return TensorType(DType(self.output_datatype), (rows, columns if isinstance(columns, Dim) else int(columns)))

    def evaluate(
        self, bins: np.ndarray, length: np.ndarray, rate: np.ndarray, lower: np.ndarray, upper: np.ndarray
    ) -> np.ndarray:
        count, points = int(bins.item()), int(length.item())
        low, high = (2595 * np.log10(1 + float(edge.item()) / 700) for edge in (lower, upper))
        mels = low + np.arange(count + 2) * ((high - low) / (count + 2))
        hertz = 700 * (10 ** (mels / 2595) - 1)
        edges = ((points + 1) * hertz // int(rate.item())).astype(int)
        weights = np.zeros((points // 2 + 1, count))
        for i, (left, centre, right) in enumerate(zip(edges, edges[1:], edges[2:], strict=False)):
            if left == centre:
                weights[centre, i] = 1
            else:
                weights[left : centre + 1, i] = np.arange(centre - left + 1) / (centre - left)
            if right > centre:
                weights[centre:right, i] = np.arange(right - centre, 0, -1) / (right - centre)
        return weights.astype(DType(self.output_datatype).numpy)

    def lower(self, to: Lowering, bins: Value, length: Value, rate: Value, lower: Value, upper: Value) -> Value:
        rows, columns = to.shape
        given = [to.reshape(to.cast(value, DType.DOUBLE), ()) for value in (length, rate, lower, upper)]
        count = to.cast(to.dimensions(contents_array((columns,), ())), DType.DOUBLE)
        points, samples, low, high, bands, number = (e.operand(place, DType.DOUBLE) for place in range(6))
        low, high = (e.log(edge / 700 + 1) * (2595 / math.log(10)) for edge in (low, high))
        mels = low + number * ((high - low) / (bands + 2))
        hertz = (e.exp(mels * (math.log(10) / 2595)) - 1) * 700
        numbers = to.fill(e.cast(e.index(0), DType.DOUBLE), (columns + 2,))
        # Quotients of whole numbers, which float32 holds and divides as double would.
        kind = DType.DOUBLE if to.type.dtype is DType.DOUBLE else DType.FLOAT
        edges = to.map(e.cast(e.floor((points + 1) * hertz / samples), kind), *given, count, numbers)
        row = to.fill(e.cast(e.index(0), kind), (rows, 1))
        left, centre, right, place = (e.operand(number, kind) for number in range(4))
        rises = e.where(e.equal(left, centre), 1.0, (place - left) / (centre - left))
        rising = e.where(e.logical_and(place >= left, place <= centre), rises, 0.0)
        falls = e.logical_and(e.logical_and(right > centre, place >= centre), place < right)
        weights = e.where(falls, (right - place) / (right - centre), rising)
        parts = [to.slice(edges, (first,), (1,), (columns,)) for first in range(3)]
        return to.cast(to.map(weights, *parts, row), to.type.dtype or DType.FLOAT)
