"""What processes share that open the same artifact: their proportional memory (PSS), beside that of one alone.

    python -m bench.sharing DIR vgg16 --processes 8

Each process opens the artifact and runs it once, and waits until all have. Pages that several processes have in common
count in PSS for each with its part, so the sum is what all of them together take. Linux only (`smaps_rollup`).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.start import PREPARE, prepare

SCRIPT = (
    PREPARE
    + """
import jitonnx
options = jitonnx.SessionOptions()
options.intra_op_num_threads = threads
session = jitonnx.load(model, options)
session.run(None, feeds)
sys.stdout.write("ready\\n")
sys.stdout.flush()
sys.stdin.read()
"""
)


def pss(process: int) -> int:
    """The proportional set size of a process in bytes."""
    text = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii")
    (line,) = (line for line in text.splitlines() if line.startswith("Pss:"))
    return int(line.split()[1]) << 10


def total(artifact: Path, folder: Path, processes: int) -> int:
    """The sum of the PSS of so many processes that have all run the artifact, in bytes."""
    command = [sys.executable, "-c", SCRIPT, str(artifact), str(folder), "1"]
    with ExitStack() as stack:
        started = [
            stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            for _ in range(processes)
        ]
        for process in started:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise RuntimeError(f"a process did not run {artifact}")
        found = sum(pss(process.pid) for process in started)
        for process in started:
            assert process.stdin is not None
            process.stdin.close()  # the end of its input lets it end
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.sharing", description="Memory of processes together.")
    parser.add_argument("folder", type=Path, help="with NAME.onnx and NAME.npz for each model")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--processes", type=int, default=8)
    options = parser.parse_args(arguments)
    print(f"{'model':22}{'one, MB':>10}{f'{options.processes}, MB':>10}{'ratio':>8}")
    for model in options.models:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            artifact = prepare(options.folder / f"{model}.onnx", folder, 1)["artifact"]
            one, all_of_them = (total(artifact, folder, count) for count in (1, options.processes))
        print(f"{model:22}{one / 1e6:10.1f}{all_of_them / 1e6:10.1f}{all_of_them / one:8.2f}")


if __name__ == "__main__":
    main()
