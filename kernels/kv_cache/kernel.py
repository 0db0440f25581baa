"""The kernel that adds rows to a cache."""

from __future__ import annotations

from jitonnx.emit import types
from jitonnx.emit.builder import Kernel, KernelBuilder, Pointer, larger, remainder, smaller
from jitonnx.emit.ssa import SSAValue
from jitonnx.kernels.kv_cache.spec import CacheBuffers, CacheSizes, CacheSpec
from jitonnx.kernels.parts.memory import copy_bytes, fill


def build(spec: CacheSpec, lanes: int) -> Kernel:
    """The kernel of `spec` for vectors of `lanes` elements of its size."""
    return lambda code, begin, end: _emit(code, spec, lanes * spec.itemsize, begin, end)


def _emit(code: KernelBuilder, spec: CacheSpec, vector_bytes: int, begin: SSAValue, end: SSAValue) -> None:
    size = code.sizes(CacheSizes)
    past, new, start, present, error = code.buffers(CacheBuffers, types.uint8, start=types.int64, error=types.int64)
    row = size.depth * spec.itemsize
    with code.loop(end, begin) as task:
        batch, head = task / size.heads, remainder(task, size.heads)
        first = start.load(batch)
        target = present.at(task * size.rows * row)
        if spec.past:
            source = past.at(task * size.past_rows * row)
            with code.if_then(_address(code, past).differs(_address(code, present))):
                before = larger(smaller(first, size.past_rows), 0)
                copy_bytes(code, target, source, before * row, vector_bytes)
                behind = larger(smaller(first + size.steps, size.past_rows), 0)
                copied = size.past_rows - behind
                copy_bytes(code, target.at(behind * row), source.at(behind * row), copied * row, vector_bytes)
                _clear(code, target.at(size.past_rows * row), (size.rows - size.past_rows) * row, vector_bytes)
        else:
            _clear(code, target, size.rows * row, vector_bytes)
        fits = (first >= 0) & (first + size.steps <= size.rows)
        with code.if_else(fits) as (inside, outside):
            with inside:
                added = new.at((batch * size.new_batch + head * size.new_head) * spec.itemsize)
                with code.loop(size.steps) as step:
                    place = target.at((first + step) * row)
                    copy_bytes(code, place, added.at(step * size.new_row * spec.itemsize), row, vector_bytes)
            with outside:
                error.store(0, code.integer(1))


def _address(code: KernelBuilder, pointer: Pointer) -> SSAValue:
    return pointer.misalignment(1 << 62)


def _clear(code: KernelBuilder, target: Pointer, count: SSAValue, vector_bytes: int) -> None:
    fill(code, target, code.number(types.uint8, 0), larger(count, 0), vector_bytes)
