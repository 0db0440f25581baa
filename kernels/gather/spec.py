"""What the gathering kernels are, without compiling them.

Indices are int32 or int64; negative ones count from the end of their axis. An index out of range reads nothing outside
of data, and the word `error` (int64) is set to 1, so that the caller can raise; what is then in its place is not
defined.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from jitonnx.emit.arguments import Arguments, Buffer, Size, Sizes, by_name, computed, each, result
from jitonnx.kernels.parts.axes import MAX_RANK, dense, merged
from jitonnx.kernels.parts.sizes import larger
from jitonnx.kernels.spec import INDICES, ITEMSIZES, KernelSpec, Work, only
from jitonnx.support.records import dataclass
from jitonnx.target import tuning

PIECES = (1, 2, 4, 8, 16, 32, 64)
"""Bytes that one or two instructions move."""


class GatherBuffers(Arguments):
    data: Buffer
    indices: Buffer
    out: Buffer = result()
    error: Buffer = result()


class GatherRowsSizes(Arguments):
    batch: Size
    count: Size
    run_bytes: Size
    data_batch: Size
    indices_batch: Size
    indices_row: Size
    out_batch: Size
    out_row: Size
    extents: Sizes = each(MAX_RANK, fill=0)
    data: Sizes = each(MAX_RANK, fill=0)
    """Extents and byte strides of the axes that indices are of."""
    task_rows: Size = computed()


@dataclass(frozen=True)
class GatherRowsSpec(KernelSpec):
    """out[b, r] = data[b, indices[b, r, 0], indices[b, r, 1], …]: runs of bytes by index tuples; Gather and GatherND.

    All strides of data and out are in bytes, those of indices in elements, so that one kernel serves every type. Run
    (b, r) of out starts at b * out_batch + r * out_row, that of data at b * data_batch + the sum of index i times
    data[i]; index i of it is element b * indices_batch + r * indices_row + i of indices.

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

    BUFFERS = GatherBuffers
    SIZES = GatherRowsSizes
    PRESCHEDULED = True
    ALLOWED = only(index=INDICES, width=range(1, MAX_RANK + 1), piece=(0, *PIECES))

    def complete(self, sizes: GatherRowsSizes) -> GatherRowsSizes:
        return GatherRowsSizes.following(sizes, task_rows=larger(1, tuning.TASK_BYTES // larger(1, sizes.run_bytes)))

    def gather(self, shape: Sequence[int], axis: int, count: int, itemsize: int) -> GatherRowsSizes:
        """The sizes of ONNX's Gather from dense data of `shape` along `axis` (>= 0) by `count` indices."""
        run = prod(shape[axis + 1 :]) * itemsize
        return self.complete(
            GatherRowsSizes(
                batch=prod(shape[:axis]),
                count=count,
                run_bytes=run,
                data_batch=shape[axis] * run,
                indices_batch=0,
                indices_row=1,
                out_batch=count * run,
                out_row=run,
                extents=[shape[axis]],
                data=[run],
            )
        )

    def gather_nd(
        self, shape: Sequence[int], batch_dims: int, indices_shape: Sequence[int], itemsize: int
    ) -> GatherRowsSizes:
        """The sizes of ONNX's GatherND from dense data of `shape` by dense indices, whose last extent is `width`."""
        width, count = self.width, prod(indices_shape[batch_dims:-1])
        run = prod(shape[batch_dims + width :]) * itemsize
        return self.complete(
            GatherRowsSizes(
                batch=prod(shape[:batch_dims]),
                count=count,
                run_bytes=run,
                data_batch=prod(shape[batch_dims:]) * itemsize,
                indices_batch=count * width,
                indices_row=width,
                out_batch=count * run,
                out_row=run,
                extents=shape[batch_dims : batch_dims + width],
                data=[prod(shape[batch_dims + i + 1 :]) * itemsize for i in range(width)],
            )
        )

    def tasks(self, sizes: GatherRowsSizes) -> int:
        return -(-sizes.batch * sizes.count // sizes.task_rows) if sizes.run_bytes else 0

    def work(self, sizes: GatherRowsSizes) -> Work:
        index_bytes = self.width * np.dtype(self.index).itemsize
        return Work(0, sizes.batch * sizes.count * (2 * sizes.run_bytes + index_bytes))


class GatherElementsSizes(Arguments):
    extents: Sizes = each(MAX_RANK, fill=1)
    """The extents are of indices and out; the strides in data (0 for the gathered axis), indices and out follow, in
    elements."""
    data: Sizes = each(MAX_RANK, fill=0)
    indices: Sizes = each(MAX_RANK, fill=0)
    out: Sizes = each(MAX_RANK, fill=0)
    axis_extent: Size
    axis_stride: Size
    """The gathered axis' extent and stride in data."""
    rows: Size = computed()
    task_rows: Size = computed()
    outer_rank: Size = computed()
    inner_extent: Size = computed()
    inner_data: Size = computed()
    inner_indices: Size = computed()
    inner_out: Size = computed()
    outer: Sizes = computed((MAX_RANK - 1) * 4)


@dataclass(frozen=True)
class GatherElementsSpec(KernelSpec):
    """out[i, j, …] = data[i, j, …] with the coordinate on one axis replaced by indices[i, j, …]: ONNX's GatherElements.

    `complete` orders and merges the axes. Task: task_rows rows of the innermost axis left. Other strides make a Gather
    of single elements of it: 0 in indices for the axes before the gathered one.
    """

    index: str
    """"int32" or "int64"."""
    itemsize: int
    """Bytes of an element of data: 1, 2, 4 or 8."""

    BUFFERS = GatherBuffers
    SIZES = GatherElementsSizes
    ALLOWED = only(index=INDICES, itemsize=ITEMSIZES)

    def arguments(self, shape: Sequence[int], indices_shape: Sequence[int], axis: int) -> GatherElementsSizes:
        """The sizes for dense data of `shape`, indices and out, and `axis` >= 0. ValueError for more than 8 axes."""
        if len(shape) > MAX_RANK:
            raise ValueError(f"GatherElements has at most {MAX_RANK} axes, not {len(shape)}")
        data, indices = dense(shape), dense(indices_shape)
        others = [0 if i == axis else stride for i, stride in enumerate(data)]
        along = by_name("axis_extent axis_stride", (shape[axis], data[axis]))
        return self.complete(
            GatherElementsSizes(extents=indices_shape, data=others, indices=indices, out=indices, **along)
        )

    def complete(self, sizes: GatherElementsSizes) -> GatherElementsSizes:
        axes = merged([*zip(sizes.extents, sizes.data, sizes.indices, sizes.out, strict=True)])
        *outer, inner = axes or [(1, 0, 0, 0)]
        padding = [(1, 0, 0, 0)] * (MAX_RANK - 1 - len(outer))
        return GatherElementsSizes.following(
            sizes,
            rows=prod(axis[0] for axis in outer),
            task_rows=larger(1, tuning.TASK_BYTES // larger(1, inner[0] * self.itemsize)),
            outer_rank=len(outer),
            **by_name("inner_extent inner_data inner_indices inner_out", inner),
            outer=[number for axis in (*outer, *padding) for number in axis],
        )

    def tasks(self, sizes: GatherElementsSizes) -> int:
        return -(-sizes.rows // sizes.task_rows) if sizes.inner_extent else 0

    def work(self, sizes: GatherElementsSizes) -> Work:
        return Work(0, prod(sizes.extents) * (2 * self.itemsize + np.dtype(self.index).itemsize))


class ReverseSequenceBuffers(Arguments):
    data: Buffer
    lengths: Buffer
    out: Buffer = result()
    error: Buffer = result()


class ReverseSequenceSizes(Arguments):
    first: Size
    second: Size
    run_bytes: Size
    data_first: Size
    data_second: Size
    out_first: Size
    out_second: Size
    task_rows: Size = computed()


@dataclass(frozen=True)
class ReverseSequenceSpec(KernelSpec):
    """out[t, b] = data[lengths[b] - 1 - t, b] for t < lengths[b], else data[t, b]: runs of bytes; ReverseSequence.

    first, second: the extents of the two leading axes of data and out, which lie data_first, … bytes apart; `lengths`
    are dense int64, and those outside of 0 … time set `error`: their sequences are not touched. Task: task_rows
    positions on the first axis.
    """

    time_axis: int
    """Which of the leading axes is time, 0 or 1; the other one is the batch."""

    BUFFERS = ReverseSequenceBuffers
    SIZES = ReverseSequenceSizes
    ALLOWED = only(time_axis=(0, 1))

    def complete(self, sizes: ReverseSequenceSizes) -> ReverseSequenceSizes:
        row_bytes = larger(1, sizes.second * sizes.run_bytes)
        return ReverseSequenceSizes.following(sizes, task_rows=larger(1, tuning.TASK_BYTES // row_bytes))

    def tasks(self, sizes: ReverseSequenceSizes) -> int:
        return -(-sizes.first // sizes.task_rows) if sizes.second and sizes.run_bytes else 0

    def work(self, sizes: ReverseSequenceSizes) -> Work:
        return Work(0, 2 * sizes.first * sizes.second * sizes.run_bytes)
