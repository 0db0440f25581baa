"""A loop as native code runs it in a chain: what it reads and writes for arrays of certain shapes.

    NativeLoop(pool, LoopTensors(inputs, outputs, first_row), …)

Lengths of what is gone through element by element may be any: they say how many iterations there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jitonnx.support.records import NamedTuple

from .entry import entry_record
from .execution_contexts import ExecutionContextPool
from .layout import (
    ENTRY_INPUT,
    ENTRY_OUTPUT,
    LOOP_LENGTH,
    LOOP_OPERAND,
    LOOP_RESULT,
    LOOPED,
    WORD_BYTES,
    LoopGives,
    Record,
    address,
)

ANY = -1
"""A size that may be any."""


class ArrayType(NamedTuple):
    """The type of an array."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class LoopOperand(NamedTuple):
    """An address that a run puts in.

    target: the address of the word that it goes to. tensor: which array it is of, inputs and then outputs. offset: how
    many bytes into it. back: bytes of an element of what is gone through from its end, else 0.
    """

    target: int
    tensor: int
    offset: int = 0
    back: int = 0


class Result(NamedTuple):
    """An output of the loop. tensor, other, back, bytes: as `layout.LOOP_RESULT` says."""

    kind: LoopGives
    tensor: int
    other: int = 0
    back: int = 0
    bytes: int = 0


class NativeLoop:
    """A loop for inputs of certain types.

    pool: where its iterations run. program: the address of theirs. loop: that of a `LOOP`. inputs, outputs: types of
    what it reads and of the arrays that it makes, those of rows from number `first_row` on. lengths: which inputs are
    gone through, and whether they say how many iterations there are. trips, condition: which inputs say how many there
    are, and whether to begin, or -1. trip_variable: the number of the variable that says how many, or -1.
    first: the number of the first iteration. most: iterations. known: the values of variables that it is made for, by
    number. kept: what it points to.
    """

    def __init__(
        self,
        pool: ExecutionContextPool,
        program: int,
        loop: int,
        inputs: Sequence[ArrayType],
        outputs: Sequence[ArrayType],
        first_row: int,
        operands: Sequence[LoopOperand],
        results: Sequence[Result],
        lengths: Sequence[tuple[int, bool]],
        trips: int,
        trip_variable: int,
        condition: int,
        first: int,
        most: int,
        known: Mapping[int, int],
        kept: Any,
    ) -> None:
        self._kept: list[Any] = [kept, inputs, outputs]
        self.variables = np.array([*known], np.int64)
        self._record = np.zeros(1, LOOPED)
        fields = {
            "loop": loop,
            "first": first,
            "most": most,
            "trips": trips,
            "trip_variable": trip_variable,
            "condition": condition,
            "first_row": first_row,
            "addresses": self._place(np.zeros(len(inputs) + len(outputs) + 1, np.int64)),
            "known": self._place(np.array([*known.values(), 0], np.int64)),
            "operands": self._place(_records(LOOP_OPERAND, operands)),
            "operand_count": len(operands),
            "results": self._place(_records(LOOP_RESULT, results)),
            "result_count": len(results),
            "lengths": self._place(_records(LOOP_LENGTH, lengths)),
            "length_count": len(lengths),
        }
        for name, value in fields.items():
            self._record[name] = value
        self.address = address(self._record)
        given = _records(ENTRY_INPUT, [(0, one.dtype.num, len(one.shape)) for one in inputs])
        made = _records(ENTRY_OUTPUT, [(id(one.dtype), len(one.shape)) for one in outputs])
        self._entry = entry_record(
            pool,
            program,
            (len(inputs), self._place(given), *self._shapes(inputs)),
            (len(outputs), self._place(made), *self._shapes(outputs)),
            self._words(np.zeros(len(outputs) + 1, np.int64)),
            release_gil=True,
        )
        self.entry = address(self._entry)

    def _shapes(self, tensors: Sequence[ArrayType]) -> tuple[int, int]:
        """Where the shapes are, and how many bytes apart."""
        rank = max([1, *(len(one.shape) for one in tensors)])
        shapes = np.ones((len(tensors) + 1, rank), np.int64)
        for row, one in zip(shapes, tensors, strict=False):
            row[: len(one.shape)] = one.shape
        return self._place(shapes), rank * WORD_BYTES

    def _words(self, array: np.ndarray) -> np.ndarray:
        self._kept.append(array)
        return array

    def _place(self, array: np.ndarray) -> int:
        """The address of an array, which is kept."""
        return address(self._words(array))


def _records(kind: np.dtype[np.void], rows: Sequence[tuple[int, ...]]) -> Record:
    """Records of words, and an empty one behind them."""
    words = kind.itemsize // WORD_BYTES
    return np.array([*rows, (0,) * words], np.int64).reshape(-1).view(kind)
