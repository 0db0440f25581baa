"""Sequences of different lengths, side by side in a tensor, turned round."""

from __future__ import annotations

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError, Operator
from jitonnx.ir.types import TensorType


def reverse_sequence(data: np.ndarray, lengths: np.ndarray, *, batch_axis: int, time_axis: int) -> np.ndarray:
    """data with the first lengths[i] elements along `time_axis` in reverse, for each i on `batch_axis`."""
    y = data.copy()
    source, target = (np.moveaxis(x, (batch_axis, time_axis), (0, 1)) for x in (data, y))
    for i, length in enumerate(lengths.tolist()):
        target[i, :length] = source[i, :length][::-1]
    return y


class ReverseSequence(Operator):
    """The first sequence_lens[i] elements along `time_axis` reversed, for each position i on `batch_axis`."""

    batch_axis: int = 1
    time_axis: int = 0

    def infer(self, context: InferenceContext, x: Value, lengths: Value) -> TensorType:
        if {self.batch_axis, self.time_axis} != {0, 1} or len(x.shape) < 2:
            raise InferenceError(f"batch_axis {self.batch_axis} and time_axis {self.time_axis} have to be 0 and 1")
        if not (len(lengths.shape) == 1 and context.demand_equal(lengths.shape[0], x.shape[self.batch_axis])):
            raise InferenceError(f"sequence_lens {lengths.type} does not give a length for each sequence of {x.type}")
        return x.type

    def evaluate(self, x: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        steps = x.shape[self.time_axis]
        if lengths.size and not (lengths.min() >= 0 and lengths.max() <= steps):
            raise ValueError(f"lengths {lengths.tolist()} do not fit the {steps} elements of the time axis")
        return reverse_sequence(x, lengths, batch_axis=self.batch_axis, time_axis=self.time_axis)

    def lower(self, to: Lowering, x: Value, lengths: Value) -> Value:
        return to.emit(c.ReverseSequence(self.batch_axis, self.time_axis), (x, lengths), x.type)
