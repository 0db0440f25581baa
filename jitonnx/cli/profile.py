"""`jitonnx profile MODEL`: where the time of a run goes, kernel by kernel."""

from __future__ import annotations

import argparse
from typing import Any

from jitonnx.cli.common import add_inputs, add_model, feeds_of, session_of


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("profile", help="tell where the time of a run goes, kernel by kernel")
    add_model(parser)
    add_inputs(parser)
    parser.add_argument("--rounds", type=int, default=20, help="runs to take the median of (default: 20)")
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
        raise errors.NotImplemented("a model that is cut, because a shape in it depends on data, has no one program")
    ready.executable.profile(arrays, 3)
    times = np.median(ready.executable.profile(arrays, options.rounds), axis=0)
    explanation = explain(session, dict(zip(feeds, shapes, strict=True)))
    kernels = [kernel for kernel in explanation.kernels if kernel.tasks]  # the others are no steps of the program
    total = float(times.sum())
    rows = [
        (
            f"{100 * taken / total:.1f}",
            seconds(taken),
            str(kernel.number),
            kernel.label,
            shortened(", ".join(kernel.origin), 40),
            str(kernel.threads),
            f"{kernel.flops / taken * 1e-9:.1f}",
            f"{kernel.bytes / taken * 1e-9:.1f}",
        )
        for kernel, taken in _sorted(list(zip(kernels, times.tolist(), strict=True)), options.by)
    ]
    header = ("%", "time", "#", "kernel", "stands for", "threads", "GFLOP/s", "GB/s")
    print(table(header, rows, right=(0, 1, 2, 5, 6, 7)))
    print(
        f"\n{len(kernels)} steps in {seconds(total)}: {explanation.flops / total * 1e-9:.1f} GFLOP/s, "
        f"{explanation.bytes / total * 1e-9:.1f} GB/s; arena {nbytes(explanation.memory.arena)}"
    )


def _sorted(lines: list[tuple[Any, float]], by: str) -> list[tuple[Any, float]]:
    return sorted(lines, key=lambda line: -line[1]) if by == "time" else lines
