"""The kernel that moves a cache of the last positions on."""

from __future__ import annotations

from jitonnx.emit import types
from jitonnx.emit.builder import Kernel, KernelBuilder, Pointer, larger, remainder, smaller
from jitonnx.emit.ssa import SSAValue
from jitonnx.kernels.parts.memory import copy_bytes, fill
from jitonnx.kernels.sliding_cache.spec import SlidingBuffers, SlidingSizes, SlidingSpec


def build(spec: SlidingSpec, lanes: int) -> Kernel:
    """The kernel of `spec` for vectors of `lanes` elements of its size."""
    return lambda code, begin, end: _emit(code, spec, lanes * spec.itemsize, begin, end)


def _emit(code: KernelBuilder, spec: SlidingSpec, vector_bytes: int, begin: SSAValue, end: SSAValue) -> None:
    size = code.sizes(SlidingSizes)
    past, new, before, seen, present, error = code.buffers(
        SlidingBuffers, types.uint8, before=types.int64, error=types.int64
    )
    row = size.depth * spec.itemsize

    def clear(target: Pointer, first: SSAValue, rows: SSAValue) -> None:
        """Zeros from row `first` on, up to `rows`."""
        fill(code, target.at(first * row), code.number(types.uint8, 0), larger(rows - first, 0) * row, vector_bytes)

    def kept(total: SSAValue) -> SSAValue:
        """How many of `total` positions a cache holds."""
        dropped = size.capacity - size.window + 1
        over = larger(total - size.capacity, 0)
        return total - (over + dropped - 1) / dropped * dropped

    with code.loop(end, begin) as task:
        batch, head = task / size.heads, remainder(task, size.heads)
        earlier = before.load(batch)
        visible = smaller(earlier, size.window - 1)
        fits = (earlier >= 0) & (visible + size.steps <= size.seen_rows)
        with code.if_else(fits) as (inside, outside):
            with inside:
                held = kept(earlier)
                source, added = (
                    past.at(task * size.capacity * row),
                    new.at((batch * size.new_batch + head * size.new_head) * spec.itemsize),
                )

                def add(target: Pointer, first: SSAValue | int, place: SSAValue) -> None:
                    """The new rows from `first` on, from row `place` on."""
                    with code.loop(size.steps, first) as step:
                        to = target.at((place + step - first) * row)
                        copy_bytes(code, to, added.at(step * size.new_row * spec.itemsize), row, vector_bytes)

                attended = seen.at(task * size.seen_rows * row)
                copy_bytes(code, attended, source.at((held - visible) * row), visible * row, vector_bytes)
                add(attended, code.integer(0), visible)
                clear(attended, visible + size.steps, size.seen_rows)

                target, remaining = present.at(task * size.capacity * row), kept(earlier + size.steps)
                dropped = held + size.steps - remaining
                moved = larger(held - dropped, 0)
                apart = _address(past).differs(_address(present))
                with code.if_else(apart) as (copied, shifted):
                    with copied:
                        copy_bytes(code, target, source.at(dropped * row), moved * row, vector_bytes)
                    with shifted, code.if_then(dropped > 0), code.loop(moved) as at:  # a row never overlaps another
                        copy_bytes(code, target.at(at * row), source.at((at + dropped) * row), row, vector_bytes)
                add(target, larger(dropped - held, 0), moved)
                clear(target, remaining, size.capacity)
            with outside:
                error.store(0, code.integer(1))


def _address(pointer: Pointer) -> SSAValue:
    return pointer.misalignment(1 << 62)
