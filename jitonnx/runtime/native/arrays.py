"""NumPy's arrays, and the list of them that a chain's links read and fill, as native code sees them.

A function's parameter `slots` is that list; whoever asks for an array of it borrows the reference.
"""

from __future__ import annotations

from jitonnx.emit import llvm_ir

from ..layout import ArrayField
from .functions import POINTER, FunctionBuilder


def slot(code: FunctionBuilder, place: llvm_ir.Value) -> llvm_ir.Value:
    """The array in a place of the list."""
    return code.call("PyList_GetItem", code["slots"], place)


def fill(code: FunctionBuilder, place: llvm_ir.Value, array: llvm_ir.Value) -> None:
    """Put an array in a place of the list, and with it the reference to it."""
    code.call("PyList_SetItem", code["slots"], place, array)


def share(code: FunctionBuilder, place: llvm_ir.Value, array: llvm_ir.Value) -> None:
    """Put an array in a place of the list that somebody else refers to, too."""
    code.call("Py_IncRef", array)
    fill(code, place, array)


def data(code: FunctionBuilder, array: llvm_ir.Value) -> llvm_ir.Value:
    """The address of an array's first element, a number."""
    return code.load(code.at(array, ArrayField.DATA))


def sizes(code: FunctionBuilder, array: llvm_ir.Value) -> llvm_ir.Value:
    """The address of an array's sizes."""
    return code.load(code.at(array, ArrayField.SHAPE), POINTER)


def rank(code: FunctionBuilder, array: llvm_ir.Value) -> llvm_ir.Value:
    """How many sizes these are."""
    return code.load_int(code.at(array, ArrayField.RANK), 32)


def first_element(code: FunctionBuilder, array: llvm_ir.Value, bits: int) -> llvm_ir.Value:
    """An array's first integer, of so many bits."""
    return code.load_int(code.load(code.at(array, ArrayField.DATA), POINTER), bits)


def copy(code: FunctionBuilder, target: llvm_ir.Value, source: llvm_ir.Value, nbytes: llvm_ir.Value) -> None:
    """Copy between addresses that are numbers."""
    code.call("memcpy", *(code.build.inttoptr(place, POINTER) for place in (target, source)), nbytes)


def beginning(
    code: FunctionBuilder, rows: llvm_ir.Value, count: llvm_ir.Value, all_of_them: llvm_ir.Value
) -> llvm_ir.Value:
    """A new reference to the first `count` rows of an array that has `all_of_them`; null with an exception set where
    memory is short."""
    found = code.variable(0)
    with code.build.if_else(code.compare(count, "<", all_of_them), likely=False) as (fewer, whole):
        with fewer:
            code.build.store(code.call("PySequence_GetSlice", rows, 0, count), found)
        with whole:
            code.call("Py_IncRef", rows)
            code.build.store(rows, found)
    return code.load(found, POINTER)


def give_if_lacking(code: FunctionBuilder, made: llvm_ir.Value) -> None:
    """Returns 0 where there was no memory for what was to be made, without the exception: Python does it again, and
    says for what there is none."""
    with code.if_then(code.is_null(made), likely=False):
        code.call("PyErr_Clear")
        code.give(0)
