"""Caches of keys and values that hold the last positions alone, the window that is attended to at least.

A cache of C rows that T positions went into holds the last of them, in their order, from row 0 on: all while they fit,
else as many as are left when rows are dropped C - window + 1 at a time. So a cache that is larger than the window is
not moved at each step. Rows behind are 0.
"""

from __future__ import annotations

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dims import DimLike, minimum
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.types import TensorType, contents_array


def seen_rows(window: int, steps: DimLike, total: DimLike) -> DimLike:
    """How many rows `steps` new positions, the last of `total`, attend to together."""
    return minimum(steps + (window - 1), total)


def slid(
    past: np.ndarray, new: np.ndarray, before: np.ndarray, window: int, rows: int
) -> tuple[np.ndarray, np.ndarray]:
    """What new positions [B, heads, S, depth] attend to [B, heads, rows, depth], and the cache with them.

    before [B]: how many positions went into past. ValueError for numbers that do not fit `rows`.
    """
    capacity, steps = past.shape[2], new.shape[2]
    seen = np.zeros((*past.shape[:2], rows, past.shape[3]), past.dtype)
    present = np.zeros_like(past)
    for batch, earlier in enumerate(before.tolist()):
        visible = min(earlier, window - 1)
        if earlier < 0 or visible + steps > rows:
            raise ValueError(f"{steps} positions behind {earlier} do not fit into a cache's {rows} that are attended")
        every = np.concatenate([past[batch, :, : _held(earlier, capacity, window)], new[batch]], 1)
        seen[batch, :, : visible + steps] = every[:, every.shape[1] - visible - steps :]
        count = _held(earlier + steps, capacity, window)
        present[batch, :, :count] = every[:, every.shape[1] - count :]
    return seen, present


def _held(total: int, capacity: int, window: int) -> int:
    dropped = capacity - window + 1
    return total - -(-max(total - capacity, 0) // dropped) * dropped


def lower_slid(to: Lowering, past: Value, new: Value, before: Value, window: int, rows: DimLike) -> tuple[Value, Value]:
    """`slid` in computations."""
    seen = TensorType(new.dtype, (*new.shape[:2], rows, new.shape[3]))
    attended, present = to.emit_many(c.SlidingCacheUpdate(window), (past, new, before), [seen, past.type])
    return attended, present


def lower_bias(to: Lowering, bias: Value, shift: Value, shape: tuple[DimLike, ...]) -> Value:
    """Columns shift[b] and on of a bias of all positions, as [B, bias heads, S, rows] for scores [B, heads, S, rows].

    Columns behind the last are the last again: they are those of rows that nothing sees.
    """
    batch, _, steps, rows = shape
    heads = bias.shape[1]
    last = to.dimensions(contents_array([bias.shape[3] - 1], (1,)))
    column = e.minimum(e.operand(0, DType.INT64) + e.index(3), e.operand(1, DType.INT64))
    places = to.map(
        column,
        to.broadcast(to.reshape(shift, (batch, 1, 1, 1)), (batch, heads, steps, rows)),
        to.reshape(last, (1, 1, 1, 1)),
    )
    whole = to.broadcast(bias, (batch, *bias.shape[1:]))
    return to.emit(c.GatherElements(3), (whole, places), TensorType(bias.dtype, places.shape))
