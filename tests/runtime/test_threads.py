"""Teams of threads: shared, ended, safe across forks and at exit; and how many CPUs there are to use."""

import gc
import os
import random
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from jitonnx.runtime import threads as threads_module
from jitonnx.runtime.executable import Executable
from jitonnx.runtime.program import Slot, Step
from jitonnx.runtime.threads import allowed_cpus, cgroup_quota, team
from tests.runtime.kernels import chain, executable, floats

ROOT = Path(__file__).parents[2]
X = np.arange(1024, dtype=np.float32)


def _run_python(source: str, timeout: float = 60) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_team_is_shared_and_started_when_wanted() -> None:
    first, second = chain(3, 1024, 8, 5), chain(4, 1024, 8, 5)
    shared = first.loadable.team
    assert shared is not None and shared is second.loadable.team and shared is team(5)
    assert shared.workers == 0
    first.run([X])
    assert shared.workers == 4


def test_programs_without_shared_steps_have_no_team() -> None:
    assert chain(3, 1024, 1, 4).loadable.team is None
    assert executable([Step("nothing", (), (), 8, 1)], threads=4).loadable.team is None


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
def test_team_ends_with_its_last_program() -> None:
    def native_threads() -> int:
        return len(os.listdir("/proc/self/task"))

    gc.collect()
    before = native_threads()
    first, second = chain(3, 1024, 8, 7), chain(3, 1024, 8, 7)
    first.run([X])
    second.run([X])
    assert native_threads() == before + 6
    del first
    gc.collect()
    assert native_threads() == before + 6
    del second
    gc.collect()
    deadline = time.monotonic() + 5
    while native_threads() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert native_threads() == before


def test_more_threads_than_cpus() -> None:
    program = chain(50, 1024, 64, 8 * allowed_cpus())
    for _ in range(20):
        np.testing.assert_array_equal(program.run([X])[0], X + 50)


def test_busy_team_is_not_waited_for() -> None:
    """While one run has the team, another does all the work on its own thread."""
    long = executable([Step("burn", (), (30_000_000,), 2, 2, scratch=8)], threads=2)
    short = chain(3, 1024, 8, 2)
    short.run([X])
    running = threading.Thread(target=long.run, args=([],))
    running.start()
    time.sleep(0.05)
    np.testing.assert_array_equal(short.run([X])[0], X + 3)
    still_running = running.is_alive()
    running.join()
    assert still_running


def test_fork() -> None:
    """A child gets workers of its own, also when the parent was in the middle of a run on another thread."""
    program = chain(5, 1024, 8, 2)
    program.run([X])
    stop = threading.Event()

    def keep_running() -> None:
        while not stop.is_set():
            program.run([X])

    running = threading.Thread(target=keep_running)
    running.start()
    try:
        for _ in range(5):
            child = os.fork()
            if child == 0:
                right = all((program.run([X])[0] == X + 5).all() for _ in range(20))
                os._exit(0 if right and program.loadable.team.workers == 1 else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            np.testing.assert_array_equal(program.run([X])[0], X + 5)
    finally:
        stop.set()
        running.join()


def test_exit_while_a_daemon_thread_runs() -> None:
    _run_python(
        """
        import threading, time
        from jitonnx.runtime.program import Step
        from tests.runtime.kernels import executable
        program = executable([Step("burn", (), (2_000_000,), 2, 2, scratch=8)] * 50, threads=2)
        def forever():
            while True:
                program.run([])
        threading.Thread(target=forever, daemon=True).start()
        time.sleep(0.2)
        """
    )


def test_runs_in_exit_handlers() -> None:
    source = """
        import atexit
        def last():
            print(program.run([x])[0][:2].tolist())
        atexit.register(last)
        import numpy as np
        from tests.runtime.kernels import chain
        x = np.zeros(1024, np.float32)
        program = chain(3, 1024, 8, 2)
        program.run([x])
        """
    assert _run_python(source).strip() == "[3.0, 3.0]"


def test_failing_to_create_threads_is_survived(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system gives no more threads, the calling thread does the work."""
    monkeypatch.setattr(threads_module, "_STACK_BYTES", 1 << 60)
    program = chain(5, 1024, 8, 6)
    np.testing.assert_array_equal(program.run([X])[0], X + 5)
    assert program.loadable.team is not None and program.loadable.team.workers == 0


def test_allowed_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1 <= allowed_cpus() <= (os.cpu_count() or 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)), raising=False)
    for quota, expected in ((None, 6), (0.25, 1), (1.5, 2), (2.0, 2), (16.0, 6)):
        monkeypatch.setattr(threads_module, "cgroup_quota", lambda quota=quota: quota)
        assert allowed_cpus() == (expected if sys.platform == "linux" else 6)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_cgroup_2_least_quota_on_the_way_up(tmp_path: Path) -> None:
    process, root = tmp_path / "self", tmp_path / "cgroup"
    _write(process / "cgroup", "0::/service/worker\n")
    _write(process / "mountinfo", f"30 20 0:26 / {root} rw - cgroup2 cgroup2 rw\n")
    _write(root / "service/worker/cpu.max", "max 100000\n")
    assert cgroup_quota(process) is None
    _write(root / "service/cpu.max", "150000 100000\n")
    assert cgroup_quota(process) == 1.5
    _write(root / "service/worker/cpu.max", "50000 100000\n")
    assert cgroup_quota(process) == 0.5


def test_cgroup_1(tmp_path: Path) -> None:
    process, root = tmp_path / "self", tmp_path / "cpu"
    _write(process / "cgroup", "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n")
    _write(
        process / "mountinfo",
        f"31 20 0:27 /docker/abc {root} rw - cgroup cgroup rw,cpu,cpuacct\n"
        f"32 20 0:28 /docker/abc {tmp_path / 'memory'} rw - cgroup cgroup rw,memory\n",
    )
    _write(root / "cpu.cfs_quota_us", "-1\n")
    _write(root / "cpu.cfs_period_us", "100000\n")
    assert cgroup_quota(process) is None
    _write(root / "cpu.cfs_quota_us", "300000\n")
    assert cgroup_quota(process) == 3.0


def test_no_cgroups(tmp_path: Path) -> None:
    assert cgroup_quota(tmp_path) is None


@pytest.mark.parametrize("size", [2, 3])
def test_waiting_at_every_stage(size: int) -> None:
    """Pauses before and within runs, shorter and longer than spinning and patience: no wake-up is lost."""
    arena = [Slot("arena", 0, 4096 * index) for index in range(2)]
    seconds = random.Random(size)

    def program(before: int, within: int) -> Executable:
        steps = [
            Step("add_one", (Slot("input", 0), arena[0]), (128,), 8, size),
            Step("burn", (), (before,), scratch=8),
            Step("add_one", (arena[0], arena[1]), (64,), 16, size),
            Step("burn", (), (within,), size - 1, size, scratch=8),
            Step("add_one", (arena[1], Slot("output", 0)), (32,), 32, size),
        ]
        specs = [floats("x", 1024)], [floats("y", 1024)]
        return executable(steps, inputs=specs[0], outputs=specs[1], arena_bytes=8192, threads=size)

    programs = [program(before, within) for before in (0, 5000, 40_000) for within in (0, 10_000, 30_000)]
    end = time.monotonic() + 2
    while time.monotonic() < end:
        np.testing.assert_array_equal(seconds.choice(programs).run([X])[0], X + 3)
        time.sleep(seconds.choice([0, 0, 20e-6, 90e-6, 300e-6]))
