"""Random operators: seeds, distributions, types, and that no two unseeded runs are alike."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import jitonnx
from jitonnx import InferenceSession
from jitonnx.engine.interpreter import evaluate
from jitonnx.engine.pipeline import Engine, Settings
from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation.lowering import lower
from jitonnx.model import load
from jitonnx.passes import optimize
from jitonnx.support import draws
from tests.ops.harness import Case, _kernel_cache, build, case, check, check_refused, each_version, run_reference

RANDOM = np.random.default_rng(1)
X = RANDOM.random((300, 200)).astype(np.float32)
SHAPE = [200, 300]
LOGITS = np.array([[0, 1, 2, -np.inf], [5, 5, 5, 5]], np.float32)


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
    case("Bernoulli", 15, np.array([0, 1, 1, 0], np.float32), expected=np.array([0, 1, 1, 0], np.float32)),
    *each_version("Multinomial", np.array([[0, -np.inf], [-200, 9]], np.float32),
                  expected=np.array([[0], [1]], np.int32)),
    case("Multinomial", 22, np.array([[0, -np.inf]], np.float32), dtype=TensorProto.INT64, sample_size=3,
         expected=np.array([[0, 0, 0]], np.int64)),
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
    (case("RandomUniformLike", 22, np.array([1], np.int32)), "dtype is int32"),
    (case("Multinomial", 22, LOGITS, sample_size=0), "sample_size is 0"),
    (case("Multinomial", 22, LOGITS, dtype=1), "dtype is float"),
    (case("Multinomial", 22, LOGITS[0]), "a batch axis and one of classes"),
]


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_refused(case: Case, text: str) -> None:
    check_refused(case, text)


WAYS = [
    *UNSEEDED,
    case("RandomNormal", 22, shape=SHAPE, dtype=TensorProto.DOUBLE, mean=1.0, scale=2.0),
    case("RandomUniform", 22, shape=SHAPE, dtype=TensorProto.FLOAT16, low=-1.0, high=3.0),
    case("RandomUniformLike", 22, X.astype(np.float64), dtype=TensorProto.BFLOAT16),
    case("Bernoulli", 22, X.astype(np.float64), dtype=TensorProto.INT8),
    case("Dropout", 22, X, np.float32(0.3), np.bool_(True)),
    case("Dropout", 22, X.astype(np.float16), np.float32(0.3), np.bool_(True), outputs=2),
    case("Dropout", 22, X.astype(np.float64), np.float32(0), np.bool_(True), outputs=2),
]


@pytest.mark.parametrize("template", WAYS, ids=str)
def test_a_draw_has_the_same_bits_on_numpy_and_in_code_on_any_threads(
    template: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = load(build(template)).graph
    feeds = {f"x{i}": x for i, x in enumerate(template.inputs)}
    results = []
    for threads in (0, 1, 2):  # 0: on NumPy
        monkeypatch.setattr(draws, "_source", draws._Source(5))
        if not threads:
            results.append([evaluate(graph, feeds) for _ in range(3)])
            continue
        engine = Engine(graph, Settings(threads=threads), _kernel_cache())
        assert engine.compiled is not None
        assert not any(isinstance(s.computation, c.Host) for s in lower(graph).statements)
        results.append([engine.run(list(feeds.values())) for _ in range(3)])
    for runs in results[1:]:
        for run, expected in zip(runs, results[0], strict=True):
            for array, wanted in zip(run, expected, strict=True):
                np.testing.assert_array_equal(array, wanted)


@pytest.mark.parametrize("attributes", [{}, {"dtype": TensorProto.DOUBLE}, {"dtype": TensorProto.FLOAT16}], ids=str)
@pytest.mark.parametrize("operator", ["RandomNormal", "RandomUniform"])
def test_the_distribution_as_a_whole(
    operator: str, attributes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kolmogorov and Smirnov's distance: above 1.95 / sqrt(n) one time in a thousand, so of draws that are told."""
    monkeypatch.setattr(draws, "_source", draws._Source(1))
    numbers = np.sort(drawn(case(operator, 22, shape=[400, 500], **attributes))[0].astype(np.float64).ravel())
    count = numbers.size
    if operator == "RandomNormal":
        likely = 0.5 * (1 + np.array([math.erf(x) for x in numbers / 2**0.5]))
        assert abs((numbers**3).mean()) < 5 * (15 / count) ** 0.5
        assert abs((numbers**4).mean() - 3) < 5 * (96 / count) ** 0.5
    else:
        likely = numbers
        assert numbers[0] >= 0 and numbers[-1] < 1
    places = np.arange(count + 1) / count
    rounding = 2.0**-10 if "dtype" in attributes and attributes["dtype"] == TensorProto.FLOAT16 else 0
    distance = max((places[1:] - likely).max(), (likely - places[:-1]).max())
    assert distance < 1.95 / count**0.5 + rounding


def test_neighbours_have_nothing_to_do_with_each_other() -> None:
    first, second = (run.ravel() for run in drawn(case("RandomNormal", 22, shape=[100_000])))
    for distance in (1, 2, 15, 16, 17, 32, 48, 64):
        assert abs(np.corrcoef(first[distance:], first[:-distance])[0, 1]) < 5 / len(first) ** 0.5
    assert abs(np.corrcoef(first, second)[0, 1]) < 5 / len(first) ** 0.5


@pytest.mark.parametrize("seed", [-1, 1 << 40, -(1 << 63)])
def test_seeds_of_more_than_32_bits(seed: int) -> None:
    """Their lowest 32 bits count: NumPy's generator takes no more, and onnxruntime neither."""
    graph = [helper.make_node("Dropout", ["x", "", "training"], ["y"], seed=seed)]
    x, training = np.ones(100, np.float32), np.array(True)
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [100])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [100])]
    initializers = [helper.make_tensor("training", TensorProto.BOOL, [], [bool(training)])]
    model = helper.make_model(
        helper.make_graph(graph, "graph", inputs, outputs, initializers),
        opset_imports=[helper.make_opsetid("", 13)],
        ir_version=8,
    )
    (y,) = InferenceSession(model.SerializeToString()).run(None, {"x": x})
    kept = np.random.RandomState(seed % (1 << 32)).rand(100) >= 0.5
    np.testing.assert_array_equal(y, np.where(kept, np.float32(2), np.float32(0)))


@pytest.mark.parametrize("seed", [-2.0, 1e30, math.inf, -math.inf, math.nan])
def test_seeds_that_are_no_whole_numbers_of_32_bits(seed: float) -> None:
    """Infinities and NaN are none, and of others the lowest 32 bits count."""
    nodes = [helper.make_node("RandomUniform", [], ["y"], shape=[100], seed=seed)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [100])]
    model = helper.make_model(
        helper.make_graph(nodes, "graph", [], outputs), opset_imports=[helper.make_opsetid("", 22)], ir_version=10
    )
    session = InferenceSession(model.SerializeToString())
    (first,), (second,) = session.run(None, {}), session.run(None, {})
    assert ((first >= 0) & (first < 1)).all()
    assert np.array_equal(first, second) == math.isfinite(seed)


def test_a_seed_of_the_process_repeats_sessions() -> None:
    template = case("RandomNormal", 22, shape=[1000])
    try:
        runs = []
        for seed in (1, 1, 2):
            jitonnx.set_seed(seed)
            runs.append([*drawn(template), *drawn(template)])
    finally:
        draws._source = draws._Source()
    for number, of_session in enumerate(runs[0]):
        assert (of_session == runs[1][number]).all() and (of_session != runs[2][number]).any()
    assert all((a != b).any() for at, a in enumerate(runs[0]) for b in runs[0][:at])


def test_sizes_that_only_a_run_tells_and_several_draws_of_a_run() -> None:
    graph = helper.make_graph(
        [
            helper.make_node("RandomNormalLike", ["x"], ["a"]),
            helper.make_node("RandomNormalLike", ["x"], ["b"]),
            helper.make_node("RandomUniformLike", ["x"], ["c"], seed=3.0),
        ],
        "several",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in "abc"],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    session = InferenceSession(model.SerializeToString())
    for size in (0, 1, 50, 3, 50):
        a, b, seeded = session.run(None, {"x": np.zeros((size, 3), np.float32)})
        assert a.shape == (size, 3) and (not size or (a != b).any())
        np.testing.assert_array_equal(seeded, np.random.RandomState(3).rand(size, 3).astype(np.float32))


def test_iterations_of_a_loop_draw_each_for_itself() -> None:
    body = helper.make_graph(
        [
            helper.make_node("RandomNormal", [], ["drawn"], shape=[4]),
            helper.make_node("Identity", ["going"], ["on"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("drawn", TensorProto.FLOAT, [4]),
        ],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["count", ""], ["rows"], body=body)],
        "loop",
        [helper.make_tensor_value_info("count", TensorProto.INT64, [])],
        [helper.make_tensor_value_info("rows", TensorProto.FLOAT, ["n", 4])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    session = InferenceSession(model.SerializeToString())
    rows = np.concatenate([session.run(None, {"count": np.int64(6)})[0] for _ in range(2)])
    assert len(np.unique(rows)) == 48


def test_a_child_and_an_artifact_draw_numbers_of_their_own(tmp_path: Path) -> None:
    path, template = tmp_path / "drawn.jitonnx", case("RandomNormal", 22, shape=[50])
    session = InferenceSession(build(template))
    session.save(path)
    opened = [jitonnx.load(str(path)) for _ in range(2)]
    numbers = [session.run(None, {})[0], *(one.run(None, {})[0] for one in opened for _ in range(2))]
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, session.run(None, {})[0].tobytes())
        os._exit(0)
    numbers += [np.frombuffer(os.read(reader, 200), np.float32), *session.run(None, {})]
    assert os.waitpid(child, 0)[1] == 0
    assert len(np.unique(np.concatenate(numbers))) == 50 * len(numbers)
