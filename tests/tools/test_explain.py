"""Explanations as data and as drawings."""

from itertools import pairwise

import pytest

from jitonnx import InferenceSession, SessionOptions
from jitonnx.api.equations import equations
from jitonnx.api.inputs import choose_shapes
from jitonnx.api.units import count, nbytes, seconds, shortened, table
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.dtypes import DType
from jitonnx.tools.explain import Explanation, as_html, as_text, explain
from jitonnx.tools.explain.layout import draw
from tests.session import models
from tests.session.models import model, node, tensor


def explained(data: bytes, **dimensions: int) -> Explanation:
    session = InferenceSession(data)
    return explain(session, choose_shapes(session.declared_inputs, dimensions=dimensions).shapes)


def branches() -> bytes:
    """Two branches from one product that meet again, a view, something unused, and an identity."""
    nodes = [
        node("MatMul", ["x", "w"], ["m"]),
        node("Softmax", ["m"], ["left"], axis=-1),
        node("ReduceMax", ["m", "last"], ["right"], keepdims=1),
        node("Add", ["left", "right"], ["sum"]),
        node("Identity", ["sum"], ["same"]),
        node("Transpose", ["same"], ["y"], perm=[1, 0]),
        node("Exp", ["m"], ["unused"]),
    ]
    constants = {"w": models.OFFSET.reshape(3, 1) * models.OFFSET, "last": [-1]}
    return model(nodes, [tensor("x", ["N", 3])], [tensor("y", [3, "N"])], constants)


def test_every_node_has_a_fate() -> None:
    explanation = explained(branches(), N=5)
    fates = {fate.node.name: fate for fate in explanation.nodes}
    assert {name: fate.kind for name, fate in fates.items()} == {
        "make_m": "kernel",
        "make_left": "kernel",
        "make_right": "kernel",
        "make_sum": "kernel",
        "make_same": fates["make_same"].kind,
        "make_y": fates["make_y"].kind,
        "make_unused": "unused",
    }
    assert {fates["make_same"].kind, fates["make_y"].kind} <= {"kernel", "rewritten", "view"}
    for fate in explanation.nodes:
        assert (fate.kind == "kernel") == bool(fate.kernels)
        for number in fate.kernels:
            assert fate.node.name in explanation.kernels[number].origin


def test_a_model_is_explained_without_its_session() -> None:
    session = InferenceSession(branches())
    compiled = session.compiled_model
    session.close()
    explanation = explain(compiled, {"x": (5, 3)})
    assert explanation.title == compiled.title and len(explanation.nodes) == len(compiled.description.nodes) == 7
    assert explanation.kernels


def test_kernels() -> None:
    explanation = explained(branches(), N=5)
    product = next(kernel for kernel in explanation.kernels if "make_m" in kernel.origin)
    assert product.family == "gemm" and product.flops == 2 * 5 * 3 * 3
    assert product.label == "gemm 5x3x3"
    assert product.result == "float[5,3]" and product.tasks == 1 and product.threads == 1
    assert [operand.argument for operand in product.reads + product.writes] == ["a", "b", "c"]
    assert {("m", "5"), ("n", "3"), ("k", "3")} <= set(product.sizes)
    assert explanation.flops == sum(kernel.flops for kernel in explanation.kernels)
    assert [kernel.number for kernel in explanation.kernels] == list(range(len(explanation.kernels)))
    assert explanation.memory.inputs == explanation.memory.outputs == 60
    assert explanation.memory.arena % 64 == 0 and explanation.memory.constants > 0
    assert explanation.kernels[-1].writes[0].name == "y" and explanation.kernels[-1].writes[0].space == "output"


def test_sizes_follow_the_shapes() -> None:
    small, large = (explained(branches(), N=n) for n in (1, 100))
    assert small.shapes == {"x": (1, 3)} and large.shapes == {"x": (100, 3)}
    assert large.flops > 50 * small.flops


def test_a_schedule() -> None:
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("Reshape", ["r", "to"], ["z"], "by_data"),
        node("Neg", ["z"], ["y"]),
    ]
    options = SessionOptions()
    options.add_session_config_entry("jitonnx.compile", "before")
    inputs = [tensor("x"), tensor("to", [2], models.INT64)]
    session = InferenceSession(model(nodes, inputs, [tensor("y", None)]), options)
    shapes = {"x": (2, 3), "to": (2,)}
    before = explain(session, shapes)
    assert before.on_numpy == (("by_data", "Reshape", "the output's shape depends on data"),)
    assert [kernel.operators for kernel in before.kernels] == [("Relu",)]
    assert "only a run can tell their sizes" in as_text(before)
    session.run(None, {"x": [[1, 2, 3], [4, 5, 6]], "to": [3, 2]})
    after = explain(session, shapes)
    assert [kernel.operators for kernel in after.kernels] == [("Relu",), ("Neg",)]
    assert {fate.node.name: fate.kind for fate in after.nodes} == {
        "make_r": "kernel",
        "by_data": "numpy",
        "make_y": "kernel",
    }
    assert "Evaluated on NumPy" in as_html(after) and "Nodes evaluated on NumPy" in as_text(after)


def test_text_tells_everything() -> None:
    explanation = explained(branches(), N=2)
    text = as_text(explanation, details=True)
    for fate in explanation.nodes:
        assert fate.node.name in text
    for kernel in explanation.kernels:
        assert kernel.symbol in text
    assert "Rewrites made" in text and "Rewrites declined" in text


def test_drawing_has_no_overlaps() -> None:
    drawing = draw(explained(branches(), N=2))
    kinds = sorted(box.kind for box in drawing.boxes if box.kind != "kernel")
    assert kinds == ["input", "output"]
    rows: dict[float, list] = {}
    for box in drawing.boxes:
        assert box.x >= box.width / 2 and box.x + box.width / 2 <= drawing.width
        assert box.y >= 0 and box.y + box.height <= drawing.height
        rows.setdefault(box.row, []).append(box)
    for row in rows.values():
        for left, right in pairwise(sorted(row, key=lambda box: box.x)):
            assert right.x - left.x >= (left.width + right.width) / 2
    for edge in drawing.edges:
        assert edge.source.row < edge.target.row
        assert len(edge.bends) == edge.target.row - edge.source.row - 1


def test_page_escapes_names() -> None:
    nodes = [node("Relu", ["x"], ["y"], "</script><b>&")]
    text = as_html(explained(model(nodes, [tensor("x", [2])], [tensor("y", [2])])))
    assert "</script><b>" not in text and text.count("</script>") == 2


def test_equations() -> None:
    x, y = e.operand(0, DType.FLOAT), e.operand(1, DType.FLOAT)
    assert equations(x / (1.0 + e.unary("exp", -x)), "z", {0: "x"}) == ["z = x / (1 + exp(-x))"]
    twice = e.unary("tanh", x + y)
    assert equations(twice * twice - y, "z", {0: "a", 1: "b"}) == ["v0 = tanh(a + b)", "z = (v0 * v0) - b"]
    deep = x
    for _ in range(60):
        deep = deep * deep + y
    assert len(equations(deep, "z", {0: "x", 1: "y"})) <= 61


@pytest.mark.parametrize(
    "made, text",
    [
        (count(0), "0"),
        (count(999), "999"),
        (count(1_234_567, "FLOP"), "1.23 MFLOP"),
        (nbytes(0), "0 B"),
        (nbytes(1536), "1.5 KiB"),
        (nbytes(3 << 30), "3 GiB"),
        (seconds(2.5), "2.5 s"),
        (seconds(0.00123), "1.23 ms"),
        (seconds(1.5e-8), "0.015 µs"),
        (shortened("abcdefgh", 5), "ab…gh"),
        (shortened("abc", 5), "abc"),
    ],
)
def test_units(made: str, text: str) -> None:
    assert made == text


def test_table() -> None:
    assert table(("a", "b"), [("x", "10"), ("yy", "9")], right=(1,)).splitlines() == [
        "a    b",
        "──  ──",
        "x   10",
        "yy   9",
    ]
