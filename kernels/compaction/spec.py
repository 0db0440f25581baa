"""What the kernels are that write as many elements as the data says, without compiling them.

Their result lies in memory for as many elements as there can be, without gaps from its beginning on, and `count` (one
int64) says how many there are along the axis whose size only the data tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar

from jitonnx.kernels.parts.axes import MAX_RANK
from jitonnx.kernels.parts.sizes import smaller
from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.records import dataclass


@dataclass(frozen=True)
class NonZeroSpec(KernelSpec):
    """out[axis, k] = the coordinate on `axis` of element number k of those that are not zero; ONNX's NonZero.

    x is dense and of `rank` axes; out is [rank, count]. A first pass counts, by vectors, a second one writes the places
    of what it finds, which are then parted into coordinates. One task, also where there are no elements.
    """

    rank: int
    itemsize: int
    """Bytes of an element of x: 1, 2, 4 or 8."""
    floating: bool
    """Whether the highest bit is a sign, which zero may have."""

    BUFFERS: ClassVar[tuple[str, ...]] = ("x", "out", "count")
    SIZES: ClassVar[tuple[str, ...]] = tuple(f"extent_{axis}" for axis in range(MAX_RANK))
    """Of the axes that there are, then ones."""

    def __post_init__(self) -> None:
        if not 0 < self.rank <= MAX_RANK or self.itemsize not in (1, 2, 4, 8):
            raise ValueError(f"no kernel for the places of {self.itemsize} bytes in {self.rank} axes")

    def tasks(self, sizes: Sequence[int]) -> int:
        return 1

    def work(self, sizes: Sequence[int]) -> Work:
        elements = prod(sizes)
        return Work(elements, 2 * elements * self.itemsize)


@dataclass(frozen=True)
class CompressSpec(KernelSpec):
    """out[o, k] = x[o, i], a run of bytes, for the k-th i for which condition[i] is true; ONNX's Compress.

    x and out are dense: [outer, length, run_bytes] and [outer, count, run_bytes]. A condition may be shorter than
    `length`; what is behind its end is not chosen. One task, also where there are no elements.
    """

    piece: int = 0
    """Bytes of a run if they are 1, 2, 4 or 8; 0: any."""

    BUFFERS: ClassVar[tuple[str, ...]] = ("x", "condition", "out", "count")
    SIZES: ClassVar[tuple[str, ...]] = ("outer", "length", "run_bytes", "conditions")

    def __post_init__(self) -> None:
        if self.piece not in (0, 1, 2, 4, 8):
            raise ValueError(f"runs of {self.piece} bytes are not moved at once")

    def tasks(self, sizes: Sequence[int]) -> int:
        return 1

    def scratch_bytes(self, sizes: Sequence[int]) -> int:
        """The places that are chosen."""
        return 8 * smaller(sizes[1], sizes[3])

    def work(self, sizes: Sequence[int]) -> Work:
        outer, length, run, conditions = sizes
        return Work(0, 2 * outer * length * run + conditions)
