"""Each compiled operator on random cases: compiled code, evaluation on NumPy and onnx's reference give the same.

Cases are drawn by Hypothesis: shapes that broadcast, axes, element types, attributes, edge values, arrays that lie in
memory as views of others do, sizes that the model fixes or leaves open. Where onnx's reference fails onnxruntime
judges, or a formula in the strategy, which says so. By default cases are the same few in every run;
`pytest -m slow tests/ops/differential` draws many others, and prints what reproduces a failure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from jitonnx.engine.interpreter import evaluate
from jitonnx.engine.pipeline import Engine, Settings
from jitonnx.model import load
from tests.ops.coverage import PAGE
from tests.ops.differential import elementwise, movement, rows, varied, windows
from tests.ops.differential.drawing import OTHERS, SAME, UNJUDGED, Draw
from tests.ops.harness import Case, _kernel_cache, assert_same, build, oracle

STRATEGIES: Mapping[tuple[str, str], Callable[[Draw], Case]] = {
    **elementwise.STRATEGIES,
    **movement.STRATEGIES,
    **rows.STRATEGIES,
    **windows.STRATEGIES,
    **varied.STRATEGIES,
}
ELSEWHERE = {
    **{("", name): "tests/session/test_control_flow.py" for name in ("If", "Loop", "Scan", "SequenceMap")},
    **{
        ("", name): "tests/ops/onnx/test_random.py"
        for name in (
            "Bernoulli",
            "Multinomial",
            *(f"Random{x}{y}" for x in ("Normal", "Uniform") for y in ("", "Like")),
        )
    },
    ("", "NonMaxSuppression"): "tests/kernels/test_nms.py",
    ("ai.onnx.preview", "FlexAttention"): "tests/session/test_flex_attention.py",
}
"""Operators that run graphs, or have cases in another form: where these are."""


def compare(d: Draw, case: Case) -> None:
    """AssertionError unless compiled code, evaluation and the oracle agree."""
    sizes = d.pick(("", "alike", "open"))
    arrays = tuple(x if x is None or at in case.constants else d.laid_out(x) for at, x in enumerate(case.inputs))
    note(f"{case}\nsizes: {sizes or 'fixed'}, strides: {[None if x is None else x.strides for x in arrays]}")
    feeds = {f"x{at}": x for at, x in enumerate(arrays) if x is not None and at not in case.constants}
    graph = load(build(case, sizes)).graph
    with np.errstate(all="ignore"):
        evaluated = evaluate(graph, feeds)
        expected = evaluated if case.note == UNJUDGED else oracle(case, feeds)
    for at, (result, wanted) in enumerate(zip(evaluated, expected, strict=True)):
        assert_same(result, wanted, case, f"evaluated output {at}")
    engine = Engine(graph, Settings(threads=d.integer(1, 2)), _kernel_cache())
    compiled = engine.run([feeds[value.name] for value in graph.inputs])
    for at, (result, wanted) in enumerate(zip(compiled, evaluated, strict=True)):
        assert_same(result, wanted, case, f"compiled output {at}")


def check(operator: tuple[str, str], profile: settings) -> None:
    """Draw cases of an operator and compare them."""

    @profile
    @given(st.data())
    def drawn(data: Any) -> None:
        d = Draw(data.draw)
        compare(d, STRATEGIES[operator](d))

    drawn()


every_operator = pytest.mark.parametrize("operator", sorted(STRATEGIES), ids=lambda pair: ":".join(filter(None, pair)))


@every_operator
def test_operator(operator: tuple[str, str]) -> None:
    check(operator, SAME)


@pytest.mark.slow
@every_operator
def test_operator_on_other_cases(operator: tuple[str, str]) -> None:
    check(operator, OTHERS)


ROW = re.compile(r"\| (?!operator)(\w+) \| .* \| ([^|]*) \| [^|]* \| [^|]* \|$")
"""An operator's line in docs/coverage.md: its name, and the types that are compiled."""


def compiled_operators() -> set[tuple[str, str]]:
    """Domain and name of the operators that docs/coverage.md lists as compiled for some type."""
    found, domain = set(), ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            domain = "" if line == "## ai.onnx" else line[3:]
        elif (row := ROW.match(line)) and row[2].strip():
            found.add((domain, row[1]))
    return found


def test_every_compiled_operator_has_a_strategy() -> None:
    assert compiled_operators() - STRATEGIES.keys() == ELSEWHERE.keys()
