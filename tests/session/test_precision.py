"""Products and convolutions in bfloat16 on request: `jitonnx.precision`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

import jitonnx
from jitonnx.ir.computation.lowering import lower
from jitonnx.kernels.bfloat16.spec import Bfloat16Spec, BfmmlaSpec
from jitonnx.kernels.parts.bfloat16 import rounded
from jitonnx.model import load
from jitonnx.passes.pipeline import optimize
from jitonnx.plan.choices import Choices
from jitonnx.plan.make import make_plan
from jitonnx.target.machine import host
from jitonnx.target.products import BFLOAT16
from tests.session.models import model, node, tensor
from tests.targets import ON_X86_64, named, needs_bfloat16_products, needs_bfloat16_tiles, needs_packed_bfloat16


def session(made: Any, precision: str = "bfloat16", **entries: str) -> jitonnx.InferenceSession:
    options = jitonnx.SessionOptions()
    for key, value in ({"precision": precision} | entries).items():
        options.add_session_config_entry(f"jitonnx.{key}", value)
    return jitonnx.InferenceSession(made, options)


def half(x: np.ndarray) -> np.ndarray:
    """Rounded to bfloat16, in float64."""
    return (rounded(x.astype(np.float32)).astype(np.uint32) << 16).view(np.float32).astype(float)


def labels(made: jitonnx.InferenceSession) -> list[str]:
    return [call.label for call in made.engine.compiled.plan.calls]


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def layers() -> tuple[bytes, dict[str, np.ndarray]]:
    """z = relu(x @ a + b) @ c + x: of open length; the value between lies in bfloat16, x as float32."""
    weights = {"a": random(64, 96, seed=1), "b": random(96, seed=2), "c": random(96, 64, seed=3)}
    nodes = [
        node("MatMul", ["x", "a"], ["p"]),
        node("Add", ["p", "b"], ["q"]),
        node("Relu", ["q"], ["r"]),
        node("MatMul", ["r", "c"], ["s"]),
        node("Add", ["s", "x"], ["z"]),
    ]
    return model(nodes, [tensor("x", ["n", "m", 64])], [tensor("z", ["n", "m", 64])], weights), weights


@needs_bfloat16_products
def test_layers_of_open_length() -> None:
    made, weights = layers()
    run = session(made)
    assert [label.split()[0] for label in labels(run)] == ["bfloat16", "bfloat16"]
    for shape in [(1, 1), (2, 7), (3, 33), (1, 128)]:
        x = random(*shape, 64, seed=shape[1])
        between = np.maximum(half(x) @ half(weights["a"]) + weights["b"], 0)
        expected = half(between) @ half(weights["c"]) + x
        (z,) = run.run(None, {"x": x})
        # What lies between two numbers of bfloat16 may be rounded otherwise than in float64.
        np.testing.assert_allclose(z, expected, rtol=1e-5, atol=2e-3 * np.abs(expected).max())
        assert np.abs(z - expected).mean() < 1e-5 * np.abs(expected).max()


def convolutions() -> tuple[bytes, dict[str, np.ndarray]]:
    """A residual block of an image, as ResNets have it."""
    weights = {"a": random(64, 48, 1, 1, seed=1), "b": random(64, 64, 3, 3, seed=2), "c": random(48, 64, 1, 1, seed=3)}
    weights |= {"d": random(64, seed=4), "e": random(32, 48, 3, 3, seed=5)}
    nodes = [
        node("Conv", ["x", "a", "d"], ["p"]),
        node("Relu", ["p"], ["q"]),
        node("Conv", ["q", "b"], ["r"], pads=[1, 1, 1, 1]),
        node("Relu", ["r"], ["s"]),
        node("Conv", ["s", "c"], ["t"]),
        node("Add", ["t", "x"], ["u"]),
        node("Relu", ["u"], ["v"]),
        node("Conv", ["v", "e"], ["y"], pads=[1, 1, 1, 1], strides=[2, 2]),
    ]
    return model(nodes, [tensor("x", ["n", 48, "h", "w"])], [tensor("y", ["n", 32, None, None])], weights), weights


@needs_bfloat16_products
def test_convolutions() -> None:
    made, _ = convolutions()
    run, exact = session(made, winograd="0"), session(made, "float32")
    assert sum(label.startswith("bfloat16") for label in labels(run)) == 4
    for shape in [(1, 48, 14, 14), (2, 48, 9, 21)]:
        feeds = {"x": random(*shape)}
        (y,), (expected,) = run.run(None, feeds), exact.run(None, feeds)
        assert 0 < np.abs(y - expected).max() < 1e-2 * np.abs(expected).max()


def test_winograd_in_float32_stays_where_it_outruns_dot_products() -> None:
    """Tile registers are faster than that; dot products at twice float32's rate where Winograd saves little."""
    dots, tiles = named("znver5"), replace(named("sapphirerapids"), features="+amx-bf16,+avx512bf16")
    for size, channels, expected in [(28, 128, ["Winograd"]), (7, 512, ["bfloat16"]), (1, 64, ["bfloat16"])]:
        nodes = [node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])]
        x, y = tensor("x", [1, channels, size, size]), tensor("y", [1, channels, size, size])
        made = model(nodes, [x], [y], {"w": random(channels, channels, 3, 3)})
        lowered = lower(load(made).graph)
        for target, wanted in ((dots, expected), (tiles, ["bfloat16"])):
            plan = make_plan(lowered, target, Choices(precision="bfloat16"))
            assert [call.label.split()[0] for call in plan.calls if " 3x3" in call.label] == wanted


@needs_bfloat16_products
@pytest.mark.parametrize("size", [9, 64], ids=["small", "large"])
def test_pooling_between_convolutions(size: int) -> None:
    """The largest of rounded numbers is the largest, rounded: what lies between is bfloat16. Others read large images
    rounded, too; of small ones they have float32."""
    weights = {"a": random(32, 16, 3, 3, seed=1), "b": random(32, 32, 3, 3, seed=2), "c": random(32, 32, 1, 1, seed=3)}
    nodes = [
        node("Conv", ["x", "a"], ["p"], pads=[1, 1, 1, 1]),
        node("Relu", ["p"], ["q"]),
        node("MaxPool", ["q"], ["r"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Conv", ["r", "b"], ["s"], pads=[1, 1, 1, 1]),
        node("Mul", ["s", "r"], ["t"]),
        node("MaxPool", ["t"], ["u"], kernel_shape=[2, 2]),
        node("Conv", ["u", "c"], ["y"]),
        node("Neg", ["t"], ["z"]),
    ]
    outputs = [tensor("y", [1, 32, None, None]), tensor("z", [1, 32, None, None])]
    made = model(nodes, [tensor("x", [1, 16, 2 * size, 2 * size])], outputs, weights)
    run, exact = session(made, winograd="0"), session(made, "float32")
    calls = run.engine.compiled.plan.calls
    pooled = [call.buffers.x.dtype.text for call in calls if call.label.startswith("max pool")]
    assert pooled == ["bfloat16" if size == 64 else "float"] * 2
    feeds = {"x": random(1, 16, 2 * size, 2 * size)}
    for ours, theirs in zip(run.run(None, feeds), exact.run(None, feeds), strict=True):
        assert 0 < np.abs(ours - theirs).max() < 1e-2 * np.abs(theirs).max()


@needs_bfloat16_products
@pytest.mark.parametrize("shape", [(1, 40, 21, 19), (2, 40, 21, 19)])
def test_depthwise_convolutions_between_products(shape: tuple[int, ...]) -> None:
    """They compute in float32, and write bfloat16 where a product in bfloat16 alone reads that: the same result."""
    weights = {"a": random(40, 40, 1, 1, seed=1), "d": random(40, 1, 3, 3, seed=2), "b": random(24, 40, 1, 1, seed=3)}
    nodes = [
        node("Conv", ["x", "a"], ["p"]),
        node("Conv", ["p", "d"], ["q"], pads=[1, 1, 1, 1], strides=[2, 2], group=40),
        node("Relu", ["q"], ["r"]),
        node("Conv", ["r", "b"], ["y"]),
    ]
    outputs = [tensor("y", [shape[0], 24, None, None])]
    made = model(nodes, [tensor("x", shape)], outputs, weights)
    run = session(made)
    (depthwise,) = (call for call in run.engine.compiled.plan.calls if call.label.startswith("depthwise"))
    assert (depthwise.buffers.x.dtype.text, depthwise.buffers.y.dtype.text) == ("float", "bfloat16")
    feeds = {"x": random(*shape)}
    also = session(model(nodes, [tensor("x", shape)], [*outputs, tensor("r", [shape[0], 40, None, None])], weights))
    assert all(
        call.buffers.y.dtype.text == "float" for call in also.engine.compiled.plan.calls if "depth" in call.label
    )
    np.testing.assert_allclose(run.run(None, feeds)[0], also.run(None, feeds)[0], rtol=1e-5, atol=1e-4)


@needs_bfloat16_products
def test_only_what_gains() -> None:
    """Few rows times a computed matrix, weights of few columns, and groups stay in float32."""
    weights = {"a": random(64, 3), "d": random(64, 1, 3, 3)}
    nodes = [
        node("MatMul", ["x", "y"], ["p"]),
        node("MatMul", ["p", "a"], ["z"]),
        node("Conv", ["i", "d"], ["o"], group=64),
    ]
    inputs = [tensor("x", [8, 64]), tensor("y", [64, 64]), tensor("i", [1, 64, 8, 8])]
    made = model(nodes, inputs, [tensor("z", [8, 3]), tensor("o", [1, 64, 6, 6])], weights)
    run, exact = session(made), session(made, "float32")
    feeds = {"x": random(8, 64), "y": random(64, 64), "i": random(1, 64, 8, 8)}
    for ours, theirs in zip(run.run(None, feeds), exact.run(None, feeds), strict=True):
        np.testing.assert_array_equal(ours, theirs)


COMPUTED = [
    # a, b, axes of a, axes of b
    ((65, 100), (100, 33), None, None),
    ((64, 300), (300, 260), None, None),
    ((70, 40), (33, 40), None, (1, 0)),
    ((40, 70), (33, 40), (1, 0), (1, 0)),
    ((3, 50, 70), (3, 70, 41), None, None),
    ((2, 3, 50, 70), (1, 3, 70, 41), None, None),
    ((2, 3, 50, 70), (2, 1, 41, 70), None, (0, 1, 3, 2)),
    ((2, 3, 50, 70), (70, 41), None, None),
    ((50, 70), (5, 70, 41), None, None),
    ((2, 30, 4, 64), (2, 31, 4, 64), (0, 2, 1, 3), (0, 2, 3, 1)),
    ((2, 3, 2, 20, 33), (2, 1, 2, 33, 40), None, None),
]


@needs_packed_bfloat16
@pytest.mark.parametrize("is_open", [False, True], ids=["known", "open"])
@pytest.mark.parametrize(("a", "b", "a_axes", "b_axes"), COMPUTED)
def test_two_computed_matrices(
    a: tuple[int, ...],
    b: tuple[int, ...],
    a_axes: tuple[int, ...] | None,
    b_axes: tuple[int, ...] | None,
    is_open: bool,
) -> None:
    """Matrices that broadcast, transposed or not, with an epilogue."""
    nodes = [
        node("Transpose", ["a"], ["at"], perm=a_axes or range(len(a))),
        node("Transpose", ["b"], ["bt"], perm=b_axes or range(len(b))),
        node("MatMul", ["at", "bt"], ["p"]),
        node("Add", ["p", "bias"], ["q"]),
        node("Relu", ["q"], ["z"]),
    ]
    feeds = {"a": random(*a, seed=1), "b": random(*b, seed=2)}
    left, right = feeds["a"].transpose(a_axes or range(len(a))), feeds["b"].transpose(b_axes or range(len(b)))
    weights = {"bias": random(right.shape[-1], seed=3)}
    expected = np.maximum(half(left) @ half(right) + weights["bias"], 0)
    inputs = [
        tensor(name, [f"{name}{axis}" for axis in range(len(shape) - 2)] + list(shape[-2:]) if is_open else shape)
        for name, shape in (("a", a), ("b", b))
    ]
    if is_open and a_axes is None and b_axes is None:  # and so are the extents of the matrices
        inputs = [tensor(name, [f"{name}{axis}" for axis in range(feeds[name].ndim)]) for name in "ab"]
        inputs[1] = tensor("b", [*(f"b{axis}" for axis in range(len(b) - 1)), b[-1]])
    made = model(nodes, inputs, [tensor("z", [None] * expected.ndim)], weights)
    run = session(made)
    (z,) = run.run(None, feeds)
    assert any(label.startswith("bfloat16 product") for label in labels(run))
    np.testing.assert_allclose(z, expected, rtol=1e-5, atol=2e-6 * np.abs(expected).max())


@needs_packed_bfloat16
def test_two_computed_matrices_of_unusual_sizes_and_numbers() -> None:
    """One session for empty matrices, single rows, infinities and NaN."""
    nodes = [node("MatMul", ["a", "b"], ["z"])]
    inputs = [tensor("a", ["n", "m", "k"]), tensor("b", ["n", "k", "l"])]
    run = session(model(nodes, inputs, [tensor("z", ["n", "m", "l"])], {}))
    for n, m, k, columns in [(0, 5, 7, 9), (2, 0, 7, 9), (2, 5, 0, 9), (2, 5, 7, 0), (1, 1, 1, 1), (3, 1, 40, 100)]:
        a, b = random(n, m, k, seed=1), random(n, k, columns, seed=2)
        (z,) = run.run(None, {"a": a, "b": b})
        np.testing.assert_allclose(z, half(a) @ half(b), rtol=1e-5, atol=1e-5)
    a, b = random(2, 20, 35, seed=1), random(2, 35, 33, seed=2)
    a[0, 3, 4], a[1, 19, 34], b[0, 6, 7], b[1, 34, 32], a[0, 0, 0] = np.inf, np.nan, -np.inf, np.nan, 1e-39
    (z,) = run.run(None, {"a": a, "b": b})
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(z, half(a) @ half(b), rtol=1e-5, atol=1e-5)


@needs_packed_bfloat16
def test_computed_matrices_lie_in_bfloat16_between_products() -> None:
    """What regions and products make for products of computed matrices alone is rounded as it is written."""
    weights = {"w": random(64, 96, seed=1)}
    nodes = [
        node("MatMul", ["x", "w"], ["p"]),
        node("Relu", ["p"], ["q"]),
        node("Transpose", ["q"], ["t"], perm=[0, 2, 1]),
        node("Tanh", ["y"], ["u"]),
        node("MatMul", ["u", "t"], ["s"]),
        node("MatMul", ["s", "q"], ["z"]),
    ]
    made = model(nodes, [tensor("x", [3, 50, 64]), tensor("y", [3, 40, 96])], [tensor("z", [3, 40, 96])], weights)
    run = session(made)
    products = [call for call in run.engine.compiled.plan.calls if call.label.startswith("bfloat16 product")]
    kinds = [tuple(tensor.dtype.text for tensor in (call.buffers.x, call.buffers.y)) for call in products]
    assert kinds == [("float", "bfloat16"), ("bfloat16", "bfloat16"), ("bfloat16", "float")]
    assert [call.spec.w_type for call in products[1:]] == ["bfloat16", "bfloat16"]
    feeds = {"x": random(3, 50, 64, seed=2), "y": random(3, 40, 96, seed=3)}
    q = np.maximum(half(feeds["x"]) @ half(weights["w"]), 0)
    expected = half(half(np.tanh(feeds["y"])) @ half(q).swapaxes(1, 2)) @ half(q)
    (z,) = run.run(None, feeds)
    np.testing.assert_allclose(z, expected, rtol=1e-3, atol=3e-3 * np.abs(expected).max())


@needs_packed_bfloat16
@pytest.mark.parametrize(
    ("type", "precision", "tiles"),
    [(np.float16, "float32", False), (np.float16, "bfloat16", True), (ml_dtypes.bfloat16, "float32", True)],
)
def test_two_computed_matrices_of_half_precision(type: Any, precision: str, tiles: bool) -> None:
    """Models in bfloat16 take tiles unasked, since their operands are numbers of that type; those in float16 do not."""
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(type))
    nodes = [node("MatMul", ["x", "y"], ["p"]), node("Relu", ["p"], ["z"])]
    inputs = [tensor("x", [2, 48, 64], kind), tensor("y", [2, 64, 40], kind)]
    run = session(model(nodes, inputs, [tensor("z", [2, 48, 40], kind)], {}), precision)
    assert any(label.startswith("bfloat16 product") for label in labels(run)) is tiles
    x, y = random(2, 48, 64, seed=1).astype(type), random(2, 64, 40, seed=2).astype(type)
    (z,) = run.run(None, {"x": x, "y": y})
    numbers = [array.astype(np.float32) for array in (x, y)]
    if tiles:
        numbers = [half(array) for array in numbers]
    expected = np.maximum(numbers[0] @ numbers[1], 0)
    np.testing.assert_allclose(z.astype(float), expected, rtol=2.0**-7, atol=2.0**-9)


@needs_packed_bfloat16
@pytest.mark.parametrize("length", ["n", 40])
def test_attention(length: int | str) -> None:
    """Attention spelt out, of known and of open length."""
    shape = [1, 4, length, 32]
    nodes = [
        node("Transpose", ["k"], ["t"], perm=[0, 1, 3, 2]),
        node("MatMul", ["q", "t"], ["s"]),
        node("Mul", ["s", "scale"], ["scaled"]),
        node("Softmax", ["scaled"], ["w"], axis=-1),
        node("MatMul", ["w", "v"], ["y"]),
    ]
    inputs = [tensor(name, shape) for name in "qkv"]
    made = model(nodes, inputs, [tensor("y", shape)], {"scale": np.array(0.2, np.float32)})
    run, exact = session(made), session(made, "float32")
    assert any("operands rounded to bfloat16" in call.reason for call in run.engine.compiled.plan.calls)
    for rows in (40,) if length == 40 else (1, 7, 9, 40):
        feeds = {name: random(1, 4, rows, 32, seed=ord(name)) for name in "qkv"}
        (y,), (expected,) = run.run(None, feeds), exact.run(None, feeds)
        assert np.abs(y - expected).max() < 2e-2


@needs_bfloat16_products
def test_recurrent_layers() -> None:
    """The products of all steps are ones in bfloat16, and the time loop reads weights in bfloat16."""
    weights = {"w": random(2, 512, 64, seed=1) / 8, "r": random(2, 512, 128, seed=2) / 12, "b": random(2, 1024, seed=3)}
    nodes = [node("LSTM", ["x", "w", "r", "b"], ["y"], hidden_size=128, direction="bidirectional")]
    made = model(nodes, [tensor("x", ["steps", 1, 64])], [tensor("y", ["steps", 2, 1, 128])], weights)
    run, exact = session(made), session(made, "float32")
    assert any("reading weights of 16 bits" in call.reason for call in run.engine.compiled.plan.calls)
    assert labels(run)[0].startswith("bfloat16 product")
    for steps in (1, 9):
        feeds = {"x": random(steps, 1, 64)}
        (y,), (expected,) = run.run(None, feeds), exact.run(None, feeds)
        assert 0 < np.abs(y - expected).max() < 1e-2


@needs_bfloat16_products
def test_models_of_bfloat16() -> None:
    """Their products take the same kernels unasked, as their operands are numbers of bfloat16 anyway."""
    weights = {"a": random(64, 96, seed=1) / 8, "b": random(96, seed=2), "c": random(96, 64, seed=3) / 9}
    nodes = [
        node("MatMul", ["x", "a"], ["p"]),
        node("Add", ["p", "b"], ["q"]),
        node("Relu", ["q"], ["r"]),
        node("MatMul", ["r", "c"], ["s"]),
        node("Add", ["s", "x"], ["z"]),
    ]
    kind, type = onnx.TensorProto.BFLOAT16, ml_dtypes.bfloat16
    constants = {name: array.astype(type) for name, array in weights.items()}
    made = model(nodes, [tensor("x", ["n", 64], kind)], [tensor("z", ["n", 64], kind)], constants)
    run = session(made, "float32")
    assert sum(label.startswith("bfloat16 product") for label in labels(run)) == 2
    for rows in (1, 5, 40):
        x = random(rows, 64, seed=rows).astype(type)
        between = half(half(x.astype(np.float32) @ constants["a"].astype(np.float32)) + half(weights["b"]))
        product = half(half(np.maximum(between, 0)) @ constants["c"].astype(np.float32))
        expected = half(product + x.astype(np.float32))
        (z,) = run.run(None, {"x": x})
        np.testing.assert_allclose(z.astype(float), expected, rtol=2.0**-6, atol=2.0**-6)


@needs_bfloat16_tiles
@pytest.mark.parametrize(("precision", "level"), [("float32", 0), ("bfloat16", 0), ("float32", 4)])
def test_weights_of_few_bits(precision: str, level: int) -> None:
    """Many rows are rounded where that is asked for, by the session or by the model; few are not."""
    n, k, block = 70, 160, 32
    q = np.random.default_rng(0).integers(0, 256, (n, k // block, block // 2), np.uint8)
    scales = random(n, k // block, seed=1)
    options = {"K": k, "N": n, "bits": 4, "block_size": block, "accuracy_level": level}
    nodes = [node("MatMulNBits", ["x", "q", "s"], ["y"], domain="com.microsoft", **options)]
    made = model(nodes, [tensor("x", ["m", k])], [tensor("y", ["m", n])], {"q": q, "s": scales})
    run = session(made, precision)
    numbers = np.stack([q & 15, q >> 4], -1).reshape(n, k).astype(float) - 8
    weights = (numbers * np.repeat(scales, block, 1)).T
    for rows in (1, 8, 9, 33):
        x = random(rows, k, seed=rows)
        (y,) = run.run(None, {"x": x})
        is_rounded = rows > 8 and (precision == "bfloat16" or level == 4)
        expected = half(x) @ half(weights) if is_rounded else x @ weights
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=2e-3 if is_rounded else 1e-4)


@needs_bfloat16_products
def test_artifacts_say_what_they_need(tmp_path: Path) -> None:
    made, _ = layers()
    run = session(made)
    run.save(tmp_path / "m.jitonnx", {"x": (2, 7, 64)})
    opened = jitonnx.load(str(tmp_path / "m.jitonnx"))
    feeds = {"x": random(2, 7, 64)}
    np.testing.assert_array_equal(opened.run(None, feeds)[0], run.run(None, feeds)[0])
    needed = BFLOAT16[host().bfloat16_products].features
    assert set(needed) <= run.engine.compiled.plan.features


@needs_bfloat16_products
def test_whole_models_are_kept_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITONNX_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "m.onnx"
    path.write_bytes(layers()[0])
    feeds = {"x": random(2, 7, 64)}
    first = [session(str(path), precision).run(None, feeds)[0] for precision in ("float32", "bfloat16")]
    again = [session(str(path), precision).run(None, feeds)[0] for precision in ("float32", "bfloat16")]
    assert (first[0] != first[1]).any()
    for ours, theirs in zip(first, again, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("cpu", ["neoverse-v1", "neoverse-n1", "haswell", "sapphirerapids"])
def test_two_computed_matrices_on_other_cpus(cpu: str) -> None:
    """Without tile registers they are multiplied in float32."""
    nodes = [node("MatMul", ["a", "b"], ["z"])]
    graph = load(model(nodes, [tensor("a", [64, 64]), tensor("b", [64, 64])], [tensor("z", [64, 64])], {})).graph
    optimize(graph, 99)
    plan = make_plan(lower(graph), named(cpu), Choices(precision="bfloat16"))
    assert [call.spec.family for call in plan.calls] == ["gemm"]


@pytest.mark.parametrize(("cpu", "kernels"), [("neoverse-v1", 4), ("neoverse-n1", 0), ("haswell", 0)])
def test_plans_for_other_cpus(cpu: str, kernels: int) -> None:
    """AArch64's CPUs with products of matrices of bfloat16 take those; others none."""
    graph = load(convolutions()[0]).graph
    optimize(graph, 99)
    plan = make_plan(lower(graph), named(cpu), Choices(precision="bfloat16"))
    found = [call.spec for call in plan.calls if isinstance(call.spec, Bfloat16Spec)]
    assert len(found) == kernels
    assert all(isinstance(spec, BfmmlaSpec) for spec in found)
    assert any("bfloat16 was asked for" in note for note in plan.notes) is not bool(kernels)


def test_large_weights_of_few_rows_are_rounded_where_nothing_multiplies_bfloat16() -> None:
    """They wait for memory, and are read in half of it; other operands stay as they are."""
    if not ON_X86_64:
        pytest.skip("makes code for a CPU of x86-64")
    weights = {"w": random(512, 600), "v": random(600, 8)}
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("MatMul", ["p", "v"], ["y"])]
    made = model(nodes, [tensor("x", ["n", 512])], [tensor("y", ["n", 8])], weights)
    run = session(made, cpu="haswell")
    stored = [getattr(call.spec, "b_stored", None) for call in run.engine.compiled.plan.calls]
    assert stored == ["bfloat16", ""]
    for rows in (1, 3, 40):
        x = random(rows, 512, seed=rows)
        expected = x.astype(float) @ half(weights["w"]) @ weights["v"]
        (y,) = run.run(None, {"x": x})
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


def test_cpus_without_tiles_compute_in_float32() -> None:
    made, _ = layers()
    run = session(made, cpu="haswell" if ON_X86_64 else "neoverse-n1")
    assert not any("bfloat16" in label for label in labels(run))
    assert any("bfloat16 was asked for" in note for note in run.engine.compiled.plan.notes)


def test_a_precision_that_there_is_not() -> None:
    with pytest.raises(jitonnx.errors.InvalidArgument, match="is 'float16'; give 'float32', 'bfloat16' or 'auto'"):
        session(layers()[0], "float16")


@needs_bfloat16_products
def test_images_that_a_first_convolution_gives_out() -> None:
    """They lie in planes of pixels, which it writes itself in float32; others that follow take it in bfloat16."""
    weights = {"a": random(24, 3, 3, 3, seed=1), "b": random(24, 24, 3, 3, seed=2)}
    nodes = [node("Conv", ["x", "a"], ["p"], pads=[1, 1, 1, 1]), node("Relu", ["p"], ["y"])]
    image, planes = tensor("x", [1, 3, 32, 32]), tensor("y", [1, 24, 32, 32])
    assert not any(label.startswith("bfloat16") for label in labels(session(model(nodes, [image], [planes], weights))))
    nodes[-1] = node("Relu", ["p"], ["q"])
    nodes.append(node("Conv", ["q", "b"], ["y"], pads=[1, 1, 1, 1]))
    made = session(model(nodes, [image], [planes], weights), winograd="0")
    assert sum(label.startswith("bfloat16") for label in labels(made)) == 2
