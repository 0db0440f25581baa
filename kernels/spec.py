"""What every kind of kernel says about itself without being compiled: arguments, tasks, scratch memory, work.

Never imports LLVM: the planner and a warm start use it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, ClassVar

from jitonnx.support.records import NamedTuple, dataclass

ITEMSIZES = (1, 2, 4, 8)
"""Bytes of elements that are moved whatever they are."""
INDICES = ("int32", "int64")


class Work(NamedTuple):
    """What one call of a kernel does at least: floating-point operations, and bytes read and written once each."""

    flops: int
    bytes: int


def only(**allowed: Collection[Any]) -> Mapping[str, Collection[Any]]:
    """What fields of a spec may be, by name: there is no kernel for others, and making its spec is a ValueError."""
    return allowed


@dataclass(frozen=True)
class KernelSpec:
    """All that a kernel's code depends on, besides the target's vector width and the epilogue.

    Subclasses are frozen dataclasses of plain values; equal specs share code. A kernel is called with the pointers
    of `BUFFERS` and the integers of `SIZES`, in this order, followed by those of prologue and epilogue.
    """

    BUFFERS: ClassVar[Any]
    SIZES: ClassVar[Any]
    PRESCHEDULED: ClassVar[bool] = False
    """Whether its loops are to run as they are written: a few of LLVM's passes then do for it, which take a tenth of
    the time of all, and addresses are stepped as the kernel says. So it was measured where it is set: transposing
    copies would take 3 to 8 % longer, small windows of pooling up to 20 %."""
    COMBINING: ClassVar[bool] = False
    """Whether, where addresses are stepped as LLVM finds best, those few passes and its combining of instructions do,
    in half of the time of all. So it was measured where it is set: TopK would take 1.2 to 1.3 times as long, sums along
    rows 1.4, and resizing linearly with AVX2 1.06."""

    GFLOPS: ClassVar[int] = 50
    """A rough rate of its arithmetic on one core, by which calls are shared among threads, and runs watched."""

    ALLOWED: ClassVar[Mapping[str, Collection[Any]]] = {}
    """What some of its fields may be (`only`)."""

    IN_PLACE: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Pairs of buffers, one read and one written, that may be the same memory as a whole."""

    def __post_init__(self) -> None:
        for name, allowed in self.ALLOWED.items():
            if (value := getattr(self, name)) not in allowed:
                raise ValueError(
                    f"no {self.family} kernel has {name} {value!r}; known are {', '.join(map(str, allowed))}"
                )

    @property
    def prescheduled(self) -> bool:
        """PRESCHEDULED, of this spec."""
        return self.PRESCHEDULED

    @property
    def family(self) -> str:
        """The folder of the kernel library that holds the spec and, beside it, the kernel."""
        return type(self).__module__.split(".")[-2]

    @property
    def plain(self) -> KernelSpec:
        """A spec of the library, of plain values, with the same sizes, tasks and work: programs are made with it."""
        return self

    def given(self, values: Iterable[Any]) -> Any:
        """The sizes that `complete` takes, in order, as their record."""
        return self.SIZES.make(values)

    def complete(self, sizes: Any) -> Any:
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
        return self.SIZES.WIDTH

    def tasks(self, sizes: Any) -> int:
        """Independent pieces of work that threads share out; 0 when there is nothing to do."""
        raise NotImplementedError

    def grain(self, sizes: Any) -> int:
        """How many tasks a thread should take at a time at least, besides what their time asks for."""
        return 1

    def scratch_bytes(self, sizes: Any) -> int:
        """Bytes of memory that each thread needs for itself."""
        return 0

    def work(self, sizes: Any) -> Work:
        """Operations and bytes of a call."""
        raise NotImplementedError
