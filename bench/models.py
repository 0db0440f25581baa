"""Whole models: jitonnx beside onnxruntime, and OpenVINO if asked for, in turns in one process.

    python -m bench.models DIR                          # every .onnx file of a folder (inputs: the .npz beside it)
    python -m bench.models DIR resnet18 bert_base --threads 2 --openvino

For each model and number of threads the runtimes take turns, round after round; a round is a block of runs and counts
its median. The table shows the median of the rounds in milliseconds, the ratio other / jitonnx (above 1: jitonnx is
faster), the largest difference to onnxruntime over its largest value, and the geometric mean of the ratios at its end.
`--memory` adds the peak resident memory of a process that loads the model and runs it once with each runtime. `--cpu
haswell` adds jitonnx compiled for another CPU that this one can stand for; `bench/held_cpu.c` holds all
runtimes to a lesser one.
`--clock cpu` times what a process has the CPU for, beside other work.
`--peers` adds the compilers of `bench/peers.py` that are installed: torch.compile, IREE and TVM.
`--precision bfloat16` asks jitonnx and OpenVINO for products in bfloat16, and adds jitonnx in float32; the last columns
are the differences of these to onnxruntime.

`python -m bench.zoo.materialize DIR` writes the 18 benchmark models, `python -m bench.zoo.quantize` quantised variants
of them. A runtime other than jitonnx that refuses a model has a dash in its column.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.arguments import CLOCKS, add_clock, add_models, model_paths
from bench.peers import PEERS, Feeds, Run
from bench.results import add_record, keep

BLOCK_SECONDS = 0.25
"""Length of a block of runs: long enough to be warm, short enough that all see the same state of the machine."""
PAUSE_SECONDS = 0.02
"""The others' threads stop spinning in a pause between blocks."""


def open_jitonnx(path: Path, threads: int, feeds: Feeds, cpu: str = "host", precision: str = "float32") -> Run:
    """A call that runs the model once with jitonnx, compiled for a CPU by LLVM's name, its products in a precision."""
    import jitonnx

    options = jitonnx.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("jitonnx.cpu", cpu)
    options.add_session_config_entry("jitonnx.precision", precision)
    session = jitonnx.InferenceSession(str(path), options)
    return lambda: session.run(None, feeds)


def open_onnxruntime(path: Path, threads: int, feeds: Feeds) -> Run:
    """The same with onnxruntime, its default settings otherwise."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, feeds)


def open_openvino(path: Path, threads: int, feeds: Feeds, precision: str = "float32") -> Run:
    """The same with OpenVINO, for one request at a time; what is not quantised in a precision, which it takes for all
    that its plugin has in that."""
    import openvino

    hint = {"float32": "f32", "bfloat16": "bf16"}[precision]
    settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": hint}
    model = openvino.Core().read_model(str(path))
    model.reshape({name: list(array.shape) for name, array in feeds.items()})
    request = openvino.Core().compile_model(model, "CPU", settings).create_infer_request()
    return lambda: list(request.infer(feeds).values())


class Runtime(NamedTuple):
    """What runs the models. name: the head of its column. open: gives the call that runs a model once."""

    name: str
    open: Callable[[Path, int, Feeds], Run]


def runtimes(
    openvino: bool = False, cpu: str | None = None, precision: str = "float32", *, peers: bool = False
) -> list[Runtime]:
    """jitonnx and onnxruntime; OpenVINO, other compilers, and jitonnx compiled for another CPU, if wanted. With another
    precision than float32, the first and OpenVINO have that, and jitonnx in float32 is among the others."""
    ours = functools.partial(open_jitonnx, precision=precision)
    found = [Runtime("jitonnx", ours), Runtime("onnxruntime", open_onnxruntime)]
    if openvino:
        found.append(Runtime("openvino", functools.partial(open_openvino, precision=precision)))
    if peers:
        found += [Runtime(name, opened) for name, opened in PEERS.items()]
    if precision != "float32":
        found.append(Runtime("float32", open_jitonnx))
    if cpu:
        found.append(Runtime(f"for {cpu}", functools.partial(open_jitonnx, cpu=cpu)))
    return found


def time_in_turns(
    runs: Sequence[Run],
    rounds: int,
    block_seconds: float = BLOCK_SECONDS,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Median seconds of a run of each by a clock, by blocks in turns."""
    return medians_in_turns([block_of(run, block_seconds, clock) for run in runs], rounds)


def medians_in_turns(blocks: Sequence[Callable[[], float]], rounds: int) -> list[float]:
    """Call each block in turns, and take the median of what it gives."""
    found: list[list[float]] = [[] for _ in blocks]
    for _ in range(rounds):
        for block, seconds in zip(blocks, found, strict=True):
            time.sleep(PAUSE_SECONDS)
            seconds.append(block())
    return [statistics.median(seconds) for seconds in found]


def block_of(
    run: Run, block_seconds: float = BLOCK_SECONDS, clock: Callable[[], float] = time.perf_counter
) -> Callable[[], float]:
    """A call that runs `run` for about `block_seconds`, and gives the median seconds of a run by a clock."""
    run()
    started = time.perf_counter()
    run()
    length = max(1, min(2000, int(block_seconds / max(time.perf_counter() - started, 1e-6))))

    def block() -> float:
        run()  # wakes the threads up
        return _block(run, length, clock)

    return block


def _block(run: Run, length: int, clock: Callable[[], float]) -> float:
    """Median seconds of a run; very short ones are timed many at once."""
    batch = 1
    started = time.perf_counter()
    run()
    if time.perf_counter() - started < 50e-6:
        batch = 50
    times = []
    for _ in range(max(3, length // batch)):
        started = clock()
        for _ in range(batch):
            run()
        times.append((clock() - started) / batch)
    return statistics.median(times)


def measure(
    path: Path, threads: int, chosen: Sequence[Runtime], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, Any]:
    """One row of the table: milliseconds by runtime and a clock, and how far the outputs of the first are from the
    second's, onnxruntime's, and those of the others; NaN for what a runtime refused."""
    runs = _open_all(path, threads, chosen)
    seconds = iter(time_in_turns([run for run in runs if run is not None], rounds, clock=clock))
    row: dict[str, Any] = {"model": path.stem, "threads": threads}
    for runtime, run in zip(chosen, runs, strict=True):
        row[runtime.name] = math.nan if run is None else 1e3 * next(seconds)
    results = [None if run is None else run() for run in runs]
    ours, theirs = results[:2]
    assert ours is not None
    row["difference"] = math.nan if theirs is None else difference(ours, theirs)
    for runtime, result in zip(chosen[2:], results[2:], strict=True):
        apart = math.nan if theirs is None or result is None else difference(result, theirs)
        row[f"{runtime.name} difference"] = apart
    return row


def _open_all(path: Path, threads: int, chosen: Sequence[Runtime]) -> list[Run | None]:
    """What runs the model with each runtime; None for one that refuses it, which the first, jitonnx, may not."""
    with np.load(path.with_suffix(".npz")) as stored:
        feeds = {name: stored[name] for name in stored.files}
    runs: list[Run | None] = [chosen[0].open(path, threads, feeds)]
    for runtime in chosen[1:]:
        try:
            run = runtime.open(path, threads, feeds)
            run()
        except Exception as error:  # each runtime has its own
            print(f"{path.stem}: {runtime.name} refuses it: {str(error).strip().splitlines()[0][:200]}")
            runs.append(None)
        else:
            runs.append(run)
    return runs


def difference(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> float:
    """Largest absolute difference over the largest absolute value, the worst of all outputs."""
    worst = 0.0
    for a, b in zip(ours, theirs, strict=True):
        scale = float(np.max(np.abs(b), initial=0.0)) or 1.0
        apart = np.abs(a.astype(np.float64) - b.astype(np.float64))
        worst = max(worst, float(np.max(apart, initial=0.0)) / scale) if np.isfinite(apart).all() else math.inf
    return worst


def peak_memory(path: Path, threads: int, runtime: Runtime, arguments: Sequence[str]) -> float:
    """Peak resident megabytes of a process that loads the model with one runtime and runs it once.

    arguments: those that chose the runtimes of this process.
    """
    command = [sys.executable, "-m", "bench.models", *arguments, "--peak", runtime.name, "--threads", str(threads)]
    answer = subprocess.run([*command, "--", str(path)], check=True, capture_output=True, text=True)
    return float(answer.stdout.split()[-1])


def _own_peak() -> float:
    """The process's peak resident megabytes. Linux's ru_maxrss counts what its parent held when it was forked, too."""
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return float(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def print_table(rows: Sequence[dict[str, Any]], chosen: Sequence[Runtime], differences: bool = False) -> None:
    """The rows, and the geometric mean of each ratio to the first runtime, jitonnx, by number of threads.

    differences: those of the other runtimes to onnxruntime, too."""
    further = [runtime.name for runtime in chosen[2:]] if differences else []
    others = [runtime.name for runtime in chosen[1:]]
    head = f"{'model':22} {'threads':>7} {'jitonnx ms':>11}"
    head += "".join(f" {name + ' ms':>15} {'ratio':>6}" for name in others) + f" {'difference':>11}"
    head += "".join(f" {name:>11}" for name in further)
    print(head)
    for row in rows:
        line = f"{row['model']:22} {row['threads']:7} {row['jitonnx']:11.4g}"
        line += "".join(
            f" {'-':>15} {'-':>6}" if math.isnan(row[name]) else f" {row[name]:15.4g} {row[name] / row['jitonnx']:6.2f}"
            for name in others
        )
        line += "".join(f" {row[key]:11.1e}" for key in ["difference", *(f"{name} difference" for name in further)])
        print(line)
    print("\n".join(geometric_means(rows, others)))


def geometric_means(rows: Sequence[dict[str, Any]], others: Sequence[str]) -> list[str]:
    """A line a number of threads: the geometric mean of each other runtime's ratio to jitonnx."""
    lines = []
    for threads, equal in _by_threads(rows).items():
        texts = []
        for name in others:
            ratios = [row[name] / row["jitonnx"] for row in equal if not math.isnan(row[name])]
            mean = statistics.geometric_mean(ratios) if ratios else math.nan
            texts.append(f"{name} / jitonnx {mean:.3f}" + (f" (of {len(ratios)})" if len(ratios) < len(equal) else ""))
        lines.append(f"geometric mean, {_threads(threads)}: {', '.join(texts)}")
    return lines


def record_table(rows: Sequence[dict[str, Any]], chosen: Sequence[Runtime]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows for a record: a model a row, for each number of threads jitonnx's milliseconds and the times of
    the others over them, and the largest of its differences to onnxruntime."""
    others = [runtime.name for runtime in chosen[1:]]
    groups = _by_threads(rows)
    columns = ["model"]
    for threads in groups:
        columns += [f"jitonnx, {_threads(threads)}, ms", *(f"{name} /" for name in others)]
    table = []
    for same in zip(*groups.values(), strict=True):
        cells = [same[0]["model"]]
        for row in same:
            ratios = [row[name] / row["jitonnx"] for name in others]
            cells += [f"{row['jitonnx']:.4g}", *("-" if math.isnan(ratio) else f"{ratio:.2f}" for ratio in ratios)]
        table.append([*cells, f"{max(row['difference'] for row in same):.1e}"])
    return [*columns, "difference"], table


def _by_threads(rows: Sequence[dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    """The rows of each number of threads."""
    return {
        threads: [row for row in rows if row["threads"] == threads]
        for threads in sorted({row["threads"] for row in rows})
    }


def _threads(number: int) -> str:
    return f"{number} thread{'s' if number > 1 else ''}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_models(parser)
    parser.add_argument("--threads", default="1,2", help="numbers of threads (default 1,2)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of turns (default 5)")
    parser.add_argument("--openvino", action="store_true", help="measure OpenVINO too")
    parser.add_argument("--peers", action="store_true", help="measure torch.compile, IREE and TVM, too")
    parser.add_argument("--cpu", help="measure jitonnx compiled for this CPU (LLVM's name), too")
    parser.add_argument("--precision", default="float32", choices=("float32", "bfloat16"), help="of products")
    parser.add_argument("--memory", action="store_true", help="also print peak memory, each runtime in its own process")
    add_clock(parser)
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    add_record(parser)
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    threads = [int(number) for number in options.threads.split(",")]
    chosen, lowered = (
        runtimes(options.openvino, options.cpu, options.precision, peers=options.peers),
        options.precision != "float32",
    )
    if options.peak:
        (run,) = _open_all(options.folder, threads[0], [entry for entry in chosen if entry.name == options.peak])
        assert run is not None
        run()
        print(_own_peak())
        return
    paths = model_paths(options)
    rows = []
    for path in paths:
        for number in threads:
            rows.append(measure(path, number, chosen, options.rounds, CLOCKS[options.clock]))
            print_table(rows[-1:], chosen, lowered)
    print()
    print_table(rows, chosen, lowered)
    if options.memory:
        flags = [*(["--openvino"] if options.openvino else []), *(["--cpu", options.cpu] if options.cpu else [])]
        flags += ["--precision", options.precision, *(["--peers"] if options.peers else [])]
        print(f"\n{'peak memory, MB':22}" + "".join(f" {entry.name:>12}" for entry in chosen))
        for path in paths:
            peaks = [peak_memory(path, threads[0], entry, flags) for entry in chosen]
            print(f"{path.stem:22}" + "".join(f" {peak:12.0f}" for peak in peaks))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    if options.record:
        means = "; ".join(geometric_means(rows, [entry.name for entry in chosen[1:]]))
        keep(options.record, threads, *record_table(rows, chosen), summary=f"{means[0].upper()}{means[1:]}.")


if __name__ == "__main__":
    main()
