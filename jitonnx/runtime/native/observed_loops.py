"""Repeated programs as links of a chain: outputs are made, addresses filled in, iterations done, and results kept."""

from __future__ import annotations

import functools

from jitonnx.emit import llvm_ir

from ..layout import (
    CHAIN,
    CHAINED_INPUT,
    ENTRY,
    LINK,
    LOOP,
    LOOP_LENGTH,
    LOOP_OPERAND,
    LOOP_RESULT,
    OBSERVED_LOOP,
    LoopEnd,
    LoopGives,
    Opcode,
)
from . import arrays, watch
from .functions import POINTER, FunctionBuilder
from .trips import Trips


def define(module: llvm_ir.Module) -> None:
    """Add the function to a module that has those of `entry`, `loops`, and of links that are segments."""
    _read(module)
    _limit(module)
    _fill(module)
    _hand_on(module)
    _do(module)
    _loop_link(module)


def _observed(code: FunctionBuilder) -> llvm_ir.Value:
    return code.pointer(code["link"], LINK, "observed_loop")


def _read(module: llvm_ir.Module) -> None:
    """Note where a loop's inputs lie; 0 if one of them or of the sizes is not like those that it was made for."""
    code = FunctionBuilder(module, "i64 jitonnx_loop_read(ptr chain, ptr link, ptr slots)")
    link, observed = code["link"], _observed(code)
    known, numbers = code.pointer(observed, OBSERVED_LOOP, "known"), code.pointer(link, LINK, "variables")
    variables = code.pointer(code["chain"], CHAIN, "variables")
    with code.loop(0, code.word(link, LINK, "variable_count")) as index:
        value = code.load(code.word_at(variables, code.load(code.word_at(numbers, index))))
        code.give_if(code.compare(value, "!=", code.load(code.word_at(known, index))), 0)
    inputs, entry = code.pointer(link, LINK, "inputs"), code.pointer(link, LINK, "entry")
    addresses = code.pointer(observed, OBSERVED_LOOP, "addresses")
    with code.loop(0, code.word(entry, ENTRY, "input_count")) as index:
        array = _array(code, inputs, index)
        fits = code.call("jitonnx_accepts_any_length", entry, index, array)
        code.give_if(code.equal(fits, 0), 0)
        code.store(code.word_at(addresses, index), arrays.data(code, array))
    code.give(1)


def _array(code: FunctionBuilder, inputs: llvm_ir.Value, index: llvm_ir.Value) -> llvm_ir.Value:
    """An input, borrowed."""
    slot = code.word(code.item(inputs, CHAINED_INPUT, index), CHAINED_INPUT, "slot")
    return arrays.slot(code, slot)


def _limit(module: llvm_ir.Module) -> None:
    """How many iterations there are at most; 0 if Python has to do the loop: none, or more than there is room for."""
    code = FunctionBuilder(module, "i64 jitonnx_loop_limit(ptr chain, ptr link, ptr slots)")
    observed, inputs = _observed(code), code.pointer(code["link"], LINK, "inputs")
    first = code.word(observed, OBSERVED_LOOP, "first")
    trips = Trips(code, observed, OBSERVED_LOOP, functools.partial(_array, code, inputs))
    code.give_if(code.build.not_(trips.begins(first)), 0)
    lengths = code.pointer(observed, OBSERVED_LOOP, "lengths")
    with code.loop(0, code.word(observed, OBSERVED_LOOP, "length_count")) as index:
        one = code.item(lengths, LOOP_LENGTH, index)
        array = _array(code, inputs, code.word(one, LOOP_LENGTH, "input"))
        length = code.load(arrays.sizes(code, array))
        with code.build.if_else(code.compare(code.word(one, LOOP_LENGTH, "scanned"), "!=", 0)) as (scanned, followed):
            with scanned:
                trips.scan(length, otherwise=0)
            with followed, code.if_then(code.compare(trips.limit, ">", length), likely=False):
                code.give(0)
    count = code.subtract(trips.limit, first)
    code.give_if(code.compare(count, ">", code.word(observed, OBSERVED_LOOP, "most")), 0)
    code.give(code.larger(count, 0))


def _fill(module: llvm_ir.Module) -> None:
    """Put into a loop's record what a run of so many iterations reads and writes."""
    code = FunctionBuilder(module, "void jitonnx_loop_fill(ptr link, i64 limit)")
    observed = _observed(code)
    loop, first = code.pointer(observed, OBSERVED_LOOP, "loop"), code.word(observed, OBSERVED_LOOP, "first")
    code.put(loop, LOOP, "number", first)
    code.put(loop, LOOP, "limit", code.add(first, code["limit"]))
    operands, addresses = (code.pointer(observed, OBSERVED_LOOP, name) for name in ("operands", "addresses"))
    with code.loop(0, code.word(observed, OBSERVED_LOOP, "operand_count")) as index:
        operand = code.item(operands, LOOP_OPERAND, index)
        begin = code.load(code.word_at(addresses, code.word(operand, LOOP_OPERAND, "tensor")))
        last = code.multiply(code.subtract(code["limit"], 1), code.word(operand, LOOP_OPERAND, "back"))
        place = code.add(code.add(begin, code.word(operand, LOOP_OPERAND, "offset")), last)
        code.store(code.pointer(operand, LOOP_OPERAND, "target"), place)
    code.give()


def _hand_on(module: llvm_ir.Module) -> None:
    """Put what a loop gives after `count` of `limit` iterations in the places of its outputs; 0 if memory is short.

    made: the list of its new arrays.
    """
    code = FunctionBuilder(module, "i64 jitonnx_loop_hand_on(ptr link, ptr slots, ptr made, i64 limit, i64 count)")
    link, observed, made, count = code["link"], _observed(code), code["made"], code["count"]
    inputs, places = code.pointer(link, LINK, "inputs"), code.pointer(link, LINK, "outputs")
    addresses = code.pointer(observed, OBSERVED_LOOP, "addresses")
    behind = code.word_at(addresses, code.word(code.pointer(link, LINK, "entry"), ENTRY, "input_count"))
    results = code.pointer(observed, OBSERVED_LOOP, "results")
    odd = code.compare(code.build.and_(count, code.number(1)), "!=", 0)
    with code.loop(0, code.word(observed, OBSERVED_LOOP, "result_count")) as index:
        result = code.item(results, LOOP_RESULT, index)
        kind, one, other = (code.word(result, LOOP_RESULT, name) for name in ("kind", "tensor", "other"))
        array = code.variable(0)

        def take(source: llvm_ir.Value, array: llvm_ir.Value = array) -> None:
            code.call("Py_IncRef", source)
            code.build.store(source, array)

        with code.if_then(code.equal(kind, LoopGives.GIVEN)):
            take(_array(code, inputs, one))
        with code.if_then(code.equal(kind, LoopGives.EITHER)):
            take(code.call("PyList_GetItem", made, code.build.select(odd, one, other)))
        with code.if_then(code.equal(kind, LoopGives.ROWS)):
            rows = code.call("PyList_GetItem", made, one)
            code.build.store(arrays.beginning(code, rows, count, code["limit"]), array)
        with code.if_then(code.equal(kind, LoopGives.LAST)):
            take(code.call("PyList_GetItem", made, one))
            target, begin = (code.load(code.word_at(behind, number)) for number in (one, other))
            back, nbytes = (code.word(result, LOOP_RESULT, name) for name in ("back", "bytes"))
            backwards = code.compare(back, "!=", 0)
            number = code.build.select(backwards, code.subtract(code["limit"], count), code.subtract(count, 1))
            source = code.add(begin, code.multiply(number, nbytes))
            arrays.copy(code, target, source, nbytes)
        code.give_if(code.is_null(code.load(array, POINTER)), 0)
        arrays.fill(code, code.load(code.word_at(places, index)), code.load(array, POINTER))
    code.give(1)


def _do(module: llvm_ir.Module) -> None:
    """Run a loop whose inputs are noted; 0 if nothing was done, or Python has ended it, and an exception is set."""
    code = FunctionBuilder(module, "i64 jitonnx_loop_do(ptr chain, ptr link, ptr slots, ptr watch)")
    chain, link, slots, observed = code["chain"], code["link"], code["slots"], _observed(code)
    limit = code.call("jitonnx_loop_limit", chain, link, slots)
    code.give_if(code.equal(limit, 0), 0)
    entry, loop = code.pointer(link, LINK, "entry"), code.pointer(observed, OBSERVED_LOOP, "loop")
    rows, pitch = code.word(observed, OBSERVED_LOOP, "first_row"), code.word(entry, ENTRY, "output_pitch")
    with code.loop(rows, code.word(entry, ENTRY, "output_count")) as index:
        code.store(code.at(code.pointer(entry, ENTRY, "output_shapes"), code.multiply(index, pitch)), limit)
    addresses = code.pointer(observed, OBSERVED_LOOP, "addresses")
    made = code.call("jitonnx_make_outputs", entry, code.word_at(addresses, code.word(entry, ENTRY, "input_count")))
    arrays.give_if_lacking(code, made)
    code.call("jitonnx_loop_fill", link, limit)
    with watch.released(code, code["watch"]):
        end = code.call("jitonnx_iterate", loop, code["watch"])
    code.call("jitonnx_look", code["watch"])
    count = code.subtract(code.word(loop, LOOP, "number"), code.word(observed, OBSERVED_LOOP, "first"))
    well = code.build.or_(code.equal(end, LoopEnd.LIMIT), code.equal(end, LoopEnd.FALSE))
    stopped = watch.is_ended(code, code["watch"])
    done = code.variable(0)
    with code.if_then(code.build.and_(well, code.build.not_(stopped)), likely=True):
        code.store(done, code.call("jitonnx_loop_hand_on", link, slots, made, limit, count))
        with code.if_then(code.equal(code.load(done), 0), likely=False):
            code.call("PyErr_Clear")
    code.call("Py_DecRef", made)
    code.give_if(code.equal(code.load(done), 0), 0)
    code.give(code.call("jitonnx_chain_bind", chain, link, slots))


def _loop_link(module: llvm_ir.Module) -> None:
    """A link that is a loop; gives the number of the one that follows. Where nothing was done that is the next, if
    that does the same in another way, or -1 if Python has to do it, or has ended it, and an exception is set.

    target: the one behind all that do the same, or -1 where there are no others.
    """
    code = FunctionBuilder(module, "i64 jitonnx_chain_loop(ptr chain, ptr link, ptr slots, ptr watch, i64 next)")
    chain, link, slots, watched = code["chain"], code["link"], code["slots"], code["watch"]
    others = code.compare(code.word(link, LINK, "target"), ">=", 0)

    def pass_on() -> None:
        """Leave it to the next link, if that does the same."""
        with code.if_then(others):
            code.put(chain, CHAIN, "unlike", code.add(code.word(chain, CHAIN, "unlike"), 1))
            code.give(code["next"])
        code.give(-1)

    with code.if_then(code.equal(code.word(link, LINK, "kind"), Opcode.PASS)):
        pass_on()
    with code.if_then(code.equal(code.call("jitonnx_loop_read", chain, link, slots), 0), likely=False):
        pass_on()
    done = code.call("jitonnx_loop_do", chain, link, slots, watched)
    stopped = watch.is_ended(code, watched)
    with code.if_then(code.compare(done, "!=", 0), likely=True):
        code.give(code.build.select(others, code.word(link, LINK, "target"), code["next"]))
    condition_out = code.build.and_(others, code.build.not_(stopped))
    code.give(code.build.select(condition_out, code["next"], code.number(-1)))
