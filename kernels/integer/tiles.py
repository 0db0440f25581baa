"""Sums of products of small integers in AMX's tile registers: 16 rows of 64 bytes each, all eight alike.

A tile is named by its number. The first four hold sums of 2 x 2 tiles, two rows of x, two columns of w. The
configuration belongs to the thread, and other code may change it: a kernel sets it at its beginning, and releases it at
its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jitonnx.kernels.integer.spec import STEP, IntegerSpec
from jitonnx.kernels.language import ir, types
from jitonnx.kernels.language.code import Code, Pointer
from jitonnx.kernels.language.llvm import declared
from jitonnx.kernels.language.trace import Traced

ROWS = 16
"""Rows of a tile, and 32-bit columns."""
_X, _W = 4, 6
"""The first tiles of x and of w."""
_PALETTE, _FIRST_WIDTH, _FIRST_HEIGHT = 0, 16, 48
"""Where the configuration's bytes are: the palette, the tiles' bytes a row (two each), their rows."""


@contextmanager
def configured(code: Code) -> Iterator[None]:
    """Tiles may be used within the block."""
    numbers = [0] * 64
    numbers[_PALETTE] = 1
    numbers[_FIRST_WIDTH : _FIRST_WIDTH + 16 : 2] = [STEP] * 8
    numbers[_FIRST_HEIGHT : _FIRST_HEIGHT + 8] = [ROWS] * 8
    memory = code.memory(types.uint8, 64)
    configuration = ir.Constant(ir.VectorType(ir.IntType(8), 64), numbers)
    memory.store(0, Traced(code.builder, types.uint8, configuration))
    _instruction(code, "ldtilecfg", memory)
    yield
    _instruction(code, "tilerelease")


def emit_tile_products(
    code: Code,
    spec: IntegerSpec,
    height: int,
    first: Pointer | None,
    x: Pointer,
    row_bytes: Traced,
    w: Pointer,
    steps: Traced,
    sums: Pointer,
) -> None:
    """sums int32 [height, spec.width] of `height` gathered rows and a panel, over `steps` of 64 products; each row
    begins with `first` [spec.width], or with 0."""
    rows, columns = height // ROWS, spec.width // ROWS
    panel_row = spec.width * spec.group
    product = "tdpbssd" if spec.signed else "tdpbusd"
    for number in range(rows * columns):
        if first is None:
            _instruction(code, "tilezero", number)
        else:
            _instruction(code, "tileloadd64", number, first.at(number % columns * ROWS), code.integer(0))
    with code.loop(steps) as step:
        panel, left = w.at(step * (ROWS * panel_row)), x.at(step * STEP)
        for i in range(rows):
            _instruction(code, "tileloadd64", _X + i, left.at(row_bytes * (ROWS * i)), row_bytes)
            for j in range(columns):
                if i == 0:
                    _instruction(code, "tileloadd64", _W + j, panel.at(j * STEP), code.integer(panel_row))
                _instruction(code, product, i * columns + j, _X + i, _W + j)
    for i in range(rows):
        for j in range(columns):
            place = sums.at(i * ROWS * spec.width + j * ROWS).as_bytes()
            _instruction(code, "tilestored64", i * columns + j, place, code.integer(4 * spec.width))


def _instruction(code: Code, name: str, *operands: int | Pointer | Traced) -> None:
    """One instruction; operands are tiles by number, addresses, and bytes from one row to the next."""
    values = [ir.IntType(8)(operand) if isinstance(operand, int) else operand.value for operand in operands]
    function = declared(code.builder, f"llvm.x86.{name}", ir.VoidType(), [value.type for value in values])
    code.builder.call(function, values)
