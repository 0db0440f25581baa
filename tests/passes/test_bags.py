"""Loops of embedding bags, as PyTorch's dynamo exports nn.EmbeddingBag, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from jitonnx import InferenceSession, errors
from tests.passes.test_sequences import operators
from tests.session.bodies import bytes_of, check, constant, graph, numbers
from tests.session.models import INT64, node, tensor


def choice(condition: str, result: str, then: list[Any], otherwise: list[Any]) -> Any:
    """An If whose branches give the values that their last nodes make."""
    branches = [graph(nodes, [], [tensor(nodes[-1].output[0], None)]) for nodes in (then, otherwise)]
    return node("If", [condition], [result], then_branch=branches[0], else_branch=branches[1])


def rows(kind: str) -> list[Any]:
    """What a bag's rows become, in the branch of those that have some."""
    part = node("Slice", ["x", "start", "end"], ["rows"])
    if kind == "sum":
        return [part, node("ReduceSum", ["rows", "axes"], ["some"])]
    is_last = [node("Sub", ["count", "one"], ["before"]), node("Equal", ["i", "before"], ["last"])]
    if kind == "max":
        of_last = [node("Slice", ["x", "start", "size"], ["to_last"])]
        return [*is_last, choice("last", "those", of_last, [part]), node("ReduceMax", ["those", "axes"], ["some"])]
    divided = [
        node("Cast", ["number"], ["divisor"], to=TensorProto.FLOAT),
        node("Div", ["total", "divisor"], ["quotient"]),
    ]
    of_last = [
        node("ReduceSum", ["rows", "axes"], ["total"]),
        node("Sub", ["size", "start"], ["number"]),
        node("CastLike", ["zero", "number"], ["none"]),
        node("Greater", ["number", "none"], ["positive"]),
        choice("positive", "of_last", divided, [node("Identity", ["total"], ["total_itself"])]),
    ]
    return [part, *is_last, choice("last", "some", of_last, [node("ReduceMean", ["rows", "axes"], ["mean"])])]


def model(kind: str, bags: Any = "b", *, ends: bool = True, bound: str = "count") -> bytes:
    """ends: the last bag ends with the last row, else the offsets say where. bound: up to which number is counted."""
    zeros = node("Constant", [], ["zeros"], value=helper.make_tensor("z", TensorProto.FLOAT, (1, 5), [0.0] * 5))
    body = graph(
        [
            node("Reshape", ["i", "minus_one"], ["place"]),
            node("CastLike", ["one", "place"], ["step"]),
            node("Add", ["place", "step"], ["next"]),
            node("Slice", ["offsets", "place", "next"], ["start"]),
            node("CastLike", ["two", "place"], ["steps"]),
            node("Add", ["place", "steps"], ["second"]),
            node("Slice", ["offsets", "next", "second"], ["end"]),
            node("Equal", ["start", "end"], ["empty"]),
            choice("empty", "row", [zeros], rows(kind)),
            node("SequenceInsert", ["list", "row"], ["longer"]),
            node("Add", ["i", "one"], ["following"]),
            node("Less", ["following", bound], ["again"]),
        ],
        [
            tensor("iteration", [], INT64),
            tensor("condition", [], TensorProto.BOOL),
            helper.make_tensor_sequence_value_info("list", TensorProto.FLOAT, None),
            tensor("i", [], INT64),
        ],
        [
            tensor("again", [], TensorProto.BOOL),
            helper.make_tensor_sequence_value_info("longer", TensorProto.FLOAT, None),
            tensor("following", [], INT64),
        ],
    )
    nodes = [
        *(constant(name, value, INT64) for name, value in {"zero": 0, "one": 1, "two": 2}.items()),
        *(constant(name, [value], INT64) for name, value in {"minus_one": -1, "axes": 0}.items()),
        node("Shape", ["x"], ["size"], start=0, end=1),
        node("Concat", ["o", "size"], ["offsets"], axis=0) if ends else node("Identity", ["o"], ["offsets"]),
        node("Size", ["o"], ["given"]),
        node("Identity", ["given"], ["count"]) if ends else node("Sub", ["given", "one"], ["count"]),
        node("Sub", ["count", "one"], ["fewer"]),
        node("SequenceEmpty", [], ["none_yet"], dtype=TensorProto.FLOAT),
        node("Less", ["zero", bound], ["begins"]),
        node("Loop", ["", "begins", "none_yet", "zero"], ["rows_made", "last_number"], body=body),
        node("ConcatFromSequence", ["rows_made"], ["y"], axis=0),
    ]
    return bytes_of(nodes, [tensor("x", ("n", 5)), tensor("o", (bags,), INT64)], [tensor("y", None)])


def feeds(*offsets: int, size: int = 12) -> dict[str, np.ndarray]:
    return {"x": numbers(size, 5), "o": np.array(offsets, np.int64)}


@pytest.mark.parametrize("kind", ["sum", "mean", "max"])
@pytest.mark.parametrize("bags", ["b", 4])
def test_bags(kind: str, bags: Any) -> None:
    given = [feeds(0, 3, 3, 7), feeds(0, 1, 2, 3, size=5), feeds(2, 2, 5, 12)]
    if bags == "b":
        given += [feeds(0), feeds(*range(12)), feeds(*range(0, 300, 3), size=300)]
    session = check(model(kind, bags), *given)
    assert "ReduceSegments" in operators(session) and "Loop" not in operators(session)
    for wrong in (feeds(0, 5, 3, 7), feeds(-1, 2, 3, 4), feeds(0, 3, 5, 13)):
        with pytest.raises(errors.Error, match="offsets of bags"):
            session.run(None, wrong)


def test_offsets_that_end_somewhere() -> None:
    """Sums go by the offsets alone; other bags may end with the last row where the offsets do."""
    given = [feeds(0, 3, 3, 7), feeds(1, 2), feeds(*range(10))]
    assert "ReduceSegments" in operators(check(model("sum", ends=False), *given))
    for kind in ("mean", "max"):
        assert "Loop" in operators(check(model(kind, ends=False), *given))


def test_loops_that_stay() -> None:
    """A loop over all bags but the last."""
    session = check(model("sum", bound="fewer"), feeds(0, 3, 7), feeds(0, 2, 2, 9))
    assert isinstance(session, InferenceSession) and "Loop" in operators(session)
