"""Resize, and Upsample, which it replaced."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.computation.resampling import COORDINATES, NEAREST, axis_table, resample, scaled
from jitonnx.ir.dims import DimLike, floor_divide, known, maximum, minimum
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import EXACT, InferenceContext
from jitonnx.ir.operator import DataDependentError, InferenceError, Operator, as_tuple, internal
from jitonnx.ir.raw import RawNode
from jitonnx.ir.types import Shape, TensorType
from jitonnx.ops.base import lower_floating, normalize_axis, open_like, widen
from jitonnx.support.records import NamedTuple

_SMALL = frozenset({DType.INT8, DType.UINT8, DType.INT16, DType.UINT16})
_POLICIES = ("stretch", "not_larger", "not_smaller")


class _Resolved(NamedTuple):
    """A Resize of one input with everything by axis of the input."""

    output: tuple[Any, ...]
    scales: tuple[float | None, ...]
    """None: the quotient of the sizes, or with `aspect` that of a pair."""
    roi: tuple[tuple[float, float], ...] | None
    aspect: tuple[tuple[DimLike, DimLike], ...] = ()
    """Wanted sizes and lengths, where only the sizes of a run tell which quotient is the scale of all axes."""


class Resize(Operator):
    """X resampled, axis by axis, to `sizes` or by `scales`, of all axes or those of the attribute `axes`."""

    antialias: bool = False
    axes: tuple[int, ...] | None = None
    coordinate_transformation_mode: str = "half_pixel"
    cubic_coeff_a: float = -0.75
    exclude_outside: bool = False
    extrapolation_value: float = 0.0
    keep_aspect_ratio_policy: str = "stretch"
    mode: str = "nearest"
    nearest_mode: str = "round_prefer_floor"
    nearest_by_scale: bool = internal(default=False)  # "nearest" is ceil for an axis that shrinks, else floor

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        if node.version == 10:
            node.inputs.insert(1, None)
            node.attributes.update(coordinate_transformation_mode="asymmetric", nearest_by_scale=1)

    def infer(
        self,
        context: InferenceContext,
        x: Value,
        roi: Value | None = None,
        scales: Value | None = None,
        sizes: Value | None = None,
    ) -> TensorType:
        resolved = self._resolve_values(context, x, roi, scales, sizes)
        for length, out in zip(x.shape, resolved.output, strict=True):
            if isinstance(out, int) and out > 0 and not context.demand_some(length):
                raise InferenceError(f"an axis of 0 elements cannot be resized to {out}")
        return TensorType(x.dtype, resolved.output)

    def infer_open(
        self, x: Value, roi: Value | None = None, scales: Value | None = None, sizes: Value | None = None
    ) -> TensorType:
        return open_like(x, self.axes)

    def _resolve_values(self, context: InferenceContext, x: Value, *values: Value | None) -> _Resolved:
        names = ("roi", "scales", "sizes")
        needed = (self.coordinate_transformation_mode == "tf_crop_and_resize", True, True)
        # Scales that a run computes in float32 are no expressions over sizes: floor(length * scale) follows from how
        # they are rounded, so such a Resize is evaluated when they are known. Computed `sizes` are integers, and fine.
        lists = [
            context.constant_of(value, name) if value is not None and value.shape != (0,) and wanted else None
            for value, name, wanted in zip(values, names, needed, strict=True)
        ]
        return self._resolve(context, x.shape, *lists)

    def _resolve(
        self,
        context: InferenceContext,
        shape: Shape,
        roi: list[Any] | None,
        scales: list[Any] | None,
        sizes: list[Any] | None,
    ) -> _Resolved:
        """The operator's inputs, checked and spread over all axes."""
        self._check(scales, sizes)
        rank = len(shape)
        axes = range(rank) if self.axes is None else [normalize_axis(axis, rank, "axes") for axis in self.axes]
        for name, given, expected in (("roi", roi, 2), ("scales", scales, 1), ("sizes", sizes, 1)):
            if given is not None and len(given) != expected * len(axes):
                raise InferenceError(f"{name} has {len(given)} elements, {expected * len(axes)} expected: {given}")
        areas = None
        if roi is not None and self.coordinate_transformation_mode == "tf_crop_and_resize":
            areas = _spread([*zip(roi[: len(axes)], roi[len(axes) :], strict=True)], axes, [(0.0, 1.0)] * rank)
        if scales is not None:
            if not all(0 < scale < math.inf for scale in scales):
                raise InferenceError(f"scales must be above 0 and finite: {scales}")
            factors = _spread([float(np.float32(scale)) for scale in scales], axes, [1.0] * rank)
            return _Resolved(tuple(map(scaled, shape, factors)), factors, areas)
        assert sizes is not None
        if any(isinstance(size, int) and size < 0 for size in sizes):
            raise InferenceError(f"sizes has a negative element: {sizes}")
        if self.keep_aspect_ratio_policy == "stretch":
            return _Resolved(_spread(sizes, axes, shape), (None,) * rank, areas)
        return self._keep_aspect(context, shape, axes, sizes, areas)

    def _check(self, scales: list[Any] | None, sizes: list[Any] | None) -> None:
        choices = (
            ("mode", self.mode, ("nearest", "linear", "cubic")),
            ("coordinate_transformation_mode", self.coordinate_transformation_mode, COORDINATES),
            ("nearest_mode", self.nearest_mode, NEAREST),
            ("keep_aspect_ratio_policy", self.keep_aspect_ratio_policy, _POLICIES),
        )
        for name, value, allowed in choices:
            if value not in allowed:
                raise InferenceError(f"{name} {value!r}: one of {', '.join(allowed)} expected")
        if scales is not None and sizes is not None:
            raise InferenceError("scales and sizes are given; only one of them may be")
        if scales is None and sizes is None:  # an error of the run, as in onnxruntime: it may be in a branch not taken
            raise DataDependentError("either scales or sizes is needed (an empty tensor counts as absent)")
        if self.antialias and self.mode == "nearest":
            raise InferenceError("antialias is for the modes linear and cubic")

    def _keep_aspect(
        self, context: InferenceContext, shape: Shape, axes: Sequence[int], sizes: list[Any], areas: Any
    ) -> _Resolved:
        """One scale for all axes, the smallest or largest quotient; round_half_up(scale * length) for each size."""
        if not all(context.demand_some(shape[axis]) for axis in axes):
            raise InferenceError(f"an axis of {list(shape)} has no elements, and so no aspect to keep")
        choose = minimum if self.keep_aspect_ratio_policy == "not_larger" else maximum
        output = list(shape)
        for axis in axes:
            candidates = [
                floor_divide(2 * size * shape[axis] + shape[other], 2 * shape[other])
                for size, other in zip(sizes, axes, strict=True)
            ]
            chosen: DimLike = candidates[0]
            for candidate in candidates[1:]:
                chosen = choose(chosen, candidate)
            output[axis] = chosen
        ones = [1.0] * len(shape)
        if not known((*shape, *sizes)):
            pairs = tuple((size, shape[axis]) for size, axis in zip(sizes, axes, strict=True))
            return _Resolved(tuple(output), _spread([None] * len(axes), axes, ones), areas, pairs)
        quotients = [size / shape[axis] for size, axis in zip(sizes, axes, strict=True)]
        scale = min(quotients) if self.keep_aspect_ratio_policy == "not_larger" else max(quotients)
        return _Resolved(tuple(output), _spread([scale] * len(axes), axes, ones), areas)

    def evaluate(
        self,
        x: np.ndarray,
        roi: np.ndarray | None = None,
        scales: np.ndarray | None = None,
        sizes: np.ndarray | None = None,
    ) -> np.ndarray:
        lists = [array.tolist() if array is not None and array.size else None for array in (roi, scales, sizes)]
        resolved = self._resolve(EXACT, x.shape, *lists)
        if 0 in resolved.output:
            return np.empty(resolved.output, x.dtype)
        inexact = self.mode != "nearest"
        y = x.astype(np.float64) if inexact and x.dtype.kind in "iu" else widen(x)
        bytes_alone = x.dtype == np.uint8 and self._by_axis
        for axis in reversed(range(x.ndim)) if bytes_alone else range(x.ndim):
            length, out, given = x.shape[axis], resolved.output[axis], resolved.scales[axis]
            scale = out / length if given is None else given
            area = resolved.roi[axis] if resolved.roi else None
            if scale == 1 and length == out and area in (None, (0.0, 1.0)):
                continue
            table = axis_table(
                *(length, out, scale, area),
                mode=self.mode,
                coordinates=self.coordinate_transformation_mode,
                nearest=self._nearest(scale),
                cubic_coefficient=self.cubic_coeff_a,
                exclude_outside=self.exclude_outside,
                antialias=self.antialias,
            )
            y = resample(y, axis, table, self.extrapolation_value)
            if bytes_alone:
                y = np.clip(np.floor(y + 0.5), 0, 255)
        if inexact and x.dtype.kind in "iu":
            limits = np.iinfo(x.dtype)
            whole = np.floor(y + 0.5) if self.antialias else np.trunc(y)
            return np.clip(whole, limits.min, limits.max).astype(x.dtype)
        return y.astype(x.dtype)

    def _nearest(self, scale: float) -> str:
        if not self.nearest_by_scale:
            return self.nearest_mode
        return "ceil" if scale < 1 else "floor"

    def lower(
        self,
        to: Lowering,
        x: Value,
        roi: Value | None = None,
        scales: Value | None = None,
        sizes: Value | None = None,
    ) -> Any:
        """Elements of images that are merely moved stay as they are. Others go through float32, as small integers do
        whose sums it holds. No text says how these are rounded: onnxruntime does it to the nearest where there is
        antialias, as image libraries do, and else towards zero."""
        moved = self.mode == "nearest" and self.coordinate_transformation_mode != "tf_crop_and_resize"
        if moved and len(x.shape) == 4 and x.shape[:2] == to.shape[:2]:
            resolved = self._resolve_values(to.context, x, roi, scales, sizes)
            if all(scale in (None, 1.0) for scale in resolved.scales[:2]):
                return self._resampled(to, x, resolved)
        if moved and (x.dtype.is_integer or x.dtype is DType.BOOL) and x.dtype not in _SMALL:
            return self._lower_parts(to, x, roi, scales, sizes)
        if x.dtype not in _SMALL:
            return self._lower_floating(to, x, roi, scales, sizes)  # sums of larger integers: NumPy
        if x.dtype is DType.UINT8 and self._by_axis:
            resolved = self._resolve_values(to.context, x, roi, scales, sizes)
            return to.host(self, (x, roi, scales, sizes)) if resolved.aspect else self._lower_bytes(to, x, resolved)
        y = as_tuple(self._lower_floating(to, to.cast(x, DType.FLOAT), roi, scales, sizes))[0]
        limits, element = np.iinfo(x.dtype.numpy), e.operand(0, DType.FLOAT)
        if self.antialias:
            element = e.floor(element + 0.5)
        within = e.minimum(e.maximum(element, float(limits.min)), float(limits.max))
        return to.map(e.cast(within, x.dtype), y)

    @property
    def _by_axis(self) -> bool:
        """Whether bytes are rounded behind each axis, the last one first, as Pillow and onnxruntime antialias them."""
        return self.antialias and self.coordinate_transformation_mode != "tf_crop_and_resize"

    def _lower_bytes(self, to: Lowering, x: Value, resolved: _Resolved) -> Value:
        element = e.floor(e.operand(0, DType.FLOAT) + 0.5)
        rounded = e.minimum(e.maximum(element, 0.0), 255.0)
        y = to.cast(x, DType.FLOAT)
        for axis in reversed(range(len(x.shape))):
            given = resolved.scales[axis]
            if given == 1 or (given is None and y.shape[axis] == resolved.output[axis]):
                continue
            output = (*y.shape[:axis], resolved.output[axis], *y.shape[axis + 1 :])
            scales = tuple(given if place == axis else 1.0 for place in range(len(x.shape)))
            part = resolved._replace(output=output, scales=scales)
            y = to.map(rounded, self._emit(to, y, part, self.nearest_mode))
        return to.cast(y, x.dtype)

    def _lower_parts(
        self, to: Lowering, x: Value, roi: Value | None, scales: Value | None, sizes: Value | None
    ) -> Value:
        """Elements that are moved and that float32 does not hold: their parts of 16 bits are moved."""
        dtype = x.dtype if x.dtype.is_integer else DType.UINT8
        whole = to.cast(x, dtype)
        element, parts = e.operand(0, dtype), []
        for i in range(max(1, dtype.itemsize // 2)):
            part = e.bitwise_and(e.shift_right(element, 16 * i), 0xFFFF) if dtype.itemsize > 1 else element
            floats = to.map(e.cast(part, DType.FLOAT), whole)
            parts.append(as_tuple(self._lower_floating(to, floats, roi, scales, sizes))[0])
        result = e.cast(e.operand(0, DType.FLOAT), dtype)
        for i in range(1, len(parts)):
            result = e.bitwise_or(result, e.shift_left(e.cast(e.operand(i, DType.FLOAT), dtype), 16 * i))
        return to.cast(to.map(result, *parts), x.dtype)

    @lower_floating
    def _lower_floating(
        self,
        to: Lowering,
        x: Value,
        roi: Value | None = None,
        scales: Value | None = None,
        sizes: Value | None = None,
    ) -> Value | tuple[Value, ...]:
        return self._resampled(to, x, self._resolve_values(to.context, x, roi, scales, sizes))

    def _resampled(self, to: Lowering, x: Value, resolved: _Resolved) -> Value:
        if not self.nearest_by_scale:
            return self._emit(to, x, resolved, self.nearest_mode)
        for nearest in ("ceil", "floor"):  # the axes that shrink, then those that grow; versions of old have scales
            factors = [1.0 if scale is None or self._nearest(scale) != nearest else scale for scale in resolved.scales]
            if any(factor != 1 for factor in factors):
                part = resolved._replace(output=tuple(map(scaled, x.shape, factors)), scales=tuple(factors))
                x = self._emit(to, x, part, nearest)
        return x

    def _emit(self, to: Lowering, x: Value, resolved: _Resolved, nearest: str) -> Value:
        computation = c.Resize(
            shape=resolved.output,
            scales=resolved.scales,
            roi=resolved.roi,
            mode=self.mode,
            coordinates=self.coordinate_transformation_mode,
            nearest=nearest,
            cubic_coefficient=self.cubic_coeff_a,
            exclude_outside=self.exclude_outside,
            extrapolation=self.extrapolation_value,
            antialias=self.antialias,
            policy=self.keep_aspect_ratio_policy if resolved.aspect else "",
            aspect=resolved.aspect,
        )
        return to.emit(computation, (x,), TensorType(x.dtype, resolved.output))


def _spread(values: Sequence[Any], axes: Sequence[int], others: Sequence[Any]) -> tuple[Any, ...]:
    """`others` with the entries of `axes` replaced by `values`."""
    result = list(others)
    for axis, value in zip(axes, values, strict=True):
        result[axis] = value
    return tuple(result)


class Upsample(Operator):
    """X enlarged by `scales`; since version 10 an operator of the past, in favour of Resize."""

    mode: str = "nearest"

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        if node.version == 1:
            height, width = (node.attributes.pop(f"{side}_scale", 1.0) for side in ("height", "width"))
            node.attributes["scales"] = (1.0, 1.0, height, width)
            if node.attributes.get("mode") == "bilinear":
                node.attributes["mode"] = "linear"
        node.attribute_to_input("scales", 1, np.float32)

    @property
    def _resize(self) -> Resize:
        return Resize(mode=self.mode, coordinate_transformation_mode="asymmetric", nearest_by_scale=True)

    def infer(self, context: InferenceContext, x: Value, scales: Value) -> TensorType:
        return self._resize.infer(context, x, None, scales)

    def infer_open(self, x: Value, scales: Value) -> TensorType:
        return open_like(x)

    def evaluate(self, x: np.ndarray, scales: np.ndarray) -> np.ndarray:
        return self._resize.evaluate(x, None, scales)

    def lower(self, to: Lowering, x: Value, scales: Value) -> Any:
        return self._resize.lower(to, x, None, scales)
