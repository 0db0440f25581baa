"""Where the graph of an engine is cut: at operators without a kernel, at strings, and where only a run tells a shape.

The part before runs natively, the nodes themselves are evaluated on NumPy, and the part behind is an engine of its own,
made for what came out. Strings are Python's objects: they are evaluated and handed out here, by references that Python
counts, and no kernel ever sees more of them than a shape.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jitonnx.engine.kept import KeptJobs
from jitonnx.engine.ready import Runner
from jitonnx.ir.computation import Host
from jitonnx.ir.dtypes import DType
from jitonnx.ir.extract import extract
from jitonnx.ir.graph import Graph, Node, Value
from jitonnx.ir.lowering import lower
from jitonnx.ir.types import UNKNOWN, TensorType, type_of
from jitonnx.model.evaluate import evaluate_nodes, known, look_up, owned

if TYPE_CHECKING:
    from jitonnx.engine.pipeline import Engine

STRINGS = "strings are evaluated by Python"
"""Why no native code has a part in them."""
ENGINES_KEPT = 64
"""Engines for one set of shapes alone kept at most; the least recently used go."""


class Cut:
    """A graph in three parts: `head`, an engine; `nodes`, evaluated on NumPy; the rest, an engine by what comes out."""

    def __init__(self, engine: Engine, reasons: Mapping[Node, str]) -> None:
        self._engine = engine
        graph = engine.graph
        before, self.nodes, self._rest = _parted(graph, reasons)
        self.reasons = {node: reasons[node] for node in self.nodes}
        self.has_rest = bool(self._rest)
        self._inputs, self._outputs = list(graph.inputs), list(graph.outputs)
        outputs = dict.fromkeys(graph.outputs)
        needed = _read_by([*self.nodes, *self._rest]) | outputs
        # Shapes and the like, known as soon as the sizes of the inputs are: constants to what follows.
        self._known = [value for value in needed if value.contents is not None and not _is_initializer(value)]
        self._from_head = [value for value in _made_by(before) if value in needed and value.contents is None]
        self._from_rest = [value for value in _made_by(self._rest) if value in outputs]
        read = _read_by(self._rest)
        given = [*graph.inputs, *self._from_head, *_made_by(self.nodes)]
        self._crossing = [value for value in given if value in read]
        settled = [value for value in _read_by(before) if value.contents is not None and not _is_initializer(value)]
        constants = {value: Value(value.name, value.type, value.contents) for value in settled}
        types = [value.type for value in graph.inputs]
        self.head = (
            self._make(before, graph.inputs, types, self._from_head, constants, engine.stop)
            if self._from_head
            else None
        )
        self.tails: KeptJobs[Engine] = KeptJobs(ENGINES_KEPT, engine.workshop)
        engine.outstanding.watch(self.tails)
        self._tail_when = engine.when(lasting=all(value.type.static for value in self._crossing))

    def explained(self) -> str:
        """The nodes that NumPy evaluates, each with the reason; and outputs of strings."""
        nodes = [f"{node.operator.name} node '{node.name}': {why}" for node, why in self.reasons.items()]
        strings = dict.fromkeys(value.name for value in self._outputs if value.dtype is DType.STRING)
        return "; ".join([*nodes, *(f"output '{name}': {STRINGS}" for name in strings)])

    def runner(self, sizes: Mapping[str, int]) -> Runner:
        """What gives the outputs of the whole graph for inputs; `sizes`: values of their dimension variables."""
        settled = {value: known(value, sizes) for value in self._known}
        contents = tuple(array.tobytes() for value, array in settled.items() if value.constant is None)
        return functools.partial(self._run, settled, contents)

    def _run(
        self, settled: Mapping[Value, np.ndarray], contents: tuple[bytes, ...], inputs: Sequence[Any]
    ) -> list[Any]:
        """settled: what the sizes tell; contents: the bytes of what depends on them, to find the rest's engine by."""
        values: dict[Value, Any] = {**settled, **dict(zip(self._inputs, inputs, strict=True))}
        if self.head is not None:
            values.update(zip(self._from_head, self.head.run(inputs), strict=True))
        evaluate_nodes(self.nodes, values)
        if self._rest:
            crossing = [values[value] for value in self._crossing]
            tail = self._tail(crossing, settled, contents)
            if tail is None:
                self._engine.outstanding.numpy_runs += 1
                evaluate_nodes(self._rest, values)
            else:
                values.update(zip(self._from_rest, tail.run(crossing), strict=True))
        return owned([look_up(values, value) for value in self._outputs], inputs)

    def _tail(
        self, arrays: Sequence[Any], settled: Mapping[Value, np.ndarray], contents: tuple[bytes, ...]
    ) -> Engine | None:
        kinds = [(array.dtype, array.shape) if isinstance(array, np.ndarray) else None for array in arrays]
        key = (*kinds, *contents)
        found = self.tails.find(key)
        if found is not None:
            return found
        types = [type_of(array) if isinstance(array, np.ndarray) else UNKNOWN for array in arrays]

        def make(stop: threading.Event | None) -> Engine:
            constants = {value: Value(value.name, type_of(array), array) for value, array in settled.items()}
            return self._make(self._rest, self._crossing, types, self._from_rest, constants, stop)

        return self.tails.get(key, make, self._tail_when)

    def _make(
        self,
        nodes: Sequence[Node],
        inputs: Sequence[Value],
        types: Sequence[TensorType],
        outputs: Sequence[Value],
        replaced: Mapping[Value, Value] | None = None,
        stop: threading.Event | None = None,
    ) -> Engine:
        assumptions = self._engine.graph.assumptions.apart()
        return self._engine.part(extract(nodes, inputs, types, outputs, replaced, assumptions), stop)


def host_nodes(graph: Graph) -> dict[Node, str]:
    """Nodes to be evaluated on NumPy, with the reason."""
    strings = {node: STRINGS for node in graph if _has_strings(node) and not _is_settled(node)}
    unknown = {
        node: "the output's shape depends on data"
        for node in graph
        if any(value.type == UNKNOWN for value in node.outputs)
    }
    if unknown:
        return {**unknown, **strings}
    hosts = {s.node: "no kernel" for s in lower(graph).statements if isinstance(s.computation, Host)}
    return {**hosts, **strings}


def returns_strings(graph: Graph) -> bool:
    """Whether an output holds strings, which no native code can hand out."""
    return any(value.dtype is DType.STRING for value in graph.outputs)


def _parted(graph: Graph, reasons: Mapping[Node, str]) -> tuple[list[Node], list[Node], list[Node]]:
    """The nodes before the cut, those evaluated at it, and the rest; without those that are known before the run.

    Nodes on strings are evaluated one behind the other, as there is nothing to be gained by another engine for them.
    """
    before: list[Node] = []
    at: list[Node] = []
    rest: list[Node] = []
    cut: set[Value] = set()
    behind: set[Value] = set()
    for node in graph:
        if _is_settled(node):
            continue
        read = {value for value in node.inputs if value is not None}
        if node in reasons and (read.isdisjoint(cut) or _has_strings(node)) and read.isdisjoint(behind):
            at.append(node)
            cut.update(node.outputs)
        elif read.isdisjoint(cut) and read.isdisjoint(behind):
            before.append(node)
        else:
            rest.append(node)
            behind.update(node.outputs)
    return before, at, rest


def _has_strings(node: Node) -> bool:
    return any(value is not None and value.dtype is DType.STRING for value in (*node.inputs, *node.outputs))


def _is_settled(node: Node) -> bool:
    """Whether all that a node gives is known before the run."""
    return all(value.contents is not None for value in node.outputs)


def _is_initializer(value: Value) -> bool:
    """Whether a value is a constant of the graph, of known elements, which engines of its parts find for themselves."""
    return value.producer is None and value.constant is not None


def _made_by(nodes: Sequence[Node]) -> list[Value]:
    return [value for node in nodes for value in node.outputs]


def _read_by(nodes: Sequence[Node]) -> dict[Value, None]:
    return dict.fromkeys(value for node in nodes for value in node.inputs if value is not None)
