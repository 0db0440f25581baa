"""Dropout, which in inference does nothing."""

from __future__ import annotations

import numpy as np

from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.drawing import STANDARD, drawn, seeded
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dtypes import HALVES, DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import Operator, internal
from jitonnx.ir.raw import RawNode
from jitonnx.ir.types import TensorType
from jitonnx.ops.base import is_narrow


class Dropout(Operator):
    """The input and a mask of what was kept. In inference that is everything.

    Only with training_mode (an input since version 12) elements are dropped, at random; older versions, whose `is_test`
    exporters did not set, are taken to mean inference.
    """

    deterministic = False

    seed: int | None = None
    mask_is_bool: bool = internal(default=True)

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        if node.version < 12:
            node.drop("is_test", "ratio")
            node.attributes["mask_is_bool"] = node.version >= 10

    def infer(
        self, context: InferenceContext, data: Value, ratio: Value | None = None, training: Value | None = None
    ) -> tuple[TensorType, ...]:
        return data.type, TensorType(DType.BOOL if self.mask_is_bool else data.dtype, data.shape)

    def evaluate(
        self, data: np.ndarray, ratio: np.ndarray | None = None, training: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        dropped = 0.5 if ratio is None else float(ratio)
        if training is None or not training or dropped == 0:
            return data, np.ones(data.shape, bool if self.mask_is_bool else data.dtype)
        wide = data.astype(np.float64)
        numbers = (
            drawn(STANDARD, data.size, np.float64 if data.dtype == np.float64 else np.float32)
            if self.seed is None
            else seeded(STANDARD, self.seed, data.size, np.float64)
        )
        mask = numbers.reshape(data.shape) >= dropped
        kept = wide * mask / (1 - dropped) if dropped < 1 else np.zeros(data.shape)
        return (kept.astype(np.float32) if is_narrow(data.dtype) else kept).astype(data.dtype), mask

    def lower(
        self, to: Lowering, data: Value, ratio: Value | None = None, training: Value | None = None
    ) -> tuple[Value, ...]:
        if training is not None and self.in_training(training):
            return self._dropped(to, data, ratio, training)
        one = e.constant(1, DType.BOOL if self.mask_is_bool else data.dtype)
        return data, to.fill(one, data.shape)

    def _dropped(self, to: Lowering, data: Value, ratio: Value | None, training: Value) -> tuple[Value, Value]:
        """What is kept, and the mask of it."""
        wide = DType.DOUBLE if self.seed is not None or data.dtype is DType.DOUBLE else DType.FLOAT
        numbers = to.draw(STANDARD, self.seed, wide, data.shape)
        share = to.constant(np.array(0.5)) if ratio is None else to.cast(to.reshape(ratio, ()), DType.DOUBLE)
        on = to.reshape(training, ())
        dropped = e.operand(1, DType.DOUBLE)
        kept = e.cast(e.operand(0, wide), DType.DOUBLE) >= dropped
        mask = to.map(e.where(e.operand(2, DType.BOOL), kept, e.constant(True, DType.BOOL)), numbers, share, on)
        x = e.operand(0, data.dtype)
        scaled = e.cast(x, DType.DOUBLE) * e.cast(e.operand(2, DType.BOOL), DType.DOUBLE) / (1.0 - dropped)
        result = e.where(dropped < 1.0, scaled, 0.0)
        if data.dtype in HALVES:
            result = e.cast(result, DType.FLOAT)
        result = e.where(e.operand(3, DType.BOOL), e.cast(result, data.dtype), x)
        return to.map(result, data, share, mask, on), mask

    @staticmethod
    def in_training(training: Value | None) -> bool:
        """Whether elements may be dropped: a training_mode that is not known to be false."""
        return training is not None and (training.constant is None or bool(training.constant))
