"""Runs on inputs of ever new sizes, whose programs native code makes: what they give, and who does the others."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jitonnx
from bench.decoder import SIZES, decoder
from jitonnx import InferenceSession
from jitonnx.api.running import Runs
from jitonnx.api.targets import in_place
from jitonnx.engine.lent import Lent
from jitonnx.engine.resized import Resized
from jitonnx.plan import size_program
from jitonnx.runtime import driver
from tests.session.models import INT64, model, node, tensor

WARM = 8
"""Runs in which sizes are recorded."""


@pytest.fixture(autouse=True)
def recording_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is recorded as soon as it is met."""
    monkeypatch.setattr(size_program, "_RECORDING_SECONDS", 60.0)


class Counter:
    """How many runs native code has done alone, and how many Python looked at."""

    def __init__(self) -> None:
        self.native = self.carefully = 0


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter]:
    driver.image("chains")  # else it is compiled beside the first runs, which Python does meanwhile
    counter, run, read = Counter(), Resized.run, Runs._read

    def native(resized: Resized, arrays: list[Any]) -> bool:
        done = run(resized, arrays)
        counter.native += done
        return done

    def careful(*arguments: Any) -> Any:
        counter.carefully += 1
        return read(*arguments)

    monkeypatch.setattr(Resized, "run", native)
    monkeypatch.setattr(Runs, "_read", careful)
    yield counter


def grown(kind: str = "N") -> bytes:
    """y = (x | x) + 1 and the sum of x's rows; x has N rows of 3."""
    nodes = [
        node("Concat", ["x", "x"], ["twice"], axis=0),
        node("Add", ["twice", "one"], ["y"]),
        node("ReduceSum", ["x", "axis"], ["s"], keepdims=0),
    ]
    constants = {"one": np.float32(1), "axis": np.array([0])}
    return model(nodes, [tensor("x", (kind, 3))], [tensor("y", ("M", 3)), tensor("s", (3,))], constants)


def rows(count: int) -> np.ndarray:
    return np.random.default_rng(count).standard_normal((count, 3)).astype(np.float32)


def check(session: InferenceSession, x: np.ndarray) -> None:
    y, total = session.run(None, {"x": x})
    np.testing.assert_array_equal(y, np.concatenate([x, x]) + 1)
    np.testing.assert_allclose(total, x.sum(0), rtol=1e-4, atol=1e-5)


def test_new_sizes_are_native_and_those_that_come_back_get_a_program(runs: Counter) -> None:
    session = InferenceSession(grown())
    for count in range(2, 2 + WARM):
        check(session, rows(count))
    runs.native = runs.carefully = 0
    for count in range(30, 40):
        check(session, rows(count))
    assert (runs.native, runs.carefully) == (10, 0)
    for _ in range(3):
        check(session, rows(35))
    assert (runs.native, runs.carefully) == (10, 1)
    assert session.engine.known_program(((35, 3),)) is not None
    assert {((count, 3),) for count in range(30, 40)} <= set(session.engine.known_shapes())  # type: ignore[union-attr]


def test_outputs_are_the_callers_own() -> None:
    session = InferenceSession(grown())
    kept = [session.run(None, {"x": rows(count)})[0] for count in range(2, 20)]
    for count, y in enumerate(kept, 2):
        np.testing.assert_array_equal(y, np.concatenate([rows(count)] * 2) + 1)


def test_unusual_inputs_are_looked_at(runs: Counter) -> None:
    session = InferenceSession(grown())
    for count in range(2, 2 + WARM):
        check(session, rows(count))
    runs.native = 0
    check(session, rows(40)[::2])
    check(session, rows(41).astype(">f4"))
    check(session, np.asfortranarray(rows(42)))
    assert runs.native == 0
    check(session, np.zeros((0, 3), np.float32))
    for wrong in (rows(43).astype(np.float64), rows(43)[:, :2], rows(43)[0]):
        with pytest.raises(jitonnx.errors.InvalidArgument):
            session.run(None, {"x": wrong})
    with pytest.raises(jitonnx.errors.InvalidArgument):
        session.run(None, {"x": rows(44), "z": rows(44)})
    with pytest.raises(jitonnx.errors.InvalidArgument):
        session.run(None, {})
    check(session, rows(45))


def bound(session: InferenceSession, x: np.ndarray, y: np.ndarray | None) -> list[np.ndarray]:
    binding = session.io_binding()
    return bound_again(session, binding, x, y)


def bound_again(session: InferenceSession, binding: Any, x: np.ndarray, y: np.ndarray | None) -> list[np.ndarray]:
    binding.bind_cpu_input("x", x)
    if y is None:
        binding.bind_output("y")
    else:
        binding.bind_ortvalue_output("y", jitonnx.OrtValue.ortvalue_from_numpy(y))
    binding.bind_output("s")
    session.run_with_iobinding(binding)
    return [one.numpy() for one in binding.get_outputs()]


def test_outputs_are_written_where_the_caller_wants_them(runs: Counter) -> None:
    session = InferenceSession(grown())
    binding = session.io_binding()
    for count in range(2, 30):
        x, target = rows(count), np.full((2 * count, 3), 9, np.float32)
        y, total = bound_again(session, binding, x, target if count % 2 else None)
        np.testing.assert_array_equal(y, np.concatenate([x, x]) + 1)
        np.testing.assert_allclose(total, x.sum(0), rtol=1e-4, atol=1e-5)
        if count % 2:
            assert np.shares_memory(y, target)
    assert runs.native >= 28 - WARM
    native = runs.native
    session.run_with_iobinding(binding)  # nothing was bound since
    session.run_with_iobinding(binding)
    assert runs.native == native


def test_targets_that_do_not_fit_are_refused() -> None:
    session = InferenceSession(grown())
    for count in range(2, 2 + WARM):
        check(session, rows(count))
    with pytest.raises(jitonnx.errors.InvalidArgument, match="Got invalid dimensions for output"):
        bound(session, rows(50), np.zeros((99, 3), np.float32))


@pytest.mark.parametrize("begin", [0, 3, 30])
def test_targets_that_share_memory_with_inputs(begin: int, runs: Counter) -> None:
    """What would be overwritten before it is read is written behind the run."""
    session = InferenceSession(grown())
    for count in range(2, 2 + WARM):
        check(session, rows(count))
    runs.native = 0
    memory = np.zeros((60, 3), np.float32)
    x, target = memory[begin : begin + 10], memory[:20]
    x[...] = given = rows(10)
    y, total = bound(session, x, target)
    np.testing.assert_array_equal(y, np.concatenate([given, given]) + 1)
    np.testing.assert_allclose(total, given.sum(0), rtol=1e-4, atol=1e-5)
    assert runs.native == (begin == 30)


def test_two_targets_in_the_same_memory() -> None:
    nodes = [node("Add", ["x", "x"], ["a"]), node("Neg", ["x"], ["b"])]
    session = InferenceSession(model(nodes, [tensor("x", ("N",))], [tensor("a", ("N",)), tensor("b", ("N",))]))
    for count in range(2, 2 + WARM):
        session.run(None, {"x": np.ones(count, np.float32)})
    memory, x = np.zeros(40, np.float32), np.arange(20, dtype=np.float32)
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_ortvalue_output("a", jitonnx.OrtValue.ortvalue_from_numpy(memory[:20]))
    binding.bind_ortvalue_output("b", jitonnx.OrtValue.ortvalue_from_numpy(memory[10:30]))
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(memory[:10], 2 * x[:10])
    np.testing.assert_array_equal(memory[10:30], -x)


def test_caches_are_updated_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python has a part in few of the steps: those by which kernels split their work in another way than before."""
    careful = 0

    def noted(*given: Any) -> Any:
        nonlocal careful
        careful += 1
        return in_place(*given)

    session = InferenceSession(decoder(SIZES["tiny"], 4).SerializeToString())
    expected = InferenceSession(decoder(SIZES["tiny"], 4).SerializeToString())
    binding = session.io_binding()
    caches: dict[str, Any] = {}
    for one in session.get_inputs()[2:]:
        caches[one.name] = np.zeros((1, one.shape[1], 64, one.shape[3]), np.float32)
        value = jitonnx.OrtValue.ortvalue_from_numpy(caches[one.name])
        binding.bind_ortvalue_input(one.name, value)
        binding.bind_ortvalue_output(one.name.replace("past", "present"), value)
    pasts = {name: cache.copy() for name, cache in caches.items()}
    monkeypatch.setattr("jitonnx.api.running.in_place", noted)
    names = [one.name for one in expected.get_outputs()]
    for length in range(1, 30):
        ids, mask = np.array([[length * 7 % 500]]), np.ones((1, length), np.int64)
        binding.bind_cpu_input("ids", ids)
        binding.bind_cpu_input("attention_mask", mask)
        binding.bind_output("logits")
        session.run_with_iobinding(binding)
        given = dict(zip(names, expected.run(None, {"ids": ids, "attention_mask": mask, **pasts}), strict=True))
        np.testing.assert_array_equal(binding.get_outputs()[-1].numpy(), given["logits"])
        pasts = {name: given[name.replace("past", "present")] for name in pasts}
        for name, cache in caches.items():
            np.testing.assert_array_equal(cache, pasts[name])
    assert careful < WARM


def test_errors_in_the_data_are_told() -> None:
    nodes = [node("Gather", ["table", "i"], ["y"])]
    inputs, outputs = [tensor("i", ("N",), INT64)], [tensor("y", ("N", 2))]
    table = np.arange(10, dtype=np.float32).reshape(5, 2)
    session = InferenceSession(model(nodes, inputs, outputs, {"table": table}))
    for count in range(2, 2 + WARM):
        session.run(None, {"i": np.zeros(count, np.int64)})
    with pytest.raises(jitonnx.errors.InvalidArgument, match="Gather"):
        session.run(None, {"i": np.full(40, 7)})
    np.testing.assert_array_equal(session.run(None, {"i": np.arange(5)})[0], table)


def test_outputs_that_are_not_as_declared_are_told_of() -> None:
    """They are so for some sizes only: half of an even number, rounded down, is half of the next one, too."""
    nodes = [node("Slice", ["x", "begin", "end", "axes", "steps"], ["y"])]
    constants = {"begin": np.array([0]), "end": np.array([1000]), "axes": np.array([0]), "steps": np.array([2])}
    inputs = [tensor("x", ("N",)), tensor("z", ("M",))]
    nodes.append(node("Neg", ["z"], ["w"]))
    session = InferenceSession(model(nodes, inputs, [tensor("y", ("M",)), tensor("w", ("M",))], constants))

    def run(count: int, half: int) -> None:
        x, z = np.arange(count, dtype=np.float32), np.ones(half, np.float32)
        np.testing.assert_array_equal(session.run(None, {"x": x, "z": z})[0], x[::2])

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for count in range(4, 30, 2):
            run(count, count // 2)
    with pytest.warns(UserWarning, match="dimension 'M'"):
        run(41, 20)


def test_sizes_that_a_plan_does_not_hold_for_get_another(runs: Counter) -> None:
    nodes = [node("Add", ["a", "b"], ["y"])]
    session = InferenceSession(model(nodes, [tensor("a", ("N", 4)), tensor("b", ("M", 4))], [tensor("y", ("K", 4))]))
    generator = np.random.default_rng(0)
    for n, m in [(n, n) for n in range(2, 12)] + [(n, 1) for n in range(2, 22)] + [(1, 5), (7, 7), (30, 30), (31, 31)]:
        a, b = (generator.standard_normal((size, 4)).astype(np.float32) for size in (n, m))
        np.testing.assert_array_equal(session.run(None, {"a": a, "b": b})[0], a + b)
    assert runs.native


def test_a_session_of_the_cache_runs_new_sizes_natively(tmp_path: Path, runs: Counter) -> None:
    path = tmp_path / "grown.onnx"
    path.write_bytes(grown())
    for _ in range(2):
        session = InferenceSession(str(path))
        for count in range(2, 2 + 2 * WARM):
            check(session, rows(count))
        session.close()
    assert runs.native


def test_many_threads_run_new_sizes_at_once() -> None:
    session = InferenceSession(grown())
    for count in range(2, 2 + WARM):
        check(session, rows(count))
    errors: list[BaseException] = []

    def work(first: int) -> None:
        try:
            for count in range(first, first + 300, 6):
                check(session, rows(count))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(20 + number,)) for number in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not errors


def test_no_more_is_lent_than_may_be() -> None:
    """However many threads find that one more may be made."""
    taken = []

    def make() -> object:
        time.sleep(0.01)
        return object()

    calls = Lent(make, 4)
    threads = [threading.Thread(target=lambda: taken.append(calls.take())) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lent = [one for one in taken if one is not None]
    assert len(set(lent)) == len(lent) == 4 and calls.take() is None
    calls.give(lent[0])
    assert calls.take() is lent[0]


def test_what_cannot_be_made_is_not_counted() -> None:
    failing = iter([True, False])

    def make() -> object:
        if next(failing):
            raise MemoryError
        return object()

    calls = Lent(make, 1)
    with pytest.raises(MemoryError):
        calls.take()
    assert calls.take() is not None
