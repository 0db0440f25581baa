"""Sequences that are read as the tensors that they are made of: rewritten models against onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from jitonnx import InferenceSession, errors
from jitonnx.engine.pipeline import Engine
from tests.session.bodies import bytes_of, check, constant, graph, numbers
from tests.session.models import BOOL, FLOAT, INT64, node, tensor


def sequence(name: str, kind: int = FLOAT) -> Any:
    return helper.make_tensor_sequence_value_info(name, kind, None)


def operators(session: InferenceSession) -> list[str]:
    """What is left, in bodies as well."""
    engine = session.engine
    assert isinstance(engine, Engine)
    found, graphs = [], [engine.graph]
    while graphs:
        for one in graphs.pop():
            found.append(one.operator.name)
            graphs += one.bodies
    return found


def assert_gone(session: InferenceSession) -> None:
    assert not [name for name in operators(session) if "Sequence" in name or "Optional" in name]


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("place", [0, 2, -1])
def test_elements(axis: int, place: int, keepdims: int) -> None:
    nodes = [
        constant("k", place, INT64),
        node("SplitToSequence", ["x"], ["s"], axis=axis, keepdims=keepdims),
        node("SequenceAt", ["s", "k"], ["a"]),
        node("SequenceAt", ["s", "i"], ["b"]),
        node("Add", ["a", "b"], ["y"]),
        node("SequenceLength", ["s"], ["n"]),
    ]
    inputs = [tensor("x", ("a", "b", "c")), tensor("i", [], INT64)]
    feeds = [{"x": numbers(*shape), "i": np.array(i)} for shape in ((3, 4, 5), (5, 3, 4)) for i in (0, -1, 1)]
    session = check(bytes_of(nodes, inputs, [tensor("y", None), tensor("n", [], INT64)]), *feeds)
    assert_gone(session)
    with pytest.raises(errors.Error):
        session.run(None, {"x": numbers(3, 3, 3), "i": np.array(3)})


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("new_axis", [0, 1])
@pytest.mark.parametrize("split_axis", [0, 1, 2])
def test_joined_elements(split_axis: int, new_axis: int, keepdims: int) -> None:
    rank = 2 + keepdims + new_axis
    nodes = [node("SplitToSequence", ["x"], ["s"], axis=split_axis, keepdims=keepdims)]
    for axis in range(-rank, rank):
        nodes.append(node("ConcatFromSequence", ["s"], [f"y{axis}"], axis=axis, new_axis=new_axis))
    outputs = [tensor(f"y{axis}", None) for axis in range(-rank, rank)]
    session = check(
        bytes_of(nodes, [tensor("x", ("a", "b", "c"))], outputs),
        {"x": numbers(2, 3, 4)}, {"x": numbers(4, 2, 3)}, {"x": numbers(1, 1, 1)},
    )  # fmt: skip
    assert_gone(session)
    nothing = [3, 3, 3]
    nothing[split_axis] = 0
    with pytest.raises(errors.Error, match="nothing to concatenate"):
        session.run(None, {"x": np.zeros(nothing, np.float32)})


@pytest.mark.parametrize("split", [3, 1, [2, 1, 4], [7]])
def test_parts(split: int | list[int]) -> None:
    nodes = [
        constant("sizes", split, INT64),
        constant("last", -1, INT64),
        node("SplitToSequence", ["x", "sizes"], ["s"], axis=1),
        node("SequenceAt", ["s", "last"], ["a"]),
        node("SequenceLength", ["s"], ["n"]),
        node("ConcatFromSequence", ["s"], ["y"], axis=1),
        node("Relu", ["a"], ["b"]),
    ]
    outputs = [tensor("b", None), tensor("n", [], INT64), tensor("y", None)]
    session = check(bytes_of(nodes, [tensor("x", ("a", 7))], outputs), {"x": numbers(2, 7)}, {"x": numbers(5, 7)})
    assert_gone(session)


def test_parts_of_an_open_axis() -> None:
    nodes = [
        constant("two", 2, INT64),
        constant("first", 0, INT64),
        node("SplitToSequence", ["x", "two"], ["s"], axis=0),
        node("SequenceAt", ["s", "first"], ["y"]),
        node("SequenceLength", ["s"], ["n"]),
    ]
    model = bytes_of(nodes, [tensor("x", ("a", 7))], [tensor("y", None), tensor("n", [], INT64)])
    check(model, *({"x": numbers(n, 7)} for n in (2, 5, 1, 4)))


def test_a_list_that_is_changed() -> None:
    nodes = [
        constant("first", 0, INT64),
        constant("second", -2, INT64),
        node("SequenceConstruct", ["x", "y"], ["a"]),
        node("SequenceInsert", ["a", "z"], ["b"]),
        node("SequenceInsert", ["b", "z", "first"], ["c"]),
        node("SequenceErase", ["c", "second"], ["d"]),
        node("SequenceErase", ["d"], ["e"]),
        node("ConcatFromSequence", ["d"], ["joined"], axis=1),
        node("ConcatFromSequence", ["e"], ["stacked"], axis=-1, new_axis=1),
        node("SequenceLength", ["e"], ["n"]),
        node("SequenceAt", ["c", "second"], ["at"]),
        node("Neg", ["at"], ["found"]),
    ]
    outputs = [tensor(name, None) for name in ("joined", "stacked", "found")] + [tensor("n", [], INT64)]
    inputs = [tensor(name, ("a", 3)) for name in "xyz"]
    feeds = [{name: numbers(n, 3) * k for k, name in enumerate("xyz", 1)} for n in (2, 5)]
    assert_gone(check(bytes_of(nodes, inputs, outputs), *feeds))


def test_mapped_lists() -> None:
    """A body for each element, beside those of another list, a tensor, and what it captures."""
    body = graph(
        [
            node("Add", ["one", "other"], ["sum"]),
            node("Mul", ["sum", "scale"], ["product"]),
            node("Sub", ["product", "z"], ["left"]),
            node("Neg", ["left"], ["right"]),
        ],
        [tensor("one", None), tensor("other", None), tensor("scale", None)],
        [tensor("left", None), tensor("right", None)],
    )
    nodes = [
        constant("second", 1, INT64),
        node("SequenceConstruct", ["x", "y"], ["a"]),
        node("SequenceConstruct", ["y", "x"], ["b"]),
        node("SequenceMap", ["a", "b", "z"], ["l", "r"], body=body),
        node("SequenceAt", ["l", "second"], ["first"]),
        node("ConcatFromSequence", ["r"], ["all"], axis=0),
    ]
    inputs = [tensor("x", ("a", 3)), tensor("y", ("a", 3)), tensor("z", (3,))]
    model = bytes_of(nodes, inputs, [tensor("first", None), tensor("all", None), sequence("l")])
    session = check(model, *({"x": numbers(n, 3), "y": -2 * numbers(n, 3), "z": numbers(3)} for n in (2, 0, 5)))
    assert "SequenceMap" not in operators(session)


def test_optionals() -> None:
    nodes = [
        node("Optional", ["x"], ["o"]),
        node("OptionalGetElement", ["o"], ["e"]),
        node("OptionalHasElement", ["o"], ["has"]),
        node("Neg", ["e"], ["y"]),
    ]
    session = check(bytes_of(nodes, [tensor("x")], [tensor("y"), tensor("has", [], BOOL)]), {"x": numbers(2, 3)})
    assert_gone(session)


# ------------------------------------------------------------------------------------------------ loops

HEAD = [tensor("i", [], INT64), tensor("c", [], BOOL)]


def loop(body: Sequence[Any], then: Sequence[Any], outputs: Sequence[Any], before: Sequence[Any] = ()) -> bytes:
    """A loop of n iterations that carries `s`, from `first`, to `t`: `all` behind it."""
    inside = graph(
        [*body, node("Identity", ["c"], ["go"])],
        [*HEAD, sequence("s")],
        [tensor("go", [], BOOL), sequence("t")],
    )
    begin = before or [node("SequenceEmpty", [], ["first"])]
    nodes = [*begin, node("Loop", ["n", "", "first"], ["all"], body=inside), *then]
    return bytes_of(nodes, [tensor("x", ("N", 3)), tensor("n", [], INT64)], outputs)


ROW = [node("Gather", ["x", "i"], ["row"]), node("Tanh", ["row"], ["changed"])]
APPEND = [*ROW, node("SequenceInsert", ["s", "changed"], ["t"])]
FEEDS = [{"x": numbers(6, 3), "n": np.array(n)} for n in (1, 4, 6)]


def test_appended_by_way_of_copies() -> None:
    body = [
        node("Identity", ["s"], ["same"]),
        *ROW,
        node("SequenceInsert", ["same", "changed"], ["longer"]),
        node("Identity", ["longer"], ["t"]),
    ]
    then = [node("ConcatFromSequence", ["all"], ["y"], axis=0, new_axis=1)]
    assert_gone(check(loop(body, then, [tensor("y", None)]), *FEEDS))


def test_appended() -> None:
    then = [
        node("ConcatFromSequence", ["all"], ["y"], axis=0, new_axis=1),
        node("ConcatFromSequence", ["all"], ["z"], axis=0),
        node("SequenceLength", ["all"], ["count"]),
    ]
    outputs = [tensor("y", None), tensor("z", None), tensor("count", [], INT64)]
    session = check(loop(APPEND, then, outputs), *FEEDS)
    assert_gone(session)
    with pytest.raises(errors.Error, match="nothing to concatenate"):
        session.run(None, {"x": numbers(6, 3), "n": np.array(0)})


def test_appended_to_a_list_with_elements() -> None:
    before = [constant("one", [1.0, 2, 3], FLOAT), node("SequenceConstruct", ["one"], ["first"])]
    then = [node("ConcatFromSequence", ["all"], ["y"], axis=1, new_axis=1)]
    session = check(loop(APPEND, then, [tensor("y", None)], before), *FEEDS, {"x": numbers(6, 3), "n": np.array(0)})
    assert_gone(session)


def test_a_list_that_the_caller_gets() -> None:
    session = check(loop(APPEND, [], [sequence("all")]), *FEEDS, {"x": numbers(6, 3), "n": np.array(0)})
    assert "SequenceInsert" not in operators(session)


@pytest.mark.parametrize(
    "body",
    [
        [*ROW, node("SequenceInsert", ["s", "changed", "zero"], ["t"])],
        [*APPEND[:-1], node("SequenceInsert", ["s", "changed"], ["u"]), node("SequenceInsert", ["u", "row"], ["t"])],
        [
            *ROW,
            node("SequenceInsert", ["s", "changed"], ["u"]),
            node("SequenceLength", ["u"], ["length"]),
            node("Cast", ["length"], ["number"], to=TensorProto.FLOAT),
            node("Add", ["changed", "number"], ["other"]),
            node("SequenceInsert", ["s", "other"], ["t"]),
        ],
    ],
    ids=["in front", "twice", "read"],
)
def test_lists_that_stay(body: list[Any]) -> None:
    before = [constant("zero", 0, INT64), node("SequenceEmpty", [], ["first"])]
    then = [node("ConcatFromSequence", ["all"], ["y"], axis=0, new_axis=1)]
    session = check(loop(body, then, [tensor("y", None)], before), *FEEDS)
    assert "SequenceInsert" in operators(session)


def test_elements_within_a_loop() -> None:
    inside = graph(
        [
            node("SequenceAt", ["parts", "i"], ["part"]),
            node("SequenceAt", ["named", "one"], ["other"]),
            node("SequenceLength", ["parts"], ["length"]),
            node("Cast", ["length"], ["number"], to=TensorProto.FLOAT),
            node("Mul", ["part", "number"], ["scaled"]),
            node("Add", ["s", "scaled"], ["sum"]),
            node("Add", ["sum", "other"], ["t"]),
            node("Identity", ["c"], ["go"]),
        ],
        [*HEAD, tensor("s", (3,))],
        [tensor("go", [], BOOL), tensor("t", (3,))],
    )
    nodes = [
        constant("one", 1, INT64),
        constant("first", [0.5, 1, 2], FLOAT),
        node("SplitToSequence", ["x"], ["split"], axis=0, keepdims=0),
        node("Identity", ["split"], ["parts"]),
        node("SequenceConstruct", ["first", "y"], ["named"]),
        node("Loop", ["n", "", "first"], ["z"], body=inside),
    ]
    inputs = [tensor("x", ("N", 3)), tensor("y", (3,)), tensor("n", [], INT64)]
    session = check(bytes_of(nodes, inputs, [tensor("z", None)]), *({**feed, "y": numbers(3)} for feed in FEEDS))
    assert_gone(session)
