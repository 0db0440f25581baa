"""Random forests and boosted trees: jitonnx beside onnxruntime, in turns, in one process.

    python -m bench.trees                          # makes the models (scikit-learn, XGBoost, LightGBM), and times them
    python -m bench.trees --save DIR               # keeps the models; --load DIR times those of a folder
    python -m bench.trees --rows 1 1000 --threads 2 --only XGB

Making models takes scikit-learn, skl2onnx, xgboost, lightgbm and onnxmltools, none of which jitonnx needs. Each model
is run on rows of 30 features; the table shows the medians of both in microseconds, onnxruntime's time over jitonnx's,
and the largest difference of the scores (labels have to be the same but where scores are a tie), and below the
geometric means and the least.

`--treelite` times LightGBM's models as treelite and tl2cgen compile them, too, which need a C compiler. `--lleaves
FOLDER` does so with lleaves, in a process of its own (`bench/lleaves_times.py`), in turns with the others. Both make
code of each tree, of 500 trees of 63 leaves for minutes.

`--clock cpu` counts the time that the process has the CPUs for: for a machine that others use, too, and one thread, as
threads that wait for others spin.
"""

from __future__ import annotations

import argparse
import atexit
import functools
import os
import shutil
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.arguments import CLOCKS, add_clock
from bench.lleaves_times import LleavesProcess
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


class Made(NamedTuple):
    """A model as ONNX, and as LightGBM's text where it is one of those."""

    onnx: bytes
    lightgbm: str = ""


def models() -> Iterator[tuple[str, Callable[[], Made]]]:
    """Names, and what makes the models."""
    from sklearn import ensemble

    def scikit(make: Callable[..., Any], classes: int, **options: Any) -> Callable[[], Made]:
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
    yield "LGBMRegressor 63 leaves", lambda: _lightgbm("LGBMRegressor", 0, n_estimators=500, num_leaves=63)


def _scikit(model: Any, classes: int) -> Made:
    from skl2onnx import to_onnx

    options = {id(model): {"zipmap": False}} if classes else None
    made = to_onnx(model, data(0)[0][:1], options=options, target_opset={"": 18, "ai.onnx.ml": 3})
    return Made(made.SerializeToString())


def _xgboost(kind: str, classes: int, **options: Any) -> Made:
    import xgboost
    from onnxmltools import convert_xgboost

    model = getattr(xgboost, kind)(random_state=0, **options).fit(*data(classes))
    return Made(convert_xgboost(model, initial_types=_inputs(), target_opset=15).SerializeToString())


def _lightgbm(kind: str, classes: int, **options: Any) -> Made:
    import lightgbm
    from onnxmltools import convert_lightgbm

    model = getattr(lightgbm, kind)(random_state=0, verbose=-1, **options).fit(*data(classes))
    made = convert_lightgbm(model, initial_types=_inputs(), target_opset=15, zipmap=False)
    return Made(made.SerializeToString(), model.booster_.model_to_string())


def _inputs() -> list[Any]:
    from onnxmltools.convert.common.data_types import FloatTensorType

    return [("x", FloatTensorType([None, FEATURES]))]


Timer = Callable[[], float]
"""Gives the median seconds of some runs."""


def treelite_of(text: str, threads: int, clock: Callable[[], float]) -> Callable[[np.ndarray], Timer]:
    """What times rows through a model of LightGBM's as treelite reads it, and tl2cgen and a C compiler compile it."""
    import tl2cgen
    import treelite

    with tempfile.TemporaryDirectory() as folder:
        path, library = Path(folder) / "model.txt", Path(folder) / "model.so"
        path.write_text(text)
        model = treelite.frontend.load_lightgbm_model(path)
        tl2cgen.export_lib(model, toolchain="gcc", libpath=library, params={"parallel_comp": 8})
        predictor = tl2cgen.Predictor(library, nthread=threads or None)
    return lambda x: functools.partial(_block, lambda: predictor.predict(tl2cgen.DMatrix(x)), clock)


def lleaves_of(text: str, threads: int, folder: Path) -> Callable[[np.ndarray], Timer]:
    """The same by lleaves, which is in a folder, by wall time."""
    made = Path(tempfile.mkdtemp())
    (made / "model.txt").write_text(text)
    process = LleavesProcess(folder, made / "model.txt", threads or len(os.sched_getaffinity(0)))
    atexit.register(process.close)
    atexit.register(shutil.rmtree, made)

    def timer(x: np.ndarray) -> Timer:
        rows = made / f"{len(x)}.npy"
        np.save(rows, x)
        return lambda: process.seconds(rows)

    return timer


def compare(
    model: bytes,
    x: np.ndarray,
    threads: int,
    seconds: float,
    clock: Callable[[], float],
    others: Sequence[Callable[[np.ndarray], Timer]] = (),
) -> tuple[list[float], float]:
    """Median times of onnxruntime, jitonnx and others in seconds, and the largest difference of the scores of the first
    two."""
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
    timers: list[Timer] = [functools.partial(_block, run, clock) for run in runs]
    timers += [other(x) for other in others]
    times: list[list[float]] = [[] for _ in timers]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 3:
        for timer, taken in zip(timers, times, strict=True):
            time.sleep(PAUSE_SECONDS)
            taken.append(timer())
    return [statistics.median(taken) for taken in times], difference


def _block(run: Callable[[], Any], clock: Callable[[], float]) -> float:
    run()
    times = []
    for _ in range(3):
        start = clock()
        run()
        times.append(clock() - start)
    return statistics.median(times)


def _difference(expected: list[Any], given: list[Any]) -> float:
    scores = [np.asarray(result, np.float64) for result in (expected[-1], given[-1])]
    difference = float(np.abs(scores[0] - scores[1]).max(initial=0))
    if len(expected) > 1 and (np.asarray(expected[0]) != np.asarray(given[0])).any():
        ranked = np.sort(scores[0].reshape(len(scores[0]), -1), axis=1)
        tied = ranked.shape[1] > 1 and (ranked[:, -1] - ranked[:, -2] < 1e-4)
        assert np.all((np.asarray(expected[0]) == np.asarray(given[0])) | tied), "labels differ"
    return difference


def _loaded(path: Path) -> Made:
    text = path.with_suffix(".txt")
    return Made(path.read_bytes(), text.read_text() if text.exists() else "")


def line(cells: Sequence[str]) -> str:
    return f"{cells[0]:36}" + "".join(f"{cell:>18}" if "," in cell else f"{cell:>13}" for cell in cells[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 1000])
    parser.add_argument("--threads", type=int, default=0, help="0: as many as there are CPUs")
    parser.add_argument("--only", default="", help="a part of a model's name")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each model and number of rows")
    parser.add_argument("--treelite", action="store_true", help="measure treelite, for LightGBM's models")
    parser.add_argument("--lleaves", type=Path, help="measure lleaves, which is in this folder, for LightGBM's models")
    add_clock(parser)
    add_record(parser)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--load", type=Path)
    arguments = parser.parse_args()
    made: Iterator[tuple[str, Callable[[], Made]]] = models()
    if arguments.load:
        made = ((path.stem, functools.partial(_loaded, path)) for path in sorted(arguments.load.glob("*.onnx")))
    ratios: dict[int, list[float]] = {rows: [] for rows in arguments.rows}
    table: list[list[str]] = []
    asked = [other for other in ("treelite", "lleaves") if getattr(arguments, other)]
    columns = (*COLUMNS, *(f"{other} us, ratio" for other in asked))
    print(line(columns))
    for name, make in made:
        if arguments.only not in name:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the packages that make models
            model = make()
        if arguments.save:
            arguments.save.mkdir(parents=True, exist_ok=True)
            (arguments.save / f"{name}.onnx").write_bytes(model.onnx)
            if model.lightgbm:
                (arguments.save / f"{name}.txt").write_text(model.lightgbm)
        others: dict[str, Callable[[np.ndarray], Timer]] = {}
        if model.lightgbm and arguments.treelite:
            others["treelite"] = treelite_of(model.lightgbm, arguments.threads, CLOCKS[arguments.clock])
        if model.lightgbm and arguments.lleaves:
            others["lleaves"] = lleaves_of(model.lightgbm, arguments.threads, arguments.lleaves)
        for rows in arguments.rows:
            x = data(0, rows, 1)[0]
            (theirs, ours, *rest), difference = compare(
                model.onnx, x, arguments.threads, arguments.seconds, CLOCKS[arguments.clock], list(others.values())
            )
            ratios[rows].append(theirs / ours)
            times = [f"{theirs * 1e6:.1f}", f"{ours * 1e6:.1f}", f"{theirs / ours:.2f}", f"{difference:.1e}"]
            shown = dict(zip(others, (f"{1e6 * taken:.1f}, {taken / ours:.2f}" for taken in rest), strict=True))
            table.append([name, str(rows), *times, *(shown.get(other, "") for other in asked)])
            print(line(table[-1]), flush=True)
    means = [
        f"{rows} rows: geometric mean {statistics.geometric_mean(found):.2f}, least {min(found):.2f} of {len(found)}"
        for rows, found in ratios.items()
        if found
    ]
    print("\n".join(means))
    if arguments.record:
        threads = arguments.threads or len(os.sched_getaffinity(0))
        keep(arguments.record, [threads], columns, table, f"{'; '.join(means)}.")


if __name__ == "__main__":
    main()
