"""Loops whose body is links of a chain: what is done around the body's links, from iteration to iteration.

    ENTER ─▶ ELEMENTS ─ links of the body ─ STACK ─ moves ─ REPEAT ─▶ FINISH
               ▲                                      │
               └──────────────────────────────────────┘

Loops within the body are such links, or loops that are links of their own, so they nest as deep as they may. What is
carried lies in places of the list, whose arrays may be of other sizes each time.
"""

from __future__ import annotations

import functools

from jitonnx.emit import llvm_ir

from ..layout import (
    BYTECODE_LOOP,
    CHAIN,
    ENTRY,
    LINK,
    LOOP_ELEMENT,
    LOOP_ROW,
    Opcode,
)
from . import arrays, watch
from .functions import POINTER, FunctionBuilder
from .trips import Trips

_ROWS_AT_ONCE, _ROW_BYTES_AT_ONCE = 64, 1 << 26
"""Memory for stacked rows is taken for all iterations that there can be if it is not more than so many bytes, or rows
lie from the end on; else for so many rows, and twice as many whenever these are not enough."""


def define(module: llvm_ir.Module) -> None:
    """Add the functions to a module that has those of `entry` and of links that are segments or loops."""
    _item_bytes(module)
    _same_items(module)
    _enter(module)
    _elements(module)
    _capacity(module)
    _grow(module)
    _stack(module)
    _repeat(module)
    _finish(module)
    _loop_part(module)


def _bytecode_loop(code: FunctionBuilder) -> llvm_ir.Value:
    return code.pointer(code["link"], LINK, "bytecode_loop")


def _input(code: FunctionBuilder, loop: llvm_ir.Value, index: llvm_ir.Value) -> llvm_ir.Value:
    """A row, or what is gone through, borrowed."""
    return arrays.slot(code, code.load(code.word_at(code.pointer(loop, BYTECODE_LOOP, "inputs"), index)))


def _item_bytes(module: llvm_ir.Module) -> None:
    """The bytes of an array's part behind its first `axes` axes."""
    code = FunctionBuilder(module, "i64 jitonnx_item_bytes(ptr array, i64 axes, i64 itemsize)")
    nbytes, sizes = code.variable(code["itemsize"]), arrays.sizes(code, code["array"])
    with code.loop(code["axes"], arrays.rank(code, code["array"])) as axis:
        code.store(nbytes, code.multiply(code.load(nbytes), code.load(code.word_at(sizes, axis))))
    code.give(code.load(nbytes))


def _same_items(module: llvm_ir.Module) -> None:
    """Whether an array has the shape of the rows of a stack."""
    code = FunctionBuilder(module, "i64 jitonnx_same_items(ptr array, ptr stack)")
    sizes, rows = arrays.sizes(code, code["array"]), arrays.sizes(code, code["stack"])
    with code.loop(0, arrays.rank(code, code["array"])) as axis:
        size, wanted = code.load(code.word_at(sizes, axis)), code.load(code.word_at(rows, code.add(axis, 1)))
        code.give_if(code.compare(size, "!=", wanted), 0)
    code.give(1)


def _enter(module: llvm_ir.Module) -> None:
    """Which link follows: the next if there is an iteration, `target` if there is none, -1 if Python has to look."""
    code = FunctionBuilder(module, "i64 jitonnx_bytecode_loop_enter(ptr chain, ptr link, ptr slots, i64 next)")
    link, loop = code["link"], _bytecode_loop(code)
    first, entry = code.word(loop, BYTECODE_LOOP, "first"), code.pointer(loop, BYTECODE_LOOP, "entry")
    code.put(loop, BYTECODE_LOOP, "number", first)
    code.put(loop, BYTECODE_LOOP, "capacity", 0)
    trips = Trips(code, loop, BYTECODE_LOOP, functools.partial(arrays.slot, code))
    elements, rows = code.pointer(loop, BYTECODE_LOOP, "elements"), code.word(loop, BYTECODE_LOOP, "row_count")
    step = code.pointer(loop, BYTECODE_LOOP, "step")
    with code.loop(0, code.word(loop, BYTECODE_LOOP, "element_count")) as index:
        element, number = code.item(elements, LOOP_ELEMENT, index), code.add(rows, index)
        array = _input(code, loop, number)
        fits = code.call("jitonnx_accepts_any_length", entry, number, array)
        code.give_if(code.equal(fits, 0), -1)
        sizes = arrays.sizes(code, array)
        with code.if_then(code.compare(code.word(element, LOOP_ELEMENT, "scanned"), "!=", 0)):
            trips.scan(code.load(sizes), otherwise=-1)
        # Behind the shape of the number lie those of elements.
        pitch = code.word(step, ENTRY, "output_pitch")
        shape = code.at(code.pointer(step, ENTRY, "output_shapes"), code.multiply(code.add(index, 1), pitch))
        rank = code.subtract(arrays.rank(code, array), 1)
        with code.loop(0, rank) as axis:
            code.store(code.word_at(shape, axis), code.load(code.word_at(sizes, code.add(axis, 1))))
    code.put(loop, BYTECODE_LOOP, "limit", trips.limit)
    code.give(code.build.select(trips.begins(first), code["next"], code.word(link, LINK, "target")))


def _elements(module: llvm_ir.Module) -> None:
    """Make what an iteration gets; 0 if Python has to look: there is no such element, or memory is short."""
    code = FunctionBuilder(module, "i64 jitonnx_bytecode_loop_elements(ptr chain, ptr link, ptr slots)")
    loop, slots = _bytecode_loop(code), code["slots"]
    number, addresses = code.word(loop, BYTECODE_LOOP, "number"), code.pointer(loop, BYTECODE_LOOP, "addresses")
    made = code.call("jitonnx_make_outputs", code.pointer(loop, BYTECODE_LOOP, "step"), addresses)
    arrays.give_if_lacking(code, made)
    code.store(code.load(addresses, POINTER), number)
    elements, rows = code.pointer(loop, BYTECODE_LOOP, "elements"), code.word(loop, BYTECODE_LOOP, "row_count")
    places = code.pointer(loop, BYTECODE_LOOP, "slots")

    def keep(index: llvm_ir.Value) -> None:
        arrays.share(code, code.load(code.word_at(places, index)), code.call("PyList_GetItem", made, index))

    keep(code.number(0))
    with code.loop(0, code.word(loop, BYTECODE_LOOP, "element_count")) as index:
        element, array = code.item(elements, LOOP_ELEMENT, index), _input(code, loop, code.add(rows, index))
        length = code.load(arrays.sizes(code, array))
        from_end = code.compare(code.word(element, LOOP_ELEMENT, "back"), "!=", 0)
        position = code.build.select(from_end, code.subtract(code.subtract(length, 1), number), number)
        with code.if_then(code.compare(position, ">=", length), likely=False):
            code.call("Py_DecRef", made)
            code.give(0)
        nbytes = code.call("jitonnx_item_bytes", array, 1, code.word(element, LOOP_ELEMENT, "itemsize"))
        source = code.add(arrays.data(code, array), code.multiply(position, nbytes))
        behind = code.add(index, 1)
        arrays.copy(code, code.load(code.word_at(addresses, behind)), source, nbytes)
        keep(behind)
    code.call("Py_DecRef", made)
    code.give(code.call("jitonnx_chain_bind", code["chain"], code["link"], slots))


def _capacity(module: llvm_ir.Module) -> None:
    """For how many rows to take memory next. row_bytes: of one of each stack."""
    code = FunctionBuilder(module, "i64 jitonnx_bytecode_loop_capacity(ptr loop, i64 row_bytes, i64 back)")
    loop = code["loop"]
    all_of_them = code.subtract(code.word(loop, BYTECODE_LOOP, "limit"), code.word(loop, BYTECODE_LOOP, "first"))
    before = code.word(loop, BYTECODE_LOOP, "capacity")
    with code.if_then(code.compare(before, ">", 0)):
        code.give(code.smaller(code.multiply(before, 2), all_of_them))
    fit = code.build.sdiv(code.number(_ROW_BYTES_AT_ONCE), code.larger(code["row_bytes"], 1))
    whole = code.build.or_(code.compare(code["back"], "!=", 0), code.compare(all_of_them, "<=", fit))
    some = code.smaller(all_of_them, _ROWS_AT_ONCE)
    code.give(code.build.select(whole, all_of_them, some))


def _grow(module: llvm_ir.Module) -> None:
    """Have memory for more rows, of the shapes that this iteration gives; 0 if there is not enough."""
    code = FunctionBuilder(module, "i64 jitonnx_bytecode_loop_grow(ptr link, ptr slots)")
    loop = _bytecode_loop(code)
    entry, rows = code.pointer(loop, BYTECODE_LOOP, "entry"), code.pointer(loop, BYTECODE_LOOP, "rows")
    shapes, pitch = code.pointer(entry, ENTRY, "output_shapes"), code.word(entry, ENTRY, "output_pitch")
    before, count = code.word(loop, BYTECODE_LOOP, "capacity"), code.word(loop, BYTECODE_LOOP, "row_count")
    row_bytes, back = code.variable(0), code.variable(0)
    with code.loop(0, count) as index:
        row, array = code.item(rows, LOOP_ROW, index), _input(code, loop, index)
        nbytes = code.call("jitonnx_item_bytes", array, 0, code.word(row, LOOP_ROW, "itemsize"))
        code.store(row_bytes, code.add(code.load(row_bytes), nbytes))
        code.store(back, code.build.or_(code.load(back), code.word(row, LOOP_ROW, "back")))
    capacity = code.call("jitonnx_bytecode_loop_capacity", loop, code.load(row_bytes), code.load(back))
    with code.loop(0, count) as index:
        array, shape = _input(code, loop, index), code.at(shapes, code.multiply(index, pitch))
        code.store(shape, capacity)
        with code.loop(0, arrays.rank(code, array)) as axis:
            code.store(code.word_at(shape, code.add(axis, 1)), code.load(code.word_at(arrays.sizes(code, array), axis)))
    addresses = code.pointer(loop, BYTECODE_LOOP, "addresses")
    made = code.call("jitonnx_make_outputs", entry, addresses)
    arrays.give_if_lacking(code, made)
    with code.loop(0, count) as index:
        row = code.item(rows, LOOP_ROW, index)
        place = code.word(row, LOOP_ROW, "stack")
        with code.if_then(code.compare(before, ">", 0)):
            stack = arrays.slot(code, place)
            nbytes = code.call("jitonnx_item_bytes", stack, 0, code.word(row, LOOP_ROW, "itemsize"))
            arrays.copy(code, code.load(code.word_at(addresses, index)), arrays.data(code, stack), nbytes)
        arrays.share(code, place, code.call("PyList_GetItem", made, index))
    code.call("Py_DecRef", made)
    code.put(loop, BYTECODE_LOOP, "capacity", capacity)
    code.give(1)


def _stack(module: llvm_ir.Module) -> None:
    """Stack the rows that an iteration gives; 0 if Python has to look: they are unusual, or memory is short."""
    code = FunctionBuilder(module, "i64 jitonnx_bytecode_loop_stack(ptr link, ptr slots)")
    loop = _bytecode_loop(code)
    entry, rows = code.pointer(loop, BYTECODE_LOOP, "entry"), code.pointer(loop, BYTECODE_LOOP, "rows")
    count, capacity = code.word(loop, BYTECODE_LOOP, "row_count"), code.word(loop, BYTECODE_LOOP, "capacity")
    position = code.subtract(code.word(loop, BYTECODE_LOOP, "number"), code.word(loop, BYTECODE_LOOP, "first"))
    with code.loop(0, count) as index:
        array = _input(code, loop, index)
        code.give_if(code.equal(code.call("jitonnx_accepts_any_length", entry, index, array), 0), 0)
        with code.if_then(code.compare(capacity, ">", 0)):
            stack = arrays.slot(code, code.word(code.item(rows, LOOP_ROW, index), LOOP_ROW, "stack"))
            code.give_if(code.equal(code.call("jitonnx_same_items", array, stack), 0), 0)
    with (
        code.if_then(code.equal(position, capacity), likely=False),
        code.if_then(code.equal(code.call("jitonnx_bytecode_loop_grow", code["link"], code["slots"]), 0), likely=False),
    ):
        code.give(0)
    with code.loop(0, count) as index:
        row, array = code.item(rows, LOOP_ROW, index), _input(code, loop, index)
        stack = arrays.slot(code, code.word(row, LOOP_ROW, "stack"))
        nbytes = code.call("jitonnx_item_bytes", array, 0, code.word(row, LOOP_ROW, "itemsize"))
        from_end = code.compare(code.word(row, LOOP_ROW, "back"), "!=", 0)
        last = code.subtract(code.word(loop, BYTECODE_LOOP, "capacity"), 1)
        at = code.build.select(from_end, code.subtract(last, position), position)
        target = code.add(arrays.data(code, stack), code.multiply(at, nbytes))
        arrays.copy(code, target, arrays.data(code, array), nbytes)
    code.give(1)


def _repeat(module: llvm_ir.Module) -> None:
    """Which link follows an iteration: `target` if there is another one, else the next; -1 if Python ends the run."""
    code = FunctionBuilder(module, "i64 jitonnx_bytecode_loop_repeat(ptr link, ptr slots, ptr watch, i64 next)")
    link, loop = code["link"], _bytecode_loop(code)
    code.call("jitonnx_look", code["watch"])
    code.give_if(watch.is_ended(code, code["watch"]), -1)
    number = code.add(code.word(loop, BYTECODE_LOOP, "number"), 1)
    code.put(loop, BYTECODE_LOOP, "number", number)
    with code.if_then(code.compare(number, ">=", code.word(loop, BYTECODE_LOOP, "limit"))):
        code.give(code["next"])
    again = code.word(loop, BYTECODE_LOOP, "again")
    with (
        code.if_then(code.compare(again, ">=", 0)),
        code.if_then(code.equal(arrays.first_element(code, arrays.slot(code, again), 8), 0)),
    ):
        code.give(code["next"])
    code.give(code.word(link, LINK, "target"))


def _finish(module: llvm_ir.Module) -> None:
    """Hand on what was stacked, and what it tells; 0 if Python has to look."""
    code = FunctionBuilder(module, "i64 jitonnx_bytecode_loop_finish(ptr chain, ptr link, ptr slots)")
    loop, slots = _bytecode_loop(code), code["slots"]
    entry, rows = code.pointer(loop, BYTECODE_LOOP, "entry"), code.pointer(loop, BYTECODE_LOOP, "rows")
    count, capacity = code.word(loop, BYTECODE_LOOP, "row_count"), code.word(loop, BYTECODE_LOOP, "capacity")
    done = code.subtract(code.word(loop, BYTECODE_LOOP, "number"), code.word(loop, BYTECODE_LOOP, "first"))
    with code.if_then(code.equal(done, 0)):
        shapes, empty = code.pointer(entry, ENTRY, "output_shapes"), code.pointer(loop, BYTECODE_LOOP, "empty")
        variables = code.pointer(code["chain"], CHAIN, "variables")
        with code.loop(0, code.word(loop, BYTECODE_LOOP, "shape_words")) as index:
            size = code.variable(code.load(code.word_at(empty, index)))
            with code.if_then(code.compare(code.load(size), "<", 0)):
                number = code.build.xor(code.load(size), code.number(-1))
                code.store(size, code.load(code.word_at(variables, number)))
            code.store(code.word_at(shapes, index), code.load(size))
        made = code.call("jitonnx_make_outputs", entry, code.pointer(loop, BYTECODE_LOOP, "addresses"))
        arrays.give_if_lacking(code, made)
        with code.loop(0, count) as index:
            place = code.word(code.item(rows, LOOP_ROW, index), LOOP_ROW, "output")
            arrays.share(code, place, code.call("PyList_GetItem", made, index))
        code.call("Py_DecRef", made)
    with code.if_then(code.compare(done, ">", 0)), code.loop(0, count) as index:
        row = code.item(rows, LOOP_ROW, index)
        stack = arrays.slot(code, code.word(row, LOOP_ROW, "stack"))
        array = arrays.beginning(code, stack, done, capacity)
        arrays.give_if_lacking(code, array)
        arrays.fill(code, code.word(row, LOOP_ROW, "output"), array)
        arrays.share(code, code.word(row, LOOP_ROW, "stack"), code.pointer(code["chain"], CHAIN, "none"))
    code.give(code.call("jitonnx_chain_bind", code["chain"], code["link"], slots))


def _loop_part(module: llvm_ir.Module) -> None:
    """A link that is a part of a loop; gives the number of the one that follows, -1 if Python has to look, or has
    ended it, and an exception is set."""
    code = FunctionBuilder(module, "i64 jitonnx_chain_loop_part(ptr chain, ptr link, ptr slots, ptr watch, i64 next)")
    chain, link, slots, behind = code["chain"], code["link"], code["slots"], code["next"]
    kind = code.word(link, LINK, "kind")
    with code.if_then(code.equal(kind, Opcode.ENTER)):
        code.give(code.call("jitonnx_bytecode_loop_enter", chain, link, slots, behind))
    with code.if_then(code.equal(kind, Opcode.REPEAT)):
        code.give(code.call("jitonnx_bytecode_loop_repeat", link, slots, code["watch"], behind))
    done = code.variable(0)
    with code.if_then(code.equal(kind, Opcode.ELEMENTS)):
        code.store(done, code.call("jitonnx_bytecode_loop_elements", chain, link, slots))
    with code.if_then(code.equal(kind, Opcode.STACK)):
        code.store(done, code.call("jitonnx_bytecode_loop_stack", link, slots))
    with code.if_then(code.equal(kind, Opcode.FINISH)):
        code.store(done, code.call("jitonnx_bytecode_loop_finish", chain, link, slots))
    code.give(code.build.select(code.compare(code.load(done), "!=", 0), behind, code.number(-1)))
