"""What evaluates nodes on strings, and on what goes with them, in a run of known sizes.

`evaluate` of an operator looks at everything anew in each run. For the operators that pipelines of strings are made of,
what only depends on the node and on sizes is settled here once: positions of slices, shapes, tables. What such a
function cannot do with the arrays of a run it leaves to `evaluate`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Node
from jitonnx.ir.operator import Operator
from jitonnx.ops.ml.features import ArrayFeatureExtractor
from jitonnx.ops.ml.labels import CategoryMapper, LabelEncoder, OneHotEncoder
from jitonnx.ops.onnx.concat_split import Concat
from jitonnx.ops.onnx.gather import Gather
from jitonnx.ops.onnx.shape import Flatten, Reshape, Squeeze, Unsqueeze
from jitonnx.ops.onnx.slice import Slice
from jitonnx.ops.onnx.text import TfIdfVectorizer
from jitonnx.runtime import strings

HostFunction: TypeAlias = Callable[..., Any]
"""Gives the array of a node's only output for those of its inputs that are no constants."""
Known: TypeAlias = Sequence["np.ndarray | None"]
"""By input, its elements if they are constant."""
Shape: TypeAlias = "tuple[int, ...]"


def host_function(node: Node, known: Known, shape: Shape) -> HostFunction | None:
    """What evaluates a node; None where only `evaluate` does. shape: that of its output."""
    make = _MAKERS.get(type(node.operator))
    return None if make is None or len(node.outputs) != 1 else make(node, known, shape)


class _Numbers:
    """Numbers of strings by a table of texts; that behind the last for what is none of them."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._table: strings.StringTable | None = None

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """int64 of x's shape."""
        places, table = np.empty(x.shape, np.int64), self._table
        if table is None and strings.ready():
            table = self._table = strings.StringTable(self._texts)
        if table is None or not table.find(x, places):
            numbers = {text: number for number, text in reversed(list(enumerate(self._texts)))}
            found = [numbers.get(text, len(self._texts)) for text in x.ravel().tolist()]
            places[...] = np.array(found, np.int64).reshape(x.shape)
        return places


def _exchange(node: Node, known: Known, shape: Shape) -> HostFunction | None:
    operator = node.operator
    assert isinstance(operator, CategoryMapper | LabelEncoder | OneHotEncoder) and node.inputs[0] is not None
    if node.inputs[0].dtype is DType.STRING:
        found = operator.rows_of_strings()
        if found is None:
            return None
        numbers, rows = _Numbers(found[0]), found[1]
        return lambda x: rows[numbers(x)]
    labels = operator.labels() if isinstance(operator, LabelEncoder) else None
    if labels is None:
        return None
    table = np.append(labels[-1:], labels)  # the default on both sides
    return lambda x: table.take(x + 1, mode="clip")


def _count(node: Node, known: Known, shape: Shape) -> HostFunction | None:
    assert isinstance(node.operator, TfIdfVectorizer)
    found = node.operator.counted_strings()
    if found is None:
        return None
    texts, columns, weights = found
    numbers, rows, width = _Numbers(texts), shape[0] if len(shape) == 2 else 1, shape[-1] + 1
    first = np.arange(rows)[:, None] * width if len(shape) == 2 else np.int64(0)
    once = node.operator.mode == "IDF"

    def count(x: np.ndarray) -> np.ndarray:
        places = (columns[numbers(x)] + first).ravel()
        counts = np.bincount(places, minlength=rows * width).reshape(rows, width)[:, :-1]
        y = (np.minimum(counts, 1) if once else counts).astype(np.float32)
        return (y if weights is None else y * weights).reshape(shape)

    return count


def _slice(node: Node, known: Known, shape: Shape) -> HostFunction | None:
    starts, ends, axes, steps = (*known[1:], None, None)[:4]
    assert node.inputs[0] is not None
    rank = len(node.inputs[0].shape)
    if starts is None or ends is None or (steps is not None and (steps != 1).any()):
        return None
    if (len(node.inputs) > 3 and node.inputs[3] is not None and axes is None) or (
        len(node.inputs) > 4 and node.inputs[4] is not None and steps is None
    ):
        return None
    parts = [slice(None)] * rank
    where = range(len(starts)) if axes is None else axes.tolist()
    for axis, start, end in zip(where, starts.tolist(), ends.tolist(), strict=True):
        parts[axis] = slice(start, end)
    place = tuple(parts)
    return lambda x: x[place]


def _concat(node: Node, known: Known, shape: Shape) -> HostFunction | None:
    assert isinstance(node.operator, Concat)
    axis, concatenate = node.operator.axis, np.concatenate
    if any(array is not None for array in known):
        return None
    return lambda *arrays: concatenate(arrays, axis)


def _reshape(node: Node, known: Known, shape: Shape) -> HostFunction | None:
    if any(value is not None and array is None for value, array in list(zip(node.inputs, known, strict=True))[1:]):
        return None
    return lambda x: x.reshape(shape)


def _take(node: Node, known: Known, shape: Shape) -> HostFunction | None:
    axis = node.operator.axis if isinstance(node.operator, Gather) else -1
    places = known[1]
    if known[0] is not None or places is None:
        return None
    if isinstance(node.operator, ArrayFeatureExtractor):
        if places.size and places.min() < 0:
            return None
        places = places.ravel()
    return lambda x: x.take(places, axis).reshape(shape)


_MAKERS: Mapping[type[Operator], Callable[[Node, Known, Shape], HostFunction | None]] = {
    ArrayFeatureExtractor: _take,
    CategoryMapper: _exchange,
    Concat: _concat,
    Flatten: _reshape,
    Gather: _take,
    LabelEncoder: _exchange,
    OneHotEncoder: _exchange,
    Reshape: _reshape,
    Slice: _slice,
    Squeeze: _reshape,
    TfIdfVectorizer: _count,
    Unsqueeze: _reshape,
}
