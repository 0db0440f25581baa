"""GridSample and AffineGrid: modes, paddings, ranks, types, points far outside and on edges."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from jitonnx.ir.computation.sampling import MODES, OUTSIDES
from tests.ops.harness import Case, build, case, check, check_refused, each_version, ints, retyped, run_reference

RANDOM = np.random.default_rng(5)
NARROW = (np.float16, ml_dtypes.bfloat16)


def image(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


def points(*shape: int, reach: float = 1.3) -> np.ndarray:
    """Points of which some are outside, by more than the image is large where reach is above 3."""
    return RANDOM.uniform(-reach, reach, shape).astype(np.float32)


def exactly(grid: np.ndarray, **options: Any) -> Case:
    """A case of onnx's reference, which rounds what it makes of points to float32."""
    return case("GridSample", 22, FEW, grid, by_reference=True, rtol=1e-4, atol=1e-5, **options)


def referred(case: Case) -> tuple[np.ndarray, ...]:
    """What onnx's reference makes of a case."""
    return tuple(run_reference(build(case), {f"x{i}": x for i, x in enumerate(case.inputs)}))


def over_edges(x: np.ndarray, grid: np.ndarray, aligned: int) -> np.ndarray:
    """x sampled cubically where its outermost elements go on for ever: what onnx's reference makes of a wider image.

    Both onnxruntime and PyTorch clamp what is read; the reference clamps the coordinate of a point outside and so takes
    another path at the border than inside of it.
    """
    more, sizes = 40, np.array(x.shape[:1:-1], np.float64)
    places = (grid + 1) / 2 * (sizes - 1) if aligned else ((grid + 1) * sizes - 1) / 2
    wider = (2 * (places + more) + 1) / (sizes + 2 * more) - 1
    wide = np.pad(x, [(0, 0), (0, 0)] + [(more, more)] * (x.ndim - 2), mode="edge")
    return referred(case("GridSample", 22, wide.astype(np.float64), wider, mode="cubic"))[0].astype(x.dtype)


EDGES = np.array([-1, 1, 0, -0.999, 0.5, 1.001, -3, 3], np.float32)
ON_EDGES = np.stack(np.meshgrid(EDGES, EDGES), -1)[None]
FEW, MANY, LINE, VOLUME = image(2, 3, 5, 7), image(1, 21, 4, 3), image(2, 2, 9), image(1, 2, 3, 4, 5)
OPTIONS = [
    {"mode": mode, "padding_mode": outside, "align_corners": aligned}
    for mode in MODES
    for outside in OUTSIDES
    for aligned in (0, 1)
]
SOME = points(2, 6, 5, 2)
INTEGERS = RANDOM.integers(-50, 50, (1, 2, 5, 6))
NOTHING = np.zeros((2, 3, 0, 4), np.float32)
ONE_TO_FOUR = np.array([[[[1, 2], [3, 4]]]], np.float32)

CASES: list[Case] = [
    *each_version("GridSample", FEW, points(2, 6, 5, 2)),
    *each_version("GridSample", FEW, points(2, 6, 5, 2), mode="nearest", align_corners=1),
    case("GridSample", 16, FEW, SOME, mode="bicubic", expected=referred(exactly(SOME, mode="cubic")), atol=1e-5),
    case("GridSample", 16, FEW, points(2, 6, 5, 2), mode="bilinear", padding_mode="border"),
    *(
        case("GridSample", 22, x, grid, **options, by_reference=True, atol=1e-5)
        if (options["mode"], options["padding_mode"]) != ("cubic", "border")
        else case("GridSample", 22, x, grid, **options, atol=1e-5,
                  expected=over_edges(x, grid, options["align_corners"]))
        for options in OPTIONS
        for x, grid in (
            (FEW, points(2, 3, 6, 2, reach=5)),
            (MANY, points(1, 7, 3, 2)),
            (FEW[:1], ON_EDGES),
            (LINE, points(2, 20, 1)),
            (VOLUME, points(1, 2, 3, 3, 3)),
        )
    ),
    *(
        c
        for options in OPTIONS[::3]
        if (options["mode"], options["padding_mode"]) != ("cubic", "border")
        for c in retyped(exactly(points(2, 4, 5, 2), **options), np.float64, *NARROW)
    ),
    *(  # points of another type than the image
        case("GridSample", 22, x.astype(a), points(*grid).astype(b), mode=mode, widen=False, atol=2e-2)
        for x, grid in ((FEW, (2, 4, 5, 2)), (MANY, (1, 4, 5, 2)))
        for mode in ("nearest", "linear")
        for a, b in ((np.float32, np.float64), (np.float64, np.float32), (np.float16, np.float32))
    ),
    *retyped(
        case("GridSample", 22, INTEGERS, points(1, 3, 4, 2), mode="nearest", constants=(1,), by_reference=True),
        np.int8, np.uint16, np.int32, np.int64, bool,
    ),
    case("GridSample", 20, NOTHING, points(2, 0, 3, 2), expected=np.zeros((2, 3, 0, 3), np.float32)),
    case("GridSample", 20, NOTHING, points(2, 2, 3, 2), expected=np.zeros((2, 3, 2, 3), np.float32)),
    case("GridSample", 20, FEW[:, :0], points(2, 4, 3, 2), expected=np.zeros((2, 0, 4, 3), np.float32)),
    case("GridSample", 22, np.array([[[["a", "b"], ["c", "d"]]]], object),
         np.array([[[[-1, -1], [0.9, 0], [2, 2]]]], np.float32), mode="nearest",
         expected=np.array([[[["a", "b", ""]]]], object)),
    *(
        case("GridSample", 22, (FEW + 1j * FEW[:, ::-1]).astype(dtype), SOME, mode=mode, by_reference=True, atol=1e-5)
        for dtype in (np.complex64, np.complex128)
        for mode in ("nearest", "linear")
    ),
    *(  # as onnxruntime has it, far away as well
        case("GridSample", 22, FEW.astype(dtype), points(2, 5, 8, 2, reach=reach).astype(dtype), mode="cubic",
             padding_mode="border", align_corners=aligned, atol=1e-5)
        for aligned in (0, 1)
        for reach, dtype in ((1.3, np.float32), (100, np.float32), (2, np.float64))
    ),
    *retyped(case("GridSample", 22, FEW, points(2, 4, 5, 2), mode="cubic", padding_mode="border"), *NARROW),
    case("GridSample", 20, ONE_TO_FOUR, np.array([[[[-np.inf, -np.inf], [np.inf, np.inf]]]], np.float32), mode="cubic",
         padding_mode="border", expected=np.array([[[[1, 4]]]], np.float32)),
    # What is outside is zero, whatever the pixels are that are nearest to it.
    case("GridSample", 20, np.full((1, 1, 2, 2), np.nan, np.float32), np.array([[[[-9, 0], [9, 9]]]], np.float32),
         expected=np.array([[[[0, 0]]]], np.float32)),
    case("GridSample", 20, np.full((1, 9, 2, 2), np.inf, np.float32), np.array([[[[-9, 0], [9, 9]]]], np.float32),
         expected=np.zeros((1, 9, 1, 2), np.float32)),
    *(
        c
        for aligned in (0, 1)
        for theta, size in ((image(3, 2, 3), ints(3, 1, 4, 5)), (image(2, 3, 4), ints(2, 1, 3, 4, 5)))
        for c in retyped(
            case("AffineGrid", 20, theta, size, align_corners=aligned, constants=(1,), atol=1e-5),
            np.float32, np.float64, *NARROW,
        )
    ),
    case("AffineGrid", 20, image(1, 2, 3), ints(1, 1, 6, 2)),
    case("AffineGrid", 20, image(1, 2, 3)[:0], ints(0, 1, 6, 2), expected=np.zeros((0, 6, 2, 2), np.float32)),
    case("AffineGrid", 20, np.array([[[1, 0, 0], [0, 1, 0]]], np.float32), ints(1, 1, 1, 3), align_corners=1,
         expected=np.array([[[[-1, -1], [0, -1], [1, -1]]]], np.float32)),
]  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_grid_sample(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, bool])
def test_integers_are_interpolated_as_floats_and_cut_off(dtype: type, mode: str) -> None:
    x = np.abs(INTEGERS).astype(dtype)
    grid = points(1, 3, 4, 2)
    wide = case("GridSample", 22, x.astype(np.float64), grid.astype(np.float64), mode=mode)
    (expected,) = referred(wide)
    limits = (0, 1) if dtype is bool else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    cut = expected != 0 if dtype is bool else np.clip(np.trunc(expected), *limits)
    check(case("GridSample", 22, x, grid, mode=mode, expected=cut.astype(dtype)))


REFUSED = [
    (case("GridSample", 22, np.full((2, 3, 5, 7), "a", object), points(2, 3, 6, 2)), "X holds strings"),
    (case("GridSample", 22, FEW, points(2, 3, 6, 2), mode="area"), "mode is 'area'"),
    (case("GridSample", 22, FEW, points(2, 3, 6, 2), padding_mode="wrap"), "padding_mode is 'wrap'"),
    (case("GridSample", 22, FEW, points(2, 3, 6, 3)), "should begin with 2 and end with 2"),
    (case("GridSample", 22, FEW, points(1, 3, 6, 2)), "should begin with 2 and end with 2"),
    (case("GridSample", 22, FEW, points(2, 3, 2)), "spatial"),
    (case("GridSample", 22, FEW, points(2, 3, 6, 2).astype(np.int32)), "is of type int32"),
    (case("GridSample", 22, NOTHING, points(2, 3, 6, 2), padding_mode="border"), "no elements to sample"),
    (case("AffineGrid", 20, image(1, 2, 3), ints(2, 1, 6, 2), constants=(1,)), "size begins with 2"),
    (case("AffineGrid", 20, image(1, 2, 4), ints(1, 1, 6, 2), constants=(1,)), "does not fit size"),
]


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_refused(case: Case, text: str) -> None:
    check_refused(case, text)
