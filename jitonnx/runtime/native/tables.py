"""Laying a program out: its rows, pointers and patches, from the columns of its steps."""

from __future__ import annotations

from jitonnx.emit import llvm_ir

from ..layout import (
    LAYOUT,
    LOOK_NANOSECONDS,
    MOST_PIECES,
    MOST_UNITS,
    PATCH,
    PIECE_NANOSECONDS,
    ROW,
    STEP_COLUMNS,
    WORD_BYTES,
)
from .functions import WORD, FunctionBuilder


def define(module: llvm_ir.Module, *, exported: bool = False) -> None:
    """Add the function to a module."""
    _check_row(module)
    _lay_out_row(module)
    _lay_out(module, exported=exported)


def _lay_out(module: llvm_ir.Module, *, exported: bool) -> None:
    """Fill the tables of a layout, and note what follows of all steps."""
    code = FunctionBuilder(module, "void jitonnx_lay_out(ptr layout)", exported=exported)
    layout = code["layout"]

    def column(name: str) -> llvm_ir.Value:
        return code.pointer(layout, LAYOUT, name)

    def word(name: str, index: llvm_ir.Value) -> llvm_ir.Value:
        return code.load(code.word_at(column(name), index))

    with code.loop(0, code.word(layout, LAYOUT, "step_count")) as index:
        code.call("jitonnx_lay_out_row", layout, index)
    with code.loop(0, code.word(layout, LAYOUT, "operand_count")) as index:
        pointer = code.word_at(column("pointers"), index)
        code.store(pointer, code.add(word("bases", index), word("offsets", index)))
    with code.loop(0, code.word(layout, LAYOUT, "patch_count")) as index:
        fixed, patch = (code.item(column(name), PATCH, index) for name in ("common_patches", "patches"))
        for name in ("pointer", "base"):
            code.put(patch, PATCH, name, code.word(fixed, PATCH, name))
        code.put(patch, PATCH, "offset", word("offsets", word("outer_places", index)))
    code.give()


def _check_row(module: llvm_ir.Module) -> None:
    """Note in `wrong` if one of the operands from number `first` up to `last` begins outside of its memory."""
    code = FunctionBuilder(module, "void jitonnx_check_row(ptr layout, i64 first, i64 last)")
    layout = code["layout"]

    def word(name: str, index: llvm_ir.Value) -> llvm_ir.Value:
        return code.load(code.word_at(code.pointer(layout, LAYOUT, name), index))

    with code.loop(code["first"], code["last"]) as index:
        offset, limit = word("offsets", index), word("limits", word("limit_places", index))
        outside = code.build.or_(code.compare(offset, "<", 0), code.compare(offset, ">", limit))
        with code.if_then(outside, likely=False):
            code.put(layout, LAYOUT, "wrong", 1)
    code.give()


def _lay_out_row(module: llvm_ir.Module) -> None:
    """Fill row `index`: kernel, pointers and sizes, and how threads share its tasks."""
    code = FunctionBuilder(module, "void jitonnx_lay_out_row(ptr layout, i64 index)")
    layout, index = code["layout"], code["index"]
    count = code.word(layout, LAYOUT, "step_count")

    def column(name: str) -> llvm_ir.Value:
        place = code.add(code.multiply(count, STEP_COLUMNS.index(name)), index)
        return code.load(code.word_at(code.pointer(layout, LAYOUT, "columns"), place))

    def ceil_divide(a: llvm_ir.Value, b: int | llvm_ir.Value) -> llvm_ir.Value:
        above = code.subtract(code.add(a, b), 1)
        return code.build.sdiv(above, code.number(b))

    tasks = column("tasks")
    threads = code.smaller(code.smaller(column("threads"), tasks), code.word(layout, LAYOUT, "threads"))
    split = code.larger(threads, 1)
    unit = code.larger(ceil_divide(tasks, MOST_UNITS), 1)
    units = ceil_divide(tasks, unit)
    fixed, row = (code.item(code.pointer(layout, LAYOUT, name), ROW, index) for name in ("common_rows", "rows"))
    begin = code.multiply(column("size_begin"), WORD_BYTES)
    nanoseconds, finest = column("nanoseconds"), ceil_divide(column("grain"), unit)
    pieces = code.add(code.build.sdiv(nanoseconds, code.number(PIECE_NANOSECONDS)), 1)
    piece = code.larger(code.larger(code.multiply(finest, unit), ceil_divide(tasks, pieces)), 1)
    unwatched = code.add(code.word(layout, LAYOUT, "unwatched"), nanoseconds)
    looks = code.compare(unwatched, ">=", LOOK_NANOSECONDS)
    code.put(layout, LAYOUT, "unwatched", code.build.select(looks, code.number(0), unwatched))
    code.put(layout, LAYOUT, "nanoseconds", code.add(code.word(layout, LAYOUT, "nanoseconds"), nanoseconds))
    for name, value in {
        "kernel": code.word(fixed, ROW, "kernel"),
        "pointers": code.word(fixed, ROW, "pointers"),
        "sizes": code.add(code.word(layout, LAYOUT, "sizes"), begin),
        "tasks": tasks,
        "threads": threads,
        "unit": unit,
        "grain": code.larger(finest, ceil_divide(units, code.multiply(split, MOST_PIECES))),
        "quotient": code.build.sdiv(units, split),
        "remainder": code.build.srem(units, split),
        "piece": piece,
        "looks": code.build.zext(looks, WORD),
    }.items():
        code.put(row, ROW, name, value)
    last = code.variable(code.word(layout, LAYOUT, "operand_count"))
    behind = code.add(index, 1)
    with code.if_then(code.compare(behind, "<", count)):
        begins = code.word(code.item(code.pointer(layout, LAYOUT, "common_rows"), ROW, behind), ROW, "pointers")
        code.store(last, code.build.udiv(begins, code.number(WORD_BYTES)))
    # A step that is passed over may begin anywhere: of no elements, say, the second half of a concatenation.
    with code.if_then(code.compare(tasks, ">", 0)):
        first = code.build.udiv(code.word(fixed, ROW, "pointers"), code.number(WORD_BYTES))
        code.call("jitonnx_check_row", layout, first, code.load(last))
    with code.if_then(code.compare(threads, ">", 1)):
        code.put(layout, LAYOUT, "shared_end", code.add(index, 1))
    for name, value in {"participants": split, "scratch": column("scratch")}.items():
        code.put(layout, LAYOUT, name, code.larger(code.word(layout, LAYOUT, name), value))
    code.give()
