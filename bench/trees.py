"""Random forests and boosted trees: jitonnx beside onnxruntime, in turns, in one process.

    python -m bench.trees                          # makes the models (scikit-learn, XGBoost, LightGBM), and times them
    python -m bench.trees --save DIR               # keeps the models; --load DIR times those of a folder
    python -m bench.trees --rows 1 1000 --threads 2 --only XGB

Making models takes scikit-learn, skl2onnx, xgboost, lightgbm and onnxmltools, none of which jitonnx needs. Each model
is run on rows of 30 features; the table shows the medians of both in microseconds, onnxruntime's time over jitonnx's,
and the largest difference of the scores (labels have to be the same but where scores are a tie), and below the
geometric means and the least.

`--clock cpu` counts the time that the process has the CPUs for: for a machine that others use, too, and one thread, as
threads that wait for others spin.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.arguments import CLOCKS, add_clock
from bench.results import add_record, keep

COLUMNS = ("model", "rows", "onnxruntime us", "jitonnx us", "ratio", "difference")
FEATURES = 30
PAUSE_SECONDS = 0.001
"""The other's threads stop spinning in a pause between turns."""


def data(classes: int, rows: int = 4000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features and classes (0: a number to be predicted) that hang together."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, FEATURES)).astype(np.float32)
    score = x[:, :8] @ rng.standard_normal(8) + np.sin(3 * x[:, 8]) + x[:, 9] * x[:, 10] + rng.standard_normal(rows) / 2
    if not classes:
        return x, score.astype(np.float32)
    return x, np.digitize(score, np.quantile(score, np.arange(1, classes) / classes))


def models() -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Names, and what makes the models."""
    from sklearn import ensemble

    def scikit(make: Callable[..., Any], classes: int, **options: Any) -> Callable[[], bytes]:
        return lambda: _scikit(make(**options).fit(*data(classes)), classes)

    yield "RandomForestClassifier 2", scikit(ensemble.RandomForestClassifier, 2, n_estimators=100, random_state=0)
    yield "RandomForestClassifier 10", scikit(ensemble.RandomForestClassifier, 10, n_estimators=100, random_state=0)
    yield "RandomForestRegressor", scikit(ensemble.RandomForestRegressor, 0, n_estimators=100, random_state=0)
    yield (
        "RandomForestRegressor depth 8",
        scikit(ensemble.RandomForestRegressor, 0, n_estimators=200, max_depth=8, random_state=0),
    )
    yield "ExtraTreesClassifier 3", scikit(ensemble.ExtraTreesClassifier, 3, n_estimators=100, random_state=0)
    yield "GradientBoostingClassifier 2", scikit(ensemble.GradientBoostingClassifier, 2, n_estimators=100)
    yield "GradientBoostingRegressor", scikit(ensemble.GradientBoostingRegressor, 0, n_estimators=300)
    yield "XGBClassifier 2", lambda: _xgboost("XGBClassifier", 2, n_estimators=100)
    yield "XGBClassifier 5", lambda: _xgboost("XGBClassifier", 5, n_estimators=100)
    yield "XGBRegressor", lambda: _xgboost("XGBRegressor", 0, n_estimators=100)
    yield "XGBRegressor 1000 x depth 4", lambda: _xgboost("XGBRegressor", 0, n_estimators=1000, max_depth=4)
    yield "LGBMClassifier 2", lambda: _lightgbm("LGBMClassifier", 2, n_estimators=100)
    yield "LGBMClassifier 4", lambda: _lightgbm("LGBMClassifier", 4, n_estimators=100)
    yield "LGBMRegressor", lambda: _lightgbm("LGBMRegressor", 0, n_estimators=500)


def _scikit(model: Any, classes: int) -> bytes:
    from skl2onnx import to_onnx

    options = {id(model): {"zipmap": False}} if classes else None
    made = to_onnx(model, data(0)[0][:1], options=options, target_opset={"": 18, "ai.onnx.ml": 3})
    return bytes(made.SerializeToString())


def _xgboost(kind: str, classes: int, **options: Any) -> bytes:
    import xgboost
    from onnxmltools import convert_xgboost

    model = getattr(xgboost, kind)(random_state=0, **options).fit(*data(classes))
    return bytes(convert_xgboost(model, initial_types=_inputs(), target_opset=15).SerializeToString())


def _lightgbm(kind: str, classes: int, **options: Any) -> bytes:
    import lightgbm
    from onnxmltools import convert_lightgbm

    model = getattr(lightgbm, kind)(random_state=0, verbose=-1, **options).fit(*data(classes))
    return bytes(convert_lightgbm(model, initial_types=_inputs(), target_opset=15, zipmap=False).SerializeToString())


def _inputs() -> list[Any]:
    from onnxmltools.convert.common.data_types import FloatTensorType

    return [("x", FloatTensorType([None, FEATURES]))]


def compare(
    model: bytes, x: np.ndarray, threads: int, seconds: float, clock: Callable[[], float]
) -> tuple[float, float, float]:
    """Median times of onnxruntime and jitonnx in seconds, and the largest difference of their scores."""
    import onnxruntime

    import jitonnx

    runs: list[Callable[[], Any]] = []
    for module in (onnxruntime, jitonnx):
        options = module.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = threads, 3
        session = module.InferenceSession(model, options, ["CPUExecutionProvider"])
        feeds = {session.get_inputs()[0].name: x}
        runs.append(functools.partial(session.run, None, feeds))
    difference = _difference(*(run() for run in runs))
    times: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 3:
        for run, taken in zip(runs, times, strict=True):
            time.sleep(PAUSE_SECONDS)
            run()
            for _ in range(3):
                start = clock()
                run()
                taken.append(clock() - start)
    return statistics.median(times[0]), statistics.median(times[1]), difference


def _difference(expected: list[Any], given: list[Any]) -> float:
    scores = [np.asarray(result, np.float64) for result in (expected[-1], given[-1])]
    difference = float(np.abs(scores[0] - scores[1]).max(initial=0))
    if len(expected) > 1 and (np.asarray(expected[0]) != np.asarray(given[0])).any():
        ranked = np.sort(scores[0].reshape(len(scores[0]), -1), axis=1)
        tied = ranked.shape[1] > 1 and (ranked[:, -1] - ranked[:, -2] < 1e-4)
        assert np.all((np.asarray(expected[0]) == np.asarray(given[0])) | tied), "labels differ"
    return difference


def line(cells: Sequence[str]) -> str:
    return f"{cells[0]:36}" + "".join(f"{cell:>13}" for cell in cells[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 1000])
    parser.add_argument("--threads", type=int, default=0, help="0: as many as there are CPUs")
    parser.add_argument("--only", default="", help="a part of a model's name")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each model and number of rows")
    add_clock(parser)
    add_record(parser)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--load", type=Path)
    arguments = parser.parse_args()
    made: Iterator[tuple[str, Callable[[], bytes]]] = models()
    if arguments.load:
        made = ((path.stem, path.read_bytes) for path in sorted(arguments.load.glob("*.onnx")))
    ratios: dict[int, list[float]] = {rows: [] for rows in arguments.rows}
    table: list[list[str]] = []
    print(line(COLUMNS))
    for name, make in made:
        if arguments.only not in name:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the packages that make models
            model = make()
        if arguments.save:
            arguments.save.mkdir(parents=True, exist_ok=True)
            (arguments.save / f"{name}.onnx").write_bytes(model)
        for rows in arguments.rows:
            x = data(0, rows, 1)[0]
            theirs, ours, difference = compare(model, x, arguments.threads, arguments.seconds, CLOCKS[arguments.clock])
            ratios[rows].append(theirs / ours)
            times = [f"{theirs * 1e6:.1f}", f"{ours * 1e6:.1f}", f"{theirs / ours:.2f}"]
            table.append([name, str(rows), *times, f"{difference:.1e}"])
            print(line(table[-1]), flush=True)
    means = [
        f"{rows} rows: geometric mean {statistics.geometric_mean(found):.2f}, least {min(found):.2f} of {len(found)}"
        for rows, found in ratios.items()
        if found
    ]
    print("\n".join(means))
    if arguments.record:
        threads = arguments.threads or len(os.sched_getaffinity(0))
        keep(arguments.record, [threads], COLUMNS, table, f"{'; '.join(means)}.")


if __name__ == "__main__":
    main()
