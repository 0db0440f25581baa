"""Models whose sizes are open: planned once, compiled once, and right for every size that is fed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import jitonnx
from jitonnx.codegen.objects import Objects
from jitonnx.engine.interpreter import on_numpy
from tests.session.models import model, node, tensor

Feeds = Iterable[Mapping[str, np.ndarray]]


def data(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def check(
    source: bytes,
    feeds: Feeds,
    monkeypatch: pytest.MonkeyPatch,
    tolerance: float = 2e-5,
    numpy: bool = False,
) -> Any:
    """The session, after it ran all feeds as onnxruntime does: without a cut, and with nothing compiled after loading.

    numpy: compared with the evaluation of the operators instead.
    """
    session = jitonnx.InferenceSession(source)
    engine = session.engine
    assert engine.schedule is None, engine.schedule.explained()
    assert engine.compiled is not None
    peer = None if numpy else onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    with monkeypatch.context() as patch:
        patch.setattr(Objects, "__call__", None)  # compiles
        for feed in feeds:
            shapes = [array.shape for array in feed.values()]
            assert engine.sizes(tuple(shapes)) is not None, f"an assumption does not hold for {shapes}"
            wanted = on_numpy(engine._source, list(feed.values())) if peer is None else peer.run(None, feed)
            for ours, theirs in zip(session.run(None, feed), wanted, strict=True):
                assert ours.shape == theirs.shape and ours.dtype == theirs.dtype, shapes
                np.testing.assert_allclose(ours, theirs, tolerance, tolerance, err_msg=str(shapes))
    assert len(engine._engines) == 0
    return session


# ---------------------------------------------------------------------------------------------- what a reshape leaves


def test_size_left_by_a_reshape_behind_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [
        node("Slice", ["x", "start", "end", "axis"], ["s"]),
        node("Reshape", ["s", "shape"], ["r"]),
        node("MatMul", ["r", "w"], ["y"]),
    ]
    constants = {"start": [3], "end": [2**62], "axis": [1], "shape": [0, 0, -1], "w": data(8, 3)}
    source = model(nodes, [tensor("x", (1, "w", 2, 4))], [tensor("y", None)], constants)
    check(source, [{"x": data(1, width, 2, 4)} for width in (4, 5, 64, 8, 4)], monkeypatch)


def test_size_left_beside_products_of_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recognisers of text have it so: [N, C, 2, W] halved three times, to steps of all rows and channels."""
    shape = [
        node("Shape", ["p"], ["whole"]),
        node("Gather", ["whole", "zero"], ["n"]),
        node("Gather", ["whole", "three"], ["steps"]),
        node("Concat", ["steps", "n", "rest"], ["shape"], axis=0),
    ]
    nodes = [
        *(
            node("MaxPool", [before], [after], kernel_shape=[1, 3], strides=[1, 2], pads=[0, 1, 0, 1])
            for before, after in (("x", "p1"), ("p1", "p2"), ("p2", "p"))
        ),
        *shape,
        node("Transpose", ["p"], ["t"], perm=[3, 0, 1, 2]),
        node("Reshape", ["t", "shape"], ["r"]),
        node("MatMul", ["r", "w"], ["y"]),
    ]
    constants = {"zero": [0], "three": [3], "rest": [-1], "w": data(10, 7)}
    source = model(nodes, [tensor("x", ("n", 5, 2, "w"))], [tensor("y", None)], constants)
    check(source, [{"x": data(n, 5, 2, w)} for n, w in ((1, 1), (2, 63), (3, 64), (1, 65), (2, 160))], monkeypatch)


def test_pieces_of_an_axis(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices that a size leaves nothing of, and their concatenation, which has the size of the whole again."""
    nodes = [
        node("Slice", ["x", "zero", "three", "one"], ["a"]),
        node("Slice", ["x", "three", "seven", "one"], ["b"]),
        node("Slice", ["x", "seven", "end", "one"], ["c"]),
        node("Slice", ["x", "one", "last", "one"], ["inner"]),
        node("Concat", ["c", "b", "a"], ["turned"], axis=1),
        node("Add", ["turned", "x"], ["y"]),
        node("Relu", ["inner"], ["z"]),
    ]
    constants = {"zero": [0], "one": [1], "three": [3], "seven": [7], "end": [2**62], "last": [-1]}
    source = model(nodes, [tensor("x", ("n", "w"))], [tensor("y", None), tensor("z", None)], constants)
    session = check(source, [{"x": data(2, width)} for width in (9, 1, 2, 3, 5, 7, 8, 100)], monkeypatch)
    assert not session.engine.compiled.plan.assumptions


# ---------------------------------------------------------------------------------------------- resizing


IMAGES = ((1, 5, 7), (2, 8, 8), (1, 1, 3), (1, 33, 40), (3, 2, 1), (1, 64, 100), (1, 16, 17), (0, 4, 4), (1, 5, 7))


def images(channels: int = 3) -> Feeds:
    return [{"x": data(n, channels, h, w)} for n, h, w in IMAGES]


def resized(version: int = 20, shape: Any = ("n", 3, "h", "w"), **attributes: Any) -> Any:
    """The model of one Resize by the constants "roi", "scales" or "sizes" in attributes."""
    names = ("roi", "scales", "sizes")
    constants = {name: np.array(attributes.pop(name)) for name in names if name in attributes}
    constants = {name: x.astype(np.int64 if name == "sizes" else np.float32) for name, x in constants.items()}
    inputs = ["x", *(name if name in constants else "" for name in names)]
    opsets = [onnx.helper.make_opsetid("", version)]
    nodes = [node("Resize", inputs, ["y"], **attributes)]
    return model(nodes, [tensor("x", shape)], [tensor("y", None)], constants, opset_imports=opsets)


HALF, CORNERS, CROP = "half_pixel", "align_corners", "tf_crop_and_resize"
RESIZES: list[tuple[dict[str, Any], bool]] = [
    ({"scales": [1, 1, 2, 2], "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}, False),
    ({"scales": [1, 1, 3, 5]}, False),
    ({"scales": [1, 1, 0.5, 0.7], "nearest_mode": "ceil"}, False),
    ({"scales": [1, 1, 1.5, 2], "mode": "linear"}, False),
    ({"scales": [1, 1, 0.5, 0.4], "mode": "linear"}, False),
    ({"scales": [1, 1, 2, 2], "mode": "linear", "coordinate_transformation_mode": CORNERS}, False),
    ({"scales": [1, 1, 2.5, 2], "mode": "cubic"}, False),
    ({"scales": [1, 1, 1, 2], "mode": "cubic", "cubic_coeff_a": -0.5, "exclude_outside": 1}, False),
    (
        {"sizes": [20, 9], "axes": [2, 3], "mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"},
        False,
    ),
    ({"sizes": [9, 20], "axes": [3, 2], "mode": "nearest", "nearest_mode": "round_prefer_ceil"}, False),
    ({"sizes": [9, 20], "axes": [2, 3], "mode": "linear", "antialias": 1}, True),
    ({"sizes": [30, 5], "axes": [2, 3], "mode": "cubic", "antialias": 1}, True),
    ({"scales": [0.3, 0.4], "axes": [2, 3], "mode": "linear", "antialias": 1}, True),
    ({"sizes": [9, 20], "axes": [2, 3], "mode": "linear", "keep_aspect_ratio_policy": "not_larger"}, True),
    ({"sizes": [9, 20], "axes": [2, 3], "mode": "nearest", "keep_aspect_ratio_policy": "not_smaller"}, True),
    (
        {"sizes": [9, 20], "axes": [2, 3], "mode": "linear", "keep_aspect_ratio_policy": "not_larger", "antialias": 1},
        True,
    ),
    (
        {
            "sizes": [9, 20],
            "axes": [2, 3],
            "roi": [0.1, -0.2, 0.8, 1.1],
            "mode": "linear",
            "coordinate_transformation_mode": CROP,
            "extrapolation_value": 7.0,
        },
        True,
    ),
]


@pytest.mark.parametrize(("attributes", "numpy"), RESIZES, ids=str)
def test_resize(attributes: dict[str, Any], numpy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    feeds = [feed for feed in images() if len(feed["x"])] if "sizes" in attributes or not numpy else images()
    check(resized(**dict(attributes)), feeds, monkeypatch, numpy=numpy)


def test_resize_of_no_elements_to_some_is_an_error() -> None:
    session = jitonnx.InferenceSession(resized(sizes=[9, 20], axes=[2, 3], mode="linear"))
    with pytest.raises(jitonnx.errors.InvalidArgument, match="0 elements cannot be resized to 20"):
        session.run(None, {"x": data(1, 3, 4, 0)})
    (y,) = session.run(None, {"x": data(1, 3, 4, 6)})
    assert y.shape == (1, 3, 9, 20)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_resize_of_one_and_of_three_axes(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    half = {"mode": mode, "coordinate_transformation_mode": "half_pixel"}
    source = resized(shape=("n", 2, "w"), scales=[1, 1, 2], **half)
    check(source, [{"x": data(n, 2, w)} for n, w in ((1, 5), (2, 1), (3, 40))], monkeypatch, numpy=True)
    source = resized(shape=("n", 2, "d", "h", "w"), scales=[1, 1, 2, 0.5, 1.5], **half)
    check(source, [{"x": data(1, 2, d, 4, w)} for d, w in ((1, 5), (2, 2), (3, 20))], monkeypatch, numpy=True)


@pytest.mark.parametrize("version", [9, 10])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_upsample(version: int, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    operator = "Upsample" if version == 9 else "Resize"
    nodes = [node(operator, ["x", "scales"], ["y"], mode=mode)]
    opsets = [onnx.helper.make_opsetid("", version)]
    scales = {"scales": np.array([1, 1, 2, 2.5], np.float32)}
    source = model(nodes, [tensor("x", ("n", 3, "h", "w"))], [tensor("y", None)], scales, opset_imports=opsets)
    check(source, images(), monkeypatch)


def pyramid(resize: Any, shape_of: str = "") -> bytes:
    """Three levels of convolutions, each half as large, the deeper ones added to those above; as detectors have it.

    resize: nodes that make "u" + name of a level from the level's name and that of the level above.
    """
    nodes, constants = [], {}
    channels, before = 3, "x"
    for level in (1, 2, 3):
        constants |= {f"w{level}": data(8, channels, 3, 3), f"l{level}": data(8, 8, 1, 1)}
        nodes += [
            node("Conv", [before, f"w{level}"], [f"c{level}"], strides=[2, 2], pads=[1] * 4),
            node("Relu", [f"c{level}"], [f"p{level}"]),
            node("Conv", [f"p{level}", f"l{level}"], [f"q{level}"]),
        ]
        channels, before = 8, f"p{level}"
    top = "q3"
    for level in (2, 1):
        more, given = resize(top, f"q{level}", f"u{level}")
        nodes += [*more, node("Add", [f"q{level}", f"u{level}"], [f"s{level}"])]
        constants |= given
        top = f"s{level}"
    nodes += [node("Conv", [top, "head"], ["h"], pads=[1] * 4), node("Sigmoid", ["h"], ["y"])]
    constants["head"] = data(1, 8, 3, 3)
    return model(nodes, [tensor("x", ("n", 3, "h", "w"))], [tensor("y", None)], constants)


def twice(x: str, above: str, y: str) -> tuple[list[Any], dict[str, Any]]:
    modes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    scales = {"scales": np.array([1, 1, 2, 2], np.float32)}
    return [node("Resize", [x, "", "scales"], [y], **modes)], scales


def to_size_of(x: str, above: str, y: str) -> tuple[list[Any], dict[str, Any]]:
    nodes = [
        node("Shape", [x], [f"{y}_own"], end=2),
        node("Shape", [above], [f"{y}_size"], start=2),
        node("Concat", [f"{y}_own", f"{y}_size"], [f"{y}_sizes"], axis=0),
        node("Resize", [x, "", "", f"{y}_sizes"], [y], mode="linear"),
    ]
    return nodes, {}


def test_feature_pyramid(monkeypatch: pytest.MonkeyPatch) -> None:
    feeds = [{"x": data(n, 3, h, w)} for n, h, w in ((1, 32, 40), (2, 8, 8), (1, 64, 128), (1, 120, 48), (1, 32, 40))]
    check(pyramid(twice), feeds, monkeypatch, 1e-4)


def test_feature_pyramid_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = ((1, 33, 40), (2, 7, 9), (1, 1, 1), (1, 121, 50), (1, 224, 13), (1, 2, 3))
    check(pyramid(to_size_of), [{"x": data(n, 3, h, w)} for n, h, w in sizes], monkeypatch, 1e-4)


# ---------------------------------------------------------------------------------------------- windows


VOLUMES = ((1, 5, 6, 7), (2, 1, 3, 3), (1, 9, 12, 4), (1, 2, 5, 5), (3, 16, 3, 8), (1, 5, 6, 7))
CONVOLUTIONS: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((3, 3, 3), {"pads": [1] * 6}),
    ((3, 2, 3), {"pads": [2, 1, 0, 1, 1, 2], "strides": [2, 1, 2], "group": 2}),
    ((3, 3, 3), {"auto_pad": "SAME_UPPER", "strides": [2, 2, 2]}),
    ((2, 3, 2), {"auto_pad": "SAME_LOWER", "strides": [3, 1, 2], "dilations": [1, 1, 1]}),
    ((1, 3, 3), {"strides": [2, 1, 1], "pads": [0, 1, 1, 0, 1, 1]}),
    ((3, 1, 1), {"pads": [1, 0, 0, 1, 0, 0]}),
    ((5, 1, 1), {"pads": [4, 0, 0, 4, 0, 0], "dilations": [2, 1, 1], "group": 4}),
    ((1, 1, 1), {"strides": [2, 2, 2]}),
]


@pytest.mark.parametrize(("kernel", "attributes"), CONVOLUTIONS, ids=str)
def test_convolution_over_three_axes(
    kernel: tuple[int, ...], attributes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice, so that the second reads what the first wrote, with a bias and a residual."""
    group = attributes.get("group", 1)
    constants = {"v": data(4, 3, 1, 1, 1), "w": data(4, 4 // group, *kernel), "b": data(4)}
    nodes = [
        node("Conv", ["x", "v"], ["u"]),
        node("Conv", ["u", "w", "b"], ["c"], **attributes),
        node("Relu", ["c"], ["y"]),
    ]
    shape = ("n", 3, "d", "h", "w")
    source = model(nodes, [tensor("x", shape)], [tensor("y", None)], constants)
    feeds = [{"x": data(n, 3, *size)} for n, *size in VOLUMES]
    check(source, feeds, monkeypatch, 1e-4)


# ---------------------------------------------------------------------------------------------- weights of the run

# Operator, channels, weights, attributes.
FED: list[tuple[str, int, tuple[int, ...], dict[str, Any]]] = [
    ("Conv", 4, (6, 4, 3, 3), {"pads": [1, 1, 1, 1]}),
    ("Conv", 4, (6, 2, 3, 2), {"group": 2, "strides": [2, 1], "dilations": [1, 2], "pads": [1, 2, 0, 1]}),
    ("Conv", 4, (4, 1, 3, 3), {"group": 4, "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ("Conv", 3, (5, 3, 1, 1), {}),
    ("Conv", 3, (5, 3, 3), {"pads": [1, 1]}),
    ("Conv", 2, (3, 2, 2, 3, 2), {"pads": [1, 1, 0, 0, 1, 1]}),
    ("ConvTranspose", 4, (4, 3, 2, 2), {"strides": [2, 2]}),
    ("ConvTranspose", 4, (4, 3, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1], "group": 2}),
    ("ConvTranspose", 3, (3, 2, 3, 2), {"strides": [1, 3], "dilations": [2, 1], "pads": [0, 1, 2, 0]}),
    ("ConvTranspose", 2, (2, 3, 4), {"strides": [2], "auto_pad": "SAME_LOWER"}),
    ("ConvTranspose", 2, (2, 3, 2, 2, 2), {"strides": [2, 2, 2]}),
    ("ConvTranspose", 2, (2, 3, 3, 3, 3), {"strides": [2, 1, 2], "pads": [1] * 6}),
]


@pytest.mark.parametrize(("operator", "channels", "weights", "attributes"), FED, ids=str)
def test_convolution_with_weights_that_are_fed(
    operator: str, channels: int, weights: tuple[int, ...], attributes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = weights[0] if operator == "Conv" else weights[1] * attributes.get("group", 1)
    axes = [f"s{axis}" for axis in range(len(weights) - 2)]
    inputs = [tensor("x", ("n", channels, *axes)), tensor("w", weights), tensor("b", (outputs,))]
    source = model([node(operator, ["x", "w", "b"], ["y"], **attributes)], inputs, [tensor("y", None)])
    feeds = []
    for seed, size in enumerate(((5, 6, 7), (4, 4, 4), (9, 5, 3), (12, 20, 6))):
        x = data(1 + seed % 2, channels, *size[: len(axes)], seed=seed)
        feeds.append({"x": x, "w": data(*weights, seed=seed), "b": data(outputs, seed=seed)})
    check(source, feeds, monkeypatch, 1e-4)


def test_transposed_convolution_over_three_axes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks on volumes have it, with constant weights."""
    nodes = [node("ConvTranspose", ["x", "w"], ["u"], strides=[2, 2, 2]), node("Relu", ["u"], ["y"])]
    source = model(nodes, [tensor("x", ("n", 4, "d", "h", "w"))], [tensor("y", None)], {"w": data(4, 3, 2, 2, 2)})
    check(source, [{"x": data(n, 4, *size)} for n, *size in VOLUMES], monkeypatch, 1e-4)


# ---------------------------------------------------------------------------------------------- element types


WHOLE = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool")
REDUCED = (
    *(("ReduceMax", kind) for kind in ("int8", "uint8", "int32", "uint32", "int64", "uint64", "bool")),
    *(("ReduceMin", kind) for kind in ("int8", "uint8", "int32", "uint32", "int64", "uint64", "bool")),
    *((name, kind) for name in ("ReduceSum", "ReduceProd", "ReduceSumSquare") for kind in ("uint32", "uint64")),
    *((name, kind) for name in ("ArgMax", "ArgMin") for kind in WHOLE if kind != "bool"),
)


@pytest.mark.parametrize(("operator", "kind"), REDUCED)
def test_reductions_of_every_type(operator: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They go over numbers up to the ends of the type, beside each other."""
    element = np.dtype(kind)
    code = onnx.helper.np_dtype_to_tensor_dtype(element)
    arg = operator.startswith("Arg")
    inputs = ["x"] if arg else ["x", "axis"]
    nodes = [node(operator, inputs, ["y"], **({"axis": 1} if arg else {}))]
    constants = {} if arg else {"axis": [1]}
    source = model(nodes, [tensor("x", ("n", "w", 3), code)], [tensor("y", None, onnx.TensorProto.INT64)], constants)
    proto = onnx.ModelProto.FromString(source)
    proto.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT64 if arg else code
    rng, feeds = np.random.default_rng(0), []
    for n, w in ((1, 1), (2, 5), (3, 40)):
        if kind == "bool":
            feeds.append({"x": rng.random((n, w, 3)) < 0.5})
            continue
        limits = np.iinfo(element)
        x = rng.integers(limits.min, limits.max, (n, w, 3), element, endpoint=True)
        x[0, 0, 0], x[-1, -1, 1] = limits.max, limits.min
        feeds.append({"x": x})
    with np.errstate(over="ignore"):
        check(proto.SerializeToString(), feeds, monkeypatch, 0, numpy=True)


RECURRENT = [
    ("LSTM", "forward", 4, {}),
    ("LSTM", "bidirectional", 19, {}),
    ("GRU", "reverse", 16, {"linear_before_reset": 1}),
    ("GRU", "bidirectional", 21, {"linear_before_reset": 0}),
    ("RNN", "forward", 33, {}),
]


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("kind", "direction", "hidden", "attributes"), RECURRENT, ids=str)
def test_recurrent_layers_with_weights_that_are_fed(
    kind: str, direction: str, hidden: int, attributes: dict[str, Any], biased: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Units fill panels, or do not, over open numbers of steps and rows."""
    gates, directions = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind], 1 + (direction == "bidirectional")
    shapes = {"w": (directions, gates * hidden, 5), "r": (directions, gates * hidden, hidden)}
    if biased:
        shapes["b"] = (directions, 2 * gates * hidden)
    nodes = [node(kind, ["x", *shapes], ["y", "h"], hidden_size=hidden, direction=direction, **attributes)]
    inputs = [tensor("x", ("t", "n", 5)), *(tensor(name, shape) for name, shape in shapes.items())]
    source = model(nodes, inputs, [tensor("y", None), tensor("h", None)])
    feeds = [
        {"x": data(t, n, 5), **{name: data(*shape, seed=t) / 3 for name, shape in shapes.items()}}
        for t, n in ((1, 1), (7, 1), (4, 3), (20, 2))
    ]
    check(source, feeds, monkeypatch, 1e-4)


@pytest.mark.parametrize("kind", ["uint8", "int8", "int16", "uint16"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resize_of_small_integers(kind: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    element, code = np.dtype(kind), onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    nodes = [node("Resize", ["x", "", "scales"], ["y"], mode=mode)]
    scales = {"scales": np.array([1, 1, 2, 1.5], np.float32)}
    source = model(nodes, [tensor("x", (1, 3, "h", "w"), code)], [tensor("y", None, code)], scales)
    rng, limits = np.random.default_rng(0), np.iinfo(element)
    feeds = [
        {"x": rng.integers(limits.min, limits.max, (1, 3, h, w), element, endpoint=True)}
        for h, w in ((1, 1), (5, 7), (33, 40))
    ]
    session = jitonnx.InferenceSession(source)
    assert session.engine.compiled is not None
    for feed in feeds:
        ((ours,), (theirs,)) = session.run(None, feed), on_numpy(session.engine._source, list(feed.values()))
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        # Truncated from float32 and from float64: sums that are whole numbers may lie on either side.
        assert np.abs(ours.astype(np.int64) - theirs.astype(np.int64)).max() <= (mode != "nearest")


def test_attention_of_an_open_head_size(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [node("Attention", ["q", "k", "v"], ["y"])]
    inputs = [tensor("q", ("n", 2, "s", "d")), tensor("k", ("n", 2, "t", "d")), tensor("v", ("n", 2, "t", "e"))]
    opsets = [onnx.helper.make_opsetid("", 23)]
    source = model(nodes, inputs, [tensor("y", None)], opset_imports=opsets)
    feeds = []
    for n, s, t, d, e in ((1, 4, 5, 8, 6), (2, 1, 7, 3, 16), (1, 9, 1, 64, 5)):
        feeds.append({"q": data(n, 2, s, d), "k": data(n, 2, t, d, seed=1), "v": data(n, 2, t, e, seed=2)})
    check(source, feeds, monkeypatch, 1e-4, numpy=True)


def test_statistics_of_a_layer_normalization(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [node("LayerNormalization", ["x", "s", "b"], ["y", "mean", "inverse"], axis=-1)]
    outputs = [tensor(name, None) for name in ("y", "mean", "inverse")]
    source = model(nodes, [tensor("x", ("n", "w", 12))], outputs, {"s": data(12), "b": data(12, seed=1)})
    check(source, [{"x": data(n, w, 12)} for n, w in ((1, 1), (2, 5), (3, 40))], monkeypatch, 1e-4)


def test_center_crop_pad(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [node("CenterCropPad", ["x", "size"], ["y"], axes=[1, 2])]
    source = model(nodes, [tensor("x", ("n", "h", "w"))], [tensor("y", None)], {"size": [6, 5]})
    check(source, [{"x": data(2, h, w)} for h, w in ((6, 5), (3, 9), (9, 4), (1, 1), (7, 6))], monkeypatch)
