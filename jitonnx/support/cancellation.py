"""Runs that are ended from outside: who starts one says what asks for its end, and what takes long looks for that.

with ended_by(lambda: options.terminate):
    engine.run(inputs)                      # Fail where it is asked for, within a tenth of a second

Code in Python calls `check_end` between its steps. Native code calls `still_asked` while kernels run, and looks whether
Python has been sent a signal (`runtime/native/watch.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from jitonnx.errors import Fail

_here = threading.local()


@contextmanager
def ended_by(asked: Callable[[], bool]) -> Iterator[None]:
    """A block in which the runs of this thread end where `asked` says so."""
    before = getattr(_here, "asked", None)
    _here.asked = asked
    try:
        yield
    finally:
        _here.asked = before


def check_end() -> None:
    """Fail if the end of this thread's run is asked for."""
    asked = getattr(_here, "asked", None)
    if asked is not None and asked():
        raise Fail("Exiting due to terminate flag being set to true.")


def still_asked() -> bool:
    """Check as `check_end` does; whether the end of this run may be asked for later: of others nothing does,
    nor do signals."""
    check_end()
    return getattr(_here, "asked", None) is not None or threading.get_ident() == threading.main_thread().ident
