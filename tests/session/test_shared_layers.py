"""Recurrent layers whose directions the threads of a session share, meeting after every time step."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import jitonnx

STEPS, HIDDEN = 40, 280


@cache
def _model(kind: str, direction: str = "forward", linear: int = 1) -> bytes:
    """A layer over [STEPS, batch, 8], with both states as outputs; the batch is 1 or another."""
    gates, directions = {"LSTM": 4, "GRU": 3}[kind], 2 if direction == "bidirectional" else 1
    random = np.random.default_rng(3)
    weights = {
        name: (random.normal(size=(directions, *shape)) * scale).astype(np.float32)
        for name, shape, scale in (
            ("W", (gates * HIDDEN, 8), 0.3),
            ("R", (gates * HIDDEN, HIDDEN), HIDDEN**-0.5),
            ("B", (2 * gates * HIDDEN,), 0.1),
        )
    }
    outputs = ["Y", "H", *["C"] * (kind == "LSTM")]
    options = {"linear_before_reset": linear} if kind == "GRU" else {}
    node = helper.make_node(kind, ["X", *weights], outputs, hidden_size=HIDDEN, direction=direction, **options)
    graph = helper.make_graph(
        [node],
        "layer",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, [STEPS, "batch", 8])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opset = helper.make_opsetid("", 22)
    return bytes(helper.make_model(graph, opset_imports=[opset], ir_version=10).SerializeToString())


def _session(model: bytes | Path, threads: int) -> jitonnx.InferenceSession:
    options = jitonnx.SessionOptions()
    options.intra_op_num_threads = threads
    return jitonnx.InferenceSession(model, options) if isinstance(model, bytes) else jitonnx.load(model, options)


def _feed(batch: int = 1) -> dict[str, np.ndarray]:
    return {"X": np.random.default_rng(batch).normal(size=(STEPS, batch, 8)).astype(np.float32)}


def _checker(session: jitonnx.InferenceSession, expected: list[np.ndarray]) -> Callable[[], bool]:
    feed = _feed()

    def same() -> bool:
        return all(np.array_equal(*pair) for pair in zip(session.run(None, feed), expected, strict=True))

    return same


@pytest.mark.parametrize(
    ("kind", "direction", "linear"),
    [("LSTM", "forward", 1), ("LSTM", "bidirectional", 1), ("GRU", "reverse", 1), ("GRU", "bidirectional", 0)],
)
def test_threads_do_not_change_bits(kind: str, direction: str, linear: int) -> None:
    """3 threads: more than some machines have CPUs, and with two directions one of them has parts of both or half."""
    model = _model(kind, direction, linear)
    sessions = [_session(model, threads) for threads in (1, 2, 3, 8)]
    for batch in (1, 3, 11, 1):
        expected = sessions[0].run(None, _feed(batch))
        for session in sessions[1:]:
            for _ in range(10):
                for one, other in zip(session.run(None, _feed(batch)), expected, strict=True):
                    np.testing.assert_array_equal(one, other)


def test_runs_at_once() -> None:
    """One run has the team, the others do their work alone."""
    model = _model("GRU", linear=0)
    same = _checker(_session(model, 2), _session(model, 1).run(None, _feed()))
    results: list[bool] = []
    threads = [threading.Thread(target=lambda: results.extend(same() for _ in range(30))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 120


def test_fork() -> None:
    """A child has workers of its own to meet with."""
    model = _model("LSTM")
    same = _checker(_session(model, 2), _session(model, 1).run(None, _feed()))
    assert same()
    for _ in range(3):
        child = os.fork()
        if child == 0:
            os._exit(0 if all(same() for _ in range(10)) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert same()


def test_saved(tmp_path: Path) -> None:
    """What the threads call to give up the CPU is found without LLVM as well."""
    session = _session(_model("GRU"), 2)
    expected = session.run(None, _feed())
    session.save(tmp_path / "layer.jitonnx")
    assert _checker(_session(tmp_path / "layer.jitonnx", 2), expected)()
