"""What evaluates nodes on strings, and on what goes with them, in a run of known sizes.

`evaluate` of an operator looks at everything anew in each run. For the operators that pipelines of strings are made of,
what only depends on the node and on sizes is settled here once: positions of slices, shapes, tables. What such a
function cannot do with the arrays of a run it leaves to `evaluate`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Node
from jitonnx.ir.operator import Operator
from jitonnx.ops.microsoft.text import Tokenizer
from jitonnx.ops.ml.features import ArrayFeatureExtractor
from jitonnx.ops.ml.labels import CategoryMapper, LabelEncoder, OneHotEncoder
from jitonnx.ops.ml.maps import ZipMap
from jitonnx.ops.onnx.concat_split import Concat
from jitonnx.ops.onnx.gather import Gather
from jitonnx.ops.onnx.shape import Flatten, Reshape, Squeeze, Unsqueeze
from jitonnx.ops.onnx.slice import Slice
from jitonnx.ops.onnx.text import StringNormalizer, TfIdfVectorizer
from jitonnx.runtime import strings

HostFunction: TypeAlias = Callable[..., Any]
"""Gives the array of a node's only output for those of its inputs that are no constants."""
Known: TypeAlias = Sequence["np.ndarray | None"]
"""The elements of each input that is constant, None for others."""
Shape: TypeAlias = "tuple[int, ...]"


def host_function(node: Node, known: Known, shape: Shape | None) -> HostFunction | None:
    """What evaluates a node; None where only `evaluate_node` does. shape: that of its output, None if it is no tensor,
    or not known before the run."""
    operator = node.operator
    if isinstance(operator, ZipMap):
        return _zip_map(operator)
    if isinstance(operator, StringNormalizer):
        return _normalized(operator, shape)
    if isinstance(operator, Tokenizer):
        return _tokenized(operator)
    if shape is None and isinstance(operator, Flatten):
        evaluate: HostFunction = operator.evaluate
        return evaluate
    make = _MAKERS.get(type(operator))
    return None if make is None or shape is None or len(node.outputs) != 1 else make(node, known, shape)


class _Strings:
    """A function of strings by a table.

    make: makes the table. begin: makes the array that it writes to. otherwise: gives the same for arrays that the table
    does not read, and before there is native code.
    """

    def __init__(
        self,
        make: Callable[[], strings.StringTable],
        begin: Callable[[], np.ndarray],
        otherwise: Callable[[np.ndarray], np.ndarray],
    ) -> None:
        self._make, self._begin, self._otherwise = make, begin, otherwise
        self._find: Callable[..., bool] | None = None

    def __call__(self, x: np.ndarray) -> np.ndarray:
        find = self._find
        if find is None:
            if not strings.ready():
                return self._otherwise(x)
            find = self._find = self._make().find
        y = self._begin()
        return y if find(x, y) else self._otherwise(x)


def _exchange(node: Node, known: Known, shape: Shape) -> HostFunction | None:
    operator = node.operator
    assert isinstance(operator, CategoryMapper | LabelEncoder | OneHotEncoder) and node.inputs[0] is not None
    if node.inputs[0].dtype is not DType.STRING:
        labels = operator.labels() if isinstance(operator, LabelEncoder) else None
        return None if labels is None else _labelled(labels, shape)
    found = operator.rows_of_strings()
    if found is None:
        return None
    texts, rows = found
    empty, evaluate = np.empty, operator.evaluate
    if isinstance(operator, OneHotEncoder) and not operator.zeros:
        return _found(texts, rows, evaluate, shape)
    if rows.dtype != object:
        dtype, make = rows.dtype, functools.partial(strings.StringTable, texts, rows)
        return _Strings(make, lambda: empty(shape, dtype), lambda x: evaluate(x).reshape(shape))
    make = functools.partial(strings.StringTable, texts, np.arange(len(texts) + 1))
    numbers = {text: number for number, text in reversed(list(enumerate(texts)))}

    def looked_up(x: np.ndarray) -> np.ndarray:
        found = [numbers.get(text, len(texts)) for text in x.ravel().tolist()]
        return np.array(found, np.int64).reshape(shape)

    numbered = _Strings(make, lambda: empty(shape, np.int64), looked_up)
    return lambda x: rows[numbered(x)]


def _found(
    texts: Sequence[str], rows: np.ndarray, evaluate: Callable[[np.ndarray], np.ndarray], shape: Shape
) -> HostFunction:
    """A function of strings that all have to be among the texts; `evaluate` raises the error about others."""
    behind_none = np.roll(rows, 1, axis=0)
    make = functools.partial(strings.StringTable, texts, np.array([*range(1, len(rows)), 0]))
    count, empty, zeros, count_nonzero = math.prod(shape) // rows.shape[1], np.empty, np.zeros, np.count_nonzero
    numbered = _Strings(make, lambda: empty(count, np.int64), lambda x: zeros(count, np.int64))

    def found(x: np.ndarray) -> np.ndarray:
        numbers = numbered(x)
        return (evaluate(x) if count_nonzero(numbers) < count else behind_none.take(numbers, 0)).reshape(shape)

    return found


def _labelled(labels: np.ndarray, shape: Shape) -> HostFunction:
    """A function of numbers: labels[number], and the last label for all others."""
    if math.prod(shape) != 1:
        table = np.append(labels[-1:], labels)  # that one on both sides
        return lambda x: table.take(x + 1, mode="clip")
    empty, dtype, (*each, other) = np.empty, labels.dtype, labels.tolist()
    get = dict(enumerate(each)).get

    def label(x: np.ndarray) -> np.ndarray:
        y = empty(shape, dtype)
        y.fill(get(x.item(), other))
        return y

    return label


def _count(node: Node, known: Known, shape: Shape) -> HostFunction | None:
    operator = node.operator
    assert isinstance(operator, TfIdfVectorizer)
    found = operator.counted_strings()
    if found is None:
        return None
    texts, columns, weights = found
    zeros, evaluate, once = np.zeros, operator.evaluate, operator.mode == "IDF"
    ones = np.ones(len(texts) + 1, np.float32)
    make = functools.partial(strings.StringTable, texts, ones, columns, shape[-1], once=once)
    if weights is None:
        return _Strings(make, lambda: zeros(shape, np.float32), evaluate)
    counted = _Strings(make, lambda: zeros(shape, np.float32), replace(operator, mode="TF").evaluate)
    return lambda x: counted(x) * weights


def _normalized(operator: StringNormalizer, shape: Shape | None) -> HostFunction:
    change = {"LOWER": str.lower, "UPPER": str.upper}.get(operator.case_change_action)
    if shape is None or math.prod(shape) != 1 or change is None or operator.stopwords:
        return operator.evaluate
    empty = np.empty

    def normalized(x: np.ndarray) -> np.ndarray:
        y = empty(shape, object)
        y.fill(change(x.item()))
        return y

    return normalized


def _tokenized(operator: Tokenizer) -> HostFunction:
    """A function of texts, of which there often is one."""
    if operator.mark:
        return operator.evaluate
    find, evaluate, empty = operator.finder(), operator.evaluate, np.empty

    def tokenized(x: np.ndarray) -> np.ndarray:
        if x.size != 1:
            return evaluate(x)
        tokens = find(x.item())
        y = empty((*x.shape, len(tokens)), object)
        y[...] = tokens
        return y

    return tokenized


def _slice(node: Node, known: Known, shape: Shape) -> HostFunction | None:
    starts, ends, axes, steps = (*known[1:], None, None)[:4]
    assert node.inputs[0] is not None
    rank = len(node.inputs[0].shape)
    if starts is None or ends is None or _is_computed(node, known) or (steps is not None and (steps != 1).any()):
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
    return None if _is_computed(node, known) else lambda x: x.reshape(shape)


def _is_computed(node: Node, known: Known) -> bool:
    """Whether any input behind the first is no constant."""
    return any(value is not None and array is None for value, array in zip(node.inputs[1:], known[1:], strict=True))


def _take(node: Node, known: Known, shape: Shape) -> HostFunction | None:
    axis = node.operator.axis if isinstance(node.operator, Gather) else -1
    table, places = known
    if table is not None and places is None and isinstance(node.operator, ArrayFeatureExtractor):
        return _named(table, shape)
    if table is not None or places is None:
        return None
    assert node.inputs[0] is not None
    rank = len(node.inputs[0].shape)
    if isinstance(node.operator, ArrayFeatureExtractor):
        if rank < 2 or (places.size and places.min() < 0):
            return None
        places = places.ravel()
    if places.shape == (1,) and rank > 0:
        first = int(places[0])
        parts = [slice(None)] * rank
        parts[axis] = slice(first, first + 1 or None)
        place = tuple(parts)
        return lambda x: x[place]  # of no elements where there is none of that number, which has another shape
    return lambda x: x.take(places, axis).reshape(shape)


def _named(table: np.ndarray, shape: Shape) -> HostFunction | None:
    """A function of places in a table of one row."""
    if table.size != table.shape[-1]:
        return None
    row, empty, dtype = table.ravel(), np.empty, table.dtype
    values = row.tolist()

    def named(places: np.ndarray) -> np.ndarray:
        if places.size == 1:
            place = places.item()
            if place < 0:
                raise IndexError(place)
            y = empty(shape, dtype)
            y.fill(values[place])
            return y
        if places.size and places.min() < 0:
            raise IndexError(places.min())
        return row.take(places).reshape(shape)

    return named


def _zip_map(operator: ZipMap) -> HostFunction:
    order, names = operator.order()
    in_order, count = order == sorted(order), len(names)
    empty = dict.fromkeys(names, 0.0)  # copies of a dict are made in a quarter of the time that its keys take

    def zipped(x: np.ndarray) -> list[dict[Any, float]]:
        if x.shape[-1] != count:
            raise ValueError(f"rows of {x.shape[-1]} scores for {count} labels")
        if x.size == count:
            return [dict(zip(names, (x if in_order else x[..., order]).ravel().tolist(), strict=True))]
        rows = x.reshape(-1, count)
        maps = [empty.copy() for _ in range(len(rows))]
        for name, column in zip(names, (rows if in_order else rows[:, order]).T.tolist(), strict=True):
            for scores, score in zip(maps, column, strict=True):
                scores[name] = score
        return maps

    return zipped


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

RESHAPES = (Flatten, Reshape, Squeeze, Unsqueeze)
"""Operators that leave elements where they are."""


def shapes_freely(node: Node) -> bool:
    """Whether what `host_function` makes of a node can have any shape of as many elements."""
    operator, source, result = node.operator, node.inputs[0], node.outputs[0]
    exchanges = isinstance(operator, CategoryMapper | LabelEncoder | OneHotEncoder)
    return exchanges and source is not None and source.dtype is DType.STRING and result.dtype is not DType.STRING
