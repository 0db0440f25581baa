"""Integer arithmetic that native code does for Python: what follows from the sizes of a run, as a list of operations.

`native/arithmetic.py` reads the list. Numbers are int64 in registers; an operation is four words (operation, target,
a, b), of which a and b are registers. Operations come in sections; a section that meets a number beyond 64 bits, a
divisor of 0 or a condition that does not hold goes on at its `HANDLER`.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from .driver import sizes_driver
from .layout import address

if TYPE_CHECKING:
    import numpy.typing as npt

Words: TypeAlias = "npt.NDArray[np.int64]"


class Operation(enum.IntEnum):
    """What is done. Divisions are Python's, rounded down."""

    ADD = 0
    SUBTRACT = 1
    MULTIPLY = 2
    DIVIDE = 3
    MODULO = 4
    LARGER = 5
    SMALLER = 6
    BELOW = 7
    """1 if a < b, else 0."""
    AND = 8
    OR = 9
    NEED_BELOW = 10
    """Go on at the handler unless a < b; and so on."""
    NEED_NOT_BELOW = 11
    NEED_EQUAL = 12
    NEED_DIFFERENT = 13
    STORE = 14
    """results[target] = a."""
    JUMP = 15
    """Go on at operation number `target`."""
    HANDLER = 16
    """`target` is the operation to go on at from here on where something is not as it should be."""
    MISS = 17
    """Note `target` among what could not be done."""
    END = 18


NEEDS = (Operation.NEED_BELOW, Operation.NEED_NOT_BELOW, Operation.NEED_EQUAL, Operation.NEED_DIFFERENT)


def perform(operations: Words, registers: Words, results: Words, missed: Words) -> Sequence[int]:
    """Carry out a list of operations [count, 4] from the first on; returns what was missed.

    missed: room for as many as there can be.
    """
    count = sizes_driver().perform(address(operations), address(registers), address(results), address(missed))
    return missed[:count].tolist() if count else ()
