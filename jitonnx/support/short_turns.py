"""`with short_turns:`. Python's lock (the GIL) changes hands sooner while any thread is in such a block: one that works
beside others, and lets go of the lock each time that it calls native code, would wait for each turn of theirs."""

from __future__ import annotations

import sys

from jitonnx.support import fork_safety

TURN_SECONDS = 5e-4
"""How long a thread keeps Python's lock from one that wants it. Python's default is 5 ms, a hundred times what a run of
a small model takes."""


class _ShortTurns:
    def __init__(self) -> None:
        self._lock = fork_safety.lock()
        self._threads = 0
        self._usual = 0.0
        """How long a turn was before the first of the threads came."""
        fork_safety.in_child(self._forget_others)

    def __enter__(self) -> None:
        with self._lock:
            if not self._threads:
                self._usual = sys.getswitchinterval()
                sys.setswitchinterval(min(self._usual, TURN_SECONDS))
            self._threads += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._threads -= 1
            self._give_back()

    def _give_back(self) -> None:
        """Let turns be as long as they were, unless somebody else has changed them meanwhile."""
        if not self._threads and self._usual > TURN_SECONDS and abs(sys.getswitchinterval() - TURN_SECONDS) < 1e-6:
            sys.setswitchinterval(self._usual)

    def _forget_others(self) -> None:
        """No thread that works beside others is in a child process."""
        if self._threads:
            self._threads = 0
            self._give_back()


short_turns = _ShortTurns()
