"""The records that Python fills and native code reads, each a NumPy record type: one definition for both sides.

`native/emit.py` takes offsets and widths from here; `executable`, `threads` and `entry` write through `record()`.
Addresses are int64. Words that one thread writes while others spin on them have 128 bytes to themselves: two cache
lines, as CPUs fetch lines in pairs.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

ALIGNMENT = 64
"""Bytes that arenas, scratch memory and records are aligned to: a cache line, and the widest vector register."""

SEPARATION = 128

Record: TypeAlias = "npt.NDArray[np.void]"

_WORD = np.dtype(np.int64)


def _record(itemsize: int, fields: Mapping[str, tuple[int, npt.DTypeLike]]) -> np.dtype[np.void]:
    """A record type from {name: (offset, type)}."""
    return np.dtype(
        {
            "names": list(fields),
            "offsets": [offset for offset, _ in fields.values()],
            "formats": [np.dtype(kind) for _, kind in fields.values()],
            "itemsize": itemsize,
        }
    )


def _words(*names: str) -> np.dtype[np.void]:
    """A record type of int64 words in this order."""
    return _record(8 * len(names), {name: (8 * index, _WORD) for index, name in enumerate(names)})


ROW = _words("kernel", "pointers", "sizes", "tasks", "threads", "quotient", "remainder", "barrier")
"""One step. `pointers` is a byte offset into the frame's pointer table, `sizes` an address; `quotient` and `remainder`
are those of tasks / threads; `barrier` says that all threads meet after this row."""

PATCH = _words("pointer", "base", "offset")
"""Before a run: pointer table[pointer] = bases[base] + offset. `pointer` and `base` are byte offsets."""

FRAME = _words(
    "rows", "row_count", "worker_begin", "worker_end", "participants", "team",  # the program's, the same in all frames
    "patches", "patch_count", "pointers", "bases", "held", "scratch", "scratch_stride",
)  # fmt: skip
"""The memory of one run. `bases` has the addresses of its inputs, then its outputs; `held` the input objects that a
native entry keeps alive; `scratch` begins the scratch memory of thread 0, `scratch_stride` bytes before that of thread
1. `participants` are the threads that share the work, of which workers walk the rows [worker_begin, worker_end)."""

POOL = _words("count", "frames")
"""Frames that no run is using: the addresses of `count` of them, at the address `frames`."""

_GATE_FIELDS: dict[str, tuple[int, npt.DTypeLike]] = {
    "sleepers": (0, _WORD),
    "mutex": (8, "V64"),
    "condition": (72, "V64"),
}
GATE = _record(136, _GATE_FIELDS)
"""Where threads sleep that have spun long enough. A pthread_mutex_t and pthread_cond_t take 40 to 64 bytes each."""

MAILBOX = _record(
    256,
    {
        "epoch": (0, _WORD),
        "frame": (8, _WORD),
        "gate": (16, GATE),
        "team": (152, _WORD),
        "index": (160, _WORD),
        "start": (168, _WORD),
        "thread": (176, _WORD),
    },
)
"""How a worker gets work: `frame` to walk, and then a new `epoch`. `start` is the epoch it was created at, `thread` its
pthread_t."""

TEAM = _record(
    896,
    {
        "busy": (0, _WORD),
        "arrived": (SEPARATION, _WORD),
        "generation": (2 * SEPARATION, _WORD),
        "gate": (2 * SEPARATION + 8, GATE),
        "mailboxes": (512, _WORD),
        "workers": (520, _WORD),
        "started": (528, _WORD),
        "stop": (536, _WORD),
        "spin": (544, _WORD),
        "patience": (552, _WORD),
        "attributes": (576, "V128"),
        "signals": (704, "V128"),
    },
)
"""A team of threads. `busy` is 1 while a run uses it. At a barrier `arrived` counts, and `generation` opens it. A
waiting thread spins for `spin` nanoseconds, then yields the CPU between looks until `patience` nanoseconds have passed,
then sleeps."""

ENTRY = _words(
    "pool",
    "input_count",
    "inputs",
    "output_count",
    "outputs",
    "release",
    "none",
    "dict_type",
    "array_type",
    "new_array",
)
"""What a native entry knows of its program. `release`: let go of the GIL during the run. `new_array`:
PyArray_NewFromDescr."""

ENTRY_INPUT = _words("name", "type_number", "rank", "shape")
ENTRY_OUTPUT = _words("descriptor", "rank", "shape")


OBJECT_TYPE = 8
"""Where a Python object has its type (after the reference count)."""

WORD_BYTES = 8


class ArrayField(enum.IntEnum):
    """Where an array object has its fields: PyArrayObject_fields of numpy/ndarraytypes.h."""

    DATA = 16
    RANK = 24
    SHAPE = 32
    DESCRIPTOR = 56
    FLAGS = 64


class DescriptorField(enum.IntEnum):
    """Where a dtype object has its fields: PyArray_Descr of numpy/ndarraytypes.h, the same in NumPy 1 and 2."""

    BYTE_ORDER = 26
    TYPE_NUMBER = 28


class Flags(enum.IntFlag):
    """NumPy's NPY_ARRAY_C_CONTIGUOUS and NPY_ARRAY_ALIGNED."""

    C_CONTIGUOUS = 0x1
    ALIGNED = 0x100


def offset(record: np.dtype[np.void], field: str) -> int:
    """How many bytes into a record a field begins."""
    fields = record.fields
    if fields is None:
        raise TypeError(f"Bug: {record} has no fields")
    return fields[field][1]


def address(array: npt.NDArray[np.generic]) -> int:
    """Where an array's first element lies in memory."""
    return int(array.ctypes.data)


def aligned_bytes(size: int, alignment: int = ALIGNMENT) -> npt.NDArray[np.uint8]:
    """`size` bytes, not initialised, at a multiple of `alignment`."""
    memory = np.empty(size + alignment, np.uint8)
    skip = -address(memory) % alignment
    return memory[skip : skip + size]


def records(kind: np.dtype[np.void], count: int = 1) -> Record:
    """`count` records of zeros at an address that suits their atomic words."""
    memory = aligned_bytes(kind.itemsize * count, SEPARATION)
    memory[:] = 0
    return memory.view(kind)
