"""A loop whose body is links of a chain: what native code (`native/bytecode_loops.py`) reads and writes of it.

BytecodeLoop(pool, BytecodeLoopPlaces(…))
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jitonnx.support.records import NamedTuple

from .execution_contexts import ExecutionContextPool
from .layout import BYTECODE_LOOP, LOOP_ELEMENT, LOOP_ROW
from .native_memory import ANY, ArrayType, NativeMemory


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
    """An `BYTECODE_LOOP`, and what it points to."""

    def __init__(self, pool: ExecutionContextPool, loop: BytecodeLoopPlaces) -> None:
        self._pool, memory = pool, NativeMemory()
        self._memory = memory
        rows, elements = loop.rows, loop.elements
        read = [_of_any_sizes(row.dtype, len(row.empty)) for row in rows]
        read += [_of_any_sizes(one.dtype, one.rank) for one in elements]
        stacks = [_of_any_sizes(row.dtype, len(row.empty) + 1) for row in rows]
        steps = [ArrayType(np.dtype(np.int64), ()), *(_of_any_sizes(one.dtype, one.rank - 1) for one in elements)]
        pitch = max([1, *(len(one.shape) for one in (*read, *stacks))])
        empty = np.zeros((len(rows) + 1, pitch), np.int64)
        for sizes, row in zip(empty, rows, strict=False):
            sizes[1 : len(row.empty) + 1] = row.empty
        self.address = memory.record(
            BYTECODE_LOOP,
            first=loop.first,
            trips=loop.trips,
            trip_variable=loop.trip_variable,
            condition=loop.condition,
            again=loop.again,
            entry=memory.entry(pool, 0, read, stacks, rank=pitch),
            inputs=memory.words([row.place for row in rows] + [one.place for one in elements]),
            rows=memory.records(LOOP_ROW, [(row.stack, row.output, row.dtype.itemsize, int(row.back)) for row in rows]),
            row_count=len(rows),
            addresses=memory.words([0] * max(len(stacks), len(steps))),
            empty=memory.place(empty),
            shape_words=len(rows) * pitch,
            step=memory.entry(pool, 0, [], steps, rank=pitch),
            slots=memory.words([loop.number, *(one.element for one in elements)]),
            elements=memory.records(
                LOOP_ELEMENT, [(one.dtype.itemsize, int(one.back), int(one.scanned)) for one in elements]
            ),
            element_count=len(elements),
        )


def _of_any_sizes(dtype: np.dtype[Any], rank: int) -> ArrayType:
    return ArrayType(dtype, (ANY,) * rank)
