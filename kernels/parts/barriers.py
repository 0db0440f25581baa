"""Work in phases that the threads of one step of a program share: each phase needs what all made in the one before.

A phase has the same parts each time, and a thread has parts of its own, whose memory its caches hold. It claims and
does those; then, if others have not begun theirs, because the system runs something else on their CPUs or they have not
come yet, it claims these too. It goes on when all parts are done. So a thread waits for a part in the making only:
threads may come late, one after the other or not at all, and a crowded machine costs little.

The words that threads share, int64 and zero before the first phase, lie SEPARATION_BYTES apart:

    word 0               parts that are done, of all phases
    word 1 + part        phases that this part is claimed for

A part is claimed for phase p by raising its word from p to p + 1, and only by threads that saw all parts of the phases
before done. Nobody passes a phase with a part claimed but not done, so what a late thread could claim is never stale.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jitonnx.emit import llvm_ir, types
from jitonnx.emit.builder import KernelBuilder, Pointer
from jitonnx.emit.intrinsics import declared
from jitonnx.emit.ssa import SSAValue
from jitonnx.kernels.parts.phases import SEPARATION_BYTES
from jitonnx.support.records import NamedTuple

PATIENCE = 64
"""Looks, some 30 ns each, that a thread gives others to finish a phase before it tries to take over their parts.
To try means to fetch the cache lines of their claims, which they then have to fetch back."""
LOOKS_BEFORE_YIELDING = 256
"""Looks after which a thread that waits gives up the CPU between looks: who it waits for may need it."""

_WORDS = SEPARATION_BYTES // 8


class PhaseBarrier:
    """One thread's view of the phases: it has `mine` of `parts` parts, from `first` on. `words`: what threads share."""

    def __init__(self, code: KernelBuilder, words: Pointer, parts: SSAValue, first: SSAValue, mine: SSAValue) -> None:
        self._code, self._done, self._parts, self._first, self._mine = code, words, parts, first, mine
        self._patience, self._claimed = code.memory(types.int64, 1), code.memory(types.int64, 1)
        self._patience.store(0, code.integer(PATIENCE))

    @contextmanager
    def each_part(self, phase: SSAValue, alone: SSAValue) -> Iterator[SSAValue]:
        """The block for each part that this thread does; then the phase is over for all. `alone`: with no one else."""
        code, expected = self._code, (phase + 1) * self._parts
        with code.loop(self._parts) as offset:
            after = self._first + offset
            part = after.like(code.builder.srem(after.value, self._parts.value))
            own = offset.like(code.builder.zext((offset < self._mine).value, llvm_ir.IntType(64)))
            with code.if_else(alone) as (yes, no):
                with yes:
                    self._claimed.store(0, code.integer(1))
                with no:
                    word = self._done.at((part + 1) * _WORDS)
                    claim = _Claim(self._done, expected, word, phase, own, self._patience, self._claimed)
                    code.subroutine("claim", claim, lambda inner, *of: _claim(inner, _Claim(*of)), inline=False)
            with code.if_then(self._claimed.load(0).equals(1)):
                yield part
                with code.if_then(~alone):
                    code.builder.atomic_rmw("add", self._done.value, code.integer(1).value, "acq_rel")
        with code.if_then(~alone):
            code.subroutine("wait", (self._done, expected, self._patience), _wait, inline=False)


class _Claim(NamedTuple):
    """A part of a phase that a thread would do."""

    done: Pointer
    """Parts that are done, of all phases."""
    expected: SSAValue
    """How many are when the phase is over."""
    word: Pointer
    """The number of phases whose part somebody took."""
    phase: SSAValue
    own: SSAValue
    """Whether it is among the thread's own."""
    patience: Pointer
    """Looks that the thread waits for the parts of others."""
    claimed: Pointer
    """Whether the thread has the part."""


def _claim(code: KernelBuilder, part: _Claim) -> None:
    """claimed = whether the part is this thread's now. For a part of others' it waits a while before it tries.

    for (looks = own ? 0 : patience; looks > 0 && done < expected; looks--) pause
    claimed = *word == phase && compare_exchange(word, phase, phase + 1)
    if (claimed && !own) patience = 0      (who did not come in time is not waited for in the next phase)
    """
    builder = code.builder
    done, expected, word, phase, own, patience, claimed = part
    looks = code.variable(code.integer(0))
    with code.if_then(own.equals(0)):
        looks.set(patience.load(0))
    look, pause, attempt = (builder.append_basic_block(name) for name in ("look", "pause", "attempt"))
    builder.branch(look)
    builder.position_at_end(look)
    builder.cbranch(((looks.get() > 0) & (_watch(done) < expected)).value, pause, attempt)
    builder.position_at_end(pause)
    _pause(builder)
    looks.set(looks.get() - 1)
    builder.branch(look)
    builder.position_at_end(attempt)
    claimed.store(0, code.integer(0))
    with code.if_then(_watch(word).equals(phase)):
        outcome = builder.cmpxchg(word.value, phase.value, (phase + 1).value, "acq_rel", "acquire")
        with builder.if_then(builder.extract_value(outcome, 1)):
            claimed.store(0, code.integer(1))
            with code.if_then(own.equals(0)):
                patience.store(0, code.integer(0))


def _wait(code: KernelBuilder, done: Pointer, expected: SSAValue, patience: Pointer) -> None:
    """Return when `done` has reached `expected`. Who has to wait knows that others are at work."""
    builder = code.builder
    looks = code.variable(code.integer(0))
    look, wait, give_up, over = (builder.append_basic_block(name) for name in ("look", "wait", "yield", "over"))
    builder.branch(look)
    builder.position_at_end(look)
    builder.cbranch((_watch(done) < expected).value, wait, over)
    builder.position_at_end(wait)
    patience.store(0, code.integer(PATIENCE))
    _pause(builder)
    looks.set(looks.get() + 1)
    builder.cbranch((looks.get() < LOOKS_BEFORE_YIELDING).value, look, give_up)
    builder.position_at_end(give_up)
    builder.call(declared(builder, "sched_yield", llvm_ir.IntType(32), []), [])
    builder.branch(look)
    builder.position_at_end(over)


def _watch(word: Pointer) -> SSAValue:
    """The word as it is now, with all that was written before it became so."""
    builder = word._code.builder
    return SSAValue(builder, types.int64, builder.load_atomic(word.value, "acquire", 8))


def _pause(builder: llvm_ir.IRBuilder) -> None:
    """Let the CPU know that this is a spinning loop."""
    triple = builder.module.triple
    if triple.startswith("x86_64"):
        builder.call(declared(builder, "llvm.x86.sse2.pause", llvm_ir.VoidType(), []), [])
    elif triple.startswith(("aarch64", "arm64")):
        builder.call(
            declared(builder, "llvm.aarch64.hint", llvm_ir.VoidType(), [llvm_ir.IntType(32)]), [llvm_ir.IntType(32)(1)]
        )
