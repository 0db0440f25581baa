"""Making a program for sizes: what follows from them, the arena, operands, tables; see `runtime.instantiation`."""

from __future__ import annotations

import llvmlite.ir as ir

from ..layout import ALIGNMENT, INSTANTIATION, LAYOUT, PLACEMENT, STEP_COLUMNS, WORD_BYTES
from .emit import WORD, Code

_LARGEST = 1 << 48
"""Bytes: a buffer above is left to Python, which says what is wrong with it."""


def define(module: ir.Module) -> None:
    """Add the functions to a module."""
    _arrange(module)
    _fill(module)
    _instantiate(module)


def _word(code: Code, base: ir.Value, index: int | ir.Value) -> ir.Value:
    """The address of a word in an array of them."""
    return code.at(base, code.multiply(index, WORD_BYTES))


def _arrange(module: ir.Module) -> None:
    """Place the buffers of the arena, unless they need the room that they have; returns the arena's size, or -1.

    Where sizes vary a buffer has room up to the next multiple of an eighth of a power of two, so that sizes which grow
    a little leave all where it is. Largest ones come first, of equal ones those that are alive first.
    """
    code = Code(module, "i64 jitonnx_arrange(ptr plan)")
    plan, build = code["plan"], code.build
    placement = code.pointer(plan, INSTANTIATION, "placement")
    sizes, order, first = (code.pointer(placement, PLACEMENT, name) for name in ("sizes", "order", "first"))
    registers = code.pointer(plan, INSTANTIATION, "registers")
    count = code.word(placement, PLACEMENT, "count")
    changed = code.variable(build.zext(code.compare(code.word(plan, INSTANTIATION, "arena_bytes"), "<", 0), WORD))
    with code.loop(0, count) as index:
        row = code.load(_word(code, code.pointer(plan, INSTANTIATION, "buffer_rows"), index))
        nbytes = code.load(_word(code, registers, row))
        with code.when(build.or_(code.compare(nbytes, "<", 0), code.compare(nbytes, ">", _LARGEST)), likely=False):
            code.give(-1)
        # The power of two at or below, of which 0 is taken to have 1.
        highest = code.subtract(63, build.ctlz(code.larger(nbytes, 1), ir.IntType(1)(1)))
        eighth = build.lshr(build.shl(WORD(1), highest), WORD(3))
        varies = code.load(_word(code, code.pointer(plan, INSTANTIATION, "buffer_steps"), index))
        step = code.larger(varies, build.select(code.compare(varies, ">", ALIGNMENT), eighth, WORD(0)))
        room = code.multiply(build.sdiv(code.subtract(code.add(nbytes, step), 1), step), step)
        place = _word(code, sizes, index)
        with code.when(code.compare(code.load(place), "!=", room)):
            code.store(changed, 1)
            code.store(place, room)
    with code.when(code.equal(code.load(changed), 0)):
        code.give(code.word(plan, INSTANTIATION, "arena_bytes"))
    with code.loop(0, count) as index:
        left = code.variable(index)
        size, begins = (code.load(_word(code, array, index)) for array in (sizes, first))
        with code.forever() as leave:
            with code.when(code.compare(code.load(left), "<=", 0)):
                leave()
            before = code.load(_word(code, order, code.subtract(code.load(left), 1)))
            other, other_begins = (code.load(_word(code, array, before)) for array in (sizes, first))
            later = build.and_(code.equal(size, other), code.compare(begins, "<", other_begins))
            with code.when(build.not_(build.or_(code.compare(size, ">", other), later))):
                leave()
            code.store(_word(code, order, code.load(left)), before)
            code.store(left, code.subtract(code.load(left), 1))
        code.store(_word(code, order, code.load(left)), index)
    total = code.call("jitonnx_place", placement)
    code.put(plan, INSTANTIATION, "arena_bytes", total)
    code.give(total)


def _fill(module: ir.Module) -> None:
    """Fill a block's shapes and limits; returns 0, or 1 for tensors beyond all memory."""
    code = Code(module, "i64 jitonnx_fill(ptr plan, ptr block)")
    plan, block, build = code["plan"], code["block"], code.build
    registers = code.pointer(plan, INSTANTIATION, "registers")

    def fixed(name: str) -> ir.Value:
        return code.pointer(plan, INSTANTIATION, name)

    def inside(name: str) -> ir.Value:
        return code.at(block, code.word(plan, INSTANTIATION, name))

    pitch = code.word(plan, INSTANTIATION, "pitch")
    with code.loop(0, code.word(plan, INSTANTIATION, "tensor_count")) as tensor:
        nbytes = code.variable(code.load(_word(code, fixed("itemsizes"), tensor)))
        with code.loop(0, pitch) as axis:
            place = code.add(code.multiply(tensor, pitch), axis)
            size = code.load(_word(code, registers, code.load(_word(code, fixed("shape_rows"), place))))
            code.store(_word(code, inside("shapes"), place), size)
            pair = build.smul_with_overflow(code.load(nbytes), size)
            with code.when(build.extract_value(pair, 1), likely=False):
                code.give(1)
            code.store(nbytes, build.extract_value(pair, 0))
        code.store(
            _word(code, inside("limits"), code.add(code.word(plan, INSTANTIATION, "first_limit"), tensor)),
            code.load(nbytes),
        )
    code.give(0)


def _instantiate(module: ir.Module) -> None:
    """Fill a block with a program for the variables' values in the registers.

    Returns 0, or another number where Python has to do it, or to say what is wrong.
    """
    code = Code(module, "i64 jitonnx_instantiate(ptr plan, ptr block, i64 threads)", exported=True)
    plan, block, build = code["plan"], code["block"], code.build

    def fixed(name: str) -> ir.Value:
        return code.pointer(plan, INSTANTIATION, name)

    def number(name: str) -> ir.Value:
        return code.word(plan, INSTANTIATION, name)

    def inside(name: str) -> ir.Value:
        return code.at(block, number(name))

    registers, results = fixed("registers"), fixed("results")
    missed = code.call("jitonnx_perform", fixed("operations"), registers, results, fixed("missed"))
    with code.when(code.compare(missed, "!=", 0), likely=False):
        code.give(1)
    arena = code.call("jitonnx_arrange", plan)
    with code.when(code.compare(arena, "<", 0), likely=False):
        code.give(1)
    with code.when(code.compare(code.call("jitonnx_fill", plan, block), "!=", 0), likely=False):
        code.give(1)
    code.store(inside("limits"), arena)
    placed = code.pointer(fixed("placement"), PLACEMENT, "offsets")
    with code.loop(0, number("operand_count")) as operand:
        offset = code.variable(
            code.load(_word(code, registers, code.load(_word(code, fixed("operand_rows"), operand))))
        )
        buffer = code.load(_word(code, fixed("operand_buffers"), operand))
        with code.when(code.compare(buffer, ">=", 0)):
            code.store(offset, code.add(code.load(offset), code.load(_word(code, placed, buffer))))
        code.store(_word(code, inside("offsets"), operand), code.load(offset))
    steps, kinds = number("step_count"), number("kind_count")
    with code.loop(0, len(STEP_COLUMNS)) as column, code.loop(0, steps) as step:
        kind = code.load(_word(code, fixed("kind_of"), step))
        value = code.load(_word(code, results, code.add(code.multiply(column, kinds), kind)))
        code.store(_word(code, inside("columns"), code.add(code.multiply(column, steps), step)), value)
    time = code.variable(0)
    with code.loop(0, steps) as step:
        kind = code.load(_word(code, fixed("kind_of"), step))
        value = code.load(_word(code, results, code.add(code.multiply(len(STEP_COLUMNS), kinds), kind)))
        code.store(time, code.add(code.load(time), value))
    code.store(inside("nanoseconds"), code.load(time))
    words = _word(code, results, code.multiply(len(STEP_COLUMNS) + 1, kinds))
    with code.loop(0, number("size_count")) as index:
        code.store(_word(code, inside("sizes"), index), code.load(_word(code, words, index)))
    with code.loop(0, number("element_count")) as index:
        row = code.load(_word(code, fixed("element_rows"), index))
        code.store(_word(code, inside("elements"), index), code.load(_word(code, registers, row)))
    with code.loop(0, number("own_count")) as index:
        place = code.load(_word(code, fixed("own_places"), index))
        begin = code.load(_word(code, fixed("own_begins"), index))
        address = build.ptrtoint(code.at(inside("elements"), begin), WORD)
        code.store(_word(code, inside("bases"), place), address)
    layout = inside("layout")
    for name in ("common_rows", "limit_places", "outer_places", "common_patches"):
        code.put(layout, LAYOUT, name, number(name))
    for name in ("operand_count", "patch_count", "step_count"):
        code.put(layout, LAYOUT, name, number(name))
    for name in ("bases", "columns", "sizes", "offsets", "limits", "rows", "pointers", "patches"):
        code.put(layout, LAYOUT, name, build.ptrtoint(inside(name), WORD))
    code.put(layout, LAYOUT, "threads", code["threads"])
    for name, value in {"participants": 1, "shared_end": 0, "scratch": 0, "wrong": 0}.items():
        code.put(layout, LAYOUT, name, value)
    code.call("jitonnx_lay_out", layout)
    code.give(code.word(layout, LAYOUT, "wrong"))
