"""What the kernels are that write as many elements as the data says, without compiling them.

Their result lies in memory for as many elements as there can be, without gaps from its beginning on, and `count` (one
int64) says how many there are along the axis whose size only the data tells.
"""

from __future__ import annotations

from math import prod

from jitonnx.emit.arguments import Arguments, Buffer, Size, Sizes, each, result
from jitonnx.kernels.parts.axes import MAX_RANK
from jitonnx.kernels.parts.sizes import smaller
from jitonnx.kernels.spec import ITEMSIZES, KernelSpec, Work, only
from jitonnx.support.records import dataclass


class NonZeroBuffers(Arguments):
    x: Buffer
    out: Buffer = result()
    count: Buffer = result()


class NonZeroSizes(Arguments):
    extents: Sizes = each(MAX_RANK, fill=1)


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

    BUFFERS = NonZeroBuffers
    SIZES = NonZeroSizes
    ALLOWED = only(rank=range(1, MAX_RANK + 1), itemsize=ITEMSIZES)

    def tasks(self, sizes: NonZeroSizes) -> int:
        return 1

    def work(self, sizes: NonZeroSizes) -> Work:
        elements = prod(sizes.extents)
        return Work(elements, 2 * elements * self.itemsize)


class CompressBuffers(Arguments):
    x: Buffer
    condition: Buffer
    out: Buffer = result()
    count: Buffer = result()


class CompressSizes(Arguments):
    outer: Size
    length: Size
    run_bytes: Size
    conditions: Size


@dataclass(frozen=True)
class CompressSpec(KernelSpec):
    """out[o, k] = x[o, i], a run of bytes, for the k-th i for which condition[i] is true; ONNX's Compress.

    x and out are dense: [outer, length, run_bytes] and [outer, count, run_bytes]. A condition may be shorter than
    `length`; what is behind its end is not chosen. One task, also where there are no elements.
    """

    piece: int = 0
    """Bytes of a run if they are 1, 2, 4 or 8; 0: any."""

    BUFFERS = CompressBuffers
    SIZES = CompressSizes
    ALLOWED = only(piece=(0, *ITEMSIZES))

    def tasks(self, sizes: CompressSizes) -> int:
        return 1

    def scratch_bytes(self, sizes: CompressSizes) -> int:
        """The places that are chosen."""
        return 8 * smaller(sizes.length, sizes.conditions)

    def work(self, sizes: CompressSizes) -> Work:
        return Work(0, 2 * sizes.outer * sizes.length * sizes.run_bytes + sizes.conditions)
