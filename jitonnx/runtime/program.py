"""What a program is: the plain data that a finished model is made of.

A kernel is a native function

    void kernel(uint8_t **buffers, const int64_t *sizes, int64_t begin, int64_t end, uint8_t *scratch)

`buffers` points to its operands, `sizes` to its integer arguments; it does the tasks [begin, end) of its step, and the
result of a task does not depend on how tasks are split. `scratch` is memory for this thread alone.

What is needed at a start are named tuples all over this package: a dataclass takes ten times as long to make.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Space: TypeAlias = Literal["arena", "constant", "input", "output"]
SPACES: tuple[Space, ...] = ("arena", "constant", "input", "output")

Shapes: TypeAlias = tuple[tuple[int, ...], ...]
"""A shape for each input, in order: what a program is made for."""


class Slot(NamedTuple):
    """Where an operand lies: `offset` bytes into the arena, or into constant, input or output number `index`."""

    space: Space
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody misses
    offset: int = 0


class Step(NamedTuple):
    """One call of a kernel, shared by threads.

    kernel: the symbol of its function.
    slots: its operands. sizes: its integer arguments.
    tasks: how many tasks it has; threads take contiguous parts of range(tasks).
    threads: how many threads are worth using; 1: the calling thread alone.
    grain: how many tasks a thread takes at a time at least, but for the last; less is not worth the taking.
    scratch: bytes of scratch memory a thread needs.
    label: what it is called in explanations and profiles.
    """

    kernel: str
    slots: tuple[Slot, ...]
    sizes: tuple[int, ...] = ()
    tasks: int = 1
    threads: int = 1
    grain: int = 1
    scratch: int = 0
    label: str = ""


class TensorSpec(NamedTuple):
    """An input or output: its name, element type and concrete shape."""

    name: str
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]


class Program(NamedTuple):
    """A model made ready for concrete shapes: steps in order, and the memory they work in.

    constants: arrays that are used in place and must not change; C-contiguous.
    """

    steps: Sequence[Step]
    arena_bytes: int
    constants: Sequence[npt.NDArray[np.generic]]
    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]


class Flag(NamedTuple):
    """A word (int64 [1]) that a kernel sets to 1 on an error in the data, such as an index out of range.

    It is among a program's constants and stands for a word of its own in each run.
    """

    word: npt.NDArray[np.int64]
    text: str
