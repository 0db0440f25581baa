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

from jitonnx.ir.dims import variables
from jitonnx.ir.errors import GraphError, InferenceError
from jitonnx.ir.graph import Graph, Value
from jitonnx.ir.inference import EXACT, InferenceContext
from jitonnx.ir.operator import DataDependentError, Operator, as_tuple, results_of
from jitonnx.ir.types import TensorType, Type, is_symbolic, type_of


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
    and is evaluated by the host, part by part. So it does in a model that is to be written with its operators."""

    def compose(self, parts: Parts, *inputs: Any, **unused: Any) -> Value | Sequence[Value]:
        """The outputs, made of `parts`. InferenceError for what the operator does not allow."""
        raise NotImplementedError

    def infer(self, context: InferenceContext, *inputs: Any, **unused: Any) -> Any:
        """The types of its parts' results, of which all count as wanted. Sizes that a part would name are open."""
        graph = Graph(assumptions=context.assumptions)
        values = [None if value is None else Value(value.name, value.type, value.contents) for value in inputs]
        try:
            results = as_tuple(self.compose(_Inferred(graph), *values))
        except (InferenceError, GraphError) as error:  # perhaps of an output that nobody asks for
            raise DataDependentError(f"{self.name} of all outputs: {error}") from error
        given = {name for value in values if value is not None for name in _variables(value)}
        return tuple(_without_others(result.type, given) for result in results)

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


def _variables(value: Value) -> set[str]:
    """The dimension variables that a value's type and contents are said in."""
    sizes = [*(value.type.shape or ())]
    if value.contents is not None and is_symbolic(value.contents):
        sizes += value.contents.ravel().tolist()
    return {name for size in sizes for name in variables(size)}


def _without_others(type: Type, names: set[str]) -> Type:
    """A type without the sizes that other variables than these are in."""
    if not isinstance(type, TensorType) or type.shape is None:
        return type
    return TensorType(type.dtype, tuple(size if variables(size) <= names else None for size in type.shape))  # type: ignore[misc]


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


class _Inferred(Nodes):
    """Nodes of a graph that is made for their types alone."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph, (), ())

    def wanted(self, output: int) -> bool:
        return True
