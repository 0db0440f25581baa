"""Blocks of pixels moved between the channels and the spatial axes of [N, C, H, W]."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dims import DimLike, floor_divide
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import EXACT, InferenceContext
from jitonnx.ir.operator import InferenceError, Operator
from jitonnx.ir.types import Shape, TensorType


class _Blocks(Operator):
    """A reshape to six axes, a transpose and a reshape."""

    permutations: ClassVar[dict[str, tuple[int, ...]]]
    """Order of the six axes by `mode`."""

    blocksize: int
    mode: str = "DCR"

    def _steps(self, context: InferenceContext, shape: Shape) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The shapes of the first and of the last reshape."""
        raise NotImplementedError

    def _check(self, shape: Shape) -> None:
        if len(shape) != 4:
            raise InferenceError(f"input has {len(shape)} axes, [N, C, H, W] expected")
        if self.mode not in self.permutations:
            raise InferenceError(f"mode {self.mode!r}: DCR or CRD expected")
        if self.blocksize < 1:
            raise InferenceError(f"blocksize is {self.blocksize}: at least 1 expected")

    def _divided(self, context: InferenceContext, name: str, size: DimLike, divisor: int) -> DimLike:
        if not context.demand_divisible(size, divisor):
            raise InferenceError(f"{name} is {size}, which {divisor} does not divide (blocksize {self.blocksize})")
        return floor_divide(size, divisor)

    def infer(self, context: InferenceContext, x: Value) -> TensorType:
        self._check(x.shape)
        return TensorType(x.dtype, self._steps(context, x.shape)[1])

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        first, last = self._steps(EXACT, x.shape)
        return np.ascontiguousarray(x.reshape(first).transpose(self.permutations[self.mode])).reshape(last)

    def lower(self, to: Lowering, x: Value) -> Value:
        first, last = self._steps(to.context, x.shape)
        return to.reshape(to.transpose(to.reshape(x, first), self.permutations[self.mode]), last)


class DepthToSpace(_Blocks):
    """Channels spread over blocks of blocksize by blocksize pixels."""

    permutations: ClassVar = {"DCR": (0, 3, 4, 1, 5, 2), "CRD": (0, 1, 4, 2, 5, 3)}

    def _steps(self, context: InferenceContext, shape: Shape) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        n, channels, height, width = shape
        b = self.blocksize
        depth = self._divided(context, "the number of channels", channels, b * b)
        inner = (b, b, depth) if self.mode == "DCR" else (depth, b, b)
        return (n, *inner, height, width), (n, depth, height * b, width * b)


class SpaceToDepth(_Blocks):
    """Blocks of blocksize by blocksize pixels gathered into channels."""

    permutations: ClassVar = {"DCR": (0, 3, 5, 1, 2, 4), "CRD": (0, 1, 3, 5, 2, 4)}

    def _steps(self, context: InferenceContext, shape: Shape) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        n, channels, height, width = shape
        b = self.blocksize
        rows, columns = self._divided(context, "the height", height, b), self._divided(context, "the width", width, b)
        return (n, channels, rows, b, columns, b), (n, channels * b * b, rows, columns)
