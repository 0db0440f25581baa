"""What a service sees that compiles in the background: runs without a pause, from an empty kernel cache on.

    python -m bench.background DIR                  # every .onnx file of a folder (inputs: the .npz beside it)
    python -m bench.background DIR mobilenet_v2 bert_base --threads 2

Each model gets two processes with an empty kernel cache each. One makes a session that compiles in the background (the
session configuration entry jitonnx.compile) and runs it without a pause until there is code, and for a while more. The
other makes a session that compiles at once, and runs it without a pause while a second session for the same model,
with an empty cache of its own, compiles in the background. The columns:

    steady      the median run when there is code and nothing else to do, ms
    numpy       the least of three runs on NumPy with nothing beside them, over `steady`
    median      the median run of the session that has no code yet, over `steady`
    worst       the longest one, over `steady`
    behind      the longest run that began when there was code, over `steady`; it should be below 10
    compile     seconds from the making of the session until there was code
    at once     seconds that making a session takes which compiles at once
    CPU         what share of one CPU the processes that compiled had, %
    beside      the median run of a session that has code, beside the compile for another, over `steady`
    worst       the longest one, over `steady`
    compile     seconds that the compile beside these runs took

No time is judged. Outputs of NumPy and of the code are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.arguments import add_models, model_paths

COLUMNS = ("steady", "numpy", "median", "worst", "behind", "compile", "at once", "CPU", "beside", "worst", "compile")
SECONDS_BEHIND = 1.0
"""How long runs go on when there is code."""
TOLERANCE = 1e-3
"""Largest difference between the outputs of NumPy and of compiled code, over the largest value."""


class ObservedLoop(NamedTuple):
    """What the process saw that runs a model meanwhile; seconds since it made its session."""

    compiled: float
    """When the first run began that found code."""
    helpers: float
    """CPU seconds of the processes that compiled."""
    alone: float
    """What a run on NumPy took with nothing beside it."""
    on_numpy: list[float]
    """What runs took before there was code."""
    compiled_runs: list[float]
    """What they took from then on."""


def make_session(model: str, mode: str, threads: int) -> Any:
    """A session that compiles when `mode` says."""
    import jitonnx

    options = jitonnx.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("jitonnx.compile", mode)
    return jitonnx.InferenceSession(model, options)


def run_meanwhile(model: str, threads: int) -> ObservedLoop:
    """Run a model while it is compiled in the background. AssertionError if its outputs change with the code."""
    from jitonnx.engine.interpreter import evaluate
    from jitonnx.model.load import load

    feeds = feeds_of(model)
    on_numpy: list[float] = []
    compiled_runs: list[float] = []
    compiled, first = 0.0, None
    start = time.perf_counter()
    session = make_session(model, "background", threads)
    while not compiled_runs or time.perf_counter() - start < compiled + SECONDS_BEHIND:
        begin, before = time.perf_counter(), session.compile_status.numpy_runs
        outputs = session.run(None, feeds)
        taken = time.perf_counter() - begin
        if session.compile_status.numpy_runs > before:
            assert not compiled_runs, f"{model}: a run behind the compile was evaluated on NumPy"
            on_numpy.append(taken)
        else:
            compiled = compiled or begin - start
            compiled_runs.append(taken)
        first = outputs if first is None else first
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert first is not None
    for a, b in zip(first, outputs, strict=True):
        difference = np.abs(np.asarray(a, np.float64) - b).max(initial=0)
        assert difference <= TOLERANCE * np.abs(b).max(initial=0), f"{model}: outputs differ by {difference}"
    graph = load(model).graph
    alone = []
    for _ in range(3):
        begin = time.perf_counter()
        evaluate(graph, feeds)
        alone.append(time.perf_counter() - begin)
    return ObservedLoop(compiled, usage.ru_utime + usage.ru_stime, min(alone), on_numpy, compiled_runs)


class SeenBeside(NamedTuple):
    """What the process saw that runs a model which has its code, beside a compile for another session; seconds."""

    at_once: float
    """What making the session takes."""
    steady: list[float]
    """What runs took with nothing beside them."""
    beside: list[float]
    """What they took beside the compile."""
    compiled: float
    """What the compile took."""


def run_beside(model: str, threads: int) -> SeenBeside:
    """Run a model that has its code while another session for it compiles in the background."""
    feeds = feeds_of(model)
    start = time.perf_counter()
    session = make_session(model, "before", threads)
    at_once = time.perf_counter() - start
    steady = [seconds(session, feeds)]
    while sum(steady) < SECONDS_BEHIND:
        steady.append(seconds(session, feeds))
    beside = []
    with tempfile.TemporaryDirectory() as cache:
        os.environ["JITONNX_CACHE_DIR"] = cache
        start = time.perf_counter()
        other = make_session(model, "background", threads)
        while other.compile_status.state != "compiled":
            beside.append(seconds(session, feeds))
        return SeenBeside(at_once, steady, beside, time.perf_counter() - start)


def seconds(session: Any, feeds: dict[str, np.ndarray]) -> float:
    """How long a run takes."""
    start = time.perf_counter()
    session.run(None, feeds)
    return time.perf_counter() - start


def feeds_of(model: str) -> dict[str, np.ndarray]:
    """The arrays beside the model."""
    with np.load(Path(model).with_suffix(".npz")) as stored:
        return dict(stored)


def in_process(task: str, model: Path, threads: int) -> Any:
    """What a function of this module gives in a process of its own with an empty kernel cache."""
    script = f"import json; from bench.background import {task}; print(json.dumps({task}({str(model)!r}, {threads})))"
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "JITONNX_CACHE_DIR": cache}
        done = subprocess.run([sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def line(name: str, seen: ObservedLoop, other: SeenBeside) -> str:
    """A line of the table."""
    steady = statistics.median(other.steady)
    ratios = [seen.alone, statistics.median(seen.on_numpy), max(seen.on_numpy), max(seen.compiled_runs)]
    ratios_beside = [statistics.median(other.beside), max(other.beside)]
    columns = [
        f"{1e3 * steady:.3f}",
        *(f"{found / steady:.1f}" for found in ratios),
        *(f"{seen.compiled:.2f}", f"{other.at_once:.2f}", f"{100 * seen.helpers / seen.compiled:.0f}"),
        *(f"{found / steady:.2f}" for found in ratios_beside),
        f"{other.compiled:.2f}",
    ]
    return " ".join([f"{name:30.30}", *(f"{column:>8}" for column in columns)])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.background", description="Runs beside a compile.")
    add_models(parser)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: all CPUs")
    options = parser.parse_args(arguments)
    print(" ".join([f"{'model':30}", *(f"{name:>8}" for name in COLUMNS)]))
    for path in model_paths(options):
        seen = ObservedLoop(*in_process("run_meanwhile", path, options.threads))
        other = SeenBeside(*in_process("run_beside", path, options.threads))
        print(line(path.stem, seen, other), flush=True)


if __name__ == "__main__":
    main()
