"""Tensors made larger at their ends."""

from __future__ import annotations

from typing import Any

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dims import DimLike, floor_divide, maximum
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError, Operator
from jitonnx.ir.raw import RawNode
from jitonnx.ir.types import Shape as Dims
from jitonnx.ir.types import TensorType
from jitonnx.ops.base import integers_of, normalize_axis, open_like


class CenterCropPad(Operator):
    """Cropped to, or padded with zeros to, the sizes `shape` of `axes`, around the middle."""

    axes: tuple[int, ...] | None = None

    def _sizes(self, given: Dims, wanted: list[Any]) -> list[DimLike]:
        axes = range(len(given)) if self.axes is None else self.axes
        if len(wanted) != len(axes):
            raise InferenceError(f"shape has {len(wanted)} sizes for {len(axes)} axes")
        sizes = list(given)
        for axis, size in zip(axes, wanted, strict=True):
            sizes[normalize_axis(axis, len(given), "axes")] = size
        return sizes

    def infer(self, context: InferenceContext, x: Value, shape: Value) -> TensorType:
        return TensorType(x.dtype, tuple(self._sizes(x.shape, context.constant_of(shape, "shape"))))

    def infer_open(self, x: Value, shape: Value) -> TensorType:
        return open_like(x, self.axes)

    def evaluate(self, x: np.ndarray, shape: np.ndarray) -> np.ndarray:
        sizes = self._sizes(x.shape, shape.tolist())
        empty: Any = "" if x.dtype == object else 0
        result: np.ndarray = np.full(sizes, empty, x.dtype)  # type: ignore[arg-type]
        source, target = [], []
        for have, want in zip(x.shape, result.shape, strict=True):
            size, cut, gap = min(have, want), max(have - want, 0) // 2, max(want - have, 0) // 2
            source.append(slice(cut, cut + size))
            target.append(slice(gap, gap + size))
        result[tuple(target)] = x[tuple(source)]
        return result

    def lower(self, to: Lowering, x: Value, shape: Value) -> Value:
        before, after = [], []
        for have, want in zip(x.shape, to.shape, strict=True):
            gap, cut = (floor_divide(maximum(more, 0), 2) for more in (want - have, have - want))
            before.append(gap - cut)
            after.append(want - have - before[-1])
        return to.emit(c.Pad(tuple(before), tuple(after), "constant"), (x,), to.type)


class Pad(Operator):
    """Elements added (or, negative, cut) before and after each axis in `axes`.

    mode constant: constant_value, or 0; reflect, edge and wrap continue from the input.
    """

    mode: str = "constant"

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        if node.version >= 11 or node.inputs[0] is None:
            return
        if node.version == 1:
            node.attributes["pads"] = node.attributes.pop("paddings", None)
        kind = node.inputs[0].dtype.numpy
        node.attribute_to_input("pads", 1)
        node.attribute_to_input("value", 2, kind, 0.0)

    def _pads(self, rank: int, pads: list[Any], axes: list[Any] | None) -> tuple[list[DimLike], list[DimLike]]:
        """Elements added before and after every axis."""
        if self.mode not in ("constant", "reflect", "edge", "wrap"):
            raise InferenceError(f"mode is {self.mode!r}; constant, reflect, edge and wrap are known")
        chosen = [normalize_axis(axis, rank, "axes") for axis in axes] if axes is not None else list(range(rank))
        if len(pads) != 2 * len(chosen):
            raise InferenceError(f"{len(pads)} pads given for {len(chosen)} axes; two an axis are needed")
        before: list[DimLike] = [0] * rank
        after: list[DimLike] = [0] * rank
        for axis, low, high in zip(chosen, pads[: len(chosen)], pads[len(chosen) :], strict=True):
            before[axis], after[axis] = low, high
        return before, after

    def _of(
        self, context: InferenceContext, data: Value, pads: Value, axes: Value | None
    ) -> tuple[list[DimLike], list[DimLike]]:
        chosen = None if axes is None else integers_of(axes, "axes")
        return self._pads(len(data.shape), context.constant_of(pads, "pads", signed=True), chosen)

    def infer(
        self,
        context: InferenceContext,
        data: Value,
        pads: Value,
        constant_value: Value | None = None,
        axes: Value | None = None,
    ) -> TensorType:
        before, after = self._of(context, data, pads, axes)
        if self.mode != "constant":
            for low, size, high in zip(before, data.shape, after, strict=True):
                if (low, high) != (0, 0) and not context.demand_some(size):
                    raise InferenceError(f"mode {self.mode!r} cannot continue an axis of {data.type} without elements")
        shape = tuple(low + size + high for low, size, high in zip(before, data.shape, after, strict=True))
        if not all(map(context.demand_not_negative, shape)):
            raise InferenceError(f"pads {before} and {after} cut more of {data.type} than there is")
        return TensorType(data.dtype, shape)

    def infer_open(
        self, data: Value, pads: Value, constant_value: Value | None = None, axes: Value | None = None
    ) -> TensorType:
        return open_like(data, None if axes is None or axes.constant is None else integers_of(axes, "axes"))

    def evaluate(
        self,
        data: np.ndarray,
        pads: np.ndarray,
        constant_value: np.ndarray | None = None,
        axes: np.ndarray | None = None,
    ) -> np.ndarray:
        low, high = self._pads(data.ndim, pads.ravel().tolist(), None if axes is None else axes.tolist())
        extents: list[tuple[int, int, int]] = list(zip(low, data.shape, high, strict=True))  # type: ignore[arg-type]
        cut = tuple(slice(max(0, -a), max(size + min(b, 0), 0)) for a, size, b in extents)
        if self.mode != "constant":
            widths = [(max(a, 0), max(b, 0)) for a, _, b in extents]
            return np.pad(data[cut], widths, mode=self.mode)  # type: ignore[call-overload]
        empty: Any = "" if data.dtype == object else 0
        result = np.empty([a + size + b for a, size, b in extents], data.dtype)
        result.fill(empty if constant_value is None else constant_value.reshape(()).item())  # as it is, a string too
        part = data[cut]
        places = (slice(max(a, 0), max(a, 0) + length) for (a, _, _), length in zip(extents, part.shape, strict=True))
        if part.size:
            result[tuple(places)] = part
        return result

    def lower(
        self, to: Lowering, data: Value, pads: Value, constant_value: Value | None = None, axes: Value | None = None
    ) -> Value:
        before, after = self._of(to.context, data, pads, axes)
        operands = [data]
        if self.mode == "constant" and constant_value is not None:
            operands.append(to.reshape(constant_value, ()))
        return to.emit(c.Pad(tuple(before), tuple(after), self.mode), operands, to.type)
