"""Bags of embeddings: loops that reduce the rows between two offsets, as PyTorch exports nn.EmbeddingBag."""

from __future__ import annotations

from typing import Literal

import numpy as np

from jitonnx.ir.dims import DimLike
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Node, Value
from jitonnx.ir.operator import Operator
from jitonnx.ir.types import SequenceType
from jitonnx.ops.fused import ReduceSegments
from jitonnx.ops.onnx.arithmetic import Div, Sub
from jitonnx.ops.onnx.cast import Cast
from jitonnx.ops.onnx.concat_split import Concat
from jitonnx.ops.onnx.control_flow import If, Loop, Parts, parts_of, plain
from jitonnx.ops.onnx.logic import Equal, Greater, Less
from jitonnx.ops.onnx.reduction import ReduceMax, ReduceMean, ReduceSum
from jitonnx.ops.onnx.sequence import SequenceEmpty, SequenceInsert, SplitToSequence
from jitonnx.ops.onnx.slice import Slice
from jitonnx.passes.rewriting import Edit, Result, rule

_KINDS: dict[type[Operator], Literal["sum", "mean", "max"]] = {ReduceSum: "sum", ReduceMean: "mean", ReduceMax: "max"}


@rule("bags of embeddings", Loop, equation="the list of all sum(x[offsets[i] : offsets[i + 1]]) = sums of segments")
def bags(node: Node, edit: Edit) -> Result:
    """A loop over offsets that makes a list of the sums, means or maxima of the rows up to the next offset, zeros of
    none. The last bag may end with the last row, where the offsets do."""
    parts = parts_of(node)
    assert parts is not None
    lists = [isinstance(value.type, SequenceType) for value in parts.carried]
    if parts.head[0] is not None or parts.first or parts.rows or sorted(lists) != [False, True]:
        return None
    made, counted = lists.index(True), lists.index(False)
    loop = _Loop(parts, counted)
    count, append = loop.count(), loop.made(parts.carried_out[made], SequenceInsert)
    if count is None or append is None or loop.of(append.inputs[0]) is not parts.carried[made] or append.inputs[2:]:
        return None
    row, empty = append.inputs[1], loop.made(parts.initial[made], SequenceEmpty)
    found = None if row is None or empty is None else _bag(loop, count, row)
    if found is None:
        return None
    kind, x, offsets = found
    if offsets.type.shape != (count + 1,) or offsets.dtype is not DType.INT64 or x.dtype is None:
        return None
    if not x.dtype.is_float or row is None or row.type.shape != (1, *x.shape[1:]):
        return None
    rows = edit.reshape(edit.add(ReduceSegments(kind=kind), x, offsets), (count, 1, *x.shape[1:]))
    results = [edit.add(SplitToSequence(axis=0, keepdims=0), rows), edit.reshape(edit.dims([count]), ())]
    return results if made == 0 else results[::-1]


class _Loop:
    """A loop's values: those of its body and of the bodies of nodes in it that are given are those around them."""

    def __init__(self, parts: Parts, counted: int) -> None:
        self._parts, self._counted = parts, counted
        self._around = {inner: outer for outer, inner in parts.captured}
        self.number: DimLike | None = self._only(parts.carried[counted])
        """What it counts."""

    def of(self, value: Value | None) -> Value | None:
        """What a value is a copy of, outside of bodies if it is given."""
        while value is not None:
            value = plain(value)
            if value not in self._around:
                break
            value = self._around[value]
        return value

    def made(self, value: Value | None, *operators: type[Operator]) -> Node | None:
        """The node of one of these kinds that makes a value, whose bodies are looked into from now on."""
        value = self.of(value)
        node = None if value is None else value.producer
        if node is None or not isinstance(node.operator, operators):
            return None
        for body in node.bodies:
            self._around.update(zip(body.inputs[len(body.inputs) - node.captures :], node.captured, strict=True))
        return node

    def counts(self, value: Value | None, *numbers: DimLike) -> bool:
        """Whether a value holds these numbers."""
        value = self.of(value)
        return value is not None and value.contents is not None and value.contents.ravel().tolist() == list(numbers)

    def compares(self, value: Value | None, operator: type[Operator], *sides: DimLike) -> bool:
        """Whether a value compares two numbers."""
        node = self.made(value, operator)
        return node is not None and all(map(self.counts, node.inputs, sides))

    def count(self) -> DimLike | None:
        """How many iterations there are, if it counts from 0 as long as the number is below that."""
        parts = self._parts
        if self.number is None or not self.counts(parts.initial[self._counted], 0):
            return None
        if not self.counts(parts.carried_out[self._counted], self.number + 1):
            return None
        behind = self.made(parts.condition_out, Less)
        count = None if behind is None else self._only(self.of(behind.inputs[1]))
        if behind is None or count is None or not self.counts(behind.inputs[0], self.number + 1):
            return None
        condition = parts.head[1]
        begins = condition is not None and condition.constant is not None and bool(condition.constant.all())
        if isinstance(count, int):
            return count if count > 0 and (condition is None or begins) else None
        return count if self.compares(condition, Less, 0, count) else None

    @staticmethod
    def _only(value: Value | None) -> DimLike | None:
        if value is None or value.contents is None or value.contents.size != 1:
            return None
        return value.contents.item()  # type: ignore[no-any-return]


def _bag(loop: _Loop, count: DimLike, row: Value) -> tuple[Literal["sum", "mean", "max"], Value, Value] | None:
    """What an iteration reduces: how, the rows, and the offsets; None where it does something else."""
    assert loop.number is not None
    choice = loop.made(row, If)
    same = None if choice is None else loop.made(choice.inputs[0], Equal)
    if choice is None or same is None:
        return None
    pieces = [loop.made(value, Slice) for value in same.inputs]
    offsets = {None if piece is None else loop.of(piece.inputs[0]) for piece in pieces}
    none, some = (body.outputs[0] for body in choice.bodies)
    zeros, bounds = loop.of(none), offsets.pop()
    if bounds is None or offsets or zeros is None or zeros.constant is None or np.any(zeros.constant):
        return None
    for shift, piece in enumerate(pieces):
        assert piece is not None
        at = loop.number + shift
        if not (loop.counts(piece.inputs[1], at) and loop.counts(piece.inputs[2], at + 1) and _along_rows(loop, piece)):
            return None
    start, end = (loop.of(value) for value in same.inputs)

    def rows_of(value: Value | None, stop: Value | None) -> Value | None:
        """What a value is the rows of from `start` to `stop`, or, without one, to the last."""
        piece = loop.made(value, Slice)
        if piece is None or loop.of(piece.inputs[1]) is not start or not _along_rows(loop, piece):
            return None
        x = loop.of(piece.inputs[0])
        assert x is not None
        ends = loop.of(piece.inputs[2]) is stop if stop is not None else loop.counts(piece.inputs[2], x.shape[0])
        return x if ends else None

    def reduced(value: Value | None, *operators: type[Operator]) -> Node | None:
        """The node that reduces the rows of a value."""
        node = loop.made(value, *operators)
        if node is None or not node.operator.keepdims or len(node.inputs) < 2:  # type: ignore[attr-defined]
            return None
        return node if loop.counts(node.inputs[1], 0) else None

    def is_divided(value: Value | None, x: Value) -> bool:
        """Whether a value is the sum of the rows from `start` to the last over their number, if there are any."""
        choice = loop.made(value, If)
        positive = None if choice is None else loop.made(choice.inputs[0], Greater)
        if choice is None or positive is None or not loop.counts(positive.inputs[1], 0):
            return False
        number = loop.of(positive.inputs[0])
        difference = loop.made(number, Sub)
        mean, whole = (body.outputs[0] for body in choice.bodies)
        quotient, total = loop.made(mean, Div), reduced(whole, ReduceSum)
        if difference is None or quotient is None or total is None or rows_of(total.inputs[0], end) is not x:
            return False
        cast = loop.made(quotient.inputs[1], Cast)
        return (
            loop.counts(difference.inputs[0], x.shape[0])
            and loop.of(difference.inputs[1]) is start
            and loop.of(quotient.inputs[0]) is total.output
            and cast is not None
            and loop.of(cast.inputs[0]) is number
        )

    last = loop.made(some, If)
    if last is not None:  # the last mean is written otherwise
        if not loop.compares(last.inputs[0], Equal, loop.number, count - 1):
            return None
        of_last, of_others = (body.outputs[0] for body in last.bodies)
        mean = reduced(of_others, ReduceMean)
        x = None if mean is None else rows_of(mean.inputs[0], end)
        fits = x is not None and is_divided(of_last, x) and _ends_with(loop, bounds, x.shape[0])
        return ("mean", x, bounds) if x is not None and fits else None
    whole = reduced(some, *_KINDS)
    if whole is None:
        return None
    x, last = rows_of(whole.inputs[0], end), loop.made(whole.inputs[0], If)
    if last is not None and loop.compares(last.inputs[0], Equal, loop.number, count - 1):  # the last rows are
        of_last, of_others = (body.outputs[0] for body in last.bodies)
        x = rows_of(of_others, end)
        if x is None or rows_of(of_last, None) is not x or not _ends_with(loop, bounds, x.shape[0]):
            return None
    return None if x is None else (_KINDS[type(whole.operator)], x, bounds)


def _along_rows(loop: _Loop, piece: Node) -> bool:
    """Whether a Slice is one of the first axis, without steps."""
    axes, steps = (*piece.inputs[3:], None, None)[:2]
    return (axes is None or loop.counts(axes, 0)) and (steps is None or loop.counts(steps, 1))


def _ends_with(loop: _Loop, offsets: Value, rows: DimLike) -> bool:
    """Whether the last offset is the number of rows."""
    joined = loop.made(offsets, Concat)
    return joined is not None and loop.counts(joined.inputs[-1], rows)


RULES = (bags,)
