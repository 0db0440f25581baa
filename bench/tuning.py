"""Tuning by measurement: what it gains, what it takes, and how far estimated costs are from measured times.

    python -m bench.tuning DIR                          # every .onnx file of a folder (inputs: the .npz beside it)
    python -m bench.tuning DIR mobilenet_v2 --threads 2 --seconds 30

Each model is loaded as usual and tuned, with an empty cache for what is measured, and both run in turns, round after
round; `usual / tuned` is above 1 where the tuned one is faster. `choices` counts those with other candidates, `others`
those of them for which not the estimated best is taken. The second table is about the estimates, by kind of choice:
how often the estimated best was the fastest (within the noise of 3 %), and what the fastest candidate would have
saved on average and at most, as parts of the estimated best's time.

    python -m bench.tuning DIR --fit                    # and what this core's estimates should go by

`--fit` prints, after the tables, the constants of `jitonnx.target.cores.TileCosts` by which estimates agree best with
what was measured, for this kind of core, and what the tiles that they choose would save and lose of those measured.
Tiles that nobody measured may be estimated to be better then: put the constants in, and run it again.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from bench.arguments import add_models, model_paths
from bench.models import time_in_turns
from bench.results import add_record, keep
from jitonnx.engine.tuning import GAIN, Tuned
from jitonnx.kernels.gemm.choose import GemmExtents, extents_of, tile_costs, tile_text
from jitonnx.target.cores import TileCosts
from jitonnx.target.machine import Target, host


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


class Sample(NamedTuple):
    """One product, and the times that its tiles take over that of one of them, by their texts."""

    extents: GemmExtents
    packed_b: bool
    element: str
    shares: Mapping[str, float]


def samples(every: Sequence[Tuned]) -> list[Sample]:
    """What was measured of tiles of products."""
    found = []
    for tuned in every:
        for choice, shares in tuned.comparisons:
            if choice.problem.kind == "GEMM tile":
                sizes = choice.problem.sizes
                element = sizes.split()[3].rstrip(",")
                found.append(Sample(extents_of(sizes), "packed" in sizes, element, {choice.taken: 1.0} | dict(shares)))
    return found


def estimated(sample: Sample, costs: TileCosts, target: Target) -> dict[str, float]:
    """What the measured tiles are estimated to cost."""
    target = replace(target, core=target.core._replace(tiles=costs))
    costs_of = tile_costs(sample.extents, target, packed_b=sample.packed_b, element=sample.element)
    texts = {tile_text(tile, 1): cost for tile, cost in costs_of.items()}
    return {text: texts[text.removesuffix(" / 2")] for text in sample.shares}


def misjudged(sample: Sample, costs: TileCosts, target: Target) -> float:
    """How far estimates are off: what the tile that they choose takes more than the fastest, the choice being the less
    sure the closer they are, and the mean square of the logarithms' errors."""
    given = estimated(sample, costs, target)
    names, shares = list(given), np.array([sample.shares[name] for name in given])
    logs = np.log([given[name] for name in names])
    likely = np.exp(-(logs - logs.min()) / GAIN)
    apart = logs - np.log(shares)
    return float(likely @ shares / likely.sum() - shares.min() + np.var(apart))


def fit(found: Sequence[Sample], target: Target) -> TileCosts:
    """The constants that misjudge the samples least: one after the other is made larger and smaller, as long as that
    helps."""
    costs = target.tile_costs

    def loss(costs: TileCosts) -> float:
        return statistics.fmean(misjudged(sample, costs, target) for sample in found)

    least, step = loss(costs), 0.4
    while step > 0.02:
        began = least
        for name in TileCosts._fields:
            for factor in (1 + step, 1 / (1 + step)):
                changed = round(getattr(costs, name) * factor or step * factor / 10, 4)
                other = costs._replace(**{name: changed})
                if (now := loss(other)) < least:
                    costs, least = other, now
        if least > 0.999 * began:
            step /= 2
    return costs


def print_fit(every: Sequence[Tuned], target: Target) -> None:
    """The constants, as `jitonnx.target.cores` has them, and what goes by them."""
    found = [sample for sample in samples(every) if len(sample.shares) > 1]
    if not found:
        print("\nno tiles of products were measured: there is nothing to fit")
        return
    print(f"\nfitted to {len(found)} products, for {target.described}:")
    for name, costs in (("before", target.tile_costs), ("fitted", fit(found, target))):
        taken = []
        for sample in found:
            given = estimated(sample, costs, target)
            taken.append(sample.shares[min(given, key=given.__getitem__)] / min(sample.shares.values()))
        print(f"{name}: the chosen tile takes {statistics.fmean(taken):.4f} of the fastest one's time, {costs}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_models(parser)
    parser.add_argument("--threads", type=int, default=1, help="of a run (default 1)")
    parser.add_argument("--seconds", type=float, default=60, help="that measuring a model may take (default 60)")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of turns (default 7)")
    parser.add_argument("--fit", action="store_true", help="fit the constants of this core's estimates")
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
    if options.fit:
        print_fit(every, host())
    if options.record:
        keep(options.record, [options.threads], GAINS, list(map(gains, rows)), f"{mean[0].upper()}{mean[1:]}.")
        keep(f"{options.record}-estimates", [options.threads], ERRORS, errors(every))


if __name__ == "__main__":
    main()
