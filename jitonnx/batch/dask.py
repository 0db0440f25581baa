"""Dask: a model over the partitions of a frame or the blocks of an array (`pip install "jitonnx[dask]"`).

    from jitonnx.batch.dask import predict

    predict(dask.dataframe.read_parquet("rows/"), "model.onnx").to_parquet("predictions/")

With a `distributed.Client` the model is sent once to each worker, by a plugin, and opened there before tasks come.
"""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import distributed
import numpy as np

from jitonnx.batch.prediction import predict_feeds
from jitonnx.batch.tables import Columns
from jitonnx.batch.workers import Prediction, prepared, worker_of
from jitonnx.errors import InvalidArgument

if TYPE_CHECKING:
    import dask.array
    import dask.dataframe
    import pandas
    import pyarrow

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

_sent: dict[str, Prediction] = {}
"""Predictions that plugins have brought to this process, by digest."""

_registered: weakref.WeakKeyDictionary[distributed.Client, set[str]] = weakref.WeakKeyDictionary()
"""What clients have sent to their clusters, which give it to workers that join later, too."""


class ModelPlugin(distributed.WorkerPlugin):  # type: ignore[misc]
    """A plugin of distributed's workers, which opens a model in each of them, those that join later, too."""

    idempotent = True

    def __init__(self, prediction: Prediction) -> None:
        self.prediction = prediction
        self.name = f"jitonnx-{prediction.digest}"

    def setup(self, worker: distributed.Worker) -> None:
        """Open the model; what cannot be opened is an error of the tasks that use it."""
        _sent[self.prediction.digest] = self.prediction
        worker_of(self.prediction)


def predict(
    frame: dask.dataframe.DataFrame,
    model: str | os.PathLike[str] | bytes,
    *,
    columns: Columns | None = None,
    outputs: Sequence[str] | Mapping[str, str] | None = None,
    batch_rows: int | None = None,
    on_error: str = "raise",
    keep_columns: Sequence[str] | None = None,
) -> dask.dataframe.DataFrame:
    """The frame with columns for the model's outputs, lazily as Dask's frames are; each task runs on its one thread.

    The arguments are those of `jitonnx.batch.predict`. InvalidArgument where the columns of outputs depend on the data.
    """
    prediction = prepared(
        model,
        columns=columns,
        outputs=outputs,
        batch_rows=batch_rows,
        on_error=on_error,
        keep_columns=keep_columns,
    )
    meta = _partition(frame._meta, prediction)
    return frame.map_partitions(_partition, _where(prediction), meta=meta)


def predict_array(
    array: dask.array.Array, model: str | os.PathLike[str] | bytes, *, output: str | None = None
) -> dask.array.Array:
    """An output [rows, ...] of a model of one input, for an array [rows, ...] in blocks of whole rows.

    output: its name; the first by default. InvalidArgument for models of several inputs, arrays that are cut along
    other axes, and outputs whose shape depends on the data.
    """
    prediction = prepared(model, outputs=None if output is None else [output])
    worker = worker_of(prediction)
    if len(worker.settings.signature.inputs) != 1:
        raise InvalidArgument("an array is for a model of one input; frames have columns for several")
    if any(len(chunks) != 1 for chunks in array.chunks[1:]):
        raise InvalidArgument("blocks are to hold whole rows: rechunk the array along its other axes")
    name = output or worker.settings.signature.outputs[0]
    zeros = {worker.settings.signature.inputs[0].name: np.zeros((1, *array.shape[1:]), array.dtype)}
    rows = worker.settings.signature.rows or 1
    (made,) = predict_feeds(iter([zeros]), worker.settings._replace(names={name: name}, batch_rows=rows))
    example = made[name]
    return array.map_blocks(
        _block,
        _where(prediction),
        name,
        chunks=(array.chunks[0], *((size,) for size in example.shape[1:])),
        drop_axis=list(range(1, array.ndim)),
        new_axis=list(range(1, example.ndim)) or None,
        dtype=example.dtype,
        meta=example[:0],
    )


def _block(array: np.ndarray, where: Prediction | str, name: str) -> np.ndarray:
    worker = worker_of(_found(where))
    return worker.array({worker.settings.signature.inputs[0].name: array}, name)


def _partition(frame: pandas.DataFrame, where: Prediction | str) -> pandas.DataFrame:
    import pandas
    import pyarrow as pa

    prediction = _found(where)
    worker = worker_of(prediction)
    rows = pa.Table.from_pandas(frame, preserve_index=False)
    made = worker.table(rows, "a partition of the frame").select(list(worker.types))
    nullable = _nullable() if prediction.on_error == "keep" else {}
    outputs = made.to_pandas(types_mapper=nullable.get).set_axis(frame.index, axis=0)
    kept = frame if prediction.keep_columns is None else frame[list(prediction.keep_columns)]
    return pandas.concat([kept, outputs], axis=1)


@functools.cache
def _nullable() -> dict[pyarrow.DataType, Any]:
    """Pandas' types for columns whose rows may be null, so that a partition has the same ones with and without."""
    import pandas
    import pyarrow as pa

    names = ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64")
    found: dict[pyarrow.DataType, Any] = {
        pa.type_for_alias(name.lower()): pandas.api.types.pandas_dtype(name) for name in names
    }
    found[pa.bool_()] = pandas.BooleanDtype()
    return found


def _where(prediction: Prediction) -> Prediction | str:
    """What tasks find the prediction by: it itself, or its digest where a plugin has brought it to the workers."""
    client = _client()
    if client is None:
        return prediction
    known = _registered.setdefault(client, set())
    if prediction.digest not in known:
        client.register_plugin(ModelPlugin(prediction))
        known.add(prediction.digest)
    return prediction.digest


def _client() -> distributed.Client | None:
    """The client that computes by default; None where threads of this process do."""
    try:
        return distributed.default_client()
    except ValueError:
        return None


def _found(where: Prediction | str) -> Prediction:
    if isinstance(where, Prediction):
        return where
    if where not in _sent:
        raise InvalidArgument("the model was not sent to this worker: predict again with the client that runs this")
    return _sent[where]


def each(function: Callable[[_Task], _Result], tasks: Iterable[_Task], workers: int | None = None) -> Iterator[_Result]:
    """What the function gives for each task, by Dask's workers, in the order in which they end. A task whose worker
    dies is begun again elsewhere. workers: of a cluster of this machine, where there is no other."""
    client = _client() or distributed.Client(**({"n_workers": workers, "threads_per_worker": 1} if workers else {}))
    for future in distributed.as_completed(client.map(function, list(tasks), pure=False)):
        yield future.result()
