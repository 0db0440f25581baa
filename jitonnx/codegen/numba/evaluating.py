"""Sources as they stand, run by Python itself: what they mean, without Numba and without LLVM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jitonnx.codegen.numba import scalars
from jitonnx.codegen.numba.source import Source


def function(source: Source) -> Callable[..., Any]:
    """The function in Python. It takes memory as one-dimensional arrays, then sizes, then begin and end."""
    namespace: dict[str, Any] = {**vars(scalars), "np": np}
    exec(compile(source.text, f"<{source.name}>", "exec"), namespace)
    made: Callable[..., Any] = namespace[source.name]
    return made


def run(source: Source, memory: Sequence[np.ndarray], sizes: Sequence[int], begin: int, end: int) -> None:
    """Run some tasks of a call. memory: of each of the call's buffers, an array of elements or bits from the lowest
    element on that is touched; sizes: all of the call's."""
    given = [memory[place].view(kind) for place, kind, _ in source.buffers]
    given_sizes = [int(sizes[place]) for place in source.sizes]
    with np.errstate(all="ignore"):
        function(source)(*given, *given_sizes, *((begin, end) if source.has_tasks else ()))
