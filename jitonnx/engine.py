"""The pipeline, end to end: a graph becomes a plan, kernels, programs, and runs.

    graph ─ optimise ─▶ lower ─▶ plan (once, symbolic) ─▶ compile (once) ─▶ instantiate (once a set of sizes) ─▶ run

`Engine` holds what one model needs and keeps its programs by input shapes. Where only a run can tell a shape, or an
operator has no kernel, the graph is cut: the part before runs natively, the node is evaluated on NumPy, and the part
behind is an engine of its own, made for what came out.

For what has to be compiled for one set of shapes alone, a run does not wait unless told to (`CompileMode`): it
evaluates the operators on NumPy, and the code is made in the background when the shapes come back.
"""

from __future__ import annotations

import enum
import functools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from jitonnx import background
from jitonnx.background import Job, Workshop, linking
from jitonnx.codegen.code import Code, code_of
from jitonnx.errors import Fail, ModelRequiresCompilation, RuntimeException
from jitonnx.ir.computation import Host
from jitonnx.ir.dims import evaluate
from jitonnx.ir.graph import Graph, Node, Value
from jitonnx.ir.lowering import lower
from jitonnx.ir.operator import as_tuple
from jitonnx.ir.types import UNKNOWN, TensorType, type_of
from jitonnx.kept import Kept, KeptJobs, When
from jitonnx.model.evaluate import evaluate as evaluate_graph
from jitonnx.passes.pipeline import optimize
from jitonnx.passes.report import Report
from jitonnx.plan.choices import Choices
from jitonnx.plan.make import make_plan
from jitonnx.plan.outline import bind, holds
from jitonnx.plan.plan import Plan
from jitonnx.plan.planner import ConcreteShapesNeeded, UnplannableError
from jitonnx.ready import PROGRAM_BYTES, PROGRAMS_KEPT, Ready
from jitonnx.records import dataclass
from jitonnx.runtime.cache import KernelCache
from jitonnx.runtime.cpu import cpu_needed
from jitonnx.runtime.images import find_linked, load_linked
from jitonnx.target import Target, host

if TYPE_CHECKING:
    import logging

Shapes = tuple[tuple[int, ...], ...]
Runner: TypeAlias = Callable[[Sequence[Any]], list[Any]]
"""Gives the outputs for inputs whose types and shapes have been checked."""
ENGINES_KEPT = 64
"""Engines for one set of shapes alone kept at most; the least recently used go."""
WEIGHT_BYTES = 1 << 16
"""Constants above are weights: a compiled graph forgets their elements."""


class CompileMode(enum.Enum):
    """When code is compiled."""

    AUTO = ""
    """Before the first run; but what serves one set of shapes alone is left to NumPy until the shapes come back."""
    BEFORE = "before"
    """Before the run that needs it."""
    BACKGROUND = "background"
    """Behind the runs, which NumPy does until the code is there."""
    CACHED = "cached"
    """Never: what is not in the kernel cache is an error."""


@dataclass(frozen=True)
class Settings:
    """What a session may choose about compiling and running."""

    threads: int
    optimization_level: int = 99
    disabled_rewrites: frozenset[str] = frozenset()
    """Names of rewrites that are not made; docs/passes.md lists them."""
    choices: Choices = field(default_factory=Choices)
    target: Target | None = None
    program_bytes: int = PROGRAM_BYTES
    """Memory of the programs kept: intermediate results and tables; the least recently used go."""
    compile: CompileMode = CompileMode.BEFORE


@dataclass
class Compiled:
    """A plan with its machine code."""

    plan: Plan
    symbols: list[str]
    image: Mapping[str, int]
    """Addresses of the kernels, which are in memory as long as this is."""
    objects: Objects
    """Gives the object code by symbol, from the kernel cache or compiled again: only saving needs it."""

    def ready(self, sizes: Mapping[str, int], threads: int) -> Ready:
        """The program for values of the dimension variables."""
        program = self.plan.instantiate(sizes, self.symbols, threads)
        return Ready(program, self.image, threads, self.plan.flags, self.plan.outline.is_short(program, sizes))


class Engine:
    """One model, compiled. Runs from several Python threads at once.

    graph: what to run; it is optimised in place.
    progress: called as progress(done, all) while the caller waits for kernels.
    workshop: where to leave work to the background; None: everything is made before the run that needs it.
    stop: given where the engine itself is made in the background; set if nobody wants it any more.

    Raises ModelRequiresCompilation if kernels are not in the cache and may not be compiled.
    """

    def __init__(
        self,
        graph: Graph,
        settings: Settings,
        cache: KernelCache,
        progress: Callable[[int, int], None] | None = None,
        workshop: Workshop | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        self.settings, self.cache, self.progress, self.workshop = settings, cache, progress, workshop
        self._stop = stop
        self.target = settings.target or host()
        self.foreign = cpu_needed(self.target).problem() if settings.target else None
        """Why this machine cannot run the code; None if it can. Code for other CPUs is made to be saved."""
        self._input_types = [value.type for value in graph.inputs]
        dynamic = any(not kind.static for kind in self._input_types)
        # A feed may break what the symbolic plan assumes; an engine for its sizes is then made from the loaded graph.
        self._source = specialise(graph, self._input_types) if dynamic else None
        self._engines: KeptJobs[Engine] = KeptJobs(ENGINES_KEPT, workshop)
        self._programs: Kept[Ready] = Kept(PROGRAMS_KEPT, Ready.memory_bytes, settings.program_bytes)
        self.graph = graph
        self.cut: Cut | None = None
        self.only_concrete = ""
        """Why nothing was planned on symbolic sizes, so that each set of shapes has an engine of its own; else ""."""
        self.compiled: Compiled | None = None
        self.report = Report(settings.optimization_level)
        # Where not even the rank of an input is known, nothing can be planned before a run.
        self._ranked = all(kind.shape is not None or kind == UNKNOWN for kind in self._input_types)
        if self._ranked:
            self.report = optimize(graph, settings.optimization_level, disabled=settings.disabled_rewrites)
            self._prepare()

    @property
    def input_types(self) -> Sequence[TensorType]:
        """The types of the inputs, in order."""
        return self._input_types

    @property
    def only_shapes(self) -> Shapes | None:
        """The shapes of the inputs where they can have no others."""
        if not all(kind.static for kind in self._input_types):
            return None
        return tuple(tuple(map(int, kind.shape or ())) for kind in self._input_types)  # type: ignore[arg-type]

    def program(self, shapes: Shapes) -> Ready | None:
        """The program for concrete input shapes, made at their first use.

        None where the graph is cut, or the code for these shapes is left to the background: `run` knows what to do.
        """
        found = self._programs.find(shapes)
        if found is not None:
            return found
        if self.foreign:
            raise Fail(f"the model can be saved but not run here: {self.foreign}")
        sizes = self.sizes(shapes)
        if sizes is None:
            engine = self._specialised(shapes) if self._when() is When.NOW else self._engines.find(shapes)
            ready = None if engine is None else engine.program(shapes)
            return None if ready is None else self._programs.get(shapes, lambda: ready)
        compiled, threads = self.compiled, self.settings.threads
        return None if compiled is None else self._programs.get(shapes, lambda: compiled.ready(sizes, threads))

    def known_program(self, shapes: Shapes) -> Ready | None:
        """The program for these shapes if there is one already."""
        return self._programs.find(shapes)

    def known_shapes(self) -> list[Shapes]:
        """The shapes that were run and may be run again at once, those used longest ago first.

        Those that NumPy served come first: they have no program yet.
        """
        programs = self._programs.keys()
        return [*(shapes for shapes in self._engines.seen() if shapes not in programs), *programs]

    def note_shapes(self, shapes: Iterable[Shapes]) -> None:
        """Count shapes as run, although nothing has been made for them."""
        self._engines.note(shapes)

    @property
    def program_memory(self) -> int:
        """Bytes that the programs kept hold: intermediate results and tables, not weights."""
        return self._programs.bytes

    def serving(self, shapes: Shapes) -> Engine:
        """The engine that runs inputs of these shapes: this one, or one made for them alone, which is waited for."""
        return self if self.sizes(shapes) is not None else self._specialised(shapes).serving(shapes)

    def serving_all(self, fixed: Sequence[Sequence[int | None]]) -> Engine:
        """The engine for all shapes with these sizes, of which None may be any: this one if it has a plan for them.

        Fail says why no single plan serves them.
        """
        engine = self
        if self.compiled is None and self._ranked and self._source is not None:
            types = [_fixed(kind, sizes) for kind, sizes in zip(self._input_types, fixed, strict=True)]
            engine = self if types == self._input_types else self.part(specialise(self._source, types))
        if engine.compiled is None:
            raise Fail(f"no single program serves ranges of shapes: {engine._why_not_all()}")
        return engine

    def _why_not_all(self) -> str:
        """Why there is no plan for all shapes that the inputs may have."""
        if not self._ranked:
            return "not even the rank of an input is known before the run"
        if self.cut is not None:
            return f"parts of the model are evaluated on NumPy: {self.cut.explained()}"
        return self.only_concrete

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs for inputs in the order of the graph's, whose types have been checked."""
        shapes = tuple([np.shape(array) for array in inputs])
        known = self._programs.find(shapes)
        if known is not None:
            return known.run(inputs)
        engine: Engine | None = self
        while engine is not None and engine.sizes(shapes) is None:
            engine = engine._specialised(shapes, engine._when())
        if engine is None:
            assert self._source is not None
            return on_numpy(self._source, inputs)
        if engine.cut is not None:
            return engine.cut.runner(engine.sizes(shapes) or {})(inputs)
        ready = engine.program(shapes)
        assert ready is not None, "Bug: a graph is neither cut nor compiled"
        return ready.run(inputs)

    def runner(self, shapes: Shapes) -> Runner | None:
        """What does as `run` for inputs of these shapes, where the graph is cut; None where it is not."""
        sizes = None if self.cut is None else self.sizes(shapes)
        return None if self.cut is None or sizes is None else self.cut.runner(sizes)

    def sizes(self, shapes: Shapes) -> dict[str, int] | None:
        """Values of the dimension variables; None if what this engine assumes of them does not hold."""
        known = self._ranked and not self.only_concrete
        sizes = bind([kind.shape or () for kind in self._input_types], shapes) if known else None
        assumptions = self.compiled.plan.assumptions if self.compiled else self.graph.assumptions
        return sizes if sizes is not None and holds(assumptions, sizes) else None

    def _when(self, static: bool = False) -> When:
        """When an engine for one set of shapes is made. static: the model takes no others, as far as is known."""
        mode = self.settings.compile
        if self.workshop is None or mode in (CompileMode.BEFORE, CompileMode.CACHED):
            return When.NOW
        if not static:
            return When.AGAIN
        return When.BEHIND if mode is CompileMode.BACKGROUND else When.NOW

    def _specialised(self, shapes: Shapes, when: When = When.NOW) -> Any:
        """The engine for sizes that break an assumption of this one; None while it is left to the background."""
        source = self._source
        assert source is not None, "Bug: shapes of a model without variables were not checked"
        types = [TensorType(kind.dtype, shape) for kind, shape in zip(self._input_types, shapes, strict=True)]

        def make(stop: threading.Event | None) -> Engine:
            return self.part(specialise(source, types), stop)

        return self._engines.get(shapes, make, when)

    def part(self, graph: Graph, stop: threading.Event | None = None) -> Engine:
        """An engine for a part of this one's model, or for some of its shapes. Arguments as for the class."""
        progress = self.progress if stop is None or stop is self._stop else None
        return Engine(graph, self.settings, self.cache, progress, self.workshop, stop)

    def _prepare(self) -> None:
        """Compile the graph, or find where it is to be cut."""
        on_host: dict[Node, str] = {}
        while True:
            on_host |= _host_nodes(self.graph)
            if on_host:
                self.cut = Cut(self, on_host)
                return
            try:
                plan = make_plan(lower(self.graph), self.target, self.settings.choices)
            except UnplannableError as error:
                on_host[error.node] = error.reason
                continue
            except ConcreteShapesNeeded as error:
                self.only_concrete = str(error)
                return
            self.compiled = self._compile(plan)
            self._forget_weights()
            return

    def _forget_weights(self) -> None:
        """The plan holds what kernels read of the weights; the graph, kept to explain, does without their elements."""
        stand_ins: dict[Value | None, Value] = {}
        for node in self.graph:
            for value in node.inputs:
                known = None if value is None or value.producer is not None else value.contents
                if value is not None and known is not None and known.nbytes > WEIGHT_BYTES:
                    # Other graphs made of the same model read the same value: only this one forgets it.
                    stand_ins.setdefault(value, Value(value.name, value.type))
            if not stand_ins.keys().isdisjoint(node.inputs):
                self.graph.set_inputs(node, [stand_ins.get(value, value) for value in node.inputs])

    def _compile(self, plan: Plan) -> Compiled:
        codes = [code_of(call) for call in plan.calls]
        symbols = [code.symbol(self.target) for code in codes]
        image = find_linked(self.cache, symbols)
        source = Objects(codes, self.target, self.cache, self.settings, list(map(repr, self.graph.inputs)))
        if image is None:
            objects = source(self.progress, self._stop)
            with linking:
                image = load_linked(self.cache, symbols, lambda: list(objects.values()))
        return Compiled(plan, symbols, image, source)


@dataclass(frozen=True)
class Objects:
    """Where the object code of a plan comes from: the kernel cache, or the compiler. Holds no engine."""

    codes: Sequence[Code]
    target: Target
    cache: KernelCache
    settings: Settings
    inputs: Sequence[str]

    def __call__(
        self,
        progress: Callable[[int, int], None] | None = None,
        stop: threading.Event | None = None,
        may_compile: bool = True,
    ) -> dict[str, bytes]:
        """The object code of each symbol. ModelRequiresCompilation if there is none and it may not be made."""
        from jitonnx.codegen.compiler import cached_kernels, compile_kernels

        if self.settings.compile is CompileMode.CACHED or not may_compile:
            made, missing = cached_kernels(self.codes, self.target, self.cache)
            if missing:
                raise ModelRequiresCompilation(
                    f"{len(missing)} of {len(made) + len(missing)} kernels are not in the kernel cache "
                    f"{self.cache.directory}, and the session may not compile (jitonnx.compile is 'cached'; inputs: "
                    f"{', '.join(self.inputs)}). Run the model once on this machine, with the same version and options "
                    "but 'before' for that entry; or open an artifact (`jitonnx compile`)"
                )
        else:
            made = compile_kernels(self.codes, self.target, self.cache, self.settings.threads, progress, stop)
        return {code.symbol(self.target): data for code, data in made.items()}


class Cut:
    """A graph in three parts: `head`, an engine; `nodes`, evaluated on NumPy; the rest, an engine by what comes out."""

    def __init__(self, engine: Engine, reasons: Mapping[Node, str]) -> None:
        self._engine = engine
        graph = engine.graph
        behind: set[Value] = set()
        before, self.nodes, self._rest = [], [], []
        for node in graph:
            if any(value in behind for value in node.inputs if value is not None):
                self._rest.append(node)
            elif node in reasons:
                self.nodes.append(node)
            else:
                before.append(node)
                continue
            behind.update(node.outputs)
        self.reasons = {node: reasons[node] for node in self.nodes}
        self.has_rest = bool(self._rest)
        outputs = dict.fromkeys(graph.outputs)
        needed = _read_by([*self.nodes, *self._rest]) | outputs
        # Shapes and the like, known as soon as the sizes of the inputs are: constants to what follows.
        self._dimensions = [value for value in needed if value.contents is not None and value.constant is None]
        for value in self._dimensions:
            del needed[value]
        self._from_head = [value for node in before for value in node.outputs if value in needed]
        self._inputs, self._outputs = list(graph.inputs), list(graph.outputs)
        first = [value for node in self.nodes for value in node.outputs]
        read = _read_by(self._rest) | outputs
        self._crossing = [value for value in dict.fromkeys([*graph.inputs, *self._from_head, *first]) if value in read]
        self.head = (
            self._make(before, graph.inputs, [v.type for v in graph.inputs], self._from_head, stop=engine._stop)
            if self._from_head
            else None
        )
        self.tails: KeptJobs[Engine] = KeptJobs(ENGINES_KEPT, engine.workshop)
        self._tail_when = engine._when(static=all(value.type.static for value in self._crossing))

    def explained(self) -> str:
        """The nodes that NumPy evaluates, each with the reason."""
        return "; ".join(f"{node.operator.name} node '{node.name}': {why}" for node, why in self.reasons.items())

    def runner(self, sizes: Mapping[str, int]) -> Runner:
        """What gives the outputs of the whole graph for inputs; `sizes`: values of their dimension variables."""
        numbers = {value: _evaluated(value, sizes) for value in self._dimensions}
        known = tuple(array.tobytes() for array in numbers.values())
        return functools.partial(self._run, numbers, known)

    def _run(self, numbers: Mapping[Value, np.ndarray], known: tuple[bytes, ...], inputs: Sequence[Any]) -> list[Any]:
        """numbers: the values that the sizes tell; known: their bytes, to find the engine of the rest by."""
        values: dict[Value, Any] = {**numbers, **dict(zip(self._inputs, inputs, strict=True))}
        if self.head is not None:
            values.update(zip(self._from_head, self.head.run(inputs), strict=True))
        _evaluate_all(self.nodes, values)
        if self._rest:
            crossing = [values[value] for value in self._crossing]
            tail = self._tail(crossing, numbers, known)
            if tail is None:
                _evaluate_all(self._rest, values)
            else:
                values.update(zip(self._outputs, tail.run(crossing), strict=True))
        return _owned([_lookup(values, value) for value in self._outputs], inputs)

    def _tail(
        self, arrays: Sequence[Any], numbers: Mapping[Value, np.ndarray], known: tuple[bytes, ...]
    ) -> Engine | None:
        kinds = [(array.dtype, array.shape) if isinstance(array, np.ndarray) else None for array in arrays]

        def make(stop: threading.Event | None) -> Engine:
            types = [type_of(array) if isinstance(array, np.ndarray) else UNKNOWN for array in arrays]
            constants = {value: Value(value.name, type_of(array), array) for value, array in numbers.items()}
            return self._make(self._rest, self._crossing, types, self._outputs, constants, stop)

        return self.tails.get((*kinds, *known), make, self._tail_when)

    def _make(
        self,
        nodes: Sequence[Node],
        inputs: Sequence[Value],
        types: Sequence[TensorType],
        outputs: Sequence[Value],
        replaced: Mapping[Value, Value] | None = None,
        stop: threading.Event | None = None,
    ) -> Engine:
        return self._engine.part(extract(nodes, inputs, types, outputs, replaced), stop)


class BackgroundEngine:
    """An engine that is made in the background, behind the methods that a session uses of one.

    graph: the model as it was loaded, which runs are evaluated with on NumPy until the engine is there.
    """

    def __init__(
        self, graph: Graph, settings: Settings, cache: KernelCache, workshop: Workshop, logger: logging.Logger
    ) -> None:
        self._graph: Graph | None = graph
        self._engine: Engine | None = None
        self._logger = logger
        self._progress = progress = [0, 0]
        """Kernels compiled, and to compile."""
        self._shapes: dict[Shapes, None] = {}
        """Of the runs that were evaluated on NumPy."""
        self.numpy_runs = 0
        """Runs that were evaluated on NumPy."""

        def note(done: int, total: int) -> None:
            progress[:] = done, total

        def make(stop: threading.Event) -> Engine:
            engine = Engine(specialise(graph, [v.type for v in graph.inputs]), settings, cache, note, workshop, stop)
            if engine.only_shapes is not None:
                engine.program(engine.only_shapes)
            engine.progress = None
            return engine

        self._job: Job[Engine] = workshop.submit(make)

    def status(self) -> tuple[str, int, int, int]:
        """compiling, compiled or failed; kernels compiled, and to compile; runs on NumPy."""
        state = "compiled" if self._engine else self._job.state
        return (state, *self._progress, self.numpy_runs)  # type: ignore[return-value]

    def found(self) -> Engine | None:
        """The engine once it is made, else None. Fail tells why it could not be made."""
        return self._engine or self._keep(self._job.found())

    def wait(self, timeout: float | None = None) -> Engine | None:
        """As `found`, after a wait of up to `timeout` seconds (None: as long as it takes)."""
        return self._engine or self._keep(self._job.wait(timeout))

    def known_program(self, shapes: Shapes) -> Ready | None:
        """The program for these shapes if there is one already."""
        return None if self._engine is None else self._engine.known_program(shapes)

    def program(self, shapes: Shapes) -> Ready | None:
        """The program for these shapes; None while there is no engine."""
        engine = self.found()
        return None if engine is None else engine.program(shapes)

    def runner(self, shapes: Shapes) -> Runner | None:
        """As the engine's; None also while there is none."""
        engine = self.found()
        return None if engine is None else engine.runner(shapes)

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs for inputs whose types have been checked."""
        graph, engine = self._graph, self.found()
        if engine is not None:
            return engine.run(inputs)
        assert graph is not None, "Bug: there is neither an engine nor a graph"
        self.numpy_runs += 1
        self._shapes[tuple(np.shape(array) for array in inputs)] = None
        if self.numpy_runs > 1:
            return on_numpy(graph, inputs)
        with background.first_runs:
            return on_numpy(graph, inputs)

    def _keep(self, made: Engine | None) -> Engine | None:
        if made is not None and self._engine is None:
            made.note_shapes(self._shapes)
            self._engine, self._graph = made, None
            self._logger.info("the model is compiled; %d runs were evaluated on NumPy", self.numpy_runs)
        return made


def on_numpy(graph: Graph, inputs: Sequence[Any]) -> list[Any]:
    """The outputs of a graph for inputs in its order, every operator evaluated on NumPy; arrays of their own."""
    feeds = {value.name: array for value, array in zip(graph.inputs, inputs, strict=True)}
    return _owned(evaluate_graph(graph, feeds), inputs)


def _host_nodes(graph: Graph) -> dict[Node, str]:
    """Nodes to be evaluated on NumPy, with the reason."""
    found = {}
    for node in graph:
        if any(value.type == UNKNOWN for value in node.outputs):
            found[node] = "the output's shape depends on data"
    if found:
        return found
    for statement in lower(graph).statements:
        if isinstance(statement.computation, Host):
            found[statement.node] = "no kernel"
    return found


def _evaluate_all(nodes: Sequence[Node], values: dict[Value, Any]) -> None:
    """Evaluate nodes, producers first, on NumPy; what they give is added to `values`.

    Floating-point warnings are silenced once for all: infinities and NaN are results.
    """
    with np.errstate(all="ignore"):
        for node in nodes:
            arguments = [None if value is None else _lookup(values, value) for value in node.inputs]
            values.update(zip(node.outputs, _evaluate(node, arguments), strict=False))


def _evaluate(node: Node, arguments: Sequence[Any]) -> tuple[Any, ...]:
    """A node's outputs on NumPy. RuntimeException names the node and what it was given."""
    try:
        return as_tuple(node.operator.evaluate(*arguments))
    except (ValueError, TypeError, IndexError, ArithmeticError) as error:
        given = ", ".join("absent" if x is None else f"{x.dtype}{list(x.shape)}" for x in arguments)
        raise RuntimeException(
            f"Non-zero status code returned while running {node.operator.name} node. Name:'{node.name}' "
            f"Status Message: {error} (inputs: {given})"
        ) from error


def _owned(arrays: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """The arrays, each C-contiguous memory of its own: copied where it may be an input, a constant or a view."""
    taken = {id(array) for array in inputs}
    owned = []
    for array in arrays:
        if isinstance(array, np.ndarray):
            flags = array.flags
            own = flags.owndata and flags.c_contiguous and flags.writeable and id(array) not in taken
            array = array if own else array.copy(order="C")
            taken.add(id(array))
        owned.append(array)
    return owned


def _lookup(values: Mapping[Value, Any], value: Value) -> Any:
    found = values.get(value)
    return value.constant if found is None else found


def _read_by(nodes: Sequence[Node]) -> dict[Value, None]:
    return dict.fromkeys(value for node in nodes for value in node.inputs if value is not None)


def _evaluated(value: Value, sizes: Mapping[str, int]) -> np.ndarray:
    """The elements of a value that holds dimensions."""
    assert value.contents is not None
    elements = [evaluate(dim, sizes) for dim in value.contents.flat]
    return np.array(elements, value.dtype.numpy).reshape(value.contents.shape)


def _fixed(kind: TensorType, sizes: Sequence[int | None]) -> TensorType:
    """The type with the sizes that are known."""
    assert kind.shape is not None
    return TensorType(
        kind.dtype, tuple(dim if size is None else size for dim, size in zip(kind.shape, sizes, strict=True))
    )


def specialise(graph: Graph, types: Sequence[TensorType]) -> Graph:
    """A copy of `graph` for other input types, everything inferred anew. Constants' arrays are shared."""
    return extract(list(graph), graph.inputs, types, graph.outputs)


def extract(
    nodes: Sequence[Node],
    inputs: Sequence[Value],
    types: Sequence[TensorType],
    outputs: Sequence[Value],
    replaced: Mapping[Value, Value] | None = None,
) -> Graph:
    """A graph of some nodes (producers first), with `inputs` of the given types as its inputs.

    `replaced`: constants, and those to read in their place. Other constants are new values with the same arrays: a
    value that several graphs read would keep all of them alive, and take the users in one for users in the others.
    """
    copy = Graph()
    values: dict[Value, Value] = dict(replaced or {})
    for value, kind in zip(inputs, types, strict=True):
        values[value] = copy.add_input(value.name, kind)
    constants = dict.fromkeys(value for node in nodes for value in node.inputs if value is not None)
    for value in constants:
        if value.producer is None and value not in values:
            values[value] = Value(value.name, value.type, value.contents)
    for node in nodes:
        arguments = [None if value is None else values[value] for value in node.inputs]
        names = [value.name for value in node.outputs]
        made = copy.add(node.operator, arguments, name=node.name, outputs=names, origin=node.origin)
        values.update(zip(node.outputs, made, strict=True))
    copy.outputs = [values.get(value, value) for value in outputs]
    return copy
