"""RoiAlign and MaxRoiPool: versions, modes, numbers of samples, regions outside, empty or turned round."""

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper

from jitonnx import InferenceSession, errors
from tests.ops.harness import Case, build, case, check, check_refused, each_version, retyped, run_onnxruntime

RANDOM = np.random.default_rng(6)
X = RANDOM.normal(size=(2, 3, 13, 17)).astype(np.float32)
WIDE = RANDOM.normal(size=(2, 37, 13, 17)).astype(np.float32)


def regions(count: int, reach: float = 1.0) -> np.ndarray:
    """Corners (x1, y1, x2, y2) on an image of 34 by 26, which is scaled by 0.5."""
    corners = np.sort(RANDOM.uniform(-0.2, reach, (count, 2, 2)) * [34, 26], axis=1)
    return corners.reshape(count, 4).astype(np.float32)


ROIS, IMAGES = regions(9), RANDOM.integers(0, 2, 9)
ODD = np.array(
    [[-90, -90, -50, -40], [5, 5, 5, 5], [20, 18, 4, 6], [0, 0, 34, 26], [33, 25, 40, 30], [-1, -2, 3, 4]], np.float32
)
ODD_IMAGES = np.array([0, 1, 0, 1, 0, 1])
HALF = {"spatial_scale": 0.5, "output_height": 3, "output_width": 5}


def with_images(rois: np.ndarray, images: np.ndarray) -> np.ndarray:
    return np.concatenate([images[:, None].astype(rois.dtype), rois], axis=1)


def pooled(dtype: Any) -> Case:
    """Version 22, which only differs from what onnxruntime has by its types."""
    x, rois = X.astype(dtype), with_images(np.rint(ROIS), IMAGES).astype(dtype)
    options = {"pooled_shape": [3, 5], "spatial_scale": 0.5}
    old = case("MaxRoiPool", 1, x.astype(np.float32), rois.astype(np.float32), **options)
    expected = run_onnxruntime(build(old), {"x0": old.inputs[0], "x1": old.inputs[1]})
    assert expected is not None
    return case("MaxRoiPool", 22, x, rois, expected=expected[0].astype(dtype), **options)


CASES: list[Case] = [
    *(
        c
        for mode in ("avg", "max")
        for sampling in (0, 1, 2, 3)
        for c in each_version("RoiAlign", X, ROIS, IMAGES, mode=mode, sampling_ratio=sampling, **HALF, atol=1e-5)
    ),
    *(
        case("RoiAlign", 16, x, ODD, ODD_IMAGES, mode=mode, sampling_ratio=sampling, **HALF, atol=1e-5,
             coordinate_transformation_mode=coordinates)
        for x in (X, WIDE)
        for mode in ("avg", "max")
        for sampling in (0, 2)
        for coordinates in ("half_pixel", "output_half_pixel")
    ),
    case("RoiAlign", 16, X, ROIS, IMAGES),
    case("RoiAlign", 16, X, ROIS, IMAGES, output_height=2, output_width=40, sampling_ratio=2, atol=1e-5),
    *(
        c
        for mode in ("avg", "max")
        for c in retyped(
            case("RoiAlign", 22, X, np.rint(ROIS), IMAGES, mode=mode, sampling_ratio=2, **HALF, constants=(2,)),
            np.float64, np.float16, ml_dtypes.bfloat16,
        )
    ),
    *(pooled(dtype) for dtype in (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)),
    *(
        case("MaxRoiPool", 1, x, with_images(rois, images), pooled_shape=shape, spatial_scale=scale)
        for x in (X, WIDE)
        for rois, images in ((ROIS, IMAGES), (ODD, ODD_IMAGES))
        for shape, scale in (([3, 5], 0.5), ([1, 1], 0.25), ([20, 2], 1.0))
    ),
    case("MaxRoiPool", 1, -np.abs(X), with_images(ODD, ODD_IMAGES), pooled_shape=[2, 3]),
    case("RoiAlign", 16, X, ROIS[:0], IMAGES[:0], **HALF, expected=np.zeros((0, 3, 3, 5), np.float32)),
    case("RoiAlign", 16, X[:, :0], ROIS, IMAGES, **HALF, expected=np.zeros((9, 0, 3, 5), np.float32)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_regions(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("sampling", [0, 2])
@pytest.mark.parametrize("channels", [5, 37, 100])
def test_images_whose_channels_lie_side_by_side(mode: str, sampling: int, channels: int) -> None:
    """Behind a convolution an image lies so, and its regions do."""
    weights = RANDOM.normal(size=(channels, 3, 1, 1)).astype(np.float32)
    align = case("RoiAlign", 16, X, ROIS, IMAGES, mode=mode, sampling_ratio=sampling, **HALF)
    model = build(align)
    model.graph.node[0].input[0] = "convolved"
    convolution = helper.make_node("Conv", ["x0", "weights"], ["convolved"])
    nodes = [convolution, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "weights"))
    feeds = {"x0": X, "x1": ROIS, "x2": IMAGES}
    expected = run_onnxruntime(model, feeds)
    assert expected is not None
    (result,) = InferenceSession(model.SerializeToString()).run(None, feeds)
    np.testing.assert_allclose(result, expected[0], 1e-4, 1e-4)


@pytest.mark.parametrize("image", [-1, 2])
def test_images_that_are_not_there(image: int) -> None:
    session = InferenceSession(build(case("RoiAlign", 16, X, ROIS[:1], np.array([0]))))
    with pytest.raises(errors.Error, match=r"RoiAlign node 'node'.*outside the batch axis of 'x0'"):
        session.run(None, {"x0": X, "x1": ROIS[:1], "x2": np.array([image])})


@pytest.mark.parametrize("sampling", [0, 2])
def test_regions_that_are_no_numbers_end(sampling: int) -> None:
    strange = np.array([[np.nan] * 4, [0, 0, 1e30, 1e30]], np.float32)
    session = InferenceSession(build(case("RoiAlign", 16, X, strange, IMAGES[:2], sampling_ratio=sampling)))
    (result,) = session.run(None, {"x0": X, "x1": strange, "x2": IMAGES[:2]})
    assert result.shape == (2, 3, 1, 1)


REFUSED = [
    (case("RoiAlign", 16, X, ROIS, IMAGES, mode="min"), "mode is 'min'"),
    (
        case("RoiAlign", 16, X, ROIS, IMAGES, coordinate_transformation_mode="x"),
        "coordinate_transformation_mode is 'x'",
    ),
    (case("RoiAlign", 16, X, ROIS[:, :3], IMAGES), r"\[R, 4\] expected"),
    (case("RoiAlign", 16, X, ROIS, IMAGES[:3]), r"\[R, 4\] and \[R\] expected"),
    (case("RoiAlign", 16, X, ROIS, IMAGES, sampling_ratio=-1), "sampling_ratio -1.*a ratio of at least 0"),
    (case("RoiAlign", 16, X, ROIS, IMAGES.astype(np.int32)), "allowed are int64"),
    (case("RoiAlign", 16, X, ROIS, IMAGES, output_height=0), "output_height is 0; at least 1"),
    (case("RoiAlign", 16, X, ROIS.astype(np.float64), IMAGES), "different element types"),
]


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_refused(case: Case, text: str) -> None:
    check_refused(case, text)
