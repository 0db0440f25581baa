"""AMX's tile registers: 16 rows of 64 bytes each, all eight alike.

A tile is named by its number. The configuration belongs to the thread, and other code may change it: a kernel sets it
at its beginning, and releases it at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from jitonnx.emit import llvm_ir, types
from jitonnx.emit.builder import KernelBuilder, Pointer
from jitonnx.emit.intrinsics import declared
from jitonnx.emit.ssa import SSAValue
from jitonnx.kernels.parts.layouts import LINE, TILE

FIRST_X, FIRST_W = 4, 6
"""The first tiles of the operands of a product; those before hold sums of 2 x 2 tiles: two rows of x, two columns of
w."""
_PALETTE, _FIRST_WIDTH, _FIRST_HEIGHT = 0, 16, 48
"""The configuration has there the palette, the tiles' bytes a row (two each), and their rows."""


@contextmanager
def configured(code: KernelBuilder) -> Iterator[None]:
    """Tiles may be used within the block."""
    numbers = [0] * 64
    numbers[_PALETTE] = 1
    numbers[_FIRST_WIDTH : _FIRST_WIDTH + 16 : 2] = [LINE] * 8
    numbers[_FIRST_HEIGHT : _FIRST_HEIGHT + 8] = [TILE] * 8
    memory = code.memory(types.uint8, 64)
    configuration = llvm_ir.Constant(llvm_ir.VectorType(llvm_ir.IntType(8), 64), numbers)
    memory.store(0, SSAValue(code.builder, types.uint8, configuration))
    instruction(code, "ldtilecfg", memory)
    yield
    instruction(code, "tilerelease")


def instruction(code: KernelBuilder, name: str, *operands: int | Pointer | SSAValue) -> None:
    """One instruction; operands are tiles by number, addresses, and bytes from one row to the next."""
    values = [llvm_ir.IntType(8)(operand) if isinstance(operand, int) else operand.value for operand in operands]
    function = declared(code.builder, f"llvm.x86.{name}", llvm_ir.VoidType(), [value.type for value in values])
    code.builder.call(function, values)


def clear(code: KernelBuilder, rows: int, columns: int) -> None:
    """Sums of rows x columns tiles are 0."""
    for number in range(rows * columns):
        instruction(code, "tilezero", number)


def multiply(
    code: KernelBuilder,
    product: str,
    x: list[tuple[Pointer, SSAValue]],
    w: Pointer,
    columns: int,
    *,
    streams_w: bool,
    before: Callable[[int], None] = lambda number: None,
) -> None:
    """A step: to the sums are added tiles of x, each by its place and the bytes between its rows, times those of w,
    which lie one after the other. What streams, w or x, is kept out of the first-level cache. before: emits what
    precedes the product of a sum, by its number."""
    load_x, load_w = ("tileloadd64", "tileloaddt164")[:: 1 if streams_w else -1]
    for i, (place, pitch) in enumerate(x):
        for j in range(columns):
            if i == 0:
                instruction(code, load_w, FIRST_W + j, w.at(j * TILE * LINE), code.integer(LINE))
            if j == 0:
                instruction(code, load_x, FIRST_X + i % 2, place, pitch)
            before(i * columns + j)
            instruction(code, product, i * columns + j, FIRST_X + i % 2, FIRST_W + j)


def store(code: KernelBuilder, rows: int, columns: int, sums: Pointer, pitch: SSAValue | None = None) -> None:
    """The sums to memory, 32 bits [rows * 16, columns * 16], rows `pitch` bytes apart, or side by side."""
    for number in range(rows * columns):
        store_tile(code, number, columns, sums, pitch)


def store_tile(code: KernelBuilder, number: int, columns: int, sums: Pointer, pitch: SSAValue | None = None) -> None:
    """One of the sums that `store` puts into memory."""
    pitch = code.integer(columns * LINE) if pitch is None else pitch
    place = sums.at(pitch * (number // columns * TILE) + number % columns * LINE)
    instruction(code, "tilestored64", number, place, pitch)
