"""The kernels of NonMaxSuppression against the operator on NumPy and onnxruntime, whose order they keep.

Where onnxruntime is not at hand, as under an emulator, NumPy alone says what is right.
"""

from __future__ import annotations

import functools
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from jitonnx.kernels.nms.kernel import build
from jitonnx.kernels.nms.spec import NmsSpec, SelectedSpec
from jitonnx.ops.onnx.object_detection import NonMaxSuppression
from jitonnx.target.machine import host
from tests.kernels.guarded import guarded
from tests.kernels.harness import Compiled
from tests.targets import named

TARGETS = {"host": host(), "haswell": named("haswell")}


@functools.cache
def compiled(spec: Any, target: str) -> Compiled:
    cpu = TARGETS[target]
    return Compiled(build(spec, cpu.lanes(4)), cpu)


def suppressed(
    boxes: np.ndarray,
    scores: np.ndarray,
    limit: int,
    overlap: float,
    least: float | None,
    centers: int,
    target: str = "host",
    pieces: int = 1,
) -> np.ndarray:
    batches, classes, count = scores.shape
    most = min(count, limit)
    spec = NmsSpec(bool(centers), least is not None)
    sizes = spec.given([batches, classes, count, most])
    chosen, counts = np.full((batches * classes, most), -1, np.int64), np.full(batches * classes, -1, np.int64)
    error = np.zeros(1, np.int64)
    given = [np.array([limit]), np.array([overlap], np.float32), np.array([0 if least is None else least], np.float32)]
    buffers = [guarded(boxes), guarded(scores), *given, chosen, counts, error]
    compiled(spec, target)(buffers, sizes, spec.tasks(sizes), spec.scratch_bytes(sizes), pieces)
    assert error[0] == (not 0 <= overlap <= 1)
    out, total = np.full((batches * classes * most, 3), -1, np.int64), np.full(1, -1, np.int64)
    compiled(SelectedSpec(), target)([chosen, counts, out, total], [batches, classes, most], 1)
    assert (out[total[0] :] == -1).all()
    return out[: total[0]]


@functools.cache
def onnxruntimes(centers: int, thresholded: bool) -> Any:
    import onnxruntime

    names = ["boxes", "scores", "limit", "overlap", *(["least"] if thresholded else [])]
    node = helper.make_node("NonMaxSuppression", names, ["y"], center_point_box=centers)
    kinds = {"limit": TensorProto.INT64}
    inputs = [helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT), None) for name in names]
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.INT64, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8)
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def check(boxes: np.ndarray, scores: np.ndarray, limit: int, overlap: float, least: float | None, centers: int) -> None:
    feeds = {
        "boxes": boxes,
        "scores": scores,
        "limit": np.array([limit]),
        "overlap": np.array([overlap], np.float32),
        **({} if least is None else {"least": np.array([least], np.float32)}),
    }
    expected = NonMaxSuppression(center_point_box=centers).evaluate(*feeds.values())
    if find_spec("onnxruntime"):
        np.testing.assert_array_equal(expected, onnxruntimes(centers, least is not None).run(None, feeds)[0])
    for target in TARGETS:
        for pieces in (1, 2):
            found = suppressed(boxes, scores, limit, overlap, least, centers, target, pieces)
            np.testing.assert_array_equal(found, expected)


def boxes_of(random: np.random.Generator, batches: int, count: int, centers: int) -> np.ndarray:
    """Boxes of several sizes, some of them on a grid; corners in any order."""
    middle, size = random.random((batches, count, 2)) * 3, random.random((batches, count, 2)) + 0.1
    some = random.random((batches, count, 1)) < 0.3
    middle, size = np.where(some, middle.round(1), middle), np.where(some, size.round(1), size)
    made = (middle, size) if centers else (middle - size / 2, middle + size / 2)
    return np.concatenate(made if random.random() < 0.5 or centers else made[::-1], 2).astype(np.float32)


@pytest.mark.parametrize("centers", [0, 1])
@pytest.mark.parametrize("thresholded", [False, True])
def test_against_onnxruntime(thresholded: bool, centers: int) -> None:
    random = np.random.default_rng(centers)
    for batches, classes, count in ((1, 1, 1), (2, 3, 2), (1, 2, 17), (2, 2, 100), (1, 1, 700), (1, 3, 0), (0, 2, 5)):
        for limit, overlap, least in ((1, 0.5, 0.5), (7, 0.3, 0.2), (2000, 0.0, 0.0), (2000, 1.0, 0.9), (60, 0.7, -1)):
            boxes = boxes_of(random, batches, count, centers)
            scores = random.random((batches, classes, count), np.float32)
            scores = scores.round(2) if limit % 2 else scores
            check(boxes, scores, limit, overlap, least if thresholded else None, centers)


def test_of_equal_scores_the_first() -> None:
    boxes = boxes_of(np.random.default_rng(3), 1, 50, 0)
    scores = np.repeat(np.array([[[0.0, -0.0, 1.0, -1.0, np.inf]]], np.float32), 10, 2)
    for least in (None, -0.5, -np.inf):
        check(boxes, scores, 50, 0.4, least, 0)


def test_boxes_without_area_suppress_nothing() -> None:
    boxes = np.array(
        [[[0, 0, 1, 1], [0, 0, 0, 1], [0, 0, 1, 1], [0.2, 0.2, 0.2, 0.2], [2, 2, 1, 1], [1, 1, 2, 2]]], np.float32
    )
    check(boxes, np.array([[[0.5, 0.6, 0.4, 0.9, 0.3, 0.2]]], np.float32), 6, 0.5, None, 0)


def test_limits_that_leave_nothing() -> None:
    boxes, scores = boxes_of(np.random.default_rng(4), 1, 9, 0), np.ones((1, 2, 9), np.float32)
    assert suppressed(boxes, scores, 0, 0.5, None, 0).shape == (0, 3)
    assert suppressed(boxes, scores, 5, 1.5, None, 0).shape == (0, 3)


def test_nan_is_below_all_scores() -> None:
    boxes = np.array([[[2 * n, 0, 2 * n + 1, 1] for n in range(6)]], np.float32)
    scores = np.array([[[np.nan, -np.inf, 1, np.nan, 2, -3]]], np.float32)
    assert suppressed(boxes, scores, 6, 0.5, None, 0)[:, 2].tolist() == [4, 2, 5, 1, 0, 3]
    assert suppressed(boxes, scores, 6, 0.5, -np.inf, 0)[:, 2].tolist() == [4, 2, 5]
