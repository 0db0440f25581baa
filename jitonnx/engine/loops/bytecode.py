"""Loops whose body is links of a chain, as `engine/bytecode.py` writes them: loops within loops, choices, growing
caches.

    initial values ─ ENTER ─ ELEMENTS ─ sizes ─ links of the body ─ STACK ─ moves ─ REPEAT ─ results ─ FINISH

What is carried has a place of the chain's list each; it is filled before the loop and behind each iteration. Sizes of
what is carried are variables of the body, bound when an iteration begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from jitonnx.engine.interpreter import axes_told
from jitonnx.ir import dims
from jitonnx.ir.dims import DimLike
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Binding, Node, Value
from jitonnx.ir.types import TensorType
from jitonnx.ops.onnx.control_flow import Parts
from jitonnx.plan.size_tracing import Section, Written
from jitonnx.runtime.bytecode import BoundVariable, LoopInstruction, MoveInstruction
from jitonnx.runtime.bytecode_loops import BytecodeLoopPlaces, ElementPlaces, RowPlaces, size_of
from jitonnx.runtime.layout import Opcode
from jitonnx.support.records import NamedTuple

if TYPE_CHECKING:
    from jitonnx.engine.bytecode import StepContext, VariableScope, Writer

ABSENT = -1
OTHER_AXIS = "it goes through an axis other than the first"


class Body(NamedTuple):
    """What an iteration of a loop does.

    told: the names of its own variables. bound: what its inputs tell, by input. condition_out, carried_out, rows:
    values that its links give, as in `Parts`. write: writes these links. followed: tensors around the loop of which an
    iteration is given the element of its number, with the body's value for that.
    """

    told: Iterable[str]
    bound: Mapping[Value, Sequence[tuple[str, Binding]]]
    condition_out: Value | None
    carried_out: Sequence[Value]
    rows: Sequence[Value]
    write: Callable[[VariableScope], None]
    followed: Sequence[tuple[Value, Value]] = ()


class LoopWriter:
    """Writes the links of one loop. `NotBytecode` (of `chains`) where they can't be."""

    def __init__(self, writer: Writer, node: Node, parts: Parts, body: Body, scope: VariableScope) -> None:
        self._writer, self._node, self._parts, self._body, self._scope = writer, node, parts, body, scope
        self._inside = writer.inside(body.told, scope)
        if not parts.is_plain:
            raise writer.refused(OTHER_AXIS)

    def write(self, context: StepContext) -> None:
        """Write all links of the loop."""
        writer, parts, body, scope = self._writer, self._parts, self._body, self._scope
        section = writer.section()
        writer.equal(section, scope, context.assumed)
        trips, trip_variable = self._trips(section)
        condition = self._truth(parts.head[1]) if len(parts.head) > 1 and parts.head[1] is not None else ABSENT
        for outer, inner in parts.captured:
            if inner.contents is None or outer.contents is None or outer.measured:
                writer.share(inner, outer)
        empty = [tuple([self._size(section, size) for size in row.type.shape or ()]) for row in body.rows]
        carried = self._carry(section)
        number = writer.fresh() if parts.counted is None else writer.place(parts.counted)
        elements = self._elements()
        if parts.trip_condition is not None:
            writer.constants[writer.place(parts.trip_condition)] = np.array(True)
        enter = writer.add(MoveInstruction((), ABSENT))
        begin = writer.add(MoveInstruction((), ABSENT))
        self._bind()
        body.write(self._inside)
        rows = self._rows(empty)
        again = ABSENT if body.condition_out is None else self._truth(body.condition_out)
        loop = BytecodeLoopPlaces(parts.first, number, trips, trip_variable, condition, again, rows, elements)
        writer.add(LoopInstruction(Opcode.STACK, loop))
        self._hand_on(carried)
        repeat = writer.add(LoopInstruction(Opcode.REPEAT, loop, begin))
        writer.aim(enter, LoopInstruction(Opcode.ENTER, loop, repeat + 1))
        writer.aim(begin, LoopInstruction(Opcode.ELEMENTS, loop, bound=self._bound_inputs()))
        self._finish(loop, carried, context)

    # ------------------------------------------------------------ in front of the loop

    def _trips(self, section: Section) -> tuple[int, int]:
        """The place of how many iterations there are at most, and the variable that says so."""
        head = self._parts.head
        if not head or head[0] is None:
            return ABSENT, ABSENT
        value = head[0]
        if value.constant is None and value.contents is not None and not value.measured:
            variable = self._writer.new_variable()
            section.put(variable, *self._writer.numbers(section, self._scope, [value.contents.reshape(-1)[0]]))
            return ABSENT, variable
        if value.dtype is not DType.INT64 or value.type.shape not in ((), (1,)):
            raise self._writer.refused(f"it is not known whether {value.name!r} is one number")
        return self._writer.read_whole(value), ABSENT

    def _truth(self, value: Value) -> int:
        """The place of a truth value."""
        if value.dtype is not DType.BOOL or value.type.shape not in ((), (1,)):
            raise self._writer.refused(f"it is not known whether {value.name!r} is one truth value")
        return self._writer.read_whole(value)

    def _tensor(self, value: Value, like: Value) -> tuple[DimLike, ...]:
        """The shape of a tensor of numbers that is of the type and rank of another one."""
        known = isinstance(value.type, TensorType) and value.dtype not in (None, DType.STRING)
        shape: tuple[DimLike, ...] | None = value.type.shape
        if not known or shape is None or like.type.shape is None or value.dtype is not like.dtype:
            raise self._writer.refused(f"{value.name!r} is no tensor of numbers of a known rank")
        if len(shape) != len(like.type.shape):
            raise self._writer.refused(f"the rank of {value.name!r} is not the same in each iteration")
        return shape

    def _carry(self, section: Section) -> list[int]:
        """The places of what is carried, which begins as what the loop is given."""
        writer, parts = self._writer, self._parts
        moves = []
        for outer, inner in zip(parts.initial, parts.carried, strict=True):
            self._tensor(inner, outer)
            moves.append((writer.read_whole(outer), writer.place(inner, given=True)))
        writer.add(MoveInstruction(moves, writer.following), section)
        return [place for _, place in moves]

    def _elements(self) -> tuple[ElementPlaces, ...]:
        writer, parts = self._writer, self._parts
        found = []
        for outer, inner, back in zip(parts.scanned, parts.elements, parts.backwards, strict=True):
            rank = len(self._tensor(inner, inner)) + 1
            if outer.type.rank != rank or outer.dtype is not inner.dtype:
                raise writer.refused(f"the rank of {outer.name!r} depends on data")
            place = writer.read_whole(outer)
            found.append(ElementPlaces(place, writer.place(inner), inner.dtype.numpy, rank, bool(back)))
        for outer, inner in self._body.followed:
            place, rank = writer.read_whole(outer), len(self._tensor(inner, inner)) + 1
            found.append(ElementPlaces(place, writer.place(inner), inner.dtype.numpy, rank, scanned=False))
        return tuple(found)

    # ------------------------------------------------------------ an iteration

    def _bound_inputs(self) -> list[BoundVariable]:
        """What tells variables when an iteration begins."""
        writer, inside = self._writer, self._inside
        given = [value for value in self._body.bound if value in writer.slots]
        bound = [one for value in given for one in writer.bound_by_array(inside, value, self._body.bound[value])]
        return [*bound, *self._measured]

    def _bind(self) -> None:
        """Write what is compared when an iteration begins: sizes of inputs that are no variables of their own."""
        section = self._writer.section()
        self._measured = [
            one
            for value, bindings in self._body.bound.items()
            if value in self._writer.slots
            for one in self._compared(section, self._inside, value, value.type.shape or (), bindings)
        ]
        if self._measured:
            self._writer.add(MoveInstruction((), self._writer.following), section)

    def _compared(
        self,
        section: Section,
        scope: VariableScope,
        value: Value,
        shape: Sequence[DimLike],
        bindings: Sequence[tuple[str, Binding]],
        axes: Iterable[int] | None = None,
    ) -> list[BoundVariable]:
        """Have sizes of an array be compared with those of a shape, but for those that are variables of its own; gives
        what has to be read off the array for that."""
        own = axes_told(shape, bindings)
        found = []
        for axis in range(len(shape)) if axes is None else axes:
            if axis not in own:
                variable = self._writer.new_variable()
                found.append(BoundVariable(self._writer.slots[value], 0, axis, 0, variable))
                section.need_equal(Written(section, variable), *self._writer.numbers(section, scope, [shape[axis]]))
        return found

    def _rows(self, empty: Sequence[tuple[int, ...]]) -> tuple[RowPlaces, ...]:
        """empty: their shapes where there is no iteration."""
        writer, outputs = self._writer, self._node.outputs[len(self._parts.carried) :]
        rows = []
        for number, (row, back) in enumerate(zip(self._body.rows, self._parts.rows_backwards, strict=True)):
            self._tensor(row, row)
            output = self._output(outputs[number]) if number < len(outputs) else writer.fresh()
            places = (writer.read_whole(row), writer.fresh(), output)
            rows.append(RowPlaces(*places, row.dtype.numpy, empty[number], bool(back)))
        return tuple(rows)

    def _size(self, section: Section, size: DimLike) -> int:
        """The size of a row where there is none: 0 if an iteration has to tell it, as in `no_rows`."""
        names = dims.variables(size)
        if isinstance(size, int) or not names.isdisjoint(self._inside.own):
            return size if isinstance(size, int) else 0
        variable = self._writer.new_variable()
        section.put(variable, *self._writer.numbers(section, self._scope, [size]))
        return size_of(variable)

    def _hand_on(self, carried: Sequence[int]) -> None:
        """Have the next iteration read what this one gives: all at once, as one may be given what another was."""
        writer, parts = self._writer, self._parts
        moves = []
        for given, inner, place in zip(self._body.carried_out, parts.carried, carried, strict=True):
            self._tensor(given, inner)
            source = writer.read_whole(given)
            if source != place:
                moves.append((source, place))
        if {source for source, _ in moves} & set(carried):
            between = [(source, writer.fresh()) for source, _ in moves]
            writer.add(MoveInstruction(between, writer.following))
            moves = [(via, place) for (_, via), (_, place) in zip(between, moves, strict=True)]
        if moves:
            writer.add(MoveInstruction(moves, writer.following))

    # ------------------------------------------------------------ behind the loop

    def _output(self, value: Value) -> int:
        """The place of what the loop gives; another link may have it already that does the same."""
        writer = self._writer
        return writer.slots[value] if value in writer.slots else writer.place(value, given=True)

    def _finish(self, loop: BytecodeLoopPlaces, carried: Sequence[int], context: StepContext) -> None:
        """Hand on what the loop gives, and what that tells."""
        writer, parts, scope, outputs = self._writer, self._parts, self._scope, self._node.outputs
        states = outputs[: len(carried)]
        moves = [(source, self._output(value)) for source, value in zip(carried, states, strict=False)]
        writer.add(MoveInstruction(moves, writer.following))
        writer.own(outputs)
        bindings, section = dict(context.bound), writer.section()
        bound: list[BoundVariable] = []
        inner: list[Sequence[DimLike | None]] = [value.type.shape or () for value in parts.carried]
        inner += [(None, *(value.type.shape or ())) for value in self._body.rows]
        for value, sizes in zip(outputs, inner, strict=False):
            shape = value.type.shape
            if shape is None or len(shape) != len(sizes):
                raise writer.refused(f"the rank of {value.name!r} depends on data")
            own = bindings.get(value, ())
            bound += writer.bound_by_array(scope, value, own)
            differing = [axis for axis, size in enumerate(shape) if size != sizes[axis]]
            bound += self._compared(section, scope, value, shape, own, differing)
        writer.add(LoopInstruction(Opcode.FINISH, loop, bound=bound))
        writer.add(MoveInstruction((), writer.following), section, context.last)
