"""Times of lleaves, in a process of its own: it needs an older llvmlite (0.43) than jitonnx has.

    python -m bench.lleaves_times MODEL.txt THREADS     # what `bench.trees --lleaves FOLDER` starts

Compiles a model of LightGBM's text, and then answers each line of its input, a file of rows as NumPy saves them, with
the median seconds of four runs.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np


class LleavesProcess:
    """A process in which lleaves has compiled a model. folder: where it and its llvmlite are, as `pip --target` puts
    them there."""

    def __init__(self, folder: Path, model: Path, threads: int) -> None:
        paths = f"import sys; sys.path.insert(0, {str(folder)!r}); import bench.lleaves_times as it; it.main()"
        command = [sys.executable, "-c", paths, str(model), str(threads)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if not self._answer():
            raise RuntimeError("lleaves did not compile the model: see what it printed")

    def seconds(self, rows: Path) -> float:
        """The median seconds of some runs for a file of rows."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{rows}\n")
        self._process.stdin.flush()
        return float(self._answer())

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


def main() -> None:
    import lleaves

    path, threads = sys.argv[-2:]
    model = lleaves.Model(path)
    model.compile()
    print("compiled", flush=True)
    for line in sys.stdin:
        x = np.load(line.strip())
        model.predict(x, n_jobs=int(threads))
        times = []
        for _ in range(4):
            start = time.perf_counter()
            model.predict(x, n_jobs=int(threads))
            times.append(time.perf_counter() - start)
        print(statistics.median(times), flush=True)


if __name__ == "__main__":
    main()
