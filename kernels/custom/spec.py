"""What a user's kernel is: the sizes of its arrays, its tasks and work; and with its code, the LLVM IR of it."""

from __future__ import annotations

import functools
from math import prod
from typing import Any

from jitonnx.emit.arguments import Arguments, each, record
from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.support.records import dataclass


@functools.cache
def custom_sizes(extents: int) -> type[Arguments]:
    """How many items there are, which are the tasks; the extents of all operands, one operand behind the other."""
    return record("CustomSizes", items=None, extents=each(extents))


@functools.cache
def custom_buffers(inputs: int, outputs: int, errors: int) -> type[Arguments]:
    """The operands, all dense; and words, of which one is set to 1 where the function raised an exception."""
    return record(
        "CustomBuffers", inputs=each(inputs), outputs=each(outputs, result=True), errors=each(errors, result=True)
    )


@dataclass(frozen=True)
class CustomSpec(KernelSpec):
    """A function over arrays of `ranks` and `itemsizes`, inputs first, of which `inputs` are read; `errors`
    words tell what it raised. Task: one item."""

    ranks: tuple[int, ...]
    itemsizes: tuple[int, ...]
    inputs: int
    errors: int
    cost: int
    """Rough nanoseconds for one element of the outputs."""

    GFLOPS = 1  # so that `cost` is time

    @property
    def BUFFERS(self) -> Any:
        return custom_buffers(self.inputs, len(self.ranks) - self.inputs, self.errors)

    @property
    def SIZES(self) -> Any:
        return custom_sizes(sum(self.ranks))

    def tasks(self, sizes: Any) -> int:
        items: int = sizes.items
        return items

    def work(self, sizes: Any) -> Work:
        at, made, moved = 0, 0, 0
        for number, (rank, itemsize) in enumerate(zip(self.ranks, self.itemsizes, strict=True)):
            elements = prod(sizes.extents[at : at + rank])
            at += rank
            moved += elements * itemsize
            if number >= self.inputs:
                made += elements
        return Work(made * self.cost, moved)


@dataclass(frozen=True)
class CompiledSpec(CustomSpec):
    """A `CustomSpec` with its code: `ir` is a module that defines the kernel as the name that `linked.SYMBOL` is."""

    name: str
    ir: str

    @property
    def plain(self) -> CustomSpec:
        return CustomSpec(self.ranks, self.itemsizes, self.inputs, self.errors, self.cost)
