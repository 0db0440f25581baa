"""Sparse tensors: a list of values, and indices that are in range, and should be sorted and unique."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from jitonnx.errors import Error
from jitonnx.ir.dtypes import DType
from jitonnx.model.checker import tensors
from jitonnx.proto import SparseTensorProto

if TYPE_CHECKING:
    from jitonnx.model.checker.walk import Reader


def faults(sparse: SparseTensorProto, reader: Reader) -> Iterator[tuple[str, str]]:
    """What is wrong with a sparse tensor, by rule; texts go on behind what the tensor is."""
    parts = [("values", sparse.values), ("indices", sparse.indices)]
    found = [
        (rule, f"has {name}: the tensor {text}")
        for name, part in parts
        for rule, text in tensors.faults(part, reader.raw)
    ]
    yield from found
    dims = list(sparse.dims)
    if not dims or min(dims) < 0:
        yield "sparse.dims", f"has the shape {dims}; one dimension is needed at least, and none is negative"
        return
    if 0 in dims:
        yield "sparse.empty", f"has the shape {dims}; sizes are positive"
    if found:
        return
    count, indices = list(sparse.values.dims), list(sparse.indices.dims)
    if len(count) != 1:
        yield "sparse.values", f"has values of shape {count}; a list is needed"
        return
    if sparse.indices.data_type != DType.INT64.value:
        yield "sparse.indices", f"has indices of {DType(sparse.indices.data_type).text}; int64 is needed"
        return
    if indices != count and indices != [count[0], len(dims)]:
        text = f"has indices of shape {indices} for {count[0]} values; {count} or {[count[0], len(dims)]} is needed"
        yield "sparse.indices", text
        return
    try:
        array = reader.array(sparse.indices, "indices")
    except Error as error:
        yield "external.range", f"cannot be read: {error.text}"
        return
    yield from _index_faults(array, dims)


def _index_faults(array: np.ndarray, dims: list[int]) -> Iterator[tuple[str, str]]:
    if array.ndim == 1:
        wrong = np.nonzero((array < 0) | (array >= np.prod(dims, dtype=object)))[0]
        order = array[1:] <= array[:-1]
    else:
        wrong = np.nonzero(((array < 0) | (array >= np.array(dims))).any(axis=1))[0]
        order = np.array(
            [tuple(b) <= tuple(a) for a, b in zip(array[:-1].tolist(), array[1:].tolist(), strict=True)], bool
        )
    if len(wrong):
        place = int(wrong[0])
        text = f"has the index {array[place].tolist()} in place {place}, which is not in a tensor of shape {dims}"
        yield "sparse.indices", text
    elif order.any():
        place = int(np.argmax(order))
        pair = f"{array[place].tolist()} and {array[place + 1].tolist()}"
        yield "sparse.order", f"has the indices {pair} one behind the other; they ascend, and none is there twice"
