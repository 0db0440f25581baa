"""Training information: its graphs, and bindings between their outputs and the state variables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitonnx.model.checker.names import suggestion
from jitonnx.model.checker.nodes import initializer_names
from jitonnx.model.checker.report import Place, quoted

if TYPE_CHECKING:
    from jitonnx.model.checker.walk import Body, Walk


def check(walk: Walk, main: Body) -> None:
    """Every training step of the model. main: the body of its graph."""
    from jitonnx.model.checker.walk import Body

    shared = initializer_names(walk.proto.graph)
    computed = [name for node in walk.proto.graph.node for name in node.output]
    inference = [*shared, *(value.name for value in walk.proto.graph.input), *computed]
    for number, info in enumerate(walk.proto.training_info):
        state = {*shared, *initializer_names(info.algorithm)}
        for what in ("initialization", "algorithm"):
            graph, where = getattr(info, what), f"training {number} / {what}"
            bindings = info.initialization_binding if what == "initialization" else info.update_binding
            if info.HasField(what):
                walk.root(graph, Body(where, graph.node, main.opsets), inference if what == "algorithm" else ())
            elif bindings:
                text = f"{what} has bindings, but no graph"
                walk.add("training.binding", text, Place(where), "the graph may be left out if nothing is bound")
            outputs = {output.name for output in graph.output}
            seen: set[str] = set()
            for binding in bindings:
                place = Place(where, value=binding.key)
                if binding.key in seen:
                    text = f"two bindings are of the state variable {quoted(binding.key)}"
                    walk.add("training.twice", text, place, "a step gives each variable one value")
                seen.add(binding.key)
                if binding.key not in state:
                    text = f"a binding is of {quoted(binding.key)}, which is no initializer"
                    walk.add("training.binding", text, place, suggestion(binding.key, state))
                if info.HasField(what) and binding.value not in outputs:
                    text = f"{quoted(binding.key)} is bound to {quoted(binding.value)}, which is no output of the graph"
                    walk.add("training.binding", text, place, suggestion(binding.value, outputs))
