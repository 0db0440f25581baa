"""Operators whose inputs hang together in ways of their own: the cases of their tables, varied.

The elements of inputs of a floating type change their places among themselves, so that they stay in the range that the
table gives them, and are converted to another type; shapes, indices and attributes are those of the table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from jitonnx.ir.dtypes import of_numpy
from tests.ops.differential.drawing import FLOATS, UNJUDGED, Draw, is_real, newest, newest_schema
from tests.ops.harness import Case
from tests.ops.tables import all_cases

NAMES: Mapping[str, tuple[str, ...]] = {
    "": (
        *("AffineGrid", "Attention", "BlackmanWindow", "CausalConvWithState", "Col2Im", "DFT", "DeformConv", "Det"),
        *("GRU", "GridSample", "HammingWindow", "HannWindow", "LSTM", "LinearAttention", "MaxRoiPool", "MaxUnpool"),
        *("MelWeightMatrix", "NegativeLogLikelihoodLoss", "QLinearConv", "QLinearMatMul", "RNN", "Resize"),
        *("RoiAlign", "RotaryEmbedding", "STFT", "Scatter", "SoftmaxCrossEntropyLoss", "Upsample"),
    ),
    "ai.onnx.ml": (
        *("ArrayFeatureExtractor", "Binarizer", "FeatureVectorizer", "Imputer", "LabelEncoder", "LinearClassifier"),
        *("LinearRegressor", "Normalizer", "OneHotEncoder", "SVMClassifier", "SVMRegressor", "Scaler"),
        *("TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor"),
    ),
    "ai.onnx.preview.training": ("Adagrad", "Adam", "Momentum"),
}
REGIONS = frozenset({"MaxRoiPool", "RoiAlign"})
"""Operators whose first input alone has elements that may change their places."""
TOLERANCES = {"Det": 1e-3}
"""Relative ones of operators whose results may be ill-conditioned."""
OF_ONE_TYPE = frozenset({"LabelEncoder", "TreeEnsemble"})
"""Operators whose attributes are of the first input's type."""


@cache
def _tables() -> Mapping[tuple[str, str], list[Case]]:
    """The cases of numbers of each operator's newest version."""
    found: dict[tuple[str, str], list[Case]] = defaultdict(list)
    for case in all_cases():
        numeric = all(x is None or x.dtype != object for x in case.inputs)
        named = case.operator in NAMES.get(case.domain, ())
        if named and numeric and case.lowered and case.opset >= newest(case.operator, case.domain):
            found[case.domain, case.operator].append(case)
    return found


def varied(domain: str, operator: str) -> Callable[[Draw], Case]:
    """A strategy of an operator's table. Oracles have few operators in more than one type: cases in another one than
    the table's, or which had an expected value or a NaN, are compared with their evaluation alone."""

    def drawn(d: Draw) -> Case:
        cases = _tables()[domain, operator]
        given = cases[d.integer(0, len(cases) - 1)]
        mixed = tuple(
            x if at in given.constants or (at and operator in REGIONS) else _mixed(d, x)
            for at, x in enumerate(given.inputs)
        )
        rtol = max(given.rtol, TOLERANCES.get(operator, 0))
        # onnxruntime's recurrent layers lose a NaN on the way; the table has them where nothing may come of them.
        judged = given.expected is None and not any(map(_has_nan, given.inputs))
        found = replace(given, inputs=mixed, rtol=rtol, expected=None, note="" if judged else UNJUDGED)
        if operator in OF_ONE_TYPE or given.constants or d.flag():
            return found
        return replace(found, inputs=_converted(d, found), note=UNJUDGED)

    return drawn


def _has_nan(x: np.ndarray | None) -> bool:
    return x is not None and x.dtype.kind in "fc" and bool(np.isnan(x).any())


def _converted(d: Draw, case: Case) -> tuple[np.ndarray | None, ...]:
    """The case's inputs with another floating type for each type variable that stands for one."""
    declared = newest_schema(case.operator, case.domain).inputs
    chosen: dict[str, np.dtype[Any]] = {}
    found = []
    for at, x in enumerate(case.inputs):
        entry = declared[min(at, len(declared) - 1)]
        if x is not None and is_real(x.dtype):
            allowed = [dtype for dtype in FLOATS if f"tensor({of_numpy(dtype).text})" in entry.types]
            x = x.astype(chosen.setdefault(entry.type_str, d.pick(allowed)))
        found.append(x)
    return tuple(found)


def _mixed(d: Draw, x: np.ndarray | None) -> np.ndarray | None:
    if x is None or not is_real(x.dtype):
        return x
    return d.random.permutation(x.reshape(-1)).reshape(x.shape)


STRATEGIES: dict[tuple[str, str], Callable[[Draw], Case]] = {
    (domain, name): varied(domain, name) for domain, names in NAMES.items() for name in names
}
