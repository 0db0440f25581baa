"""Random operators: seeds, distributions, types, and that no two unseeded runs are alike."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto

from jitonnx import InferenceSession
from jitonnx.model import load
from jitonnx.passes import optimize
from tests.ops.harness import Case, build, case, check, check_refused, each_version, run_reference

RANDOM = np.random.default_rng(1)
X = RANDOM.random((300, 200)).astype(np.float32)
SHAPE = [200, 300]
LOGITS = np.float32([[0, 1, 2, -np.inf], [5, 5, 5, 5]])


def reference(template: Case) -> Case:
    """The case with what onnx's reference draws for its seed, which onnxruntime draws otherwise."""
    feeds = {f"x{i}": x for i, x in enumerate(template.inputs)}
    options = {"expected": tuple(run_reference(build(template), feeds)), "attributes": template.attributes}
    return case(template.operator, template.opset, *template.inputs, **options)


CASES: list[Case] = [
    *(
        reference(c)
        for name in ("RandomNormal", "RandomUniform")
        for options in ({}, {"dtype": TensorProto.DOUBLE}, {"dtype": TensorProto.FLOAT16})
        for c in each_version(name, shape=[3, 5], seed=7.0, **options)
    ),
    reference(case("RandomNormal", 22, shape=[3, 5], seed=2.0, mean=5.0, scale=0.25)),
    reference(case("RandomUniform", 22, shape=[3, 5], seed=2.0, low=-5.0, high=0.25)),
    *(
        reference(c)
        for name in ("RandomNormalLike", "RandomUniformLike")
        for options in ({}, {"dtype": TensorProto.DOUBLE})
        for c in each_version(name, X[:3, :4], seed=7.0, **options)
    ),
    *(
        reference(c)
        for options in ({}, {"dtype": TensorProto.BOOL}, {"dtype": TensorProto.INT64})
        for c in each_version("Bernoulli", X, seed=3.0, **options)
    ),
    case("RandomNormalLike", 22, X.astype(ml_dtypes.bfloat16)[:0], expected=X.astype(ml_dtypes.bfloat16)[:0]),
    case("Bernoulli", 15, np.float32([0, 1, 1, 0]), expected=np.float32([0, 1, 1, 0])),
    *each_version("Multinomial", np.float32([[0, -np.inf], [-200, 9]]), expected=np.int32([[0], [1]])),
    case("Multinomial", 22, np.float32([[0, -np.inf]]), dtype=TensorProto.INT64, sample_size=3,
         expected=np.int64([[0, 0, 0]])),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_seeded_and_certain(case: Case) -> None:
    check(case)


UNSEEDED = [
    case("RandomNormal", 22, shape=SHAPE, mean=1.0, scale=2.0),
    case("RandomUniform", 22, shape=SHAPE, low=-1.0, high=3.0),
    case("RandomNormalLike", 22, X, mean=1.0, scale=2.0),
    case("RandomUniformLike", 22, X, low=-1.0, high=3.0),
    case("Bernoulli", 22, X),
    case("Multinomial", 22, LOGITS, sample_size=100000),
]


def drawn(template: Case, **attributes: Any) -> tuple[np.ndarray, np.ndarray]:
    """Two runs of one session."""
    options = {**template.attributes, **attributes}
    session = InferenceSession(build(case(template.operator, template.opset, *template.inputs, **options)))
    feeds = {f"x{i}": x for i, x in enumerate(template.inputs)}
    first, second = (session.run(None, feeds)[0] for _ in range(2))
    return first, second


@pytest.mark.parametrize("template", UNSEEDED, ids=str)
def test_unseeded_runs_differ_and_seeded_ones_do_not(template: Case) -> None:
    first, second = drawn(template)
    assert (first != second).any()
    seeded = [run for _ in range(2) for run in drawn(template, seed=11.0)]
    assert all((run == seeded[0]).all() for run in seeded)
    assert (drawn(template, seed=12.0)[0] != seeded[0]).any()


@pytest.mark.parametrize("attributes", [{}, {"seed": 5.0}], ids=["unseeded", "seeded"])
@pytest.mark.parametrize("template", UNSEEDED[:4], ids=str)
def test_numbers_have_their_distribution(template: Case, attributes: dict[str, Any]) -> None:
    """Moments, and shares of ten equally likely intervals, within five standard deviations."""
    numbers = np.sort(drawn(template, **attributes)[0].astype(np.float64).ravel())
    count = numbers.size
    deviation = 2.0 if "Normal" in template.operator else 4 / 12**0.5
    assert abs(numbers.mean() - 1) < 5 * deviation / count**0.5
    assert abs(numbers.std() - deviation) < 5 * deviation / count**0.5
    if "Normal" in template.operator:
        limits = 1 + 2 * np.array([-1.2815516, -0.8416212, -0.5244005, -0.2533471, 0, 0.2533471, 0.5244005, 0.8416212])
    else:
        assert numbers[0] >= -1 and numbers[-1] < 3
        limits = -1 + 4 * np.arange(1, 9) / 10
    shares = np.searchsorted(numbers, limits) / count
    np.testing.assert_allclose(shares, np.arange(1, 9) / 10, atol=5 * (0.25 / count) ** 0.5)


@pytest.mark.parametrize("attributes", [{}, {"seed": 5.0}], ids=["unseeded", "seeded"])
def test_ones_and_classes_have_their_probabilities(attributes: dict[str, Any]) -> None:
    ones = drawn(UNSEEDED[4], **attributes)[0]
    assert set(np.unique(ones)) == {0, 1}
    for low in (0.0, 0.25, 0.5, 0.75):
        part = (low <= X) & (low + 0.25 > X)
        assert abs(ones[part].mean() - X[part].mean()) < 5 * (0.25 / part.sum()) ** 0.5
    classes = drawn(UNSEEDED[5], **attributes)[0]
    likely = np.exp(LOGITS.astype(np.float64))
    likely /= likely.sum(axis=1, keepdims=True)
    for row, expected in zip(classes, likely, strict=True):
        shares = np.bincount(row, minlength=4) / row.size
        np.testing.assert_allclose(shares, expected, atol=5 * (0.25 / row.size) ** 0.5)
        assert (row[1:] != row[:-1]).any() and abs(np.corrcoef(row[1:], row[:-1])[0, 1]) < 0.02


def test_nothing_is_folded_or_merged() -> None:
    graph = load(build(case("RandomNormal", 22, shape=[2, 2]))).graph
    optimize(graph)
    assert [node.operator.name for node in graph] == ["RandomNormal"]


REFUSED = [
    (case("RandomNormal", 22, shape=[2], dtype=TensorProto.INT32), "dtype is int32"),
    (case("RandomUniform", 22, shape=[-2]), "negative size"),
    (case("RandomUniformLike", 22, np.int32([1])), "dtype is int32"),
    (case("Multinomial", 22, LOGITS, sample_size=0), "sample_size is 0"),
    (case("Multinomial", 22, LOGITS, dtype=1), "dtype is float"),
    (case("Multinomial", 22, LOGITS[0]), "a batch axis and one of classes"),
]


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_refused(case: Case, text: str) -> None:
    check_refused(case, text)
