"""How threads wait for each other in native code.

A waiting thread looks at its own claim (`layout.MEMBER`) until its sequence changes. It spins first (what a hot run
needs: a change is seen within some ten nanoseconds), then yields the CPU between looks (what a shared machine needs),
then sleeps (what an idle session needs: no CPU is burned). All atomic words are sequentially consistent, which makes
sleeping safe: a waiter says that it is asleep and then looks at the claim once more; a waker writes the claim and then
looks whether somebody is asleep. One of the two sees the other.
"""

from __future__ import annotations

from jitonnx.emit import llvm_ir

from ..layout import MEMBER, TEAM
from . import watch
from .functions import WORD, FunctionBuilder

LOOKS_PER_CLOCK = 32
"""How often a spinning thread looks between two readings of the clock: about a microsecond's worth of pauses."""


WATCHED_NANOSECONDS = 20_000_000
"""How long a thread sleeps at a time that is to look whether Python asks for the end of its run."""

_REAL_TIME = 0
"""The clock of times until which threads sleep, CLOCK_REALTIME."""
_SECOND = 1_000_000_000


def define(module: llvm_ir.Module) -> None:
    """Add the functions that runs call to a module."""
    _wait(module)
    _wake(module)
    _acquire(module)


def define_sleep(module: llvm_ir.Module, monotonic_clock: int) -> None:
    """Add the clock, and what threads do that wait long; `monotonic_clock` is the system's CLOCK_MONOTONIC."""
    _clock(module, monotonic_clock)
    watch.define(module)
    _doze(module)
    _sleep(module)


def sequence_of(code: FunctionBuilder, claim: llvm_ir.Value) -> llvm_ir.Value:
    """Which row a claim is about."""
    return code.bits(claim, 32, 32)


def _clock(module: llvm_ir.Module, monotonic_clock: int) -> None:
    """Nanoseconds of the monotonic clock."""
    code = FunctionBuilder(module, "i64 jitonnx_clock()")
    time = code.local(16)
    code.call("clock_gettime", monotonic_clock, time)
    seconds, nanoseconds = code.load(time), code.load(code.at(time, 8))
    code.give(code.add(code.multiply(seconds, 1_000_000_000), nanoseconds))


def _pause(code: FunctionBuilder) -> None:
    """Let the CPU know that this is a spinning loop."""
    if code.module.triple.startswith("x86_64"):
        code.call("llvm.x86.sse2.pause")
    elif code.module.triple.startswith(("aarch64", "arm64")):
        code.call("llvm.aarch64.hint", 1)


def _doze(module: llvm_ir.Module) -> None:
    """Sleep on a member's condition for a while, and look whether its run is to end. The caller holds the mutex."""
    code = FunctionBuilder(module, "void jitonnx_doze(ptr member, ptr watch)")
    mutex, condition = (code.field(code["member"], MEMBER, name) for name in ("mutex", "condition"))
    time = code.local(16)
    code.call("clock_gettime", _REAL_TIME, time)
    seconds, nanoseconds = time, code.at(time, 8)
    until = code.add(code.load(nanoseconds), WATCHED_NANOSECONDS)
    over = code.compare(until, ">=", _SECOND)
    code.store(nanoseconds, code.build.select(over, code.subtract(until, _SECOND), until))
    code.store(seconds, code.add(code.load(seconds), code.build.zext(over, WORD)))
    code.call("pthread_cond_timedwait", condition, mutex, time)
    code.call("pthread_mutex_unlock", mutex)
    code.call("jitonnx_look", code["watch"])
    code.call("pthread_mutex_lock", mutex)
    code.give()


def _sleep(module: llvm_ir.Module) -> None:
    """Sleep until the claim is about another row than `sequence`; returns it. `watch`: as for `wait`.

    lock(member->mutex)
    for (;;) {
        member->asleep = 1
        if ((claim = member->claim) >> 32 != sequence) break
        if (watch) doze(member, watch) else cond_wait(member->condition, member->mutex)
    }
    member->asleep = 0
    unlock(member->mutex)
    """
    code = FunctionBuilder(module, "i64 jitonnx_sleep(ptr member, i64 sequence, ptr watch)")
    member = code["member"]
    mutex, asleep = code.field(member, MEMBER, "mutex"), code.field(member, MEMBER, "asleep")
    claim = code.variable(0)
    code.call("pthread_mutex_lock", mutex)
    with code.forever() as leave:
        code.publish(asleep, 1)
        code.store(claim, code.watch(code.field(member, MEMBER, "claim")))
        with code.if_then(code.compare(sequence_of(code, code.load(claim)), "!=", code["sequence"])):
            leave()
        with code.build.if_else(code.is_null(code["watch"])) as (usual, watched):
            with usual:
                code.call("pthread_cond_wait", code.field(member, MEMBER, "condition"), mutex)
            with watched:
                code.call("jitonnx_doze", member, code["watch"])
    code.publish(asleep, 0)
    code.call("pthread_mutex_unlock", mutex)
    code.give(code.load(claim))


def _wait(module: llvm_ir.Module) -> None:
    """Wait until a thread's claim is about another row than `sequence`; returns it. `watch`: the `WATCH` of the run if
    this thread looks whether it is to end, else null.

    started = 0
    for (;;) {
        for (look = 0; look < LOOKS_PER_CLOCK; look++) { if (member->claim >> 32 != sequence) return; pause }
        now = clock(); if (!started) started = now
        if (now - started > team->patience) return sleep(member, sequence, watch)
        if (now - started > team->spin) sched_yield()
    }
    """
    code = FunctionBuilder(module, "i64 jitonnx_wait(ptr team, ptr member, i64 sequence, ptr watch)")
    team, member, sequence = code["team"], code["member"], code["sequence"]
    started = code.variable(0)
    with code.forever() as leave:
        with code.loop(0, LOOKS_PER_CLOCK):
            claim = code.watch(code.field(member, MEMBER, "claim"))
            with code.if_then(code.compare(sequence_of(code, claim), "!=", sequence)):
                code.give(claim)
            _pause(code)
        now = code.call("jitonnx_clock")
        with code.if_then(code.equal(code.load(started), 0)):
            code.store(started, now)
        waited = code.subtract(now, code.load(started))
        with code.if_then(code.compare(waited, ">", code.word(team, TEAM, "patience"))):
            leave()
        with code.if_then(code.compare(waited, ">", code.word(team, TEAM, "spin"))):
            code.call("sched_yield")
    code.give(code.call("jitonnx_sleep", member, sequence, code["watch"]))


def _wake(module: llvm_ir.Module) -> None:
    """Wake a thread if it sleeps, after its claim was published.

    `asleep` is taken back, so that rows that follow before the thread is on a CPU again do not wake it once more.
    """
    code = FunctionBuilder(module, "void jitonnx_wake(ptr member)")
    member = code["member"]
    asleep, mutex = code.field(member, MEMBER, "asleep"), code.field(member, MEMBER, "mutex")
    with code.if_then(code.compare(code.watch(asleep), "!=", 0), likely=False):
        code.call("pthread_mutex_lock", mutex)
        code.publish(asleep, 0)
        code.call("pthread_cond_signal", code.field(member, MEMBER, "condition"))
        code.call("pthread_mutex_unlock", mutex)
    code.give()


def _acquire(module: llvm_ir.Module) -> None:
    """1 if the team was free and now is the caller's, else 0."""
    code = FunctionBuilder(module, "i64 jitonnx_acquire(ptr team)", exported=True)
    busy = code.field(code["team"], TEAM, "busy")
    with code.if_then(code.compare(code.watch(busy), "!=", 0)):
        code.give(0)
    code.give(code.build.zext(code.exchange_if(busy, 0, 1), WORD))
