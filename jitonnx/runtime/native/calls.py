"""Runs that native code starts: by its own thread, which may hold Python's lock or not, and knows nothing of Python."""

from __future__ import annotations

from jitonnx.emit import llvm_ir

from ..layout import FRAME, PROGRAM, WORD_BYTES
from .functions import POINTER, FunctionBuilder

NO_MEMORY = -1


def define(module: llvm_ir.Module) -> None:
    """Add the call to a module."""
    _call(module)


def _call(module: llvm_ir.Module) -> None:
    """A run of a program with these inputs and outputs. 0, or `NO_MEMORY`, or one more than the number of the first
    flag that kernels have set.

    `bases`: the addresses of inputs, then of outputs.
    """
    code = FunctionBuilder(module, "i64 jitonnx_call(ptr pool, ptr program, ptr bases)", exported=True)
    program = code["program"]
    frame = code.call("jitonnx_take", code["pool"], program)
    code.give_if(code.is_null(frame), NO_MEMORY)
    bases, flags = code.pointer(frame, FRAME, "bases"), code.pointer(frame, FRAME, "flags")
    with code.loop(0, code.word(program, PROGRAM, "base_count")) as index:
        offset = code.multiply(index, WORD_BYTES)
        code.store(code.at(bases, offset), code.load(code.at(code["bases"], offset)))
    code.call("jitonnx_run", frame, POINTER(None), POINTER(None))
    met = code.variable(0)
    with code.loop(0, code.word(program, PROGRAM, "flag_count")) as index:
        place = code.word_at(flags, index)
        with code.if_then(code.compare(code.load(place), "!=", 0), likely=False):
            with code.if_then(code.equal(code.load(met), 0)):
                code.store(met, code.add(index, 1))
            code.store(place, 0)
    code.call("jitonnx_put_back", frame)
    code.give(code.load(met))
