"""Runs of a loop by Python: of a repeated program, or of one for each iteration where sizes of what is carried change.

Programs of sizes to come are made ahead, as many again each time, so a cache that grows takes few native calls.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from jitonnx.engine.interpreter import failure
from jitonnx.errors import InvalidArgument, RuntimeException
from jitonnx.runtime.driver import chains_driver
from jitonnx.runtime.layout import WORD_BYTES, LoopEnd

if TYPE_CHECKING:
    from jitonnx.engine.loops.step import Iteration, LoopStep
    from jitonnx.engine.loops.words import Words

ROWS_AT_ONCE, ROW_BYTES_AT_ONCE = 64, 1 << 26
"""Memory for stacked results is taken for all iterations that there can be if it is not more than so many bytes; else
for so many rows, and twice as many whenever these are not enough."""
PROGRAMS_AHEAD = 4
"""Programs of sizes to come that are made before it is known whether the loop comes to them, at least."""


class LoopRun:
    """One run of a loop with at least one iteration."""

    def __init__(
        self,
        step: LoopStep,
        states: list[np.ndarray],
        captured: Sequence[np.ndarray],
        followed: Sequence[np.ndarray],
        scanned: Sequence[np.ndarray],
        limit: int | None,
        sizes: Mapping[str, int],
    ) -> None:
        self._step, self._states, self._followed = step, states, followed
        self._read = [*captured, *followed, *scanned]
        self._first = step.parts.first
        self._reach = min([len(array) for array in followed], default=1 << 62) - self._first
        """There are no further elements of what is followed after so many iterations."""
        self._limit = (1 << 62) if limit is None else limit
        self._sizes = sizes
        self._elements = [array.shape[1:] for array in scanned]
        self._rows: list[np.ndarray] = []
        self._appended: dict[int, np.ndarray] = {}
        """The memory of what is appended to where it lies, by number among the pairs of the step."""
        self.seconds: np.ndarray | None = None
        """The seconds that each kernel took, added up over iterations; None if nobody asks."""
        self._number, self._goes_on = 0, True
        self.steady: Iteration | None = None
        """What all iterations are of, if they are of one program."""

    @property
    def count(self) -> int:
        """How many iterations are done."""
        return self._number

    def result(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """What is carried behind the last iteration, and what was stacked."""
        ahead = PROGRAMS_AHEAD
        while self._goes_on and self._number < self._limit:
            if self._number >= self._reach:
                raise InvalidArgument(self._out_of_range())
            programs = self._programs(ahead)
            if self._number == 0 and programs[0].steady:
                self.steady = programs[0]
            ahead *= 2
            self._make_room(programs)
            self._advance(programs)
        count = self._number
        for row in self._rows:
            if len(row) > count:
                row.resize((count, *row.shape[1:]), refcheck=False)
        return self._states, self._rows

    def _out_of_range(self) -> str:
        lengths = [len(array) for array in self._followed]
        return self._step.followed[lengths.index(min(lengths))][1]

    def _programs(self, ahead: int) -> list[Iteration]:
        """Programs of the next iterations; one alone serves all that follow if sizes stay as they are."""
        step = self._step
        shapes, number = [array.shape for array in self._states], self._number + self._first
        chain: list[Iteration] = []
        while len(chain) < self._limit - self._number:
            key = step.iteration(number + len(chain), shapes, self._elements, self._sizes)
            found = step.known(key)
            if found is None:
                if chain and not ahead:
                    break
                found, ahead = step.made(key), max(ahead - 1, 0)
            if chain and (found.steady or found.rows != chain[0].rows):
                break
            chain.append(found)
            if found.steady:
                break
            for place, shape in zip(step.carried, found.made, strict=True):
                shapes[place] = shape
        return chain

    def _make_room(self, programs: Sequence[Iteration]) -> None:
        """Have memory for the next rows."""
        shapes = programs[0].rows
        kinds = self._step.row_kinds
        if not self._rows:
            self._rows = [
                np.empty((self._capacity(math.prod(shape) * kind.itemsize), *shape), kind)
                for shape, kind in zip(shapes, kinds, strict=True)
            ]
            return
        for index, (row, shape) in enumerate(zip(self._rows, shapes, strict=True)):
            if row.shape[1:] != shape:
                raise failure(
                    self._step.node,
                    f"an element that the body gives has the shapes {sorted({row.shape[1:], shape})} "
                    "in different iterations",
                )
            if len(row) <= self._number:
                larger = np.empty((min(2 * len(row), self._limit), *shape), row.dtype)
                larger[: self._number] = row[: self._number]
                self._rows[index] = larger

    def _capacity(self, row_bytes: int) -> int:
        """How many rows to take memory for."""
        return self._limit if self._limit * row_bytes <= ROW_BYTES_AT_ONCE else min(self._limit, ROWS_AT_ONCE)

    def _advance(self, programs: Sequence[Iteration]) -> None:
        """Run as many iterations as there are programs and memory for; all of them on one that is steady."""
        step, steady, number = self._step, programs[0].steady, self._number
        limit = min([self._limit if steady else number + len(programs), self._reach, *map(len, self._rows)])
        words = step.words(len(programs), 0 if self.seconds is None else len(self.seconds))
        self._place_given(words)
        self._place_rows(words)
        buffers = self._place_carried(words, programs, several=limit - number > 1)
        addresses = [one.loadable.address for one in programs]
        words.fill(addresses, steady=steady, number=number + self._first, limit=limit + self._first)
        end = LoopEnd(chains_driver().loop(words.address))
        if self.seconds is not None:
            self.seconds += words.nanoseconds * 1e-9
        if end is LoopEnd.MEMORY:
            raise RuntimeException("There is not enough memory for the intermediate results of a loop's body")
        if end is LoopEnd.FLAGGED:
            flags = zip(step.compiled.flags, words.flags, strict=True)
            raise InvalidArgument("; ".join([flag.text for flag, word in flags if word]))
        self._number, self._goes_on = words.number - self._first, end is not LoopEnd.FALSE
        done = self._number - number
        self._take_over(programs[0] if steady else programs[done - 1], [pair[(done - 1) % 2] for pair in buffers])

    def _place_given(self, words: Words) -> None:
        """Writes the addresses of the body's inputs: number and condition, what is captured, carried and gone
        through."""
        step, number, bases = self._step, self._number, words.bases
        for read, array in zip(step.reads, (*self._states, *self._read), strict=True):
            if read is not None and read.moves:
                words.follow(read.place, array, number + self._first, back=read.back)
            elif read is not None:
                bases[read.place] = array.ctypes.data

    def _place_rows(self, words: Words) -> None:
        """Writes the addresses to which the rows of stacked results go."""
        parts, first = self._step.parts, self._step.row_place
        for place, (array, back) in enumerate(zip(self._rows, parts.rows_backwards, strict=True), first):
            words.follow(place, array, self._number, back=bool(back))

    def _place_carried(
        self, words: Words, programs: Sequence[Iteration], *, several: bool
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """The buffers that hold what is carried in turn, the second of no bytes unless there are several iterations."""
        buffers, grown = [], self._step.grown
        for index, (given, made) in enumerate(self._step.pairs):
            size = max([one.bytes[index] for one in programs])
            if index in grown and not programs[0].steady:
                memory = self._memory_to_append_to(index, size)
                words.bases[given] = words.bases[made] = memory.ctypes.data
                buffers.append((memory, memory))
                words.carried += given * WORD_BYTES, made * WORD_BYTES, 0
                continue
            self._appended.pop(index, None)
            pair = np.empty(size, np.uint8), np.empty(size if several else 0, np.uint8)
            buffers.append(pair)
            words.bases[made] = pair[0].ctypes.data
            words.carried += given * WORD_BYTES, made * WORD_BYTES, pair[1].ctypes.data
        for given, made in self._step.row_links:
            words.carried += given * WORD_BYTES, made * WORD_BYTES, 0
        return buffers

    def _memory_to_append_to(self, index: int, size: int) -> np.ndarray:
        """Memory of `size` bytes at least that begins with what is carried: twice as much whenever it is not enough."""
        state, memory = self._states[self._step.carried[index]], self._appended.get(index)
        if memory is None or len(memory) < size:
            memory = self._appended[index] = np.empty(size if memory is None else max(size, 2 * len(memory)), np.uint8)
            memory[: state.nbytes] = state.reshape(-1).view(np.uint8)
        return memory

    def _take_over(self, last: Iteration, buffers: Sequence[np.ndarray]) -> None:
        """Have the states be what the last iteration has given. buffers: those that it has written to."""
        step = self._step
        for index, place in enumerate(step.carried):
            memory = buffers[index][: last.bytes[index]]
            self._states[place] = memory.view(step.kinds[index]).reshape(last.made[index])
        for place, index in step.stacked:
            rows = self._rows[index]
            at = len(rows) - self._number if self._step.parts.rows_backwards[index] else self._number - 1
            self._states[place] = np.array(rows[at])  # a view would not outlive a change of the number of rows
