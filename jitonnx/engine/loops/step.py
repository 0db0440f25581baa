"""A Loop or Scan whose body is one native segment: iteration after iteration in one native call.

    Loop ─ carried values in two alternating buffers ─ elements of scanned inputs by moving pointers ─ rows in place

What the body carries unchanged is no more than an input.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jitonnx.engine.assumptions import check_equal
from jitonnx.engine.bytecode import NotBytecode, StepContext, VariableScope, Writer
from jitonnx.engine.interpreter import array_of, bindings_by_value, failure
from jitonnx.engine.loops.bytecode import OTHER_AXIS, Body, LoopWriter
from jitonnx.engine.loops.observed import ObservedLoops
from jitonnx.engine.loops.run import LoopRun
from jitonnx.engine.loops.words import NUMBER, Words, WordsParts
from jitonnx.engine.programs import PROGRAMS_KEPT, CompiledParametricProgram
from jitonnx.engine.schedule_plan import LoopNode
from jitonnx.engine.timing import Times
from jitonnx.ir import dims
from jitonnx.ir.assumptions import Pair
from jitonnx.ir.extract import substituted
from jitonnx.ir.graph import Graph, Node, Value
from jitonnx.ops.onnx.control_flow import Parts, Scan, no_rows, parts_of
from jitonnx.plan.parametric_program import ParametricProgram
from jitonnx.runtime.bytecode import Sized
from jitonnx.runtime.executable import Executable
from jitonnx.runtime.execution_contexts import ExecutionContextPool, Loadable
from jitonnx.runtime.layout import WORD_BYTES, address
from jitonnx.runtime.observed_loops import NativeLoop
from jitonnx.support.lru_cache import LRUCache
from jitonnx.support.records import NamedTuple

_COUNTED = (-1, 0)
"""The place of an iteration's number: behind the shapes of what it reads."""
_TRUE = np.array(True)
_TRUE_ADDRESS = address(_TRUE)


def wanted(parts: Parts) -> tuple[Value, ...]:
    """What an iteration has to write: the condition, what is carried in buffers of its own, and rows."""
    first = () if parts.always or parts.condition_out is None else (parts.condition_out,)
    return (*first, *(parts.carried_out[place] for place in _buffered(parts)), *parts.rows)


def _buffered(parts: Parts) -> list[int]:
    """Which of the carried values lie in buffers in turn: those that neither stay as they are nor are stacked, too."""
    pairs = enumerate(zip(parts.carried, parts.carried_out, strict=True))
    return [place for place, (before, behind) in pairs if behind is not before and behind not in parts.rows]


class Read(NamedTuple):
    """An input of the body. place: which one. moves: each iteration reads another element of an array, that of its
    number, or so far from the end if `back`."""

    place: int
    moves: bool = False
    back: bool = False


class Iteration:
    """The body's program for certain sizes.

    given: the shapes of what the loop carries when it is run; made: what they are behind it. counts: whether sizes
    depend on the number of the iteration. steady: whether the next iteration is one of the same program.
    """

    def __init__(
        self, loadable: Loadable, given: Sequence[tuple[int, ...]], first: int, carried: int, *, counts: bool
    ) -> None:
        self.loadable = loadable
        specs = list(loadable.program.outputs)[first:]
        self.made = [spec.shape for spec in specs[:carried]]
        self.bytes = [math.prod(spec.shape) * spec.dtype.itemsize for spec in specs[:carried]]
        self.rows = [spec.shape for spec in specs[carried:]]
        self.steady = self.made == list(given) and not counts

    def memory_bytes(self) -> int:
        return self.loadable.bytes


class BodySegment:
    """The body of a loop as a segment of a chain, of the values that it gives."""

    counted = ()

    def __init__(self, step: LoopStep) -> None:
        self._step = step
        self.inputs, self.outputs = step.body.inputs, wanted(step.parts)
        self.names, self.assumed = step.names, step.assumed
        self.is_one_program = not step.names

    def version(self) -> int:
        """How much is recorded of what its programs are; 0: not enough to make one natively."""
        return self._step.compiled.recorded() if self.names else 1

    def chained(self, variables: Sequence[int]) -> Executable | Sized:
        """What runs it in a chain, in which its variables have these numbers."""
        step = self._step
        if not self.names:
            return step.compiled.program({}, step.threads, step.frames).executable
        return step.compiled.sized(dict(zip(self.names, variables, strict=True)))


def _assumed(outline: ParametricProgram, body: Graph, names: Sequence[str]) -> list[Pair]:
    """Sizes that have to be equal for a body's program: what its plan rests on, and what rewrites of the body made use
    of, as a Slice is gone that would keep all of its input. names: of the variables that are known to the program."""
    found = list(outline.assumed())
    for a, b in body.assumptions:
        if (a, b) not in found and dims.variables(a) | dims.variables(b) <= set(names):
            found.append((a, b))
    return found


class LoopStep:
    """A Loop or Scan that runs natively."""

    def __init__(
        self,
        body: LoopNode,
        compiled: CompiledParametricProgram,
        threads: int,
        frames: ExecutionContextPool,
        table_bytes: int,
    ) -> None:
        node = body.node
        parts = parts_of(node)
        assert parts is not None, "Bug: a loop that only the host runs has a native step"
        self.node, self.body, self.compiled, self.parts = node, body, compiled, parts
        self.inputs = tuple(value for value in node.inputs if value is not None)
        self.outputs = node.outputs
        self.latest: Mapping[str, int] | None = None
        """The sizes that the last program was made for."""
        self.threads, self.frames = threads, frames
        self._programs: LRUCache[Iteration] = LRUCache(PROGRAMS_KEPT, Iteration.memory_bytes, table_bytes)
        outline = compiled.outline
        place = {value: number for number, value in enumerate(body.inputs)}
        count = len(body.inputs)
        own = [*parts.carried, *parts.elements]
        bindings = body.graph.bindings.items()
        bound = {name: binding for name, binding in bindings if binding.value in own}
        counting = {name for name, binding in bindings if binding.element}
        self.names = sorted(set().union(*map(dims.variables, outline.numbers)))
        self.assumed = _assumed(outline, body.graph, self.names)
        self._sources: list[tuple[int, int] | None] = [
            (own.index(bound[name].value), bound[name].place) if name in bound else None for name in self.names
        ]
        """What tells the size of each name in an iteration: tensor and axis, or `_COUNTED`; None if it stays."""
        for place_of_name, name in enumerate(self.names):
            if name in counting:
                self._sources[place_of_name] = _COUNTED
        self._counts = _COUNTED in self._sources
        sourced = zip(self.names, self._sources, strict=True)
        self.outer_names = [name for name, source in sourced if source is None]
        """The variables of the graph around the loop that its programs depend on."""
        first = int(not parts.always)
        self._first = first
        self.carried = _buffered(parts)
        self.row_place = count + first + len(self.carried)
        # The address of what is carried and not read goes to a word behind those that a frame takes.
        idle = count + len(body.outputs)
        self.pairs = [
            (place.get(parts.carried[n], idle), count + first + number) for number, n in enumerate(self.carried)
        ]
        self.grown = [number for number, n in enumerate(self.carried) if n in body.grown]
        """Which of these are appended to where they lie."""
        self.kinds = [value.dtype.numpy for value in (parts.carried_out[n] for n in self.carried)]
        pairs = enumerate(zip(parts.carried, parts.carried_out, strict=True))
        self.stacked = [
            (n, parts.rows.index(behind))
            for n, (before, behind) in pairs
            if before is not behind and behind in parts.rows
        ]
        """What is carried where it is stacked, with the number of the stack."""
        self.row_links = [(place.get(parts.carried[n], idle), self.row_place + number) for n, number in self.stacked]
        self._carried_count = len(self.pairs) + len(self.row_links)
        self.row_kinds = [value.dtype.numpy for value in parts.rows]
        self._usual_parts: WordsParts | None = None
        self._idle = idle
        self._counter = place.get(parts.counted) if parts.counted is not None else None
        self._truth = place.get(parts.trip_condition) if parts.trip_condition is not None else None
        self.captured = [outer for outer, inner in parts.captured if inner in place]
        """What the body reads of the graph around it."""
        outer_of = {inner: outer for outer, inner in parts.captured}
        self.followed = [(outer_of[one.table], one.text) for one in body.followed]
        """Captured tensors of which an iteration reads the element of its number, and what an error says without it."""
        self.followed_values = [(outer_of[one.table], one.element) for one in body.followed]
        scanned = zip(parts.elements, parts.backwards, strict=True)
        self.reads: list[Read | None] = [
            *(Read(place[value]) if value in place else None for value in parts.carried),
            *(Read(place[inner]) for _, inner in parts.captured if inner in place),
            *(Read(place[one.element], moves=True) for one in body.followed),
            *(Read(place[value], moves=True, back=bool(back)) if value in place else None for value, back in scanned),
        ]
        """Where arrays go: what is carried, captured, followed and scanned, in this order; None for what none reads."""
        self.links = ObservedLoops(self)

    def reasons(self) -> Iterator[tuple[Node, str]]:
        """No node is evaluated on the host."""
        return iter(())

    def write(self, writer: Writer, scope: VariableScope, context: StepContext) -> None:
        """Write the step's link of a chain. NotBytecode where it can be no part of one."""
        if not self.parts.is_plain:
            raise NotBytecode(OTHER_AXIS)
        self.links.write(writer, scope, context)

    is_one_program = False
    """Inputs of other types have the loop run by other programs."""

    def write_body(self, writer: Writer, scope: VariableScope, context: StepContext) -> None:
        """Write links of a chain for all that an iteration does, and around them; these do any iterations: of sizes
        that change, too, and none. NotBytecode where they can't be."""
        if not self.compiled.chainable(sized=bool(self.names)):
            raise NotBytecode("Python has a part in making its programs")
        parts, graph = self.parts, self.body.graph
        bound = bindings_by_value(graph)
        given = {value: bound[value] for value in graph.inputs if value in bound}
        condition_out = parts.trip_condition if parts.always else parts.condition_out
        segment = BodySegment(self)

        def write(inside: VariableScope) -> None:
            writer.segment(segment, inside, StepContext((), (), ()))

        told = [name for name, binding in graph.bindings.items() if binding.value in given]
        body = Body(told, given, condition_out, parts.carried_out, parts.rows, write, self.followed_values)
        LoopWriter(writer, self.node, parts, body, scope).write(context)

    def version(self) -> int:
        """What `ObservedLoops` gives."""
        return self.links.version()

    def chained(self, variables: Sequence[int]) -> NativeLoop | None:
        """What `ObservedLoops` gives."""
        return self.links.chained(variables)

    def words(self, programs: int = 1, timed: int = 0) -> Words:
        """What native code reads and writes of a run of so many programs, but for what each run puts in. timed: how
        many kernels are timed."""
        words = Words(self, programs, timed)
        if self._counter is not None:
            words.bases[self._counter] = words.address + WORD_BYTES * NUMBER
        if self._truth is not None:
            words.bases[self._truth] = _TRUE_ADDRESS
        if self._first:
            words.bases[len(self.body.inputs)] = words.condition
        return words

    def native_steps(self) -> Iterator[LoopStep]:
        """The body's code is native."""
        yield self

    @property
    def counting(self) -> Iterator[Node]:
        """No node tells sizes that steps behind it need."""
        return iter(())

    def explained_sizes(self, sizes: Mapping[str, int]) -> Mapping[str, int] | None:
        """Sizes to look at the body for: those given if they are all it needs, else the last; None before any run."""
        return sizes if set(self.names) <= set(sizes) else self.latest

    def __call__(self, values: dict[Value, Any], sizes: dict[str, int], times: Times | None = None) -> None:
        """Add what the loop gives to `values`, and what its kernels take to `times`."""
        node = self.node
        arguments = [None if value is None else array_of(value, values, sizes) for value in node.arguments]
        read = [*self.captured, *(outer for outer, _ in self.followed)]
        captured = {outer: array_of(outer, values, sizes) for outer in read}
        values.update(zip(node.outputs, self._run(arguments, captured, sizes, times), strict=False))

    def _run(
        self,
        arguments: Sequence[Any],
        captured: Mapping[Value, Any],
        sizes: Mapping[str, int],
        times: Times | None,
    ) -> list[Any]:
        """The outputs. arguments: the node's own inputs, None for absent ones. captured: the others that the body
        reads. RuntimeException names the node where what it is given does not fit."""
        operator, parts = self.node.operator, self.parts
        if isinstance(operator, Scan):
            count = len(parts.carried)
            axes = operator.input_axes([array.shape for array in arguments[count:]])
            scanned = [
                _dense(array if axis == 0 else np.moveaxis(array, axis, 0))
                for array, axis in zip(arguments[count:], axes, strict=True)
            ]
            lengths = {len(array) for array in scanned}
            if len(lengths) > 1:
                raise failure(self.node, f"what is scanned has different lengths: {sorted(lengths)}")
            limit: int | None = lengths.pop()
            condition_out, states = True, list(arguments[:count])
        else:
            most, condition, *states = (*arguments, None, None)[: max(len(arguments), 2)]
            limit = None if most is None else int(most.reshape(-1)[0]) - parts.first
            condition_out, scanned = condition is None or bool(condition.reshape(-1)[0]), []
        if not condition_out or (limit is not None and limit <= 0):
            state, rows = states, [no_rows(substituted(value.type, sizes)) for value in parts.rows]
        else:
            read = [_dense(captured[outer]) for outer in self.captured]
            followed = [_dense(captured[outer]) for outer, _ in self.followed]
            loop = LoopRun(self, [_dense(array) for array in states], read, followed, scanned, limit, sizes)
            loop.seconds = None if times is None else np.zeros(len(self.compiled.outline.calls))
            state, rows = loop.result()
            if loop.steady is not None:
                self.links.note(arguments, captured, sizes, loop.steady)
            else:
                self.links.note_growth()
            if times is not None and loop.seconds is not None:
                times.add(self, loop.seconds, loop.count)
        if any(parts.row_axes):
            rows = [np.moveaxis(row, 0, axis) for row, axis in zip(rows, parts.row_axes, strict=True)]
        return [*state, *rows]

    def parts_of_words(self, programs: int, timed: int) -> WordsParts:
        """The places of the parts of what native code reads and writes, in words; known already for one program that is
        not timed."""
        if programs > 1 or timed:
            return WordsParts.of(self, programs, timed)
        if self._usual_parts is None:
            self._usual_parts = WordsParts.of(self, 1, 0)
        return self._usual_parts

    def iteration(
        self,
        number: int,
        states: Sequence[tuple[int, ...]],
        elements: Sequence[tuple[int, ...]],
        sizes: Mapping[str, int],
    ) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
        """What the program for these shapes is kept under: the values of its variables, and the shapes carried."""
        own = (*states, *elements, (number,))
        key = tuple(
            [
                sizes[name] if source is None else own[source[0]][source[1]]
                for name, source in zip(self.names, self._sources, strict=True)
            ]
        )
        return key, tuple([states[n] for n in self.carried])

    def known(self, key: Any) -> Iteration | None:
        """A program that is there."""
        return self._programs.find(key)

    def made(self, key: Any) -> Iteration:
        """A program, made if need be."""
        return self._programs.get(key, functools.partial(self._make, key))

    def _make(self, key: tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]) -> Iteration:
        sizes = dict(zip(self.names, key[0], strict=True))
        for a, b in self.assumed:
            check_equal(a, b, sizes)
        self.latest = sizes
        loadable = self.compiled.loadable(sizes, self.threads, self.frames)
        return Iteration(loadable, key[1], self._first, len(self.carried), counts=self._counts)


def _dense(array: np.ndarray) -> np.ndarray:
    return array if array.flags.c_contiguous else array.copy(order="C")
