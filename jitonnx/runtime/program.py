"""What a program is: the plain data that a finished model is made of.

A kernel is a native function

    void kernel(uint8_t **buffers, const int64_t *sizes, int64_t begin, int64_t end, uint8_t *scratch)

`buffers` points to its operands, `sizes` to its integer arguments; it does the tasks [begin, end) of its step, and the
result of a task does not depend on how tasks are split. `scratch` is memory for this thread alone.

What is needed at a start are named tuples all over this package: a dataclass takes ten times as long to make.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from jitonnx.errors import Fail
from jitonnx.support import fork_safety
from jitonnx.support.records import NamedTuple

from .layout import STEP_COLUMNS

if TYPE_CHECKING:
    import numpy.typing as npt

Space: TypeAlias = Literal["arena", "constant", "input", "output"]
SPACES: tuple[Space, ...] = ("arena", "constant", "input", "output")

Shapes: TypeAlias = tuple[tuple[int, ...], ...]
"""A shape for each input, in order: what a program is made for."""


class Slot(NamedTuple):
    """An operand's place: `offset` bytes into the arena, or into constant, input or output number
    `index`."""

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
    nanoseconds: about what it takes on one core.
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
    nanoseconds: int = 0


Words: TypeAlias = "npt.NDArray[np.int64]"


class Wiring(NamedTuple):
    """What steps are apart from numbers: the same in all programs made of one plan.

    kernels, labels: of each step. ends: which operand follows each step's last one. spaces (positions in `SPACES`),
    indices: of each operand of each step. shared: inputs and outputs that may be the same memory as a whole, in pairs:
    such an input is read by nobody but the step that writes the output.
    """

    kernels: Sequence[str]
    labels: Sequence[str]
    ends: Words
    spaces: Words
    indices: Words
    shared: frozenset[tuple[int, int]] = frozenset()


class Steps(Sequence[Step]):
    """Steps in order, as numbers: what tables are made of. One without tasks is passed over.

    offsets: of each operand of each step. sizes: of all steps, several of which may have the same.
    columns: `STEP_COLUMNS` of each step, as of `Step`; its sizes are `size_count` from `size_begin` on.
    """

    def __init__(self, wiring: Wiring, offsets: Words, sizes: Words, columns: Words) -> None:
        self.wiring, self.offsets, self.sizes, self.columns = wiring, offsets, sizes, columns

    @classmethod
    def of(cls, steps: Sequence[Step]) -> Steps:
        """The columns of single steps."""
        slots = [slot for step in steps for slot in step.slots]
        wiring = Wiring(
            [step.kernel for step in steps],
            [step.label for step in steps],
            _words(len(step.slots) for step in steps).cumsum(),
            _words(_CODES[slot.space] for slot in slots),
            _words(slot.index for slot in slots),
        )
        numbers = [
            (0, len(step.sizes), step.tasks, step.threads, step.grain, step.scratch, step.nanoseconds) for step in steps
        ]
        columns = np.array(numbers, np.int64).reshape(len(steps), len(STEP_COLUMNS)).T.copy()
        columns[0] = columns[1].cumsum() - columns[1]
        sizes = _words(chain.from_iterable(step.sizes for step in steps))
        return cls(wiring, _words(slot.offset for slot in slots), sizes, columns)

    def __len__(self) -> int:
        return int(self.columns.shape[1])

    def __getitem__(self, index: int) -> Step:  # type: ignore[override]  # nobody takes slices
        index = range(len(self))[index]
        wiring = self.wiring
        operands = range(wiring.ends[index - 1] if index else 0, wiring.ends[index])
        begin, count, tasks, threads, grain, scratch, nanoseconds = self.columns[:, index].tolist()
        return Step(
            wiring.kernels[index],
            tuple(
                Slot(SPACES[wiring.spaces[place]], int(wiring.indices[place]), int(self.offsets[place]))
                for place in operands
            ),
            tuple(self.sizes[begin : begin + count].tolist()),
            tasks,
            threads,
            grain,
            scratch,
            wiring.labels[index],
            nanoseconds,
        )


def _words(numbers: Iterable[int]) -> Words:
    return np.fromiter(numbers, np.int64)


_CODES = {space: code for code, space in enumerate(SPACES)}


class TensorSpec(NamedTuple):
    """An input or output: its name, element type and concrete shape."""

    name: str
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]


class TensorKinds(NamedTuple):
    """What inputs or outputs are apart from sizes: the same in all programs made of one plan.

    Inputs of strings have the type `object` and no bytes: no kernel reads them, only their shapes count.
    """

    names: Sequence[str]
    dtypes: Sequence[np.dtype[np.generic]]
    ranks: Sequence[int]
    itemsizes: Words

    @classmethod
    def of(cls, names: Sequence[str], dtypes: Sequence[np.dtype[np.generic]], ranks: Sequence[int]) -> TensorKinds:
        """Those of these names, element types and ranks."""
        return cls(names, dtypes, ranks, _words(0 if dtype.hasobject else dtype.itemsize for dtype in dtypes))


class Tensors(Sequence[TensorSpec]):
    """Inputs or outputs, in order. shapes: a row each, filled up with ones."""

    def __init__(self, kinds: TensorKinds, shapes: Words) -> None:
        self.kinds, self.shapes = kinds, shapes

    @classmethod
    def of(cls, specs: Sequence[TensorSpec]) -> Tensors:
        """The columns of single tensors."""
        ranks = [len(spec.shape) for spec in specs]
        shapes = [(*spec.shape, *(1 for _ in range(max(ranks) - len(spec.shape)))) for spec in specs]
        kinds = TensorKinds.of([spec.name for spec in specs], [spec.dtype for spec in specs], ranks)
        return cls(kinds, np.array(shapes, np.int64).reshape(len(specs), max(ranks, default=0)))

    def __len__(self) -> int:
        return len(self.shapes)

    def __getitem__(self, index: int) -> TensorSpec:  # type: ignore[override]  # nobody takes slices
        kinds = self.kinds
        shape = tuple(self.shapes[index, : kinds.ranks[index]].tolist())
        return TensorSpec(kinds.names[index], kinds.dtypes[index], shape)

    @fork_safety.cached_property
    def nbytes(self) -> npt.NDArray[np.float64]:
        """The bytes of each, beyond 2^53 roughly."""
        elements: npt.NDArray[np.float64] = self.shapes.prod(axis=1, dtype=np.float64)
        return elements * self.kinds.itemsizes


class Program(NamedTuple):
    """A model made ready for concrete shapes: steps in order, and the memory they work in.

    constants: arrays that are used in place and must not change; C-contiguous.
    """

    steps: Steps
    arena_bytes: int
    constants: Sequence[npt.NDArray[np.generic]]
    inputs: Tensors
    outputs: Tensors

    @property
    def nanoseconds(self) -> int:
        """About what all steps take on one core."""
        return int(self.steps.columns[STEP_COLUMNS.index("nanoseconds")].sum())


class OutOfBounds(Fail):
    """A plan that has a kernel go beyond the memory of an operand for the sizes of a run: it is of no use for them."""

    def __init__(self, wiring: Wiring, place: int) -> None:
        super().__init__(f"Bug: the plan is wrong: {operand_named(wiring, place)} does not lie in its memory")

    def __reduce__(self) -> tuple[type[Fail], tuple[str]]:
        return Fail, (self.text,)


def operand_named(wiring: Wiring, place: int) -> str:
    """The name of one of all operands, for messages."""
    step = int(np.searchsorted(wiring.ends, place, side="right"))
    name = wiring.labels[step] or wiring.kernels[step]
    return f"{SPACES[wiring.spaces[place]]} {wiring.indices[place]} of step {step} ({name})"


class Flag(NamedTuple):
    """A word (int64 [1]) that a kernel sets to 1 on an error in the data, such as an index out of range.

    It is among a program's constants and stands for a word of its own in each run.
    """

    word: npt.NDArray[np.int64]
    text: str


def beyond_memory(tensor: TensorSpec) -> Fail:
    """The error for an input or output whose bytes take more than 63 bits to count."""
    return Fail(f"{tensor.name!r} would have the shape {list(tensor.shape)}, which is beyond all memory")


def arena_beyond_memory(nbytes: int) -> Fail:
    """The error for intermediate results whose bytes take more than 63 bits to count."""
    return Fail(f"intermediate results would take {nbytes} bytes, which is beyond all memory")
