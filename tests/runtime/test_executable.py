"""Programs run right: whatever the number of threads, the split and who else is running."""

import ctypes
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from jitonnx.runtime.executable import Executable
from jitonnx.runtime.layout import address
from jitonnx.runtime.program import Slot, Step
from jitonnx.runtime.threads import allowed_cpus
from tests.runtime.kernels import chain, executable, floats, words

X, Y = Slot("input", 0), Slot("output", 0)
THREADS = (1, 2, 3, 4)


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize(("length", "elements", "tasks"), [(1, 8, 1), (1, 8, 8), (7, 96, 2), (7, 96, 3), (30, 96, 32)])
def test_chain(threads: int, length: int, elements: int, tasks: int) -> None:
    x = np.arange(elements, dtype=np.float32)
    program = chain(length, elements, tasks, threads)
    for _ in range(3):
        (y,) = program.run([x])
        np.testing.assert_array_equal(y, x + length)


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("wanted", THREADS)
@pytest.mark.parametrize("grain", [1, 3, 1000])
@pytest.mark.parametrize("tasks", [0, 1, 2, 3, 7, 100, 70_000])
def test_every_task_is_done_once_with_own_scratch(threads: int, wanted: int, grain: int, tasks: int) -> None:
    program = executable(
        [Step("record", (Y,), (), tasks, wanted, grain, scratch=100)], outputs=[words("y", tasks, 3)], threads=threads
    )
    sharing = min(threads, wanted, tasks)
    least = min(grain, tasks // sharing) if sharing else 0
    for _ in range(5):
        (rows,) = program.run([])
        pieces = rows[np.unique(rows[:, 0], return_index=True)[1]]
        assert (np.repeat(pieces, pieces[:, 1] - pieces[:, 0], axis=0) == rows).all()
        assert pieces[:, 1].tolist() == [*pieces[1:, 0].tolist(), *([tasks] if tasks else [])]
        assert not tasks or (pieces[:, 1] - pieces[:, 0]).min() >= least
        scratch = np.unique(pieces[:, 2])
        assert len(scratch) <= max(1, sharing) and not (scratch % 64).any() and (np.diff(scratch) >= 100).all()


@pytest.mark.parametrize("threads", THREADS)
def test_scratch_memory_is_not_shared(threads: int) -> None:
    program = executable(
        [Step("own_scratch", (Y,), (500,), 64, threads, scratch=4000)], outputs=[words("y", 64)], threads=threads
    )
    for _ in range(20):
        (y,) = program.run([])
        np.testing.assert_array_equal(y, 500 * np.arange(64))


@pytest.mark.parametrize("threads", THREADS)
def test_serial_and_shared_steps_alternate(threads: int) -> None:
    """((x + 1) * 3 + constant) + 1, with steps for one thread between those for all."""
    arena = [Slot("arena", 0, 512 * index) for index in range(3)]
    constant = np.arange(200, dtype=np.float32)
    steps = [
        Step("add_one", (X, arena[0]), (16,), 8, 1),
        Step("nothing", (), (), 1, 1),
        Step("scale", (arena[0], arena[1]), (4, 3), 32, threads),
        Step("add", (arena[1], Slot("constant", 0, 40), arena[2]), (128,), 1, threads),
        Step("nothing", (), (), 0, threads),
        Step("add_one", (arena[2], Y), (8,), 16, 2),
        Step("nothing", (), (), 5, 1),
    ]
    program = executable(
        steps,
        inputs=[floats("x", 128)],
        outputs=[floats("y", 128)],
        arena_bytes=1536,
        constants=[constant],
        threads=threads,
    )
    x = np.random.default_rng(0).standard_normal(128).astype(np.float32)
    for _ in range(10):
        np.testing.assert_array_equal(program.run([x])[0], ((x + np.float32(1)) * 3 + constant[10:138]) + 1)


def test_offsets_into_inputs_and_outputs() -> None:
    steps = [
        Step("add_one", (Slot("input", 1, 8), Slot("output", 1)), (2,)),
        Step("scale", (Slot("input", 0, 4), Slot("output", 0, 4)), (1, 5)),
        Step("add_one", (Slot("input", 1), Slot("output", 0)), (1,)),
    ]
    program = executable(steps, inputs=[floats("a", 2), floats("b", 4)], outputs=[floats("c", 2), floats("d", 2)])
    c, d = program.run([np.array([1, 2], np.float32), np.array([3, 4, 5, 6], np.float32)])
    np.testing.assert_array_equal(c, [4, 10])
    np.testing.assert_array_equal(d, [6, 7])


def test_inputs_that_cannot_be_used_in_place_are_copied() -> None:
    program = chain(1, 6, 1, 1)
    expected = np.arange(6, dtype=np.float32) + 1
    unaligned = np.zeros(25, np.uint8)[1:].view(np.float32)
    unaligned[:] = np.arange(6)
    for x in (np.arange(12, dtype=np.float32)[::2] / 2, np.arange(6, dtype=">f4"), unaligned):
        np.testing.assert_array_equal(program.run([x])[0], expected)


def test_outputs_are_new_and_owned() -> None:
    program, x = chain(2, 8, 2, 2), np.zeros(8, np.float32)
    first, second = program.run([x])[0], program.run([x])[0]
    assert first.flags.owndata and first.flags.c_contiguous and not np.shares_memory(first, second)
    assert not x.any()


def test_empty_program_and_empty_tensors() -> None:
    assert executable([]).run([]) == []
    program = executable(
        [Step("add_one", (X, Y), (1,), 0, 4)], inputs=[floats("x", 0, 3)], outputs=[floats("y", 0, 3)], threads=4
    )
    assert program.run([np.zeros((0, 3), np.float32)])[0].shape == (0, 3)


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        ([], ValueError, "has 1 inputs, but 0 were given"),
        ([np.zeros(3, np.float32)], ValueError, r"input 'x' has the shape \(3,\); this program is for \(8,\)"),
        ([np.zeros(8, np.float64)], TypeError, "input 'x' has the type float64; the program takes float32"),
        ([[0.0] * 8], TypeError, "input 'x' is a list; give a NumPy array of float32"),
    ],
)
def test_wrong_inputs(inputs: list[object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        chain(1, 8, 1, 1).run(inputs)  # type: ignore[arg-type]


def test_wrong_number_of_threads() -> None:
    with pytest.raises(ValueError, match="threads is 0"):
        chain(1, 8, 1, 0)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_overlapping_runs(threads: int) -> None:
    """Eight Python threads run two programs, each with its own inputs; every run has its own arena."""
    programs = [chain(length, 4096, 16, threads) for length in (5, 12)]

    def work(number: int) -> None:
        x = np.random.default_rng(number).standard_normal(4096).astype(np.float32)
        expected = [program.run([x])[0] for program in programs]
        for _ in range(200):
            for program, wanted in zip(programs, expected, strict=True):
                np.testing.assert_array_equal(program.run([x])[0], wanted)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))


def _burn(threads: int, rounds: int) -> Executable:
    return executable([Step("burn", (), (rounds,), 2, 2, scratch=8)], threads=threads)


def _seconds(program: Executable) -> float:
    started = time.perf_counter()
    program.run([])
    return time.perf_counter() - started


@pytest.mark.parametrize("native", [False, True])
def test_gil_is_free_during_a_run(native: bool) -> None:
    program = _burn(1, 20_000_000)
    _seconds(program)
    counted, running = 0, True

    def count() -> None:
        nonlocal counted
        while running:
            counted += 1
            time.sleep(0)

    counter = threading.Thread(target=count)
    counter.start()
    entry = program.entry()
    before = counted
    if native:
        assert entry is not None and entry({}) == []
    else:
        program.run([])
    during = counted - before
    running = False
    counter.join()
    assert during > 20, "with the GIL held the counter stands still"


def test_idle_team_burns_no_cpu() -> None:
    program = chain(20, 1024, 8, 2)
    for _ in range(50):
        program.run([np.zeros(1024, np.float32)])
    time.sleep(0.01)
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.02


def test_frames_are_reused_bounded_and_freed() -> None:
    program = chain(3, 1024, 4, 2)
    pool = program.frames
    x = np.zeros(1024, np.float32)
    for _ in range(5):
        program.run([x])
    assert pool.kept == 1
    count = len(pool.frames)
    assert count == allowed_cpus()
    for used in range(count + 1):
        pool.frames["owner"][:used] = 1  # as if another thread were in the middle of a run
        entry = program.entry()
        assert entry is not None
        for outputs in (entry({"x": x}), program.run([x])):
            assert outputs is not None
            np.testing.assert_array_equal(outputs[0], x + 3)
        assert pool.kept == min(used + 1, count), "a burst leaves nothing behind"
        assert pool.frames["owner"].tolist() == [1] * used + [0] * (count - used)
    program.trim()
    assert pool.kept == count, "nobody frees what is another's"
    pool.frames["owner"][:] = 0
    program.trim()
    assert pool.kept == pool.bytes == 0
    np.testing.assert_array_equal(program.run([x])[0], x + 3)


def pointers(program: Executable) -> list[int]:
    """Tell where operands lie, after a run."""
    program.run([])
    frame = program.frames.frames[0]
    count = len(program.loadable.common.in_arena)
    return (ctypes.c_int64 * count).from_address(int(frame["pointers"]))[:]


def test_arena_is_aligned() -> None:
    program = executable(
        [Step("nothing", (Slot("arena", 0, 0), Slot("arena", 0, 64)), scratch=1)], arena_bytes=100, threads=2
    )
    first, second = pointers(program)
    assert first % 64 == 0 and second - first == 64


def test_constants_are_used_in_place() -> None:
    constant = np.ones(4, np.float32)
    program = executable(
        [Step("add_one", (Slot("constant", 0), Y), (4,))], outputs=[floats("y", 4)], constants=[constant]
    )
    assert pointers(program)[0] == address(constant)
    constant[:] = 7
    np.testing.assert_array_equal(program.run([])[0], [8, 8, 8, 8])


@pytest.mark.parametrize("threads", [1, 2])
def test_profile(threads: int) -> None:
    rounds = 50_000
    steps = [
        Step("nothing", (), ()),
        Step("burn", (), (rounds,), 2, 2, scratch=8),
        Step("burn", (), (20 * rounds,), 2, 2, scratch=8),
        Step("nothing", (), (), 2, 2),
    ]
    program = executable(steps, threads=threads)
    seconds = program.profile([], rounds=25)
    assert seconds.shape == (25, 4)
    assert (seconds >= 0).all()
    best = seconds.min(axis=0)
    assert best[0] < best[2] and best[1] < best[2] and best[3] < best[2]  # a twentieth of the work


def test_same_bits_at_every_number_of_threads() -> None:
    x = np.random.default_rng(3).standard_normal(960).astype(np.float32)
    results = [chain(9, 960, 24, threads).run([x])[0].tobytes() for threads in THREADS]
    assert len(set(results)) == 1
