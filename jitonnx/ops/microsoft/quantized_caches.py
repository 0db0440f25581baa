"""Caches of keys and values as integers of 8 or 4 bits: how rows become these, and how attention reads them.

A number is scale * integer, the scale one for all or one for each element of each head. Of 4 bits two lie in a byte,
each plus 8, the one of even number in its low bits.

Attention reads the integers as they lie. What they are multiplied by is a factor for each element of a head, so queries
are multiplied by that of keys, and results by that of values: both have a row for each query, and not for each key.
"""

from __future__ import annotations

import numpy as np

from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dims import DimLike, floor_divide, product
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError
from jitonnx.ops.base import widen
from jitonnx.ops.microsoft.nbits import packed, unpacked
from jitonnx.support.records import dataclass

GRANULARITIES = ("NONE", "PER_TENSOR", "PER_CHANNEL")
_CACHES = {8: DType.INT8, 4: DType.UINT8}


@dataclass(frozen=True)
class QuantizedCache:
    """A cache of keys or of values [batch, heads, rows, depth] as integers. name: what errors call its scale."""

    bits: int
    by_channel: bool
    heads: int
    name: str

    @property
    def dtype(self) -> DType:
        """The element type that it lies as."""
        return _CACHES[self.bits]

    # ------------------------------------------------------------ types

    def row(self, depth: DimLike) -> DimLike:
        """How many elements of its type a row of `depth` numbers takes."""
        return depth if self.bits == 8 else floor_divide(depth, 2)

    def check(self, context: InferenceContext, scale: Value | None, depth: DimLike) -> None:
        """InferenceError unless there is a scale of the right size, and rows end with bytes."""
        if scale is None:
            raise InferenceError(f"{self.name} is absent: caches of integers have scales")
        wanted = self.heads * depth if self.by_channel else 1
        if scale.dtype is not DType.FLOAT or not context.demand_equal(product(scale.shape), wanted):
            raise InferenceError(f"{self.name} is {scale.type}; {wanted} elements of float32 are needed")
        if self.bits == 4 and not context.demand_divisible(depth, 2):
            raise InferenceError(f"heads of {depth} elements are no whole number of bytes of two each")

    # ------------------------------------------------------------ evaluation

    def _spread(self, scale: np.ndarray) -> np.ndarray:
        return scale.reshape(1, self.heads, 1, -1) if self.by_channel else scale.reshape(())

    def quantized(self, x: np.ndarray, scale: np.ndarray) -> np.ndarray:
        """Rows of numbers as they lie in the cache."""
        most = 1 << (self.bits - 1)
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            numbers = np.rint(widen(x) * (np.float32(1) / self._spread(scale)))
        numbers = np.clip(np.where(np.isnan(numbers), -most, numbers), -most, most - 1)
        return numbers.astype(np.int8) if self.bits == 8 else packed((numbers + most).astype(np.uint8), 4)

    def widened(self, cache: np.ndarray, scale: np.ndarray) -> np.ndarray:
        """The numbers of a cache, float32."""
        integers = cache if self.bits == 8 else unpacked(cache, 4).astype(np.int8) - 8
        numbers: np.ndarray = integers.astype(np.float32) * self._spread(scale)
        return numbers

    # ------------------------------------------------------------ lowering

    def _lower_scale(self, to: Lowering, scale: Value, x: Value) -> Value:
        """The scale such that it broadcasts to x [batch, some multiple of the heads, rows, depth]."""
        if not self.by_channel:
            return to.reshape(scale, (1, 1, 1, 1))
        heads, depth = x.shape[1], x.shape[3]
        groups = floor_divide(heads, self.heads)
        single = to.reshape(scale, (1, self.heads, 1, depth))
        return to.reshape(to.broadcast(single, (1, self.heads, groups, depth)), (1, heads, 1, depth))

    def _lower_halves(self, to: Lowering, x: Value) -> list[Value]:
        """The elements of even and of odd number of each row; of one alone, that one."""
        if x.shape[3] == 1:
            return [x, x]
        half = (*x.shape[:3], floor_divide(x.shape[3], 2))
        return [to.slice(x, (0, 0, 0, first), (1, 1, 1, 2), half) for first in (0, 1)]

    def lower_quantized(self, to: Lowering, x: Value, scale: Value) -> Value:
        """Rows of float32 as they lie in the cache."""
        x = to.cast(x, DType.FLOAT)
        factors, most = self._lower_scale(to, scale, x), 1 << (self.bits - 1)

        def number(first: int) -> e.Expr:
            """Operand `first` as an int32, by the scale that is the next operand."""
            quotient = e.operand(first, DType.FLOAT) * (1.0 / e.operand(first + 1, DType.FLOAT))
            return e.nearest_low(e.within(quotient, float(-most), float(most - 1)))

        if self.bits == 8:
            return to.map(e.cast(number(0), DType.INT8), x, factors)
        (even, odd), (low, high) = self._lower_halves(to, x), self._lower_halves(to, factors)
        byte = (number(0) + most) + (number(2) + most) * 16
        return to.map(e.cast(byte, DType.UINT8), even, low, odd, high)

    def lower_queries(self, to: Lowering, q: Value, scale: Value) -> Value:
        """Queries of float32 as they are multiplied with the integers: those of 4 bits are read even ones first."""
        factors, x = self._lower_scale(to, scale, q), e.operand(0, DType.FLOAT)
        scaled = x * e.operand(1, DType.FLOAT)
        if self.bits == 8:
            return to.map(scaled, q, factors)
        parts = zip(self._lower_halves(to, q), self._lower_halves(to, factors), strict=True)
        return to.concat([to.map(scaled, part, factor) for part, factor in parts], 3)

    def lower_results(self, to: Lowering, y: Value, scale: Value) -> Value:
        """What attention makes of the integers of values, as numbers in their order."""
        factors, scaled = self._lower_scale(to, scale, y), e.operand(0, DType.FLOAT) * e.operand(1, DType.FLOAT)
        if self.bits == 8:
            return to.map(scaled, y, factors)
        batch, heads, rows, depth = y.shape
        half = floor_divide(depth, 2)
        pairs = to.transpose(to.reshape(y, (batch, heads, rows, 2, half)), (0, 1, 2, 4, 3))
        if self.by_channel:
            factors = to.reshape(factors, (1, heads, 1, half, 2))
        else:
            factors = to.reshape(factors, (1, 1, 1, 1, 1))
        return to.reshape(to.map(scaled, pairs, factors), y.shape)

    def lower_widened(self, to: Lowering, cache: Value) -> Value:
        """The integers of a cache as float32, in the order in which attention reads them."""
        if self.bits == 8:
            return to.cast(cache, DType.FLOAT)
        byte = e.cast(e.operand(0, DType.UINT8), DType.INT32)
        numbers = (e.bitwise_and(byte, 15), e.shift_right(byte, 4))
        return to.concat([to.map(e.cast(number - 8, DType.FLOAT), cache) for number in numbers], 3)
