"""Functions of onnxruntime's C interface that kernels call in every run, answered from records (`HANDLE`), without the
global interpreter lock.

A pointer is a number that is looked up in a table, never followed. What a table does not say, and what is wrong, is
left to Python's function of the same name, which gives the same answer, or the status that says why there is none.

What tells of a tensor's type and shape is made here, too: libraries ask for it several times a run. Its slot is free
again when it is released; where another holds the slot, Python makes it.
"""

from __future__ import annotations

from jitonnx.emit import llvm_ir

from ..layout import (
    HANDLE,
    HANDLE_CONTEXT,
    HANDLE_SHAPE,
    HANDLE_SLOTS,
    HANDLE_TEXTS,
    HANDLE_VALUE,
    HANDLE_WORDS,
    HANDLES,
    WORD_BYTES,
)
from .functions import POINTER, WORD, FunctionBuilder
from .names import C_API, HANDLES_NAME

_OWN = 8
"""The bit of the pointers that are made here."""
_INT = llvm_ir.IntType(32)


def define(module: llvm_ir.Module) -> None:
    """Add the functions, each as `jitonnx_ort_` and its name in the interface."""
    _slot(module)
    _known(module)
    context, value, texts, shape = HANDLE_CONTEXT, HANDLE_VALUE, HANDLE_TEXTS, HANDLE_SHAPE
    _field(module, "KernelContext_GetInputCount", (context,), "first")
    _field(module, "KernelContext_GetOutputCount", (context,), "second")
    _input(module)
    _field(module, "GetTensorMutableData", (value,), "data", required=True)
    _field(module, "GetTensorData", (value,), "data", required=True)
    _memory(module)
    _memory_name(module)
    _type_and_shape(module)
    _field(module, "GetTensorElementType", (shape,), "first", kind=_INT)
    _field(module, "GetDimensionsCount", (shape,), "rank")
    _sizes(module)
    _field(module, "GetTensorShapeElementCount", (shape,), "second")
    _release(module)
    _field(module, "GetStringTensorDataLength", (texts,), "length")
    _texts(module)
    _text_length(module)
    _text(module)


class _Written(FunctionBuilder):
    """A function of the interface; its arguments are i64, and so is its result, a status."""

    def __init__(self, module: llvm_ir.Module, name: str, *arguments: str, result: str = "i64") -> None:
        listed = ", ".join(f"i64 {argument}" for argument in arguments)
        super().__init__(module, f"{result} jitonnx_ort_{name}({listed})", exported=True)
        self._name, self._names, self._result = name, arguments, result

    def state(self) -> llvm_ir.Value:
        """The address of the `HANDLES`."""
        return _state(self)

    def record(self, argument: str, *kinds: int) -> llvm_ir.Value:
        """The record of a pointer, of one of these kinds; Python goes on where there is none."""
        found = self.call("jitonnx_known", self[argument])
        self.otherwise(self.is_null(found))
        wrong = self.build.icmp_signed("!=", self.word(found, HANDLE, "kind"), self.number(kinds[0]))
        for kind in kinds[1:]:
            wrong = self.build.and_(
                wrong, self.build.icmp_signed("!=", self.word(found, HANDLE, "kind"), self.number(kind))
            )
        self.otherwise(wrong)
        return found

    def place(self, argument: str) -> llvm_ir.Value:
        """An address that is given; Python goes on where it is null."""
        self.otherwise(self.equal(self[argument], 0))
        return self.build.inttoptr(self[argument], POINTER)

    def otherwise(self, condition: llvm_ir.Value) -> None:
        """Where this holds, call Python's function and return what it gives."""
        with self.if_then(condition, likely=False):
            others = self.pointer(self.state(), HANDLES, "others")
            source = self.word_at(others, C_API.index(self._name))
            result = WORD if self._result == "i64" else llvm_ir.VoidType()
            kind = llvm_ir.FunctionType(result, [WORD] * len(self._names))
            given = self.call_stored(source, kind, *(self[name] for name in self._names))
            self.give(given if self._result == "i64" else None)


def _state(code: FunctionBuilder) -> llvm_ir.Value:
    function = code.module.globals.get(HANDLES_NAME)
    if function is None:
        function = llvm_ir.Function(code.module, llvm_ir.FunctionType(llvm_ir.VoidType(), []), HANDLES_NAME)
    return code.build.bitcast(function, POINTER)


def _slot(module: llvm_ir.Module) -> None:
    """The address of the slot of a pointer."""
    code = FunctionBuilder(module, "ptr jitonnx_slot(i64 pointer)")
    pointer, state = code["pointer"], _state(code)
    own = code.build.and_(pointer, code.number(_OWN))
    lent, made = (code.word(state, HANDLES, name) for name in ("lent", "made"))
    table = code.build.select(code.equal(own, 0), lent, made)
    number = code.bits(pointer, 4, (HANDLE_SLOTS - 1).bit_length())
    code.give(code.item(code.build.inttoptr(table, POINTER), HANDLE, number))


def _known(module: llvm_ir.Module) -> None:
    """The record of a pointer; null where there is none."""
    code = FunctionBuilder(module, "ptr jitonnx_known(i64 pointer)")
    slot = code.call("jitonnx_slot", code["pointer"])
    same = code.equal(code.watch(code.field(slot, HANDLE, "pointer")), code["pointer"])
    known = code.build.and_(same, code.compare(code["pointer"], "!=", 0))
    code.give(code.build.select(known, slot, POINTER(None)))


def _field(
    module: llvm_ir.Module,
    name: str,
    kinds: tuple[int, ...],
    field: str,
    *,
    kind: llvm_ir.Type = WORD,
    required: bool = False,
) -> None:
    """Write a word of a record. required: zero means that Python alone knows."""
    code = _Written(module, name, "pointer", "out")
    record, out = code.record("pointer", *kinds), code.place("out")
    value = code.word(record, HANDLE, field)
    if required:
        code.otherwise(code.equal(value, 0))
    code.build.store(code.build.trunc(value, kind), out)
    code.give(0)


def _input(module: llvm_ir.Module) -> None:
    code = _Written(module, "KernelContext_GetInput", "context", "index", "out")
    record, out = code.record("context", HANDLE_CONTEXT), code.place("out")
    outside = code.build.icmp_unsigned(">=", code["index"], code.word(record, HANDLE, "first"))
    code.otherwise(outside)
    code.store(out, code.load(code.word_at(code.at(record, HANDLE_WORDS), code["index"])))
    code.give(0)


def _memory(module: llvm_ir.Module) -> None:
    code = _Written(module, "GetTensorMemoryInfo", "value", "out")
    code.record("value", HANDLE_VALUE, HANDLE_TEXTS)
    code.store(code.place("out"), code.word(code.state(), HANDLES, "memory"))
    code.give(0)


def _memory_name(module: llvm_ir.Module) -> None:
    code = _Written(module, "MemoryInfoGetName", "info", "out")
    code.otherwise(code.compare(code["info"], "!=", code.word(code.state(), HANDLES, "memory")))
    code.store(code.place("out"), code.word(code.state(), HANDLES, "memory_name"))
    code.give(0)


def _type_and_shape(module: llvm_ir.Module) -> None:
    code = _Written(module, "GetTensorTypeAndShape", "value", "out")
    source, out = code.record("value", HANDLE_VALUE, HANDLE_TEXTS), code.place("out")
    numbers = code.field(code.state(), HANDLES, "numbers")
    pointer = code.build.or_(code.shift_left(code.add(code.fetch_add(numbers, 1), 1), 4), code.number(_OWN))
    slot = code.call("jitonnx_slot", pointer)
    taken = code.exchange_if(code.field(slot, HANDLE, "pointer"), 0, pointer)
    code.otherwise(code.build.not_(taken))
    for name in ("first", "second", "rank"):
        code.put(slot, HANDLE, name, code.word(source, HANDLE, name))
    code.put(slot, HANDLE, "kind", HANDLE_SHAPE)
    length = code.multiply(code.word(source, HANDLE, "rank"), WORD_BYTES)
    code.call("memcpy", code.at(slot, HANDLE_WORDS), code.at(source, HANDLE_WORDS), length)
    code.store(out, pointer)
    code.give(0)


def _sizes(module: llvm_ir.Module) -> None:
    code = _Written(module, "GetDimensions", "info", "out", "rank")
    record = code.record("info", HANDLE_SHAPE)
    rank = code.word(record, HANDLE, "rank")
    fewer = code.build.icmp_unsigned("<", code["rank"], rank)
    count = code.build.select(fewer, code["rank"], rank)
    with code.if_then(code.compare(count, "!=", 0)):
        out = code.place("out")
        code.call("memcpy", out, code.at(record, HANDLE_WORDS), code.multiply(count, WORD_BYTES))
    code.give(0)


def _release(module: llvm_ir.Module) -> None:
    code = _Written(module, "ReleaseTensorTypeAndShapeInfo", "info", result="void")
    code.otherwise(code.equal(code.build.and_(code["info"], code.number(_OWN)), 0))
    record = code.record("info", HANDLE_SHAPE)
    code.release(code.field(record, HANDLE, "pointer"), 0)
    code.give()


def _texts(module: llvm_ir.Module) -> None:
    code = _Written(module, "GetStringTensorContent", "value", "out", "room", "starts", "count")
    record = code.record("value", HANDLE_TEXTS)
    length, count = code.word(record, HANDLE, "length"), code.word(record, HANDLE, "second")
    code.otherwise(code.build.icmp_unsigned("<", code["room"], length))
    code.otherwise(code.compare(code["count"], "!=", count))
    for argument, field, size in (("out", "data", length), ("starts", "starts", code.multiply(count, WORD_BYTES))):
        with code.if_then(code.compare(size, "!=", 0)):
            code.call("memcpy", code.place(argument), code.pointer(record, HANDLE, field), size)
    code.give(0)


def _bounds(code: _Written, record: llvm_ir.Value) -> tuple[llvm_ir.Value, llvm_ir.Value]:
    """Where an element's bytes begin, and how many there are."""
    code.otherwise(code.build.icmp_unsigned(">=", code["element"], code.word(record, HANDLE, "second")))
    starts = code.pointer(record, HANDLE, "starts")
    begin, end = (code.load(code.word_at(starts, at)) for at in (code["element"], code.add(code["element"], 1)))
    return begin, code.subtract(end, begin)


def _text_length(module: llvm_ir.Module) -> None:
    code = _Written(module, "GetStringTensorElementLength", "value", "element", "out")
    record, out = code.record("value", HANDLE_TEXTS), code.place("out")
    code.store(out, _bounds(code, record)[1])
    code.give(0)


def _text(module: llvm_ir.Module) -> None:
    code = _Written(module, "GetStringTensorElement", "value", "room", "element", "out")
    record = code.record("value", HANDLE_TEXTS)
    begin, length = _bounds(code, record)
    code.otherwise(code.build.icmp_unsigned("<", code["room"], length))
    with code.if_then(code.compare(length, "!=", 0)):
        source = code.at(code.pointer(record, HANDLE, "data"), begin)
        code.call("memcpy", code.place("out"), source, length)
    code.give(0)
