"""The pipeline, end to end: a graph becomes a plan, kernels, programs, and runs.

    graph ─ optimise ─▶ lower ─▶ plan (once, symbolic) ─▶ compile (once) ─▶ instantiate (once a set of sizes) ─▶ run

`Engine` holds what one model needs and keeps its programs by input shapes. Where only a run can tell a shape, or an
operator has no kernel, the graph is cut: the part before runs natively, the node is evaluated on NumPy, and the part
behind is an engine of its own, made for what came out.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np

from jitonnx.codegen.code import code_of
from jitonnx.errors import Fail, RuntimeException
from jitonnx.ir.computation import Host
from jitonnx.ir.dims import Dim, DimLike, evaluate
from jitonnx.ir.graph import Graph, Node, Value
from jitonnx.ir.lowering import lower
from jitonnx.ir.operator import evaluate_arrays
from jitonnx.ir.types import UNKNOWN, TensorType, type_of
from jitonnx.passes.pipeline import optimize
from jitonnx.passes.report import Report
from jitonnx.plan.choices import Choices
from jitonnx.plan.make import make_plan
from jitonnx.plan.plan import Plan, microseconds
from jitonnx.plan.planner import ConcreteShapesNeeded, UnplannableError
from jitonnx.ready import Flags, Ready
from jitonnx.runtime.cache import KernelCache
from jitonnx.runtime.cpu import cpu_needed
from jitonnx.runtime.loader import CodeImage, load
from jitonnx.runtime.program import Program
from jitonnx.target import Target, host

GIL_STEPS, GIL_MICROSECONDS = 64, 20.0
"""Runs of fewer steps that are estimated to take less time keep the GIL: letting it go and taking it again costs about
0.1 microseconds, and where other threads want it a switch to them and back."""

Shapes = tuple[tuple[int, ...], ...]
_T = TypeVar("_T")
WEIGHT_BYTES = 1 << 16
"""Constants above are weights: a compiled graph forgets their elements."""


@dataclass(frozen=True)
class Settings:
    """What a session may choose about compiling and running."""

    threads: int
    optimization_level: int = 99
    disabled_rewrites: frozenset[str] = frozenset()
    """Names of rewrites that are not made; docs/passes.md lists them."""
    choices: Choices = field(default_factory=Choices)
    target: Target | None = None
    programs_kept: int = 64
    """Programs (one a set of input shapes) kept; the least recently used go."""


@dataclass
class Compiled:
    """A plan with its machine code."""

    plan: Plan
    symbols: list[str]
    image: CodeImage
    objects: Mapping[str, bytes]

    def __post_init__(self) -> None:
        self._flags = Flags(self.plan.flags)

    def ready(self, sizes: Mapping[str, int], threads: int) -> Ready:
        """The program for values of the dimension variables."""
        program = self.plan.instantiate(sizes, self.symbols, threads)
        return Ready(program, self.image, threads, self._flags, self.is_short(program, sizes))

    def is_short(self, program: Program, sizes: Mapping[str, int]) -> bool:
        """Whether a run of the program for these sizes is too short to let go of the GIL for."""
        if len(program.steps) > GIL_STEPS:
            return False
        estimate = sum(microseconds(call.spec.work(complete)) for call, complete in self.plan.sized(sizes))
        return estimate <= GIL_MICROSECONDS


class Engine:
    """One model, compiled. Runs from several Python threads at once.

    graph: what to run; it is optimised in place.
    """

    def __init__(
        self,
        graph: Graph,
        settings: Settings,
        cache: KernelCache,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self.settings, self.cache, self.progress = settings, cache, progress
        self.target = settings.target or host()
        self.foreign = cpu_needed(self.target).problem() if settings.target else None
        """Why this machine cannot run the code; None if it can. Code for other CPUs is made to be saved."""
        self._input_types = [value.type for value in graph.inputs]
        dynamic = any(not kind.static for kind in self._input_types)
        # A feed may break what the symbolic plan assumes; an engine for its sizes is then made from the loaded graph.
        self._source = specialise(graph, self._input_types) if dynamic else None
        self._engines: _Kept[Engine] = _Kept(settings.programs_kept)
        self._programs: _Kept[Ready] = _Kept(settings.programs_kept)
        self.graph = graph
        self.cut: Cut | None = None
        self._only_concrete = False
        """Nothing was planned on symbolic sizes: each set of shapes has an engine of its own."""
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
        """The program for concrete input shapes, made at their first use; None where the graph is cut."""
        found = self._programs.find(shapes)
        if found is not None:
            return found
        if self.foreign:
            raise Fail(f"the model can be saved but not run here: {self.foreign}")
        sizes = self.sizes(shapes)
        if sizes is None:
            ready = self._specialised(shapes).program(shapes)
            return None if ready is None else self._programs.get(shapes, lambda: ready)
        compiled, threads = self.compiled, self.settings.threads
        return None if compiled is None else self._programs.get(shapes, lambda: compiled.ready(sizes, threads))

    def known_program(self, shapes: Shapes) -> Ready | None:
        """The program for these shapes if there is one already."""
        return self._programs.find(shapes)

    def known_shapes(self) -> list[Shapes]:
        """The shapes that there are programs for already, those used longest ago first."""
        return self._programs.keys()

    def serving(self, shapes: Shapes) -> Engine:
        """The engine that runs inputs of these shapes: this one, or one made for them alone."""
        return self if self.sizes(shapes) is not None else self._specialised(shapes).serving(shapes)

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs for inputs in the order of the graph's, whose types have been checked."""
        shapes = tuple(np.shape(array) for array in inputs)
        engine = self.serving(shapes)
        if engine.cut is not None:
            return engine.cut.run(inputs, engine.sizes(shapes) or {})
        ready = engine.program(shapes)
        assert ready is not None, "Bug: a graph is neither cut nor compiled"
        return ready.run(inputs)

    def sizes(self, shapes: Shapes) -> dict[str, int] | None:
        """Values of the dimension variables; None if what this engine assumes of them does not hold."""
        sizes = bind(self._input_types, shapes) if self._ranked and not self._only_concrete else None
        assumptions = self.compiled.plan.assumptions if self.compiled else self.graph.assumptions
        return sizes if sizes is not None and _holds(assumptions, sizes) else None

    def _specialised(self, shapes: Shapes) -> Engine:
        """The engine for sizes that break an assumption of this one."""
        source = self._source
        assert source is not None, "Bug: shapes of a model without variables were not checked"
        types = [TensorType(kind.dtype, shape) for kind, shape in zip(self._input_types, shapes, strict=True)]
        return self._engines.get(
            shapes, lambda: Engine(specialise(source, types), self.settings, self.cache, self.progress)
        )

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
            except ConcreteShapesNeeded:
                self._only_concrete = True
                return
            self.compiled = self._compile(plan)
            self._forget_weights()
            return

    def _forget_weights(self) -> None:
        """The plan holds what kernels read of the weights; the graph, kept to explain, does without their elements."""
        for node in self.graph:
            for value in node.inputs:
                known = None if value is None or value.producer is not None else value.contents
                if value is not None and known is not None and known.nbytes > WEIGHT_BYTES:
                    value.contents = None

    def _compile(self, plan: Plan) -> Compiled:
        from jitonnx.codegen.compiler import compile_kernels

        codes = [code_of(call) for call in plan.calls]
        made = compile_kernels(codes, self.target, self.cache, self.settings.threads, self.progress)
        symbols = [code.symbol(self.target) for code in codes]
        objects = {code.symbol(self.target): data for code, data in made.items()}
        return Compiled(plan, symbols, load(list(objects.values()), objects), objects)


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
            self._make(before, graph.inputs, [v.type for v in graph.inputs], self._from_head)
            if self._from_head
            else None
        )
        self.tails: _Kept[Engine] = _Kept(engine.settings.programs_kept)

    def run(self, inputs: Sequence[Any], sizes: Mapping[str, int]) -> list[Any]:
        """The outputs of the whole graph. `sizes`: values of the inputs' dimension variables."""
        numbers = {value: _evaluated(value, sizes) for value in self._dimensions}
        values: dict[Value, Any] = {**numbers, **dict(zip(self._inputs, inputs, strict=True))}
        if self.head is not None:
            values.update(zip(self._from_head, self.head.run(inputs), strict=True))
        for node in self.nodes:
            arguments = [None if value is None else _lookup(values, value) for value in node.inputs]
            values.update(zip(node.outputs, _evaluate(node, arguments), strict=False))
        if self._rest:
            crossing = [values[value] for value in self._crossing]
            values.update(zip(self._outputs, self._tail(crossing, numbers).run(crossing), strict=True))
        return _owned([_lookup(values, value) for value in self._outputs], inputs)

    def _tail(self, arrays: Sequence[Any], numbers: Mapping[Value, np.ndarray]) -> Engine:
        types = [type_of(array) if isinstance(array, np.ndarray) else UNKNOWN for array in arrays]
        key = (tuple((kind.dtype, kind.shape) for kind in types), *(array.tobytes() for array in numbers.values()))
        known = {value: Value(value.name, type_of(array), array) for value, array in numbers.items()}
        return self.tails.get(key, lambda: self._make(self._rest, self._crossing, types, self._outputs, known))

    def _make(
        self,
        nodes: Sequence[Node],
        inputs: Sequence[Value],
        types: Sequence[TensorType],
        outputs: Sequence[Value],
        replaced: Mapping[Value, Value] | None = None,
    ) -> Engine:
        part = extract(nodes, inputs, types, outputs, replaced)
        return Engine(part, self._engine.settings, self._engine.cache, self._engine.progress)


class _Kept(Generic[_T]):
    """What was made for some key, the most recently used kept; made once even under several threads."""

    def __init__(self, limit: int) -> None:
        self._limit, self._lock = limit, threading.RLock()
        self._entries: OrderedDict[Any, _T] = OrderedDict()

    def get(self, key: Any, make: Callable[[], _T]) -> _T:
        with self._lock:
            found = self.find(key)
            if found is not None:
                return found
            made = self._entries[key] = make()
            if len(self._entries) > self._limit:
                self._entries.popitem(last=False)
            return made

    def find(self, key: Any) -> _T | None:
        """What is kept under `key`, if anything is."""
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
                return self._entries[key]
            return None

    def keys(self) -> list[Any]:
        """What things are kept for, those used longest ago first."""
        with self._lock:
            return list(self._entries)

    def __iter__(self) -> Iterator[_T]:
        with self._lock:
            return iter(list(self._entries.values()))


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


def _evaluate(node: Node, arguments: Sequence[Any]) -> tuple[Any, ...]:
    """A node's outputs on NumPy. RuntimeException names the node and what it was given."""
    try:
        return evaluate_arrays(node.operator, arguments)
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
            own = array.flags.owndata and array.flags.c_contiguous and array.flags.writeable and id(array) not in taken
            array = array if own else array.copy(order="C")
            taken.add(id(array))
        owned.append(array)
    return owned


def _lookup(values: Mapping[Value, Any], value: Value) -> Any:
    return values.get(value, value.constant)


def _read_by(nodes: Sequence[Node]) -> dict[Value, None]:
    return dict.fromkeys(value for node in nodes for value in node.inputs if value is not None)


def _evaluated(value: Value, sizes: Mapping[str, int]) -> np.ndarray:
    """The elements of a value that holds dimensions."""
    assert value.contents is not None
    elements = [evaluate(dim, sizes) for dim in value.contents.flat]
    return np.array(elements, value.dtype.numpy).reshape(value.contents.shape)


def bind(types: Sequence[TensorType], shapes: Shapes) -> dict[str, int] | None:
    """Values of the dimension variables for concrete input shapes; None if inputs disagree on one."""
    sizes: dict[str, int] = {}
    for kind, shape in zip(types, shapes, strict=True):
        for dim, size in zip(kind.shape or (), shape, strict=False):
            if isinstance(dim, Dim) and sizes.setdefault(str(dim), size) != size:
                return None
    return sizes


def _holds(assumptions: set[tuple[DimLike, DimLike]], sizes: Mapping[str, int]) -> bool:
    return all(evaluate(a, sizes) == evaluate(b, sizes) for a, b in assumptions)


def specialise(graph: Graph, types: Sequence[TensorType]) -> Graph:
    """A copy of `graph` for other input types, everything inferred anew. Constants are shared."""
    return extract(list(graph), graph.inputs, types, graph.outputs)


def extract(
    nodes: Sequence[Node],
    inputs: Sequence[Value],
    types: Sequence[TensorType],
    outputs: Sequence[Value],
    replaced: Mapping[Value, Value] | None = None,
) -> Graph:
    """A graph of some nodes (producers first), with `inputs` of the given types as its inputs.

    `replaced`: constants, and those to read in their place.
    """
    copy = Graph()
    values: dict[Value, Value] = dict(replaced or {})
    for value, kind in zip(inputs, types, strict=True):
        values[value] = copy.add_input(value.name, kind)
    for node in nodes:
        arguments = [None if value is None else values.get(value, value) for value in node.inputs]
        names = [value.name for value in node.outputs]
        made = copy.add(node.operator, arguments, name=node.name, outputs=names, origin=node.origin)
        values.update(zip(node.outputs, made, strict=True))
    copy.outputs = [values.get(value, value) for value in outputs]
    return copy
