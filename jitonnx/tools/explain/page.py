"""An explanation as one page of HTML that needs nothing else: the plan drawn, and everything about it to look up."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from importlib import resources
from itertools import pairwise
from typing import Any

from jitonnx.api.explanation import ExplainedOperand, Explanation, Kernel
from jitonnx.api.explanation_text import became
from jitonnx.api.units import count, nbytes, seconds, shortened
from jitonnx.tools.explain.layout import BOX_HEIGHT, BOX_WIDTH, PILL_HEIGHT, Box, Drawing, Edge, draw

_LABEL, _SUBTITLE, _PILL = 27, 34, 24
"""Characters that fit into a box, in wide fonts too."""

_FRAME = (1040, 680)
"""Pixels of the plan that are seen before the script knows how large its frame is, and where no script runs."""


def as_html(explanation: Explanation) -> str:
    """The page. It loads nothing, so it can be kept and sent around."""
    template = resources.files("jitonnx.tools.explain").joinpath("page.html").read_text("utf-8")
    drawing = draw(explanation)
    values = {
        "title": html.escape(explanation.title),
        "facts": _facts(explanation),
        "graph": _svg(explanation, drawing),
        "kernels": _kernel_rows(explanation),
        "nodes": _node_rows(explanation),
        "numpy": _on_numpy(explanation),
        "rewrites": _rewrites(explanation),
        "data": json.dumps(_data(explanation)).replace("</", "<\\/"),
    }
    return re.sub(r"{{(\w+)}}", lambda field: values[field[1]], template)


# ---------------------------------------------------------------------------------------------- the head


def _facts(explanation: Explanation) -> str:
    memory = explanation.memory
    inputs = ", ".join(f"{name} {list(shape)}" for name, shape in explanation.shapes.items())
    facts = [
        (
            "Nodes → kernels",
            f"{len(explanation.nodes)} → {len(explanation.kernels)}",
            f"{explanation.distinct} distinct",
        ),
        ("Work", count(explanation.flops, "FLOP"), f"{nbytes(explanation.bytes)} moved at least"),
        ("Arena", nbytes(memory.arena), f"scratch {nbytes(memory.scratch)}"),
        ("Weights", nbytes(memory.constants), f"{memory.constant_count} constants"),
        (
            "Made for",
            explanation.cpu,
            f"{explanation.threads} thread{'s' * (explanation.threads > 1)}; {explanation.core}",
        ),
        ("Inputs", shortened(inputs, 60) or "none", shortened(", ".join(explanation.outputs), 70)),
    ]
    return "".join(
        f'<div class="fact"><span>{html.escape(name)}</span><b>{html.escape(value)}</b>'
        f"<small>{html.escape(more)}</small></div>"
        for name, value, more in facts
    )


# ---------------------------------------------------------------------------------------------- the drawing


def _svg(explanation: Explanation, drawing: Drawing) -> str:
    heaviest = max((kernel.microseconds for kernel in explanation.kernels), default=0.0) or 1.0
    shapes = [_edge(edge) for edge in drawing.edges]
    for box in drawing.boxes:
        if box.kind == "kernel":
            shapes.append(_kernel_box(box, explanation.kernels[box.number], heaviest))
        else:
            shapes.append(_pill(box))
    left = drawing.top - _FRAME[0] / 2
    return (
        f'<svg id="graph" viewBox="{left:.0f} 0 {_FRAME[0]} {_FRAME[1]}" preserveAspectRatio="xMidYMin" '
        f'data-width="{drawing.width:.0f}" data-height="{drawing.height:.0f}" data-top="{drawing.top:.0f}" '
        'role="img" aria-label="The plan">'
        f'<g id="view">{"".join(shapes)}</g></svg>'
    )


def _edge(edge: Edge) -> str:
    """A smooth line from the bottom of one box to the top of another, straight through the rows of its bends."""
    points = [(edge.source.x, edge.source.y + edge.source.height)]
    for bend in edge.bends:
        points += [(bend.x, bend.y), (bend.x, bend.y + bend.height)]
    points.append((edge.target.x, edge.target.y))
    path = [f"M{points[0][0]:.1f},{points[0][1]:.1f}"]
    for (x0, y0), (x1, y1) in pairwise(points):
        middle = (y0 + y1) / 2
        path.append(f"C{x0:.1f},{middle:.1f} {x1:.1f},{middle:.1f} {x1:.1f},{y1:.1f}")
    source, target = _identity(edge.source), _identity(edge.target)
    return (
        f'<path class="edge" data-from="{source}" data-to="{target}" d="{" ".join(path)}">'
        f"<title>{html.escape(edge.text)}</title></path>"
    )


def _identity(box: Box) -> str:
    return f"k{box.number}" if box.kind == "kernel" else html.escape(f"{box.kind}:{box.text}")


def _kernel_box(box: Box, kernel: Kernel, heaviest: float) -> str:
    left, share = box.x - BOX_WIDTH / 2, kernel.microseconds / heaviest
    operators = " · ".join(dict.fromkeys(filter(None, kernel.operators))) or ", ".join(kernel.origin) or "copy"
    return (
        f'<g class="kernel {html.escape(kernel.family)}" data-id="k{kernel.number}" data-kernel="{kernel.number}" '
        f'style="--share:{share:.4f}" transform="translate({left:.1f},{box.y:.1f})" tabindex="0">'
        f'<rect class="body" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="9"/>'
        f'<rect class="strip" width="5" height="{BOX_HEIGHT - 16}" x="7" y="8" rx="2.5"/>'
        f'<text class="label" x="20" y="21">{html.escape(shortened(kernel.label, _LABEL))}</text>'
        f'<text class="sub" x="20" y="37">{html.escape(shortened(operators, _SUBTITLE))}</text>'
        f'<rect class="bar-back" x="20" y="{BOX_HEIGHT - 12}" width="{BOX_WIDTH - 34}" height="3" rx="1.5"/>'
        f'<rect class="bar" x="20" y="{BOX_HEIGHT - 12}" width="{max(1.0, (BOX_WIDTH - 34) * share):.1f}" '
        f'height="3" rx="1.5"/><title>{html.escape(", ".join(kernel.origin))}</title></g>'
    )


def _pill(box: Box) -> str:
    left, text = box.x - BOX_WIDTH / 2, f"{box.kind} {shortened(box.text, _PILL)}"
    return (
        f'<g class="pill" data-id="{_identity(box)}" transform="translate({left:.1f},{box.y:.1f})">'
        f'<rect width="{BOX_WIDTH}" height="{PILL_HEIGHT}" rx="{PILL_HEIGHT / 2}"/>'
        f'<text x="{BOX_WIDTH / 2}" y="{PILL_HEIGHT / 2 + 4}">{html.escape(text)}</text>'
        "</g>"
    )


# ---------------------------------------------------------------------------------------------- tables


def _row(cells: Sequence[str | tuple[float, str]], attributes: str = "") -> str:
    """A table row; a pair is a number with its text, sorted by the number."""
    made = [
        f'<td class="number" data-value="{cell[0]}">{html.escape(cell[1])}</td>'
        if isinstance(cell, tuple)
        else f"<td>{html.escape(cell)}</td>"
        for cell in cells
    ]
    return f"<tr {attributes}>{''.join(made)}</tr>"


def _kernel_rows(explanation: Explanation) -> str:
    return "".join(
        _row(
            (
                (kernel.number, str(kernel.number)),
                kernel.label,
                ", ".join(kernel.origin),
                kernel.result,
                (kernel.tasks, str(kernel.tasks)),
                (kernel.threads, str(kernel.threads)),
                (kernel.flops, count(kernel.flops)),
                (kernel.bytes, nbytes(kernel.bytes)),
                (kernel.microseconds, seconds(kernel.microseconds * 1e-6)),
                kernel.reason,
            ),
            f'data-kernel="{kernel.number}"',
        )
        for kernel in explanation.kernels
    )


def _node_rows(explanation: Explanation) -> str:
    return "".join(
        _row(
            (fate.node.name, fate.node.operator, ", ".join(str(kind) for _, kind in fate.node.outputs), became(fate)),
            f'data-kernel="{fate.kernels[0]}"' if fate.kernels else "",
        )
        for fate in explanation.nodes
    )


def _on_numpy(explanation: Explanation) -> str:
    if not explanation.on_numpy:
        return ""
    rows = "".join(_row(entry) for entry in explanation.on_numpy)
    head = "<thead><tr><th>Node</th><th>Operator</th><th>Why</th></tr></thead>"
    return f"<h2>Evaluated on NumPy</h2><table>{head}<tbody>{rows}</tbody></table>"


def _rewrites(explanation: Explanation) -> str:
    made = "".join(
        f"<li><b>{html.escape(entry.rewrite)}</b> <code>{html.escape(entry.before)}</code> → "
        f"<code>{html.escape(entry.after)}</code></li>"
        for entry in explanation.applied
    )
    declined = "".join(
        f"<li><b>{html.escape(entry.rewrite)}</b> {html.escape(entry.reason.value)}"
        f"{html.escape(f' ({entry.detail})') if entry.detail else ''} <small>{html.escape(', '.join(entry.origin))}"
        "</small></li>"
        for entry in explanation.declined
    )
    counts = ", ".join(f"{name} {number}" for name, number in explanation.rewrites.most_common())
    return (
        f"<details><summary>{len(explanation.applied)} made: {html.escape(counts) or 'none'}</summary>"
        f"<ul>{made}</ul></details>"
        f"<details><summary>{len(explanation.declined)} declined</summary><ul>{declined}</ul></details>"
    )


# ---------------------------------------------------------------------------------------------- what a click shows


def _data(explanation: Explanation) -> list[dict[str, Any]]:
    return [
        {
            "number": kernel.number,
            "label": kernel.label,
            "family": kernel.family,
            "nodes": [
                f"{operator} {name}".strip() for operator, name in zip(kernel.operators, kernel.origin, strict=True)
            ],
            "reads": [_operand_text(operand) for operand in kernel.reads],
            "writes": [_operand_text(operand) for operand in kernel.writes],
            "facts": {
                "tasks": kernel.tasks,
                "threads": kernel.threads,
                "work": count(kernel.flops, "FLOP"),
                "moved": nbytes(kernel.bytes),
                "scratch": nbytes(kernel.scratch),
                "estimate": seconds(kernel.microseconds * 1e-6),
            },
            "sizes": dict(kernel.sizes),
            "parameters": dict(kernel.parameters),
            "formula": list(kernel.formula),
            "numba": kernel.numba,
            "notes": list(kernel.notes),
            "reason": kernel.reason,
            "symbol": kernel.symbol,
        }
        for kernel in explanation.kernels
    ]


def _operand_text(operand: ExplainedOperand) -> str:
    order = "" if operand.order == tuple(sorted(operand.order)) else f", axes in memory {operand.order}"
    return f"{operand.argument} = {operand.space} {operand.name}: {operand.type}{order}, {nbytes(operand.bytes)}"
