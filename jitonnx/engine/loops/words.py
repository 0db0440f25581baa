"""What native code (`runtime/native/loops.py`) reads and writes of a repeated program, in one piece of memory."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from jitonnx.runtime.execution_contexts import Loadable
from jitonnx.runtime.layout import CARRIED, LOOP, WORD_BYTES, offset
from jitonnx.support.records import NamedTuple

if TYPE_CHECKING:
    from jitonnx.engine.loops.step import LoopStep

NUMBER = offset(LOOP, "number") // WORD_BYTES
"""The place of the next iteration's number, in words."""


class WordsParts(NamedTuple):
    """The places at which the parts of a `Words` begin, in words; flags, condition and sums are as native code leaves
    them."""

    bases: int
    strides: int
    carried: int
    programs: int
    flags: int
    condition: int
    stamps: int
    sums: int
    end: int

    @classmethod
    def of(cls, step: LoopStep, programs: int, timed: int) -> WordsParts:
        """Those for so many programs, and kernels that are timed."""
        count, carried = step._idle + 1, step._carried_count * CARRIED.itemsize // WORD_BYTES
        record, flags = LOOP.itemsize // WORD_BYTES, len(step.compiled.flags)
        stamps = timed + 1 if timed else 0
        return cls(*itertools.accumulate((record, count, count, carried, programs, flags, 1, stamps, timed)))


class Words:
    """One piece of memory for all that native code reads and writes of a loop but tensors, as each takes a while.

    programs: how many there are. timed: how many kernels are timed. bases, strides, carried: what is put in by `fill`.
    """

    def __init__(self, step: LoopStep, programs: int, timed: int) -> None:
        self.parts = step.parts_of_words(programs, timed)
        self._timed, self._step = timed, step
        self._words = np.zeros(self.parts.end, np.int64)
        self.address: int = self._words.ctypes.data
        count = step._idle + 1
        self.bases, self.strides, self.carried = [0] * count, [0] * count, list[int]()

    @property
    def flags(self) -> list[int]:
        """What kernels have set."""
        words: list[int] = self._words[self.parts.flags : self.parts.condition].tolist()
        return words

    @property
    def nanoseconds(self) -> np.ndarray:
        """What each kernel took, where that is timed."""
        return self._words[self.parts.sums :]

    @property
    def number(self) -> int:
        """The number of the next iteration."""
        return int(self._words[NUMBER])

    @property
    def condition(self) -> int:
        """The address of the word that the condition is written to."""
        return self.address + WORD_BYTES * self.parts.condition

    def base(self, place: int) -> int:
        """The address of the word that says where an operand lies."""
        return self.address + WORD_BYTES * (self.parts.bases + place)

    def spare(self, index: int) -> int:
        """That of the word that says which buffer is not in use, of what is carried."""
        return self.address + WORD_BYTES * self.parts.carried + index * CARRIED.itemsize + offset(CARRIED, "spare")

    def begin(self, program: Loadable) -> None:
        """Put in all but addresses and numbers that each run puts in."""
        self.fill([program.address], steady=True, number=0, limit=0)

    def follow(self, place: int, array: np.ndarray, position: int, *, back: bool = False) -> None:
        """Have an operand be the row of an array at a position, from its end if `back`, and move on by a row."""
        stride = array.strides[0]
        first = len(array) - 1 - position if back else position
        self.bases[place], self.strides[place] = array.ctypes.data + first * stride, -stride if back else stride

    def fill(self, programs: Sequence[int], *, steady: bool, number: int, limit: int) -> None:
        """Put in what native code reads. programs: addresses; number, limit: of the iterations to do."""
        step, parts = self._step, self.parts
        bases, strides, carried, table, flags, condition, stamps, sums, _ = [
            self.address + WORD_BYTES * begin for begin in parts
        ]
        record = (
            step.frames.address,
            table,
            0 if steady else WORD_BYTES,
            bases,
            strides,
            step._idle,
            carried,
            step._carried_count,
            condition if step._first else 0,
            number,
            limit,
            flags,
            stamps if self._timed else 0,
            sums if self._timed else 0,
        )
        self._words[: parts.flags] = [*record, *self.bases, *self.strides, *self.carried, *programs]
