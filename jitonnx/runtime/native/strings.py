"""Strings looked up in a table, in one call of a builtin function, which holds the GIL.

Of a string Python is asked for its UTF-8, which it keeps with the object, and which of most strings are the bytes that
the object consists of anyway. Where arrays have their fields, `jitonnx.runtime.entry` has checked.
"""

from __future__ import annotations

from jitonnx.emit import llvm_ir

from ..layout import HASH_FACTOR, OBJECT_TYPE, STRING_SLOT, STRINGS, WORD_BYTES, ArrayField, DescriptorField
from .functions import POINTER, FunctionBuilder

_FLOAT = llvm_ir.FloatType()
_OBJECT = 17
"""NumPy's number of the type of arrays of objects."""


def define(module: llvm_ir.Module) -> None:
    """Add the builtin and what it calls."""
    _hash(module)
    _find(module)
    _become(module)
    _strings(module)


def _hash(module: llvm_ir.Module) -> None:
    """A hash of a text, as `jitonnx.runtime.strings.hashed` computes it: of words of 8 bytes, then of single ones."""
    code = FunctionBuilder(module, "i64 jitonnx_hash(ptr text, i64 length)")
    factor, length = HASH_FACTOR - (1 << 64), code["length"]
    state = code.variable(code.multiply(length, factor))

    def mix(part: llvm_ir.Value) -> None:
        mixed = code.multiply(code.build.xor(code.load(state), part), factor)
        code.store(state, code.build.xor(mixed, code.bits(mixed, 32, 32)))

    words = code.bits(length, 3, 61)
    with code.loop(0, words) as index:
        place = code.build.bitcast(code.word_at(code["text"], index), llvm_ir.IntType(64).as_pointer())
        word = code.build.load(place)
        word.align = 1
        mix(word)
    with code.loop(code.multiply(words, WORD_BYTES), length) as index:
        mix(code.build.and_(code.load_int(code.at(code["text"], index), 8), code.number(0xFF)))
    code.give(code.load(state))


def _find(module: llvm_ir.Module) -> None:
    """The number of a text in the table; that behind the last where it is not in it."""
    code = FunctionBuilder(module, "i64 jitonnx_find(ptr table, ptr text, i64 length)")
    table, text, length = code["table"], code["text"], code["length"]
    hashed, mask = code.call("jitonnx_hash", text, length), code.word(table, STRINGS, "mask")
    at, slots = code.variable(code.build.and_(hashed, mask)), code.pointer(table, STRINGS, "slots")
    with code.forever() as leave:
        slot = code.item(slots, STRING_SLOT, code.load(at))
        key = code.pointer(slot, STRING_SLOT, "text")
        with code.if_then(code.is_null(key)):
            leave()
        same = code.build.and_(
            code.equal(code.word(slot, STRING_SLOT, "hash"), hashed),
            code.equal(code.word(slot, STRING_SLOT, "length"), length),
        )
        with code.if_then(same):
            differing = code.build.sext(code.call("memcmp", key, text, length), llvm_ir.IntType(64))
            with code.if_then(code.equal(differing, 0)):
                code.give(code.word(slot, STRING_SLOT, "place"))
        code.store(at, code.build.and_(code.add(code.load(at), 1), mask))
    code.give(code.word(code.item(slots, STRING_SLOT, code.load(at)), STRING_SLOT, "place"))


def _become(module: llvm_ir.Module) -> None:
    """What becomes of string number `index` of an array, in row `row` of it: see `STRINGS`."""
    code = FunctionBuilder(module, "void jitonnx_become(ptr table, ptr out, i64 index, i64 row, ptr text, i64 length)")
    table, out = code["table"], code["out"]
    place = code.call("jitonnx_find", table, code["text"], code["length"])
    rows, row_bytes = code.pointer(table, STRINGS, "rows"), code.word(table, STRINGS, "row_bytes")
    source = code.at(rows, code.multiply(place, row_bytes))
    columns = code.pointer(table, STRINGS, "columns")
    with code.if_then(code.is_null(columns)):
        code.call("memcpy", code.at(out, code.multiply(code["index"], row_bytes)), source, row_bytes)
        code.give()
    column = code.load(code.word_at(columns, place))
    with code.if_then(code.compare(column, "<", 0)):
        code.give()
    before = code.multiply(code["row"], code.word(table, STRINGS, "width"))
    target = code.build.bitcast(code.at(out, code.multiply(code.add(before, column), 4)), _FLOAT.as_pointer())
    weight = code.build.load(code.build.bitcast(source, _FLOAT.as_pointer()))
    with code.if_then(code.equal(code.word(table, STRINGS, "once"), 0)):
        code.build.store(code.build.fadd(code.build.load(target), weight), target)
        code.give()
    code.build.store(weight, target)
    code.give()


def _strings(module: llvm_ir.Module) -> None:
    """The builtin (METH_FASTCALL): strings(array) or strings(array, out). `self` is an array of a `STRINGS`.

    True if all elements of the array, of rank 1 or 2, are strings that UTF-8 can encode, of which `out`, a dense array,
    then holds what they become; False if not, or if it is no array of objects. Elements of rank 1 are one row.
    """
    code = FunctionBuilder(module, "ptr jitonnx_strings(ptr self, ptr arguments, i64 count)", exported=True)
    pointer = POINTER
    table = code.load(code.at(code["self"], ArrayField.DATA), pointer)

    def give(answer: str) -> None:
        found = code.pointer(table, STRINGS, answer)
        code.call("Py_IncRef", found)
        code.build.ret(found)

    def refuse_unless(condition: llvm_ir.Value) -> None:
        with code.if_then(code.build.not_(condition), likely=False):
            give("false")

    array = code.load(code["arguments"], pointer)
    refuse_unless(code.equal(code.load(code.at(array, OBJECT_TYPE)), code.word(table, STRINGS, "array_type")))
    descriptor = code.load(code.at(array, ArrayField.DESCRIPTOR), pointer)
    refuse_unless(code.equal(code.load_int(code.at(descriptor, DescriptorField.TYPE_NUMBER), 32), _OBJECT))
    rank = code.load_int(code.at(array, ArrayField.RANK), 32)
    refuse_unless(code.build.and_(code.compare(rank, ">=", 1), code.compare(rank, "<=", 2)))
    shape, strides = (code.load(code.at(array, field), pointer) for field in (ArrayField.SHAPE, ArrayField.STRIDES))
    last = code.subtract(rank, 1)
    columns, column_step = (code.load(code.word_at(of, last)) for of in (shape, strides))
    rows, row_step = code.variable(1), code.variable(0)
    with code.if_then(code.equal(rank, 2)):
        code.store(rows, code.load(shape))
        code.store(row_step, code.load(strides))
    rows, row_step = code.load(rows), code.load(row_step)
    first = code.load(code.at(array, ArrayField.DATA), pointer)
    out = code.variable(0)
    with code.if_then(code.equal(code["count"], 2)):
        given = code.load(code.word_at(code["arguments"], 1), pointer)
        code.store(out, code.load(code.at(given, ArrayField.DATA)))
    length = code.local(WORD_BYTES)
    with code.loop(0, rows) as row, code.loop(0, columns) as column:
        distance = code.add(code.multiply(row, row_step), code.multiply(column, column_step))
        text = code.load(code.at(first, distance), pointer)
        refuse_unless(code.build.not_(code.is_null(text)))
        refuse_unless(code.equal(code.load(code.at(text, OBJECT_TYPE)), code.word(table, STRINGS, "string_type")))
        utf8 = code.call("PyUnicode_AsUTF8AndSize", text, length)
        with code.if_then(code.is_null(utf8), likely=False):
            code.call("PyErr_Clear")
            give("false")
        with code.if_then(code.compare(code.load(out), "!=", 0)):
            index = code.add(code.multiply(row, columns), column)
            code.call("jitonnx_become", table, code.load(out, pointer), index, row, utf8, code.load(length))
    give("true")
