"""Dropout, which in inference does nothing."""

from __future__ import annotations

import numpy as np

from jitonnx.computation import expr as e
from jitonnx.computation.lowering import Lowering
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import Operator, internal
from jitonnx.ir.raw import RawNode
from jitonnx.ir.types import TensorType


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
            node.drop("consumed_inputs", "is_test", "ratio")
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
        # The generator of onnx's reference, so that a seed means the same.
        mask = np.random.RandomState(self.seed).uniform(size=data.shape) >= dropped
        kept = data.astype(np.float64) * mask / (1 - dropped) if dropped < 1 else np.zeros(data.shape)
        return kept.astype(data.dtype), mask

    def lower(
        self, to: Lowering, data: Value, ratio: Value | None = None, training: Value | None = None
    ) -> tuple[Value, ...]:
        if self.in_training(training):
            return to.host(self, (data, ratio, training))
        one = e.constant(1, DType.BOOL if self.mask_is_bool else data.dtype)
        return data, to.fill(one, data.shape)

    @staticmethod
    def in_training(training: Value | None) -> bool:
        """Whether elements may be dropped: a training_mode that is not known to be false."""
        return training is not None and (training.constant is None or bool(training.constant))


OPERATORS = (Dropout,)
