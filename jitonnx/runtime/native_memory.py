"""Arrays and records that the records of a chain point to, kept as long as these."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jitonnx.support.records import NamedTuple

from .entry import entry_record
from .execution_contexts import ExecutionContextPool
from .layout import ENTRY_INPUT, ENTRY_OUTPUT, WORD_BYTES, address

ANY = -1
"""A size that may be any."""


class ArrayType(NamedTuple):
    """The type of an array. shape: with `ANY` for sizes that may be any."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def item_bytes(self) -> int:
        """The bytes of its part behind the first axis."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize


class NativeMemory:
    """What is kept; all methods give addresses."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def place(self, array: np.ndarray) -> int:
        """That of an array."""
        self.kept.append(array)
        return address(array)

    def words(self, words: Sequence[int]) -> int:
        """That of the first of some words."""
        return self.place(np.array([*words, 0], np.int64))

    def records(self, kind: np.dtype[np.void], rows: Sequence[Sequence[int]]) -> int:
        """That of the first of records of words."""
        return self.words([word for row in (*rows, (0,) * (kind.itemsize // WORD_BYTES)) for word in row])

    def record(self, kind: np.dtype[np.void], **fields: int) -> int:
        """That of one record, whose other words are 0."""
        record = np.zeros(1, kind)
        for name, value in fields.items():
            record[name] = value
        return self.place(record)

    def entry(
        self,
        pool: ExecutionContextPool,
        program: int,
        inputs: Sequence[ArrayType],
        outputs: Sequence[ArrayType],
        *,
        rank: int = 1,
    ) -> int:
        """That of an `ENTRY` for arrays of these types. rank: shapes lie at least so many words apart, more where an
        array has more axes."""
        rank = max([rank, *(len(one.shape) for one in (*inputs, *outputs))])
        self.kept += [inputs, outputs]
        given = self.records(ENTRY_INPUT, [(0, one.dtype.num, len(one.shape)) for one in inputs])
        made = self.records(ENTRY_OUTPUT, [(id(one.dtype), len(one.shape)) for one in outputs])
        large = np.zeros(len(outputs) + 1, np.int64)
        self.kept.append(large)
        record = entry_record(
            pool,
            program,
            (len(inputs), given, self._shapes(inputs, rank), rank * WORD_BYTES),
            (len(outputs), made, self._shapes(outputs, rank), rank * WORD_BYTES),
            large,
            release_gil=True,
        )
        return self.place(record)

    def _shapes(self, tensors: Sequence[ArrayType], rank: int) -> int:
        shapes = np.ones((len(tensors) + 1, rank), np.int64)
        for row, one in zip(shapes, tensors, strict=False):
            row[: len(one.shape)] = one.shape
        return self.place(shapes)
