"""Inputs of ever new shapes: programs are kept within bounds of memory and number, and results stay right."""

from __future__ import annotations

import gc
import itertools
import resource
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import jitonnx
from jitonnx.ir.dtypes import DType
from jitonnx.ir.extract import specialise
from jitonnx.ir.types import TensorType
from jitonnx.ops.onnx.arithmetic import Mul
from jitonnx.support.background_jobs import BackgroundExecutor
from jitonnx.support.lru_cache import BackgroundLRUCache, LRUCache, When
from tests.passes.graphs import Build, normal
from tests.session.models import model, node, tensor


def layers() -> bytes:
    """Two products with a softmax between, whose results take much more memory than their weights."""
    weights = {"a": np.eye(8, 64, dtype=np.float32), "b": np.eye(64, 8, dtype=np.float32)}
    nodes = [
        node("MatMul", ["x", "a"], ["m"]),
        node("Softmax", ["m"], ["s"]),
        node("MatMul", ["s", "b"], ["y"]),
    ]
    return model(nodes, [tensor("x", ("batch", "length", 8))], [tensor("y", None)], weights)


def session(**entries: str) -> jitonnx.InferenceSession:
    options = jitonnx.SessionOptions()
    options.intra_op_num_threads = 1
    for name, value in entries.items():
        options.add_session_config_entry(f"jitonnx.{name}", value)
    return jitonnx.InferenceSession(layers(), options)


def resident_bytes() -> int:
    """Memory of this process now, not its peak."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def expected(x: np.ndarray) -> np.ndarray:
    scores = np.exp(np.pad(x, ((0, 0), (0, 0), (0, 56))))
    return (scores / scores.sum(axis=2, keepdims=True))[:, :, :8]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_thousand_shapes_take_bounded_memory() -> None:
    made, limit = session(program_megabytes="4"), 4 << 20
    rng = np.random.default_rng(0)
    sizes = list(itertools.product(range(1, 26), range(1, 41)))
    rng.shuffle(sizes)
    assert len(sizes) == 1000
    levels = []
    for number, (batch, length) in enumerate(sizes):
        x = rng.standard_normal((batch, length, 8)).astype(np.float32)
        (y,) = made.run(None, {"x": x})
        if number % 100 == 0:
            np.testing.assert_allclose(y, expected(x), rtol=1e-5, atol=1e-6)
        if number % 250 == 249:
            gc.collect()
            levels.append(resident_bytes())
            assert made.engine.program_memory <= limit
    # Were all kept, with memory of their own, the last 750 would take 750 * (some 130 KB of arena, 10 KB of tables).
    assert levels[-1] - levels[0] < 20 << 20
    assert 10 < len(made.engine.known_shapes()) < 1000
    assert len(made.engine._programs) < 1000


def test_memory_of_a_large_shape_is_used_by_small_ones_and_freed_above_the_bound() -> None:
    made, small = session(), session(program_megabytes="1")
    for rows in range(3, 12):  # from then on native code makes programs of new sizes
        for one in (made, small):
            one.run(None, {"x": np.ones((1, rows, 8), np.float32)})
    held = []
    for rows in (3000, 4000, 100, 3000):
        x = np.ones((1, rows, 8), np.float32)
        for one in (made, small):
            np.testing.assert_allclose(one.run(None, {"x": x})[0], expected(x), rtol=1e-5)
        assert made.engine.frames.kept == 1
        held.append((made.engine.frames.bytes, small.engine.frames.bytes))
    (first, _), (most, _), (after, freed), (again, _) = held
    assert first < most == after == again
    assert freed < first / 10


@pytest.mark.parametrize("text", ["0", "-1", "much", "1.5"])
def test_a_bound_that_is_none(text: str) -> None:
    with pytest.raises(
        jitonnx.errors.InvalidArgument, match=r"jitonnx\.program_megabytes is .*; give a number of mega"
    ):
        session(program_megabytes=text)


def test_kept_lets_go_of_what_was_used_longest_ago() -> None:
    cache: LRUCache[bytes] = LRUCache(3, len, 10)
    for key in "abc":
        cache.get(key, lambda: b"..")
    assert cache.find("a") == b".." and cache.keys() == ["b", "c", "a"]
    cache.get("d", lambda: b"......")
    assert cache.keys() == ["c", "a", "d"] and cache.bytes == 10
    cache.get("e", lambda: b"." * 100)
    assert cache.keys() == ["e"] and list(cache) == [b"." * 100] and len(cache) == 1


def test_kept_sees_what_grows_later() -> None:
    cache: LRUCache[list[int]] = LRUCache(1000, len, 400)
    for key in range(100):
        cache.get(key, lambda: [0])
    for entry in cache:
        entry.extend(range(9))
    for key in range(100, 113):
        cache.get(key, lambda: [0])
    assert cache.bytes <= 400 and cache.keys()[-1] == 112


def test_what_is_kept_is_found_while_something_is_made() -> None:
    cache: LRUCache[str] = LRUCache(10)
    cache.get("there", lambda: "found")
    begun, enough = threading.Event(), threading.Event()

    def slow() -> str:
        begun.set()
        assert enough.wait(60)
        return "made once"

    with ThreadPoolExecutor(3) as executor:
        making = [executor.submit(cache.get, "slow", slow) for _ in range(3)]
        assert begun.wait(60) and cache.find("there") == "found" and cache.find("slow") is None
        enough.set()
        assert {one.result() for one in making} == {"made once"}


def test_a_run_that_ends_behind_close_does_not_open_the_session_again() -> None:
    made = session()
    x = np.ones((1, 2, 8), np.float32)
    made.run(None, {"x": x})
    runs, entry = made._runs, made._runs.entry
    made.close()
    runs._expect(entry)
    for run in (lambda: made.run(None, {"x": x}), lambda: made.engine, lambda: made.run_async(None, {"x": x})):
        with pytest.raises(RuntimeError, match="the session is closed"):
            run()


def test_what_is_left_to_the_background() -> None:
    executor = BackgroundExecutor()
    cache: BackgroundLRUCache[int] = BackgroundLRUCache(2, executor)
    assert cache.get("now", lambda stop: 1, When.NOW) == 1
    assert cache.get("again", lambda stop: 2, When.AGAIN) is None
    assert cache.find("again") is None and len(cache) == 1, "asked for once only"
    assert cache.get("behind", lambda stop: 3, When.BACKGROUND) is None
    assert cache.get("again", lambda stop: 2, When.AGAIN) is None
    executor.submit(lambda stop: None).wait()
    assert cache.get("again", lambda stop: 4, When.AGAIN) == 2 and cache.find("behind") == 3
    assert list(cache) == [2, 3]
    executor.close()


def test_a_copied_graph_dies_with_its_last_reader() -> None:
    build = Build()
    build.graph.outputs = [build.op(Mul(), build.input(normal(2, 3), ("rows", 3)), normal(3))]
    copy = specialise(build.graph, [TensorType(DType.FLOAT, (2, 3))])
    node = weakref.ref(next(iter(copy)))
    del copy
    gc.collect()
    assert node() is None
