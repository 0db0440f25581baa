"""Steps shared by claims: nobody waits for a member that does not come, and nothing breaks when one comes late."""

import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from jitonnx.errors import InvalidArgument
from jitonnx.runtime.executable import Executable
from jitonnx.runtime.program import Flag, Program, Slot, Step, Steps, Tensors
from jitonnx.runtime.threads import allowed_cpus
from tests.runtime.kernels import chain, common, executable, floats, image, words

X = np.arange(4096, dtype=np.float32)


@pytest.mark.parametrize("size", [2, 3, 9])
def test_members_that_never_come_are_not_waited_for(size: int) -> None:
    """The calling thread does the parts of workers that were counted as started, but have no thread."""
    program = chain(40, 4096, 64, size)
    team = program.loadable.team
    assert team is not None
    team._record["started"] = size - 1
    for _ in range(20):
        np.testing.assert_array_equal(program.run([X])[0], X + 40)
    team._record["started"] = 0
    for _ in range(20):
        np.testing.assert_array_equal(program.run([X])[0], X + 40)
    assert team.workers == size - 1


def test_a_member_in_the_middle_of_its_piece_is_waited_for() -> None:
    """One task is long, the others short: its step ends with it, whoever does it, and the next reads what it wrote."""
    steps = [
        Step("burn", (), (0,), 1, 1, scratch=8),
        Step("burn", (), (400_000,), 2, 2, scratch=8),
        Step("add_one", (Slot("input", 0), Slot("output", 0)), (64,), 64, 2),
    ]
    program = executable(steps, inputs=[floats("x", 4096)], outputs=[floats("y", 4096)], threads=2)
    for _ in range(50):
        np.testing.assert_array_equal(program.run([X])[0], X + 1)


def _program(length: int, tasks: int, threads: int) -> Executable:
    return chain(length, 4096, tasks, threads)


@pytest.mark.parametrize("size", [2, 4])
def test_frames_come_and_go_under_late_members(size: int) -> None:
    """Python threads run, trim, make and drop programs that share a team, while the CPUs are taken by others."""
    load = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(allowed_cpus())]
    end = time.monotonic() + 3
    kept = _program(25, 64, size)
    kept.run([X])

    def work(number: int) -> int:
        choices, runs = random.Random(number), 0
        while time.monotonic() < end:
            length = choices.choice([1, 3, 30])
            mine = _program(length, choices.choice([2, 8, 64, 512]), size)
            for _ in range(choices.randrange(1, 30)):
                np.testing.assert_array_equal(mine.run([X])[0], X + length)
                np.testing.assert_array_equal(kept.run([X])[0], X + 25)
                runs += 1
            if choices.random() < 0.5:
                kept.trim()
        return runs

    try:
        with ThreadPoolExecutor(6) as pool:
            assert all(runs > 0 for runs in pool.map(work, range(6)))
    finally:
        for process in load:
            process.kill()
            process.wait()


def test_thousands_of_short_runs_give_the_same_bits() -> None:
    x = np.random.default_rng(1).standard_normal(4096).astype(np.float32)
    wanted = _program(3, 64, 1).run([x])[0].tobytes()
    program = _program(3, 64, 2)
    entry = program.entry()
    assert entry is not None
    feeds = {"x": x}
    program.run([x])  # makes the frame
    for number in range(5000):
        outputs = entry(feeds)
        assert outputs is not None and outputs[0].tobytes() == wanted
        if number % 500 == 0:
            time.sleep(0.0005)  # the worker falls asleep


def _flagged(threads: int) -> tuple[Executable, list[Flag]]:
    """A program that sets flag i if word i of its input is 1."""
    flags = [Flag(np.zeros(1, np.int64), f"flag {number}") for number in range(3)]
    steps = [Step("set_words", (Slot("input", 0), *(Slot("constant", number) for number in range(3))), (3,))]
    program = Program(Steps.of(steps), 0, [flag.word for flag in flags], Tensors.of([words("met", 3)]), Tensors.of([]))
    return Executable(program, common(program, image(), flags), threads), flags


def test_flags_belong_to_a_run() -> None:
    """Runs that overlap, with data in error and without: each is told of its own errors."""
    program, flags = _flagged(1)
    entry = program.entry()
    assert entry is not None

    def work(number: int) -> None:
        choices = np.random.default_rng(number)
        for _ in range(300):
            met = choices.integers(0, 2, 3) * choices.integers(0, 2)
            texts = "; ".join(f"flag {index}" for index in np.flatnonzero(met))
            assert entry({"met": met}) in ([None] if texts else [[], None])  # None also where no frame is free
            if texts:
                with pytest.raises(InvalidArgument, match=texts + "$"):
                    program.run([met])
            else:
                assert program.run([met]) == []

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert not any(flag.word[0] for flag in flags)
