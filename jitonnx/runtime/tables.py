"""A program as the native driver reads it: rows, sizes, pointers and patches, worked out once for all its frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .layout import ALIGNMENT, PATCH, ROW, SEPARATION, WORD_BYTES, Record, address, records
from .program import SPACES, Program, Step

_ARENA, _CONSTANT, _INPUT, _OUTPUT = range(len(SPACES))
_CODES = {space: code for code, space in enumerate(SPACES)}

Words = npt.NDArray[np.int64]


class Tables(NamedTuple):
    """What all frames of a program share.

    rows: a `ROW` a step. sizes: the integer arguments of all steps, which rows point into.
    pointers: what a frame's pointer table begins as: addresses into constants; offsets into the arena, where
    `in_arena` says so.
    patches: the pointers that each run sets.
    participants: how many threads share a run's work; workers walk the rows [worker_begin, worker_end).
    scratch_stride: bytes of scratch memory a thread.
    """

    rows: Record
    sizes: Words
    pointers: Words
    in_arena: npt.NDArray[np.bool_]
    patches: Record
    participants: int
    worker_begin: int
    worker_end: int
    scratch_stride: int


def make_tables(program: Program, addresses: Mapping[str, int], threads: int) -> Tables:
    """Lay a program out for up to `threads` threads. `addresses` has the addresses of its kernels.

    Raises ValueError, beginning with "Bug:", for a program that would read or write outside of its memory.
    """
    steps = program.steps
    shares = [max(0, min(step.threads, step.tasks, threads)) for step in steps]
    barriers = place_barriers([step.barrier for step in steps], shares)
    shared = [index for index, share in enumerate(shares) if share > 1]
    slots = np.array(
        [(_CODES[slot.space], slot.index, slot.offset) for step in steps for slot in step.slots], np.int64
    ).reshape(-1, 3)
    _check_slots(program, slots)
    sizes = np.array([size for step in steps for size in step.sizes], np.int64)
    space, index, offset = slots.T
    constants = np.array([address(constant) for constant in program.constants] or [0], np.int64)
    scratch = max((step.scratch for step in steps), default=0)
    return Tables(
        rows=_rows(steps, addresses, shares, barriers, address(sizes)),
        sizes=sizes,
        pointers=np.where(space == _CONSTANT, constants[np.where(space == _CONSTANT, index, 0)], 0) + offset,
        in_arena=space == _ARENA,
        patches=_patches(slots, len(program.inputs)),
        participants=max(shares, default=0) if shared else 1,
        worker_begin=min([*shared, *(i for i, barrier in enumerate(barriers) if barrier)]) if shared else 0,
        worker_end=shared[-1] + 1 if shared else 0,
        # Threads write to their scratch memory at the same time, so no two share a pair of cache lines.
        scratch_stride=-(-scratch // SEPARATION) * SEPARATION,
    )


def place_barriers(wanted: Sequence[bool], shares: Sequence[int]) -> list[bool]:
    """Behind which steps all threads really have to meet.

    `wanted` says which steps have to be over before the next begins, `shares` how many threads each is split among.
    Between steps that the calling thread does alone nobody has to wait; the meeting is put off until a step that is
    shared. After the last shared step all meet, so that the workers are done when the run is.

    >>> place_barriers([True, True, True, True, True], [1, 1, 2, 2, 1])
    [False, True, True, True, False]
    """
    barriers = [False] * len(shares)
    shared = [index for index, share in enumerate(shares) if share > 1]
    if not shared:
        return barriers
    pending, since_meeting = False, False  # a barrier is owed; a shared step ran since the last meeting
    for index in range(shared[-1]):
        pending |= wanted[index]
        since_meeting |= shares[index] > 1
        if pending and (since_meeting or shares[index + 1] > 1):
            barriers[index] = True
            pending = since_meeting = False
    barriers[shared[-1]] = True
    return barriers


def _rows(
    steps: Sequence[Step], addresses: Mapping[str, int], shares: list[int], barriers: list[bool], sizes: int
) -> Record:
    rows = records(ROW, len(steps))
    pointer_counts = np.array([len(step.slots) for step in steps], np.int64)
    size_counts = np.array([len(step.sizes) for step in steps], np.int64)
    tasks = np.array([step.tasks for step in steps], np.int64)
    split = np.maximum(np.array(shares, np.int64), 1)
    rows["kernel"] = [addresses[step.kernel] for step in steps]
    rows["pointers"] = (np.cumsum(pointer_counts) - pointer_counts) * WORD_BYTES
    rows["sizes"] = sizes + (np.cumsum(size_counts) - size_counts) * WORD_BYTES
    rows["tasks"] = tasks
    rows["threads"] = shares
    rows["quotient"] = tasks // split
    rows["remainder"] = tasks % split
    rows["barrier"] = barriers
    return rows


def _patches(slots: Words, input_count: int) -> Record:
    space, index, offset = slots.T
    places = np.flatnonzero(space >= _INPUT)
    patches = records(PATCH, len(places))
    patches["pointer"] = places * WORD_BYTES
    patches["base"] = (index[places] + np.where(space[places] == _OUTPUT, input_count, 0)) * WORD_BYTES
    patches["offset"] = offset[places]
    return patches


def _check_slots(program: Program, slots: Words) -> None:
    """Every operand begins within the memory that it names."""
    for number, constant in enumerate(program.constants):
        if not constant.flags.c_contiguous:
            raise ValueError(f"Bug: constant {number} of shape {constant.shape} is not C-contiguous")
    tensors = [(spec.dtype.itemsize, spec.shape) for spec in (*program.inputs, *program.outputs)]
    limits = np.array(
        [program.arena_bytes]
        + [constant.nbytes for constant in program.constants]
        + [itemsize * int(np.prod(shape, dtype=np.int64)) for itemsize, shape in tensors],
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


def frame_bytes(tables: Tables, arena_bytes: int) -> int:
    """Bytes of arena and scratch memory that a frame takes."""
    return -(-arena_bytes // ALIGNMENT) * ALIGNMENT + tables.scratch_stride * tables.participants
