"""The kernel that looks bytes up in a table of 256: whole vectors at a time where the CPU permutes bytes, of which a
table is four registers; else one after the other."""

from __future__ import annotations

from jitonnx.kernels.language import ir, types
from jitonnx.kernels.language.code import Code, Kernel, Pointer, larger, remainder, smaller
from jitonnx.kernels.language.llvm import declared
from jitonnx.kernels.language.simd import convert
from jitonnx.kernels.language.trace import Traced, select
from jitonnx.kernels.lookup.spec import LookupBuffers, LookupSizes, LookupSpec

_LANES = 64
_PERMUTE = "llvm.x86.avx512.vpermi2var.qi.512"


def build(spec: LookupSpec, lanes: int) -> Kernel:
    """The kernel of `spec`, on any width of vectors."""

    def body(code: Code, begin: Traced, end: Traced) -> None:
        x, table, y = code.buffers(LookupBuffers, types.uint8)
        size = code.sizes(LookupSizes)
        parts = (size.length + (size.task_length - 1)) / size.task_length
        wide = code.target.permutes_bytes
        quarters = [table.load(start, _LANES) for start in range(0, 256, _LANES)] if wide else []
        with code.loop(end, begin) as task:
            first, start = task / parts * size.task_rows, remainder(task, parts) * size.task_length
            length = smaller(size.length - start, size.task_length)
            with code.loop(smaller(first + size.task_rows, size.rows), first) as row:
                source, target = x.at(row * size.x_row + start), y.at(row * size.y_row + start)
                if wide:
                    _by_vectors(code, quarters, source, target, length)
                else:
                    with code.loop(length) as i:
                        target.store(i, table.load(convert(source.load(i), types.int64)))

    return body


def _by_vectors(code: Code, quarters: list[Traced], source: Pointer, target: Pointer, length: Traced) -> None:
    """`length` bytes; the last vector overlaps the one before, or is a part of one."""
    with code.either(length >= _LANES) as (whole, short):
        with whole, code.loop(length, step=_LANES) as i:
            at = larger(smaller(i, length - _LANES), 0)
            target.store(at, _found(quarters, source.load(at, _LANES)))
        with short:
            live = code.live(length, _LANES)
            target.store(0, _found(quarters, source.load(0, _LANES, live)), live)


def _found(quarters: list[Traced], index: Traced) -> Traced:
    """The bytes of a table at a vector of places."""
    builder, vector = index.builder, ir.VectorType(ir.IntType(8), _LANES)
    function = declared(builder, _PERMUTE, vector, [vector] * 3)
    halves = [
        index.like(builder.call(function, [low.value, index.value, high.value]))
        for low, high in (quarters[:2], quarters[2:])
    ]
    return select(index < 128, *halves)
