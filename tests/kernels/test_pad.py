"""The padding kernel against NumPy's."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest

from jitonnx.kernels.pad.kernel import build
from jitonnx.kernels.pad.spec import MODES, PadSpec
from jitonnx.kernels.parts.axes import MAX_RANK
from jitonnx.target.machine import host
from tests.kernels.guarded import guarded
from tests.kernels.harness import Compiled
from tests.targets import named

DTYPES = {1: np.uint8, 2: np.uint16, 4: np.float32, 8: np.int64}
WIDTHS = sorted({8, host().lanes(4)})
VALUE = 77


@functools.cache
def compiled(spec: PadSpec, lanes: int) -> Compiled:
    target = host() if lanes == host().lanes(4) else named("haswell")
    return Compiled(build(spec, lanes), target, combining=spec.COMBINING)


def arguments(target: np.ndarray, source: np.ndarray, before: list[int]) -> list[int]:
    item, sizes = source.itemsize, []
    steps = ([step // item for step in array.strides] for array in (target, source))
    for values, nothing in zip((target.shape, *steps, before, source.shape), (1, 0, 0, 0, 1), strict=True):
        sizes += [*values, *[nothing] * (MAX_RANK - len(values))]
    return sizes


def padded(source: np.ndarray, widths: list[tuple[int, int]], mode: str) -> np.ndarray:
    cut = source[tuple(slice(max(0, -a), n - max(0, -b)) for n, (a, b) in zip(source.shape, widths, strict=True))]
    around = [(max(a, 0), max(b, 0)) for a, b in widths]
    return np.pad(cut, around, mode, **({"constant_values": VALUE} if mode == "constant" else {}))  # type: ignore[call-overload]


def check(
    source: np.ndarray,
    widths: list[tuple[int, int]],
    mode: str,
    lanes: int,
    order: tuple[int, ...] | None = None,
    pieces: int = 1,
) -> None:
    """Pad a view; the result lies in memory in `order` of its axes, with gaps between its rows."""
    expected = padded(source, widths, mode)
    order = order or tuple(range(source.ndim))
    shape = [expected.shape[axis] for axis in order]
    room = np.full((*shape[:-1], shape[-1] + 3), 255, source.dtype)
    target = room[..., 1:-2].transpose(np.argsort(order))
    spec = PadSpec(source.itemsize, mode)
    sizes = spec.complete(spec.given(arguments(target, source, [before for before, _ in widths])))
    assert len(sizes) == spec.size_count
    value = np.full(1, VALUE, source.dtype)
    buffers = [source, value, target]
    compiled(spec, lanes)(buffers, sizes, spec.tasks(sizes), spec.scratch_bytes(sizes), pieces)
    np.testing.assert_array_equal(target, expected, err_msg=f"{source.shape} {widths} {mode} {order}")
    assert (room[..., [0, -2, -1]] == 255).all()


def numbers(shape: tuple[int, ...], itemsize: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 250, shape).astype(DTYPES[itemsize])


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("itemsize", [1, 2, 4, 8])
def test_images(itemsize: int, mode: str, lanes: int) -> None:
    """Rows, channels-last pixels, cuts; every padded axis alone and all at once."""
    x = numbers((2, 3, 9, 37), itemsize)
    for widths in ([(0, 0)] * 2 + [(1, 2), (3, 1)], [(1, 0), (2, 1), (0, 3), (0, 0)], [(0, 0)] * 3 + [(-2, 4)]):
        for order in ((0, 1, 2, 3), (0, 2, 3, 1)):
            check(
                guarded(np.ascontiguousarray(x.transpose(order))).transpose(np.argsort(order)),
                widths,
                mode,
                lanes,
                order,
                3,
            )


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("mode", MODES)
def test_rows_of_every_length(mode: str, lanes: int) -> None:
    for length in (*range(2, 40), 63, 64, 65, 300):
        for before, after in ((1, 1), (0, 1), (length - 1, 0), (-1, 1), (1, -1)):
            check(guarded(numbers((3, length), 4)), [(0, 0), (before, after)], mode, lanes)


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("mode", MODES)
def test_more_is_added_than_there_is(mode: str, lanes: int) -> None:
    for n, before, after in itertools.product((1, 2, 3, 7), (0, 5, 40), (0, 9, 70)):
        check(numbers((2, n), 4), [(0, 0), (before, after)], mode, lanes)
        check(numbers((n, 5), 4), [(before, after), (0, 0)], mode, lanes, pieces=2)


@pytest.mark.parametrize("mode", MODES)
def test_random_problems(mode: str) -> None:
    rng = np.random.default_rng(5)
    for _ in range(150):
        rank = int(rng.integers(1, 6))
        shape = tuple(int(n) for n in rng.integers(1, 9, rank))
        widths = [(int(a), int(b)) if rng.random() < 0.6 else (0, 0) for a, b in rng.integers(0, 5, (rank, 2))]
        order = tuple(int(axis) for axis in rng.permutation(rank))
        x = numbers(tuple(shape[axis] for axis in order), 4).transpose(np.argsort(order))
        check(x, widths, mode, host().lanes(4), order, pieces=int(rng.integers(1, 4)))


def test_all_is_cut_or_added() -> None:
    check(numbers((4, 6), 4), [(2, -4), (0, 0)], "constant", host().lanes(4))
    check(numbers((3, 0), 4), [(0, 0), (2, 3)], "constant", host().lanes(4))
    check(numbers((4,), 4), [(0, -4)], "edge", host().lanes(4))
    with pytest.raises(ValueError, match="itemsize 16"):
        PadSpec(16, "constant")


def test_special_values_keep_their_bits() -> None:
    x = np.array([[np.nan, np.inf, -0.0, -np.inf, 1]], np.float32)
    target = np.zeros((1, 9), np.float32)
    spec = PadSpec(4, "reflect")
    sizes = spec.complete(spec.given(arguments(target, x, [0, 2])))
    compiled(spec, host().lanes(4))([x, x, target], sizes, spec.tasks(sizes), spec.scratch_bytes(sizes))
    np.testing.assert_array_equal(target.view(np.uint32), np.pad(x.view(np.uint32), [(0, 0), (2, 2)], "reflect"))
