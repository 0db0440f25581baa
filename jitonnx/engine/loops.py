"""Loops and Scans whose body is one native segment: iteration after iteration in one native call.

    Loop ─ carried values in two alternating buffers ─ elements of scanned inputs by moving pointers ─ rows in place

What the body carries unchanged is no more than an input. Where sizes of what is carried change from one iteration to
the next (a cache that grows), iterations run different programs of one plan: those that are there already, and as many
again, are run in one native call, and it grows with each.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jitonnx.engine.assumptions import check_equal
from jitonnx.engine.bytecode import NotBytecode, StepContext, VariableScope, Writer
from jitonnx.engine.bytecode_loops import Body, LoopWriter
from jitonnx.engine.interpreter import array_of, bindings_by_value, failure
from jitonnx.engine.loop_instructions import LoopInstructions
from jitonnx.engine.programs import PROGRAMS_KEPT, CompiledParametricProgram
from jitonnx.engine.schedule_plan import LoopNode
from jitonnx.engine.timing import Times
from jitonnx.errors import InvalidArgument, RuntimeException
from jitonnx.ir import dims
from jitonnx.ir.assumptions import Pair
from jitonnx.ir.extract import substituted
from jitonnx.ir.graph import Graph, Node, Value
from jitonnx.ops.onnx.control_flow import Loop, Parts, Scan, no_rows, parts_of
from jitonnx.plan.parametric_program import ParametricProgram
from jitonnx.runtime.bytecode import Sized
from jitonnx.runtime.driver import chains_driver
from jitonnx.runtime.executable import Executable
from jitonnx.runtime.execution_contexts import ExecutionContextPool, Loadable
from jitonnx.runtime.layout import CARRIED, LOOP, WORD_BYTES, LoopEnd, address, offset
from jitonnx.runtime.loop_instructions import NativeLoop
from jitonnx.support.lru_cache import LRUCache
from jitonnx.support.records import NamedTuple

ROWS_AT_ONCE, ROW_BYTES_AT_ONCE = 64, 1 << 26
"""Memory for stacked results is taken for all iterations that there can be if it is not more than so many bytes; else
for so many rows, and twice as many whenever these are not enough."""
PROGRAMS_AHEAD = 4
"""Programs of sizes to come that are made before it is known whether the loop comes to them, at least."""

_COUNTED = (-1, 0)
"""Behind the shapes of what an iteration reads lies its number."""
_TRUE = np.array(True)
_TRUE_ADDRESS = address(_TRUE)
_NUMBER = offset(LOOP, "number") // WORD_BYTES


def wanted(parts: Parts) -> tuple[Value, ...]:
    """What an iteration has to write: the condition, what is carried in buffers of its own, and rows."""
    first = () if parts.always or parts.condition_out is None else (parts.condition_out,)
    return (*first, *(parts.carried_out[place] for place in _buffered(parts)), *parts.rows)


def _buffered(parts: Parts) -> list[int]:
    """Which of the carried values lie in buffers in turn: those that neither stay as they are nor are stacked, too."""
    pairs = enumerate(zip(parts.carried, parts.carried_out, strict=True))
    return [place for place, (before, behind) in pairs if behind is not before and behind not in parts.rows]


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
        self.first = node.operator.first if isinstance(node.operator, Loop) else 0
        """The number of the first iteration."""
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
        self._usual_parts: _Parts | None = None
        self._idle = idle
        self._counter = place.get(parts.counted) if parts.counted is not None else None
        self._truth = place.get(parts.trip_condition) if parts.trip_condition is not None else None
        self.state_places = [place.get(value) for value in parts.carried]
        self.scan_places = [place.get(value) for value in parts.elements]
        self.captures = [(outer, place[inner]) for outer, inner in parts.captured if inner in place]
        outer_of = {inner: outer for outer, inner in parts.captured}
        self.followed = [(outer_of[one.table], place[one.element], one.text) for one in body.followed]
        """Captured tensors, the place of the element that an iteration reads, and what an error says without one."""
        self.followed_values = [(outer_of[one.table], one.element) for one in body.followed]
        scan = node.operator if isinstance(node.operator, Scan) else None
        self.reads_back = (scan and scan.scan_input_directions) or (0,) * len(self.scan_places)
        self.writes_back = (scan and scan.scan_output_directions) or (0,) * len(self.row_kinds)
        self.links = LoopInstructions(self)

    def reasons(self) -> Iterator[tuple[Node, str]]:
        """No node is evaluated on the host."""
        return iter(())

    def write(self, writer: Writer, scope: VariableScope, context: StepContext) -> None:
        """Write the step's link of a chain. NotBytecode where it can be no part of one."""
        if not self.links.is_plain:
            raise NotBytecode("it goes through an axis other than the first")
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
        """What `LoopInstructions` gives."""
        return self.links.version()

    def chained(self, variables: Sequence[int]) -> NativeLoop | None:
        """What `LoopInstructions` gives."""
        return self.links.chained(variables)

    def words(self) -> Words:
        """What native code reads and writes of a run in a chain, but for what each run puts in."""
        words = Words(self, 1, 0)
        if self._counter is not None:
            words.bases[self._counter] = words.address + WORD_BYTES * _NUMBER
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
        read = [*(outer for outer, _ in self.captures), *(outer for outer, *_ in self.followed)]
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
            limit = None if most is None else int(most.reshape(-1)[0]) - self.first
            condition_out, scanned = condition is None or bool(condition.reshape(-1)[0]), []
        if not condition_out or (limit is not None and limit <= 0):
            state, rows = states, [no_rows(substituted(value.type, sizes)) for value in parts.rows]
        else:
            places = {place: _dense(captured[outer]) for outer, place in self.captures}
            followed = [_dense(captured[outer]) for outer, *_ in self.followed]
            loop = _Loop(self, [_dense(array) for array in states], scanned, places, followed, limit, sizes)
            loop.seconds = None if times is None else np.zeros(len(self.compiled.outline.calls))
            state, rows = loop.result()
            if loop.steady is not None:
                self.links.note(arguments, captured, sizes, loop.steady)
            else:
                self.links.note_growth()
            if times is not None and loop.seconds is not None:
                times.add(self, loop.seconds, loop.count)
        if isinstance(operator, Scan) and operator.scan_output_axes:
            rows = [np.moveaxis(row, 0, axis) for row, axis in zip(rows, operator.scan_output_axes, strict=True)]
        return [*state, *rows]

    def parts_of_words(self, programs: int, timed: int) -> _Parts:
        """Where the parts of what native code reads and writes lie; known already for one program that is not
        timed."""
        if programs > 1 or timed:
            return _Parts.of(self, programs, timed)
        if self._usual_parts is None:
            self._usual_parts = _Parts.of(self, 1, 0)
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


class _Loop:
    """One run of a loop with at least one iteration."""

    def __init__(
        self,
        step: LoopStep,
        states: list[np.ndarray],
        scanned: Sequence[np.ndarray],
        captured: Mapping[int, np.ndarray],
        followed: Sequence[np.ndarray],
        limit: int | None,
        sizes: Mapping[str, int],
    ) -> None:
        self._step, self._states, self._scanned, self._captured = step, states, scanned, captured
        self._followed = followed
        self._reach = min([len(array) for array in followed], default=1 << 62) - step.first
        """There are no further elements of what is followed after so many iterations."""
        self._limit = (1 << 62) if limit is None else limit
        self._sizes = sizes
        self._elements = [array.shape[1:] for array in scanned]
        self._rows: list[np.ndarray] = []
        self._appended: dict[int, np.ndarray] = {}
        """The memory of what is appended to where it lies, by number among the pairs of the step."""
        self.seconds: np.ndarray | None = None
        """The seconds that each kernel took, added up over iterations; None if nobody asks."""
        self._number, self._goes_on = 0, True
        self.steady: Iteration | None = None
        """What all iterations are of, if they are of one program."""

    @property
    def count(self) -> int:
        """How many iterations are done."""
        return self._number

    def result(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """What is carried behind the last iteration, and what was stacked."""
        ahead = PROGRAMS_AHEAD
        while self._goes_on and self._number < self._limit:
            if self._number >= self._reach:
                raise InvalidArgument(self._out_of_range())
            programs = self._programs(ahead)
            if self._number == 0 and programs[0].steady:
                self.steady = programs[0]
            ahead *= 2
            self._make_room(programs)
            self._advance(programs)
        count = self._number
        for row in self._rows:
            if len(row) > count:
                row.resize((count, *row.shape[1:]), refcheck=False)
        return self._states, self._rows

    def _out_of_range(self) -> str:
        lengths = [len(array) for array in self._followed]
        return self._step.followed[lengths.index(min(lengths))][2]

    def _programs(self, ahead: int) -> list[Iteration]:
        """Programs of the next iterations; one alone serves all that follow if sizes stay as they are."""
        step = self._step
        shapes, number = [array.shape for array in self._states], self._number + step.first
        chain: list[Iteration] = []
        while len(chain) < self._limit - self._number:
            key = step.iteration(number + len(chain), shapes, self._elements, self._sizes)
            found = step.known(key)
            if found is None:
                if chain and not ahead:
                    break
                found, ahead = step.made(key), max(ahead - 1, 0)
            if chain and (found.steady or found.rows != chain[0].rows):
                break
            chain.append(found)
            if found.steady:
                break
            for place, shape in zip(step.carried, found.made, strict=True):
                shapes[place] = shape
        return chain

    def _make_room(self, programs: Sequence[Iteration]) -> None:
        """Have memory for the next rows."""
        shapes = programs[0].rows
        kinds = self._step.row_kinds
        if not self._rows:
            self._rows = [
                np.empty((self._capacity(math.prod(shape) * kind.itemsize), *shape), kind)
                for shape, kind in zip(shapes, kinds, strict=True)
            ]
            return
        for index, (row, shape) in enumerate(zip(self._rows, shapes, strict=True)):
            if row.shape[1:] != shape:
                raise failure(
                    self._step.node,
                    f"an element that the body gives has the shapes {sorted({row.shape[1:], shape})} "
                    "in different iterations",
                )
            if len(row) <= self._number:
                larger = np.empty((min(2 * len(row), self._limit), *shape), row.dtype)
                larger[: self._number] = row[: self._number]
                self._rows[index] = larger

    def _capacity(self, row_bytes: int) -> int:
        """How many rows to take memory for."""
        return self._limit if self._limit * row_bytes <= ROW_BYTES_AT_ONCE else min(self._limit, ROWS_AT_ONCE)

    def _advance(self, programs: Sequence[Iteration]) -> None:
        """Run as many iterations as there are programs and memory for; all of them on one that is steady."""
        step, steady, number = self._step, programs[0].steady, self._number
        limit = min([self._limit if steady else number + len(programs), self._reach, *map(len, self._rows)])
        words = Words(step, len(programs), 0 if self.seconds is None else len(self.seconds))
        self._place_given(words)
        self._place_rows(words)
        buffers = self._place_carried(words, programs, several=limit - number > 1)
        addresses = [one.loadable.address for one in programs]
        words.fill(addresses, steady=steady, number=number + step.first, limit=limit + step.first)
        end = LoopEnd(chains_driver().loop(words.address))
        if self.seconds is not None:
            self.seconds += words.nanoseconds * 1e-9
        if end is LoopEnd.MEMORY:
            raise RuntimeException("There is not enough memory for the intermediate results of a loop's body")
        if end is LoopEnd.FLAGGED:
            flags = zip(step.compiled.flags, words.flags, strict=True)
            raise InvalidArgument("; ".join([flag.text for flag, word in flags if word]))
        self._number, self._goes_on = words.number - step.first, end is not LoopEnd.FALSE
        done = self._number - number
        self._take_over(programs[0] if steady else programs[done - 1], [pair[(done - 1) % 2] for pair in buffers])

    def _place_given(self, words: Words) -> None:
        """Where the body's inputs lie: number and condition, what is captured, carried and gone through."""
        step, number, bases = self._step, self._number, words.bases
        if step._counter is not None:
            bases[step._counter] = words.address + WORD_BYTES * _NUMBER
        if step._truth is not None:
            bases[step._truth] = _TRUE_ADDRESS
        for place, array in self._captured.items():
            bases[place] = array.ctypes.data
        for (_, place, _), array in zip(step.followed, self._followed, strict=True):
            words.follow(place, array, number + step.first)
        for state, array in zip(step.state_places, self._states, strict=True):
            if state is not None:
                bases[state] = array.ctypes.data
        for scan, array, back in zip(step.scan_places, self._scanned, self._step.reads_back, strict=True):
            if scan is not None:
                words.follow(scan, array, number, back=bool(back))
        if step._first:
            bases[len(step.body.inputs)] = words.condition

    def _place_rows(self, words: Words) -> None:
        """Where the rows of stacked results go."""
        for place, (array, back) in enumerate(
            zip(self._rows, self._step.writes_back, strict=True), self._step.row_place
        ):
            words.follow(place, array, self._number, back=bool(back))

    def _place_carried(
        self, words: Words, programs: Sequence[Iteration], *, several: bool
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """The buffers that hold what is carried in turn, the second of no bytes unless there are several iterations."""
        buffers, grown = [], self._step.grown
        for index, (given, made) in enumerate(self._step.pairs):
            size = max([one.bytes[index] for one in programs])
            if index in grown and not programs[0].steady:
                memory = self._memory_to_append_to(index, size)
                words.bases[given] = words.bases[made] = memory.ctypes.data
                buffers.append((memory, memory))
                words.carried += given * WORD_BYTES, made * WORD_BYTES, 0
                continue
            self._appended.pop(index, None)
            pair = np.empty(size, np.uint8), np.empty(size if several else 0, np.uint8)
            buffers.append(pair)
            words.bases[made] = pair[0].ctypes.data
            words.carried += given * WORD_BYTES, made * WORD_BYTES, pair[1].ctypes.data
        for given, made in self._step.row_links:
            words.carried += given * WORD_BYTES, made * WORD_BYTES, 0
        return buffers

    def _memory_to_append_to(self, index: int, size: int) -> np.ndarray:
        """Memory of `size` bytes at least that begins with what is carried: twice as much whenever it is not enough."""
        state, memory = self._states[self._step.carried[index]], self._appended.get(index)
        if memory is None or len(memory) < size:
            memory = self._appended[index] = np.empty(size if memory is None else max(size, 2 * len(memory)), np.uint8)
            memory[: state.nbytes] = state.reshape(-1).view(np.uint8)
        return memory

    def _take_over(self, last: Iteration, buffers: Sequence[np.ndarray]) -> None:
        """Have the states be what the last iteration has given. buffers: those that it has written to."""
        step = self._step
        for index, place in enumerate(step.carried):
            memory = buffers[index][: last.bytes[index]]
            self._states[place] = memory.view(step.kinds[index]).reshape(last.made[index])
        for place, index in step.stacked:
            rows = self._rows[index]
            at = len(rows) - self._number if self._step.writes_back[index] else self._number - 1
            self._states[place] = np.array(rows[at])  # a view would not outlive a change of the number of rows


class _Parts(NamedTuple):
    """Where the parts of a `Words` begin, in words; flags, condition and sums are as native code leaves
    them."""

    bases: int
    strides: int
    carried: int
    programs: int
    flags: int
    condition: int
    stamps: int
    sums: int
    end: int

    @classmethod
    def of(cls, step: LoopStep, programs: int, timed: int) -> _Parts:
        """Those for so many programs, and kernels that are timed."""
        count, carried = step._idle + 1, step._carried_count * CARRIED.itemsize // WORD_BYTES
        record, flags = LOOP.itemsize // WORD_BYTES, len(step.compiled.flags)
        stamps = timed + 1 if timed else 0
        return cls(*itertools.accumulate((record, count, count, carried, programs, flags, 1, stamps, timed)))


class Words:
    """One piece of memory for all that native code reads and writes of a loop but tensors, as each takes a while.

    programs: how many there are. timed: how many kernels are timed. bases, strides, carried: what is put in by `fill`.
    """

    def __init__(self, step: LoopStep, programs: int, timed: int) -> None:
        self.parts = step.parts_of_words(programs, timed)
        self._timed, self._step = timed, step
        self._words = np.zeros(self.parts.end, np.int64)
        self.address: int = self._words.ctypes.data
        count = step._idle + 1
        self.bases, self.strides, self.carried = [0] * count, [0] * count, list[int]()

    @property
    def flags(self) -> list[int]:
        """What kernels have set."""
        words: list[int] = self._words[self.parts.flags : self.parts.condition].tolist()
        return words

    @property
    def nanoseconds(self) -> np.ndarray:
        """What each kernel took, where that is timed."""
        return self._words[self.parts.sums :]

    @property
    def number(self) -> int:
        """The number of the next iteration."""
        return int(self._words[_NUMBER])

    @property
    def condition(self) -> int:
        """The address of the word that the condition is written to."""
        return self.address + WORD_BYTES * self.parts.condition

    def base(self, place: int) -> int:
        """The address of the word that says where an operand lies."""
        return self.address + WORD_BYTES * (self.parts.bases + place)

    def spare(self, index: int) -> int:
        """That of the word that says which buffer is not in use, of what is carried."""
        return self.address + WORD_BYTES * self.parts.carried + index * CARRIED.itemsize + offset(CARRIED, "spare")

    def begin(self, program: Loadable) -> None:
        """Put in all but addresses and numbers that each run puts in."""
        self.fill([program.address], steady=True, number=0, limit=0)

    def follow(self, place: int, array: np.ndarray, position: int, *, back: bool = False) -> None:
        """Have an operand be the row of an array at a position, from its end if `back`, and move on by a row."""
        stride = array.strides[0]
        first = len(array) - 1 - position if back else position
        self.bases[place], self.strides[place] = array.ctypes.data + first * stride, -stride if back else stride

    def fill(self, programs: Sequence[int], *, steady: bool, number: int, limit: int) -> None:
        """Put in what native code reads. programs: addresses; number, limit: of the iterations to do."""
        step, parts = self._step, self.parts
        bases, strides, carried, table, flags, condition, stamps, sums, _ = [
            self.address + WORD_BYTES * begin for begin in parts
        ]
        record = (
            step.frames.address,
            table,
            0 if steady else WORD_BYTES,
            bases,
            strides,
            step._idle,
            carried,
            step._carried_count,
            condition if step._first else 0,
            number,
            limit,
            flags,
            stamps if self._timed else 0,
            sums if self._timed else 0,
        )
        self._words[: parts.flags] = [*record, *self.bases, *self.strides, *self.carried, *programs]


def _dense(array: np.ndarray) -> np.ndarray:
    return array if array.flags.c_contiguous else array.copy(order="C")
