"""Programs that share frames: each run finds its own pointers, whatever ran in the frame before."""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from jitonnx.errors import RuntimeException
from jitonnx.runtime.executable import Executable
from jitonnx.runtime.execution_contexts import ExecutionContextPool
from jitonnx.runtime.program import Program, Slot, Step, Steps, Tensors
from tests.runtime.kernels import common, executable, floats, image


def program(elements: int, constant: float, pool: ExecutionContextPool) -> Executable:
    """2x + constant in two steps, by way of the arena."""
    x, y, arena = Slot("input", 0), Slot("output", 0), Slot("arena", 0, 0)
    steps = [
        Step("scale", (x, arena), (elements, 2), 1, 1),
        Step("add", (arena, Slot("constant", 0), y), (elements,), 1, 1),
    ]
    made = Program(
        Steps.of(steps),
        4 * elements,
        [np.full(elements, constant, np.float32)],
        Tensors.of([floats("x", elements)]),
        Tensors.of([floats("y", elements)]),
    )
    return Executable(made, common(made, image()), 1, pool)


def check(made: Executable, elements: int, constant: float) -> None:
    x = np.arange(elements, dtype=np.float32)
    entry = made.entry()
    assert entry is not None
    for _ in range(2):
        outputs = entry({"x": x}) or made.run([x])
        np.testing.assert_array_equal(outputs[0], 2 * x + constant)


def test_programs_alternate_in_one_frame() -> None:
    pool = ExecutionContextPool()
    sizes = [1000, 10, 3000, 1000, 3001, 10]
    made = [program(size, number, pool) for number, size in enumerate(sizes)]
    for _ in range(3):
        for number, size in enumerate(sizes):
            check(made[number], size, number)
            assert pool.kept == 1


def test_a_program_in_the_place_of_one_that_is_gone() -> None:
    """Nothing is taken for loaded because it lies where another program lay."""
    pool = ExecutionContextPool()
    for number in range(50):
        check(program(100, number, pool), 100, number)


def test_sizes_that_grow_a_little_seldom_need_a_new_frame() -> None:
    pool, memory = ExecutionContextPool(), set()
    for size in range(1000, 1200, 2):
        check(program(size, 1, pool), size, 1)
        memory.add((int(pool.frames["memory"][0]), pool.bytes))
        assert pool.bytes <= 1.2 * 4 * size + 1024
    assert len(memory) <= 4


def test_frames_far_too_large_go_above_the_limit() -> None:
    pool = ExecutionContextPool(limit=1 << 16)
    check(program(100_000, 1, pool), 100_000, 1)
    assert pool.bytes > 1 << 16
    small = program(10, 1, pool)
    assert pool.bytes == 0
    check(small, 10, 1)
    assert pool.kept == 1


@pytest.mark.parametrize("threads", [2, 6])
def test_runs_of_several_programs_at_once(threads: int) -> None:
    pool = ExecutionContextPool()
    made = [program(size, size, pool) for size in (10, 5000, 400, 20_000)]

    def work(number: int) -> None:
        size = (10, 5000, 400, 20_000)[number % 4]
        check(made[number % 4], size, size)

    with ThreadPoolExecutor(threads) as workers:
        list(workers.map(work, range(400)))


@pytest.fixture
def switching() -> Iterator[None]:
    """Python's threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_frames_grow_and_go_under_six_threads(switching: None) -> None:
    """Programs of all sizes are made, run in both ways, and dropped again; frames grow, and go above the limit."""
    pool, end = ExecutionContextPool(limit=1 << 18), time.monotonic() + 2

    def work(seed: int) -> None:
        chosen = random.Random(seed)
        made: dict[int, tuple[Executable, int, int]] = {}
        while time.monotonic() < end:
            size, constant = int(2 ** chosen.uniform(0, 16)), chosen.randrange(100)
            made[chosen.randrange(10)] = program(size, constant, pool), size, constant
            for _ in range(10):
                one, size, constant = chosen.choice(list(made.values()))
                check(one, size, constant)

    with ThreadPoolExecutor(6) as workers:
        list(workers.map(work, range(6)))
    assert not pool.frames["owner"].any(), "a frame is lost"
    pool.trim()
    assert pool.kept == 0


def test_short_memory_leaves_the_frame_usable() -> None:
    pool = ExecutionContextPool()
    check(program(10, 1, pool), 10, 1)
    step = Step("nothing", (Slot("arena", 0, 0),))
    huge = Program(Steps.of([step]), 1 << 62, [], Tensors.of([]), Tensors.of([]))
    too_large = Executable(huge, common(huge, image()), 1, pool)
    entry = too_large.entry()
    assert entry is not None and entry({}) is None
    with pytest.raises(RuntimeException, match=r"not enough memory for a run, .* 4611686018427\d+ bytes"):
        too_large.run([])
    assert pool.kept == 0 and not pool.frames["owner"].any()
    check(program(10, 1, pool), 10, 1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_takes_over_frames_that_were_in_use() -> None:
    """Another thread is in the middle of a run when this one forks: the child has its frame, but not the thread."""
    steps = [Step("burn", (), (30_000_000,), scratch=8)]
    long = executable(steps)
    pool = long.frames
    running = threading.Thread(target=long.run, args=([],))
    running.start()
    while not pool.frames["owner"].any():
        time.sleep(0.001)
    assert pool.frames["owner"][0] == running.ident
    child = os.fork()
    if child == 0:
        check(program(10, 1, pool), 10, 1)
        os._exit(0 if pool.kept == 1 and not pool.frames["owner"].any() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert running.is_alive() and pool.frames["owner"][0] == running.ident
    running.join()
