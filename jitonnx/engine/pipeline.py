"""The pipeline, end to end: a graph becomes a plan, kernels, programs, and runs.

    graph ─ optimise ─▶ lower ─▶ plan (once, symbolic) ─▶ compile (once) ─▶ instantiate (once a set of sizes) ─▶ run

What runs schedules and inputs of new sizes is imported by the engines that do so.

`Engine` holds what one model needs and keeps its programs by input shapes. Where only a run can tell a size, an
operator has no kernel, values are strings or a node runs graphs of its own, a run is more than one native call: it
follows a `Schedule`.

For what has to be compiled for one set of shapes alone, a run does not wait unless told to (`CompileMode`): it
evaluates the operators on NumPy, and the code is made in the background when the shapes come back.
"""

from __future__ import annotations

import enum
import functools
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from jitonnx.codegen.code import LLVM, KernelCode, code_of
from jitonnx.codegen.compile_error import CompileError
from jitonnx.codegen.objects import Objects
from jitonnx.engine.assumptions import AssumptionError
from jitonnx.engine.compiled_plan import CompiledPlan
from jitonnx.engine.like_runs import LikeRuns
from jitonnx.engine.pending import PendingCode
from jitonnx.engine.planning import plan_schedule
from jitonnx.engine.programs import PROGRAM_BYTES, PROGRAMS_KEPT, RunnableProgram, Runner, shape_of, split_memory
from jitonnx.engine.protocol import CompileStatus, ModelEngine
from jitonnx.engine.schedule_plan import InputConditions, SchedulePlan
from jitonnx.engine.timing import Times
from jitonnx.errors import Fail, InvalidArgument
from jitonnx.ir.assumptions import Assumptions, Pair, holds
from jitonnx.ir.bodies import left_to_sizes
from jitonnx.ir.defects import survive, told
from jitonnx.ir.dims import Dim, DimLike, concrete, variable, variables
from jitonnx.ir.errors import GraphError
from jitonnx.ir.extract import solved, specialise
from jitonnx.ir.graph import Graph, Value
from jitonnx.ir.types import TensorType, Type
from jitonnx.passes.pipeline import optimize
from jitonnx.passes.report import Report
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.choices import Caution, Choices
from jitonnx.plan.parametric_program import Sizing
from jitonnx.plan.plan import Plan
from jitonnx.runtime import driver
from jitonnx.runtime.execution_contexts import ExecutionContextPool
from jitonnx.runtime.images import find_linked, load_linked
from jitonnx.runtime.program import OutOfBounds, Shapes
from jitonnx.support import fork_safety
from jitonnx.support.background_jobs import BackgroundExecutor
from jitonnx.support.kernel_cache import KernelCache
from jitonnx.support.lru_cache import BackgroundLRUCache, LRUCache, When
from jitonnx.support.mapped_files import FileMap, check_unchanged, files_of, kept_apart
from jitonnx.support.records import dataclass
from jitonnx.target.machine import Target, host

if TYPE_CHECKING:
    from jitonnx.engine.resized import Resized
    from jitonnx.engine.schedule import Schedule

ENGINES_KEPT = 64
"""Engines for other inputs kept at most; the least recently used go."""
WEIGHT_BYTES = 1 << 16
"""Constants above are weights: a compiled graph forgets their elements."""


class CompileMode(enum.Enum):
    """When code is compiled."""

    AUTO = ""
    """It is compiled before the first run; but what serves one set of shapes alone is left to NumPy until the shapes
    come back."""
    BEFORE = "before"
    """It is compiled before the run that needs it."""
    BACKGROUND = "background"
    """It is compiled behind the runs, which NumPy does until the code is there."""
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
    """Half is for the programs kept, of which the least recently used go, half for the frames that they run in."""
    compile: CompileMode = CompileMode.BEFORE
    denormals_as_zero: bool = False
    """Whether kernels take denormal numbers for zeros, in what they read and what they give."""
    codegen: str = LLVM
    """What makes the code of regions: one of `codegen.code.CODEGENS`."""
    on_host: frozenset[str] = frozenset()
    """Names of the model's nodes that get no kernels, to find the one that is wrong (`jitonnx.tools.debug`)."""


def with_less(settings: Settings, error: Exception, doing: str) -> Settings:
    """Settings to do with less, after an error: without rewrites and fusion, then without kernels.

    doing: what failed. The error is raised if it is no defect, or nothing is left to do without.
    """
    caution = settings.choices.caution
    if caution is Caution.KERNELS:
        raise error
    instead = "nothing is rewritten or fused" if caution is Caution.NONE else "all of it is evaluated on NumPy"
    survive(error, doing, instead)
    return replace(settings, optimization_level=0, choices=replace(settings.choices, caution=Caution(caution + 1)))


def attach(graph: Graph) -> None:
    """Have the operators of a graph, and of what its nodes run, make what they need of the types that are known now."""
    for node in graph:
        if node.operator.attached:
            node.operator.attach(node)
        for body in node.bodies:
            attach(body)


def _fits(kind: Type, shape: Sequence[int]) -> bool:
    """Whether a shape has the rank and the fixed sizes of a type."""
    if kind.shape is None:
        return True
    fixed = zip(kind.shape, shape, strict=False)
    return len(kind.shape) == len(shape) and all(dim == size for dim, size in fixed if isinstance(dim, int))


class Engine(ModelEngine):
    """One model, compiled. Runs from several Python threads at once.

    graph: what to run; it is optimised in place.
    progress: called as progress(done, all) while the caller waits for kernels.
    executor: where to leave work to the background; None: everything is made before the run that needs it.
    stop: given where the engine itself is made in the background; set if nobody wants it any more.
    frames, pending: whose memory programs run in, and what tells of code that is not there yet, where the engine is
    a part of another.

    Raises ModelRequiresCompilation if kernels are not in the cache and may not be compiled.
    """

    def __init__(  # noqa: PLR0913  (whose part an engine is, by name)
        self,
        graph: Graph,
        settings: Settings,
        cache: KernelCache,
        progress: Callable[[int, int], None] | None = None,
        executor: BackgroundExecutor | None = None,
        stop: threading.Event | None = None,
        frames: ExecutionContextPool | None = None,
        pending: PendingCode | None = None,
    ) -> None:
        table_bytes, frame_bytes = split_memory(settings.program_bytes)
        self.frames = frames or ExecutionContextPool(frame_bytes, zeros=settings.denormals_as_zero)
        self.settings, self.cache, self.progress, self.executor = settings, cache, progress, executor
        self.stop, self.pending = stop, pending or PendingCode(settings.threads)
        self.target = settings.target or host()
        self.foreign = self.target.needed.problem() if settings.target else None
        """Why this machine cannot run the code; None if it can. Code for other CPUs is made to be saved."""
        self._input_types = [value.type for value in graph.inputs]
        dynamic = any(not kind.static for kind in self._input_types)
        # A feed may break what is assumed here; an engine for sizes like its own is then made from the loaded graph.
        told_by_runs = any(
            node.bodies or any(value.type.shape is None for value in node.outputs) for node in graph
        ) or bool(graph.bindings)
        self._source = (
            specialise(graph, self._input_types, graph.assumptions.apart()) if dynamic or told_by_runs else None
        )
        self._engines: BackgroundLRUCache[Engine] = BackgroundLRUCache(ENGINES_KEPT, executor)
        self._met: BackgroundLRUCache[Engine] = BackgroundLRUCache(ENGINES_KEPT, executor)
        """Engines made for runs in which an assumption about sizes did not hold, by that assumption."""
        self._last_met: Engine | None = None
        """The one of them that served the last run, if one did: it is tried first, as runs are often alike."""
        self._broken: frozenset[str] = frozenset()
        """What did not hold in the runs that this engine is made for."""
        self._misplanned: BackgroundLRUCache[Engine] = BackgroundLRUCache(ENGINES_KEPT, executor)
        """Engines for shapes for which this one's plan has turned out to be wrong."""
        for kept in (self._engines, self._met, self._misplanned):
            self.pending.watch(kept)
        self._programs: LRUCache[RunnableProgram] = LRUCache(PROGRAMS_KEPT, RunnableProgram.memory_bytes, table_bytes)
        self._not_by_numba: set[KernelCode] = set()
        """Kernels that Numba failed to compile."""
        self.graph = graph
        files = files_read(graph)
        self.codes: Sequence[CompiledPlan] = ()
        """The code of all native parts: that of the whole graph, or of the schedule's native steps in order."""
        self.compiled: CompiledPlan | None = None
        """That of the whole graph, if it is one native call."""
        self.schedule: Schedule | None = None
        """What a run follows if it is more than one native call."""
        self.schedule_plan: SchedulePlan | None = None
        """What the schedule was made of."""
        self.report = Report(settings.optimization_level)
        self.variant_made: Callable[[Shapes], None] | None = None
        """Called for each engine that is made for inputs that this one has no plan for, with shapes that it is for."""
        self.unplanned = self._take_sizes()
        """Why nothing can be planned before a run has shown shapes; "" if it was."""
        if not self.unplanned:
            self.report = optimize(self.graph, settings.optimization_level, disabled=settings.disabled_rewrites)
            attach(self.graph)
            self._prepare()
        # So that the first run does not wait for it; a schedule is native as far as it can be by chains.
        if self.compiled is None:  # Python reads weights in runs, too
            for file in files:
                file.is_read = True
        check_unchanged(files)
        for part in ("runs", *(["sizes"] if dynamic else ()), *(["chains"] if self.schedule is not None else ())):
            driver.image(part)

    def _take_sizes(self) -> str:
        """Put the sizes that the graph's assumptions fix in their places; why that can't be done, "" if it could."""
        if any(isinstance(kind, TensorType) and kind.shape is None for kind in self._input_types):
            return "not even the rank of an input is known before the run"
        if self.graph.assumptions.demands_only and not all(kind.static for kind in self._input_types):
            return "no sizes are like most models have them"
        try:
            self.graph = solved(self.graph)
        except GraphError as error:
            if self.graph.assumptions.examples is not None or not self._source:
                raise
            return f"no sizes are like most models have them: {error}"
        node = left_to_sizes(self.graph)
        if node is not None and self.graph.assumptions.examples is None:
            return f"the sizes of inputs tell which graph {node.operator.name} node {node.name!r} runs"
        return ""

    @property
    def usual_sizes(self) -> dict[str, list[int | None]]:
        """The sizes of each input as far as the operators tell them; None for others."""
        return {value.name: list(map(concrete, value.type.shape or ())) for value in self.graph.inputs}

    @property
    def only_shapes(self) -> Shapes | None:
        """The shapes of the inputs where they can have no others."""
        if not all(kind.static for kind in self._input_types):
            return None
        return tuple(tuple(map(int, kind.shape or ())) for kind in self._input_types)

    def program(self, shapes: Shapes) -> RunnableProgram | None:
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
            engine = self._other(shapes, ask=False)
            program = None if engine is None else engine.program(shapes)
            return None if program is None else self._programs.put(shapes, program)
        compiled, threads = self.compiled, self.settings.threads
        if compiled is None:
            return None
        try:
            return self._programs.get(shapes, lambda: compiled.program(sizes, threads, self.frames))
        except OutOfBounds as error:
            engine = self._exact(shapes, error)
            program = None if engine is None else engine.program(shapes)
            return None if program is None else self._programs.put(shapes, program)

    def known_program(self, shapes: Shapes) -> RunnableProgram | None:
        """The program for these shapes if there is one already."""
        return self._programs.find(shapes)

    def known_shapes(self) -> list[Shapes]:
        """The shapes that were run and may be run again at once, those used longest ago first.

        Those that NumPy served, or native code that made their programs anew, come first: they have no program yet.
        """
        programs = self._programs.keys()
        met = [shapes for engine in (self, *self.variants) for shapes in engine._resized_shapes()]
        others = dict.fromkeys([*self._engines.seen(), *met])
        return [*(shapes for shapes in others if shapes not in programs), *programs]

    def resized(self, shapes: Shapes) -> Resized | None:
        """What runs inputs of new sizes, like these; None where a run is more than one native call."""
        if self.sizes(shapes) is None:
            other = self._engines.first(lambda engine: engine._accepts(shapes))
            return None if other is None else other.resized(shapes)
        return self._resized

    @fork_safety.cached_property
    def _resized(self) -> Resized | None:
        if self.compiled is None or self.foreign:
            return None
        from jitonnx.engine.resized import Resized

        resized = Resized(self.compiled, self.settings.threads, self.frames)
        return resized if resized.possible else None

    def _resized_shapes(self) -> list[Shapes]:
        """The shapes of such runs."""
        resized = self.__dict__.get("_resized")
        return [] if resized is None else resized.known_shapes()

    def step_shapes(self, outputs: Sequence[str]) -> list[Shapes]:
        """Shapes of the inputs for each kind of step of a decoder; none for other models.

        outputs: what the model calls its outputs.
        """
        if self._source is None or not any("past" in value.name for value in self._source.inputs):
            return []
        from jitonnx.engine.decoder_steps import step_shapes

        return step_shapes(self._source, outputs, self.usual_sizes)

    def note_shapes(self, shapes: Iterable[Shapes]) -> None:
        """Count shapes as run, although nothing has been made for them."""
        for one in shapes:
            if self.sizes(one) is None:
                self._engines.note(one, functools.partial(self._made_for, one))

    def status(self) -> CompileStatus:
        """How far the code is, as `PendingCode` has it."""
        return CompileStatus(self.pending.state, *self.pending.kernels, self.pending.numpy_runs)

    def complete(self, timeout: float | None = None) -> bool:
        """Have all compiled that is missing of what was run; whether that was done within `timeout` seconds."""
        return self.pending.wait(timeout)

    @property
    def program_memory(self) -> int:
        """Bytes that the programs kept hold, and the frames that they run in: all but weights."""
        return self._programs.bytes + self.frames.bytes

    @property
    def variants(self) -> list[Engine]:
        """The engines made for inputs, and for what runs met, that this one has no plan for."""
        return [
            engine for engine in dict.fromkeys([*self._engines, *self._met, *self._misplanned]) if engine is not self
        ]

    def serving(self, shapes: Shapes) -> Engine:
        """The engine that runs inputs of these shapes: this one, or one made for them alone, which is waited for."""
        engine = self
        while engine.sizes(shapes) is None:
            other = engine._other(shapes, When.NOW)
            assert other is not None, "Bug: an engine that is waited for is not made"
            engine = other
        return engine

    def serving_all(self, fixed: Sequence[Sequence[int | None]]) -> Engine:
        """The engine for all shapes with these sizes, of which None may be any: this one if it has a plan for them.

        Fail says why no single plan serves them.
        """
        engine = self
        if self.compiled is None and not self.unplanned and self._source is not None:
            types = [_fixed(kind, sizes) for kind, sizes in zip(self._input_types, fixed, strict=True)]
            engine = self if types == self._input_types else self.part(types)
        if engine.unplanned:
            raise Fail(f"no single plan serves ranges of shapes: {engine.unplanned}")
        return engine

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs for inputs in the order of the graph's, whose types have been checked."""
        shapes = tuple([shape_of(array) for array in inputs])
        known = self._programs.find(shapes)
        if known is not None:
            return known.run(inputs)
        engine: Engine | None = self
        while engine is not None and engine.sizes(shapes) is None:
            engine = engine._other(shapes)
        if engine is None:
            assert self._source is not None
            return self.pending.on_numpy(self._source, inputs)
        if engine.schedule is not None:
            return engine._follow(engine.sizes(shapes) or {}, inputs)
        program = engine.program(shapes)
        return engine._run_otherwise(inputs) if program is None else program.run(inputs)

    def runner(self, shapes: Shapes) -> Runner | None:
        """What does as `run` for inputs of these shapes, where that follows a schedule; None where it does not."""
        sizes = self.sizes(shapes)
        if sizes is None:
            other = self._engines.first(lambda engine: engine._accepts(shapes))
            return None if other is None else other.runner(shapes)
        if self.schedule is None:
            return None
        return LikeRuns(self.schedule, sizes, functools.partial(self._follow, sizes))

    def times(self, inputs: Sequence[Any], rounds: int) -> list[Times]:
        """What the steps of some runs take, of inputs as for `run`. Where a run is a single native call, its one step
        is the engine that serves it.

        Fail where a run meets sizes that the steps were not planned for.
        """
        shapes = tuple([shape_of(array) for array in inputs])
        engine, found = self.serving(shapes), [Times() for _ in range(rounds)]
        if engine.schedule is None:
            program = engine.program(shapes)
            assert program is not None, "Bug: a model of one native call has no program"
            for times, seconds in zip(found, program.executable.profile(inputs, rounds), strict=True):
                times.add(engine, seconds)
            return found
        try:
            for times in found:
                engine.schedule.run(inputs, engine.sizes(shapes) or {}, times)
        except AssumptionError as error:
            raise Fail(f"a run of these inputs is evaluated on NumPy: {error}") from error
        return found

    def _follow(self, sizes: Mapping[str, int], inputs: Sequence[Any]) -> list[Any]:
        assert self.schedule is not None
        last = self._last_met
        if last is not None:
            try:
                return last._attempt(inputs)
            except AssumptionError:
                self._last_met = None
        try:
            return self.schedule.run_owned(inputs, sizes)
        except AssumptionError as error:
            engine = self._made_after(error)
        except OutOfBounds as error:
            return self._run_otherwise(inputs, error)
        if engine is None:
            assert self._source is not None, "Bug: what a run tells was not checked before it"
            return self.pending.on_numpy(self._source, inputs)
        results = engine.run(inputs)
        self._last_met = engine._last_met or engine  # behind several assumptions, the one that served the run
        return results

    def _run_otherwise(self, inputs: Sequence[Any], why: OutOfBounds | None = None) -> list[Any]:
        """The outputs for inputs that this engine's plan has turned out to be wrong for."""
        engine = self._exact(tuple([shape_of(array) for array in inputs]), why)
        if engine is not None:
            return engine.run(inputs)
        assert self._source is not None
        return self.pending.on_numpy(self._source, inputs)

    def _exact(self, shapes: Shapes, why: OutOfBounds | None = None) -> Engine | None:
        """An engine for these shapes alone: this one's plan has turned out to be wrong for them, which is reported.

        Where all sizes are known, a node whose kernel goes beyond its operands is seen when it is planned, and is
        evaluated on NumPy. None if this engine is one for such shapes: NumPy evaluates all nodes.
        """
        if why is not None:
            given = ", ".join(str(list(shape)) for shape in shapes)
            survive(why, f"making the program for inputs of the shapes {given}", "a plan for these alone is made")
        source, types = self._source, self._types_of(shapes)
        if source is None:
            raise why or Fail(f"there is no plan for the shapes {shapes}")
        if types == self._input_types:
            return None
        return self._misplanned.get(shapes, lambda stop: self.part(types, stop=stop), When.NOW)

    def _attempt(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs of a run. AssumptionError for what this engine itself has no plan for."""
        shapes = tuple([shape_of(array) for array in inputs])
        sizes = self.sizes(shapes)
        if sizes is None:
            raise AssumptionError("the inputs have other sizes")
        if self.schedule is not None:
            return self.schedule.run_owned(inputs, sizes)
        program = self.program(shapes)
        return self._run_otherwise(inputs) if program is None else program.run(inputs)

    def _made_after(self, met: AssumptionError) -> Engine | None:
        """An engine for runs like one that met what was not planned for: one for each assumption that does not hold.

        None while it is left to the background, and for what no engine can be made for: NumPy says what is wrong.
        """
        broken = met.untold or (f"ranks {sorted(met.ranks.items())}" if met.ranks else str(met.pair))
        if (met.pair is None and not met.untold and not met.ranks) or broken in self._broken:
            return None
        untold = self.graph.assumptions.untold | ({met.untold} if met.untold else set())
        ranks = {**self.graph.assumptions.ranks, **met.ranks}

        def make(stop: threading.Event | None) -> Engine:
            assert self._source is not None, "Bug: what a run tells was not checked before it"
            try:
                made = self.part(self._input_types, Assumptions(met.sizes, untold=untold, ranks=ranks), stop)
            except GraphError:
                return self
            made._broken = self._broken | {broken}
            return made

        engine = self._met.get(broken, make, self.when(lasting=True))
        return None if engine is self else engine

    def sizes(self, shapes: Shapes) -> dict[str, int] | None:
        """Values of the dimension variables; None if there is no plan for them here."""
        return None if self.unplanned else self._sizing(shapes)

    def _accepts(self, shapes: Shapes) -> bool:
        """Whether shapes are what is assumed here."""
        fits = all(map(_fits, self._input_types, shapes))
        return not self.unplanned and fits and self._sizing(shapes) is not None

    @fork_safety.cached_property
    def _sizing(self) -> Sizing:
        given, pairs = self.input_conditions
        return Sizing([shape or () for shape in given], pairs)

    @property
    def input_conditions(self) -> InputConditions:
        """What tells whether this engine has a plan for the inputs that are fed."""
        assumptions = self.compiled.plan.assumptions if self.compiled else self.graph.assumptions
        pairs = [pair for pair in assumptions if self._inputs_tell(pair)]
        return InputConditions([kind.shape for kind in self._input_types], pairs)

    def _inputs_tell(self, pair: Pair) -> bool:
        """Whether the inputs' shapes alone tell if two sizes are equal."""
        given = {name for kind in self._input_types for dim in kind.shape or () for name in variables(dim)}
        return variables(pair[0]) | variables(pair[1]) <= given

    def when(self, *, lasting: bool = False) -> When:
        """When an engine for other inputs is made. lasting: it serves many sets of shapes, or there is but one."""
        mode = self.settings.compile
        if self.executor is None or mode in (CompileMode.BEFORE, CompileMode.CACHED):
            return When.NOW
        if not lasting:
            return When.AGAIN
        return When.BACKGROUND if mode is CompileMode.BACKGROUND else When.NOW

    def _other(self, shapes: Shapes, when: When | None = None, *, ask: bool = True) -> Engine | None:
        """An engine for inputs that this one has no plan for; None while it is left to the background.

        when: it is made, if not at the usual time. ask: for it, if it is one of those that are left to the background.

        InvalidArgument names the node that has no meaning for such sizes.
        """
        when = when or self.when(lasting=True)
        found = self._engines.first(lambda engine: engine._accepts(shapes))
        if found is not None:
            return found
        self._check_demands(shapes)
        if when is not When.NOW and not ask:
            return self._engines.find(shapes)
        return self._engines.get(shapes, functools.partial(self._made_for, shapes), when)

    def _made_for(self, shapes: Shapes, stop: threading.Event | None) -> Engine:
        """An engine for inputs that this one has no plan for: for all that are alike in what had to be assumed."""
        found = self._engines.first(lambda engine: engine._accepts(shapes))  # by now, perhaps
        if found is not None:
            return found
        types, examples = self._types_like(shapes)
        try:
            known = self.graph.assumptions
            made = self.part(types, Assumptions(examples, untold=known.untold, ranks=known.ranks), stop)
        except GraphError as error:
            try:  # what only a run tells may not be as models usually have it
                made = self.part(self._types_of(shapes), Assumptions(demands_only=True), stop)
            except GraphError:
                raise self._misfit(shapes, examples, error) from error
        if not made._accepts(shapes):
            defect = AssertionError("Bug: a graph made after the example of some sizes does not hold for them")
            survive(defect, f"planning for inputs of the shapes {shapes}", "they get a plan of their own")
            made = self.part(self._types_of(shapes), None, stop)
        if self.variant_made is not None:
            self.variant_made(shapes)
        return made

    def _types_of(self, shapes: Shapes) -> list[Type]:
        """Input types of these shapes alone."""
        return [
            TensorType(kind.dtype, shape) if isinstance(kind, TensorType) else kind
            for kind, shape in zip(self._input_types, shapes, strict=True)
        ]

    def _types_like(self, shapes: Shapes) -> tuple[list[Type], dict[str, int]]:
        """Input types of the ranks of `shapes`, and their variables' values. Those of the model if shapes fit them.

        Where they do not, as inputs disagree on a dimension that they share, all sizes are independent.
        """
        if not any(isinstance(kind, TensorType) and kind.shape is None for kind in self._input_types):
            bound = self._sizing.bound(shapes)
            if bound is not None:
                return self._input_types, bound
        types: list[Type] = []
        sizes = {}
        for number, (kind, shape) in enumerate(zip(self._input_types, shapes, strict=True)):
            if not isinstance(kind, TensorType):
                types.append(kind)
                continue
            dims: list[DimLike] = []
            for axis, (size, dim) in enumerate(zip(shape, kind.shape or [None] * len(shape), strict=True)):
                name = f"input{number}_{axis}"
                dims.append(dim if isinstance(dim, int) else variable(name))
                if not isinstance(dim, int):
                    sizes[name] = size
            types.append(TensorType(kind.dtype, tuple(dims)))
        return types, sizes

    def _check_demands(self, shapes: Shapes) -> None:
        """InvalidArgument if a node has no meaning for sizes that are otherwise as they are assumed to be here."""
        sizes = None if self.unplanned else self._sizing.bound(shapes)
        if sizes is None:
            return
        assumptions = self.graph.assumptions
        broken = [pair for pair in assumptions if self._inputs_tell(pair) and not holds(pair, sizes)]
        if broken and all(map(assumptions.demanded_by, broken)):
            assert self._source is not None
            a, b = pair = broken[0]
            try:  # what is demanded may rest on what was assumed, as that an axis divides into equal parts
                specialise(self._source, self._types_of(shapes))
            except GraphError as error:
                needed = f"{assumptions.demanded_by(pair)} needs {a} = {b}"
                raise self._misfit(shapes, variables(a) | variables(b), needed) from error

    def _misfit(self, shapes: Shapes, names: Collection[str], why: object) -> InvalidArgument:
        """The error for inputs of sizes that a node has no meaning for. names: the dimension variables to blame."""
        assert self._source is not None
        try:
            specialise(self._source, self._types_of(shapes))
        except GraphError as error:  # tells the sizes that the node gets
            why = error
        blamed = [
            f"axis {axis} of {value.name!r} is {size}"
            for value, kind, shape in zip(self.graph.inputs, self._input_types, shapes, strict=True)
            for axis, (size, dim) in enumerate(zip(shape, kind.shape or (), strict=False))
            if isinstance(dim, Dim) and not variables(dim).isdisjoint(names)
        ]
        given = [f"{value.name!r} is {list(shape)}" for value, shape in zip(self.graph.inputs, shapes, strict=True)]
        return InvalidArgument(f"the inputs do not fit the model, as {' and '.join(blamed or given)}: {why}")

    def part(
        self, types: Sequence[Type], assumptions: Assumptions | None = None, stop: threading.Event | None = None
    ) -> Engine:
        """An engine for some of the inputs that the model takes. Arguments as for `specialise`, and for the class.

        Where making it fails in itself, it is one that does less.
        """
        assert self._source is not None, "Bug: a model without variables has no parts"
        behind = stop is not None and stop is not self.stop
        progress, settings = self.pending.counter() if behind else self.progress, self.settings
        while True:
            graph = specialise(self._source, types, assumptions)
            try:
                return Engine(graph, settings, self.cache, progress, self.executor, stop, self.frames, self.pending)
            except Exception as error:
                settings = with_less(settings, error, "compiling the model for other inputs")

    def _prepare(self) -> None:
        """Plan the graph and compile it."""
        refused = dict.fromkeys(self.settings.on_host, "it is to be evaluated on NumPy")
        while True:
            planned = plan_schedule(self.graph, self.target, self.settings.choices, refused)
            for plan in planned.plans():
                plan.outline.constants = kept_apart(plan.outline.constants)
            try:
                self.codes = self._compile(list(planned.plans()))
                break
            except CompileError as error:
                calls = [call for plan in planned.plans() for call in plan.calls if self.code_of(call) == error.code]
                if error.code is not None and error.code.source is not None:
                    names = list(dict.fromkeys(name for call in calls for name in call.origin))
                    survive(error, f"compiling the Numba kernel of {', '.join(names)}", "it is emitted as LLVM IR")
                    self._not_by_numba.add(error.code)
                    continue
                names = list(dict.fromkeys(name for call in calls for name in call.origin))
                if refused.keys() >= set(names):
                    raise
                survive(error, f"compiling a kernel of {', '.join(names)}", "these nodes are evaluated on NumPy")
                refused |= dict.fromkeys(names, f"jitonnx failed to compile it: {told(error)}")
        if planned.whole:
            (self.compiled,) = self.codes
            self._forget_weights()
            return
        table_bytes, _ = split_memory(self.settings.program_bytes)
        from jitonnx.engine.schedule import make_schedule

        self.schedule_plan = planned
        self.schedule = make_schedule(planned, iter(self.codes), self.settings.threads, self.frames, table_bytes)

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

    def code_of(self, call: KernelCall) -> KernelCode:
        """The code of a call, as the settings have it made."""
        code = code_of(call, self.settings.codegen)
        return code_of(call) if code in self._not_by_numba else code

    def _compile(self, plans: Sequence[Plan]) -> list[CompiledPlan]:
        """The code of plans: one block for all."""
        codes = [[self.code_of(call) for call in plan.calls] for plan in plans]
        symbols = [[code.symbol(self.target) for code in some] for some in codes]
        every = [symbol for some in symbols for symbol in some]
        image = find_linked(self.cache, every)
        may_compile = self.settings.compile is not CompileMode.CACHED
        names = list(map(repr, self.graph.inputs))
        distinct = [code for some in codes for code in some]
        source = Objects(distinct, self.target, self.cache, self.settings.threads, may_compile, names)
        if image is None:
            objects = source(self.progress, self.stop)
            image = load_linked(self.cache, every, lambda: list(objects.values()))
        return [CompiledPlan(plan, some, image, source) for plan, some in zip(plans, symbols, strict=True)]


def files_read(graph: Graph) -> list[FileMap]:
    """The mapped files that weights of a graph, and of the graphs of its nodes, lie in."""
    found: dict[int, FileMap] = {}
    for node in graph:
        values = [value.contents for value in node.inputs if value is not None and value.contents is not None]
        found.update((id(file), file) for file in files_of(values))
        for body in node.bodies:
            found.update((id(file), file) for file in files_read(body))
    return list(found.values())


def _fixed(kind: Type, sizes: Sequence[int | None]) -> Type:
    """The type with the sizes that are known."""
    if kind.shape is None:
        return kind
    return TensorType(
        kind.dtype, tuple(dim if size is None else size for dim, size in zip(kind.shape, sizes, strict=True))
    )
