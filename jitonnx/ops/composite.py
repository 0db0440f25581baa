"""Operators that other operators say: the loader puts nodes of those in the place of theirs.

    class BiasGelu(Composite):
        inputs = ("A", "B")
        outputs = ("C",)

        def compose(self, parts, a, b):
            return parts.add(Gelu(), parts.add(Add(), a, b))

So they need no inference, evaluation and lowering of their own, and every rewrite sees their parts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from jitonnx.ir.graph import Graph, Value
from jitonnx.ir.inference import EXACT, InferenceContext
from jitonnx.ir.operator import DataDependentError, Operator, as_tuple, results_of
from jitonnx.ir.types import type_of


class Parts(ABC):
    """What `Composite.compose` puts its parts into. Values have types, as in `Operator.infer`.

    context: answers about sizes, as there.
    """

    context: InferenceContext

    @abstractmethod
    def wanted(self, output: int) -> bool:
        """Whether the node has this output; others need not be made."""

    def add(self, operator: Operator, *inputs: Value | None) -> Value:
        """The first output of `operator`."""
        return self.add_many(operator, inputs, 1)[0]

    @abstractmethod
    def add_many(
        self, operator: Operator, inputs: Sequence[Value | None], outputs: int, bodies: Sequence[Graph] = ()
    ) -> tuple[Value, ...]:
        """The first `outputs` outputs of `operator`. bodies: the graphs that it runs; they capture nothing."""

    @abstractmethod
    def constant(self, array: Any) -> Value:
        """A constant."""


class Composite(Operator):
    """A declaration that says `compose`. Where that asks for shapes that only a run can tell, the node stays as it is,
    and is evaluated by the host, part by part."""

    def compose(self, parts: Parts, *inputs: Any, **unused: Any) -> Value | Sequence[Value]:
        """The outputs, made of `parts`. InferenceError for what the operator does not allow."""
        raise NotImplementedError

    def infer(self, context: InferenceContext, *inputs: Any, **unused: Any) -> Any:
        raise DataDependentError(f"what {self.name} does depends on shapes that only a run can tell")

    def evaluate(self, *inputs: Any, **unused: Any) -> Any:
        parts = _Evaluated()
        values = [None if array is None else parts.constant(array) for array in inputs]
        return tuple(value.contents for value in as_tuple(self.compose(parts, *values)))


class _Evaluated(Parts):
    """Parts that are evaluated as they are added."""

    context = EXACT

    def wanted(self, output: int) -> bool:
        return True

    def add_many(
        self, operator: Operator, inputs: Sequence[Value | None], outputs: int, bodies: Sequence[Graph] = ()
    ) -> tuple[Value, ...]:
        if bodies:
            raise ValueError(f"{operator.name} runs graphs, and needs the rank of its inputs before the run")
        results = results_of(operator, [None if value is None else value.contents for value in inputs])
        return tuple(map(self.constant, results[:outputs]))

    def constant(self, array: Any) -> Value:
        array = np.asarray(array)
        return Value("", type_of(array), array)


class Nodes(Parts):
    """Parts that become nodes of a graph.

    origin: the names of the model's nodes that they stand for. outputs: the names of the node's outputs, "" for those
    that it does not have.
    """

    def __init__(self, graph: Graph, origin: Sequence[str], outputs: Sequence[str]) -> None:
        self._graph, self._origin, self._outputs = graph, origin, outputs
        self.context = InferenceContext(graph.assumptions.apart())  # its parts note what they assume

    def wanted(self, output: int) -> bool:
        return output < len(self._outputs) and self._outputs[output] != ""

    def add_many(
        self, operator: Operator, inputs: Sequence[Value | None], outputs: int, bodies: Sequence[Graph] = ()
    ) -> tuple[Value, ...]:
        names = [f"{operator.name}_output_{n}" for n in range(outputs)]
        return self._graph.add(operator, inputs, outputs=names, origin=self._origin, bodies=bodies)

    def constant(self, array: Any) -> Value:
        return self._graph.add_constant(np.asarray(array))
