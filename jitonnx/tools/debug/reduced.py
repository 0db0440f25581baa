"""A part of a model that still shows what is wrong with the whole, as an ONNX file, and inputs for it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from jitonnx.engine.interpreter import evaluate_graph
from jitonnx.engine.pipeline import Engine
from jitonnx.ir.declaration import Declaration
from jitonnx.ir.extract import extract
from jitonnx.ir.graph import Graph, Node, Value
from jitonnx.ir.schema import text_of
from jitonnx.ir.types import type_of
from jitonnx.model import Model
from jitonnx.model.write import write_model
from jitonnx.ops.registry import registry
from jitonnx.support.kernel_cache import KernelCache
from jitonnx.support.records import NamedTuple
from jitonnx.tools.debug.differences import difference
from jitonnx.tools.debug.experiments import Experiments, specialised

GROWN = 6
"""How often a part that does not show it takes in its neighbours."""


class Part(NamedTuple):
    """Some nodes of a model as a graph of their own, with fixed sizes."""

    graph: Graph
    feeds: list[Any]


def reduce(experiments: Experiments, suspects: Sequence[Collection[str]], cache: KernelCache) -> Part | None:
    """The smallest part found around the suspects, names of nodes, that still differs; None if none does."""
    graph = experiments.graph
    for names in suspects:
        nodes = {node for node in graph if node.name in names}
        for _ in range(GROWN):
            part = _part(experiments, nodes) if nodes else None
            if part is not None and _shows(experiments, part, cache):
                return part
            nodes |= _neighbours(nodes)
    return None


def write(part: Part, model: Model, path: str) -> Path:
    """Write a part as an ONNX file and its inputs beside it; the path of these is returned. model: the whole one."""
    graph = part.graph
    inputs, outputs = ([_declared(value) for value in values] for values in (graph.inputs, graph.outputs))
    write_model(replace(model, graph=graph, inputs=inputs, outputs=outputs, overridable=[]), path, registry)
    feeds = Path(path).with_suffix(".npz")
    np.savez(feeds, allow_pickle=False, **{v.name: _storable(a) for v, a in zip(graph.inputs, part.feeds, strict=True)})
    return feeds


def _storable(array: Any) -> Any:
    return array.astype(np.str_) if array.dtype == object else array


def _declared(value: Value) -> Declaration:
    text = text_of(value.type) or "tensor(undefined)"
    shape = None if value.type.shape is None else tuple(d if isinstance(d, int) else None for d in value.type.shape)
    return Declaration(value.name, text if "(" in text else f"tensor({text})", value.type.dtype, shape)


def _neighbours(nodes: Collection[Node]) -> set[Node]:
    """The nodes that make what some nodes read, and those that read what they give."""
    made = {value.producer for node in nodes for value in node.inputs if value is not None and value.producer}
    return made | {user for node in nodes for value in node.outputs for user in value.users}


def _part(experiments: Experiments, nodes: Collection[Node]) -> Part | None:
    """Some nodes as a graph of their own; None where what it reads or gives is no array."""
    order = [node for node in experiments.graph if node in nodes]
    own = {value for node in order for value in node.outputs}
    given = set(experiments.graph.inputs)
    read = dict.fromkeys(v for node in order for v in node.inputs if v is not None and v not in own)
    inputs: list[Value] = []
    constants: dict[Value, Value] = {}
    for value in read:
        if value.producer is None and value not in given:
            continue
        array = experiments.truth.get(value)
        if not isinstance(array, np.ndarray):
            return None
        if value.contents is None:
            inputs.append(value)
        else:  # sizes: what plans are made of
            constants[value] = Value(value.name, type_of(array), array)
    outside = set(experiments.graph.outputs)
    outputs = [v for node in order for v in node.outputs if v in outside or any(u not in nodes for u in v.users)]
    feeds = [experiments.truth[value] for value in inputs]
    types = [type_of(array) for array in feeds]
    return Part(extract(order, inputs, types, outputs, constants), feeds) if outputs else None


def _shows(experiments: Experiments, part: Part, cache: KernelCache) -> bool:
    """Whether the compiled part differs from the interpreted one."""
    wanted = evaluate_graph(part.graph, part.feeds, {})
    given = Engine(specialised(part.graph), experiments.settings, cache).run(part.feeds)
    return any(
        difference(a, b, quantised=experiments.quantised) is not None for a, b in zip(wanted, given, strict=True)
    )
