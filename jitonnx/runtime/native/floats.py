"""Denormal numbers as zeros, in the threads of a run that wants them so: a state of each thread, set and put back.

It is set around kernels alone: a new thread begins with the state of the one that makes it, and keeps it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jitonnx.emit import llvm_ir

from ..layout import FRAME
from .functions import WORD, FunctionBuilder

_X86_ZEROS = 0x8040
"""MXCSR: results flushed to zero (FTZ), and operands taken for zeros (DAZ)."""
_ARM_ZEROS = 1 << 24
"""FPCR: both (FZ)."""


def define(module: llvm_ir.Module) -> None:
    """Add the functions to a module."""
    _flush(module)
    _unflush(module)


@contextmanager
def flushing(code: FunctionBuilder, frame: llvm_ir.Value) -> Iterator[None]:
    """A block in which this thread takes denormal numbers for zeros, if the frame's program wants that."""
    wanted = code.compare(code.word(frame, FRAME, "flush"), "!=", 0)
    before = code.variable(0)
    with code.if_then(wanted, likely=False):
        code.store(before, code.call("jitonnx_flush"))
    yield
    with code.if_then(wanted, likely=False):
        code.call("jitonnx_unflush", code.load(before))


def _flush(module: llvm_ir.Module) -> None:
    """Take denormal numbers for zeros from now on; returns the state before."""
    code = FunctionBuilder(module, "i64 jitonnx_flush()")
    if module.triple.startswith("x86_64"):
        place = code.local(8)
        code.call("llvm.x86.sse.stmxcsr", place)
        before = code.build.zext(code.load(place, llvm_ir.IntType(32)), WORD)
        code.store(place, code.build.or_(before, WORD(_X86_ZEROS)))
        code.call("llvm.x86.sse.ldmxcsr", place)
        code.give(before)
    elif module.triple.startswith(("aarch64", "arm64")):
        before = code.call("llvm.aarch64.get.fpcr")
        code.call("llvm.aarch64.set.fpcr", code.build.or_(before, WORD(_ARM_ZEROS)))
        code.give(before)
    else:
        code.give(0)


def _unflush(module: llvm_ir.Module) -> None:
    """Set the state that was before."""
    code = FunctionBuilder(module, "void jitonnx_unflush(i64 before)")
    if module.triple.startswith("x86_64"):
        place = code.local(8)
        code.store(place, code["before"])
        code.call("llvm.x86.sse.ldmxcsr", place)
    elif module.triple.startswith(("aarch64", "arm64")):
        code.call("llvm.aarch64.set.fpcr", code["before"])
    code.give()
