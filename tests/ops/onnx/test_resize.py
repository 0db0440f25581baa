"""Resize and Upsample: modes, coordinates, scales and sizes, axes, aspect ratio, antialiasing, old versions."""

from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from jitonnx import InferenceSession, errors
from jitonnx.ir.computation.resampling import scaled
from jitonnx.ir.dims import evaluate, variable
from jitonnx.ops.onnx.resize import Resize
from tests.ops.harness import Case, build, case, check, check_refused, retyped

RANDOM = np.random.default_rng(0)
IMAGE = RANDOM.normal(size=(2, 2, 7, 5)).astype(np.float32)
BYTES = np.random.default_rng(1).integers(0, 256, (1, 2, 7, 5), np.uint8)
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
SCALES = ([1, 1, 2, 3], [1, 1, 0.5, 0.6], [1, 1, 0.7, 1.3], [1, 1, 1, 0.8])
SIZES = ([2, 2, 3, 9], [2, 2, 14, 2], [2, 2, 1, 1])


def by_scales(x: np.ndarray, scales: Any, version: int, roi: Any = None, **options: Any) -> Case:
    empty = np.array([], np.float32) if version == 11 else None
    roi = empty if roi is None else np.float32(roi)
    return case("Resize", version, x, roi, np.float32(scales), constants=(1, 2), rtol=1e-4, atol=1e-5, **options)


def by_sizes(x: np.ndarray, sizes: Any, version: int, roi: Any = None, **options: Any) -> Case:
    empty = np.array([], np.float32) if version == 11 else None
    roi = empty if roi is None else np.float32(roi)
    sizes = np.int64(sizes)
    return case("Resize", version, x, roi, empty, sizes, constants=(1, 2, 3), rtol=1e-4, atol=1e-5, **options)


CASES: list[Case] = []
for version in (11, 13, 18, 19):
    for coordinates in (*COORDINATES, *["half_pixel_symmetric"] * (version > 13)):
        for options in (*({"nearest_mode": nearest} for nearest in NEAREST), {"mode": "linear"}, {"mode": "cubic"}):
            tie = coordinates in ("half_pixel_symmetric", "align_corners") and options.get("nearest_mode") == "floor"
            options = {**options, "coordinate_transformation_mode": coordinates}
            # At 0.6 a coordinate falls on an integer but for rounding.
            CASES += [by_scales(IMAGE, s, version, **options) for s in SCALES if not (tie and 0.6 in s)]
            CASES += [by_sizes(IMAGE, sizes, version, **options) for sizes in SIZES]
    crop = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 7.0}
    area = [0, 0, 0.1, -0.1, 1, 1, 0.8, 1.2]
    for mode in ("nearest", "linear", "cubic"):
        CASES += [by_scales(IMAGE, s, version, area, mode=mode, **crop) for s in SCALES[:3]]
        CASES += [by_sizes(IMAGE, sizes, version, area, mode=mode, **crop) for sizes in SIZES]
    cubic = {"mode": "cubic", "exclude_outside": 1, "cubic_coeff_a": -0.5}
    CASES += [
        by_scales(IMAGE, [1, 1, 1.5, 0.6], version, coordinate_transformation_mode=c, **cubic) for c in COORDINATES
    ]
for version in (18, 19):
    for policy in ("not_larger", "not_smaller"):
        for mode in ("nearest", "linear", "cubic"):
            kept = {"mode": mode, "keep_aspect_ratio_policy": policy}
            CASES += [by_sizes(IMAGE, [9, 11], version, axes=[2, 3], **kept)]
            CASES += [by_sizes(IMAGE, [3, 4], version, axes=[3, 2], **kept)]
    for mode in ("linear", "cubic"):
        for outside in (0, 1):
            smooth = {"mode": mode, "antialias": 1, "exclude_outside": outside}
            CASES += [by_scales(IMAGE, [1, 1, 0.6, 0.3], version, **smooth)]
            CASES += [by_sizes(IMAGE, [2, 2, 5, 12], version, **smooth)]
    CASES += [by_scales(IMAGE[0], [2, 0.5], version, mode="linear", axes=[-1, 1])]
for growth in (0.5, 0.6, 0.75, 0.3, 1.5, 2.5):
    for mode in ("nearest", "linear"):
        factors = np.array([1, 1, growth, 1.3], np.float32)
        CASES.append(case("Resize", 10, IMAGE, factors, mode=mode, constants=(1,)))
        if growth > 1:
            CASES.append(case("Upsample", 9, IMAGE, factors, mode=mode, constants=(1,)))
            CASES.append(case("Upsample", 7, IMAGE, mode=mode, scales=factors.tolist()))
REPEATED = IMAGE.repeat(2, 2).repeat(3, 3)
INTEGERS = RANDOM.integers(0, 100, (1, 1, 4, 5))
CASES += [
    case("Upsample", 1, IMAGE, height_scale=2.0, width_scale=3.0, expected=REPEATED),
    by_scales(IMAGE, [1, 1, 2, 2], 11, coordinate_transformation_mode="tf_half_pixel_for_nn"),
    *retyped(by_scales(INTEGERS, [1, 1, 1.5, 1.7], 19), np.float64, np.int32, np.int8, np.uint8, np.float16),
    *retyped(
        by_scales(INTEGERS, [1, 1, 1.5, 1.7], 19, mode="linear"), np.int32, np.int8, np.float16, ml_dtypes.bfloat16
    ),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_resize(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("seed", range(100))
def test_sizes_and_ties_are_those_of_onnxruntime(seed: int) -> None:
    """Random scales: the output's size, and at nearest every element, hang on the last bit of float32."""
    random = np.random.default_rng(seed)
    length = int(random.integers(1, 60))
    quotient = random.integers(1, 40) / random.integers(1, 40)
    options = {
        "coordinate_transformation_mode": str(random.choice([name for name in COORDINATES if name != "align_corners"])),
        "nearest_mode": str(random.choice(NEAREST)),
    }
    x = np.arange(length, dtype=np.float32)
    check(by_scales(x, [random.choice([quotient, random.random() * 3 + 0.05])], 13, **options))


@pytest.mark.parametrize(("length", "output"), [(7, 8), (15, 8), (15, 18), (77, 22), (14, 1)])
@pytest.mark.parametrize("coordinates", ["asymmetric", "half_pixel"])
def test_halves_that_a_rounded_scale_misses_go_up(coordinates: str, length: int, output: int) -> None:
    x = np.arange(length, dtype=np.float32)
    options = {"coordinate_transformation_mode": coordinates, "nearest_mode": "round_prefer_ceil"}
    check(by_sizes(x, [output], 13, **options))


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("scales", [[1, 1, 1, 0.37], [1, 1, 0.4, 1], [1, 1, 1, 0.5]])
def test_antialiased_bytes_are_rounded_to_the_nearest(mode: str, scales: list[float]) -> None:
    x = np.random.default_rng(3).integers(0, 256, (1, 2, 17, 23)).astype(np.uint8)
    check(by_scales(x, scales, 18, mode=mode, antialias=1))


@pytest.mark.parametrize("scale", [0.7, 1.1, 1 / 3, 2.0, 0.123456])
def test_a_symbolic_size_scales_as_the_number_does(scale: float) -> None:
    scale = float(np.float32(scale))
    size = scaled(variable("n"), scale)
    assert [evaluate(size, {"n": n}) for n in range(200)] == [scaled(n, scale) for n in range(200)]


@pytest.mark.parametrize(
    ("refused", "text"),
    [
        (by_scales(IMAGE, [1, 2], 13), "scales has 2 elements, 4 expected"),
        (by_scales(IMAGE, [1, 1, 0, 1], 13), "scales must be above 0"),
        (
            case("Resize", 13, IMAGE, None, np.ones(4, np.float32), np.array(IMAGE.shape), constants=(2, 3)),
            "scales and sizes are given",
        ),
        (by_scales(IMAGE, [1, 1, 2, 2], 13, mode="area"), "mode 'area'"),
        (by_scales(IMAGE, [1, 1, 2, 2], 19, antialias=1), "antialias is for the modes linear and cubic"),
        (by_sizes(IMAGE[:, :, :0], [2, 2, 3, 3], 19), "an axis of 0 elements cannot be resized to 3"),
        (
            case("Upsample", 10, IMAGE, np.array([1, 1, 2, 2], np.float32), constants=(1,)),
            "Upsample is deprecated in domain",
        ),
    ],
    ids=str,
)
def test_refused(refused: Case, text: str) -> None:
    check_refused(refused, text)


def test_neither_scales_nor_sizes() -> None:
    """An error of the run, as in onnxruntime: the node may be where no run comes."""
    nothing = np.zeros(0, np.float32)
    session = InferenceSession(build(case("Resize", 13, IMAGE, nothing, nothing)).SerializeToString())
    with pytest.raises(errors.Error, match="either scales or sizes is needed"):
        session.run(None, {"x0": IMAGE, "x1": nothing, "x2": nothing})


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("sizes", [[1, 2, 5, 12], [1, 2, 9, 3], [1, 2, 7, 4]])
def test_antialiased_bytes_are_rounded_behind_each_axis(sizes: list[int], mode: str) -> None:
    """onnxruntime has weights of 22 bits: what lies that near to a half may be rounded to the other side."""
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode=mode, antialias=1)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [1, 2, "h", "w"])],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, None)],
        [helper.make_tensor("sizes", TensorProto.INT64, [4], sizes)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=10).SerializeToString()
    expected = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": BYTES})[0]
    compiled = InferenceSession(model).run(None, {"x": BYTES})[0]
    evaluated = Resize(mode=mode, antialias=True).evaluate(BYTES, None, None, np.array(sizes))
    for result in (compiled, evaluated):
        off = np.abs(result.astype(int) - expected)
        assert off.max() <= 1
        assert off.mean() < 0.1


NAN = 3


def patterns(x: np.ndarray) -> np.ndarray:
    """0 where finite, 1 and 2 at infinities, NAN there."""
    return np.select([np.isnan(x), np.isposinf(x), np.isneginf(x)], [NAN, 1, 2], 0)


@pytest.mark.parametrize("channels", [1, 9])
@pytest.mark.parametrize("dims", ["fixed", "open"])
@pytest.mark.parametrize(
    ("attributes", "extents", "outputs"),
    [
        # Both taps of an output are one element: at clamped edges, and all along an axis of one.
        ({"mode": "linear"}, (1, 5), (1, 9)),
        ({"mode": "linear"}, (5, 1), (9, 1)),
        ({"mode": "linear"}, (1, 5), (3, 4)),
        ({"mode": "linear", "coordinate_transformation_mode": "asymmetric"}, (1, 1), (1, 6)),
        ({"mode": "linear", "coordinate_transformation_mode": "asymmetric"}, (5, 1), (10, 6)),
        # Elements that an output is not made of do not count, be it along the axis or along one that stays.
        ({"mode": "linear", "antialias": 1}, (3, 6), (3, 3)),
        ({"mode": "linear", "antialias": 1}, (7, 5), (3, 9)),
        ({"mode": "cubic", "antialias": 1}, (1, 5), (1, 9)),
        ({"mode": "cubic", "antialias": 1}, (6, 3), (3, 3)),
    ],
    ids=str,
)
def test_infinity_becomes_nan_only_where_it_does_in_onnxruntime(
    attributes: dict[str, Any], extents: tuple[int, int], outputs: tuple[int, int], dims: str, channels: int
) -> None:
    shape = [1, channels, *extents]
    graph = helper.make_graph(
        [helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], **attributes)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "c", "h", "w"] if dims == "open" else shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [helper.make_tensor("sizes", TensorProto.INT64, [4], [1, channels, *outputs])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9).SerializeToString()
    theirs = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    ours = InferenceSession(model)
    for place in np.ndindex(extents):
        x = np.zeros(shape, np.float32)
        x[(0, -1, *place)] = np.inf
        expected = patterns(theirs.run(None, {"x": x})[0])
        evaluated = Resize(**attributes).evaluate(x, None, None, np.int64([1, channels, *outputs]))
        for y in (ours.run(None, {"x": x})[0], evaluated):
            np.testing.assert_array_equal(np.where(expected == NAN, NAN, patterns(y)), expected)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("shape", [[1, 3, 4, 6], ["n", "c", "h", "w"]])
def test_infinity_does_not_leave_its_place_on_axes_that_stay(shape: list[Any], mode: str) -> None:
    """onnxruntime multiplies its neighbours by 0 there."""
    graph = helper.make_graph(
        [helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode=mode)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [helper.make_tensor("sizes", TensorProto.INT64, [4], [1, 3, 4, 12])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9).SerializeToString()
    x = np.zeros((1, 3, 4, 6), np.float32)
    x[0, 1, 2, 3] = np.inf
    y = InferenceSession(model).run(None, {"x": x})[0]
    assert not np.isfinite(y[0, 1, 2]).all()
    y[0, 1, 2] = 0
    assert (y == 0).all()
