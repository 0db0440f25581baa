"""The kernel that looks bytes up in a table of 256: whole vectors at a time where the CPU finds bytes in registers, of
which a table is four (AVX-512 VBMI) or sixteen (AArch64); else one after the other."""

from __future__ import annotations

from jitonnx.emit import llvm_ir, types
from jitonnx.emit.builder import Kernel, KernelBuilder, Pointer, larger, remainder, smaller
from jitonnx.emit.intrinsics import declared
from jitonnx.emit.simd import convert
from jitonnx.emit.ssa import SSAValue, select
from jitonnx.kernels.lookup.spec import LookupBuffers, LookupSizes, LookupSpec

_PERMUTE = "llvm.x86.avx512.vpermi2var.qi.512"
_FIND, _FIND_OR_KEEP = "llvm.aarch64.neon.tbl4.v16i8", "llvm.aarch64.neon.tbx4.v16i8"
_NEON = 16
"""Bytes of a register of AArch64."""


def build(spec: LookupSpec, lanes: int) -> Kernel:
    """The kernel of `spec`, on any width of vectors."""

    def body(code: KernelBuilder, begin: SSAValue, end: SSAValue) -> None:
        x, table, y = code.buffers(LookupBuffers, types.uint8)
        size = code.sizes(LookupSizes)
        parts = (size.length + (size.task_length - 1)) / size.task_length
        found = _InRegisters(code, table)
        with code.loop(end, begin) as task:
            first, start = task / parts * size.task_rows, remainder(task, parts) * size.task_length
            length = smaller(size.length - start, size.task_length)
            with code.loop(smaller(first + size.task_rows, size.rows), first) as row:
                source, target = x.at(row * size.x_row + start), y.at(row * size.y_row + start)
                if found.lanes:
                    found.by_vectors(source, target, length)
                else:
                    _one_by_one(code, table, source, target, length)

    return body


def _one_by_one(code: KernelBuilder, table: Pointer, source: Pointer, target: Pointer, length: SSAValue) -> None:
    with code.loop(length) as i:
        target.store(i, table.load(convert(source.load(i), types.int64)))


class _InRegisters:
    """A table in registers, where the CPU looks up bytes there. lanes: how many at a time; 0 where it does not."""

    def __init__(self, code: KernelBuilder, table: Pointer) -> None:
        self._code, self._table = code, table
        self._on_arm = code.target.on_arm
        self.lanes = 2 * _NEON if self._on_arm else 64 if code.target.permutes_bytes else 0
        register = _NEON if self._on_arm else 64
        self._parts = [table.load(start, register) for start in range(0, 256, register)] if self.lanes else []

    def by_vectors(self, source: Pointer, target: Pointer, length: SSAValue) -> None:
        """`length` bytes; the last vector overlaps the one before, or is a part of one."""
        code, lanes = self._code, self.lanes
        find = self._found_by_tables if self._on_arm else self._found_by_permutations
        with code.if_else(length >= lanes) as (whole, short):
            with whole, code.loop(length, step=lanes) as i:
                at = larger(smaller(i, length - lanes), 0)
                target.store(at, find(source.load(at, lanes)))
            with short:
                if self._on_arm:  # which would mask byte by byte, too
                    _one_by_one(code, self._table, source, target, length)
                else:
                    active = code.active(length, lanes)
                    target.store(0, find(source.load(0, lanes, active)), active)

    def _found_by_permutations(self, index: SSAValue) -> SSAValue:
        """The bytes of the table at a vector of places: of both its halves, of which one counts."""
        builder, vector = index.builder, llvm_ir.VectorType(llvm_ir.IntType(8), self.lanes)
        function = declared(builder, _PERMUTE, vector, [vector] * 3)
        halves = [
            index.like(builder.call(function, [low.value, index.value, high.value]))
            for low, high in (self._parts[:2], self._parts[2:])
        ]
        return select(index < 128, *halves)

    def _found_by_tables(self, index: SSAValue) -> SSAValue:
        """The same by a quarter of the table at a time; places outside of one, less than 0 counting as large, keep what
        others have found."""
        builder, half = index.builder, llvm_ir.VectorType(llvm_ir.IntType(8), _NEON)
        quarters = [[part.value for part in self._parts[first : first + 4]] for first in range(0, 16, 4)]
        find = declared(builder, _FIND, half, [half] * 5)
        find_or_keep = declared(builder, _FIND_OR_KEEP, half, [half] * 6)
        places = [
            llvm_ir.Constant(llvm_ir.VectorType(llvm_ir.IntType(32), _NEON), list(range(at, at + _NEON)))
            for at in (0, _NEON)
        ]

        def found(own: llvm_ir.Constant) -> llvm_ir.Value:
            place = index.like(builder.shuffle_vector(index.value, index.value, own))
            result = builder.call(find, [*quarters[0], place.value])
            for number, quarter in enumerate(quarters[1:], 1):
                result = builder.call(find_or_keep, [result, *quarter, (place - 64 * number).value])
            return result

        both = llvm_ir.Constant(llvm_ir.VectorType(llvm_ir.IntType(32), self.lanes), list(range(self.lanes)))
        return index.like(builder.shuffle_vector(found(places[0]), found(places[1]), both))
