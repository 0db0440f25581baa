"""Regions made both ways, by LLVM IR and by Numba: how many have a Numba kernel, whether results agree, what they take.

    python -m bench.regions FOLDER [MODEL ...]

FOLDER: what `python -m bench.zoo.materialize` wrote. A row of a Markdown table for each model: its kernel calls, those
of regions and how many of these Numba compiles; the largest difference of outputs over the largest element; CPU time of
a start by LLVM with an empty cache, and of one by Numba behind it, which finds the library's kernels there; and the
time of the regions' kernels in a run on one thread, medians in turns. Below, what has no Numba kernel.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

from bench.arguments import add_models, model_paths

ROUNDS, RUNS = 3, 5


def measure(path: Path) -> None:
    """Print a model's row."""
    import jitonnx
    from jitonnx.tools.explain import Kernel, explain

    feeds = dict(np.load(path.with_suffix(".npz")))
    shapes = {name: array.shape for name, array in feeds.items()}
    opened: dict[str, jitonnx.InferenceSession] = {}
    outputs, starts = {}, {}
    for way in ("llvm", "numba"):
        options = jitonnx.SessionOptions()
        options.intra_op_num_threads = 1
        for key, value in {"codegen": way, "keep_model": "0", "compile": "before"}.items():
            options.add_session_config_entry(f"jitonnx.{key}", value)
        begun = time.process_time()
        opened[way] = jitonnx.InferenceSession(str(path), options)
        outputs[way] = opened[way].run(None, feeds)
        starts[way] = time.process_time() - begun
    kernels = {way: explain(session, shapes).kernels for way, session in opened.items()}

    def regions(some: tuple[Kernel, ...]) -> list[int]:
        return [number for number, kernel in enumerate(some) if kernel.numba]

    taken: dict[str, list[float]] = {way: [] for way in opened}
    for _ in range(ROUNDS):
        for way, session in opened.items():
            engine = session.compiled_model.engine
            arrays = [np.asarray(feeds[entry.name]) for entry in session.compiled_model.description.inputs]
            program = engine.program(tuple(array.shape for array in arrays))
            if program is not None:
                times = program.executable.profile(arrays, RUNS)
                taken[way].append(float(np.median(times, axis=0)[regions(kernels[way])].sum()))
    error = max(
        float(np.abs(a - b).max() / max(np.abs(a).max(), 1e-30))
        for a, b in zip(outputs["llvm"], outputs["numba"], strict=True)
        if a.size and a.dtype.kind == "f"
    )
    refused = Counter(kernel.not_by_numba for kernel in kernels["numba"] if kernel.not_by_numba)
    by_numba = len(regions(kernels["numba"]))
    spent = [f"{1e3 * np.median(taken[way]):.3f}" if taken[way] else "" for way in opened]
    row = (path.stem, len(kernels["numba"]), by_numba + refused.total(), by_numba, f"{error:.1e}")
    row += tuple(f"{starts[way]:.1f}" for way in opened)  # type: ignore[assignment]
    print(f"| {' | '.join(map(str, (*row, *spent)))} |", flush=True)
    for reason, count in refused.items():
        print(f"  {count} without: {reason}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_models(parser)
    paths = model_paths(parser.parse_args())
    if len(paths) == 1:
        measure(paths[0])
        return
    print("| model | kernels | regions | by Numba | difference | start LLVM s | then Numba s | LLVM ms | Numba ms |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for path in paths:  # each in a process of its own, with an empty cache
        with tempfile.TemporaryDirectory() as folder:
            for end in (".onnx", ".npz"):
                os.symlink(path.with_suffix(end).absolute(), Path(folder) / (path.stem + end))
            environment = {**os.environ, "JITONNX_CACHE_DIR": str(Path(folder) / "cache")}
            subprocess.run([sys.executable, "-m", "bench.regions", folder], check=False, env=environment)


if __name__ == "__main__":
    main()
