"""Images sampled at the points of a grid, and grids made of affine maps: spatial transformers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.computation.sampling import MODES, OUTSIDES, sample
from jitonnx.ir.dims import DimLike, known, product
from jitonnx.ir.dtypes import HALVES, DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError, Operator
from jitonnx.ir.raw import RawNode
from jitonnx.ir.types import TensorType, contents_array
from jitonnx.ops.base import count_of, lower_halves, widen

_OLD_MODES = {"bilinear": "linear", "bicubic": "cubic"}


class GridSample(Operator):
    """X [N, C, spatial...] at the points of grid [N, out..., axes], whose last axis counts spatial axes backwards.

    Points are in [-1, 1] along each axis, which are the outer edges of the outermost elements, or their centres if
    align_corners. Integers are interpolated as floating-point numbers and cut off.
    """

    align_corners: bool = False
    mode: str = "linear"
    padding_mode: str = "zeros"

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        if node.version < 20 and "mode" in node.attributes:
            node.attributes["mode"] = _OLD_MODES.get(node.attributes["mode"], node.attributes["mode"])

    def infer(self, context: InferenceContext, x: Value, grid: Value) -> TensorType:
        for name, value, allowed in (("mode", self.mode, MODES), ("padding_mode", self.padding_mode, OUTSIDES)):
            if value not in allowed:
                raise InferenceError(f"{name} is {value!r}; one of {', '.join(allowed)} expected")
        if x.dtype is DType.STRING and self.mode != "nearest":
            raise InferenceError(f"X holds strings, of which mode {self.mode!r} makes none")
        axes = len(x.shape) - 2
        if axes < 1 or len(grid.shape) != axes + 2:
            raise InferenceError(f"X {x.type} and grid {grid.type}: [N, C, spatial...] and [N, out..., axes] expected")
        if not context.demand_equal(grid.shape[-1], axes) or not context.demand_equal(grid.shape[0], x.shape[0]):
            wanted = f"should begin with {x.shape[0]} and end with {axes}"
            raise InferenceError(f"grid {grid.type} {wanted}, as X is {x.type}")
        if self.padding_mode != "zeros" and not all(map(context.demand_some, x.shape[2:])):
            raise InferenceError(f"X {x.type} has no elements to sample")
        return TensorType(x.dtype, (*x.shape[:2], *grid.shape[1:-1]))

    def evaluate(self, x: np.ndarray, grid: np.ndarray) -> np.ndarray:
        images, channels, *shape = x.shape
        points = np.moveaxis(widen(grid).reshape(images, math.prod(grid.shape[1:-1]), len(shape)), 2, 1)[:, ::-1]
        sizes = np.array(shape).reshape(-1, 1).astype(points.dtype)
        coordinates = e.evaluate(self._coordinate(points.dtype), [points, sizes], points.shape)
        wide = x
        if self.mode != "nearest":
            wide = widen(x) if x.dtype.kind not in "iub" else x.astype(np.float64)
            coordinates = coordinates.astype(np.float64 if wide.dtype.kind == "c" else wide.dtype)
        y = sample(wide, coordinates, self.mode, self.padding_mode, aligned=self.align_corners)
        if x.dtype.kind in "iu" and self.mode != "nearest":
            y = np.clip(np.trunc(y), *_limits(x.dtype))
        return y.astype(x.dtype).reshape(images, channels, *grid.shape[1:-1])

    def _coordinate(self, dtype: np.dtype[Any]) -> e.Expr:
        """The coordinate, in elements, of a point (operand 0) along an axis whose size is operand 1."""
        kind = DType.DOUBLE if dtype == np.float64 else DType.FLOAT
        point, size = e.operand(0, kind), e.operand(1, kind)
        if self.align_corners:
            x, low, high = (point + 1.0) / 2.0 * (size - 1.0), e.constant(0, kind), size - 1.0
        else:
            x, low, high = ((point + 1.0) * size - 1.0) / 2.0, e.constant(-0.5, kind), size - 0.5
        if self.mode == "nearest":
            x = e.round_even(x)
        if self.padding_mode == "zeros":
            return x
        if self.padding_mode == "border":
            # Taps beyond the border read it; a point so far away that all of its taps do may be moved, one nearer not.
            reach = 2.0 if self.mode == "cubic" else 0.0
            return e.minimum(e.maximum(x, -reach), size - 1.0 + reach)
        outside = e.binary("logical_or", x < low, x > high)
        span, away = high - low, e.absolute(x - low)
        turns = e.floor(away / span)
        rest = away - turns * span
        odd = e.not_equal(turns, e.floor(turns / 2.0) * 2.0)
        reflected = e.where(span > 0.0, e.where(odd, high - rest, low + rest), low)
        return e.where(outside, reflected, x)

    def lower(self, to: Lowering, x: Value, grid: Value) -> Any:
        if self.mode == "nearest":
            return self._sampled(to, x, grid, DType.FLOAT)
        return self._interpolated(to, x, grid)

    @lower_halves
    def _interpolated(self, to: Lowering, x: Value, grid: Value) -> Any:
        if x.dtype.is_float:
            return self._sampled(to, x, grid, x.dtype)
        if x.dtype is DType.BOOL:
            y = self._sampled(to, to.cast(x, DType.FLOAT), grid, DType.FLOAT)
            return to.map(e.cast(e.operand(0, DType.FLOAT), DType.BOOL), y)
        kind = DType.FLOAT if x.dtype.itemsize < 4 else DType.DOUBLE  # which hold all of their numbers, but 64 bits'
        y = self._sampled(to, to.cast(x, kind), grid, kind)
        least, most = _limits(x.dtype.numpy)
        return to.map(e.cast(e.minimum(e.maximum(e.operand(0, kind), least), most), x.dtype), y)

    def _sampled(self, to: Lowering, x: Value, grid: Value, kind: DType) -> Value:
        """x as it is at the points, which are computed with as the grid's type and rounded to `kind`."""
        images, channels, *shape = x.shape
        axes, out = len(shape), grid.shape[1:-1]
        if grid.dtype in HALVES:
            grid = to.cast(grid, DType.FLOAT)
        points = to.transpose(to.reshape(grid, (images, product(out), axes)), (0, 2, 1))
        backwards = to.slice(points, (0, axes - 1, 0), (1, -1, 1), points.shape)
        coordinate = self._coordinate(grid.dtype.numpy)
        coordinates = to.map(e.cast(coordinate, kind), backwards, _sizes(to, shape, grid.dtype))
        y = to.emit(
            c.Sample(self.mode, self.padding_mode, self.align_corners),
            (x, coordinates),
            TensorType(x.dtype, (images, channels, product(out))),
        )
        return to.reshape(y, (images, channels, *out))


def _limits(dtype: np.dtype[Any]) -> tuple[float, float]:
    """The least and the largest floating-point number that an integer type holds."""
    limits = np.iinfo(dtype)
    largest = float(limits.max)
    return float(limits.min), largest if largest <= limits.max else float(np.nextafter(largest, 0))


def _sizes(to: Lowering, shape: list[DimLike], dtype: DType) -> Value:
    """The sizes of axes, as a column of floating-point numbers."""
    if known(shape):
        return to.constant(np.array(shape, dtype.numpy).reshape(-1, 1))
    column = to.dimensions(contents_array(shape, (len(shape), 1)))
    return to.cast(column, dtype)


class AffineGrid(Operator):
    """The grid of GridSample that samples images of `size` [N, C, spatial...] through affine maps theta, one an image.

    theta [N, axes, axes + 1] has the last spatial axis first, and the translation last.
    """

    align_corners: bool = False

    def infer(self, context: InferenceContext, theta: Value, size: Value) -> TensorType:
        images, _, *shape = self._size(context, theta, context.constant_of(size, "size"))
        if not context.demand_equal(images, theta.shape[0]):
            raise InferenceError(f"size begins with {images}, but theta {theta.type} has {theta.shape[0]} maps")
        return TensorType(theta.dtype, (images, *shape, len(shape)))

    def infer_open(self, theta: Value, size: Value) -> TensorType:
        axes = theta.shape[1] if len(theta.shape) == 3 else None
        if not isinstance(axes, int):
            axes = count_of(size) - 2
        return TensorType(theta.dtype, (theta.shape[0], *(None,) * axes, axes))  # type: ignore[arg-type]

    def _size(self, context: InferenceContext, theta: Value, size: list[Any]) -> list[Any]:
        axes = len(size) - 2
        if axes not in (2, 3) or len(theta.shape) != 3:
            raise InferenceError(f"theta {theta.type}, size {size}: [N, 2, 3] and 4, or [N, 3, 4] and 5 sizes expected")
        if not context.demand_equal(theta.shape[1], axes) or not context.demand_equal(theta.shape[2], axes + 1):
            raise InferenceError(f"theta {theta.type} does not fit size {size}: [N, {axes}, {axes + 1}] expected")
        return size

    def evaluate(self, theta: np.ndarray, size: np.ndarray) -> np.ndarray:
        shape = tuple(int(length) for length in size[2:])
        axes = len(shape)
        maps = theta.astype(np.float64)
        grid = np.broadcast_to(maps[:, :, axes].reshape(-1, *(1,) * axes, axes), (len(theta), *shape, axes))
        for column, axis in enumerate(reversed(range(axes))):
            along = _positions(shape[axis], aligned=self.align_corners).reshape(-1, *(1,) * (axes - axis))
            grid = grid + maps[:, :, column].reshape(-1, *(1,) * axes, axes) * along
        return grid.astype(theta.dtype)

    @lower_halves
    def lower(self, to: Lowering, theta: Value, size: Value) -> Value:
        """Each coordinate of the grid is a plane, which reads its row of theta."""
        images, _, *shape = self._size(to.context, theta, to.context.constant_of(size, "size"))
        axes = len(shape)
        dtype = theta.dtype
        planes = (images, axes, *shape)
        columns = []
        for column in range(axes + 1):
            part = to.slice(theta, (0, 0, column), (1, 1, 1), (images, axes, 1))
            columns.append(to.broadcast(to.reshape(part, (images, axes, *(1,) * axes)), planes))
        total = e.operand(axes, dtype)
        for column, axis in enumerate(reversed(range(axes))):
            total = total + e.operand(column, dtype) * e.operand(len(columns), dtype)
            along = self._along(to, shape[axis], dtype)
            columns.append(to.reshape(along, (shape[axis], *(1,) * (axes - 1 - axis))))
        return to.transpose(to.map(total, *columns), (0, *range(2, 2 + axes), 1))

    def _along(self, to: Lowering, length: DimLike, dtype: DType) -> Value:
        """`_positions` of an axis whose length a run may tell."""
        if isinstance(length, int):
            return to.constant(_positions(length, aligned=self.align_corners).astype(dtype.numpy))
        count, twice = e.cast(e.operand(0, DType.INT64), dtype), e.cast(e.index(0), dtype) * 2.0
        if self.align_corners:
            along = e.where(count > 1.0, (twice - (count - 1.0)) / (count - 1.0), -1.0)
        else:
            along = (twice + 1.0 - count) / count
        return to.map(along, to.broadcast(to.dimensions(contents_array((length,), ())), (length,)))


def _positions(length: int, *, aligned: bool) -> np.ndarray:
    """The positions of the elements of an axis in [-1, 1]: the ends are the outermost centres if aligned, else the
    outer edges."""
    twice = 2 * np.arange(length, dtype=np.float64)
    if aligned:
        return (twice - (length - 1)) / (length - 1) if length > 1 else np.full(length, -1.0)
    return (twice + 1 - length) / length
