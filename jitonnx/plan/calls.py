"""Kernel calls: one step of a plan, with everything symbolic that depends on the sizes of a run."""

from __future__ import annotations

from dataclasses import field

from jitonnx.emit.arguments import Arguments
from jitonnx.ir.computation.expressions import Expr
from jitonnx.ir.dims import DimLike
from jitonnx.ir.dtypes import DType
from jitonnx.kernels.spec import KernelSpec
from jitonnx.plan.tensor import StridedTensor
from jitonnx.support.records import dataclass
from jitonnx.target.choosing import Choice


@dataclass(frozen=True)
class Stage:
    """A scalar expression that a kernel applies to each vector: to what it has loaded, or is about to store.

    operand(0) is the kernel's own value; operand(i) comes from the i-th further tensor, addressed by batch, row and
    column through strides that are sizes of the call. `columns[i]` says whether it advances with the column (1) or is
    one element a row (0); `rows[i]`, whether it may differ between rows or matrices of the batch (1) or is known not to
    (0), as a bias is: its address then needs no sizes, and kernels load it once for several rows. The tensors' pointers
    start at `first_buffer`, their two strides each at `first_size`. With `bounded`, the tensor behind them holds two
    numbers of float32, at which the result is cut off: kernels that differ in nothing else are one.
    """

    expr: Expr
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    dtypes: tuple[DType, ...]
    first_buffer: int
    first_size: int
    bounded: bool = False


@dataclass(eq=False)
class KernelCall:
    """One kernel with its arguments, as its spec names them; behind them stand those of prologue and epilogue."""

    spec: KernelSpec
    buffers: Arguments
    """Tensors."""
    sizes: Arguments
    """Dimensions: what the spec's `complete` gets."""
    stage_tensors: list[StridedTensor] = field(default_factory=list)
    stage_sizes: list[DimLike] = field(default_factory=list)
    prologue: Stage | None = None
    epilogue: Stage | None = None
    label: str = ""
    origin: tuple[str, ...] = ()
    reason: str = ""
    notes: list[str] = field(default_factory=list)
    choices: tuple[Choice, ...] = ()
    """What was chosen for its group of statements and for the calls that it goes in turns with, if choices are noted:
    of calls for several groups, for all."""

    def __post_init__(self) -> None:
        buffers, sizes = self.spec.BUFFERS, self.spec.SIZES
        if type(self.buffers) is not buffers or not (issubclass(sizes, type(self.sizes)) and self.sizes.is_given):
            given = " and ".join(f"{len(record)} of {type(record).__name__}" for record in (self.buffers, self.sizes))
            wanted = f"{buffers.__name__} and {sizes.GIVEN} of {sizes.__name__}"
            raise TypeError(f"Bug: {type(self.spec).__name__} is called with {wanted}, and not with {given}")

    def note_choices(self, made: tuple[Choice, ...]) -> None:
        """Note what was chosen for it, besides what is noted yet."""
        self.choices += made
        self.notes += [choice.reason for choice in made if choice.reason]

    @property
    def tensors(self) -> list[StridedTensor]:
        """All that it touches, in the order in which the kernel gets their pointers."""
        return [*self.buffers, *self.stage_tensors]

    @property
    def written(self) -> list[StridedTensor]:
        return [self.buffers[place] for place in self.buffers.results()]

    @property
    def read(self) -> list[StridedTensor]:
        results = set(self.buffers.results())
        return [tensor for place, tensor in enumerate(self.tensors) if place not in results]
