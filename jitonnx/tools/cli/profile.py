"""`jitonnx profile MODEL`: where the time of a run goes, kernel by kernel."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from jitonnx.tools.cli.common import add_inputs, add_model, feeds_of, positive, session_of


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

    from jitonnx.api.units import nbytes, seconds, shortened, table
    from jitonnx.tools.explain import explain

    session = session_of(options)
    model = session.compiled_model
    inputs, engine = model.description.inputs, model.engine
    feeds = feeds_of(model, options)
    session.run(None, feeds)
    arrays = [np.asarray(feeds[entry.name]) for entry in inputs]
    shapes = tuple(array.shape for array in arrays)
    times, runs, host = _medians(engine, arrays, options.rounds)
    names = [entry.name for entry in inputs]
    explanation = explain(model, dict(zip(names, shapes, strict=True)))
    steps = list(zip(zip(explanation.kernels, runs, strict=False), times.tolist(), strict=True))
    total = float(times.sum()) + sum(taken for *_, taken in host)
    rows = [
        (
            f"{100 * taken / total:.1f}" if total else "",
            seconds(taken),
            str(kernel.number),
            kernel.label,
            shortened(", ".join(kernel.origin), 40),
            str(kernel.threads),
            _giga(count * kernel.flops, taken),
            _giga(count * kernel.bytes, taken),
        )
        for (kernel, count), taken in _sorted(steps, options.by)
    ]
    rows += [
        (f"{100 * taken / total:.1f}" if total else "", seconds(taken), "", f"{operator} on NumPy", name, "1", "", "")
        for operator, name, taken in host
    ]
    header = ("%", "time", "#", "kernel", "stands for", "threads", "GFLOP/s", "GB/s")
    print(table(header, rows, right=(0, 1, 2, 5, 6, 7)))
    flops = sum(count * kernel.flops for (kernel, count), _ in steps)
    moved = sum(count * kernel.bytes for (kernel, count), _ in steps)
    print(
        f"\n{len(rows)} steps in {seconds(total)}: {_giga(flops, total)} GFLOP/s, "
        f"{_giga(moved, total)} GB/s; arena {nbytes(explanation.memory.arena)}"
    )


def _medians(
    engine: Any, arrays: Sequence[Any], rounds: int
) -> tuple[Any, Iterable[int], list[tuple[str, str, float]]]:
    """What the steps of a model take, medians of some rounds: the seconds of all kernels in order, [kernels], over all
    iterations of loops; how often each was called; and the nodes on the host, with operator, name and seconds."""
    import numpy as np

    from jitonnx import errors

    shapes = tuple(array.shape for array in arrays)
    if not hasattr(engine, "times"):  # an artifact's
        if (ready := engine.program(shapes)) is None:
            raise errors.NotImplemented(
                "an artifact of a model that runs in steps has no times to show: profile the model itself"
            )
        ready.executable.profile(arrays, _WARM)
        return np.median(ready.executable.profile(arrays, rounds), axis=0), itertools.repeat(1), []
    serving = engine.serving(shapes)
    schedule, sizes, native, hosted = serving.schedule, serving.sizes(shapes) or {}, [serving], []
    engine.times(arrays, _WARM)
    found = engine.times(arrays, rounds)
    if schedule is not None:
        native = [step for step in schedule.native_steps() if step.explained_sizes(sizes) is not None]
        hosted = list(schedule.host_steps())
    nothing = [np.zeros(len(step.compiled.outline.calls)) for step in native]
    kernels = [
        np.concatenate([one.kernels.get(step, zeros) for step, zeros in zip(native, nothing, strict=True)] or [[]])
        for one in found
    ]
    host = [
        (step.host.node.operator.name, step.host.node.name, float(np.median([one.host.get(step, 0) for one in found])))
        for step in hosted
    ]
    runs = [found[0].runs.get(step, 0) for step, zeros in zip(native, nothing, strict=True) for _ in zeros]
    return np.median(kernels, axis=0), runs, host


_WARM = 3
"""Runs in front of those that are measured."""


def _sorted(lines: list[tuple[Any, float]], by: str) -> list[tuple[Any, float]]:
    return sorted(lines, key=lambda line: -line[1]) if by == "time" else lines


def _giga(amount: int, seconds: float) -> str:
    """Thousands of millions a second; 0 of what takes no time."""
    return f"{amount / seconds * 1e-9 if seconds else 0:.1f}"
