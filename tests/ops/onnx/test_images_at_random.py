"""Operators on images over random sizes and attributes: what is compiled against its evaluation on NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from jitonnx.engine.interpreter import evaluate
from jitonnx.engine.pipeline import Engine, Settings
from jitonnx.ir.computation.sampling import MODES, OUTSIDES
from jitonnx.model import load
from tests.ops.harness import Case, _kernel_cache, assert_same, build, case, ints

SEEDS = st.integers(0, 2**32 - 1)
quickly = settings(max_examples=30, deadline=None)


def compare(tried: Case) -> None:
    """AssertionError unless compiled code gives what the evaluation gives."""
    graph = load(build(tried)).graph
    feeds = {f"x{i}": x for i, x in enumerate(tried.inputs) if i not in tried.constants}
    wanted = evaluate(graph, feeds)
    results = Engine(graph, Settings(threads=1), _kernel_cache()).run([feeds[value.name] for value in graph.inputs])
    for result, expected in zip(results, wanted, strict=True):
        assert_same(result, expected, tried, str(tried))


@quickly
@given(
    seed=SEEDS,
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    images=st.integers(0, 2),
    channels=st.integers(0, 20),
    places=st.integers(0, 9),
    mode=st.sampled_from(sorted(MODES)),
    outside=st.sampled_from(OUTSIDES),
    aligned=st.integers(0, 1),
    reach=st.sampled_from([1.0, 1.5, 1e6]),
)
def test_grid_sample(
    seed: int, sizes: list[int], images: int, channels: int, places: int, reach: float, **options: Any
) -> None:
    random = np.random.default_rng(seed)
    x = random.normal(size=(images, channels, *sizes)).astype(np.float32)
    grid = random.uniform(-reach, reach, (images, places, *[2] * (len(sizes) - 1), len(sizes))).astype(np.float32)
    attributes = {"padding_mode": options["outside"], "align_corners": options["aligned"], "mode": options["mode"]}
    if reach > 2 and options["mode"] != "nearest" and options["outside"] == "reflection":
        return  # the remainder of a large number is another one for each order of operations
    compare(case("GridSample", 22, x, grid, **attributes, atol=1e-4, rtol=1e-4))


@quickly
@given(
    seed=SEEDS,
    channels=st.integers(1, 20),
    height=st.integers(1, 12),
    width=st.integers(1, 40),
    regions=st.integers(0, 5),
    out=st.tuples(st.integers(1, 4), st.integers(1, 20)),
    sampling=st.integers(0, 3),
    mode=st.sampled_from(["avg", "max"]),
    coordinates=st.sampled_from(["half_pixel", "output_half_pixel"]),
)
def test_roi_align(seed: int, channels: int, height: int, width: int, regions: int, **options: Any) -> None:
    random = np.random.default_rng(seed)
    x = random.normal(size=(2, channels, height, width)).astype(np.float32)
    corners = random.uniform(-2, 1.2 * max(height, width), (regions, 4)).astype(np.float32)
    out_height, out_width = options["out"]
    attributes = {
        "output_height": out_height,
        "output_width": out_width,
        "sampling_ratio": options["sampling"],
        "mode": options["mode"],
        "coordinate_transformation_mode": options["coordinates"],
    }
    images = random.integers(0, 2, regions)
    compare(case("RoiAlign", 22, x, corners, images, **attributes, atol=1e-4, rtol=1e-4))


@quickly
@given(
    seed=SEEDS,
    axes=st.lists(
        st.tuples(st.integers(1, 20), st.integers(1, 3), st.integers(1, 5), st.integers(1, 3), st.integers(0, 2)),
        min_size=1,
        max_size=3,
    ),
    channels=st.integers(1, 3),
    dtype=st.sampled_from([np.float32, np.int32, np.uint8]),
)
def test_col2im(seed: int, axes: list[tuple[int, ...]], channels: int, dtype: type) -> None:
    image, block, strides, dilations, pads = zip(*axes, strict=True)
    counts = [
        (size + 2 * pad - (length - 1) * dilation - 1) // stride + 1 for size, length, stride, dilation, pad in axes
    ]
    if min(counts) < 1:
        return
    random = np.random.default_rng(seed)
    x = random.integers(0, 99, (2, channels * int(np.prod(block)), int(np.prod(counts)))).astype(dtype)
    attributes = {"strides": strides, "dilations": dilations, "pads": [*pads, *pads]}
    compare(case("Col2Im", 18, x, ints(*image), ints(*block), constants=(1, 2), **attributes))


@quickly
@given(
    seed=SEEDS,
    shape=st.lists(st.integers(1, 6), min_size=2, max_size=4),
    operator=st.sampled_from(["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"]),
    reduction=st.sampled_from(["none", "sum", "mean"]),
    weighted=st.booleans(),
    ignored=st.sampled_from([None, 0, -1]),
)
def test_losses(
    seed: int, shape: list[int], operator: str, reduction: str, weighted: bool, ignored: int | None
) -> None:
    random = np.random.default_rng(seed)
    x = random.normal(size=shape).astype(np.float32)
    target = random.integers(0, shape[1], (shape[0], *shape[2:]))
    if ignored is not None:
        target = np.where(random.random(target.shape) < 0.3, ignored, target)
    weights = [random.uniform(0.5, 2, shape[1]).astype(np.float32)] if weighted else []
    attributes = {"reduction": reduction, **({} if ignored is None else {"ignore_index": ignored})}
    compare(case(operator, 13, x, target, *weights, **attributes, atol=1e-5))
