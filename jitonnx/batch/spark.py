"""Spark: a model over the rows of a frame, in its Python workers (`pip install "jitonnx[spark]"`).

    from jitonnx.batch.spark import predict, udf

    predict(spark.read.parquet("rows/"), "model.onnx").write.parquet("predictions/")
    frame.withColumn("y", udf("model.onnx")("x"))                # pyspark.ml.functions.predict_batch_udf

The model is sent once to each executor, as a broadcast variable.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyspark.ml.functions import predict_batch_udf
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type, to_arrow_schema

from jitonnx.batch.prediction import BLOCK_ROWS
from jitonnx.batch.tables import Columns
from jitonnx.batch.workers import prepared, worker_of

if TYPE_CHECKING:
    import numpy as np
    from pyspark.sql import DataFrame

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


def predict(
    frame: DataFrame,
    model: str | os.PathLike[str] | bytes,
    *,
    columns: Columns | None = None,
    outputs: Sequence[str] | Mapping[str, str] | None = None,
    batch_rows: int | None = None,
    on_error: str = "raise",
    keep_columns: Sequence[str] | None = None,
) -> DataFrame:
    """The frame with columns for the model's outputs, lazily as Spark's frames are; each task runs on its one thread.

    The arguments are those of `jitonnx.batch.predict`. Lists are Spark's arrays. InvalidArgument where the columns of
    outputs depend on the data, or are of a type that Spark lacks.
    """
    prediction = prepared(
        model,
        columns=columns,
        outputs=outputs,
        batch_rows=batch_rows,
        on_error=on_error,
        keep_columns=keep_columns,
    )
    made = as_lists(worker_of(prediction).schema(to_arrow_schema(frame.schema)))
    sent = frame.sparkSession.sparkContext.broadcast(prediction)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        worker = worker_of(sent.value)
        for batch in batches:
            rows, schema = pa.Table.from_batches([batch]), as_lists(worker.schema(batch.schema))
            yield from worker.table(rows, "a partition of the frame").cast(schema).to_batches()

    return frame.mapInArrow(run, from_arrow_schema(made))


def udf(
    model: str | os.PathLike[str] | bytes, *, output: str | None = None, batch_rows: int = BLOCK_ROWS
) -> Callable[..., Any]:
    """A function of columns, one for each input in the model's order, that gives a column: `predict_batch_udf`'s.

    output: its name; the first by default. batch_rows: at most, of a batch. InvalidArgument where sizes of a row are
    open, or the output has a type that Spark lacks.
    """
    prediction = prepared(model, outputs=None if output is None else [output])
    worker = worker_of(prediction)
    name, kind = next(iter(worker.types.items()))
    inputs = worker.settings.signature.inputs

    def make() -> Callable[..., np.ndarray]:
        worker = worker_of(prediction)

        def run(*arrays: np.ndarray) -> np.ndarray:
            feeds = {one.name: array.astype(one.dtype) for one, array in zip(inputs, arrays, strict=True)}
            return worker.array(feeds, name)

        return run

    return predict_batch_udf(  # type: ignore[no-any-return]
        make,
        return_type=from_arrow_type(_as_list(kind)),
        batch_size=batch_rows,
        input_tensor_shapes=[[int(size or 0) for size in one.shape] or None for one in inputs],
    )


def as_lists(schema: pa.Schema) -> pa.Schema:
    """The schema with lists of any length, which Spark has, in the place of those of a fixed one."""
    return pa.schema([pa.field(one.name, _as_list(one.type), one.nullable) for one in schema])


def _as_list(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind):
        return pa.list_(_as_list(kind.value_type))
    return kind


def each(function: Callable[[_Task], _Result], tasks: Iterable[_Task], workers: int | None = None) -> Iterator[_Result]:
    """What the function gives for each task, by Spark's executors. A task that is lost is begun again."""
    builder = SparkSession.builder
    if workers and not os.environ.get("MASTER"):
        builder = builder.master(f"local[{workers}]")
    context = builder.getOrCreate().sparkContext
    waiting = list(tasks)
    if waiting:
        yield from context.parallelize(waiting, len(waiting)).map(function).collect()
