"""The transposing copy against NumPy's transpose."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest

from jitonnx.kernels.transpose.kernel import build
from jitonnx.kernels.transpose.spec import COPY, ELEMENTS, FILL, INTERLEAVED, STEPS, STRIDED, TILES, TransposeSpec
from jitonnx.target.machine import host
from tests.kernels.guarded import guarded
from tests.kernels.harness import Compiled
from tests.targets import named

DTYPES = {1: np.uint8, 2: np.uint16, 4: np.float32, 8: np.int64}
WIDTHS = sorted({8, host().lanes(4)})


@functools.cache
def compiled(spec: TransposeSpec, lanes: int) -> Compiled:
    target = host() if lanes == host().lanes(4) else named("haswell")
    return Compiled(build(spec, lanes), target, combining=spec.COMBINING)


def check(
    source: np.ndarray,
    target: np.ndarray,
    lanes: int,
    pieces: int = 1,
    interleaved: int = 0,
    step: int = 0,
    streams: bool = False,
) -> int:
    """Copy between two views of one shape; returns the mode taken."""
    item = source.itemsize
    spec = TransposeSpec(item, interleaved, step, streams)
    sizes = spec.arguments(
        source.shape, [step // item for step in source.strides], [step // item for step in target.strides]
    )
    compiled(spec, lanes)([source, target], sizes, spec.tasks(sizes), spec.scratch_bytes(sizes), pieces)
    np.testing.assert_array_equal(target, source)
    return sizes.mode


def numbers(shape: tuple[int, ...], itemsize: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 250, shape).astype(DTYPES[itemsize])


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("itemsize", [1, 2, 4, 8])
def test_all_permutations(itemsize: int, lanes: int) -> None:
    for shape in ((3, 18, 5, 33), (17, 2, 40, 7)):
        x = numbers(shape, itemsize)
        for permutation in itertools.permutations(range(4)):
            view = x.transpose(permutation)
            check(view, np.zeros(view.shape, x.dtype), lanes, pieces=3)


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("itemsize", [1, 2, 4, 8])
def test_matrices_around_tile_and_block_edges(itemsize: int, lanes: int) -> None:
    edges = (1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 129)
    for rows, columns in itertools.product(edges, edges):
        x = numbers((rows, columns), itemsize)
        whole = np.full((columns + 2, rows + 3), 255, x.dtype)
        check(x.T, whole[1:-1, 1:-2], lanes)
        whole[1:-1, 1:-2] = 255
        assert (whole == 255).all()


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("itemsize", [1, 2, 4, 8])
def test_runs_of_every_length(itemsize: int, lanes: int) -> None:
    for length in (*range(1, 70), 127, 128, 129, 300):
        x = numbers((3, 4, length + 5), itemsize)
        whole = np.full((4, 3, length + 2), 255, x.dtype)
        mode = check(x[:, :, 2 : 2 + length].transpose(1, 0, 2), whole[:, :, 1:-1], lanes)
        assert mode == (ELEMENTS if length == 1 else COPY)
        assert (whole[:, :, [0, -1]] == 255).all()


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("count", [2, 3])
def test_elements_side_by_side_are_read_once(count: int, lanes: int) -> None:
    """A kernel that knows both ways takes groups without gaps apart; elements some way apart are a way of their own."""
    x = numbers((5, 70, count), 4)
    target = np.zeros((count, 5, 70), x.dtype)
    assert check(x.transpose(2, 0, 1), target, lanes, interleaved=count, step=count) == TILES
    assert check(x[:, :, :1].transpose(2, 0, 1), target[:1], lanes, interleaved=count, step=count) == STRIDED


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("itemsize", [1, 2, 4, 8])
def test_past_the_caches(itemsize: int, lanes: int) -> None:
    """Rows of the target that begin at lines of the cache, or all in different places, from any place on."""
    for (rows, columns), start in itertools.product(((64, 48), (160, 33), (131, 144), (5, 300)), (0, 1, 7)):
        x = numbers((rows, columns), itemsize)
        memory = np.full(rows * columns + 64, 255, x.dtype)
        for view in (x.T, x):
            target = memory[start : start + x.size].reshape(view.shape)
            mode = check(view, target, lanes, pieces=2, streams=True)
            assert mode == (TILES if view is not x else COPY)
            assert (memory[:start] == 255).all() and (memory[start + x.size :] == 255).all()
            memory[:] = 255


@pytest.mark.parametrize("lanes", WIDTHS)
def test_rows_that_share_sets_of_the_cache(lanes: int) -> None:
    x = numbers((200, 512), 4)
    target = np.zeros((512, 512), x.dtype)
    assert check(x.T, target[:, 8:208], lanes, pieces=2) == TILES
    assert (target[:, :8] == 0).all() and (target[:, 208:] == 0).all()


@pytest.mark.parametrize("itemsize", [1, 4])
def test_views(itemsize: int) -> None:
    """Slices, negative and zero strides, wide targets, eight axes."""
    lanes = host().lanes(4)
    x = numbers((9, 20, 30), itemsize)
    assert check(x[::2, ::-1, ::3], np.zeros((5, 20, 10), x.dtype), lanes) == ELEMENTS
    assert check(x[:, ::-1].transpose(2, 0, 1), np.zeros((30, 9, 20), x.dtype), lanes) == TILES
    check(np.broadcast_to(x[:, :1], (9, 20, 30)), np.zeros((9, 20, 30), x.dtype), lanes)
    check(np.broadcast_to(x[..., :1], (9, 20, 30)), np.zeros((9, 20, 30), x.dtype), lanes)
    check(x[::-1], np.zeros((9, 20, 64), x.dtype)[:, :, 3:33], lanes)
    many = numbers((2, 3, 2, 3, 2, 3, 2, 3), itemsize)
    check(many.transpose(7, 5, 3, 1, 0, 2, 4, 6), np.zeros((3, 3, 3, 3, 2, 2, 2, 2), x.dtype), lanes, pieces=2)
    check(numbers((), itemsize), np.zeros((), x.dtype), lanes)


def test_large_problems_are_cut_into_tasks() -> None:
    lanes = host().lanes(4)
    for x, view in ((a := numbers((700, 900), 4), a), (a, a.T), (b := numbers((64, 9000), 4), b[:, ::-1])):
        target = np.zeros(view.shape, x.dtype)
        check(view, target, lanes, pieces=5)
        spec = TransposeSpec(4)
        assert spec.tasks(spec.arguments(view.shape, [s // 4 for s in view.strides], [target.shape[1], 1])) >= 8


def test_nothing_to_do_and_wrong_specs() -> None:
    check(np.zeros((3, 0, 2), np.float32).T, np.zeros((2, 0, 3), np.float32), host().lanes(4))
    with pytest.raises(ValueError, match="at most 8 axes"):
        TransposeSpec(4).arguments([1] * 9, [1] * 9, [1] * 9)
    with pytest.raises(ValueError, match="itemsize 16"):
        TransposeSpec(16)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("itemsize", [1, 2, 4, 8])
@pytest.mark.parametrize("count", INTERLEAVED)
def test_pixels_of_few_channels(count: int, itemsize: int, lanes: int) -> None:
    """Planes to pixels and back: whole, with gaps between rows, planes or pixels, and of another number of channels."""
    for length in (2, 15, 16, 17, 31, 48, 5000):
        for channels in (count, count + 1):
            planes = numbers((2, channels, length), itemsize)
            pixels = np.full((2, length, channels + 1), 255, planes.dtype)
            for gap in (0, 1):
                inside = pixels[..., : channels + gap].copy()
                check(planes.transpose(0, 2, 1), inside[..., :channels], lanes, 3, interleaved=count)
                assert (inside[..., channels:] == 255).all()
                back = np.full((2, channels, length + 1), 255, planes.dtype)
                check(inside[..., :channels], back[..., :length].transpose(0, 2, 1), lanes, 3, interleaved=count)
                assert (back[..., length:] == 255).all()


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("itemsize", [1, 2, 4, 8])
def test_aligned_tiles(itemsize: int, lanes: int) -> None:
    """Rows a power of two apart: tiles begin where cache lines do, wherever the tensors begin."""
    pitch = 2048 // itemsize
    for rows, columns, first in itertools.product((128, 131, 150, 257), (128, 133), (0, 1, 5)):
        x = numbers((rows, pitch), itemsize).reshape(-1)
        source = np.lib.stride_tricks.as_strided(x[first:], (rows - 1, columns), (2048, itemsize))
        whole = np.full(columns * 2 * pitch + 40, 255, x.dtype)
        target = np.lib.stride_tricks.as_strided(whole[3 * first :], (rows - 1, columns), (itemsize, 4096))
        assert check(source, target, lanes, pieces=3) == TILES
        target[...] = 255
        assert (whole == 255).all()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("itemsize", [1, 2, 4, 8])
def test_elements_some_way_apart(itemsize: int, step: int, lanes: int) -> None:
    """They lie up to the last element of memory, and down to the first."""
    for rows, columns in ((3, 16), (2, 17), (3, 33), (2, 64), (1, 70), (2, 20000), (4, 5)):
        width = (columns - 1) * abs(step) + 1
        x = guarded(numbers((rows, width), itemsize))
        y = np.full((rows, columns + 2), 255, x.dtype)
        mode = check(x[:, ::step], y[:, 1:-1], lanes, pieces=2, step=step)
        assert mode == (STRIDED if columns >= 16 else ELEMENTS)
        assert (y[:, [0, -1]] == 255).all()
        y[:] = 255
        assert check(x[:, ::step], y[:, 1:-1], lanes) == ELEMENTS
        other = x[:, :columns]
        assert check(other, np.zeros_like(other), lanes, step=step) == COPY


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("itemsize", [1, 2, 4, 8])
def test_one_element_repeated(itemsize: int, lanes: int) -> None:
    for rows, columns in ((3, 16), (2, 17), (5, 31), (2, 64), (300, 70), (2, 20000), (40, 3)):
        x, y = numbers((rows, 1), itemsize), np.full((rows, columns + 2), 255, DTYPES[itemsize])
        mode = check(np.broadcast_to(x, (rows, columns)), y[:, 1:-1], lanes, pieces=3)
        assert (mode == FILL) == (columns >= 16)
        assert (y[:, [0, -1]] == 255).all()
    check(np.broadcast_to(numbers((1, 1), itemsize), (40, 50)), np.zeros((40, 50), DTYPES[itemsize]), lanes)


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("count", INTERLEAVED)
def test_shuffles_are_repeated_along_another_axis(count: int, lanes: int) -> None:
    """Depth to space, space to depth, and every so manyth element: tasks of several places, the last of fewer."""
    for rows, columns in ((57, 33), (300, 61), (9, 17), (5, 200)):
        blocks = numbers((3, count, count, rows, columns), 4)
        view = blocks.transpose(0, 3, 1, 4, 2)
        assert check(view, np.zeros(view.shape, blocks.dtype), lanes, pieces=3, interleaved=count) == TILES
        image = numbers((3, rows, count, columns, count), 4)
        back = image.transpose(0, 2, 4, 1, 3)
        check(back, np.zeros(back.shape, image.dtype), lanes, pieces=2, interleaved=count, step=count)
        apart = numbers((3, count * rows, count * columns), 4)[:, ::count, ::count]
        assert check(apart, np.zeros(apart.shape, np.float32), lanes, pieces=3, step=count) == STRIDED
