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

from bench.models import time_in_turns
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


def print_gains(rows: Sequence[dict[str, Any]]) -> None:
    """The first table, with the geometric mean at its end."""
    head = f"{'model':22} {'usual ms':>9} {'tuned ms':>9} {'usual / tuned':>14}"
    print(f"{head} {'choices':>8} {'others':>7} {'seconds':>8}")
    for row in rows:
        print(
            f"{row['model']:22} {row['usual']:9.4g} {row['tuned']:9.4g} {row['usual'] / row['tuned']:14.3f} "
            f"{row['choices']:8} {row['others']:7} {row['seconds']:8.1f}"
        )
    ratios = [row["usual"] / row["tuned"] for row in rows]
    print(f"geometric mean {statistics.geometric_mean(ratios):.3f}, least {min(ratios):.3f}")


def print_errors(every: Sequence[Tuned]) -> None:
    """The second table."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for tuned in every:
        for choice, shares in tuned.comparisons:
            found[choice.problem.kind].append(min(1.0, *shares.values()))
    print(f"\n{'choice':22} {'measured':>9} {'best taken':>11} {'mean saving':>12} {'greatest':>9}")
    for kind, least in sorted(found.items()):
        right = sum(share > 1 - GAIN for share in least) / len(least)
        print(f"{kind:22} {len(least):9} {right:11.0%} {1 - statistics.mean(least):12.1%} {1 - min(least):9.1%}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of .onnx files with .npz inputs beside them")
    parser.add_argument("models", nargs="*", help="names of models; default: all")
    parser.add_argument("--threads", type=int, default=1, help="of a run (default 1)")
    parser.add_argument("--seconds", type=float, default=60, help="that measuring a model may take (default 60)")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of turns (default 7)")
    options = parser.parse_args(arguments)
    rows, every = [], []
    for path in sorted(options.folder.glob("*.onnx")):
        if options.models and path.stem not in options.models:
            continue
        with (
            tempfile.TemporaryDirectory(prefix="jitonnx-tuning-") as cache,
            mock.patch.dict("os.environ", JITONNX_CACHE_DIR=cache),
        ):
            row, tuned = measure(path, options.threads, options.seconds, options.rounds)
        rows.append(row)
        every.append(tuned)
        print_gains(rows[-1:])
    print()
    print_gains(rows)
    print_errors(every)


if __name__ == "__main__":
    main()
