"""The fast way into a program: a builtin function that takes a dict of arrays and returns a list of arrays.

Its code (`native/entry.py`) reads Python's and NumPy's objects where their headers put the fields, which costs a few
nanoseconds where Python and ctypes cost microseconds. Whether the fields are where it looks is checked once a process,
on a few real arrays; where they are not (another Python than CPython, one without the GIL, a NumPy with another layout)
there are no entries, and everything works as before through `Executable.run`.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from .blocks import blocks, is_large
from .driver import driver
from .frames import FramePool
from .layout import (
    ENTRY,
    ENTRY_INPUT,
    ENTRY_OUTPUT,
    OBJECT_TYPE,
    WORD_BYTES,
    ArrayField,
    DescriptorField,
    Flags,
    Record,
    address,
    records,
)
from .program import TensorSpec

Entry: TypeAlias = Callable[[Mapping[str, npt.NDArray[np.generic]]], "list[npt.NDArray[np.generic]] | None"]

_METH_O = 0x8
_NEW_FROM_DESCRIPTOR = 94
"""Where NumPy's C interface has PyArray_NewFromDescr."""

_SET_HANDLER = 304
"""Where it has PyDataMem_SetHandler."""

_FLEXIBLE_KINDS = "OSUVMm"
"""Element types whose number alone does not settle what an element is."""
_FIRST_USER_TYPE = 256


class _MethodDefinition(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("documentation", ctypes.c_char_p),
    )


def make_entry(pool: FramePool, release_gil: bool) -> Entry | None:
    """A native entry into the pool's program, which it keeps alive; None where entries are not supported."""
    specs = (*pool.program.inputs, *pool.program.outputs)
    if not supported() or not all(map(_is_plain, specs)):
        return None
    keeper = _EntryKeeper(pool, release_gil)
    new = ctypes.pythonapi.PyCFunction_NewEx
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.py_object]
    # The builtin holds its third argument (meant for its module): with it everything that its code reads.
    return new(ctypes.addressof(keeper.definition), keeper.capsule, keeper)


class _EntryKeeper:
    """What a native entry points to."""

    def __init__(self, pool: FramePool, release_gil: bool) -> None:
        program = pool.program
        self._pool = pool
        self._names = [sys.intern(spec.name) for spec in program.inputs]
        self._types = [spec.dtype for spec in program.outputs]
        shapes = [spec.shape for spec in (*program.inputs, *program.outputs)]
        self._shapes = np.array([size for shape in shapes for size in shape], np.int64)
        self._inputs = records(ENTRY_INPUT, len(program.inputs))
        self._outputs = records(ENTRY_OUTPUT, len(program.outputs))
        self._record = records(ENTRY)
        self._outputs["large"] = [is_large(spec.shape, spec.dtype) for spec in program.outputs]
        self._large = self._outputs["large"].any()
        if self._large:
            blocks().serve(self)
        self._inputs["name"] = [id(name) for name in self._names]
        self._inputs["type_number"] = [spec.dtype.num for spec in program.inputs]
        self._outputs["descriptor"] = [id(kind) for kind in self._types]
        ranks = np.array([len(shape) for shape in shapes], np.int64)
        places = address(self._shapes) + (np.cumsum(ranks) - ranks) * WORD_BYTES
        first_output = len(self._inputs)
        self._inputs["rank"], self._outputs["rank"] = ranks[:first_output], ranks[first_output:]
        self._inputs["shape"], self._outputs["shape"] = places[:first_output], places[first_output:]
        _fill(
            self._record,
            pool=pool.address,
            input_count=len(self._inputs),
            inputs=address(self._inputs),
            output_count=len(self._outputs),
            outputs=address(self._outputs),
            release=int(release_gil),
            none=id(None),
            dict_type=id(dict),
            array_type=id(np.ndarray),
            new_array=_numpy_function(_NEW_FROM_DESCRIPTOR),
            set_handler=_numpy_function(_SET_HANDLER),
            large_handler=id(blocks().capsule) if self._large else 0,
        )
        self.capsule = _capsule(address(self._record))
        self.definition = _MethodDefinition(
            b"run", driver().entry, _METH_O, b"run(feeds) -> list of arrays, or None where run() has to look closer"
        )


def _fill(record: Record, **values: int) -> None:
    for name, value in values.items():
        record[name] = value


def _is_plain(spec: TensorSpec) -> bool:
    return spec.dtype.kind not in _FLEXIBLE_KINDS or spec.dtype.num >= _FIRST_USER_TYPE


def _capsule(pointer: int) -> object:
    """A PyCapsule of an address."""
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    return new(pointer, None, None)


def _numpy_function(index: int) -> int:
    """The address of a function of NumPy's C interface, whose table NumPy hands out in a capsule."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_void_p]
    core = getattr(np, "_core", None) or np.core
    table = get(core._multiarray_umath._ARRAY_API, None)
    return ctypes.c_void_p.from_address(table + index * WORD_BYTES).value or 0


@functools.cache
def supported() -> bool:
    """Whether this Python's and NumPy's objects lie in memory as the native entry expects."""
    if sys.implementation.name != "cpython" or "t" in sys.abiflags:
        return False
    if sys.maxsize != 2**63 - 1 or sys.byteorder != "little" or object.__basicsize__ != OBJECT_TYPE + WORD_BYTES:
        return False
    whole = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    probes = (whole, whole[:, ::2], whole.astype(">f8"), np.array(True), np.zeros((5, 0), np.int64))
    return all(map(_is_as_expected, probes))


def _is_as_expected(array: npt.NDArray[np.generic]) -> bool:
    """Whether the fields read from memory are what NumPy says of the array."""

    def word(place: int) -> int:
        return ctypes.c_int64.from_address(place).value

    place, descriptor = id(array), id(array.dtype)
    rank = ctypes.c_int32.from_address(place + ArrayField.RANK).value
    flags = ctypes.c_int32.from_address(place + ArrayField.FLAGS).value
    order = chr(ctypes.c_int8.from_address(descriptor + DescriptorField.BYTE_ORDER).value)
    shape = word(place + ArrayField.SHAPE)
    return (
        word(place + OBJECT_TYPE) == id(np.ndarray)
        and word(place + ArrayField.DATA) == address(array)
        and rank == array.ndim
        and tuple(word(shape + axis * WORD_BYTES) for axis in range(rank)) == array.shape
        and word(place + ArrayField.DESCRIPTOR) == descriptor
        and ctypes.c_int32.from_address(descriptor + DescriptorField.TYPE_NUMBER).value == array.dtype.num
        and (order == ">") == (not array.dtype.isnative)
        and bool(flags & Flags.C_CONTIGUOUS) == array.flags.c_contiguous
        and bool(flags & Flags.ALIGNED) == array.flags.aligned
    )
