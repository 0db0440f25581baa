"""The gathering kernels."""

from __future__ import annotations

import functools

from jitonnx.emit import llvm_ir, types
from jitonnx.emit.builder import Kernel, KernelBuilder, Pointer, larger, remainder, smaller
from jitonnx.emit.ssa import SSAValue, select
from jitonnx.kernels.gather.spec import (
    GatherBuffers,
    GatherElementsSizes,
    GatherElementsSpec,
    GatherRowsSizes,
    GatherRowsSpec,
    ReverseSequenceBuffers,
    ReverseSequenceSizes,
    ReverseSequenceSpec,
)
from jitonnx.kernels.parts.indices import WORDS, counted, only_valid, row_start
from jitonnx.kernels.parts.memory import copy_bytes
from jitonnx.kernels.parts.microkernel import emit_prefetch
from jitonnx.target import tuning

_LANES = 8
"""Indices checked at once by GatherElements: one vector of int64 at its widest."""
GatherSpec = GatherRowsSpec | GatherElementsSpec | ReverseSequenceSpec


def build(spec: GatherSpec, lanes: int) -> Kernel:
    """The kernel of `spec` for vectors of 4 * lanes bytes."""
    if isinstance(spec, GatherRowsSpec):
        return lambda code, begin, end: _gather_rows(code, spec, 4 * lanes, begin, end)
    if isinstance(spec, ReverseSequenceSpec):
        return lambda code, begin, end: _reverse_sequence(code, spec, 4 * lanes, begin, end)
    return lambda code, begin, end: _gather_elements(code, spec, begin, end)


def _buffers(
    code: KernelBuilder, spec: GatherRowsSpec | GatherElementsSpec, element: types.ElementType
) -> GatherBuffers:
    return code.buffers(GatherBuffers, element, indices=getattr(types, spec.index), error=types.int64)


def _gather_rows(code: KernelBuilder, spec: GatherRowsSpec, vector_bytes: int, begin: SSAValue, end: SSAValue) -> None:
    size = code.sizes(GatherRowsSizes)
    data, indices, out, error = _buffers(code, spec, types.uint8)
    strides = [*zip(size.extents[: spec.width], size.data[: spec.width], strict=True)]
    start, stop = (code.integer(bound) * size.task_rows for bound in (begin, end))
    count = larger(size.count, 1)
    stop = smaller(stop, size.batch * count)
    with code.loop((stop + (count - 1)) / count, start / count) as batch:
        before = batch * count
        with code.loop(smaller(stop - before, count), larger(start - before, 0)) as run:
            place = batch * size.indices_batch + run * size.indices_row
            offset, found = batch * size.data_batch, code.integer(0) < 1
            for i, (extent, stride) in enumerate(strides):
                index, valid = counted(indices.load(place + i), extent)
                offset, found = offset + index * stride, found & valid
            target = out.at(batch * size.out_batch + run * size.out_row)
            run_bytes = spec.piece or size.run_bytes
            move = functools.partial(_copy_run, code, target, data.at(offset), run_bytes, vector_bytes)
            only_valid(code, found, error, move)


def _copy_run(code: KernelBuilder, target: Pointer, source: Pointer, count: SSAValue | int, vector_bytes: int) -> None:
    if isinstance(count, int):
        target.store(0, source.load(0, count))
    else:
        copy_bytes(code, target, source, count, vector_bytes)


def _gather_elements(code: KernelBuilder, spec: GatherElementsSpec, begin: SSAValue, end: SSAValue) -> None:
    size, buffers = code.sizes(GatherElementsSizes), _buffers(code, spec, WORDS[spec.itemsize])
    with code.if_else(size.axis_extent > 0) as (some, none):
        with some:
            _gather_rows_of_elements(code, size, begin, end, buffers)
        with none:
            buffers.error.store(0, code.integer(1))


def _gather_rows_of_elements(
    code: KernelBuilder, size: GatherElementsSizes, begin: SSAValue, end: SSAValue, buffers: GatherBuffers
) -> None:
    """Vectors of indices at once where rows are dense, then single ones.

    Lanes whose index is out of range fetch element 0, which there is, and are only noted: no branch an element.
    """
    outer, error = GatherElementsSizes.place("outer"), buffers.error
    stop = smaller(end * size.task_rows, size.rows)
    all_right = code.variable(_all_true(code))
    spread = {name: code.splat(getattr(size, name), _LANES) for name in ("axis_extent", "axis_stride", "inner_data")}
    is_dense = size.inner_indices.equals(1) & size.inner_out.equals(1)
    inner = size.inner_extent
    whole = select(is_dense, inner - remainder(inner, code.integer(_LANES)), 0)
    with code.loop(stop, begin * size.task_rows) as row:
        starts = row_start(code, outer, size.outer_rank, 3, row)
        data, indices, out = (pointer.at(start) for pointer, start in zip(buffers[:3], starts, strict=True))
        with code.loop(whole, step=_LANES) as i:
            emit_prefetch(code.builder, indices.at(i + tuning.GATHER_AHEAD).value)
            index, valid = counted(indices.load(i, _LANES), spread["axis_extent"])
            all_right.set(all_right.get() & valid)
            along = (code.splat(i, _LANES) + code.iota(_LANES)) * spread["inner_data"]
            sources = select(valid, index, 0) * spread["axis_stride"] + along
            if data.element.bitwidth >= 32:  # an instruction of some CPUs, on Intel's 0.8 of the time
                out.store(i, data.gather(sources))
            else:
                for lane in range(_LANES):
                    out.store(i + lane, data.load(_lane(code, sources, lane)))
        with code.loop(inner, whole) as i:
            index, valid = counted(indices.load(i * size.inner_indices), size.axis_extent)
            source, target = i * size.inner_data + index * size.axis_stride, i * size.inner_out
            only_valid(code, valid, error, functools.partial(_move, data, source, out, target))
    with code.if_then(~_all(all_right.get())):
        error.store(0, code.integer(1))


def _all_true(code: KernelBuilder) -> SSAValue:
    return SSAValue(
        code.builder, types.boolean, llvm_ir.Constant(llvm_ir.VectorType(llvm_ir.IntType(1), _LANES), [1] * _LANES)
    )


def _all(condition: SSAValue) -> SSAValue:
    """Whether a condition holds in all lanes."""
    builder = condition.builder
    bits = builder.bitcast(condition.value, llvm_ir.IntType(_LANES))
    return SSAValue(builder, types.boolean, builder.icmp_unsigned("==", bits, bits.type((1 << _LANES) - 1)))


def _lane(code: KernelBuilder, x: SSAValue, number: int) -> SSAValue:
    return x.like(code.builder.extract_element(x.value, code.integer(number).value))


def _move(data: Pointer, source: SSAValue, out: Pointer, target: SSAValue) -> None:
    out.store(target, data.load(source))


def _reverse_sequence(
    code: KernelBuilder, spec: ReverseSequenceSpec, vector_bytes: int, begin: SSAValue, end: SSAValue
) -> None:
    size, words = code.sizes(ReverseSequenceSizes), {"lengths": types.int64, "error": types.int64}
    data, lengths, out, error = code.buffers(ReverseSequenceBuffers, types.uint8, **words)
    time_extent = size.second if spec.time_axis else size.first
    last = smaller(end * size.task_rows, size.first)
    with code.loop(last, begin * size.task_rows) as first, code.loop(size.second) as second:
        time, batch = (second, first) if spec.time_axis else (first, second)
        length = lengths.load(batch)
        time = select(time < length, length - 1 - time, time)
        source = (first, time) if spec.time_axis else (time, second)
        start = data.at(source[0] * size.data_first + source[1] * size.data_second)
        target = out.at(first * size.out_first + second * size.out_second)
        move = functools.partial(copy_bytes, code, target, start, size.run_bytes, vector_bytes)
        only_valid(code, (length >= 0) & (length <= time_extent), error, move)
