"""Levels, switching off, reports, and the verifier."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from jitonnx.ir.dims import variable
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import GraphError
from jitonnx.ir.types import TensorType
from jitonnx.ops.onnx.activation import Relu, Sigmoid
from jitonnx.ops.onnx.arithmetic import Add, Mul
from jitonnx.ops.onnx.identity import Identity
from jitonnx.ops.onnx.matmul import MatMul
from jitonnx.ops.onnx.shape import Reshape, Shape, Transpose
from jitonnx.passes import optimize, rules
from jitonnx.passes.pipeline import _INTEGERS, FAMILIES, Family, all_rules
from jitonnx.passes.rewriting import Edit, Level, apply_rules, rule
from jitonnx.passes.verify import same_dim, same_type, verify
from tests.passes.graphs import Build, Value, normal, operators, rewritten

batch, seq = variable("batch"), variable("seq")


def silu_of_nothing(b: Build) -> Value:
    x = b.op(Identity(), b.input(normal(3)))
    return b.op(Mul(), x, b.op(Sigmoid(), x))


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (0, {"Identity": 1, "Sigmoid": 1, "Mul": 1}),
        (1, {"Sigmoid": 1, "Mul": 1}),
        (2, {"Swish": 1}),
        (99, {"Swish": 1}),
    ],
)
def test_levels(level, expected) -> None:
    graph, report = rewritten(silu_of_nothing, level=level)
    assert operators(graph) == expected
    assert (report.nodes_before, report.nodes_after) == (3, len(graph))
    assert report.level == level


def test_rewrites_are_switched_off_by_name() -> None:
    graph, report = rewritten(silu_of_nothing, disabled={"swish"})
    assert operators(graph) == {"Sigmoid": 1, "Mul": 1}
    assert report.counts["swish"] == 0


@pytest.mark.parametrize("name", [rule.name for rule in all_rules()])
def test_everything_works_without_any_one_rewrite(name: str) -> None:
    def author(b: Build) -> Value:
        x = b.op(Reshape(), b.input(normal(2, 6), ("batch", 6)), b.graph.add_dims([batch, 2, 3]))
        x = b.op(Transpose(perm=(0, 2, 1)), b.op(Add(), x, np.float32(0)))
        y = b.op(MatMul(), x, normal(2, 4))
        return b.op(Mul(), b.op(Mul(), y, b.op(Sigmoid(), y)), normal(4))

    rewritten(author, disabled={name})


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(ValueError, match="no rewrite is named swosh"):
        optimize(Build().graph, disabled={"swosh"})


def test_families_are_imported_for_what_their_rules_look_at() -> None:
    """All that a rule of integers makes something of comes from a quantised operator; others look at their anchors."""
    families = [family for family in FAMILIES if isinstance(family, Family)]
    for family in families:
        anchors = {anchor.name for rule in family.rules for anchor in rule.anchors}
        if family.module == "moves":  # they look for what Transpose, Reshape and Expand give to nodes of any kind
            continue
        assert all(rule.anchors for rule in family.rules)
        assert family.operators <= anchors | {"DequantizeLinear", "SequenceEmpty", "SequenceConstruct", "Optional"}
        assert family.operators == anchors or family in _INTEGERS or family.module in ("nbits", "sequences")
    files = {path.stem for path in Path(rules.__path__[0]).glob("*.py")} - {"__init__"}
    assert files == {family.module for family in families} | {"classes", "fold"}


def test_names_are_unique_and_documented() -> None:
    names = [rule.name for rule in all_rules()]
    assert len(set(names)) == len(names)
    text = (Path(__file__).parents[2] / "docs" / "passes.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE) == names


def test_the_report_tells_what_became_of_a_node() -> None:
    def author(b: Build) -> Value:
        x = b.input(normal(3))
        return b.op(Mul(), x, b.op(Sigmoid(), x, name="gate"), name="product")

    graph, report = rewritten(author)
    (applied,) = report.of("gate")
    assert (applied.rewrite, set(applied.origin), applied.after) == ("swish", {"gate", "product"}, "Swish")
    (node,) = graph
    assert set(node.origin) == {"gate", "product"}
    assert str(report).startswith("2 nodes became 1 in ")


def test_values_keep_the_names_of_the_model() -> None:
    graph, _ = rewritten(silu_of_nothing)
    assert [value.name for value in graph.outputs] == ["Mul_0"]


def test_optimizing_twice_changes_nothing() -> None:
    graph, _ = rewritten(silu_of_nothing)
    assert optimize(graph).counts.total() == 0


def test_a_rule_that_never_ends_is_a_fault() -> None:
    @rule("spin", Relu, equation="Relu(x) = Relu(x)")
    def spin(node, edit):
        return edit.add(Relu(), node.inputs[0])

    b = Build()
    b.graph.outputs = [b.op(Relu(), b.input(normal(3)))]
    with pytest.raises(GraphError, match=r"^Bug: .* do not come to an end; the last were spin"):
        apply_rules(Edit(b.graph, optimize(b.graph, Level.NONE)), [spin])


def test_what_a_rule_adds_and_then_declines_is_removed() -> None:
    @rule("wrong type", Relu, equation="")
    def wrong(node, edit):
        return edit.add(Shape(), node.inputs[0])

    b = Build()
    b.graph.outputs = [b.op(Relu(), b.input(normal(3)))]
    assert not apply_rules(Edit(b.graph, optimize(b.graph, Level.NONE)), [wrong])
    assert operators(b.graph) == {"Relu": 1}


# ---------------------------------------------------------------- the verifier


def valid() -> Build:
    b = Build()
    b.graph.outputs = [b.op(Add(), b.op(Relu(), b.input(normal(3))), normal(3))]
    return b


def test_the_verifier_accepts_a_valid_graph() -> None:
    verify(valid().graph, full=True)


def break_order(b: Build) -> None:
    nodes = list(b.graph._nodes)
    b.graph._nodes = dict.fromkeys(nodes[::-1])


def break_users(b: Build) -> None:
    b.graph.inputs[0]._users.clear()


def break_names(b: Build) -> None:
    b.graph.outputs[0].name = "x0"


def break_type(b: Build) -> None:
    b.graph.outputs[0].type = TensorType(DType.FLOAT, (4,))


def break_outputs(b: Build) -> None:
    b.graph.outputs = [valid().graph.outputs[0]]


def break_inputs(b: Build) -> None:
    b.graph.inputs = []


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (break_order, "before it is made"),
        (break_users, "no recorded user"),
        (break_names, "two values are named 'x0'"),
        (break_type, "is taken for float.4."),
        (break_outputs, "nobody makes the graph output"),
        (break_inputs, "which nobody makes"),
    ],
)
def test_the_verifier_finds(damage, message) -> None:
    b = valid()
    damage(b)
    with pytest.raises(GraphError, match=rf"^Bug after a test: .*{message}"):
        verify(b.graph, full=True, after="a test")


def test_dimensions_are_equal_under_assumptions() -> None:
    assumed = {(batch, seq), (seq, 7)}
    assert same_dim(batch * 3, 21, assumed)
    assert not same_dim(batch * 3, 20, assumed)
    assert not same_dim(batch, seq, ())
    assert same_type(TensorType(DType.FLOAT, (batch, 1)), TensorType(DType.FLOAT, (seq, 1)), assumed)
    assert not same_type(TensorType(DType.FLOAT, (batch,)), TensorType(DType.DOUBLE, (batch,)), assumed)
