"""Control flow: operators that run graphs of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from jitonnx.ir.bodies import Bodies, merged
from jitonnx.ir.dims import DimLike
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Graph, Node, Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError, Operator, internal
from jitonnx.ir.raw import RawNode
from jitonnx.ir.types import TensorType, Type
from jitonnx.ops.base import normalize_axis
from jitonnx.ops.onnx.concat_split import Concat
from jitonnx.ops.onnx.identity import Identity
from jitonnx.support.records import NamedTuple


class Body(Protocol):
    """One of a node's graphs, ready to run."""

    inputs: Sequence[Type]
    """The types of its own inputs."""
    types: Sequence[Type]
    """They are those of its outputs, as far as they are known."""

    def __call__(self, *inputs: Any) -> list[Any]:
        """The outputs for the body's own inputs."""


BOOL = TensorType(DType.BOOL, ())
COUNT = TensorType(DType.INT64, ())


class If(Operator):
    """What `then_branch` gives where the condition is true, else what `else_branch` gives."""

    bodies = ("then_branch", "else_branch")
    decides = True

    def body_inputs(self, context: InferenceContext, index: int, *inputs: Value) -> list[Type]:
        return []

    def infer_bodies(self, bodies: Bodies, condition: Value) -> list[Type]:
        if any(isinstance(size, int) and size != 1 for size in condition.type.shape or ()):
            raise InferenceError(f"the condition is {condition.type}; one element is needed")
        if (taken := self.taken(condition)) is not None:  # the other may not even fit the inputs
            return bodies.infer(taken, ())
        chosen, other = (bodies.attempt(index, ()) for index in (0, 1))
        if chosen is None or other is None:
            return other or chosen or bodies.infer(0, ())
        if len(chosen) != len(other):
            raise InferenceError(f"one branch gives {len(chosen)} values, the other {len(other)}")
        return [merged(bodies.hidden(a), bodies.hidden(b)) for a, b in zip(chosen, other, strict=True)]

    def taken(self, condition: Value) -> int | None:
        if condition.constant is None or condition.constant.size != 1:
            return None
        return 0 if condition.constant.item() else 1

    def evaluate(self, condition: np.ndarray, bodies: Sequence[Body]) -> tuple[Any, ...]:
        if condition.size != 1:
            raise ValueError(f"the condition has {condition.size} elements; one is needed")
        return tuple(bodies[0 if condition.item() else 1]())


class Loop(Operator):
    """`body` again and again, at most M times and as long as the condition holds.

    The body gets the number of the iteration, the condition and what the loop carries, and gives the condition, what is
    carried on, and an element of each stacked result. Without iterations these results have no elements.
    """

    bodies = ("body",)

    first: int = internal(default=0)
    """The number of the first iteration; what were those before it lies in front of the loop."""

    def body_inputs(self, context: InferenceContext, index: int, *inputs: Value | None) -> list[Type]:
        return [COUNT, BOOL, *map(self._carried, inputs[2:])]

    def infer_bodies(self, bodies: Bodies, *inputs: Value | None) -> list[Type]:
        count, condition, *initial = (*inputs, None, None)[: max(len(inputs), 2)]
        given = [self._carried(value) for value in initial]
        carried = bodies.carried(0, 2, given, 1, (COUNT, BOOL))
        rows = [value.type for value in bodies.graphs[0].outputs[1 + len(given) :]]
        times = self._times(bodies.graphs[0], count, condition)
        return [*carried, *(_stacked(bodies.hidden(row), times) for row in rows)]

    @staticmethod
    def _carried(value: Value | None) -> Type:
        if value is None:
            raise InferenceError("a value that the loop carries is absent")
        return value.type

    def _times(self, body: Graph, count: Value | None, condition: Value | None) -> DimLike | None:
        """How often the body runs, if that is known before the loop."""
        condition_out, asked = body.outputs[0], body.inputs[1]
        begins = condition is None or (condition.constant is not None and bool(condition.constant.all()))
        always = condition_out is asked or (condition_out.constant is not None and bool(condition_out.constant.all()))
        if count is None or count.contents is None or count.measured or not (begins and always):
            return None
        times = count.contents.reshape(-1)[0] - self.first
        return max(int(times), 0) if count.constant is not None else times

    def evaluate(self, *inputs: Any, bodies: Sequence[Body]) -> tuple[Any, ...]:
        count, condition, *state = (*inputs, None, None)[: max(len(inputs), 2)]
        limit = None if count is None else int(count.reshape(-1)[0])
        condition_out = True if condition is None else bool(condition.reshape(-1)[0])
        rows: list[list[Any]] | None = None
        number = self.first
        while condition_out and (limit is None or number < limit):
            again, *results = bodies[0](np.array(number, np.int64), np.array(True), *state)
            state, made = results[: len(state)], results[len(state) :]
            rows = [[] for _ in made] if rows is None else rows
            for column, row in zip(rows, made, strict=True):
                column.append(row)
            condition_out = bool(again.reshape(-1)[0])
            number += 1
        if rows is None:
            return (*state, *map(no_rows, bodies[0].types[1 + len(state) :]))
        return (*state, *map(_stack, rows))


class Scan(Operator):
    """`body` over the elements of inputs along axes, carrying state, and stacking what it gives for each."""

    bodies = ("body",)

    num_scan_inputs: int
    scan_input_axes: tuple[int, ...] | None = None
    scan_input_directions: tuple[int, ...] | None = None
    scan_output_axes: tuple[int, ...] | None = None
    scan_output_directions: tuple[int, ...] | None = None
    batched: bool = internal(default=False)
    """Before version 9 the first axis was the batch, each sample with a length of its own, and time the second."""

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        if node.version < 9:
            if "directions" in node.attributes:
                node.attributes["scan_input_directions"] = node.attributes.pop("directions")
            node.attributes["batched"] = True

    def _parted(self, inputs: Sequence[Any]) -> tuple[Any, list[Any], list[Any]]:
        """The lengths of a batch's samples, the state, and what is scanned."""
        lengths, rest = (inputs[0], inputs[1:]) if self.batched else (None, inputs)
        count = len(rest) - self.num_scan_inputs
        if count < 0:
            raise InferenceError(f"num_scan_inputs is {self.num_scan_inputs}, but there are {len(rest)} inputs")
        return lengths, list(rest[:count]), list(rest[count:])

    def input_axes(self, shapes: Sequence[Sequence[DimLike] | None]) -> list[int]:
        """Which axis of each scanned input counts the iterations; as it is given where not even the rank is known."""
        given = self.scan_input_axes or (0,) * len(shapes)
        if len(given) != len(shapes):
            raise InferenceError(f"scan_input_axes has {len(given)} axes for {len(shapes)} scanned inputs")
        return [
            axis if shape is None else normalize_axis(axis, len(shape), "scan_input_axes")
            for axis, shape in zip(given, shapes, strict=True)
        ]

    def body_inputs(self, context: InferenceContext, index: int, *inputs: Value) -> list[Type]:
        _, state, scanned = self._parted(inputs)
        if self.batched:
            return [*(_without(x.type, (0,)) for x in state), *(_without(x.type, (0, 1)) for x in scanned)]
        axes = self.input_axes([x.type.shape for x in scanned])
        return [*(x.type for x in state), *(_without(x.type, (a,)) for x, a in zip(scanned, axes, strict=True))]

    def infer_bodies(self, bodies: Bodies, *inputs: Value) -> list[Type]:
        _, state, scanned = self._parted(inputs)
        own = self.body_inputs(bodies.context, 0, *inputs)
        carried = bodies.carried(0, 0, own[: len(state)], 0, (), own[len(state) :])
        rows = [bodies.hidden(value.type) for value in bodies.graphs[0].outputs[len(state) :]]
        if self.batched:
            batch, length = _size((*state, *scanned)[0], 0), _size(scanned[0], 1)
            finals = [_stacked(bodies.hidden(type), batch) for type in carried]
            return [*finals, *(_stacked(_stacked(row, length), batch) for row in rows)]
        axes = self.input_axes([x.type.shape for x in scanned])
        lengths = [size for x, axis in zip(scanned, axes, strict=True) if (size := _size(x, axis)) is not None]
        for length in lengths[1:]:
            if not bodies.context.demand_equal(lengths[0], length):
                raise InferenceError(f"what is scanned has different lengths: {', '.join(map(str, lengths))}")
        count = lengths[0] if lengths else None
        places = self.scan_output_axes or (0,) * len(rows)
        return [*carried, *(_stacked(row, count, axis) for row, axis in zip(rows, places, strict=True))]

    def evaluate(self, *inputs: Any, bodies: Sequence[Body]) -> tuple[Any, ...]:
        lengths, state, scanned = self._parted(inputs)
        if not self.batched:
            axes = self.input_axes([x.shape for x in scanned])
            moved = [np.moveaxis(x, axis, 0) for x, axis in zip(scanned, axes, strict=True)]
            if len({len(x) for x in moved}) > 1:
                raise ValueError(f"what is scanned has different lengths: {[len(x) for x in moved]}")
            state, rows = self._scan(bodies[0], state, moved, len(moved[0]))
            places = self.scan_output_axes or (0,) * len(rows)
            return (*state, *(np.moveaxis(row, 0, axis) for row, axis in zip(rows, places, strict=True)))
        batch, longest = scanned[0].shape[:2]
        times = [longest] * batch if lengths is None else lengths.tolist()
        samples = [
            self._scan(bodies[0], [x[n] for x in state], [x[n, :time] for x in scanned], time)
            for n, time in enumerate(times)
        ]
        finals = [np.stack(column) for column in zip(*(final for final, _ in samples), strict=True)]
        padded = [[_padded(row, longest) for row in rows] for _, rows in samples]
        return (*finals, *(np.stack(column) for column in zip(*padded, strict=True)))

    def _scan(self, body: Body, state: list[Any], scanned: list[Any], count: int) -> tuple[list[Any], list[Any]]:
        """The state behind `count` elements, and the results stacked along their first axis."""
        directions = self.scan_input_directions or (0,) * len(scanned)
        ordered = [x[::-1] if back else x for x, back in zip(scanned, directions, strict=True)]
        rows: list[list[Any]] = [[] for _ in body.types[len(state) :]]
        for number in range(count):
            results = body(*state, *(np.asarray(x[number], order="C") for x in ordered))
            state, made = results[: len(state)], results[len(state) :]
            for column, row in zip(rows, made, strict=True):
                column.append(row)
        types = body.types[len(state) :]
        stacked = [_stack(column) if column else no_rows(type) for column, type in zip(rows, types, strict=True)]
        backwards = self.scan_output_directions or (0,) * len(stacked)
        return state, [row[::-1] if back else row for row, back in zip(stacked, backwards, strict=True)]


class Parts(NamedTuple):
    """A Loop or Scan, taken apart: values of the graph around it, and of its body (which none of two share).

    head: M and the condition of a Loop, None where they are absent; counted, trip_condition: the number of the
    iteration and the condition in its body. Nothing of these for a Scan. initial: what is carried at first, carried: in
    an iteration, carried_out: behind it. scanned: tensors, elements: what an iteration sees of them. captured: values
    of both graphs. condition_out: the condition for a further iteration, None for a Scan. rows: what is stacked.

    first: the number of the first iteration. axes, backwards: along which axis each tensor is scanned, and whether from
    its end; row_axes, rows_backwards: of the results, which axis is that of the rows, and whether the first lies last.
    """

    head: tuple[Value | None, ...]
    counted: Value | None
    trip_condition: Value | None
    initial: tuple[Value, ...]
    carried: tuple[Value, ...]
    carried_out: tuple[Value, ...]
    scanned: tuple[Value, ...]
    elements: tuple[Value, ...]
    captured: tuple[tuple[Value, Value], ...]
    condition_out: Value | None
    rows: tuple[Value, ...]
    first: int
    axes: tuple[int, ...]
    backwards: tuple[int, ...]
    row_axes: tuple[int, ...]
    rows_backwards: tuple[int, ...]

    @property
    def is_plain(self) -> bool:
        """Whether all elements and rows lie one after the other."""
        return not any(self.axes) and not any(self.row_axes)

    @property
    def arguments(self) -> tuple[Value | None, ...]:
        """The inputs of the node, but for what is captured."""
        return (*self.head, *self.initial, *self.scanned)

    @property
    def body_inputs(self) -> tuple[Value, ...]:
        """The inputs of the body."""
        head = [value for value in (self.counted, self.trip_condition) if value is not None]
        return (*head, *self.carried, *self.elements, *(inner for _, inner in self.captured))

    @property
    def body_outputs(self) -> tuple[Value, ...]:
        """The outputs of the body."""
        head = () if self.condition_out is None else (self.condition_out,)
        return (*head, *self.carried_out, *self.rows)

    @property
    def always(self) -> bool:
        """Whether the condition holds behind each iteration."""
        condition_out = self.condition_out
        if condition_out is None or condition_out is self.trip_condition:
            return True
        return condition_out.constant is not None and bool(condition_out.constant.all())


def plain(value: Value) -> Value:
    """What a value is a copy of."""
    while value.producer is not None and isinstance(value.producer.operator, Identity):
        (value,) = value.producer.inputs  # type: ignore[assignment]
    return value


def parts_of(node: Node) -> Parts | None:
    """The parts of a Loop or Scan; None for other nodes, and for Scans over batches of samples."""
    operator = node.operator
    if (isinstance(operator, Scan) and operator.batched) or not isinstance(operator, Loop | Scan):
        return None
    (body,) = node.bodies
    inputs, outputs = body.inputs, [plain(value) for value in body.outputs]
    own = len(inputs) - node.captures
    captured = tuple(zip(node.captured, inputs[own:], strict=True))
    if isinstance(operator, Scan):
        count = own - operator.num_scan_inputs
        initial, scanned, rows = node.arguments[:count], node.arguments[count:], tuple(outputs[count:])
        first_axes, first_row_axes = (0,) * len(scanned), (0,) * len(rows)
        return Parts(
            (), None, None, initial, tuple(inputs[:count]), tuple(outputs[:count]), scanned,  # type: ignore[arg-type]
            tuple(inputs[count:own]), captured, None, rows, 0,
            operator.scan_input_axes or first_axes, operator.scan_input_directions or first_axes,
            operator.scan_output_axes or first_row_axes, operator.scan_output_directions or first_row_axes,
        )  # fmt: skip
    times, condition, *rest = (*node.arguments, None, None)[: max(len(node.arguments), 2)]
    count = own - 2
    first_row_axes = (0,) * (len(outputs) - 1 - count)
    return Parts(
        (times, condition), inputs[0], inputs[1], tuple(rest), tuple(inputs[2:own]), tuple(outputs[1 : 1 + count]),  # type: ignore[arg-type]
        (), (), captured, outputs[0], tuple(outputs[1 + count :]),
        operator.first, (), (), first_row_axes, first_row_axes,
    )  # fmt: skip


def appended_axis(before: Value, behind: Value) -> int | None:
    """The axis along which a carried value is appended to in each iteration, 0 if memory says no more than that: the
    axes in front of it are of size 1. None for other values."""
    joined = plain(behind).producer
    if joined is None or not isinstance(joined.operator, Concat) or before.type.shape is None:
        return None
    first, *rest = joined.inputs
    if not rest or first is not before or any(value is None or value is before for value in rest):
        return None
    axis = normalize_axis(joined.operator.axis, len(before.type.shape), "axis")
    return axis if any(size != 1 for size in before.type.shape[:axis]) else 0


def _without(type: Type, axes: Sequence[int]) -> Type:
    if type.shape is None:
        return type
    return TensorType(type.dtype, tuple(dim for axis, dim in enumerate(type.shape) if axis not in axes))


def _size(value: Value, axis: int) -> DimLike | None:
    """The size of an axis; None where not even the rank is known."""
    return None if value.type.shape is None else value.type.shape[axis]


def _stacked(row: Type, count: DimLike | None, axis: int = 0) -> Type:
    """The type of `count` values of one type along a new axis."""
    if row.shape is None:
        return row
    place = normalize_axis(axis, len(row.shape) + 1, "scan_output_axes")
    return TensorType(row.dtype, (*row.shape[:place], count, *row.shape[place:]))  # type: ignore[arg-type]


def _stack(rows: Sequence[Any]) -> np.ndarray:
    shapes = {row.shape for row in rows}
    if len(shapes) > 1:
        raise ValueError(f"an element that the body gives has the shapes {sorted(shapes)} in different iterations")
    return np.stack(rows)


def no_rows(row: Type) -> np.ndarray:
    """No rows of a type; sizes that nobody knows are 0, as onnxruntime has it."""
    sizes = [dim if isinstance(dim, int) else 0 for dim in row.shape or ()]
    return np.zeros((0, *sizes), np.float32 if row.dtype is None else row.dtype.numpy)


def _padded(row: np.ndarray, length: int) -> np.ndarray:
    return np.concatenate([row, np.zeros((length - len(row), *row.shape[1:]), row.dtype)])
