"""What every kind of kernel says about itself without being compiled: arguments, tasks, scratch memory, work.

Imports neither LLVM nor anything of ours: the planner and a warm start use it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from jitonnx.records import dataclass


class Work(NamedTuple):
    """What one call of a kernel does at least: floating-point operations, and bytes read and written once each."""

    flops: int
    bytes: int


@dataclass(frozen=True)
class KernelSpec:
    """All that a kernel's code depends on, besides the target's vector width and the epilogue.

    Subclasses are frozen dataclasses of plain values; equal specs share code. A kernel is called with the pointers
    named in `BUFFERS` and the integers named in `SIZES`, in this order, followed by those of prologue and epilogue.
    """

    BUFFERS: ClassVar[tuple[str, ...]] = ()
    SIZES: ClassVar[tuple[str, ...]] = ()
    SETTLED: ClassVar[bool] = False
    """Whether its loops hold nothing that LLVM should move out of them: a few passes then do for it, which take a tenth
    of the time of all. So it was measured where it is set; depthwise convolutions took up to 1.2 times as long."""

    @property
    def family(self) -> str:
        """The folder of the kernel library that holds the spec and, beside it, the kernel."""
        return type(self).__module__.split(".")[-2]

    @property
    def plain(self) -> KernelSpec:
        """A spec of the library, of plain values, with the same sizes, tasks and work: programs are made with it."""
        return self

    def complete(self, sizes: Sequence[int]) -> Sequence[int]:
        """The sizes that the kernel is called with, for those that the planner gives: derived ones may be appended.

        Called once when a program is made for concrete sizes; `tasks`, `scratch_bytes` and `work` get the result. The
        sizes of prologue and epilogue are not among them: they follow, from position `size_count` on.
        """
        return sizes

    @property
    def features(self) -> tuple[str, ...]:
        """What the code needs of a CPU beyond what LLVM makes use of by itself, by LLVM's names."""
        return ()

    @property
    def size_count(self) -> int:
        """How many sizes `complete` returns: where those of prologue and epilogue begin."""
        return len(self.SIZES)

    def tasks(self, sizes: Sequence[int]) -> int:
        """Independent pieces of work that threads share out; 0 when there is nothing to do."""
        raise NotImplementedError

    def grain(self, sizes: Sequence[int]) -> int:
        """How many tasks a thread should take at a time at least, besides what their time asks for."""
        return 1

    def scratch_bytes(self, sizes: Sequence[int]) -> int:
        """Bytes of memory that each thread needs for itself."""
        return 0

    def work(self, sizes: Sequence[int]) -> Work:
        """Operations and bytes of a call."""
        raise NotImplementedError
