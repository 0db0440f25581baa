"""What commands share: arguments for a model and its inputs, sessions, times."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from jitonnx.api.compiled_model import CompiledModel
    from jitonnx.api.inputs import ChosenShapes, Size
    from jitonnx.api.session import InferenceSession

LEVELS = {"none": 0, "basic": 1, "extended": 2, "all": 99}


def add_model(parser: argparse.ArgumentParser, *, artifact: bool = True) -> None:
    """MODEL, and how it is compiled. artifact: it may be a compiled model."""
    parser.add_argument("model", metavar="MODEL", help="an ONNX file")
    if artifact:
        parser.add_argument(
            "--artifact",
            action="store_true",
            help="MODEL is a compiled model, whose machine code is to be run: trust who wrote it (SECURITY.md)",
        )
    parser.add_argument("--threads", type=positive, default=0, metavar="N", help="of a run (default: all CPUs)")
    parser.add_argument(
        "--level", choices=LEVELS, default="all", help="which rewrites are made before planning (default: all)"
    )
    parser.add_argument(
        "--precision",
        metavar="TYPE",
        help="float32; bfloat16 to round the operands of products and convolutions to that where it is faster; or auto "
        "for bfloat16 where --calibration shows no greater error than --precision-bound (default: float32)",
    )
    parser.add_argument(
        "--calibration", metavar="FEEDS.npz", action="append", help="inputs that --precision auto measures errors on"
    )
    parser.add_argument(
        "--precision-bound", metavar="ERROR", help="the greatest error of an output over its largest element"
    )


def add_inputs(parser: argparse.ArgumentParser, *, feeds: bool = True, ranges: bool = False) -> None:
    """Shapes for dimensions that the model leaves open, and where inputs come from.

    ranges: sizes may be LEAST:LARGEST.
    """
    sizes = ", each size a number or a range LEAST:LARGEST" if ranges else ""
    size = ", or a range LEAST:LARGEST" if ranges else " (default: 1)"
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        type=_ranged_shape if ranges else _shape,
        metavar="NAME=1:8,3,224,224" if ranges else "NAME=1,3,224,224",
        help=f"the shape of an input{sizes}; may be given several times",
    )
    parser.add_argument(
        "--dim",
        action="append",
        default=[],
        type=_ranged_dimension if ranges else _dimension,
        metavar="NAME=1:8" if ranges else "NAME=8",
        help=f"the size of a named dimension{size}; may be given several times",
    )
    if feeds:
        parser.add_argument("--input", metavar="FEEDS.npz", help="inputs by name (default: random ones)")
        parser.add_argument("--seed", type=count, default=0, help="of random inputs (default: 0)")


CACHE_TYPES = ("float32", "float16", "bfloat16", "int8")
CACHE_HELP = "of keys and values of earlier tokens (default: as the model has them)"
"""The option --cache-type of commands for language models."""


def positive(text: str) -> int:
    """An argument that is a number above 0."""
    if count(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)


def count(text: str) -> int:
    """An argument that is a number of at least 0."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 0")
    return int(text)


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, sizes = _ranged_shape(text)
    return name, tuple(_no_range(text, size) for size in sizes)


def _ranged_shape(text: str) -> tuple[str, tuple[Size, ...]]:
    name, equals, sizes = text.rpartition("=")
    parts = [part.strip() for part in sizes.split(",")] if sizes.strip() else []
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=SIZE,SIZE,...")
    return name, tuple(_size(text, part, "NAME=SIZE,SIZE,...") for part in parts)


def _dimension(text: str) -> tuple[str, int]:
    name, size = _ranged_dimension(text)
    return name, _no_range(text, size)


def _ranged_dimension(text: str) -> tuple[str, Size]:
    name, equals, size = text.rpartition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=SIZE")
    return name, _size(text, size, "NAME=SIZE")


def _size(text: str, part: str, form: str) -> Size:
    """A size, or the two ends of a range."""
    least, colon, largest = part.partition(":")
    if not least.isdecimal() or (colon and not largest.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not {form}")
    if not colon:
        return int(least)
    if int(least) > int(largest):
        raise argparse.ArgumentTypeError(f"{text!r} has the range {part}, which ends before it begins")
    return int(least), int(largest)


def _no_range(text: str, size: Size) -> int:
    if isinstance(size, tuple):
        raise argparse.ArgumentTypeError(f"{text!r} is a range of sizes, which only `jitonnx compile` takes: give one")
    return size


def session_of(
    options: argparse.Namespace, entries: Mapping[str, str] | None = None, **settings: Any
) -> InferenceSession:
    """A session for the model and settings of the command line. Everything is compiled before it runs.

    entries: session configuration entries.
    """
    from jitonnx.api.entries import ARTIFACT_FORMAT, CALIBRATION, COMPILE, MODEL_FORMAT, PRECISION, PRECISION_BOUND
    from jitonnx.api.enumerations import GraphOptimizationLevel
    from jitonnx.api.options import SessionOptions
    from jitonnx.api.session import InferenceSession

    session_options = SessionOptions()
    session_options.intra_op_num_threads = options.threads
    session_options.graph_optimization_level = GraphOptimizationLevel(LEVELS[options.level])
    for name, value in settings.items():
        setattr(session_options, name, value)
    if options.precision:
        session_options.add_session_config_entry(PRECISION, options.precision)
    if options.calibration:
        session_options.add_session_config_entry(CALIBRATION, ";".join(options.calibration))
    if options.precision_bound:
        session_options.add_session_config_entry(PRECISION_BOUND, options.precision_bound)
    if getattr(options, "artifact", False):  # not all commands take one
        session_options.add_session_config_entry(MODEL_FORMAT, ARTIFACT_FORMAT)
    for key, entry in (entries or {}).items():
        session_options.add_session_config_entry(key, entry)
    session_options.add_session_config_entry(COMPILE, "before")  # people look at the code, and measure it
    session = InferenceSession(options.model, session_options)
    if options.precision == "auto":
        print("precision: {}, as {}".format(*session.precision), file=sys.stderr)
    return session


def shapes_of(model: CompiledModel, options: argparse.Namespace) -> ChosenShapes:
    """Shapes for the model's inputs, from the command line or by default. Says what was assumed."""
    from jitonnx.api.inputs import DEFAULT_SIZE, choose_shapes

    inputs, usual = model.description.inputs, model.engine.usual_sizes
    chosen = choose_shapes(inputs, dict(options.shape), dict(options.dim), usual)
    if chosen.assumed:
        names = ", ".join(chosen.assumed)
        print(f"note: taken as {DEFAULT_SIZE}: {names}; set with --dim NAME=SIZE or --shape INPUT=...", file=sys.stderr)
    return chosen


def feeds_of(model: CompiledModel, options: argparse.Namespace) -> dict[str, np.ndarray]:
    """Inputs from the file named on the command line, or random ones."""
    from jitonnx.api.inputs import random_feeds, stored_feeds

    if options.input is None:
        return random_feeds(model.description.inputs, shapes_of(model, options).shapes, options.seed)
    return stored_feeds(options.input)


def median_seconds(call: Callable[[], object], seconds: float = 1.0, rounds: int = 20) -> float:
    """The median time of a call, over at least 3 and at most `rounds` rounds in about `seconds`."""
    return median_in_turns({"": call}, seconds, rounds)[""]


def median_in_turns(
    calls: Mapping[str, Callable[[], object]], seconds: float = 1.0, rounds: int = 20
) -> dict[str, float]:
    """The median time of each call, measured in turns, so that what slows the machine slows all of them.

    A round repeats each call for some milliseconds; each was called once before.
    """
    import statistics

    repeats = {}
    for name, call in calls.items():
        call()
        started = time.perf_counter()
        call()
        repeats[name] = max(1, int(0.005 / max(time.perf_counter() - started, 1e-7)))
    times: dict[str, list[float]] = {name: [] for name in calls}
    deadline = time.perf_counter() + seconds
    while len(times[next(iter(times))]) < 3 or (
        time.perf_counter() < deadline and len(times[next(iter(times))]) < rounds
    ):
        for name, call in calls.items():
            started = time.perf_counter()
            for _ in range(repeats[name]):
                call()
            times[name].append((time.perf_counter() - started) / repeats[name])
    return {name: statistics.median(taken) for name, taken in times.items()}
