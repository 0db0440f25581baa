"""Loops within chains: after the first runs native code goes from step to step, loops included."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnxruntime
import pytest

from bench.loop_models import gated, lstm_decoder, product, smoothing
from jitonnx import InferenceSession, SessionOptions
from jitonnx.engine.loops.step import LoopStep
from jitonnx.engine.schedule import ChoiceStep, NativeStep
from jitonnx.errors import InvalidArgument
from jitonnx.plan import size_program
from tests.session.bodies import assert_same, bytes_of, constant, graph, numbers
from tests.session.models import BOOL, FLOAT, INT64, node, tensor
from tests.session.test_loops import halving, loop_body

WARM = 5
"""Runs until all is recorded."""


@pytest.fixture(autouse=True)
def recording_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is recorded as soon as it is met."""
    monkeypatch.setattr(size_program, "_RECORDING_SECONDS", 60.0)


class Counter:
    """The steps that Python has done."""

    def __init__(self) -> None:
        self.steps: list[Any] = []


@pytest.fixture
def by_python(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter]:
    counter = Counter()
    for kind in (NativeStep, LoopStep, ChoiceStep):

        def counted(step: Any, *arguments: Any, call: Any = kind.__call__) -> None:
            counter.steps.append(step)
            call(step, *arguments)

        monkeypatch.setattr(kind, "__call__", counted)
    yield counter


def run_natively(model: bytes, feed: dict[str, Any], counter: Counter, threads: int = 1) -> InferenceSession:
    """A session whose runs of this feed are one native call; AssertionError unless it gives what onnxruntime does."""
    options = SessionOptions()
    options.intra_op_num_threads = threads
    session = InferenceSession(model, options)
    expected = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feed)
    for _ in range(WARM):
        session.run(None, feed)
    counter.steps.clear()
    for _ in range(2):
        for ours, theirs in zip(session.run(None, feed), expected, strict=True):
            assert_same(ours, theirs)
    assert not counter.steps
    return session


def compare(session: InferenceSession, model: bytes, *feeds: dict[str, Any]) -> None:
    theirs = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for feed in feeds:
        for ours, expected in zip(session.run(None, feed), theirs.run(None, feed), strict=True):
            assert_same(ours, expected)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "case",
    [smoothing(7), gated(9, 16), product(256, 6), lstm_decoder(6, 32)],
    ids=["smoothing", "gated", "product", "lstm"],
)
def test_models_that_are_loops(case: Any, threads: int, by_python: Counter) -> None:
    run_natively(case.model.SerializeToString(), case.feeds, by_python, threads)


def test_an_initial_state_that_is_broadcast(by_python: Counter) -> None:
    """Zeros that ConstantOfShape makes are one zero with strides of 0 when they are folded; loops read whole arrays."""
    body = graph(
        [node("Add", ["s", "e"], ["t"]), node("Identity", ["t"], ["row"])],
        [tensor("s", (2, 3)), tensor("e", (2, 3))],
        [tensor("t", (2, 3)), tensor("row", (2, 3))],
    )
    nodes = [
        constant("sizes", [2, 3], INT64),
        node("ConstantOfShape", ["sizes"], ["zeros"]),
        node("Scan", ["zeros", "x"], ["last", "rows"], body=body, num_scan_inputs=1),
    ]
    model = bytes_of(nodes, [tensor("x", ("T", 2, 3))], [tensor("last", None), tensor("rows", None)])
    run_natively(model, {"x": numbers(5, 2, 3)}, by_python)


def test_other_lengths_are_served_by_the_same_link(by_python: Counter) -> None:
    case = smoothing(7, 16)
    model = case.model.SerializeToString()
    session = run_natively(model, case.feeds, by_python)
    compare(session, model, *({**case.feeds, "signal": numbers(length, 16)} for length in (1, 2, 12)))
    assert not by_python.steps
    end, smooth = session.run(None, {**case.feeds, "signal": numbers(0, 16)})
    np.testing.assert_array_equal(end, case.feeds["start"])
    assert smooth.shape == (0, 16) and len(by_python.steps) == 1


def test_loops_that_end_early(by_python: Counter) -> None:
    """Stacked results are as long as there were iterations; a loop that does not begin is Python's."""
    model = halving()

    def feed(start: float, most: int, begins: bool) -> dict[str, Any]:
        return {"x": np.full((2, 3), start, np.float32), "n": np.array(most), "begins": np.array(begins)}

    session = run_natively(model, feed(100.0, 20, True), by_python)
    compare(session, model, feed(3.0, 20, True), feed(100.0, 3, True), feed(1000.0, 2, True), feed(0.5, 4, True))
    assert not by_python.steps
    for one in (feed(9.0, 0, True), feed(9.0, 5, False)):
        last, _, rows = session.run(None, one)
        np.testing.assert_array_equal(last, one["x"])
        assert len(rows) == 0
    assert len([step for step in by_python.steps if isinstance(step, LoopStep)]) == 2


def test_other_sizes(by_python: Counter) -> None:
    """Python does a loop for them; from the third run in a row on they are those of the link."""
    model = halving()

    def feed(rows: int) -> dict[str, Any]:
        return {"x": numbers(rows, 3) * 50, "n": np.array(9), "begins": np.array(True)}

    session = run_natively(model, feed(2), by_python)
    for rows in (5, 2, 5, 2, 7, 7, 7, 5):
        compare(session, model, feed(rows))
    for _ in range(WARM):
        session.run(None, feed(4))
    by_python.steps.clear()
    compare(session, model, feed(4))
    assert not by_python.steps


@pytest.mark.parametrize("directions", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_directions(directions: tuple[int, int], by_python: Counter) -> None:
    body = graph(
        [
            node("Mul", ["s", "e"], ["p"]),
            node("Add", ["p", "e"], ["t"]),
            node("Identity", ["t"], ["row"]),
            node("Sub", ["e", "s"], ["other"]),
            node("Identity", ["k"], ["k_next"]),
        ],
        [tensor("s", (3,)), tensor("k", (2,)), tensor("e", (3,))],
        [tensor("t", (3,)), tensor("k_next", (2,)), tensor("row", (3,)), tensor("other", (3,))],
    )
    forth, back = directions
    scan = node(
        "Scan",
        ["x", "k0", "w"],
        ["y", "k1", "rows", "others"],
        body=body,
        num_scan_inputs=1,
        scan_input_directions=[forth],
        scan_output_directions=[back, 1 - back],
    )
    model = bytes_of(
        [scan, node("Neg", ["rows"], ["negative"])],
        [tensor("x", (3,)), tensor("k0", (2,)), tensor("w", ("T", 3))],
        [tensor(name, None) for name in ("y", "k1", "rows", "others", "negative")],
    )
    feeds = {"x": numbers(3), "k0": numbers(2), "w": numbers(5, 3)}
    session = run_natively(model, feeds, by_python)
    compare(session, model, {**feeds, "w": numbers(1, 3)}, {**feeds, "w": numbers(8, 3)})


def test_segments_and_choices_around_loops(by_python: Counter) -> None:
    """How often a loop is done tells the sizes of what is behind it; a branch has a loop."""
    body = loop_body(
        [constant("half", 0.5, FLOAT), node("Mul", ["s", "half"], ["t"]), node("Identity", ["t"], ["row"])],
        [tensor("s", None)],
        [tensor("t", None)],
        [tensor("row", None)],
    )
    inner = loop_body([node("Add", ["u", "last"], ["v"])], [tensor("u", None)], [tensor("v", None)])
    then = graph([node("Loop", ["n", "", "last"], ["grown"], body=inner)], [], [tensor("grown", None)], "then")
    other = graph([node("Neg", ["last"], ["negative"])], [], [tensor("negative", None)], "other")
    nodes = [
        node("Exp", ["x"], ["e"]),
        node("Loop", ["n", "", "e"], ["last", "rows"], body=body),
        node("Shape", ["rows"], ["shape"]),
        node("ReduceSum", ["rows"], ["sums"], keepdims=0),
        node("Greater", ["sums", "bound"], ["large"]),
        node("Transpose", ["rows"], ["turned"], perm=[2, 1, 0]),
        node("If", ["large"], ["y"], then_branch=then, else_branch=other),
    ]
    model = bytes_of(
        nodes,
        [tensor("x", ("N", 3)), tensor("n", [], INT64), tensor("bound", [])],
        [tensor("y", None), tensor("turned", None), tensor("shape", None, INT64)],
    )

    def feed(rows: int, often: int, bound: float) -> dict[str, Any]:
        return {"x": numbers(rows, 3), "n": np.array(often), "bound": np.array(bound, np.float32)}

    session = run_natively(model, feed(2, 4, -1e9), by_python)
    for _ in range(WARM):
        compare(session, model, feed(2, 3, 1e9), feed(2, 6, -1e9), feed(4, 2, 0.0), feed(2, 1, 0.0))


def test_errors_in_the_data(by_python: Counter) -> None:
    """An index out of range is Python's to tell, and the next run is native again."""
    nodes = [node("Gather", ["w", "s"], ["g"]), node("Identity", ["g"], ["t"])]
    body = loop_body(nodes, [tensor("s", (2,), INT64)], [tensor("t", (2,), INT64)])
    model = bytes_of(
        [node("Loop", ["n", "", "x"], ["y"], body=body)],
        [tensor("x", (2,), INT64), tensor("w", (4,), INT64), tensor("n", [], INT64)],
        [tensor("y", None, INT64)],
    )
    feed = {"x": np.array([0, 1]), "w": np.array([1, 2, 3, 0]), "n": np.array(5)}
    session = run_natively(model, feed, by_python)
    with pytest.raises(InvalidArgument, match="Gather"):
        session.run(None, {**feed, "w": np.array([1, 2, 7, 0])})
    by_python.steps.clear()
    compare(session, model, feed)
    assert not by_python.steps


def test_elements_by_number(by_python: Counter) -> None:
    """A table is gone through by the number of the iteration; its end is an error."""
    nodes = [node("Gather", ["w", "i"], ["e"]), node("Add", ["s", "e"], ["t"])]
    body = loop_body(nodes, [tensor("s", (3,))], [tensor("t", (3,))])
    model = bytes_of(
        [node("Loop", ["n", "", "x"], ["y"], body=body)],
        [tensor("x", (3,)), tensor("w", ("T", 3)), tensor("n", [], INT64)],
        [tensor("y", None)],
    )
    feed = {"x": numbers(3), "w": numbers(6, 3), "n": np.array(4)}
    session = run_natively(model, feed, by_python)
    compare(session, model, {**feed, "n": np.array(6)}, {**feed, "w": numbers(4, 3)})
    assert not by_python.steps
    with pytest.raises(InvalidArgument):
        session.run(None, {**feed, "n": np.array(7)})
    compare(session, model, feed)


def test_unusual_arrays(by_python: Counter) -> None:
    """Those that do not lie as kernels read them are left to Python."""
    model = halving()
    feed = {"x": numbers(2, 3) * 50, "n": np.array(9), "begins": np.array(True)}
    session = run_natively(model, feed, by_python)
    strided = np.zeros((2, 6), np.float32)
    strided[:, ::2] = feed["x"]
    compare(session, model, {**feed, "x": strided[:, ::2]}, {**feed, "x": feed["x"].astype(">f4").astype("<f4")})


def test_runs_that_overlap() -> None:
    model = halving()
    session = InferenceSession(model)
    theirs = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    wrong: list[int] = []

    def work(rows: int) -> None:
        for often in range(60):
            feed = {
                "x": numbers(rows, 3) * 80,
                "n": np.array(1 + often % 7),
                "begins": np.array(True),
            }
            for ours, expected in zip(session.run(None, feed), theirs.run(None, feed), strict=True):
                if not np.array_equal(ours, expected):
                    wrong.append(rows)

    threads = [threading.Thread(target=work, args=(rows,)) for rows in (2, 2, 2, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("most", [(1 << 63) - 1, 1 << 62])
def test_a_loop_that_its_condition_ends(most: int, by_python: Counter) -> None:
    """TorchScript's `while` is a Loop of 2**63 - 1 iterations at most."""
    nodes = [
        node("Add", ["s", "s"], ["t"]),
        node("ReduceMax", ["t"], ["largest"], keepdims=0),
        node("Less", ["largest", "bound"], ["again"]),
    ]
    body = graph(
        [constant("bound", 100.0, FLOAT), *nodes],
        [tensor("i", [], INT64), tensor("c", [], BOOL), tensor("s", ("N", 3))],
        [tensor("again", [], BOOL), tensor("t", ("N", 3))],
    )
    model = bytes_of(
        [constant("most", most, INT64), node("Loop", ["most", "", "x"], ["y"], body=body)],
        [tensor("x", ("N", 3))],
        [tensor("y", None)],
    )
    run_natively(model, {"x": np.abs(numbers(4, 3)) + np.float32(0.1)}, by_python)
