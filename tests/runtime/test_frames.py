"""Programs that share frames: each run finds its own pointers, whatever ran in the frame before."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from jitonnx.runtime.executable import Executable
from jitonnx.runtime.frames import FramePool
from jitonnx.runtime.program import Program, Slot, Step, Steps, Tensors
from tests.runtime.kernels import common, floats, image


def program(elements: int, constant: float, pool: FramePool) -> Executable:
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
    pool = FramePool()
    sizes = [1000, 10, 3000, 1000, 3001, 10]
    made = [program(size, number, pool) for number, size in enumerate(sizes)]
    for _ in range(3):
        for number, size in enumerate(sizes):
            check(made[number], size, number)
            assert pool.kept == 1


def test_a_program_in_the_place_of_one_that_is_gone() -> None:
    """Nothing is taken for loaded because it lies where another program lay."""
    pool = FramePool()
    for number in range(50):
        check(program(100, number, pool), 100, number)


def test_sizes_that_grow_a_little_seldom_need_a_new_frame() -> None:
    pool, memory = FramePool(), set()
    for size in range(1000, 1200, 2):
        made = program(size, 1, pool)
        check(made, size, 1)
        with made.frame() as frame:
            memory.add(id(frame.memory))
            assert frame.memory.nbytes <= 1.2 * 4 * size + 1024
    assert len(memory) <= 4


def test_frames_far_too_large_go_above_the_limit() -> None:
    pool = FramePool(limit=1 << 16)
    check(program(100_000, 1, pool), 100_000, 1)
    assert pool.bytes > 1 << 16
    small = program(10, 1, pool)
    assert pool.bytes == 0
    check(small, 10, 1)
    assert pool.kept == 1


@pytest.mark.parametrize("threads", [2, 6])
def test_runs_of_several_programs_at_once(threads: int) -> None:
    pool = FramePool()
    made = [program(size, size, pool) for size in (10, 5000, 400, 20_000)]

    def work(number: int) -> None:
        size = (10, 5000, 400, 20_000)[number % 4]
        check(made[number % 4], size, size)

    with ThreadPoolExecutor(threads) as workers:
        list(workers.map(work, range(400)))
