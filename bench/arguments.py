"""Arguments that several benchmarks have: the clock that they go by, and models of a folder."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
"""What gives seconds, by name: those that pass, or those that the process has the CPUs for. The latter is for one
thread, as threads that wait for others spin."""


def add_clock(parser: argparse.ArgumentParser) -> None:
    """The option `--clock`, a key of CLOCKS."""
    parser.add_argument("--clock", choices=tuple(CLOCKS), default="wall", help="default: wall")


def add_models(parser: argparse.ArgumentParser) -> None:
    """The arguments `folder` and `models`, for `model_paths`."""
    parser.add_argument("folder", type=Path, help="folder of NAME.onnx, with the inputs NAME.npz beside it")
    parser.add_argument("models", nargs="*", metavar="NAME", help="default: all of the folder")


def model_paths(options: argparse.Namespace) -> list[Path]:
    """The files that were asked for, by name. FileNotFoundError: a name that the folder has not."""
    paths = [options.folder / f"{name}.onnx" for name in options.models] or sorted(options.folder.glob("*.onnx"))
    for path in paths:
        if not path.exists():
            others = ", ".join(sorted(other.stem for other in path.parent.glob("*.onnx")))
            raise FileNotFoundError(f"{path} is not there; {options.folder} has {others}")
    return paths
