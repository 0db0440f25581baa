"""The fast way into a program: a builtin function that takes a dict of arrays and returns a list of arrays.

Its code (`native/entry.py`) reads Python's and NumPy's objects where their headers put the fields, which costs a few
nanoseconds where Python and ctypes cost microseconds. Whether the fields are where it looks is checked once a process,
on a few real arrays; where they are not (another Python than CPython, one without the GIL, a NumPy with another layout)
there are no entries, and everything works as before through `Executable.run`.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from jitonnx.support import fork_safety
from jitonnx.support.records import NamedTuple

from .blocks import ALIGNED_BYTES, LARGE_BYTES, blocks
from .driver import chains_driver, driver
from .execution_contexts import ExecutionContextPool, Loadable
from .layout import (
    ENTRY,
    OBJECT_TYPE,
    WORD_BYTES,
    ArrayField,
    DescriptorField,
    Flags,
    Record,
    address,
)
from .program import Tensors, Words

if TYPE_CHECKING:
    import numpy.typing as npt

Entry: TypeAlias = "Callable[[Mapping[str, npt.NDArray[np.generic]]], list[npt.NDArray[np.generic]] | None]"

_METH_O, _METH_FASTCALL = 0x8, 0x80
_NEW_FROM_DESCRIPTOR = 94
"""NumPy's C interface has PyArray_NewFromDescr there."""

_SET_HANDLER = 304
"""It has PyDataMem_SetHandler there."""


class _MethodDefinition(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("documentation", ctypes.c_char_p),
    )


def make_entry(loadable: Loadable, pool: ExecutionContextPool, *, release_gil: bool) -> Entry | None:
    """A native entry into a program, which runs in the pool's frames; it keeps both alive. None where entries are not
    supported.
    """
    if not supported() or not loadable.common.signature.is_plain:
        return None
    keeper = EntryKeeper(loadable, pool, release_gil=release_gil)
    # The builtin is given its second argument with each call, and holds the third (meant for its module): with it
    # everything that its code reads.
    return _builtin(_python().entry, keeper.record, keeper)


def chain_builtin(record: Record, keeper: object) -> Callable[[list[Any]], None]:
    """A chain (`bytecode.py`) as a builtin function. keeper: holds all that its record points to."""
    return _builtin(_chain_definition(), record, keeper)


@fork_safety.once
def _chain_definition() -> _MethodDefinition:
    text = b"chain(arrays): fill what is None, as far as it gets"
    return _MethodDefinition(b"chain", chains_driver().chain, _METH_O, text)


def strings_builtin(code: int, record: Record, keeper: object) -> Callable[..., bool]:
    """A look-up of strings (`strings.py`) as a builtin function. keeper: holds all that its record points to."""
    return _builtin(_strings_definition(code), record, keeper)


@fork_safety.once
def _strings_definition(code: int) -> _MethodDefinition:
    text = b"strings(array, places): whether all elements are strings; their numbers"
    return _MethodDefinition(b"strings", code, _METH_FASTCALL, text)


def _builtin(definition: _MethodDefinition, record: Record, keeper: object) -> Callable[[Any], Any]:
    return _python().new_function(ctypes.addressof(definition), record, keeper)


class EntryKeeper:
    """What a native entry points to."""

    def __init__(self, loadable: Loadable, pool: ExecutionContextPool, *, release_gil: bool) -> None:
        program, signature = loadable.program, loadable.common.signature
        self._loadable, self._pool = loadable, pool
        self._aligned = (program.outputs.nbytes >= ALIGNED_BYTES).astype(np.int64)
        if (program.outputs.nbytes >= LARGE_BYTES).any():
            blocks().serve(self)
        self.record = entry_record(
            pool,
            loadable.address,
            (*signature.inputs_place, *_shapes(program.inputs)),
            (*signature.outputs_place, *_shapes(program.outputs)),
            self._aligned,
            release_gil=release_gil,
            some_aligned=bool(self._aligned.any()),
        )
        """An `ENTRY`."""


def entry_record(
    pool: ExecutionContextPool,
    program: int,
    inputs: tuple[int, int, int, int],
    outputs: tuple[int, int, int, int],
    aligned: Words,
    *,
    release_gil: bool,
    some_aligned: bool = False,
) -> Record:
    """An `ENTRY`. inputs, outputs: how many there are, where, where their shapes are, and how many bytes apart.

    some_aligned: whether there is an output, or may be one in some run, whose memory comes from `blocks`.
    """
    python, record = _python(), np.zeros(1, ENTRY)
    record[0] = (
        pool.address,
        program,
        *inputs,
        *outputs,
        address(aligned),
        int(release_gil),
        id(None),
        id(dict),
        id(np.ndarray),
        python.new_array,
        python.set_handler,
        id(blocks().capsule) if some_aligned else 0,
    )
    return record


def _shapes(tensors: Tensors) -> tuple[int, int]:
    """The address of the shapes, and how many bytes they are apart."""
    return address(tensors.shapes), tensors.shapes.shape[1] * WORD_BYTES


class _Python(NamedTuple):
    """Functions of Python's and NumPy's C interfaces, and what Python is told of the entry's code."""

    new_function: Callable[[int, object, object], Callable[[Any], Any]]
    new_array: int
    set_handler: int
    entry: _MethodDefinition


@fork_safety.once
def _python() -> _Python:
    def prototype(*types: type) -> Any:
        return ctypes.PYFUNCTYPE(ctypes.py_object, *types)

    pointer, thing = ctypes.c_void_p, ctypes.py_object
    return _Python(
        prototype(pointer, thing, thing)(("PyCFunction_NewEx", ctypes.pythonapi)),
        _numpy_function(_NEW_FROM_DESCRIPTOR),
        _numpy_function(_SET_HANDLER),
        _MethodDefinition(
            b"run", driver().entry, _METH_O, b"run(feeds) -> list of arrays, or None where run() has to look closer"
        ),
    )


def _numpy_function(index: int) -> int:
    """The address of a function of NumPy's C interface, whose table NumPy hands out in a capsule."""
    kind = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    get = kind(("PyCapsule_GetPointer", ctypes.pythonapi))  # one of our own: others set the types of the shared one
    core = getattr(np, "_core", None) or np.core
    table = get(core._multiarray_umath._ARRAY_API, None)
    return ctypes.c_void_p.from_address(table + index * WORD_BYTES).value or 0


@fork_safety.once
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
    shape, strides = word(place + ArrayField.SHAPE), word(place + ArrayField.STRIDES)
    return (
        word(place + OBJECT_TYPE) == id(np.ndarray)
        and word(place + ArrayField.DATA) == address(array)
        and rank == array.ndim
        and tuple(word(shape + axis * WORD_BYTES) for axis in range(rank)) == array.shape
        and tuple(word(strides + axis * WORD_BYTES) for axis in range(rank)) == array.strides
        and word(place + ArrayField.DESCRIPTOR) == descriptor
        and ctypes.c_int32.from_address(descriptor + DescriptorField.TYPE_NUMBER).value == array.dtype.num
        and (order == ">") == (not array.dtype.isnative)
        and bool(flags & Flags.C_CONTIGUOUS) == array.flags.c_contiguous
        and bool(flags & Flags.ALIGNED) == array.flags.aligned
    )
