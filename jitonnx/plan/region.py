"""Regions: loop nests with scalar expressions in them, and the iteration space they run over.

A region computes one or more outputs of equal shape from operands broadcast to it. Its loops are the axes of that
shape in the memory order of its first output; axes that lie densely one inside the other in every operand become one
loop. The innermost loop is done in vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from jitonnx.ir.computation import expressions as e
from jitonnx.ir.dims import DimLike
from jitonnx.ir.dtypes import DType
from jitonnx.kernels.region.spec import LoopsSpec, loops_buffers, loops_sizes
from jitonnx.kernels.spec import KernelSpec, Work
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.tensor import StridedTensor, broadcast_to
from jitonnx.support.records import dataclass
from jitonnx.target import tuning

BROADCAST, UNIT, STRIDED = 0, 1, 2
"""How an operand moves along the innermost loop: not at all, by one element, or by a stride."""


@dataclass(frozen=True)
class RegionSpec(KernelSpec):
    """A loop nest of `rank` loops. Operands (dtype, movement along the inner loop): inputs first, then outputs.

    Its sizes are those of `LoopsSpec`.
    """

    rank: int
    inputs: tuple[tuple[DType, int], ...]
    outputs: tuple[tuple[DType, int], ...]
    exprs: tuple[e.Expr, ...]
    streams: bool = False
    """Its one output, of dense rows, is written past the caches, which it would not fit."""
    family: ClassVar[str] = "region"  # generated, not in the library
    PRESCHEDULED: ClassVar[bool] = True

    @property
    def plain(self) -> LoopsSpec:
        itemsizes = tuple(dtype.itemsize for dtype, _ in (*self.inputs, *self.outputs))
        strided = not self.streams and any(movement == STRIDED for _, movement in (*self.inputs, *self.outputs))
        return LoopsSpec(self.rank, itemsizes, sum(cost(expr) for expr in self.exprs), strided)

    @property
    def BUFFERS(self) -> Any:
        return loops_buffers(len(self.inputs), len(self.outputs))

    @property
    def SIZES(self) -> Any:
        return loops_sizes(self.rank, len(self.inputs) + len(self.outputs))

    def complete(self, sizes: Any) -> Any:
        return self.plain.complete(sizes)

    def tasks(self, sizes: Any) -> int:
        return self.plain.tasks(sizes)

    def work(self, sizes: Any) -> Work:
        return self.plain.work(sizes)


_COSTS = {"exp": 10, "log": 12, "erf": 16, "tanh": 14, "sigmoid": 14, "pow": 50, "div": 4, "sqrt": 6}
_COSTS |= {"silu": 15, "gelu": 19, "gelu_tanh": 19, "softplus": 24, "mish": 18, "expm1": 14, "elu": 14, "log1p": 16}
_COSTS |= {"sin": 20, "cos": 20, "tan": 20, "asin": 16, "acos": 16, "atan": 16}
_COSTS |= {"sinh": 20, "cosh": 14, "asinh": 32, "acosh": 28, "atanh": 24}
_COSTS |= {"call": 40}
_FREE = ("operand", "constant", "index", "cast")


def cost(root: e.Expr) -> int:
    """Rough floating-point operations for one element."""
    return sum(0 if node.op in _FREE else _COSTS.get(node.op, 1) for node in e.children_first(root))


_Loop = tuple[int, DimLike, tuple[DimLike, ...]]  # axis, extent, stride of each operand


def region_call(
    exprs: Sequence[e.Expr],
    inputs: Sequence[StridedTensor],
    outputs: Sequence[StridedTensor],
    *,
    label: str,
    origin: Sequence[str],
    reason: str,
    streams: bool = False,
) -> KernelCall:
    """The call that computes `outputs` (of equal shapes) from `inputs`, which broadcast to them.

    streams: the output is too large for the caches, and is written past them if its rows are dense and long enough.
    """
    shape = outputs[0].shape
    tensors = [broadcast_to(tensor, shape) for tensor in inputs] + list(outputs)
    uses_index = any(node.op == "index" for root in exprs for node in e.children_first(root))
    loops = _loops(shape, tensors, collapse=not uses_index)
    order = [axis for axis, _, _ in loops]
    if uses_index:
        numbers = {axis: position for position, axis in enumerate(order)}
        exprs = [e.substitute(root, lambda leaf: _renumber(leaf, numbers)) for root in exprs]
    spec = RegionSpec(
        rank=len(loops),
        inputs=tuple((tensor.dtype, _movement(loops[-1][2][i])) for i, tensor in enumerate(inputs)),
        outputs=tuple(
            (tensor.dtype, _movement(loops[-1][2][len(inputs) + i]) or UNIT) for i, tensor in enumerate(outputs)
        ),
        exprs=tuple(exprs),
        streams=streams and _can_stream(outputs, loops[-1]),
    )
    sizes = spec.SIZES(
        extents=[extent for _, extent, _ in loops],
        strides=[strides[number] for number in range(len(tensors)) for _, _, strides in loops],
    )
    buffers = spec.BUFFERS(inputs=tensors[: len(inputs)], outputs=tensors[len(inputs) :])
    return KernelCall(spec, buffers, sizes, label=label, origin=tuple(origin), reason=reason)


def _can_stream(outputs: Sequence[StridedTensor], inner: _Loop) -> bool:
    """Whether a region can write its output past the caches: whole vectors of one output, in rows that are long."""
    _, extent, strides = inner
    itemsize = outputs[0].dtype.itemsize
    long = not isinstance(extent, int) or extent * itemsize >= tuning.REGION_STREAMED_BYTES
    return len(outputs) == 1 and itemsize >= 4 and strides[-1] == 1 and long


def _renumber(leaf: e.Expr, numbers: dict[int, int]) -> e.Expr | None:
    """An index leaf by loop instead of axis; an axis of size 1 has no loop and is at 0."""
    if leaf.op != "index":
        return None
    return e.index(numbers[leaf.value]) if leaf.value in numbers else e.constant(0, DType.INT64)


def _movement(stride: DimLike) -> int:
    return BROADCAST if stride == 0 else UNIT if stride == 1 else STRIDED


def _loops(shape: Sequence[DimLike], tensors: Sequence[StridedTensor], *, collapse: bool) -> list[_Loop]:
    """The loops over `shape`, outermost first, in the memory order of the last tensor (the first output is as good)."""
    main = tensors[-1]
    axes = [axis for axis in memory_order(main) if shape[axis] != 1]
    loops: list[_Loop] = []
    for axis in axes:
        strides = tuple(tensor.strides[axis] for tensor in tensors)
        if collapse and loops:
            outer_axis, outer_extent, outer_strides = loops[-1]
            if all(outer == inner * shape[axis] for outer, inner in zip(outer_strides, strides, strict=True)):
                loops[-1] = (outer_axis, outer_extent * shape[axis], strides)
                continue
        loops.append((axis, shape[axis], strides))
    return loops or [(0, 1, (0,) * len(tensors))]


def memory_order(tensor: StridedTensor) -> tuple[int, ...]:
    """The axes as they lie in memory, outermost first."""
    return tuple(sorted(range(tensor.rank), key=lambda axis: _outer_first(tensor.strides[axis], axis)))


def _outer_first(stride: DimLike, axis: int) -> tuple[int, int]:
    """Sort key: larger strides first. A symbolic stride counts as its constant factors times something large."""
    if isinstance(stride, int):
        return -abs(stride), axis
    return -max(abs(coefficient) << 20 * len(monomial) for monomial, coefficient in stride.terms), axis
