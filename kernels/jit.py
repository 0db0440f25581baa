"""The one door to Numba: kernels and device functions are lowered to LLVM IR here, and to nothing else.

A kernel is a Python function over raw pointers with the signature of every kernel (see `SIGNATURE`). `device` marks a
function that kernels call; `lower` turns a kernel into one unoptimised LLVM module that holds it, the device functions
it calls, and a C entry point. Optimising and emitting object code is codegen's part, once a kernel, for whatever CPU it
chooses, so nothing is optimised twice and no machine code is made on the way.

Numba's target extension gives this a target of its own ("jitonnx"), beside the user's `njit` functions and apart from
them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import llvmlite.binding as llvm
import llvmlite.ir as ir
from numba.core import cpu, types, typing
from numba.core.codegen import AOTCPUCodegen, CPUCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.descriptors import TargetDescriptor
from numba.core.dispatcher import Dispatcher
from numba.core.target_extension import CPU, dispatcher_registry, jit_registry, target_override, target_registry

from jitonnx.target import Target

BYTES = types.CPointer(types.uint8)
SIGNATURE = types.void(types.CPointer(BYTES), types.CPointer(types.int64), types.int64, types.int64, BYTES)
"""(buffers, sizes, begin, end, scratch): operand pointers, integer arguments, the range of tasks to do, this thread's
memory."""

# No nnan and no ninf: NaN and infinities keep their meaning. Sums are not reassociated: kernels order them explicitly.
_OPTIONS = {
    "nopython": True,
    "error_model": "numpy",
    "boundscheck": False,
    "fastmath": {"contract"},
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}


class _KernelTarget(CPU):
    """The name under which Numba files our functions."""


target_registry["jitonnx"] = _KernelTarget


class _Library(CPUCodeLibrary):
    """A library that stays LLVM IR: neither optimised nor turned into machine code."""

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_specific(self) -> None:
        pass

    @property
    def module(self) -> llvm.ModuleRef:
        self._ensure_finalized()
        return self._final_module


class _Codegen(AOTCPUCodegen):
    _library_class = _Library


class _Context(cpu.CPUContext):
    @global_compiler_lock
    def init(self) -> None:
        super().init()
        self._internal_codegen = _Codegen("jitonnx.kernels")

    def get_executable(self, library: _Library, fndesc: Any, env: Any) -> str:
        """Nothing here is called from Python; Numba files the function for its callers under what is returned."""
        return fndesc.llvm_func_name


class _Descriptor(TargetDescriptor):
    options = cpu.CPUTargetOptions

    @cached_property
    def typing_context(self) -> typing.Context:
        return typing.Context()

    @cached_property
    def target_context(self) -> _Context:
        return _Context(self.typing_context, self._target_name)


_lowering_for: list[Target] = []


def lowering_target() -> Target | None:
    """The CPU that the kernel being lowered is for; None outside of `lower`. Guarded by Numba's compiler lock."""
    return _lowering_for[-1] if _lowering_for else None


class _Dispatcher(Dispatcher):
    targetdescr = _Descriptor("jitonnx")
    _compiled_for: Target | None = None

    def compile(self, sig: Any) -> Any:
        """Compile for the CPU of the kernel that calls; code made for another one is forgotten."""
        if self._compiled_for != lowering_target():
            self.overloads.clear()
            self._compiled_for = lowering_target()
        with target_override("jitonnx"):
            return super().compile(sig)

    def add_overload(self, cres: Any) -> None:
        """File the result for calls from other functions; there is no entry for Python to call."""
        self.overloads[tuple(cres.signature.args)] = cres


def _jit(**options: Any) -> Callable[[Callable[..., Any]], _Dispatcher]:
    """How Numba compiles its own overloads (of operators, of NumPy's functions) for our target."""
    return lambda function: _Dispatcher(function, targetoptions={**_OPTIONS, **options})


dispatcher_registry[_KernelTarget] = _Dispatcher
jit_registry[_KernelTarget] = _jit


def device(function: Callable[..., Any]) -> Any:
    """Mark `function` as callable from kernels; it is compiled for the types it is called with."""
    return _Dispatcher(function, targetoptions=dict(_OPTIONS))


@global_compiler_lock
def lower(kernel: Callable[..., Any], symbol: str, target: Target) -> llvm.ModuleRef:
    """Lower `kernel`, a plain Python function of `SIGNATURE`, to unoptimised LLVM IR with the C entry point `symbol`.

    Vector functions may use instructions of `target` by name. Everything but `symbol` gets internal linkage, so that
    optimisation can inline and drop it.
    """
    dispatcher = _Dispatcher(kernel, targetoptions=dict(_OPTIONS))
    _lowering_for.append(target)
    try:
        dispatcher.compile(SIGNATURE.args)
    finally:
        _lowering_for.pop()
    result = dispatcher.overloads[tuple(SIGNATURE.args)]
    module = result.library.module.clone()
    inner = result.fndesc.llvm_func_name
    module.link_in(_entry_point(symbol, inner, module.get_function(inner)))
    for function in module.functions:
        if not function.is_declaration and function.name != symbol:
            function.linkage = "internal"
    for variable in module.global_variables:
        if not variable.is_declaration:
            variable.linkage = "internal"
    return module


def _entry_point(symbol: str, inner: str, inner_ref: llvm.ValueRef) -> llvm.ModuleRef:
    """A module whose C function `symbol` calls Numba's `inner`: Numba's own first two arguments (result, exception) go
    unused."""
    byte_pointer, i64 = ir.IntType(8).as_pointer(), ir.IntType(64)
    arguments = [byte_pointer.as_pointer(), i64.as_pointer(), i64, i64, byte_pointer]
    module = ir.Module(symbol)
    callee = ir.Function(
        module,
        ir.FunctionType(ir.IntType(32), [byte_pointer.as_pointer(), byte_pointer.as_pointer(), *arguments]),
        inner,
    )
    entry = ir.Function(module, ir.FunctionType(ir.VoidType(), arguments), symbol)
    builder = ir.IRBuilder(entry.append_basic_block())
    unused = [builder.alloca(byte_pointer), builder.alloca(byte_pointer)]
    builder.call(callee, [*unused, *entry.args])
    builder.ret_void()
    return llvm.parse_assembly(str(module))
