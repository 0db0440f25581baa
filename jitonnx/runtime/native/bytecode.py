"""Chains: programs one after the other, of sizes that those before tell, made and run in one native call.

Python's objects are held here as in `entry`: a list of arrays, whose places links read and fill.
"""

from __future__ import annotations

from jitonnx.emit import llvm_ir

from ..layout import (
    BINDING,
    CHAIN,
    CHAINED_INPUT,
    ENTRY,
    FRAME,
    INSTANTIATION,
    LAYOUT,
    LINK,
    POOL,
    PROGRAM,
    SEPARATION,
    WATCHED_NANOSECONDS,
    WORD_BYTES,
    ArrayField,
    Flags,
    Opcode,
)
from . import arrays, bytecode_loops, given_arrays, observed_loops, watch
from .functions import POINTER, WORD, FunctionBuilder


def define(module: llvm_ir.Module) -> None:
    """Add the chain to a module that has the functions of `entry`, `frames`, `instantiation` and `arithmetic`."""
    _renew(module)
    _make(module)
    _give_inputs(module)
    _keep_outputs(module)
    _bind(module)
    observed_loops.define(module)
    given_arrays.define(module)
    bytecode_loops.define(module)
    _drop(module)
    _segment(module)
    _choose(module)
    _move(module)
    _chain(module)


def _renew(module: llvm_ir.Module) -> None:
    """Have the program's record say what its tables are now."""
    code = FunctionBuilder(module, "void jitonnx_chain_renew(ptr chain, ptr link)")
    chain, link = code["chain"], code["link"]
    plan, block, program = (code.pointer(link, LINK, name) for name in ("plan", "block", "program"))
    entry = code.pointer(link, LINK, "entry")
    layout = code.at(block, code.word(plan, INSTANTIATION, "layout"))

    def aligned(value: llvm_ir.Value, alignment: int) -> llvm_ir.Value:
        return code.build.and_(code.add(value, alignment - 1), code.number(-alignment))

    participants, scratch = code.word(layout, LAYOUT, "participants"), code.word(layout, LAYOUT, "scratch")
    stride = aligned(scratch, SEPARATION)
    arena = code.word(plan, INSTANTIATION, "arena_bytes")
    scratch_begin = aligned(code.add(code.word(link, LINK, "arena_begin"), arena), SEPARATION)
    several = code.compare(participants, ">", 1)
    pool = code.pointer(entry, ENTRY, "pool")
    for name, value in {
        "number": code.fetch_add(code.field(pool, POOL, "numbers"), 1),
        "shared_end": code.word(layout, LAYOUT, "shared_end"),
        "participants": participants,
        "team": code.build.select(several, code.word(link, LINK, "team"), WORD(0)),
        "scratch_stride": stride,
        "scratch_begin": scratch_begin,
        "memory_bytes": code.add(scratch_begin, code.multiply(stride, participants)),
    }.items():
        code.put(program, PROGRAM, name, value)
    nanoseconds = code.word(layout, LAYOUT, "nanoseconds")
    watched = code.compare(nanoseconds, ">=", WATCHED_NANOSECONDS)
    code.put(program, PROGRAM, "long", code.build.zext(watched, WORD))
    long = code.compare(nanoseconds, ">", code.word(link, LINK, "quick"))
    code.put(entry, ENTRY, "release", code.build.zext(long, WORD))
    limits = code.at(block, code.word(plan, INSTANTIATION, "limits"))
    first = code.add(code.word(plan, INSTANTIATION, "first_limit"), code.word(entry, ENTRY, "input_count"))
    with code.loop(0, code.word(entry, ENTRY, "output_count")) as index:
        nbytes = code.load(code.word_at(limits, code.add(first, index)))
        large, begun = (
            code.build.zext(code.compare(nbytes, ">=", code.word(chain, CHAIN, f"{name}_bytes")), WORD)
            for name in ("large", "aligned")
        )
        code.store(code.word_at(code.pointer(entry, ENTRY, "aligned"), index), begun)
        code.put(chain, CHAIN, "large", code.build.or_(code.word(chain, CHAIN, "large"), large))
    code.give()


def _make(module: llvm_ir.Module) -> None:
    """Make a link's program for the values of the variables, unless it is that already; 0 if Python has to look.

    for (i) if (registers[i] != variables[number[i]]) { registers[i] = …; fresh = 1 }
    """
    code = FunctionBuilder(module, "i64 jitonnx_chain_make(ptr chain, ptr link)")
    chain, link = code["chain"], code["link"]
    known, numbers = code.pointer(link, LINK, "known"), code.pointer(link, LINK, "variables")
    fresh = code.field(link, LINK, "fresh")
    variables = code.pointer(chain, CHAIN, "variables")
    with code.loop(0, code.word(link, LINK, "variable_count")) as index:
        value = code.load(code.word_at(variables, code.load(code.word_at(numbers, index))))
        place = code.word_at(known, index)
        with code.if_then(code.compare(code.load(place), "!=", value)):
            code.store(place, value)
            code.store(fresh, 1)
    with code.if_then(code.equal(code.load(fresh), 0)):
        code.give(1)
    code.store(fresh, 1)
    made = code.call(
        "jitonnx_instantiate",
        code.pointer(link, LINK, "plan"),
        code.pointer(link, LINK, "block"),
        code.word(link, LINK, "threads"),
    )
    code.give_if(code.compare(made, "!=", 0), 0)
    code.call("jitonnx_chain_renew", chain, link)
    code.store(fresh, 0)
    code.give(1)


def _give_inputs(module: llvm_ir.Module) -> None:
    """Note the addresses of a link's inputs; 0 if one is unusual. What a link has made is as it should be."""
    code = FunctionBuilder(module, "i64 jitonnx_chain_inputs(ptr link, ptr slots, ptr bases)")
    link = code["link"]
    inputs, entry = code.pointer(link, LINK, "inputs"), code.pointer(link, LINK, "entry")
    with code.loop(0, code.word(entry, ENTRY, "input_count")) as index:
        given = code.item(inputs, CHAINED_INPUT, index)
        array = arrays.slot(code, code.word(given, CHAINED_INPUT, "slot"))
        with code.if_then(code.equal(code.word(given, CHAINED_INPUT, "made"), 0)):
            accepted = code.call("jitonnx_accepts", entry, index, array)
            code.give_if(code.equal(accepted, 0), 0)
        code.store(code.word_at(code["bases"], index), arrays.data(code, array))
    code.give(1)


def _keep_outputs(module: llvm_ir.Module) -> None:
    """Put what a link has made in the places of its outputs."""
    code = FunctionBuilder(module, "void jitonnx_chain_outputs(ptr link, ptr slots, ptr made)")
    link, made = code["link"], code["made"]
    places, entry = code.pointer(link, LINK, "outputs"), code.pointer(link, LINK, "entry")
    with code.loop(0, code.word(entry, ENTRY, "output_count")) as index:
        arrays.share(code, code.load(code.word_at(places, index)), code.call("PyList_GetItem", made, index))
    code.call("Py_DecRef", made)
    code.give()


def _bind(module: llvm_ir.Module) -> None:
    """The variables that a link's outputs tell their values; 0 if one of their elements is negative, or these
    do not lie side by side."""
    code = FunctionBuilder(module, "i64 jitonnx_chain_bind(ptr chain, ptr link, ptr slots)")
    bindings = code.pointer(code["link"], LINK, "bindings")
    variables = code.pointer(code["chain"], CHAIN, "variables")
    with code.loop(0, code.word(code["link"], LINK, "binding_count")) as index:
        binding = code.item(bindings, BINDING, index)
        array = arrays.slot(code, code.word(binding, BINDING, "slot"))
        data = code.load(code.at(array, ArrayField.DATA), POINTER)
        wide = code.equal(code.word(binding, BINDING, "itemsize"), WORD_BYTES)
        value = code.variable(0)

        def element(
            place: llvm_ir.Value, wide: llvm_ir.Value = wide, data: llvm_ir.Value = data, value: llvm_ir.Value = value
        ) -> None:
            with code.build.if_else(wide) as (words, halves):
                with words:
                    code.store(value, code.load(code.word_at(data, place)))
                with halves:
                    code.store(value, code.load_int(code.at(data, code.multiply(place, WORD_BYTES // 2)), 32))

        is_axis = code.equal(code.word(binding, BINDING, "itemsize"), 0)
        flags = code.load_int(code.at(array, ArrayField.FLAGS), 32)
        apart = code.equal(code.build.and_(flags, code.number(Flags.C_CONTIGUOUS)), 0)
        code.give_if(code.build.and_(apart, code.build.not_(is_axis)), 0)
        with code.if_then(is_axis):
            axis = code.word(binding, BINDING, "place")
            code.store(value, code.load(code.word_at(arrays.sizes(code, array), axis)))
        with code.loop(0, code.word(binding, BINDING, "count")) as place:
            element(place)
            code.give_if(code.compare(code.load(value), "<", 0), 0)
        with code.if_then(code.build.not_(is_axis)):
            element(code.word(binding, BINDING, "place"))
        code.store(code.word_at(variables, code.word(binding, BINDING, "variable")), code.load(value))
    code.give(1)


def _drop(module: llvm_ir.Module) -> None:
    """Let go of arrays that no further link reads."""
    code = FunctionBuilder(module, "void jitonnx_chain_drop(ptr chain, ptr link, ptr slots)")
    drops = code.pointer(code["link"], LINK, "drops")
    with code.loop(0, code.word(code["link"], LINK, "drop_count")) as index:
        arrays.share(code, code.load(code.word_at(drops, index)), code.pointer(code["chain"], CHAIN, "none"))
    code.give()


def _segment(module: llvm_ir.Module) -> None:
    """Make a link's program if need be, and run it; 0 if Python has to do it, as nothing was done, or has ended it, and
    an exception is set.

    A frame is given back before objects are let go, which can run Python code, and with it another thread.
    """
    code = FunctionBuilder(module, "i64 jitonnx_chain_segment(ptr chain, ptr link, ptr slots, ptr watch)")
    chain, link, slots = code["chain"], code["link"], code["slots"]
    entry = code.pointer(link, LINK, "entry")
    code.give_if(code.equal(code.call("jitonnx_chain_make", chain, link), 0), 0)
    frame = code.call("jitonnx_take", code.pointer(entry, ENTRY, "pool"), code.pointer(entry, ENTRY, "program"))
    code.give_if(code.is_null(frame), 0)
    bases = code.pointer(frame, FRAME, "bases")
    with code.if_then(code.equal(code.call("jitonnx_chain_inputs", link, slots, bases), 0), likely=False):
        code.call("jitonnx_put_back", frame)
        code.give(0)
    outputs = code.word_at(bases, code.word(entry, ENTRY, "input_count"))
    with code.if_then(code.compare(code.word(link, LINK, "shared"), "!=", 0)):
        written = code.call("jitonnx_chain_given", link, slots, bases)
        with code.if_then(code.equal(written, 0), likely=False):
            code.call("jitonnx_put_back", frame)
            code.give(0)
        stopped = code.call("jitonnx_run_released", entry, frame, code["watch"])
        met = code.call("jitonnx_take_flags", frame)
        code.call("jitonnx_put_back", frame)
        code.give(code.build.zext(code.equal(code.build.or_(met, stopped), 0), WORD))
    made = code.call("jitonnx_make_outputs", entry, outputs)
    with code.if_then(code.is_null(made), likely=False):
        code.call("jitonnx_put_back", frame)
        code.call("PyErr_Clear")  # Python says for which output there is no memory
        code.give(0)
    stopped = code.call("jitonnx_run_released", entry, frame, code["watch"])
    met = code.call("jitonnx_take_flags", frame)
    code.call("jitonnx_put_back", frame)
    with code.if_then(code.compare(code.build.or_(met, stopped), "!=", 0), likely=False):
        code.call("Py_DecRef", made)
        code.give(0)
    code.call("jitonnx_chain_outputs", link, slots, made)
    code.give(code.call("jitonnx_chain_bind", chain, link, slots))


def _choose(module: llvm_ir.Module) -> None:
    """Which link follows a condition: the next if it holds, another if not."""
    code = FunctionBuilder(module, "i64 jitonnx_chain_choose(ptr link, ptr slots, i64 next)")
    link = code["link"]
    array = arrays.slot(code, code.word(link, LINK, "condition"))
    holds = code.compare(arrays.first_element(code, array, 8), "!=", 0)
    code.give(code.build.select(holds, code["next"], code.word(link, LINK, "target")))


def _move(module: llvm_ir.Module) -> None:
    """Have places of the list hold what others do: `inputs` to `outputs`."""
    code = FunctionBuilder(module, "void jitonnx_chain_move(ptr link, ptr slots)")
    link = code["link"]
    inputs, outputs = code.pointer(link, LINK, "inputs"), code.pointer(link, LINK, "outputs")
    with code.loop(0, code.word(link, LINK, "move_count")) as index:
        array = arrays.slot(code, code.word(code.item(inputs, CHAINED_INPUT, index), CHAINED_INPUT, "slot"))
        arrays.share(code, code.load(code.word_at(outputs, index)), array)
    code.give()


def _chain(module: llvm_ir.Module) -> None:
    """The builtin (METH_O): runs the links of the chain that `self` is an array of, on a list of arrays; gives None;
    null with an exception set where Python has ended it. `done` says how many steps were done; it is less than all
    where Python has to do the next.

    for (at = 0; at < link_count; ) {
        done = link->step
        if (checks, and they miss) return
        switch (kind) { … }
        drop
    }
    """
    code = FunctionBuilder(module, "ptr jitonnx_chain(ptr self, ptr slots)", exported=True)
    chain, slots, build = code.load(code.at(code["self"], ArrayField.DATA), POINTER), code["slots"], code.build
    links, at = code.pointer(chain, CHAIN, "links"), code.variable(0)
    own = watch.begin(code, code.pointer(chain, CHAIN, "pool"))

    def leave() -> None:
        with code.if_then(watch.is_ended(code, own), likely=False):
            build.ret(POINTER(None))
        none = code.pointer(chain, CHAIN, "none")
        code.call("Py_IncRef", none)
        build.ret(none)

    with code.forever() as end:
        number = code.load(at)
        with code.if_then(code.compare(number, ">=", code.word(chain, CHAIN, "link_count"))):
            end()
        link = code.item(links, LINK, number)
        following = code.add(number, 1)
        code.store(at, following)
        code.put(chain, CHAIN, "done", code.word(link, LINK, "step"))
        checks = code.pointer(link, LINK, "checks")
        with code.if_then(build.not_(code.is_null(checks))):
            registers = code.pointer(chain, CHAIN, "variables")
            missed = code.call("jitonnx_perform", checks, registers, registers, code.pointer(chain, CHAIN, "missed"))
            with code.if_then(code.compare(missed, "!=", 0), likely=False):
                leave()
        kind = code.word(link, LINK, "kind")
        with code.if_then(code.equal(kind, Opcode.LEFT), likely=False):
            leave()
        with code.if_then(code.equal(kind, Opcode.SEGMENT)):
            done = code.call("jitonnx_chain_segment", chain, link, slots, own)
            with code.if_then(code.equal(done, 0), likely=False):
                leave()
        with code.if_then(code.equal(kind, Opcode.SIZES)):
            known = code.call("jitonnx_chain_sizes", chain, link, slots)
            with code.if_then(code.equal(known, 0), likely=False):
                leave()
        is_loop = build.or_(code.equal(kind, Opcode.LOOP), code.equal(kind, Opcode.PASS))
        with code.if_then(is_loop):
            followed = code.call("jitonnx_chain_loop", chain, link, slots, own, following)
            with code.if_then(code.compare(followed, "<", 0), likely=False):
                leave()
            code.store(at, followed)
        with code.if_then(code.compare(kind, ">=", Opcode.ENTER)):
            followed = code.call("jitonnx_chain_loop_part", chain, link, slots, own, following)
            with code.if_then(code.compare(followed, "<", 0), likely=False):
                leave()
            code.store(at, followed)
        with code.if_then(code.equal(kind, Opcode.CHOICE)):
            code.store(at, code.call("jitonnx_chain_choose", link, slots, following))
        with code.if_then(code.equal(kind, Opcode.MOVE)):
            code.call("jitonnx_chain_move", link, slots)
            code.store(at, code.word(link, LINK, "target"))
        code.call("jitonnx_chain_drop", chain, link, slots)
    code.put(chain, CHAIN, "done", code.word(chain, CHAIN, "step_count"))
    leave()
