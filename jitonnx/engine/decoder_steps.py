"""The sizes that a language model's steps have: a prompt, tokens behind it one by one, a further text behind these.

A decoder is known by what exporters call its inputs and outputs: tokens or their embeddings, and pasts that come back
as presents. Each kind of step may need a plan of its own, as sizes of 1 or 0 break what others assume; who knows the
sizes ahead can have all of them planned before the first run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from jitonnx.ir.dims import DimLike, evaluate, variables
from jitonnx.ir.graph import Graph, Value
from jitonnx.runtime.program import Shapes

_TOKENS = ("input_ids", "inputs_embeds", "decoder_input_ids", "ids")
"""Inputs of [sequences, tokens, …], of which a decoder has one at least."""
_OF_TOKENS = ("position_ids", "token_type_ids")
_OF_ALL = ("attention_mask", "decoder_attention_mask")
"""Inputs of [sequences, tokens], of the new ones, and of these and those before."""
_ENCODER = "encoder"
"""The part that names of inputs have in common whose length an encoder has read."""
_RENAMED = (("past_key_values", "present"), ("past", "present"))
"""How names of pasts become those of their presents."""

_BATCHES = (1, 3)
_NEW, _PAST, _ENCODED = 37, 101, 67
"""Numbers that no other size of a model is likely to be."""
_STEPS = ((_NEW, 0), (1, _PAST), (1, 0), (_NEW, _PAST))
"""Tokens that are new, and those before."""


def step_shapes(graph: Graph, names: Sequence[str], usual: Mapping[str, Sequence[int | None]]) -> list[Shapes]:
    """Shapes of the inputs, one set for each kind of step; none for a graph that is no decoder whose sizes are known.

    graph: as it was loaded, sizes as they are declared. names: what the model calls its outputs.
    usual: the sizes of each input as far as operators tell them.
    """
    inputs = {value.name: value for value in graph.inputs}
    outputs = dict(zip(names, graph.outputs, strict=True))
    tokens = next((inputs[name] for name in _TOKENS if name in inputs), None)
    presents = {name: outputs[made] for name in inputs for made in _presents(name) if made in outputs}
    if tokens is None or not presents or any(value.type.shape is None for value in graph.inputs):
        return []
    kinds = _kinds(inputs, presents, tokens)
    for value in graph.inputs:
        for dim, size in zip(_shape(value), usual[value.name], strict=True):
            if size is not None and (name := _variable(dim)):
                kinds.setdefault(name, size)
    open_sizes = {name for value in graph.inputs for dim in value.type.shape or () for name in variables(dim)}
    if not open_sizes or not open_sizes <= kinds.keys():
        return []
    found = []
    for batch in _BATCHES:
        for new, past in _STEPS:
            sizes = {"batch": batch, "new": new, "past": past, "all": new + past, "encoded": _ENCODED}
            values = {name: kind if isinstance(kind, int) else sizes[kind] for name, kind in kinds.items()}
            found.append(tuple(tuple(_size(dim, values) for dim in value.type.shape or ()) for value in graph.inputs))
    return list(dict.fromkeys(found))


def _kinds(inputs: Mapping[str, Value], presents: Mapping[str, Value], tokens: Value) -> dict[str, str | int]:
    """What each dimension variable is the number of, or what number it is, as far as inputs and outputs tell."""
    found: dict[str, str | int] = {}

    def note(shape: Sequence[DimLike], *kinds: str | int) -> None:
        for dim, kind in zip(shape, kinds, strict=False):
            if name := _variable(dim):
                found.setdefault(name, kind)

    note(_shape(tokens), "batch", "new")
    for name, value in inputs.items():
        if name in _OF_TOKENS:
            note(_shape(value), "batch", "new")
        elif name in _OF_ALL:
            note(_shape(value), "batch", "all")
        elif _ENCODER in name and name not in presents:
            note(_shape(value), "batch", "encoded")
    for name, present in presents.items():
        note(_shape(inputs[name]), "batch")
        for before, behind in zip(_shape(inputs[name]), _shape(present), strict=False):
            if before != behind:
                note([before], behind if isinstance(behind, int) else "past")
    for name in presents:
        if _ENCODER in name:
            for dim in _shape(inputs[name]):
                note([dim], "encoded")
    return found


def _presents(name: str) -> Iterator[str]:
    """What the present of a past may be called."""
    for past, present in _RENAMED:
        if past in name:
            yield name.replace(past, present)


def _shape(value: Value) -> Sequence[DimLike]:
    return value.type.shape or ()


def _variable(dim: DimLike) -> str:
    """The variable that a size hangs on alone; "" where it is a number, or hangs on several."""
    (name, *others) = sorted(variables(dim)) or [""]
    return "" if others else name


def _size(dim: DimLike, sizes: Mapping[str, int]) -> int:
    return dim if isinstance(dim, int) else evaluate(dim, sizes)
