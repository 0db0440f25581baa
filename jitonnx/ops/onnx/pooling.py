"""Pooling: windows over the spatial axes of [N, C, spatial...], or those axes as a whole."""

from __future__ import annotations

import functools

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import EXACT, InferenceContext
from jitonnx.ir.operator import InferenceError, Operator, internal
from jitonnx.ir.raw import RawNode
from jitonnx.ir.types import Shape, TensorType
from jitonnx.ops.base import lower_halves, widen
from jitonnx.ops.windows import WindowAttributes, Windows, padded, per_axis, slide, spatial_rank, tap_slices


class _Pool(Operator):
    """The attributes that all pools share; each entry of a tuple belongs to a spatial axis."""

    kernel_shape: tuple[int, ...]
    auto_pad: str = "NOTSET"
    ceil_mode: bool = False
    dilations: tuple[int, ...] | None = None
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None

    def _windows(self, context: InferenceContext, x: Shape) -> Windows:
        kernel = per_axis(self.kernel_shape, len(x) - 2, 1, "kernel_shape")
        given = WindowAttributes.of(self)
        return slide(
            context, x[2:], kernel, given, ceil_mode=self.ceil_mode, pooling=True, pads_overhang=self.pads_overhang
        )

    @property
    def pads_overhang(self) -> bool:
        """Whether what a first window reaches over the end of the padded input counts as padding."""
        return False

    def _type(self, context: InferenceContext, x: Value) -> TensorType:
        spatial_rank(x)
        if not all(map(context.demand_some, x.shape[2:])):
            raise InferenceError(f"{x.type} has no elements to pool")
        return TensorType(x.dtype, (*x.shape[:2], *self._windows(context, x.shape).output))

    def _computation(
        self,
        context: InferenceContext,
        kind: c.PoolKind,
        x: Value,
        *,
        count_include_pad: bool = False,
        p: int = 2,
        storage_order: int = 0,
        by_columns: bool = False,
    ) -> c.Pool:
        windows = self._windows(context, x.shape)
        geometry = (windows.kernel, windows.strides, windows.dilations, windows.before, windows.after, windows.output)
        return c.Pool(kind, *geometry, count_include_pad, p, storage_order, by_columns)


class MaxPool(_Pool):
    """The largest element of each window, and in Indices where X, flattened, has it (the first of equals)."""

    storage_order: int = 0

    def infer(self, context: InferenceContext, x: Value) -> tuple[TensorType, TensorType]:
        y = self._type(context, x)
        return y, TensorType(DType.INT64, y.shape)

    def evaluate(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return max_pool(x, self._windows(EXACT, x.shape), storage_order=self.storage_order)

    @lower_halves
    def lower(self, to: Lowering, x: Value) -> tuple[Value, ...]:
        return to.emit_many(self._computation(to.context, "max", x, storage_order=self.storage_order), (x,), to.types)


def max_pool(x: np.ndarray, windows: Windows, *, storage_order: int) -> tuple[np.ndarray, np.ndarray]:
    """Y and Indices of MaxPool. A NaN is the maximum of a window if it is the first there, else it loses."""
    lowest = np.asarray(np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf, x.dtype)
    spatial = x.shape[2:]
    places = np.arange(np.prod(spatial, dtype=np.int64)).reshape(spatial, order="F" if storage_order else "C")
    around, where = padded(x, windows, lowest), padded(places[None, None], windows, -1)
    best = np.full((*x.shape[:2], *windows.output), lowest, x.dtype)
    index = np.full(best.shape, -1, np.int64)
    for tap in windows.taps():
        at = (slice(None), slice(None), *tap_slices(windows, tap))
        value, place = around[at], where[at]
        better = (value > best) | ((index < 0) & (place >= 0))
        best = np.where(better, value, best)
        index = np.where(better, place, index)
    planes = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *(1,) * len(spatial))
    return best, index + planes * places.size


class AveragePool(_Pool):
    """The mean of each window, over the elements in X or, with count_include_pad, over those in the padded X."""

    count_include_pad: bool = False
    by_columns: bool = internal(default=False)
    """Before version 19, whose kernel of onnxruntime (MLAS, pooling.cpp) adds up the columns of a window first at short
    strides; the newer one goes row by row. The last place decides where means of integers are half way between two."""

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        node.attributes["by_columns"] = node.version < 19

    @property
    def pads_overhang(self) -> bool:
        return self.by_columns  # MLAS divides by the number of a window's elements, wherever they are

    def infer(self, context: InferenceContext, x: Value) -> TensorType:
        return self._type(context, x)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        windows = self._windows(EXACT, x.shape)
        return average_pool(widen(x), windows, count_include_pad=self.count_include_pad).astype(x.dtype, copy=False)

    @lower_halves
    def lower(self, to: Lowering, x: Value) -> Value:
        options = {"count_include_pad": self.count_include_pad, "by_columns": self.by_columns}
        return to.emit(self._computation(to.context, "average", x, **options), (x,), to.type)


def sum_pool(x: np.ndarray, windows: Windows) -> np.ndarray:
    """The sum of each window."""
    around, total = padded(x, windows, 0), np.zeros((*x.shape[:2], *windows.output), x.dtype)
    for tap in windows.taps():
        total += around[(slice(None), slice(None), *tap_slices(windows, tap))]
    return total


def average_pool(x: np.ndarray, windows: Windows, *, count_include_pad: bool) -> np.ndarray:
    """The mean of each window, over the elements of x, or of the padded x."""
    counts = []
    for axis, length in enumerate(x.shape[2:]):
        starts = np.arange(windows.output[axis]) * windows.strides[axis] - windows.before[axis]
        positions = starts[:, None] + np.arange(windows.kernel[axis]) * windows.dilations[axis]
        low, high = (-windows.before[axis], length + windows.after[axis]) if count_include_pad else (0, length)
        counts.append(((positions >= low) & (positions < high)).sum(axis=1))
    return sum_pool(x, windows) / functools.reduce(np.multiply.outer, counts).astype(x.dtype)


def lp_pool(x: np.ndarray, windows: Windows, *, p: float) -> np.ndarray:
    """The p-norm of each window."""
    total = sum_pool(np.abs(x) ** x.dtype.type(p), windows)
    return np.asarray(total ** x.dtype.type(1 / p))


class LpPool(_Pool):
    """The p-norm of each window: the sum of |x| ** p, to the power of 1 / p."""

    p: float = 2  # an integer since version 2

    def infer(self, context: InferenceContext, x: Value) -> TensorType:
        _check_exponent(self.p)
        return self._type(context, x)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return lp_pool(widen(x), self._windows(EXACT, x.shape), p=self.p).astype(x.dtype, copy=False)

    @lower_halves
    def lower(self, to: Lowering, x: Value) -> Value:
        if self.p != int(self.p):  # version 1 alone allows it, and no exporter wrote it
            (y,) = to.host(self, (x,))
            return y
        return to.emit(self._computation(to.context, "lp", x, p=int(self.p)), (x,), to.type)


def _check_exponent(p: float) -> None:
    if p < 1:
        raise InferenceError(f"p is {p:g}: a norm has an exponent of at least 1")


class _GlobalPool(Operator):
    """One window over all spatial axes, which stay as size 1."""

    def infer(self, context: InferenceContext, x: Value) -> TensorType:
        if len(x.shape) < 2:
            raise InferenceError(f"{x} has no channels: [N, C, spatial...] expected")
        if not all(map(context.demand_some, x.shape[2:])):
            raise InferenceError(f"{x.type} has no elements to pool")
        return TensorType(x.dtype, (*x.shape[:2], *(1,) * (len(x.shape) - 2)))


def _spatial(rank: int) -> tuple[int, ...]:
    return tuple(range(2, rank))


class GlobalAveragePool(_GlobalPool):
    """The mean over all spatial axes."""

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return widen(x).mean(axis=_spatial(x.ndim), keepdims=True).astype(x.dtype, copy=False)

    @lower_halves
    def lower(self, to: Lowering, x: Value) -> Value:
        return to.reduce("mean", x, _spatial(len(x.shape)), keepdims=True)


class GlobalMaxPool(_GlobalPool):
    """The largest element over all spatial axes."""

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return x.max(axis=_spatial(x.ndim), keepdims=True)

    @lower_halves
    def lower(self, to: Lowering, x: Value) -> Value:
        return to.reduce("max", x, _spatial(len(x.shape)), keepdims=True)


class GlobalLpPool(_GlobalPool):
    """The p-norm over all spatial axes."""

    p: float = 2  # an integer since version 2

    def infer(self, context: InferenceContext, x: Value) -> TensorType:
        _check_exponent(self.p)
        return super().infer(context, x)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        wide = widen(x)
        total = (np.abs(wide) ** wide.dtype.type(self.p)).sum(axis=_spatial(x.ndim), keepdims=True)
        return (total ** wide.dtype.type(1 / self.p)).astype(x.dtype, copy=False)

    @lower_halves
    def lower(self, to: Lowering, x: Value) -> Value:
        axes = _spatial(len(x.shape))
        if self.p in (1, 2):
            return to.reduce("l1" if self.p == 1 else "l2", x, axes, keepdims=True)
        element = e.operand(0, x.dtype)
        total = to.reduce("sum", to.map(e.power(e.absolute(element), self.p), x), axes, keepdims=True)
        return to.map(e.power(element, 1 / self.p), total)
