"""Blocks of rows: what comes in together and goes out together, however it is packed into batches between."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jitonnx.batch.errors import RowError
from jitonnx.batch.signature import Signature


@dataclass
class Block:
    """Rows for a model.

    arrays: by input, of the rows without a fault, in order, all of the same length. count: of all rows. origin: what
    rows are called in errors ("rows.parquet"), first: the number of the first there. faults: what is wrong with rows,
    by place in the block. source: whatever goes with the block to the end (a record batch).
    """

    arrays: Mapping[str, np.ndarray]
    count: int
    origin: str = "the data"
    first: int = 0
    faults: dict[int, str] = field(default_factory=dict)
    source: Any = None

    @property
    def good(self) -> np.ndarray:
        """The places of rows without a fault."""
        if not self.faults:
            return np.arange(self.count)
        mask = np.ones(self.count, bool)
        mask[list(self.faults)] = False
        return np.flatnonzero(mask)

    def name(self, place: int) -> str:
        """A row's name."""
        return f"row {self.first + place} of {self.origin}"

    def refuse(self) -> None:
        """RowError for the first row that has a fault."""
        if self.faults:
            place = min(self.faults)
            raise RowError(f"{self.name(place)}: {self.faults[place]}")


def block_of_feeds(feeds: Mapping[str, Any], signature: Signature, number: int) -> Block:
    """A block of what a session is fed: arrays [rows, ...] by input. What does not fit is a fault of all its rows.

    number: of the feeds, from 0.
    """
    arrays: dict[str, np.ndarray] = {}
    fault = ""
    for one in signature.inputs:
        if one.name not in feeds:
            fault = fault or f"input {one.name!r} is missing; there are {', '.join(map(repr, feeds)) or 'none'}"
            continue
        array = np.asarray(feeds[one.name])
        if array.ndim == 0 or one.misfit(array.shape[1:]):
            fault = fault or (
                f"input {one.name!r} is an array of shape {list(array.shape)}; rows of {one} are needed, with the "
                "rows along the first axis"
            )
        elif array.dtype != one.dtype and not (one.dtype == object and array.dtype.kind in "US"):
            fault = fault or f"input {one.name!r} is {array.dtype}; {one.dtype} is needed"
        else:
            arrays[one.name] = array.astype(object) if one.dtype == object else array
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        fault = fault or f"the inputs have {lengths} rows; as many are needed of each"
    count = max(lengths.values(), default=1)
    if fault:
        empty = {one.name: np.empty((0, *(size or 0 for size in one.shape)), one.dtype) for one in signature.inputs}
        return Block(empty, max(count, 1), f"feeds {number}", faults=dict.fromkeys(range(max(count, 1)), fault))
    return Block(arrays, count, f"feeds {number}")
