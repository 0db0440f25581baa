"""Which node of a compiled model is wrong, and through what: the interpreter's values beside those of the compiled
model, rewrites and kernels switched off until the one is left that makes the difference.

First the rewritten graph is interpreted: where that differs from the model, a rewrite is guilty. Otherwise the compiled
graph is compared with the interpreted one value by value. A value is looked at by making it an output, one or two at a
time, so that the rest is fused as before; where the difference is gone then, another one is looked at.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from jitonnx.engine.interpreter import evaluate_graph
from jitonnx.ir.extract import extract
from jitonnx.ir.graph import Graph, Node, Value, describe
from jitonnx.ir.types import TensorType
from jitonnx.passes.pipeline import all_rules
from jitonnx.passes.report import Applied
from jitonnx.plan.choices import Caution
from jitonnx.support.records import NamedTuple
from jitonnx.tools.debug.differences import Difference
from jitonnx.tools.debug.experiments import Experiments, interpreted, origin

LOOKS = 60
"""Compiled models that are made at most to find the first value that differs."""


class Finding(NamedTuple):
    """What is wrong with a compiled model."""

    kind: str
    """What is guilty: "rewrite", "fusion", "kernel", "threads", "winograd", "fixed24", "rounding" or "unknown"."""
    name: str
    """Its name: of a rewrite as docs/passes.md has it, of a kernel as `jitonnx explain` does."""
    node: str
    """The first node that differs."""
    value: str
    """Which result of it."""
    difference: Difference
    evidence: str
    """What was tried that shows it."""
    suspects: tuple[tuple[str, ...], ...]
    """Names of the model's nodes to reduce the model to, the likeliest first."""


def find(experiments: Experiments) -> Finding | None:
    """The first node that differs, and what is guilty of it; None where all outputs are as they should be."""
    wrong = experiments.wrong(experiments.results)
    if not wrong:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of each experiment again what was warned of by now
        return _of_rewrites(experiments) or _of_kernels(experiments, *wrong[0])


# ---------------------------------------------------------------- rewrites


def _of_rewrites(experiments: Experiments) -> Finding | None:
    """What the rewrites did wrong; None where the rewritten graph means the same as the model."""
    graph, report = experiments.rewritten()
    values = interpreted(graph, experiments.inputs)
    if not experiments.wrong([values[value] for value in graph.outputs]):
        return None
    node, value, found = _first_that_differs(experiments, values)
    made = list(dict.fromkeys(entry.rewrite for entry in report.applied))
    every = {rule.name for rule in all_rules()}

    def wrong_with(allowed: Iterable[str]) -> bool:
        other, _ = experiments.rewritten(every - set(allowed))
        return bool(experiments.wrong(evaluate_graph(other, experiments.inputs, {})))

    if not made or wrong_with([]):
        evidence = "the graph differs before any rewrite of a name is made"
        return Finding("unknown", "loading the model", node, value, found, evidence, ())
    right, wrong = 0, len(made)
    while wrong - right > 1:  # with the first `right` of them all is well, and with the first `wrong` it is not
        middle = (right + wrong) // 2
        right, wrong = (right, middle) if wrong_with(made[:middle]) else (middle, wrong)
    guilty = made[right]
    alone, _ = experiments.rewritten([guilty])
    cured = not experiments.wrong(evaluate_graph(alone, experiments.inputs, {}))
    evidence = (
        "the interpreter gives what the model should where this rewrite alone is switched off"
        if cured
        else f"the interpreter is right with {', '.join(made[:right]) or 'no rewrite'}, and wrong with this added"
    )
    return Finding("rewrite", guilty, node, value, found, evidence, _nearest(report.applied, guilty, node))


def _first_that_differs(experiments: Experiments, values: Mapping[Value, Any]) -> tuple[str, str, Difference]:
    """The first node of the model with a value that a rewrite has left its name and made another of."""
    by_name = {value.name: (value, array) for value, array in values.items()}
    for node in experiments.graph:
        for value in node.outputs:
            kept = by_name.get(value.name)
            if kept is None or value not in experiments.truth or kept[0].type.shape != value.type.shape:
                continue
            found = experiments.compare(experiments.truth[value], kept[1])
            if found is not None:
                return describe(node), value.name, found
    name, found = experiments.wrong(experiments.results)[0]
    return "the model", name, found


def _nearest(applied: Sequence[Applied], guilty: str, node: str) -> tuple[tuple[str, ...], ...]:
    """The nodes of each use of a rewrite, those of the first that differs before others."""
    places = dict.fromkeys(entry.origin for entry in applied if entry.rewrite == guilty)
    return tuple(sorted(places, key=lambda names: not any(repr(name) in node for name in names)))


# ---------------------------------------------------------------- kernels


def _of_kernels(experiments: Experiments, name: str, difference: Difference) -> Finding:
    """What kernels did wrong. name, difference: of the model's first output that differs."""
    graph, _ = experiments.rewritten()
    values = interpreted(graph, experiments.inputs)
    results = experiments.compiled(graph)
    wrong = [] if results is None else _wrong_values(experiments, graph.outputs, results, values)
    if not wrong or wrong[0].producer is None:
        evidence = "the difference is gone where the rewritten graph is compiled by itself"
        return Finding("unknown", "the whole model", "the model", name, difference, evidence, ())
    value = _first_value(experiments, graph, wrong[0], values)
    node = value.producer
    assert node is not None
    found = _difference_of(experiments, graph, value, values)
    where = (describe(node), value.name, found or difference)
    if _is_rounding(experiments, graph, value):
        evidence = "the node gives what it should for the inputs that it gets: the differences before it add up"
        return Finding("rounding", "", *where, evidence, ())
    kernels = experiments.labels(graph, [value], node)
    label = ", ".join(f"{text} (of {', '.join(names)})" for text, names in kernels)
    nodes = tuple(dict.fromkeys(name for _, names in kernels for name in names)) or origin(node)
    suspects = tuple(dict.fromkeys([origin(node), nodes]))
    choices = experiments.settings.choices
    trials: list[tuple[str, str, str, dict[str, Any]]] = [
        ("winograd", label, "with direct sums", {"choices": replace(choices, winograd=False)}),
        ("fixed24", label, "with weights in float32", {"choices": replace(choices, fixed24=False)}),
        ("fusion", label, "where nothing is fused", {"choices": replace(choices, caution=Caution.FUSION)}),
        ("kernel", label or describe(node), "where NumPy does the node", {"on_host": frozenset(nodes)}),
    ]
    if experiments.settings.threads > 1:
        trials.insert(0, ("threads", label, "on one thread", {"threads": 1}))
    for kind, text, tried, changes in trials:
        results = experiments.compiled(graph, [value], **changes)
        if results is not None and experiments.compare(values[value], results[-1]) is None:
            return Finding(kind, text, *where, f"the value is right {tried}", suspects)
    evidence = "the value stays wrong with each of the kernels' choices, and with its own node on NumPy"
    return Finding("unknown", label or "what comes before it", *where, evidence, suspects)


def _wrong_values(
    experiments: Experiments, looked_at: Sequence[Value], results: Sequence[Any], values: Mapping[Value, Any]
) -> list[Value]:
    pairs = zip(looked_at, results, strict=True)
    return [value for value, given in pairs if experiments.compare(values[value], given) is not None]


def _difference_of(
    experiments: Experiments, graph: Graph, value: Value, values: Mapping[Value, Any]
) -> Difference | None:
    results = experiments.compiled(graph, [value])
    return None if results is None else experiments.compare(values[value], results[-1])


def _first_value(experiments: Experiments, graph: Graph, wrong: Value, values: Mapping[Value, Any]) -> Value:
    """A value that differs, and before which none does that can be looked at. wrong: one that differs."""
    order = {node: number for number, node in enumerate(graph)}
    right: set[Value] = set()
    for _ in range(LOOKS):
        before = _before([wrong], right)
        candidates = sorted((v for v in before - {wrong} if v in values), key=lambda v: order[_producer(v)])
        if not candidates:
            break
        middle = candidates[len(candidates) // 2]
        results = experiments.compiled(graph, [wrong, middle])
        found = [] if results is None else _wrong_values(experiments, [wrong, middle], results[-2:], values)
        if wrong not in found:  # it is gone: this one is within what is wrong
            right.add(middle)
        elif middle in found:
            wrong = middle
        else:
            right |= _before([middle], right)
    return wrong


def _producer(value: Value) -> Node:
    assert value.producer is not None
    return value.producer


def _before(values: Iterable[Value], known: Collection[Value]) -> set[Value]:
    """Values and all that they are computed from, but for what is known by now and for what no run computes."""
    found: set[Value] = set()
    seen: set[Value] = set()
    stack = list(values)
    while stack:
        value = stack.pop()
        if value in seen or value.producer is None or value.contents is not None:
            continue
        seen.add(value)
        if value not in known:
            found.add(value)
        stack.extend(given for given in value.producer.inputs if given is not None)
    return found


def _is_rounding(experiments: Experiments, graph: Graph, value: Value) -> bool:
    """Whether a node gives what it should for the inputs that it is given in the compiled model."""
    node = _producer(value)
    read = list(dict.fromkeys(v for v in node.inputs if v is not None and v.producer and v.contents is None))
    if not read or node.bodies:
        return False
    results = experiments.compiled(graph, [value, *read])
    if results is None:
        return False
    given, arrays = results[len(graph.outputs)], results[len(graph.outputs) + 1 :]
    inputs = [v for v in graph.inputs if v in node.inputs]
    arrays += [array for v, array in zip(graph.inputs, experiments.inputs, strict=True) if v in node.inputs]
    types = [
        TensorType(v.dtype, array.shape) if isinstance(v.type, TensorType) else v.type
        for v, array in zip([*read, *inputs], arrays, strict=True)
    ]
    alone = extract([node], [*read, *inputs], types, [value])
    return experiments.compare(evaluate_graph(alone, arrays, {})[0], given) is None and _differs_at_all(
        experiments, graph, value, given
    )


def _differs_at_all(experiments: Experiments, graph: Graph, value: Value, given: Any) -> bool:
    """Whether a value still differs where the inputs of its node are looked at, too."""
    return experiments.compare(interpreted(graph, experiments.inputs)[value], given) is not None
