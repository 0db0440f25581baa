"""The planner's workbench: where values lie, operands in the layout a kernel reads, places to write, calls.

The functions of `jitonnx.plan.selection`, each of which knows one computation, ask it for operands (`dense`,
`channels_last`, ...), for a place to write their result (`place`), and add calls (`call`). `jitonnx.plan.make` leads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn, TypeAlias, TypeVar

import numpy as np

from jitonnx.ir.computation.expressions import ordered
from jitonnx.ir.computation.lowering import Lowered
from jitonnx.ir.dims import DimLike, concrete, integers, known, product
from jitonnx.ir.dtypes import DType, of_numpy
from jitonnx.ir.graph import Node, Value
from jitonnx.ir.inference import inferring
from jitonnx.kernels.parts.packing import aligned
from jitonnx.plan.calls import KernelCall, Stage
from jitonnx.plan.choices import Choices
from jitonnx.plan.copies import copy_call
from jitonnx.plan.extents import is_outside
from jitonnx.plan.fusion import Group
from jitonnx.plan.placement import Placement
from jitonnx.plan.plan import Plan
from jitonnx.plan.tensor import (
    Buffer,
    Made,
    StridedTensor,
    broadcast_to,
    channels_last_order,
    dense_tensor,
    in_order,
    is_channels_last,
    row_major,
)
from jitonnx.runtime.program import Flag
from jitonnx.support.mapped_files import release_pages
from jitonnx.target.machine import Target

if TYPE_CHECKING:
    from jitonnx.plan.tables import Maker

_Lying = TypeVar("_Lying")

RowStrides: TypeAlias = Callable[[StridedTensor], "tuple[DimLike, DimLike, DimLike] | None"]
"""Strides by (batch, row, column) of a tensor that has a kernel's result's shape, as that kernel counts them."""


class UnplannableError(Exception):
    """A node that the kernels cannot do as it stands; it is evaluated on NumPy instead, and `explain` says so."""

    def __init__(self, node: Node, reason: str) -> None:
        super().__init__(f"{node.operator.name} {node.name!r}: {reason}")
        self.node, self.reason = node, reason


class Planner:
    """The state of planning one graph. Lowerings of computations use its public methods."""

    def __init__(self, lowered: Lowered, target: Target, choices: Choices, placement: Placement) -> None:
        self.target, self.choices, self._placement = target, choices, placement
        self.plan = Plan(lowered.inputs, lowered.outputs, lowered.given_shapes, lowered.assumptions)
        self._tensors: dict[Value, StridedTensor] = {}
        self._constants: dict[tuple[object, ...], Buffer] = {}
        self._packed: dict[tuple[object, ...], StridedTensor] = {}
        self._prepared: dict[tuple[object, ...], tuple[StridedTensor, ...]] = {}
        self._state: StridedTensor | None = None
        self._group: Group | None = None
        self._read = {value for statement in lowered.statements for value in statement.inputs} | set(lowered.outputs)
        for number, value in enumerate(lowered.inputs):
            if value.dtype is DType.STRING:  # which lie in no memory: kernels know of their shapes alone
                continue
            buffer = Buffer(value.name, "input", product(value.shape), value.dtype, index=number)
            self._tensors[value] = StridedTensor(buffer, 0, value.shape, row_major(value.shape))

    @property
    def rounds_products(self) -> bool:
        """Whether products are to round their operands to bfloat16: that was asked for, and is faster on the CPU."""
        return self.choices.precision == "bfloat16" and self.target.bfloat16_products != ""

    # ------------------------------------------------------------ operands

    def tensor(self, value: Value) -> StridedTensor:
        """A value's place in memory."""
        found = self._tensors.get(value)
        if found is None:
            constant = value.constant
            if constant is None and value.contents is not None:
                found = self._dimensions_as_data(value)
            else:
                assert constant is not None, f"Bug: {value} is read before it is made"
                found = self.constant(constant)
            self._tensors[value] = found
        return found

    def _dimensions_as_data(self, value: Value) -> StridedTensor:
        """A constant whose elements are worked out when a program is made."""
        assert value.contents is not None
        buffer = Buffer(value.name, "constant", value.contents.size, value.dtype, contents=value.contents)
        self.plan.constants.append(buffer)
        return StridedTensor(buffer, 0, value.shape, row_major(value.shape))

    def constant(self, array: np.ndarray) -> StridedTensor:
        """A constant of the plan; a transposed array is used as it lies. Equal array objects are one buffer."""
        order = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
        dense = array.transpose(order)
        if not dense.flags.c_contiguous:
            order, dense = list(range(array.ndim)), np.ascontiguousarray(array).reshape(array.shape)
        place = (dense.ctypes.data, dense.shape, dense.dtype)
        buffer = self._constants.get(place)
        if buffer is None:
            buffer = Buffer(f"constant{len(self._constants)}", "constant", array.size, of_numpy(array.dtype), dense)
            self._constants[place] = buffer
            self.plan.constants.append(buffer)
        shape = tuple(map(int, array.shape))
        return StridedTensor(buffer, 0, shape, in_order(shape, order))

    def packed(self, tensor: StridedTensor, pack: Callable[[np.ndarray], np.ndarray], key: object) -> StridedTensor:
        """A constant in the layout that a kernel wants; packed once for each view and `key` (the kernel's spec)."""
        place = (tensor, key)
        if place not in self._packed:
            array = tensor.constant
            assert array is not None
            self._packed[place] = self.constant(pack(array))
            release_pages(array)
        return self._packed[place]

    def prepared(
        self, tensor: StridedTensor, prepare: Callable[[], tuple[StridedTensor, ...]], key: object
    ) -> tuple[StridedTensor, ...]:
        """What calls make of a tensor for several kernels that read it; called once for each view and `key`."""
        place = (tensor, key)
        if place not in self._prepared:
            self._prepared[place] = prepare()
        return self._prepared[place]

    def computed(
        self, maker: Maker, part: int, sizes: tuple[DimLike, ...], shape: Sequence[DimLike], dtype: DType
    ) -> StridedTensor:
        """Array number `part` of those that `maker` makes of sizes: a constant, or one of each program."""
        from jitonnx.plan.tables import made  # few models have such

        if known(sizes):
            return self.constant(made(maker, integers(sizes))[part])
        buffer = self._constants.get((maker, part, sizes))
        if buffer is None:
            buffer = Buffer(f"table{len(self._constants)}", "constant", product(shape), dtype)
            buffer.made = Made(maker, part, sizes)
            self._constants[maker, part, sizes] = buffer
            self.plan.constants.append(buffer)
        return StridedTensor(buffer, 0, tuple(shape), row_major(shape))

    def dense(self, value: Value) -> StridedTensor:
        """The value row-major without gaps, copied if it lies otherwise."""
        tensor = self.tensor(value)
        return tensor if tensor.contiguous else self.copy(tensor, tuple(range(tensor.rank)), "needed row-major")

    def unit_inner(self, value: Value) -> StridedTensor:
        """The value with its last axis innermost (stride 1), copied if it lies otherwise."""
        tensor = self.tensor(value)
        if tensor.rank and tensor.shape[-1] != 1 and tensor.strides[-1] != 1:
            return self.copy(tensor, tuple(range(tensor.rank)), "needed with its last axis innermost")
        return tensor

    def channels_last(self, value: Value) -> StridedTensor:
        """An image with its channels innermost, copied if it lies otherwise."""
        tensor = self.tensor(value)
        if is_channels_last(tensor):
            return tensor
        return self.copy(tensor, channels_last_order(tensor.rank), "needed channels-last")

    def copy(self, tensor: StridedTensor, order: Sequence[int], why: str) -> StridedTensor:
        """A dense copy of a tensor with its axes in memory in `order`. A constant is copied with the plan."""
        array = _whole_constant(tensor)
        if array is not None:
            back = np.argsort(order)
            return self.packed(tensor, lambda array: array.transpose(order).copy().transpose(back), tuple(order))
        target = self.temporary(tensor.shape, tensor.dtype, order)
        self.copy_into(tensor, target, why)
        return target

    def copy_into(self, source: StridedTensor, target: StridedTensor, why: str) -> None:
        """Copy elements between tensors of equal shape."""
        streams = self.outgrows_caches(target)
        self.call(copy_call(source, target, label=f"copy {source.buffer.name}", reason=why, streams=streams))

    # ------------------------------------------------------------ results

    def temporary(self, shape: Sequence[DimLike], dtype: DType, order: Sequence[int] | None = None) -> StridedTensor:
        """New memory in the arena."""
        return dense_tensor(f"t{len(self.plan.calls)}", shape, dtype, order or tuple(range(len(shape))))

    def place(self, value: Value, order: Sequence[int] | None = None, *, strict: bool = False) -> StridedTensor:
        """The place to write a result to: in an output or in a concatenation if it is bound for one, else in new
        memory.

        `order`: the memory order of axes the kernel prefers. `strict`: it can write no other; a graph output or
        destination that lies otherwise is then filled by a copy.
        """
        tensor = self._placement.destination(value)
        if tensor is None or (strict and not _written_in(tensor, order or tuple(range(tensor.rank)))):
            tensor = self.temporary(value.shape, value.dtype, order)
        self._tensors[value] = tensor
        return tensor

    def destination(self, value: Value) -> StridedTensor | None:
        """The output or part of a concatenation that a result is bound for; None: it may lie anywhere."""
        return self._placement.destination(value)

    def move(self, value: Value, order: Sequence[int]) -> StridedTensor:
        """Place a result anew, dense in `order`: for a kernel that cannot write where it was bound for."""
        tensor = self._tensors[value] = self.temporary(value.shape, value.dtype, order)
        return tensor

    def dense_place(self, value: Value) -> StridedTensor:
        """A place for a result that is written row-major, without gaps."""
        tensor = self.place(value)
        return tensor if tensor.contiguous else self.move(value, tuple(range(tensor.rank)))

    def place_as(
        self,
        value: Value,
        order: Sequence[int],
        lying: Callable[[StridedTensor], _Lying | None],
        *,
        strict: bool = False,
    ) -> tuple[StridedTensor, _Lying]:
        """A place for a result, and what `lying` tells of it; dense in `order` if it tells nothing of another one."""
        tensor = self.place(value, order, strict=strict)
        found = lying(tensor)
        if found is None:
            tensor = self.move(value, order)
            found = lying(tensor)
        assert found is not None, "Bug: a kernel cannot write a dense result"
        return tensor, found

    def bind(self, value: Value, tensor: StridedTensor) -> None:
        """Gives a value that needs no place of its own that of a tensor."""
        self._tensors[value] = tensor

    def order(self, value: Value) -> tuple[int, ...]:
        """The memory order chosen for a value."""
        return self._placement.order(value)

    def outgrows_caches(self, tensor: StridedTensor) -> bool:
        """Whether a result is so large that it is better written past the caches: none of it would be left in them."""
        size = concrete(tensor.elements)
        return size is not None and size * tensor.dtype.itemsize > self.target.l3_bytes

    def begin(self, group: Group | None) -> None:
        """What is asked from now on is for this group; None: for the graph as a whole."""
        self._group = group

    def call(self, call: KernelCall) -> KernelCall:
        """Append a call; its origin is that of the group being planned, unless it has one."""
        if self._group is not None:
            call.origin = call.origin or self._group.origin
            for tensor in call.tensors:
                self.check(tensor)
        self.plan.calls.append(call)
        return call

    def check(self, tensor: StridedTensor) -> None:
        """Have the node being planned left to NumPy where all sizes are known and a tensor is not within its buffer."""
        if is_outside(tensor):
            self.unplannable("its kernel would go beyond what it is given; please report this with the model")

    @property
    def node(self) -> Node:
        """The node being planned, for errors."""
        assert self._group is not None
        return (self._group.anchor or self._group.maps[-1]).node

    def is_read(self, value: Value) -> bool:
        """Whether a statement or the graph's outputs need a value."""
        return value in self._read

    def flag(self, text: str) -> StridedTensor:
        """A word that a kernel sets to 1 when it meets an error that only the data shows; `text` says what it means."""
        flag = aligned(np.zeros(1, np.int64))  # it is told by its address from other constants, which may be copied
        origin = self.node.origin or (self.node.name,)
        self.plan.flags.append(Flag(flag, f"{self.node.operator.name} node {', '.join(map(repr, origin))}: {text}"))
        return self.constant(flag)

    def state(self) -> StridedTensor:
        """The counter of the plan's draws: see `jitonnx.support.draws`."""
        if self._state is None:
            from jitonnx.support.draws import new_state  # few models draw

            self._state = self.constant(new_state())
        return self._state

    def assume(self, a: DimLike, b: DimLike) -> bool:
        """Take sizes to be equal: the plan does not hold for others. False: they differ, and another way is taken."""
        with inferring(self.plan.assumptions) as context:
            return context.assume_equal(a, b)

    def unplannable(self, reason: str) -> NoReturn:
        """The node being planned has no kernel: it is left to NumPy."""
        raise UnplannableError(self.node, reason)

    def note(self, text: str) -> None:
        """Add a reason to the group being planned."""
        assert self._group is not None
        self._group.reasons.append(text)

    # ------------------------------------------------------------ stages

    def epilogue(self, group: Group, call: KernelCall, rows: RowStrides, order: Sequence[int] | None = None) -> None:
        """Put the epilogue of its group on `call`: the stage, its tensors and sizes.

        `rows` gives the strides by (batch, row, column) of a tensor of the result's shape, None if it has none. An
        operand that cannot be addressed so is copied first, into the order that the kernel writes in: `order`, or that
        of the result.
        """
        if group.expr is None:
            return
        moves, columns, dtypes = [], [], []
        for value in group.operands:
            tensor = broadcast_to(self.tensor(value), group.output.shape)
            strides = rows(tensor)
            if strides is None or strides[2] not in (0, 1):
                kernels_order = order or self.order(group.output)
                tensor = self.copy(tensor, kernels_order, "needed in the order of the kernel's tiles")
                strides = rows(tensor)
                assert strides is not None and strides[2] == 1, "Bug: a copy in the kernel's order is not addressable"
            call.stage_tensors.append(tensor)
            call.stage_sizes.extend(strides[:2])
            moves.append(int(any(stride != 0 for stride in strides[:2])))
            columns.append(int(strides[2] != 0))
            dtypes.append(tensor.dtype)
        first = len(call.tensors) - len(group.operands)
        call.epilogue = Stage(
            ordered(group.expr), tuple(moves), tuple(columns), tuple(dtypes), first, call.spec.size_count
        )


def _written_in(tensor: StridedTensor, order: Sequence[int]) -> bool:
    """Whether the tensor's innermost axis is that of `order`."""
    inner = order[-1] if order else None
    return inner is None or tensor.strides[inner] == 1 or tensor.shape[inner] == 1


def _whole_constant(tensor: StridedTensor) -> np.ndarray | None:
    """The elements of a constant; None where only a run tells its sizes, or a copy of it would take more memory."""
    array = tensor.constant
    return None if array is None or array.size > (concrete(tensor.buffer.elements) or 0) else array
