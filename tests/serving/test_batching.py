"""Which requests share a run, and in which order they are answered."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from typing import Any

import numpy as np
import onnx.parser
import pytest

import jitonnx
from jitonnx.errors import InvalidArgument
from jitonnx.serving.batching import Arrays, Batcher, Limits, Refused
from jitonnx.serving.signature import Tensor, entanglement, made_up, tensors_of


class Recorder:
    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.most_waiting = 0

    def ran(self, requests: int, rows: int, seconds: float) -> None:
        assert requests and rows >= 0 and seconds >= 0

    def waits(self, requests: int) -> None:
        self.most_waiting = max(self.most_waiting, requests)

    def run(self, arrays: Arrays) -> Arrays:
        """Fails for a row of -1; the rows times 2."""
        x = arrays["x"]
        self.batches.append([int(row) for row in x.reshape(-1)])
        time.sleep(0.01)
        if (x == -1).any():
            raise ValueError("minus one")
        return {"y": x * 2}


def asked(limits: Limits, requests: list[np.ndarray]) -> tuple[Recorder, list[Any]]:
    recorder = Recorder()

    async def main() -> list[Any]:
        batcher = Batcher(recorder.run, limits, recorder)
        made = await asyncio.gather(*(batcher.submit({"x": x}) for x in requests), return_exceptions=True)
        await batcher.drain()
        with pytest.raises(Refused, match="ended"):
            await batcher.submit({"x": requests[0]})
        return made

    return recorder, asyncio.run(main())


@pytest.mark.parametrize("short_rows", [0, 64])
@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize("delay", [0.0, 0.02])
def test_each_is_given_its_rows(short_rows: int, runs: int, delay: float) -> None:
    requests = [np.full(count, number) for number, count in enumerate([1, 3, 0, 9, 1, 1, 2, 8, 1] * 3)]
    recorder, made = asked(Limits(8, delay, runs=runs, short_rows=short_rows), requests)
    for given, answer in zip(requests, made, strict=True):
        np.testing.assert_array_equal(answer["y"], given * 2)
    assert max(map(len, recorder.batches)) == 9  # one that is larger runs alone
    assert len(recorder.batches) < len(requests)
    if runs == 1:
        assert [row for batch in recorder.batches for row in batch] == [int(row) for one in requests for row in one]


def test_one_that_fails_fails_alone() -> None:
    recorder, made = asked(Limits(4), [np.array([number]) for number in (0, 1, -1, 3)])
    assert recorder.batches == [[0, 1, -1, 3], [0], [1], [-1], [3]]
    assert [int(answer["y"][0]) for answer in made[:2]] == [0, 2] and int(made[3]["y"][0]) == 6
    assert isinstance(made[2], ValueError)


def test_rows_of_other_shapes_do_not_wait_for_ever() -> None:
    requests = [np.full((1, 1 + number % 2), number) for number in range(8)]
    recorder, made = asked(Limits(2), requests)
    assert all(np.array_equal(answer["y"], one * 2) for one, answer in zip(requests, made, strict=True))
    assert [sorted({*batch}) for batch in recorder.batches] == [[0, 2], [1, 3], [4, 6], [5, 7]]


def test_without_batches_and_with_too_many() -> None:
    recorder, made = asked(Limits(1, most_waiting=5), [np.array([number]) for number in range(8)])
    assert [len(batch) for batch in recorder.batches] == [1] * 5
    assert [isinstance(answer, Refused) for answer in made] == [False] * 5 + [True] * 3


def test_whose_client_has_gone_is_not_run() -> None:
    recorder = Recorder()

    async def main() -> None:
        batcher = Batcher(recorder.run, Limits(1), recorder)
        tasks = [asyncio.ensure_future(batcher.submit({"x": np.array([number])})) for number in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await batcher.drain()

    asyncio.run(main())
    assert recorder.batches == [[0], [2]]


@pytest.mark.parametrize(
    "body, text",
    [
        ("{ y = Relu(x) }", ""),
        ("{ m = ReduceMean<keepdims=1>(x, axis) y = Sub(x, m) }", "depends on the rows beside it"),
        ("{ y = ReduceMax<keepdims=1>(x, axis) }", r"output 'y' is \[1, 3\] for one row, \[1, 3\] for three"),
    ],
)
def test_requests_share_runs_where_rows_do_not_meet(body: str, text: str) -> None:
    graph = '<ir_version: 8, opset_import: ["": 18]> g (float[N,3] x) => (float[M,3] y) <int64[1] axis = {0}>'
    session = jitonnx.InferenceSession(onnx.parser.parse_model(graph + body).SerializeToString())
    rows = made_up(tensors_of(session.get_inputs()))

    def run(arrays: Arrays) -> Arrays:
        return {"y": session.run(None, arrays)[0]}

    assert re.search(text, entanglement(run, rows))
    assert bool(entanglement(run, rows)) == bool(text)
    assert "no two rows" in entanglement(run, {"x": rows["x"][:1]})


def test_types_of_the_protocol() -> None:
    graph = """<ir_version: 8, opset_import: ["": 18]>
    g (float16[N] a, uint8[2,3] b, string[N,K] c, bool[1] d) => (float16[N] e) { e = Neg(a) }"""
    session = jitonnx.InferenceSession(onnx.parser.parse_model(graph).SerializeToString())
    tensors = tensors_of(session.get_inputs())
    assert tensors == (
        Tensor("a", "FP16", (-1,)),
        Tensor("b", "UINT8", (2, 3)),
        Tensor("c", "BYTES", (-1, -1)),
        Tensor("d", "BOOL", (1,)),
    )
    session.run(None, made_up(tensors))
    other = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 18]>
    g (bfloat16[N] a) => (bfloat16[N] e) { e = Identity(a) }""")
    with pytest.raises(InvalidArgument, match=r"'a' is tensor\(bfloat16\)"):
        tensors_of(jitonnx.InferenceSession(other.SerializeToString()).get_inputs())


def test_runs_that_turn_out_longer_are_handed_to_threads() -> None:
    recorder = Recorder()
    threads: set[str] = set()

    def run(arrays: Arrays) -> Arrays:
        threads.add(threading.current_thread().name)
        return recorder.run(arrays)

    async def main() -> None:
        batcher = Batcher(run, Limits(1, short_rows=1), recorder)
        for _ in range(2):
            await batcher.submit({"x": np.zeros(1)})

    asyncio.run(main())
    assert len(threads) == 2 and threading.current_thread().name in threads
