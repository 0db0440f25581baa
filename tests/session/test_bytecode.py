"""Native steps whose sizes only a run tells are done by one call: what they give, and when Python does them instead."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx.parser
import onnxruntime
import pytest

from bench import boxes
from jitonnx import InferenceSession, SessionOptions
from jitonnx.engine.schedule import NativeStep, Schedule
from jitonnx.errors import InvalidArgument
from jitonnx.plan import size_program
from tests.session.bodies import assert_same, graph
from tests.session.models import FLOAT, INT64, model, node, tensor

WARM = 12
"""Runs in which sizes are recorded."""
WEIGHTS = np.random.default_rng(7).standard_normal((6, 5)).astype(np.float32)


@pytest.fixture(autouse=True)
def recording_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is recorded as soon as it is met."""
    monkeypatch.setattr(size_program, "_RECORDING_SECONDS", 60.0)


class Counter:
    """How many steps Python has done."""

    def __init__(self) -> None:
        self.steps = 0


@pytest.fixture
def by_python(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter]:
    counter, call = Counter(), NativeStep.__call__

    def counted(step: NativeStep, *arguments: Any) -> None:
        counter.steps += 1
        call(step, *arguments)

    monkeypatch.setattr(NativeStep, "__call__", counted)
    yield counter


def sessions(data: bytes, threads: int = 1) -> tuple[InferenceSession, onnxruntime.InferenceSession]:
    options = SessionOptions()
    options.intra_op_num_threads = threads
    theirs = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    return InferenceSession(data, options), theirs


def compare(pair: tuple[InferenceSession, onnxruntime.InferenceSession], feeds: dict[str, Any]) -> None:
    ours, theirs = pair
    for one, other in zip(ours.run(None, feeds), theirs.run(None, feeds), strict=True):
        assert_same(one, other)


def chosen_rows() -> bytes:
    """The rows whose first element is positive, through two products; of these again those, and how many there are."""
    nodes = [
        node("Gather", ["x", "zero"], ["first"], axis=1),
        node("Greater", ["first", "null"], ["above"]),
        node("Compress", ["x", "above"], ["rows"], axis=0),
        node("MatMul", ["rows", "w"], ["y"]),
        node("ReduceMax", ["y", "last"], ["best"], keepdims=0),
        node("Greater", ["best", "null"], ["sure"]),
        node("NonZero", ["sure"], ["places"]),
        node("Squeeze", ["places", "zeros"], ["index"]),
        node("Gather", ["y", "index"], ["kept"]),
        node("Shape", ["kept"], ["count"]),
    ]
    constants = {
        "zero": np.array(0),
        "zeros": np.array([0]),
        "last": np.array([1]),
        "null": np.array(0, np.float32),
        "w": WEIGHTS,
    }
    outputs = [tensor("y", ("n", 5)), tensor("kept", ("k", 5)), tensor("count", (2,), INT64)]
    return model(nodes, [tensor("x", ("N", 6))], outputs, constants)


def rows(seed: int, count: int, shift: float = 0.0) -> np.ndarray:
    made = np.random.default_rng(seed).standard_normal((count, 6)).astype(np.float32)
    return made + np.float32(shift)


@pytest.mark.parametrize("threads", [1, 2])
def test_sizes_that_steps_tell_need_no_python(threads: int, by_python: Counter) -> None:
    pair = sessions(chosen_rows(), threads)
    sizes = [int(count) for count in np.random.default_rng(0).integers(1, 90, WARM)]
    for seed, count in enumerate([*sizes, 0, 400, 1]):
        for shift in (0.0, -9.0, 9.0):
            compare(pair, {"x": rows(seed, count, shift)})
    by_python.steps = 0
    for seed, count in enumerate([17, 3, 64, 0, 5, 91, 200, 33]):
        compare(pair, {"x": rows(seed, count)})
    assert by_python.steps == 0


def test_a_detector_needs_no_python(by_python: Counter) -> None:
    pair = sessions(boxes.detector().SerializeToString())
    images = boxes.images(24, 64)
    for image in images[:12]:
        compare(pair, {"x": image})
    by_python.steps = 0
    for image in images[12:]:
        compare(pair, {"x": image})
    assert by_python.steps <= 4  # where a size is the first of its kind


def test_outputs_belong_to_the_caller() -> None:
    session, _ = sessions(chosen_rows())
    for seed in range(6):
        x = rows(seed, 30)
        first = session.run(None, {"x": x})
        copies = [array.copy() for array in first]
        session.run(None, {"x": rows(seed + 50, 31)})
        for array, copy in zip(first, copies, strict=True):
            np.testing.assert_array_equal(array, copy)
            assert array.flags.writeable and array.flags.owndata


def test_inputs_that_do_not_lie_as_usual() -> None:
    pair = sessions(chosen_rows())
    for seed in range(8):
        compare(pair, {"x": rows(seed, 20 + seed)})
    x = rows(3, 24)
    compare(pair, {"x": np.asfortranarray(x)})
    compare(pair, {"x": np.repeat(x, 2, axis=0)[::2]})
    compare(pair, {"x": x})


def ranged() -> bytes:
    """x repeated as often as the largest index in `i` says, from a table that `i` reads."""
    nodes = [
        node("Gather", ["table", "i"], ["read"]),
        node("ReduceMax", ["read"], ["most"], keepdims=0),
        node("Range", ["none", "most", "one"], ["numbers"]),
        node("Cast", ["numbers"], ["floats"], to=FLOAT),
        node("Unsqueeze", ["floats", "axis"], ["column"]),
        node("Add", ["column", "x"], ["y"]),
    ]
    constants = {
        "table": np.array([3, 8, 1, 5, 0, 2, 30], np.int64),
        "none": np.array(0),
        "one": np.array(1),
        "axis": np.array([1]),
    }
    inputs = [tensor("i", ("n",), INT64), tensor("x", (4,))]
    return model(nodes, inputs, [tensor("y", None)], constants)


def test_elements_that_are_sizes_and_indices_out_of_range(by_python: Counter) -> None:
    pair = sessions(ranged())
    x = np.arange(4, dtype=np.float32)
    random = np.random.default_rng(1)
    for _ in range(3 * WARM):
        compare(pair, {"i": random.integers(0, 7, int(random.integers(1, 6))), "x": x})
    by_python.steps = 0
    for indices in ([0], [1, 2], [6, 5], [4], [3, 3]):
        compare(pair, {"i": np.array(indices), "x": x})
    assert by_python.steps <= 2
    for _ in range(2):
        with pytest.raises(InvalidArgument, match=r"out of|outside"):
            pair[0].run(None, {"i": np.array([7]), "x": x})
        compare(pair, {"i": np.array([1]), "x": x})


def branches(least: int) -> bytes:
    """Rows that are chosen; of more than `least` the product, else rows of another number; a sum of columns behind."""
    big = [node("MatMul", ["rows", "w"], ["m"]), node("Relu", ["m"], ["big"])]
    small = [node("Concat", ["rows", "rows"], ["twice"], axis=0), node("Slice", ["twice", "a", "b", "c"], ["small"])]
    nodes = [
        node("Gather", ["x", "zero"], ["first"], axis=1),
        node("Greater", ["first", "null"], ["above"]),
        node("Compress", ["x", "above"], ["rows"], axis=0),
        node("Cast", ["above"], ["ones"], to=INT64),
        node("ReduceSum", ["ones"], ["count"], keepdims=0),
        node("Greater", ["count", "least"], ["several"]),
        node(
            "If",
            ["several"],
            ["chosen"],
            then_branch=graph(big, [], [tensor("big", None)], "then"),
            else_branch=graph(small, [], [tensor("small", None)], "else"),
        ),
        node("ReduceSum", ["chosen", "axes"], ["y"], keepdims=0),
        node("Exp", ["chosen"], ["e"]),
    ]
    constants = {
        "zero": np.array(0),
        "null": np.array(0, np.float32),
        "w": WEIGHTS,
        "least": np.array(least),
        "axes": np.array([0]),
        "a": np.array([0]),
        "b": np.array([5]),
        "c": np.array([1]),
    }
    return model(
        nodes, [tensor("x", ("N", 6))], [tensor("e", None), tensor("y", None), tensor("rows", None)], constants
    )


def test_branches_need_no_python(by_python: Counter) -> None:
    pair = sessions(branches(8))
    random = np.random.default_rng(3)
    for seed in range(3 * WARM):
        compare(pair, {"x": rows(seed, int(random.integers(0, 40)))})
    by_python.steps = 0
    for seed in range(10):
        compare(pair, {"x": rows(seed, int(random.integers(1, 40)))})
    assert by_python.steps <= 2


def test_a_branch_that_was_never_taken_is_right() -> None:
    pair = sessions(branches(8))
    for seed in range(WARM):
        compare(pair, {"x": rows(seed, 40)})
    for seed in range(WARM):
        compare(pair, {"x": rows(seed, 4)})


def test_runs_on_several_threads_share_nothing() -> None:
    session, theirs = sessions(chosen_rows(), 2)
    feeds = [{"x": rows(seed, 5 + 7 * seed)} for seed in range(12)]
    wanted = [theirs.run(None, feed) for feed in feeds]
    wrong: list[str] = []

    def work(first: int) -> None:
        for number in range(60):
            place = (first + number * 5) % len(feeds)
            for one, other in zip(session.run(None, feeds[place]), wanted[place], strict=True):
                try:
                    assert_same(one, other)
                except AssertionError as error:
                    wrong.append(str(error))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_steps_of_one_size_are_chained() -> None:
    """Programs that serve all sizes are links, too."""
    nodes = [
        node("MatMul", ["x", "w"], ["m"]),
        node("Greater", ["m", "null"], ["above"]),
        node("NonZero", ["above"], ["places"]),
        node("Transpose", ["places"], ["pairs"]),
        node("GatherND", ["m", "pairs"], ["y"]),
    ]
    constants = {"w": WEIGHTS, "null": np.array(0, np.float32)}
    data = model(nodes, [tensor("x", (7, 6))], [tensor("y", ("n",)), tensor("m", (7, 5))], constants)
    pair = sessions(data)
    for seed in range(WARM):
        compare(pair, {"x": rows(seed, 7)})
    schedule = pair[0].engine.schedule
    assert isinstance(schedule, Schedule) and list(schedule._known_chains())


def test_an_axis_of_what_an_if_gives_tells_two_variables() -> None:
    """A Cast to the same type behind an If leaves one value, which tells the sizes of both."""
    parsed = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 16]>
        g (float[2,2,n] x, bool other, int64 place) => (int64 size, float[?,?,?] y) <int64[1] first = {0}>
        {
           taken = If (other) <
              else_branch: graph = a () => (float[] a1) { a1 = Concat <axis = -2> (x, x) },
              then_branch: graph = b () => (float[] b1) { b1 = Concat <axis = 0> (x, x) }
           >
           shape = Shape (taken)
           some = Gather (shape, first)
           size = Gather <axis = 0> (some, place)
           y = Cast <to = 1> (taken)
        }"""
    )
    pair = sessions(parsed.SerializeToString())
    for other in (False, False, False, True, True, False):
        compare(pair, {"x": np.ones((2, 2, 5), np.float32), "other": np.array(other), "place": np.array(0)})
    assert pair[0].compile_status.numpy_runs == 0


def test_a_condition_of_one_truth_value_of_some_rank() -> None:
    """Classifiers of wake words choose another network so: it is a jump within one native call."""
    parsed = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 18]>
        g (float[1,3] x) => (float[1,3] y)
        <float[3,3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9}, float[1] least = {0}, int64[1] axis = {1}>
        {
           total = ReduceSum (x, axis)
           above = Greater (total, least)
           first = MatMul (x, w)
           y = If (above) <
              then_branch: graph = a () => (float[1,3] a1) { a0 = MatMul (first, w) a1 = Exp (a0) },
              else_branch: graph = b () => (float[1,3] b1) { b1 = Identity (first) }
           >
        }"""
    )
    pair = sessions(parsed.SerializeToString())
    for sign in (1, -1, -1, 1, 1):
        compare(pair, {"x": np.float32([[0.01, 0.02, 0.03]]) * sign})
    schedule = pair[0].engine.schedule
    assert isinstance(schedule, Schedule) and schedule._whole is not None
