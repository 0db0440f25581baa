"""Kernels of a plan to object code: from the cache, or compiled in parallel processes.

This process compiles too; further ones join when there are enough kernels to pay for their start (importing Numba,
about half a second each). They are children of our own, not of `multiprocessing`, so that a user's script needs no
guard.
"""

from __future__ import annotations

import pickle
import queue
import select
import struct
import sys
import threading
from collections.abc import Callable, Iterable
from typing import IO, Any

from jitonnx.codegen.code import Code
from jitonnx.runtime.cache import KernelCache
from jitonnx.target import Target

KERNELS_PER_WORKER = 4
"""Kernels that make starting a further process worth while: about its start in compile time."""


class CompileError(RuntimeError):
    """Bug: a kernel of ours did not compile. The text holds the kernel and the compiler's error."""


def compile_kernels(
    codes: Iterable[Code],
    target: Target,
    cache: KernelCache,
    workers: int,
    progress: Callable[[int, int], None] | None = None,
) -> dict[Code, bytes]:
    """Object code of each distinct code. `progress(done, all)` is called as compiled ones come in."""
    objects: dict[Code, bytes] = {}
    missing = []
    for code in dict.fromkeys(codes):
        found = cache.get(code.key(target))
        if found is None:
            missing.append(code)
        else:
            objects[code] = found
    if missing:
        objects.update(_compile(missing, target, cache, workers, progress))
    return objects


def _compile(
    codes: list[Code],
    target: Target,
    cache: KernelCache,
    workers: int,
    progress: Callable[[int, int], None] | None,
) -> dict[Code, bytes]:
    todo: queue.SimpleQueue[Code] = queue.SimpleQueue()
    for code in codes:
        todo.put(code)
    done: dict[Code, bytes] = {}
    errors: list[BaseException] = []
    finished = threading.Event()

    def finish(code: Code, data: bytes) -> None:
        done[code] = data
        cache.put(code.key(target), data)
        if progress is not None:
            progress(len(done), len(codes))

    helpers = [
        threading.Thread(target=_drive_worker, args=(todo, target, finish, errors, finished), daemon=True)
        for _ in range(min(workers - 1, len(codes) // KERNELS_PER_WORKER))
    ]
    for helper in helpers:
        helper.start()
    while not errors:
        try:
            code = todo.get_nowait()
        except queue.Empty:
            break
        finish(code, compile_one(code, code.symbol(target), target))
    finished.set()
    for helper in helpers:
        helper.join()
    if errors:
        raise errors[0]
    return done


def compile_one(code: Code, symbol: str, target: Target) -> bytes:
    """Compile one kernel here. CompileError tells which, if it does not compile."""
    from jitonnx.codegen.build import make_object

    try:
        return make_object(code, symbol, target)
    except (KeyboardInterrupt, MemoryError):
        raise
    except Exception as error:
        raise CompileError(f"Bug: kernel {code!r} does not compile: {error}") from error


def _drive_worker(
    todo: queue.SimpleQueue[Code],
    target: Target,
    finish: Callable[[Code, bytes], None],
    errors: list[BaseException],
    finished: threading.Event,
) -> None:
    """Feed one worker process until nothing is left to compile.

    It takes its first kernel when it is ready, so that nobody waits for a kernel in a process that is still starting;
    one that is not ready when all is done is not waited for.
    """
    import subprocess  # takes 3 ms, which a start that compiles nothing saves

    script = f"import sys; sys.path[:] = {sys.path!r}; from jitonnx.codegen.compiler import work; work()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        code: Code | None = None
        try:
            while not select.select([process.stdout], [], [], 0.02)[0]:
                if finished.is_set():
                    process.kill()
                    return
            _receive(process.stdout)
            while not errors:
                code = todo.get_nowait()
                _send(process.stdin, (code, code.symbol(target), target))
                answer = _receive(process.stdout)
                if isinstance(answer, str):
                    raise CompileError(answer)
                finish(code, answer)
        except queue.Empty:
            process.kill()
        except (OSError, EOFError, struct.error):
            errors.append(CompileError(f"the process compiling {code!r} ended early"))
        except CompileError as error:
            errors.append(error)


def work() -> None:
    """The loop of a worker process: codes in on standard input, object code or the text of an error out.

    It says "ready" once what every compile needs is imported.
    """
    from jitonnx.codegen import build  # noqa: F401

    source, sink = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # whatever prints must not garble the answers
    _send(sink, "ready")
    while True:
        try:
            code, symbol, target = _receive(source)
        except (EOFError, struct.error):
            return
        try:
            answer: bytes | str = compile_one(code, symbol, target)
        except CompileError as error:
            answer = str(error)
        try:
            _send(sink, answer)
        except BrokenPipeError:  # whoever asked has given up
            return


def _send(stream: IO[bytes], value: Any) -> None:
    data = pickle.dumps(value)
    stream.write(struct.pack("<q", len(data)) + data)
    stream.flush()


def _receive(stream: IO[bytes]) -> Any:
    (size,) = struct.unpack("<q", stream.read(8))
    return pickle.loads(stream.read(size))
