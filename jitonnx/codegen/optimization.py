"""LLVM IR to object code for a target: the one place where kernels are optimised."""

from __future__ import annotations

import functools

import llvmlite.binding as llvm

from jitonnx.emit.module import triple_of
from jitonnx.ir.computation.linked import PREFIX
from jitonnx.target.machine import Target

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()


@functools.cache
def _machine(target: Target) -> llvm.TargetMachine:
    # Position independent: an artifact maps code wherever it lands, and a loader may put kernels far from libc.
    if target.foreign:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    triple = llvm.Target.from_triple(triple_of(target))
    return triple.create_target_machine(cpu=target.cpu, features=target.features, opt=3, reloc="pic", codemodel="small")


_SETTLED = (
    *("always_inliner", "global_dead_code_eliminate", "sroa", "ipsccp", "dead_arg_elimination", "simplify_cfg"),
)
"""The passes for a kernel that is written as it is to run: its functions inlined where they say so, its variables in
registers, constants carried into its functions. What is computed twice is found as it is written
(`jitonnx.emit.llvm_ir`): looking for it again (NewGVN, InstCombine) took a sixth of the time to compile a
kernel, and made none faster by 2 %."""
_COMBINING = (*_SETTLED, "instruction_combine", "simplify_cfg")
"""The passes for a kernel that besides has addresses to be stepped and masks to be made simpler."""


def optimise(
    module: llvm.ModuleRef, target: Target, *, prescheduled: bool = False, combining: bool = False
) -> llvm.ModuleRef:
    """Optimise `module` in place; whatever its entry point does not need is dropped.

    prescheduled, combining: see `KernelSpec.prescheduled` and `KernelSpec.COMBINING`. Other modules go through LLVM's
    -O2 pipeline, which takes a fifth less time than -O3 and leaves kernels as fast.
    """
    machine = _machine(target)
    module.data_layout = str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    # Kernels say what is a vector and what is unrolled; the vectorisers still serve the scalar loops of odd layouts.
    options.loop_vectorization = True
    # What another compiler made is called lane by lane: inlined, it becomes vectors again.
    linked = any(function.name.startswith(PREFIX) for function in module.functions)
    options.slp_vectorization = linked
    options.loop_unrolling = True
    builder = llvm.create_pass_builder(machine, options)
    if (prescheduled or combining) and not linked:
        passes = llvm.create_new_module_pass_manager()
        for name in _SETTLED if prescheduled else _COMBINING:
            getattr(passes, f"add_{name}_pass")()
    else:
        passes = builder.getModulePassManager()
    passes.run(module, builder)
    return module


def emit_object(
    module: llvm.ModuleRef, target: Target, *, prescheduled: bool = False, combining: bool = False
) -> bytes:
    """Optimise `module` and return its object code (ELF on Linux). prescheduled, combining: as for `optimise`."""
    optimised = optimise(module, target, prescheduled=prescheduled, combining=combining)
    code: bytes = _machine(target).emit_object(optimised)
    return code


def emit_assembly(module: llvm.ModuleRef, target: Target, *, prescheduled: bool = False) -> str:
    """Optimise `module` and return its assembly text, for tests and for people. prescheduled: as for `optimise`."""
    text: str = _machine(target).emit_assembly(optimise(module, target, prescheduled=prescheduled))
    return text
