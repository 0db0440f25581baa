"""Ray Data: a model over a dataset, by actors that open it once (`pip install "jitonnx[ray]"`).

from jitonnx.batch.ray import predict

predict(ray.data.read_parquet("rows/"), "model.onnx").write_parquet("predictions/")
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import ray

from jitonnx.batch.tables import Columns
from jitonnx.batch.workers import Prediction, prepared, row_seconds, worker_of

if TYPE_CHECKING:
    import pyarrow

_BLOCK_SECONDS, _BLOCK_ROWS = 0.5, 1024
"""How long an actor is to work on a block, some tens of times what Ray takes to hand it over; and its rows, where it is
not known how long one takes."""
_READ_SECONDS = 20e-6
"""What a row takes to be read, handed over and written, about."""

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


class Predictor:
    """A callable class for `Dataset.map_batches(Predictor, fn_constructor_args=(prediction,), batch_format="pyarrow")`.

    prediction: what `jitonnx.batch.workers.prepared` gives. It runs as many batches beside each other as the actor has
    CPUs.
    """

    def __init__(self, prediction: Prediction) -> None:
        cpus = ray.get_runtime_context().get_assigned_resources().get("CPU", 1)
        self._worker = worker_of(prediction, max(1, int(cpus)))

    def __call__(self, rows: pyarrow.Table) -> pyarrow.Table:
        """The rows with columns for outputs."""
        return self._worker.table(rows, "a block of the dataset")


def predict(
    dataset: ray.data.Dataset,
    model: str | os.PathLike[str] | bytes,
    *,
    columns: Columns | None = None,
    outputs: Sequence[str] | Mapping[str, str] | None = None,
    batch_rows: int | None = None,
    on_error: str = "raise",
    keep_columns: Sequence[str] | None = None,
    **map_batches: Any,
) -> ray.data.Dataset:
    """The dataset with columns for the model's outputs, lazily as Ray's datasets are.

    model, columns, outputs, batch_rows, on_error, keep_columns: as for `jitonnx.batch.predict`. map_batches: of
    `Dataset.map_batches`, as `compute` (by default an `ActorPoolStrategy` of one actor up to one for each CPU of the
    cluster), `num_cpus` (of an actor, 1) and `batch_size` (rows that an actor is given together).

    By default rows are parted into blocks of about half a second of the model's time, as is measured here, or of 1,024
    where sizes of a row are open, so that all actors have some: Ray reads small files as one block, which one actor
    would work on alone. Where rows take less time than reading them they are taken as they come, and with `batch_size`.
    """
    prediction = prepared(
        model,
        columns=columns,
        outputs=outputs,
        batch_rows=batch_rows,
        on_error=on_error,
        keep_columns=keep_columns,
    )
    rows = None if "batch_size" in map_batches else _block_rows(row_seconds(prediction))
    if rows is not None:
        dataset = dataset.repartition(target_num_rows_per_block=rows)
    given: dict[str, Any] = {"batch_size": None, "num_cpus": 1, "zero_copy_batch": True}
    if not {"compute", "concurrency"} & map_batches.keys():  # the latter is what Ray had before 2.51
        cpus = ray.cluster_resources().get("CPU", 1) / map_batches.get("num_cpus", 1)
        given["compute"] = ray.data.ActorPoolStrategy(min_size=1, max_size=max(1, int(cpus)))
    return dataset.map_batches(
        Predictor, fn_constructor_args=(prediction,), batch_format="pyarrow", **{**given, **map_batches}
    )


def _block_rows(seconds: float | None) -> int | None:
    """The rows of a block, by what one takes; None: as they come."""
    if seconds is None:
        return _BLOCK_ROWS
    return None if seconds < _READ_SECONDS else max(1, round(_BLOCK_SECONDS / seconds))


def each(function: Callable[[_Task], _Result], tasks: Iterable[_Task], workers: int | None = None) -> Iterator[_Result]:
    """What the function gives for each task, by Ray's workers, in the order in which they end. A task whose worker dies
    is begun again elsewhere."""
    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    remote = ray.remote(num_cpus=1, max_retries=3)(lambda task: function(task))  # it takes functions alone
    waiting = list(tasks)
    most = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
    running = [remote.remote(task) for task in waiting[:most]]
    del waiting[:most]
    while running:
        (ended,), running = ray.wait(running, num_returns=1)
        if waiting:
            running.append(remote.remote(waiting.pop(0)))
        yield ray.get(ended)
