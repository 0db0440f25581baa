"""What native entries into the programs of one plan have in common: all that they expect of arrays but the sizes."""

from __future__ import annotations

import sys

import numpy as np

from .layout import ENTRY_INPUT, ENTRY_OUTPUT, Record, address
from .program import TensorKinds

_FLEXIBLE_KINDS = "OSUVMm"
"""Element types whose number alone does not settle what an element is."""
_FIRST_USER_TYPE = 256


class Signature:
    """The records of inputs and outputs, but for their shapes; and whether their element types allow an entry."""

    def __init__(self, inputs: TensorKinds, outputs: TensorKinds) -> None:
        self.is_plain = all(map(_is_plain, (*inputs.dtypes, *outputs.dtypes)))
        self._names = [sys.intern(name) for name in inputs.names]
        self._types = outputs.dtypes
        self._inputs = np.zeros(len(inputs.names), ENTRY_INPUT)
        self._inputs["name"] = [id(name) for name in self._names]
        self._inputs["type_number"] = [dtype.num for dtype in inputs.dtypes]
        self._inputs["rank"] = inputs.ranks
        self._outputs = np.zeros(len(outputs.names), ENTRY_OUTPUT)
        self._outputs["descriptor"] = [id(dtype) for dtype in self._types]
        self._outputs["rank"] = outputs.ranks
        self.inputs_place, self.outputs_place = _place(self._inputs), _place(self._outputs)
        """How many there are, and where."""


def _place(entries: Record) -> tuple[int, int]:
    return len(entries), address(entries)


def _is_plain(dtype: np.dtype[np.generic]) -> bool:
    return dtype.kind not in _FLEXIBLE_KINDS or dtype.num >= _FIRST_USER_TYPE
