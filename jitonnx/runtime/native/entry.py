"""The whole of `run` as one builtin function: from a dict of arrays to a list of arrays.

Python's and NumPy's objects are read where their C interfaces put the fields; `jitonnx.runtime.entry` checks these
places before it offers this function.
"""

from __future__ import annotations

from jitonnx.emit import llvm_ir

from ..layout import (
    ENTRY,
    ENTRY_INPUT,
    ENTRY_OUTPUT,
    FRAME,
    OBJECT_TYPE,
    PROGRAM,
    WATCH,
    WORD_BYTES,
    ArrayField,
    DescriptorField,
    Flags,
)
from . import watch
from .functions import POINTER, FunctionBuilder

_INT = llvm_ir.IntType(32)
_NEW_FROM_DESCRIPTOR = llvm_ir.FunctionType(POINTER, [POINTER, POINTER, _INT, POINTER, POINTER, POINTER, _INT, POINTER])

_SET_HANDLER = llvm_ir.FunctionType(POINTER, [POINTER])


def define(module: llvm_ir.Module) -> None:
    """Add the entry to a module that has the functions of `frames`."""
    _accepts(module, "jitonnx_accepts")
    _bind_inputs(module)
    _make_output(module)
    _make_outputs(module)
    _release_inputs(module)
    _take_flags(module)
    _run_released(module)
    _entry(module)


def define_given(module: llvm_ir.Module) -> None:
    """Add what tells whether chains can take arrays as they are given to a module."""
    _accepts(module, "jitonnx_accepts_any_length", any_size=-1)
    _accepts(module, "jitonnx_accepts_output", "output")


def _accepts(module: llvm_ir.Module, name: str, tensor: str = "input", any_size: int | None = None) -> None:
    """1 if the object is an array that kernels can read in place as the given input, or write as the given output,
    else 0.

    any_size: what stands for a size that may be any, if something does.
    """
    code = FunctionBuilder(module, f"i64 {name}(ptr entry, i64 index, ptr object)")
    array, index, entry = code["object"], code["index"], code["entry"]
    record, usable = ENTRY_INPUT, Flags.C_CONTIGUOUS | Flags.ALIGNED
    if tensor == "output":
        record, usable = ENTRY_OUTPUT, usable | Flags.WRITEABLE
    expected = code.item(code.pointer(entry, ENTRY, f"{tensor}s"), record, index)

    def require(condition: llvm_ir.Value) -> None:
        code.give_if(code.build.not_(condition), 0)

    def type_number(descriptor: llvm_ir.Value) -> llvm_ir.Value:
        return code.load_int(code.at(descriptor, DescriptorField.TYPE_NUMBER), 32)

    require(code.equal(code.load(code.at(array, OBJECT_TYPE)), code.word(entry, ENTRY, "array_type")))
    descriptor = code.load(code.at(array, ArrayField.DESCRIPTOR), POINTER)
    if tensor == "output":
        wanted_type = type_number(code.pointer(expected, ENTRY_OUTPUT, "descriptor"))
    else:
        wanted_type = code.word(expected, ENTRY_INPUT, "type_number")
    require(code.equal(type_number(descriptor), wanted_type))
    require(code.compare(code.load_int(code.at(descriptor, DescriptorField.BYTE_ORDER), 8), "!=", ord(">")))
    flags = code.load_int(code.at(array, ArrayField.FLAGS), 32)
    require(code.equal(code.build.and_(flags, code.number(usable)), usable))
    rank = code.word(expected, record, "rank")
    require(code.equal(code.load_int(code.at(array, ArrayField.RANK), 32), rank))
    shape, wanted = code.load(code.at(array, ArrayField.SHAPE), POINTER), _shape(code, entry, tensor, index)
    with code.loop(0, rank) as axis:
        offset = code.multiply(axis, WORD_BYTES)
        size, expected_size = (code.load(code.at(sizes, offset)) for sizes in (shape, wanted))
        same = code.equal(size, expected_size)
        if any_size is not None:
            same = code.build.or_(same, code.equal(expected_size, any_size))
        require(same)
    code.give(1)


def _shape(code: FunctionBuilder, entry: llvm_ir.Value, what: str, index: llvm_ir.Value) -> llvm_ir.Value:
    """The address of an input's or output's shape."""
    return code.at(
        code.pointer(entry, ENTRY, f"{what}_shapes"), code.multiply(index, code.word(entry, ENTRY, f"{what}_pitch"))
    )


def _bind_inputs(module: llvm_ir.Module) -> None:
    """Hold the inputs found in the dict and note their addresses; returns how many came before one that is unusual."""
    code = FunctionBuilder(module, "i64 jitonnx_bind_inputs(ptr entry, ptr feeds, ptr bases, ptr held)")
    entry = code["entry"]
    count, inputs = code.word(entry, ENTRY, "input_count"), code.pointer(entry, ENTRY, "inputs")
    with code.loop(0, count) as index:
        expected = code.item(inputs, ENTRY_INPUT, index)
        name = code.pointer(expected, ENTRY_INPUT, "name")
        value = code.call("PyDict_GetItemWithError", code["feeds"], name)
        with code.if_then(code.is_null(value), likely=False):
            code.call("PyErr_Clear")
            code.give(index)
        code.give_if(code.equal(code.call("jitonnx_accepts", entry, index, value), 0), index)
        code.call("Py_IncRef", value)
        offset = code.multiply(index, WORD_BYTES)
        code.build.store(value, code.at(code["held"], offset))
        code.store(code.at(code["bases"], offset), code.load(code.at(value, ArrayField.DATA)))
    code.give(count)


def _make_output(module: llvm_ir.Module) -> None:
    """A new array for an output; null with an exception set if memory is short."""
    code = FunctionBuilder(module, "ptr jitonnx_make_output(ptr entry, i64 index)")
    entry, index, none = code["entry"], code["index"], POINTER(None)
    output = code.item(code.pointer(entry, ENTRY, "outputs"), ENTRY_OUTPUT, index)
    new_array, array_type = code.field(entry, ENTRY, "new_array"), code.pointer(entry, ENTRY, "array_type")
    descriptor = code.pointer(output, ENTRY_OUTPUT, "descriptor")
    rank = code.build.trunc(code.word(output, ENTRY_OUTPUT, "rank"), _INT)
    shape = _shape(code, entry, "output", index)
    code.call("Py_IncRef", descriptor)  # the new array takes this reference
    place = code.word_at(code.pointer(entry, ENTRY, "aligned"), index)
    aligned = code.compare(code.load(place), "!=", 0)
    handler = code.variable(0)
    with code.if_then(aligned):
        code.build.store(_set_handler(code, code.pointer(entry, ENTRY, "handler")), handler)
    array = code.call_stored(new_array, _NEW_FROM_DESCRIPTOR, array_type, descriptor, rank, shape, none, none, 0, none)
    with code.if_then(aligned):
        before = code.load(handler, POINTER)
        code.call("Py_DecRef", _set_handler(code, before))
        code.call("Py_DecRef", before)
    code.build.ret(array)


def _make_outputs(module: llvm_ir.Module) -> None:
    """A list of new arrays, whose addresses it notes; null with an exception set if memory is short."""
    code = FunctionBuilder(module, "ptr jitonnx_make_outputs(ptr entry, ptr bases)")
    entry = code["entry"]
    count = code.word(entry, ENTRY, "output_count")
    made = code.call("PyList_New", count)
    with code.if_then(code.is_null(made), likely=False):
        code.build.ret(made)
    with code.loop(0, count) as index:
        array = code.call("jitonnx_make_output", entry, index)
        with code.if_then(code.is_null(array), likely=False):
            code.call("Py_DecRef", made)
            code.build.ret(POINTER(None))
        code.call("PyList_SetItem", made, index, array)
        code.store(code.word_at(code["bases"], index), code.load(code.at(array, ArrayField.DATA)))
    code.build.ret(made)


def _set_handler(code: FunctionBuilder, handler: llvm_ir.Value) -> llvm_ir.Value:
    """Let the memory of arrays come from another handler; returns the one before, with a reference to it."""
    return code.call_stored(code.field(code["entry"], ENTRY, "set_handler"), _SET_HANDLER, handler)


def _release_inputs(module: llvm_ir.Module) -> None:
    """Let go of the first `count` inputs."""
    code = FunctionBuilder(module, "void jitonnx_release_inputs(ptr held, i64 count)")
    with code.loop(0, code["count"]) as index:
        code.call("Py_DecRef", code.load(code.word_at(code["held"], index), POINTER))
    code.give()


def _take_flags(module: llvm_ir.Module) -> None:
    """Whether kernels have set flags, which then are set back."""
    code = FunctionBuilder(module, "i64 jitonnx_take_flags(ptr frame)")
    flags, met = code.pointer(code["frame"], FRAME, "flags"), code.variable(0)
    with code.loop(0, code.word(code["frame"], FRAME, "flag_count")) as index:
        place = code.word_at(flags, index)
        code.store(met, code.build.or_(code.load(met), code.load(place)))
        code.store(place, 0)
    code.give(code.load(met))


def _entry(module: llvm_ir.Module) -> None:
    """The builtin (METH_O): a list of outputs, or None where Python has to look closer, also if flags were set; null
    with an exception set where Python has ended the run. `self` is an array of an `ENTRY`.

    A frame is taken first and given back last: allocating and releasing objects can run Python code, and with it
    another thread.
    """
    code = FunctionBuilder(module, "ptr jitonnx_entry(ptr self, ptr feeds)", exported=True)
    entry = code.load(code.at(code["self"], ArrayField.DATA), POINTER)
    pool, count = code.pointer(entry, ENTRY, "pool"), code.word(entry, ENTRY, "input_count")

    def decline() -> None:
        none = code.pointer(entry, ENTRY, "none")
        code.call("Py_IncRef", none)
        code.build.ret(none)

    feeds_type = code.load(code.at(code["feeds"], OBJECT_TYPE))
    with code.if_then(code.compare(feeds_type, "!=", code.word(entry, ENTRY, "dict_type")), likely=False):
        decline()
    with code.if_then(code.compare(code.call("PyDict_Size", code["feeds"]), "!=", count), likely=False):
        decline()
    frame = code.call("jitonnx_take", pool, code.pointer(entry, ENTRY, "program"))
    with code.if_then(code.is_null(frame), likely=False):
        decline()
    bases, held = code.pointer(frame, FRAME, "bases"), code.pointer(frame, FRAME, "held")

    def give_back(bound: llvm_ir.Value) -> None:
        code.call("jitonnx_release_inputs", held, bound)
        code.call("jitonnx_put_back", frame)

    bound = code.call("jitonnx_bind_inputs", entry, code["feeds"], bases, held)
    with code.if_then(code.compare(bound, "!=", count), likely=False):
        give_back(bound)
        decline()
    made = code.call("jitonnx_make_outputs", entry, code.word_at(bases, count))
    with code.if_then(code.is_null(made), likely=False):
        give_back(bound)
        code.call("PyErr_Clear")  # Python says for which output there is no memory
        decline()
    stopped = code.call("jitonnx_run_released", entry, frame, POINTER(None))
    met = code.call("jitonnx_take_flags", frame)
    give_back(bound)
    with code.if_then(code.compare(stopped, "!=", 0), likely=False):
        code.call("Py_DecRef", made)
        code.build.ret(POINTER(None))
    with code.if_then(code.compare(met, "!=", 0), likely=False):
        code.call("Py_DecRef", made)
        decline()
    code.build.ret(made)


def _run_released(module: llvm_ir.Module) -> None:
    """Run without the GIL, or with it where the entry says that the run is too short to let it go; returns 1 with an
    exception set where Python has ended it, else 0. `watch`: the `WATCH` of the call that the run is a part of, or null
    where it is all of that.

    if (!release) { run(frame, 0, 0); return 0 }
    if (watch) { run(frame, 0, program->long ? watch : 0) without the GIL; look(watch); return stop }
    if (program->long) { run(frame, 0, a new watch) without the GIL; return stop }
    run(frame, 0, 0) without the GIL; return 0
    """
    code = FunctionBuilder(module, "i64 jitonnx_run_released(ptr entry, ptr frame, ptr watch)")
    entry, frame, none = code["entry"], code["frame"], POINTER(None)
    with code.if_then(code.equal(code.word(entry, ENTRY, "release"), 0)):
        code.call("jitonnx_run", frame, none, none)
        code.give(0)
    program = code.pointer(entry, ENTRY, "program")
    with code.if_then(code.build.not_(code.is_null(code["watch"])), likely=False):
        with watch.released(code, code["watch"]):
            code.call("jitonnx_run", frame, none, watch.watching(code, program, code["watch"]))
        code.call("jitonnx_look", code["watch"])
        code.give(code.word(code["watch"], WATCH, "stop"))
    with code.if_then(code.compare(code.word(program, PROGRAM, "long"), "!=", 0), likely=False):
        own = watch.begin(code, code.pointer(entry, ENTRY, "pool"))
        with watch.released(code, own):
            code.call("jitonnx_run", frame, none, own)
        code.give(code.word(own, WATCH, "stop"))
    state = code.call("PyEval_SaveThread")
    code.call("jitonnx_run", frame, none, none)
    code.call("PyEval_RestoreThread", state)
    code.give(0)
