"""`jitonnx bench MODEL`: how fast a model runs, beside onnxruntime where that is installed."""

from __future__ import annotations

import argparse
import importlib.util
import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jitonnx.tools.cli.common import add_inputs, add_model, feeds_of, median_in_turns, session_of

if TYPE_CHECKING:
    import numpy as np


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("bench", help="time a model, beside onnxruntime where that is installed")
    add_model(parser)
    add_inputs(parser)
    parser.add_argument("--seconds", type=_duration, default=5.0, help="how long to measure (default: 5)")
    parser.add_argument(
        "--against", metavar="FILE", help="the ONNX file for onnxruntime, where MODEL is an artifact (default: MODEL)"
    )
    parser.set_defaults(command=main)


def _duration(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds of at least 0")
    return seconds


def main(options: argparse.Namespace) -> None:
    """Time runs in turns and print the medians."""
    from jitonnx.api.units import seconds, table

    started = time.perf_counter()
    session = session_of(options)
    ready = {"jitonnx": time.perf_counter() - started}
    model = session.compiled_model
    feeds = feeds_of(model, options)
    ours = session.run(None, feeds)
    calls = {"jitonnx": lambda: session.run(None, feeds)}
    threads = model.engine.settings.threads
    missing = _missing(options)
    if not missing:
        started = time.perf_counter()
        try:
            other = _onnxruntime(options.against or options.model, threads)
            ready["onnxruntime"] = time.perf_counter() - started
            theirs = other.run(None, feeds)
        except Exception as error:  # of many classes; whatever it is, there is nothing to compare with
            missing = f"onnxruntime cannot run it ({error})"
        else:
            calls["onnxruntime"] = lambda: other.run(None, feeds)
    medians = median_in_turns(calls, options.seconds, rounds=1000)
    rows = [(name, seconds(ready[name]), seconds(median), f"{1 / median:.4g}") for name, median in medians.items()]
    print(f"{model.title}, {threads} thread{'s' * (threads > 1)}: {_described(feeds)}\n")
    print(table(("", "ready after", "median of a run", "runs a second"), rows, right=(1, 2, 3)))
    if not missing:
        print(f"\nonnxruntime / jitonnx: {medians['onnxruntime'] / medians['jitonnx']:.2f}")
        print(f"largest difference over the largest value: {_difference(ours, theirs):.2g}")
    else:
        print(f"\n{missing}, so there is nothing to compare with")


def _missing(options: argparse.Namespace) -> str:
    """Why there is nothing to compare with; "" if there is."""
    if importlib.util.find_spec("onnxruntime") is None:
        return "onnxruntime is not installed"
    if options.artifact and not options.against:
        return "onnxruntime cannot read an artifact (--against MODEL.onnx)"
    return ""


def _onnxruntime(model: str, threads: int) -> Any:
    import onnxruntime

    session_options = onnxruntime.SessionOptions()
    session_options.intra_op_num_threads = threads
    session_options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, session_options, providers=["CPUExecutionProvider"])


def _described(feeds: Mapping[str, np.ndarray]) -> str:
    return ", ".join(f"{name} {list(array.shape)}" for name, array in feeds.items()) or "no inputs"


def _difference(ours: list[Any], theirs: list[Any]) -> float:
    """The largest difference of any number output, over the largest value of that output."""
    import numpy as np

    worst = 0.0
    for mine, other in zip(ours, theirs, strict=True):
        if isinstance(mine, np.ndarray) and mine.dtype.kind in "fiub" and mine.size:
            a, b = mine.astype(np.float64), np.asarray(other).astype(np.float64)
            worst = max(worst, float(np.max(np.abs(a - b)) / max(float(np.max(np.abs(b))), 1e-30)))
    return worst
