"""How models would run on more cores than there are here: a simulation from the times of their steps on one thread.

    python -m bench.scaling DIR resnet50 bert_base mobilenet_v2

Each step of a model has tasks, which threads take in pieces of at least its grain; the next step begins when all are
done. A step then takes as long as the thread with the most pieces, and not less than its bytes need where cores share a
bandwidth: that of memory if the weights outgrow the third-level cache, else that cache's, and both grow with the cores
until `--saturating` of them ask at once. What a step's end costs is fitted to a run on two threads, and grows with the
logarithm of the threads, as the meeting of a tree does.

The table tells the speed-up at 1 to 64 threads, the measured one at two, and what binds at most: steps with fewer
pieces than threads ("pieces"), bandwidth, or the ends of steps. Cores of other sockets, further away from memory, and
clocks that fall when many cores work are left out: a prediction is what the work's division allows, and no more.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

import jitonnx
from bench.arguments import add_models, model_paths
from bench.machine import cache_sizes, copy_bandwidth
from jitonnx.tools.explain import explain

THREADS = (1, 2, 4, 8, 16, 32, 64)
_FROM_MEMORY = 256 << 20
"""Bytes that are copied from memory, whatever the caches."""


class Step(NamedTuple):
    """One step of a model: its time on one thread, in seconds, how it is cut, and the bytes that it moves."""

    seconds: float
    tasks: int
    grain: int
    shared: bool
    bytes: int


class Machine(NamedTuple):
    """What cores share. bandwidth: bytes a second that one core gets; saturating: cores that get as much each.
    end: seconds that the end of a shared step costs two threads."""

    bandwidth: float
    saturating: int
    end: float


class Parts(NamedTuple):
    """The seconds of a run, and which of them are lost to pieces, bandwidth and the ends of steps."""

    total: float
    pieces: float
    bandwidth: float
    ends: float


def simulate(steps: Iterable[Step], threads: int, machine: Machine) -> Parts:
    """A run on so many cores."""
    total = pieces_lost = bandwidth_lost = ends = 0.0
    rate = machine.bandwidth * min(threads, machine.saturating)
    for step in steps:
        if threads == 1 or not step.shared or step.tasks < 2:
            total += step.seconds
            pieces_lost += step.seconds * (1 - 1 / threads)
            continue
        pieces = -(-step.tasks // max(1, step.grain))
        used = min(threads, pieces)
        taken = -(-pieces // used) * step.seconds / pieces
        waiting = max(0.0, step.bytes / rate - taken)
        end = machine.end * math.log2(used) if used > 1 else 0.0
        total += taken + waiting + end
        pieces_lost += taken - step.seconds / threads
        bandwidth_lost += waiting
        ends += end
    return Parts(total, pieces_lost, bandwidth_lost, ends)


def measured(path: Path, threads: int, rounds: int) -> tuple[list[Step], int]:
    """The steps of a model on so many threads, and the bytes of its constants."""
    options = jitonnx.SessionOptions()
    options.intra_op_num_threads = threads
    session = jitonnx.InferenceSession(str(path), options)
    with np.load(path.with_suffix(".npz")) as stored:
        feeds = {name: stored[name] for name in stored.files}
    session.run(None, feeds)
    arrays = [np.asarray(feeds[entry.name]) for entry in session.declared_inputs]
    ready = session.engine.program(tuple(array.shape for array in arrays))
    if ready is None:
        raise SystemExit(f"{path.name} is run in several programs; choose a model that is one")
    ready.executable.profile(arrays, 3)
    times = np.median(ready.executable.profile(arrays, rounds), axis=0)
    told = explain(session, {name: array.shape for name, array in feeds.items()})
    steps = [
        Step(float(seconds), step.tasks, step.grain, step.threads > 1, kernel.bytes)
        for seconds, step, kernel in zip(times, ready.executable.program.steps, told.kernels, strict=True)
    ]
    return steps, told.memory.constants


def predicted(path: Path, rounds: int, saturating: int) -> tuple[dict[int, Parts], float]:
    """A model's runs by the number of threads, and its measured speed-up on two."""
    alone, constants = measured(path, 1, rounds)
    together, _ = measured(path, 2, rounds)
    steps = [step._replace(shared=other.shared) for step, other in zip(alone, together, strict=True)]
    caches = cache_sizes()
    in_memory = constants > caches.get("L3", 0)
    bandwidth = copy_bandwidth(_FROM_MEMORY if in_memory else 4 * caches["L2"]) * 1e9
    free = Machine(bandwidth, saturating, 0.0)
    one, two = (sum(step.seconds for step in found) for found in (alone, together))
    shared = sum(step.shared and step.tasks > 1 for step in steps)
    end = max(0.0, two - simulate(steps, 2, free).total) / max(1, shared)
    return {threads: simulate(steps, threads, free._replace(end=end)) for threads in THREADS}, one / two


def line(name: str, runs: dict[int, Parts], two: float) -> str:
    """A row of the table."""
    one, last = runs[1].total, runs[THREADS[-1]]
    binding = {"pieces": last.pieces, "bandwidth": last.bandwidth, "ends of steps": last.ends}
    speeds = "".join(f"{one / runs[threads].total:7.1f}" for threads in THREADS)
    return f"{name:22}{one * 1e3:8.2f}{speeds}{two:9.2f}   {max(binding, key=lambda what: binding[what])}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_models(parser)
    parser.add_argument("--rounds", type=int, default=20, help="runs to take the median of (default 20)")
    parser.add_argument("--saturating", type=int, default=8, help="cores that saturate a bandwidth (default 8)")
    options = parser.parse_args(arguments)
    heads = "".join(f"{threads:7}" for threads in THREADS)
    print(f"{'model':22}{'ms':>8}{heads}{'2, real':>9}   binds at {THREADS[-1]}")
    for path in model_paths(options):
        print(line(path.stem, *predicted(path, options.rounds, options.saturating)), flush=True)


if __name__ == "__main__":
    main()
