"""What fusion makes of small models: which kernels they become, and that these compute what the nodes say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import jitonnx
from jitonnx.ops.onnx.convolution import Conv
from tests.session.models import model, node, tensor

IMAGE, CHANNELS, OUTPUTS = (20, 17), 24, 40


def labels(session: jitonnx.InferenceSession) -> list[str]:
    """The labels of a session's kernels."""
    compiled = session.engine.compiled
    assert compiled is not None
    return [call.label for call in compiled.plan.calls]


def data(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def squeeze_excite(
    images: int | str, shape: Sequence[int | str], factors: Sequence[int | str], outputs: int, **attributes: Any
) -> bytes:
    """relu(conv(sigmoid(factors) * x)), for 1x1 weights and a bias."""
    weights, bias = data(1, outputs, CHANNELS, 1, 1), data(2, outputs)
    nodes = [
        node("Sigmoid", ["factors"], ["s"]),
        node("Mul", ["s", "x"], ["scaled"]),
        node("Conv", ["scaled", "weights", "bias"], ["c"], **attributes),
        node("Relu", ["c"], ["y"]),
    ]
    inputs = [tensor("x", [images, CHANNELS, *shape]), tensor("factors", factors)]
    return model(nodes, inputs, [tensor("y", None)], {"weights": weights, "bias": bias})


def expected(x: np.ndarray, factors: np.ndarray, outputs: int) -> np.ndarray:
    scaled = x.astype(float) / (1 + np.exp(-factors.astype(float)))
    product = np.einsum("nchw,oc->nohw", scaled, data(1, outputs, CHANNELS, 1, 1)[:, :, 0, 0])
    return np.maximum(product + data(2, outputs)[:, None, None], 0)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("images", "own"), [(1, 1), (3, 3), (3, 1)])
@pytest.mark.parametrize("outputs", [7, OUTPUTS])
def test_gate_goes_into_the_weights(images: int, own: int, outputs: int, threads: int) -> None:
    """340 pixels and up to 40 output channels: the gate of a squeeze-and-excite block is multiplied into the weights,
    for each image its own where they have one."""
    options = jitonnx.SessionOptions()
    options.intra_op_num_threads = threads
    session = jitonnx.InferenceSession(squeeze_excite(images, IMAGE, [own, CHANNELS, 1, 1], outputs), options)
    assert f"scale weights {CHANNELS}x{outputs}" in labels(session)
    assert not any("Mul" in label for label in labels(session))
    x, factors = data(3, images, CHANNELS, *IMAGE), data(4, own, CHANNELS, 1, 1)
    (y,) = session.run(None, {"x": x, "factors": factors})
    np.testing.assert_allclose(y, expected(x, factors, outputs), rtol=1e-4, atol=1e-4)


def test_gate_with_sizes_of_a_run() -> None:
    """Images and pixels known only at run time: one plan for all of them, also where there are few pixels."""
    session = jitonnx.InferenceSession(squeeze_excite("n", ["h", "w"], ["n", CHANNELS, 1, 1], OUTPUTS))
    for images, shape in ((1, IMAGE), (2, (3, 5)), (3, (1, 1)), (0, (4, 4))):
        x, factors = data(3, images, CHANNELS, *shape), data(4, images, CHANNELS, 1, 1)
        (y,) = session.run(None, {"x": x, "factors": factors})
        np.testing.assert_allclose(y, expected(x, factors, OUTPUTS), rtol=1e-4, atol=1e-4)
    assert any(label.startswith("scale weights") for label in labels(session))


@pytest.mark.parametrize(
    ("shape", "factors", "attributes"),
    [
        ((7, 7), [1, CHANNELS, 1, 1], {}),  # fewer pixels than would pay
        (IMAGE, [1, 1, *IMAGE], {}),  # a factor a pixel
        (IMAGE, [1, CHANNELS, 1, 1], {"strides": [2, 2]}),  # not a product of pixels and weights
    ],
    ids=["small", "by pixel", "strided"],
)
def test_other_factors_stay_in_front(shape: Sequence[int], factors: Sequence[int], attributes: dict[str, Any]) -> None:
    session = jitonnx.InferenceSession(squeeze_excite(1, shape, factors, OUTPUTS, **attributes))
    assert not any("scale" in label for label in labels(session))
    x, numbers = data(3, 1, CHANNELS, *shape), data(4, *factors)
    (y,) = session.run(None, {"x": x, "factors": numbers})
    step = attributes.get("strides", [1])[0]
    np.testing.assert_allclose(y, expected(x, numbers, OUTPUTS)[:, :, ::step, ::step], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("operator", ["ReduceSum", "ReduceMean", "ReduceL2", "ReduceLogSumExp", "ReduceMax"])
@pytest.mark.parametrize("axes", [(0, 1), (0,), (1,)])
def test_long_reductions_are_shared(operator: str, axes: Sequence[int]) -> None:
    """Few long slices are reduced in parts, with the same bits on any number of threads."""
    shape = (2, 150_001) if axes != (0,) else (75_001, 4)
    nodes = [node(operator, ["x", "axes"], ["y"], keepdims=0)]
    source = model(nodes, [tensor("x", shape)], [tensor("y", None)], {"axes": np.array(axes, np.int64)})
    x, results = data(5, *shape), []
    for threads in (1, 2):
        options = jitonnx.SessionOptions()
        options.intra_op_num_threads = threads
        session = jitonnx.InferenceSession(source, options)
        assert any(label.endswith("of 16 parts") for label in labels(session))
        results.append(session.run(None, {"x": x})[0])
    np.testing.assert_array_equal(*results)
    wide = x.astype(float)
    reference = {
        "ReduceSum": wide.sum(axes),
        "ReduceMean": wide.mean(axes),
        "ReduceL2": np.sqrt((wide**2).sum(axes)),
        "ReduceLogSumExp": np.log(np.exp(wide).sum(axes)),
        "ReduceMax": wide.max(axes),
    }[operator]
    np.testing.assert_allclose(results[0], reference, rtol=1e-4, atol=1e-2 if operator == "ReduceSum" else 1e-5)


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("channels", [5, 16])
@pytest.mark.parametrize("planes", [False, True])
def test_convolutions_joined_along_any_axis(planes: bool, channels: int, axis: int) -> None:
    """Narrow images, whose tiles would span rows, written into a concatenation where rows do not follow each other:
    channels-last, or into a graph output."""
    weights, x = data(1, 2, 16, channels, 3, 3), data(2, 2, channels, 6, 7)
    nodes = [node("Conv", ["x", f"w{i}"], [f"c{i}"], pads=[1, 1, 1, 1]) for i in range(2)]
    nodes += [node("Concat", ["c0", "c1"], ["joined"], axis=axis), node("Relu", ["joined"], ["y"])]
    if planes:
        nodes[2:] = [node("Concat", ["c0", "c1"], ["y"], axis=axis)]
    constants = {"w0": weights[0], "w1": weights[1]}
    session = jitonnx.InferenceSession(model(nodes, [tensor("x", x.shape)], [tensor("y", None)], constants))
    (y,) = session.run(None, {"x": x})
    parts = [Conv(pads=(1, 1, 1, 1)).evaluate(x.astype(float), w.astype(float)) for w in weights]
    joined = np.concatenate(parts, axis)
    np.testing.assert_allclose(y, joined if planes else np.maximum(joined, 0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("operator", "columns", "axis", "apart"),
    [("Sin", 3, 1, True), ("Sin", 8, 1, True), ("Sin", 9, 1, False), ("Sin", 3, 0, False), ("Relu", 3, 1, False)],
)
def test_costly_operators_joined_as_narrow_columns(operator: str, columns: int, axis: int, apart: bool) -> None:
    """Few lanes of a vector are no good for a long computation: it is then done densely and copied."""
    x = data(1, 50, columns)
    nodes = [node(operator, ["x"], ["a"]), node("Concat", ["x", "a", "x"], ["y"], axis=axis)]
    session = jitonnx.InferenceSession(model(nodes, [tensor("x", x.shape)], [tensor("y", None)], {}))
    (y,) = session.run(None, {"x": x})
    computed = np.sin(x.astype(float)) if operator == "Sin" else np.maximum(x, 0)
    np.testing.assert_allclose(y, np.concatenate([x, computed, x], axis), rtol=1e-6, atol=1e-6)
    assert session.engine.compiled is not None
    written = next(call.tensors[-1] for call in session.engine.compiled.plan.calls if operator in call.label)
    assert (written.buffer.space != "output") == apart


@pytest.mark.parametrize("size", [(9, 40), (14, 14), (1,), ("h", "w")])
def test_convolution_of_planes(size: Sequence[int | str]) -> None:
    """A direct convolution reads a graph's input and writes its output as they lie, without copies."""
    axes = len(size)
    weights, bias = data(1, OUTPUTS, CHANNELS, *[2] * axes), data(2, OUTPUTS)
    attributes = {"strides": [2] * axes, "pads": [1] * 2 * axes}
    nodes = [node("Conv", ["x", "weights", "bias"], ["c"], **attributes), node("Relu", ["c"], ["y"])]
    inputs = [tensor("x", ["n", CHANNELS, *size])]
    session = jitonnx.InferenceSession(model(nodes, inputs, [tensor("y", None)], {"weights": weights, "bias": bias}))
    for extents in ((9, 40), (1, 1)) if "h" in size else (size,):
        x = data(3, 2, CHANNELS, *extents)
        wide = Conv(strides=(2,) * axes, pads=(1,) * 2 * axes).evaluate(
            x.astype(float), weights.astype(float), bias.astype(float)
        )
        (y,) = session.run(None, {"x": x})
        np.testing.assert_allclose(y, np.maximum(wide, 0), rtol=1e-4, atol=1e-4)
    assert not any(label.startswith("copy") for label in labels(session))


@pytest.mark.parametrize(
    ("size", "kernel"),
    [
        *((size, kernel) for size in [(9, 14), ("h", "w")] for kernel in [(1, 1), (3, 1), (1, 3)]),
        *(((8, 6, 7), kernel) for kernel in [(1, 1, 1), (1, 3, 1), (3, 1, 1)]),
        ((19,), (1,)),
    ],
)
@pytest.mark.parametrize("last", [False, True])
def test_strided_convolution_of_one_tap(last: bool, size: Sequence[int | str], kernel: Sequence[int]) -> None:
    """Only every second pixel is read along axes of one tap, of channels-last images and of planes."""
    axes = len(size)
    weights = data(1, OUTPUTS, CHANNELS, *kernel)
    pads = tuple(extent // 2 for extent in kernel) * 2
    nodes = [node("Relu", ["x"], ["r"]), node("Conv", ["r", "weights"], ["c"], strides=[2] * axes, pads=pads)]
    if last:  # between convolutions images lie channels-last
        nodes[0] = node("MaxPool", ["x"], ["r"], kernel_shape=[1] * axes)
    nodes.append(node("Neg", ["c"], ["y"]))
    source = model(nodes, [tensor("x", [2, CHANNELS, *size])], [tensor("y", None)], {"weights": weights})
    session = jitonnx.InferenceSession(source)
    for extents in ((9, 40), (1, 1)) if "h" in size else (size,):
        x = data(3, 2, CHANNELS, *extents)
        wide = x.astype(float) if last else np.maximum(x.astype(float), 0)
        want = -Conv(strides=(2,) * axes, pads=pads).evaluate(wide, weights.astype(float))
        (y,) = session.run(None, {"x": x})
        np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("images", [1, 3, "n"])
@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize(("shape", "planar"), [((4, 8), True), ((3, 3), False), ((32,), True), (("h", "w"), True)])
def test_pointwise_convolution_of_planes(
    shape: Sequence[int | str], planar: bool, step: int, images: int | str
) -> None:
    """There are no copies to channels-last and back between a graph's input and output, unless vectors of pixels fill
    badly."""
    weights, bias = data(1, OUTPUTS, CHANNELS, *(1 for _ in shape)), data(2, OUTPUTS)
    nodes = [
        node("Conv", ["x", "weights", "bias"], ["c"], strides=[step] * len(shape)),
        node("Mul", ["c", "gate"], ["g"]),
        node("Add", ["g", "residual"], ["r"]),
        node("Relu", ["r"], ["y"]),
    ]
    inputs = [tensor("x", [images, CHANNELS, *shape]), tensor("gate", [1, OUTPUTS, *(1 for _ in shape)])]
    grid = list(shape) if step == 1 else ["a", "b"] if "h" in shape else [-(-size // step) for size in shape]
    inputs.append(tensor("residual", [images, OUTPUTS, *grid]))
    session = jitonnx.InferenceSession(model(nodes, inputs, [tensor("y", None)], {"weights": weights, "bias": bias}))
    for count in (1, 3, 0) if images == "n" else (images,):
        sizes = [(6, 9), (1, 1)] if "h" in shape else [shape]
        for size in sizes:
            x = data(3, count, CHANNELS, *size)
            residual = data(4, count, OUTPUTS, *(-(-extent // step) for extent in size))
            gate = data(5, 1, OUTPUTS, *(1 for _ in shape))
            (y,) = session.run(None, {"x": x, "gate": gate, "residual": residual})
            wide = Conv(strides=(step,) * len(shape)).evaluate(
                x.astype(float), weights.astype(float), bias.astype(float)
            )
            np.testing.assert_allclose(y, np.maximum(wide * gate + residual, 0), rtol=1e-4, atol=1e-4)
    if step == 1:
        assert any(label.startswith("copy") for label in labels(session)) != planar


@pytest.mark.parametrize("images", [1, "n"])
@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize(("shape", "planar"), [((9, 64), True), ((5, 7), False), (("h", "w"), True)])
def test_depthwise_convolution_of_planes(
    shape: Sequence[int | str], planar: bool, step: int, images: int | str
) -> None:
    """There are no copies to channels-last and back between a graph's input and output, where rows are vectors long."""
    weights, bias = data(1, CHANNELS, 1, 3, 3), data(2, CHANNELS)
    attributes: dict[str, Any] = {"strides": [step] * 2, "pads": [1, 1, 1, 1], "group": CHANNELS}
    nodes = [
        node("Conv", ["x", "weights", "bias"], ["c"], **attributes),
        node("Mul", ["c", "gate"], ["g"]),
        node("Add", ["g", "residual"], ["r"]),
        node("Relu", ["r"], ["y"]),
    ]
    grid = list(shape) if step == 1 else ["a", "b"] if "h" in shape else [-(-size // step) for size in shape]
    inputs = [tensor("x", [images, CHANNELS, *shape]), tensor("gate", [1, CHANNELS, 1, 1])]
    inputs.append(tensor("residual", [images, CHANNELS, *grid]))
    session = jitonnx.InferenceSession(model(nodes, inputs, [tensor("y", None)], {"weights": weights, "bias": bias}))
    for count in (1, 3, 0) if images == "n" else (images,):
        for size in [(6, 37), (1, 1)] if "h" in shape else [shape]:
            x, gate = data(3, count, CHANNELS, *size), data(5, 1, CHANNELS, 1, 1)
            residual = data(4, count, CHANNELS, *(-(-extent // step) for extent in size))
            (y,) = session.run(None, {"x": x, "gate": gate, "residual": residual})
            wide = Conv(strides=(step,) * 2, pads=(1, 1, 1, 1), group=CHANNELS).evaluate(
                x.astype(float), weights.astype(float), bias.astype(float)
            )
            np.testing.assert_allclose(y, np.maximum(wide * gate + residual, 0), rtol=1e-4, atol=1e-4)
    if step == 1:
        assert any(label.startswith("copy") for label in labels(session)) != planar


@pytest.mark.parametrize("images", [1, "n"])
@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize(("kernel", "step"), [((3, 3), 1), ((5, 3), 2), ((7, 7), 1)])
def test_depthwise_convolution_of_planes_of_open_width(
    kernel: tuple[int, int], step: int, gated: bool, images: int | str
) -> None:
    """Narrow images are done channels-last between copies, wide ones as planes: which, each run tells."""
    weights, bias = data(1, CHANNELS, 1, *kernel), data(2, CHANNELS)
    pads = [kernel[0] // 2, kernel[1] // 2] * 2
    nodes = [
        node("Conv", ["x", "weights", "bias"], ["c"], strides=[step] * 2, pads=pads, group=CHANNELS),
        node("Mul", ["c", "gate"], ["g"]) if gated else node("Identity", ["c"], ["g"]),
        node("Relu", ["g"], ["y"]),
    ]
    inputs = [tensor("x", [images, CHANNELS, "h", "w"]), *([tensor("gate", [1, CHANNELS, 1, 1])] * gated)]
    session = jitonnx.InferenceSession(model(nodes, inputs, [tensor("y", None)], {"weights": weights, "bias": bias}))
    planes = [label for label in labels(session) if not label.startswith("copy")]
    assert len(planes) == 2 and len(labels(session)) == 4
    for count in (1, 3, 0) if images == "n" else (images,):
        for size in [(7, 7), (6, 37), (1, 1), (40, 12), (5, 70), (9, 16), (7, 7)]:
            x, gate = data(3, count, CHANNELS, *size), data(5, 1, CHANNELS, 1, 1) if gated else np.float32(1)
            (y,) = session.run(None, {"x": x, **({"gate": gate} if gated else {})})
            wide = Conv(strides=(step,) * 2, pads=tuple(pads), group=CHANNELS).evaluate(
                x.astype(float), weights.astype(float), bias.astype(float)
            )
            np.testing.assert_allclose(y, np.maximum(wide * gate, 0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("images", [1, "n"])
@pytest.mark.parametrize("axes", [["h", "w"], ["l"]])
def test_pointwise_convolution_of_planes_of_open_size(axes: list[str], images: int | str) -> None:
    """Small images are done channels-last between copies, large ones as planes: which, each run tells."""
    channels, outputs = 40, 48
    weights, bias = data(1, outputs, channels, *(1 for _ in axes)), data(2, outputs)
    nodes = [node("Conv", ["x", "weights", "bias"], ["c"]), node("Relu", ["c"], ["y"])]
    inputs = [tensor("x", [images, channels, *axes])]
    session = jitonnx.InferenceSession(model(nodes, inputs, [tensor("y", None)], {"weights": weights, "bias": bias}))
    assert sum(label.startswith("copy") for label in labels(session)) == 2
    for count in (1, 3, 0) if images == "n" else (images,):
        for size in [(7, 7), (30, 31), (1, 1), (5, 3), (16, 16), (3, 70), (7, 7)]:
            x = data(3, count, channels, *(size if len(axes) > 1 else (size[0] * size[1],)))
            (y,) = session.run(None, {"x": x})
            wide = Conv().evaluate(x.astype(float), weights.astype(float), bias.astype(float))
            np.testing.assert_allclose(y, np.maximum(wide, 0), rtol=1e-4, atol=1e-4)


def test_pointwise_convolution_of_planes_with_a_residual_that_lies_otherwise() -> None:
    """A channels-last residual is copied into planes for the epilogue."""
    weights, x, residual = data(1, OUTPUTS, CHANNELS, 1, 1), data(2, 2, CHANNELS, *IMAGE), data(3, 2, *IMAGE, OUTPUTS)
    nodes = [
        node("Transpose", ["residual"], ["r"], perm=[0, 3, 1, 2]),
        node("Conv", ["x", "weights"], ["c"]),
        node("Add", ["c", "r"], ["y"]),
    ]
    inputs = [tensor("x", x.shape), tensor("residual", residual.shape)]
    session = jitonnx.InferenceSession(model(nodes, inputs, [tensor("y", None)], {"weights": weights}))
    (y,) = session.run(None, {"x": x, "residual": residual})
    want = Conv().evaluate(x.astype(float), weights.astype(float)) + residual.transpose(0, 3, 1, 2)
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("images", [2, "n"])
@pytest.mark.parametrize(
    ("operator", "shape", "attributes", "planar"),
    [
        ("MaxPool", (20, 64), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}, True),
        ("AveragePool", (8, 40), {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}, True),
        ("AveragePool", (19, 31), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}, True),
        ("MaxPool", (50,), {"kernel_shape": [3], "strides": [3]}, True),
        ("MaxPool", (20, 33), {"kernel_shape": [3, 3], "dilations": [2, 2]}, False),
        ("MaxPool", (40, 4), {"kernel_shape": [6, 1], "strides": [1, 5]}, False),
    ],
)
def test_pooling_of_planes(
    operator: str, shape: tuple[int, ...], attributes: dict[str, Any], planar: bool, images: int | str
) -> None:
    """There are no copies to channels-last and back between a graph's input and output, with what follows in the
    kernel."""
    plain = model(
        [node(operator, ["x"], ["y"], **attributes)], [tensor("x", [images, CHANNELS, *shape])], [tensor("y", None)]
    )
    x = data(1, 2, CHANNELS, *shape)
    (pooled,) = ReferenceEvaluator(onnx.load_from_string(plain)).run(None, {"x": x})
    nodes = [node(operator, ["x"], ["p"], **attributes), node("Add", ["p", "r"], ["a"]), node("Relu", ["a"], ["y"])]
    inputs = [tensor("x", [images, CHANNELS, *shape]), tensor("r", [images, *pooled.shape[1:]])]
    session = jitonnx.InferenceSession(model(nodes, inputs, [tensor("y", None)]))
    residual = data(2, *pooled.shape)
    (y,) = session.run(None, {"x": x, "r": residual})
    np.testing.assert_allclose(y, np.maximum(pooled + residual, 0), rtol=1e-5, atol=1e-5)
    assert any("in planes" in label for label in labels(session)) == planar
    assert any(label.startswith("copy") for label in labels(session)) != planar


def test_pooling_of_planes_for_a_convolution() -> None:
    """What reads the smaller result channels-last gets a copy of that, and not of the image."""
    weights, x = data(1, OUTPUTS, CHANNELS, 3, 3), data(2, 1, CHANNELS, 32, 32)
    nodes = [
        node("MaxPool", ["x"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p", "weights"], ["y"], pads=[1, 1, 1, 1]),
    ]
    session = jitonnx.InferenceSession(model(nodes, [tensor("x", x.shape)], [tensor("y", None)], {"weights": weights}))
    (y,) = session.run(None, {"x": x})
    pooled = x.reshape(1, CHANNELS, 16, 2, 16, 2).max((3, 5))
    want = Conv(pads=(1, 1, 1, 1)).evaluate(pooled.astype(float), weights.astype(float))
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-4)
    assert any("in planes" in label for label in labels(session))


@pytest.mark.parametrize(
    ("operator", "shape", "inputs", "attributes"),
    [
        ("SpaceToDepth", [2, 3, 4, 6], {}, {"blocksize": 2}),
        ("DepthToSpace", [2, 12, 4, 6], {}, {"blocksize": 2}),
        ("Tile", [5, 7], {"repeats": np.array([2, 3], np.int64)}, {}),
    ],
)
def test_movement_is_one_copy(
    operator: str, shape: Sequence[int], inputs: dict[str, np.ndarray], attributes: dict[str, Any]
) -> None:
    """A reshape that needs a copy and is a graph output is copied straight into that; so are others that read it."""
    nodes = [node(operator, ["x", *inputs], ["y"], **attributes), node("Neg", ["y"], ["z"])]
    source = model(nodes, [tensor("x", shape)], [tensor("y", None), tensor("z", None)], inputs)
    session = jitonnx.InferenceSession(source)
    x = data(1, *shape)
    y, z = session.run(None, {"x": x})
    assert sum(label.startswith("copy") for label in labels(session)) == 1
    if operator == "Tile":
        want = np.tile(x, inputs["repeats"])
    elif operator == "SpaceToDepth":
        want = x.reshape(2, 3, 2, 2, 3, 2).transpose(0, 3, 5, 1, 2, 4).reshape(2, 12, 2, 3)
    else:
        want = x.reshape(2, 2, 2, 3, 4, 6).transpose(0, 3, 4, 1, 5, 2).reshape(2, 3, 8, 12)
    np.testing.assert_array_equal(y, want)
    np.testing.assert_array_equal(z, -want)


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.float64, np.float16])
@pytest.mark.parametrize(("down", "across"), [(2, 2), (3, 1), (1, 4), (5, 3), (2, 5), (1, 1)])
def test_nearest_pixels_of_planes_are_repeated(down: int, across: int, dtype: type) -> None:
    """Planes that grow by whole factors are copied with repetition, whether their sizes are a run's or not."""
    x = (100 * data(1, 2, 3, 5, 7)).astype(dtype)
    scales = np.array([1, 1, down, across], np.float32)
    attributes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    nodes = [node("Resize", ["x", "", "scales"], ["y"], mode="nearest", **attributes)]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    for shape in (["n", 3, "h", "w"], x.shape):
        source = model(nodes, [tensor("x", shape, kind)], [tensor("y", None, kind)], {"scales": scales})
        session = jitonnx.InferenceSession(source)
        (y,) = session.run(None, {"x": x})
        np.testing.assert_array_equal(y, x.repeat(down, 2).repeat(across, 3))
    if across < 5 and down * across > 1 and dtype in (np.float32, np.float64):
        assert set(labels(session)) == {"resize nearest"}


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("reshaped", [True, False])
@pytest.mark.parametrize("given", ["neither", "read", "output"])
def test_channels_last_output_is_written_in_place(given: str, reshaped: bool, known: bool) -> None:
    """A convolution's result lies channels-last: turned so, it is a graph output without a copy, also if others read
    it, but not if it is to lie otherwise in another output."""
    weights = data(1, OUTPUTS, CHANNELS, 3, 3)
    nodes = [node("Conv", ["x", "weights"], ["c"]), node("Transpose", ["c"], ["t"], perm=[0, 2, 3, 1])]
    nodes += [node("Reshape", ["t", "shape"], ["y"])] if reshaped else [node("Identity", ["t"], ["y"])]
    nodes += [node("ReduceMax", ["c"], ["other"], keepdims=0)] if given == "read" else []
    outputs = {"neither": ["y"], "read": ["y", "other"], "output": ["y", "c"]}[given]
    x = data(2, 2, CHANNELS, 7, 5)
    source = model(
        nodes,
        [tensor("x", list(x.shape) if known else ["n", CHANNELS, "h", "w"])],
        [tensor(name, None) for name in outputs],
        {"weights": weights, "shape": np.array([0, -1, OUTPUTS], np.int64)},
    )
    session = jitonnx.InferenceSession(source)
    result = dict(zip(outputs, session.run(None, {"x": x}), strict=True))
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(float), (3, 3), (2, 3))
    want = np.einsum("nchwij,ocij->nhwo", windows, weights)
    np.testing.assert_allclose(result["y"], want.reshape(2, -1, OUTPUTS) if reshaped else want, 1e-4, 1e-4)
    if given == "read":
        np.testing.assert_allclose(result["other"], want.max(), 1e-5)
    if given == "output":
        np.testing.assert_allclose(result["c"], want.transpose(0, 3, 1, 2), 1e-4, 1e-4)
    behind = labels(session)[1:]  # the first step may be a copy of the input
    assert sum(label.startswith("copy") for label in behind) == (given == "output"), labels(session)
