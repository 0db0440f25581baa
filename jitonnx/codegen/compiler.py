"""Kernels of a plan to object code: from the cache, or compiled in parallel processes.

Where the caller waits for the code, this process compiles too; further ones join when there are enough kernels to pay
for their start (a tenth of a second each). Code that is made behind the runs is compiled in processes
of low priority alone, so that runs have this one for themselves. The processes are children of our own, not of
`multiprocessing`, so that a user's script needs no guard. They do not heed Ctrl-C, which reaches them too on a
terminal: this process ends them.
"""

from __future__ import annotations

import gc
import os
import pickle
import queue
import select
import signal
import struct
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from jitonnx.codegen.code import KernelCode
from jitonnx.codegen.compile_error import CompileError
from jitonnx.runtime.threads import allowed_cpus
from jitonnx.support import fork_safety
from jitonnx.support.background_jobs import LOOK_SECONDS, StoppedError
from jitonnx.support.kernel_cache import KernelCache
from jitonnx.target.machine import Target

if TYPE_CHECKING:
    from subprocess import Popen

KERNELS_PER_WORKER = 8
"""Kernels that make a further process worth while: they take twice the time of its start."""
KERNELS_MEANWHILE = 4
"""Kernels that this process compiles until a further one is ready."""
BACKGROUND_NICENESS = 5
"""Processes that compile behind the runs lower their priority by so much: to about a third of a run's share."""

Progress: TypeAlias = Callable[[int, int], None]
"""Called as progress(done, all) when there is something to compile, and as kernels come in."""


def cached_kernels(
    codes: Iterable[KernelCode], target: Target, cache: KernelCache
) -> tuple[dict[KernelCode, bytes], list[KernelCode]]:
    """Object code of each distinct code that is in the cache, and the codes that are not."""
    objects: dict[KernelCode, bytes] = {}
    missing = []
    for code in dict.fromkeys(codes):
        found = cache.get(code.key(target))
        if found is None:
            missing.append(code)
        else:
            objects[code] = found
    return objects, missing


def compile_kernels(
    codes: Iterable[KernelCode],
    target: Target,
    cache: KernelCache,
    workers: int,
    progress: Progress | None = None,
    stop: threading.Event | None = None,
) -> dict[KernelCode, bytes]:
    """Object code of each distinct code, by up to `workers` processes.

    stop: None if the caller waits for nothing else. Given, everything is compiled in processes of low priority, no more
    than there are CPUs besides those of `workers` threads that run meanwhile; and StoppedError is raised soon after it
    is set. KeyboardInterrupt ends the processes too.
    """
    objects, missing = cached_kernels(codes, target, cache)
    if missing:
        objects.update(_Compilation(missing, target, cache, progress, stop).run(workers))
    return objects


class _Compilation:
    """Kernels that are being compiled."""

    def __init__(
        self,
        codes: list[KernelCode],
        target: Target,
        cache: KernelCache,
        progress: Progress | None,
        stop: threading.Event | None,
    ) -> None:
        self._codes, self._target, self._cache, self._progress = codes, target, cache, progress
        self._behind = stop is not None
        self._stop = stop or threading.Event()
        self._todo: queue.SimpleQueue[KernelCode] = queue.SimpleQueue()
        for code in codes:
            self._todo.put(code)
        self._done: dict[KernelCode, bytes] = {}
        self._errors: list[CompileError] = []
        self._finished = threading.Event()

    def run(self, workers: int) -> dict[KernelCode, bytes]:
        """Compile all. The errors are those of `compile_kernels`."""
        helping = min(workers - 1, self._worth_starting)
        if self._behind:
            helping = min(workers, len(self._codes), max(1, allowed_cpus() - workers))
        helpers = [threading.Thread(target=self._drive_worker, daemon=True) for _ in range(helping)]
        self._report()
        try:
            for helper in helpers:
                helper.start()
            if not self._behind:
                self._compile_here()
            with fork_safety.safepoint:
                for helper in helpers:
                    helper.join()
        except BaseException:
            self._stop.set()
            with fork_safety.safepoint:
                for helper in filter(threading.Thread.is_alive, helpers):
                    helper.join(1.0)
            raise
        if self._errors:
            raise self._errors[0]
        if len(self._done) < len(self._codes):
            raise StoppedError(f"compiling stopped at {len(self._done)} of {len(self._codes)} kernels")
        return self._done

    @property
    def _worth_starting(self) -> int:
        return max(0, len(self._codes) - KERNELS_MEANWHILE) // KERNELS_PER_WORKER

    def _compile_here(self) -> None:
        while not self._errors:
            try:
                code = self._todo.get_nowait()
            except queue.Empty:
                break
            self._finish(code, compile_one(code, code.symbol(self._target), self._target))
        self._finished.set()

    def _finish(self, code: KernelCode, data: bytes) -> None:
        self._done[code] = data
        self._cache.put(code.key(self._target), data)
        self._report()

    def _report(self) -> None:
        """Report how far it is; whoever is told may do anything."""
        with fork_safety.safepoint:
            if self._progress is not None:
                self._progress(len(self._done), len(self._codes))

    def _drive_worker(self) -> None:
        """Feed one worker process until nothing is left to compile.

        It takes its first kernel when it is ready, so that nobody waits for a kernel in a process that is still
        starting; one that is not ready when all is done is not waited for.
        """
        code: KernelCode | None = None
        try:
            with fork_safety.critical, _worker(BACKGROUND_NICENESS if self._behind else 0) as (requests, answers):
                if not self._answered(answers, starting=True):
                    return
                _receive(answers)
                while not self._errors:
                    code = self._todo.get_nowait()
                    _send(requests, (code, code.symbol(self._target), self._target))
                    if not self._answered(answers):
                        return
                    answer = _receive(answers)
                    if isinstance(answer, str):
                        raise CompileError(answer, code)
                    self._finish(code, answer)
        except queue.Empty:
            return
        except (OSError, EOFError, struct.error):
            what = f"kernel {code!r}" if code is not None else "kernels"
            self._errors.append(
                CompileError(f"the process compiling {what} ended early: killed, or short of memory?", code)
            )
        except CompileError as error:
            self._errors.append(error)

    def _answered(self, answers: IO[bytes], *, starting: bool = False) -> bool:
        """Wait for something to read; False if nobody wants it any more."""
        with fork_safety.safepoint:
            while not select.select([answers], [], [], LOOK_SECONDS)[0]:
                if self._stop.is_set() or self._errors or (starting and self._finished.is_set()):
                    return False
        return True


_workers: set[Popen[bytes]] = set()
"""Processes that are compiling for this one."""


@contextmanager
def _worker(niceness: int) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """A process that runs `work`: pipes to and from it. It is ended with the block. Call it on a thread of its own."""
    import subprocess  # takes 3 ms, which a start that compiles nothing saves

    # Importing what compiles takes longer than many a kernel, and is of low priority, too.
    script = f"import os, sys; os.nice({niceness}); sys.path[:] = {sys.path!r}"
    command = [sys.executable, "-c", f"{script}; from jitonnx.codegen.compiler import work; work()"]
    # A process inherits what signals its creator blocks. (Its own session would end its low priority too, which Linux
    # counts within a session.)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        _workers.add(process)
        assert process.stdin is not None and process.stdout is not None
        try:
            yield process.stdin, process.stdout
        finally:
            process.kill()
            _workers.discard(process)


def _after_fork() -> None:
    """Let a child have no part in the pipes: it would keep workers alive that their own parent has left."""
    if not _workers:
        return
    nothing = os.open(os.devnull, os.O_RDWR)
    for process in _workers:
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:  # not closed: whoever drove the worker may hold the number
                os.dup2(nothing, pipe.fileno(), inheritable=False)
    os.close(nothing)
    _workers.clear()


fork_safety.in_child(_after_fork)


def compile_one(code: KernelCode, symbol: str, target: Target) -> bytes:
    """Compile one kernel here. CompileError tells which, if it does not compile."""
    from jitonnx.codegen.build import make_object

    try:
        return make_object(code, symbol, target)
    except (KeyboardInterrupt, MemoryError):
        fork_safety.release_llvm()
        raise
    except Exception as error:
        raise CompileError(f"kernel {code!r} does not compile: {error}", code) from error


def work() -> None:
    """The loop of a worker process: codes in on standard input, object code or the text of an error out.

    It says "ready" once what every compile needs is imported.
    """
    from jitonnx.codegen import build  # noqa: F401

    gc.disable()  # looking for garbage took a tenth of the time, and there is little: the process ends soon

    source, sink = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # whatever prints must not garble the answers
    answer: bytes | str = "ready"
    while True:
        try:
            _send(sink, answer)
            code, symbol, target = _receive(source)
        except (BrokenPipeError, EOFError, struct.error):  # whoever asked has given up, or ended
            return
        try:
            answer = compile_one(code, symbol, target)
        except CompileError as error:
            answer = str(error)


def _send(stream: IO[bytes], value: Any) -> None:
    data = pickle.dumps(value)
    stream.write(struct.pack("<q", len(data)) + data)
    stream.flush()


def _receive(stream: IO[bytes]) -> Any:
    (size,) = struct.unpack("<q", stream.read(8))
    return pickle.loads(stream.read(size))
