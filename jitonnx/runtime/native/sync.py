"""How threads wait for each other in native code.

A waiting thread looks at one word until it changes. It spins first (what a hot run needs: a change is seen within some
ten nanoseconds), then yields the CPU between looks (what a shared machine needs), then sleeps at a gate (what an idle
session needs: no CPU is burned). All atomic words are sequentially consistent, which makes sleeping safe: a waiter
counts itself among the sleepers and then looks at the word once more; a waker writes the word and then looks at the
count. One of the two sees the other.
"""

from __future__ import annotations

import llvmlite.ir as ir

from ..layout import GATE, TEAM
from .emit import WORD, Code

LOOKS_PER_CLOCK = 32
"""How often a spinning thread looks between two readings of the clock: about a microsecond's worth of pauses."""


def define(module: ir.Module, monotonic_clock: int) -> None:
    """Add the functions to a module; `monotonic_clock` is the system's CLOCK_MONOTONIC."""
    _clock(module, monotonic_clock)
    _wait(module)
    _wake(module)
    _barrier(module)
    _acquire(module)


def _clock(module: ir.Module, monotonic_clock: int) -> None:
    """Nanoseconds of the monotonic clock."""
    code = Code(module, "i64 jitonnx_clock()")
    time = code.local(16)
    code.call("clock_gettime", monotonic_clock, time)
    seconds, nanoseconds = code.load(time), code.load(code.at(time, 8))
    code.give(code.add(code.multiply(seconds, 1_000_000_000), nanoseconds))


def _pause(code: Code) -> None:
    """Tell the CPU that this is a spinning loop."""
    if code.module.triple.startswith("x86_64"):
        code.call("llvm.x86.sse2.pause")
    elif code.module.triple.startswith(("aarch64", "arm64")):
        code.call("llvm.aarch64.hint", 1)


def _wait(module: ir.Module) -> None:
    """Return when the word is no longer `old`.

    started = 0
    for (;;) {
        for (look = 0; look < LOOKS_PER_CLOCK; look++) { if (*word != old) return; pause }
        now = clock(); if (!started) started = now
        if (now - started > team->patience) break
        if (now - started > team->spin) sched_yield()
    }
    lock(gate->mutex); gate->sleepers++
    while (*word == old) cond_wait(gate->condition, gate->mutex)
    gate->sleepers--; unlock(gate->mutex)
    """
    code = Code(module, "void jitonnx_wait(ptr word, i64 old, ptr gate, ptr team)")
    started = code.variable(0)
    with code.forever() as leave:
        with code.loop(0, LOOKS_PER_CLOCK):
            with code.when(code.compare(code.watch(code["word"]), "!=", code["old"])):
                code.give()
            _pause(code)
        now = code.call("jitonnx_clock")
        with code.when(code.equal(code.load(started), 0)):
            code.store(started, now)
        waited = code.subtract(now, code.load(started))
        with code.when(code.compare(waited, ">", code.word(code["team"], TEAM, "patience"))):
            leave()
        with code.when(code.compare(waited, ">", code.word(code["team"], TEAM, "spin"))):
            code.call("sched_yield")
    sleepers = code.field(code["gate"], GATE, "sleepers")
    mutex = code.field(code["gate"], GATE, "mutex")
    code.call("pthread_mutex_lock", mutex)
    code.fetch_add(sleepers, 1)
    with code.forever() as leave:
        with code.when(code.compare(code.watch(code["word"]), "!=", code["old"])):
            leave()
        code.call("pthread_cond_wait", code.field(code["gate"], GATE, "condition"), mutex)
    code.fetch_add(sleepers, -1)
    code.call("pthread_mutex_unlock", mutex)
    code.give()


def _wake(module: ir.Module) -> None:
    """Wake who sleeps at the gate, after the word they wait for was published."""
    code = Code(module, "void jitonnx_wake(ptr gate)")
    mutex = code.field(code["gate"], GATE, "mutex")
    with code.when(code.compare(code.watch(code.field(code["gate"], GATE, "sleepers")), "!=", 0), likely=False):
        code.call("pthread_mutex_lock", mutex)
        code.call("pthread_cond_broadcast", code.field(code["gate"], GATE, "condition"))
        code.call("pthread_mutex_unlock", mutex)
    code.give()


def _barrier(module: ir.Module) -> None:
    """Return when `participants` threads have called this.

    generation = team->generation     (it cannot change before this thread has arrived)
    if (fetch_add(team->arrived, 1) == participants - 1) {
        team->arrived = 0; team->generation = generation + 1; wake(team->gate)
    } else wait(&team->generation, generation, team->gate, team)
    """
    code = Code(module, "void jitonnx_barrier(ptr team, i64 participants)")
    team = code["team"]
    opening, gate = code.field(team, TEAM, "generation"), code.field(team, TEAM, "gate")
    arrived = code.field(team, TEAM, "arrived")
    generation = code.watch(opening)
    before = code.fetch_add(arrived, 1)
    with code.when(code.equal(before, code.subtract(code["participants"], 1))):
        code.store(arrived, 0)
        code.publish(opening, code.add(generation, 1))
        code.call("jitonnx_wake", gate)
        code.give()
    code.call("jitonnx_wait", opening, generation, gate, team)
    code.give()


def _acquire(module: ir.Module) -> None:
    """1 if the team was free and now is the caller's, else 0."""
    code = Code(module, "i64 jitonnx_acquire(ptr team)", exported=True)
    busy = code.field(code["team"], TEAM, "busy")
    with code.when(code.compare(code.watch(busy), "!=", 0)):
        code.give(0)
    code.give(code.build.zext(code.exchange_if(busy, 0, 1), WORD))
