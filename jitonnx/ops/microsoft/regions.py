"""Parts of images at one size."""

from __future__ import annotations

import numpy as np

from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.operator import InferenceError
from jitonnx.ops.composite import Parts
from jitonnx.ops.microsoft.base import Contributed, of_type
from jitonnx.ops.onnx.arithmetic import Add, Div, Floor, Max, Mul, Sub
from jitonnx.ops.onnx.concat_split import Concat
from jitonnx.ops.onnx.gather import Gather
from jitonnx.ops.onnx.generators import Range
from jitonnx.ops.onnx.grid_sample import GridSample
from jitonnx.ops.onnx.logic import And, Equal, GreaterOrEqual, LessOrEqual, Where
from jitonnx.ops.onnx.shape import Expand, Shape, Squeeze, Unsqueeze
from jitonnx.ops.parts import as_type, numbers, widened


class CropAndResize(Contributed):
    """Boxes rois [R, 4] (y1, x1, y2, x2, from 0 to 1 over the pixels' centres) of the images X [N, C, H, W] that
    batch_indices [R] say, at crop_size [2]: [R, C, height, width]. mode: bilinear or nearest.

    Corners fall on corners; a size of 1 takes the middle. Outside an image is extrapolation_value.
    """

    extrapolation_value: float = 0.0
    mode: str = "bilinear"

    def compose(self, parts: Parts, x: Value, rois: Value, images: Value, sizes: Value) -> Value:
        if self.mode not in ("bilinear", "nearest"):
            raise InferenceError(f"mode is {self.mode!r}; bilinear and nearest are known")
        if len(x.shape) != 4 or len(rois.shape) != 2 or not parts.context.demand_equal(rois.shape[1], 4):
            raise InferenceError(f"X is {x.type}, rois {rois.type}; [N, C, H, W] and [R, 4] are needed")
        if not parts.context.demand_equal(sizes.shape[0] if len(sizes.shape) == 1 else 0, 2):
            raise InferenceError(f"crop_size is {sizes.type}; [2], height and width, is needed")
        wide, boxes = widened(parts, x), widened(parts, rois)
        down, across = (self._places(parts, boxes, sizes, axis) for axis in (0, 1))
        of_y, of_x = (self._most(parts, wide, axis) for axis in (2, 3))
        rows, columns = numbers(parts, 2), numbers(parts, 1)
        inside = parts.add(And(), self._inside(parts, down, of_y, rows), self._inside(parts, across, of_x, columns))
        shape, last = parts.add(Shape(), inside), numbers(parts, 3)
        spread = [
            parts.add(Expand(), parts.add(Unsqueeze(), self._coordinates(parts, one, most), axis), shape)
            for one, most, axis in ((across, of_x, columns), (down, of_y, rows))
        ]
        grid = parts.add(Concat(axis=3), *(parts.add(Unsqueeze(), one, last) for one in spread))
        operator = GridSample(
            align_corners=True, mode="linear" if self.mode == "bilinear" else "nearest", padding_mode="border"
        )
        y = parts.add(operator, parts.add(Gather(axis=0), wide, images), grid)
        within = parts.add(Unsqueeze(), inside, numbers(parts, 1))
        return as_type(parts, parts.add(Where(), within, y, of_type(parts, self.extrapolation_value, y)), x.dtype)

    def _places(self, parts: Parts, boxes: Value, sizes: Value, axis: int) -> Value:
        """The places of each crop's pixels along an axis of the image, which goes from 0 to 1: [R, size]."""
        first, last = (parts.add(Gather(axis=1), boxes, numbers(parts, axis + n)) for n in (0, 2))
        size = as_type(parts, parts.add(Gather(axis=0), sizes, parts.constant(np.int64(axis))), DType.INT64)
        zero, one = (parts.constant(np.int64(number)) for number in (0, 1))
        steps = parts.add(Range(), zero, size, one)
        most = parts.add(Sub(), size, one)
        share = parts.add(
            Div(), as_type(parts, steps, boxes.dtype), as_type(parts, parts.add(Max(), most, one), boxes.dtype)
        )
        single = parts.add(Equal(), most, zero)
        share = parts.add(Where(), single, of_type(parts, 0.5, boxes), share)
        between = parts.add(Add(), first, parts.add(Mul(), share, parts.add(Sub(), last, first)))
        at_end = parts.add(Equal(), share, of_type(parts, 1.0, boxes))
        return parts.add(Where(), at_end, last, between)

    def _most(self, parts: Parts, x: Value, axis: int) -> Value:
        """The place of the image's last pixel along an axis."""
        size = as_type(parts, parts.add(Squeeze(), parts.add(Shape(start=axis, end=axis + 1), x)), x.dtype)
        return parts.add(Sub(), size, of_type(parts, 1.0, x))

    def _inside(self, parts: Parts, places: Value, most: Value, axis: Value) -> Value:
        pixel = parts.add(Mul(), places, most)
        low = parts.add(GreaterOrEqual(), pixel, of_type(parts, 0.0, places))
        return parts.add(Unsqueeze(), parts.add(And(), low, parts.add(LessOrEqual(), pixel, most)), axis)

    def _coordinates(self, parts: Parts, places: Value, most: Value) -> Value:
        """The places as GridSample counts, from -1 to 1; the nearest pixel's, halves up, if that is wanted."""
        if self.mode == "nearest":
            pixel = parts.add(Add(), parts.add(Mul(), places, most), of_type(parts, 0.5, places))
            places = parts.add(Div(), parts.add(Floor(), pixel), parts.add(Max(), most, of_type(parts, 1.0, places)))
        return parts.add(Sub(), parts.add(Mul(), places, of_type(parts, 2.0, places)), of_type(parts, 1.0, places))
