"""Where a value lies in memory: a buffer, an offset, and a stride for each logical axis.

Layouts are nothing but strides. An image is N, C, H, W to everybody, and channels-last in memory because its strides
say so; a transposed, sliced or broadcast value is the same buffer under other strides; a concatenation hands each of
its producers a part of its own buffer to write to. Offsets and strides count elements and may be dimension
expressions.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.dims import DimLike, floor_divide, integers, known, matched_axes, product
from jitonnx.ir.dtypes import DType
from jitonnx.runtime.program import Space
from jitonnx.support.records import NamedTuple, dataclass

if TYPE_CHECKING:
    from jitonnx.plan.tables import Maker

_D = TypeVar("_D")


class Made(NamedTuple):
    """One of the arrays, number `part`, that `maker` makes of sizes."""

    maker: Maker
    part: int
    sizes: tuple[DimLike, ...]


@dataclass(eq=False)
class Buffer:
    """A piece of memory. `space`: arena (planned by lifetime), constant, input or output (of a run)."""

    name: str
    space: Space
    elements: DimLike
    dtype: DType
    array: np.ndarray | None = None
    """The elements of a constant."""
    index: int = -1
    """Which input or output it is."""
    contents: np.ndarray | None = None
    """The elements of a constant that depend on the sizes of a run: an object array with dimension expressions."""
    made: Made | None = None
    """What makes a constant of the sizes of a run."""

    def __post_init__(self) -> None:
        # References to Python's objects, read or written as bytes, would not be counted.
        assert self.dtype is not DType.STRING, f"Bug: the strings of {self.name!r} would lie in native memory"

    @property
    def bytes(self) -> DimLike:
        return self.elements * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"{self.space}:{self.name}"


@dataclass(frozen=True)
class StridedTensor:
    """A value in memory: element (i, j, ...) is at buffer[offset + i * strides[0] + j * strides[1] + ...]."""

    buffer: Buffer
    offset: DimLike
    shape: tuple[DimLike, ...]
    strides: tuple[DimLike, ...]
    seen: DType | None = None
    """The type, of as many bytes, that elements are read as; None: as the buffer has them."""

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype if self.seen is None else self.seen

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def elements(self) -> DimLike:
        return product(self.shape)

    @property
    def contiguous(self) -> bool:
        """Row-major without gaps."""
        return same_strides(self, row_major(self.shape))

    @property
    def constant(self) -> np.ndarray | None:
        """The elements as an array, if the buffer is a constant and the view's sizes are known (a view, not a copy).

        None for a constant under strides and sizes that only a run tells, as one that is expanded over an open axis.
        """
        if self.buffer.array is None or not known((self.offset, *self.shape, *self.strides)):
            return None
        flat = self.buffer.array.reshape(-1)
        flat = flat if self.seen is None else flat.view(self.seen.numpy)
        itemsize = flat.itemsize
        return np.lib.stride_tricks.as_strided(
            flat[integers([self.offset])[0] :] if flat.size else flat,
            integers(self.shape),
            tuple(stride * itemsize for stride in integers(self.strides)),
        )


def row_major(shape: Sequence[DimLike]) -> tuple[DimLike, ...]:
    """Strides of a dense tensor whose last axis is innermost; an empty one's tell its axes' order all the same."""
    strides: list[DimLike] = []
    step: DimLike = 1
    for dim in reversed(shape):
        strides.append(step)
        step = step * (dim if dim != 0 else 1)
    return tuple(reversed(strides))


def in_order(shape: Sequence[DimLike], order: Sequence[int]) -> tuple[DimLike, ...]:
    """Strides of a dense tensor whose axes lie in memory in `order`, outermost first."""
    dense = row_major([shape[axis] for axis in order])
    strides: list[DimLike] = [0] * len(shape)
    for position, axis in enumerate(order):
        strides[axis] = dense[position]
    return tuple(strides)


def dense_tensor(name: str, shape: Sequence[DimLike], dtype: DType, order: Sequence[int]) -> StridedTensor:
    """New memory in the arena, dense, its axes in `order`, outermost first."""
    buffer = Buffer(name, "arena", product(shape), dtype)
    return StridedTensor(buffer, 0, tuple(shape), in_order(shape, order))


def channels_last_order(rank: int) -> tuple[int, ...]:
    """The memory order N, spatial..., C of an image of `rank` axes."""
    return (0, *range(2, rank), 1)


def channels_last(shape: Sequence[DimLike]) -> tuple[DimLike, ...]:
    """Strides of a dense channels-last image."""
    return in_order(shape, channels_last_order(len(shape)))


def same_strides(tensor: StridedTensor, strides: Sequence[DimLike]) -> bool:
    """Whether the tensor has these strides, where they matter: an axis of size 1 may have any."""
    return all(dim == 1 or a == b for dim, a, b in zip(tensor.shape, tensor.strides, strides, strict=True))


def is_channels_last(tensor: StridedTensor) -> bool:
    """Whether the channel axis is innermost (stride 1, or a single channel), as image kernels need it."""
    return tensor.rank >= 3 and (tensor.strides[1] == 1 or tensor.shape[1] == 1)


def in_planes(tensor: StridedTensor) -> bool:
    """Whether an image lies in planes: the pixels of a row side by side, as kernels need it whose vectors are of
    pixels. An image of one channel may lie both so and channels-last.
    """
    return tensor.strides[-1] == 1 and (tensor.shape[1] == 1 or not is_channels_last(tensor))


def apply_view(view: c.View, tensor: StridedTensor) -> StridedTensor | None:
    """The tensor seen through a view; None where the memory does not allow it (a reshape across gaps): copy first."""
    if isinstance(view, c.Transpose):
        return replace(
            tensor,
            shape=tuple(tensor.shape[axis] for axis in view.permutation),
            strides=tuple(tensor.strides[axis] for axis in view.permutation),
        )
    if isinstance(view, c.Broadcast):
        return broadcast_to(tensor, view.shape)
    if isinstance(view, c.Slice):
        offset = tensor.offset
        for start, stride in zip(view.starts, tensor.strides, strict=True):
            offset = offset + start * stride
        strides = tuple(step * stride for step, stride in zip(view.steps, tensor.strides, strict=True))
        return replace(tensor, offset=offset, shape=view.shape, strides=strides)
    assert isinstance(view, c.Reshape)
    merged = reshape_strides(tensor.shape, tensor.strides, view.shape)
    if merged is None and tensor.contiguous:  # symbolic sizes whose products cannot be matched group by group
        merged = row_major(view.shape)
    return None if merged is None else replace(tensor, shape=view.shape, strides=merged)


def orders_around(view: c.View, shape: Sequence[DimLike], order: Sequence[int]) -> tuple[list[int], list[int]] | None:
    """A memory order in which an operand of `shape` can be seen through a view, and the result's order then.

    order: how the operand's axes lie; the innermost stay so, and a reshape's other axes lie row-major. None: not known.
    """
    if isinstance(view, c.Transpose):
        return list(order), [view.permutation.index(axis) for axis in order]
    if isinstance(view, c.Slice):
        return list(order), list(order)
    groups = matched_axes(shape, view.shape) if isinstance(view, c.Reshape) else None
    if groups is None:
        return None
    inner = next((axis for axis in reversed(order) if shape[axis] != 1), None)
    last = [group for group in groups if inner in group[0]]
    sequence = [group for group in groups if group not in last] + last
    before, behind = zip(*sequence, strict=True) if sequence else ((), ())
    return list(itertools.chain(*before)), list(itertools.chain(*behind))


def broadcast_to(tensor: StridedTensor, shape: Sequence[DimLike]) -> StridedTensor:
    """The tensor repeated to `shape`: axes of size 1 and new leading ones get stride 0."""
    missing = len(shape) - tensor.rank
    strides: list[DimLike] = [0] * missing
    for position, (dim, stride) in enumerate(zip(tensor.shape, tensor.strides, strict=True)):
        strides.append(0 if dim == 1 and shape[missing + position] != 1 else stride)
    return replace(tensor, shape=tuple(shape), strides=tuple(strides))


def apart(tensor: StridedTensor, axes: Sequence[int]) -> DimLike | None:
    """How far apart neighbours along the joined `axes` are; None if that differs."""
    shape, strides = [tensor.shape[axis] for axis in axes], [tensor.strides[axis] for axis in axes]
    merged = reshape_strides(shape, strides, (product(shape),))
    return None if merged is None else merged[0]


def as_rows(order: Sequence[int], *tensors: StridedTensor) -> tuple[DimLike, DimLike, tuple[DimLike, ...]] | None:
    """Tensors of one shape, in one memory order of the axes, as rows of elements side by side: how many rows, their
    length, and how far apart they are in each tensor. A single row if they allow it, else rows of the innermost axis;
    None if the elements of these are apart."""
    shape = [tensors[0].shape[axis] for axis in order]
    if not shape:
        return 1, 1, (0,) * len(tensors)
    for rows, length in ((1, product(shape)), (product(shape[:-1]), shape[-1])):
        merged = [reshape_strides(shape, [x.strides[axis] for axis in order], (rows, length)) for x in tensors]
        if all(strides is not None and (length == 1 or strides[1] == 1) for strides in merged):
            return rows, length, tuple(strides[0] for strides in merged if strides is not None)
    return None


def reshape_strides(
    old: Sequence[DimLike], strides: Sequence[DimLike], new: Sequence[DimLike]
) -> tuple[DimLike, ...] | None:
    """Strides under which the elements read row-major as `new`; None if no strides do that.

    Groups of old and new axes with equal products are matched; within a group the old axes must lie in memory one
    inside the other without gaps.
    """
    if 0 in old and 0 in new:  # nothing is ever read
        return row_major(new)
    kept = [(dim, stride) for dim, stride in zip(old, strides, strict=True) if dim != 1]
    result: list[DimLike] = []
    position = 0
    wanted: DimLike = 1
    group: list[DimLike] = []
    taken: list[tuple[DimLike, DimLike]] = []
    have: DimLike = 1
    for dim in new:
        group.append(dim)
        wanted = wanted * dim
        while have != wanted and position < len(kept) and not _covers(have, wanted):
            taken.append(kept[position])
            have = have * kept[position][0]
            position += 1
        if have == wanted:
            if (filled := _fill_group(taken, group)) is None:
                return None
            result.extend(filled)
            wanted, have, group, taken = 1, 1, [], []
    if group or position < len(kept):
        return None
    return tuple(result)


def pixels_as_rows(tensor: StridedTensor) -> StridedTensor | None:
    """An image [N, C, spatial...] as matrices [N, pixels, C]; None if its pixels are not evenly spaced."""
    pixels = product(tensor.shape[2:])
    stride = reshape_strides(tensor.shape[2:], tensor.strides[2:], (pixels,))
    if stride is None:
        return None
    shape, strides = (tensor.shape[0], pixels, tensor.shape[1]), (tensor.strides[0], stride[0], tensor.strides[1])
    return replace(tensor, shape=shape, strides=strides)


def pixel_strides(tensor: StridedTensor) -> tuple[DimLike, DimLike, DimLike] | None:
    """Strides of an image by (image, linear pixel, channel): how window kernels address their epilogue's operands."""
    matrix = pixels_as_rows(tensor)
    return None if matrix is None else matrix.strides  # type: ignore[return-value]


def rows_of_images(tensor: StridedTensor, first: DimLike, count: DimLike, stride: DimLike) -> StridedTensor:
    """Rows [first, first + count) of images, which lie `stride` elements apart; all rows if `first` is 0."""
    return _rows(tensor, first, count, stride, flat=False)


def flat_rows(
    tensor: StridedTensor, first: DimLike, count: DimLike, stride: DimLike, total: DimLike | None = None
) -> StridedTensor:
    """Rows [first, first + count), which lie `stride` elements apart through all axes that they are counted by, as
    pixels do through height and width; all rows if `first` is 0.

    total: how many rows there are, where axes behind the one that counts them first may count them, too.
    """
    part = _rows(tensor, first, count, stride, flat=True)
    if part is tensor or total is None:
        return part
    shape = [*part.shape]
    counting = {step: axis for axis, step in enumerate(tensor.strides) if tensor.shape[axis] != 1}
    axis = counting.get(stride)
    counted: DimLike = 1
    while axis is not None:
        counted *= tensor.shape[axis]
        axis = counting.get(stride * counted) if counted != total else None
        if axis is not None:
            shape[axis] = 1
    return replace(part, shape=tuple(shape))


def _rows(tensor: StridedTensor, first: DimLike, count: DimLike, stride: DimLike, *, flat: bool) -> StridedTensor:
    if first == 0 or stride == 0:
        return tensor
    shape = [*tensor.shape]
    along = [axis for axis, step in enumerate(tensor.strides) if step == stride and shape[axis] != 1]
    for axis in along[-1:]:
        shape[axis] = count
        for outer in range(axis if flat else 0):
            step = tensor.strides[outer]
            shape[outer] = 1 if floor_divide(step, stride) * stride == step else shape[outer]
    return replace(tensor, offset=tensor.offset + first * stride, shape=tuple(shape))


def pair(values: Sequence[_D], fill: int = 1) -> tuple[_D, _D]:
    """Values by height and width; an image of one axis has height `fill`."""
    return (values[0], values[1]) if len(values) == 2 else (fill, values[0])  # type: ignore[return-value]


def plane_strides(tensor: StridedTensor) -> tuple[DimLike, DimLike, DimLike] | None:
    """Strides of an image by (image, channel, linear pixel): how kernels that write planes address operands."""
    strides = pixel_strides(tensor)
    return None if strides is None else (strides[0], strides[2], strides[1])


def _covers(have: DimLike, wanted: DimLike) -> bool:
    """Whether `have` is a proper multiple of `wanted`: more new axes must join before the products can agree."""
    if isinstance(have, int) and isinstance(wanted, int):
        return have > wanted
    quotient = have // wanted
    return quotient != 1 and (have % wanted) == 0


def _fill_group(taken: Sequence[tuple[DimLike, DimLike]], group: Sequence[DimLike]) -> list[DimLike] | None:
    """Strides of the new axes `group` over the old (dim, stride) pairs `taken`; None if these have gaps."""
    if not taken:
        return [1] * len(group)
    for (_, outer), (dim, inner) in itertools.pairwise(taken):
        if outer != dim * inner:
            return None
    step = taken[-1][1]
    strides: list[DimLike] = []
    for dim in reversed(group):
        strides.append(step)
        step = step * dim
    return list(reversed(strides))
