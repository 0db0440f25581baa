"""A program as the native driver reads it: rows, sizes, pointers and patches, worked out once for all its frames."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from jitonnx.errors import Fail

from .layout import ALIGNMENT, MOST_UNITS, PATCH, ROW, SEPARATION, WORD_BYTES, Record, address, records
from .program import SPACES, Flag, Program, Step

_ARENA, _CONSTANT, _INPUT, _OUTPUT = range(len(SPACES))
_CODES = {space: code for code, space in enumerate(SPACES)}

Words = npt.NDArray[np.int64]

MOST_PIECES = 8
"""A thread's part of a step is taken in pieces that shrink down to this part of it: smaller ones would not make the
threads' ends more even by much, and each piece costs some 20 ns and what its kernel does once a call."""


class Tables(NamedTuple):
    """What all frames of a program share.

    rows: a `ROW` a step. sizes: the integer arguments of all steps, which rows point into.
    pointers: what a frame's pointer table begins as: addresses into constants; offsets into the frame's arena and
    flags, where `in_arena` says so.
    patches: the pointers that each run sets.
    participants: how many threads share a run's work; no row from `shared_end` on is shared.
    scratch_stride: bytes of scratch memory a thread.
    flags_begin: bytes from the beginning of a frame's memory to its `flag_count` flags, which lie behind the arena.
    """

    rows: Record
    sizes: Words
    pointers: Words
    in_arena: npt.NDArray[np.bool_]
    patches: Record
    participants: int
    shared_end: int
    scratch_stride: int
    flags_begin: int
    flag_count: int


def make_tables(program: Program, addresses: Mapping[str, int], threads: int, flags: Sequence[Flag] = ()) -> Tables:
    """Lay a program out for up to `threads` threads. `addresses` has the addresses of its kernels.

    flags: those among its constants; each frame has words of its own for them, as runs that overlap may differ.

    Raises Fail for tensors beyond all memory, and ValueError, beginning with "Bug:", for a program that would read or
    write outside of its own.
    """
    _check_bytes(program)
    steps = program.steps
    shares = [max(0, min(step.threads, step.tasks, threads)) for step in steps]
    shared = [index for index, share in enumerate(shares) if share > 1]
    slots = _slots(steps)
    _check_slots(program, slots)
    sizes, begins = _sizes(steps)
    space, index, offset = slots.T
    constants, in_frame = _constants(program, flags)
    is_constant = space == _CONSTANT
    number = np.where(is_constant, index, 0)
    scratch = max((step.scratch for step in steps), default=0)
    return Tables(
        rows=_rows(steps, addresses, shares, address(sizes) + begins * WORD_BYTES),
        sizes=sizes,
        pointers=np.where(is_constant, constants[number], 0) + offset,
        in_arena=(space == _ARENA) | (is_constant & in_frame[number]),
        patches=_patches(slots, len(program.inputs)),
        participants=max(shares, default=0) if shared else 1,
        shared_end=shared[-1] + 1 if shared else 0,
        # Threads write to their scratch memory at the same time, so no two share a pair of cache lines.
        scratch_stride=-(-scratch // SEPARATION) * SEPARATION,
        flags_begin=_flags_begin(program),
        flag_count=len(flags),
    )


def _flags_begin(program: Program) -> int:
    return -(-program.arena_bytes // ALIGNMENT) * ALIGNMENT


def _constants(program: Program, flags: Sequence[Flag]) -> tuple[Words, npt.NDArray[np.bool_]]:
    """The address of each constant; for one that is a flag its offset in a frame, and True."""
    numbers = {address(flag.word): number for number, flag in enumerate(flags)}
    places = np.array([address(constant) for constant in program.constants] or [0], np.int64)
    in_frame = np.zeros(len(places), np.bool_)
    for index, place in enumerate(places.tolist()):
        if place in numbers:
            places[index], in_frame[index] = _flags_begin(program) + WORD_BYTES * numbers[place], True
    return places, in_frame


def _slots(steps: Sequence[Step]) -> Words:
    """Space, index and offset of each operand of each step, in columns."""
    slots = [slot for step in steps for slot in step.slots]
    spaces = [_CODES[slot.space] for slot in slots]
    return np.array([spaces, [slot.index for slot in slots], [slot.offset for slot in slots]], np.int64).T


def _sizes(steps: Sequence[Step]) -> tuple[Words, Words]:
    """The sizes of all steps, and where those of each begin. Equal layers share one tuple, which lies there once."""
    places: dict[int, int] = {}
    sizes: list[int] = []
    begins = []
    for step in steps:
        begin = places.setdefault(id(step.sizes), len(sizes))
        if begin == len(sizes):
            sizes += step.sizes
        begins.append(begin)
    return np.array(sizes, np.int64), np.array(begins, np.int64)


def _rows(steps: Sequence[Step], addresses: Mapping[str, int], shares: list[int], sizes: Words) -> Record:
    """`sizes`: the address of the sizes of each step."""
    rows = records(ROW, len(steps))
    pointer_counts = np.array([len(step.slots) for step in steps], np.int64)
    tasks = np.array([step.tasks for step in steps], np.int64)
    split = np.maximum(np.array(shares, np.int64), 1)
    unit = np.maximum(1, -(-tasks // MOST_UNITS))
    units = -(-tasks // unit)
    least = np.array([step.grain for step in steps], np.int64)
    rows["kernel"] = [addresses[step.kernel] for step in steps]
    rows["pointers"] = (np.cumsum(pointer_counts) - pointer_counts) * WORD_BYTES
    rows["sizes"] = sizes
    rows["tasks"] = tasks
    rows["threads"] = shares
    rows["unit"] = unit
    rows["grain"] = np.maximum(-(-least // unit), -(-units // (split * MOST_PIECES)))
    rows["quotient"] = units // split
    rows["remainder"] = units % split
    return rows


def _patches(slots: Words, input_count: int) -> Record:
    space, index, offset = slots.T
    places = np.flatnonzero(space >= _INPUT)
    patches = records(PATCH, len(places))
    patches["pointer"] = places * WORD_BYTES
    patches["base"] = (index[places] + np.where(space[places] == _OUTPUT, input_count, 0)) * WORD_BYTES
    patches["offset"] = offset[places]
    return patches


def _check_bytes(program: Program) -> None:
    """All sizes in bytes are numbers of 64 bits."""
    for spec in (*program.inputs, *program.outputs):
        if math.prod(spec.shape) * spec.dtype.itemsize >= 1 << 63:
            raise Fail(f"{spec.name!r} would have the shape {list(spec.shape)}, which is beyond all memory")
    if program.arena_bytes >= 1 << 63:
        raise Fail(f"intermediate results would take {program.arena_bytes} bytes, which is beyond all memory")


def _check_slots(program: Program, slots: Words) -> None:
    """Every operand begins within the memory that it names."""
    for number, constant in enumerate(program.constants):
        if not constant.flags.c_contiguous:
            raise ValueError(f"Bug: constant {number} of shape {constant.shape} is not C-contiguous")
    tensors = [(spec.dtype.itemsize, spec.shape) for spec in (*program.inputs, *program.outputs)]
    limits = np.array(
        [program.arena_bytes]
        + [constant.nbytes for constant in program.constants]
        + [itemsize * math.prod(shape) for itemsize, shape in tensors],
        np.int64,
    )
    counts = np.array([1, len(program.constants), len(program.inputs), len(program.outputs)], np.int64)
    space, index, offset = slots.T
    known = (index >= 0) & (index < counts[space])
    limit = limits[np.where(known, index + (np.cumsum(counts) - counts)[space], 0)]
    wrong = np.flatnonzero(~known | (offset < 0) | (offset > limit))
    if len(wrong):
        step = np.searchsorted(np.cumsum([len(step.slots) for step in program.steps]), wrong[0], side="right")
        found = program.steps[int(step)]
        raise ValueError(
            f"Bug: step {int(step)} ({found.label or found.kernel}) has an operand outside of its memory: "
            f"{SPACES[space[wrong[0]]]} {index[wrong[0]]} at byte {offset[wrong[0]]}"
        )


def frame_bytes(tables: Tables) -> int:
    """Bytes of arena, flags and scratch memory that a frame takes."""
    flags = -(-tables.flag_count * WORD_BYTES // ALIGNMENT) * ALIGNMENT
    return tables.flags_begin + flags + tables.scratch_stride * tables.participants
