"""Loops: a program run again and again, each time on what it gave before, without Python in between."""

from __future__ import annotations

import llvmlite.ir as ir

from ..layout import CARRIED, FRAME, LOOP, PROGRAM, WATCH, WORD_BYTES, LoopEnd
from . import watch
from .emit import POINTER, Code

_CLOCK_NANOSECONDS = 1_000_000
"""How far apart looks at the clock are at most meanwhile: iterations between two are doubled as long as it is less."""


def define(module: ir.Module) -> None:
    """Add the function to a module that has those of `frames` and `walk`."""
    _sum(module)
    _advance(module)
    _take_flags(module)
    _iterate(module)
    _loop(module)


def _sum(module: ir.Module) -> None:
    """Add up what the rows of a timed iteration took."""
    code = Code(module, "void jitonnx_loop_sum(ptr loop, i64 rows)")
    stamps, sums = (code.pointer(code["loop"], LOOP, name) for name in ("stamps", "sums"))
    with code.loop(0, code["rows"]) as row:
        before, after = (code.at(stamps, code.multiply(code.add(row, n), WORD_BYTES)) for n in (0, 1))
        place = code.at(sums, code.multiply(row, WORD_BYTES))
        code.store(place, code.add(code.load(place), code.subtract(code.load(after), code.load(before))))
    code.give()


def _advance(module: ir.Module) -> None:
    """Let the next iteration read what the last one has written, and stacked tensors go on by a row.

    for (carried) {
        source = bases[output]; bases[input] = source
        if (spare) { bases[output] = spare; spare = source }
    }
    for (i < base_count) bases[i] += strides[i]
    """
    code = Code(module, "void jitonnx_loop_advance(ptr loop)")
    loop = code["loop"]
    bases, strides = code.pointer(loop, LOOP, "bases"), code.pointer(loop, LOOP, "strides")
    carried = code.pointer(loop, LOOP, "carried")
    with code.loop(0, code.word(loop, LOOP, "carried_count")) as index:
        state = code.item(carried, CARRIED, index)
        given, made = (code.at(bases, code.word(state, CARRIED, name)) for name in ("input", "output"))
        source, spare = code.load(made), code.word(state, CARRIED, "spare")
        code.store(given, source)
        with code.when(code.compare(spare, "!=", 0)):
            code.store(made, spare)
            code.put(state, CARRIED, "spare", source)
    with code.loop(0, code.word(loop, LOOP, "base_count")) as index:
        offset = code.multiply(index, WORD_BYTES)
        place = code.at(bases, offset)
        code.store(place, code.add(code.load(place), code.load(code.at(strides, offset))))
    code.give()


def _take_flags(module: ir.Module) -> None:
    """Whether kernels have set flags, which are handed over, and set back in the frame."""
    code = Code(module, "i64 jitonnx_loop_flags(ptr loop, ptr frame)")
    frame, met = code["frame"], code.variable(0)
    flags, words = code.pointer(frame, FRAME, "flags"), code.pointer(code["loop"], LOOP, "flags")
    with code.loop(0, code.word(frame, FRAME, "flag_count")) as index:
        offset = code.multiply(index, WORD_BYTES)
        flag = code.load(code.at(flags, offset))
        code.store(code.at(words, offset), flag)
        code.store(code.at(flags, offset), 0)
        code.store(met, code.build.or_(code.load(met), flag))
    code.give(code.load(met))


def _loop(module: ir.Module) -> None:
    """Iterations from `number` on, without the GIL; says why it came back. Where it was ended an exception is set."""
    code = Code(module, "i64 jitonnx_loop(ptr loop)", exported=True)
    own = watch.begin(code, code.pointer(code["loop"], LOOP, "pool"))
    with watch.released(code, own):
        end = code.call("jitonnx_iterate", code["loop"], own)
    code.give(end)


def _iterate(module: ir.Module) -> None:
    """Iterations from `number` on; says why it came back. One function: a call costs a twentieth of a short iteration.

    while (number < limit) {
        program = *programs; programs += program_step
        if (frame is not one of this program) frame = take(pool, program)
        frame->bases = bases; run(frame); if (stop) return STOPPED; advance(loop)
        number += 1
        if (flags are set) return FLAGGED
        if (condition && !*condition) return FALSE
        if (it is time to look at the clock) { look(watch); if (stop) return STOPPED }
    }
    return LIMIT
    """
    code = Code(module, "i64 jitonnx_iterate(ptr loop, ptr watch)")
    loop, watched = code["loop"], code["watch"]
    bases, count = code.pointer(loop, LOOP, "bases"), code.word(loop, LOOP, "base_count")
    condition = code.pointer(loop, LOOP, "condition")
    number = code.field(loop, LOOP, "number")
    held, loaded = code.variable(0), code.variable(0)
    interval = code.variable(1)
    look, since = code.variable(code.add(code.load(number), 1)), code.variable(code.call("jitonnx_clock"))
    stop = code.field(watched, WATCH, "stop")

    def end(why: LoopEnd) -> None:
        frame = code.load(held, POINTER)
        with code.when(code.build.not_(code.is_null(frame))):
            code.call("jitonnx_put_back", frame)
        code.give(why)

    with code.forever():
        with code.when(code.compare(code.load(number), ">=", code.word(loop, LOOP, "limit"))):
            end(LoopEnd.LIMIT)
        programs = code.pointer(loop, LOOP, "programs")
        program = code.load(programs, POINTER)
        code.build.store(code.at(programs, code.word(loop, LOOP, "program_step")), code.field(loop, LOOP, "programs"))
        wanted = code.word(program, PROGRAM, "number")
        with code.when(code.compare(wanted, "!=", code.load(loaded)), likely=False):
            before = code.load(held, POINTER)
            with code.when(code.build.not_(code.is_null(before))):
                code.call("jitonnx_put_back", before)
            taken = code.call("jitonnx_take", code.pointer(loop, LOOP, "pool"), program)
            code.build.store(taken, held)
            with code.when(code.is_null(taken), likely=False):
                code.give(LoopEnd.MEMORY)
            code.store(loaded, wanted)
        frame = code.load(held, POINTER)
        own = code.pointer(frame, FRAME, "bases")
        with code.loop(0, count) as index:
            offset = code.multiply(index, WORD_BYTES)
            code.store(code.at(own, offset), code.load(code.at(bases, offset)))
        stamps = code.pointer(loop, LOOP, "stamps")
        code.call("jitonnx_run", frame, stamps, watch.watching(code, program, watched))
        with code.when(code.compare(code.load(stop), "!=", 0), likely=False):
            code.call("jitonnx_loop_flags", loop, frame)
            end(LoopEnd.STOPPED)
        with code.when(code.build.not_(code.is_null(stamps)), likely=False):
            code.call("jitonnx_loop_sum", loop, code.word(program, PROGRAM, "row_count"))
        code.call("jitonnx_loop_advance", loop)
        after = code.add(code.load(number), 1)
        code.store(number, after)
        with (
            code.when(code.compare(code.word(frame, FRAME, "flag_count"), ">", 0), likely=False),
            code.when(code.compare(code.call("jitonnx_loop_flags", loop, frame), "!=", 0), likely=False),
        ):
            end(LoopEnd.FLAGGED)
        with (
            code.when(code.build.not_(code.is_null(condition))),
            code.when(code.equal(code.load_int(condition, 8), 0), likely=False),
        ):
            end(LoopEnd.FALSE)
        with code.when(code.compare(after, ">=", code.load(look)), likely=False):
            now = code.call("jitonnx_clock")
            code.call("jitonnx_look", watched)
            with code.when(code.compare(code.load(stop), "!=", 0), likely=False):
                end(LoopEnd.STOPPED)
            quick = code.compare(code.subtract(now, code.load(since)), "<", _CLOCK_NANOSECONDS)
            twice = code.multiply(code.load(interval), 2)
            code.store(interval, code.build.select(quick, twice, code.number(1)))
            code.store(look, code.add(after, code.load(interval)))
            code.store(since, now)
    code.build.unreachable()
