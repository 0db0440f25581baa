"""`TrainingSession`: steps against NumPy, state that changes as a whole or not at all, what is saved, the example."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, StringStringEntryProto, TensorProto, helper, numpy_helper

import jitonnx
from docs.examples import train_digits as digits
from jitonnx import InferenceSession, TrainingSession, errors
from jitonnx.api import training
from jitonnx.tools import demo
from tests.training.digits import Training, loss_of

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
PREVIEW = "ai.onnx.preview.training"
RANDOM = np.random.default_rng(3)
W, B = RANDOM.normal(size=(3, 2)).astype(np.float32), np.zeros(2, np.float32)
X, Y = RANDOM.normal(size=(5, 3)).astype(np.float32), RANDOM.normal(size=(5, 2)).astype(np.float32)


def info(name: str, kind: int = FLOAT, shape: Sequence[Any] = ()) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def bindings(names: Mapping[str, str]) -> list[StringStringEntryProto]:
    return [StringStringEntryProto(key=key, value=value) for key, value in names.items()]


def update(rate: float = 0.1, optimizer: str = "", moments: int = 0, **attributes: Any) -> tuple[Any, dict[str, str]]:
    """An algorithm for x W + b with the mean of squares, by an optimizer or by hand; and its bindings."""
    nodes = [
        helper.make_node("Sub", ["y", "wanted"], ["error"]),
        helper.make_node("ReduceSumSquare", ["error"], ["loss"], keepdims=0),
        helper.make_node("Gradient", ["w", "b"], ["dw", "db"], domain=PREVIEW, xs=["w", "b"], y="loss"),
        helper.make_node("Add", ["t", "one"], ["t.next"]),
    ]
    state = [f"{name}.{number}" for number in range(moments) for name in ("w", "b")]
    new = [f"{name}.next" for name in ("w", "b", *state)]
    if optimizer:
        inputs = ["rate", "t", "w", "b", "dw", "db", *state]
        nodes.append(helper.make_node(optimizer, inputs, new, domain=PREVIEW, **attributes))
    else:
        for name in ("w", "b"):
            nodes.append(helper.make_node("Mul", [f"d{name}", "rate"], [f"{name}.part"]))
            nodes.append(helper.make_node("Sub", [name, f"{name}.part"], [f"{name}.next"]))
    start = {name: np.zeros_like(W if name[0] == "w" else B) for name in state}
    start |= {"rate": np.float32(rate), "t": np.int64(0), "one": np.int64(1)}
    outputs = [
        info("loss"),
        info("t.next", INT64),
        *(info(name, shape=W.shape if name[0] == "w" else B.shape) for name in new),
    ]
    initializers = [numpy_helper.from_array(np.asarray(array), name) for name, array in start.items()]
    graph = helper.make_graph(nodes, "algorithm", [info("wanted", shape=["n", 2])], outputs, initializers)
    return graph, {name.removesuffix(".next"): name for name in ("t.next", *new)}


def model(algorithms: Sequence[tuple[Any, dict[str, str]]], drawn: bool = False) -> ModelProto:
    """y = x W + b with training infos; drawn: new weights come from an initialization."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["product"]), helper.make_node("Add", ["product", "b"], ["y"])]
    weights = [numpy_helper.from_array(W, "w"), numpy_helper.from_array(B, "b")]
    graph = helper.make_graph(nodes, "main", [info("x", shape=["n", 3])], [info("y", shape=["n", 2])], weights)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(PREVIEW, 1)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    for algorithm, names in algorithms:
        entry = made.training_info.add()
        entry.algorithm.CopyFrom(algorithm)
        entry.update_binding.extend(bindings(names))
    if drawn:
        new = helper.make_node("RandomUniform", [], ["w.new"], shape=W.shape, seed=5.0)
        first = made.training_info[0]
        first.initialization.CopyFrom(helper.make_graph([new], "initialization", [], [info("w.new", shape=W.shape)]))
        first.initialization_binding.extend(bindings({"w": "w.new"}))
    return made


FEEDS = {"x": X, "wanted": Y}


def gradients(state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Give those of the sum of squares, in double."""
    error = X.astype(np.float64) @ state["w"] + state["b"] - Y
    return {"w": 2 * X.T.astype(np.float64) @ error, "b": 2 * error.sum(0)}


@pytest.mark.conformance("training-step", "training-updates")
def test_steps_by_hand() -> None:
    session = TrainingSession(model([update(0.02)]).SerializeToString())
    expected = {"w": W.astype(np.float64), "b": B.astype(np.float64)}
    for number in range(20):
        error = X @ expected["w"] + expected["b"] - Y
        found = session.step(FEEDS)
        assert set(found) >= {"y", "loss", "w.next"}
        np.testing.assert_allclose(found["loss"], (error**2).sum(), rtol=1e-4)
        for name, gradient in gradients(expected).items():
            expected[name] = expected[name] - 0.02 * gradient
            np.testing.assert_allclose(session.state[name], expected[name], rtol=0, atol=1e-5)
        assert session.state["t"] == number + 1
    np.testing.assert_allclose(session.run({"x": X})["y"], X @ expected["w"] + expected["b"], atol=1e-5)


def adam(state: dict[str, Any], name: str, gradient: np.ndarray, t: int) -> np.ndarray:
    """ONNX's Adam with alpha 0.9, beta 0.999 and rate 0.1."""
    m = state[name, 0] = 0.9 * state.get((name, 0), 0) + 0.1 * gradient
    v = state[name, 1] = 0.999 * state.get((name, 1), 0) + 0.001 * gradient**2
    rate = 0.1 * np.sqrt(1 - 0.999**t) / (1 - 0.9**t) if t > 0 else 0.1
    return rate * m / (np.sqrt(v) + 1e-6)


def momentum(state: dict[str, Any], name: str, gradient: np.ndarray, t: int) -> np.ndarray:
    """ONNX's standard Momentum with alpha 0.8, beta 0.5 and rate 0.02."""
    v = state[name, 0] = 0.8 * state.get((name, 0), 0) + (0.5 if t > 0 else 1) * gradient
    return 0.02 * v


def adagrad(state: dict[str, Any], name: str, gradient: np.ndarray, t: int) -> np.ndarray:
    """ONNX's Adagrad with rate 0.1."""
    total = state[name, 0] = state.get((name, 0), 0) + gradient**2
    return 0.1 * gradient / (np.sqrt(total) + 1e-6)


@pytest.mark.parametrize(
    ("algorithm", "rule"),
    [
        (update(0.1, "Adam", 2, alpha=0.9, beta=0.999, epsilon=1e-6), adam),
        (update(0.02, "Momentum", 1, alpha=0.8, beta=0.5, norm_coefficient=0.0, mode="standard"), momentum),
        (update(0.1, "Adagrad", 1, epsilon=1e-6), adagrad),
    ],
    ids=["Adam", "Momentum", "Adagrad"],
)
def test_steps_by_an_optimizer(algorithm: Any, rule: Any) -> None:
    session, moments = TrainingSession(model([algorithm])), dict[str, Any]()
    expected = {"w": W.astype(np.float64), "b": B.astype(np.float64)}
    for number in range(20):
        session.step(FEEDS)
        for name, gradient in gradients(expected).items():
            expected[name] = expected[name] - rule(moments, name, gradient, number)
        for name, array in expected.items():
            np.testing.assert_allclose(session.state[name], array, rtol=0, atol=1e-5)


@pytest.mark.conformance("training-initialization", "training-several")
def test_initialization_and_several_algorithms() -> None:
    second, _ = update(1.0)
    del second.node[:]
    second.node.append(helper.make_node("Neg", ["b"], ["b.negative"]))
    del second.initializer[:], second.input[:], second.output[:]
    second.output.append(info("b.negative", shape=B.shape))
    made = model([update(0.02), (second, {"b": "b.negative"})], drawn=True)
    session = TrainingSession(made)
    assert session.algorithms == 2
    np.testing.assert_array_equal(session.state["w"], W)
    session.initialize()
    drawn = session.state["w"]
    assert (drawn != W).all() and (drawn >= 0).all() and (drawn < 1).all()
    session.step(FEEDS)
    before = session.state
    session.step({"x": X}, algorithm=1)
    np.testing.assert_array_equal(session.state["b"], -before["b"])
    np.testing.assert_array_equal(session.state["w"], before["w"])
    session.initialize()
    np.testing.assert_array_equal(session.state["w"], drawn)  # a seed is given
    with pytest.raises(errors.InvalidArgument, match="algorithm is 2, and the model has 2"):
        session.step({"x": X}, algorithm=2)


def test_a_step_that_fails_changes_nothing() -> None:
    session = TrainingSession(model([update()]))
    session.step(FEEDS)
    before = session.state
    for feeds in ({"x": X}, {"x": X, "wanted": Y[:3]}, {**FEEDS, "w": W}):
        with pytest.raises(errors.Error):
            session.step(feeds)
    algorithm, names = update()
    algorithm.node.append(helper.make_node("Concat", ["b.next", "b.next"], ["b.long"], axis=0))
    algorithm.output.append(info("b.long", shape=[4]))
    other = TrainingSession(model([(algorithm, {**names, "b": "b.long"})]))
    with pytest.raises(errors.InvalidArgument, match=r"'b.long', .* variable 'b', is float\[4\].* is float\[2\]"):
        other.step(FEEDS)
    for found, expected in ((session.state, before), (other.state, {"w": W, "b": B, "t": 0})):
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name], array)


@pytest.mark.conformance("training-state")
@pytest.mark.parametrize("beside", [False, True])
def test_saved_and_gone_on_with(beside: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if beside:
        monkeypatch.setattr(training, "MOST_INLINE", 0)
    path = tmp_path / "model.onnx"
    session = TrainingSession(model([update(0.1, "Adam", 2)]))
    for _ in range(3):
        session.step(FEEDS)
    session.save(path)
    assert (tmp_path / "model.onnx.data").exists() == beside
    other = TrainingSession(path)
    for _ in range(2):
        session.step(FEEDS)
        other.step(FEEDS)
    for name, array in session.state.items():
        np.testing.assert_array_equal(other.state[name], array)
    other.save(path)  # what it was loaded from is replaced as a whole
    found = InferenceSession(path).run(None, {"x": X})[0]
    np.testing.assert_array_equal(found, session.run({"x": X})["y"])


@pytest.mark.conformance("training-keys", "training-values")
def test_refused() -> None:
    with pytest.raises(errors.InvalidArgument, match="has no training info"):
        TrainingSession(model([]))
    algorithm, names = update()
    with pytest.raises(errors.Error, match="'v'"):
        TrainingSession(model([(algorithm, {**names, "v": "w.next"})]))
    unbound = model([(algorithm, {**names, "w": "nothing"})])
    for source in (unbound, io.BytesIO(unbound.SerializeToString())):
        with pytest.raises(errors.Error, match="nothing"):
            TrainingSession(source)


# ---------------------------------------------------------------- the example


def test_gradients_in_numpy_agree_with_differences() -> None:
    """Backpropagation against central differences, in float64, at ten random numbers of each weight."""
    rng = np.random.default_rng(5)
    shapes = digits.SHAPES | digits.RUNNING
    weights = {name: rng.normal(0, 0.3, shape) + name.endswith("norm.weight") for name, shape in shapes.items()}
    images, labels = rng.random((4, 1, 8, 8)), np.array([3, 1, 4, 1])
    ops = Training(weights)
    loss_of(ops, images, labels)
    assert ops.gradients.keys() == digits.SHAPES.keys()
    step = 1e-6
    for name, gradient in ops.gradients.items():
        weight = weights[name]
        for at in rng.choice(weight.size, min(10, weight.size), replace=False):
            original, losses = weight.flat[at], []
            for value in (original + step, original - step):
                weight.flat[at] = value
                losses.append(loss_of(Training(weights), images, labels))
            weight.flat[at] = original
            difference = (losses[0] - losses[1]) / (2 * step)
            np.testing.assert_allclose(gradient.flat[at], difference, rtol=1e-4, atol=1e-8, err_msg=name)


def test_steps_of_the_example_agree_with_numpy() -> None:
    """Each step starts from the weights that the session has: what differs is one step's rounding, not that of many."""
    split, rate = digits.load_digits(), np.float32(0.003)
    images, labels = demo.as_input(split.train_images), split.train_labels.astype(np.int64)
    session = TrainingSession(digits.training_model())
    session.initialize()
    for number in range(8):
        before = {name: array.astype(np.float64) for name, array in session.state.items()}
        batch = slice(64 * number, 64 * number + 64)
        told = session.step({"image": images[batch], "labels": labels[batch], "rate": rate})
        ops, after = Training(before), session.state
        np.testing.assert_allclose(
            told["loss"], loss_of(ops, images[batch].astype(np.float64), labels[batch]), rtol=1e-4
        )
        for name, statistics in ops.running.items():
            np.testing.assert_allclose(after[name], statistics, rtol=1e-4, atol=1e-6)
        stepped = rate * (np.sqrt(1 - 0.999**number) / (1 - 0.9**number) if number else 1)
        for name in digits.SHAPES:
            m = 0.9 * before[f"{name}.m"] + 0.1 * ops.gradients[name]
            v = 0.999 * before[f"{name}.v"] + 0.001 * ops.gradients[name] ** 2
            np.testing.assert_allclose(after[f"{name}.m"], m, rtol=0, atol=1e-5)
            np.testing.assert_allclose(after[f"{name}.v"], v, rtol=1e-2, atol=1e-8)
            root = np.sqrt(after[f"{name}.v"].astype(np.float64)) + 1e-8
            given = (before[name] - stepped * after[f"{name}.m"] / root) * (1 - digits.DECAY)
            np.testing.assert_allclose(after[name], given, rtol=0, atol=1e-5)


def test_the_face() -> None:
    assert "TrainingSession" in jitonnx.__all__
