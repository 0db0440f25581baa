"""Users' kernels (a 2-D stencil, a suppression of boxes) beside the same on NumPy, on one thread and on two.

    python -m bench.user_kernels

A row of a Markdown table for each: milliseconds of a run by an operator that NumPy evaluates, by the kernel on one
thread and on two (wall clock: least of turns), and how many times faster each is than the one before.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from onnx import TensorProto, helper

import jitonnx
from jitonnx import custom

DOMAIN = "bench.kernels"
ROUNDS = 15
MANY = 10
"""Runs of a kernel in its turn: few are undisturbed on both cores of a busy machine."""


def _same(self: Any, context: Any, x: Any) -> Any:
    return x.type


def _kept(self: Any, context: Any, boxes: Any, scores: Any) -> Any:
    return custom.TensorType(custom.DType.BOOL, scores.shape)


@custom.kernel(domain=DOMAIN, outputs=["Y: T"], infer=_same, items=lambda self, x, y: y.shape[0])
def Median(x: Any, y: Any, begin: Any, end: Any) -> None:
    """The median of each pixel's row of five neighbours above, below and beside it; the border stays."""
    height, width = x.shape
    for i in range(begin, end):
        for j in range(width):
            y[i, j] = x[i, j]
            if 0 < i < height - 1 and 0 < j < width - 1:
                a, b, c, d, m = x[i - 1, j], x[i + 1, j], x[i, j - 1], x[i, j + 1], x[i, j]
                low, high = max(min(a, b), min(c, d)), min(max(a, b), max(c, d))
                y[i, j] = max(min(low, high), min(m, max(low, high)))


class MedianNumPy(custom.Operator):
    """`Median` on NumPy: the middle of five images, each shifted."""

    domain, inputs, outputs = DOMAIN, ("X",), ("Y",)

    infer = _same

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        y = x.copy()
        near = [x[:-2, 1:-1], x[2:, 1:-1], x[1:-1, :-2], x[1:-1, 2:], x[1:-1, 1:-1]]
        y[1:-1, 1:-1] = np.median(np.stack(near), axis=0)
        return y


@custom.kernel(
    domain=DOMAIN,
    inputs=["boxes: T", "scores: T"],
    outputs=["kept: tensor(bool)"],
    types=[custom.DType.FLOAT],
    infer=_kept,
    items=lambda self, boxes, scores, kept: kept.shape[0],
    cost=200,
)
def Suppress(boxes: Any, scores: Any, kept: Any, begin: Any, end: Any) -> None:
    """Boxes that no better one of their class overlaps by half or more of both; a class an item, boxes in order."""
    for c in range(begin, end):
        for i in range(boxes.shape[0]):
            kept[c, i] = scores[c, i] > 0
        for i in range(boxes.shape[0]):
            if kept[c, i]:
                own = (boxes[i, 2] - boxes[i, 0]) * (boxes[i, 3] - boxes[i, 1])
                for j in range(i + 1, boxes.shape[0]):
                    if kept[c, j]:
                        wide = min(boxes[i, 2], boxes[j, 2]) - max(boxes[i, 0], boxes[j, 0])
                        high = min(boxes[i, 3], boxes[j, 3]) - max(boxes[i, 1], boxes[j, 1])
                        if wide > 0 and high > 0:
                            other = (boxes[j, 2] - boxes[j, 0]) * (boxes[j, 3] - boxes[j, 1])
                            if 2 * wide * high > own + other - wide * high:
                                kept[c, j] = False


class SuppressNumPy(custom.Operator):
    """`Suppress` on NumPy: each box with all behind it at once."""

    domain, inputs, outputs = DOMAIN, ("boxes", "scores"), ("kept: tensor(bool)",)

    infer = _kept

    def evaluate(self, boxes: np.ndarray, scores: np.ndarray) -> np.ndarray:
        kept = scores > 0
        areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        for row in kept:
            for i in range(len(boxes)):
                if row[i]:
                    behind = boxes[i + 1 :]
                    low, high = np.maximum(boxes[i, :2], behind[:, :2]), np.minimum(boxes[i, 2:], behind[:, 2:])
                    shared = np.maximum(high - low, 0).prod(1)
                    row[i + 1 :] &= ~(2 * shared > areas[i] + areas[i + 1 :] - shared)
        return kept


def session(declared: Any, feeds: dict[str, np.ndarray], threads: int) -> jitonnx.InferenceSession:
    """A session of the operator alone."""
    options = jitonnx.SessionOptions()
    options.intra_op_num_threads = threads
    options.register_custom_ops(declared)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape) for name, x in feeds.items()]
    node = helper.make_node(declared.name, list(feeds), ["y"], domain=DOMAIN)
    graph = helper.make_graph([node], "graph", values, [helper.make_empty_tensor_value_info("y")])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    return jitonnx.InferenceSession(
        helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString(), options
    )


def main() -> None:
    """Print the table."""
    random = np.random.default_rng(0)
    corners = random.uniform(0, 100, (1000, 2))
    boxes = np.concatenate([corners, corners + random.uniform(1, 9, (1000, 2))], 1).astype(np.float32)
    scores = random.uniform(-1, 1, (16, 1000)).astype(np.float32)
    cases: list[tuple[str, Any, Any, dict[str, np.ndarray]]] = [
        ("median of 5, 1024 x 1024", Median, MedianNumPy, {"x": random.normal(size=(1024, 1024)).astype(np.float32)}),
        ("suppression, 1000 boxes, 16 classes", Suppress, SuppressNumPy, {"boxes": boxes, "scores": scores}),
    ]
    print("| kernel | NumPy ms | one thread ms | two ms | times NumPy | times one thread |")
    print("|---|---|---|---|---|---|")
    for label, ours, theirs, feeds in cases:
        ways = [session(theirs, feeds, 1), session(ours, feeds, 1), session(ours, feeds, 2)]
        results = [way.run(None, feeds)[0] for way in ways]
        for result in results[1:]:
            np.testing.assert_array_equal(result, results[0])
        least = [float("inf")] * len(ways)
        for _ in range(ROUNDS):
            for number, way in enumerate(ways):
                for _ in range(1 if number == 0 else MANY):
                    begun = time.perf_counter()
                    way.run(None, feeds)
                    least[number] = min(least[number], (time.perf_counter() - begun) * 1e3)
        numpy, one, two = least
        print(f"| {label} | {numpy:.2f} | {one:.2f} | {two:.2f} | {numpy / one:.1f} | {one / two:.2f} |")


if __name__ == "__main__":
    main()
