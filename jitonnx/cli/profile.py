"""`jitonnx profile MODEL`: where the time of a run goes, kernel by kernel."""

from __future__ import annotations

import argparse
from typing import Any

from jitonnx.cli.common import add_inputs, add_model, feeds_of, positive, session_of


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("profile", help="tell where the time of a run goes, kernel by kernel")
    add_model(parser)
    add_inputs(parser)
    parser.add_argument("--rounds", type=positive, default=20, help="runs to take the median of (default: 20)")
    parser.add_argument("--by", choices=("order", "time"), default="time", help="how lines are sorted (default: time)")
    parser.set_defaults(command=main)


def main(options: argparse.Namespace) -> None:
    """Time each step and print what it did a second."""
    import numpy as np

    from jitonnx import errors
    from jitonnx.explain import explain
    from jitonnx.explain.units import nbytes, seconds, shortened, table

    session = session_of(options)
    feeds = feeds_of(session, options)
    session.run(None, feeds)
    arrays = [np.asarray(feeds[entry.name]) for entry in session.declared_inputs]
    shapes = tuple(array.shape for array in arrays)
    ready = session.engine.program(shapes)
    if ready is None:
        raise errors.NotImplemented("a model of which NumPy evaluates a part has no one program to time")
    ready.executable.profile(arrays, 3)
    times = np.median(ready.executable.profile(arrays, options.rounds), axis=0)
    explanation = explain(session, dict(zip(feeds, shapes, strict=True)))
    steps = list(zip(explanation.kernels, times.tolist(), strict=True))
    total = float(times.sum())
    rows = [
        (
            f"{100 * taken / total:.1f}" if total else "",
            seconds(taken),
            str(kernel.number),
            kernel.label,
            shortened(", ".join(kernel.origin), 40),
            str(kernel.threads),
            _giga(kernel.flops, taken),
            _giga(kernel.bytes, taken),
        )
        for kernel, taken in _sorted(steps, options.by)
    ]
    header = ("%", "time", "#", "kernel", "stands for", "threads", "GFLOP/s", "GB/s")
    print(table(header, rows, right=(0, 1, 2, 5, 6, 7)))
    print(
        f"\n{len(steps)} steps in {seconds(total)}: {_giga(explanation.flops, total)} GFLOP/s, "
        f"{_giga(explanation.bytes, total)} GB/s; arena {nbytes(explanation.memory.arena)}"
    )


def _sorted(lines: list[tuple[Any, float]], by: str) -> list[tuple[Any, float]]:
    return sorted(lines, key=lambda line: -line[1]) if by == "time" else lines


def _giga(amount: int, seconds: float) -> str:
    """Thousands of millions a second; 0 of what takes no time."""
    return f"{amount / seconds * 1e-9 if seconds else 0:.1f}"
