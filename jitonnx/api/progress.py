"""How far compiling is, on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

from jitonnx.support import fork_safety

PATIENCE_SECONDS = 1.0
"""How long nothing is shown: what is over sooner needs no explanation."""
INTERVAL_SECONDS = 0.1
"""How often the line is written anew at most."""


class TerminalProgress:
    """`show(done, all)` writes one line to a terminal, again and again; it is cleared when all is done, by `clear`, or
    at the end of a `with` statement.

    stream: where to; by default standard error. Nothing is written where that is no terminal. May be called by several
    threads.
    """

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream: TextIO | None = stream or sys.stderr
        self._clock = clock
        self._lock = fork_safety.lock()
        self._began: float | None = None
        self._written = 0.0
        self._shown = False

    def show(self, done: int, total: int) -> None:
        """`done` of `total` kernels are compiled."""
        with self._lock:
            now = self._clock()
            if self._began is None or done == 0:
                self._began = now
            if done >= total:
                self._clear()
                self._began = None
            elif now - self._began >= PATIENCE_SECONDS and now - self._written >= INTERVAL_SECONDS:
                self._write(done, total, now - self._began)
                self._written = now

    def clear(self) -> None:
        """Take the line away."""
        with self._lock:
            self._clear()

    def __enter__(self) -> TerminalProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def _write(self, done: int, total: int, taken: float) -> None:
        if self._stream is not None and self._stream.isatty():
            left = f", about {taken / done * (total - done):.0f} s left" if done else ""
            self._stream.write(f"\r\x1b[Kjitonnx: compiling kernels, {done} of {total}{left}")
            self._stream.flush()
            self._shown = True

    def _clear(self) -> None:
        if self._shown and self._stream is not None:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._shown = False
