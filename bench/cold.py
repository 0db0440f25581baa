"""How soon a model answers with nothing cached: from the start of a process to its first output, and to compiled code.

    python -m bench.cold DIR                                # every .onnx file of a folder (inputs: the .npz beside it)
    python -m bench.cold DIR resnet50 bert_base --threads 2 --rounds 3

Fresh processes with an empty kernel cache each: `first` compiles in the background (the session configuration entry
jitonnx.compile) and ends at the first output, which NumPy gives; `before` compiles all and ends at the first output.
Times are medians in seconds. Outputs of both are compared.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.arguments import add_models, model_paths
from bench.start import until_ready

SCRIPT = """
import sys
import numpy as np
model, inputs, threads, mode, output = sys.argv[1:]
with np.load(inputs) as stored:
    feeds = dict(stored)
import jitonnx
options = jitonnx.SessionOptions()
options.intra_op_num_threads = int(threads)
options.add_session_config_entry("jitonnx.compile", mode)
result = jitonnx.InferenceSession(model, options).run(None, feeds)[0]
sys.stdout.write("ready\\n")
sys.stdout.flush()
np.save(output, result)
"""
MODES = {"first": "background", "before": "before"}
TOLERANCE = 1e-4
"""Largest difference between the outputs of NumPy and of compiled code, over the largest value."""


def start(model: Path, mode: str, threads: int, output: Path) -> float:
    """Seconds from the start of a process with an empty kernel cache to its first output."""
    with tempfile.TemporaryDirectory() as cache:
        arguments = [sys.executable, "-c", SCRIPT, model, model.with_suffix(".npz"), threads, mode, output]
        environment = {**os.environ, "JITONNX_CACHE_DIR": cache}
        return until_ready(f"{mode!r} with {model}", arguments, environment)[0]


def measure(model: Path, threads: int, rounds: int) -> dict[str, float]:
    """Median seconds by column, over `rounds` rounds in turns."""
    times: dict[str, list[float]] = {name: [] for name in MODES}
    with tempfile.TemporaryDirectory() as folder:
        outputs = {name: Path(folder) / f"{name}.npy" for name in MODES}
        for _ in range(rounds):
            for name, mode in MODES.items():
                times[name].append(start(model, mode, threads, outputs[name]))
        first, compiled = (np.load(path).astype(np.float64) for path in outputs.values())
    difference = np.abs(first - compiled).max(initial=0)
    assert difference <= TOLERANCE * np.abs(compiled).max(initial=0), f"{model.stem}: outputs differ by {difference}"
    return {name: statistics.median(found) for name, found in times.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.cold", description="Starts with nothing cached.")
    add_models(parser)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: all CPUs")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    print(f"{'model':22}" + "".join(f"{name:>10}" for name in MODES))
    for path in model_paths(options):
        found = measure(path, options.threads, options.rounds)
        print(f"{path.stem:22}" + "".join(f"{found[name]:10.2f}" for name in MODES), flush=True)


if __name__ == "__main__":
    main()
