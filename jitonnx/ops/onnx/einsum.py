"""Einsum: sums of products over labelled axes, lowered to transposes, matrix products and sums."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dims import DimLike, product
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError, Operator
from jitonnx.ir.types import TensorType
from jitonnx.ops.base import lower_products, present, widen
from jitonnx.support.records import dataclass

Labels = tuple[str, ...]


@dataclass(frozen=True)
class _Labelled:
    """A value with a label for each of its axes."""

    value: Value
    labels: Labels

    def size(self, label: str) -> DimLike:
        return self.value.shape[self.labels.index(label)]


class Einsum(Operator):
    """The sum, over all labels of the equation that the result lacks, of the product of the inputs' elements."""

    equation: str

    def _parse(self, ranks: Sequence[int]) -> tuple[list[Labels], Labels]:
        """Labels of the inputs' axes and of the result's; an ellipsis' axes are named "1", "2", ... from the right."""
        text = self.equation.replace(" ", "")
        left, arrow, right = text.partition("->")
        terms = left.split(",")
        if len(terms) != len(ranks):
            raise InferenceError(f"equation {self.equation!r} has {len(terms)} terms for {len(ranks)} inputs")
        inputs = [self._labels(term, rank) for term, rank in zip(terms, ranks, strict=True)]
        widest = max((sum(label.isdigit() for label in labels) for labels in inputs), default=0)
        dots = tuple(str(position) for position in range(widest, 0, -1))
        if arrow:
            return inputs, self._labels(right, len(right.replace("...", "")) + widest * ("..." in right))
        flat = left.replace("...", "").replace(",", "")
        return inputs, (*dots, *sorted(label for label in set(flat) if flat.count(label) == 1))

    def _labels(self, term: str, rank: int) -> Labels:
        before, dots, after = term.partition("...")
        spare = rank - len(before) - len(after)
        named = before + after
        if (named and not named.isalpha()) or spare < 0 or (spare and not dots):
            raise InferenceError(f"equation {self.equation!r}: term {term!r} does not fit an input of rank {rank}")
        return (*before, *(str(position) for position in range(spare, 0, -1)), *after)

    def _sizes(self, context: InferenceContext, inputs: Sequence[Value], terms: Sequence[Labels]) -> dict[str, DimLike]:
        sizes: dict[str, DimLike] = {}
        for value, labels in zip(inputs, terms, strict=True):
            for label, dim in zip(labels, value.shape, strict=True):
                merged = context.broadcast_shapes((sizes.get(label, 1),), (dim,))
                if merged is None:
                    raise InferenceError(f"equation {self.equation!r}: label {label!r} is {sizes[label]} and {dim}")
                sizes[label] = merged[0]
        return sizes

    def infer(self, context: InferenceContext, *inputs: Value | None) -> TensorType:
        given = present(inputs)
        terms, result = self._parse([len(value.shape) for value in given])
        sizes = self._sizes(context, given, terms)
        if missing := [label for label in result if label not in sizes] or len(set(result)) < len(result):
            raise InferenceError(f"equation {self.equation!r}: labels of the result are repeated or new: {missing}")
        return TensorType(given[0].dtype, tuple(sizes[label] for label in result))

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        y = np.einsum(self.equation.replace(" ", ""), *map(widen, arrays), optimize=len(arrays) > 2)
        return np.asarray(y).astype(arrays[0].dtype, copy=False)

    @lower_products
    def lower(self, to: Lowering, *inputs: Value) -> Value | tuple[Value, ...]:
        terms, result = self._parse([len(value.shape) for value in inputs])
        if any(len(set(labels)) < len(labels) for labels in terms):  # a diagonal: no view, and no exporter takes one
            return to.host(self, inputs)[0]
        sizes = self._sizes(to.context, inputs, terms)
        rest = [_squeezed(to, _Labelled(*pair), sizes) for pair in zip(inputs, terms, strict=True)]
        total = rest.pop(0)
        while rest:
            needed = set(result).union(*(operand.labels for operand in rest[1:]))
            total = _contract(to, total, rest.pop(0), needed)
        return _arranged(to, _summed(to, total, set(result)), result, sizes)


def _squeezed(to: Lowering, x: _Labelled, sizes: dict[str, DimLike]) -> _Labelled:
    """x without the axes of size 1 that are broadcast."""
    # Other sizes that look different are assumed to be equal.
    labels = tuple(label for label, dim in zip(x.labels, x.value.shape, strict=True) if dim != 1 or sizes[label] == 1)
    return _Labelled(to.reshape(x.value, tuple(x.size(label) for label in labels)), labels)


def _summed(to: Lowering, x: _Labelled, keep: set[str]) -> _Labelled:
    """x summed over the labels that are not in `keep`."""
    axes = tuple(axis for axis, label in enumerate(x.labels) if label not in keep)
    if not axes:
        return x
    return _Labelled(
        to.reduce("sum", x.value, axes, keepdims=False), tuple(label for label in x.labels if label in keep)
    )


def _transposed(to: Lowering, x: _Labelled, labels: Labels) -> Value:
    return to.transpose(x.value, [x.labels.index(label) for label in labels])


def _contract(to: Lowering, x: _Labelled, y: _Labelled, needed: set[str]) -> _Labelled:
    """The product of x and y, summed over the labels that nobody needs any more: a matrix product."""
    x = _summed(to, x, needed.union(y.labels))
    y = _summed(to, y, needed.union(x.labels))
    shared = [label for label in x.labels if label in y.labels]
    batch = tuple(label for label in shared if label in needed)
    inner = tuple(label for label in shared if label not in needed)
    left = tuple(label for label in x.labels if label not in shared)
    right = tuple(label for label in y.labels if label not in shared)
    outer = tuple(x.size(label) for label in batch)
    rows, columns = tuple(x.size(label) for label in left), tuple(y.size(label) for label in right)
    a, b = _transposed(to, x, (*batch, *left, *inner)), _transposed(to, y, (*batch, *inner, *right))
    labels = (*batch, *left, *right)
    if not inner:
        a, b = to.reshape(a, (*outer, *rows, *(1,) * len(right))), to.reshape(b, (*outer, *(1,) * len(left), *columns))
        return _Labelled(to.map(e.operand(0, a.dtype) * e.operand(1, b.dtype), a, b), labels)
    depth = product(x.size(label) for label in inner)
    a = to.reshape(a, (*outer, product(rows), depth))
    b = to.reshape(b, (*outer, depth, product(columns)))
    return _Labelled(to.reshape(to.matmul(a, b), (*outer, *rows, *columns)), labels)


def _arranged(to: Lowering, x: _Labelled, labels: Labels, sizes: dict[str, DimLike]) -> Value:
    """x with its axes in the order of `labels`; one that x lacks is broadcast."""
    present_labels = tuple(label for label in labels if label in x.labels)
    value = _transposed(to, x, present_labels)
    value = to.reshape(value, tuple(sizes[label] if label in x.labels else 1 for label in labels))
    return to.broadcast(value, tuple(sizes[label] for label in labels))
