"""Forks for tests: children that do something, beside threads that do something else. Imports little."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def forked(work: Callable[[], bool]) -> float:
    """Fork; the child does this, which should be true. Returns how long the fork took."""
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if work() else 1
        finally:
            os._exit(status)
    taken = time.monotonic() - began
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return taken


@contextmanager
def beside(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Another thread does this, from before the block to its end; it is given an event that is set at the end."""
    begun, over = threading.Event(), threading.Event()

    def run() -> None:
        begun.set()
        work(over)

    thread = threading.Thread(target=run)
    thread.start()
    begun.wait()
    time.sleep(0.05)
    yield
    over.set()
    thread.join()
