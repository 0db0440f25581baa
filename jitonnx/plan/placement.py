"""Placement: memory orders of results, and the outputs and concatenations that they are written straight into.

Settled before the calls are made, since what reads a value decides where it is best written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation.lowering import Lowered, Statement
from jitonnx.ir.dims import DimLike, concrete, product
from jitonnx.ir.graph import Value
from jitonnx.plan.fusion import Group
from jitonnx.plan.region import cost
from jitonnx.plan.tensor import (
    Buffer,
    StridedTensor,
    apply_view,
    channels_last_order,
    dense_tensor,
    in_order,
    in_planes,
    orders_around,
    row_major,
    same_strides,
)
from jitonnx.target import tuning

IMAGES = (
    c.Convolution,
    c.Bfloat16Convolution,
    c.IntegerConvolution,
    c.TransposedConvolution,
    c.Pool,
    c.Resize,
    c.GroupNormalize,
    c.LocalResponseNormalize,
)
"""Computations whose kernels work channels-last."""

_AS_THEIR_OPERAND = (c.Concat, c.DynamicQuantize, c.Lookup, c.Pad, c.Reduce, c.RoiAlign)
"""Computations whose results lie as their operand does."""

HEADS_INSIDE = (0, 2, 1, 3)
"""Memory order of [batch, heads, sequence, size] as the layers around attention have it."""


class Placement:
    """Orders and destinations of the results of a lowered graph's groups."""

    def __init__(self, lowered: Lowered, groups: Sequence[Group]) -> None:
        self._orders: dict[Value, tuple[int, ...]] = {}
        self._destinations: dict[Value, Callable[[], StridedTensor]] = {}
        self._choose_orders(groups)
        made = _made(groups)
        self._choose_outputs(lowered, made)
        self._choose_resized(groups)
        self._choose_destinations(lowered, groups, made)

    def order(self, value: Value) -> tuple[int, ...]:
        """The memory order of a value's axes, outermost first."""
        return self._orders.get(value) or tuple(range(len(value.shape)))

    def destination(self, value: Value) -> StridedTensor | None:
        """The place that a result is bound for: in a graph output, in what a later step joins or writes; None:
        anywhere."""
        make = self._destinations.get(value)
        return None if make is None else make()

    def _choose_orders(self, groups: Sequence[Group]) -> None:
        """Channels-last for what image kernels make, and for views and elementwise results of such values."""
        kept: set[Value] = set()
        """Values that lie as kernels made them for their own sake: views of these are read and written likewise."""
        regrouped: set[Value] = set()
        """Images reshaped. What joins several is rarely for image kernels: the results of a detector, for instance."""
        for group in groups:
            value = group.output
            if value.type.shape is None:
                continue
            rank = len(value.shape)
            computation = None if group.anchor is None else group.anchor.computation
            if (isinstance(computation, IMAGES) and rank >= 3) or _gives_pixels(group):
                self._orders[value] = channels_last_order(rank)
                kept.add(value)
            elif isinstance(computation, c.Attention):
                self._orders[value] = HEADS_INSIDE
                kept.add(value)
            elif computation is None or isinstance(computation, _AS_THEIR_OPERAND):
                sources = group.operands if group.anchor is None else group.anchor.inputs
                for source in sources:
                    if isinstance(computation, c.Concat) and source in regrouped:
                        continue
                    if source in self._orders and len(source.shape) == rank:
                        self._orders[value] = self._orders[source]
                        kept.update([value] if source in kept else [])
                        break
            elif isinstance(computation, c.View):
                assert group.anchor is not None and group.anchor.inputs[0] is not None
                source = group.anchor.inputs[0]
                seen = orders_around(computation, source.shape, self.order(source))
                if seen is not None and (source in kept or isinstance(computation, c.Transpose)):
                    self._orders[value] = tuple(seen[1])
                    kept.update([value] if source in kept else [])
                    regrouped.update([value] if isinstance(computation, c.Reshape) or source in regrouped else [])

    def _choose_outputs(self, lowered: Lowered, made: set[Value | None]) -> None:
        """Graph outputs, and values that become one by reshapes alone, are written where the output is to lie.

        So is what transposes and reshapes turn into such a value, if it would lie in that order anyway.
        """
        reshaped = {s.outputs[0]: s.inputs[0] for s in lowered.statements if isinstance(s.computation, c.Reshape)}
        views = {s.outputs[0]: s for s in lowered.statements if isinstance(s.computation, c.Reshape | c.Transpose)}
        given = set(lowered.inputs)
        for number, value in enumerate(lowered.outputs):
            if value in self._destinations or value in given or value.contents is not None:
                continue
            buffer = Buffer(value.name, "output", product(value.shape), value.dtype, index=number)
            root: Value | None = value
            while root in reshaped:
                root = reshaped[root]
            if root is None or root in given or root.contents is not None or root in self._destinations:
                continue
            tensor = StridedTensor(buffer, 0, root.shape, row_major(root.shape))
            self._destinations[root] = lambda tensor=tensor: tensor  # type: ignore[misc]
            self._choose_behind(views, root, tensor, made)

    def _choose_resized(self, groups: Sequence[Group]) -> None:
        """Images that are resized are made in planes where all that is done with them is to become graph outputs in
        planes by elementwise regions: rounded to half precision, for instance."""
        readers: dict[Value, list[Group]] = {}
        for group in groups:
            for value in dict.fromkeys([*group.operands, *(group.anchor.inputs if group.anchor else ())]):
                if value is not None:
                    readers.setdefault(value, []).append(group)
        for group in groups:
            value = group.output
            if group.anchor is None or not isinstance(group.anchor.computation, c.Resize):
                continue
            found = [self._written_by(reader) for reader in readers.get(value, ())]
            planes = [out is not None and out.rank == 4 and in_planes(out) for out in found]
            if planes and all(planes) and value not in self._destinations:
                self._orders[value] = tuple(range(len(value.shape)))
                self._destinations[value] = _Once(lambda value=value: self._whole(value))  # type: ignore[misc]

    def _written_by(self, region: Group) -> StridedTensor | None:
        """The place that an elementwise region writes to; None for other groups, and if that is not settled yet."""
        return None if region.anchor is not None else self.destination(region.output)

    def _choose_behind(
        self, views: Mapping[Value, Statement], value: Value, tensor: StridedTensor, made: set[Value | None]
    ) -> None:
        """What views turn into `value`, lying as `tensor`, is made there, if that is in the order chosen for it."""
        while value in views:
            before, operand = _before(views[value], tensor), views[value].inputs[0]
            if before is None or operand is None:
                return
            tensor, value = before, operand
        free = value in made and value not in self._destinations
        if free and same_strides(tensor, in_order(value.shape, self.order(value))):
            self._destinations[value] = lambda: tensor

    def _choose_destinations(self, lowered: Lowered, groups: Sequence[Group], made: set[Value | None]) -> None:
        """What is joined or written into is made in its place: operands of concatenations, data of scatters.

        Walked backwards, so that a concatenation that is itself an operand of a later one lies inside that, and so does
        one whose operands are the first ones of a later one.
        """
        read = Counter(value for statement in lowered.statements for value in statement.inputs)
        read.update(lowered.outputs)
        kinds = (c.Concat, c.ScatterElements, c.ScatterND)
        anchors = [group.anchor for group in groups if group.anchor and isinstance(group.anchor.computation, kinds)]
        # The parts of a concatenation lie in it, and others may read them after the scatter.
        joined = {anchor.outputs[0] for anchor in anchors if isinstance(anchor.computation, c.Concat)}
        costly = {
            group.output
            for group in groups
            if group.anchor is None and group.expr and cost(group.expr) >= tuning.JOINED_COSTLY
        }
        for number, statement in reversed(list(enumerate(anchors))):
            value = statement.outputs[0]
            whole = _Once(self._destinations.get(value) or (lambda value=value: self._whole(value)))  # type: ignore[misc]
            self._destinations[value] = whole
            if isinstance(statement.computation, c.Concat):
                apart = {
                    operand for operand in statement.inputs if operand in costly and self._is_narrow(statement, operand)
                }
                self._join(statement, anchors[:number], whole, made - apart)
                continue
            data = statement.inputs[0]
            if data is not None and data in made - joined and data not in self._destinations and read[data] == 1:
                self._destinations[data] = whole  # nobody needs it as it was

    def _join(
        self, statement: Statement, earlier: Sequence[Statement], whole: _Once, made: Collection[Value | None]
    ) -> None:
        """Operands of a concatenation are written straight into it, where their producers can."""
        assert isinstance(statement.computation, c.Concat)
        axis, operands = statement.computation.axis, list(statement.inputs)
        prefix = _longest_prefix(statement, earlier)
        if prefix is not None and prefix.outputs[0] not in self._destinations:
            operands[: len(prefix.inputs)] = [prefix.outputs[0]]
        start: DimLike = 0
        for operand in operands:
            assert operand is not None
            if operand in made and operand not in self._destinations:
                self._destinations[operand] = _Part(whole, axis, start, operand.shape)
            start = start + operand.shape[axis]

    def _is_narrow(self, statement: Statement, operand: Value | None) -> bool:
        """Whether only a few elements of an operand of a concatenation lie side by side in it."""
        assert isinstance(statement.computation, c.Concat) and operand is not None
        order, axis = self.order(statement.outputs[0]), statement.computation.axis
        beside = concrete(product([operand.shape[inner] for inner in order[order.index(axis) :]]))
        return beside is not None and beside <= tuning.JOINED_NARROW

    def _whole(self, value: Value) -> StridedTensor:
        return dense_tensor(value.name, value.shape, value.dtype, self.order(value))


def _gives_pixels(group: Group) -> bool:
    """Whether a group samples an image whose channels are to lie side by side."""
    if group.anchor is None or not isinstance(group.anchor.computation, c.Sample):
        return False
    from jitonnx.plan.selection.sampling import reads_pixels  # few models sample

    image = group.anchor.inputs[0]
    return image is not None and reads_pixels(image)


def _before(statement: Statement, tensor: StridedTensor) -> StridedTensor | None:
    """The operand of a reshape or transpose whose result is this tensor; None: its elements do not lie so."""
    view, (value,) = statement.computation, statement.inputs
    assert isinstance(view, c.View) and value is not None
    if isinstance(view, c.Transpose):
        return apply_view(c.Transpose(tuple(view.permutation.index(axis) for axis in range(tensor.rank))), tensor)
    return apply_view(c.Reshape(tuple(value.shape)), tensor)


def _made(groups: Sequence[Group]) -> set[Value | None]:
    """What kernels write: no views."""
    return {
        group.output for group in groups if group.anchor is None or not isinstance(group.anchor.computation, c.View)
    }


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

    def __init__(self, make: Callable[[], StridedTensor]) -> None:
        self._make = make
        self._tensor: StridedTensor | None = None

    def __call__(self) -> StridedTensor:
        if self._tensor is None:
            self._tensor = self._make()
        return self._tensor


class _Part:
    """A stretch of another tensor along one axis."""

    def __init__(
        self, whole: Callable[[], StridedTensor], axis: int, start: DimLike, shape: tuple[DimLike, ...]
    ) -> None:
        self._whole, self._axis, self._start, self._shape = whole, axis, start, shape

    def __call__(self) -> StridedTensor:
        whole = self._whole()
        return replace(whole, offset=whole.offset + self._start * whole.strides[self._axis], shape=self._shape)
