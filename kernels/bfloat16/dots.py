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
from jitonnx.kernels.parts.microkernel import accumulate_loop, emit_prefetch, load_vector, row_offsets

_LANES = 16
_I64, _WORD = llvm_ir.IntType(64), llvm_ir.IntType(32)


def row_sums(
    code: KernelBuilder,
    shape: tuple[int, int],
    x: Pointer,
    pitch: SSAValue,
    w: Pointer,
    words: SSAValue,
    ahead: tuple[Pointer, SSAValue] | tuple[()] = (),
) -> list[llvm_ir.Value]:
    """The sums of shape[0] rows by shape[1] columns, vectors of 16 row after row: of so many words of rows of x,
    `pitch` bytes apart, times those of a panel of w.

    ahead: memory that will be needed soon, and how many bytes of it are asked for with each word.
    """
    builder, (height, width) = code.builder, shape
    offsets, rows = row_offsets(pitch, height), x.as_bytes().value
    first_of = {first.reference: first for first, _ in offsets}
    starts = [builder.gep(rows, [first]) for first in first_of.values()]
    walks: list[tuple[llvm_ir.Value, llvm_ir.Value]]
    walks = [(w.to(types.int32).value, _I64(width)), *((start, _I64(4)) for start in starts)]
    if ahead:
        walks.append((ahead[0].as_bytes().value, ahead[1].value))

    def products(pointers: Sequence[llvm_ir.Value], current: list[llvm_ir.Value], steps: int) -> list[llvm_ir.Value]:
        right = [load_vector(builder, pointers[0], at, _LANES) for at in range(0, width, _LANES)]
        if ahead:
            emit_prefetch(builder, pointers[-1])
        places, following = dict(zip(first_of, pointers[1:], strict=False)), []
        for r, (first, offset) in enumerate(offsets):
            word = builder.load(builder.bitcast(builder.gep(places[first.reference], [offset]), _WORD.as_pointer()))
            word.align = 2
            left, sums = splat(builder, word, _LANES), current[r * len(right) : (r + 1) * len(right)]
            following += [
                add_pair_products(builder, total, left, vector) for total, vector in zip(sums, right, strict=True)
            ]
        return following

    zero = code.number(types.float32, 0, _LANES).value
    return accumulate_loop(builder, walks, [zero] * (height * width // _LANES), words.value, 1, products)


def in_vectors(code: KernelBuilder, sums: Sequence[llvm_ir.Value], lanes: int) -> list[llvm_ir.Value]:
    """Such sums in vectors of so many lanes: of one register or of two."""
    if lanes == _LANES:
        return list(sums)
    order = llvm_ir.Constant(llvm_ir.VectorType(_WORD, lanes), list(range(lanes)))
    return [code.builder.shuffle_vector(a, b, order) for a, b in zip(sums[::2], sums[1::2], strict=True)]
