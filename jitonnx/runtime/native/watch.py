"""Long native calls that Python can end: a thread that has let go of the GIL asks for it from time to time, and looks
whether a signal is to be handled (Python does that in the main thread alone, and between its own instructions), or the
end of the run is asked for otherwise.

What is found is told in a word, `stop`, that all threads of the run look at between calls of kernels. From then on no
kernel is called, and the run goes to its end in no time the way that it always goes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jitonnx.emit import llvm_ir

from ..layout import DUE_NANOSECONDS, FRAME, POOL, PROGRAM, WATCH
from .functions import POINTER, WORD, FunctionBuilder

_NEVER = (1 << 63) - 1


def define(module: llvm_ir.Module) -> None:
    """Add the function to a module that has the clock."""
    _look(module)


@contextmanager
def released(code: FunctionBuilder, watch: llvm_ir.Value) -> Iterator[None]:
    """A block in which this thread is without the GIL, as its `WATCH` says."""
    code.build.store(code.call("PyEval_SaveThread"), code.field(watch, WATCH, "thread"))
    yield
    code.call("PyEval_RestoreThread", code.pointer(watch, WATCH, "thread"))
    code.put(watch, WATCH, "thread", 0)


def begin(code: FunctionBuilder, pool: llvm_ir.Value) -> llvm_ir.Value:
    """The `WATCH` of a call that begins, and has the GIL."""
    watch = code.local(WATCH.itemsize)
    code.put(watch, WATCH, "thread", 0)
    code.put(watch, WATCH, "asks", code.word(pool, POOL, "asks"))
    code.put(watch, WATCH, "due", 0)
    code.put(watch, WATCH, "stop", 0)
    return watch


def watching(code: FunctionBuilder, program: llvm_ir.Value, watch: llvm_ir.Value) -> llvm_ir.Value:
    """The `WATCH` if a run of the program takes long, else null."""
    long = code.compare(code.word(program, PROGRAM, "long"), "!=", 0)
    return code.build.select(long, watch, POINTER(None))


def watch_of(code: FunctionBuilder, frame: llvm_ir.Value) -> llvm_ir.Value:
    """The `WATCH` of the run in a frame, or null."""
    return code.pointer(frame, FRAME, "watch")


def is_ended(code: FunctionBuilder, watch: llvm_ir.Value) -> llvm_ir.Value:
    """Whether the thread that Python called has ended the run, as it knows itself."""
    return code.compare(code.word(watch, WATCH, "stop"), "!=", 0)


def is_stopped(code: FunctionBuilder, watch: llvm_ir.Value) -> llvm_ir.Value:
    """Whether a run that is watched is to end."""
    return code.compare(code.watch(code.field(watch, WATCH, "stop")), "!=", 0)


def _look(module: llvm_ir.Module) -> None:
    """Have Python say whether the run is to end, if it is time for that. Only the thread that Python called does so.

    if (stop) return
    now = clock(); if (!due) due = now + …; if (now < due) return
    if (thread) PyEval_RestoreThread(thread)
    if (PyErr_CheckSignals() || !(again = asks())) stop = 1      (an exception is set)
    if (thread) thread = PyEval_SaveThread()
    due = again is true ? clock() + … : never
    """
    code = FunctionBuilder(module, "void jitonnx_look(ptr watch)")
    watch, build = code["watch"], code.build
    due, stop, thread = (code.field(watch, WATCH, name) for name in ("due", "stop", "thread"))
    code.give_if(code.compare(code.load(stop), "!=", 0))
    now = code.call("jitonnx_clock")
    with code.if_then(code.equal(code.load(due), 0)):
        code.store(due, code.add(now, DUE_NANOSECONDS))
    with code.if_then(code.compare(now, "<", code.load(due)), likely=True):
        code.give()
    lacks = code.compare(code.load(thread), "!=", 0)
    with code.if_then(lacks):
        code.call("PyEval_RestoreThread", code.load(thread, POINTER))
    again, ended = code.variable(0), code.variable(0)
    failed = code.call("PyErr_CheckSignals")
    with build.if_else(build.icmp_signed("!=", failed, failed.type(0))) as (signalled, quiet):
        with signalled:
            code.store(ended, 1)
        with quiet:
            answer = code.call("PyObject_CallObject", code.pointer(watch, WATCH, "asks"), POINTER(None))
            with build.if_else(code.is_null(answer)) as (refused, answered):
                with refused:
                    code.store(ended, 1)
                with answered:
                    code.store(again, build.sext(code.call("PyObject_IsTrue", answer), WORD))
                    code.call("Py_DecRef", answer)
    with code.if_then(lacks):
        build.store(code.call("PyEval_SaveThread"), thread)
    code.publish(stop, code.load(ended))
    later = code.add(code.call("jitonnx_clock"), DUE_NANOSECONDS)
    code.store(due, build.select(code.compare(code.load(again), "!=", 0), later, WORD(_NEVER)))
    code.give()
