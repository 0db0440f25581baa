"""The order of all rewrites: one straight function, `optimize`."""

from __future__ import annotations

import importlib
import time
from collections.abc import Collection, Iterable, Sequence

from jitonnx.ir.bodies import prune_captures
from jitonnx.ir.dims import taking
from jitonnx.ir.graph import Graph
from jitonnx.ops.onnx.identity import Identity
from jitonnx.passes.common_subexpressions import merge_equal
from jitonnx.passes.report import Report
from jitonnx.passes.rewriting import Edit, Level, Rule, apply_rules
from jitonnx.passes.rules import classes, fold
from jitonnx.passes.verify import verify
from jitonnx.passes.views import views
from jitonnx.support.records import NamedTuple

MERGE_EQUAL = Rule("merge equal", "f(x), f(x) = f(x) once", Level.BASIC, (), lambda node, edit: None)
"""Common subexpressions: a pass over the whole graph, not a rule for one node; listed to be switched off by name."""

ROUNDS = 8
"""Rounds of all steps after which nothing changes any more in any graph seen; one more is only checked, not needed."""


class Family(NamedTuple):
    """The rules of a module of `rules`, which is imported for graphs that have one of these operators: without them
    its rules find nothing."""

    module: str
    operators: frozenset[str]

    @property
    def rules(self) -> tuple[Rule, ...]:
        return importlib.import_module(f"jitonnx.passes.rules.{self.module}").RULES  # type: ignore[no-any-return]


def _family(module: str, operators: str) -> Family:
    return Family(module, frozenset(operators.split()))


_CONTROL = _family("control", "If FlexAttention")
_LOOPS = _family("loops", "Loop Scan")
_BAGS = _family("bags", "Loop")
_SEQUENCES = _family("sequences", "SequenceEmpty SequenceConstruct SplitToSequence Optional")
_INTEGERS = (
    _family("integer_weights", "QuantizeLinear DequantizeLinear"),
    _family("integer_windows", "QuantizeLinear DequantizeLinear"),
    _family("integer_products", "DequantizeLinear QLinearConv QLinearMatMul"),
    _family("integer_moves", "QuantizeLinear DequantizeLinear"),
    _family("byte_tables", "QuantizeLinear DequantizeLinear"),
    _family("requantization", "QuantizeLinear DequantizeLinear"),
)
_NBITS = _family("nbits", "DequantizeLinear")
_GATHERS = _family("gathers", "Gather GatherElements GatherND ScatterND")
_CLEANUPS = (
    _family("cleanup", "Abs Cast CastLike Ceil Concat Floor Identity Max Mean Min Neg Not Relu Round Sign Sum"),
    _family(
        "neutral",
        "AveragePool Dropout MaxPool Pad ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum Resize Tile",
    ),
)
_ACTIVATIONS = _family("activations", "Mul Div")
_NORMS = _family("norms", "Mul Div Reshape")
_ATTENTION = _family("attention", "MatMul Attention")
_WEIGHTS = _family("weights", "BatchNormalization Gemm Mul Add Sub Div")
_BRANCHES = _family("branches", "Add Sub")
_PADDING = _family("padding", "Conv AveragePool MaxPool")
_MOVES = _family("moves", "Transpose Reshape Expand")
_PROJECTIONS = _family("projections", "MatMul")
_SLICES = _family("slices", "Gemm MatMul")
_SPREAD = _family("pixel_invariants", "Conv")
_TABLES = _family("tables", "MatMul LSTM GRU RNN")
_RANGES = _family("ranges", "Range")

FAMILIES: tuple[Family | Sequence[Rule], ...] = (
    *(
        _CONTROL,
        _BAGS,
        _SEQUENCES,
        _LOOPS,
        *_INTEGERS,
        _NBITS,
        classes.RULES,
        fold.RULES,
        _GATHERS,
        *_CLEANUPS,
        [MERGE_EQUAL],
    ),
    *(_SLICES, _ACTIVATIONS, _NORMS, _ATTENTION, _WEIGHTS, _BRANCHES, _PADDING, [views], _MOVES),
    *(_PROJECTIONS, _SPREAD, _TABLES, _RANGES),
)
"""Every rewrite; those of most graphs are there, others are imported for who asks."""

_FOR_KERNELS = (*_INTEGERS, _NBITS, _ATTENTION, _TABLES, _RANGES, _BAGS)
_FOR_KERNELS_BY_NAME = ("dequantised constants", "peeled loop", "caches by rows", "swish")


_OF_BASIC = frozenset(
    (
        "settled if",
        "quantised constants",
        "constants",
        "dropout",
        "cast",
        "copied tensor",
        "copied sequence",
        "neutral operand",
        "pad by nothing",
        "batch normalization",
        "absorb",
        "pad into windows",
    )
)
"""What onnxruntime's level ORT_ENABLE_BASIC does, too."""


def unwritten_rewrites(level: int) -> frozenset[str]:
    """The names of the rewrites that are not made for a model that is written at a level.

    Those whose results our kernels have and ONNX does not, or not for long (Swish is of version 24), or that other
    runtimes would run more slowly. At the basic level all that onnxruntime leaves as it is there: tools that write
    models of that level look for operators in the order that exporters gave them.
    """
    kernels = frozenset([*_FOR_KERNELS_BY_NAME, *(rule.name for family in _FOR_KERNELS for rule in family.rules)])
    if level > Level.BASIC:
        return kernels
    return kernels | {rule.name for rule in all_rules() if rule.name not in _OF_BASIC}


def all_rules() -> list[Rule]:
    """Every rewrite, by the name under which it can be switched off."""
    return [rule for family in FAMILIES for rule in (family.rules if isinstance(family, Family) else family)]


def optimize(
    graph: Graph, level: int = Level.ALL, *, disabled: Collection[str] = (), verify_fully: bool = False
) -> Report:
    """Rewrite `graph` in place, and the bodies of its nodes.

    level: as onnxruntime's GraphOptimizationLevel: 0 nothing, 1 basic (constants, shapes, no-ops, constants into
    weights, views), 2 and above also what recognises larger operators (activations, norms, attention).
    disabled: names of rewrites not to make. verify_fully: infer all types anew between the steps (for tests).

    Returns what was done and what was declined. ValueError for a name in `disabled` that no rewrite has.
    """
    if disabled and (unknown := set(disabled) - {rule.name for rule in all_rules()}):
        raise ValueError(f"no rewrite is named {', '.join(sorted(unknown))}; the names are in docs/passes.md")
    report = Report(int(level), len(graph))
    start = time.perf_counter()
    if level >= Level.BASIC:
        with taking(graph.assumptions.taken):
            _run(Edit(graph, report), level, frozenset(disabled), full=verify_fully)
    if graph.bindings or any(node.bodies for node in graph):
        graph.refresh()
        for node in graph:
            for body in node.bodies:
                inner = optimize(body, level, disabled=disabled, verify_fully=verify_fully)
                report.applied.extend(inner.applied)
                if node.operator.decides:
                    _drop_names(body)
        if prune_captures(graph):
            graph.remove_dead()
    report.nodes_after = len(graph)
    report.seconds = time.perf_counter() - start
    return report


def _drop_names(branch: Graph) -> None:
    """Take out the Identities that give outputs names of their own, of which a branch needs none."""
    for node in list(branch):
        if isinstance(node.operator, Identity) and node.output in branch.outputs and node.inputs[0] is not None:
            branch.replace(node.output, node.inputs[0])
            branch.remove(node)


def _run(edit: Edit, level: int, disabled: frozenset[str], *, full: bool) -> None:
    def allowed(families: Iterable[Family | Sequence[Rule]]) -> list[Rule]:
        """The level and the user allow these of the rules that could find something in the graph as it is."""
        present = {node.operator.name for node in edit.graph}
        found = list[Rule]()
        for family in families:
            if not isinstance(family, Family):
                found += family
            elif not present.isdisjoint(family.operators):
                found += family.rules
        return [rule for rule in found if rule.level <= level and rule.name not in disabled]

    def step(name: str, *families: Family | Sequence[Rule]) -> bool:
        """Apply rules until nothing changes; whether anything did."""
        changed, rules = False, allowed(families)
        while apply_rules(edit, rules):
            changed, before, rules = True, rules, allowed(families)
            if all(rule in before for rule in rules):
                break
        if changed:
            verify(edit.graph, full=full, after=f"{name} of graph {edit.graph.name!r}")
        return changed

    def merge() -> bool:
        changed = MERGE_EQUAL.name not in disabled and merge_equal(edit.graph, edit)
        if changed:
            verify(edit.graph, full=full, after=f"merging equal nodes of graph {edit.graph.name!r}")
        return changed

    def settle() -> bool:
        """Take the branches that are known; the types of what is behind follow, and with them other conditions.

        Loops here, too, as their bodies are made anew for other types, which only those not yet rewritten allow.
        """
        changed = False
        while step("control flow", _CONTROL, _BAGS, _SEQUENCES, _LOOPS):
            edit.graph.refresh()
            changed = True
        return changed

    edit.graph.remove_dead()
    settle()
    # Before constants: weights are folded to floats there, and their integers are gone.
    # Cleanups with them: PyTorch puts a Cast to its own type between QuantizeLinear and DequantizeLinear.
    quantised = any(node.operator.name in _INTEGERS[0].operators for node in edit.graph)
    step("integers", *_INTEGERS, _NBITS, *(_CLEANUPS[:1] if quantised else ()))
    step("classes", classes.RULES)
    # Before gathers become slices and transposes; and again where constants are known.
    step("slices", _SLICES)
    for _ in range(ROUNDS):
        # Constants before everything: what a rule asks (sizes, axes, factors) is known only then. Gathers and cleanup
        # with them, because each makes constants and no-ops for the others.
        changed = step("constants", fold.RULES, _GATHERS, *_CLEANUPS)
        changed |= settle()
        # Equal nodes before recognition: a pattern that occurs twice in a norm must be one value.
        changed |= merge()
        # Slices before arithmetic on weights, which makes a matrix of its own for each product, and before they move.
        changed |= step("slices", _SLICES)
        # Recognition before arithmetic on weights: the factors of a Gelu or of an attention must not be absorbed.
        changed |= step("recognition", _ACTIVATIONS, _NORMS, _ATTENTION)
        # Arithmetic before views: Gemm becomes MatMul, which reshapes can pass.
        changed |= step("weights", _WEIGHTS, _BRANCHES, _PADDING)
        # Views last, for they move away what the patterns above have between their parts.
        changed |= step("views", [views], _MOVES)
        if not changed:
            break
    # At the very end: a Split or a sum comes between a product and what follows, which would hide patterns and keep
    # factors from the weights.
    if step("projections", _PROJECTIONS, _SPREAD):
        step("views", [views], fold.RULES, *_CLEANUPS)
        merge()
    # Behind the projections: one table for all.
    if step("tables", _TABLES):
        step("views", [views], *_CLEANUPS)
    # At last: until then all that is known of a Range is told by its inputs.
    step("ranges", _RANGES)
