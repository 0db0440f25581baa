"""An explanation as text, for a terminal."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence

from jitonnx.api.explanation import ExplainedOperand, Explanation, Kernel, NodeOutcome
from jitonnx.api.units import count, nbytes, seconds, shortened, table
from jitonnx.codegen.numba.sources import helpers, imports

_ORIGIN_WIDTH = 44
_REASON_WIDTH = 70
_DETAILS_WIDTH = 120


def as_text(explanation: Explanation, *, details: bool = False) -> str:
    """The summary, the kernels in order, the nodes, the rewrites.

    details: also each kernel's operands, formula and parameters, and every rewrite made and declined.
    """
    parts = [summary(explanation), "Kernels, in the order in which they run\n" + kernel_table(explanation)]
    if explanation.on_numpy:
        rows = [[name, operator, reason] for name, operator, reason in explanation.on_numpy]
        parts.append("Nodes evaluated on NumPy\n" + table(("node", "operator", "why"), rows))
    if details:
        parts.append("Kernels in detail\n" + "\n\n".join(map(kernel_details, explanation.kernels)))
    parts.append("Nodes of the model\n" + node_table(explanation))
    parts.append(_rewrites(explanation, details=details))
    return "\n\n".join(parts) + "\n"


def summary(explanation: Explanation) -> str:
    """A few lines: what the model is, what it became, what it holds."""
    memory = explanation.memory
    inputs = ", ".join(f"{name} {list(shape)}" for name, shape in explanation.shapes.items())
    lines = [
        f"{explanation.title}: {len(explanation.nodes)} nodes became {len(explanation.kernels)} kernel calls "
        f"({explanation.distinct} compiled kernels)",
        f"  inputs       {inputs or 'none'}",
        f"  outputs      {', '.join(explanation.outputs)}",
        f"  made for     {explanation.cpu}, {explanation.threads} thread{'s' * (explanation.threads > 1)}",
        f"  cores        {explanation.core}",
        f"  work         {count(explanation.flops, 'FLOP')}, {nbytes(explanation.bytes)} to read and write",
        f"  memory       arena {nbytes(memory.arena)}, weights and constants {nbytes(memory.constants)} "
        f"({memory.constant_count}), scratch {nbytes(memory.scratch)}, inputs {nbytes(memory.inputs)}, "
        f"outputs {nbytes(memory.outputs)}",
        f"  rewrites     {_counts(explanation.rewrites) or 'none'}",
    ]
    return "\n".join([*lines, *(f"  note         {note}" for note in explanation.notes)])


def kernel_table(explanation: Explanation) -> str:
    """One line for each kernel."""
    header = ("#", "kernel", "stands for", "result", "tasks", "threads", "FLOP", "bytes", "estimate", "why")
    rows = [
        (
            str(kernel.number),
            kernel.label,
            shortened(", ".join(kernel.origin), _ORIGIN_WIDTH),
            kernel.result,
            str(kernel.tasks),
            str(kernel.threads),
            count(kernel.flops),
            nbytes(kernel.bytes),
            seconds(kernel.microseconds * 1e-6),
            shortened(kernel.reason, _REASON_WIDTH),
        )
        for kernel in explanation.kernels
    ]
    return table(header, rows, right=(0, 4, 5, 6, 7, 8))


def numba_sources(explanation: Explanation) -> str:
    """The regions as a module of Python: a Numba function for each, and the scalar functions that they call.

    It runs under plain Python as it stands; where a region has none, a comment says why.
    """
    parts = []
    for kernel in explanation.kernels:
        if kernel.numba or kernel.not_by_numba:
            origin = shortened(", ".join(kernel.origin), _ORIGIN_WIDTH)
            missing = f"\n# none: {kernel.not_by_numba}\n" if kernel.not_by_numba else ""
            parts.append(f"# kernel {kernel.number}, {kernel.label}: {origin}{missing or chr(10) + kernel.numba}")
    if not parts:
        return "# The model has no region: its kernels are the library's alone.\n"
    head = f'"""The regions of {explanation.title}, for the shapes {dict(explanation.shapes)}."""'
    return "\n\n".join([head + "\n\n" + imports(), *helpers("\n".join(parts)), *parts])


def kernel_details(kernel: Kernel) -> str:
    """Everything about one kernel."""
    parameters = ", ".join(f"{name}={value}" for name, value in kernel.parameters)
    lines = [
        f"#{kernel.number} {kernel.label}  [{kernel.symbol}]",
        f"  stands for  {', '.join(kernel.origin) or 'no node'}",
        *(f"  reads       {_operand(tensor)}" for tensor in kernel.reads),
        *(f"  writes      {_operand(tensor)}" for tensor in kernel.writes),
        *_wrapped("  sizes       ", [f"{name}={_grouped(value)}" for name, value in kernel.sizes]),
        f"  code for    {kernel.family}: {parameters}",
        *(f"  computes    {line}" for line in kernel.formula),
        *(f"  note        {note}" for note in kernel.notes),
    ]
    return "\n".join([*lines, f"  why         {kernel.reason}"] if kernel.reason else lines)


def _operand(tensor: ExplainedOperand) -> str:
    return f"{tensor.argument} = {tensor.space} {tensor.name} {tensor.type} order {tensor.order}"


def _grouped(value: str) -> str:
    """Several numbers in brackets, so that it can be seen where they end."""
    return f"({value})" if "," in value else value


def _wrapped(head: str, items: Sequence[str]) -> list[str]:
    """Items, with commas between, on as many lines as they take below each other behind a head."""
    text = textwrap.fill(", ".join(items), _DETAILS_WIDTH, initial_indent=head, subsequent_indent=" " * len(head))
    return text.splitlines() if items else []


def node_table(explanation: Explanation) -> str:
    """What became of each node of the model."""
    rows = [
        (
            fate.node.name,
            fate.node.operator,
            ", ".join(str(kind) for _, kind in fate.node.outputs),
            became(fate),
        )
        for fate in explanation.nodes
    ]
    return table(("node", "operator", "results", "became"), rows)


def became(fate: NodeOutcome) -> str:
    """A node's fate in a few words."""
    if fate.kind != "kernel":
        return fate.text
    numbers = ", ".join(f"#{number}" for number in fate.kernels)
    return f"kernel {numbers}" + (f" ({fate.text})" if fate.text else "")


def _rewrites(explanation: Explanation, *, details: bool) -> str:
    lines = [f"Rewrites made: {_counts(explanation.rewrites) or 'none'}"]
    if details:
        lines += [f"  {entry.rewrite}: {entry.before} → {entry.after}" for entry in explanation.applied]
    reasons = Counter(f"{entry.rewrite}: {entry.reason.value}" for entry in explanation.declined)
    lines.append(f"Rewrites declined: {len(explanation.declined) or 'none'}")
    if details:
        lines += [f"  {entry} [{', '.join(entry.origin)}]" for entry in explanation.declined]
    else:
        lines += [f"  {number:4} times {text}" for text, number in reasons.most_common()]
    return "\n".join(lines)


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in counts.most_common())
