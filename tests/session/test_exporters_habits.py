"""Small graphs of the kind that exporters write, whose sizes only a run tells: no run is evaluated on NumPy as a whole.

Each is run at both ends of rewriting, with sizes that break what a plan takes for granted: none, one and many rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx.parser
import onnxruntime
import pytest

from jitonnx import GraphOptimizationLevel, InferenceSession, SessionOptions

DETECTIONS = """
detections (float[n, 3] scores, float[n, 4] boxes) => (float[k, 4] kept, float[k] values, int64[k] labels)
<int64[1] last = {-1}, int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] most = {5},
 float[1] least = {0.5}, float[1] overlap = {0.5}, int64[1] many = {100}>
{
    likely = Greater(scores, least)
    places = NonZero(likely)
    pairs = Transpose<perm = [1, 0]>(places)
    found = GatherND(scores, pairs)
    rows = Slice(pairs, zero, one, one)
    row = Squeeze(rows, one)
    columns = Slice(pairs, one, two, one)
    label = Squeeze(columns, one)
    chosen = Gather(boxes, row)
    offsets = Cast<to = 1>(label)
    apart = Unsqueeze(offsets, one)
    moved = Add(chosen, apart)
    batch = Unsqueeze(moved, zero)
    one_class = Unsqueeze(found, zero)
    classes = Unsqueeze(one_class, zero)
    picked = NonMaxSuppression(batch, classes, many, overlap)
    index = Gather<axis = 1>(picked, two)
    flat = Squeeze(index, one)
    count = Shape(flat)
    fewer = Min(count, most)
    best = Gather(found, flat)
    values, order = TopK(best, fewer)
    final = Gather(flat, order)
    kept = Gather(chosen, final)
    labels = Gather(label, final)
}
"""

POOLED = """
pooled (float[1, 4, h, w] image, float[n, 4] boxes, float[n] scores) => (float[k, 2] y)
<float least = {0.5}, int64[2] flat = {-1, 16}, int64[1] one = {1}, float[16, 2] weights>
{
    likely = Greater(scores, least)
    places = NonZero(likely)
    rows = Squeeze(places, zero)
    zero = Constant<value_ints = [0]>()
    chosen = Gather(boxes, rows)
    count = Shape(rows)
    images = ConstantOfShape<value = int64[1] {0}>(count)
    parts = RoiAlign<output_height = 2, output_width = 2, sampling_ratio = 2>(image, chosen, images)
    matrix = Reshape(parts, flat)
    product = MatMul(matrix, weights)
    y = Relu(product)
}
"""

SQUEEZED = """
squeezed (float[n, m] x, float[n, m] z) => (y)
<int64 axis = {0}, int64 one = {1}, int64[1] first = {0}>
{
    shape = Shape(x)
    size = Gather(shape, axis)
    single = Equal(size, one)
    part = If(single) <
        then_branch = single_row () => (a) { a = Squeeze(x, first) },
        else_branch = several () => (b) { b = Relu(x) }
    >
    y = Add(part, z)
}
"""

LEVELS = """
levels (float[n, 4] x, int64[n] level) => (float[n, 4] y)
<int64 trips = {3}, bool go = {1}, int64[1] one = {1}, int64[1] zero = {0}, float scale = {2}>
{
    start = Mul(x, x)
    y = Loop(trips, go, start) <
        body = one_level (int64 number, bool again, float[a, b] so_far) => (bool further, float[a, b] now) {
            further = Identity(again)
            same = Equal(level, number)
            places = NonZero(same)
            rows = Squeeze(places, zero)
            chosen = Gather(x, rows)
            factor = Cast<to = 1>(number)
            scaled = Mul(chosen, factor)
            steep = Exp(scaled)
            index = Unsqueeze(rows, one)
            now = ScatterND(so_far, index, steep)
        }
    >
}
"""

EXPANDED = """
expanded (float[1, 4] token, float[n, m, 4] x) => (y)
<int64[1] one = {1}, int64[1] four = {4}, int64[1] zero = {0}, int64[1] two = {2}, float[4, 4] weights>
{
    sizes = Shape(x)
    rows = Slice(sizes, zero, one)
    shape = Concat<axis = 0>(rows, one, four)
    tokens = Expand(token, shape)
    all = Concat<axis = 1>(tokens, x)
    both = Shape(all)
    wide = Expand(token, both)
    sum = Add(all, wide)
    y = MatMul(sum, weights)
}
"""

BAGS = """
bags (float[v, 4] table, int64[n] index, int64[b] starts) => (float[b, 4] y)
<bool go = {1}, int64[1] zero = {0}, int64 first = {0}, int64[1] far = {9223372036854775807}>
{
    count = Shape(starts)
    trips = Squeeze(count, zero)
    total = Shape(index)
    ends = Concat<axis = 0>(starts, total)
    y = Loop(trips, go) <
        body = one_bag (int64 number, bool again) => (bool further, float[4] bag) {
            one = Constant<value_int = 1>()
            further = Identity(again)
            next = Add(number, one)
            begin = Gather(ends, number)
            end = Gather(ends, next)
            begins = Unsqueeze(begin, zero)
            stops = Unsqueeze(end, zero)
            part = Slice(index, begins, stops)
            rows = Gather(table, part)
            bag = ReduceSum<keepdims = 0>(rows, zero)
        }
    >
}
"""

PASTED = """
pasted (float[n, 1, 2, 2] masks, int64[n, 2] sizes) => (float[n, c, d] y)
<int64[1] zero = {0}, int64[1] one = {1}, int64[1] eight = {8}, int64 first = {0}, bool go = {1}>
{
    shape = Shape(masks)
    count = Gather(shape, first)
    y = Loop(count, go) <
        body = one_mask (int64 number, bool again) => (bool further, float[c, d] image) {
            further = Identity(again)
            mask = Gather(masks, number)
            size = Gather(sizes, number)
            ones = Constant<value_ints = [1, 1]>()
            extent = Max(size, ones)
            batch = Unsqueeze(mask, zero)
            lead = Constant<value_ints = [1, 1]>()
            whole = Concat<axis = 0>(lead, extent)
            large = Resize<mode = "linear">(batch, , , whole)
            axes = Constant<value_ints = [0, 1]>()
            plane = Squeeze(large, axes)
            limit = Constant<value_ints = [8, 8]>()
            left = Sub(limit, extent)
            none = Constant<value_ints = [0, 0]>()
            pads = Concat<axis = 0>(none, left)
            image = Pad(plane, pads)
        }
    >
}
"""

WINDOWED = """
windowed (float[b, 4, 4] x) => (float[b, 4, 4] y)
<float[1, 4, 4] embedding, float[1, 2, 2] window = {1, 2, 3, 4}, int64 rank = {3}, int64 none = {0}, int64[1] one = {1},
 int64[2] halves = {2, 2}>
{
    repeats = Div(halves, one)
    count = Size(repeats)
    missing = Sub(rank, count)
    fewer = Greater(missing, none)
    times = If(fewer) <
        then_branch = with_ones () => (a) {
            shape = Reshape(missing, one)
            ones = Expand(one, shape)
            a = Concat<axis = 0>(ones, repeats)
        },
        else_branch = as_they_are () => (b) { b = Identity(repeats) }
    >
    tiled = Tile(window, times)
    places = Add(embedding, tiled)
    y = Add(x, places)
}
"""
"""torch.tile as TorchScript exports it: an If, whose condition ranks tell, puts ones in front of the repetitions."""

TAILS = """
tails (float[n] x, float[k] z) => (float[a] last, float[b] rest)
<int64[1] zero = {0}, int64[1] far = {9223372036854775807}>
{
    size = Shape(z)
    back = Neg(size)
    last = Slice(x, back, far, zero)
    rest = Slice(x, zero, back, zero)
}
"""
"""x[-n:] as XLM has it; of 0 elements that is all of x."""

RANDOM = np.random.default_rng(0)


def numbers(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


CLIPPED = """
clipped (float[2] corners, int64[1] width) => (float[k] y)
<int64 first = {0}, int64 second = {1}, int64[1] zero = {0}, int64[1] one = {1}>
{
    box = Cast<to = 7>(corners)
    low = Gather(box, first)
    high = Gather(box, second)
    lows = Unsqueeze(low, zero)
    highs = Unsqueeze(high, zero)
    wide = Sub(highs, lows)
    wider = Add(wide, one)
    several = Max(wider, one)
    count = Squeeze(several, zero)
    row = Range(first, count, second)
    begin = Max(lows, zero)
    behind = Add(highs, one)
    end = Min(behind, width)
    starts = Sub(begin, lows)
    ends = Sub(end, lows)
    part = Slice(row, starts, ends, zero)
    numbers = Cast<to = 1>(part)
    left = ConstantOfShape(begin)
    rest = Sub(width, end)
    right = ConstantOfShape(rest)
    whole = Concat<axis = 0>(left, numbers, right)
    y = Neg(whole)
}
"""
"""A box that may begin outside of an image is cut off at its edges, as torchvision pastes masks."""


PADDED = """
padded (float[n, c, h, w] x, int64[8] before, int64[8] behind) => (y)
<int64[1] flat = {-1}>
{
    first = Reshape(before, flat)
    larger = Pad(x, first)
    second = Reshape(behind, flat)
    largest = Pad(larger, second)
    positive = Relu(largest)
    y = Softmax<axis = 1>(positive)
}
"""
"""Sizes of paddings that runs tell add up, in each axis, to products of a thousand terms."""


def corners(count: int) -> np.ndarray:
    """Boxes in an image of 8 by 8."""
    low = RANDOM.uniform(0, 4, (count, 2))
    return np.concatenate([low, low + RANDOM.uniform(1, 4, (count, 2))], 1).astype(np.float32)


def scores(count: int, likely: Sequence[int], *shape: int) -> np.ndarray:
    """Scores of which some rows are above a half."""
    found = RANDOM.uniform(0, 0.4, (count, *shape)).astype(np.float32)
    found[list(likely)] += 0.55
    return found


Feeds = Sequence[Mapping[str, np.ndarray]]

ROWS: Sequence[tuple[int, Sequence[int]]] = [
    (7, (0, 3, 6)),
    (7, ()),
    (5, (4,)),
    (1, (0,)),
    (9, range(9)),
    (0, ()),
    (7, ()),
]

CLIPPED_FEEDS: Feeds = [
    {"corners": np.array(box, np.float32), "width": np.array([width])}
    for box, width in (((2, 5), 9), ((-3, 4), 6), ((-2, 9), 8), ((0, 0), 1), ((3, 12), 7))
]

CASES: Mapping[str, tuple[str, Feeds]] = {
    "detections": (DETECTIONS, [{"scores": scores(n, some, 3), "boxes": corners(n)} for n, some in ROWS]),
    "pooled": (
        POOLED,
        [{"image": numbers(1, 4, 8, 8), "boxes": corners(n), "scores": scores(n, some)} for n, some in ROWS],
    ),
    "squeezed": (SQUEEZED, [{"x": numbers(n, m), "z": numbers(n, m)} for n, m in [(3, 4), (1, 4), (1, 1), (4, 1)]]),
    "levels": (
        LEVELS,
        [
            {"x": numbers(len(level), 4), "level": np.array(level, np.int64)}
            for level in ([0, 1, 2, 1], [0, 0], [2], [], [1, 1, 1, 1], [0, 2, 2])
        ],
    ),
    "expanded": (
        EXPANDED,
        [{"token": numbers(1, 4), "x": numbers(n, m, 4)} for n, m in [(2, 3), (1, 1), (1, 5), (4, 0), (0, 2), (3, 1)]],
    ),
    "bags": (
        BAGS,
        [
            {
                "table": numbers(6, 4),
                "index": RANDOM.integers(0, 6, count),
                "starts": np.array(starts, np.int64),
            }
            for count, starts in ((7, [0, 2, 5]), (1, [0]), (3, [0, 0, 3]), (5, [0, 1, 2, 3, 4]), (0, [0]))
        ],
    ),
    "tails": (
        TAILS,
        [{"x": numbers(n), "z": numbers(k)} for n, k in ((5, 3), (7, 2), (4, 4), (3, 5), (5, 0), (0, 0), (0, 2))],
    ),
    "windowed": (WINDOWED, [{"x": numbers(b, 4, 4)} for b in (2, 1, 0, 3)]),
    "clipped": (CLIPPED, CLIPPED_FEEDS),
    "padded": (
        PADDED,
        [
            {"x": numbers(2, 3, h, 5), "before": np.array(before), "behind": np.array([1, 0, 0, 1, 0, 2, 1, 0])}
            for h, before in ((4, [0, 1, 2, 0, 0, 0, 1, 1]), (1, [0] * 8), (0, [0, 0, 1, 1, 1, 0, 0, 0]))
        ],
    ),
    "pasted": (
        PASTED,
        [
            {"masks": numbers(len(sizes), 1, 2, 2), "sizes": np.array(sizes, np.int64).reshape(-1, 2)}
            for sizes in ([(3, 4), (8, 8)], [(1, 1)], [(0, 5), (-3, 2)], [(2, 2), (1, 8), (8, 1)])
        ],
    ),
}


def model_of(text: str) -> bytes:
    """The model, whose constants without elements are weights."""
    text = text.replace("float[16, 2] weights>", "float[16, 2] weights = {" + ", ".join(["0.25"] * 32) + "}>")
    text = text.replace("] embedding,", "] embedding = {" + ", ".join(map(str, range(16))) + "},")
    text = text.replace("float[4, 4] weights>", "float[4, 4] weights = {" + ", ".join(map(str, range(16))) + "}>")
    return onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 20]>\n' + text).SerializeToString()


@pytest.mark.parametrize("level", [0, 99])
@pytest.mark.parametrize("name", CASES)
def test_no_run_is_evaluated_on_numpy_as_a_whole(name: str, level: int) -> None:
    text, feeds = CASES[name]
    data = model_of(text)
    options = SessionOptions()
    options.graph_optimization_level = GraphOptimizationLevel(level)
    theirs = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    ours = InferenceSession(data, options)
    for feed in (*feeds, *feeds[:2]):
        for found, expected in zip(ours.run(None, feed), theirs.run(None, feed), strict=True):
            assert found.dtype == expected.dtype
            np.testing.assert_allclose(found, expected, 1e-4, 1e-5)
    assert ours._model.compiled().engine.status().numpy_runs == 0


def test_what_most_runs_have_is_assumed_of_a_slice_from_behind() -> None:
    """x[-n:] is planned for n that are not 0 in the beginning."""
    session = InferenceSession(model_of(TAILS))
    for n, k in ((5, 3), (4, 4), (7, 1)):
        session.run(None, {"x": numbers(n), "z": numbers(k)})
    assert not session._model.compiled().engine.variants


def test_elements_that_are_no_sizes_are_none_where_they_are_moved_to() -> None:
    """A run shows that a box begins outside: one plan is made, not one for each value that its corners come to."""
    session = InferenceSession(model_of(CLIPPED))
    for feed in (*CLIPPED_FEEDS, *CLIPPED_FEEDS):
        session.run(None, feed)
    engines = [session._model.compiled().engine]
    for engine in engines:
        engines.extend(engine.variants)
    assert len(engines) == 2
