"""Where the graph of an engine is cut: at operators without a kernel, and where only a run can tell a shape.

The part before runs natively, the nodes themselves are evaluated on NumPy, and the part behind is an engine of its own,
made for what came out.
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
from jitonnx.ir.extract import extract
from jitonnx.ir.graph import Graph, Node, Value
from jitonnx.ir.lowering import lower
from jitonnx.ir.types import UNKNOWN, TensorType, type_of
from jitonnx.model.evaluate import evaluate_nodes, known, look_up, owned

if TYPE_CHECKING:
    from jitonnx.engine.pipeline import Engine

ENGINES_KEPT = 64
"""Engines for one set of shapes alone kept at most; the least recently used go."""


class Cut:
    """A graph in three parts: `head`, an engine; `nodes`, evaluated on NumPy; the rest, an engine by what comes out."""

    def __init__(self, engine: Engine, reasons: Mapping[Node, str]) -> None:
        self._engine = engine
        graph = engine.graph
        behind: set[Value] = set()
        before, self.nodes, self._rest = [], [], []
        for node in graph:
            if any(value in behind for value in node.inputs if value is not None):
                self._rest.append(node)
            elif node in reasons:
                self.nodes.append(node)
            else:
                before.append(node)
                continue
            behind.update(node.outputs)
        self.reasons = {node: reasons[node] for node in self.nodes}
        self.has_rest = bool(self._rest)
        outputs = dict.fromkeys(graph.outputs)
        needed = _read_by([*self.nodes, *self._rest]) | outputs
        # Shapes and the like, known as soon as the sizes of the inputs are: constants to what follows.
        self._dimensions = [value for value in needed if value.contents is not None and value.constant is None]
        for value in self._dimensions:
            del needed[value]
        self._from_head = [value for node in before for value in node.outputs if value in needed]
        self._inputs, self._outputs = list(graph.inputs), list(graph.outputs)
        first = [value for node in self.nodes for value in node.outputs]
        read = _read_by(self._rest) | outputs
        self._crossing = [value for value in dict.fromkeys([*graph.inputs, *self._from_head, *first]) if value in read]
        self.head = (
            self._make(before, graph.inputs, [v.type for v in graph.inputs], self._from_head, stop=engine.stop)
            if self._from_head
            else None
        )
        self.tails: KeptJobs[Engine] = KeptJobs(ENGINES_KEPT, engine.workshop)
        self._tail_when = engine.when(static=all(value.type.static for value in self._crossing))

    def explained(self) -> str:
        """The nodes that NumPy evaluates, each with the reason."""
        return "; ".join(f"{node.operator.name} node '{node.name}': {why}" for node, why in self.reasons.items())

    def runner(self, sizes: Mapping[str, int]) -> Runner:
        """What gives the outputs of the whole graph for inputs; `sizes`: values of their dimension variables."""
        numbers = {value: known(value, sizes) for value in self._dimensions}
        contents = tuple(array.tobytes() for array in numbers.values())
        return functools.partial(self._run, numbers, contents)

    def _run(
        self, numbers: Mapping[Value, np.ndarray], contents: tuple[bytes, ...], inputs: Sequence[Any]
    ) -> list[Any]:
        """numbers: the values that the sizes tell; contents: their bytes, to find the engine of the rest by."""
        values: dict[Value, Any] = {**numbers, **dict(zip(self._inputs, inputs, strict=True))}
        if self.head is not None:
            values.update(zip(self._from_head, self.head.run(inputs), strict=True))
        evaluate_nodes(self.nodes, values)
        if self._rest:
            crossing = [values[value] for value in self._crossing]
            tail = self._tail(crossing, numbers, contents)
            if tail is None:
                evaluate_nodes(self._rest, values)
            else:
                values.update(zip(self._outputs, tail.run(crossing), strict=True))
        return owned([look_up(values, value) for value in self._outputs], inputs)

    def _tail(
        self, arrays: Sequence[Any], numbers: Mapping[Value, np.ndarray], contents: tuple[bytes, ...]
    ) -> Engine | None:
        kinds = [(array.dtype, array.shape) if isinstance(array, np.ndarray) else None for array in arrays]

        def make(stop: threading.Event | None) -> Engine:
            types = [type_of(array) if isinstance(array, np.ndarray) else UNKNOWN for array in arrays]
            constants = {value: Value(value.name, type_of(array), array) for value, array in numbers.items()}
            return self._make(self._rest, self._crossing, types, self._outputs, constants, stop)

        return self.tails.get((*kinds, *contents), make, self._tail_when)

    def _make(
        self,
        nodes: Sequence[Node],
        inputs: Sequence[Value],
        types: Sequence[TensorType],
        outputs: Sequence[Value],
        replaced: Mapping[Value, Value] | None = None,
        stop: threading.Event | None = None,
    ) -> Engine:
        return self._engine.part(extract(nodes, inputs, types, outputs, replaced), stop)


def host_nodes(graph: Graph) -> dict[Node, str]:
    """Nodes to be evaluated on NumPy, with the reason."""
    found = {}
    for node in graph:
        if any(value.type == UNKNOWN for value in node.outputs):
            found[node] = "the output's shape depends on data"
    if found:
        return found
    for statement in lower(graph).statements:
        if isinstance(statement.computation, Host):
            found[statement.node] = "no kernel"
    return found


def _read_by(nodes: Sequence[Node]) -> dict[Value, None]:
    return dict.fromkeys(value for node in nodes for value in node.inputs if value is not None)
