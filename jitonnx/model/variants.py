"""A loaded model made into another before it is compiled: dimensions fixed, initializers replaced or fed."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from jitonnx.errors import InvalidArgument
from jitonnx.ir.dims import substitute, variable
from jitonnx.ir.dtypes import DType
from jitonnx.ir.extract import extract
from jitonnx.ir.graph import Graph, Value
from jitonnx.ir.strings import may_hold_text, string_array
from jitonnx.ir.types import TensorType, type_of
from jitonnx.model import Declaration, Model


def with_dimensions(model: Model, sizes: Mapping[str, int]) -> Model:
    """The model with dimensions of these names (as the file calls them) fixed. Warns of names that it does not have."""
    unknown = sorted(set(sizes) - set(model.dimensions.values()))
    if unknown:
        text = (
            f"the model has no dimension named {', '.join(map(repr, unknown))}; its named dimensions are: "
            f"{', '.join(map(repr, dict.fromkeys(model.dimensions.values()))) or 'none'}"
        )
        warnings.warn(text, stacklevel=5)
        model = replace(model, warnings=(*model.warnings, text))
    values = {name: sizes[param] for name, param in model.dimensions.items() if param in sizes}
    if not values:
        return model
    types = [_substituted(value.type, values) for value in model.graph.inputs]
    return replace(
        model,
        graph=extract(list(model.graph), model.graph.inputs, types, model.graph.outputs),
        inputs=[_fixed(declared, sizes) for declared in model.inputs],
        outputs=[_fixed(declared, sizes) for declared in model.outputs],
        dimensions={name: param for name, param in model.dimensions.items() if name not in values},
    )


def _substituted(kind: TensorType, values: Mapping[str, int]) -> TensorType:
    if kind.shape is None:
        return kind
    return TensorType(kind.dtype, tuple(substitute(dim, values) for dim in kind.shape))


def _fixed(declared: Declaration, sizes: Mapping[str, int]) -> Declaration:
    if declared.shape is None:
        return declared
    return declared._replace(shape=tuple(sizes.get(d, d) if isinstance(d, str) else d for d in declared.shape))


def with_initializers(model: Model, arrays: Mapping[str, Any]) -> Model:
    """The model with other values of some initializers.

    InvalidArgument for a name that is none, and for an array of another type or shape than the initializer's.
    """
    if not arrays:
        return model
    constants = constants_by_name(model.graph)
    replaced = {}
    for name, given in arrays.items():
        old, array = constants.get(name), np.asarray(given)
        if old is None:
            raise InvalidArgument(f"the model has no initializer {name!r} that any node reads")
        if old.dtype is DType.STRING and may_hold_text(array.dtype):
            array = _strings(array, name)
        if type_of(array) != old.type:
            raise InvalidArgument(f"initializer {name!r} is {old.type}, but {type_of(array)} was given to replace it")
        replaced[old] = Value(name, old.type, array)
    graph = model.graph
    types = [value.type for value in graph.inputs]
    return replace(model, graph=extract(list(graph), graph.inputs, types, graph.outputs, replaced))


def _strings(array: np.ndarray, name: str) -> np.ndarray:
    try:
        return string_array(array, f"what replaces initializer {name!r}")
    except ValueError as error:
        raise InvalidArgument(str(error)) from error


def with_inputs(graph: Graph, declared: Sequence[Declaration]) -> Graph:
    """The graph with constants of these names as further inputs, behind its own."""
    constants = constants_by_name(graph)
    values = [constants.get(entry.name) or Value(entry.name, _type(entry)) for entry in declared]
    types = [value.type for value in graph.inputs] + [_type(entry) for entry in declared]
    return extract(list(graph), [*graph.inputs, *values], types, graph.outputs)


def copied(graph: Graph) -> Graph:
    """A copy that optimising the graph leaves as it is. Constants are shared."""
    return extract(list(graph), graph.inputs, [value.type for value in graph.inputs], graph.outputs)


def constants_by_name(graph: Graph) -> dict[str, Value]:
    """The constants that nodes read or the graph returns."""
    read = [value for node in graph for value in node.inputs if value is not None] + graph.outputs
    inputs = set(graph.inputs)
    return {value.name: value for value in read if value.producer is None and value not in inputs}


def _type(declared: Declaration) -> TensorType:
    """The type of an input that has a default; dimensions without a number are variables of their own."""
    if declared.shape is None:
        return TensorType(declared.dtype, None)
    dims = (
        dim if isinstance(dim, int) else variable(f"default_{index}_{declared.name}".replace(".", "_"))
        for index, dim in enumerate(declared.shape)
    )
    return TensorType(declared.dtype, tuple(dims))
