"""Sums of products of bfloat16 by products of matrices of 2 x 4 and 4 x 2 numbers (AArch64's bfmmla).

8 rows times 8 columns are 16 registers of sums, and 8 elements of each row are 8 more, as matrices. That leaves some
for matrices of w, each of which is read once.
"""

from __future__ import annotations

from jitonnx.emit import llvm_ir, types
from jitonnx.emit.builder import KernelBuilder, Pointer
from jitonnx.emit.intrinsics import declared
from jitonnx.emit.ssa import SSAValue
from jitonnx.kernels.bfloat16.spec import STEP, STRIP

HEIGHTS = (8, 2)
"""Rows of what is summed at a time: the usual, and what suffices for one or two."""
_DEEP = 4
"""Elements of a row that an instruction multiplies."""
_HALVES = llvm_ir.VectorType(llvm_ir.BfloatType(), 8)
_SUMS = llvm_ir.VectorType(llvm_ir.FloatType(), 4)
_I32 = llvm_ir.IntType(32)


class Sums:
    """Those of `height` rows and a strip of columns, 0 at first: of two rows and two columns a register."""

    def __init__(self, code: KernelBuilder, height: int) -> None:
        self._code, self._height = code, height
        zero = code.number(types.float32, 0, 4)
        self._blocks = [[code.variable(zero) for _ in range(STRIP // 2)] for _ in range(height // 2)]
        self._multiply = declared(code.builder, "llvm.aarch64.neon.bfmmla", _SUMS, [_SUMS, _HALVES, _HALVES])

    def add(self, x: Pointer, pitch: SSAValue, w: Pointer) -> None:
        """A step of STEP elements: rows of x, `pitch` bytes apart, times those of a strip of w."""
        code = self._code
        builder = code.builder
        with code.loop(STEP, 0, 2 * _DEEP) as at:
            rows = [x.at(pitch * r + at * 2).to(types.uint16).load(0, 2 * _DEEP) for r in range(self._height)]
            weights = w.at(at * (STRIP * 2)).to(types.uint16)
            for half in range(2):
                places = [half * _DEEP + i for i in range(_DEEP)]
                left = [self._joined(a, b, places) for a, b in zip(rows[::2], rows[1::2], strict=True)]
                for j in range(STRIP // 2):
                    right = weights.load((half * STRIP // 2 + j) * 2 * _DEEP, 2 * _DEEP)
                    columns = builder.bitcast(right.value, _HALVES)
                    for pair, matrix in zip(self._blocks, left, strict=True):
                        total = pair[j].get()
                        pair[j].set(total.like(builder.call(self._multiply, [total.value, matrix, columns])))

    def _joined(self, a: SSAValue, b: SSAValue, places: list[int]) -> llvm_ir.Value:
        """Elements of two rows as a matrix."""
        mask = llvm_ir.Constant(
            llvm_ir.VectorType(_I32, 2 * _DEEP), [*places, *(2 * _DEEP + place for place in places)]
        )
        return a.builder.bitcast(a.builder.shuffle_vector(a.value, b.value, mask), _HALVES)

    def store(self, sums: Pointer, pitch: int) -> None:
        """Write the sums to memory as float32, in rows that are `pitch` elements apart."""
        for number, pair in enumerate(self._blocks):
            done = [block.get() for block in pair]
            for row in range(2):
                mask = llvm_ir.Constant(llvm_ir.VectorType(_I32, 4), [2 * row, 2 * row + 1, 4 + 2 * row, 5 + 2 * row])
                for j, (a, b) in enumerate(zip(done[::2], done[1::2], strict=True)):
                    joined = a.like(a.builder.shuffle_vector(a.value, b.value, mask))
                    sums.store((2 * number + row) * pitch + 4 * j, joined)
