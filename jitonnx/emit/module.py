"""Makes one unoptimised LLVM module with a C function of a kernel, a Python function that emits its code.

Optimising and emitting object code is codegen's part, once a kernel, for whatever CPU it chooses.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm

from jitonnx.emit import llvm_ir, types
from jitonnx.emit.builder import Kernel, KernelBuilder
from jitonnx.target.machine import Target

_BYTES, _I64 = llvm_ir.IntType(8).as_pointer(), llvm_ir.IntType(64)
SIGNATURE = llvm_ir.FunctionType(llvm_ir.VoidType(), [_BYTES.as_pointer(), _I64.as_pointer(), _I64, _I64, _BYTES])
"""(buffers, sizes, begin, end, scratch): operand pointers, integer arguments, the range of tasks to do, this thread's
memory."""


class _Module(llvm_ir.Module):
    """A module of code for one CPU."""

    def __init__(self, target: Target, *, prescheduled: bool = False) -> None:
        super().__init__(triple_of(target), prescheduled=prescheduled)
        self.target = target
        self.linked: dict[str, str] = {}
        """Modules in LLVM's text that define functions which this one calls, by the functions' names."""
        self.stages: dict[tuple[Callable[..., Any], types.ElementType, int], llvm_ir.Function] = {}
        """The functions of stages by what they are made of (`Epilogue`)."""


def emit_module(kernel: Kernel, symbol: str, target: Target, *, prescheduled: bool = False) -> llvm.ModuleRef:
    """The unoptimised module of `kernel` for `target`, which defines it as the C function `symbol` of `SIGNATURE`.

    Everything but `symbol` has internal linkage, so that optimisation can inline and drop it. prescheduled: the loops
    are to run as they are written (`KernelSpec.prescheduled`).
    """
    module = _Module(target, prescheduled=prescheduled)
    function = llvm_ir.Function(module, SIGNATURE, symbol)
    buffers, sizes, begin, end, scratch = function.args
    code = KernelBuilder(llvm_ir.IRBuilder(function.append_basic_block()), (buffers, sizes, scratch))
    kernel(code, code.integer(begin), code.integer(end))
    code.builder.ret_void()
    made = llvm.parse_assembly(str(module))
    for name, text in module.linked.items():
        other = llvm.parse_assembly(text)
        other.triple = made.triple
        made.link_in(other)
        made.get_function(name).linkage = "internal"
    return made


def triple_of(target: Target) -> str:
    """LLVM's triple of the machine: this one's, or Linux's where the CPU is of another architecture."""
    return f"{target.architecture}-unknown-linux-gnu" if target.foreign else _triple()


@functools.cache
def _triple() -> str:
    return llvm.get_process_triple()
