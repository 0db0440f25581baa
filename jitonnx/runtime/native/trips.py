"""How many iterations a loop has: what is asked before the first one, whichever way its iterations are done.

The loop's record, an `OBSERVED_LOOP` or a `BYTECODE_LOOP`, says what tells it in fields of the same names: `trips`,
`trip_variable` and `condition`, each -1 where there is none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jitonnx.emit import llvm_ir

from ..layout import CHAIN, NO_LIMIT
from . import arrays
from .functions import FunctionBuilder


class Trips:
    """What tells how many iterations there are. array_of: the array that a field of the record, a place, stands for."""

    def __init__(
        self,
        code: FunctionBuilder,
        loop: llvm_ir.Value,
        record: np.dtype[Any],
        array_of: Callable[[llvm_ir.Value], llvm_ir.Value],
    ) -> None:
        self._code, self._loop, self._record, self._array_of = code, loop, record, array_of
        self._limit = code.variable(NO_LIMIT)
        with code.if_then(code.compare(self._field("trips"), ">=", 0)):
            code.store(self._limit, self._read("trips", 64))
        variable = self._field("trip_variable")
        with code.if_then(code.compare(variable, ">=", 0)):
            variables = code.pointer(code["chain"], CHAIN, "variables")
            code.store(self._limit, code.load(code.word_at(variables, variable)))

    @property
    def limit(self) -> llvm_ir.Value:
        """Iterations have numbers less than this."""
        return self._code.load(self._limit)

    def scan(self, length: llvm_ir.Value, otherwise: int) -> None:
        """There are as many iterations as a scanned tensor has elements; where another one has not as many, the
        function gives `otherwise`."""
        code = self._code
        known, limit = code.compare(self.limit, "!=", NO_LIMIT), self.limit
        code.give_if(code.build.and_(known, code.compare(limit, "!=", length)), otherwise)
        code.store(self._limit, length)

    def begins(self, first: llvm_ir.Value) -> llvm_ir.Value:
        """Whether there is an iteration. first: the number that it has."""
        code = self._code
        begins = code.variable(code.build.zext(code.compare(first, "<", self.limit), llvm_ir.IntType(64)))
        with (
            code.if_then(code.compare(self._field("condition"), ">=", 0)),
            code.if_then(code.equal(self._read("condition", 8), 0)),
        ):
            code.store(begins, 0)
        return code.compare(code.load(begins), "!=", 0)

    def _field(self, name: str) -> llvm_ir.Value:
        return self._code.word(self._loop, self._record, name)

    def _read(self, name: str, bits: int) -> llvm_ir.Value:
        return arrays.first_element(self._code, self._array_of(self._field(name)), bits)
