"""The clocks that benchmarks beside other work can go by."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
"""What gives seconds, by name: those that pass, or those that the process has the CPUs for. The latter is for one
thread, as threads that wait for others spin."""


def add_clock(parser: argparse.ArgumentParser) -> None:
    """The option `--clock`, a key of CLOCKS."""
    parser.add_argument("--clock", choices=tuple(CLOCKS), default="wall", help="default: wall")
