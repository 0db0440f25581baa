"""Boxes and regions of images."""

from __future__ import annotations

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dims import minimum
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError, Operator
from jitonnx.ir.types import TensorType


class NonMaxSuppression(Operator):
    """Boxes chosen greedily by score, without those that overlap a chosen one: rows of (batch, class, box).

    In a batch and class the boxes of the largest scores come first, of equal ones the first; a box is left out if its
    intersection with a chosen one is above iou_threshold of their union, or its score is not above score_threshold.
    """

    counted = True

    center_point_box: int = 0

    def infer(
        self,
        context: InferenceContext,
        boxes: Value,
        scores: Value,
        limit: Value | None = None,
        iou_threshold: Value | None = None,
        score_threshold: Value | None = None,
    ) -> TensorType:
        if len(boxes.shape) != 3 or len(scores.shape) != 3 or not context.demand_equal(boxes.shape[2], 4):
            raise InferenceError(f"boxes {boxes.type}, scores {scores.type}: [n,boxes,4] and [n,classes,boxes] needed")
        if not (
            context.demand_equal(boxes.shape[0], scores.shape[0])
            and context.demand_equal(boxes.shape[1], scores.shape[2])
        ):
            raise InferenceError(f"boxes {boxes.type} do not go with scores {scores.type}")
        return TensorType(DType.INT64, (None, 3))  # type: ignore[arg-type]

    def evaluate(
        self,
        boxes: np.ndarray,
        scores: np.ndarray,
        limit: np.ndarray | None = None,
        iou_threshold: np.ndarray | None = None,
        score_threshold: np.ndarray | None = None,
    ) -> np.ndarray:
        most = 0 if limit is None else int(limit.reshape(-1)[0])
        overlap = 0.0 if iou_threshold is None else float(iou_threshold.reshape(-1)[0])
        if not 0 <= overlap <= 1:
            raise ValueError(f"iou_threshold is {overlap}; it has to be in [0, 1]")
        least = None if score_threshold is None else np.float32(score_threshold.reshape(-1)[0])
        if most <= 0:
            return np.zeros((0, 3), np.int64)
        rows = []
        for batch, (some, by_class) in enumerate(zip(boxes, scores, strict=True)):
            corners = self._corners(some)
            for kind, row in enumerate(by_class):
                found = np.arange(len(row)) if least is None else np.flatnonzero(row > least)
                order = found[np.argsort(-row[found], kind="stable")]
                rows += [(batch, kind, box) for box in _not_overlapping(corners, order, most, overlap)]
        return np.array(rows, np.int64).reshape(-1, 3)

    def lower(
        self,
        to: Lowering,
        boxes: Value,
        scores: Value,
        limit: Value | None = None,
        iou_threshold: Value | None = None,
        score_threshold: Value | None = None,
    ) -> Value:
        batches, classes, most = scores.shape
        limit = limit or to.constant(np.zeros(1, np.int64))
        if limit.constant is not None:
            most = minimum(most, max(int(limit.constant.reshape(-1)[0]), 0))
        overlap = iou_threshold or to.constant(np.zeros(1, np.float32))
        least = score_threshold or to.constant(np.zeros(1, np.float32))
        computation = c.NonMaxSuppression(bool(self.center_point_box), score_threshold is not None, most)
        operands = (boxes, scores, limit, overlap, least)
        return to.counted(computation, operands, DType.INT64, batches * classes * most * 3)

    def _corners(self, boxes: np.ndarray) -> np.ndarray:
        """The lowest and highest coordinates: [4, boxes] of (y1, x1, y2, x2), or with x and y exchanged."""
        a, b, c_, d = boxes.T
        if self.center_point_box:
            return np.stack([b - d / 2, a - c_ / 2, b + d / 2, a + c_ / 2])
        return np.stack([np.minimum(a, c_), np.minimum(b, d), np.maximum(a, c_), np.maximum(b, d)])


def _not_overlapping(corners: np.ndarray, order: np.ndarray, most: int, overlap: float) -> list[int]:
    """The first `most` of the boxes in this order that overlap none before them too much.

    Boxes are looked at in blocks: those that a chosen one of the blocks before leaves, each beside each.
    """
    chosen: list[int] = []
    for start in range(0, len(order), _NMS_BLOCK):
        block = order[start : start + _NMS_BLOCK]
        if chosen:
            block = block[~_overlaps(corners[:, chosen], corners[:, block], overlap).any(axis=0)]
        beside = _overlaps(corners[:, block], corners[:, block], overlap)
        gone = np.zeros(len(block), bool)
        for place, box in enumerate(block.tolist()):
            if gone[place]:
                continue
            chosen.append(box)
            if len(chosen) == most:
                return chosen
            gone |= beside[place]
    return chosen


_NMS_BLOCK = 128

"""Boxes that are compared each with each at once."""


def _overlaps(a: np.ndarray, b: np.ndarray, overlap: float) -> np.ndarray:
    """Whether the intersection of each of the boxes `a` with each of `b` is above `overlap` of their union."""
    top, left, bottom, right = a[:, :, None]
    height = np.minimum(bottom, b[2]) - np.maximum(top, b[0])
    width = np.minimum(right, b[3]) - np.maximum(left, b[1])
    shared = np.maximum(height, 0) * np.maximum(width, 0)
    areas, others = (bottom - top) * (right - left), (b[2] - b[0]) * (b[3] - b[1])
    union = areas + others - shared
    with np.errstate(all="ignore"):
        return (areas > 0) & (others > 0) & (union > 0) & (shared / union > np.float32(overlap))
