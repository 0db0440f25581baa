"""Sums of products of small integers in AMX's tile registers."""

from __future__ import annotations

from jitonnx.kernels.integer.spec import IntegerSpec
from jitonnx.kernels.language.code import Code, Pointer
from jitonnx.kernels.language.trace import Traced
from jitonnx.kernels.parts.amx import FIRST_W, FIRST_X, instruction
from jitonnx.kernels.parts.layouts import LINE, TILE


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
    rows, columns = height // TILE, spec.width // TILE
    panel_row = spec.width * spec.group
    product = "tdpbssd" if spec.signed else "tdpbusd"
    for number in range(rows * columns):
        if first is None:
            instruction(code, "tilezero", number)
        else:
            instruction(code, "tileloadd64", number, first.at(number % columns * TILE), code.integer(0))
    with code.loop(steps) as step:
        panel, left = w.at(step * (TILE * panel_row)), x.at(step * LINE)
        for i in range(rows):
            instruction(code, "tileloadd64", FIRST_X + i, left.at(row_bytes * (TILE * i)), row_bytes)
            for j in range(columns):
                if i == 0:
                    instruction(code, "tileloadd64", FIRST_W + j, panel.at(j * LINE), code.integer(panel_row))
                instruction(code, product, i * columns + j, FIRST_X + i, FIRST_W + j)
    for i in range(rows):
        for j in range(columns):
            place = sums.at(i * TILE * spec.width + j * TILE).as_bytes()
            instruction(code, "tilestored64", i * columns + j, place, code.integer(4 * spec.width))
