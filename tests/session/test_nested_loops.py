"""Loops within loops and choices: one native call a run, by difference against onnxruntime."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

import numpy as np
import onnxruntime
import pytest

from jitonnx import InferenceSession
from jitonnx.engine.schedule import HostStep
from tests.session.bodies import assert_same, bytes_of, check, constant, graph, numbers
from tests.session.models import BOOL, FLOAT, INT64, node, tensor
from tests.session.random_loops import random_loops
from tests.session.test_loop_instructions import Counter, by_python, compare, recording_all, run_natively
from tests.session.test_loops import loop_body

__all__ = ["by_python", "recording_all"]


@pytest.fixture(autouse=True)
def hosts_counted(by_python: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops that Python goes through are counted, too."""

    def counted(step: Any, *arguments: Any, call: Any = HostStep.__call__) -> None:
        by_python.steps.append(step)
        call(step, *arguments)

    monkeypatch.setattr(HostStep, "__call__", counted)


@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("seed", range(6))
def test_random_loops(seed: int, depth: int, fixed: bool, by_python: Counter) -> None:
    """Bodies at random: loops, scans, choices, states that grow or change places, conditions that end early."""
    model, feeds = random_loops(100 * seed + depth, depth, fixed)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    theirs = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    session = InferenceSession(model)
    expected = [theirs.run(None, feed) for feed in feeds]
    for _ in range(4):
        by_python.steps.clear()
        for feed, results in zip(feeds, expected, strict=True):
            for ours, one in zip(session.run(None, feed), results, strict=True):
                np.testing.assert_allclose(ours, one, 1e-4, 1e-5)
                assert ours.shape == one.shape
    # With open sizes some runs are Python's, by which it is known how the loops within are done in one go.
    assert not fixed or not any(isinstance(step, HostStep) for step in by_python.steps)


def nested(inner_trips: str = "m") -> bytes:
    """u = u * w + s, `inner_trips` times, n times; rows are s."""
    inner = graph(
        [node("Mul", ["u", "w"], ["v"]), node("Add", ["v", "s"], ["u_next"]), node("Identity", ["d"], ["again"])],
        [tensor("j", [], INT64), tensor("d", [], BOOL), tensor("u", None)],
        [tensor("again", [], BOOL), tensor("u_next", None)],
        "inner",
    )
    nodes = [node("Loop", [inner_trips, "", "s"], ["t"], body=inner), node("Tanh", ["t"], ["row"])]
    body = loop_body(nodes, [tensor("s", None)], [tensor("row", None)], [tensor("t", None)])
    inputs = [tensor("x", ("N",)), tensor("w", ("N",)), tensor("n", [], INT64), tensor("m", [], INT64)]
    loop = node("Loop", ["n", "", "x"], ["y", "rows"], body=body)
    return bytes_of([loop], inputs, [tensor("y", None), tensor("rows", None)])


def feed_of(size: int, n: int, m: int) -> dict[str, Any]:
    return {"x": numbers(size), "w": numbers(size) / 2, "n": np.array(n), "m": np.array(m)}


def test_no_python_in_between(by_python: Counter) -> None:
    """Whatever the trip counts are; a size that is new is shown to Python once in a while."""
    model = nested()
    session = run_natively(model, feed_of(3, 4, 5), by_python)
    compare(session, model, *(feed_of(3, n, m) for n, m in ((1, 1), (7, 2), (2, 9), (3, 0))))
    assert not by_python.steps
    for size in (5, 2, 5, 5, 2, 5, 5, 5):
        compare(session, model, feed_of(size, 3, 2))
    by_python.steps.clear()
    compare(session, model, feed_of(5, 3, 2))
    assert not by_python.steps


def test_no_iterations(by_python: Counter) -> None:
    """Stacks without rows have the sizes of rows that are known."""
    session = run_natively(nested(), feed_of(3, 4, 5), by_python)
    y, rows = session.run(None, feed_of(3, 0, 5))
    np.testing.assert_array_equal(y, numbers(3))
    assert rows.shape == (0, 3) and not by_python.steps


def test_caches_that_grow_within_a_loop(by_python: Counter) -> None:
    """A decoder for each row of a batch: the cache of each grows, of a length that is another one each time."""
    nodes = [
        constant("zero", [0], INT64),
        node("MatMul", ["cache", "q"], ["scores"]),
        node("Softmax", ["scores"], ["weights"], axis=0),
        node("Transpose", ["weights"], ["turned"], perm=[1, 0]),
        node("MatMul", ["turned", "cache"], ["read"]),
        node("Concat", ["cache", "read"], ["cache_next"], axis=0),
        node("Transpose", ["read"], ["q_next"], perm=[1, 0]),
        node("Identity", ["d"], ["again"]),
    ]
    inner = graph(
        nodes,
        [tensor("j", [], INT64), tensor("d", [], BOOL), tensor("cache", ("k", 4)), tensor("q", (4, 1))],
        [tensor("again", [], BOOL), tensor("cache_next", None), tensor("q_next", None)],
        "decoder",
    )
    outer = [
        constant("first", [1], INT64),
        node("Slice", ["prompts", "i_row", "i_next", "i_axis"], ["prompt"]),
        node("Reshape", ["prompt", "shape"], ["prompt_rows"]),
        node("Loop", ["m", "", "prompt_rows", "q0"], ["kept", "q_end"], body=inner),
        constant("i_axis", [0], INT64),
        constant("shape", [2, 4], INT64),
        node("Unsqueeze", ["i", "i_axis"], ["i_row"]),
        node("Add", ["i_row", "first"], ["i_next"]),
        node("ReduceSum", ["kept", "i_axis"], ["row"], keepdims=0),
    ]
    order = (0, 4, 5, 6, 7, 1, 2, 3, 8)
    body = loop_body(
        [outer[place] for place in order], [tensor("s", None)], [tensor("row_next", None)], [tensor("row", None)]
    )
    body.node.append(node("Add", ["s", "row"], ["row_next"]))
    inputs = [tensor("prompts", ("B", 2, 4)), tensor("q0", (4, 1)), tensor("s0", (4,)), tensor("m", [], INT64)]
    inputs.append(tensor("b", [], INT64))
    loop = node("Loop", ["b", "", "s0"], ["sum", "rows"], body=body)
    model = bytes_of([loop], inputs, [tensor("sum", None), tensor("rows", None)])

    def feed(batch: int, most: int) -> dict[str, Any]:
        given = {"prompts": numbers(batch, 2, 4), "q0": numbers(4, 1), "s0": numbers(4)}
        return {**given, "m": np.array(most), "b": np.array(batch)}

    session = run_natively(model, feed(3, 6), by_python)
    compare(session, model, feed(1, 2), feed(2, 6), feed(5, 3), feed(3, 9))


def test_more_rows_than_there_is_memory_for_at_first(by_python: Counter) -> None:
    """A loop without a limit, and rows beyond the first memory for them."""
    inner = graph(
        [node("Add", ["u", "x"], ["u_next"]), node("Identity", ["d"], ["again"])],
        [tensor("j", [], INT64), tensor("d", [], BOOL), tensor("u", None)],
        [tensor("again", [], BOOL), tensor("u_next", None)],
        "inner",
    )
    nodes = [
        constant("one", 1, INT64),
        node("Loop", ["one", "", "s"], ["t"], body=inner),
        node("ReduceMax", ["t"], ["top"], keepdims=0),
        node("Less", ["top", "most"], ["go"]),
    ]
    body = loop_body(nodes, [tensor("s", None)], [tensor("t", None)], [tensor("t", None)])
    two = node("Add", ["one", "i"], ["two"])  # so that the inner loop is not unrolled
    body.node.insert(1, two)
    body.node[2].input[0] = "two"
    inputs = [tensor("x", ("N",)), tensor("most", [], FLOAT)]
    loop = node("Loop", ["", "", "x"], ["y", "rows"], body=body)
    model = bytes_of([loop], inputs, [tensor("y", None), tensor("rows", None)])
    feeds = [{"x": np.ones(3, np.float32), "most": np.array(most, np.float32)} for most in (30000.0, 3.0, 9000.0)]
    session = run_natively(model, feeds[0], by_python)
    compare(session, model, *feeds)
    assert not by_python.steps


def test_states_change_places() -> None:
    """What one state was is what the other one becomes, around a loop and within it."""
    inner = graph(
        [node("Add", ["q", "x"], ["p_next"]), node("Identity", ["p"], ["q_next"]), node("Identity", ["d"], ["again"])],
        [tensor("j", [], INT64), tensor("d", [], BOOL), tensor("p", None), tensor("q", None)],
        [tensor("again", [], BOOL), tensor("p_next", None), tensor("q_next", None)],
        "inner",
    )
    nodes = [node("Loop", ["m", "", "a", "b"], ["c1", "c2"], body=inner), node("Identity", ["a"], ["before"])]
    body = loop_body(
        nodes,
        [tensor("a", None), tensor("b", None), tensor("k", None)],
        [tensor("c2", None), tensor("a", None), tensor("c1", None)],
        [tensor("before", None)],
    )
    loop = node("Loop", ["n", "", "x", "y", "x"], ["e1", "e2", "e3", "rows"], body=body)
    inputs = [tensor("x", ("N",)), tensor("y", ("N",)), tensor("n", [], INT64), tensor("m", [], INT64)]
    model = bytes_of([loop], inputs, [tensor(name, None) for name in ("e1", "e2", "e3", "rows")])
    check(
        model,
        *(
            {"x": numbers(k), "y": numbers(k + 1)[:k], "n": np.array(n), "m": np.array(m)}
            for k, n, m in ((2, 5, 3), (4, 2, 2))
        ),
    )


def test_ctrl_c_ends_nested_loops(by_python: Counter) -> None:
    session = run_natively(nested(), feed_of(3, 4, 5), by_python)
    feed = feed_of(3, 2**62, 3)
    feed["x"], feed["w"] = feed["x"] * 0, feed["w"] * 0
    began = time.perf_counter()
    timer = threading.Timer(0.2, lambda: signal.raise_signal(signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background has it ignored
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            session.run(None, {**feed, "n": np.array(2**40)})
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.perf_counter() - began < 2.2
    timer.join()
    expected = onnxruntime.InferenceSession(nested(), providers=["CPUExecutionProvider"]).run(None, feed_of(3, 4, 5))
    for ours, theirs in zip(session.run(None, feed_of(3, 4, 5)), expected, strict=True):
        assert_same(ours, theirs)


def test_errors_in_the_data(by_python: Counter) -> None:
    """An index out of range in the middle of loops names the node; the next run is right."""
    inner = graph(
        [
            node("Gather", ["table", "k"], ["row"], name="pick"),
            node("Add", ["u", "row"], ["u_next"]),
            node("Identity", ["d"], ["again"]),
        ],
        [tensor("j", [], INT64), tensor("d", [], BOOL), tensor("u", None)],
        [tensor("again", [], BOOL), tensor("u_next", None)],
        "inner",
    )
    nodes = [node("Add", ["i", "first"], ["k"]), node("Loop", ["m", "", "s"], ["t"], body=inner)]
    body = loop_body(nodes, [tensor("s", None)], [tensor("t", None)])
    inputs = [tensor("x", (2,)), tensor("table", ("R", 2)), *(tensor(name, [], INT64) for name in ("n", "m", "first"))]
    model = bytes_of([node("Loop", ["n", "", "x"], ["y"], body=body)], inputs, [tensor("y", None)])
    feed = {"x": numbers(2), "table": numbers(5, 2), "n": np.array(3), "m": np.array(2), "first": np.array(1)}
    session = run_natively(model, feed, by_python)
    with pytest.raises(Exception, match="pick"):
        session.run(None, {**feed, "n": np.array(5)})
    compare(session, model, feed)


@pytest.mark.parametrize("direction", [0, 1])
def test_scans_of_a_batch(direction: int, by_python: Counter) -> None:
    """Scan of version 8, each sample of a batch by itself."""
    body = graph(
        [
            node("Add", ["s", "x"], ["t"]),
            node("Mul", ["t", "w"], ["s_next"]),
            node("Identity", ["s_next"], ["row"]),
        ],
        [tensor("s", (3,)), tensor("x", (3,))],
        [tensor("s_next", (3,)), tensor("row", (3,))],
    )
    scan = node("Scan", ["", "s0", "x0"], ["end", "rows"], num_scan_inputs=1, body=body, directions=[direction])
    inputs = [tensor("s0", ("B", 3)), tensor("x0", ("B", "T", 3)), tensor("w", (3,))]
    model = bytes_of([scan], inputs, [tensor("end", ("B", 3)), tensor("rows", ("B", "T", 3))], 8)

    def feed(batch: int, length: int) -> dict[str, Any]:
        return {"s0": numbers(batch, 3), "x0": numbers(batch, length, 3), "w": numbers(3)}

    session = run_natively(model, feed(4, 5), by_python)
    compare(session, model, feed(1, 1), feed(2, 7), feed(4, 5))
