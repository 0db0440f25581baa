"""A loop whose body is links of a chain: what native code (`native/bytecode_loops.py`) reads and writes of it.

BytecodeLoop(pool, BytecodeLoopPlaces(…))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jitonnx.support.records import NamedTuple

from .entry import entry_record
from .execution_contexts import ExecutionContextPool
from .layout import ENTRY_INPUT, ENTRY_OUTPUT, ITERATED, ITERATED_ELEMENT, ITERATED_ROW, WORD_BYTES, address

_ANY = -1


def size_of(variable: int) -> int:
    """What stands for the value of a variable, by its number, among sizes."""
    return ~variable


class RowPlaces(NamedTuple):
    """A row that is stacked. place, stack, output: those of the list that hold it, the stack, and the loop's output.

    empty: the shape where there is no iteration, with `size_of` a variable for sizes that are ones. back: whether the
    first row lies last.
    """

    place: int
    stack: int
    output: int
    dtype: np.dtype[Any]
    empty: tuple[int, ...]
    back: bool


class ElementPlaces(NamedTuple):
    """A tensor that is gone through, at `place` of the list; an iteration finds its element at `element`.

    rank: of the tensor. back: from its end. scanned: it says how many iterations there are.
    """

    place: int
    element: int
    dtype: np.dtype[Any]
    rank: int
    back: bool = False
    scanned: bool = True


class BytecodeLoopPlaces(NamedTuple):
    """A loop. trips, condition, again: places of what says how many iterations there are at most, whether to begin, and
    whether to go on, or -1. trip_variable: the number of the variable that says how many, or -1. number: the place of
    the iteration's number. first: that of the first one.
    """

    first: int
    number: int
    trips: int
    trip_variable: int
    condition: int
    again: int
    rows: tuple[RowPlaces, ...]
    elements: tuple[ElementPlaces, ...]


class BytecodeLoop:
    """An `ITERATED`, and what it points to."""

    def __init__(self, pool: ExecutionContextPool, loop: BytecodeLoopPlaces) -> None:
        self._pool, self._kept = pool, list[Any]()
        rows, elements = loop.rows, loop.elements
        read = [(row.dtype, len(row.empty)) for row in rows] + [(one.dtype, one.rank) for one in elements]
        stacks = [(row.dtype, len(row.empty) + 1) for row in rows]
        steps = [(np.dtype(np.int64), 0), *((one.dtype, one.rank - 1) for one in elements)]
        pitch = max([rank for _, rank in (*read, *stacks)], default=0) + 1
        empty = np.zeros((len(rows) + 1, pitch), np.int64)
        for sizes, row in zip(empty, rows, strict=False):
            sizes[1 : len(row.empty) + 1] = row.empty
        entry, step = self._entry(read, stacks, pitch), self._entry([], steps, pitch)
        self._record = np.zeros(1, ITERATED)
        fields = {
            "first": loop.first,
            "trips": loop.trips,
            "trip_variable": loop.trip_variable,
            "condition": loop.condition,
            "again": loop.again,
            "entry": entry,
            "inputs": self._words([row.place for row in rows] + [one.place for one in elements]),
            "rows": self._records(
                ITERATED_ROW, [(row.stack, row.output, row.dtype.itemsize, int(row.back)) for row in rows]
            ),
            "row_count": len(rows),
            "addresses": self._words([0] * max(len(stacks), len(steps))),
            "empty": self._place(empty),
            "shape_words": len(rows) * pitch,
            "step": step,
            "slots": self._words([loop.number, *(one.element for one in elements)]),
            "elements": self._records(
                ITERATED_ELEMENT, [(one.dtype.itemsize, int(one.back), int(one.scanned)) for one in elements]
            ),
            "element_count": len(elements),
        }
        for name, value in fields.items():
            self._record[name] = value
        self.address = address(self._record)

    def _entry(
        self, inputs: Sequence[tuple[np.dtype[Any], int]], outputs: Sequence[tuple[np.dtype[Any], int]], pitch: int
    ) -> int:
        """The address of an `ENTRY` of arrays of these types and ranks."""
        shapes = np.zeros((len(outputs) + 1, pitch), np.int64)
        any_shapes = np.full((len(inputs) + 1, pitch), _ANY, np.int64)
        large = np.zeros(len(outputs) + 1, np.int64)
        self._kept += [large, [dtype for dtype, _ in (*inputs, *outputs)]]
        given = self._records(ENTRY_INPUT, [(0, dtype.num, rank) for dtype, rank in inputs])
        made = self._records(ENTRY_OUTPUT, [(id(dtype), rank) for dtype, rank in outputs])
        record = entry_record(
            self._pool,
            0,
            (len(inputs), given, self._place(any_shapes), pitch * WORD_BYTES),
            (len(outputs), made, self._place(shapes), pitch * WORD_BYTES),
            large,
            release_gil=True,
        )
        return self._place(record)

    def _records(self, kind: np.dtype[np.void], rows: Sequence[tuple[int, ...]]) -> int:
        """Keep records of words, with an empty one behind them, and give their address."""
        words = [word for row in (*rows, (0,) * (kind.itemsize // WORD_BYTES)) for word in row]
        return self._words(words)

    def _words(self, words: Sequence[int]) -> int:
        return self._place(np.array([*words, 0], np.int64))

    def _place(self, array: np.ndarray) -> int:
        """The address of an array, which is kept."""
        self._kept.append(array)
        return address(array)
