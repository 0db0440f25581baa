"""Moving bytes: runs of memory copied or filled, for kernels that rearrange tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from jitonnx.emit import types
from jitonnx.emit.builder import KernelBuilder, Pointer
from jitonnx.emit.ssa import SSAValue

WORDS = {1: types.uint8, 2: types.uint16, 4: types.uint32, 8: types.uint64}
"""What elements are moved as, by their size in bytes."""


def _same(vector: SSAValue) -> SSAValue:
    return vector


Copy: TypeAlias = Callable[[Pointer, Pointer], None]
"""Copies what lies at the second pointer to the first, called to be written out."""


def copy_bytes(
    code: KernelBuilder,
    target: Pointer,
    source: Pointer,
    count: SSAValue,
    vector_bytes: int,
    *,
    streams: bool = False,
    change: Callable[[SSAValue], SSAValue] = _same,
) -> None:
    """Copy `count` bytes between pointers to uint8 that do not overlap: `copy_runs` of one run."""
    copy_runs(code, lambda copy: copy(target, source), count, vector_bytes, streams=streams, change=change)


def copy_runs(
    code: KernelBuilder,
    each: Callable[[Copy], None],
    count: SSAValue,
    vector_bytes: int,
    *,
    streams: bool = False,
    change: Callable[[SSAValue], SSAValue] = _same,
) -> None:
    """Copy runs of `count` bytes each; `vector_bytes`: a vector register's. each: calls what it is given with the
    target and the source of every run, pointers to uint8 that do not overlap. How a run is copied is asked once.

    From four vectors on, whole vectors and then the last one, which may write bytes a second time: no masks and no loop
    over what is left. Shorter runs are two moves of the largest power of two that fits, one from each end. `streams`:
    the vectors of long runs are written past the caches (see `Code.drain`). `change`: what becomes of the elements on
    the way, which may be wider in the target.
    """

    def whole(target: Pointer, source: Pointer) -> None:
        _whole_vectors(code, target, source, count, vector_bytes, streams=streams, change=change)

    with code.if_else(count >= 4 * vector_bytes) as (long, short):
        with long:
            each(whole)
        with short:
            _both_ends(code, each, count, [1 << n for n in range((2 * vector_bytes).bit_length())], change)


def _whole_vectors(
    code: KernelBuilder,
    target: Pointer,
    source: Pointer,
    count: SSAValue,
    width: int,
    *,
    streams: bool,
    change: Callable[[SSAValue], SSAValue],
) -> None:
    # Loads before stores: the compiler must assume that the runs overlap.
    four, done = 4 * width, code.integer(0)
    if streams:  # the first vector reaches to where the next ones are aligned
        target.store(0, source.load(0, width))
        done = (width - target.misalignment(width)) & (width - 1)
    for step in (four, width):
        with code.loop(count - (step - 1), done, step) as at:
            vectors = [change(source.load(at + part, width)) for part in range(0, step, width)]
            for part, vector in zip(range(0, step, width), vectors, strict=True):
                (target.stream if streams else target.store)(at + part, vector)
        if step == four:
            done = done + (count - done) / code.integer(four) * four
    target.store(count - width, change(source.load(count - width, width)))


def _both_ends(
    code: KernelBuilder,
    each: Callable[[Copy], None],
    count: SSAValue,
    widths: Sequence[int],
    change: Callable[[SSAValue], SSAValue],
) -> None:
    """Fewer than twice the last of `widths` bytes, by the largest that fits, which a binary search finds."""
    if len(widths) > 1:
        half = len(widths) // 2
        with code.if_else(count >= widths[half]) as (larger, smaller):
            with larger:
                _both_ends(code, each, count, widths[half:], change)
            with smaller:
                _both_ends(code, each, count, widths[:half], change)
        return
    (width,) = widths

    def ends(target: Pointer, source: Pointer) -> None:
        first, last = change(source.load(0, width)), change(source.load(count - width, width))
        target.store(0, first)
        target.store(count - width, last)

    with code.if_then(count >= width):
        each(ends)


def fill(code: KernelBuilder, target: Pointer, value: SSAValue, count: SSAValue, lanes: int) -> None:
    """Set `count` elements to `value`, by vectors of `lanes`; the last vector may write elements a second time."""
    vector = code.splat(value, lanes)
    with code.loop(count - lanes, step=lanes) as at:
        target.store(at, vector)
    with code.if_else(count >= lanes) as (long, short):
        with long:
            target.store(count - lanes, vector)
        with short, code.loop(count) as at:
            target.store(at, value)
