"""Values exchanged for others: labels and categories by tables, one-hot rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dtypes import DType, of_numpy
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError, Operator, Tensor
from jitonnx.ir.raw import RawNode
from jitonnx.ir.strings import strings_of
from jitonnx.ir.types import TensorType

_SUFFIXES = {
    "strings": DType.STRING,
    "int64s": DType.INT64,
    "floats": DType.FLOAT,
}
"""What attributes for lists of each type end in."""

StringRows: TypeAlias = "tuple[Sequence[str], np.ndarray]"
"""What an operator makes of strings, each by itself: texts, of which equal ones mean the first, and for each of them a
row, which is what an element becomes that equals it; behind them the row of all others."""

_FEW = 16
"""Keys that are compared with one after the other in generated code; more are looked for by bisection."""


class LabelEncoder(Operator):
    """Each element exchanged for the value of its key, or for a default where it is no key.

    Of equal keys the first counts. NaN is equal to itself.
    """

    domain = "ai.onnx.ml"

    default_float: float = -0.0
    default_int64: int = -1
    default_string: str = "_Unused"
    default_tensor: Tensor | None = None
    keys_floats: tuple[float, ...] | None = None
    keys_int64s: tuple[int, ...] | None = None
    keys_strings: tuple[str, ...] | None = None
    keys_tensor: Tensor | None = None
    values_floats: tuple[float, ...] | None = None
    values_int64s: tuple[int, ...] | None = None
    values_strings: tuple[str, ...] | None = None
    values_tensor: Tensor | None = None

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        """Version 1 has one list of strings, and looks up their places, or by their places."""
        if node.version > 1 or "classes_strings" not in node.attributes:
            return
        classes = node.attributes.pop("classes_strings")
        given = node.inputs[0]
        names = ("keys_int64s", "values_strings")
        if given is not None and given.dtype is DType.STRING:
            names = ("values_int64s", "keys_strings")
        node.attributes[names[0]], node.attributes[names[1]] = tuple(range(len(classes))), classes

    def _list(self, kind: str) -> np.ndarray:
        """The keys or values. InferenceError unless there is one list of them."""
        given = getattr(self, f"{kind}_tensor")
        found = [] if given is None else [given.array.ravel()]
        for suffix, dtype in _SUFFIXES.items():
            elements = getattr(self, f"{kind}_{suffix}")
            if elements:
                found.append(
                    strings_of(elements, (len(elements),)) if suffix == "strings" else np.array(elements, dtype.numpy)
                )
        if len(found) != 1:
            raise InferenceError(f"{len(found)} lists of {kind} are given; one is needed")
        return found[0]

    def _table(self) -> tuple[np.ndarray, np.ndarray, Any]:
        """Keys, values and the default."""
        keys, values = self._list("keys"), self._list("values")
        if len(keys) != len(values):
            raise InferenceError(f"{len(keys)} keys are given and {len(values)} values")
        if self.default_tensor is not None and self.default_tensor.array.size:
            return keys, values, self.default_tensor.array.ravel()[0]
        dtype = of_numpy(values.dtype)
        defaults = {
            DType.STRING: self.default_string,
            DType.FLOAT: self.default_float,
            DType.DOUBLE: self.default_float,
        }
        return keys, values, defaults.get(dtype, self.default_int64)

    def infer(self, context: InferenceContext, x: Value) -> TensorType:
        keys, values, default = self._table()
        if of_numpy(keys.dtype) is not x.dtype:
            raise InferenceError(f"{x.name!r} is {x.type}; the keys are {of_numpy(keys.dtype).text}")
        dtype = of_numpy(values.dtype)
        if (dtype is DType.STRING) != isinstance(default, str):
            raise InferenceError(f"the values are {dtype.text}, the default is {default!r}")
        return TensorType(dtype, x.shape)

    def rows_of_strings(self) -> StringRows | None:
        """See `StringRows`."""
        keys, values, default = self._table()
        return tuple(keys.tolist()), _with_default(values, default)

    def labels(self) -> np.ndarray | None:
        """The values of the keys 0, 1, 2, ..., if these are they, and then the default; else None."""
        keys, values, default = self._table()
        counted = keys.dtype.kind == "i" and keys.tolist() == list(range(len(keys)))
        return _with_default(values, default) if counted else None

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        keys, values, default = self._table()
        if keys.dtype == object:
            first = dict(zip(reversed(keys.tolist()), range(len(keys) - 1, -1, -1), strict=True))
            places = np.array([first.get(text, -1) for text in x.ravel().tolist()], np.int64).reshape(x.shape)
        else:
            distinct, first_places = np.unique(keys, return_index=True)  # NaN, if there is one, is the last
            found = np.minimum(np.searchsorted(distinct, x), len(distinct) - 1)
            same = (distinct[found] == x) | ((distinct[found] != distinct[found]) & (x != x))
            places = np.where(same, first_places[found], -1)
        return _with_default(values, default)[places]

    def lower(self, to: Lowering, x: Value) -> Value:
        """Few keys are compared one by one; of many, a bisection of the sorted ones finds the one it may be."""
        keys, values, default = self._table()
        distinct, places = np.unique(keys, return_index=True)
        table = np.append(values[places], np.asarray(default, values.dtype))
        dtype = of_numpy(values.dtype)
        if len(distinct) <= _FEW:
            result = e.constant(table[-1].item(), dtype)
            for key, value in zip(distinct, table[:-1], strict=True):
                result = e.where(_equals(e.operand(0, x.dtype), key), e.constant(value.item(), dtype), result)
            return to.map(result, x)
        nan = distinct[-1] != distinct[-1]
        numbers = len(distinct) - int(nan)
        place = _bisected(to, x, distinct[:numbers])
        key = to.emit(c.Gather(0), (to.constant(distinct), place), TensorType(x.dtype, x.shape))
        element, at = e.operand(0, x.dtype), e.operand(1, DType.INT64)
        at = e.where(e.equal(element, e.operand(2, x.dtype)), at, len(distinct))
        if nan:
            at = e.where(e.isnan(element), numbers, at)
        chosen = to.map(at, x, place, key)
        return to.emit(c.Gather(0), (to.constant(table), chosen), TensorType(dtype, x.shape))


def _with_default(values: np.ndarray, default: Any) -> np.ndarray:
    table = np.empty(len(values) + 1, values.dtype)
    table[:-1], table[-1] = values, default
    return table


def _equals(element: e.Expr, key: np.generic) -> e.Expr:
    return e.isnan(element) if key != key else e.equal(element, key.item())


def _bisected(to: Lowering, x: Value, keys: np.ndarray) -> Value:
    """The place of the last of the sorted keys that is not above an element; 0 where there is none: int64."""
    step = 1 << max(len(keys) - 1, 0).bit_length()
    place = to.fill(e.constant(0, DType.INT64), x.shape)
    table = to.constant(keys)
    while step > 1:
        step //= 2
        ahead = e.minimum(e.operand(0, DType.INT64) + step, len(keys) - 1)
        probe = to.map(ahead, place)
        key = to.emit(c.Gather(0), (table, probe), TensorType(x.dtype, x.shape))
        reached = e.operand(3, x.dtype) <= e.operand(0, x.dtype)
        place = to.map(e.where(reached, e.operand(2, DType.INT64), e.operand(1, DType.INT64)), x, place, probe, key)
    return place


def named(parts: Any, names: tuple[str, ...], outputs: Sequence[Value]) -> list[Value]:
    """A classifier's outputs with names in the place of the classes' numbers. parts: as in `Operator.decompose`."""
    table = LabelEncoder(keys_int64s=tuple(range(len(names))), values_strings=names)
    return [parts.add(table, outputs[0]), *outputs[1:]]


class CategoryMapper(Operator):
    """Strings exchanged for integers, or integers for strings, by two lists side by side."""

    domain = "ai.onnx.ml"

    cats_int64s: tuple[int, ...] | None = None
    cats_strings: tuple[str, ...] | None = None
    default_int64: int = -1
    default_string: str = "_Unused"

    def infer(self, context: InferenceContext, x: Value) -> TensorType:
        integers, strings = self.cats_int64s or (), self.cats_strings or ()
        if not integers or len(integers) != len(strings):
            raise InferenceError(
                f"{len(integers)} cats_int64s and {len(strings)} cats_strings are given; as many are needed"
            )
        return TensorType(DType.INT64 if x.dtype is DType.STRING else DType.STRING, x.shape)

    def rows_of_strings(self) -> StringRows | None:
        """See `StringRows`."""
        integers, strings = self.cats_int64s or (), self.cats_strings or ()
        return strings[::-1], np.array([*integers[::-1], self.default_int64], np.int64)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        integers, strings = self.cats_int64s or (), self.cats_strings or ()
        if x.dtype == object:
            numbers = dict(zip(strings, integers, strict=True))
            found = [numbers.get(text, self.default_int64) for text in x.ravel().tolist()]
            return np.array(found, np.int64).reshape(x.shape)
        texts = dict(zip(integers, strings, strict=True))
        return strings_of([texts.get(number, self.default_string) for number in x.ravel().tolist()], x.shape)

    def lower(self, to: Lowering, x: Value) -> tuple[Value, ...]:
        return to.host(self, (x,))


class OneHotEncoder(Operator):
    """A row for each element, 1 at the place of its category. Numbers are cut off to integers first.

    zeros: what is no category gives a row of zeros; else it is an error of the run.
    """

    domain = "ai.onnx.ml"

    cats_int64s: tuple[int, ...] | None = None
    cats_strings: tuple[str, ...] | None = None
    zeros: int = 1

    def _categories(self) -> tuple[Any, ...]:
        if bool(self.cats_int64s) == bool(self.cats_strings):
            raise InferenceError("one of cats_int64s and cats_strings is needed")
        return self.cats_strings or self.cats_int64s or ()

    def infer(self, context: InferenceContext, x: Value) -> TensorType:
        categories = self._categories()
        if (x.dtype is DType.STRING) != bool(self.cats_strings):
            raise InferenceError(f"{x.name!r} is {x.type}; the categories are {type(categories[0]).__name__}")
        return TensorType(DType.FLOAT, (*x.shape, len(categories)))

    def rows_of_strings(self) -> StringRows | None:
        """See `StringRows`."""
        categories = self._categories()
        count = len(categories)
        rows = np.zeros((count + 1, count), np.float32)
        rows[range(count), range(count - 1, -1, -1)] = 1
        return categories[::-1], rows

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        categories = self._categories()
        if x.dtype == object:
            places = {text: place for place, text in enumerate(categories)}
            found = np.array([places.get(text, -1) for text in x.ravel().tolist()], np.int64).reshape(x.shape)
            hot = found[..., None] == np.arange(len(categories))
        else:
            # Of equal categories the last counts, as in a table that is filled in order.
            last = np.array([category not in categories[place + 1 :] for place, category in enumerate(categories)])
            hot = (_truncated(x)[..., None] == np.array(categories, np.int64)) & last
        if not self.zeros and not hot.any(axis=-1).all():
            raise ValueError(f"an element is none of the {len(categories)} categories, and zeros is 0")
        return hot.astype(np.float32)

    def lower(self, to: Lowering, x: Value) -> Value | tuple[Value, ...]:
        categories = self._categories()
        if not self.zeros or len(set(categories)) < len(categories):
            return to.host(self, (x,))  # an error that only data shows, or lists that no tool writes
        column = to.reshape(x, (*x.shape, 1))
        element, category = e.cast(e.operand(0, x.dtype), DType.INT64), e.operand(1, DType.INT64)
        return to.map(
            e.cast(e.equal(element, category), DType.FLOAT), column, to.constant(np.array(categories, np.int64))
        )


def _truncated(x: np.ndarray) -> np.ndarray:
    if x.dtype.kind != "f":
        return x.astype(np.int64)
    limit = 2.0**63
    inside = (x >= -limit) & (x < limit)
    cut = np.where(inside, x, 0).astype(np.int64)
    extreme = np.where(x >= limit, np.iinfo(np.int64).max, np.where(x < -limit, np.iinfo(np.int64).min, 0))
    return np.where(inside, cut, extreme)
