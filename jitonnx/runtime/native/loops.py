"""Repeated programs: a program run again and again, each time on what it gave before, without Python in between."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jitonnx.emit import llvm_ir

from ..layout import CARRIED, FRAME, LOOP, PROGRAM, WORD_BYTES, LoopEnd
from . import watch
from .functions import POINTER, FunctionBuilder

_CLOCK_NANOSECONDS = 1_000_000
"""How far apart looks at the clock are at most meanwhile: iterations between two are doubled as long as it is less."""


def define(module: llvm_ir.Module) -> None:
    """Add the function to a module that has those of `frames` and `walk`."""
    _sum(module)
    _advance(module)
    _take_flags(module)
    _iterate(module)
    _loop(module)


def _sum(module: llvm_ir.Module) -> None:
    """Add up what the rows of a timed iteration took."""
    code = FunctionBuilder(module, "void jitonnx_loop_sum(ptr loop, i64 rows)")
    stamps, sums = (code.pointer(code["loop"], LOOP, name) for name in ("stamps", "sums"))
    with code.loop(0, code["rows"]) as row:
        before, after = (code.word_at(stamps, code.add(row, n)) for n in (0, 1))
        place = code.word_at(sums, row)
        code.store(place, code.add(code.load(place), code.subtract(code.load(after), code.load(before))))
    code.give()


def _advance(module: llvm_ir.Module) -> None:
    """Let the next iteration read what the last one has written, and stacked tensors go on by a row.

    for (carried) {
        source = bases[output]; bases[input] = source
        if (spare) { bases[output] = spare; spare = source }
    }
    for (i < base_count) bases[i] += strides[i]
    """
    code = FunctionBuilder(module, "void jitonnx_loop_advance(ptr loop)")
    loop = code["loop"]
    bases, strides = code.pointer(loop, LOOP, "bases"), code.pointer(loop, LOOP, "strides")
    carried = code.pointer(loop, LOOP, "carried")
    with code.loop(0, code.word(loop, LOOP, "carried_count")) as index:
        state = code.item(carried, CARRIED, index)
        given, made = (code.at(bases, code.word(state, CARRIED, name)) for name in ("input", "output"))
        source, spare = code.load(made), code.word(state, CARRIED, "spare")
        code.store(given, source)
        with code.if_then(code.compare(spare, "!=", 0)):
            code.store(made, spare)
            code.put(state, CARRIED, "spare", source)
    with code.loop(0, code.word(loop, LOOP, "base_count")) as index:
        offset = code.multiply(index, WORD_BYTES)
        place = code.at(bases, offset)
        code.store(place, code.add(code.load(place), code.load(code.at(strides, offset))))
    code.give()


def _take_flags(module: llvm_ir.Module) -> None:
    """Whether kernels have set flags, which are handed over, and set back in the frame."""
    code = FunctionBuilder(module, "i64 jitonnx_loop_flags(ptr loop, ptr frame)")
    frame, met = code["frame"], code.variable(0)
    flags, words = code.pointer(frame, FRAME, "flags"), code.pointer(code["loop"], LOOP, "flags")
    with code.loop(0, code.word(frame, FRAME, "flag_count")) as index:
        offset = code.multiply(index, WORD_BYTES)
        flag = code.load(code.at(flags, offset))
        code.store(code.at(words, offset), flag)
        code.store(code.at(flags, offset), 0)
        code.store(met, code.build.or_(code.load(met), flag))
    code.give(code.load(met))


def _loop(module: llvm_ir.Module) -> None:
    """Iterations from `number` on, without the GIL; says why it came back. Where it was ended an exception is set."""
    code = FunctionBuilder(module, "i64 jitonnx_loop(ptr loop)", exported=True)
    own = watch.begin(code, code.pointer(code["loop"], LOOP, "pool"))
    with watch.released(code, own):
        end = code.call("jitonnx_iterate", code["loop"], own)
    code.give(end)


def _iterate(module: llvm_ir.Module) -> None:
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
    code = FunctionBuilder(module, "i64 jitonnx_iterate(ptr loop, ptr watch)")
    loop, watched = code["loop"], code["watch"]
    condition, number = code.pointer(loop, LOOP, "condition"), code.field(loop, LOOP, "number")
    held, clock = _Held(code, loop), _Clock(code, number)

    def end(why: LoopEnd) -> None:
        held.put_back()
        code.give(why)

    with code.forever():
        with code.if_then(code.compare(code.load(number), ">=", code.word(loop, LOOP, "limit"))):
            end(LoopEnd.LIMIT)
        program, frame = held.take()
        _run(code, program, frame)
        with code.if_then(watch.is_ended(code, watched), likely=False):
            code.call("jitonnx_loop_flags", loop, frame)
            end(LoopEnd.STOPPED)
        code.call("jitonnx_loop_advance", loop)
        after = code.add(code.load(number), 1)
        code.store(number, after)
        with (
            code.if_then(code.compare(code.word(frame, FRAME, "flag_count"), ">", 0), likely=False),
            code.if_then(code.compare(code.call("jitonnx_loop_flags", loop, frame), "!=", 0), likely=False),
        ):
            end(LoopEnd.FLAGGED)
        with (
            code.if_then(code.build.not_(code.is_null(condition))),
            code.if_then(code.equal(code.load_int(condition, 8), 0), likely=False),
        ):
            end(LoopEnd.FALSE)
        with clock.when_it_is_time(after):
            code.call("jitonnx_look", watched)
            with code.if_then(watch.is_ended(code, watched), likely=False):
                end(LoopEnd.STOPPED)
    code.build.unreachable()


class _Held:
    """The frame that iterations run in: another one where the next iteration's program is another."""

    def __init__(self, code: FunctionBuilder, loop: llvm_ir.Value) -> None:
        self._code, self._loop = code, loop
        self._frame, self._number = code.variable(0), code.variable(0)

    def take(self) -> tuple[llvm_ir.Value, llvm_ir.Value]:
        """The next program, and a frame that it is loaded in; where there is no memory for one the loop ends."""
        code, loop = self._code, self._loop
        programs = code.pointer(loop, LOOP, "programs")
        program = code.load(programs, POINTER)
        code.build.store(code.at(programs, code.word(loop, LOOP, "program_step")), code.field(loop, LOOP, "programs"))
        number = code.word(program, PROGRAM, "number")
        with code.if_then(code.compare(number, "!=", code.load(self._number)), likely=False):
            self.put_back()
            taken = code.call("jitonnx_take", code.pointer(loop, LOOP, "pool"), program)
            code.build.store(taken, self._frame)
            code.give_if(code.is_null(taken), LoopEnd.MEMORY)
            code.store(self._number, number)
        return program, code.load(self._frame, POINTER)

    def put_back(self) -> None:
        """Give the frame back, if there is one."""
        frame = self._code.load(self._frame, POINTER)
        with self._code.if_then(self._code.build.not_(self._code.is_null(frame))):
            self._code.call("jitonnx_put_back", frame)


def _run(code: FunctionBuilder, program: llvm_ir.Value, frame: llvm_ir.Value) -> None:
    """One iteration: a frame's addresses are those of the loop, and what its kernels take is noted if that is asked."""
    loop = code["loop"]
    own, bases = code.pointer(frame, FRAME, "bases"), code.pointer(loop, LOOP, "bases")
    with code.loop(0, code.word(loop, LOOP, "base_count")) as index:
        offset = code.multiply(index, WORD_BYTES)
        code.store(code.at(own, offset), code.load(code.at(bases, offset)))
    stamps = code.pointer(loop, LOOP, "stamps")
    code.call("jitonnx_run", frame, stamps, watch.watching(code, program, code["watch"]))
    with code.if_then(code.build.not_(code.is_null(stamps)), likely=False):
        code.call("jitonnx_loop_sum", loop, code.word(program, PROGRAM, "row_count"))


class _Clock:
    """When the clock is looked at: twice as many iterations apart as before, as long as these take no time."""

    def __init__(self, code: FunctionBuilder, number: llvm_ir.Value) -> None:
        self._code, self._interval = code, code.variable(1)
        self._next = code.variable(code.add(code.load(number), 1))
        self._since = code.variable(code.call("jitonnx_clock"))

    @contextmanager
    def when_it_is_time(self, number: llvm_ir.Value) -> Iterator[None]:
        """Carry out what is within the block if it is time, before the iteration of a number."""
        code = self._code
        with code.if_then(code.compare(number, ">=", code.load(self._next)), likely=False):
            now = code.call("jitonnx_clock")
            yield
            quick = code.compare(code.subtract(now, code.load(self._since)), "<", _CLOCK_NANOSECONDS)
            twice = code.multiply(code.load(self._interval), 2)
            code.store(self._interval, code.build.select(quick, twice, code.number(1)))
            code.store(self._next, code.add(number, code.load(self._interval)))
            code.store(self._since, now)
