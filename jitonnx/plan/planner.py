"""The planner: groups of statements to kernel calls over buffers.

It walks the groups in order. Views are applied to where values lie; every other group goes to the function that knows
its computation (`jitonnx.plan.lowerings`), which asks the planner for operands in a layout it can read (`dense`,
`channels_last`, ...), for a place to write its result (`place`), and adds calls (`call`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NoReturn, TypeAlias

import numpy as np

from jitonnx.ir import computation as c
from jitonnx.ir.dims import DimLike, known, product
from jitonnx.ir.dtypes import DType, of_numpy
from jitonnx.ir.graph import Node, Value
from jitonnx.ir.lowering import Lowered, Statement
from jitonnx.plan.calls import KernelCall, Stage
from jitonnx.plan.choices import Choices
from jitonnx.plan.fusion import Group, fuse
from jitonnx.plan.plan import Flag, Plan
from jitonnx.plan.region import region_call
from jitonnx.plan.tensor import (
    Buffer,
    Tensor,
    apply_view,
    broadcast_to,
    channels_last_order,
    in_order,
    is_channels_last,
    row_major,
)
from jitonnx.target import Target

RowStrides: TypeAlias = Callable[[Tensor], "tuple[DimLike, DimLike, DimLike] | None"]
"""Strides by (batch, row, column) of a tensor that has a kernel's result's shape, as that kernel counts them."""


class UnplannableError(Exception):
    """A node that the kernels cannot do as it stands; it is evaluated on NumPy instead, and `explain` says so."""

    def __init__(self, node: Node, reason: str) -> None:
        super().__init__(f"{node.operator.name} {node.name!r}: {reason}")
        self.node, self.reason = node, reason


class ConcreteShapesNeeded(Exception):
    """A node whose kernel needs tables made for its sizes."""


def plan(lowered: Lowered, target: Target, choices: Choices | None = None) -> Plan:
    """The plan of a lowered graph for a CPU. UnplannableError names a node that has no kernel."""
    return Planner(lowered, target, choices or Choices()).run()


class Planner:
    """The state of planning one graph. Lowerings of computations use its public methods."""

    def __init__(self, lowered: Lowered, target: Target, choices: Choices) -> None:
        self.lowered, self.target, self.choices = lowered, target, choices
        self.plan = Plan(lowered.inputs, lowered.outputs, assumptions=set(lowered.assumptions))
        self._tensors: dict[Value, Tensor] = {}
        self._constants: dict[tuple[object, ...], Buffer] = {}
        self._packed: dict[tuple[object, ...], Tensor] = {}
        self._destinations: dict[Value, Callable[[], Tensor]] = {}
        self._orders: dict[Value, tuple[int, ...]] = {}
        self._group: Group | None = None
        self._read = {value for statement in lowered.statements for value in statement.inputs} | set(lowered.outputs)
        for number, value in enumerate(lowered.inputs):
            buffer = Buffer(value.name, "input", product(value.shape), value.dtype, index=number)
            self._tensors[value] = Tensor(buffer, 0, value.shape, row_major(value.shape))

    def run(self) -> Plan:
        """Plan every group, and copies of outputs that lie elsewhere."""
        from jitonnx.plan.lowerings import LOWERINGS, takes_epilogue, takes_prologue

        groups = fuse(self.lowered, takes_epilogue, takes_prologue)
        self._choose_orders(groups)
        self._choose_outputs()
        self._choose_destinations(groups)
        for group in groups:
            self._group = group
            if group.anchor is None:
                self._region(group)
            elif isinstance(group.anchor.computation, c.View):
                self._view(group.anchor)
            else:
                LOWERINGS[type(group.anchor.computation)](self, group, group.anchor)
        self._group = None
        self._copy_outputs()
        used = {tensor.buffer for call in self.plan.calls for tensor in call.tensors}
        self.plan.constants = [buffer for buffer in self.plan.constants if buffer in used]
        self.plan.prepare()
        return self.plan

    # ------------------------------------------------------------ operands

    def tensor(self, value: Value) -> Tensor:
        """Where a value lies."""
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

    def _dimensions_as_data(self, value: Value) -> Tensor:
        """A constant whose elements are worked out when a program is made."""
        assert value.contents is not None
        buffer = Buffer(value.name, "constant", value.contents.size, value.dtype, contents=value.contents)
        self.plan.constants.append(buffer)
        return Tensor(buffer, 0, value.shape, row_major(value.shape))

    def constant(self, array: np.ndarray) -> Tensor:
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
        return Tensor(buffer, 0, shape, in_order(shape, order))

    def packed(self, tensor: Tensor, pack: Callable[[np.ndarray], np.ndarray], key: object) -> Tensor:
        """A constant in the layout that a kernel wants; packed once for each view and `key` (the kernel's spec)."""
        place = (tensor.buffer, tensor.offset, tensor.shape, tensor.strides, key)
        if place not in self._packed:
            array = tensor.constant
            assert array is not None
            self._packed[place] = self.constant(pack(array))
        return self._packed[place]

    def dense(self, value: Value) -> Tensor:
        """The value row-major without gaps, copied if it lies otherwise."""
        tensor = self.tensor(value)
        return tensor if tensor.contiguous else self.copy(tensor, tuple(range(tensor.rank)), "needed row-major")

    def unit_inner(self, value: Value) -> Tensor:
        """The value with its last axis innermost (stride 1), copied if it lies otherwise."""
        tensor = self.tensor(value)
        if tensor.rank and tensor.shape[-1] != 1 and tensor.strides[-1] != 1:
            return self.copy(tensor, tuple(range(tensor.rank)), "needed with its last axis innermost")
        return tensor

    def channels_last(self, value: Value) -> Tensor:
        """An image with its channels innermost, copied if it lies otherwise."""
        tensor = self.tensor(value)
        if is_channels_last(tensor):
            return tensor
        return self.copy(tensor, channels_last_order(tensor.rank), "needed channels-last")

    def copy(self, tensor: Tensor, order: Sequence[int], why: str) -> Tensor:
        """A dense copy of a tensor with its axes in memory in `order`."""
        target = self.temporary(tensor.shape, tensor.dtype, order)
        self.copy_into(tensor, target, why)
        return target

    def copy_into(self, source: Tensor, target: Tensor, why: str) -> None:
        """Copy elements between tensors of equal shape."""
        from jitonnx.plan.lowerings.movement import copy_call

        self.call(copy_call(source, target, label=f"copy {source.buffer.name}", reason=why))

    # ------------------------------------------------------------ results

    def temporary(self, shape: Sequence[DimLike], dtype: DType, order: Sequence[int] | None = None) -> Tensor:
        """New memory in the arena."""
        buffer = Buffer(f"t{len(self.plan.calls)}", "arena", product(shape), dtype)
        strides = row_major(shape) if order is None else in_order(shape, order)
        return Tensor(buffer, 0, tuple(shape), strides)

    def place(self, value: Value, order: Sequence[int] | None = None, *, strict: bool = False) -> Tensor:
        """Where to write a result: in an output or in a concatenation if it is bound for one, else in new memory.

        `order`: the memory order of axes the kernel prefers. `strict`: it can write no other; a graph output or
        destination that lies otherwise is then filled by a copy.
        """
        destination = self._destinations.get(value)
        if destination is not None:
            tensor = destination()
            if not strict or _written_in(tensor, order or tuple(range(tensor.rank))):
                self._tensors[value] = tensor
                return tensor
        tensor = self.temporary(value.shape, value.dtype, order)
        self._tensors[value] = tensor
        return tensor

    def move(self, value: Value, order: Sequence[int]) -> Tensor:
        """Place a result anew, dense in `order`: for a kernel that cannot write where it was bound for."""
        tensor = self._tensors[value] = self.temporary(value.shape, value.dtype, order)
        return tensor

    def bind(self, value: Value, tensor: Tensor) -> None:
        """Say where a value lies that needs no place of its own."""
        self._tensors[value] = tensor

    def order(self, value: Value) -> tuple[int, ...]:
        """The memory order chosen for a value."""
        return self._orders.get(value) or tuple(range(len(value.shape)))

    def call(self, call: KernelCall) -> KernelCall:
        """Append a call; its origin is that of the group being planned, unless it has one."""
        if self._group is not None and not call.origin:
            call.origin = self._group.origin
        self.plan.calls.append(call)
        return call

    @property
    def node(self) -> Node:
        """The node being planned, for errors."""
        assert self._group is not None
        return (self._group.anchor or self._group.maps[-1]).node

    def is_read(self, value: Value) -> bool:
        """Whether a statement or the graph's outputs need a value."""
        return value in self._read

    def flag(self, text: str) -> Tensor:
        """A word that a kernel sets to 1 when it meets an error that only the data shows; `text` says what it means."""
        flag = np.zeros(1, np.int64)
        origin = self.node.origin or (self.node.name,)
        self.plan.flags.append(Flag(flag, f"{self.node.operator.name} node {', '.join(map(repr, origin))}: {text}"))
        return self.constant(flag)

    def need_concrete(self, dims: Sequence[DimLike]) -> None:
        """Some sizes are needed as numbers: without them the model is planned anew for each set of input shapes."""
        if not known(dims):
            raise ConcreteShapesNeeded(f"{self.node.operator.name} {self.node.name!r} is planned for known sizes only")

    def unplannable(self, reason: str) -> NoReturn:
        """The node being planned has no kernel: it is left to NumPy."""
        raise UnplannableError(self.node, reason)

    def note(self, text: str) -> None:
        """Add a reason to the group being planned."""
        assert self._group is not None
        self._group.reasons.append(text)

    # ------------------------------------------------------------ stages

    def epilogue(self, group: Group, call: KernelCall, rows: RowStrides) -> None:
        """Give `call` the epilogue of its group: the stage, its tensors and sizes.

        `rows` gives the strides by (batch, row, column) of a tensor of the result's shape, None if it has none. An
        operand that cannot be addressed so is copied first, into the order of the result.
        """
        if group.expr is None:
            return
        assert group.output is not None
        columns, dtypes = [], []
        for value in group.operands:
            tensor = broadcast_to(self.tensor(value), group.output.shape)
            strides = rows(tensor)
            if strides is None or strides[2] not in (0, 1):
                tensor = self.copy(tensor, self.order(group.output), "needed in the order of the kernel's tiles")
                strides = rows(tensor)
                assert strides is not None, "Bug: a copy in the kernel's own order is not addressable"
            call.tensors.append(tensor)
            call.stage_sizes.extend(strides[:2])
            columns.append(int(strides[2] != 0))
            dtypes.append(tensor.dtype)
        first = len(call.tensors) - len(group.operands)
        call.epilogue = Stage(group.expr, tuple(columns), tuple(dtypes), first, call.spec.size_count)

    # ------------------------------------------------------------ groups that need no kernel of the library

    def _view(self, statement: Statement) -> None:
        (value,) = [v for v in statement.inputs if v is not None]
        assert isinstance(statement.computation, c.View)
        seen = apply_view(statement.computation, self.tensor(value))
        if seen is None:
            seen = apply_view(statement.computation, self.dense(value))
            assert seen is not None
        self._tensors[statement.outputs[0]] = seen

    def _region(self, group: Group) -> None:
        assert group.output is not None and group.expr is not None
        inputs = [self.tensor(value) for value in group.operands]
        target = self.place(group.output, self.order(group.output))
        names = "+".join(dict.fromkeys(statement.node.operator.name for statement in group.maps))
        reason = "; ".join(group.reasons) or "elementwise"
        self.call(
            region_call([group.expr], inputs, [target], label=f"region {names}", origin=group.origin, reason=reason)
        )

    # ------------------------------------------------------------ choices made before the walk

    def _choose_orders(self, groups: Sequence[Group]) -> None:
        """Channels-last for what image kernels make, and for elementwise results of such values."""
        from jitonnx.plan.lowerings import IMAGES
        from jitonnx.plan.lowerings.products import HEADS_INSIDE

        for group in groups:
            value = group.output
            if value is None or value.type.shape is None:
                continue
            rank = len(value.shape)
            if group.anchor is not None and isinstance(group.anchor.computation, IMAGES) and rank >= 3:
                self._orders[value] = channels_last_order(rank)
            elif group.anchor is None or isinstance(group.anchor.computation, c.Concat | c.Reduce | c.Pad):
                sources = group.operands if group.anchor is None else group.anchor.inputs
                for source in sources:
                    if source in self._orders and len(source.shape) == rank:
                        self._orders[value] = self._orders[source]
                        break
            elif isinstance(group.anchor.computation, c.Attention):
                self._orders[value] = HEADS_INSIDE
            elif isinstance(group.anchor.computation, c.Transpose):
                source = group.anchor.inputs[0]
                assert source is not None
                order = self.order(source)
                permutation = group.anchor.computation.permutation
                self._orders[value] = tuple(permutation.index(axis) for axis in order)

    def _choose_outputs(self) -> None:
        """Graph outputs, and values that become one by reshapes alone, are written where the output is to lie."""
        reshaped = {s.outputs[0]: s.inputs[0] for s in self.lowered.statements if isinstance(s.computation, c.Reshape)}
        for number, value in enumerate(self.lowered.outputs):
            if value in self._destinations or value in self._tensors or value.contents is not None:
                continue
            buffer = Buffer(value.name, "output", product(value.shape), value.dtype, index=number)
            root: Value | None = value
            while root in reshaped:
                root = reshaped[root]
            if root is None or root in self._tensors or root.contents is not None or root in self._destinations:
                continue
            tensor = Tensor(buffer, 0, root.shape, row_major(root.shape))
            self._destinations[root] = lambda tensor=tensor: tensor  # type: ignore[misc]

    def _choose_destinations(self, groups: Sequence[Group]) -> None:
        """Operands of a concatenation are written straight into it, where their producers can.

        Walked backwards, so that a concatenation that is itself an operand of a later one lies inside that, and so does
        one whose operands are the first ones of a later one.
        """
        made = {
            group.output for group in groups if group.anchor is None or not isinstance(group.anchor.computation, c.View)
        }
        concats = [group.anchor for group in groups if group.anchor and isinstance(group.anchor.computation, c.Concat)]
        for number, statement in reversed(list(enumerate(concats))):
            assert isinstance(statement.computation, c.Concat)
            axis, value = statement.computation.axis, statement.outputs[0]
            whole = _Once(self._destinations.get(value) or (lambda value=value: self._whole(value)))  # type: ignore[misc]
            self._destinations[value] = whole
            prefix = _longest_prefix(statement, concats[:number])
            operands = list(statement.inputs)
            if prefix is not None and prefix.outputs[0] not in self._destinations:
                operands[: len(prefix.inputs)] = [prefix.outputs[0]]
            start: DimLike = 0
            for operand in operands:
                assert operand is not None
                if operand in made and operand not in self._destinations:
                    self._destinations[operand] = _Part(whole, axis, start, operand.shape)
                start = start + operand.shape[axis]

    def _whole(self, value: Value) -> Tensor:
        return self.temporary(value.shape, value.dtype, self.order(value))

    def _copy_outputs(self) -> None:
        for number, value in enumerate(self.lowered.outputs):
            tensor = self.tensor(value)
            if tensor.buffer.space == "output" and tensor.buffer.index == number:
                continue
            buffer = Buffer(value.name, "output", product(value.shape), value.dtype, index=number)
            self.copy_into(tensor, Tensor(buffer, 0, value.shape, row_major(value.shape)), "a graph output")


def _longest_prefix(statement: Statement, earlier: Sequence[Statement]) -> Statement | None:
    """The concatenation that `statement` begins with, if one does: dense blocks join ever more of the same values."""
    fitting = [
        other
        for other in earlier
        if other.computation == statement.computation and statement.inputs[: len(other.inputs)] == other.inputs
    ]
    return max(fitting, key=lambda other: len(other.inputs), default=None)


class _Once:
    """A tensor made at its first use."""

    def __init__(self, make: Callable[[], Tensor]) -> None:
        self._make = make
        self._tensor: Tensor | None = None

    def __call__(self) -> Tensor:
        if self._tensor is None:
            self._tensor = self._make()
        return self._tensor


class _Part:
    """A stretch of another tensor along one axis."""

    def __init__(self, whole: Callable[[], Tensor], axis: int, start: DimLike, shape: tuple[DimLike, ...]) -> None:
        self._whole, self._axis, self._start, self._shape = whole, axis, start, shape

    def __call__(self) -> Tensor:
        whole = self._whole()
        return replace(whole, offset=whole.offset + self._start * whole.strides[self._axis], shape=self._shape)


def _written_in(tensor: Tensor, order: Sequence[int]) -> bool:
    """Whether the tensor's innermost axis is that of `order`."""
    inner = order[-1] if order else None
    return inner is None or tensor.strides[inner] == 1 or tensor.shape[inner] == 1
