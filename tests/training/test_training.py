"""`TrainingSession`: steps against NumPy, state that changes as a whole or not at all, what is saved, the example."""

import importlib.util
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, StringStringEntryProto, TensorProto, helper, numpy_helper

import jitonnx
from jitonnx import InferenceSession, TrainingSession, errors
from jitonnx.api import training

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


def example() -> Any:
    """docs/examples/train_digits.py."""
    path = Path(__file__).parents[2] / "docs/examples/train_digits.py"
    spec = importlib.util.spec_from_file_location("train_digits", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def windows(x: np.ndarray) -> np.ndarray:
    """The 3 x 3 pixels around each: [N, H, W, C * 9]."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    seen = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    return seen.transpose(0, 2, 3, 1, 4, 5).reshape(*x.shape[:1], *x.shape[2:], -1)


def convolved(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (windows(x) @ w.reshape(len(w), -1).T + b).transpose(0, 3, 1, 2)


def pooled(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The largest of each 2 x 2 pixels, and where it stands: the first of equal ones."""
    n, channels, height, width = x.shape
    cells = x.reshape(n, channels, height // 2, 2, width // 2, 2).transpose(0, 1, 2, 4, 3, 5)
    cells = cells.reshape(*cells.shape[:4], 4)
    at = cells.argmax(-1)[..., None] == np.arange(4)
    mask = at.reshape(n, channels, height // 2, width // 2, 2, 2).transpose(0, 1, 2, 4, 3, 5).reshape(x.shape)
    return cells.max(-1), mask


def spread(gradient: np.ndarray, mask: np.ndarray) -> np.ndarray:
    return gradient.repeat(2, 2).repeat(2, 3) * mask


def weights_of_convolution(x: np.ndarray, gradient: np.ndarray, shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    flat = gradient.transpose(0, 2, 3, 1).reshape(-1, shape[0])
    return {"weight": (flat.T @ windows(x).reshape(len(flat), -1)).reshape(shape), "bias": flat.sum(0)}


def by_numpy(weights: Mapping[str, np.ndarray], x: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    """The gradients of the example's loss, in double."""
    a1 = convolved(x, weights["conv1.weight"], weights["conv1.bias"])
    c1, mask1 = pooled(np.maximum(a1, 0))
    a2 = convolved(c1, weights["conv2.weight"], weights["conv2.bias"])
    c2, mask2 = pooled(np.maximum(a2, 0))
    features = c2.reshape(len(x), -1)
    logits = features @ weights["linear.weight"] + weights["linear.bias"]
    shares = np.exp(logits - logits.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    shares[np.arange(len(x)), labels] -= 1
    d = shares / len(x)
    found = {"linear.weight": features.T @ d, "linear.bias": d.sum(0)}
    d2 = spread((d @ weights["linear.weight"].T).reshape(c2.shape), mask2) * (a2 > 0)
    found |= {f"conv2.{k}": v for k, v in weights_of_convolution(c1, d2, (32, 16, 3, 3)).items()}
    turned = weights["conv2.weight"][:, :, ::-1, ::-1].transpose(1, 0, 2, 3)
    d1 = spread(convolved(d2, turned, np.zeros(16)), mask1) * (a1 > 0)
    return found | {f"conv1.{k}": v for k, v in weights_of_convolution(x, d1, (16, 1, 3, 3)).items()}


def test_steps_of_the_example_agree_with_numpy() -> None:
    """Each step starts from the weights that the session has: what differs is one step's rounding, not that of many."""
    digits = example()
    images, labels = digits.digits()
    session = TrainingSession(digits.training_model())
    session.initialize()
    names = list(digits.SHAPES)
    for number in range(8):
        before = {name: array.astype(np.float64) for name, array in session.state.items()}
        batch = slice(64 * number, 64 * number + 64)
        session.step({"images": images[batch], "labels": labels[batch]})
        after, found = session.state, by_numpy(before, images[batch].astype(np.float64), labels[batch])
        rate = digits.RATE * (np.sqrt(1 - 0.999**number) / (1 - 0.9**number) if number else 1)
        for name in names:
            m = 0.9 * before[f"{name}.m"] + 0.1 * found[name]
            v = 0.999 * before[f"{name}.v"] + 0.001 * found[name] ** 2
            np.testing.assert_allclose(after[f"{name}.m"], m, rtol=0, atol=1e-6)
            given = before[name] - rate * after[f"{name}.m"] / (np.sqrt(after[f"{name}.v"].astype(np.float64)) + 1e-6)
            np.testing.assert_allclose(after[f"{name}.v"], v, rtol=1e-4, atol=1e-9)
            np.testing.assert_allclose(after[name], given, rtol=0, atol=1e-5)


def test_the_example_learns(capsys: pytest.CaptureFixture[str]) -> None:
    assert example().train() >= 0.95
    assert "epoch 12" in capsys.readouterr().out


def test_the_face() -> None:
    assert "TrainingSession" in jitonnx.__all__
