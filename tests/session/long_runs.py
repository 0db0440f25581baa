"""Runs of many seconds that are ended from outside, each in a process of its own.

    python -m tests.session.long_runs NAME THREADS END

END: `signal` (Ctrl-C), `terminate` (that of the run's options), or `handled` (a signal whose handler raises nothing and
runs the session, too; the run is short, and goes on). Prints the seconds from there to the end of the run.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jitonnx import InferenceSession, RunOptions, SessionOptions
from jitonnx.errors import Fail
from tests.session.bodies import bytes_of, constant, graph, numbers
from tests.session.models import BOOL, FLOAT, INT64, node, tensor

WIDTH, ROWS = 1024, 4096
"""They are those of products that take a tenth of a second."""
BEGINS_SECONDS = 0.3
"""It is the time from the begin of a run to what ends it."""


class LongRun(NamedTuple):
    """A model, a feed that takes a fraction of a second, and one that takes many."""

    model: bytes
    short: dict[str, np.ndarray]
    long: dict[str, np.ndarray]


def _products(count: int) -> list[Any]:
    nodes = []
    for number in range(count):
        nodes.append(node("MatMul", [f"x{number}", "w"], [f"m{number}"]))
        nodes.append(node("Tanh", [f"m{number}"], [f"x{number + 1}"]))
    return nodes


def _weights(size: int) -> np.ndarray:
    """Values stay of a usual size by them."""
    return np.eye(size, dtype=np.float32) * 2


def flat() -> LongRun:
    """Many kernels, each of a tenth of a second."""
    size, count = WIDTH, 100
    nodes = [node("Identity", ["x"], ["x0"]), *_products(count), node("Identity", [f"x{count}"], ["y"])]
    model = bytes_of(nodes, [tensor("x", ("N", size)), tensor("w", (size, size))], [tensor("y", None)])
    return LongRun(
        model,
        {"x": numbers(2, size), "w": _weights(size)},
        {"x": numbers(ROWS, size), "w": _weights(size)},
    )


def kernel() -> LongRun:
    """One kernel."""
    size = 9000
    model = bytes_of(
        [node("MatMul", ["x", "w"], ["y"])], [tensor("x", ("N", "K")), tensor("w", ("K", "K"))], [tensor("y", None)]
    )
    return LongRun(
        model,
        {"x": numbers(2, 3), "w": numbers(3, 3)},
        {"x": np.ones((size, size), np.float32), "w": np.ones((size, size), np.float32)},
    )


def _loop(nodes: list[Any], feeds: Callable[[int], dict[str, np.ndarray]], inputs: list[Any]) -> LongRun:
    head = [tensor("i", [], INT64), tensor("c", [], BOOL)]
    body = graph(
        [*nodes, node("Identity", ["c"], ["go"])],
        [*head, tensor("s", None)],
        [tensor("go", [], BOOL), tensor("t", None)],
    )
    main = [node("Loop", ["n", "", "x"], ["y"], body=body)]
    model = bytes_of(main, [*inputs, tensor("n", [], INT64)], [tensor("y", None)])
    return LongRun(model, {**feeds(3), "n": np.array(3)}, {**feeds(ROWS), "n": np.array(1 << 40)})


def short_iterations() -> LongRun:
    """A loop of iterations that take less than a microsecond."""
    return _loop([node("Add", ["s", "x"], ["t"])], lambda _: {"x": numbers(2, 3)}, [tensor("x")])


def long_iterations() -> LongRun:
    """A loop of iterations that take most of a second."""
    size = WIDTH
    nodes = [node("Identity", ["s"], ["x0"]), *_products(10), node("Identity", ["x10"], ["t"])]
    inputs = [tensor("x", ("N", size)), tensor("w", (size, size))]
    return _loop(nodes, lambda rows: {"x": numbers(rows, size), "w": _weights(size)}, inputs)


def host() -> LongRun:
    """A loop with a node on the host."""
    terms = {"mode": "TF", "min_gram_length": 1, "max_gram_length": 1, "max_skip_count": 0}
    pool = {"ngram_counts": [0], "ngram_indexes": [0], "pool_int64s": [1]}
    nodes = [
        node("Cast", ["s"], ["whole"], to=INT64),
        node("TfIdfVectorizer", ["whole"], ["u"], **terms, **pool),
        node("ReduceSum", ["u"], ["r"]),
        node("Add", ["r", "x"], ["t"]),
    ]
    return _loop(nodes, lambda _: {"x": numbers(2, 3)}, [tensor("x")])


def chain() -> LongRun:
    """Segments of sizes that those before tell, with a choice between."""
    size, count = WIDTH, 60
    branch = graph([node("Identity", ["kept"], ["x0"]), *_products(count)], [], [tensor(f"x{count}", None)], "then")
    other = graph([node("Neg", ["kept"], ["negative"])], [], [tensor("negative", None)], "other")
    nodes = [
        constant("axis", [1], INT64),
        constant("zero", 0.0, FLOAT),
        node("ReduceSum", ["x", "axis"], ["sums"], keepdims=0),
        node("Greater", ["sums", "zero"], ["positive"]),
        node("Compress", ["x", "positive"], ["kept"], axis=0),
        node("Shape", ["kept"], ["shape"]),
        node("ReduceProd", ["shape"], ["elements"], keepdims=0),
        constant("none", 0, INT64),
        node("Greater", ["elements", "none"], ["any"]),
        node("If", ["any"], ["y"], then_branch=branch, else_branch=other),
    ]
    model = bytes_of(nodes, [tensor("x", ("N", size)), tensor("w", (size, size))], [tensor("y", None)])
    return LongRun(
        model,
        {"x": np.abs(numbers(2, size)) + 1, "w": _weights(size)},
        {"x": np.abs(numbers(ROWS, size)) + 1, "w": _weights(size)},
    )


RUNS: dict[str, Callable[[], LongRun]] = {
    one.__name__: one for one in (flat, kernel, short_iterations, long_iterations, host, chain)
}


def main(name: str, threads: int, end: str) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background begins with the signal ignored
    case, options = RUNS[name](), SessionOptions()
    options.intra_op_num_threads = threads
    session = InferenceSession(case.model, options)
    expected = session.run(None, case.short)[0]
    for _ in range(2):
        np.testing.assert_array_equal(session.run(None, case.short)[0], expected)
    if end == "handled":
        _handled(session, case, expected)
        return
    for _ in range(2):
        print(_ended(session, case, end), flush=True)
        np.testing.assert_array_equal(session.run(None, case.short)[0], expected)


def _ended(session: InferenceSession, case: LongRun, end: str) -> float:
    options, began = RunOptions(), [0.0]

    def fire() -> None:
        began[0] = time.perf_counter()
        if end == "signal":
            os.kill(os.getpid(), signal.SIGINT)
        else:
            options.terminate = True

    timer = threading.Timer(BEGINS_SECONDS, fire)
    timer.start()
    try:
        session.run(None, case.long, options if end == "terminate" else None)
    except KeyboardInterrupt:
        assert end == "signal"
    except Fail:
        assert end == "terminate"
    else:
        raise AssertionError("the run came to its end")
    seconds = time.perf_counter() - began[0]
    timer.join()
    return seconds


def _handled(session: InferenceSession, case: LongRun, expected: np.ndarray) -> None:
    calls = []

    def handler(*_: Any) -> None:
        np.testing.assert_array_equal(session.run(None, case.short)[0], expected)
        calls.append(time.perf_counter())

    rows = {**case.long, "x": case.long["x"][:500]}
    result = session.run(None, rows)[0]
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.1, 0.3)
    again = session.run(None, rows)[0]
    ended = time.perf_counter()
    signal.setitimer(signal.ITIMER_REAL, 0)
    np.testing.assert_array_equal(again, result)
    assert any(call < ended for call in calls), "the handler was not called during the run"


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
