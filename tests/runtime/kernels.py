"""Kernels for testing the runtime, written as the native functions are, and programs made of them."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import llvmlite.binding as llvm
import numpy as np

from jitonnx.emit import llvm_ir
from jitonnx.runtime.executable import Executable
from jitonnx.runtime.loader import CodeImage, load
from jitonnx.runtime.native.functions import POINTER, WORD, FunctionBuilder
from jitonnx.runtime.program import Flag, Program, Slot, Step, Steps, Tensors, TensorSpec
from jitonnx.runtime.tables import Common

ARGUMENTS = "ptr buffers, ptr sizes, i64 begin, i64 end, ptr scratch"
SYMBOLS = ("add_one", "scale", "add", "burn", "record", "own_scratch", "set_words", "nothing")
FLOAT = llvm_ir.FloatType()


def _buffer(code: FunctionBuilder, index: int) -> llvm_ir.Value:
    return code.load(code.at(code["buffers"], 8 * index), POINTER)


def _size(code: FunctionBuilder, index: int) -> llvm_ir.Value:
    return code.load(code.at(code["sizes"], 8 * index))


def _elementwise(module: llvm_ir.Module, name: str, inputs: int, operation: str) -> None:
    """target[i] = operation(inputs[i]) for the float32s of each task; sizes[0]: elements a task."""
    code = FunctionBuilder(module, f"void {name}({ARGUMENTS})", exported=True)
    chunk = _size(code, 0)
    operands, target = [_buffer(code, index) for index in range(inputs)], _buffer(code, inputs)
    with code.loop(code.multiply(code["begin"], chunk), code.multiply(code["end"], chunk)) as index:
        offset = code.multiply(index, 4)
        values = [code.load(code.at(operand, offset), FLOAT) for operand in operands]
        if operation == "add_one":
            result = code.build.fadd(values[0], FLOAT(1.0))
        elif operation == "scale":
            result = code.build.fmul(values[0], code.build.sitofp(_size(code, 1), FLOAT))
        else:
            result = code.build.fadd(*values)
        code.build.store(result, code.at(target, offset))
    code.give()


def _burn(module: llvm_ir.Module) -> None:
    """Take time: sizes[0] rounds of atomic additions on this thread's scratch memory, for each task."""
    code = FunctionBuilder(module, f"void burn({ARGUMENTS})", exported=True)
    with code.loop(code["begin"], code["end"]), code.loop(0, _size(code, 0)):
        code.fetch_add(code["scratch"], 1)
    code.give()


def _record(module: llvm_ir.Module) -> None:
    """Note for each task what its thread was given: target[task] = (begin, end, scratch), int64."""
    code = FunctionBuilder(module, f"void record({ARGUMENTS})", exported=True)
    target = _buffer(code, 0)
    with code.loop(code["begin"], code["end"]) as task:
        row = code.at(target, code.multiply(task, 24))
        code.store(row, code["begin"])
        code.store(code.at(row, 8), code["end"])
        code.store(code.at(row, 16), code.build.ptrtoint(code["scratch"], WORD))
    code.give()


def _own_scratch(module: llvm_ir.Module) -> None:
    """Fill for each task sizes[0] words of scratch memory with the task, then add them up: target[task] = sum."""
    code = FunctionBuilder(module, f"void own_scratch({ARGUMENTS})", exported=True)
    words, target = _size(code, 0), _buffer(code, 0)
    with code.loop(code["begin"], code["end"]) as task:
        with code.loop(0, words) as index:
            code.store(code.at(code["scratch"], code.multiply(index, 8)), task)
        total = code.variable(0)
        with code.loop(0, words) as index:
            word = code.load(code.at(code["scratch"], code.multiply(index, 8)))
            code.store(total, code.add(code.load(total), word))
        code.store(code.at(target, code.multiply(task, 8)), code.load(total))
    code.give()


def _set_words(module: llvm_ir.Module) -> None:
    """Copy word i of the first operand to operand 1 + i, if it is not 0; sizes[0] words."""
    code = FunctionBuilder(module, f"void set_words({ARGUMENTS})", exported=True)
    source = _buffer(code, 0)
    with code.loop(0, _size(code, 0)) as index:
        offset = code.multiply(index, 8)
        word = code.load(code.at(source, offset))
        with code.if_then(code.compare(word, "!=", 0)):
            code.store(code.load(code.at(code["buffers"], code.add(offset, 8)), POINTER), word)
    code.give()


def compile_module(module: llvm_ir.Module | str) -> bytes:
    """Object code for this CPU."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2, reloc="pic", codemodel="small")
    return machine.emit_object(llvm.parse_assembly(str(module)))


def new_module() -> llvm_ir.Module:
    return llvm_ir.Module(llvm.get_process_triple(), prescheduled=True)


@functools.cache
def object_code() -> bytes:
    """One object with all the kernels."""
    module = new_module()
    _elementwise(module, "add_one", 1, "add_one")
    _elementwise(module, "scale", 1, "scale")
    _elementwise(module, "add", 2, "add")
    _burn(module)
    _record(module)
    _own_scratch(module)
    _set_words(module)
    FunctionBuilder(module, f"void nothing({ARGUMENTS})", exported=True).give()
    return compile_module(module)


@functools.cache
def image() -> CodeImage:
    return load([object_code()], SYMBOLS)


def executable(
    steps: Sequence[Step],
    *,
    inputs: Sequence[TensorSpec] = (),
    outputs: Sequence[TensorSpec] = (),
    arena_bytes: int = 0,
    constants: Sequence[np.ndarray] = (),
    threads: int = 1,
) -> Executable:
    program = Program(Steps.of(steps), arena_bytes, list(constants), Tensors.of(inputs), Tensors.of(outputs))
    return Executable(program, common(program, image()), threads)


def common(program: Program, addresses: Mapping[str, int], flags: Sequence[Flag] = ()) -> Common:
    inputs, outputs = program.inputs.kinds, program.outputs.kinds
    return Common(program.steps.wiring, program.constants, inputs, outputs, addresses, flags)


def floats(name: str, *shape: int) -> TensorSpec:
    return TensorSpec(name, np.dtype(np.float32), shape)


def words(name: str, *shape: int) -> TensorSpec:
    return TensorSpec(name, np.dtype(np.int64), shape)


def chain(length: int, elements: int, tasks: int, threads: int) -> Executable:
    """x + length, one step for each 1, back and forth between two buffers of the arena, each step shared."""
    x, y = Slot("input", 0), Slot("output", 0)
    size = 4 * elements
    places = [x, *(Slot("arena", 0, size * (index % 2)) for index in range(length - 1)), y]
    steps = [
        Step("add_one", (places[index], places[index + 1]), (elements // tasks,), tasks, threads, label=f"add {index}")
        for index in range(length)
    ]
    return executable(
        steps, inputs=[floats("x", elements)], outputs=[floats("y", elements)], arena_bytes=2 * size, threads=threads
    )
