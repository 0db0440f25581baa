"""Numba as a translator to LLVM IR that does not optimise: that is done for the CPU that is wanted. Imports Numba."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import config as numba_config
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target

config: Any = numba_config


@contextmanager
def unoptimised() -> Iterator[None]:
    """Numba does not optimise meanwhile; nobody else's functions are compiled in this process until then."""
    with global_compiler_lock:
        cpu_target.target_context.codegen()  # made before, as other functions need it
        before = config.OPT
        config.OPT = type(before)(0)
        try:
            yield
        finally:
            config.OPT = before
