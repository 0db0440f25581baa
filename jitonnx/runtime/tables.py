"""A program as the native driver reads it: rows, sizes, pointers and patches, worked out once for all its frames.

Steps are columns of numbers, and what does not depend on sizes is worked out once a plan (`Common`), so that a new
shape costs a few calls of NumPy and a native one, however many steps there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from jitonnx.support.records import NamedTuple

from .driver import driver
from .layout import ALIGNMENT, LAYOUT, PATCH, ROW, SEPARATION, WORD_BYTES, Record, address
from .program import (
    SPACES,
    Flag,
    OutOfBounds,
    Program,
    Steps,
    TensorKinds,
    Wiring,
    Words,
    arena_beyond_memory,
    beyond_memory,
    operand_named,
)
from .signature import Signature

if TYPE_CHECKING:
    import numpy.typing as npt

_ARENA, _CONSTANT, _INPUT, _OUTPUT = range(len(SPACES))


class Common:
    """What the programs of one wiring share, with the addresses of its kernels and of the constants that all share.

    constants: None for those that each program has of its own.
    flags: those among the constants; each frame has words of its own for them, as runs that overlap may differ. They
    begin a frame's memory; the arena follows, then scratch memory.

    Raises ValueError, beginning with "Bug:", for constants that are not contiguous and operands that there are not.
    """

    def __init__(
        self,
        wiring: Wiring,
        constants: Sequence[npt.NDArray[np.generic] | None],
        inputs: TensorKinds,
        outputs: TensorKinds,
        addresses: Mapping[str, int],
        flags: Sequence[Flag] = (),
    ) -> None:
        self.wiring, self.addresses, self.flags = wiring, addresses, flags
        self.signature = Signature(inputs, outputs)
        tensors = len(inputs.names), len(outputs.names)
        self.arena_begin = _aligned(WORD_BYTES * len(flags), ALIGNMENT)
        self.constants = constants
        """They hold the memory that pointers go to."""
        starts = np.concatenate([[0], wiring.ends[:-1]]) if len(wiring.ends) else wiring.ends
        self._rows = np.zeros(len(wiring.kernels), ROW)
        self._rows["kernel"] = [addresses[kernel] for kernel in wiring.kernels]
        self._rows["pointers"] = starts * WORD_BYTES
        places, in_frame = _places(constants, flags)
        space, index = wiring.spaces, wiring.indices
        counts = np.array([1, len(constants), *tensors], np.int64)
        for place in np.flatnonzero((index < 0) | (index >= counts[space])).tolist():
            raise ValueError(f"Bug: there is no {operand_named(wiring, place)}")
        _check_memory(wiring, inputs, outputs)
        is_arena, is_constant = space == _ARENA, space == _CONSTANT
        number = np.where(is_constant, index, 0)
        self._bases = np.where(is_arena, self.arena_begin, np.where(is_constant, places[number], 0))
        self.in_arena = -(is_arena | (is_constant & in_frame[number])).astype(np.int64)
        own = np.array([constant is None for constant in constants] or [False])
        self._own_places = np.flatnonzero(is_constant & own[number])
        """The operands that are constants of each program's own."""
        self._outer_places = np.flatnonzero(space >= _INPUT)
        """The operands in inputs and outputs."""
        outer = space[self._outer_places]
        self._patches = np.zeros(len(outer), PATCH)
        self._patches["pointer"] = self._outer_places * WORD_BYTES
        further = np.where(outer == _OUTPUT, tensors[0], 0)
        self._patches["base"] = (index[self._outer_places] + further) * WORD_BYTES
        self.limit_places = index + (np.cumsum(counts) - counts)[space]
        """Which number of `limits` is that of an operand's memory."""
        nbytes = [0 if constant is None else constant.nbytes for constant in constants]
        self._limits = np.array([0, *nbytes, *(0 for _ in range(sum(tensors)))], np.int64)

        self.patch_count, self.in_arena_place = len(self._patches), address(self.in_arena)
        fixed = self._rows, self.limit_places, self._outer_places, self._patches
        self._rows_address, *self._addresses = map(address, fixed)

    def fixed(self, bases: Words) -> tuple[int, ...]:
        """What begins a `LAYOUT`."""
        return self._rows_address, address(bases), *self._addresses, len(bases), self.patch_count

    def bases(self, program: Program) -> Words:
        """What each operand's offset counts from: an address; a place in a frame where `in_arena` has all bits set."""
        own = self._own_places
        if not len(own):
            return self._bases
        bases = self._bases.copy()
        bases[own] = [address(program.constants[index]) for index in self.wiring.indices[own].tolist()]
        return bases

    @property
    def own_operands(self) -> Sequence[tuple[int, int]]:
        """Which operands are constants of each program's own, and which constant each is."""
        places = self._own_places.tolist()
        return list(zip(places, self.wiring.indices[self._own_places].tolist(), strict=True))

    def template(self, own_bytes: Mapping[int, int]) -> tuple[Words, Words]:
        """`bases` and `limits` with what all programs have in common. own_bytes: of constants of each program's own."""
        limits = self._limits.copy()
        for number, nbytes in own_bytes.items():
            limits[1 + number] = nbytes
        return self._bases.copy(), limits

    def limits(self, program: Program, tensor_bytes: npt.NDArray[np.float64]) -> Words:
        """The bytes of arena, constants, inputs and outputs."""
        limits = self._limits.copy()
        limits[0] = program.arena_bytes
        for number in set(self.wiring.indices[self._own_places].tolist()):
            limits[1 + number] = program.constants[number].nbytes
        limits[len(limits) - len(tensor_bytes) :] = tensor_bytes
        return limits


def _check_memory(wiring: Wiring, inputs: TensorKinds, outputs: TensorKinds) -> None:
    """No output is of Python's objects, and no operand lies in an input of such, which has a shape and no memory."""
    read = set(wiring.indices[wiring.spaces == _INPUT].tolist())
    objects = [name for name, dtype in zip(outputs.names, outputs.dtypes, strict=True) if dtype.hasobject]
    objects += [name for number, name in enumerate(inputs.names) if inputs.dtypes[number].hasobject and number in read]
    if objects:
        raise ValueError(f"Bug: native code would read or write the strings of {', '.join(map(repr, objects))}")


class Filled(NamedTuple):
    """What comes out of a `LAYOUT`, whose last words these are; as it begins.

    scratch: bytes that a thread needs.
    """

    participants: int = 1
    shared_end: int = 0
    scratch: int = 0
    nanoseconds: int = 0
    unwatched: int = 0
    wrong: int = 0

    @classmethod
    def of(cls, words: Sequence[int]) -> Filled:
        """That of a layout's words."""
        return cls(*words[-len(cls._fields) :])


class Tables(NamedTuple):
    """What a program is for frames: one piece of memory, `words`, and the addresses of what lies in it.

    rows: a `ROW` each of `row_count` steps. pointers: what a frame's pointer table begins as: addresses into constants;
    offsets into the frame's memory where the words of `Common.in_arena` have all bits set. patches: the pointers that
    each run sets.
    participants: how many threads share a run's work; no row from `shared_end` on is shared.
    scratch_stride: bytes of scratch memory a thread, which begins `scratch_begin` bytes into the frame's memory.
    memory_bytes: how much memory a frame needs. nanoseconds: about what all steps take on one core.
    """

    words: Words
    row_count: int
    rows: int
    pointers: int
    patches: int
    participants: int
    shared_end: int
    scratch_stride: int
    scratch_begin: int
    memory_bytes: int
    nanoseconds: int

    @property
    def records(self) -> Record:
        """The rows, to be looked at."""
        return self.words[: self.row_count * ROW.itemsize // WORD_BYTES].view(ROW)


def make_tables(program: Program, common: Common, threads: int) -> Tables:
    """Lay a program out for up to `threads` threads. common: of its steps' wiring, and made for its constants.

    Raises Fail for tensors beyond all memory, OutOfBounds for operands that begin outside of their own.
    """
    steps = program.steps
    tensor_bytes = np.concatenate([program.inputs.nbytes, program.outputs.nbytes])
    _check_bytes(program, tensor_bytes)
    limits, bases = common.limits(program, tensor_bytes), common.bases(program)
    row_count, count = len(steps), len(bases)
    row_bytes, pointer_bytes = row_count * ROW.itemsize, count * WORD_BYTES
    words = np.empty((row_bytes + pointer_bytes + common.patch_count * PATCH.itemsize) // WORD_BYTES, np.int64)
    rows = address(words)
    pointers = rows + row_bytes
    patches = pointers + pointer_bytes
    layout = np.zeros(1, LAYOUT)
    layout[0] = (
        *common.fixed(bases),
        row_count,
        address(steps.columns),
        address(steps.sizes),
        address(steps.offsets),
        address(limits),
        threads,
        rows,
        pointers,
        patches,
        *Filled(),
    )
    driver().lay_out(address(layout))
    filled = Filled.of(layout[0].item())
    if filled.wrong:
        _check_offsets(steps, limits[common.limit_places])
    return laid_out(common, words, row_count, (rows, pointers, patches), filled, program.arena_bytes)


def laid_out(
    common: Common,
    words: Words,
    row_count: int,
    places: tuple[int, int, int],
    filled: Filled,
    arena_bytes: int,
) -> Tables:
    """The tables that lie in `words`. places: the addresses of rows, pointers and patches."""
    rows, pointers, patches = places
    # Threads write to their scratch memory at the same time, so no two share a pair of cache lines.
    stride = _aligned(filled.scratch, SEPARATION)
    scratch_begin = _aligned(common.arena_begin + arena_bytes, SEPARATION)
    memory_bytes = scratch_begin + stride * filled.participants
    return Tables(
        words,
        row_count,
        rows,
        pointers,
        patches,
        filled.participants,
        filled.shared_end,
        stride,
        scratch_begin,
        memory_bytes,
        filled.nanoseconds,
    )


def _aligned(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def _places(
    constants: Sequence[npt.NDArray[np.generic] | None], flags: Sequence[Flag]
) -> tuple[Words, npt.NDArray[np.bool_]]:
    """The address of each constant; for one that is a flag its offset in a frame, and True."""
    for number, constant in enumerate(constants):
        if constant is not None and not constant.flags.c_contiguous:
            raise ValueError(f"Bug: constant {number} of shape {constant.shape} is not C-contiguous")
    numbers = {address(flag.word): number for number, flag in enumerate(flags)}
    places = np.array([0 if constant is None else address(constant) for constant in constants] or [0], np.int64)
    in_frame = np.zeros(len(places), np.bool_)
    for index, place in enumerate(places.tolist()):
        if place in numbers:
            places[index], in_frame[index] = WORD_BYTES * numbers[place], True
    return places, in_frame


def _check_bytes(program: Program, tensor_bytes: npt.NDArray[np.float64]) -> None:
    """Fail if any number of bytes takes more than 63 bits."""
    for number in np.flatnonzero(tensor_bytes >= 1 << 63).tolist():
        raise beyond_memory([*program.inputs, *program.outputs][number])
    if program.arena_bytes >= 1 << 63:
        raise arena_beyond_memory(program.arena_bytes)


def _check_offsets(steps: Steps, limits: Words) -> None:
    """OutOfBounds for an operand that begins outside of its memory, unless its step is passed over. limits: bytes."""
    for place in np.flatnonzero((steps.offsets < 0) | (steps.offsets > limits)).tolist():
        if steps[int(np.searchsorted(steps.wiring.ends, place, side="right"))].tasks:
            raise OutOfBounds(steps.wiring, place)
