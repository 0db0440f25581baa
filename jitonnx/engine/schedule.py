"""Schedules: a graph as straight-line steps, each planned once, whatever sizes come out of the step before.

    native segment ─ host node ─ native segment ─ …

A native segment is a plan over the graph's dimension variables, compiled once; its programs are kept by the values of
the variables that it needs, and making one for new values takes a fraction of a millisecond. A host node is evaluated
on NumPy. What a step gives binds the variables that stand for what only a run can tell (`Graph.bindings`): sizes of
arrays, and elements of small integer arrays. A node that runs graphs of its own has a schedule for each of them.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from jitonnx.engine.assumptions import AssumptionError, check_equal
from jitonnx.engine.bytecode import (
    BytecodeSteps,
    NotBytecode,
    StepContext,
    VariableScope,
    WholeRun,
    Writer,
    bytecode_of,
)
from jitonnx.engine.interpreter import array_of, axes_told, bind, bindings_by_value, evaluate_node, failure, owned
from jitonnx.engine.loops.step import LoopStep
from jitonnx.engine.programs import PROGRAMS_KEPT, CompiledParametricProgram, RunnableProgram
from jitonnx.engine.schedule_plan import STRINGS, UNBOUNDED, Counted, HostNode, LoopNode, SchedulePlan, Segment
from jitonnx.engine.timing import Times
from jitonnx.ir import dims
from jitonnx.ir.assumptions import Pair
from jitonnx.ir.dims import DimLike
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Binding, Graph, Node, Value
from jitonnx.ir.operator import Operator
from jitonnx.ir.types import TensorType
from jitonnx.ops.onnx.control_flow import If, Loop, Scan
from jitonnx.runtime.bytecode import Sized
from jitonnx.runtime.executable import Executable
from jitonnx.runtime.execution_contexts import ExecutionContextPool
from jitonnx.runtime.program import OutOfBounds
from jitonnx.support import fork_safety
from jitonnx.support.cancellation import check_end
from jitonnx.support.lru_cache import LRUCache

if TYPE_CHECKING:
    pass

CHECKS_KEPT = 4096
"""Sets of sizes that are remembered as what was assumed of them."""


class NativeStep:
    """A native segment, compiled, with its programs."""

    def __init__(
        self,
        segment: Segment,
        compiled: CompiledParametricProgram,
        threads: int,
        frames: ExecutionContextPool,
        table_bytes: int,
    ) -> None:
        self.compiled = compiled
        self.inputs, self.outputs, self.counted = segment.inputs, segment.outputs, segment.counted
        self._threads, self._frames = threads, frames
        outline = compiled.outline
        self.names = sorted(set().union(*map(dims.variables, outline.numbers)))
        """The variables that it needs."""
        self.assumed = outline.assumed()
        self.latest: Mapping[str, int] | None = None
        """The sizes that the last program was made for."""
        self.programs: LRUCache[RunnableProgram] = LRUCache(PROGRAMS_KEPT, RunnableProgram.memory_bytes, table_bytes)

    def __call__(self, values: dict[Value, Any], sizes: dict[str, int], times: Times | None = None) -> None:
        """Add what the step gives to `values`, and what its kernels take to `times`."""
        program = self.program(sizes)
        given = [values[value] for value in self.inputs]
        if times is None:
            results = program.run(given)
        else:
            results, seconds = program.executable.run_timed(given)
            times.add(self, seconds)
        for place, counted in enumerate(self.counted, len(self.outputs)):
            results[counted.number] = _counted_part(results[counted.number], int(results[place][0]), counted, sizes)
        values.update(zip(self.outputs, results, strict=False))

    def program(self, sizes: Mapping[str, int]) -> RunnableProgram:
        """The program for these sizes. AssumptionError if what was assumed of them does not hold."""
        key = tuple([sizes[name] for name in self.names])
        return self.programs.find(key) or self.programs.get(key, functools.partial(self._made, key))

    @property
    def counting(self) -> Iterator[Node]:
        """The nodes that tell sizes which the steps behind this one need."""
        for counted in self.counted:
            producer = self.outputs[counted.number].producer
            assert producer is not None, "Bug: an input is counted"
            yield producer

    def reasons(self) -> Iterator[tuple[Node, str]]:
        """No node is evaluated on the host."""
        return iter(())

    def native_steps(self) -> Iterator[NativeStep | LoopStep]:
        """The step itself."""
        yield self

    def explained_sizes(self, sizes: Mapping[str, int]) -> Mapping[str, int] | None:
        """Sizes to look at the step for: those given if they are all it needs, else the last; None before any run."""
        return sizes if set(self.names) <= set(sizes) else self.latest

    def write(self, writer: Writer, scope: VariableScope, context: StepContext) -> None:
        """Write the step's link of a chain. NotBytecode where it can be no part of one."""
        if not self.compiled.chainable(sized=bool(self.names)):
            raise NotBytecode("Python has a part in making its programs")
        writer.segment(self, scope, context)

    def version(self) -> int:
        """How much is recorded of what its programs are; 0: not enough to make one natively."""
        if not self.names:
            return int(self.programs.find(()) is not None)
        return self.compiled.recorded()

    @property
    def is_one_program(self) -> bool:
        """Whether one program serves all runs."""
        return not self.names

    def chained(self, variables: Sequence[int]) -> Executable | Sized:
        """What runs it in a chain, in which its variables have these numbers."""
        if not self.names:
            program = self.programs.find(())
            assert program is not None, "Bug: a program that serves all sizes is gone"
            return program.executable
        return self.compiled.sized(dict(zip(self.names, variables, strict=True)))

    def _made(self, key: tuple[int, ...]) -> RunnableProgram:
        sizes = dict(zip(self.names, key, strict=True))
        for a, b in self.assumed:
            check_equal(a, b, sizes)
        self.latest = sizes
        return self.compiled.program(sizes, self._threads, self._frames)


def _counted_part(array: Any, count: int, counted: Counted, sizes: Mapping[str, int]) -> Any:
    """The result that lies at the beginning of memory for the largest one."""
    shape = [count if dim is None else dims.evaluate(dim, sizes) for dim in counted.axes]
    return array[: math.prod(shape)].reshape(shape)


class HostStep:
    """A node that is evaluated on NumPy; graphs of its own are run by schedules.

    ranks: those that results are to have, by name, as a run has shown them. main: whether the node is the model's, and
    not one of a body.
    """

    def __init__(self, host: HostNode, bodies: Sequence[Schedule], ranks: Mapping[str, int], *, main: bool) -> None:
        self.host, self.bodies, self._node = host, bodies, host.node
        self.ranks = {value.name: ranks[value.name] for value in host.node.outputs if value.name in ranks}
        self.asks_ranks = main and _waits_for_ranks(host.node)
        """Whether a run has to show ranks first: with these the node may be native code."""
        self.inputs = tuple(value for value in host.node.inputs if value is not None)
        self.outputs = host.node.outputs
        self._bodies = [body.run for body in bodies] or None

    def __call__(self, values: dict[Value, Any], sizes: dict[str, int], times: Times | None = None) -> None:
        """Add what the node gives to `values`, and what it takes to `times`."""
        node, bodies = self._node, self._bodies
        if self.asks_ranks:
            raise AssumptionError(f"{node.name!r} reads values of unknown ranks", ranks=_shown_ranks(values))
        inputs = [None if value is None else array_of(value, values, sizes) for value in node.inputs]
        if times is None:
            results = evaluate_node(node, inputs, sizes, bodies, self.ranks)
            if self.ranks:
                self._check_ranks(results)
            values.update(zip(node.outputs, results, strict=False))
            return
        began, before = time.perf_counter(), times.total
        timed = [functools.partial(body.run, times=times) for body in self.bodies] or None
        values.update(zip(node.outputs, evaluate_node(node, inputs, sizes, timed, self.ranks), strict=False))
        times.add_host(self, time.perf_counter() - began - (times.total - before))

    def _check_ranks(self, results: Sequence[Any]) -> None:
        shown = {value.name: array.ndim for value, array in zip(self.outputs, results, strict=False)}
        if any(shown[name] != rank for name, rank in self.ranks.items()):
            raise AssumptionError(f"results of {self._node.name!r} have other ranks than in earlier runs", ranks=shown)

    def reasons(self) -> Iterator[tuple[Node, str]]:
        """The nodes that are evaluated on the host, those of bodies included, each with the reason."""
        yield self.host.node, self.host.reason
        for body in self.bodies:
            yield from body.reasons()

    def write(self, writer: Writer, scope: VariableScope, context: StepContext) -> None:
        """The host is no part of a chain."""
        raise NotBytecode("it is evaluated on the host")

    def native_steps(self) -> Iterator[NativeStep | LoopStep]:
        """The native steps of bodies."""
        for body in self.bodies:
            yield from body.native_steps()


def _waits_for_ranks(node: Node) -> bool:
    """Whether a node is on the host since it reads a value of an unknown rank, and for no other reason."""
    values = [value for value in (*node.inputs, *node.outputs) if value is not None]
    strings = any(not isinstance(value.type, TensorType) or value.dtype is DType.STRING for value in values)
    asked = any(value is not None and value.type.shape is None and value.dtype is not None for value in node.inputs)
    return asked and not strings and not node.bodies and type(node.operator).lower is not Operator.lower


def _shown_ranks(values: Mapping[Value, Any]) -> dict[str, int]:
    """The ranks of the values that a run has computed, of which nothing else told them."""
    return {
        value.name: array.ndim
        for value, array in values.items()
        if isinstance(array, np.ndarray) and value.type.shape is None
    }


class HostLoopStep(HostStep):
    """A Loop or Scan whose body is a schedule of steps: links of a chain if all of them can be."""

    def write(self, writer: Writer, scope: VariableScope, context: StepContext) -> None:
        """Write the links of all iterations. NotBytecode where they can't be."""
        writer.bytecode_loop(self._node, self.bodies[0], scope, context)


class ChoiceStep:
    """An If: one of two schedules is run."""

    def __init__(self, choice: HostNode, bodies: Sequence[Schedule]) -> None:
        self.node, self.bodies = choice.node, bodies
        self.inputs = tuple(value for value in choice.node.inputs if value is not None)
        self.outputs = choice.node.outputs

    def __call__(self, values: dict[Value, Any], sizes: dict[str, int], times: Times | None = None) -> None:
        """Add what the chosen branch gives to `values`, and what its kernels take to `times`."""
        condition, *captured = [array_of(value, values, sizes) for value in self.inputs]
        if condition.size != 1:
            raise failure(self.node, f"the condition has {condition.size} elements; one is needed")
        results = self.bodies[0 if condition.item() else 1].run(captured, sizes, times)
        values.update(zip(self.outputs, results, strict=False))

    def reasons(self) -> Iterator[tuple[Node, str]]:
        """The nodes of the branches that are evaluated on the host, each with the reason."""
        for body in self.bodies:
            yield from body.reasons()

    def write(self, writer: Writer, scope: VariableScope, context: StepContext) -> None:
        """Write the step's links of a chain. NotBytecode where it can be no part of one."""
        writer.choice(self.node, self.bodies, scope, context)

    def native_steps(self) -> Iterator[NativeStep | LoopStep]:
        """The native steps of the branches."""
        for body in self.bodies:
            yield from body.native_steps()


class _Given:
    """What is done with a value when it is there: its variables are bound, and its type is compared."""

    def __init__(self, value: Value, bindings: Sequence[tuple[str, Binding]]) -> None:
        self.value, self.bindings = value, bindings
        own = axes_told(value.type.shape or (), bindings)
        self._rank = value.type.rank
        self._fixed: list[tuple[int, int]] = []
        self._named: list[tuple[int, str]] = []
        self._computed: list[tuple[int, DimLike]] = []
        for axis, dim in enumerate(value.type.shape or ()):
            if isinstance(dim, int):
                self._fixed.append((axis, dim))
            elif str(dim) in dims.variables(dim):
                if axis not in own:
                    self._named.append((axis, str(dim)))
            else:
                self._computed.append((axis, dim))

    def __call__(self, array: Any, sizes: dict[str, int]) -> None:
        if self._rank is None or not isinstance(array, np.ndarray):
            return
        shape = array.shape
        if len(shape) != self._rank:
            raise AssumptionError(f"{self.value!r} has the rank {len(shape)}")
        elements = bind(sizes, self.bindings, array)
        if elements and min(elements) < 0:
            name = next(name for name, binding in self.bindings if binding.element).rpartition("[")[0]
            raise AssumptionError(
                f"{self.value.name!r} was taken to hold sizes, and has negative elements", untold=name
            )
        same = (
            all([shape[axis] == size for axis, size in self._fixed])
            and all([shape[axis] == sizes[name] for axis, name in self._named])
            and all([shape[axis] == dims.evaluate(dim, sizes) for axis, dim in self._computed])
        )
        if not same:
            raise AssumptionError(f"{self.value!r} has the shape {shape}")


Step: TypeAlias = "NativeStep | LoopStep | ChoiceStep | HostStep"


class Schedule:
    """A graph's steps, ready to run from several threads at once.

    The variables of the graph's inputs are given by the caller (of a body: those of the graph around it); others are
    bound as the run goes on. Native steps are done by one call (`engine/bytecode.py`), from the second run on.
    """

    def __init__(self, graph: Graph, steps: Sequence[Step], threads: int, frames: ExecutionContextPool) -> None:
        self.steps = steps
        self.inputs, self.outputs = list(graph.inputs), list(graph.outputs)
        self.told = {name: binding.value for name, binding in graph.bindings.items()}
        """What tells each variable that only a run can tell."""
        self._threads, self._frames = threads, frames
        native = any(isinstance(step, NativeStep | LoopStep | ChoiceStep | HostLoopStep) for step in steps)
        self._making = fork_safety.WorkLock()
        """Held where the chains are made, once."""
        self._chains: Mapping[int, BytecodeSteps] | None = None if native else {}
        self._whole: WholeRun | None = None
        """What does all steps at once, if one chain does."""
        self._has_run = False
        bound = bindings_by_value(graph)
        self._given = [_Given(value, bound[value]) for value in graph.inputs if value in bound]
        self._given_places = [place for place, value in enumerate(graph.inputs) if value in bound]
        self._last = self._last_uses(graph)
        self._checks: list[list[_Given]] = [
            [
                _Given(value, bound.get(value, ()))
                for value in step.outputs
                if value in bound or isinstance(step, HostStep | ChoiceStep)
            ]
            for step in steps
        ]
        *self._assumed, self._assumed_at_last = self._assumptions(graph, bound)

    def explained(self) -> str:
        """Why a run is no single native call: nodes that the host evaluates or that tell sizes, outputs of strings."""
        steps = list(self.native_steps())
        native = [(node, UNBOUNDED) for step in steps for node in step.counting]
        native += [(node, "it is a step of its own") for node in self.controls()]
        nodes = [f"{node.operator.name} node '{node.name}': {why}" for node, why in (*self.reasons(), *native)]
        strings = dict.fromkeys(value.name for value in self.outputs if value.dtype is DType.STRING)
        return "; ".join([*nodes, *(f"output '{name}': {STRINGS}" for name in strings)])

    def reasons(self) -> Iterator[tuple[Node, str]]:
        """The nodes that are evaluated on the host, those of bodies included, each with the reason."""
        for step in self.steps:
            yield from step.reasons()

    def controls(self) -> Iterator[Node]:
        """The loops that are native calls, and the choices, those of bodies included."""
        for step in self.steps:
            if isinstance(step, LoopStep | ChoiceStep):
                yield step.node
            if isinstance(step, HostStep | ChoiceStep):
                for body in step.bodies:
                    yield from body.controls()

    def host_steps(self) -> Iterator[HostStep]:
        """The nodes on the host, those of bodies included."""
        for step in self.steps:
            if isinstance(step, HostStep):
                yield step
            if isinstance(step, HostStep | ChoiceStep):
                for body in step.bodies:
                    yield from body.host_steps()

    def native_steps(self) -> Iterator[NativeStep | LoopStep]:
        """The native steps, those of bodies included."""
        for step in self.steps:
            yield from step.native_steps()

    def run(self, inputs: Sequence[Any], sizes: Mapping[str, int], times: Times | None = None) -> list[Any]:
        """The outputs for inputs whose types have been checked. AssumptionError if the run meets what was not planned.

        times: where what steps take is noted, if it is.
        """
        begun = None
        if self._whole is not None and times is None:
            check_end()
            if self._given:
                sizes = self._with_given(inputs, sizes)
            found = self._whole(inputs, sizes)
            if isinstance(found, list):
                return found
            begun = found
        values, bound = self._results(inputs, sizes, times, begun)
        return [array_of(value, values, bound) for value in self.outputs]

    def settled_programs(self, sizes: Mapping[str, int]) -> dict[int, RunnableProgram] | None:
        """The program of each native step for these sizes, by its number, where steps are such and plain host nodes,
        some of each sort or all on the host, and no step needs further sizes that a run tells; else None."""
        plain = all(type(step) in (NativeStep, HostStep) and not getattr(step, "bodies", ()) for step in self.steps)
        if not plain or self._given or not any(isinstance(step, HostStep) for step in self.steps):
            return None
        native = {number: step for number, step in enumerate(self.steps) if isinstance(step, NativeStep)}
        assumed = [one for one in (*self._assumed, self._assumed_at_last) if one is not None]
        needed = set().union(*(step.names for step in native.values()), *(one.names for one in assumed))
        if any(step.counted for step in native.values()) or not needed <= sizes.keys():
            return None
        try:
            for one in assumed:
                one(sizes)
            return {number: step.program(sizes) for number, step in native.items()}
        except (AssumptionError, OutOfBounds):
            return None

    def _with_given(self, inputs: Sequence[Any], sizes: Mapping[str, int]) -> dict[str, int]:
        """Sizes with those that the inputs tell. AssumptionError if they are not what was planned."""
        bound = dict(sizes)
        try:
            for given, place in zip(self._given, self._given_places, strict=True):
                given(inputs[place], bound)
        except AssumptionError as error:
            error.sizes = {**bound, **error.sizes}
            raise
        return bound

    def run_owned(self, inputs: Sequence[Any], sizes: Mapping[str, int]) -> list[Any]:
        """The outputs of `run`, each in memory of its own."""
        return owned(self.run(inputs, sizes), inputs)

    def _results(
        self,
        inputs: Sequence[Any],
        sizes: Mapping[str, int],
        times: Times | None,
        begun: tuple[dict[Value, Any], dict[str, int], int] | None,
    ) -> tuple[dict[Value, Any], dict[str, int]]:
        """Carry out the steps. begun: what is known behind the first steps, and how many of them are done."""
        values, bound, first = begun or (dict(zip(self.inputs, inputs, strict=True)), dict(sizes), 0)
        try:
            for given in self._given if begun is None else ():  # else they are bound, and may be let go by now
                given(values[given.value], bound)
            self._do(values, bound, times, first)
        except AssumptionError as error:
            error.sizes = {**bound, **error.sizes}
            raise
        return values, bound

    def _do(self, values: dict[Value, Any], bound: dict[str, int], times: Times | None, first: int) -> None:
        """Carry out all steps from the first on that is not done."""
        chains = self._known_chains() if times is None else {}
        number, done = first, len(self.steps)
        while number < done:
            check_end()
            if number in chains:
                chained = chains[number](values, bound)
                number += chained
                if chained:
                    continue
            if (assumed := self._assumed[number]) is not None:
                assumed(bound)
            self.steps[number](values, bound, times)
            for given in self._checks[number]:
                given(values[given.value], bound)
            for value in self._last[number]:
                values.pop(value, None)
            number += 1
        if self._assumed_at_last is not None:
            self._assumed_at_last(bound)

    def _known_chains(self) -> Mapping[int, BytecodeSteps]:
        """The chains, by the number of the step that each begins with; none before the second run: a start is quick."""
        chains = self._chains
        if chains is not None:
            return chains
        if not self._has_run:
            self._has_run = True
            return {}
        with self._making:
            if self._chains is None:
                chains = bytecode_of(list(self.placed()), self.told, self._frames, self._threads)
                first = chains.get(0)
                if first is not None and first.count == len(self.steps) and not self.assumed_at_last:
                    whole = WholeRun(first, self.inputs, self.outputs)
                    self._whole = whole if whole.possible else None
                self._chains = chains
            return self._chains

    @property
    def bound_inputs(self) -> Mapping[Value, Sequence[tuple[str, Binding]]]:
        """What is given that tells variables of the graph's own, with these."""
        return {given.value: given.bindings for given in self._given}

    @property
    def assumed_at_last(self) -> Sequence[Pair]:
        """Sizes that have to be equal behind the last step."""
        return self._assumed_at_last.pairs if self._assumed_at_last is not None else ()

    def placed(self) -> Iterator[tuple[Step, StepContext]]:
        """The steps, each with what is done before and behind it."""
        for step, checks, assumed, last in zip(self.steps, self._checks, self._assumed, self._last, strict=True):
            bound = [(given.value, given.bindings) for given in checks]
            yield step, StepContext(assumed.pairs if assumed else (), bound, last)

    def _last_uses(self, graph: Graph) -> list[list[Value]]:
        """The step behind which each array is let go."""
        keep, last = set(graph.outputs), dict[Value, int]()
        for number, step in enumerate(self.steps):
            last.update((value, number) for value in (*step.inputs, *step.outputs) if value not in keep)
        ends: list[list[Value]] = [[] for _ in self.steps]
        for value, number in last.items():
            ends[number].append(value)
        return ends

    def _assumptions(self, graph: Graph, bound: Mapping[Value, Sequence[tuple[str, Binding]]]) -> list[_Assumed | None]:
        """What was assumed of sizes, looked at before the first step by which all of them are known.

        At last what the last step tells, of which rewrites may have made use: a Slice that keeps all of it is gone. An
        assumption about a variable that nothing binds is about values that rewrites have taken out, or that no step
        computes as nothing reads them.
        """
        shapes = [value.type.shape for value in graph.inputs if isinstance(value.type, TensorType)]
        when = dict.fromkeys({name for shape in shapes for dim in shape or () for name in dims.variables(dim)}, 0)
        own = set(graph)
        when |= {name: 0 for name, binding in graph.bindings.items() if binding.value.producer not in own}
        for number, checks in enumerate(self._checks):
            for given in checks:
                when.update((name, number + 1) for name, _ in bound.get(given.value, ()))
        pairs: list[list[tuple[DimLike, DimLike]]] = [[] for _ in range(len(self.steps) + 1)]
        for a, b in sorted(graph.assumptions, key=str):
            names = dims.variables(a) | dims.variables(b)
            if names <= when.keys():
                pairs[max((when[name] for name in names), default=0)].append((a, b))
        return [_Assumed(some) if some else None for some in pairs]


class _Assumed:
    """Pairs of sizes that have to be equal; sets of sizes for which they are, are remembered."""

    def __init__(self, pairs: Sequence[tuple[DimLike, DimLike]]) -> None:
        self.pairs = pairs
        self.names = sorted(set().union(*(dims.variables(dim) for pair in pairs for dim in pair)))
        self._passed: dict[tuple[int, ...], None] = {}

    def __call__(self, sizes: Mapping[str, int]) -> None:
        key = tuple([sizes[name] for name in self.names])
        if key in self._passed:
            return
        for a, b in self.pairs:
            check_equal(a, b, sizes)
        if len(self._passed) >= CHECKS_KEPT:
            self._passed.clear()
        self._passed[key] = None


def make_schedule(
    plan: SchedulePlan,
    compiled: Iterator[CompiledParametricProgram],
    threads: int,
    frames: ExecutionContextPool,
    table_bytes: int,
) -> Schedule:
    """The schedule of a plan. compiled: the code of its segments, in order."""
    steps: list[Step] = []
    for step in plan.steps:
        if isinstance(step, Segment):
            steps.append(NativeStep(step, next(compiled), threads, frames, table_bytes))
        elif isinstance(step, LoopNode):
            steps.append(LoopStep(step, next(compiled), threads, frames, table_bytes))
        else:
            bodies = [make_schedule(body, compiled, threads, frames, table_bytes) for body in step.bodies]
            if isinstance(step.node.operator, If):
                steps.append(ChoiceStep(step, bodies))
                continue
            kind = HostLoopStep if isinstance(step.node.operator, Loop | Scan) else HostStep
            steps.append(kind(step, bodies, plan.graph.assumptions.ranks, main=not plan.graph.scope))
    return Schedule(plan.graph, steps, threads, frames)
