"""Ensembles of decision trees.

All come to one computation, the scores of a forest (`jitonnx.ir.forest`); what is done with scores follows. Where
ONNX's text leaves that open (a class without weights, two classes with weights for one), it is onnxruntime's meaning.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dims import minimum
from jitonnx.ir.dtypes import DType
from jitonnx.ir.forest import EQUAL, MODES, UNORDERED, Forest, of_nodes
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError, Operator, Tensor, attributes_of
from jitonnx.ir.types import TensorType
from jitonnx.ops.ml.labels import named
from jitonnx.ops.ml.scores import (
    TRANSFORMS,
    as_rows,
    check_transform,
    labelled,
    logistic,
    lower_highest,
    lower_labelled,
    lower_rows,
    lower_transformed,
    probit,
    probit_expression,
    rows_and_features,
    transformed,
)

AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
"""The keys are their numbers in TreeEnsemble."""


def _compared(dtype: DType) -> DType:
    """The type in which features of another are compared with thresholds, and scores added up."""
    return DType.DOUBLE if dtype is DType.DOUBLE else DType.FLOAT


def _check_features(context: InferenceContext, forest: Forest, x: Value) -> None:
    """InferenceError if rows have fewer features than the trees look at."""
    features = rows_and_features(x)[1]
    if not context.demand_equal(minimum(features, forest.feature_count), forest.feature_count):
        raise InferenceError(f"{x.name!r} is {x.type}; the trees look at {forest.feature_count} features")


def _lower_scores(to: Lowering, forest: Forest, x: Value, aggregate: str) -> Value:
    """Scores [rows, targets], of the forest's type; 0 for a target that no leaf has weights for."""
    rows = lower_rows(to, x, _compared(x.dtype))
    type = TensorType(rows.dtype, (rows.shape[0], forest.target_count))
    scores = to.emit(c.Trees(forest, aggregate), (rows,), type)
    if aggregate == "sum" or (forest.scored == 2).all():
        return scores
    has = e.operand(1, rows.dtype) > 0.0
    return to.map(e.where(has, e.operand(0, rows.dtype), 0.0), scores, _lower_counts(to, forest, x))


def _lower_counts(to: Lowering, forest: Forest, x: Value) -> Value:
    """How many weights each target had [rows, targets]: a constant row where that is the same for all, up to signs."""
    if (forest.scored != 1).all():
        return to.constant(forest.scored.astype(forest.weights.dtype)[None])
    rows = lower_rows(to, x, _compared(x.dtype))
    type = TensorType(rows.dtype, (rows.shape[0], forest.target_count))
    return to.emit(c.Trees(forest.presence(), "sum"), (rows,), type)


class _Nodes(Operator):
    """What classifier and regressor share: nodes named by tree and number."""

    domain = "ai.onnx.ml"

    base_values: tuple[float, ...] | None = None
    base_values_as_tensor: Tensor | None = None
    nodes_falsenodeids: tuple[int, ...] | None = None
    nodes_featureids: tuple[int, ...] | None = None
    nodes_hitrates: tuple[float, ...] | None = None
    nodes_hitrates_as_tensor: Tensor | None = None
    nodes_missing_value_tracks_true: tuple[int, ...] | None = None
    nodes_modes: tuple[str, ...] | None = None
    nodes_nodeids: tuple[int, ...] | None = None
    nodes_treeids: tuple[int, ...] | None = None
    nodes_truenodeids: tuple[int, ...] | None = None
    nodes_values: tuple[float, ...] | None = None
    nodes_values_as_tensor: Tensor | None = None
    post_transform: str = "NONE"

    def _numbers(self, name: str) -> np.ndarray:
        """The elements of an attribute that may be given as a tensor."""
        given, tensor = getattr(self, name), getattr(self, f"{name}_as_tensor")
        if given and tensor is not None and tensor.array.size:
            raise InferenceError(f"{name} and {name}_as_tensor are both given")
        if tensor is not None and tensor.array.size:
            return np.asarray(tensor.array).ravel()
        return np.array(given or (), np.float32)

    def _weights(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], np.ndarray]:
        """The trees, nodes and targets of weights, and the weights."""
        raise NotImplementedError

    def _target_count(self) -> int:
        raise NotImplementedError

    @functools.cached_property
    def _forests(self) -> dict[DType, Forest]:
        return {}

    def forest(self, dtype: DType) -> Forest:
        """The trees, compared in float or double. InferenceError for attributes that make none."""
        if dtype not in self._forests:
            self._forests[dtype] = self._made(dtype.numpy)
        return self._forests[dtype]

    def _made(self, dtype: np.dtype[Any]) -> Forest:
        count = len(self.nodes_nodeids or ())
        lists = ("treeids", "nodeids", "modes", "featureids", "truenodeids", "falsenodeids")
        for name in lists:
            if len(getattr(self, f"nodes_{name}") or ()) != count or not count:
                raise InferenceError(f"nodes_{name} and nodes_nodeids differ in their length, or have none")
        values = self._numbers("nodes_values").astype(dtype)
        missing = np.array(self.nodes_missing_value_tracks_true or (0,) * count) == 1
        weights = self._weights()
        if len(values) != count or len(missing) != count:
            raise InferenceError(
                f"{count} nodes have {len(values)} values and {len(missing)} missing_value_tracks_true"
            )
        if len({len(part) for part in weights}) > 1:
            raise InferenceError(
                f"there are {', '.join(str(len(part)) for part in weights)} trees, nodes, ids and weights of leaves"
            )
        outcomes = {"LEAF": 0, **MODES}
        if unknown := set(self.nodes_modes or ()) - outcomes.keys():
            raise InferenceError(f"nodes_modes has {unknown.pop()!r}; ONNX has {', '.join(outcomes)}")
        modes = np.array([outcomes[mode] for mode in self.nodes_modes or ()], np.uint8)
        try:
            return of_nodes(
                self.nodes_treeids or (),
                self.nodes_nodeids or (),
                modes,
                self.nodes_featureids or (),
                values,
                missing,
                self.nodes_truenodeids or (),
                self.nodes_falsenodeids or (),
                (*weights[:3], weights[3].astype(dtype)),
                self._target_count(),
            )
        except ValueError as error:
            raise InferenceError(str(error)) from error

    def _base(self) -> np.ndarray:
        return self._numbers("base_values")


class TreeEnsembleRegressor(_Nodes):
    """The weights of each row's leaves, combined: a sum, an average, the smallest or the largest, for each target."""

    aggregate_function: str = "SUM"
    n_targets: int | None = None
    target_ids: tuple[int, ...] | None = None
    target_nodeids: tuple[int, ...] | None = None
    target_treeids: tuple[int, ...] | None = None
    target_weights: tuple[float, ...] | None = None
    target_weights_as_tensor: Tensor | None = None

    def _weights(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], np.ndarray]:
        ids = self.target_treeids or (), self.target_nodeids or (), self.target_ids or ()
        return *ids, self._numbers("target_weights")

    def _target_count(self) -> int:
        return self.n_targets or max(self.target_ids or (0,)) + 1

    @property
    def _transform(self) -> str:
        """A single target knows PROBIT alone."""
        return self.post_transform if self._target_count() > 1 or self.post_transform == "PROBIT" else "NONE"

    def _offset(self) -> np.ndarray | None:
        """What is added to the targets: as many numbers as there are targets, or nothing."""
        base = self._base()
        return base if len(base) == self._target_count() else None

    def infer(self, context: InferenceContext, x: Value) -> TensorType:
        check_transform(self.post_transform)
        if self.aggregate_function not in AGGREGATES:
            raise InferenceError(f"aggregate_function is {self.aggregate_function!r}; ONNX has {', '.join(AGGREGATES)}")
        forest = self.forest(_compared(x.dtype))
        _check_features(context, forest, x)
        return TensorType(DType.FLOAT, (rows_and_features(x)[0], forest.target_count))

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        dtype = DType.DOUBLE if x.dtype == np.float64 else DType.FLOAT
        forest, offset = self.forest(dtype), self._offset()
        scores = _aggregated(forest, as_rows(x).astype(dtype.numpy), self.aggregate_function)
        if offset is not None:
            scores = scores + offset.astype(scores.dtype)
        return transformed(scores, self._transform).astype(np.float32)

    def lower(self, to: Lowering, x: Value) -> Value:
        scores = _lower_aggregated(to, self.forest(_compared(x.dtype)), x, self.aggregate_function)
        offset = self._offset()
        if offset is not None and offset.any():
            base = to.constant(offset.astype(scores.dtype.numpy))
            scores = to.map(e.operand(0, scores.dtype) + e.operand(1, scores.dtype), scores, base)
        return to.cast(lower_transformed(to, scores, self._transform), DType.FLOAT)


def _aggregated(forest: Forest, x: np.ndarray, aggregate: str) -> np.ndarray:
    kind = "sum" if aggregate == "AVERAGE" else aggregate.lower()
    scores = forest.scores(x, kind)[0]
    return scores / scores.dtype.type(len(forest.roots)) if aggregate == "AVERAGE" else scores


def _lower_aggregated(to: Lowering, forest: Forest, x: Value, aggregate: str) -> Value:
    scores = _lower_scores(to, forest, x, "sum" if aggregate == "AVERAGE" else aggregate.lower())
    return to.map(e.operand(0, scores.dtype) / float(len(forest.roots)), scores) if aggregate == "AVERAGE" else scores


class TreeEnsembleClassifier(_Nodes):
    """The weights of each row's leaves added up for each class, and the class of the largest sum."""

    class_ids: tuple[int, ...] | None = None
    class_nodeids: tuple[int, ...] | None = None
    class_treeids: tuple[int, ...] | None = None
    class_weights: tuple[float, ...] | None = None
    class_weights_as_tensor: Tensor | None = None
    classlabels_int64s: tuple[int, ...] | None = None
    classlabels_strings: tuple[str, ...] | None = None

    def _weights(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], np.ndarray]:
        ids = self.class_treeids or (), self.class_nodeids or (), self.class_ids or ()
        return *ids, self._numbers("class_weights")

    def _target_count(self) -> int:
        return len(self.classlabels_strings or self.classlabels_int64s or ())

    def infer(self, context: InferenceContext, x: Value) -> tuple[TensorType, TensorType]:
        check_transform(self.post_transform)
        if not self._target_count():
            raise InferenceError("one of classlabels_int64s and classlabels_strings is needed")
        if self._target_count() == 1 and (self.classlabels_strings or len(self._base()) > 1):
            raise InferenceError("a single class has an integer as its label, and one base value at most")
        _check_features(context, self.forest(_compared(x.dtype)), x)
        rows = rows_and_features(x)[0]
        kind = DType.STRING if self.classlabels_strings else DType.INT64
        return TensorType(kind, (rows,)), TensorType(DType.FLOAT, (rows, self._target_count()))

    def decompose(self, parts: Any, inputs: Sequence[Value | None], outputs: int) -> Sequence[Value] | None:
        if not self.classlabels_strings:
            return None
        numbers = {"classlabels_strings": None, "classlabels_int64s": tuple(range(self._target_count()))}
        operator = TreeEnsembleClassifier(**attributes_of(self) | numbers)
        operator.__dict__["_forests"] = self._forests
        return named(parts, self.classlabels_strings, parts.add_many(operator, inputs, outputs))

    # ------------------------------------------------------------ what binary classes mean

    @functools.cached_property
    def _all_positive(self) -> bool:
        return bool((self._numbers("class_weights") >= 0).all())

    @property
    def _one_weighted(self) -> bool:
        """Whether of two classes one alone has weights."""
        return self._target_count() == 2 and len(set(self.class_ids or ())) == 1

    @property
    def _threshold(self) -> float:
        """The score above which the second class is chosen."""
        return 0.5 if self._one_weighted and self._all_positive else 0.0

    @property
    def _pair(self) -> tuple[int, int]:
        """The labels below and above the threshold: with weights for both classes 0 and 1, whatever they are called."""
        labels = self.classlabels_int64s or ()
        return (labels[0], labels[1]) if self._one_weighted and not self.classlabels_strings else (0, 1)

    # ------------------------------------------------------------ evaluation

    def evaluate(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        dtype = DType.DOUBLE if x.dtype == np.float64 else DType.FLOAT
        forest = self.forest(dtype)
        scores, has = forest.scores(as_rows(x).astype(dtype.numpy), "sum")
        base = self._base().astype(scores.dtype)
        if forest.target_count > 2:
            scores[:, : len(base)] += base
            has[:, : len(base)] = True
            chosen = np.where(has, scores, -np.inf).argmax(axis=1)
            labels = labelled(chosen, self.classlabels_int64s or (), self.classlabels_strings or ())
            return labels, transformed(scores, self.post_transform).astype(np.float32)
        if forest.target_count == 1:
            scores = scores + base
            labels = (scores[:, 0] > 0).astype(np.int64)
            return labels, (probit(scores) if self.post_transform == "PROBIT" else scores).astype(np.float32)
        return self._of_two(scores, has, base)

    def _of_two(self, scores: np.ndarray, has: np.ndarray, base: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        first, second, both = scores[:, 0], scores[:, 1], has[:, 1]
        if len(base) == 2:
            moved = np.where(both, base[1] + first, base[1] + second)
            first = np.where(both, -moved, first + base[0])
            second = moved
        elif len(base) == 1:
            first = first + base[0]
        first, second = np.where(has[:, 0], first, 0), np.where(both, second, 0)  # what has no weights counts 0
        above = np.where(both, second, first) > self._threshold
        labels = labelled(above.astype(np.int64), self._pair, self.classlabels_strings or ())
        pair = transformed(np.stack([first, second], axis=1), self.post_transform)
        if not self._alone(len(base)):
            return labels, pair.astype(np.float32)
        return labels, np.where(both[:, None], pair, self._single(first)).astype(np.float32)

    def _alone(self, bases: int) -> bool:
        """Whether a row without weights for the second class has a single score, from which both classes' are made."""
        return bases == 0 or (bases == 1 and self._one_weighted)

    def _single(self, score: np.ndarray) -> np.ndarray:
        """The scores of both classes where the first alone has one, which is the second's."""
        if self.post_transform == "PROBIT":
            return np.stack([probit(score)] * 2, axis=1)
        if self.post_transform == "LOGISTIC":
            return np.stack([logistic(-score), logistic(score)], axis=1)
        return np.stack([1 - score if self._one_weighted and self._all_positive else -score, score], axis=1)

    # ------------------------------------------------------------ in computations

    def lower(self, to: Lowering, x: Value) -> tuple[Value, ...]:
        if self.classlabels_strings:
            return to.host(self, (x,))
        forest = self.forest(_compared(x.dtype))
        scores = _lower_scores(to, forest, x, "sum")
        base, kind = self._base().astype(scores.dtype.numpy), scores.dtype
        if forest.target_count == 1:
            if base.any():
                scores = to.map(e.operand(0, kind) + float(base[0]), scores)
            zero, one = e.constant(0, DType.INT64), e.constant(1, DType.INT64)
            label = to.map(e.where(e.operand(0, kind) > 0.0, one, zero), to.reshape(scores, scores.shape[:1]))
            result = lower_transformed(to, scores, "PROBIT" if self.post_transform == "PROBIT" else "NONE")
            return label, to.cast(result, DType.FLOAT)
        if forest.target_count == 2:
            return self._lower_of_two(to, forest, x, scores)
        if base.any():
            padded = np.zeros(forest.target_count, base.dtype)
            padded[: len(base)] = base
            scores = to.map(e.operand(0, kind) + e.operand(1, kind), scores, to.constant(padded))
        candidates = scores
        if not (forest.scored[len(base) :] == 2).all():
            has = e.operand(1, kind) > 0.0
            counts = to.map(
                e.operand(0, kind) + e.operand(1, kind),
                _lower_counts(to, forest, x),
                to.constant((np.arange(forest.target_count) < len(base)).astype(base.dtype)),
            )
            candidates = to.map(e.where(has, e.operand(0, kind), float("-inf")), scores, counts)
        label = lower_labelled(to, lower_highest(to, candidates), self.classlabels_int64s or ())
        return label, to.cast(lower_transformed(to, scores, self.post_transform), DType.FLOAT)

    def _lower_of_two(self, to: Lowering, forest: Forest, x: Value, scores: Value) -> tuple[Value, Value]:
        kind, base = scores.dtype, self._base().astype(scores.dtype.numpy)
        rows, zero = scores.shape[0], e.constant(0.0, kind)
        operands = [to.slice(scores, (0, place), (1, 1), (rows, 1)) for place in (0, 1)]
        has = [e.constant(bool(scored), DType.BOOL) for scored in forest.scored]
        if (forest.scored == 1).any():
            counts = _lower_counts(to, forest, x)
            operands += [to.slice(counts, (0, place), (1, 1), (rows, 1)) for place in (0, 1)]
            has = [e.operand(2 + place, kind) > 0.0 for place in (0, 1)]
        first, second = e.operand(0, kind), e.operand(1, kind)
        if len(base) == 2:
            moved = e.where(has[1], float(base[1]) + first, float(base[1]) + second)
            first, second = e.where(has[1], -moved, first + float(base[0])), moved
        elif len(base) == 1:
            first = first + float(base[0])
        first, second = e.where(has[0], first, zero), e.where(has[1], second, zero)
        below, above = (e.constant(label, DType.INT64) for label in self._pair)
        label = to.map(e.where(e.where(has[1], second, first) > self._threshold, above, below), *operands)

        def beside(expressions: tuple[e.Expr, e.Expr]) -> Value:
            return to.concat([to.map(part, *operands) for part in expressions], 1)

        alone, scored = self._alone(len(base)), int(forest.scored[1])
        if alone and scored == 0:
            result = beside(self._single_expressions(first))
        else:
            result = lower_transformed(to, beside((first, second)), self.post_transform)
        if alone and scored == 1:
            single = beside(self._single_expressions(first))
            both = e.operand(2, kind) > 0.0
            result = to.map(e.where(both, e.operand(0, kind), e.operand(1, kind)), result, single, operands[3])
        return to.reshape(label, (rows,)), to.cast(result, DType.FLOAT)

    def _single_expressions(self, score: e.Expr) -> tuple[e.Expr, e.Expr]:
        """What `_single` gives, as expressions."""
        if self.post_transform == "PROBIT":
            return probit_expression(score), probit_expression(score)
        if self.post_transform == "LOGISTIC":
            return e.sigmoid(-score), e.sigmoid(score)
        return 1.0 - score if self._one_weighted and self._all_positive else -score, score


class TreeEnsemble(Operator):
    """The weights of each row's leaves, combined for each target; nodes and leaves are places in lists."""

    domain = "ai.onnx.ml"

    aggregate_function: int = 1
    leaf_targetids: tuple[int, ...]
    leaf_weights: Tensor
    membership_values: Tensor | None = None
    n_targets: int | None = None
    nodes_falseleafs: tuple[int, ...]
    nodes_falsenodeids: tuple[int, ...]
    nodes_featureids: tuple[int, ...]
    nodes_hitrates: Tensor | None = None
    nodes_missing_value_tracks_true: tuple[int, ...] | None = None
    nodes_modes: Tensor
    nodes_splits: Tensor
    nodes_trueleafs: tuple[int, ...]
    nodes_truenodeids: tuple[int, ...]
    post_transform: int = 0
    tree_roots: tuple[int, ...]

    @property
    def _targets(self) -> int:
        return self.n_targets or max(self.leaf_targetids, default=0) + 1

    @property
    def _aggregate(self) -> str:
        return AGGREGATES[self.aggregate_function]

    @property
    def _transform(self) -> str:
        name = TRANSFORMS[self.post_transform]
        return name if self._targets > 1 or name == "PROBIT" else "NONE"

    @functools.cached_property
    def _forests(self) -> dict[DType, Forest]:
        return {}

    def forest(self, dtype: DType) -> Forest:
        """The trees, compared in float or double. InferenceError for attributes that make none."""
        if dtype not in self._forests:
            try:
                self._forests[dtype] = self._made(dtype.numpy)
            except ValueError as error:
                raise InferenceError(str(error)) from error
        return self._forests[dtype]

    def _made(self, dtype: np.dtype[Any]) -> Forest:
        modes, splits = self.nodes_modes.array.ravel(), self.nodes_splits.array.ravel().astype(dtype)
        count = len(modes)
        names = ("truenodeids", "falsenodeids", "trueleafs", "falseleafs", "featureids")
        columns = [np.array(getattr(self, f"nodes_{name}"), np.int64) for name in names]
        missing = np.array(self.nodes_missing_value_tracks_true or (0,) * count) == 1
        for name, column in zip(
            (*names, "splits", "missing_value_tracks_true"), (*columns, splits, missing), strict=True
        ):
            if len(column) != count:
                raise ValueError(f"{count} nodes have {len(column)} nodes_{name}")
        true, false, true_leaf, false_leaf, features = columns
        for places, are_leaves in ((true, true_leaf), (false, false_leaf)):
            if len(places) and (
                places.min() < 0 or (places >= np.where(are_leaves, len(self.leaf_targetids), count)).any()
            ):
                raise ValueError("a node has a child that is not there")
        true, false = np.where(true_leaf, ~true, true), np.where(false_leaf, ~false, false)
        kinds = np.array([*MODES.values(), 0], np.uint8)
        if len(modes) and not 0 <= modes.min() <= modes.max() < len(kinds):
            raise ValueError(f"nodes_modes has {modes.max()}; the modes are 0 to {len(kinds) - 1}")
        truths = kinds[modes] | np.where(missing, UNORDERED, 0).astype(np.uint8)
        columns = [features, splits, truths, true, false]
        features, splits, truths, true, false = self._with_members(np.flatnonzero(modes == len(MODES)), columns, dtype)
        weights = self.leaf_weights.array.ravel().astype(dtype)
        if len(weights) != len(self.leaf_targetids):
            raise ValueError(f"{len(weights)} leaf_weights and {len(self.leaf_targetids)} leaf_targetids are given")
        roots, starts = np.array(self.tree_roots, np.int64), np.arange(len(weights) + 1)
        if len(roots) and not 0 <= roots.min() <= roots.max() < count:
            raise ValueError(f"a tree's root is none of the {count} nodes")
        targets = np.array(self.leaf_targetids)
        return Forest(features, splits, truths, true, false, roots, starts, targets, weights, self._targets)

    def _with_members(self, nodes: np.ndarray, columns: list[np.ndarray], dtype: np.dtype[Any]) -> list[np.ndarray]:
        """Each node that asks for a member of a set as a chain of nodes that ask for one of its members."""
        if not len(nodes):
            return columns
        members = self.membership_values.array.ravel().astype(dtype) if self.membership_values else np.empty(0, dtype)
        ends = np.flatnonzero(np.isnan(members))
        if len(ends) != len(nodes) or (len(members) and not np.isnan(members[-1])):
            raise ValueError(
                f"{len(nodes)} nodes ask for members; membership_values has {len(ends)} sets, each ended by NaN"
            )
        features, splits, truths, true, false = columns
        added: list[tuple[Any, ...]] = []
        count = len(splits)
        for node, group in zip(nodes, np.split(members, ends), strict=False):
            values = group[~np.isnan(group)]
            otherwise, unordered = false[node], truths[node]
            for value in values[:0:-1]:
                added.append((features[node], value, EQUAL | unordered, true[node], otherwise))
                otherwise = count + len(added) - 1
            false[node] = otherwise
            if len(values):
                splits[node], truths[node] = values[0], EQUAL | unordered
        if not added:
            return columns
        return [
            np.concatenate([column, np.array(more, column.dtype)])
            for column, more in zip(columns, zip(*added, strict=True), strict=True)
        ]

    def infer(self, context: InferenceContext, x: Value) -> TensorType:
        if not 0 <= self.aggregate_function < len(AGGREGATES) or not 0 <= self.post_transform < len(TRANSFORMS):
            raise InferenceError(
                f"no aggregate_function {self.aggregate_function} with post_transform {self.post_transform}"
            )
        forest = self.forest(_compared(x.dtype))
        _check_features(context, forest, x)
        return TensorType(x.dtype, (rows_and_features(x)[0], forest.target_count))

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        dtype = DType.DOUBLE if x.dtype == np.float64 else DType.FLOAT
        scores = _aggregated(self.forest(dtype), as_rows(x).astype(dtype.numpy), self._aggregate)
        return transformed(scores, self._transform).astype(x.dtype)

    def lower(self, to: Lowering, x: Value) -> Value:
        scores = _lower_aggregated(to, self.forest(_compared(x.dtype)), x, self._aggregate)
        return to.cast(lower_transformed(to, scores, self._transform), x.dtype)
