"""The way through a model: once over all its graphs, functions and nodes, asking of each what the rules say of it.

It works on the messages as they were parsed, in time that grows as the model does. A loader walks before it builds
anything and refuses what a session refuses; `thorough` also asks what only matters to people.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from jitonnx.model.checker import attributes, model, names, operators, order, tensors, types
from jitonnx.model.checker.nodes import GRADIENT, FunctionKey, Opsets, gradient_names
from jitonnx.model.checker.report import Finding, Place, Report, quoted
from jitonnx.ops.registry import Registry, canonical
from jitonnx.proto import FunctionProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto

FIRST_IR_WITHOUT_INPUTS_FOR_INITIALIZERS = 4


class Reader(Protocol):
    """What gives the elements of a model's tensors."""

    def raw(self, tensor: TensorProto) -> bytes | memoryview:
        """The bytes of raw_data."""

    def array(self, tensor: TensorProto, where: str = "") -> np.ndarray:
        """The elements. jitonnx.errors.Error if external data cannot be read."""


class Body:
    """A graph or the body of a function, and where in the model it stands."""

    __slots__ = ("around", "attributes", "forms", "label", "nodes", "opsets", "owner")

    def __init__(
        self,
        label: str,
        nodes: Sequence[NodeProto],
        opsets: Opsets,
        attributes: frozenset[str] | None = None,
        around: tuple[Body, int, NodeProto] | None = None,
        owner: FunctionKey | None = None,
    ) -> None:
        self.label, self.nodes, self.opsets = label, nodes, opsets
        self.attributes = attributes
        """The attributes of the function in which it stands; None outside of functions."""
        self.around = around
        """A graph among a node's attributes has here the body in which the node stands, its place, and the node."""
        self.owner = owner
        """The function in which it stands, if any."""
        self.forms: dict[tuple[Any, ...], Sequence[operators.Fault]] = {} if around is None else around[0].forms
        """What was found of nodes of equal form: see `operators.faults`."""

    def path(self) -> str:
        """The way to it from the model."""
        if self.around is None:
            return self.label
        body, index, node = self.around
        name = f" {quoted(node.name)}" if node.name else ""
        return f"{body.path()} / {node.op_type} node {index}{name} / {self.label}"

    def place(self, index: int | None = None, value: str | None = None) -> Place:
        """A place in it."""
        if index is None:
            return Place(self.path(), value=value)
        node = self.nodes[index]
        return Place(self.path(), index, node.name, node.op_type, tuple(node.output[:4]), value)


class Walk:
    """A walk through one model. `run` does it; then `report` has what was found."""

    def __init__(
        self,
        proto: ModelProto,
        registry: Registry,
        report: Report,
        reader: Reader,
        *,
        thorough: bool,
    ) -> None:
        self.proto, self.registry, self.report = proto, registry, report
        self.reader = reader
        self.thorough = thorough
        self.ir_version = proto.ir_version
        self.functions: dict[FunctionKey, FunctionProto] = {}
        self.calls: list[tuple[Body, int, FunctionKey]] = []
        """Calls of functions, to be looked at once all functions are known."""
        self.referred: dict[FunctionKey, dict[str, str]] = {}
        """The kinds of the attributes of each function, as its body refers to them."""
        self.sorted = True
        """Whether all nodes stand behind those whose outputs they read."""
        self._visible: set[str] = set()

    def add(self, rule: str, text: str, place: Place, hint: str = "") -> None:
        """Report a finding."""
        self.report.add(Finding(rule, text, place, hint))

    def run(self) -> None:
        """Walk through the whole model."""
        proto = self.proto
        if not model.check(self):
            return
        if proto.functions:
            from jitonnx.model.checker import functions

            functions.check(self)
        opsets = Opsets.of(proto)
        if not opsets.versions and self.ir_version < model.FIRST_IR_WITH_OPSETS:
            opsets = Opsets({"": 1})
        main = Body(f"graph {quoted(proto.graph.name)}", proto.graph.node, opsets)
        self.root(proto.graph, main)
        if self.functions:
            functions.check_calls(self)
        if self.thorough and proto.training_info:
            from jitonnx.model.checker import training

            training.check(self, main)

    def run_functions(self) -> None:
        """Look at the model's functions alone, each in itself: those of a document that declares operators."""
        from jitonnx.model.checker import functions

        model.check_opsets(self)
        for proto in self.proto.functions:
            functions.check_function(self, proto)

    # ------------------------------------------------------------ graphs and functions

    def root(self, proto: GraphProto, body: Body, shared: Iterable[str] = ()) -> None:
        """A graph with nothing around it. shared: names that it may read nevertheless."""
        self._visible = set(shared)
        self.graph(proto, body)

    def function(self, key: FunctionKey, proto: FunctionProto) -> None:
        """The body of a function."""
        self._visible = set()
        known = frozenset(proto.attribute) | {attribute.name for attribute in proto.attribute_proto}
        body = Body(f"function {key[0] or 'ai.onnx'}:{key[1]}", proto.node, Opsets.of(proto), known, owner=key)
        self._visible.update(filter(None, proto.input))
        for attribute in proto.attribute_proto:
            if attribute.HasField("g"):  # a default, which may read the function's inputs
                inner = Body(
                    f"{body.label} / default of {quoted(attribute.name)}", attribute.g.node, body.opsets, known
                )
                inputs = set(self._visible)
                self.graph(attribute.g, inner)
                self._visible = inputs
        waiting = self._nodes(body, [])
        self._undefined(body, waiting)
        for name in proto.output:
            if name not in self._visible:
                self.add(
                    "functions.output",
                    f"This is an invalid model. The function {quoted(proto.name)} defines no value for its output "
                    f"{quoted(name)}",
                    body.place(value=name),
                    names.suggestion(name, self._visible),
                )

    def graph(self, proto: GraphProto, body: Body) -> list[tuple[str, Body, int]]:
        """A graph; returns the names that it reads of graphs around it and that do not stand in front of it."""
        is_main = body.around is None
        visible = self._visible
        local: set[str] = set()
        for info in proto.input:
            name = info.name
            if not name:
                self.add("names.empty", "an input of the graph has no name", body.place())
            elif name in local:
                text = f"Duplicate definition-site for ({name}). Two graph inputs have this name"
                self.add("names.twice", text, body.place(value=name), "rename one of them")
            else:
                local.add(name)
        local |= self._initializers(proto, body, local)
        added = [name for name in local if name not in visible]
        visible.update(added)
        types.check_declarations(self, proto, body)
        waiting = self._nodes(body, added)
        local.update(added)
        for info in proto.output:
            name = info.name
            if not name:
                self.add("names.empty", "an output of the graph has no name", body.place())
            elif name not in local:
                self._missing_output(name, body, outer=name in visible)
        if not proto.name:
            self.add("graphs.name", "the graph has no name", body.place(), "give it one")
        if self.thorough:
            names.check_identifiers(self, proto, body)
            types.check_value_info(self, proto, body, local)
        if is_main:
            self._undefined(body, waiting)
            if not proto.output:
                self.add("graphs.outputs", "the graph has no outputs", body.place(), "declare those that are wanted")
            return []
        here = [entry for entry in waiting if entry[0] in local]
        if here:
            self._disordered(body, here)
            waiting = [entry for entry in waiting if entry[0] not in local]
        visible.difference_update(added)
        return waiting

    def _missing_output(self, name: str, body: Body, *, outer: bool) -> None:
        text = f"This is an invalid model. Error: Graph output ({name}) does not exist in the graph. "
        if outer:
            text += "It is a value of a graph around it"
            hint = "put an Identity node between the two"
        else:
            text += "No node, initializer or input has that name"
            hint = names.suggestion(name, self._visible)
        self.add("names.output", text, body.place(value=name), hint)

    def _initializers(self, proto: GraphProto, body: Body, inputs: set[str]) -> set[str]:
        """The initializers of a graph; returns their names."""
        initializers: set[str] = set()
        for place, tensor in enumerate(proto.initializer):
            name = tensor.name
            self._initializer(name, place, body, inputs, initializers)
            for rule, text in tensors.faults(tensor, self.reader.raw):
                what = f"initializer {quoted(name)}" if name else f"initializer {place}"
                self.add(rule, f"{what} {text}", body.place(value=name))
        for place, sparse in enumerate(proto.sparse_initializer):
            name = sparse.values.name
            self._initializer(name, place, body, inputs, initializers)
            self.sparse(sparse, f"sparse initializer {quoted(name)}", body.place(value=name))
        return initializers

    def _initializer(self, name: str, place: int, body: Body, inputs: set[str], before: set[str]) -> None:
        if not name:
            self.add("initializers.name", f"initializer {place} has no name", body.place())
            return
        if name in before:
            text = f"Duplicate definition of name ({name}). Two initializers have this name"
            self.add("names.twice", text, body.place(value=name), "rename one of them, or take one away")
        before.add(name)
        if self.ir_version < FIRST_IR_WITHOUT_INPUTS_FOR_INITIALIZERS:
            if name not in inputs:
                text = f"{quoted(name)} is an initializer, but no input, as IR version {self.ir_version} wants"
                self.add("initializers.input", text, body.place(value=name), "set ir_version to 4 or later")
        elif body.around is not None and name in inputs:
            text = f"{quoted(name)} is both an initializer and an input of a graph that a node runs"
            self.add("initializers.default", text, body.place(value=name), "only the model's own graph has defaults")

    def sparse(self, proto: SparseTensorProto, what: str, place: Place) -> None:
        """A sparse tensor."""
        from jitonnx.model.checker import sparse

        for rule, text in sparse.faults(proto, self.reader):
            self.add(rule, f"{what} {text}", place)

    # ------------------------------------------------------------ nodes

    def _nodes(self, body: Body, produced: list[str]) -> list[tuple[str, Body, int]]:
        """The nodes of a body, whose outputs become `produced`.

        Returns the names that are not defined in front of those who read them, with their places.
        """
        visible, forms, functions = self._visible, body.forms, self.functions
        waiting: list[tuple[str, Body, int]] = []
        named: set[str] = set()
        constants: set[str] = set()
        kinds: tuple[tuple[str, str], ...]
        for index, node in enumerate(body.nodes):
            operator, domain = node.op_type, node.domain
            inputs, outputs, given = node.input, node.output, node.attribute
            absent = False
            for name in inputs:
                if name not in visible:
                    if name:
                        waiting.append((name, body, index))
                    else:
                        absent = True
            if given:
                kinds, graphs = attributes.check(self, given, body, index)
                for label, graph in graphs:
                    inner = Body(label, graph.node, body.opsets, body.attributes, (body, index, node), body.owner)
                    waiting += self.graph(graph, inner)
                if operator == GRADIENT[1] and domain == GRADIENT[0]:
                    waiting += [(name, body, index) for name in gradient_names(node) if name not in visible]
            else:
                kinds = ()
            unwanted = False
            for name in outputs:
                if name in visible:
                    # onnxruntime makes initializers of Constants, by name, before it looks at definitions
                    is_main = body.around is None and body.owner is None
                    last_counts = is_main and operator == "Constant" and name in constants
                    rule = "names.constants-twice" if last_counts else "names.twice"
                    text = f"Duplicate definition of name ({name}). This node defines it again"
                    self.add(rule, text, body.place(index, name), "each value is defined once: rename it")
                elif name:
                    if operator == "Constant":
                        constants.add(name)
                    visible.add(name)
                    produced.append(name)
                else:
                    unwanted = True
            name = node.name
            if name and operator != "Constant":  # onnxruntime takes these out before it looks at names
                if name in named:
                    text = f"This is an invalid model. Error: two nodes with same node name ({name})"
                    self.add("names.node-twice", text, body.place(index), "rename one of them, or clear its name")
                named.add(name)
            if functions and (key := (canonical(domain), operator, node.overload)) in functions:
                self.calls.append((body, index, key))
                continue
            form = (
                operator,
                domain,
                tuple(map(bool, inputs)) if absent else len(inputs),
                tuple(map(bool, outputs)) if unwanted else len(outputs),
                kinds,
            )
            found = forms.get(form)
            if found is None:
                found = forms[form] = operators.faults(self, node, dict(kinds), body)
            for rule, text, hint in found:
                self.add(rule, text, body.place(index), hint)
        return waiting

    def refer(self, body: Body, name: str, kind: str) -> None:
        """A function refers in its body to an attribute of its own as one of a kind."""
        if body.owner is not None:
            self.referred.setdefault(body.owner, {}).setdefault(name, kind)

    def _undefined(self, body: Body, waiting: list[tuple[str, Body, int]]) -> None:
        """Report of a body with nothing around it the names that nobody defines, and those that are defined too
        late."""
        late = [entry for entry in waiting if entry[0] in self._visible]
        if late:
            self._disordered(body, late)
        told: set[tuple[str, int]] = set()
        for name, where, index in waiting:
            if name in self._visible or (name, id(where)) in told:
                continue
            told.add((name, id(where)))
            text = (
                f"This is an invalid model. Error: Node input {quoted(name)} is not a graph input, initializer, or "
                "output of a previous node"
            )
            self.add("names.undefined", text, where.place(index, name), names.suggestion(name, self._visible))

    def _disordered(self, body: Body, late: list[tuple[str, Body, int]]) -> None:
        self.sorted = False
        cycle = order.cycle(body.nodes)
        if cycle:
            text = "This is an invalid model. Error: the graph is not acyclic. The cycle: "
            self.add("order.cycle", text + order.drawn(body.nodes, cycle), body.place(cycle[0]))
            return
        name, where, index = late[0]
        text = f"{quoted(name)} is read in front of the node that defines it, as are {len(late) - 1} other names"
        self.add("order.unsorted", text, where.place(index, name), "put each node behind those whose outputs it reads")
