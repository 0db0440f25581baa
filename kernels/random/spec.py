"""What the kernels of random numbers are, without compiling them."""

from __future__ import annotations

import numpy as np

from jitonnx.emit.arguments import Arguments, Buffer, Size, computed, result
from jitonnx.kernels.spec import INDICES, KernelSpec, Work, only
from jitonnx.support.records import dataclass
from jitonnx.target import tuning

ELEMENTS = ("float32", "float64")
KINDS = ("uniform", "normal")
SEARCH_ELEMENTS = 1 << 9


class NextBuffers(Arguments):
    state: Buffer
    drawn: Buffer = result()


class NextSizes(Arguments):
    words: Size
    """2."""


@dataclass(frozen=True)
class NextSpec(KernelSpec):
    """drawn = [key, number] of the next draw of a state, int64 both: the state's number is counted on at once with that
    of other threads, whose runs draw from the same state. One task."""

    BUFFERS = NextBuffers
    SIZES = NextSizes

    def tasks(self, sizes: NextSizes) -> int:
        return 1

    def work(self, sizes: NextSizes) -> Work:
        return Work(2, 8 * sizes.words)


class RandomBuffers(Arguments):
    drawn: Buffer
    limits: Buffer
    y: Buffer = result()


class RandomSizes(Arguments):
    count: Size


@dataclass(frozen=True)
class RandomSpec(KernelSpec):
    """y[i] = the i-th number of a draw (`jitonnx.support.philox`) times limits[0] plus limits[1], at most limits[2].

    drawn: key and number of the draw, int64. limits: three numbers of y's type. Task: `task_elements` numbers:
    whole blocks of words; their counters follow from their places.
    """

    kind: str
    element: str = "float32"

    BUFFERS = RandomBuffers
    SIZES = RandomSizes
    PRESCHEDULED = True
    ALLOWED = only(kind=KINDS, element=ELEMENTS)

    @property
    def task_elements(self) -> int:
        """Numbers of a task."""
        return tuning.RANDOM_TASK_WORDS * 4 // np.dtype(self.element).itemsize

    def tasks(self, sizes: RandomSizes) -> int:
        return -(-sizes.count // self.task_elements)

    def work(self, sizes: RandomSizes) -> Work:
        itemsize = np.dtype(self.element).itemsize
        return Work(tuning.RANDOM_WORD_FLOPS * sizes.count * itemsize // 4, sizes.count * itemsize)


class SearchBuffers(Arguments):
    sums: Buffer
    x: Buffer
    y: Buffer = result()


class SearchSizes(Arguments):
    rows: Size
    sums: Size
    columns: Size
    task_elements: Size = computed()


@dataclass(frozen=True)
class SearchSpec(KernelSpec):
    """y[r, c] = how many of the ascending sums[r] are not above x[r, c]; all dense, sums and x of float64.

    Task: task_elements elements of y.
    """

    index: str = "int32"

    BUFFERS = SearchBuffers
    SIZES = SearchSizes
    ALLOWED = only(index=INDICES)

    def complete(self, sizes: SearchSizes) -> SearchSizes:
        return SearchSizes.following(sizes, task_elements=SEARCH_ELEMENTS)

    def tasks(self, sizes: SearchSizes) -> int:
        return -(-sizes.rows * sizes.columns // sizes.task_elements)

    def work(self, sizes: SearchSizes) -> Work:
        elements = sizes.rows * sizes.columns
        return Work(tuning.RANDOM_SEARCH_FLOPS * elements, 16 * elements + 8 * sizes.rows * sizes.sums)
