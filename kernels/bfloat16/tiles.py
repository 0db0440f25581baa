"""Sums of products of bfloat16 in AMX's tile registers."""

from __future__ import annotations

from jitonnx.kernels.language.code import Code, Pointer
from jitonnx.kernels.language.trace import Traced
from jitonnx.kernels.parts.amx import FIRST_W, FIRST_X, instruction
from jitonnx.kernels.parts.layouts import LINE, TILE


def clear(code: Code, rows: int, columns: int) -> None:
    """Sums of rows x columns tiles are 0."""
    for number in range(rows * columns):
        instruction(code, "tilezero", number)


def multiply(code: Code, x: list[tuple[Pointer, Traced]], w: Pointer, columns: int, streams_w: bool) -> None:
    """A step: to the sums are added tiles of x, each by its place and the bytes between its rows, times those of w,
    which lie one after the other. What streams, w or x, is kept out of the first-level cache."""
    load_x, load_w = ("tileloadd64", "tileloaddt164")[:: 1 if streams_w else -1]
    for i, (place, pitch) in enumerate(x):
        for j in range(columns):
            if i == 0:
                instruction(code, load_w, FIRST_W + j, w.at(j * TILE * LINE), code.integer(LINE))
            if j == 0:
                instruction(code, load_x, FIRST_X + i, place, pitch)
            instruction(code, "tdpbf16ps", i * columns + j, FIRST_X + i, FIRST_W + j)


def store(code: Code, rows: int, columns: int, sums: Pointer, pitch: Traced | None = None) -> None:
    """The sums to float32 [rows * 16, columns * 16] in memory, rows `pitch` bytes apart, or side by side."""
    pitch = code.integer(columns * LINE) if pitch is None else pitch
    for i in range(rows):
        for j in range(columns):
            place = sums.at(pitch * (i * TILE) + j * LINE)
            instruction(code, "tilestored64", i * columns + j, place, pitch)
