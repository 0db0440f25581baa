"""What callers give to a chain: arrays whose sizes are dimension variables, and memory that outputs are written to."""

from __future__ import annotations

from jitonnx.emit import llvm_ir

from ..layout import CHAINED_INPUT, ENTRY, INSTANTIATION, LINK
from . import arrays
from .functions import WORD, FunctionBuilder


def define(module: llvm_ir.Module) -> None:
    """Add to a module that has the functions of `entry`, and `jitonnx_chain_bind`."""
    _sizes(module)
    _are_apart(module)
    _given(module)


def _sizes(module: llvm_ir.Module) -> None:
    """Set variables to the sizes of inputs; 0 if one of these is no array that kernels could read where it lies."""
    code = FunctionBuilder(module, "i64 jitonnx_chain_sizes(ptr chain, ptr link, ptr slots)")
    entry, inputs = code.pointer(code["link"], LINK, "entry"), code.pointer(code["link"], LINK, "inputs")
    with code.loop(0, code.word(entry, ENTRY, "input_count")) as index:
        array = arrays.slot(code, code.word(code.item(inputs, CHAINED_INPUT, index), CHAINED_INPUT, "slot"))
        fits = code.call("jitonnx_accepts_any_length", entry, index, array)
        code.give_if(code.equal(fits, 0), 0)
    code.give(code.call("jitonnx_chain_bind", code["chain"], code["link"], code["slots"]))


def _are_apart(module: llvm_ir.Module) -> None:
    """1 unless output number `output`, which is written where it is given, shares memory with an input or with an
    output before it; its whole may be the memory of one input, that `shared` names for it.

    bases: the addresses of inputs, then of outputs. lengths: their bytes.
    """
    code = FunctionBuilder(module, "i64 jitonnx_are_apart(ptr link, i64 output, ptr bases, ptr lengths)")
    link, bases, lengths, build = code["link"], code["bases"], code["lengths"], code.build
    count = code.word(code.pointer(link, LINK, "entry"), ENTRY, "input_count")
    place = code.add(count, code["output"])
    begin, length = code.load(code.word_at(bases, place)), code.load(code.word_at(lengths, place))
    end, same = code.add(begin, length), code.load(code.word_at(code.pointer(link, LINK, "shared"), code["output"]))
    with code.loop(0, place) as index:
        other, other_length = code.load(code.word_at(bases, index)), code.load(code.word_at(lengths, index))
        meets = build.and_(
            code.compare(other, "<", end),
            code.compare(begin, "<", code.add(other, other_length)),
        )
        is_same = build.and_(
            code.equal(index, same),
            build.and_(code.equal(other, begin), code.equal(other_length, length)),
        )
        code.give_if(build.and_(meets, build.not_(is_same)), 0)
    code.give(1)


def _given(module: llvm_ir.Module) -> None:
    """Note the addresses of a link's outputs, which are made where nothing is in their places; 0 if what is there
    cannot be written, or memory is short.
    """
    code = FunctionBuilder(module, "i64 jitonnx_chain_given(ptr link, ptr slots, ptr bases)")
    link, bases = code["link"], code["bases"]
    entry, places, plan = (code.pointer(link, LINK, name) for name in ("entry", "outputs", "plan"))
    count = code.word(entry, ENTRY, "input_count")
    first = code.word(plan, INSTANTIATION, "first_limit")
    limits = code.at(code.pointer(link, LINK, "block"), code.word(plan, INSTANTIATION, "limits"))
    lengths = code.word_at(limits, first)
    with code.loop(0, code.word(entry, ENTRY, "output_count")) as index:
        place = code.load(code.word_at(places, index))
        array = arrays.slot(code, place)
        base = code.word_at(bases, code.add(count, index))
        is_new = code.equal(code.build.ptrtoint(array, WORD), code.word(entry, ENTRY, "none"))
        with code.build.if_else(is_new) as (new, given):
            with new:
                made = code.call("jitonnx_make_output", entry, index)
                arrays.give_if_lacking(code, made)
                code.store(base, arrays.data(code, made))
                arrays.fill(code, place, made)
            with given:
                fits = code.call("jitonnx_accepts_output", entry, index, array)
                code.give_if(code.equal(fits, 0), 0)
                code.store(base, arrays.data(code, array))
                apart = code.call("jitonnx_are_apart", link, index, bases, lengths)
                code.give_if(code.equal(apart, 0), 0)
    code.give(1)
