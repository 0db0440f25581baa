"""Tensors made larger at their ends."""

from __future__ import annotations

from collections.abc import Sequence
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


def pad(
    x: np.ndarray, value: np.ndarray | None = None, *, before: Sequence[Any], after: Sequence[Any], mode: Any
) -> np.ndarray:
    """x with elements added, or where it is negative cut, at the ends of each axis."""
    ends = list(zip(before, x.shape, after, strict=True))
    kept = x[tuple(slice(max(0, -low), max(size + min(high, 0), 0)) for low, size, high in ends)]
    widths = [(max(low, 0), max(high, 0)) for low, _, high in ends]
    if mode != "constant":
        return np.pad(kept, widths, mode=mode)
    empty: Any = "" if x.dtype == object else 0
    y = np.empty([low + size + high for low, size, high in ends], x.dtype)
    y.fill(empty if value is None else value.reshape(()).item())  # as it is, a string too
    if kept.size:
        y[tuple(slice(low, low + size) for (low, _), size in zip(widths, kept.shape, strict=True))] = kept
    return y


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
        before, after = self._ends(x.shape, sizes)
        return pad(x, before=before, after=after, mode="constant")

    def lower(self, to: Lowering, x: Value, shape: Value) -> Value:
        return to.emit(c.Pad(*self._ends(x.shape, to.shape), "constant"), (x,), to.type)

    @staticmethod
    def _ends(have: Sequence[Any], want: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """What is added before and after each axis; below 0, cut."""
        less = [b - a for a, b in zip(have, want, strict=True)]
        before = [floor_divide(maximum(more, 0), 2) - floor_divide(maximum(0 - more, 0), 2) for more in less]
        return tuple(before), tuple(more - front for more, front in zip(less, before, strict=True))


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
        return pad(data, constant_value, before=low, after=high, mode=self.mode)

    def lower(
        self, to: Lowering, data: Value, pads: Value, constant_value: Value | None = None, axes: Value | None = None
    ) -> Value:
        before, after = self._of(to.context, data, pads, axes)
        operands = [data]
        if self.mode == "constant" and constant_value is not None:
            operands.append(to.reshape(constant_value, ()))
        return to.emit(c.Pad(tuple(before), tuple(after), self.mode), operands, to.type)
