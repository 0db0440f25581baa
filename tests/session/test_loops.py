"""Loops that run natively, by difference against onnxruntime; and what they cost."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper

from bench.loop_models import lstm_decoder, product, transformer_decoder
from jitonnx import InferenceSession, RunOptions, SessionOptions, load
from jitonnx.engine.loops.step import LoopStep
from jitonnx.engine.pipeline import Engine
from jitonnx.engine.schedule import NativeStep
from jitonnx.errors import Fail, InvalidArgument
from tests.session.bodies import assert_same, bytes_of, check, constant, graph, numbers
from tests.session.models import BOOL, FLOAT, INT64, node, tensor

HEAD = [tensor("i", [], INT64), tensor("c", [], BOOL)]
GOES_ON = tensor("go", [], BOOL)


def loop_body(nodes: Sequence[Any], states: Sequence[Any], next_states: Sequence[Any], rows: Sequence[Any] = ()) -> Any:
    """The body of a Loop; its nodes give `go`, or the condition is handed on."""
    asked = any("go" in one.output for one in nodes)
    own = [] if asked else [node("Identity", ["c"], ["go"])]
    return graph([*nodes, *own], [*HEAD, *states], [GOES_ON, *next_states, *rows])


def native_loops(session: InferenceSession) -> list[LoopStep]:
    """The loops of a session that are native throughout; AssertionError if the host has any part in a run."""
    assert isinstance(session.engine, Engine) and session.engine.schedule is not None
    assert not list(session.engine.schedule.reasons())
    return [step for step in session.engine.schedule.steps if isinstance(step, LoopStep)]


def halving(limit: bool = True, condition: bool = True) -> bytes:
    """s halves until its largest element is below 1, at most n times; rows are s before and behind."""
    nodes = [
        constant("half", 0.5, FLOAT),
        constant("one", 1.0, FLOAT),
        node("Mul", ["s", "half"], ["t"]),
        node("ReduceMax", ["t"], ["most"], keepdims=0),
        node("Greater", ["most", "one"], ["go"]),
        node("Identity", ["s"], ["before"]),
        node("Identity", ["t"], ["behind"]),
    ]
    body = loop_body(nodes, [tensor("s", None)], [tensor("t", None)], [tensor("before", None), tensor("behind", None)])
    inputs = [tensor("x", ("N", 3))]
    inputs += [tensor("n", [], INT64)] if limit else []
    inputs += [tensor("begins", [], BOOL)] if condition else []
    given = ["n" if limit else "", "begins" if condition else "", "x"]
    nodes = [node("Loop", given, ["last", "a", "b"], body=body), node("Neg", ["a"], ["y"])]
    return bytes_of(nodes, inputs, [tensor(name, None) for name in ("last", "y", "b")])


@pytest.mark.parametrize("limit", [True, False])
@pytest.mark.parametrize("condition", [True, False])
def test_how_often(limit: bool, condition: bool) -> None:
    """Zero times, once, up to the limit, and until the condition is false; sizes change from run to run."""
    feeds = []
    for rows, scale, times, begins in ((1, 5, 9, True), (4, 300, 3, True), (4, 0.1, 5, True), (2, 40, 100, True)):
        feeds.append({"x": (np.abs(numbers(rows, 3)) + 1) * np.float32(scale)})
        if limit:
            feeds[-1]["n"] = np.array(times)
        if condition:
            feeds[-1]["begins"] = np.array(begins)
    session = check(halving(limit, condition), *feeds)
    assert len(native_loops(session)) == 1
    never = [{**feeds[1], "begins": np.array(False)}] if condition else []
    never += [{**feeds[1], "n": np.array(times)} for times in (0, -3)] if limit else []
    for feed in never:
        last, y, b = session.run(None, feed)
        np.testing.assert_array_equal(last, feed["x"])
        assert len(y) == len(b) == 0 and y.ndim == 3


def test_no_end() -> None:
    """A limit beyond all memory: rows are added as they come."""
    feed = {"x": np.full((2, 3), 2.0**100, np.float32), "n": np.array(2**62)}
    session = check(halving(condition=False), feed)
    assert native_loops(session)


def test_nothing_but_states_that_stay() -> None:
    """The loop is gone."""
    body = loop_body([node("Identity", ["a"], ["a_next"])], [tensor("a", [3])], [tensor("a_next", [3])], [])
    loop = node("Loop", ["n", "", "x"], ["y"], body=body)
    feeds = [{"x": numbers(3), "n": np.array(n)} for n in (0, 2)]
    check(bytes_of([loop], [tensor("x", [3]), tensor("n", [], INT64)], [tensor("y", [3])]), *feeds)


def fibonacci() -> bytes:
    """Two states that trade places, one that nobody reads, one that stays, one that becomes a constant."""
    nodes = [
        constant("seven", [7], INT64),
        node("Add", ["a", "b"], ["s"]),
        node("Identity", ["b"], ["a_next"]),
        node("Mul", ["s", "k"], ["unread_next"]),
        node("Identity", ["k"], ["k_next"]),
        node("Identity", ["a"], ["row"]),
        node("Identity", ["seven"], ["d_next"]),
        node("Add", ["d", "i"], ["row_2"]),
    ]
    kinds = [[tensor(f"{name}{end}", [1], INT64) for name in ("a", "b", "unread", "k", "d")] for end in ("", "_next")]
    kinds[1][1] = tensor("s", [1], INT64)
    body = loop_body(nodes, kinds[0], kinds[1], [tensor("row", [1], INT64), tensor("row_2", [1], INT64)])
    outputs = ["a_last", "b_last", "unread_last", "k_last", "d_last", "rows", "rows_2"]
    loop = node("Loop", ["n", "", "x", "y", "x", "y", "y"], outputs, body=body)
    inputs = [tensor("x", [1], INT64), tensor("y", [1], INT64), tensor("n", [], INT64)]
    return bytes_of([loop], inputs, [tensor(name, None, INT64) for name in outputs])


def test_states_of_all_kinds() -> None:
    feeds = [{"x": np.array([1]), "y": np.array([2]), "n": np.array(n)} for n in (1, 2, 3, 40)]
    (loop,) = native_loops(check(fibonacci(), *feeds))
    assert len(loop.body.inputs) <= 6


def test_runs_that_overlap() -> None:
    session = InferenceSession(fibonacci())
    wrong = []

    def run(n: int) -> None:
        expected = session.run(None, {"x": np.array([1]), "y": np.array([n]), "n": np.array(50 + n)})
        for _ in range(50):
            found = session.run(None, {"x": np.array([1]), "y": np.array([n]), "n": np.array(50 + n)})
            wrong.extend(a for a, b in zip(found, expected, strict=True) if not np.array_equal(a, b))

    threads = [threading.Thread(target=run, args=(n,)) for n in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_captured_weights_and_products() -> None:
    """Weights that are carried unchanged, a product of captured rows in turn, and work that is the same each time."""
    nodes = [
        node("Gather", ["x", "at"], ["row"], axis=0),
        node("MatMul", ["row", "w"], ["p"]),
        node("MatMul", ["h", "u"], ["q"]),
        node("Tanh", ["bias"], ["b"]),
        node("Add", ["p", "q"], ["pq"]),
        node("Add", ["pq", "b"], ["sum"]),
        node("Tanh", ["sum"], ["h_next"]),
        constant("one", 1, INT64),
        node("Add", ["at", "one"], ["at_next"]),
        node("Identity", ["u"], ["u_next"]),
        node("Identity", ["w"], ["w_next"]),
        node("Identity", ["h_next"], ["out"]),
    ]
    before = [tensor("at", [], INT64), tensor("h", None), tensor("u", None), tensor("w", None)]
    behind = [tensor("at_next", [], INT64), *(tensor(name, None) for name in ("h_next", "u_next", "w_next"))]
    body = loop_body(nodes, before, behind, [tensor("out", None)])
    weights = [
        constant("w0", numbers(5, 4), FLOAT),
        constant("u0", numbers(4, 4), FLOAT),
        constant("start", 0, INT64),
    ]
    loop = node("Loop", ["n", "", "start", "h0", "u0", "w0"], ["end", "h_end", "u_end", "w_end", "all"], body=body)
    inputs = [tensor("x", ("T", "B", 5)), tensor("h0", ("B", 4)), tensor("bias", (4,)), tensor("n", [], INT64)]
    outputs = [tensor("end", [], INT64), *(tensor(name, None) for name in ("h_end", "u_end", "w_end", "all"))]
    feeds = [
        {"x": numbers(t, b, 5), "h0": numbers(b, 4), "bias": numbers(4), "n": np.array(n)}
        for t, b, n in ((6, 2, 6), (6, 2, 3), (1, 1, 1), (9, 3, 8))
    ]
    session = check(bytes_of([*weights, loop], inputs, outputs), *feeds)
    (step,) = native_loops(session)
    assert sum("gemm" in call.label for call in step.compiled.plan.calls) == 1
    for feed in ({**feeds[0], "n": np.array(7)}, {**feeds[3], "n": np.array(10)}):
        with pytest.raises(InvalidArgument, match=r"(?i)gather"):
            session.run(None, feed)
    assert_same(session.run(None, feeds[0]), check(bytes_of([*weights, loop], inputs, outputs)).run(None, feeds[0]))


def elements(first: str = "i") -> bytes:
    """Sums of the rows of x one after the other, until they are large."""
    nodes = [
        constant("most", 30.0, FLOAT),
        node("Gather", ["x", first], ["row"]),
        node("Gather", ["w", first], ["scale"]),
        node("Mul", ["row", "scale"], ["product"]),
        node("Add", ["s", "product"], ["t"]),
        node("ReduceSum", ["t"], ["total"], keepdims=0),
        node("Less", ["total", "most"], ["go"]),
        node("Identity", ["row"], ["seen"]),
    ]
    body = loop_body(nodes, [tensor("s", None)], [tensor("t", None)], [tensor("seen", None)])
    inputs = [tensor("x", ("T", 3)), tensor("w", ("T",)), tensor("s0", (3,)), tensor("n", [], INT64)]
    loop = node("Loop", ["n", "", "s0"], ["end", "rows"], body=body)
    return bytes_of([loop], inputs, [tensor("end", None), tensor("rows", None)])


def test_elements_one_after_the_other() -> None:
    """They are read where they lie; beyond the last one is an error, unless the condition ends the loop before."""

    def feed(length: int, times: int, scale: float = 0.1) -> dict[str, Any]:
        x = np.full((length, 3), scale, np.float32) + numbers(length, 3) / 100
        return {"x": x, "w": np.ones(length, np.float32), "s0": np.zeros(3, np.float32), "n": np.array(times)}

    session = check(elements(), feed(5, 5), feed(5, 2), feed(1, 1), feed(9, 2**60, 5.0))
    (step,) = native_loops(session)
    assert len(step.followed) == 2
    for times in (6, 2**60):
        with pytest.raises(InvalidArgument, match=r"Gather.*outside of the tensor"):
            session.run(None, feed(5, times))
    end, rows = session.run(None, {**feed(3, 0), "x": np.zeros((0, 3), np.float32), "w": np.zeros(0, np.float32)})
    assert not end.any() and len(rows) == 0


def test_caches_that_grow() -> None:
    case = transformer_decoder(length=9, prompt=3)
    model = case.model.SerializeToString()
    feeds = [{**case.feeds, "most": np.array(n)} for n in (9, 1, 5, 9)]
    feeds.append({**feeds[0], **{name: case.feeds[name][:, :, :1] for name in ("keys_start", "values_start")}})
    session = check(model, *feeds)
    assert native_loops(session)


def test_sizes_that_the_number_tells() -> None:
    """A decoder does so that looks at all positions up to its own."""
    nodes = [
        constant("one", 1, INT64),
        constant("zero", [0], INT64),
        node("Add", ["i", "one"], ["count"]),
        node("Unsqueeze", ["count", "zero"], ["end"]),
        node("Slice", ["x", "zero", "end", "zero"], ["part"]),
        node("Softmax", ["part"], ["soft"], axis=0),
        node("ReduceSum", ["soft", "zero"], ["sum"], keepdims=0),
        node("Mul", ["part", "s"], ["scaled"]),
        node("ReduceMax", ["scaled", "zero"], ["most"], keepdims=0),
        node("Add", ["sum", "most"], ["t"]),
        node("Cast", ["i"], ["row"], to=FLOAT),
    ]
    body = loop_body(nodes, [tensor("s", (3,))], [tensor("t", (3,))], [tensor("row", [])])
    model = bytes_of(
        [node("Loop", ["n", "", "s0"], ["end_state", "rows"], body=body)],
        [tensor("x", ("T", 3)), tensor("s0", (3,)), tensor("n", [], INT64)],
        [tensor("end_state", None), tensor("rows", None)],
    )
    feeds = [{"x": numbers(t, 3), "s0": numbers(3), "n": np.array(n)} for t, n in ((4, 4), (9, 7), (4, 1), (5, 5))]
    assert native_loops(check(model, *feeds))


def test_states_that_grow_and_settle() -> None:
    """The size of a state is another for the first iterations; then it stays, or grows by what it is."""
    nodes = [
        constant("most", [4], INT64),
        constant("zero", [0], INT64),
        node("Concat", ["s", "x"], ["long"], axis=0),
        node("Slice", ["long", "zero", "most", "zero"], ["t"]),
        node("Concat", ["d", "d"], ["d_next"], axis=0),
        node("ReduceSum", ["d"], ["row"], keepdims=0),
    ]
    body = loop_body(
        nodes,
        [tensor("s", None), tensor("d", None)],
        [tensor("t", None), tensor("d_next", None)],
        [tensor("row", None)],
    )
    loop = node("Loop", ["n", "", "s0", "x"], ["s_end", "d_end", "rows"], body=body)
    inputs = [tensor("s0", ("S", 2)), tensor("x", ("N", 2)), tensor("n", [], INT64)]
    model = bytes_of([loop], inputs, [tensor(name, None) for name in ("s_end", "d_end", "rows")])
    feeds = [
        {"s0": numbers(s, 2), "x": numbers(n, 2), "n": np.array(k)} for s, n, k in ((0, 1, 7), (2, 3, 4), (9, 1, 1))
    ]
    assert native_loops(check(model, *feeds))


def test_rows_of_different_shapes_are_refused() -> None:
    nodes = [node("Concat", ["s", "x"], ["t"], axis=0), node("Relu", ["t"], ["row"])]
    body = loop_body(nodes, [tensor("s", None)], [tensor("t", None)], [tensor("row", None)])
    loop = node("Loop", ["n", "", "x"], ["last", "rows"], body=body)
    model = bytes_of([loop], [tensor("x"), tensor("n", [], INT64)], [tensor("last", None), tensor("rows", None)])
    session = InferenceSession(model)
    session.run(None, {"x": numbers(2, 3), "n": np.array(1)})
    with pytest.raises(Exception, match=r"Loop node.*has the shapes \[\(4, 3\), \(6, 3\)\]"):
        session.run(None, {"x": numbers(2, 3), "n": np.array(3)})


def test_greedy_decoder_that_ends_early() -> None:
    case = lstm_decoder(length=12)
    model = case.model.SerializeToString()
    theirs = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    feeds = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        feed = {name: value for name, value in case.feeds.items()}
        feed["h_start"] = rng.standard_normal((1, 1, 256)).astype(np.float32)
        feeds.append(feed)
    assert len(native_loops(check(model, *feeds))) == 1
    assert theirs.get_outputs()[0].name == "tokens"


def scans(width: int = 3) -> Any:
    """Two states and two scanned inputs, of which one state is stacked as it is."""
    nodes = [
        node("Mul", ["s", "k"], ["h"]),
        node("Add", ["h", "x"], ["t"]),
        node("Add", ["n", "z"], ["n_next"]),
        node("Identity", ["t"], ["row"]),
        node("Sum", ["t", "n_next", "s"], ["row_2"]),
    ]
    row = (width,)
    inputs = [tensor(name, row) for name in ("s", "n", "x", "z")]
    return graph(nodes, inputs, [tensor(name, row) for name in ("t", "n_next", "row", "row_2")])


@pytest.mark.parametrize("axes", [(0, 0), (1, 0), (-1, 1)])
@pytest.mark.parametrize("directions", [(0, 0), (1, 0), (0, 1)])
def test_scan(axes: tuple[int, int], directions: tuple[int, int]) -> None:
    attributes = {
        "scan_input_axes": axes,
        "scan_input_directions": directions,
        "scan_output_axes": axes,
        "scan_output_directions": directions[::-1],
    }
    outputs = ["s_end", "n_end", "rows", "rows_2"]
    scan = node("Scan", ["s0", "n0", "x", "z"], outputs, num_scan_inputs=2, body=scans(), **attributes)
    names = ("s0", "n0", "x", "z", "k")
    inputs = [tensor(name, (3,) if name in ("s0", "n0") else () if name == "k" else (None, None)) for name in names]
    feeds = []
    for length in (1, 2, 6):
        feeds.append({"s0": numbers(3), "n0": numbers(3) + 1, "k": np.array(0.5, np.float32)})
        for name, axis, seed in (("x", axes[0], 0), ("z", axes[1], 1)):
            feeds[-1][name] = (
                numbers(length, 3 + seed)[:, :3].copy() if axis == 0 else numbers(3, length + seed)[:, :length].copy()
            )
    session = check(bytes_of([scan], inputs, [tensor(name, None) for name in outputs]), *feeds)
    assert native_loops(session)


def test_products_of_what_is_scanned() -> None:
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Add", ["s", "p"], ["t"]), node("Tanh", ["t"], ["row"])]
    body = graph(nodes, [tensor("s", ("B", 4)), tensor("x", ("B", 5))], [tensor("t", None), tensor("row", None)])
    scan = node("Scan", ["s0", "x0"], ["end", "rows"], num_scan_inputs=1, body=body)
    model = bytes_of(
        [constant("w", numbers(5, 4), FLOAT), scan],
        [tensor("s0", ("B", 4)), tensor("x0", ("T", "B", 5))],
        [tensor("end", None), tensor("rows", None)],
    )
    session = check(model, *({"s0": numbers(b, 4), "x0": numbers(t, b, 5)} for t, b in ((3, 2), (1, 1), (5, 3))))
    (step,) = native_loops(session)
    assert not any("gemm" in call.label for call in step.compiled.plan.calls)


def test_small_choices_are_selected() -> None:
    """Some exporters write it so: a scalar in one branch, a vector of one element in the other."""
    then = graph([constant("done", True, BOOL)], [], [tensor("done", [], BOOL)], "then")
    other_nodes = [
        constant("none", [0], INT64),
        node("Cast", ["flag"], ["as_number"], to=INT64),
        node("Add", ["as_number", "none"], ["sum"]),
        node("Cast", ["sum"], ["as_flag"], to=BOOL),
    ]
    other = graph(other_nodes, [], [tensor("as_flag", None, BOOL)], "other")
    nodes = [
        constant("zeros", [0], INT64),
        constant("most", 20.0, FLOAT),
        node("ReduceSum", ["s"], ["total"], keepdims=0),
        node("Greater", ["total", "most"], ["large"]),
        node("If", ["large"], ["chosen"], then_branch=then, else_branch=other),
        node("Cast", ["chosen"], ["number"], to=INT64),
        node("Add", ["number", "zeros"], ["vector"]),
        node("Cast", ["vector"], ["flag_next"], to=BOOL),
        node("Not", ["flag_next"], ["go"]),
        node("Add", ["s", "x"], ["t"]),
    ]
    body = loop_body(
        nodes, [tensor("flag", None, BOOL), tensor("s", None)], [tensor("flag_next", None, BOOL), tensor("t", None)]
    )
    loop = node("Loop", ["n", "", "unset", "x"], ["flag_end", "end"], body=body)
    model = bytes_of(
        [constant("unset", False, BOOL), constant("n", 30, INT64), loop],
        [tensor("x", ("N",))],
        [tensor("flag_end", None, BOOL), tensor("end", None)],
    )
    session = check(model, *({"x": np.full(n, v, np.float32)} for n, v in ((1, 1), (3, 2), (2, 0.01), (1, 30))))
    assert native_loops(session)


@pytest.mark.parametrize("model", [halving(), fibonacci(), elements()], ids=["halving", "fibonacci", "elements"])
def test_artifacts(model: bytes, tmp_path: Path) -> None:
    feeds = [
        {"x": np.full((4, 3), 9.0, np.float32), "n": np.array(n), "begins": np.array(True), "y": np.array([3])}
        for n in (3, 2)
    ]
    for feed in feeds:
        feed |= {"w": np.ones(4, np.float32), "s0": np.zeros(3, np.float32)}
    session = InferenceSession(model)
    names = [entry.name for entry in session.get_inputs()]
    feeds = [{name: feed[name] for name in names} for feed in feeds]
    if "begins" not in names and "w" not in names:
        feeds = [{**feed, "x": np.array([1])} for feed in feeds]
    session.save(tmp_path / "loop.jitonnx", {name: value.shape for name, value in feeds[0].items()})
    opened = load(tmp_path / "loop.jitonnx")
    for feed in feeds:
        for ours, expected in zip(opened.run(None, feed), session.run(None, feed), strict=True):
            np.testing.assert_array_equal(ours, expected)


def test_a_loop_within_a_loop() -> None:
    inner = graph(
        [node("Mul", ["u", "w"], ["v"]), node("Add", ["v", "s"], ["u_next"]), node("Identity", ["d"], ["again"])],
        [tensor("j", [], INT64), tensor("d", [], BOOL), tensor("u", None)],
        [tensor("again", [], BOOL), tensor("u_next", None)],
        "inner",
    )
    nodes = [node("Loop", ["m", "", "s"], ["t"], body=inner), node("Identity", ["t"], ["row"])]
    body = loop_body(nodes, [tensor("s", None)], [tensor("t", None)], [tensor("row", None)])
    loop = node("Loop", ["n", "", "x"], ["y", "rows"], body=body)
    inputs = [tensor("x", ("N",)), tensor("w", ("N",)), tensor("n", [], INT64), tensor("m", [], INT64)]
    model = bytes_of([loop], inputs, [tensor("y", None), tensor("rows", None)])
    check(
        model,
        *(
            {"x": numbers(k), "w": numbers(k) / 2, "n": np.array(n), "m": np.array(m)}
            for k, n, m in ((2, 3, 4), (1, 1, 1), (4, 5, 0), (3, 2, 1))
        ),
    )


@pytest.mark.parametrize(("bound", "most"), [(1, None), (4, None), (4, 2), (99, None)])
def test_loops_that_count_are_unrolled(bound: int, most: int | None) -> None:
    """A `while` that counts from a constant to another is no loop where that is soon done, and a list that it makes
    is joined."""
    body = graph(
        [
            constant("one", 1, INT64),
            constant("bound", bound, INT64),
            node("Add", ["k", "one"], ["k_next"]),
            node("Unsqueeze", ["k", "axes"], ["k_row"]),
            node("Unsqueeze", ["k_next", "axes"], ["k_end"]),
            node("Slice", ["x", "k_row", "k_end"], ["part"]),
            node("SequenceInsert", ["s", "part"], ["s_next"]),
            node("Less", ["k_next", "bound"], ["again"]),
        ],
        [
            tensor("i", [], INT64),
            tensor("c", [], BOOL),
            tensor("k", [], INT64),
            helper.make_tensor_sequence_value_info("s", FLOAT, None),
        ],
        [
            tensor("again", [], BOOL),
            tensor("k_next", [], INT64),
            helper.make_tensor_sequence_value_info("s_next", FLOAT, None),
        ],
    )
    nodes = [
        constant("axes", [0], INT64),
        constant("begin", 0, INT64),
        *([] if most is None else [constant("most", most, INT64)]),
        node("SequenceEmpty", [], ["empty"]),
        node("Loop", ["" if most is None else "most", "", "begin", "empty"], ["k_last", "all"], body=body),
        node("ConcatFromSequence", ["all"], ["y"], axis=0),
    ]
    model = bytes_of(nodes, [tensor("x", (128, 3))], [tensor("y", None), tensor("k_last", [], INT64)])
    session = check(model, {"x": numbers(128, 3)})
    assert isinstance(session.engine, Engine)
    schedule = session.engine.schedule
    assert (schedule is not None and any(schedule.reasons())) == (bound == 99)


def test_what_grows_is_not_counted_before_the_run() -> None:
    """The state would have 2**60 elements: how often such a loop runs is for the run to find out."""
    body = graph(
        [
            constant("bound", 1 << 60, INT64),
            node("Concat", ["s", "s"], ["s_next"], axis=0),
            node("Size", ["s_next"], ["elements"]),
            node("Less", ["elements", "bound"], ["again"]),
        ],
        [tensor("i", [], INT64), tensor("c", [], BOOL), tensor("s", [None], INT64)],
        [tensor("again", [], BOOL), tensor("s_next", [None], INT64)],
    )
    for most in (1 << 40, 3):
        nodes = [constant("most", most, INT64), constant("begin", [1], INT64)]
        nodes += [node("Loop", ["most", "", "begin"], ["y"], body=body), node("Add", ["x", "x"], ["z"])]
        session = InferenceSession(bytes_of(nodes, [tensor("x", [1])], [tensor("y", [None], INT64), tensor("z", [1])]))
    np.testing.assert_array_equal(session.run(["y"], {"x": numbers(1)})[0], np.ones(8, np.int64))


@pytest.mark.parametrize("reverse", [0, 1])
def test_short_loops_are_unrolled(reverse: int) -> None:
    """A Scan and a Loop of few iterations in the body of another one, which so is native throughout."""
    scan_body = graph(
        [node("Mul", ["u", "e"], ["v"]), node("Add", ["v", "e"], ["u_next"]), node("Identity", ["u_next"], ["seen"])],
        [tensor("u", (2,)), tensor("e", (2,))],
        [tensor("u_next", (2,)), tensor("seen", (2,))],
        "scan",
    )
    inner = graph(
        [
            node("Cast", ["j"], ["j_float"], to=FLOAT),
            node("Add", ["m", "j_float"], ["m_next"]),
            node("Identity", ["d"], ["again"]),
            node("Identity", ["m"], ["m_before"]),
        ],
        [tensor("j", [], INT64), tensor("d", [], BOOL), tensor("m", (2,))],
        [tensor("again", [], BOOL), tensor("m_next", (2,)), tensor("m_before", (2,))],
        "inner",
    )
    attributes = {"scan_input_directions": [reverse], "scan_output_directions": [1 - reverse], "scan_output_axes": [1]}
    nodes = [
        constant("three", 3, INT64),
        constant("first", [0.0, 0.5], FLOAT),
        node("Scan", ["first", "s"], ["t_row", "t_rows"], num_scan_inputs=1, body=scan_body, **attributes),
        node("Loop", ["three", "", "t_row"], ["m_end", "m_rows"], body=inner),
        node("Transpose", ["t_rows"], ["turned"], perm=[1, 0]),
        node("Add", ["turned", "m_rows"], ["sum"]),
        node("Add", ["sum", "m_end"], ["t"]),
        node("Tanh", ["t"], ["row"]),
    ]
    body = loop_body(nodes, [tensor("s", (3, 2))], [tensor("row", (3, 2))], [tensor("t", (3, 2))])
    model = bytes_of(
        [node("Loop", ["n", "", "x"], ["y", "rows"], body=body)],
        [tensor("x", (3, 2)), tensor("n", [], INT64)],
        [tensor("y", None), tensor("rows", None)],
    )
    assert len(native_loops(check(model, *({"x": numbers(3, 2), "n": np.array(n)} for n in (1, 2, 5))))) == 1


@pytest.mark.parametrize("threads", [1, 2])
def test_threads(threads: int) -> None:
    """Products large enough to be shared by threads, in each iteration, give the same bits."""
    case = product(256, times=40)
    options = SessionOptions()
    options.intra_op_num_threads = threads
    session = InferenceSession(case.model.SerializeToString(), options)
    theirs = onnxruntime.InferenceSession(case.model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = theirs.run(None, case.feeds)
    for _ in range(3):
        assert_same(session.run(None, case.feeds), expected)


def test_ctrl_c_ends_a_loop() -> None:
    """It ends within a tenth of a second, on a loop of minutes; the next run is right."""
    nodes = [node("Add", ["s", "x"], ["t"])]
    body = loop_body(nodes, [tensor("s", None)], [tensor("t", None)])
    model = bytes_of(
        [node("Loop", ["n", "", "x"], ["y"], body=body)], [tensor("x"), tensor("n", [], INT64)], [tensor("y", None)]
    )
    session = InferenceSession(model)
    session.run(None, {"x": numbers(2, 3), "n": np.array(3)})
    began = time.perf_counter()
    timer = threading.Timer(0.2, lambda: signal.raise_signal(signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background has it ignored
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            session.run(None, {"x": numbers(2, 3), "n": np.array(2**62)})
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.perf_counter() - began < 1.2
    timer.join()
    x = numbers(2, 3)
    np.testing.assert_allclose(session.run(None, {"x": x, "n": np.array(3)})[0], 4 * x, 1e-6)


@pytest.mark.parametrize("operator", ["Add", "Unique"])
def test_terminate_ends_a_loop(operator: str) -> None:
    """It ends within a tenth of a second, whether native code or Python goes from iteration to iteration."""
    nodes = [node("Add", ["s", "x"], ["t"])]
    if operator == "Unique":
        nodes = [node("Unique", ["s"], ["u"]), node("ReduceSum", ["u"], ["r"]), node("Add", ["r", "x"], ["t"])]
    body = loop_body(nodes, [tensor("s", None)], [tensor("t", None)])
    model = bytes_of(
        [node("Loop", ["n", "", "x"], ["y"], body=body)], [tensor("x"), tensor("n", [], INT64)], [tensor("y", None)]
    )
    session, options = InferenceSession(model), RunOptions()
    x = numbers(2, 3)
    expected = session.run(None, {"x": x, "n": np.array(3)}, options)[0]
    timer = threading.Timer(0.2, lambda: setattr(options, "terminate", True))
    timer.start()
    began = time.perf_counter()
    with pytest.raises(Fail, match="terminate flag"):
        session.run(None, {"x": x, "n": np.array(2**40)}, options)
    assert time.perf_counter() - began < 1.2
    timer.join()
    np.testing.assert_array_equal(session.run(None, {"x": x, "n": np.array(3)})[0], expected)


def test_what_is_not_native_runs_in_the_schedule() -> None:
    nodes = [node("Unique", ["s"], ["u"]), node("Concat", ["u", "x"], ["t"], axis=0)]
    body = loop_body(nodes, [tensor("s", None)], [tensor("t", None)])
    model = bytes_of(
        [node("Loop", ["n", "", "x"], ["y"], body=body)],
        [tensor("x", ("N",)), tensor("n", [], INT64)],
        [tensor("y", None)],
    )
    session = check(model, *({"x": np.array([2, 1, 2], np.float32)[:k], "n": np.array(3)} for k in (1, 2, 3)))
    assert isinstance(session.engine, Engine) and session.engine.schedule is not None
    assert not any(isinstance(step, LoopStep) for step in session.engine.schedule.steps)
    assert not all(isinstance(step, NativeStep) for step in session.engine.schedule.steps)


def test_explain_shows_the_body() -> None:
    from jitonnx.tools.explain import explain

    session = InferenceSession(fibonacci())
    feed = {"x": np.array([1]), "y": np.array([2]), "n": np.array(3)}
    session.run(None, feed)
    shown = explain(session, {name: value.shape for name, value in feed.items()})
    assert any("Add" in kernel.label for kernel in shown.kernels)


def test_open_sizes() -> None:
    """Sizes that are open in the body are those of the run."""
    nodes = [node("MatMul", ["s", "w"], ["t"]), node("ReduceMean", ["t"], ["row"], keepdims=1)]
    body = loop_body(nodes, [tensor("s", None)], [tensor("t", None)], [tensor("row", None)])
    model = bytes_of(
        [node("Loop", ["n", "", "x"], ["y", "rows"], body=body)],
        [tensor("x", ("N", "K")), tensor("w", ("K", "K")), tensor("n", [], INT64)],
        [tensor("y", None), tensor("rows", None)],
    )
    feeds = [
        {"x": numbers(n, k), "w": numbers(k, k) / 4, "n": np.array(3)} for n, k in ((2, 3), (1, 1), (5, 2), (2, 3))
    ]
    assert native_loops(check(model, *feeds))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("first", ["s", "x"])
def test_what_is_appended_to(axis: int, first: str) -> None:
    """A cache that grows along any axis, and in front; read before and behind, and handed to another state."""
    shape = [2, 3, 4]
    kinds: list[Any] = ["K" if place == axis else size for place, size in enumerate(shape)]
    row = [1 if place == axis else size for place, size in enumerate(shape)]
    nodes = [
        constant("axis", [axis], INT64),
        node("ReduceMean", ["s", "axis"], ["before"], keepdims=1),
        node("Tanh", ["before"], ["x"]),
        node("Concat", [first, "s" if first == "x" else "x"], ["t"], axis=axis),
        node("ReduceMax", ["t", "axis"], ["behind"], keepdims=1),
        node("Add", ["behind", "d"], ["d_next"]),
        node("Identity", ["s"], ["late_next"]),
        node("ReduceSum", ["late", "axis"], ["late_row"], keepdims=0),
    ]
    body = loop_body(
        nodes,
        [tensor("s", kinds), tensor("d", row), tensor("late", ["L" if one == "K" else one for one in kinds])],
        [tensor("t", None), tensor("d_next", None), tensor("late_next", None)],
        [tensor("late_row", None)],
    )
    loop = node("Loop", ["n", "", "c0", "d0", "c0"], ["c_end", "d_end", "late_end", "rows"], body=body)
    inputs = [tensor("c0", kinds), tensor("d0", row), tensor("n", [], INT64)]
    model = bytes_of([loop], inputs, [tensor(name, None) for name in ("c_end", "d_end", "late_end", "rows")])
    feeds = []
    for length, times in ((1, 7), (3, 1), (2, 40), (1, 7)):
        start = numbers(*[length if place == axis else size for place, size in enumerate(shape)])
        feeds.append({"c0": start, "d0": numbers(*row), "n": np.array(times)})
    kept = [feed["c0"].copy() for feed in feeds]
    session = check(model, *feeds)
    assert all(np.array_equal(feed["c0"], one) for feed, one in zip(feeds, kept, strict=True))
    (step,) = native_loops(session)
    assert bool(step.grown) == (first == "s")


def test_a_scalar_state_that_is_stacked_as_well() -> None:
    """What is behind the loop takes the state as an array."""
    body = loop_body(
        [node("Add", ["i", "i"], ["t"]), node("Identity", ["t"], ["row"])],
        [tensor("s", [], INT64)],
        [tensor("t", [], INT64)],
        [tensor("row", [], INT64)],
    )
    model = bytes_of(
        [node("Loop", ["n", "", "s0"], ["end", "rows"], body=body), node("Less", ["end", "limit"], ["y"])],
        [tensor("s0", [], INT64), tensor("n", [], INT64), tensor("limit", [], INT64)],
        [tensor("y", [], BOOL), tensor("rows", None, INT64)],
    )
    check(model, *({"s0": np.array(7), "n": np.array(n), "limit": np.array(4)} for n in (3, 1, 0, 5)))
