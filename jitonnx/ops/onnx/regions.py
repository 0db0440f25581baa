"""Regions of images brought to one size, for detectors' second stages."""

from __future__ import annotations

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError, Operator
from jitonnx.ir.raw import RawNode
from jitonnx.ir.types import TensorType
from jitonnx.ops.base import lower_halves, widen
from jitonnx.support.records import NamedTuple

_MODES = ("avg", "max")
_COORDINATES = ("half_pixel", "output_half_pixel")


class _Samples(NamedTuple):
    """The samples of all bins of a region along an axis, [bins, samples]."""

    low: np.ndarray
    high: np.ndarray
    rest: np.ndarray
    """How far behind `low` they lie."""
    inside: np.ndarray


class RoiAlign(Operator):
    """Averages or largest of interpolated samples, in bins of regions rois [R, 4] (x1, y1, x2, y2) of images X.

    A bin has sampling_ratio samples each way, or as many as it has pixels. The largest is that of the products of
    pixels and their weights, of all samples, as in onnx's reference and onnxruntime.
    """

    coordinate_transformation_mode: str = "half_pixel"
    mode: str = "avg"
    output_height: int = 1
    output_width: int = 1
    sampling_ratio: int = 0
    spatial_scale: float = 1.0

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        if node.version < 16:
            node.attributes["coordinate_transformation_mode"] = "output_half_pixel"

    def infer(self, context: InferenceContext, x: Value, rois: Value, batch_indices: Value) -> TensorType:
        for name, value, allowed in (
            ("mode", self.mode, _MODES),
            ("coordinate_transformation_mode", self.coordinate_transformation_mode, _COORDINATES),
        ):
            if value.lower() not in allowed:
                raise InferenceError(f"{name} is {value!r}; one of {', '.join(allowed)} expected")
        if len(x.shape) != 4 or len(rois.shape) != 2 or not context.demand_equal(rois.shape[1], 4):
            raise InferenceError(f"X {x.type} and rois {rois.type}: [N, C, H, W] and [R, 4] expected")
        if len(batch_indices.shape) != 1 or not context.demand_equal(batch_indices.shape[0], rois.shape[0]):
            raise InferenceError(
                f"rois {rois.type} and batch_indices {batch_indices.type}: [R, 4] and [R] expected, an index each"
            )
        if self.output_height < 1 or self.output_width < 1 or self.sampling_ratio < 0:
            raise InferenceError(
                f"output_height {self.output_height}, output_width {self.output_width}, sampling_ratio "
                f"{self.sampling_ratio}: sizes of at least 1 and a ratio of at least 0 expected"
            )
        return TensorType(x.dtype, (rois.shape[0], x.shape[1], self.output_height, self.output_width))

    def evaluate(self, x: np.ndarray, rois: np.ndarray, batch_indices: np.ndarray) -> np.ndarray:
        wide, corners = widen(x), widen(rois) * self.spatial_scale
        height, width = self.output_height, self.output_width
        result = np.zeros((len(rois), x.shape[1], height, width), wide.dtype)
        if self._half_pixel:
            corners = corners - corners.dtype.type(0.5)
        for image in batch_indices:
            if not 0 <= image < len(x):
                raise ValueError(f"batch_indices names image {image} of {len(x)}")
        if 0 in x.shape[1:]:
            return result.astype(x.dtype)
        for number, ((left, top, right, bottom), image) in enumerate(zip(corners, batch_indices, strict=True)):
            rows = self._samples(top, bottom, height, x.shape[2])
            columns = self._samples(left, right, width, x.shape[3])
            if rows.low.size and columns.low.size:
                result[number] = self._region(wide[image], rows, columns)
        return result.astype(x.dtype)

    @property
    def _half_pixel(self) -> bool:
        return self.coordinate_transformation_mode.lower() == "half_pixel"

    def _samples(self, start: np.floating, end: np.floating, bins: int, length: int) -> _Samples:
        one = type(start)
        extent = end - start if self._half_pixel else max(end - start, one(1))
        size = extent / one(bins)
        count = self.sampling_ratio or max(int(np.ceil(size)), 0)
        bin, sample = np.arange(bins, dtype=one)[:, None], np.arange(count, dtype=one)
        at = start + bin * size + (sample + one(0.5)) * size / one(count)
        inside = (at >= -1) & (at <= length)
        at = np.maximum(at, one(0))
        low = np.minimum(at, one(length)).astype(np.int64)
        behind = low >= length - 1
        low = np.where(behind, length - 1, low)
        return _Samples(low, np.where(behind, low, low + 1), np.where(behind, one(0), at - low.astype(one)), inside)

    def _region(self, x: np.ndarray, rows: _Samples, columns: _Samples) -> np.ndarray:
        """The bins of one region of x [C, H, W]."""
        inside = rows.inside[:, :, None, None] & columns.inside
        products = []
        for row, row_weight in ((rows.low, 1 - rows.rest), (rows.high, rows.rest)):
            for column, column_weight in ((columns.low, 1 - columns.rest), (columns.high, columns.rest)):
                weight = row_weight[:, :, None, None] * column_weight
                pixels = x[:, row[:, :, None, None], column]
                products.append(np.where(inside, pixels * weight, x.dtype.type(0)))
        if self.mode.lower() == "max":
            return np.maximum.reduce(products).max(axis=(2, 4))
        return sum(products).mean(axis=(2, 4))

    @lower_halves
    def lower(self, to: Lowering, x: Value, rois: Value, batch_indices: Value) -> Value:
        computation = c.RoiAlign(
            self.mode.lower(),
            self.output_height,
            self.output_width,
            self.sampling_ratio,
            self.spatial_scale,
            self._half_pixel,
        )
        shape = (rois.shape[0], x.shape[1], self.output_height, self.output_width)
        return to.emit(computation, (x, rois, batch_indices), TensorType(x.dtype, shape))


class MaxRoiPool(Operator):
    """The largest pixels in bins of regions rois [R, 5] (image, x1, y1, x2, y2) of images X; 0 in bins without any.

    As in onnxruntime, corners are rounded, halves away from 0, and both belong to their region.
    """

    pooled_shape: tuple[int, ...]
    spatial_scale: float = 1.0

    def infer(self, context: InferenceContext, x: Value, rois: Value) -> TensorType:
        if len(self.pooled_shape) != 2 or min(self.pooled_shape) < 1:
            raise InferenceError(f"pooled_shape is {list(self.pooled_shape)}; two sizes above 0 are needed")
        if len(x.shape) != 4 or len(rois.shape) != 2 or not context.demand_equal(rois.shape[1], 5):
            raise InferenceError(f"X {x.type} and rois {rois.type}: [N, C, H, W] and [R, 5] expected")
        return TensorType(x.dtype, (rois.shape[0], x.shape[1], *self.pooled_shape))

    def evaluate(self, x: np.ndarray, rois: np.ndarray) -> np.ndarray:
        wide = widen(rois)
        scaled = wide[:, 1:] * self.spatial_scale
        corners = np.trunc(scaled + np.copysign(scaled.dtype.type(0.5), scaled))
        result = np.zeros((len(rois), x.shape[1], *self.pooled_shape), x.dtype)
        for number, ((left, top, right, bottom), image) in enumerate(zip(corners, wide[:, 0], strict=True)):
            if not 0 <= int(image) < len(x):
                raise ValueError(f"rois name image {int(image)} of {len(x)}")
            rows = _pooled(top, bottom, self.pooled_shape[0], x.shape[2])
            columns = _pooled(left, right, self.pooled_shape[1], x.shape[3])
            for row, (y, below) in enumerate(rows):
                for column, (across, behind) in enumerate(columns):
                    pixels = x[int(image), :, y:below, across:behind]
                    if 0 not in pixels.shape[1:]:
                        result[number, :, row, column] = pixels.max(axis=(1, 2))
        return result

    @lower_halves
    def lower(self, to: Lowering, x: Value, rois: Value) -> Value:
        count = rois.shape[0]
        image = to.reshape(to.slice(rois, (0, 0), (1, 1), (count, 1)), (count,))
        corners = to.slice(rois, (0, 1), (1, 1), (count, 4))
        height, width = self.pooled_shape
        computation = c.RoiAlign("pool", height, width, 0, self.spatial_scale, half_pixel=False)
        shape = (count, x.shape[1], *self.pooled_shape)
        return to.emit(computation, (x, corners, to.cast(image, DType.INT64)), TensorType(x.dtype, shape))


def _pooled(start: np.floating, end: np.floating, bins: int, length: int) -> list[tuple[int, int]]:
    """The pixels of each bin of a region along an axis: the first, and that behind the last."""
    one = type(start)
    size = max(end - start + one(1), one(1)) / one(bins)
    edges = ((np.floor(one(bin) * size), np.ceil(one(bin + 1) * size)) for bin in range(bins))
    return [tuple(int(min(max(edge + start, 0), length)) for edge in pair) for pair in edges]  # type: ignore[misc]
