"""Schedules as what JSON holds, in artifacts, and back. Imports nothing that compiles.

A schedule is an object of these members:

    expressions  those of sizes, as of an outline (`plan/parametric_program_message.py`), here named by position
    values       [name, type, elements, measured] of what steps read and give; everything else names them by position
    given        the sizes of each input of the model, null for what is no tensor
    told         pairs of sizes that have to be equal before the run, one after the other
    graph        what is run

A graph has inputs, outputs, bindings [variable, value, place, whether of an element], assumptions (pairs, one after the
other) and steps:

    ["segment", inputs, outputs, counted]    the next of the plans that lie beside the schedule
    ["loop", node, body, inputs, outputs, followed, grown]    the same; the body is a graph without steps
    ["host", node, reason, bodies]

A node is [name, operator, inputs, outputs, number of captures], an operator [module in `jitonnx.ops`, class,
attributes]. Elements are null where they are not known, ["texts", shape, …], ["sizes", shape, …] or the position of an
array with its type and shape. Attributes that JSON has no word for are objects of one member, which names their kind.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from jitonnx.engine.schedule_plan import (
    Counted,
    HostNode,
    IndexedCapture,
    InputConditions,
    LoopNode,
    SchedulePlan,
    Segment,
)
from jitonnx.ir.assumptions import Pair
from jitonnx.ir.dims import DimLike
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Binding, Graph, Node, Value
from jitonnx.ir.operator import Operator, Tensor, attributes_of
from jitonnx.ir.types import MapType, OptionalType, SequenceType, SparseTensorType, TensorType, Type, contents_array
from jitonnx.ops.onnx.control_flow import plain
from jitonnx.plan.parametric_program_message import Expressions, expressions
from jitonnx.runtime.artifact import dtype_named

if TYPE_CHECKING:
    import numpy.typing as npt

Array: TypeAlias = "npt.NDArray[np.generic]"
Message: TypeAlias = "dict[str, Any]"

_OPERATORS = "jitonnx.ops."
"""The package of the operators that a file can name: those of users are no part of jitonnx."""


class NotStorable(Exception):
    """A schedule that no file can hold; the text says why."""


class ScheduleError(ValueError):
    """A message that is no schedule of ours."""


def to_message(plan: SchedulePlan, conditions: InputConditions) -> tuple[Message, list[Array]]:
    """The message, and the arrays that it names by position. NotStorable says what no file can hold."""
    writer = _Writer()
    graph = writer.graph(plan.graph, plan.steps)
    message = {
        "given": [None if sizes is None else writer.sizes(sizes) for sizes in conditions.given],
        "told": writer.pairs(conditions.pairs),
        "graph": graph,
        "values": writer.rows,
        "expressions": writer.expressions.rows,
    }
    return message, writer.arrays


def from_message(message: Message, arrays: Sequence[Array]) -> tuple[SchedulePlan, InputConditions]:
    """The plan, whose segments have no plans: those lie beside it. `arrays`: those that it names, as bytes.

    ScheduleError for a message that `to_message` never made.
    """
    try:
        reader = _Reader(message, arrays)
        given = [None if sizes is None else reader.sizes(sizes) for sizes in message["given"]]
        graph, steps = reader.graph(message["graph"])
        return SchedulePlan(graph, steps), InputConditions(given, reader.pairs(message["told"]))
    except (IndexError, KeyError, ValueError, TypeError, ArithmeticError, AttributeError, ImportError) as error:
        raise ScheduleError(f"it holds steps that cannot be read ({type(error).__name__}: {error})") from error


class _Writer:
    def __init__(self) -> None:
        self.expressions, self.rows, self.arrays = Expressions(), list[Any](), list[Array]()
        self._values: dict[Value, int] = {}

    def graph(self, graph: Graph, steps: Sequence[Segment | LoopNode | HostNode]) -> Message:
        bindings = graph.bindings.items()
        return {
            "inputs": self.values(graph.inputs),
            "steps": [self._step(step) for step in steps],
            "outputs": self.values(graph.outputs),
            "bindings": [(name, self.value(bound.value), bound.place, bound.element) for name, bound in bindings],
            "assumptions": self.pairs(graph.assumptions),
        }

    def _step(self, step: Segment | LoopNode | HostNode) -> Sequence[Any]:
        if isinstance(step, Segment):
            counted = [(one.number, [self._size(axis) for axis in one.axes]) for one in step.counted]
            return "segment", self.values(step.inputs), self.values(step.outputs), counted
        if isinstance(step, LoopNode):
            body = self.graph(step.graph, ())
            body["outputs"] = self.values([plain(value) for value in step.graph.outputs])  # as `parts_of` sees them
            followed = [(self.value(one.table), self.value(one.element), one.text) for one in step.followed]
            made = self._node(step.node), body, self.values(step.inputs), self.values(step.outputs)
            return "loop", *made, followed, step.grown
        bodies = [self.graph(body.graph, body.steps) for body in step.bodies]
        return "host", self._node(step.node), step.reason, bodies

    def _node(self, node: Node) -> Sequence[Any]:
        place = type(node.operator).__module__
        if not place.startswith(_OPERATORS):
            raise NotStorable(f"the operator {node.operator.name} of node {node.name!r} is none of jitonnx's own")
        attributes = {name: self._attribute(value) for name, value in attributes_of(node.operator).items()}
        operator = place.removeprefix(_OPERATORS), type(node.operator).__name__, attributes
        inputs = [None if value is None else self.value(value) for value in node.inputs]
        return node.name, operator, inputs, self.values(node.outputs), node.captures

    def _attribute(self, value: Any) -> Any:
        if isinstance(value, DType):
            return {"dtype": int(value)}
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, tuple):
            return [self._attribute(one) for one in value]
        if isinstance(value, bytes):
            return {"bytes": value.hex()}
        if isinstance(value, Tensor):
            return {"tensor": self._elements(value.array)}
        if isinstance(value, Type):
            return {"type": self._type(value)}
        raise NotStorable(f"an attribute is {value!r}")

    def value(self, value: Value) -> int:
        if value not in self._values:
            elements = (
                None if value.contents is None else self._elements(value.contents, texts=value.dtype is DType.STRING)
            )
            self._values[value] = len(self.rows)
            self.rows.append((value.name, self._type(value.type), elements, value.measured))
        return self._values[value]

    def values(self, values: Sequence[Value]) -> list[int]:
        return [self.value(value) for value in values]

    def _elements(self, array: np.ndarray, *, texts: bool = False) -> Sequence[Any]:
        if texts or array.dtype.kind in "UT" or (array.dtype == object and all(isinstance(s, str) for s in array.flat)):
            return "texts", array.shape, [str(text) for text in array.flat]
        if array.dtype == object:
            return "sizes", array.shape, self.sizes(array.flat)
        self.arrays.append(np.ascontiguousarray(array))
        return len(self.arrays) - 1, array.dtype.name, array.shape

    def _type(self, kind: Type) -> Sequence[Any]:
        if isinstance(kind, TensorType):
            sizes = None if kind.shape is None else [self._size(dim) for dim in kind.shape]
            return "tensor", None if kind.dtype is None else int(kind.dtype), sizes
        if isinstance(kind, SequenceType):
            return "sequence", self._type(kind.element), kind.empty
        if isinstance(kind, OptionalType):
            return "optional", self._type(kind.element)
        if isinstance(kind, MapType):
            return "map", int(kind.key), self._type(kind.value)
        assert isinstance(kind, SparseTensorType), f"Bug: {kind!r} is no type"
        return "sparse", int(kind.element), None if kind.sizes is None else self.sizes(kind.sizes)

    def _size(self, dim: DimLike | None) -> int | None:
        return None if dim is None else self.expressions.add(dim)

    def sizes(self, sizes: Iterable[DimLike]) -> list[int]:
        return [self.expressions.add(size) for size in sizes]

    def pairs(self, pairs: Iterable[Pair]) -> list[int]:
        return self.sizes(dim for pair in pairs for dim in pair)


class _Reader:
    def __init__(self, message: Message, arrays: Sequence[Array]) -> None:
        self._known, self._arrays = expressions(message["expressions"]), arrays
        self._values = [self._value(*row, measured=measured) for *row, measured in message["values"]]

    def graph(self, row: Message) -> tuple[Graph, tuple[Segment | LoopNode | HostNode, ...]]:
        graph = Graph()
        graph.inputs, graph.outputs = self._all(row["inputs"]), self._all(row["outputs"])
        for name, value, place, element in row["bindings"]:
            graph.bindings[name] = Binding(self._values[value], place, element)
        for a, b in self.pairs(row["assumptions"]):
            graph.assumptions.note(a, b)
        return graph, tuple([self._step(*step) for step in row["steps"]])

    def _step(self, kind: str, *parts: Any) -> Segment | LoopNode | HostNode:
        if kind == "segment":
            inputs, outputs, counted = parts
            axes = tuple([Counted(number, tuple(map(self._size, sizes))) for number, sizes in counted])
            return Segment(tuple(self._all(inputs)), tuple(self._all(outputs)), None, axes)
        if kind == "loop":
            node, body, inputs, outputs, elements, grown = parts
            graph, _ = self.graph(body)
            made = self._node([graph], *node)
            followed = [IndexedCapture(self._values[table], self._values[one], text) for table, one, text in elements]
            values = tuple(self._all(inputs)), tuple(self._all(outputs))
            return LoopNode(made, graph, None, *values, tuple(followed), tuple(grown))
        if kind != "host":
            raise ValueError(f"there are no steps of the kind {kind!r}")
        node, reason, bodies = parts
        plans = [SchedulePlan(*self.graph(body)) for body in bodies]
        return HostNode(self._node([body.graph for body in plans], *node), reason, tuple(plans))

    def _node(
        self, bodies: Sequence[Graph], name: str, operator: Any, inputs: Any, outputs: Any, captures: int
    ) -> Node:
        given = tuple([None if place is None else self._values[place] for place in inputs])
        node = Node(name, self._operator(*operator), given, (), tuple(bodies), captures)
        node.outputs = tuple(self._all(outputs))
        return node

    def _operator(self, place: str, name: str, attributes: Message) -> Operator:
        if not all(map(str.isidentifier, place.split("."))):
            raise ValueError(f"{place!r} is no module")
        found = getattr(importlib.import_module(_OPERATORS + place), name)
        if not isinstance(found, type) or not issubclass(found, Operator):
            raise ValueError(f"there is no operator {place}.{name}")
        return found(**{key: self._attribute(value) for key, value in attributes.items()})

    def _attribute(self, value: Any) -> Any:
        if isinstance(value, list):
            return tuple(map(self._attribute, value))
        if not isinstance(value, dict):
            return value
        ((kind, told),) = value.items()
        read: Mapping[str, Callable[[Any], Any]] = {
            "dtype": DType,
            "bytes": bytes.fromhex,
            "tensor": lambda row: Tensor(self._elements(*row)),
            "type": lambda row: self._type(*row),
        }
        return read[kind](told)

    def _value(self, name: str, kind: Any, elements: Any, *, measured: bool) -> Value:
        value = Value(name, self._type(*kind), None if elements is None else self._elements(*elements))
        value.measured = measured
        return value

    def _all(self, places: Sequence[int]) -> list[Value]:
        return [self._values[place] for place in places]

    def _elements(self, place: Any, second: Any, third: Any) -> np.ndarray:
        if place == "texts":
            texts = np.empty(len(third), object)
            texts[:] = third
            return texts.reshape(second)
        if place == "sizes":
            return contents_array(self.sizes(third), tuple(second))
        stored: np.ndarray = self._arrays[place]
        return stored.view(dtype_named(second)).reshape(third)

    def _type(self, kind: str, *parts: Any) -> Type:
        if kind == "tensor":
            dtype, sizes = parts
            shape = None if sizes is None else tuple(map(self._size, sizes))
            return TensorType(None if dtype is None else DType(dtype), shape)  # type: ignore[arg-type]
        if kind == "sequence":
            return SequenceType(self._type(*parts[0]), parts[1])
        if kind == "optional":
            return OptionalType(self._type(*parts[0]))
        if kind == "map":
            return MapType(DType(parts[0]), self._type(*parts[1]))
        if kind != "sparse":
            raise ValueError(f"there is no type {kind!r}")
        return SparseTensorType(DType(parts[0]), None if parts[1] is None else tuple(self.sizes(parts[1])))

    def _size(self, place: int | None) -> DimLike | None:
        return None if place is None else self._known[place]

    def sizes(self, places: Sequence[int]) -> list[DimLike]:
        return [self._known[place] for place in places]

    def pairs(self, places: Sequence[int]) -> list[Pair]:
        each = iter(self.sizes(places))
        return list(zip(each, each, strict=True))
