"""One model on one set of inputs, done in many ways: interpreted, rewritten with some rules, compiled without some of
what makes it fast, and with further values looked at."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from jitonnx.engine.interpreter import evaluate_graph
from jitonnx.engine.pipeline import Engine, Settings
from jitonnx.engine.programs import shape_of
from jitonnx.ir.errors import GraphError
from jitonnx.ir.extract import extract, solved, specialise
from jitonnx.ir.graph import Graph, Node, Value
from jitonnx.ir.types import TensorType
from jitonnx.passes.pipeline import optimize
from jitonnx.passes.report import Report
from jitonnx.support.kernel_cache import KernelCache
from jitonnx.tools.debug.differences import Difference, difference


class Experiments:
    """What a model gives on some inputs, done in one way or another.

    graph: as it was loaded; it stays as it is. inputs: arrays in the graph's order, of its dtypes. settings: those of
    the session whose results are in doubt.
    """

    def __init__(self, graph: Graph, inputs: Sequence[Any], settings: Settings, cache: KernelCache) -> None:
        self.inputs, self.settings, self._cache = list(inputs), settings, cache
        self.quantised = any("Quantize" in node.operator.name or "Integer" in node.operator.name for node in graph)
        self.graph = graph
        self.truth = interpreted(graph, inputs)
        """What every value of the model's graph is."""
        engine = Engine(specialised(graph), settings, cache)
        self.results = engine.run(self.inputs)
        """What the compiled model gives."""
        if not engine.unplanned and engine.sizes(tuple(map(shape_of, inputs))) is not None and not engine.variants:
            return
        # It was run by an engine for sizes of their own: these are looked at for the sizes alone.
        types = [
            TensorType(value.type.dtype, array.shape) if isinstance(array, np.ndarray) else value.type
            for value, array in zip(graph.inputs, inputs, strict=True)
        ]
        self.graph = specialise(graph, types)
        self.truth = interpreted(self.graph, inputs)

    @property
    def expected(self) -> list[Any]:
        """What the model's outputs should be."""
        return [self.truth[value] for value in self.graph.outputs]

    def compare(self, wanted: Any, given: Any) -> Difference | None:
        """How a value differs from what it should be; None where it does not."""
        return difference(wanted, given, quantised=self.quantised)

    def wrong(self, results: Sequence[Any]) -> list[tuple[str, Difference]]:
        """The outputs that differ from what they should be, by name."""
        pairs = zip(self.graph.outputs, self.expected, results, strict=True)
        found = [(value.name, self.compare(wanted, given)) for value, wanted, given in pairs]
        return [(name, entry) for name, entry in found if entry is not None]

    def rewritten(self, disabled: Collection[str] = ()) -> tuple[Graph, Report]:
        """The graph as the session's rewrites leave it, but for those that are disabled."""
        graph = solved(specialised(self.graph))
        settings = self.settings
        report = optimize(graph, settings.optimization_level, disabled={*settings.disabled_rewrites, *disabled})
        return graph, report

    def compiled(self, graph: Graph, watched: Sequence[Value] = (), **changes: Any) -> list[Any] | None:
        """The outputs of a rewritten graph, compiled as it is, and the values that are watched behind them.

        changes: of the settings. None where the values cannot be looked at.
        """
        types = [value.type for value in graph.inputs]
        outputs = [*graph.outputs, *watched]
        settings = replace(self.settings, optimization_level=0, **changes)
        try:
            copy = extract(list(graph), graph.inputs, types, outputs, into=Graph(assumptions=graph.assumptions.apart()))
            return Engine(copy, settings, self._cache).run(self.inputs)
        except GraphError:
            return None

    def labels(self, graph: Graph, watched: Sequence[Value], node: Node) -> list[tuple[str, tuple[str, ...]]]:
        """The kernels that do a node's work where these values are watched: labels, and the nodes they stand for."""
        types = [value.type for value in graph.inputs]
        outputs = [*graph.outputs, *watched]
        copy = extract(list(graph), graph.inputs, types, outputs, into=Graph(assumptions=graph.assumptions.apart()))
        engine = Engine(copy, replace(self.settings, optimization_level=0), self._cache)
        names = set(origin(node))
        calls = [call for code in engine.codes for call in code.plan.calls]
        return [(call.label or call.spec.family, call.origin) for call in calls if not names.isdisjoint(call.origin)]


def origin(node: Node) -> tuple[str, ...]:
    """The names of the model's nodes that a node stands for."""
    return node.origin or (node.name,)


def specialised(graph: Graph) -> Graph:
    """A copy that may be rewritten."""
    return specialise(graph, [value.type for value in graph.inputs], graph.assumptions.apart())


def interpreted(graph: Graph, inputs: Sequence[Any]) -> dict[Value, Any]:
    """Every value of a graph that anybody reads, as the interpreter computes it."""
    outputs = graph.outputs
    read = [value for node in graph for value in node.outputs if value.users]
    every = list(dict.fromkeys([*graph.inputs, *outputs, *read]))
    graph.outputs = every
    try:
        return dict(zip(every, evaluate_graph(graph, inputs, {}), strict=True))
    finally:
        graph.outputs = outputs
