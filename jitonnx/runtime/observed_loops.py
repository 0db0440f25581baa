"""A repeated program as one link of a chain: what native code (`native/observed_loops.py`) reads and writes for arrays
of the shapes that a run was observed with.

    NativeLoop(pool, program, loop, inputs, outputs, first_row, …)

Lengths of what is gone through element by element may be any: they say how many iterations there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jitonnx.support.records import NamedTuple

from .execution_contexts import ExecutionContextPool
from .layout import LOOP_LENGTH, LOOP_OPERAND, LOOP_RESULT, OBSERVED_LOOP, LoopGives
from .native_memory import ArrayType, NativeMemory


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
        self._memory = memory = NativeMemory()
        memory.kept += [pool, kept]
        self.variables = np.array([*known], np.int64)
        self.address = memory.record(
            OBSERVED_LOOP,
            loop=loop,
            first=first,
            most=most,
            trips=trips,
            trip_variable=trip_variable,
            condition=condition,
            first_row=first_row,
            addresses=memory.words([0] * (len(inputs) + len(outputs))),
            known=memory.words([*known.values()]),
            operands=memory.records(LOOP_OPERAND, operands),
            operand_count=len(operands),
            results=memory.records(LOOP_RESULT, results),
            result_count=len(results),
            lengths=memory.records(LOOP_LENGTH, lengths),
            length_count=len(lengths),
        )
        self.entry = memory.entry(pool, program, inputs, outputs)
