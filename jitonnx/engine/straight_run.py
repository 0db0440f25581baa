"""Runs of known sizes of a schedule with nodes on the host: its steps with all that does not change settled.

Programs of native segments, functions of host nodes (`host_functions.py`), places of values in a list and the shapes
that results are to have are found once for the sizes of a feed. Where results have other shapes, or a step raises
something, the schedule is run as ever, which tells what is the matter.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from jitonnx.engine.assumptions import AssumptionError
from jitonnx.engine.host_functions import host_function
from jitonnx.engine.interpreter import evaluate_node, known
from jitonnx.ir import dims
from jitonnx.ir.graph import Node, Value
from jitonnx.support.cancellation import check_end

if TYPE_CHECKING:
    from jitonnx.engine.schedule import NativeStep, Schedule

_Step: TypeAlias = Callable[[list[Any]], bool]
"""Does a step on the list of values; whether its results have the shapes that they should."""
_MET = (ValueError, TypeError, IndexError, ArithmeticError, MemoryError)


class NotStraight(Exception):
    """A schedule whose runs are not the same for all feeds of these sizes."""


class StraightRun:
    """A schedule for inputs of some sizes. NotStraight, or AssumptionError, where there is none.

    native, host: the steps that are native segments and host nodes.
    """

    def __init__(
        self, schedule: Schedule, sizes: Mapping[str, int], programs: Mapping[int, Callable[[list[Any]], list[Any]]]
    ) -> None:
        self._sizes = sizes
        self._places: dict[Value, int] = {value: place for place, value in enumerate(schedule.inputs)}
        self._rest: list[Any] = []
        """What the list has behind the inputs: constants, and None for what steps give."""
        self._count = len(schedule.inputs)
        self._steps: list[_Step] = []
        for number, step in enumerate(schedule.steps):
            if number in programs:
                self._steps.append(self._native(step, programs[number]))  # type: ignore[arg-type]
            else:
                self._steps.append(self._host(step._node))  # type: ignore[union-attr]
        self._outputs = [self._place(value) for value in schedule.outputs]
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
        outputs = []
        for place in self._outputs:
            array = values[place]
            if type(array) is np.ndarray and (
                place < self._count or array.base is not None or not array.flags.carray or _is_one(array, inputs)
            ):
                array = array.copy(order="C")
            outputs.append(array)
        return outputs

    def _place(self, value: Value) -> int:
        """The place of a value that is read."""
        if value not in self._places:
            if value.constant is None and value.contents is None:
                raise NotStraight(f"{value.name!r} is not there")
            self._add(value, known(value, self._sizes))
        return self._places[value]

    def _add(self, value: Value, array: Any = None) -> int:
        place = self._places[value] = self._count + len(self._rest)
        self._rest.append(array)
        return place

    def _shape(self, value: Value) -> tuple[int, ...] | None:
        """The shape of a value; None if it is no tensor of known rank."""
        shape = value.type.shape
        return None if shape is None else tuple([dims.evaluate(dim, self._sizes) for dim in shape])

    def _native(self, step: NativeStep, run: Callable[[list[Any]], list[Any]]) -> _Step:
        sources = [self._place(value) for value in step.inputs]
        targets = [self._add(value) for value in step.outputs]

        def do(values: list[Any]) -> bool:
            for target, array in zip(targets, run([values[place] for place in sources]), strict=True):
                values[target] = array
            return True

        return do

    def _host(self, node: Node) -> _Step:
        shapes = [self._shape(value) for value in node.outputs]
        function = self._function(node, shapes)
        if function is None:
            return self._evaluated(node, shapes)
        sources = [self._place(value) for value in node.inputs if value is not None and value.constant is None]
        target, shape = self._add(node.outputs[0]), shapes[0]
        if len(sources) == 1:
            (source,) = sources

            def do_one(values: list[Any]) -> bool:
                values[target] = array = function(values[source])
                return bool(array.shape == shape)

            return do_one

        def do(values: list[Any]) -> bool:
            values[target] = array = function(*[values[place] for place in sources])
            return bool(array.shape == shape)

        return do

    def _function(self, node: Node, shapes: Sequence[tuple[int, ...] | None]) -> Callable[..., Any] | None:
        if shapes[0] is None or any(value is not None and value.type.shape is None for value in node.inputs):
            return None
        constants = [
            None if value is None or value.constant is None else known(value, self._sizes) for value in node.inputs
        ]
        return host_function(node, constants, shapes[0])

    def _evaluated(self, node: Node, shapes: Sequence[tuple[int, ...] | None]) -> _Step:
        """A node by its operator's `evaluate`."""
        sources = [None if value is None else self._place(value) for value in node.inputs]
        targets = [self._add(value) for value in node.outputs]
        evaluate = functools.partial(evaluate_node, node, sizes=self._sizes)

        def do(values: list[Any]) -> bool:
            results = evaluate([None if place is None else values[place] for place in sources])
            for target, shape, array in zip(targets, shapes, results, strict=False):
                values[target] = array
                if shape is not None and array.shape != shape:
                    return False
            return True

        return do


def _is_one(array: Any, arrays: Sequence[Any]) -> bool:
    return any(array is one for one in arrays)


def straight_run(schedule: Schedule, sizes: Mapping[str, int]) -> StraightRun | None:
    """The runs of a schedule for these sizes; None where they need a closer look each time."""
    programs = schedule.settled_programs(sizes)
    if programs is None:
        return None
    try:
        return StraightRun(schedule, sizes, programs)
    except (NotStraight, AssumptionError):
        return None
