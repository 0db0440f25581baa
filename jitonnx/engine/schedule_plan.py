"""The plan of a schedule: its steps before their code is compiled, or as they come out of a file.

This is plain data; `planning` makes it, and `schedule` and `loops`, which most models do without, run it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from jitonnx.support.records import NamedTuple

if TYPE_CHECKING:
    from jitonnx.ir.assumptions import Pair
    from jitonnx.ir.dims import DimLike
    from jitonnx.ir.graph import Graph, Node, Value
    from jitonnx.plan.plan import Plan

STRINGS = "strings are evaluated by Python"
"""Why no native code has a part in them."""
UNBOUNDED = "the output's shape depends on data"
"""Why it can't be said before a run how much memory a node's output takes."""


class Counted(NamedTuple):
    """An output of a segment with an axis whose size its kernel tells (`Lowering.counted`).

    number: which output it is. axes: its dimensions, None for that one.
    """

    number: int
    axes: tuple[DimLike | None, ...]


class Segment(NamedTuple):
    """Native code that is planned, and which values are its inputs and outputs.

    counted: some of the outputs, for each of which the plan has one more, the count.
    """

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    plan: Plan | None
    """None where the code comes from a file."""
    counted: tuple[Counted, ...] = ()


class IndexedCapture(NamedTuple):
    """A captured tensor of which each iteration reads the element of its number: an address that moves, and no kernel.

    Both are values of the body. text: what an error says where there is no such element.
    """

    table: Value
    element: Value
    text: str


class LoopNode(NamedTuple):
    """A loop whose body is a native segment, which gives what `loops.wanted` says.

    inputs: values of the body that the segment reads.
    """

    node: Node
    graph: Graph
    plan: Plan | None
    """None where the code comes from a file."""
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    followed: tuple[IndexedCapture, ...] = ()
    grown: tuple[int, ...] = ()
    """Which of the carried values begin, behind an iteration, with what they were before, and so may stay where they
    are in memory: a cache that rows are appended to."""


class HostNode(NamedTuple):
    """A node that is evaluated on the host; its bodies are planned, too."""

    node: Node
    reason: str
    bodies: tuple[SchedulePlan, ...]


class SchedulePlan(NamedTuple):
    """A schedule before its code is compiled, or as it comes out of a file.

    Of the graph, inputs, outputs, bindings and assumptions count: what is between them is in the steps.
    """

    graph: Graph
    steps: tuple[Segment | LoopNode | HostNode, ...]
    whole: bool = False
    """Whether the graph is one native segment, of all its inputs and outputs."""

    def plans(self) -> Iterator[Plan]:
        """The plans of native segments in order, those of bodies included."""
        for step in self.steps:
            if isinstance(step, HostNode):
                for body in step.bodies:
                    yield from body.plans()
            else:
                assert step.plan is not None, "Bug: what comes from a file is compiled"
                yield step.plan


class InputConditions(NamedTuple):
    """What tells whether a schedule is for the inputs that are fed, and the sizes that it is run with.

    given: the sizes of each input; None: it is no tensor. pairs: have to be equal.
    """

    given: Sequence[Sequence[DimLike] | None]
    pairs: Sequence[Pair]
