"""Walking a frame's rows, and the run itself."""

from __future__ import annotations

import llvmlite.ir as ir

from ..layout import FRAME, LOADED, MEMBER, PATCH, POOL, PROGRAM, ROW, TEAM, WORD_BYTES
from .emit import POINTER, WORD, Code
from .sync import sequence_of

KERNEL = ir.FunctionType(ir.VoidType(), [POINTER, POINTER, WORD, WORD, POINTER])
"""void kernel(uint8_t **buffers, const int64_t *sizes, int64_t begin, int64_t end, uint8_t *scratch)"""


def define_walk(module: ir.Module) -> None:
    """Add the walk to a module that has the functions of `sync`."""
    _walk(module)


def define_runs(module: ir.Module) -> None:
    """Add what Python calls to a module that has the walk and the functions of `team`."""
    _patch(module)
    _run(module)
    _load(module)
    _take(module)
    _put_back(module)


def call_kernel(
    code: Code, frame: ir.Value, row: ir.Value, index: ir.Value, begin: int | ir.Value, end: ir.Value
) -> None:
    """Do the tasks [begin, end) of a row as thread `index`."""
    buffers = code.at(code.pointer(frame, FRAME, "pointers"), code.word(row, ROW, "pointers"))
    sizes = code.pointer(row, ROW, "sizes")
    offset = code.multiply(index, code.word(frame, FRAME, "scratch_stride"))
    scratch = code.at(code.pointer(frame, FRAME, "scratch"), offset)
    code.call_stored(code.field(row, ROW, "kernel"), KERNEL, buffers, sizes, begin, end, scratch)


def stamp(code: Code, stamps: ir.Value, index: int | ir.Value) -> None:
    """In a timed run, note the clock: stamps[index]."""
    with code.when(code.build.not_(code.is_null(stamps)), likely=False):
        code.store(code.at(stamps, code.multiply(index, 8)), code.call("jitonnx_clock"))


def _walk(module: ir.Module) -> None:
    """All tasks of the rows [first, last) as thread `index`. A timed run notes the clock after each: stamps[row + 1].

    for (row = first; row < last; row++) if (tasks > 0) kernel(…, 0, tasks, scratch)
    """
    code = Code(module, "void jitonnx_walk(ptr frame, i64 index, i64 first, i64 last, ptr stamps)")
    frame = code["frame"]
    rows = code.pointer(frame, FRAME, "rows")
    with code.loop(code["first"], code["last"]) as position:
        row = code.item(rows, ROW, position)
        tasks = code.word(row, ROW, "tasks")
        with code.when(code.compare(tasks, ">", 0)):
            call_kernel(code, frame, row, code["index"], 0, tasks)
        stamp(code, code["stamps"], code.add(position, 1))
    code.give()


def _patch(module: ir.Module) -> None:
    """Set the pointers into this run's inputs and outputs."""
    code = Code(module, "void jitonnx_patch(ptr frame)")
    frame = code["frame"]
    patches = code.pointer(frame, FRAME, "patches")
    pointers, bases = code.pointer(frame, FRAME, "pointers"), code.pointer(frame, FRAME, "bases")
    with code.loop(0, code.word(frame, FRAME, "patch_count")) as index:
        patch = code.item(patches, PATCH, index)
        base = code.load(code.at(bases, code.word(patch, PATCH, "base")))
        pointer = code.at(pointers, code.word(patch, PATCH, "pointer"))
        code.store(pointer, code.add(base, code.word(patch, PATCH, "offset")))
    code.give()


def _run(module: ir.Module) -> None:
    """A whole run: with the frame's team if it has one, and that is free and can be started; else on this thread alone.
    `stamps`: null, or where a timed run notes the clock before the first and after each row.

    patch(frame)
    if (team && acquire(team)) {
        shared = start(team) >= participants - 1
        if (shared) {
            sequence = the caller's own, before it gets its part of the first shared row
            advance(team, 0, 0)
            member(team, 0, sequence)
        }
        team->busy = 0
        if (shared) { walk(frame, 0, shared_end, row_count); return }
    }
    walk(frame, 0, 0, row_count)
    """
    code = Code(module, "void jitonnx_run(ptr frame, ptr stamps)", exported=True)
    frame, stamps = code["frame"], code["stamps"]
    code.call("jitonnx_patch", frame)
    stamp(code, stamps, 0)
    team, rows = code.pointer(frame, FRAME, "team"), code.word(frame, FRAME, "row_count")
    with code.when(code.is_null(team)):
        code.call("jitonnx_walk", frame, 0, 0, rows, stamps)
        code.give()
    with code.when(code.compare(code.call("jitonnx_acquire", team), "!=", 0)):
        busy = code.field(team, TEAM, "busy")
        helpers = code.subtract(code.word(frame, FRAME, "participants"), 1)
        with code.when(code.compare(code.call("jitonnx_start", team), ">=", helpers)):
            code.build.store(frame, code.field(team, TEAM, "frame"))
            code.build.store(stamps, code.field(team, TEAM, "stamps"))
            caller = code.pointer(team, TEAM, "members")
            sequence = sequence_of(code, code.word(caller, MEMBER, "claim"))
            code.call("jitonnx_advance", team, 0, 0)
            code.call("jitonnx_member", team, 0, sequence)
            code.publish(busy, 0)
            code.call("jitonnx_walk", frame, 0, code.word(frame, FRAME, "shared_end"), rows, stamps)
            code.give()
        code.publish(busy, 0)
    code.call("jitonnx_walk", frame, 0, 0, rows, stamps)
    code.give()


def _load(module: ir.Module) -> None:
    """Make a frame one of this program, which it has room for."""
    code = Code(module, "void jitonnx_load(ptr frame, ptr program)", exported=True)
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
        code.store(code.at(flags, code.multiply(index, WORD_BYTES)), 0)
    code.give()


def _take(module: ir.Module) -> None:
    """A frame that no run is using, loaded with the program; null if there is none, or the one used last lacks room.
    The caller holds the GIL, which guards the pool.
    """
    code = Code(module, "ptr jitonnx_take(ptr pool, ptr program)", exported=True)
    pool, program = code["pool"], code["program"]
    count = code.word(pool, POOL, "count")
    with code.when(code.equal(count, 0)):
        code.build.ret(POINTER(None))
    left = code.subtract(count, 1)
    frame = code.load(code.at(code.pointer(pool, POOL, "frames"), code.multiply(left, WORD_BYTES)), POINTER)
    number = code.word(program, PROGRAM, "number")
    with code.when(code.compare(code.word(frame, FRAME, "number"), "!=", number)):
        for needed, there in (
            ("memory_bytes", "memory_bytes"),
            ("pointer_count", "pointer_limit"),
            ("base_count", "base_limit"),
        ):
            room = code.word(frame, FRAME, there)
            with code.when(code.compare(code.word(program, PROGRAM, needed), ">", room), likely=False):
                code.build.ret(POINTER(None))
        code.call("jitonnx_load", frame, program)
    code.put(pool, POOL, "count", left)
    code.build.ret(frame)


def _put_back(module: ir.Module) -> None:
    """Give a frame back to the pool. The caller holds the GIL."""
    code = Code(module, "void jitonnx_put_back(ptr pool, ptr frame)", exported=True)
    count = code.word(code["pool"], POOL, "count")
    place = code.at(code.pointer(code["pool"], POOL, "frames"), code.multiply(count, 8))
    code.build.store(code["frame"], place)
    code.put(code["pool"], POOL, "count", code.add(count, 1))
    code.give()
