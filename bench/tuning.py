"""Tuning by measurement: what it gains, what it takes, and how far estimated costs are from measured times.

    python -m bench.tuning DIR                          # every .onnx file of a folder (inputs: the .npz beside it)
    python -m bench.tuning DIR mobilenet_v2 --threads 2 --seconds 30

Each model is loaded as usual and tuned, with an empty cache for what is measured, and both run in turns, round after
round; `usual / tuned` is above 1 where the tuned one is faster. `choices` counts those with other candidates, `others`
those of them for which not the estimated best is taken. The second table is about the estimates, by kind of choice:
how often the estimated best was the fastest (within the noise of 3 %), and what the fastest candidate would have
saved on average and at most, as parts of the estimated best's time.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from bench.arguments import add_models, model_paths
from bench.models import time_in_turns
from bench.results import add_record, keep
from jitonnx.engine.tuning import GAIN, Tuned


def measure(path: Path, threads: int, seconds: float, rounds: int) -> tuple[dict[str, Any], Tuned]:
    """A row of the first table, and what was measured of the model."""
    import jitonnx

    sessions, feeds, taken = [], path.with_suffix(".npz"), []
    for entries in ({}, {"jitonnx.tune": str(seconds), "jitonnx.calibration": str(feeds), "jitonnx.keep_model": "0"}):
        options = jitonnx.SessionOptions()
        options.intra_op_num_threads = threads
        for key, value in entries.items():
            options.add_session_config_entry(key, value)
        started = time.perf_counter()
        sessions.append(jitonnx.InferenceSession(str(path), options))
        taken.append(time.perf_counter() - started)
    tuned = sessions[1].tuning
    assert tuned is not None
    with np.load(feeds) as stored:
        given = {entry.name: stored[entry.name] for entry in sessions[0].get_inputs()}
    usual, other = time_in_turns([lambda: sessions[0].run(None, given), lambda: sessions[1].run(None, given)], rounds)
    row = {"model": path.stem, "usual": 1e3 * usual, "tuned": 1e3 * other, "seconds": taken[1]}
    row["choices"] = len(tuned.measured) or len(tuned.comparisons)
    row["others"] = sum(measured.taken != measured.estimated for measured in tuned.measured)
    return row, tuned


GAINS = ("model", "usual ms", "tuned ms", "usual / tuned", "choices", "others", "seconds")
ERRORS = ("choice", "measured", "best taken", "mean saving", "greatest")


def gains(row: dict[str, Any]) -> list[str]:
    """A row of the first table, whose columns are GAINS."""
    times = [f"{row['usual']:.4g}", f"{row['tuned']:.4g}", f"{row['usual'] / row['tuned']:.3f}"]
    return [row["model"], *times, str(row["choices"]), str(row["others"]), f"{row['seconds']:.1f}"]


def errors(every: Sequence[Tuned]) -> list[list[str]]:
    """The rows of the second table, whose columns are ERRORS."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for tuned in every:
        for choice, shares in tuned.comparisons:
            found[choice.problem.kind].append(min(1.0, *shares.values()))
    rows = []
    for kind, least in sorted(found.items()):
        right = sum(share > 1 - GAIN for share in least) / len(least)
        savings = [f"{right:.0%}", f"{1 - statistics.mean(least):.1%}", f"{1 - min(least):.1%}"]
        rows.append([kind, str(len(least)), *savings])
    return rows


def line(cells: Sequence[str]) -> str:
    """Cells of either table side by side."""
    return f"{cells[0]:22} " + " ".join(f"{cell:>13}" for cell in cells[1:])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_models(parser)
    parser.add_argument("--threads", type=int, default=1, help="of a run (default 1)")
    parser.add_argument("--seconds", type=float, default=60, help="that measuring a model may take (default 60)")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of turns (default 7)")
    add_record(parser)
    options = parser.parse_args(arguments)
    rows, every = [], []
    print(line(GAINS))
    for path in model_paths(options):
        with (
            tempfile.TemporaryDirectory(prefix="jitonnx-tuning-") as cache,
            mock.patch.dict("os.environ", JITONNX_CACHE_DIR=cache),
        ):
            row, tuned = measure(path, options.threads, options.seconds, options.rounds)
        rows.append(row)
        every.append(tuned)
        print(line(gains(row)), flush=True)
    ratios = [row["usual"] / row["tuned"] for row in rows]
    mean = f"geometric mean {statistics.geometric_mean(ratios):.3f}, least {min(ratios):.3f}"
    print(f"{mean}\n\n" + "\n".join(line(cells) for cells in (ERRORS, *errors(every))))
    if options.record:
        keep(options.record, [options.threads], GAINS, list(map(gains, rows)), f"{mean[0].upper()}{mean[1:]}.")
        keep(f"{options.record}-estimates", [options.threads], ERRORS, errors(every))


if __name__ == "__main__":
    main()
