"""Run a script of the folder above and keep its `result`, or compare two of these.

python run.py NAME FILE
python run.py --compare FILE FILE
"""

from __future__ import annotations

import dataclasses
import pickle
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np


def run(name: str, file: str) -> None:
    """SystemExit where the script has made no session."""
    import onnxruntime

    made = []
    session = onnxruntime.InferenceSession
    initialise = session.__init__

    def counted(self: Any, *arguments: Any, **options: Any) -> None:
        initialise(self, *arguments, **options)
        made.append(self)

    session.__init__ = counted
    names = runpy.run_path(str(Path(__file__).parents[1] / f"{name}.py"))
    if not made:
        sys.exit("no session was made")
    leaves = list(flat(names["result"], ""))
    with open(file, "wb") as written:
        pickle.dump((leaves, names.get("TOLERANCE", 1e-3), len(made), session.__module__), written)


def flat(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The parts of a result with where they stand: arrays of numbers, texts, and what else is neither of these."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(value, "detach"):
        value = value.detach().numpy()
    if isinstance(value, dict):
        for key in value:
            yield from flat(value[key], f"{path}.{key}")
    elif isinstance(value, (list, tuple)) and not all(isinstance(one, (int, float)) for one in value):
        yield f"{path}.length", len(value)
        for place, one in enumerate(value):
            yield from flat(one, f"{path}[{place}]")
    elif isinstance(value, (str, bytes, bool)) or value is None:
        yield path, value
    elif hasattr(value, "__dict__") and not hasattr(value, "__array_interface__"):
        yield from flat({key: one for key, one in vars(value).items() if not key.startswith("_")}, path)
    else:
        array = np.asarray(value)
        yield path, array if array.dtype.kind in "biufcSU" else array.astype(str)


def compare(first: str, second: str) -> None:
    """Print what came of it."""
    with open(first, "rb") as one, open(second, "rb") as other:
        (theirs, tolerance, _, theirs_module), (ours, _, count, ours_module) = pickle.load(one), pickle.load(other)
    if ours_module.partition(".")[0] != "jitonnx" or theirs_module.partition(".")[0] == "jitonnx":
        print(f"fails here: sessions are those of {ours_module} and of {theirs_module}")
        return
    if [path for path, _ in theirs] != [path for path, _ in ours]:
        print(f"differs: {len(theirs)} and {len(ours)} parts")
        return
    most = 0.0
    for (path, x), (_, y) in zip(theirs, ours, strict=True):
        x, y = np.asarray(x), np.asarray(y)
        if x.dtype.kind not in "iufc" or x.shape != y.shape or x.dtype != y.dtype:
            if x.shape != y.shape or x.dtype.kind != y.dtype.kind or not (x == y).all():
                print(f"differs: {path} is {y.tolist()!r:.60}, not {x.tolist()!r:.60}")
                return
        elif x.size and x.dtype.kind in "fc":
            largest = np.abs(np.nan_to_num(x)).max()
            most = max(most, float(np.abs(np.nan_to_num(x - y)).max() / (largest or 1)))
            if (np.isnan(x) != np.isnan(y)).any():
                most = np.inf
        elif x.size and (x != y).any():
            print(f"differs: {path} is {y.tolist()!r:.60}, not {x.tolist()!r:.60}")
            return
        if most > tolerance:
            print(f"differs: {path} by {most:.1e} of the largest")
            return
    print(f"the same ({count} session{'s' * (count != 1)}, {len(theirs)} parts, within {most:.0e})")


if __name__ == "__main__":
    if sys.argv[1] == "--compare":
        compare(*sys.argv[2:])
    else:
        run(*sys.argv[1:])
