"""What the kernel of Unique is, without compiling it."""

from __future__ import annotations

from jitonnx.emit.arguments import Arguments, Buffer, Size, result
from jitonnx.kernels.spec import ITEMSIZES, KernelSpec, Work, only
from jitonnx.support.records import dataclass

INFINITIES = {"float16": 0x7C00, "bfloat16": 0x7F80, "float": 0x7F800000, "double": 0x7FF0 << 48}
"""The bits of infinity; those of a NaN, without its sign, are more."""
ITEM_BYTES = {
    **{f"{sign}int{bits}": bits // 8 for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **{"bool": 1, "float16": 2, "bfloat16": 2, "float": 4, "double": 8},
}
"""The element types by ONNX's names, and the bytes of an element."""


class UniqueBuffers(Arguments):
    x: Buffer
    values: Buffer = result()
    indices: Buffer = result()
    inverse: Buffer = result()
    counts: Buffer = result()
    values_count: Buffer = result()
    indices_count: Buffer = result()
    counts_count: Buffer = result()


class UniqueSizes(Arguments):
    outer: Size
    length: Size
    inner: Size


@dataclass(frozen=True)
class UniqueSpec(KernelSpec):
    """values[o, k, i] = x[o, indices[k], i]: the distinct ones among the `length` slices x[:, l, :]; ONNX's Unique.

    x is dense, [outer, length, inner]; so is values, [outer, count, inner], at the beginning of memory for all slices.
    indices and counts (int64) hold `count` numbers: where a distinct slice comes first, and how often. inverse[l]
    (int64) is the number of slice l among the distinct ones. `values_count`, `indices_count` and `counts_count` (one
    int64 each) all say how many there are: each of these results has a count of its own.

    ascending: slices are in lexicographic order, else in the order in which they come first. -0 equals 0; NaN is
    larger than all numbers. As in NumPy, NaN equals NaN if x has one axis, else a slice with a NaN equals none.

    A stable sort, then a pass that numbers the runs of equal ones. Elements become records, a key of the element in
    front of its index, so no more than 2**32 elements of less than 8 bytes: a radix sort by the keys. Slices are
    compared where they lie: a merge sort of their indices. One task, also where there are no elements.
    """

    element: str
    """ONNX's name of it: "float", "uint8", ..."""
    sliced: bool
    """Whether x has several axes; else a slice is an element, and outer and inner are 1."""
    ascending: bool
    piece: int = 0
    """Bytes of a run of `inner` elements if they are 1, 2, 4 or 8; 0: any."""

    BUFFERS = UniqueBuffers
    SIZES = UniqueSizes
    ALLOWED = only(element=ITEM_BYTES, piece=(0, *ITEMSIZES))

    @property
    def record_bytes(self) -> int:
        """8, with 32 bits of key and of index, or for the index of a slice; 16 where an element has 64 bits."""
        return 16 if ITEM_BYTES[self.element] == 8 and not self.sliced else 8

    def tasks(self, sizes: UniqueSizes) -> int:
        return 1

    def scratch_bytes(self, sizes: UniqueSizes) -> int:
        """Two places for the records; the numbers by order of first occurrence of those by order."""
        return 2 * (sizes.length + 1) * self.record_bytes + (0 if self.ascending else 8 * sizes.length)

    def work(self, sizes: UniqueSizes) -> Work:
        """Count as if slices, some thousands of them, differed in their first elements: the data tells."""
        rounds = 12 if self.sliced else 2 * ITEM_BYTES[self.element]
        elements = sizes.outer * sizes.length * sizes.inner
        moved = sizes.length * (24 + 2 * rounds * self.record_bytes)
        return Work(8 * sizes.length * rounds, 2 * elements * ITEM_BYTES[self.element] + moved)
