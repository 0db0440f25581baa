"""What this process has loaded, C's library first of all, behind one handle.

A handle of ctypes is a class and its functions, in reference cycles with each other: made anew for each session they
would be left to Python's search for garbage, some kilobytes at a time.
"""

from __future__ import annotations

import ctypes

from jitonnx.support import fork_safety


@fork_safety.once
def libc() -> ctypes.CDLL:
    """The functions that this process has loaded, which tell their errors by `ctypes.get_errno`.

    Whoever sets the types of a function's arguments sets them for all: give arguments as ctypes' types instead.
    """
    return ctypes.CDLL(None, use_errno=True)
