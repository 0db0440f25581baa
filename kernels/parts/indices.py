"""What kernels that address memory by indices from the data share: checking them, and where rows of tensors start."""

from __future__ import annotations

from collections.abc import Callable

from jitonnx.emit import types
from jitonnx.emit.builder import KernelBuilder, Pointer, remainder
from jitonnx.emit.simd import convert
from jitonnx.emit.ssa import SSAValue, select

WORDS = {1: types.uint8, 2: types.uint16, 4: types.uint32, 8: types.uint64}
"""An element of so many bytes, where only its bits matter."""


def counted(index: SSAValue, extent: SSAValue) -> tuple[SSAValue, SSAValue]:
    """(the index counted from the start, whether it is in range)."""
    index = convert(index, types.int64)
    index = select(index < 0, index + extent, index)
    inside = index.builder.icmp_unsigned("<", index.value, extent.value)
    return index, SSAValue(index.builder, types.boolean, inside)


def only_valid(code: KernelBuilder, valid: SSAValue, error: Pointer, move: Callable[[], None]) -> None:
    """move() if an index is valid; else that is noted in `error`."""
    with code.if_else(valid) as (right, wrong):
        with right:
            move()
        with wrong:
            error.store(0, code.integer(1))


def row_start(code: KernelBuilder, first: int, rank: SSAValue, count: int, row: SSAValue) -> list[SSAValue]:
    """The offset, in elements, of row number `row` in each of `count` tensors.

    sizes[first …] holds for each of `rank` axes, the outermost first, its extent and its stride in each tensor.
    """
    rest = code.variable(row)
    starts = [code.variable(code.integer(0)) for _ in range(count)]
    with code.loop(rank) as done:
        axis = (rank - 1 - done) * (count + 1) + first
        extent, number = code.size(axis), rest.get()
        rest.set(number / extent)
        for which, start in enumerate(starts):
            start.set(start.get() + remainder(number, extent) * code.size(axis + (1 + which)))
    return [start.get() for start in starts]
