"""What the kernel of TopK is, without compiling it."""

from __future__ import annotations

import numpy as np

from jitonnx.emit.arguments import Arguments, Buffer, Size, computed, result
from jitonnx.kernels.parts.sharing import units_per_task
from jitonnx.kernels.parts.sizes import larger
from jitonnx.kernels.spec import KernelSpec, Work, only
from jitonnx.support.records import dataclass

ELEMENTS = (*(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), "float32", "float64")
BLOCK = 64
"""The most elements that are compared with the threshold at once, and may be added to the candidates."""
_LEAST_CANDIDATES = 64


class TopKBuffers(Arguments):
    x: Buffer
    values: Buffer = result()
    indices: Buffer = result()


class TopKSizes(Arguments):
    rows: Size
    length: Size
    k: Size
    x_row: Size
    values_row: Size
    indices_row: Size
    capacity: Size = computed()
    one_by_one: Size = computed()


@dataclass(frozen=True)
class TopKSpec(KernelSpec):
    """values[r, :] = the k largest (or smallest) of x[r, :], in order; indices[r, :] (int64) = where they stand in it.

    Rows of all three are dense, and begin x_row, values_row and indices_row elements apart. Of equal elements the one
    with the lower index comes first; -0 equals 0; NaN is larger than all numbers.

    Elements become records: integers whose order is the one wanted, for they hold first a key of the element and then
    the index, complemented. Of a row the first `capacity` records are candidates. A quickselect leaves the k best, the
    worst of which is a threshold that further elements have to pass to become candidates; when these fill the memory,
    that is repeated. Random rows so pass the threshold about 3 k log4(n / capacity) times, and a row in ascending
    order n times, each of which costs a few steps of a quickselect: the time is O(n), plus k log k for sorting the
    result. Where k is no small part of a row, all of it are candidates.

    Of a short row a few elements are taken one by one: the largest record is looked for, and wiped out.

    Task: rows of about as many elements as `sharing` says.
    """

    element: str = "float32"
    largest: bool = True

    BUFFERS = TopKBuffers
    SIZES = TopKSizes
    ALLOWED = only(element=ELEMENTS)

    @property
    def record_bytes(self) -> int:
        """8, with 32 bits of key and of index; 16 where an element has 64 bits."""
        return 16 if np.dtype(self.element).itemsize == 8 else 8

    def complete(self, sizes: TopKSizes) -> TopKSizes:
        length, k = sizes.length, sizes.k
        capacity = larger(4 * k, _LEAST_CANDIDATES)
        capacity = capacity if 2 * capacity < length else length
        one_by_one = int(capacity == length and k * self._look_cycles(length) < 8 * length)
        return TopKSizes.following(sizes, capacity=capacity, one_by_one=one_by_one)

    def _look_cycles(self, length: int) -> int:
        """About what looking for the largest of `length` records takes; a quickselect and sorting take 8 for each."""
        return length // 8 + 40 if self.record_bytes == 8 else 2 * length + 20

    def tasks(self, sizes: TopKSizes) -> int:
        rows, length, k = sizes.rows, sizes.length, sizes.k
        return -(-rows // units_per_task(length)) if k else 0

    def scratch_bytes(self, sizes: TopKSizes) -> int:
        """Four times the candidates: the best so far, and what a quickselect parts them into."""
        return 4 * (sizes.capacity + 2 * BLOCK) * self.record_bytes

    def work(self, sizes: TopKSizes) -> Work:
        rows, length, k = sizes.rows, sizes.length, sizes.k
        item = np.dtype(self.element).itemsize
        return Work(rows * (4 * length + 20 * k), rows * (length * item + k * (item + 8)))
