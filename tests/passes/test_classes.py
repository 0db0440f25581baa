"""Classifiers with names for classes: numbers in generated code, names by LabelEncoder."""

from __future__ import annotations

import numpy as np
import pytest

from jitonnx import InferenceSession
from jitonnx.engine.interpreter import evaluate
from jitonnx.model import load
from jitonnx.passes import optimize
from tests.ops.harness import Case, build
from tests.ops.ml.test_linear import LINEAR, SVM
from tests.ops.ml.test_trees import CLASSIFIERS

NAMED = [
    case
    for case in (*CLASSIFIERS, *LINEAR, *SVM)
    if len(case.attributes.get("classlabels_strings", ())) > 1
    and case.attributes.get("post_transform", "NONE") == "NONE"
]


PROBABILITIES = [case for case in SVM if "prob_a" in case.attributes and "classlabels_ints" in case.attributes]


@pytest.mark.parametrize("case", PROBABILITIES, ids=str)
def test_decisions_of_support_vectors_are_compiled(case: Case) -> None:
    graph, feeds = load(build(case)).graph, {"x0": case.inputs[0]}
    labels, scores = evaluate(graph, feeds)
    optimize(graph, verify_fully=True)
    assert [node.operator.name for node in graph] == ["SVMClassifier", "_PairProbabilities"]
    found_labels, found_scores = InferenceSession(build(case).SerializeToString()).run(None, feeds)
    assert found_labels.tolist() == labels.tolist()
    np.testing.assert_allclose(found_scores, scores, 1e-4, 1e-5)


@pytest.mark.parametrize("case", NAMED, ids=str)
def test_names_are_looked_up_by_numbers(case: Case) -> None:
    graph, feeds = load(build(case)).graph, {"x0": case.inputs[0]}
    names, scores = evaluate(graph, feeds)
    optimize(graph, verify_fully=True)
    operators = [node.operator.name for node in graph]
    assert operators[0] == case.operator and operators[-1] == "LabelEncoder" and len(operators) <= 3
    session = InferenceSession(build(case).SerializeToString())
    for found_names, found_scores in (evaluate(graph, feeds), session.run(None, feeds)):
        assert found_names.tolist() == names.tolist()
        np.testing.assert_allclose(found_scores, scores, 1e-4, 1e-5)
