"""Steps of a schedule that follow each other and are native: one native call for all, whatever sizes they tell.

    segment ─ sizes ─ segment ─ condition ─ segment of a branch ─ … ─ sizes ─ segment

A chain is written for the steps as they are (`Writer`): which place of a list each value has, which number each
dimension variable, what is compared before a step. Programs are made by what was recorded of each segment
(`plan/size_program.py`); where nothing is recorded yet, or not for sizes like these, Python does the step, and what it
does then is recorded.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from jitonnx.engine.interpreter import array_of, axes_told, known
from jitonnx.engine.lent import Lent
from jitonnx.engine.loops.bytecode import Body, LoopWriter
from jitonnx.ir import dims
from jitonnx.ir.assumptions import Pair
from jitonnx.ir.dims import DimLike
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Binding, Node, Value
from jitonnx.ir.types import TensorType
from jitonnx.ops.onnx.control_flow import parts_of
from jitonnx.plan.size_program import Evaluator
from jitonnx.plan.size_tracing import EMPTY_SECTION, Registers, Section, Untraceable, Written
from jitonnx.runtime.bytecode import (
    BoundVariable,
    BranchInstruction,
    Bytecode,
    BytecodeInstruction,
    MoveInstruction,
    Placed,
    SegmentInstruction,
)
from jitonnx.runtime.entry import supported
from jitonnx.runtime.execution_contexts import ExecutionContextPool
from jitonnx.runtime.layout import WORD_BYTES
from jitonnx.support.records import NamedTuple

if TYPE_CHECKING:
    from jitonnx.engine.loops.step import BodySegment, LoopStep
    from jitonnx.engine.schedule import NativeStep, Schedule, Step

VARIABLES = 512
"""Dimension variables of a chain at most."""
ROOM = 256
"""Numbers that are worked out in the checks before a link at most."""
CHAINS_KEPT = 8
"""Chains of the same steps, for runs that overlap; more runs at once are done by Python."""


class NotBytecode(Exception):
    """A step that is no part of a chain; the text says why."""


class StepContext(NamedTuple):
    """What a schedule does around one of its steps.

    assumed: sizes that have to be equal before it. bound: what its outputs tell, by output. last: what is let go behind
    it.
    """

    assumed: Sequence[Pair]
    bound: Sequence[tuple[Value, Sequence[tuple[str, Binding]]]]
    last: Sequence[Value]


class VariableScope:
    """The dimension variables of a graph, by name, with those of the graphs around it."""

    def __init__(
        self, writer: Writer, own: Iterable[str], outer: VariableScope | None = None, *, repeated: bool = False
    ) -> None:
        self._writer, self._outer = writer, outer
        self.repeated: bool = repeated or (outer is not None and outer.repeated)
        """Whether it is in the body of a loop."""
        self.own = {name: writer.new_variable() for name in own}
        """Those that are told within the chain."""

    def number(self, name: str) -> int:
        """The number of a variable; one that is not told within the chain is told before it."""
        if name in self.own:
            return self.own[name]
        return self._outer.number(name) if self._outer else self._writer.given(name)


class Segmented(NamedTuple):
    """A link of a native segment or loop, whose program is known when it is run.

    variables: the numbers of those it needs.
    """

    step: NativeStep | BodySegment | LoopStep
    variables: Sequence[int]


class Writer:
    """Links as they are written."""

    def __init__(self) -> None:
        self.slots: dict[Value, int] = {}
        self.inputs: dict[Value, int] = {}
        """What is given before the chain, and its place."""
        self.constants: dict[int, np.ndarray] = {}
        self.names: dict[str, int] = {}
        """The variables that are known before the chain."""
        self.links: list[Placed] = []
        self.segments: dict[int, Segmented] = {}
        """The keys are the numbers of links."""
        self.counted: set[Value] = set()
        """Values whose arrays begin with them: they are memory for the largest there could be."""
        self.registers = Registers(VARIABLES, ROOM)
        self.step = 0
        """The step that links are written for."""
        self.left: set[int] = set()
        """Steps that may be left to Python for what they are given: those with loops."""
        self._made: set[int] = set()
        """The places that links fill."""
        self._own: set[Value] = set()
        """The values that links give: what a branch reads of the graph around it is none of its own."""
        self._variables = self._places = 0

    @property
    def places(self) -> int:
        """How many places the list of arrays has."""
        return self._places

    # ------------------------------------------------------------ variables

    def new_variable(self) -> int:
        """The number of a further variable."""
        if self._variables == VARIABLES:
            raise NotBytecode("too many dimension variables")
        self._variables += 1
        return self._variables - 1

    def given(self, name: str) -> int:
        """The number of a variable that is known before the chain."""
        if name not in self.names:
            self.names[name] = self.new_variable()
        return self.names[name]

    def numbers(self, section: Section, scope: VariableScope, sizes: Sequence[DimLike]) -> list[int | Written]:
        """Sizes, worked out in a section."""
        evaluator = Evaluator(sizes)
        given: Any = {name: Written(section, scope.number(name)) for name in evaluator.variables}
        try:
            found: dict[int, Any] = dict(evaluator.recorded(given))
        except Untraceable as error:
            raise NotBytecode(str(error)) from error
        return [found.get(row, size) for row, size in enumerate(sizes)]

    # ------------------------------------------------------------ places

    def read(self, value: Value) -> int:
        """The place of a value that is read."""
        if value not in self.slots:
            if value.constant is not None and not value.measured:
                # Loops read arrays as they lie, and a state of zeros may be one zero that is broadcast.
                self.constants[self._put(value)] = np.asarray(known(value, {}), order="C")
            elif value.contents is not None and not value.measured:
                raise NotBytecode(f"{value.name!r} is made of sizes")
            else:
                self.inputs[value] = self._put(value)
        return self.slots[value]

    def fill(self, value: Value) -> int:
        """The place of a value that a link gives."""
        place = self._put(value)
        self._made.add(place)
        self._own.add(value)
        return place

    def read_whole(self, value: Value) -> int:
        """The place of a value that is read as it lies. NotBytecode if its array only begins with it."""
        if value in self.counted:
            raise NotBytecode(f"{value.name!r} lies at the beginning of memory for the largest one")
        return self.read(value)

    def share(self, inner: Value, outer: Value) -> None:
        """Have a value of a body be one of the graph around it."""
        self.slots[inner] = self.read(outer)
        if outer in self.counted:
            self.counted.add(inner)

    def place(self, value: Value, *, given: bool = False) -> int:
        """A place for a value that is moved there, or put there by a link. given: it may be an array as a caller gives
        them, which is looked at again when it is read."""
        place = self._put(value)
        if not given:
            self._made.add(place)
        return place

    def fresh(self) -> int:
        """A place of no value."""
        self._places += 1
        return self._places - 1

    def own(self, values: Iterable[Value]) -> None:
        """Note values that links give."""
        self._own.update(values)

    def _put(self, value: Value) -> int:
        self.slots[value] = self.fresh()
        return self.slots[value]

    # ------------------------------------------------------------ links

    def add(self, link: BytecodeInstruction, section: Section | None = None, last: Sequence[Value] = ()) -> int:
        """Append a link; gives its number. section: what is done with sizes before it. last: values that nobody reads
        behind it."""
        operations = section.operations() if section else []
        checks = np.array(operations, np.int64) if len(operations) > EMPTY_SECTION else None
        self.links.append(Placed(link, self.step, checks, self._dropped(last)))
        return len(self.links) - 1

    @property
    def following(self) -> int:
        """The number of the link behind the one that is added next."""
        return len(self.links) + 1

    def aim(self, number: int, link: BytecodeInstruction) -> None:
        """Put a link in the place of one that is there."""
        self.links[number] = self.links[number]._replace(link=link)

    def section(self) -> Section:
        """What is done with sizes before a link, nothing yet."""
        return Section(self.registers)

    def equal(self, section: Section, scope: VariableScope, pairs: Sequence[Pair]) -> None:
        """Note pairs of sizes that have to be equal."""
        for a, b in pairs:
            section.need_equal(*self.numbers(section, scope, (a, b)))

    def segment(self, step: NativeStep | BodySegment, scope: VariableScope, context: StepContext) -> None:
        """A native segment."""
        section = self.section()
        self.equal(section, scope, [*context.assumed, *step.assumed])
        inputs = [self.read(value) for value in step.inputs]
        given = [(place, place in self._made) for place in inputs]
        outputs = [self.fill(value) for value in step.outputs]
        counts = range(self._places, self._places + len(step.counted))
        self._places += len(step.counted)
        self._made.update(counts)
        bound = [one for value, bindings in context.bound for one in self._bound(step, scope, value, bindings, counts)]
        self.counted.update(step.outputs[counted.number] for counted in step.counted)
        self.segments[len(self.links)] = Segmented(step, [scope.number(name) for name in step.names])
        self.add(SegmentInstruction(None, given, [*outputs, *counts], bound), section, context.last)

    def loop(
        self,
        step: LoopStep,
        inputs: Sequence[Value],
        names: Sequence[str],
        trips: DimLike | None,
        scope: VariableScope,
        context: StepContext,
    ) -> None:
        """A loop.

        inputs: what it reads. names: the variables that it depends on. trips: how many iterations there are, if that is
        worked out of sizes.
        """
        section = self.section()
        self.equal(section, scope, context.assumed)
        counted: list[int] = []
        if trips is not None:
            counted.append(self.new_variable())
            section.put(counted[0], *self.numbers(section, scope, [trips]))
        given = [(self.read(value), False) for value in inputs]
        outputs = [self._put(value) for value in step.outputs]
        self.left.add(self.step)
        self.own(step.outputs)
        bound = [one for value, bindings in context.bound for one in self.bound_by_array(scope, value, bindings)]
        # A loop reads arrays as they lie, and not what is at the beginning of memory for the largest one.
        if not self.counted.intersection(inputs):
            self.segments[len(self.links)] = Segmented(step, [scope.number(name) for name in names] + counted)
        link = SegmentInstruction(None, given, outputs, bound)
        number = self.add(link, section)
        if scope.repeated and self._attempted(lambda: step.write_body(self, scope, context._replace(last=()))):
            self.aim(number, link._replace(target=len(self.links)))
        self.add(MoveInstruction((), self.following), last=context.last)

    def _attempted(self, write: Callable[[], None]) -> bool:
        """Whether further links could be written; nothing is changed where they could not."""
        before = {name: copy.copy(value) for name, value in vars(self).items() if name != "registers"}
        try:
            write()
        except NotBytecode:
            vars(self).update(before)
            return False
        return True

    def bound_by_array(
        self, scope: VariableScope, value: Value, bindings: Sequence[tuple[str, Binding]]
    ) -> Iterator[BoundVariable]:
        """What an array tells: its sizes and elements."""
        for name, binding in bindings:
            if binding.element:
                yield self._element(scope, value, name, binding)
            else:
                yield BoundVariable(self.slots[value], 0, binding.place, 0, scope.number(name))

    def _element(self, scope: VariableScope, value: Value, name: str, binding: Binding) -> BoundVariable:
        """A variable that is an element of a value."""
        dtype, shape = value.dtype.numpy, value.type.shape
        if not binding.element or dtype.kind != "i" or dtype.itemsize < 4:
            raise NotBytecode(f"{value.name!r} tells sizes otherwise than by integers")
        if not all(isinstance(size, int) for size in shape):
            raise NotBytecode(f"it is not known how many elements {value.name!r} has")
        return BoundVariable(self.slots[value], dtype.itemsize, binding.place, math.prod(shape), scope.number(name))

    def _bound(
        self,
        step: NativeStep | BodySegment,
        scope: VariableScope,
        value: Value,
        bindings: Sequence[tuple[str, Binding]],
        counts: range,
    ) -> Iterator[BoundVariable]:
        """What an output of a segment tells."""
        counted = {step.outputs[one.number]: (place, one) for place, one in zip(counts, step.counted, strict=True)}
        for name, binding in bindings:
            if value in counted:
                place, one = counted[value]
                if binding.element or one.axes[binding.place] is not None:
                    raise NotBytecode(f"{value.name!r} tells more than one size")
                yield BoundVariable(place, WORD_BYTES, 0, 1, scope.number(name))
                continue
            yield self._element(scope, value, name, binding)

    def bytecode_loop(self, node: Node, body: Schedule, scope: VariableScope, context: StepContext) -> None:
        """A Loop or Scan whose body is links of the same chain."""
        parts = parts_of(node)
        if parts is None:
            raise NotBytecode("it scans batches of samples")
        head = int(parts.condition_out is not None)
        outputs, states = body.outputs, head + len(parts.carried)
        condition_out = outputs[0] if head else None

        def write(inside: VariableScope) -> None:
            self.graph(body, inside)

        what = Body(body.told, body.bound_inputs, condition_out, outputs[head:states], outputs[states:], write)
        LoopWriter(self, node, parts, what, scope).write(context)
        self.left.add(self.step)

    def inside(self, own: Iterable[str], outer: VariableScope) -> VariableScope:
        """The variables of a loop's body."""
        return VariableScope(self, own, outer, repeated=True)

    def refused(self, why: str) -> NotBytecode:
        """What is raised where a chain can't be written."""
        return NotBytecode(why)

    def graph(self, schedule: Schedule, scope: VariableScope) -> None:
        """All steps of a body."""
        for step, context in schedule.placed():
            step.write(self, scope, context)
        if schedule.assumed_at_last:
            section = self.section()
            self.equal(section, scope, schedule.assumed_at_last)
            self.add(MoveInstruction((), self.following), section)

    def choice(self, node: Node, bodies: Sequence[Schedule], scope: VariableScope, context: StepContext) -> None:
        """An If, whose branches are links of the same chain."""
        condition, *captured = [value for value in node.inputs if value is not None]
        shape = condition.type.shape
        if condition.dtype is not DType.BOOL or shape is None or any(size != 1 for size in shape):
            raise NotBytecode("it is not known whether the condition is one truth value")
        section = self.section()
        self.equal(section, scope, context.assumed)
        begin = len(self.links)
        self.add(BranchInstruction(self.read(condition), 0), section)
        places = {value: self.fill(value) for value in node.outputs}
        ends: list[int] = []
        for body in bodies:
            self._branch(node, body, scope, captured, places, context)
            ends.append(len(self.links))
        self.add(MoveInstruction((), ends[1] + 1), last=context.last)
        self.aim(begin, BranchInstruction(self.slots[condition], ends[0]))
        last = self.links[ends[0] - 1]
        assert isinstance(last.link, MoveInstruction)
        self.aim(ends[0] - 1, last.link._replace(target=ends[1]))

    def _dropped(self, last: Sequence[Value]) -> list[int]:
        """The places of values that nobody reads any more. What was there before is the caller's to let go."""
        return [self.slots[value] for value in last if value in self._own]

    def _branch(
        self,
        node: Node,
        body: Schedule,
        scope: VariableScope,
        captured: Sequence[Value],
        places: Mapping[Value, int],
        context: StepContext,
    ) -> None:
        """The links of a branch, and one that hands on what it gives."""
        if body.bound_inputs:
            raise NotBytecode("a body tells the sizes of what it is given")
        for inner, outer in zip(body.inputs, captured, strict=True):
            if inner.contents is None or outer.contents is None or outer.measured:
                self.share(inner, outer)
        inside = VariableScope(self, body.told, scope)
        self.graph(body, inside)
        section = self.section()
        bound = dict(context.bound)
        moves = []
        for given, value in zip(body.outputs, node.outputs, strict=True):
            if not isinstance(given.type, TensorType) or given.dtype in (None, DType.STRING):
                raise NotBytecode(f"{value.name!r} is no tensor of numbers")
            moves.append((self.read(given), places[value]))
            self._hand_on(section, (given, inside), (value, scope), bound.get(value, ()))
            if given in self.counted:
                self.counted.add(value)
        self.add(MoveInstruction(moves, len(self.links) + 1), section)

    def _hand_on(
        self,
        section: Section,
        given: tuple[Value, VariableScope],
        taken: tuple[Value, VariableScope],
        bindings: Sequence[tuple[str, Binding]],
    ) -> None:
        """Have the sizes of what an If gives be those of what its branch gives."""
        (inner, inside), (outer, outside) = given, taken
        if inner.type.shape is None or outer.type.shape is None or len(inner.type.shape) != len(outer.type.shape):
            raise NotBytecode(f"the rank of {outer.name!r} depends on data")
        if any(binding.element for _, binding in bindings):
            raise NotBytecode(f"{outer.name!r} has elements that are sizes")
        sizes = self.numbers(section, inside, inner.type.shape)
        for name, binding in bindings:
            section.put(outside.number(name), sizes[binding.place])
        known = axes_told(outer.type.shape, bindings)
        for axis, size in enumerate(sizes):
            if axis not in known and outer.type.shape[axis] != inner.type.shape[axis]:
                section.need_equal(size, *self.numbers(section, outside, [outer.type.shape[axis]]))


class _Behind(NamedTuple):
    """What is known behind so many steps of a chain.

    told: variables, by number. values: those that are read later, with their places, and what cuts those off whose
    size was counted. gone: what was given and is not read any more.
    """

    told: Sequence[tuple[str, int]]
    values: Sequence[tuple[Value, int, _Beginning | None]]
    gone: Sequence[Value]


class BytecodeSteps:
    """Steps of a schedule that are one native call. Raises `NotBytecode` where they can't be.

    steps: with what is done around each. told: the variables of the graph that runs tell.
    """

    def __init__(
        self,
        steps: Sequence[tuple[Step, StepContext]],
        told: Mapping[str, Value],
        frames: ExecutionContextPool,
        threads: int,
    ) -> None:
        self.count = len(steps)
        writer = self._writer = Writer()
        own = {value for step, _ in steps for value in step.outputs}
        scope = VariableScope(writer, [name for name, value in told.items() if value in own])
        for number, (step, context) in enumerate(steps):
            writer.step = number
            step.write(writer, scope, context)
        self._behind = [self._known_behind(steps[:count], scope, told) for count in range(len(steps) + 1)]
        self._template: list[Any] = [None] * writer.places
        for place, array in writer.constants.items():
            self._template[place] = array
        self._runners = Lent(lambda: _Runner(writer, len(steps), frames, threads), CHAINS_KEPT)

    @property
    def left(self) -> set[int]:
        """The numbers of steps that may be left to Python for what they are given."""
        return self._writer.left

    def __call__(self, values: dict[Value, Any], sizes: dict[str, int]) -> int:
        """Carry out as many steps as can be, and say how many these are. Arguments as for steps."""
        runner = self._runners.take()
        if runner is None:
            return 0
        try:
            if not runner.take_up():
                return 0
            arrays = self._template.copy()
            for value, place in self._writer.inputs.items():
                arrays[place] = array_of(value, values, sizes)
            done = self._run(runner, arrays, sizes)
            self._note(done, runner, arrays, values, sizes)
            return done
        finally:
            self._runners.give(runner)

    def _run(self, runner: _Runner, arrays: list[Any], sizes: Mapping[str, int]) -> int:
        """Run it on arrays in their places, and say how many steps are done."""
        numbers = runner.numbers
        for name, number in self._writer.names.items():
            numbers[number] = sizes[name]
        return runner.run(arrays)

    def _note(
        self, done: int, runner: _Runner, arrays: Sequence[Any], values: dict[Value, Any], sizes: dict[str, int]
    ) -> None:
        """Put down what is known behind so many steps."""
        behind = self._behind[done]
        for name, number in behind.told:
            sizes[name] = runner.numbers[number]
        for value, place, beginning in behind.values:
            array = arrays[place]
            values[value] = array if beginning is None else beginning(array, sizes)
        for value in behind.gone:
            values.pop(value, None)

    def _known_behind(
        self, steps: Sequence[tuple[Step, StepContext]], scope: VariableScope, told: Mapping[str, Value]
    ) -> _Behind:
        writer = self._writer
        gone = [value for _, context in steps for value in context.last]
        made = [value for step, _ in steps for value in step.outputs]
        alive = [value for value in made if value not in gone]
        return _Behind(
            [(name, scope.own[name]) for name, value in told.items() if value in made],
            [(value, writer.slots[value], _beginning(value) if value in writer.counted else None) for value in alive],
            gone,
        )


class WholeRun:
    """Runs of a graph that is one chain: arrays go from the inputs to their places and come back as outputs, without
    tables of values between steps.
    """

    def __init__(self, chain: BytecodeSteps, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        self._chain, self._inputs = chain, inputs
        behind = chain._behind[chain.count]
        given = chain._writer.inputs
        made = {value: (place, beginning) for value, place, beginning in behind.values}
        self.possible = made.keys() >= set(outputs) and set(inputs) >= given.keys()
        """Whether all outputs are results of the chain, and all that it is given are inputs."""
        self._places = [(inputs.index(value), place) for value, place in given.items()] if self.possible else []
        self._results = [made[value] for value in outputs] if self.possible else []
        self._told = behind.told if any(beginning is not None for _, beginning in self._results) else ()

    def __call__(
        self, inputs: Sequence[Any], sizes: Mapping[str, int]
    ) -> list[Any] | tuple[dict[Value, Any], dict[str, int], int] | None:
        """The outputs; or, where only some steps are done, what is known behind them, and how many; None if none is."""
        chain = self._chain
        runner = chain._runners.take()
        if runner is None:
            return None
        try:
            if not runner.take_up():
                return None
            arrays = chain._template.copy()
            for number, place in self._places:
                arrays[place] = inputs[number]
            done = chain._run(runner, arrays, sizes)
            if done < chain.count:
                values, bound = dict(zip(self._inputs, inputs, strict=True)), dict(sizes)
                chain._note(done, runner, arrays, values, bound)
                return values, bound, done
            if self._told:
                sizes = {**sizes, **{name: runner.numbers[number] for name, number in self._told}}
            outputs = []
            for place, beginning in self._results:
                array = arrays[place]
                outputs.append(array if beginning is None else beginning(array, sizes))
            return outputs
        finally:
            chain._runners.give(runner)


class _Runner:
    """A chain, and how much of what is recorded it knows."""

    def __init__(self, writer: Writer, steps: int, frames: ExecutionContextPool, threads: int) -> None:
        constants = writer.registers.constants
        registers = np.zeros(VARIABLES + ROOM + len(constants), np.int64)
        for value, register in constants.items():
            registers[register] = value
        self.numbers = registers.data
        """The variables; a view gives them as Python's numbers, in a third of the time that the array takes."""
        self.chain = Bytecode(writer.links, steps, frames, threads, registers)
        self._open = [(number, *segment) for number, segment in writer.segments.items()]
        """The segments whose programs are not settled."""
        self._versions = dict[int, int]()
        self._unlike = 0
        """How many runs have met loops within loops that were run with inputs of other types before."""
        self._is_shown = False
        """Whether Python does the next run, by which it is known how these loops are done in one go."""

    def run(self, arrays: list[Any]) -> int:
        """How many steps are done. arrays: a place for each value; those that are given are filled."""
        done = self.chain.run(arrays)
        if self.chain.take_unlike():
            self._unlike += 1
            # Ever more rarely: types may be others each time.
            self._is_shown = not self._unlike & (self._unlike - 1)
        return done

    def take_up(self) -> bool:
        """Take up what was recorded since the last run; whether there is anything to run the first segment by."""
        if self._is_shown:
            self._is_shown = False
            return False
        for number, step, variables in self._open:
            version = step.version()
            if version != self._versions.get(number, 0):
                self.chain.set(number, step.chained(variables))
                self._versions[number] = version
                self._open = [one for one in self._open if one[0] != number or not step.is_one_program]
        return bool(self._versions)


_Beginning: TypeAlias = Callable[[np.ndarray, Mapping[str, int]], np.ndarray]


def _beginning(value: Value) -> _Beginning:
    """What makes of a chain's new array the value that lies at its beginning; the memory behind it is given back."""
    shape: Sequence[DimLike] = value.type.shape or ()
    name = str(shape[0]) if len(shape) == 1 else ""
    is_variable = name in dims.variables(shape[0] if shape else 1)

    def beginning(array: np.ndarray, sizes: Mapping[str, int]) -> np.ndarray:
        if is_variable:
            known = [sizes[name]]
        else:
            known = [dim if isinstance(dim, int) else dims.evaluate(dim, sizes) for dim in shape]
        if not array.flags.owndata:
            return array.reshape(-1)[: math.prod(known)].reshape(known)
        array.resize(known, refcheck=False)  # nobody but the chain's list refers to it
        return array

    return beginning


def bytecode_of(
    steps: Sequence[tuple[Step, StepContext]], told: Mapping[str, Value], frames: ExecutionContextPool, threads: int
) -> dict[int, BytecodeSteps]:
    """The chains of a schedule's steps, by the number of the step that each begins with. Arguments as for one.

    Behind a loop begins one that goes on where Python has done the loop.
    """
    found: dict[int, BytecodeSteps] = {}
    for fits, group in itertools.groupby(range(len(steps)), lambda number: _fits(steps[number], told)):
        numbers = list(group)
        if fits:
            with contextlib.suppress(NotBytecode):
                first, end = numbers[0], numbers[-1] + 1
                whole = found[first] = BytecodeSteps(steps[first:end], told, frames, threads)
                for begin in [first + number + 1 for number in sorted(whole.left) if first + number + 1 < end]:
                    found[begin] = BytecodeSteps(steps[begin:end], told, frames, threads)
    return found


def _fits(placed: tuple[Step, StepContext], told: Mapping[str, Value]) -> bool:
    """Whether a step can be a part of a chain."""
    writer = Writer()
    step, context = placed
    try:
        step.write(
            writer, VariableScope(writer, [name for name, value in told.items() if value in step.outputs]), context
        )
    except NotBytecode:
        return False
    return supported()
