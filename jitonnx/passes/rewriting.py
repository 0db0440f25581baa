"""Rules and how they are applied: matching, safety, replacement and record keeping, once for all rules.

A rule looks at one node and gives the values that shall stand for its outputs, or None where it does not apply:

    @rule("double negation", Neg, equation="-(-x) = x")
    def double_negation(node, edit):
        inner = producer(node.inputs[0], Neg)
        return inner.inputs[0] if inner else None

What it would swallow besides its own node it names with `edit.consume(nodes)`, which makes sure that nobody else reads
their results; a rule that recognises something and cannot proceed raises `Decline` with a typed reason.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np

from jitonnx.ir.defects import is_defect, survive, told
from jitonnx.ir.dims import DimLike, variables
from jitonnx.ir.dtypes import DType
from jitonnx.ir.errors import InferenceError
from jitonnx.ir.graph import Graph, GraphError, Node, Value, describe
from jitonnx.ir.operator import DataDependentError, Operator
from jitonnx.ir.types import is_symbolic
from jitonnx.ops.onnx.identity import Identity
from jitonnx.ops.onnx.shape import Reshape, Transpose
from jitonnx.passes.report import Reason, Report
from jitonnx.passes.verify import same_type
from jitonnx.support.mapped_files import release_pages
from jitonnx.support.records import dataclass

Fact = TypeVar("Fact")
Result: TypeAlias = "Value | Sequence[Value] | None"

SWEEPS = 60
"""Sweeps after which a step that still changes the graph counts as a fault: real ones need fewer than ten."""


class Level(enum.IntEnum):
    """When a rewrite is made, in the terms of onnxruntime's GraphOptimizationLevel."""

    NONE = 0
    BASIC = 1
    EXTENDED = 2
    ALL = 99


class Decline(Exception):
    """A rule has recognised its pattern and cannot rewrite it."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(reason.value)
        self.reason, self.detail = reason, detail


@dataclass(frozen=True)
class Rule:
    """A named rewrite: where it looks (`anchors`; empty: everywhere), and what it makes of it."""

    name: str
    equation: str
    level: Level
    anchors: tuple[type[Operator], ...]
    apply: Callable[[Node, Edit], Result]


def rule(
    name: str, *anchors: type[Operator], equation: str, level: Level = Level.BASIC
) -> Callable[[Callable[[Node, Edit], Result]], Rule]:
    """Make a function of a node and an `Edit` a rule."""
    return lambda function: Rule(name, equation, level, anchors, function)


class Edit:
    """What a rule may do to a graph. Nodes that it adds carry the origin of what they replace."""

    def __init__(self, graph: Graph, report: Report) -> None:
        self.graph, self.report = graph, report
        self._consumed: dict[Node, None] = {}
        self._added: list[Node] = []
        self._facts: dict[type[Any], Any] = {}
        self._sources: dict[Value, int] = {}

    # ------------------------------------------------------------ for rules

    def add(self, operator: Operator, *inputs: Value | None) -> Value:
        """A new node with one output."""
        return self.add_many(operator, inputs, 1)[0]

    def add_many(self, operator: Operator, inputs: Sequence[Value | None], outputs: int) -> tuple[Value, ...]:
        """A new node with several outputs."""
        names = [f"{operator.name}_output_{i}" for i in range(outputs)] if outputs > 1 else None
        values = self.graph.add(operator, inputs, outputs=names, origin=self.origin)
        assert values[0].producer is not None
        self._added.append(values[0].producer)
        return values

    def inline(self, body: Graph, inputs: Sequence[Value]) -> list[Value]:
        """The nodes of a body, for these inputs; its outputs."""
        values: dict[Value, Value] = dict(zip(body.inputs, inputs, strict=True))
        for node in body:
            made = self.graph.add(
                node.operator,
                [None if value is None else values.get(value, value) for value in node.inputs],
                name=node.name,
                outputs=[value.name for value in node.outputs],
                origin=node.origin or (node.name,),
                bodies=node.bodies,
                captures=node.captures,
            )
            assert made[0].producer is not None
            self._added.append(made[0].producer)
            values.update(zip(node.outputs, made, strict=True))
        return [values.get(value, value) for value in body.outputs]

    def add_loop(
        self,
        node: Node,
        inputs: Sequence[Value | None],
        body: Graph,
        captures: int,
        outputs: Sequence[str],
        operator: Operator | None = None,
    ) -> tuple[Value, ...]:
        """A node like `node` with another body; arguments as for `Graph.add`."""
        values = self.graph.add(
            operator or node.operator,
            inputs,
            name=node.name,
            outputs=outputs,
            origin=self.origin,
            bodies=(body,),
            captures=captures,
        )
        assert values[0].producer is not None
        self._added.append(values[0].producer)
        return values

    def constant(self, array: np.ndarray) -> Value:
        """A new constant."""
        return self.graph.add_constant(array)

    def sources(self, constants: Iterable[Value]) -> int:
        """Bytes of the constants of the graph that `constants` were computed from, by way of whatever others."""
        return sum(self._sources.get(value, value.constant.nbytes) for value in constants if value.constant is not None)

    def computed(self, array: np.ndarray, constants: Collection[Value]) -> Value:
        """A new constant that was computed from others."""
        made = self.constant(array)
        self._sources[made] = self.sources(constants)
        return made

    def dims(self, dims: Sequence[DimLike]) -> Value:
        """A shape, known or symbolic, as an int64 vector."""
        return self.graph.add_dims(dims)

    def reshape(self, x: Value, shape: Sequence[DimLike]) -> Value:
        """x under another shape; x itself if it has that shape."""
        return x if tuple(shape) == x.shape else self.add(Reshape(allowzero=1), x, self.dims(shape))

    def transpose(self, x: Value, order: Sequence[int]) -> Value:
        """x with its axes in another order; x itself if that is its own."""
        return x if list(order) == list(range(len(order))) else self.add(Transpose(perm=tuple(order)), x)

    def consume(self, nodes: Iterable[Node]) -> None:
        """The rule's node and `nodes` become one. Decline if a result inside is read elsewhere or by the caller."""
        self._consumed.update(dict.fromkeys(nodes))
        root, results = next(iter(self._consumed)), self.graph.results
        for node in self._consumed:
            if node is root:
                continue
            for value in node.outputs:
                if value in results:
                    raise Decline(Reason.OTHER_USES, f"{value.name} is read from outside the graph")
                if other := [user for user in value.users if user not in self._consumed]:
                    raise Decline(Reason.OTHER_USES, f"{value.name} by {other[0].name}")

    def shares(self, nodes: Iterable[Node]) -> None:
        """`nodes` take part, and may stay for others who read them."""
        self._consumed.update(dict.fromkeys(nodes))

    @property
    def origin(self) -> tuple[str, ...]:
        """The model's nodes that take part in the rewrite under way."""
        return tuple(dict.fromkeys(name for node in self._consumed for name in node.origin or (node.name,)))

    def facts(self, kind: type[Fact]) -> Fact:
        """The graph's one instance of an analysis, which remembers what it found until the graph has changed."""
        if kind not in self._facts:
            self._facts[kind] = kind(self.graph)  # type: ignore[call-arg]
        found: Fact = self._facts[kind]
        return found

    # ------------------------------------------------------------ for the driver of rules

    def forget(self) -> None:
        """Analyses start anew."""
        self._facts.clear()

    def begin(self, node: Node) -> None:
        """A rewrite starts at `node`."""
        self._consumed, self._added = {node: None}, []

    def attempt(self, rule: Rule, node: Node) -> bool:
        """Apply a rule to a node; whether it did anything."""
        self.begin(node)
        try:
            result = self._applied(rule, node)
            if result is not None:
                values = [result] if isinstance(result, Value) else list(result)
                if self._needed(node, values):
                    result = None
                else:
                    self.substitute(node, values)
        except Decline as decline:
            self.report.note_declined(rule.name, self.origin, decline.reason, decline.detail)
            result = None
        except DataDependentError as undecided:  # where nothing but demands may be assumed
            self.report.note_declined(rule.name, self.origin, Reason.UNDECIDED, str(undecided))
            result = None
        if result is None:
            for added in reversed(self._added):
                self.graph.remove(added)
            return False
        swallowed = " ".join(one.operator.name for one in reversed(self._consumed))
        self.report.note_applied(rule.name, self.origin, swallowed, _made(result))
        return True

    def _applied(self, rule: Rule, node: Node) -> Result:
        """What a rule gives; None where it fails in itself: the model does without it, and is told so once."""
        try:
            return rule.apply(node, self)
        except (Decline, DataDependentError):
            raise
        except Exception as error:
            if not isinstance(error, (GraphError, InferenceError)) and not is_defect(error):
                raise
            defect = GraphError(f"Bug: the rewrite {rule.name!r} (which can be switched off) failed: {error}")
            defect.__cause__ = error
            survive(defect, f"rewriting {describe(node)} by {rule.name!r}", "it stays as it is")
            self.report.note_declined(rule.name, self.origin, Reason.FAILED, told(defect))
            return None

    def substitute(self, node: Node, results: Sequence[Value]) -> None:
        """Let `results` stand for the outputs of `node`, which is removed. Decline if their types differ, and if the
        new nodes read a size that the outputs themselves tell."""
        told = {name for name, binding in self.graph.bindings.items() if binding.value in node.outputs}
        if told and any(told & _sizes_in(value) for added in self._added for value in added.inputs):
            raise Decline(Reason.UNKNOWN_SHAPE, "what is rewritten tells its own size")
        for old, new in zip(node.outputs, results, strict=False):
            if old.type.shape is not None and not self._same_type(old, new):
                raise Decline(Reason.SHAPE, f"{new.type} would stand for {old.type}")
        for old, new in zip(node.outputs, results, strict=False):
            self._replace(old, new)
        self._remove_unread(node)

    def _same_type(self, old: Value, new: Value) -> bool:
        """Whether two values have one type. What only a run can tell of the old one is what the new one has."""
        bindings = self.graph.bindings
        for a, b in zip(old.type.shape or (), new.type.shape or (), strict=False):
            if a != b and str(a) in bindings and bindings[str(a)].value is old:
                self.graph.assumptions.note(a, b)
        if old.measured and old.contents is not None and (elements := new.constant) is not None:
            for variable, number in zip(old.contents.flat, elements.flat, strict=True):
                self.graph.assumptions.note(variable, int(number))
        return same_type(old.type, new.type, self.graph.assumptions)

    def _needed(self, node: Node, results: Sequence[Value]) -> bool:
        """Whether a node is the Identity that gives a graph output a name of its own."""
        return isinstance(node.operator, Identity) and node.output in self.graph.outputs and self._nameless(results[0])

    def _nameless(self, value: Value) -> bool:
        return value.producer is None or value in self.graph.outputs

    def _replace(self, old: Value, new: Value) -> None:
        """All users of `old` read `new`, which takes its name over if it is new or has to: a graph output keeps it."""
        if old in self.graph.outputs and self._nameless(new):
            new = self.add(Identity(), new)
        if old in self.graph.outputs or (new.producer in self._added and new not in self.graph.outputs):
            self.graph.assumptions.rename(*(f"{self.graph.scope}{value.name}" for value in (new, old)))
            old.name, new.name = new.name, old.name
        if new.contents is None and new.producer is not None:
            new.contents, new.measured = old.contents, old.measured
        self.graph.replace(old, new)

    def _remove_unread(self, node: Node) -> None:
        stack = [node]
        while stack:
            node = stack.pop()
            if node in self.graph and not any(value.users or value in self.graph.results for value in node.outputs):
                given = [value for value in node.inputs if value is not None]
                self.graph.remove(node)
                stack.extend(value.producer for value in given if value.producer is not None)
                for value in given:
                    # What was made of these weights stands for them; another graph of the model may read them again.
                    if (constant := value.constant) is not None and not value.users:
                        release_pages(constant)


def _sizes_in(value: Value | None) -> set[str]:
    """The dimension variables that a constant is made of."""
    if value is None or value.producer is not None or value.contents is None or not is_symbolic(value.contents):
        return set()
    return {name for element in value.contents.flat for name in variables(element)}


def _made(result: Any) -> str:
    values = [result] if isinstance(result, Value) else list(result)
    return " ".join(value.producer.operator.name if value.producer else value.name for value in values)


def apply_rules(edit: Edit, rules: Sequence[Rule]) -> bool:
    """Apply rules all over a graph until none finds anything more to do; whether any did."""
    anchored, anywhere = _by_anchor(rules)
    changed = False
    for _ in range(SWEEPS):
        if not _sweep(edit, anchored, anywhere):
            return changed
        changed = True
    names = ", ".join(dict.fromkeys(entry.rewrite for entry in edit.report.applied[-20:]))
    defect = GraphError(f"Bug: the rewrites do not come to an end; the last were {names}")
    survive(defect, f"rewriting graph {edit.graph.name!r}", "it stays as it was then")
    return True


def _by_anchor(rules: Sequence[Rule]) -> tuple[dict[type[Operator], list[Rule]], list[Rule]]:
    anchored: dict[type[Operator], list[Rule]] = {}
    for rule in rules:
        for anchor in rule.anchors:
            anchored.setdefault(anchor, []).append(rule)
    return anchored, [rule for rule in rules if not rule.anchors]


def _sweep(edit: Edit, anchored: dict[type[Operator], list[Rule]], anywhere: Collection[Rule]) -> bool:
    changed = False
    edit.forget()
    for node in edit.graph:
        for rule in (*anchored.get(type(node.operator), ()), *anywhere):
            if node in edit.graph and edit.attempt(rule, node):
                changed = True
                break
    if changed:
        edit.graph.remove_dead()
        edit.graph.sort()
    return changed


# ---------------------------------------------------------------- small questions that rules ask


def producer(value: Value | None, *operators: type[Operator]) -> Node | None:
    """The node that gives `value`, if its operator is one of `operators` (none given: any)."""
    if value is None or value.producer is None:
        return None
    return value.producer if not operators or isinstance(value.producer.operator, operators) else None


def scalar(value: Value | None) -> float | None:
    """The number that a constant of one element holds."""
    if value is None or (constant := value.constant) is None or constant.size != 1 or value.dtype is DType.STRING:
        return None
    element = constant.reshape(-1)[0]
    return float(element) if constant.dtype.kind in "biufO" or constant.dtype.name == "bfloat16" else None


def array(value: Value) -> np.ndarray | None:
    """The elements of a constant, in the dtype of its type (contents of shape arithmetic are object arrays)."""
    constant = value.constant
    if constant is None or value.dtype is None or constant.dtype == value.dtype.numpy:
        return constant
    return constant.astype(value.dtype.numpy)


def ranked(node: Node) -> bool:
    """Whether the ranks of all inputs and outputs are known."""
    return all(value is None or value.type.shape is not None for value in (*node.inputs, *node.outputs))


def rank(value: Value) -> int:
    """The number of axes of a value whose rank is known."""
    return len(value.shape)
