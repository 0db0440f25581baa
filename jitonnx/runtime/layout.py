"""The records that Python fills and native code reads, each a NumPy record type: one definition for both sides.

`native/functions.py` takes offsets and widths from here; `executable`, `threads` and `entry` write through `record()`.
Addresses are int64. Words that one thread writes while others spin on them have 128 bytes to themselves: two cache
lines, as CPUs fetch lines in pairs.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

ALIGNMENT = 64
"""Bytes that arenas, scratch memory and records are aligned to: a cache line, and the widest vector register."""

SEPARATION = 128

Record: TypeAlias = "npt.NDArray[np.void]"

WORD_BYTES = 8

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


def _words(*names: str, size: int | None = None) -> np.dtype[np.void]:
    """A record type of int64 words in this order, and of so many bytes if it is to have more."""
    places = {name: (WORD_BYTES * index, _WORD) for index, name in enumerate(names)}
    return _record(size or WORD_BYTES * len(names), places)


ROW = _words(
    "kernel", "pointers", "sizes", "tasks", "threads", "unit", "grain", "quotient", "remainder", "piece", "looks",
)  # fmt: skip
"""One step. `pointers` is a byte offset into the frame's pointer table, `sizes` an address. A row of two `threads` or
more is shared: claimed in units of `unit` tasks, at least `grain` of them at a time; `quotient` and `remainder` are
those of its units / threads. A watched run does at most `piece` tasks in one call, and looks at the clock behind it if
`looks` is 1."""

MOST_PIECES = 8
"""A thread's part of a step is taken in pieces that shrink down to this part of it: smaller ones would not make the
threads' ends more even by much, and each piece costs some 20 ns and what its kernel does once a call."""

STEP_COLUMNS = ("size_begin", "size_count", "tasks", "threads", "grain", "scratch", "nanoseconds")
"""The numbers of steps, each a row of words: `program.Steps` says what they are."""

LAYOUT = _words(
    "common_rows", "bases", "limit_places", "outer_places", "common_patches", "operand_count", "patch_count",
    "step_count", "columns", "sizes", "offsets", "limits", "threads",
    "rows", "pointers", "patches",
    "participants", "shared_end", "scratch", "nanoseconds", "unwatched", "wrong",
)  # fmt: skip
"""A program to lay out: what all of its plan have in common (`tables.Common`); its own columns, and the number of
threads; the tables to fill; and what comes out. `limits[limit_places[i]]` are the bytes of the memory that operand i
lies in, `outer_places` the operands in inputs and outputs. `nanoseconds` are those of all steps, `unwatched` those
behind the last row that looks at the clock. `wrong` is 1 if an operand begins outside of its memory."""

PLACEMENT = _words("count", "order", "sizes", "first", "last", "offsets", "placed")
"""Buffers of an arena to place, in an order: their sizes in bytes, the first and the last call that each is alive in;
where their offsets go, and memory for as many `PLACED`."""

PLACED = _words("begin", "end", "first", "last")
"""A buffer that is placed: from where to where, and how long it is alive."""

INSTANTIATION = _words(
    "operations", "registers", "results", "missed", "kind_count", "kind_of", "size_count",
    "placement", "buffer_rows", "buffer_steps", "arena_bytes",
    "operand_rows", "operand_buffers", "bound_count", "bound_rank", "bound_of", "bound_shapes", "bound_strides",
    "tensor_count", "pitch", "shape_rows", "itemsizes", "first_limit",
    "element_count", "element_rows", "own_count", "own_places", "own_begins",
    "common_rows", "limit_places", "outer_places", "common_patches", "operand_count", "patch_count", "step_count",
    "rows", "pointers", "patches", "layout", "bases", "limits", "offsets", "columns", "sizes", "shapes", "elements",
)  # fmt: skip
"""What programs of a plan are made of (`runtime.instantiation`). The last line is where things lie in a program's
block, in bytes. `arena_bytes` is -1 before buffers were placed. `bound_...`: `Bounds` of `runtime.instantiation`."""

PATCH = _words("pointer", "base", "offset")
"""It is done before a run: pointer table[pointer] = bases[base] + offset. `pointer` and `base` are byte offsets."""

LOADED = (
    "number", "rows", "row_count", "shared_end", "participants", "team", "patches", "patch_count", "scratch_stride",
    "flag_count", "flush", "long",
)  # fmt: skip
"""What a frame takes over from the program that it is loaded with, in both records first. `flush` is 1 if runs take
denormal numbers for zeros, `long` if they are watched."""

PROGRAM = _words(*LOADED, "pointers", "in_arena", "pointer_count", "base_count", "scratch_begin", "memory_bytes")
"""A program, as frames are loaded with it. No two of a process have the same `number`, which is not 0. `pointers` are
what the pointer table begins as: addresses of constants, and offsets into the frame's memory where the words at
`in_arena` have all bits set; in the others none. `base_count` inputs and outputs. A frame's memory begins
with the flags; the scratch memory lies `scratch_begin` bytes into it; `memory_bytes` are needed. `participants` are the
threads that share the work; no row from `shared_end` on is shared."""

FRAME = _words(
    "owner", *LOADED, "pointers", "bases", "held", "scratch", "flags", "memory", "memory_bytes", "pointer_limit",
    "base_limit", "extra", "watch", size=2 * SEPARATION,
)  # fmt: skip
"""The memory of one run at a time. `owner` is the thread (its pthread_t) that has set it from 0: all other fields are
that thread's until it sets it back. The rest: loaded with a program; `number` is 0 before the first. `bases` has the
addresses of the inputs, then of the outputs; `held` the input objects that a native entry keeps alive; `scratch` begins
the scratch memory of thread 0, `scratch_stride` bytes before that of thread 1. `flags` are words that kernels set where
they find the data in error. There is room for `pointer_limit` pointers, `base_limit` inputs and outputs, and
`memory_bytes`: all of it one block, which `memory` begins. `watch` is the `WATCH` of the run, or 0. One that is `extra`
belongs to no pool and is freed after its run."""

POOL = _words("frames", "count", "numbers", "asks")
"""The frames of a pool: `count` of them at the address `frames`. Those that nobody needed yet have no memory. `numbers`
is what the next program is numbered that native code makes. `asks`: Python's `ending.still_asked`.
"""

WATCH = _words("thread", "asks", "due", "stop")
"""A native call that may take long, which Python can end. The thread that Python called looks from time to time, from
`due` nanoseconds of the clock on, whether that is asked for; `thread` is its state, which Python gave when it let go of
the GIL, or 0 while it has that. When `stop` is 1 an exception is set, and the kernels that are left are passed over."""

WATCHED_NANOSECONDS = 2_000_000
"""The estimated time from which on runs are watched: estimates may be ten times too low."""
PIECE_NANOSECONDS = 5_000_000
"""The estimated time of a call of a kernel in a watched run, at most."""
LOOK_NANOSECONDS = 20_000
"""The estimated time between looks at the clock, which take 30 ns, in a watched run."""
DUE_NANOSECONDS = 40_000_000
"""The time between two looks whether Python asks for the end. Another thread that has the GIL keeps it for 5 ms."""

FIRST_NATIVE_NUMBER = 1 << 48
"""Programs that Python makes have smaller numbers."""

MEMBER = _record(
    3 * SEPARATION,
    {
        "claim": (0, _WORD),
        "asleep": (8, _WORD),
        "mutex": (SEPARATION, "V64"),
        "condition": (SEPARATION + 64, "V64"),
        "team": (2 * SEPARATION, _WORD),
        "index": (2 * SEPARATION + 8, _WORD),
        "start": (2 * SEPARATION + 16, _WORD),
        "thread": (2 * SEPARATION + 24, _WORD),
    },
)
"""A thread of a team. `claim` says what is left of its part of the row at hand: sequence << 32 | first << 16 | end, the
units [first, end), where `sequence` counts rows. It sleeps on the condition, `asleep` being 1, until the sequence
changes. A worker was created at the sequence `start`; `thread` is its pthread_t. A pthread_mutex_t and pthread_cond_t
take 40 to 64 bytes each."""

MOST_UNITS = 0xFFFE
"""A thread's part of a row ends at this unit or before."""

OVER = 1 << 16
"""A claim without its sequence: the run is over, or the worker is to end. No part of a row begins behind its end."""

TEAM = _record(
    6 * SEPARATION,
    {
        "busy": (0, _WORD),
        "left": (SEPARATION, _WORD),
        "sequence": (2 * SEPARATION, _WORD),
        "frame": (2 * SEPARATION + 8, _WORD),
        "position": (2 * SEPARATION + 16, _WORD),
        "grain": (2 * SEPARATION + 24, _WORD),
        "stamps": (2 * SEPARATION + 32, _WORD),
        "members": (3 * SEPARATION, _WORD),
        "size": (3 * SEPARATION + 8, _WORD),
        "started": (3 * SEPARATION + 16, _WORD),
        "spin": (3 * SEPARATION + 24, _WORD),
        "patience": (3 * SEPARATION + 32, _WORD),
        "attributes": (4 * SEPARATION, "V128"),
        "signals": (5 * SEPARATION, "V128"),
    },
)
"""A team of threads. `busy` is 1 while a run uses it. The row at hand is number `position` of `frame`; `left` counts
its units that are not done. `stamps`: where a timed run notes the clock, else 0. `started` workers run. A waiting
thread spins for `spin` nanoseconds, then yields the CPU between looks until `patience` nanoseconds have passed, then
sleeps."""

KEPT_BLOCKS = 16

BLOCKS = _record(
    48 + 8 * KEPT_BLOCKS,
    {
        "busy": (0, _WORD),
        "count": (8, _WORD),
        "kept": (16, _WORD),
        "limit": (24, _WORD),
        "users": (32, _WORD),
        "least": (40, _WORD),
        "entries": (48, f"V{8 * KEPT_BLOCKS}"),
    },
)
"""Memory kept for outputs of `least` bytes or more: the addresses of `count` blocks, `kept` bytes of at most `limit`,
those freed first in front. Who has set `busy` to 1 may change these. Nothing is kept where there are no `users`, which
are counted up and down."""

ENTRY = _words(
    "pool",
    "program",
    "input_count",
    "inputs",
    "input_shapes",
    "input_pitch",
    "output_count",
    "outputs",
    "output_shapes",
    "output_pitch",
    "aligned",
    "release",
    "none",
    "dict_type",
    "array_type",
    "new_array",
    "set_handler",
    "handler",
)
"""What a native entry knows of its program. The shape of input i is at `input_shapes` + i * `input_pitch`, and so for
outputs; `aligned` has a word for each output, 1 where its memory comes from `handler`. `release`: let go of the GIL
during the run. `new_array`: PyArray_NewFromDescr. `set_handler`: PyDataMem_SetHandler."""

STRINGS = _words(
    "array_type", "string_type", "true", "false", "slots", "mask", "rows", "row_bytes", "columns", "width", "once",
)  # fmt: skip
"""What a look-up of strings reads: addresses of types and of Python's True and False, and a table of `mask` + 1
`STRING_SLOT`s, a power of two. A string becomes the `row_bytes` bytes of its number in `rows`; or, if there are
`columns`, is counted: its weight, a float32 of `rows`, is added to the column of its number (negative: none) in its row
of `width` columns, or with `once` put there."""
STRING_SLOT = _words("text", "length", "hash", "place")
"""A key: where its UTF-8 lies (0: the slot is free), its bytes, their `hashed`, and its number. A key lies in the first
free slot from number hash & mask on."""
HASH_FACTOR = 0x9E3779B97F4A7C15
"""What the hash of a string is multiplied by."""

ENTRY_INPUT = _words("name", "type_number", "rank")
ENTRY_OUTPUT = _words("descriptor", "rank")

BOUND = _words(
    "closed", "number", "object", "call", "count", "leasts", "steps", "rows", "noted", "note",
)  # fmt: skip
"""A model as users' native code calls it. `call`: the code of `jitonnx_call`. `rows` has `count` rows of words, one
for each set of sizes: the addresses of a pool and of the program, the sizes of all inputs, axis for axis, and those of
all outputs. The row for the sizes `s` of inputs is number sum((s[i] - leasts[i]) * steps[i]). `object`: the Python
object, whose `number` errors tell it by. `note`: where the numbers of an error are put that is told later, by who has
set `noted` from 0 to 1: the kind of the error, which is set last, how many follow, and these."""


LOOP = _words(
    "pool", "programs", "program_step", "bases", "strides", "base_count", "carried", "carried_count", "condition",
    "number", "limit", "flags", "stamps", "sums",
)  # fmt: skip
"""Iterations of a body from `number` up to `limit`. `programs` points to the address of the first one's program;
`program_step` bytes behind it is the next one's. `bases` has the addresses of the body's inputs, then of its outputs,
in the next iteration; `strides` says by how many bytes each moves from one to the next. `condition`: the address of a
truth value that says whether to go on, or 0. `flags`: where the words are put that kernels have set. `stamps`: 0, or
where a timed run notes the clock; `sums`: where it adds up the nanoseconds of each row."""

CARRIED = _words("input", "output", "spare")
"""What an iteration hands on: it is written to bases[output] and read by the next at bases[input] (byte offsets);
`spare` is the memory that the next writes to; 0 where that moves on by a stride."""


CHAIN = _words(
    "pool", "links", "link_count", "step_count", "variables", "missed", "done", "large", "large_bytes",
    "aligned_bytes", "none", "unlike",
)  # fmt: skip
"""Links that are done one after the other. `variables`: the values of the dimension variables, then room for checks of
them. `done`: how many steps of `step_count` are done. `large`: whether there was an output of `large_bytes` or more.
The memory of those of `aligned_bytes` or more begins at a cache line. `unlike`: how often further links have done a
loop since its own was for inputs of other types, or none yet."""

LINK = _words(
    "kind", "step", "plan", "block", "program", "entry", "threads", "team", "arena_begin", "quick",
    "variables", "variable_count", "known", "fresh", "checks",
    "inputs", "outputs", "bindings", "binding_count", "drops", "drop_count", "condition", "target", "move_count",
    "observed_loop", "shared", "bytecode_loop",
)  # fmt: skip
"""A link of a chain. `step`: which step of the schedule it is of. `checks`: operations that miss something where sizes
are not what they were taken to be, or 0. `drops`: places of the list that nobody reads any more.

SEGMENT: a program, which is made of `plan` in `block`, and its record `program`, when `variables` (which of the
chain's) have other values than in `known`, or it is `fresh`. A run whose estimated nanoseconds are more than `quick`
lets go of the GIL. `inputs` are `CHAINED_INPUT`, `outputs` places of the list. `shared`: 0 where all outputs are new;
else arrays may lie in their places, which are written to; it points to a word for each output, the input that may be
the same memory, or -1.
CHOICE: goes on at `target` unless the truth value in the place `condition` holds.
MOVE: `move_count` places get what others hold; goes on at `target`.
LOOP: what `observed_loop` says, an `OBSERVED_LOOP`; `entry` has the types of what it reads and makes, `variables` are
those that it depends on; where they are not those that it is for, and `target` is not negative, it goes on there.
ENTER, ELEMENTS, STACK, REPEAT, FINISH: around the links of a loop's body, as `bytecode_loop` says, a `BYTECODE_LOOP`.
ENTER goes on at `target` where there is no iteration, REPEAT where there is a further one.
LEFT: Python has to do the step.
SIZES: the variables become sizes of the inputs, arrays that `entry` describes, of any sizes where it has -1."""

CHAINED_INPUT = _words("slot", "made")
"""An input: which place of the list, and whether a link has put there what lies in it."""

BINDING = _words("slot", "itemsize", "place", "count", "variable")
"""Variable number `variable` is the element `place` of the integers in a place of the list, of which the first `count`
must not be negative; of `itemsize` 0: it is the size of axis `place`."""

OBSERVED_LOOP = _words(
    "loop", "first", "most", "trips", "trip_variable", "condition", "first_row", "addresses", "known", "operands",
    "operand_count", "results", "result_count", "lengths", "length_count",
)  # fmt: skip
"""A loop of a chain, for inputs of certain types: a `LOOP` that is filled in for each run, the number of the `first`
iteration and how many there may be at `most`. `trips`, `condition`: which inputs say how many there are and whether to
begin, or -1; `trip_variable`: which variable says how many. Arrays that it makes are rows from number `first_row` on.
`addresses`: room for those of inputs and made arrays. `known`: the values of the link's variables that it is for."""

LOOP_OPERAND = _words("target", "tensor", "offset", "back")
"""The word at the address `target` is the address of a tensor, inputs and then made arrays, plus `offset` bytes; of
what is gone through from its end that of its last element, `back` bytes each."""

LOOP_RESULT = _words("kind", "tensor", "other", "back", "bytes")
"""An output of a loop, a `LoopGives`."""

LOOP_LENGTH = _words("input", "scanned")
"""An input that is gone through: `scanned` ones have as many elements as there are iterations, others at least as
many."""


BYTECODE_LOOP = _words(
    "first", "number", "limit", "capacity", "trips", "trip_variable", "condition", "again",
    "entry", "inputs", "rows", "row_count", "addresses", "empty", "shape_words",
    "step", "slots", "elements", "element_count",
)  # fmt: skip
"""A loop of a chain whose body is links of the chain. Iterations have numbers from `first` on, and less than `limit`;
`number` is the next one's. `trips`, `condition`: the places of what says how many there are and whether to begin, or
-1; `trip_variable`: the variable that says how many, or -1; `again`: the place of what says whether to go on, or -1.

`entry` has the types of rows, then of what is gone through, with sizes that may be any, and those of the stacked rows,
which have memory for `capacity` rows; where there are none their shapes, of `shape_words` words, are in `empty`, with
the complement of a variable's number for its value. `inputs`: the places of what `entry` reads. `step` has the types of
what each iteration gets: its number, and an element of each tensor that is gone through; `slots`: their places.
`addresses`: room for those of made arrays."""

LOOP_ROW = _words("stack", "output", "itemsize", "back")
"""A row that is stacked: the place of the stack, that of the loop's output, and whether the first row lies last."""

LOOP_ELEMENT = _words("itemsize", "back", "scanned")
"""A tensor that is gone through, from its end if `back`. `scanned`: it has as many elements as there are iterations;
else an iteration reads the one of its number."""


class Opcode(enum.IntEnum):
    """What a link of a chain does."""

    SEGMENT = 0
    CHOICE = 1
    MOVE = 2
    LEFT = 3
    LOOP = 4
    SIZES = 5
    PASS = 6
    """A loop of which it is not known yet how it is done in one go: further links do it."""
    SKIP = 7
    """A loop that can't be done in one go: further links do it."""
    ENTER = 8
    """A loop begins: how many iterations there are is read."""
    ELEMENTS = 9
    """An iteration begins: its number and elements are made."""
    STACK = 10
    """Its rows are stacked."""
    REPEAT = 11
    """It has ended."""
    FINISH = 12
    """The loop has ended: stacks are handed on."""


NO_LIMIT = (1 << 63) - 1
"""The number of iterations of a loop that its condition ends: what exporters write for one, too."""


class LoopGives(enum.IntEnum):
    """What an output of a loop is."""

    GIVEN = 0
    """Input number `tensor`."""
    EITHER = 1
    """The made array `tensor` after an odd number of iterations, `other` after an even one."""
    ROWS = 2
    """The made array `tensor`, as many rows of it as there were iterations."""
    LAST = 3
    """The made array `tensor`, which gets the last of the rows `other`, of `bytes` each; it lies first where
    `back` is 1."""


class LoopEnd(enum.IntEnum):
    """Why a loop came back."""

    MEMORY = 0
    """There is not enough for a frame."""
    LIMIT = 1
    FALSE = 2
    """The condition does not hold any more."""
    FLAGGED = 3
    """Kernels have set flags."""
    STOPPED = 4
    """Python has ended it: an exception is set."""


OBJECT_TYPE = 8
"""A Python object has its type there (after the reference count)."""


class ArrayField(enum.IntEnum):
    """The offsets of an array object's fields, in bytes: PyArrayObject_fields of numpy/ndarraytypes.h."""

    DATA = 16
    RANK = 24
    SHAPE = 32
    STRIDES = 40
    DESCRIPTOR = 56
    FLAGS = 64


class DescriptorField(enum.IntEnum):
    """The offsets of a dtype object's fields, in bytes: PyArray_Descr of numpy/ndarraytypes.h, the same in NumPy 1 and
    2."""

    BYTE_ORDER = 26
    TYPE_NUMBER = 28


class Flags(enum.IntFlag):
    """NumPy's NPY_ARRAY_C_CONTIGUOUS, NPY_ARRAY_ALIGNED and NPY_ARRAY_WRITEABLE."""

    C_CONTIGUOUS = 0x1
    ALIGNED = 0x100
    WRITEABLE = 0x400


def offset(record: np.dtype[np.void], field: str) -> int:
    """How many bytes into a record a field begins."""
    fields = record.fields
    if fields is None:
        raise TypeError(f"Bug: {record} has no fields")
    return fields[field][1]


def address(array: npt.NDArray[np.generic]) -> int:
    """The address of an array's first element, for native code to read or write."""
    if array.dtype.hasobject:
        raise TypeError("Bug: native code would read or write references to Python's objects, which it cannot count")
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
