"""What a process that forks owes its child: locks, critical sections, things made once."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jitonnx.support import fork_safety
from tests.forking import beside, forked

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


def is_free(lock: threading.RLock) -> bool:
    """Whether a thread without any locks gets this one."""
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(lock.acquire, timeout=0.2).result()


def test_a_child_finds_locks_free_that_others_hold() -> None:
    lock, work_lock = fork_safety.lock(), fork_safety.WorkLock()

    def hold(over: threading.Event) -> None:
        with lock, work_lock, fork_safety.safepoint:
            over.wait()

    with beside(hold):
        assert not is_free(lock) and forked(lambda: is_free(lock) and is_free(work_lock._lock)) < 5


def test_a_child_holds_what_its_thread_held() -> None:
    lock, work_lock = fork_safety.lock(), fork_safety.WorkLock()
    with lock, work_lock:
        assert forked(lambda: not is_free(lock) and not is_free(work_lock._lock)) < 5
        child = os.fork()
    if child == 0:
        os._exit(0 if is_free(lock) and is_free(work_lock._lock) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0 and is_free(lock)


def test_a_fork_waits_for_critical_sections() -> None:
    done: list[int] = []

    def work(_: threading.Event) -> None:
        with fork_safety.critical:
            with fork_safety.critical:
                time.sleep(0.2)
            time.sleep(0.2)
            done.append(1)

    with beside(work):
        forked(lambda: bool(done))


def test_nobody_waits_for_safepoints_nor_begins_a_section_during_a_fork() -> None:
    rounds = [0]

    def work(over: threading.Event) -> None:
        while not over.is_set():
            with fork_safety.critical:
                rounds[0] += 1
                with fork_safety.safepoint:
                    over.wait(0.001)
                rounds[0] += 1

    with beside(work), beside(work):
        for _ in range(50):
            assert forked(lambda: rounds[0] >= 0) < 5
        before = rounds[0]
        time.sleep(0.1)
        assert rounds[0] > before, "the others go on"


def test_waiting_for_a_work_lock_is_a_safepoint() -> None:
    """One thread holds the lock at a safepoint, another waits for it in a critical section: neither hinders a fork."""
    lock, enough = fork_safety.WorkLock(), threading.Event()

    def hold(_: threading.Event) -> None:
        with lock, fork_safety.safepoint:
            enough.wait()

    def want(_: threading.Event) -> None:
        with fork_safety.critical, lock:
            pass

    with beside(hold), beside(want):
        assert forked(lambda: is_free(lock._lock)) < 5
        enough.set()


def test_threads_that_fork_within_critical_sections() -> None:
    def work(_: int) -> float:
        with fork_safety.critical:
            return forked(lambda: True)

    with ThreadPoolExecutor(4) as executor:
        assert max(executor.map(work, range(20))) < 10
    assert forked(lambda: True) < 5


def test_a_section_that_waits_for_the_fork_does_not_hold_it_up_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_safety, "PATIENCE_SECONDS", 0.3)

    def work(over: threading.Event) -> None:
        with fork_safety.critical:
            over.wait()

    with beside(work):
        assert 0.2 < forked(lambda: True) < 5


def test_a_section_may_log_while_a_fork_holds_the_lock_of_logging() -> None:
    """The module `logging` takes its lock before a fork; ours has to wait for others before that."""
    source = """
import sys, time
from jitonnx.support import fork_safety as forks
from tests.forking import beside, forked
assert "logging" not in sys.modules
import logging
sys.setswitchinterval(1e-6)

def work(over):
    while not over.is_set():
        with forks.critical:
            time.sleep(0.01)
            logging.getLogger(f"jitonnx.{time.monotonic()}").isEnabledFor(logging.INFO)

with beside(work):
    assert max(forked(lambda: True) for _ in range(10)) < 5
"""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", source], cwd=root, timeout=200, check=False)
    assert done.returncode == 0


def test_calls_of_llvm_are_not_cut() -> None:
    """A child can use LLVM, whatever other threads do with it, in critical sections or not."""
    import llvmlite.binding as llvm

    def work(over: threading.Event) -> None:
        while not over.is_set():
            llvm.parse_assembly("define void @f() { ret void }")

    def use() -> bool:
        return "f" in str(llvm.parse_assembly("define void @f() { ret void }"))

    with beside(work), beside(work):
        for _ in range(10):
            forked(use)


def test_an_interrupt_within_llvmlite_leaves_llvm_to_other_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lock is a few lines of Python, in which Ctrl-C may come."""
    from jitonnx.codegen import build, compiler

    lock = fork_safety._llvm_lock()

    def interrupted(*_: object) -> bytes:
        lock.acquire()
        raise KeyboardInterrupt

    monkeypatch.setattr(build, "make_object", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compiler.compile_one(None, "kernel", None)  # type: ignore[arg-type]
    with ThreadPoolExecutor(1) as other:
        assert other.submit(lock.acquire, timeout=5.0).result()
        other.submit(lock.release).result()


def test_once() -> None:
    made: list[tuple[int, ...]] = []

    @fork_safety.once
    def slow(*numbers: int) -> object:
        time.sleep(0.05)
        made.append(numbers)
        return object()

    with ThreadPoolExecutor(8) as executor:
        first = set(executor.map(lambda _: slow(), range(8)))
        second = set(executor.map(lambda _: slow(1, 2), range(8)))
    assert len(first) == len(second) == 1 and first != second and made == [(), (1, 2)]
    assert slow.__name__ == "slow"


def test_what_cannot_be_made_is_made_again() -> None:
    tries: list[int] = []

    @fork_safety.once
    def made() -> int:
        tries.append(1)
        if len(tries) < 2:
            raise KeyError("not yet")
        return 5

    with pytest.raises(KeyError):
        made()
    assert made() == made() == 5 and len(tries) == 2


def test_cached_property() -> None:
    class Thing:
        @fork_safety.cached_property
        def part(self) -> object:
            """What it is."""
            time.sleep(0.02)
            return object()

    thing = Thing()
    with ThreadPoolExecutor(8) as executor:
        assert len(set(executor.map(lambda _: thing.part, range(8)))) == 1
    assert Thing.part.__doc__ == "What it is."


def test_a_child_collects_garbage_though_another_thread_was_making_a_session() -> None:
    from jitonnx.api.loading import without_collecting

    def work(over: threading.Event) -> None:
        with without_collecting:
            over.wait()

    with beside(work):
        assert not gc.isenabled()
        with without_collecting:
            forked(lambda: not gc.isenabled())
        forked(gc.isenabled)
    assert gc.isenabled()


@pytest.fixture(autouse=True)
def many_switches() -> Iterator[None]:
    """Python's threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)
