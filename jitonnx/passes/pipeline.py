"""The order of all rewrites: one straight function, `optimize`."""

from __future__ import annotations

import time
from collections.abc import Collection

from jitonnx.ir.bodies import prune_captures
from jitonnx.ir.dims import taking
from jitonnx.ir.graph import Graph
from jitonnx.ops.onnx.identity import Identity
from jitonnx.passes.report import Report
from jitonnx.passes.rewriting import Edit, Level, Rule, apply_rules
from jitonnx.passes.rules import (
    activations,
    attention,
    branches,
    classes,
    cleanup,
    control,
    fold,
    gathers,
    loops,
    moves,
    nbits,
    norms,
    padding,
    projections,
    quantization,
    ranges,
    spread,
    tables,
    weights,
)
from jitonnx.passes.verify import verify
from jitonnx.passes.views import views

MERGE_EQUAL = Rule("merge equal", "f(x), f(x) = f(x) once", Level.BASIC, (), lambda node, edit: None)
"""Common subexpressions: a pass over the whole graph, not a rule for one node; listed to be switched off by name."""

ROUNDS = 8
"""Rounds of all steps after which nothing changes any more in any graph seen; one more is only checked, not needed."""

RULES: tuple[Rule, ...] = (
    *control.RULES,
    *loops.RULES,
    *quantization.RULES,
    *nbits.RULES,
    *classes.RULES,
    *fold.RULES,
    *gathers.RULES,
    *cleanup.RULES,
    MERGE_EQUAL,
    *activations.RULES,
    *norms.RULES,
    *attention.RULES,
    *weights.RULES,
    *branches.RULES,
    *padding.RULES,
    views,
    *moves.RULES,
    *projections.RULES,
    *spread.RULES,
    *tables.RULES,
    *ranges.RULES,
)
"""Every rewrite, by the name under which it can be switched off."""


def optimize(
    graph: Graph, level: int = Level.ALL, *, disabled: Collection[str] = (), verify_fully: bool = False
) -> Report:
    """Rewrite `graph` in place, and the bodies of its nodes.

    level: as onnxruntime's GraphOptimizationLevel: 0 nothing, 1 basic (constants, shapes, no-ops, constants into
    weights, views), 2 and above also what recognises larger operators (activations, norms, attention).
    disabled: names of rewrites not to make. verify_fully: infer all types anew between the steps (for tests).

    Returns what was done and what was declined. ValueError for a name in `disabled` that no rewrite has.
    """
    unknown = set(disabled) - {rule.name for rule in RULES}
    if unknown:
        raise ValueError(f"no rewrite is named {', '.join(sorted(unknown))}; the names are in docs/passes.md")
    report = Report(int(level), len(graph))
    start = time.perf_counter()
    if level >= Level.BASIC:
        with taking(graph.assumptions.taken):
            _run(Edit(graph, report), level, frozenset(disabled), verify_fully)
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


def _run(edit: Edit, level: int, disabled: frozenset[str], full: bool) -> None:
    def step(name: str, *rules: Rule) -> bool:
        """Apply what the level and the user allow of `rules` until nothing changes; whether anything did."""
        wanted = [rule for rule in rules if rule.level <= level and rule.name not in disabled]
        changed = apply_rules(edit, wanted)
        if changed:
            verify(edit.graph, full, f"{name} of graph {edit.graph.name!r}")
        return changed

    def merge() -> bool:
        changed = MERGE_EQUAL.name not in disabled and cleanup.merge_equal(edit.graph, edit)
        if changed:
            verify(edit.graph, full, f"merging equal nodes of graph {edit.graph.name!r}")
        return changed

    def settle() -> bool:
        """Take the branches that are known; the types of what is behind follow, and with them other conditions.

        Loops here, too, as their bodies are made anew for other types, which only those not yet rewritten allow.
        """
        changed = False
        while step("control flow", *control.RULES, *loops.RULES):
            edit.graph.refresh()
            changed = True
        return changed

    edit.graph.remove_dead()
    settle()
    # Before constants: weights are folded to floats there, and their integers are gone.
    step("integers", *quantization.RULES, *nbits.RULES)
    step("classes", *classes.RULES)
    for _ in range(ROUNDS):
        # Constants before everything: what a rule asks (sizes, axes, factors) is known only then. Gathers and cleanup
        # with them, because each makes constants and no-ops for the others.
        changed = step("constants", *fold.RULES, *gathers.RULES, *cleanup.RULES)
        changed |= settle()
        # Equal nodes before recognition: a pattern that occurs twice in a norm must be one value.
        changed |= merge()
        # Recognition before arithmetic on weights: the factors of a Gelu or of an attention must not be absorbed.
        changed |= step("recognition", *activations.RULES, *norms.RULES, *attention.RULES)
        # Arithmetic before views: Gemm becomes MatMul, which reshapes can pass.
        changed |= step("weights", *weights.RULES, *branches.RULES, *padding.RULES)
        # Views last, for they move away what the patterns above have between their parts.
        changed |= step("views", views, *moves.RULES)
        if not changed:
            break
    # At the very end: a Split or a sum comes between a product and what follows, which would hide patterns and keep
    # factors from the weights.
    if step("projections", *projections.RULES, *spread.RULES):
        step("views", views, *fold.RULES, *cleanup.RULES)
        merge()
    # Behind the projections: one table for all.
    if step("tables", *tables.RULES):
        step("views", views, *cleanup.RULES)
    # At last: until then all that is known of a Range is told by its inputs.
    step("ranges", *ranges.RULES)
