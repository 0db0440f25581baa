"""A stream of inputs whose shapes change with every run: jitonnx beside onnxruntime.

    python -m bench.shapes DIR                              # DIR/minilm_l6.onnx, 200 shapes
    python -m bench.shapes DIR --model NAME --shapes 100 --threads 2 --seed 1

Every dimension that the model leaves open gets random sizes: the first (the batch) up to --batch, others up to
--length. Each runtime gets the same stream, in turns of some shapes, after one run that does not count. The table shows
the time of the whole stream, that of the same shapes run again, what a new shape costs beside its run (the median), and
the slowest single run over what its shape takes again.
"""

from __future__ import annotations

import argparse
import functools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

REPEATS = 2
"""Runs of each shape whose least time counts as steady."""

BLOCK = 20
"""Shapes that a runtime runs until it is the other's turn."""
PAUSE_SECONDS = 0.05
"""The other's threads stop spinning in a pause between turns."""

Feeds = dict[str, np.ndarray]


class Result(NamedTuple):
    """Seconds of each run of a stream, and of the same shapes run again."""

    stream: np.ndarray
    steady: np.ndarray

    @property
    def worst(self) -> float:
        """The slowest single run of the stream over the steady time of its shape."""
        return float(np.max(self.stream / self.steady))


def stream_of(model: Path, count: int, batch: int, length: int, seed: int) -> list[Feeds]:
    """Random inputs of `count` different sets of shapes, in random order."""
    import jitonnx
    from jitonnx.api.inputs import choose_shapes, random_feeds

    session = jitonnx.InferenceSession(str(model))
    declared = session.declared_inputs
    names = list(dict.fromkeys(dim for entry in declared for dim in entry.shape or () if isinstance(dim, str)))
    generator = np.random.default_rng(seed)
    chosen: dict[tuple[int, ...], None] = {}
    while len(chosen) < count:
        sizes = tuple(int(generator.integers(1, (length if place else batch) + 1)) for place in range(len(names)))
        chosen[sizes] = None
    feeds = []
    for number, sizes in enumerate(chosen):
        shapes = choose_shapes(declared, {}, dict(zip(names, sizes, strict=True))).shapes
        feeds.append(random_feeds(declared, shapes, number))
    return feeds


def measure(runs: Mapping[str, Callable[[Feeds], object]], feeds: Sequence[Feeds]) -> dict[str, Result]:
    """The times of a stream, and of its shapes run again behind it; the runtimes take turns with parts of it."""
    streams: dict[str, list[float]] = {name: [] for name in runs}
    steady: dict[str, list[float]] = {name: [] for name in runs}
    for first in range(0, len(feeds), BLOCK):
        for name, run in runs.items():
            time.sleep(PAUSE_SECONDS)
            block = feeds[first : first + BLOCK]
            streams[name] += [_seconds(run, one) for one in block]
            steady[name] += [min(_seconds(run, one) for _ in range(REPEATS)) for one in block]
    return {name: Result(np.array(streams[name]), np.array(steady[name])) for name in runs}


def _seconds(run: Callable[[Feeds], object], feeds: Feeds) -> float:
    began = time.perf_counter()
    run(feeds)
    return time.perf_counter() - began


def opened(model: Path, threads: int, first: Feeds) -> dict[str, Callable[[Feeds], list[np.ndarray]]]:
    """Both runtimes with the model, warm. Their outputs are compared."""
    import onnxruntime

    import jitonnx

    runs: dict[str, Callable[[Feeds], list[np.ndarray]]] = {}
    for name, runtime in (("jitonnx", jitonnx), ("onnxruntime", onnxruntime)):
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads
        session = runtime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        runs[name] = functools.partial(session.run, None)
    ours, theirs = (run(first) for run in runs.values())
    for a, b in zip(ours, theirs, strict=True):
        assert np.abs(a - b).max(initial=0) <= 1e-4 * np.abs(b).max(initial=0), f"{model.stem}: outputs differ"
    return runs


def table(results: dict[str, Result]) -> str:
    """The measurements as text."""
    lines = [f"{'':14}{'stream, s':>12}{'steady, s':>12}{'new shape, ms':>15}{'worst / steady':>16}{'stream /':>10}"]
    reference = results["onnxruntime"].stream.sum()
    for name, result in results.items():
        extra = 1e3 * float(np.median(result.stream - result.steady))
        lines.append(
            f"{name:14}{result.stream.sum():12.3f}{result.steady.sum():12.3f}{extra:15.2f}{result.worst:16.1f}"
            f"{result.stream.sum() / reference:10.2f}"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.shapes", description="Inputs of ever new shapes.")
    parser.add_argument("folder", type=Path, help="with NAME.onnx")
    parser.add_argument("--model", default="minilm_l6", help="NAME (default: minilm_l6)")
    parser.add_argument("--shapes", type=int, default=200, help="how many (default: 200)")
    parser.add_argument("--batch", type=int, default=8, help="largest size of the first open dimension (default: 8)")
    parser.add_argument("--length", type=int, default=128, help="largest size of the others (default: 128)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: all CPUs")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    model = options.folder / f"{options.model}.onnx"
    feeds = stream_of(model, options.shapes, options.batch, options.length, options.seed)
    runs = opened(model, options.threads, feeds[0])
    print(f"{model.stem}, {len(feeds)} different shapes, {options.threads} threads")
    print(table(measure(runs, feeds[1:])))


if __name__ == "__main__":
    main()
