"""Inputs that a classifier takes for a class, drawn by a Metropolis sampler whose whole loop Numba compiles.

    python docs/examples/sample.py bench/zoo/mlp_tiny.onnx

The density is that of a normal distribution times the square of the probability that the model gives to the class. Each
step calls the network once, so there is nothing to batch: what a call costs is what the sampler takes. The same loop is
timed with `session.run`, of jitonnx and of onnxruntime where that is installed, and the calls of the network alone.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

import jitonnx
import jitonnx.numba


@numba.njit
def sample(network: Any, x: Any, wanted: int, steps: int, seed: int) -> Any:
    """The mean of the samples [1, N], and how often a proposal was taken. network: gives probabilities [1, C] of x."""
    np.random.seed(seed)
    mean, taken = np.zeros(x.shape[1]), 0
    proposal = x.copy()
    density = np.float64(network(x)[0, wanted]) ** 2 * np.exp(-0.5 * np.float64((x * x).sum()))
    for _ in range(steps):
        for i in range(x.shape[1]):
            proposal[0, i] = x[0, i] + np.float32(0.3) * np.float32(np.random.standard_normal())
        own = np.float64(network(proposal)[0, wanted]) ** 2 * np.exp(-0.5 * np.float64((proposal * proposal).sum()))
        if np.random.random() * density < own:
            x[:] = proposal
            density = own
            taken += 1
        for i in range(x.shape[1]):
            mean[i] += x[0, i]
    return mean / max(steps, 1), taken


@numba.njit
def calls(network: Any, x: Any, y: Any, count: int) -> None:
    """The network alone, whose output is written to y."""
    for _ in range(count):
        network.into(x, y)


def seconds(function: Callable[..., Any], *arguments: Any) -> float:
    """CPU seconds, of three runs the middle one."""
    times = []
    for _ in range(3):
        begin = time.process_time()
        function(*arguments)
        times.append(time.process_time() - begin)
    return sorted(times)[1]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a classifier: one input [1, N], probabilities [1, C]")
    parser.add_argument("--steps", type=int, default=1_000_000)
    chosen = parser.parse_args()
    session = jitonnx.InferenceSession(chosen.model)
    network = jitonnx.numba.bind(session)
    (entry,) = session.get_inputs()
    x, few = np.zeros(entry.shape, np.float32), max(1, chosen.steps // 20)
    y = network(x)
    calls(network, x, y, 1)
    sample(network, x.copy(), 0, 1, 0)

    def by_run(run: Callable[..., Any]) -> tuple[float, float]:
        def alone() -> None:
            for _ in range(few):
                run(None, feed)

        feed = {entry.name: x}
        loop = seconds(sample.py_func, lambda x: run(None, {entry.name: x})[0], x.copy(), 0, few // 10, 0) * 10
        return seconds(alone) / few, loop / few

    lines = [
        (
            "Numba, bound",
            seconds(calls, network, x, y, chosen.steps) / chosen.steps,
            seconds(sample, network, x.copy(), 0, chosen.steps, 0) / chosen.steps,
        ),
        ("session.run", *by_run(session.run)),
    ]
    try:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        lines.append(("onnxruntime", *by_run(onnxruntime.InferenceSession(chosen.model, options).run)))
    except ImportError:
        print("onnxruntime is not installed")
    print(f"{'µs of CPU time':16}{'the network':>12}{'a step':>12}")
    for name, alone, step in lines:
        print(f"{name:16}{alone * 1e6:12.3f}{step * 1e6:12.3f}")


if __name__ == "__main__":
    main()
