"""Expansions, depthwise convolutions and pooling band by band: right whatever the bands, and only where meant to be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import jitonnx
from jitonnx.engine.interpreter import evaluate
from jitonnx.ir.dims import evaluate as evaluated
from jitonnx.kernels.convolution import choose
from jitonnx.kernels.convolution.spec import DepthwiseSpec
from jitonnx.kernels.pooling.spec import PoolSpec
from jitonnx.model import load
from jitonnx.plan import depth_first_tiling
from jitonnx.plan.calls import KernelCall
from jitonnx.target.machine import Target
from tests.session.models import model, node, tensor
from tests.targets import named, waiting

RANDOM = np.random.default_rng(0)


def expansion(
    size: tuple[Any, Any],
    channels: int = 24,
    kernel: int = 3,
    residual: bool = False,
    read_twice: bool = False,
    images: Any = 1,
    first: int = 1,
    projection: str = "",
    **attributes: Any,
) -> bytes:
    """A convolution of `first` taps each way, of 5 channels to `channels`, ReLU, and a depthwise convolution with ReLU.

    projection: "plain" for a 1x1 convolution to 7 channels behind it, "residual" for one to which x is added.
    """
    weights = {
        "w": RANDOM.standard_normal((channels, 5, first, first)).astype(np.float32),
        "b": RANDOM.standard_normal(channels).astype(np.float32),
        "d": RANDOM.standard_normal((channels, 1, kernel, kernel)).astype(np.float32),
        "e": RANDOM.standard_normal(channels).astype(np.float32),
        "s": RANDOM.standard_normal((1, channels, *size)).astype(np.float32) if residual else np.zeros(1, np.float32),
    }
    nodes = [
        node("Conv", ["x", "w", "b"], ["wide"], pads=[first // 2] * 4),
        node("Add", ["wide", "s"], ["shifted"]) if residual else node("Identity", ["wide"], ["shifted"]),
        node("Relu", ["shifted"], ["r"]),
        node("Conv", ["r", "d", "e"], ["deep"], group=channels, **attributes),
        node("Relu", ["deep"], ["y"]),
    ]
    outputs = [tensor("y", None)]
    if projection:
        outputs = [tensor("z", None)]
        width = 5 if projection == "residual" else 7
        weights["p"] = RANDOM.standard_normal((width, channels, 1, 1)).astype(np.float32)
        nodes.append(node("Conv", ["y", "p"], ["narrow"]))
        nodes.append(
            node("Add", ["narrow", "x"], ["z"]) if projection == "residual" else node("Neg", ["narrow"], ["z"])
        )
    if read_twice:
        nodes.append(node("ReduceMean", ["r"], ["mean"]))
        outputs.append(tensor("mean", None))
    return model(nodes, [tensor("x", (images, 5, *size))], outputs, weights)


def pooled(
    size: tuple[Any, Any], projection: bool = False, first: int = 3, images: Any = 1, **attributes: Any
) -> bytes:
    """A convolution of 5 channels to 24, ReLU, and maxima of windows; perhaps a 1x1 convolution to 7 behind them."""
    weights = {
        "w": RANDOM.standard_normal((24, 5, first, first)).astype(np.float32),
        "b": RANDOM.standard_normal(24).astype(np.float32),
        "p": RANDOM.standard_normal((7, 24, 1, 1)).astype(np.float32),
    }
    nodes = [
        node("Conv", ["x", "w", "b"], ["wide"], pads=[first // 2] * 4),
        node("Relu", ["wide"], ["r"]),
        node("MaxPool", ["r"], ["y"], **attributes),
    ]
    if projection:
        nodes.append(node("Conv", ["y", "p"], ["z"]))
    return model(nodes, [tensor("x", (images, 5, *size))], [tensor("z" if projection else "y", None)], weights)


@pytest.fixture
def small_caches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Cores that wait for the third-level cache, with 384 KB of the second level; how many bands there are, by plan.

    First convolutions are direct: Winograd's are not cut.
    """
    found: list[int] = []
    cut = depth_first_tiling.in_bands

    def in_bands(calls: list[KernelCall], target: Target) -> list[KernelCall]:
        result = cut(calls, replace(waiting(target), l2_bytes=384 << 10))
        found.append(sum(isinstance(call.spec, DepthwiseSpec | PoolSpec) for call in result))
        return result

    monkeypatch.setattr(depth_first_tiling, "in_bands", in_bands)
    monkeypatch.setattr(choose, "_winograd_shares", lambda *_: {None: 1.0})
    return found


def threads(count: int) -> jitonnx.SessionOptions:
    options = jitonnx.SessionOptions()
    options.intra_op_num_threads = count
    return options


def run(data: bytes, x: np.ndarray, count: int = 1) -> list[np.ndarray]:
    """The outputs on so many threads."""
    return jitonnx.InferenceSession(data, threads(count)).run(None, {"x": x})


@pytest.mark.parametrize(
    ("size", "channels", "attributes"),
    [
        ((80, 56), 24, {"pads": [1, 1, 1, 1]}),
        ((71, 56), 40, {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
        ((133, 56), 17, {"pads": [0, 1, 2, 1]}),
        ((59, 56), 24, {"strides": [3, 1]}),
        ((72, 53), 24, {"pads": [1, 1, 1, 1]}),
        ((90, 41), 33, {"pads": [1, 1, 1, 1], "strides": [2, 1]}),
        ((84, 56), 24, {"kernel": 5, "pads": [2, 2, 2, 2], "strides": [2, 2]}),
        ((99, 56), 24, {"pads": [2, 2, 2, 2], "dilations": [2, 2], "strides": [2, 1]}),
        ((75, 56), 24, {"pads": [1, 0, 0, 2], "strides": [1, 2]}),
        ((72, 56), 24, {"pads": [1, 1, 1, 1], "residual": True}),
        ((71, 56), 40, {"pads": [1, 1, 1, 1], "strides": [2, 2], "projection": "plain"}),
        ((93, 56), 17, {"pads": [1, 1, 1, 1], "projection": "plain"}),
        ((93, 56), 17, {"pads": [1, 1, 1, 1], "projection": "residual"}),
        ((80, 53), 24, {"pads": [1, 1, 1, 1], "first": 3}),
        ((93, 56), 24, {"pads": [0, 1, 2, 1], "first": 5, "projection": "plain"}),
    ],
)
def test_bands_change_nothing(
    size: tuple[int, int], channels: int, attributes: dict[str, Any], small_caches: list[int]
) -> None:
    """The bits are those of the whole image at once, on any number of threads, and close to NumPy's."""
    data = expansion(size, channels, **attributes)
    x = RANDOM.standard_normal((1, 5, *size)).astype(np.float32)
    results = [run(data, x, count)[0] for count in (1, 2, 8)]
    assert small_caches[-1] > 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(depth_first_tiling, "in_bands", lambda calls, target: calls)
        results.append(run(data, x)[0])
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])
    (expected,) = evaluate(load(data).graph, {"x": x})
    np.testing.assert_allclose(results[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("size", "attributes"),
    [
        ((93, 56), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ((93, 57), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
        ((94, 56), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1, "projection": True}),
        ((90, 56), {"kernel_shape": [2, 2], "strides": [2, 2], "projection": True}),
        ((93, 56), {"kernel_shape": [2, 3], "pads": [1, 1, 0, 1], "first": 1, "projection": True}),
        ((99, 56), {"kernel_shape": [2, 2], "dilations": [2, 2], "pads": [1, 0, 1, 2], "strides": [3, 1]}),
    ],
)
def test_maxima_band_by_band(size: tuple[int, int], attributes: dict[str, Any], small_caches: list[int]) -> None:
    """The bits are those of the whole image at once, with a known size and an open one."""
    x = RANDOM.standard_normal((1, 5, *size)).astype(np.float32)
    state = RANDOM.bit_generator.state
    data = pooled(size, **attributes)
    RANDOM.bit_generator.state = state
    opened = pooled(("H", "W"), images="N", **attributes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(depth_first_tiling, "in_bands", lambda calls, target: calls)
        (expected,) = run(data, x)
        several = np.concatenate([x, x[:, :, ::-1]])
        (of_several,) = run(opened, several)
    assert not small_caches
    for count in (1, 3):
        np.testing.assert_array_equal(run(data, x, count)[0], expected)
        assert small_caches.pop() > 1
        np.testing.assert_array_equal(run(opened, x, count)[0], expected)
        np.testing.assert_array_equal(run(opened, several, count)[0], of_several)
        assert small_caches == [16, 16]
        small_caches.clear()
    (reference,) = evaluate(load(data).graph, {"x": x})
    np.testing.assert_allclose(expected, reference, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("why", "data"),
    [
        ("the image stays in the cache", lambda: expansion((8, 8), pads=[1, 1, 1, 1])),
        ("there are two images", lambda: expansion((72, 56), pads=[1] * 4, images=2)),
        ("others read the image", lambda: expansion((72, 56), pads=[1, 1, 1, 1], read_twice=True)),
        ("too many rows would be made twice", lambda: expansion((72, 56), kernel=7, pads=[3, 3, 3, 3])),
    ],
)
def test_no_bands(why: str, data: Any, small_caches: list[int]) -> None:
    made = data()
    height, width = (8, 8) if "stays" in why else (72, 56)
    x = RANDOM.standard_normal((2 if "two" in why else 1, 5, height, width)).astype(np.float32)
    for result, expected in zip(run(made, x), evaluate(load(made).graph, {"x": x}), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)
    assert set(small_caches) == {1}, why


@pytest.mark.parametrize("first", [1, 3])
def test_open_number_of_images(first: int, small_caches: list[int]) -> None:
    """One image is cut into bands, several, or none, are done at once, by the same plan."""
    data = expansion((93, 56), pads=[1, 1, 1, 1], images="N", first=first, projection="residual")
    session = jitonnx.InferenceSession(data)
    for images in (1, 3, 0, 2, 1, 5):
        x = RANDOM.standard_normal((images, 5, 93, 56)).astype(np.float32)
        (result,) = session.run(None, {"x": x})
        (expected,) = evaluate(load(data).graph, {"x": x})
        np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-3)
    assert len(small_caches) == 1
    assert small_caches[0] > 1


@pytest.mark.parametrize(
    ("names", "attributes"),
    [
        (("H", "W"), {"pads": [1, 1, 1, 1]}),
        (("H", "W"), {"pads": [1, 1, 1, 1], "strides": [2, 2], "projection": "plain"}),
        (("H", "W"), {"pads": [1, 1, 1, 1], "first": 3, "projection": "residual"}),
        (("H", "W"), {"kernel": 5, "pads": [2, 2, 2, 2], "strides": [2, 1], "first": 3, "images": "N"}),
        (("H", 56), {"pads": [0, 1, 2, 1], "dilations": [2, 2], "projection": "plain"}),
        ((120, "W"), {"strides": [3, 2], "pads": [1, 0, 0, 2]}),
    ],
)
def test_open_heights_and_widths(names: tuple[Any, Any], attributes: dict[str, Any], small_caches: list[int]) -> None:
    """One plan for images of any size: what is small, too wide or empty is done at once, the rest by as many bands as
    that takes; the bits are those of whole images."""
    data = expansion(names, **attributes)
    cut = [jitonnx.InferenceSession(data, threads(count)) for count in (1, 3)]
    assert small_caches[-1] == 16
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(depth_first_tiling, "in_bands", lambda calls, target: calls)
        whole = jitonnx.InferenceSession(data)
    for size in [(9, 9), (93, 56), (300, 41), (64, 64), (17, 3000), (1000, 12), (40, 640), (5, 7), (131, 200)]:
        height, width = (name if isinstance(name, int) else own for name, own in zip(names, size, strict=True))
        for images in (1, 2, 0) if "images" in attributes else (1,):
            x = RANDOM.standard_normal((images, 5, height, width)).astype(np.float32)
            (expected,) = whole.run(None, {"x": x})
            for session in cut:
                (result,) = session.run(None, {"x": x})
                np.testing.assert_array_equal(result, expected)
    (expected,) = evaluate(load(data).graph, {"x": x})
    np.testing.assert_allclose(cut[0].run(None, {"x": x})[0], expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("size", [(0, 9), (9, 0), (0, 0)])
def test_open_sizes_of_nothing(size: tuple[int, int], small_caches: list[int]) -> None:
    data = expansion(("H", "W"), pads=[1, 1, 1, 1], projection="plain")
    (result,) = run(data, np.zeros((1, 5, *size), np.float32))
    assert small_caches[-1] == 16
    assert result.shape == (1, 7, *size)


def test_rows_of_bands_of_open_sizes(small_caches: list[int]) -> None:
    """They are as many as the cache holds of both images between, but all where the image is small, or a few rows are
    large."""
    data = expansion(("H", "W"), pads=[1, 1, 1, 1], first=3, projection="plain")
    plan = jitonnx.InferenceSession(data).engine.compiled.plan
    depthwise = [call.sizes.out_height for call in plan.calls if isinstance(call.spec, DepthwiseSpec)]
    assert len(depthwise) == small_caches[-1]
    wanted = {(20, 20): [20], (96, 56): [17] * 5 + [11], (160, 40): [24] * 6 + [16], (40, 640): [40]}
    for (height, width), expected in wanted.items():
        rows = [evaluated(count, {"H": height, "W": width}) for count in depthwise]
        assert [count for count in rows if count] == expected


def test_bands_are_for_cores_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = [object(), object()]
    assert depth_first_tiling.in_bands(calls, named("znver4")) is calls
