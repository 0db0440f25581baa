"""What models of the QDQ form compute in bytes: the integers of onnxruntime wherever its own levels of optimisation
agree on them, and at most a unit apart where they do not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import jitonnx
from tests.session.models import model, node, tensor
from tests.targets import named, on_x86_64, skip_unless_run_here

RANDOM = np.random.default_rng(4)
OTHERS = ("cascadelake", "skylake-avx512", "haswell", "x86-64-v2")
Shape = Sequence[int | str]


@pytest.fixture(autouse=True)
def _same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test draws its own, whatever ran before it."""
    monkeypatch.setitem(globals(), "RANDOM", np.random.default_rng(4))


class Author:
    """Writes nodes whose results are quantised."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    def constant(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def op(self, operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(node(operator, inputs, [name], **attributes))
        return name

    def quantised(self, x: str, scale: float = 0.05, zero: int = 100, kind: Any = np.uint8) -> str:
        """x quantised and back."""
        steps = self.constant(np.float32(scale)), self.constant(kind(zero))
        return self.op("DequantizeLinear", self.op("QuantizeLinear", x, *steps), *steps)


def session_for(cpu: str, contents: bytes) -> jitonnx.InferenceSession:
    options = jitonnx.SessionOptions()
    options.add_session_config_entry("jitonnx.cpu", cpu)
    return jitonnx.InferenceSession(contents, options)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


LEVELS = (
    onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
    onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
)


def at_levels(contents: bytes) -> list[onnxruntime.InferenceSession]:
    """onnxruntime's sessions without and with all that it optimises."""
    sessions = []
    for level in LEVELS:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = level
        sessions.append(onnxruntime.InferenceSession(contents, options))
    return sessions


def check(
    author: Author,
    shapes: dict[str, Shape],
    arrays: Sequence[dict[str, Any]],
    y: str,
    unit: float,
    exact: bool = True,
    equal: bool = True,
) -> list[str]:
    """The labels of the kernels. Results are equal to onnxruntime's where its two levels agree; where they do not, they
    differ from the first one's by no more than a unit of their scale, and hardly ever by that. Code for other CPUs,
    with other instructions for products of bytes and vectors of other lengths, gives the same bytes.

    exact: the result is made of these alone, and not of sums of floats, which other vectors add in another order.
    equal: what is quantised is made of integers alone, or by one operation. Otherwise functions and sums of float32 are
    in it, whose last place each engine rounds in its own way: results may be a unit off everywhere.
    """
    inputs = [tensor(name, shape) for name, shape in shapes.items()]
    contents = model(author.nodes, inputs, [tensor(y, None)], author.constants)
    theirs, ours = at_levels(contents), jitonnx.InferenceSession(contents)
    others = [session_for(cpu, contents) for cpu in OTHERS if named(cpu).needed.problem() is None]
    counted = np.zeros(2, np.int64)
    for feeds in arrays:
        expected, optimised = (session.run(None, feeds)[0] for session in theirs)
        (found,) = ours.run(None, feeds)
        for other in others:
            np.testing.assert_allclose(other.run(None, feeds)[0], found, rtol=0, atol=0 if exact else 1e-7)
        assert found.shape == expected.shape
        if equal:
            agreed = expected == optimised
            counted += agreed.sum(), agreed.size
            np.testing.assert_array_equal(found[agreed], expected[agreed])
        units = np.abs(found - expected) / unit
        assert units.size == 0 or units.max() < 1.01
        assert np.count_nonzero(units > 0.5) <= 1 + units.size // 1000
    assert counted[0] >= 0.8 * counted[1]
    return [call.label for call in ours.engine.compiled.plan.calls]


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_normalisation_gives_bytes(kind: Any) -> None:
    author, zero = Author(), 0 if kind is np.int8 else 120
    scale, bias = author.constant(normal(70)), author.constant(normal(70))
    y = author.quantised(author.op("LayerNormalization", "x", scale, bias), 0.03, zero, kind)
    labels = check(author, {"x": ("n", 70)}, [{"x": normal(n, 70)} for n in (1, 5, 0, 33)], y, 0.03)
    assert labels[0] == "layer norm"
    assert len(labels) == 2  # and what is dequantised


@pytest.mark.parametrize(("axis", "shape"), [(-1, (3, 5, 71)), (1, (2, 70, 40)), (-1, (1, 300)), (0, (6, 17))])
def test_softmax_gives_bytes(axis: int, shape: tuple[int, ...]) -> None:
    author = Author()
    y = author.quantised(author.op("Softmax", "x", axis=axis), 1 / 255, 0)
    labels = check(author, {"x": shape}, [{"x": normal(*shape) * 3}], y, 1 / 255)
    assert labels[0] == "softmax"
    assert len(labels) == 2


def test_softmax_that_others_read_stays_float() -> None:
    author = Author()
    weights = author.op("Softmax", "x", axis=-1)
    y = author.op("Add", author.quantised(weights, 1 / 255, 0), weights)
    labels = check(author, {"x": (3, 71)}, [{"x": normal(3, 71)}], y, 1 / 255, exact=False, equal=False)
    assert labels[0] == "softmax"
    assert "region" in labels[1]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("sizes", [("batch", "steps"), (2, 13)])
def test_attention(masked: bool, sizes: tuple[int | str, ...]) -> None:
    """Scores, what is added to them, and what they weigh: products of bytes, with all that follows in their epilogue.
    Scales are such that no score lies half way between two integers, where float32's sums would tell."""
    author = Author()
    heads = author.constant(np.array([0, 0, 4, 16]))
    query, key, value = (
        author.op("Transpose", author.op("Reshape", author.quantised(name), heads), perm=perm)
        for name, perm in (("q", (0, 2, 1, 3)), ("k", (0, 2, 3, 1)), ("v", (0, 2, 1, 3)))
    )
    scores = author.quantised(author.op("MatMul", query, key), 0.1507, 128)
    if masked:
        scores = author.quantised(author.op("Add", scores, author.quantised("mask", 0.1, 255)), 0.2043, 200)
    weights = author.quantised(author.op("Softmax", scores, axis=-1), 1 / 255, 0)
    y = author.quantised(author.op("MatMul", weights, value), 0.0213, 120)
    shapes: dict[str, Shape] = {name: (*sizes, 64) for name in "qkv"}
    arrays = []
    for batch, steps in ((2, 13), (1, 40), (3, 1)) if isinstance(sizes[0], str) else ((2, 13),):
        arrays.append({name: normal(batch, steps, 64) for name in "qkv"})
        if masked:
            arrays[-1]["mask"] = np.where(normal(batch, 1, 1, steps) > 1, -25, 0).astype(np.float32)
    if masked:
        shapes["mask"] = (sizes[0], 1, 1, sizes[1])
    labels = check(author, shapes, arrays, y, 0.0213)
    assert sum("integer product" in label for label in labels) == 2
    assert not any("gemm" in label for label in labels)


@pytest.mark.parametrize("cpu", ["", *OTHERS])
def test_computed_matrices(cpu: str) -> None:
    """Exact sums on every CPU: of matrices that broadcast, open sizes, and few and many rows."""
    if cpu:
        skip_unless_run_here(named(cpu))
    random = np.random.default_rng(5)
    zeros = {"a_zero": np.array(-3, np.int8), "b_zero": np.array(200, np.uint8)}
    nodes = [
        node("Transpose", ["b"], ["t"], perm=[0, 2, 1]),
        node("MatMulInteger", ["a", "b", "a_zero", "b_zero"], ["y"]),
        node("MatMulInteger", ["a", "t", "a_zero", "b_zero"], ["z"]),
    ]
    kinds = onnx.TensorProto
    inputs = [tensor("a", ["n", "m", "k"], kinds.INT8), tensor("b", ["l", "k", "k"], kinds.UINT8)]
    outputs = [tensor(name, [None, "m", "k"], kinds.INT32) for name in "yz"]
    options = jitonnx.SessionOptions()
    if cpu:
        options.add_session_config_entry("jitonnx.cpu", cpu)
    run = jitonnx.InferenceSession(model(nodes, inputs, outputs, zeros), options)
    for n, others, m, k in [(3, 3, 40, 70), (1, 2, 1, 33), (4, 1, 17, 64), (2, 2, 3, 1), (1, 1, 33, 400), (0, 1, 5, 7)]:
        a = random.integers(-128, 128, (n, m, k)).astype(np.int8)
        b = random.integers(0, 256, (others, k, k)).astype(np.uint8)
        left, right = a.astype(np.int64) + 3, b.astype(np.int64) - 200
        y, z = run.run(None, {"a": a, "b": b})
        np.testing.assert_array_equal(y, left @ right)
        np.testing.assert_array_equal(z, left @ right.swapaxes(1, 2))


@pytest.mark.parametrize("channels", [3, 40])
def test_squeeze_and_excite(channels: int) -> None:
    """The activation is a table, the mean a sum of bytes, and what is gated lies as it did: nothing is copied."""
    author = Author()
    weights = [RANDOM.integers(-127, 128, (channels, channels, 1, 1)).astype(np.int8) for _ in range(2)]
    steps = author.constant(np.float32(0.003)), author.constant(np.int8(0))
    first, last = (author.op("DequantizeLinear", author.constant(w), *steps) for w in weights)
    x = author.quantised(author.op("Conv", author.quantised("x"), first), 0.07181, 127)
    x = author.quantised(author.op("HardSwish", x), 0.0411, 20)
    mean = author.quantised(author.op("ReduceMean", x, author.constant(np.array([2, 3])), keepdims=1), 0.0131, 9)
    gated = author.quantised(author.op("Mul", x, author.quantised(author.op("Sigmoid", mean), 1 / 255, 0)), 0.0333, 30)
    y = author.quantised(author.op("Conv", gated, last), 0.0619, 128)
    shape = (2, channels, 11, 9)
    labels = check(author, {"x": shape}, [{"x": normal(*shape)}], y, 0.0619)
    assert any("reduce sum" in label for label in labels)
    if channels == 40:  # and not three, which are gathered; x and the result are copied
        assert not any("copy" in label for label in labels[2:-1])


def test_attention_in_an_artifact_for_a_range_of_sizes(tmp_path: Path) -> None:
    author = Author()
    scores = author.op("MatMul", author.quantised("q"), author.quantised("k"))
    y = author.quantised(scores, 0.1507, 128)
    shapes = {"q": ("batch", "steps", 16), "k": ("batch", 16, "steps")}
    inputs = [tensor(name, shape) for name, shape in shapes.items()]
    contents = model(author.nodes, inputs, [tensor(y, None)], author.constants)
    session, file = jitonnx.InferenceSession(contents), tmp_path / "model.jitonnx"
    session.save(file, {"q": ((1, 4), (2, 64), 16), "k": ((1, 4), 16, (2, 64))})
    opened = jitonnx.load(file)
    for batch, steps in ((1, 2), (3, 40), (4, 64)):
        feeds = {"q": normal(batch, steps, 16), "k": normal(batch, 16, steps)}
        np.testing.assert_array_equal(opened.run(None, feeds)[0], session.run(None, feeds)[0])


def _windows(kind: str) -> tuple[Author, str, dict[str, Shape]]:
    author = Author()
    steps = author.constant(np.float32(0.0043)), author.constant(np.int8(0))

    def weights(*shape: int) -> str:
        return author.op("DequantizeLinear", author.constant(RANDOM.integers(-127, 128, shape).astype(np.int8)), *steps)

    depth = 192 if kind == "grouped convolution" else 24
    x = author.quantised("x", 0.0213)
    if kind == "average":
        y = author.op("AveragePool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    elif kind == "transposed convolution":
        y = author.op("Relu", author.op("ConvTranspose", x, weights(24, 40, 2, 2), strides=[2, 2]))
    else:
        y = author.op("Conv", x, weights(192, 64, 3, 3), group=3, pads=[1, 1, 1, 1])
    return author, author.quantised(y, 0.0331), {"x": ["n", depth, 11, 9]}


@pytest.mark.parametrize("kind", ["average", "transposed convolution", "grouped convolution"])
def test_windows_of_bytes(kind: str) -> None:
    author, y, shapes = _windows(kind)
    arrays = [{"x": normal(batch, *shapes["x"][1:])} for batch in (2, 1)]  # type: ignore[arg-type]
    labels = check(author, shapes, arrays, y, 0.0331)
    assert any(label.startswith("integer") for label in labels)
    assert not any(label.startswith(("convolution", "grouped", "transposed", "average")) for label in labels)


@on_x86_64
@pytest.mark.parametrize("cpu", ["sapphirerapids", "cascadelake", "haswell"])
@pytest.mark.parametrize("kind", ["average", "transposed convolution", "grouped convolution"])
def test_windows_are_the_same_bytes_on_every_cpu(kind: str, cpu: str) -> None:
    """AMX, VNNI and pairs of 16 bits give the same bytes."""
    skip_unless_run_here(named(cpu))
    author, y, shapes = _windows(kind)
    contents = model(author.nodes, [tensor("x", shapes["x"])], [tensor(y, None)], author.constants)
    options = jitonnx.SessionOptions()
    options.add_session_config_entry("jitonnx.cpu", cpu)
    feeds = {"x": normal(2, *shapes["x"][1:])}  # type: ignore[arg-type]
    (here,) = jitonnx.InferenceSession(contents).run(None, feeds)
    (there,) = jitonnx.InferenceSession(contents, options).run(None, feeds)
    np.testing.assert_array_equal(here, there)


def _weights(author: Author, *shape: int, scale: float = 0.003123) -> str:
    """Dequantised weights of int8."""
    steps = author.constant(np.float32(scale)), author.constant(np.int8(0))
    return author.op("DequantizeLinear", author.constant(RANDOM.integers(-127, 128, shape).astype(np.int8)), *steps)


def _convolved(author: Author, x: str, x_scale: float, *shape: int, **attributes: Any) -> str:
    """A convolution of what has the scale `x_scale`, with a bias as quantisers write it."""
    bias = author.constant(RANDOM.integers(-900, 900, shape[0]).astype(np.int32))
    b = author.op("DequantizeLinear", bias, author.constant(np.float32(x_scale) * np.float32(0.003123)))
    return author.op("Conv", x, _weights(author, *shape), b, **attributes)


def _residual(author: Author, x: str, zero: int, kind: Any) -> str:
    y = author.quantised(_convolved(author, x, 0.02371, 8, 8, 3, 3, pads=[1] * 4), 0.051733, zero + 121, kind)
    return author.quantised(author.op("Relu", author.op("Add", y, x)), 0.0334417, zero, kind)


def _depthwise(author: Author, x: str, zero: int, kind: Any) -> str:
    """An inverted residual: widened, by channel, narrowed, added."""
    y = author.quantised(author.op("Relu", _convolved(author, x, 0.02371, 32, 8, 1, 1)), 0.0151733, zero, kind)
    y = author.op("Relu", _convolved(author, y, 0.0151733, 32, 1, 3, 3, group=32, pads=[1] * 4))
    y = author.quantised(y, 0.0217331, zero, kind)
    y = author.quantised(_convolved(author, y, 0.0217331, 8, 32, 1, 1), 0.0453319, zero + 133, kind)
    return author.quantised(author.op("Add", x, y), 0.0611713, zero + 130, kind)


def _concat(author: Author, x: str, zero: int, kind: Any) -> str:
    """Of two scales, neither of which is the result's."""
    y = author.op("Relu", _convolved(author, x, 0.02371, 16, 8, 3, 3, pads=[1] * 4))
    y = author.quantised(y, 0.031, zero, kind)
    return author.quantised(author.op("Concat", x, y, axis=1), 0.0371713, zero + 60, kind)


def _mean(author: Author, x: str, zero: int, kind: Any) -> str:
    y = author.quantised(_convolved(author, x, 0.02371, 64, 8, 1, 1), 0.0451733, zero + 120, kind)
    y = author.quantised(author.op("GlobalAveragePool", y), 0.00271, zero + 125, kind)
    return author.quantised(_convolved(author, y, 0.00271, 40, 64, 1, 1), 0.00819, zero + 128, kind)


def _two_branches(author: Author, x: str, zero: int, kind: Any) -> str:
    """The sum of two convolutions, the first of which is a shortcut."""
    shortcut = author.quantised(_convolved(author, x, 0.02371, 24, 8, 1, 1), 0.0451733, zero + 120, kind)
    y = author.quantised(_convolved(author, x, 0.02371, 24, 8, 3, 3, pads=[1] * 4), 0.0617331, zero + 110, kind)
    return author.quantised(author.op("Relu", author.op("Add", shortcut, y)), 0.0334417, zero, kind)


@pytest.mark.parametrize("cpu", ["host", "haswell"])
@pytest.mark.parametrize(
    ("taps", "attributes"),
    [((3, 3), {"pads": [1, 1, 1, 1]}), ((3, 2), {"strides": [2, 1], "dilations": [2, 1], "pads": [2, 0, 1, 1]})],
)
def test_convolutions_of_open_images(cpu: str, taps: tuple[int, int], attributes: dict[str, Any]) -> None:
    """Taps are read from rows of images of any extents, which are split among threads."""
    if cpu != "host":
        skip_unless_run_here(named(cpu))
    weights = RANDOM.integers(-127, 128, (20, 33, *taps)).astype(np.int8)
    constants = {"s": np.float32(0.02), "z": np.uint8(117), "w": weights, "ws": np.full(20, 0.01, np.float32)}
    constants |= {"wz": np.zeros(20, np.int8), "t": np.float32(0.3), "u": np.uint8(100)}
    convolution = node("QLinearConv", ["x", "s", "z", "w", "ws", "wz", "t", "u"], ["y"], **attributes)
    x = tensor("x", ("n", 33, "h", "w"), TensorProto.UINT8)
    contents = model([convolution], [x], [tensor("y", ("n", 20, None, None), TensorProto.UINT8)], constants)
    session, (theirs, _) = session_for(cpu, contents), at_levels(contents)
    for images, height, width in [(1, 14, 14), (3, 9, 7), (2, 5, 60), (1, 50, 121), (1, 4, 1500), (4, 4, 4)]:
        feeds = {"x": RANDOM.integers(0, 256, (images, 33, height, width)).astype(np.uint8)}
        np.testing.assert_array_equal(session.run(None, feeds)[0], theirs.run(None, feeds)[0])


def test_shortcuts_lie_as_bytes() -> None:
    """They are dequantised where they are added, and not where they are made."""
    author, shape = Author(), (1, 8, 6, 7)
    y = _two_branches(author, author.quantised("x", 0.02371, 128), 0, np.uint8)
    contents = model(author.nodes, [tensor("x", shape)], [tensor(y, None)], author.constants)
    calls = jitonnx.InferenceSession(contents).engine.compiled.plan.calls  # type: ignore[union-attr]
    results = [call.spec.result for call in calls if "convolution" in call.label]  # type: ignore[attr-defined]
    assert results == ["uint8", "float32"]  # the second is the model's result


def test_convolutions_of_signed_bytes_part_at_halves_alone() -> None:
    """Those that both levels of onnxruntime compute in float32, and we in integers: a result is another one only where
    the exact number lies as near to the middle of two as sums of float32 in any order are uncertain."""
    author, shape, scale, step = Author(), (1, 32, 40, 40), 0.0237123, 0.0237123 * 0.003123 * 1000
    steps = author.constant(np.float32(scale)), author.constant(np.int8(0))
    w = RANDOM.integers(-127, 128, (64, 32, 3, 3)).astype(np.int8)
    factors = author.constant(np.float32(0.003123)), author.constant(np.int8(0))
    weights = author.op("DequantizeLinear", author.constant(w), *factors)
    y = author.op("Conv", author.op("DequantizeLinear", "x", *steps), weights)
    y = author.op("QuantizeLinear", y, author.constant(np.float32(step)), author.constant(np.int8(0)))
    contents = model(
        author.nodes, [tensor("x", shape, TensorProto.INT8)], [tensor(y, None, TensorProto.INT8)], author.constants
    )
    theirs, ours = at_levels(contents), jitonnx.InferenceSession(contents)
    for _ in range(2):
        x = RANDOM.integers(-30, 31, shape).astype(np.int8)
        expected, optimised = (session.run(None, {"x": x})[0] for session in theirs)
        np.testing.assert_array_equal(optimised, expected)
        (found,) = ours.run(None, {"x": x})
        places = np.argwhere(found != expected)
        for n, o, i, j in places:
            products = x[n, :, i : i + 3, j : j + 3].astype(np.float64) * w[o]
            unit = float(np.float32(scale)) * float(np.float32(0.003123)) / float(np.float32(step))
            exact, size = unit * products.sum(), unit * np.abs(products).sum()
            assert abs(int(found[n, o, i, j]) - int(expected[n, o, i, j])) == 1
            assert abs(abs(exact - np.floor(exact)) - 0.5) <= (products.size + 4) * 2.0**-24 * size


def _hard_swish(author: Author, x: str, zero: int, kind: Any) -> str:
    y = author.quantised(_convolved(author, x, 0.02371, 24, 8, 1, 1), 0.0451733, zero + 120, kind)
    return author.quantised(author.op("HardSwish", y), 0.0241713, zero + 16, kind)


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("block", [_residual, _depthwise, _concat, _mean, _two_branches, _hard_swish])
def test_blocks_give_the_integers_of_onnxruntime(block: Any, kind: Any) -> None:
    """Where its levels agree, all of them: sums of what is dequantised, and not of scales multiplied before."""
    author, shape, zero = Author(), (1, 8, 23, 21), 0 if kind is np.uint8 else -128
    y = block(author, author.quantised("x", 0.02371, zero + 128, kind), zero, kind)
    contents = model(author.nodes, [tensor("x", shape)], [tensor(y, None)], author.constants)
    feeds = {"x": normal(*shape)}
    expected, optimised = (session.run(None, feeds)[0] for session in at_levels(contents))
    (found,) = jitonnx.InferenceSession(contents).run(None, feeds)
    agreed = expected == optimised
    assert agreed.mean() > 0.95
    assert np.unique(expected).size > 10
    np.testing.assert_array_equal(found[agreed], expected[agreed])


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("behind", ["an image", "a convolution"])
def test_means_of_open_images(behind: str, kind: Any) -> None:
    """Of a number of integers that a run tells, in planes and channels-last: QLinearGlobalAveragePool's arithmetic."""
    author, zero = Author(), 125 if kind is np.uint8 else -7
    x = author.quantised("x", 0.0894372, zero, kind)
    if behind == "a convolution":
        x = author.quantised(_convolved(author, x, 0.0894372, 64, 40, 1, 1), 0.0894372, zero, kind)
    y = author.quantised(author.op("GlobalAveragePool", x), 0.0031731, zero, kind)
    contents = model(author.nodes, [tensor("x", ("n", 40, "h", "w"))], [tensor(y, None)], author.constants)
    theirs, ours = at_levels(contents), jitonnx.InferenceSession(contents)
    for shape in ((1, 40, 7, 7), (3, 40, 3, 5), (2, 40, 23, 29), (1, 40, 1, 1)):
        feeds = {"x": 4 * normal(*shape)}
        expected, optimised = (session.run(None, feeds)[0] for session in theirs)
        agreed = expected == optimised
        assert agreed.mean() > 0.9
        np.testing.assert_array_equal(ours.run(None, feeds)[0][agreed], expected[agreed])


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("behind", ["an image", "a convolution"])
@pytest.mark.parametrize("opset", [18, 22])
@pytest.mark.parametrize(
    "window",
    [
        {"kernel_shape": [2, 2], "strides": [2, 2]},
        {"kernel_shape": [2, 2], "pads": [1, 0, 0, 1]},
        {"kernel_shape": [6, 6], "strides": [1, 2]},
        {"kernel_shape": [4, 4], "strides": [4, 4]},
        {"kernel_shape": [8, 8], "strides": [4, 4]},
    ],
    ids=lambda window: "x".join(map(str, window["kernel_shape"])),
)
def test_means_that_keep_their_scale(window: dict[str, Any], opset: int, behind: str, kind: Any) -> None:
    """Of an even number of integers, some lie half way between two: the order of the sums of float32, which is another
    from opset 19 on, tells which it becomes, in planes and channels-last."""
    author, shape, zero = Author(), (1, 8, 29, 32), 125 if kind is np.uint8 else -7
    x = author.quantised("x", 0.0894372, zero, kind)
    if behind == "a convolution":
        x = author.quantised(_convolved(author, x, 0.0894372, 16, 8, 1, 1), 0.0894372, zero, kind)
    y = author.quantised(author.op("AveragePool", x, **window), 0.0894372, zero, kind)
    imports = [helper.make_opsetid("", opset)]
    contents = model(author.nodes, [tensor("x", shape)], [tensor(y, None)], author.constants, opset_imports=imports)
    feeds = {"x": 4 * normal(*shape)}
    expected, _ = (session.run(None, feeds)[0] for session in at_levels(contents))
    np.testing.assert_array_equal(jitonnx.InferenceSession(contents).run(None, feeds)[0], expected)
