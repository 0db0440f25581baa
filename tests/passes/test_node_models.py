"""The node tests of the onnx package, evaluated before and after all rewrites.

They show each operator in its plainest use, and many functions spelled out.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx

from jitonnx.errors import Error
from jitonnx.model import load
from jitonnx.model.evaluate import evaluate
from jitonnx.passes import optimize

TOLERANCES = {"bfloat16": 2e-2, "float16": 2e-3}
"""Fused operators round once in half precision, where what they stand for rounds at each step."""


def array_of(feed: Any) -> np.ndarray:
    return onnx.numpy_helper.to_array(feed) if isinstance(feed, onnx.TensorProto) else np.asarray(feed)


def test_node_models_compute_the_same() -> None:
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the cases' own arithmetic
        cases = collect_testcases(None)
    compared = sum(compare(case) for case in cases)
    assert compared >= 1500


def compare(case: Any) -> bool:
    """Whether a case can be loaded and run; if it can, its results must be the same behind the rewrites."""
    data = case.model.SerializeToString()
    try:
        graph = load(data).graph
        feeds = {value.name: array_of(feed) for value, feed in zip(graph.inputs, case.data_sets[0][0], strict=False)}
        expected = evaluate(graph, feeds)
    except (Error, KeyError, TypeError, AttributeError, ValueError):  # operators or kinds of inputs that are not known
        return False
    rewritten = load(data).graph
    optimize(rewritten, verify_fully=True)
    for wanted, given in zip(expected, evaluate(rewritten, feeds), strict=True):
        if not isinstance(wanted, np.ndarray):  # a sequence or an optional
            assert type(given) is type(wanted), case.name
            continue
        assert (given.dtype, given.shape) == (wanted.dtype, wanted.shape), case.name
        if wanted.dtype == object:
            assert (given == wanted).all(), case.name
            continue
        tolerance = TOLERANCES.get(wanted.dtype.name, 1e-4)
        wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(
            given.astype(wide), wanted.astype(wide), rtol=tolerance, atol=tolerance, err_msg=case.name
        )
    return True
