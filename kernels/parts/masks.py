"""Choosing elements by conditions that vectors are compared with: bit masks, and what is done for each bit."""

from __future__ import annotations

from collections.abc import Callable

from jitonnx.emit import llvm_ir
from jitonnx.emit.builder import KernelBuilder, Pointer, remainder
from jitonnx.emit.intrinsics import llvm_intrinsic
from jitonnx.emit.ssa import SSAValue

Chosen = Callable[[SSAValue, "int | None"], SSAValue]
"""Which elements are chosen: `chosen(first, lanes)` of so many from `first` on, `chosen(first, None)` of one."""


def mask_of(code: KernelBuilder, condition: SSAValue) -> SSAValue:
    """A condition in at most 64 lanes, or in none, as an int64: bit i is lane i."""
    lanes = max(condition.lanes, 1)
    bits = code.builder.bitcast(condition.value, llvm_ir.IntType(lanes)) if condition.lanes else condition.value
    return code.integer(bits if lanes == 64 else code.builder.zext(bits, llvm_ir.IntType(64)))


def ones(mask: SSAValue) -> SSAValue:
    """How many bits are set."""
    return mask.like(llvm_intrinsic(mask.builder, "ctpop", mask.value.type, [mask.value], mask.value.type))


def each_bit(code: KernelBuilder, mask: SSAValue, body: Callable[[SSAValue], None]) -> None:
    """body(number) for each bit that is set, the lowest first."""
    rest = code.variable(mask)
    with code.loop_while(lambda: rest.get().differs(0)):
        bits = rest.get()
        body(code.integer(bits.builder.cttz(bits.value, llvm_ir.Constant(llvm_ir.IntType(1), 1))))
        rest.set(bits & (bits - 1))


def each_mask(
    code: KernelBuilder, elements: SSAValue, lanes: int, chosen: Chosen, body: Callable[[SSAValue, SSAValue], None]
) -> None:
    """body(first, mask) for pieces of `elements`: bit i of the mask says whether element first + i is chosen."""
    whole = elements - remainder(elements, code.integer(lanes))
    with code.loop(whole, step=lanes) as first:
        body(first, mask_of(code, chosen(first, lanes)))
    with code.loop(elements, whole) as first:
        body(first, mask_of(code, chosen(first, None)))


def places_of(code: KernelBuilder, elements: SSAValue, lanes: int, chosen: Chosen, places: Pointer) -> SSAValue:
    """Write the numbers (int64) of the chosen ones of `elements` elements; how many there are."""
    count = code.variable(code.integer(0))

    def add(first: SSAValue, mask: SSAValue) -> None:
        def store(bit: SSAValue) -> None:
            places.store(count.get(), first + bit)
            count.set(count.get() + 1)

        each_bit(code, mask, store)

    each_mask(code, elements, lanes, chosen, add)
    return count.get()
