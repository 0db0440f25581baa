"""Walking a frame's rows: what every thread does during a run, and the run itself."""

from __future__ import annotations

import llvmlite.ir as ir

from ..layout import FRAME, MAILBOX, PATCH, POOL, ROW, TEAM
from .emit import POINTER, WORD, Code

KERNEL = ir.FunctionType(ir.VoidType(), [POINTER, POINTER, WORD, WORD, POINTER])
"""void kernel(uint8_t **buffers, const int64_t *sizes, int64_t begin, int64_t end, uint8_t *scratch)"""


def define_walks(module: ir.Module) -> None:
    """Add the walks to a module that has the functions of `sync`."""
    for timed in (False, True):
        _walk_alone(module, timed)
        _walk_shared(module, timed)


def define_runs(module: ir.Module) -> None:
    """Add what Python calls to a module that has the walks and the functions of `team`."""
    _patch(module)
    _run(module, timed=False)
    _run(module, timed=True)
    _take(module)
    _put_back(module)


def _call_kernel(code: Code, row: ir.Value, begin: int | ir.Value, end: ir.Value, scratch: ir.Value) -> None:
    buffers = code.at(code.pointer(code["frame"], FRAME, "pointers"), code.word(row, ROW, "pointers"))
    sizes = code.pointer(row, ROW, "sizes")
    code.call_stored(code.field(row, ROW, "kernel"), KERNEL, buffers, sizes, begin, end, scratch)


def _stamp(code: Code, index: int | ir.Value) -> None:
    code.store(code.at(code["stamps"], code.multiply(index, 8)), code.call("jitonnx_clock"))


def _walk_alone(module: ir.Module, timed: bool) -> None:
    """All tasks of all rows on this thread. The timed walk also notes the clock after each row: stamps[row + 1].

    for (row = 0; row < frame->row_count; row++) if (tasks > 0) kernel(…, 0, tasks, scratch)
    """
    code = Code(
        module,
        "void jitonnx_walk_alone_timed(ptr frame, ptr stamps)" if timed else "void jitonnx_walk_alone(ptr frame)",
    )
    frame = code["frame"]
    rows, scratch = code.pointer(frame, FRAME, "rows"), code.pointer(frame, FRAME, "scratch")
    with code.loop(0, code.word(frame, FRAME, "row_count")) as index:
        row = code.item(rows, ROW, index)
        tasks = code.word(row, ROW, "tasks")
        with code.when(code.compare(tasks, ">", 0)):
            _call_kernel(code, row, 0, tasks, scratch)
        if timed:
            _stamp(code, code.add(index, 1))
    code.give()


def _walk_shared(module: ir.Module, timed: bool) -> None:
    """This thread's part of the rows [first, last), with the barriers behind them.

    Thread `index` of a row's n does quotient tasks, the first `remainder` threads one more.

    for (row = first; row < last; row++) {
        if (index < row->threads) {
            begin = index * quotient + min(index, remainder)
            kernel(…, begin, begin + quotient + (index < remainder), scratch + index * stride)
        }
        if (row->barrier) barrier(team, frame->participants)
    }
    """
    arguments = "ptr frame, ptr team, i64 index, i64 first, i64 last"
    code = Code(
        module,
        f"void jitonnx_walk_shared_timed({arguments}, ptr stamps)"
        if timed
        else f"void jitonnx_walk_shared({arguments})",
    )
    frame, index = code["frame"], code["index"]
    rows, participants = code.pointer(frame, FRAME, "rows"), code.word(frame, FRAME, "participants")
    offset = code.multiply(index, code.word(frame, FRAME, "scratch_stride"))
    scratch = code.at(code.pointer(frame, FRAME, "scratch"), offset)
    with code.loop(code["first"], code["last"]) as position:
        row = code.item(rows, ROW, position)
        with code.when(code.compare(index, "<", code.word(row, ROW, "threads"))):
            quotient, remainder = code.word(row, ROW, "quotient"), code.word(row, ROW, "remainder")
            gets_more = code.compare(index, "<", remainder)
            more = code.build.select(gets_more, index, remainder)
            begin = code.add(code.multiply(index, quotient), more)
            end = code.add(code.add(begin, quotient), code.build.zext(gets_more, WORD))
            _call_kernel(code, row, begin, end, scratch)
        with code.when(code.compare(code.word(row, ROW, "barrier"), "!=", 0)):
            code.call("jitonnx_barrier", code["team"], participants)
        if timed:
            _stamp(code, code.add(position, 1))
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


def _run(module: ir.Module, timed: bool) -> None:
    """A whole run: with the frame's team if it has one, and that is free and can be started; else on this thread alone.

    patch(frame)
    if (!team) { walk_alone(frame); return }
    if (acquire(team)) {
        shared = start(team) >= participants - 1
        if (shared) { post the frame to the first participants - 1 workers; walk_shared(frame, team, 0, 0, row_count) }
        team->busy = 0
        if (shared) return
    }
    walk_alone(frame)

    The last parallel row has a barrier behind it, so no worker touches the frame when the team is given back.
    """
    signature = "void jitonnx_profile(ptr frame, ptr stamps)" if timed else "void jitonnx_run(ptr frame)"
    code = Code(module, signature, exported=True)
    suffix, stamps = ("_timed", [code["stamps"]]) if timed else ("", [])
    frame = code["frame"]
    code.call("jitonnx_patch", frame)
    if timed:
        _stamp(code, 0)
    team = code.pointer(frame, FRAME, "team")
    with code.when(code.is_null(team)):
        code.call(f"jitonnx_walk_alone{suffix}", frame, *stamps)
        code.give()
    with code.when(code.compare(code.call("jitonnx_acquire", team), "!=", 0)):
        busy = code.field(team, TEAM, "busy")
        helpers = code.subtract(code.word(frame, FRAME, "participants"), 1)
        with code.when(code.compare(code.call("jitonnx_start", team), ">=", helpers)):
            mailboxes = code.pointer(team, TEAM, "mailboxes")
            with code.loop(0, helpers) as index:
                code.call("jitonnx_post", code.item(mailboxes, MAILBOX, index), frame)
            row_count = code.word(frame, FRAME, "row_count")
            code.call(f"jitonnx_walk_shared{suffix}", frame, team, 0, 0, row_count, *stamps)
            code.publish(busy, 0)
            code.give()
        code.publish(busy, 0)
    code.call(f"jitonnx_walk_alone{suffix}", frame, *stamps)
    code.give()


def _take(module: ir.Module) -> None:
    """A frame that no run is using, or null. The caller holds the GIL, which guards the pool."""
    code = Code(module, "ptr jitonnx_take(ptr pool)", exported=True)
    count = code.word(code["pool"], POOL, "count")
    with code.when(code.equal(count, 0)):
        code.build.ret(POINTER(None))
    left = code.subtract(count, 1)
    code.put(code["pool"], POOL, "count", left)
    place = code.at(code.pointer(code["pool"], POOL, "frames"), code.multiply(left, 8))
    code.build.ret(code.load(place, POINTER))


def _put_back(module: ir.Module) -> None:
    """Give a frame back to the pool. The caller holds the GIL."""
    code = Code(module, "void jitonnx_put_back(ptr pool, ptr frame)", exported=True)
    count = code.word(code["pool"], POOL, "count")
    place = code.at(code.pointer(code["pool"], POOL, "frames"), code.multiply(count, 8))
    code.build.store(code["frame"], place)
    code.put(code["pool"], POOL, "count", code.add(count, 1))
    code.give()
