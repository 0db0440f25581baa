"""Loops: recurrences over time and greedy decoders, each one model, jitonnx beside onnxruntime.

    python -m bench.loops                        # all of bench/loop_models.py
    python -m bench.loops --only decoder --threads 2 --rounds 30

The runtimes take turns in one process. The table shows the least milliseconds of a run, the microseconds of an
iteration, how many times as long onnxruntime takes, and the largest difference of outputs. `--clock cpu` counts the
time that the process has the CPUs for: for a machine that others use, too, and one thread.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bench.arguments import CLOCKS, add_clock
from bench.loop_models import CASES, LoopCase
from bench.results import add_record, keep

PAUSE_SECONDS = 0.002
"""The other's threads stop spinning in a pause between turns."""
COLUMNS = ("model", "ms", "us a step", "onnxruntime", "ratio", "differ")


def measure(case: LoopCase, threads: int, rounds: int, clock: Callable[[], float]) -> list[str]:
    """A row of the table."""
    runs = {name: _opened(name, case, threads) for name in ("jitonnx", "onnxruntime")}
    results = {name: run() for name, run in runs.items()}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    for number in range(rounds):
        for name in list(runs)[:: 1 if number % 2 else -1]:
            time.sleep(PAUSE_SECONDS if threads > 1 else 0)
            began = clock()
            runs[name]()
            times[name].append(clock() - began)
    ours, theirs = (1e3 * min(times[name]) for name in ("jitonnx", "onnxruntime"))
    apart = _difference(results["jitonnx"], results["onnxruntime"])
    figures = [f"{ours:.3f}", f"{1e3 * ours / case.steps:.3f}", f"{theirs:.3f}", f"{theirs / ours:.2f}"]
    return [case.name, *figures, f"{apart:.0e}"]


def line(cells: Sequence[str]) -> str:
    return f"{cells[0]:44}" + "".join(f"{cell:>12}" for cell in cells[1:])


def _opened(runtime: str, case: LoopCase, threads: int) -> Callable[[], list[Any]]:
    module = __import__(runtime)
    options = module.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = module.InferenceSession(case.model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, case.feeds)


def _difference(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> float:
    """The largest difference of elements; infinite where shapes differ."""
    if [array.shape for array in ours] != [array.shape for array in theirs]:
        return np.inf
    return max(float(np.abs(a.astype(np.float64) - b).max(initial=0)) for a, b in zip(ours, theirs, strict=True))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.loops", description="Loops beside onnxruntime.")
    parser.add_argument("--only", nargs="+", default=[""], help="parts of models' names")
    parser.add_argument("--threads", type=int, default=1, help="default: 1")
    parser.add_argument("--rounds", type=int, default=20, help="default: 20")
    add_clock(parser)
    add_record(parser)
    options = parser.parse_args(arguments)
    print(line(COLUMNS))
    rows = []
    for make in CASES:
        case = make()
        if any(part in case.name for part in options.only):
            rows.append(measure(case, options.threads, options.rounds, CLOCKS[options.clock]))
            print(line(rows[-1]), flush=True)
    if options.record:
        keep(options.record, [options.threads], COLUMNS, rows)


if __name__ == "__main__":
    main()
