"""What the gathering kernels are, without compiling them.

Indices are int32 or int64; negative ones count from the end of their axis. An index out of range reads nothing outside
of data, and the word `error` (int64) is set to 1, so that the caller can raise; what is then in its place is not
defined.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar

import numpy as np

from jitonnx.kernels.parts.axes import MAX_RANK, dense, merged
from jitonnx.kernels.parts.sizes import larger
from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.records import dataclass

_TASK_BYTES = 32 << 10
"""About what a task writes."""

PIECES = (1, 2, 4, 8, 16, 32, 64)
"""Bytes that one or two instructions move."""


def _check_index(index: str) -> None:
    if index not in ("int32", "int64"):
        raise ValueError(f"indices are int32 or int64, not {index}")


@dataclass(frozen=True)
class GatherRowsSpec(KernelSpec):
    """out[b, r] = data[b, indices[b, r, 0], indices[b, r, 1], …]: runs of bytes by index tuples; Gather and GatherND.

    All strides of data and out are in bytes, those of indices in elements, so that one kernel serves every type. Run
    (b, r) of out starts at b * out_batch + r * out_row, that of data at b * data_batch + the sum of index i times
    data_i; index i of it is element b * indices_batch + r * indices_row + i of indices.

    Gather with `axis`: batch = the axes before it, count = all indices, width 1, indices_batch 0, indices_row 1.
    GatherND: batch = the batch_dims axes, count = the indices' other axes but the last, width = the last's extent.
    Task: task_rows runs, counted over all batches.
    """

    index: str
    """"int32" or "int64"."""
    width: int = 1
    """Indices of a tuple: at most MAX_RANK."""
    piece: int = 0
    """Bytes of a run, if they are one of PIECES: they are moved at once, where finding out how costs more. 0: any."""

    BUFFERS: ClassVar[tuple[str, ...]] = ("data", "indices", "out", "error")
    GIVEN: ClassVar[tuple[str, ...]] = (
        *("batch", "count", "run_bytes"),
        *("data_batch", "indices_batch", "indices_row", "out_batch", "out_row"),
        *(f"extent_{axis}" for axis in range(MAX_RANK)),
        *(f"data_{axis}" for axis in range(MAX_RANK)),
    )
    """extent_i, data_i: the extent and byte stride of the axis that index i is of."""
    SIZES: ClassVar[tuple[str, ...]] = (*GIVEN, "task_rows")
    SETTLED: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_index(self.index)
        if not 0 < self.width <= MAX_RANK:
            raise ValueError(f"index tuples have 1 to {MAX_RANK} elements, not {self.width}")
        if self.piece not in (0, *PIECES):
            raise ValueError(f"runs of {self.piece} bytes are not moved at once")

    def complete(self, sizes: Sequence[int]) -> Sequence[int]:
        """GIVEN -> SIZES."""
        given = sizes[: len(self.GIVEN)]
        return [*given, larger(1, _TASK_BYTES // larger(1, given[2]))]

    def gather(self, shape: Sequence[int], axis: int, count: int, itemsize: int) -> list[int]:
        """SIZES of ONNX's Gather from dense data of `shape` along `axis` (>= 0) by `count` indices."""
        run = prod(shape[axis + 1 :]) * itemsize
        place = [shape[axis] * run, 0, 1, count * run, run]
        return self._arguments([prod(shape[:axis]), count, run], place, [shape[axis]], [run])

    def gather_nd(
        self, shape: Sequence[int], batch_dims: int, indices_shape: Sequence[int], itemsize: int
    ) -> list[int]:
        """SIZES of ONNX's GatherND from dense data of `shape` by dense indices, whose last extent is `width`."""
        width, batch = self.width, prod(shape[:batch_dims])
        count, extents = prod(indices_shape[batch_dims:-1]), shape[batch_dims : batch_dims + width]
        strides = [prod(shape[batch_dims + i + 1 :]) * itemsize for i in range(width)]
        run = prod(shape[batch_dims + width :]) * itemsize
        place = [prod(shape[batch_dims:]) * itemsize, count * width, width, count * run, run]
        return self._arguments([batch, count, run], place, extents, strides)

    def _arguments(
        self, counts: list[int], place: list[int], extents: Sequence[int], strides: Sequence[int]
    ) -> list[int]:
        padding = [0] * (MAX_RANK - len(extents))
        return list(self.complete([*counts, *place, *extents, *padding, *strides, *padding]))

    def tasks(self, sizes: Sequence[int]) -> int:
        batch, count, run = sizes[:3]
        return -(-batch * count // sizes[len(self.GIVEN)]) if run else 0

    def work(self, sizes: Sequence[int]) -> Work:
        batch, count, run = sizes[:3]
        return Work(0, batch * count * (2 * run + self.width * np.dtype(self.index).itemsize))


@dataclass(frozen=True)
class GatherElementsSpec(KernelSpec):
    """out[i, j, …] = data[i, j, …] with the coordinate on one axis replaced by indices[i, j, …]: ONNX's GatherElements.

    GIVEN: the extents of up to 8 axes of indices and out (1 where there is none), their strides in data (0 for the
    gathered axis), in indices and in out; then the gathered axis' extent and stride in data. All in elements.
    `complete` orders and merges the axes. Task: task_rows rows of the innermost axis left. Other strides make a Gather
    of single elements of it: 0 in indices for the axes before the gathered one.
    """

    index: str
    """"int32" or "int64"."""
    itemsize: int
    """Bytes of an element of data: 1, 2, 4 or 8."""

    BUFFERS: ClassVar[tuple[str, ...]] = ("data", "indices", "out", "error")
    GIVEN: ClassVar[tuple[str, ...]] = (
        *(f"{what}_{axis}" for what in ("extent", "data", "indices", "out") for axis in range(MAX_RANK)),
        *("axis_extent", "axis_stride"),
    )
    SIZES: ClassVar[tuple[str, ...]] = (
        *GIVEN,
        *("rows", "task_rows", "outer_rank", "inner_extent", "inner_data", "inner_indices", "inner_out"),
        *(f"outer_{axis}_{what}" for axis in range(MAX_RANK - 1) for what in ("extent", "data", "indices", "out")),
    )

    def __post_init__(self) -> None:
        _check_index(self.index)
        if self.itemsize not in (1, 2, 4, 8):
            raise ValueError(f"no gathering kernel for elements of {self.itemsize} bytes")

    def arguments(self, shape: Sequence[int], indices_shape: Sequence[int], axis: int) -> list[int]:
        """SIZES for dense data of `shape`, dense indices and out, and `axis` >= 0. ValueError for more than 8 axes."""
        if len(shape) > MAX_RANK:
            raise ValueError(f"GatherElements has at most {MAX_RANK} axes, not {len(shape)}")
        padding = [0] * (MAX_RANK - len(shape))
        data, indices = dense(shape), dense(indices_shape)
        others = [0 if i == axis else stride for i, stride in enumerate(data)]
        given = [*indices_shape, *(1 for _ in padding), *others, *padding, *(indices + padding) * 2]
        return list(self.complete([*given, shape[axis], data[axis]]))

    def complete(self, sizes: Sequence[int]) -> Sequence[int]:
        """GIVEN -> SIZES."""
        given = list(sizes[: len(self.GIVEN)])
        axes = merged([tuple(given[axis : 4 * MAX_RANK : MAX_RANK]) for axis in range(MAX_RANK)])
        *outer, inner = axes or [(1, 0, 0, 0)]
        rows = prod(axis[0] for axis in outer)
        task_rows = larger(1, _TASK_BYTES // larger(1, inner[0] * self.itemsize))
        padding = [(1, 0, 0, 0)] * (MAX_RANK - 1 - len(outer))
        return [*given, rows, task_rows, len(outer), *inner, *(n for axis in (*outer, *padding) for n in axis)]

    def tasks(self, sizes: Sequence[int]) -> int:
        rows, task_rows, _, inner = sizes[len(self.GIVEN) :][:4]
        return -(-rows // task_rows) if inner else 0

    def work(self, sizes: Sequence[int]) -> Work:
        return Work(0, prod(sizes[:MAX_RANK]) * (2 * self.itemsize + np.dtype(self.index).itemsize))


@dataclass(frozen=True)
class ReverseSequenceSpec(KernelSpec):
    """out[t, b] = data[lengths[b] - 1 - t, b] for t < lengths[b], else data[t, b]: runs of bytes; ReverseSequence.

    first, second: the extents of the two leading axes of data and out, which lie data_first, … bytes apart; `lengths`
    are dense int64, and those outside of 0 … time set `error`: their sequences are not touched. Task: task_rows
    positions on the first axis.
    """

    time_axis: int
    """Which of the leading axes is time, 0 or 1; the other one is the batch."""

    BUFFERS: ClassVar[tuple[str, ...]] = ("data", "lengths", "out", "error")
    GIVEN: ClassVar[tuple[str, ...]] = (
        *("first", "second", "run_bytes", "data_first", "data_second", "out_first", "out_second"),
    )
    SIZES: ClassVar[tuple[str, ...]] = (*GIVEN, "task_rows")

    def __post_init__(self) -> None:
        if self.time_axis not in (0, 1):
            raise ValueError(f"time is axis 0 or 1, not {self.time_axis}")

    def complete(self, sizes: Sequence[int]) -> Sequence[int]:
        """GIVEN -> SIZES."""
        given = sizes[: len(self.GIVEN)]
        return [*given, larger(1, _TASK_BYTES // larger(1, given[1] * given[2]))]

    def tasks(self, sizes: Sequence[int]) -> int:
        first, second, run = sizes[:3]
        return -(-first // sizes[len(self.GIVEN)]) if second and run else 0

    def work(self, sizes: Sequence[int]) -> Work:
        first, second, run = sizes[:3]
        return Work(0, 2 * first * second * run)
