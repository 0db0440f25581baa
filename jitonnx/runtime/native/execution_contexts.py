"""The frames of a pool: how runs take one, load it with their program, let it grow, and give it back.

One rule guards them: a frame is its owner's. Who sets `owner` from 0 to itself, by compare-and-exchange, has all of the
frame until it sets it back, and nobody else reads or writes any of its other fields. Nothing here leans on Python's
lock, so native entries, runs that Python starts, and threads without any lock may all be at a pool at once.

A process may be forked at any time. The child takes over the frames of threads that it does not have (`reclaim`), in
whatever state these were. So what says that there is room (`memory_bytes` and the limits) is set last when a frame
grows and taken back first when its memory is freed, and these words are published in that order.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jitonnx.emit import llvm_ir

from ..layout import FRAME, LOADED, POOL, PROGRAM, SEPARATION, WORD_BYTES
from . import watch
from .functions import POINTER, FunctionBuilder

_HUGE_BYTES = 4 << 20
"""Memory from this size on is asked for in huge pages, and consists of such: what lies in front of the first and behind
the last would be in small ones. MobileNets and efficientnet_b0 take 0.985 of the time so, unet_gn 0.97 (Zen 5)."""
_HUGE_PAGE_BYTES = 2 << 20
_STEPS = 3
"""The logarithm of how many sizes there are between powers of two: room is left for somewhat larger programs."""
_LIMITS = (("memory_bytes", "memory_bytes"), ("pointer_count", "pointer_limit"), ("base_count", "base_limit"))
"""What a program needs, and what says that a frame has it."""


def define(module: llvm_ir.Module) -> None:
    """Add how runs take frames and give them back to a module."""
    _load(module)
    _has_room(module)
    _take(module)
    _put_back(module)


def define_growth(module: llvm_ir.Module) -> None:
    """Add to a module with the functions of `memory` how frames get and lose memory, and runs that Python starts."""
    _shed(module)
    _grow(module)
    _take_grown(module)
    _execute(module)
    _trim(module)
    _reclaim(module)


@contextmanager
def _frames(code: FunctionBuilder) -> Iterator[llvm_ir.Value]:
    """`for (frame in pool)`."""
    first = code.pointer(code["pool"], POOL, "frames")
    with code.loop(0, code.word(code["pool"], POOL, "count")) as index:
        yield code.item(first, FRAME, index)


@contextmanager
def _claimed(code: FunctionBuilder, frame: llvm_ir.Value) -> Iterator[None]:
    """`if (!frame->owner && frame->owner was set from 0 to this thread)`."""
    owner = code.field(frame, FRAME, "owner")
    with code.if_then(code.equal(code.watch(owner), 0), likely=True):
        taken = code.exchange_if(owner, 0, code.call("pthread_self"))
        with code.if_then(taken, likely=True):
            yield


def _let_go(code: FunctionBuilder, frame: llvm_ir.Value) -> None:
    code.release(code.field(frame, FRAME, "owner"), 0)


def _load(module: llvm_ir.Module) -> None:
    """Make a frame one of this program, which it has room for."""
    code = FunctionBuilder(module, "void jitonnx_load(ptr frame, ptr program)")
    frame, program = code["frame"], code["program"]
    for name in LOADED:
        code.put(frame, FRAME, name, code.word(program, PROGRAM, name))
    memory = code.word(frame, FRAME, "memory")
    code.put(frame, FRAME, "flags", memory)
    code.put(frame, FRAME, "scratch", code.add(memory, code.word(program, PROGRAM, "scratch_begin")))
    initial, in_arena = code.pointer(program, PROGRAM, "pointers"), code.pointer(program, PROGRAM, "in_arena")
    pointers, flags = code.pointer(frame, FRAME, "pointers"), code.pointer(frame, FRAME, "flags")
    with code.loop(0, code.word(program, PROGRAM, "pointer_count")) as index:
        offset = code.multiply(index, WORD_BYTES)
        base = code.build.and_(memory, code.load(code.at(in_arena, offset)))
        code.store(code.at(pointers, offset), code.add(base, code.load(code.at(initial, offset))))
    with code.loop(0, code.word(program, PROGRAM, "flag_count")) as index:
        code.store(code.word_at(flags, index), 0)
    code.give()


def _shed(module: llvm_ir.Module) -> None:
    """Free a frame's memory. The caller owns the frame."""
    code = FunctionBuilder(module, "void jitonnx_shed(ptr frame)")
    frame = code["frame"]
    for name in ("number", *(limit for _, limit in _LIMITS)):
        code.publish(code.field(frame, FRAME, name), 0)
    block = code.pointer(frame, FRAME, "memory")
    code.publish(code.field(frame, FRAME, "memory"), 0)
    code.call("free", block)
    code.give()


def _with_room(code: FunctionBuilder, size: llvm_ir.Value) -> llvm_ir.Value:
    """A size that is enough also for somewhat more: the next of eight steps between powers of two."""
    length = code.subtract(64, code.build.ctlz(size, code.bit(0)))
    step = code.build.lshr(code.build.shl(code.number(1), code.larger(length, _STEPS + 1)), code.number(_STEPS + 1))
    above = code.add(size, code.subtract(step, 1))
    return code.build.and_(above, code.subtract(0, step))


def _grow(module: llvm_ir.Module) -> None:
    """Exchange a frame's memory for some that this program fits in; 0 if there is none. The caller owns the frame.

    block = [memory_bytes | pointers | bases | held]
    """
    code = FunctionBuilder(module, "i64 jitonnx_grow(ptr frame, ptr program)")
    frame, program = code["frame"], code["program"]
    code.call("jitonnx_shed", frame)
    memory_bytes, pointers = (
        _with_room(code, code.word(program, PROGRAM, name)) for name in ("memory_bytes", "pointer_count")
    )
    bases = code.word(program, PROGRAM, "base_count")
    words = code.add(pointers, code.multiply(bases, 2))
    begin = code.build.and_(code.add(memory_bytes, WORD_BYTES - 1), code.number(-WORD_BYTES))
    total = code.add(begin, code.multiply(words, WORD_BYTES))
    large = code.compare(total, ">=", _HUGE_BYTES)
    whole = code.build.and_(code.add(total, _HUGE_PAGE_BYTES - 1), code.number(-_HUGE_PAGE_BYTES))
    total = code.build.select(large, whole, total)
    alignment = code.build.select(large, code.number(_HUGE_PAGE_BYTES), code.number(SEPARATION))
    place = code.variable(0)
    failed = code.call("posix_memalign", place, alignment, total)
    code.give_if(code.build.icmp_signed("!=", failed, failed.type(0)), 0)
    block = code.load(place, POINTER)
    with code.if_then(large):
        code.call("jitonnx_ask_for_huge_pages", block, total)
    at = code.at(block, begin)
    for name, count in (("pointers", pointers), ("bases", bases), ("held", bases)):
        code.build.store(at, code.field(frame, FRAME, name))
        at = code.word_at(at, count)
    for name, value in (
        ("memory", code.load(place)),
        ("memory_bytes", memory_bytes),
        ("pointer_limit", pointers),
        ("base_limit", bases),
    ):
        code.publish(code.field(frame, FRAME, name), value)
    code.give(1)


def _has_room(module: llvm_ir.Module) -> None:
    """1 if a program fits into a frame, else 0."""
    code = FunctionBuilder(module, "i64 jitonnx_has_room(ptr frame, ptr program)")
    for needed, limit in _LIMITS:
        room = code.word(code["frame"], FRAME, limit)
        code.give_if(code.compare(code.word(code["program"], PROGRAM, needed), ">", room), 0)
    code.give(1)


def _take(module: llvm_ir.Module) -> None:
    """A frame for this thread, loaded with the program; null if memory is short. Give it back with `put_back`.

    for (frame in pool) if (claimed(frame)) {
        if (frame->number == program->number) return frame
        if (has_room(frame, program)) { load(frame, program); return frame }
        frame->owner = 0
    }
    return take_grown(pool, program)
    """
    code = FunctionBuilder(module, "ptr jitonnx_take(ptr pool, ptr program)")
    program = code["program"]
    with _frames(code) as frame, _claimed(code, frame):
        same = code.equal(code.word(frame, FRAME, "number"), code.word(program, PROGRAM, "number"))
        with code.if_then(same, likely=True):
            code.build.ret(frame)
        with code.if_then(code.compare(code.call("jitonnx_has_room", frame, program), "!=", 0), likely=True):
            code.call("jitonnx_load", frame, program)
            code.build.ret(frame)
        _let_go(code, frame)
    code.build.ret(code.call("jitonnx_take_grown", code["pool"], program))


def _take_grown(module: llvm_ir.Module) -> None:
    """The frame that `take` gives where none has room: one grows, or another is made."""
    code = FunctionBuilder(module, "ptr jitonnx_take_grown(ptr pool, ptr program)")
    program = code["program"]

    def grown(frame: llvm_ir.Value) -> llvm_ir.Value:
        return code.compare(code.call("jitonnx_grow", frame, program), "!=", 0)

    with _frames(code) as frame, _claimed(code, frame):
        with code.if_then(grown(frame), likely=True):
            code.call("jitonnx_load", frame, program)
            code.build.ret(frame)
        _let_go(code, frame)
        code.build.ret(POINTER(None))
    # All are in use: a burst of runs. This one gets a frame that is freed behind it.
    place = code.variable(0)
    failed = code.call("posix_memalign", place, SEPARATION, FRAME.itemsize)
    with code.if_then(code.build.icmp_signed("!=", failed, failed.type(0)), likely=False):
        code.build.ret(POINTER(None))
    extra = code.load(place, POINTER)
    code.call("memset", extra, 0, FRAME.itemsize)
    code.put(extra, FRAME, "extra", 1)
    with code.if_then(grown(extra), likely=True):
        code.call("jitonnx_load", extra, program)
        code.build.ret(extra)
    code.call("free", extra)
    code.build.ret(POINTER(None))


def _put_back(module: llvm_ir.Module) -> None:
    """Put a frame back, which its owner has done with."""
    code = FunctionBuilder(module, "void jitonnx_put_back(ptr frame)")
    frame = code["frame"]
    with code.if_then(code.compare(code.word(frame, FRAME, "extra"), "!=", 0), likely=False):
        code.call("jitonnx_shed", frame)
        code.call("free", frame)
        code.give()
    _let_go(code, frame)
    code.give()


def _execute(module: llvm_ir.Module) -> None:
    """A run of a program with these inputs and outputs, as Python starts it, which lets go of the GIL; 0 if memory is
    short, else 1. An exception is set where Python has ended it.

    `bases`: the addresses of inputs, then of outputs. `words`: where the flags are put that kernels have set. `stamps`:
    null, or where a timed run notes the clock before the first and after each row.
    """
    code = FunctionBuilder(
        module, "i64 jitonnx_execute(ptr pool, ptr program, ptr bases, ptr words, ptr stamps)", exported=True
    )
    program = code["program"]
    frame = code.call("jitonnx_take", code["pool"], program)
    code.give_if(code.is_null(frame), 0)
    bases, flags = code.pointer(frame, FRAME, "bases"), code.pointer(frame, FRAME, "flags")
    with code.loop(0, code.word(program, PROGRAM, "base_count")) as index:
        offset = code.multiply(index, WORD_BYTES)
        code.store(code.at(bases, offset), code.load(code.at(code["bases"], offset)))
    own = watch.begin(code, code["pool"])
    with watch.released(code, own):
        code.call("jitonnx_run", frame, code["stamps"], watch.watching(code, program, own))
    with code.loop(0, code.word(program, PROGRAM, "flag_count")) as index:
        offset = code.multiply(index, WORD_BYTES)
        code.store(code.at(code["words"], offset), code.load(code.at(flags, offset)))
        code.store(code.at(flags, offset), 0)
    code.call("jitonnx_put_back", frame)
    code.give(1)


def _trim(module: llvm_ir.Module) -> None:
    """Free the memory of frames that no run is using, if it is larger than so many bytes."""
    code = FunctionBuilder(module, "void jitonnx_trim(ptr pool, i64 above)", exported=True)
    with _frames(code) as frame, _claimed(code, frame):
        with code.if_then(code.compare(code.word(frame, FRAME, "memory_bytes"), ">", code["above"])):
            code.call("jitonnx_shed", frame)
        _let_go(code, frame)
    code.give()


def _reclaim(module: llvm_ir.Module) -> None:
    """Take over the frames of the parent's other threads, in a child process, where this thread is the only one.

    What they were loaded with, and what kernels had set, goes; the next run loads them anew.
    """
    code = FunctionBuilder(module, "void jitonnx_reclaim(ptr pool)", exported=True)
    with _frames(code) as frame:
        owner = code.watch(code.field(frame, FRAME, "owner"))
        others = code.build.and_(code.compare(owner, "!=", 0), code.compare(owner, "!=", code.call("pthread_self")))
        with code.if_then(others):
            code.put(frame, FRAME, "number", 0)
            _let_go(code, frame)
    code.give()
