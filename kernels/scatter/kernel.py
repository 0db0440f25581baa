"""The scattering kernels."""

from __future__ import annotations

import functools
from typing import Any

from jitonnx.emit import types
from jitonnx.emit.builder import Kernel, KernelBuilder, Pointer, each_vector, remainder, smaller
from jitonnx.emit.ssa import SSAValue, isnan, select
from jitonnx.kernels.parts.indices import counted, only_valid, row_start
from jitonnx.kernels.parts.memory import copy_bytes
from jitonnx.kernels.scatter.spec import (
    ScatterBuffers,
    ScatterElementsSizes,
    ScatterElementsSpec,
    ScatterRowsSizes,
    ScatterRowsSpec,
)


def build(spec: ScatterElementsSpec | ScatterRowsSpec, lanes: int) -> Kernel:
    """The kernel of `spec` for vectors of `lanes` elements (of spec.element)."""
    if isinstance(spec, ScatterElementsSpec):
        return lambda code, begin, end: _scatter_elements(code, spec, begin, end)
    return lambda code, begin, end: _scatter_rows(code, spec, lanes, begin, end)


def _combine(reduction: str, old: SSAValue, new: SSAValue) -> SSAValue:
    """What an element becomes; where one of both is NaN, that."""
    if reduction in ("add", "mul"):
        return old + new if reduction == "add" else old * new
    sign = ">" if reduction == "max" else "<"
    if old.is_float:
        kept = (old > new if reduction == "max" else old < new) | isnan(old)
    else:
        compare = old.builder.icmp_signed if old.element.signed else old.builder.icmp_unsigned
        kept = SSAValue(old.builder, types.boolean, compare(sign, old.value, new.value))
    return select(kept, old, new)


def _write(spec: Any, updates: Pointer, source: SSAValue, out: Pointer, target: SSAValue) -> None:
    """One element of out from one of updates."""
    new = updates.load(source)
    out.store(target, new if spec.reduction == "none" else _combine(spec.reduction, out.load(target), new))


def _buffers(code: KernelBuilder, spec: ScatterElementsSpec | ScatterRowsSpec) -> ScatterBuffers:
    element, index = getattr(types, spec.element), getattr(types, spec.index)
    return code.buffers(ScatterBuffers, element, indices=index, error=types.int64)


def _scatter_elements(code: KernelBuilder, spec: ScatterElementsSpec, begin: SSAValue, end: SSAValue) -> None:
    size, outer = code.sizes(ScatterElementsSizes), ScatterElementsSizes.place("outer")
    buffers = _buffers(code, spec)
    with code.loop(smaller(end * size.task_units, size.units), begin * size.task_units) as unit:
        first = remainder(unit, size.blocks) * size.block
        given, start = row_start(code, outer, size.outer_rank, 2, unit / size.blocks)
        given, start = given + first * size.fast_given, start + first * size.fast_out
        indices, updates = buffers.indices.at(given), buffers.updates.at(given)
        out, count = buffers.out.at(start), smaller(size.fast_extent - first, size.block)
        with code.loop(size.slow_extent) as slow, code.loop(count) as fast:
            source = slow * size.slow_given + fast * size.fast_given
            index, valid = counted(indices.load(source), size.axis_extent)
            target = index * size.axis_stride + fast * size.fast_out
            only_valid(code, valid, buffers.error, functools.partial(_write, spec, updates, source, out, target))


def _scatter_rows(code: KernelBuilder, spec: ScatterRowsSpec, lanes: int, begin: SSAValue, end: SSAValue) -> None:
    size = code.sizes(ScatterRowsSizes)
    extents, strides = ScatterRowsSizes.place("extents"), ScatterRowsSizes.place("strides")
    indices, updates, out, error = _buffers(code, spec)
    first, stop = begin * size.block, smaller(end * size.block, size.run)
    updates, out = updates.at(first), out.at(first)
    with code.loop(size.count) as row:
        offset, found = code.variable(code.integer(0)), code.variable(code.integer(1))
        with code.loop(size.width) as i:
            index, valid = counted(indices.load(row * size.width + i), code.size(i + extents))
            offset.set(offset.get() + index * code.size(i + strides))
            found.set(select(valid, found.get(), 0))
        source, target = updates.at(row * size.run), out.at(offset.get())
        write = functools.partial(_write_run, code, spec, lanes, source, target, stop - first)
        only_valid(code, found.get().equals(1), error, write)


def _write_run(
    code: KernelBuilder, spec: ScatterRowsSpec, lanes: int, updates: Pointer, out: Pointer, count: SSAValue
) -> None:
    """`count` elements of out from as many of updates, next to each other."""
    with code.if_else(count < lanes) as (short, long):
        with short, code.loop(count) as i:
            _write(spec, updates, i, out, i)
        with long:
            if spec.reduction == "none":
                item = updates.element.bitwidth // 8
                copy_bytes(code, out.as_bytes(), updates.as_bytes(), count * item, lanes * max(4, item))
            else:
                each_vector(code, count, lanes, functools.partial(_combine_vector, spec, updates, out))


def _combine_vector(
    spec: ScatterRowsSpec, updates: Pointer, out: Pointer, first: SSAValue, width: int, mask: Any, active: SSAValue
) -> None:
    old, new = out.load(first, width, mask), updates.load(first, width, mask)
    out.store(first, _combine(spec.reduction, old, new), mask)
