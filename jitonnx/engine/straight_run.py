"""Runs of known sizes of a schedule with nodes on the host: its steps with all that does not change settled.

Programs of native segments, functions of host nodes (`host_functions.py`), places of values in a list and the shapes
that results are to have are found once for the sizes of a feed. Where results have other shapes, or a step raises
something, the schedule is run as ever, which tells what is the matter.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from jitonnx.engine.host_functions import RESHAPES, host_function, shapes_freely
from jitonnx.engine.interpreter import evaluate_node, known
from jitonnx.engine.programs import RunnableProgram
from jitonnx.engine.schedule import HostStep, Schedule, Step
from jitonnx.ir import dims
from jitonnx.ir.dims import DimLike
from jitonnx.ir.graph import Node, Value
from jitonnx.support.cancellation import check_end

_Step: TypeAlias = Callable[[list[Any]], bool]
"""Does a step on the list of values; whether its results have the shapes that they should."""
_MET = (ValueError, TypeError, IndexError, ArithmeticError, MemoryError)


class NotStraight(Exception):
    """A schedule whose runs are not the same for all feeds of these sizes."""


class StraightRun:
    """A schedule for inputs of some sizes; NotStraight where there is none.

    programs: what runs the native segments, by the number of the step.
    """

    def __init__(self, schedule: Schedule, sizes: Mapping[str, int], programs: Mapping[int, RunnableProgram]) -> None:
        self._sizes = sizes
        self._places: dict[Value, int] = {value: place for place, value in enumerate(schedule.inputs)}
        self._rest: list[Any] = []
        """What the list has behind the inputs: constants, and None for what steps give."""
        self._count = len(schedule.inputs)
        self._fresh: set[int] = set()
        """The places of what native steps give: each new memory, dense."""
        self._steps: list[_Step] = []
        self._reshaped = _reshaped_alone(schedule)
        for number, step in enumerate(schedule.steps):
            if number in programs:
                self._steps.append(self._native(step, programs[number]))
            else:
                assert isinstance(step, HostStep)
                if step.asks_ranks:
                    raise NotStraight(f"a run shows the ranks of what {step.host.node.name!r} reads")
                self._steps.append(self._host(step.host.node, step.ranks))
        self._outputs = [self._place(value) for value in schedule.outputs]
        self._unsure = [(number, place) for number, place in enumerate(self._outputs) if place not in self._fresh]
        if len(set(self._outputs)) < len(self._outputs):
            raise NotStraight("an output is another one, too")

    def __call__(self, inputs: Sequence[Any]) -> list[Any] | None:
        """The outputs, each memory of its own; None where a closer look is needed."""
        check_end()
        values = [*inputs, *self._rest]
        try:
            for step in self._steps:
                if not step(values):
                    return None
        except _MET:
            return None
        outputs = [values[place] for place in self._outputs]
        for number, place in self._unsure:
            array = outputs[number]
            if type(array) is np.ndarray and (
                place < self._count or array.base is not None or not array.flags.carray or _is_one(array, inputs)
            ):
                outputs[number] = array.copy(order="C")
        return outputs

    def _place(self, value: Value) -> int:
        """The place of a value that is read."""
        if value not in self._places:
            if value.constant is None and (value.contents is None or not self._knows(value.contents.flat)):
                raise NotStraight(f"{value.name!r} is not there")
            self._add(value, known(value, self._sizes))
        return self._places[value]

    def _add(self, value: Value, array: Any = None) -> int:
        place = self._places[value] = self._count + len(self._rest)
        self._rest.append(array)
        return place

    def _shape(self, value: Value) -> tuple[int, ...] | None:
        """The shape of a value; None if it is no tensor, or only a run tells it."""
        shape = value.type.shape
        if shape is None or not self._knows(shape):
            return None
        return tuple([dims.evaluate(dim, self._sizes) for dim in shape])

    def _knows(self, sizes: Iterable[DimLike]) -> bool:
        return all(dims.variables(size) <= self._sizes.keys() for size in sizes)

    def _native(self, step: Step, program: RunnableProgram) -> _Step:
        run = program.run_from([self._place(value) for value in step.inputs])
        targets = [self._add(value) for value in step.outputs]
        self._fresh.update(targets)
        first, end = targets[0], targets[-1] + 1

        def do(values: list[Any]) -> bool:
            values[first:end] = run(values)
            return True

        return do

    def _host(self, node: Node, ranks: Collection[str]) -> _Step:
        first = node.inputs[0] if node.inputs else None
        if first is not None and self._reshaped.get(first) is node:
            self._places[node.outputs[0]] = self._place(first)
            return lambda values: True
        shapes = [self._shape(value) for value in node.outputs]
        reshape = self._reshaped.get(node.outputs[0])
        if reshape is not None:
            shapes = [self._shape(reshape.outputs[0])]
        function = self._function(node, shapes)
        if function is None:
            return self._evaluated(node, shapes, ranks)
        sources = [self._place(value) for value in node.inputs if value is not None and value.constant is None]
        target, shape = self._add(node.outputs[0]), shapes[0]
        if len(sources) == 1:
            (source,) = sources

            def do_one(values: list[Any]) -> bool:
                values[target] = array = function(values[source])
                return shape is None or bool(array.shape == shape)

            return do_one

        def do(values: list[Any]) -> bool:
            values[target] = array = function(*[values[place] for place in sources])
            return shape is None or bool(array.shape == shape)

        return do

    def _function(self, node: Node, shapes: Sequence[tuple[int, ...] | None]) -> Callable[..., Any] | None:
        if any(value is not None and value.type.shape is None for value in node.inputs):
            return None
        constants = [
            None if value is None or value.constant is None else known(value, self._sizes) for value in node.inputs
        ]
        return host_function(node, constants, shapes[0])

    def _evaluated(self, node: Node, shapes: Sequence[tuple[int, ...] | None], ranks: Collection[str]) -> _Step:
        """A node by its operator's `evaluate`."""
        sources = [None if value is None else self._place(value) for value in node.inputs]
        targets = [self._add(value) for value in node.outputs]
        evaluate = functools.partial(evaluate_node, node, sizes=self._sizes, ranks=ranks)

        def do(values: list[Any]) -> bool:
            results = evaluate([None if place is None else values[place] for place in sources])
            for target, shape, array in zip(targets, shapes, results, strict=False):
                values[target] = array
                if shape is not None and array.shape != shape:
                    return False
            return True

        return do


def _reshaped_alone(schedule: Schedule) -> dict[Value, Node]:
    """Results that are made in the shape that their only reader, a node of known shape, gives them."""
    nodes = [step.host.node if isinstance(step, HostStep) else None for step in schedule.steps]
    made = {node.outputs[0] for node in nodes if node is not None and len(node.outputs) == 1 and shapes_freely(node)}
    readers: dict[Value, list[Node | None]] = {}
    for node, step in zip(nodes, schedule.steps, strict=True):
        for value in dict.fromkeys(step.inputs):
            readers.setdefault(value, []).append(node)
    return {
        value: node
        for value, (node, *others) in readers.items()
        if value in made - set(schedule.outputs)
        and not others
        and node is not None
        and isinstance(node.operator, RESHAPES)
        and node.inputs[0] is value
        and all(other is None or other.constant is not None for other in node.inputs[1:])
        and node.outputs[0].type.shape is not None
    }


def _is_one(array: Any, arrays: Sequence[Any]) -> bool:
    return any(array is one for one in arrays)


def straight_run(schedule: Schedule, sizes: Mapping[str, int]) -> StraightRun | None:
    """The runs of a schedule for these sizes; None where they need a closer look each time."""
    programs = schedule.settled_programs(sizes)
    if programs is None:
        return None
    try:
        return StraightRun(schedule, sizes, programs)
    except NotStraight:
        return None
