"""Sums of products of bfloat16 in AMX's tile registers: 16 rows of 64 bytes each, all eight alike.

A tile is named by its number. The first four hold sums of 2 x 2 tiles, two rows of x, two columns of w. The
configuration belongs to the thread, and other code may change it: a kernel sets it at its beginning, and releases it at
its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jitonnx.kernels.bfloat16.spec import LINE, TILE
from jitonnx.kernels.language import ir, types
from jitonnx.kernels.language.code import Code, Pointer
from jitonnx.kernels.language.llvm import declared
from jitonnx.kernels.language.trace import Traced

_X, _W = 4, 6
"""The first tiles of x and of w."""
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
    memory.store(0, Traced(code.builder, types.uint8, ir.Constant(ir.VectorType(ir.IntType(8), 64), numbers)))
    _instruction(code, "ldtilecfg", memory)
    yield
    _instruction(code, "tilerelease")


def clear(code: Code, rows: int, columns: int) -> None:
    """Sums of rows x columns tiles are 0."""
    for number in range(rows * columns):
        _instruction(code, "tilezero", number)


def multiply(code: Code, x: list[tuple[Pointer, Traced]], w: Pointer, columns: int, streams_w: bool) -> None:
    """A step: to the sums are added tiles of x, each by its place and the bytes between its rows, times those of w,
    which lie one after the other. What streams, w or x, is kept out of the first-level cache."""
    load_x, load_w = ("tileloadd64", "tileloaddt164")[:: 1 if streams_w else -1]
    for i, (place, pitch) in enumerate(x):
        for j in range(columns):
            if i == 0:
                _instruction(code, load_w, _W + j, w.at(j * TILE * LINE), code.integer(LINE))
            if j == 0:
                _instruction(code, load_x, _X + i, place, pitch)
            _instruction(code, "tdpbf16ps", i * columns + j, _X + i, _W + j)


def store(code: Code, rows: int, columns: int, sums: Pointer, pitch: Traced | None = None) -> None:
    """The sums to float32 [rows * 16, columns * 16] in memory, rows `pitch` bytes apart, or side by side."""
    pitch = code.integer(columns * LINE) if pitch is None else pitch
    for i in range(rows):
        for j in range(columns):
            place = sums.at(pitch * (i * TILE) + j * LINE)
            _instruction(code, "tilestored64", i * columns + j, place, pitch)


def _instruction(code: Code, name: str, *operands: int | Pointer | Traced) -> None:
    """One instruction; operands are tiles by number, addresses, and bytes from one row to the next."""
    values = [ir.IntType(8)(operand) if isinstance(operand, int) else operand.value for operand in operands]
    function = declared(code.builder, f"llvm.x86.{name}", ir.VoidType(), [value.type for value in values])
    code.builder.call(function, values)
