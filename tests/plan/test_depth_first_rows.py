"""Products and what is done to rows in front of them band by band: right whatever the bands, and only where meant."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import jitonnx
from jitonnx.engine.interpreter import evaluate
from jitonnx.kernels.gemm.spec import GemmSpec
from jitonnx.model import load
from jitonnx.plan import depth_first_rows
from jitonnx.plan.calls import KernelCall
from jitonnx.target.machine import Target
from tests.session.models import model, node, tensor
from tests.targets import named, waiting

RANDOM = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def perceptron(rows: Any, inner: int = 100, read_twice: bool = False, wide: int = 20, residual: bool = True) -> bytes:
    """x + W2 GELU(W1 LayerNormalization(x)), rows of 20 numbers, of `inner` between."""
    weights = {
        "s": normal(20),
        "t": normal(20),
        "w1": normal(20, inner),
        "b1": normal(inner),
        "w2": normal(inner, wide),
    }
    nodes = [
        node("LayerNormalization", ["x", "s", "t"], ["n"]),
        node("MatMul", ["n", "w1"], ["h"]),
        node("Add", ["h", "b1"], ["hb"]),
        node("Gelu", ["hb"], ["g"]),
        node("MatMul", ["g", "w2"], ["p"]),
        node("Add", ["p", "x"], ["y"]) if residual else node("Neg", ["p"], ["y"]),
    ]
    outputs = [tensor("y", None)]
    if read_twice:
        nodes.append(node("ReduceMax", ["g"], ["most"]))
        outputs.append(tensor("most", None))
    return model(nodes, [tensor("x", (*rows, 20))], outputs, weights)


def dense_layer(size: tuple[Any, Any], images: Any = 1) -> bytes:
    """Scale, shift and ReLU of two joined images, in front of a 1x1 convolution, as in DenseNet."""
    weights = {"v": normal(13, 5, 3, 3), "u": normal(24, 5, 1, 1), "w": normal(17, 37, 1, 1), "b": normal(17)}
    weights |= {"s": normal(37, 1, 1), "t": normal(37, 1, 1)}
    nodes = [
        node("Conv", ["x", "v"], ["first"], pads=[1, 1, 1, 1]),
        node("Conv", ["x", "u"], ["second"]),
        node("Concat", ["first", "second"], ["joined"], axis=1),
        node("Mul", ["joined", "s"], ["scaled"]),
        node("Add", ["scaled", "t"], ["shifted"]),
        node("Relu", ["shifted"], ["r"]),
        node("Conv", ["r", "w", "b"], ["y"]),
        node("ReduceMean", ["joined"], ["mean"]),
    ]
    return model(nodes, [tensor("x", (images, 5, *size))], [tensor("y", None), tensor("mean", None)], weights)


@pytest.fixture
def small_caches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Cores that wait for the third-level cache, with 256 KB of the second level; how many products there are."""
    found: list[int] = []
    cut = depth_first_rows.rows_in_bands

    def rows_in_bands(calls: list[KernelCall], target: Target) -> list[KernelCall]:
        result = cut(calls, replace(waiting(target), l2_bytes=256 << 10))
        found.append(sum(isinstance(call.spec, GemmSpec) for call in result))
        return result

    monkeypatch.setattr(depth_first_rows, "rows_in_bands", rows_in_bands)
    return found


def session(data: bytes, threads: int = 1) -> jitonnx.InferenceSession:
    options = jitonnx.SessionOptions()
    options.intra_op_num_threads = threads
    return jitonnx.InferenceSession(data, options)


def uncut(data: bytes) -> jitonnx.InferenceSession:
    """A session whose plan has no bands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(depth_first_rows, "rows_in_bands", lambda calls, target: calls)
        return session(data)


@pytest.mark.parametrize(
    ("data", "shape", "products"),
    [
        (perceptron((1000,)), (1000, 20), 2),
        (perceptron((7, 131)), (7, 131, 20), 2),
        (perceptron((1, 523), inner=67, wide=33, residual=False), (1, 523, 20), 2),
        (dense_layer((41, 43)), (1, 5, 41, 43), 2),
        (dense_layer((56, 19), images=3), (3, 5, 56, 19), 2),
    ],
)
def test_bands_change_nothing(data: bytes, shape: tuple[int, ...], products: int, small_caches: list[int]) -> None:
    """The bits are those of all rows at once, on any number of threads, and close to NumPy's."""
    x = normal(*shape)
    expected = uncut(data).run(None, {"x": x})
    for threads in (1, 2, 8):
        for result, wanted in zip(session(data, threads).run(None, {"x": x}), expected, strict=True):
            np.testing.assert_array_equal(result, wanted)
    assert small_caches[-1] > products
    for result, wanted in zip(expected, evaluate(load(data).graph, {"x": x}), strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("data", "sizes"),
    [
        (perceptron(("N", 611)), [(7,), (0,), (1,), (2,), (40,)]),
        (
            perceptron(("N", 3, "M", 400), inner=67, wide=33, residual=False),
            [(2, 3, 1), (0, 3, 5), (1, 3, 1), (5, 3, 3)],
        ),
    ],
)
def test_open_numbers_of_rows(data: bytes, sizes: list[tuple[int, ...]], small_caches: list[int]) -> None:
    """One plan for all: few rows are done at once, others by as many bands as they take."""
    cut, whole = [session(data, threads) for threads in (1, 3)], uncut(data)
    assert small_caches == [32, 32]
    rank = len(whole.get_inputs()[0].shape)
    for size in sizes:
        x = normal(*size, *whole.get_inputs()[0].shape[len(size) : rank])
        (expected,) = whole.run(None, {"x": x})
        for one in cut:
            np.testing.assert_array_equal(one.run(None, {"x": x})[0], expected)
    (expected,) = evaluate(load(data).graph, {"x": x})
    np.testing.assert_allclose(cut[0].run(None, {"x": x})[0], expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("fixed", [False, True])
def test_rows_in_another_order(fixed: bool, small_caches: list[int]) -> None:
    """Windows that are turned, as those of MaxViT: the axes that count rows lie in another order in memory."""
    constants = {"s": normal(80), "t": normal(80), "w": normal(80, 30), "v": normal(30, 80)}
    nodes = [
        node("Transpose", ["x"], ["turned"], perm=[0, 2, 1, 3]),
        node("Mul", ["turned", "s"], ["scaled"]),
        node("Add", ["scaled", "t"], ["shifted"]),
        node("MatMul", ["shifted", "w"], ["p"]),
        node("Relu", ["p"], ["r"]),
        node("MatMul", ["r", "v"], ["q"]),
        node("Add", ["q", "turned"], ["y"]),
    ]
    data = model(nodes, [tensor("x", (3 if fixed else "N", 31, 37, 80))], [tensor("y", None)], constants)
    cut, whole = session(data, 2), uncut(data)
    assert small_caches[-1] > 2
    for images in (3,) if fixed else (1, 2, 0, 5):
        x = normal(images, 31, 37, 80)
        np.testing.assert_array_equal(cut.run(None, {"x": x})[0], whole.run(None, {"x": x})[0])


def test_open_images(small_caches: list[int]) -> None:
    data = dense_layer((56, 29), images="N")
    cut, whole = session(data, 2), uncut(data)
    assert small_caches[-1] > 16
    for images in (1, 2, 0, 9):
        x = normal(images, 5, 56, 29)
        for result, wanted in zip(cut.run(None, {"x": x}), whole.run(None, {"x": x}), strict=True):
            np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize(
    ("why", "data", "rows"),
    [
        ("all stays in the cache", perceptron((200,)), (200,)),
        ("there may be few rows", perceptron(("N", 200)), (7, 200)),
        ("others read what lies between", perceptron((600,), read_twice=True), (600,)),
        ("weights would be read again and again", perceptron((600,), inner=700), (600,)),
    ],
)
def test_no_bands(why: str, data: bytes, rows: tuple[int, ...], small_caches: list[int]) -> None:
    x = normal(*rows, 20)
    for result, expected in zip(session(data).run(None, {"x": x}), evaluate(load(data).graph, {"x": x}), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-3)
    assert small_caches == [2], why


def test_the_last_band_has_tiles_of_its_own(small_caches: list[int]) -> None:
    """Bands are whole tiles, and the rows behind the last one are not made of ever smaller ones."""
    plan = session(perceptron((1003,))).engine.compiled.plan
    products = [call for call in plan.calls if isinstance(call.spec, GemmSpec)]
    heights = {call.spec.rows for call in products}
    assert sum(call.sizes.m for call in products) == 2 * 1003
    assert all(call.sizes.m % call.spec.rows[0] == 0 for call in products[:-2])
    assert all(len(rows) <= 2 for rows in heights)


def test_bands_are_for_cores_that_wait() -> None:
    calls: list[Any] = [object(), object()]
    assert depth_first_rows.rows_in_bands(calls, named("znver4")) is calls
