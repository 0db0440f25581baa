"""Models over tables: rows in, columns of outputs out, in order, batch by batch, with bounded memory.

    from jitonnx.batch import predict

    table = predict(table, "model.onnx")                                  # Arrow, pandas, polars: outputs are columns
    for outputs in predict(feeds, session): ...                           # an iterable of feeds: dicts of arrays
    reader = predict("rows.parquet", "model.onnx", columns={"input": "pixels"})

Rows are packed into batches whatever they come in. `jitonnx map` does the same from files to files.
"""

from jitonnx.batch.blocks import Block
from jitonnx.batch.errors import RowError
from jitonnx.batch.images import Pixels
from jitonnx.batch.prediction import predict

__all__ = ["Block", "Pixels", "RowError", "predict"]
