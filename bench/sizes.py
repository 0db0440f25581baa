"""Models of open sizes, each run of another size: jitonnx beside onnxruntime.

    python -m bench.sizes                                   # a text detector with a feature pyramid, and a recogniser
    python -m bench.sizes DIR --sizes SIZES.json            # and the models of a folder, with sizes by model and input
    python -m bench.sizes DIR --sizes SIZES.json --only det --feeds 20 --threads 2 --cache filled

SIZES.json says for each model (a part of its file's name) and input what its axes are: a number, or [least, largest] or
[least, largest, step], of which each feed gets one by chance:

    {"det": {"x": [1, 3, [192, 960, 32], [192, 960, 32]]}, "tagger": {"ids": ["n", [1, 200]], "mask": ["n", 1]}}

Axes that are texts have the size drawn for the same text before, or a range under that name: {"n": [1, 8]}.

For each model and each state of the kernel cache, empty and filled, a process of its own makes a session, and runs a
stream of feeds, none of which has the sizes of one before; the runtimes take turns, feed by feed. The table shows the
seconds for making the session with its first run, of the stream behind it, and both as a part of onnxruntime's; the
ratio onnxruntime / jitonnx of single runs from the fourth on (geometric mean, least), and of the same feeds run again
(`again`); what a new size costs beside its run (`new`, median, in milliseconds); and the largest difference of outputs.

`--clock cpu` counts the time that the process has the CPUs for, compiling in others left out: for a machine that
others use, too. It is for one thread, as threads that wait for others spin.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.arguments import CLOCKS, add_clock

PAUSE_SECONDS = 0.002
"""The other's threads stop spinning in a pause between turns."""
PRESCHEDULED = 3
"""So many runs of a stream do not count for single runs."""
OWN: dict[str, dict[str, list[Any]]] = {
    "detector": {"x": [1, 3, [192, 960, 32], [192, 960, 32]]},
    "recogniser": {"x": [[1, 6], 3, 48, [80, 800]]},
}


Feeds = dict[str, np.ndarray]
Run = Callable[[Feeds], list[Any]]


def drawn(axes: Mapping[str, Sequence[Any]], rng: np.random.Generator) -> dict[str, tuple[int, ...]]:
    """Shapes by input, with sizes by chance."""
    named: dict[str, int] = {}

    def size(axis: Any) -> int:
        if isinstance(axis, dict):
            ((name, limits),) = axis.items()
            named[name] = size(limits)
            return named[name]
        if isinstance(axis, str):
            return named[axis]
        if isinstance(axis, int):
            return axis
        least, largest, step = (*axis, 1)[:3]
        return int(rng.integers(least // step, largest // step + 1)) * int(step)

    return {name: tuple(map(size, shape)) for name, shape in axes.items()}


def stream_of(inputs: Sequence[Any], axes: Mapping[str, Sequence[Any]], count: int, seed: int = 0) -> list[Feeds]:
    """Feeds of `count` different sets of shapes, fewer if there are no more. inputs: as a session's `get_inputs`."""
    from jitonnx.api.inputs import choose_shapes, random_feeds

    rng = np.random.default_rng(seed)
    found: dict[tuple[tuple[int, ...], ...], dict[str, tuple[int, ...]]] = {}
    for _ in range(20 * count):
        shapes = choose_shapes(inputs, drawn(axes, rng)).shapes
        found.setdefault(tuple(shapes.values()), shapes)
        if len(found) == count:
            break
    return [random_feeds(inputs, shapes, number) for number, shapes in enumerate(found.values())]


def opened(runtime: str, model: Path, threads: int) -> Run:
    """What runs the model, made with a session of its own."""
    module = __import__(runtime)
    options = module.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = module.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return lambda feeds: session.run(None, feeds)


def measure(
    model: Path, axes: Mapping[str, Sequence[Any]], count: int, threads: int, clock: Callable[[], float]
) -> dict[str, Any]:
    """Seconds by runtime: `start`; `first` and `again`, of each run. `difference`: the largest of outputs."""
    from jitonnx.model import load

    feeds = stream_of(load(model).inputs, axes, count)
    names = ("jitonnx", "onnxruntime")
    start: dict[str, float] = {}
    runs: dict[str, Run] = {}
    for name in names:
        __import__(name)
        began = clock()
        runs[name] = opened(name, model, threads)
        runs[name](feeds[0])
        start[name] = clock() - began
    times: dict[str, dict[str, list[float]]] = {which: {name: [] for name in names} for which in ("first", "again")}
    difference = 0.0
    gc.collect()
    for which in ("first", "again"):
        for number, one in enumerate(feeds[1:]):
            results = {}
            for name in names if number % 2 else names[::-1]:
                time.sleep(PAUSE_SECONDS)
                began = clock()
                results[name] = runs[name](one)
                times[which][name].append(clock() - began)
            difference = max(difference, _difference(*(results[name] for name in names)))
    return {"start": start, "difference": difference, **times}


def _difference(ours: Sequence[Any], theirs: Sequence[Any]) -> float:
    """The largest difference of numbers over the largest of them; infinite where shapes differ."""
    largest = 0.0
    for a, b in zip(ours, theirs, strict=True):
        if a.shape != b.shape:
            return math.inf
        if a.size and a.dtype.kind in "fiu":
            wide = b.astype(np.float64)
            largest = max(largest, float(np.abs(a - wide).max() / max(np.abs(wide).max(), 1e-30)))
    return largest


HEAD = (
    f"{'model':34}{'cache':>7}{'start, s':>10}{'of ort':>8}{'stream, s':>11}{'of ort':>8}"
    f"{'mean':>7}{'least':>7}{'again':>7}{'new, ms':>9}{'differ':>9}"
)


def row(name: str, cache: str, found: Mapping[str, Any]) -> str:
    """A line of the table."""
    ours, theirs = (np.array(found["first"][runtime]) for runtime in ("jitonnx", "onnxruntime"))
    ours_again, theirs_again = (np.array(found["again"][runtime]) for runtime in ("jitonnx", "onnxruntime"))
    single = (theirs / ours)[PRESCHEDULED:]
    new = 1e3 * statistics.median(ours - ours_again)
    start = found["start"]
    return (
        f"{name[:33]:34}{cache:>7}{start['jitonnx']:10.2f}{start['jitonnx'] / start['onnxruntime']:8.1f}"
        f"{ours.sum():11.3f}{ours.sum() / theirs.sum():8.2f}{_mean(single):7.2f}{single.min():7.2f}"
        f"{_mean(theirs_again / ours_again):7.2f}{new:9.2f}{found['difference']:9.0e}"
    )


def _mean(ratios: np.ndarray) -> float:
    return float(np.exp(np.log(ratios).mean()))


def _in_process(model: Path, axes: Mapping[str, Sequence[Any]], cache: str, options: argparse.Namespace) -> Any:
    """What `measure` finds in a process of its own, with this folder for the kernel cache."""
    arguments = [sys.executable, "-m", "bench.sizes", "--measure", str(model), json.dumps(axes)]
    arguments += ["--feeds", str(options.feeds), "--threads", str(options.threads), "--clock", options.clock]
    environment = {**os.environ, "JITONNX_CACHE_DIR": cache}
    done = subprocess.run(arguments, env=environment, stdout=subprocess.PIPE, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else None


def _models(options: argparse.Namespace, folder: Path) -> list[tuple[Path, dict[str, list[Any]]]]:
    """The models to measure, with the axes of their inputs."""
    from bench import text_models

    found: list[tuple[Path, dict[str, list[Any]]]] = []
    for name, axes in OWN.items():
        path = folder / f"{name}.onnx"
        path.write_bytes(getattr(text_models, name)().SerializeToString())
        found.append((path, axes))
    given = json.loads(options.sizes.read_text()) if options.sizes else {}
    for path in sorted(options.folder.glob("*.onnx")) if options.folder else ():
        parts = [part for part in given if part in path.stem]
        if parts:
            found.append((path, given[max(parts, key=len)]))
    return [(path, axes) for path, axes in found if not options.only or any(part in path.stem for part in options.only)]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.sizes", description="Each run of another size.")
    parser.add_argument("folder", type=Path, nargs="?", help="with further models")
    parser.add_argument("--sizes", type=Path, help="a file that says what sizes their inputs have")
    parser.add_argument("--only", nargs="+", default=[], help="parts of models' names")
    parser.add_argument("--feeds", type=int, default=30, help="how many sizes (default: 30)")
    parser.add_argument("--threads", type=int, default=1, help="default: 1")
    add_clock(parser)
    parser.add_argument("--cache", choices=("empty", "filled", "both"), default="both")
    parser.add_argument("--measure", nargs=2, metavar=("MODEL", "AXES"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.measure:
        model, axes = options.measure
        json.dump(
            measure(Path(model), json.loads(axes), options.feeds, options.threads, CLOCKS[options.clock]), sys.stdout
        )
        return
    print(HEAD)
    with tempfile.TemporaryDirectory() as folder:
        for path, axes in _models(options, Path(folder)):
            with tempfile.TemporaryDirectory() as cache:
                for state in ("empty", "filled"):
                    found = _in_process(path, axes, cache, options)
                    if found is None:
                        print(f"{path.stem[:33]:34}{state:>7}  failed")
                        break
                    if options.cache in (state, "both"):
                        print(row(path.stem, state, found), flush=True)


if __name__ == "__main__":
    main()
