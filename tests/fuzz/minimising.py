"""A failing graph made small: one output, as few nodes as can be, and what they read fed from outside."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from tests.fuzz.growing import Growing, Model, Value
from tests.fuzz.judging import Finding, judge


def minimise(growing: Growing, level: int) -> tuple[Model, Finding] | None:
    """The smallest model found that has a finding of the same kind as the whole graph; None if there is none."""
    made = growing.made()
    whole = growing.finish()
    found = judge(whole, level)
    if found is None:
        return None

    def fails(outputs: Sequence[Value], cut: Sequence[Value] = ()) -> tuple[Model, Finding] | None:
        model = growing.model(outputs, cut)
        finding = judge(model, level)
        return (model, finding) if finding is not None and finding.kind == found.kind else None

    outputs = [value for value in made if value.name in whole.outputs]
    best = (whole, found)
    for value in made:  # the earliest that fails alone
        if (smaller := fails([value])) is not None:
            outputs, best = [value], smaller
            break
    else:
        for value in list(outputs):
            rest = [other for other in outputs if other is not value]
            if rest and (smaller := fails(rest)) is not None:
                outputs, best = rest, smaller
    cut: list[Value] = []
    for value in reversed(made):
        live = {name for node in best[0].proto.graph.node for name in node.output}
        if value not in outputs and value.name in live and (smaller := fails(outputs, [*cut, value])) is not None:
            cut.append(value)
            best = smaller
    return best


def text(model: Model) -> str:
    """A model and its feeds as text."""
    lines = [onnx.printer.to_text(model.proto).strip()]
    for i, feeds in enumerate(model.feeds):
        short = {name: a.tolist() if a.size <= 12 else f"{a.dtype}{list(a.shape)}" for name, a in feeds.items()}
        lines.append(f"set {i}: {short}")
        if model.expected is not None:
            lines += [
                f"  expected {n}: {np.asarray(a).reshape(-1)[:8]} {a.shape}" for n, a in model.expected[i].items()
            ]
    return "\n".join(lines)
