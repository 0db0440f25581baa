"""What the scattering kernels are, without compiling them.

`out` holds a copy of ONNX's input `data` when a kernel is called. Indices are int32 or int64; negative ones count from
the end of their axis. An index out of range touches no memory: the word `error` (int64) is set to 1, so that the caller
can raise. Updates of the same element are applied in the order in which ONNX lists them: a task does all that meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar

import numpy as np

from jitonnx.kernels.parts.axes import MAX_RANK, dense, merged
from jitonnx.kernels.parts.sizes import larger, smaller
from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.records import dataclass

REDUCTIONS = ("none", "add", "mul", "max", "min")
ELEMENTS = (*(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), "float32", "float64")
_TASK_BYTES = 32 << 10
"""About what a task writes."""
_BLOCK = 512
"""Elements of a row that a task of ScatterElements takes, so that few long rows can be shared out."""
_LEAST_RUN = 256
"""Bytes of a run that ScatterND does not split: each task reads all indices anew."""


def word(itemsize: int) -> str:
    """The element type that stands for all of `itemsize` bytes where elements are only moved, not computed with."""
    return f"uint{8 * itemsize}"


@dataclass(frozen=True)
class _ScatterSpec(KernelSpec):
    index: str
    """"int32" or "int64"."""
    element: str
    """Element type of out and updates; `word` of its size without reduction."""
    reduction: str = "none"
    """What becomes of the old and the new element: none (the new one), add, mul, max or min. NaN wins max and min."""

    BUFFERS: ClassVar[tuple[str, ...]] = ("indices", "updates", "out", "error")

    def __post_init__(self) -> None:
        if self.index not in ("int32", "int64"):
            raise ValueError(f"indices are int32 or int64, not {self.index}")
        if self.element not in ELEMENTS or self.reduction not in REDUCTIONS:
            raise ValueError(f"no scattering kernel for {self.element!r} with reduction {self.reduction!r}")

    @property
    def _itemsizes(self) -> tuple[int, int]:
        return np.dtype(self.element).itemsize, np.dtype(self.index).itemsize


@dataclass(frozen=True)
class ScatterElementsSpec(_ScatterSpec):
    """out[i, j, …] with the coordinate on one axis replaced by indices[i, j, …] becomes updates[i, j, …].

    GIVEN: the extents of up to 8 axes of indices and updates (1 where there is none), their strides in both of these,
    which have the same, and in out; then which axis is indexed, and its extent and stride in out. In elements.
    `complete` turns that into units: two nested loops each, the outer one along the indexed axis, the inner one over a
    block of what lies inside of it; if nothing does, the inner one runs along the axis. Task: task_units units.
    """

    GIVEN: ClassVar[tuple[str, ...]] = (
        *(f"{what}_{axis}" for what in ("extent", "given", "out") for axis in range(MAX_RANK)),
        *("axis", "axis_extent", "axis_stride"),
    )
    SIZES: ClassVar[tuple[str, ...]] = (
        *GIVEN,
        *("units", "task_units", "outer_rank", "blocks", "block"),
        *("slow_extent", "slow_given", "fast_extent", "fast_given", "fast_out"),
        *(f"outer_{axis}_{what}" for axis in range(MAX_RANK) for what in ("extent", "given", "out")),
    )

    def arguments(self, shape: Sequence[int], indices_shape: Sequence[int], axis: int) -> list[int]:
        """SIZES for dense tensors and `axis` >= 0. ValueError for more than 8 axes."""
        if len(shape) > MAX_RANK:
            raise ValueError(f"ScatterElements has at most {MAX_RANK} axes, not {len(shape)}")
        padding = [0] * (MAX_RANK - len(shape))
        given, out = dense(indices_shape), dense(shape)
        sizes = [*indices_shape, *(1 for _ in padding), *given, *padding, *out, *padding]
        return list(self.complete([*sizes, axis, shape[axis], out[axis]]))

    def complete(self, sizes: Sequence[int]) -> Sequence[int]:
        """GIVEN -> SIZES."""
        given = list(sizes[: len(self.GIVEN)])
        axes = [tuple(given[axis : 3 * MAX_RANK : MAX_RANK]) for axis in range(MAX_RANK)]
        extent, stride, _ = axes.pop(given[3 * MAX_RANK])
        outer = merged(axes)
        along = not outer or outer[-1][1] != 1
        slow, fast = ((1, 0), (extent, stride, 0)) if along else ((extent, stride), outer.pop())
        block = fast[0] if along else smaller(fast[0], _BLOCK)
        blocks = -(-fast[0] // larger(1, block))
        task_units = larger(1, _TASK_BYTES // larger(1, slow[0] * block * self._itemsizes[0]))
        counts = [prod(axis[0] for axis in outer) * blocks, task_units, len(outer), blocks, block]
        rest = [(1, 0, 0)] * (MAX_RANK - len(outer))
        return [*given, *counts, *slow, *fast, *(number for axis in (*outer, *rest) for number in axis)]

    def tasks(self, sizes: Sequence[int]) -> int:
        units, task_units = sizes[len(self.GIVEN) :][:2]
        return -(-units // task_units) if prod(sizes[:MAX_RANK]) else 0

    def work(self, sizes: Sequence[int]) -> Work:
        elements, (item, index) = prod(sizes[:MAX_RANK]), self._itemsizes
        return Work(elements if self.reduction != "none" else 0, elements * (3 * item + index))


@dataclass(frozen=True)
class ScatterRowsSpec(_ScatterSpec):
    """out[indices[r, 0], indices[r, 1], …] becomes updates[r], a run of elements, for one r after the other: ScatterND.

    Run r of updates starts at r * run, that of out at the sum of index i times stride_i; all in elements, all runs
    dense. Task: `block` elements of every run, for only one who does all runs keeps their order.
    """

    GIVEN: ClassVar[tuple[str, ...]] = (
        *("count", "run", "width"),
        *(f"extent_{axis}" for axis in range(MAX_RANK)),
        *(f"stride_{axis}" for axis in range(MAX_RANK)),
    )
    """width: indices of a tuple; extent_i, stride_i: extent and stride in out of the axis that index i is of."""
    SIZES: ClassVar[tuple[str, ...]] = (*GIVEN, "block")

    def arguments(self, shape: Sequence[int], indices_shape: Sequence[int]) -> list[int]:
        """SIZES for dense out of `shape` and dense indices. ValueError for more than 8 indices a tuple."""
        width = indices_shape[-1]
        if width > MAX_RANK:
            raise ValueError(f"ScatterND addresses at most {MAX_RANK} axes, not {width}")
        padding = [0] * (MAX_RANK - width)
        strides = dense(shape)[:width]
        head = [prod(indices_shape[:-1]), prod(shape[width:]), width]
        return list(self.complete([*head, *shape[:width], *padding, *strides, *padding]))

    def complete(self, sizes: Sequence[int]) -> Sequence[int]:
        """GIVEN -> SIZES."""
        given, item = list(sizes[: len(self.GIVEN)]), self._itemsizes[0]
        block = larger(_LEAST_RUN // item, _TASK_BYTES // larger(1, given[0] * item))
        return [*given, smaller(block, larger(1, given[1]))]

    def tasks(self, sizes: Sequence[int]) -> int:
        count, run = sizes[:2]
        return -(-run // sizes[len(self.GIVEN)]) if count else 0

    def work(self, sizes: Sequence[int]) -> Work:
        (count, run, width), (item, index) = sizes[:3], self._itemsizes
        return Work(count * run if self.reduction != "none" else 0, count * (3 * run * item + width * index))
