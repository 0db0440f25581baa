"""Sequences, which are lists at run time, and optionals, which are their value or None."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jitonnx.ir.bodies import Bodies, merged
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError, Operator
from jitonnx.ir.types import SequenceType, TensorType, Type
from jitonnx.ops.base import integers_of, normalize_axis
from jitonnx.ops.onnx.control_flow import Body


def _element(value: Value) -> Type:
    """The type of a sequence's elements."""
    if not isinstance(value.type, SequenceType):
        raise InferenceError(f"{value.name!r} is {value.type}; a sequence is needed")
    return value.type.element


def _tensor(value: Value) -> TensorType:
    """The type of a sequence's elements, which are tensors."""
    element = _element(value)
    if not isinstance(element, TensorType):
        raise InferenceError(f"{value.name!r} is {value.type}; a sequence of tensors is needed")
    return element


def _position(position: np.ndarray, length: int, limit: int) -> int:
    """A position counted from the front. ValueError outside [-length, limit)."""
    place = int(position.reshape(-1)[0])
    if not -length <= place < limit:
        raise ValueError(f"position {place} is outside a sequence of {length} elements")
    return place + length if place < 0 else place


class SequenceConstruct(Operator):
    """A sequence of the inputs."""

    def infer(self, context: InferenceContext, *inputs: Value) -> SequenceType:
        if not inputs:
            raise InferenceError("at least one input is needed")
        element: Type = inputs[0].type
        for value in inputs[1:]:
            element = merged(element, value.type)
        return SequenceType(element)

    def evaluate(self, *inputs: np.ndarray) -> tuple[list[np.ndarray]]:
        return (list(inputs),)


class SequenceEmpty(Operator):
    """A sequence without elements, of the type `dtype` (float by default)."""

    dtype: int = int(DType.FLOAT)

    def infer(self, context: InferenceContext) -> SequenceType:
        return SequenceType(TensorType(DType(self.dtype), None), empty=True)

    def evaluate(self) -> tuple[list[Any]]:
        return ([],)


class SequenceAt(Operator):
    """The element at a position, counted from the end if negative."""

    def infer(self, context: InferenceContext, sequence: Value, position: Value) -> Type:
        return _element(sequence)

    def evaluate(self, sequence: list[Any], position: np.ndarray) -> tuple[Any]:
        return (sequence[_position(position, len(sequence), len(sequence))],)


class SequenceInsert(Operator):
    """The sequence with one more element, before a position; without one, at the end."""

    def infer(
        self, context: InferenceContext, sequence: Value, tensor: Value, position: Value | None = None
    ) -> SequenceType:
        element = _element(sequence)
        if isinstance(sequence.type, SequenceType) and sequence.type.empty:
            if element.dtype is not tensor.dtype:
                raise InferenceError(f"{tensor.type} cannot be put into {sequence.type}")
            return SequenceType(tensor.type)
        return SequenceType(merged(element, tensor.type))

    def evaluate(self, sequence: list[Any], tensor: Any, position: np.ndarray | None = None) -> tuple[list[Any]]:
        place = len(sequence) if position is None else _position(position, len(sequence), len(sequence) + 1)
        return ([*sequence[:place], tensor, *sequence[place:]],)


class SequenceErase(Operator):
    """The sequence without the element at a position; without one, without the last."""

    def infer(self, context: InferenceContext, sequence: Value, position: Value | None = None) -> Type:
        _element(sequence)
        return sequence.type

    def evaluate(self, sequence: list[Any], position: np.ndarray | None = None) -> tuple[list[Any]]:
        if not sequence:
            raise ValueError("an empty sequence has no element to erase")
        place = len(sequence) - 1 if position is None else _position(position, len(sequence), len(sequence))
        return ([*sequence[:place], *sequence[place + 1 :]],)


class SequenceLength(Operator):
    """How many elements a sequence has."""

    def infer(self, context: InferenceContext, sequence: Value) -> TensorType:
        _element(sequence)
        return TensorType(DType.INT64, ())

    def evaluate(self, sequence: list[Any]) -> np.ndarray:
        return np.array(len(sequence), np.int64)


class SplitToSequence(Operator):
    """Parts of the input along `axis`: of sizes `split`, of one size if that is a scalar, of size 1 without it.

    Only without `split`, `keepdims` says whether the axis stays.
    """

    axis: int = 0
    keepdims: int = 1

    def infer(self, context: InferenceContext, x: Value, split: Value | None = None) -> SequenceType:
        axis = normalize_axis(self.axis, len(x.shape))
        rest = (*x.shape[:axis],), (*x.shape[axis + 1 :],)
        if split is None:
            return SequenceType(TensorType(x.dtype, (*rest[0], *((1,) if self.keepdims else ()), *rest[1])))
        size = None
        if split.constant is not None and split.constant.size:
            sizes = set(integers_of(split, "split"))
            if split.shape == () and min(sizes) <= 0:
                raise InferenceError(f"split is {min(sizes)}; a positive size is needed")
            if min(sizes) < 0:
                raise InferenceError(f"split has the size {min(sizes)}; sizes of at least 0 are needed")
            divides = split.shape != () or (isinstance(x.shape[axis], int) and x.shape[axis] % max(sizes) == 0)
            size = sizes.pop() if len(sizes) == 1 and divides else None
        return SequenceType(TensorType(x.dtype, (*rest[0], size, *rest[1])))  # type: ignore[arg-type]

    def evaluate(self, x: np.ndarray, split: np.ndarray | None = None) -> tuple[list[np.ndarray]]:
        axis = normalize_axis(self.axis, x.ndim)
        size = x.shape[axis]
        if split is None:
            parts = np.split(x, size, axis) if size else []
            return ([part if self.keepdims else part.squeeze(axis) for part in parts],)
        if split.ndim == 0:
            step = int(split)
            if step <= 0:
                raise ValueError(f"split is {step}; a positive size is needed")
            ends = list(range(step, size, step))
        else:
            if (split < 0).any() or split.sum() != size:
                raise ValueError(f"split {split.tolist()} does not add up to {size}, the size of axis {self.axis}")
            ends = np.cumsum(split)[:-1].tolist()
        return (np.split(x, ends, axis) if size or split.ndim else [],)


class ConcatFromSequence(Operator):
    """The elements of a sequence one behind the other along `axis`, which with new_axis = 1 is a new one."""

    axis: int
    new_axis: int = 0

    def infer(self, context: InferenceContext, sequence: Value) -> TensorType:
        element = _tensor(sequence)
        if element.shape is None:
            return element
        axis = normalize_axis(self.axis, len(element.shape) + self.new_axis)
        behind = element.shape[axis if self.new_axis else axis + 1 :]
        return TensorType(element.dtype, (*element.shape[:axis], None, *behind))  # type: ignore[arg-type]

    def evaluate(self, sequence: list[np.ndarray]) -> np.ndarray:
        if not sequence:
            raise ValueError("an empty sequence has nothing to concatenate")
        return np.stack(sequence, self.axis) if self.new_axis else np.concatenate(sequence, self.axis)


class SequenceMap(Operator):
    """`body` of each element of a sequence, and of the elements beside it of further sequences, or further tensors."""

    bodies = ("body",)

    def body_inputs(self, context: InferenceContext, index: int, sequence: Value, *others: Value) -> list[Type]:
        return [_element(sequence), *(_element(x) if isinstance(x.type, SequenceType) else x.type for x in others)]

    def infer_bodies(self, bodies: Bodies, sequence: Value, *others: Value) -> list[Type]:
        types = bodies.infer(0, bodies.opened(0, self.body_inputs(bodies.context, 0, sequence, *others)))
        return [SequenceType(bodies.hidden(type)) for type in types]

    def evaluate(self, sequence: list[Any], *others: Any, bodies: Sequence[Body]) -> tuple[list[Any], ...]:
        lengths = {len(sequence), *(len(other) for other in others if isinstance(other, list))}
        if len(lengths) > 1:
            raise ValueError(f"sequences of different lengths: {sorted(lengths)}")
        rows = [
            bodies[0](element, *(other[n] if isinstance(other, list) else other for other in others))
            for n, element in enumerate(sequence)
        ]
        return tuple([row[n] for row in rows] for n in range(len(bodies[0].types)))
