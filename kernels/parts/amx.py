"""AMX's tile registers: 16 rows of 64 bytes each, all eight alike.

A tile is named by its number. The configuration belongs to the thread, and other code may change it: a kernel sets it
at its beginning, and releases it at its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jitonnx.kernels.language import ir, types
from jitonnx.kernels.language.code import Code, Pointer
from jitonnx.kernels.language.llvm import declared
from jitonnx.kernels.language.trace import Traced
from jitonnx.kernels.parts.layouts import LINE, TILE

FIRST_X, FIRST_W = 4, 6
"""The first tiles of the operands of a product; those before hold sums of 2 x 2 tiles: two rows of x, two columns of
w."""
_PALETTE, _FIRST_WIDTH, _FIRST_HEIGHT = 0, 16, 48
"""Where the configuration's bytes are: the palette, the tiles' bytes a row (two each), their rows."""


@contextmanager
def configured(code: Code) -> Iterator[None]:
    """Tiles may be used within the block."""
    numbers = [0] * 64
    numbers[_PALETTE] = 1
    numbers[_FIRST_WIDTH : _FIRST_WIDTH + 16 : 2] = [LINE] * 8
    numbers[_FIRST_HEIGHT : _FIRST_HEIGHT + 8] = [TILE] * 8
    memory = code.memory(types.uint8, 64)
    configuration = ir.Constant(ir.VectorType(ir.IntType(8), 64), numbers)
    memory.store(0, Traced(code.builder, types.uint8, configuration))
    instruction(code, "ldtilecfg", memory)
    yield
    instruction(code, "tilerelease")


def instruction(code: Code, name: str, *operands: int | Pointer | Traced) -> None:
    """One instruction; operands are tiles by number, addresses, and bytes from one row to the next."""
    values = [ir.IntType(8)(operand) if isinstance(operand, int) else operand.value for operand in operands]
    function = declared(code.builder, f"llvm.x86.{name}", ir.VoidType(), [value.type for value in values])
    code.builder.call(function, values)
