"""How soon a model answers: from the start of a process to its first output.

    python -m bench.start DIR                           # every .onnx file of a folder (inputs: the .npz beside it)
    python -m bench.start DIR mlp_tiny resnet50 --threads 2 --rounds 7

Fresh processes take turns: jitonnx with an artifact (`artifact`), jitonnx with the model file and what it keeps of it
in the kernel cache (`cached`), onnxruntime with the model file. Each imports NumPy and the runtime, reads the inputs,
opens the model, runs it once and says so; a bare `import numpy` is shown beside them. Python's own cache of compiled
modules is filled, as it is for installed packages. Times are medians in milliseconds from the start of the process to
that word, ratios are of medians, below 1 where jitonnx is sooner. Outputs are compared. `--imports` prints what each
kind of process spends most time to import.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from bench.arguments import add_models, model_paths

PREPARE = """
import sys
import numpy as np
model, inputs, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
names = open(inputs + "/names").read().split("\\n")
feeds = {name: np.load(f"{inputs}/{number}.npy") for number, name in enumerate(names)}
"""
RUN = """
options = runtime.SessionOptions()
options.intra_op_num_threads = threads
output = opened(model, options, providers=["CPUExecutionProvider"]).run(None, feeds)[0]
sys.stdout.write("ready\\n")
sys.stdout.flush()
np.save(sys.argv[4], output)
"""
SCRIPTS = {
    "artifact": PREPARE + "import jitonnx as runtime; opened = runtime.load" + RUN,
    "cached": PREPARE + "import jitonnx as runtime; opened = runtime.InferenceSession" + RUN,
    "onnxruntime": PREPARE + "import onnxruntime as runtime; opened = runtime.InferenceSession" + RUN,
    "numpy": PREPARE + 'sys.stdout.write("ready\\n")',
}
RUNTIMES = ("artifact", "cached", "onnxruntime")
TOLERANCE = 1e-4
"""Largest difference to onnxruntime's first output, over its largest value."""


def start(kind: str, model: Path, folder: Path, threads: int, flags: Sequence[str] = ()) -> tuple[float, str]:
    """Seconds from the start of a process to its first output, and what it wrote to standard error."""
    arguments = [sys.executable, *flags, "-c", SCRIPTS[kind], model, folder, threads, folder / f"{kind}.out.npy"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
    return until_ready(f"{kind} with {model}", arguments, environment)


def until_ready(what: str, arguments: Sequence[object], environment: Mapping[str, str]) -> tuple[float, str]:
    """Seconds from the start of a process until it says so, and what it wrote to standard error until its end."""
    command = list(map(str, arguments))
    began = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        word = process.stdout.readline()
        taken = time.perf_counter() - began
        errors = process.stderr.read()
    if word != "ready\n" or process.returncode != 0:
        raise RuntimeError(f"{what} did not run: {errors}")
    return taken, errors


def prepare(path: Path, folder: Path, threads: int) -> dict[str, Path]:
    """Write inputs and artifact, and fill the kernel cache; the file that each kind of process opens."""
    import jitonnx

    with np.load(path.with_suffix(".npz")) as stored:
        feeds = {name: stored[name] for name in stored.files}
    (folder / "names").write_text("\n".join(feeds))
    for number, array in enumerate(feeds.values()):
        np.save(folder / f"{number}.npy", array)
    options = jitonnx.SessionOptions()
    options.intra_op_num_threads = threads
    session = jitonnx.InferenceSession(str(path), options)
    session.run(None, feeds)
    artifact = folder / f"{path.stem}.jitonnx"
    session.save(artifact)
    return {"artifact": artifact, "cached": path, "onnxruntime": path, "numpy": path}


def measure(path: Path, threads: int, rounds: int) -> dict[str, float]:
    """Median milliseconds by kind of process, over `rounds` rounds in turns behind one that does not count."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = prepare(path, folder, threads)
        times: dict[str, list[float]] = {kind: [] for kind in SCRIPTS}
        for number in range(rounds + 1):
            for kind, file in files.items():
                seconds, _ = start(kind, file, folder, threads)
                if number:
                    times[kind].append(1e3 * seconds)
        reference = np.load(folder / "onnxruntime.out.npy")
        for kind in ("artifact", "cached"):
            difference = np.abs(np.load(folder / f"{kind}.out.npy").astype(np.float64) - reference).max(initial=0)
            assert difference <= TOLERANCE * np.abs(reference).max(initial=0), f"{path.stem}: {kind} is wrong"
    return {kind: statistics.median(found) for kind, found in times.items()}


def imports(path: Path, threads: int, listed: int = 15) -> dict[str, list[tuple[float, str]]]:
    """What `python -X importtime` says of each kind of process: milliseconds by module itself, the largest first."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = prepare(path, folder, threads)
        found = {}
        for kind in RUNTIMES:
            for _ in range(2):  # the first fills Python's cache
                _, text = start(kind, files[kind], folder, threads, ["-X", "importtime"])
            rows = [
                line.split("|") for line in text.splitlines() if line.startswith("import time:") and "self" not in line
            ]
            costs = sorted(((int(row[0].split(":")[1]) / 1e3, row[2].strip()) for row in rows), reverse=True)
            found[kind] = costs[:listed]
    return found


def table(rows: Mapping[str, Mapping[str, float]]) -> str:
    """The measurements as text."""
    lines = [f"{'model':22}{'numpy':>8}{'artifact':>10}{'cached':>8}{'onnxruntime':>13}{'artifact/':>11}{'cached/':>9}"]
    ratios: dict[str, list[float]] = {"artifact": [], "cached": []}
    for model, row in rows.items():
        for kind, found in ratios.items():
            found.append(row[kind] / row["onnxruntime"])
        lines.append(
            f"{model:22}{row['numpy']:8.0f}{row['artifact']:10.0f}{row['cached']:8.0f}{row['onnxruntime']:13.0f}"
            f"{ratios['artifact'][-1]:11.2f}{ratios['cached'][-1]:9.2f}"
        )
    means = {kind: math.exp(statistics.fmean(map(math.log, found))) for kind, found in ratios.items()}
    lines.append(f"{'geometric mean':61}{means['artifact']:11.2f}{means['cached']:9.2f}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.start", description="From process start to first output.")
    add_models(parser)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: all CPUs")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--imports", action="store_true", help="show what is imported instead")
    options = parser.parse_args(arguments)
    paths = model_paths(options)
    if options.imports:
        for kind, costs in imports(paths[0], options.threads).items():
            print(f"{kind}\n" + "\n".join(f"  {milliseconds:8.2f} ms  {module}" for milliseconds, module in costs))
        return
    rows = {}
    for path in paths:
        rows[path.stem] = measure(path, options.threads, options.rounds)
        print(path.stem, {kind: round(value) for kind, value in rows[path.stem].items()}, file=sys.stderr, flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()
