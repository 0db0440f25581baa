"""The members of a team: how they get rows, share their tasks, begin and end.

One row at a time is shared. Each member has a part of its units, in its claim; it takes its own part from the front, in
shrinking pieces, and then what is left of the others' from behind. Who finishes the last unit goes on with the program:
it does the rows that are not shared, and hands out the next that is. So nobody waits but for units in the making: a
member that is not on a CPU, asleep or late is not waited for, and others do its part.

A claim names its row by a number that never comes again (`sequence`: a thread would have to sleep through 2^32 rows).
Taking units is a compare-and-exchange of a claim, which fails if it is about another row by now. Until it has succeeded
a member reads its team's memory only, which outlives it; after that the row, and with it the frame, cannot end before
the member has counted its units as done. So a late member never touches a frame that is free.
"""

from __future__ import annotations

from jitonnx.emit import llvm_ir

from ..layout import FRAME, MEMBER, OVER, ROW, TEAM
from .floats import flushing
from .functions import POINTER, FunctionBuilder
from .sync import sequence_of
from .walk import call_kernel, stamp
from .watch import watch_of


def define(module: llvm_ir.Module) -> None:
    """Add what members do in runs to a module that has the functions of `floats`, `sync` and `walk`."""
    _hand_out(module)
    _advance(module)
    _do_units(module)
    _share(module)
    _member(module)


def define_workers(module: llvm_ir.Module, set_mask: int) -> None:
    """Add how threads begin and end; `set_mask` is the system's SIG_SETMASK."""
    _worker(module, set_mask)
    _start(module)
    _stop(module)


def _member_at(code: FunctionBuilder, index: int | llvm_ir.Value) -> llvm_ir.Value:
    return code.item(code.pointer(code["team"], TEAM, "members"), MEMBER, code.number(index))


def _next_sequence(code: FunctionBuilder) -> llvm_ir.Value:
    """Count the team's sequence up."""
    sequence = code.bits(code.add(code.word(code["team"], TEAM, "sequence"), 1), 0, 32)
    code.put(code["team"], TEAM, "sequence", sequence)
    return code.shift_left(sequence, 32)


def _hand_out(module: llvm_ir.Module) -> None:
    """Share a row: thread t of its n gets quotient units, the first `remainder` threads one more.

    Claims are published last, as with them begins the work.
    """
    code = FunctionBuilder(module, "void jitonnx_hand_out(ptr team, ptr row, i64 position)")
    team, row = code["team"], code["row"]
    threads, remainder = code.word(row, ROW, "threads"), code.word(row, ROW, "remainder")
    quotient = code.word(row, ROW, "quotient")
    code.put(team, TEAM, "position", code["position"])
    code.put(team, TEAM, "grain", code.word(row, ROW, "grain"))
    code.put(team, TEAM, "left", code.add(code.multiply(threads, quotient), remainder))
    sequence = _next_sequence(code)
    with code.loop(0, threads) as index:
        first = code.add(code.multiply(index, quotient), code.smaller(index, remainder))
        after = code.add(index, 1)
        end = code.add(code.multiply(after, quotient), code.smaller(after, remainder))
        claim = code.add(sequence, code.add(code.shift_left(first, 16), end))
        code.publish(code.field(_member_at(code, index), MEMBER, "claim"), claim)
    with code.loop(0, threads) as index:
        code.call("jitonnx_wake", _member_at(code, index))
    code.give()


def _advance(module: llvm_ir.Module) -> None:
    """Go on with the team's program from a row on, as the one thread that may: 1 if a row has been handed out, else 0.

    for (row = position; row < frame->shared_end; row++) {
        if (row->threads > 1) { hand_out(team, row); return 1 }
        walk(frame, index, row, row + 1, team->stamps)
    }
    return 0
    """
    code = FunctionBuilder(module, "i64 jitonnx_advance(ptr team, i64 index, i64 position)")
    team = code["team"]
    frame = code.pointer(team, TEAM, "frame")
    rows = code.pointer(frame, FRAME, "rows")
    with code.loop(code["position"], code.word(frame, FRAME, "shared_end")) as position:
        row = code.item(rows, ROW, position)
        with code.if_then(code.compare(code.word(row, ROW, "threads"), ">", 1)):
            code.call("jitonnx_hand_out", team, row, position)
            code.give(1)
        stamps = code.pointer(team, TEAM, "stamps")
        code.call("jitonnx_walk", frame, code["index"], position, code.add(position, 1), stamps)
    code.give(0)


def _do_units(module: llvm_ir.Module) -> None:
    """Carry out the units [first, end) of the team's row, which this thread has taken."""
    code = FunctionBuilder(module, "void jitonnx_do_units(ptr team, i64 index, i64 first, i64 end)")
    frame = code.pointer(code["team"], TEAM, "frame")
    position = code.word(code["team"], TEAM, "position")
    row = code.item(code.pointer(frame, FRAME, "rows"), ROW, position)
    unit = code.word(row, ROW, "unit")
    last = code.smaller(code.multiply(code["end"], unit), code.word(row, ROW, "tasks"))
    begin, index = code.multiply(code["first"], unit), code["index"]
    with code.build.if_else(code.is_null(watch_of(code, frame)), likely=True) as (usual, watched):
        with usual, flushing(code, frame):
            call_kernel(code, frame, row, index, begin, last)
        with watched:
            code.call("jitonnx_in_pieces", frame, row, index, begin, last)
    code.give()


def _share(module: llvm_ir.Module) -> None:
    """Carry out what is left of a row for this thread to take; returns how many units it has done.

    for each member, this one first, while it has a claim on the row with units left {
        size = max(left / 2, team->grain), or all if less than a grain would remain
        if (own) take the first `size` units, else the last
        if it is still so (compare and exchange): do them
    }
    """
    code = FunctionBuilder(module, "i64 jitonnx_share(ptr team, i64 index, i64 sequence)")
    team, index = code["team"], code["index"]
    done, other = code.variable(0), code.variable(index)
    members = code.word(team, TEAM, "size")
    with code.loop(0, members) as number:
        own = code.equal(number, 0)
        place = code.field(_member_at(code, code.load(other)), MEMBER, "claim")
        with code.forever() as leave:
            claim = code.watch(place)
            with code.if_then(code.compare(sequence_of(code, claim), "!=", code["sequence"])):
                leave()
            first, end = code.bits(claim, 16, 16), code.bits(claim, 0, 16)
            left, grain = code.subtract(end, first), code.watch(code.field(team, TEAM, "grain"))
            with code.if_then(code.compare(left, "<=", 0)):
                leave()
            half = code.larger(code.build.ashr(left, code.number(1)), grain)
            whole = code.compare(code.subtract(left, half), "<", grain)
            size = code.build.select(whole, left, half)
            rest = code.build.select(own, code.add(claim, code.shift_left(size, 16)), code.subtract(claim, size))
            with code.if_then(code.exchange_if(place, claim, rest)):
                begin = code.build.select(own, first, code.subtract(end, size))
                code.call("jitonnx_do_units", team, index, begin, code.add(begin, size))
                code.store(done, code.add(code.load(done), size))
        following = code.add(code.load(other), 1)
        code.store(other, code.build.select(code.equal(following, members), code.number(0), following))
    code.give(code.load(done))


def _member(module: llvm_ir.Module) -> None:
    """What a member does from the row behind `sequence` on: the caller (index 0) during a run, a worker all its life.
    `watch`: the `WATCH` of the caller's run if it has one, else null.

    for (;;) {
        claim = wait(team, member, sequence, watch); sequence = claim >> 32
        if (claim is OVER) return
        done = share(team, index, sequence)
        if (done && fetch_add(team->left, -done) == done) {              (the row is over, and this thread goes on)
            if (advance(team, index, team->position + 1)) continue
            if (index == 0) return
            publish OVER to the caller
        }
    }
    """
    code = FunctionBuilder(module, "void jitonnx_member(ptr team, i64 index, i64 sequence, ptr watch)")
    team, index = code["team"], code["index"]
    member = _member_at(code, index)
    sequence = code.variable(code["sequence"])
    with code.forever():
        claim = code.call("jitonnx_wait", team, member, code.load(sequence), code["watch"])
        code.store(sequence, sequence_of(code, claim))
        code.give_if(code.equal(code.bits(claim, 0, 32), OVER))
        done = code.call("jitonnx_share", team, index, code.load(sequence))
        with code.if_then(code.compare(done, ">", 0)):
            left = code.field(team, TEAM, "left")
            with code.if_then(code.equal(code.fetch_add(left, code.subtract(0, done)), done)):
                after = code.add(code.word(team, TEAM, "position"), 1)
                stamp(code, code.pointer(team, TEAM, "stamps"), after)
                with code.if_then(code.equal(code.call("jitonnx_advance", team, index, after), 0)):
                    with code.if_then(code.equal(index, 0)):
                        code.give()
                    caller = _member_at(code, 0)
                    code.publish(code.field(caller, MEMBER, "claim"), code.add(_next_sequence(code), OVER))
                    code.call("jitonnx_wake", caller)
    code.build.unreachable()


def _worker(module: llvm_ir.Module, set_mask: int) -> None:
    """A thread's life. Signals are left to Python's threads, so that Ctrl-C interrupts what the main one waits for."""
    code = FunctionBuilder(module, "ptr jitonnx_worker(ptr member)")
    member = code["member"]
    team = code.pointer(member, MEMBER, "team")
    code.call("pthread_sigmask", set_mask, code.field(team, TEAM, "signals"), POINTER(None))
    index, start = (code.word(member, MEMBER, name) for name in ("index", "start"))
    code.call("jitonnx_member", team, index, start, POINTER(None))
    code.build.ret(POINTER(None))


def _start(module: llvm_ir.Module) -> None:
    """Create the workers that do not run yet; returns how many run. The caller holds the team."""
    code = FunctionBuilder(module, "i64 jitonnx_start(ptr team)")
    team = code["team"]
    workers = code.subtract(code.word(team, TEAM, "size"), 1)
    worker = module.globals["jitonnx_worker"]
    with code.loop(code.word(team, TEAM, "started"), workers) as index:
        member = _member_at(code, code.add(index, 1))
        code.put(member, MEMBER, "start", sequence_of(code, code.word(member, MEMBER, "claim")))
        thread, attributes = code.field(member, MEMBER, "thread"), code.field(team, TEAM, "attributes")
        failed = code.call("pthread_create", thread, attributes, worker, member)
        with code.if_then(code.build.icmp_signed("!=", failed, failed.type(0))):
            code.give(index)
        code.put(team, TEAM, "started", code.add(index, 1))
    code.give(workers)


def _stop(module: llvm_ir.Module) -> None:
    """End the workers and wait for that. The caller holds the team, and no run may use it afterwards."""
    code = FunctionBuilder(module, "void jitonnx_stop(ptr team)", exported=True)
    team = code["team"]
    after = code.add(code.word(team, TEAM, "started"), 1)
    over = code.add(_next_sequence(code), OVER)
    with code.loop(1, after) as index:
        code.publish(code.field(_member_at(code, index), MEMBER, "claim"), over)
        code.call("jitonnx_wake", _member_at(code, index))
    with code.loop(1, after) as index:
        code.call("pthread_join", code.word(_member_at(code, index), MEMBER, "thread"), POINTER(None))
    code.put(team, TEAM, "started", 0)
    code.give()
