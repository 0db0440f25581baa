"""Operators that onnxruntime had before ONNX took them up, or has beside ONNX's: each is ONNX's, told what differs."""

from __future__ import annotations

from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.operator import InferenceError
from jitonnx.ops.composite import Parts
from jitonnx.ops.microsoft.base import Contributed
from jitonnx.ops.onnx import gather, generators, grid_sample, padding, selection, trilu
from jitonnx.ops.onnx.identity import Identity
from jitonnx.ops.onnx.shape import Reshape, Unsqueeze
from jitonnx.ops.parts import as_type, numbers, scalar


class ExpandDims(Contributed):
    """Unsqueeze of one axis, a number."""

    def compose(self, parts: Parts, x: Value, axis: Value) -> Value:
        return parts.add(Unsqueeze(), x, parts.add(Reshape(), as_type(parts, axis, DType.INT64), numbers(parts, 1)))


class GatherND(Contributed):
    """ONNX's GatherND without batch axes."""

    def compose(self, parts: Parts, data: Value, indices: Value) -> Value:
        return parts.add(gather.GatherND(), data, as_type(parts, indices, DType.INT64))


class GridSample(Contributed):
    """ONNX's GridSample of images, whose modes are called bilinear and bicubic."""

    align_corners: bool = False
    mode: str = "bilinear"
    padding_mode: str = "zeros"

    def compose(self, parts: Parts, x: Value, grid: Value) -> Value:
        modes = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}
        if self.mode not in modes:
            raise InferenceError(f"mode is {self.mode!r}; one of {', '.join(modes)} expected")
        if len(x.shape) != 4:
            raise InferenceError(f"{x.name!r} is {x.type}; images [N, C, H, W] are needed")
        operator = grid_sample.GridSample(
            align_corners=self.align_corners, mode=modes[self.mode], padding_mode=self.padding_mode
        )
        return parts.add(operator, x, grid)


class Pad(Contributed):
    """ONNX's Pad, whose pads may be [1, 2 * rank]."""

    mode: str = "constant"

    def compose(self, parts: Parts, data: Value, pads: Value, value: Value | None = None) -> Value:
        if len(pads.shape) == 2:
            pads = parts.add(Reshape(), pads, numbers(parts, -1))
        if value is not None and len(value.shape):
            value = parts.add(Reshape(), value, numbers(parts))
        return parts.add(padding.Pad(mode=self.mode), data, pads, *([] if value is None else [value]))


class Range(Contributed):
    """ONNX's Range, of scalars or vectors of one element; delta is 1 if it is left out."""

    def compose(self, parts: Parts, start: Value, limit: Value, delta: Value | None = None) -> Value:
        delta = scalar(parts, 1, start) if delta is None else delta
        bounds = (x if not x.shape else parts.add(Reshape(), x, numbers(parts)) for x in (start, limit, delta))
        return parts.add(generators.Range(), *bounds)


class SampleOp(Contributed):
    """X as it is."""

    def compose(self, parts: Parts, x: Value) -> Value:
        return parts.add(Identity(), x)


class Trilu(Contributed):
    """ONNX's Trilu."""

    upper: int = 1

    def compose(self, parts: Parts, x: Value, k: Value | None = None) -> Value:
        return parts.add(trilu.Trilu(upper=self.upper), x, *([] if k is None else [k]))


class Unique(Contributed):
    """The distinct elements of a vector in the order in which they come first, where each element is among them, and
    how often each is there."""

    def compose(self, parts: Parts, x: Value) -> tuple[Value, ...]:
        if len(x.shape) != 1:
            raise InferenceError(f"{x.name!r} is {x.type}; a vector is needed")
        y, _, places, counts = parts.add_many(selection.Unique(sorted=0), (x,), 4)
        return y, places, counts
