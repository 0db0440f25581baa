"""Sums of products of bfloat16 by dot products of the two numbers in each lane (AVX512-BF16's vdpbf16ps).

A word of a row, two of its elements, is spread over a vector and multiplied with as many of each column: as in
products of float32, whose elements are words.
"""

from __future__ import annotations

from collections.abc import Sequence

from jitonnx.emit import llvm_ir, types
from jitonnx.emit.builder import KernelBuilder, Pointer
from jitonnx.emit.instructions import add_pair_products
from jitonnx.emit.intrinsics import splat
from jitonnx.emit.ssa import SSAValue
from jitonnx.kernels.parts.microkernel import accumulate_loop, load_vector, row_offsets

_LANES = 16
_I64, _WORD = llvm_ir.IntType(64), llvm_ir.IntType(32)


class RowSums:
    """Those of `height` rows and `width` columns, 0 at first, each vector in a register."""

    def __init__(self, code: KernelBuilder, height: int, width: int) -> None:
        self._code, self._height, self._width = code, height, width
        zero = code.number(types.float32, 0, _LANES)
        self._sums = [code.variable(zero) for _ in range(height * (width // _LANES))]

    def add(self, x: Pointer, pitch: SSAValue, w: Pointer, words: SSAValue) -> None:
        """So many words of rows of x, `pitch` bytes apart, times those of a panel of w."""
        builder, offsets = self._code.builder, row_offsets(pitch, self._height)
        rows, panel = x.as_bytes().value, w.to(types.int32).value
        first_of = {first.reference: first for first, _ in offsets}
        starts = [builder.gep(rows, [first]) for first in first_of.values()]
        walks = [(panel, _I64(self._width)), *((start, _I64(4)) for start in starts)]

        def products(
            pointers: Sequence[llvm_ir.Value], current: list[llvm_ir.Value], steps: int
        ) -> list[llvm_ir.Value]:
            right = [load_vector(builder, pointers[0], at, _LANES) for at in range(0, self._width, _LANES)]
            places, following = dict(zip(first_of, pointers[1:], strict=True)), []
            for r, (first, offset) in enumerate(offsets):
                word = builder.load(builder.bitcast(builder.gep(places[first.reference], [offset]), _WORD.as_pointer()))
                word.align = 2
                left, sums = splat(builder, word, _LANES), current[r * len(right) : (r + 1) * len(right)]
                following += [
                    add_pair_products(builder, total, left, vector) for total, vector in zip(sums, right, strict=True)
                ]
            return following

        before = [place.get().value for place in self._sums]
        for place, total in zip(
            self._sums, accumulate_loop(builder, walks, before, words.value, 1, products), strict=True
        ):
            place.set(place.get().like(total))

    def vectors(self, lanes: int) -> list[llvm_ir.Value]:
        """The sums, row by row, in vectors of so many lanes: of one register or of two."""
        sums = [place.get() for place in self._sums]
        if lanes == _LANES:
            return [total.value for total in sums]
        order = llvm_ir.Constant(llvm_ir.VectorType(llvm_ir.IntType(32), lanes), list(range(lanes)))
        pairs = zip(sums[::2], sums[1::2], strict=True)
        return [self._code.builder.shuffle_vector(a.value, b.value, order) for a, b in pairs]
