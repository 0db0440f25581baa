"""Walking a frame's rows, and the run itself."""

from __future__ import annotations

from jitonnx.emit import llvm_ir

from ..layout import FRAME, MEMBER, PATCH, ROW, TEAM
from .floats import flushing
from .functions import POINTER, WORD, FunctionBuilder
from .sync import sequence_of
from .watch import is_stopped, watch_of

KERNEL = llvm_ir.FunctionType(llvm_ir.VoidType(), [POINTER, POINTER, WORD, WORD, POINTER])
"""void kernel(uint8_t **buffers, const int64_t *sizes, int64_t begin, int64_t end, uint8_t *scratch)"""


def define_walk(module: llvm_ir.Module) -> None:
    """Add the walk to a module that has the functions of `floats`."""
    _walk(module)


def define_runs(module: llvm_ir.Module) -> None:
    """Add the run to a module that has the walk and the functions of `sync` and `team`."""
    _patch(module)
    _run(module)


def define_watched(module: llvm_ir.Module) -> None:
    """Add what long runs do to a module that has the functions of `floats`."""
    _in_pieces(module)
    _walk_watched(module)


def call_kernel(
    code: FunctionBuilder,
    frame: llvm_ir.Value,
    row: llvm_ir.Value,
    index: llvm_ir.Value,
    begin: int | llvm_ir.Value,
    end: llvm_ir.Value,
) -> None:
    """Run the tasks [begin, end) of a row as thread `index`."""
    buffers = code.at(code.pointer(frame, FRAME, "pointers"), code.word(row, ROW, "pointers"))
    sizes = code.pointer(row, ROW, "sizes")
    offset = code.multiply(index, code.word(frame, FRAME, "scratch_stride"))
    scratch = code.at(code.pointer(frame, FRAME, "scratch"), offset)
    code.call_stored(code.field(row, ROW, "kernel"), KERNEL, buffers, sizes, begin, end, scratch)


def stamp(code: FunctionBuilder, stamps: llvm_ir.Value, index: int | llvm_ir.Value) -> None:
    """Note the clock in a timed run: stamps[index]."""
    with code.if_then(code.build.not_(code.is_null(stamps)), likely=False):
        code.store(code.at(stamps, code.multiply(index, 8)), code.call("jitonnx_clock"))


def _in_pieces(module: llvm_ir.Module) -> None:
    """Call a kernel in a run that is watched: in pieces, none of which begins when the run is to end."""
    code = FunctionBuilder(module, "void jitonnx_in_pieces(ptr frame, ptr row, i64 index, i64 begin, i64 end)")
    frame, row, index, end = (code[name] for name in ("frame", "row", "index", "end"))
    watch, piece, at = watch_of(code, frame), code.word(row, ROW, "piece"), code.variable(code["begin"])
    looks = code.build.and_(code.equal(index, 0), code.equal(code.word(row, ROW, "looks"), 1))
    with code.forever() as leave:
        first = code.load(at)
        over = code.build.or_(code.compare(first, ">=", end), is_stopped(code, watch))
        with code.if_then(over):
            leave()
        last = code.smaller(code.add(first, piece), end)
        with flushing(code, frame):
            call_kernel(code, frame, row, index, first, last)
        code.store(at, last)
        with code.if_then(looks):
            code.call("jitonnx_look", watch)
    code.give()


def _walk_watched(module: llvm_ir.Module) -> None:
    """The rows [first, last) as thread `index`, in a run that is watched; as `_walk`."""
    code = FunctionBuilder(module, "void jitonnx_walk_watched(ptr frame, i64 index, i64 first, i64 last, ptr stamps)")
    frame = code["frame"]
    rows = code.pointer(frame, FRAME, "rows")
    with code.loop(code["first"], code["last"]) as position:
        row = code.item(rows, ROW, position)
        code.call("jitonnx_in_pieces", frame, row, code["index"], 0, code.word(row, ROW, "tasks"))
        stamp(code, code["stamps"], code.add(position, 1))
    code.give()


def _walk(module: llvm_ir.Module) -> None:
    """All tasks of the rows [first, last) as thread `index`. A timed run notes the clock after each: stamps[row + 1].

    for (row = first; row < last; row++) if (tasks > 0) kernel(…, 0, tasks, scratch)
    """
    code = FunctionBuilder(module, "void jitonnx_walk(ptr frame, i64 index, i64 first, i64 last, ptr stamps)")
    frame = code["frame"]
    with code.if_then(code.build.not_(code.is_null(watch_of(code, frame))), likely=False):
        code.call("jitonnx_walk_watched", frame, code["index"], code["first"], code["last"], code["stamps"])
        code.give()
    rows = code.pointer(frame, FRAME, "rows")
    with flushing(code, frame), code.loop(code["first"], code["last"]) as position:
        row = code.item(rows, ROW, position)
        tasks = code.word(row, ROW, "tasks")
        with code.if_then(code.compare(tasks, ">", 0)):
            call_kernel(code, frame, row, code["index"], 0, tasks)
        stamp(code, code["stamps"], code.add(position, 1))
    code.give()


def _patch(module: llvm_ir.Module) -> None:
    """Set the pointers into this run's inputs and outputs."""
    code = FunctionBuilder(module, "void jitonnx_patch(ptr frame)")
    frame = code["frame"]
    patches = code.pointer(frame, FRAME, "patches")
    pointers, bases = code.pointer(frame, FRAME, "pointers"), code.pointer(frame, FRAME, "bases")
    with code.loop(0, code.word(frame, FRAME, "patch_count")) as index:
        patch = code.item(patches, PATCH, index)
        base = code.load(code.at(bases, code.word(patch, PATCH, "base")))
        pointer = code.at(pointers, code.word(patch, PATCH, "pointer"))
        code.store(pointer, code.add(base, code.word(patch, PATCH, "offset")))
    code.give()


def _run(module: llvm_ir.Module) -> None:
    """A whole run: with the frame's team if it has one, and that is free and can be started; else on this thread alone.
    `stamps`: null, or where a timed run notes the clock before the first and after each row. `watch`: the `WATCH` of a
    long run, or null.

    patch(frame)
    if (team && acquire(team)) {
        shared = start(team) >= participants - 1
        if (shared) {
            sequence = the caller's own, before it gets its part of the first shared row
            advance(team, 0, 0)
            member(team, 0, sequence, watch)
        }
        team->busy = 0
        if (shared) { walk(frame, 0, shared_end, row_count); return }
    }
    walk(frame, 0, 0, row_count)
    """
    code = FunctionBuilder(module, "void jitonnx_run(ptr frame, ptr stamps, ptr watch)")
    frame, stamps = code["frame"], code["stamps"]
    code.call("jitonnx_patch", frame)
    code.build.store(code["watch"], code.field(frame, FRAME, "watch"))
    stamp(code, stamps, 0)
    team, rows = code.pointer(frame, FRAME, "team"), code.word(frame, FRAME, "row_count")
    with code.if_then(code.is_null(team)):
        code.call("jitonnx_walk", frame, 0, 0, rows, stamps)
        code.give()
    with code.if_then(code.compare(code.call("jitonnx_acquire", team), "!=", 0)):
        busy = code.field(team, TEAM, "busy")
        helpers = code.subtract(code.word(frame, FRAME, "participants"), 1)
        with code.if_then(code.compare(code.call("jitonnx_start", team), ">=", helpers)):
            code.build.store(frame, code.field(team, TEAM, "frame"))
            code.build.store(stamps, code.field(team, TEAM, "stamps"))
            caller = code.pointer(team, TEAM, "members")
            sequence = sequence_of(code, code.word(caller, MEMBER, "claim"))
            code.call("jitonnx_advance", team, 0, 0)
            code.call("jitonnx_member", team, 0, sequence, code["watch"])
            code.publish(busy, 0)
            code.call("jitonnx_walk", frame, 0, code.word(frame, FRAME, "shared_end"), rows, stamps)
            code.give()
        code.publish(busy, 0)
    code.call("jitonnx_walk", frame, 0, 0, rows, stamps)
    code.give()
