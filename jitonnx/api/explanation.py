"""An explanation as data: collected from a model's engine for concrete input shapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import prod
from typing import Any, Protocol

from jitonnx.api.compiled_model import CompiledModel
from jitonnx.api.description import ModelNode
from jitonnx.api.equations import equations
from jitonnx.api.running import explained
from jitonnx.codegen.code import NUMBA, not_by_numba
from jitonnx.codegen.numba.sources import is_region, write
from jitonnx.engine.compiled_plan import CompiledPlan
from jitonnx.engine.pipeline import Engine
from jitonnx.errors import Fail
from jitonnx.ir.dims import DimLike, evaluate
from jitonnx.ir.graph import Node
from jitonnx.passes.report import Applied, Declined
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.region import RegionSpec
from jitonnx.plan.size_program import nanoseconds, threads_for
from jitonnx.plan.tensor import Buffer, StridedTensor
from jitonnx.runtime.program import Shapes


@dataclass(frozen=True)
class ExplainedOperand:
    """A tensor that a kernel reads or writes."""

    argument: str
    """What the kernel's spec calls it, or which operand of a stage it is; several names where it is several of them."""
    buffer: str
    """Names the piece of memory: equal within one part of a plan for tensors that share it."""
    name: str
    space: str
    """arena, constant, input or output."""
    dtype: str
    shape: tuple[int, ...]
    order: tuple[int, ...]
    """The axes as they lie in memory, outermost first: (0, 2, 3, 1) for a channels-last image.

    Those of size 1, and those along which elements repeat, are left out.
    """
    bytes: int

    @property
    def type(self) -> str:
        """float[1,64,56,56]"""
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Kernel:
    """One call of a kernel."""

    number: int
    family: str
    label: str
    origin: tuple[str, ...]
    """Names of the model's nodes it stands for."""
    operators: tuple[str, ...]
    """What these nodes are."""
    reads: tuple[ExplainedOperand, ...]
    writes: tuple[ExplainedOperand, ...]
    sizes: tuple[tuple[str, str], ...]
    """The integers that the kernel is called with, by the names that its spec has for them, without those of stages."""
    tasks: int
    threads: int
    flops: int
    bytes: int
    """Bytes that have to be read and written once each."""
    scratch: int
    microseconds: float
    """A rough estimate on one core, by which the planner decides about threads."""
    reason: str
    notes: tuple[str, ...]
    parameters: tuple[tuple[str, str], ...]
    """What the kernel's code was made for: its specification."""
    formula: tuple[str, ...]
    """What a region or an epilogue computes, line by line."""
    symbol: str
    numba: str = ""
    """The source of the Numba function that computes it, by the names of the model's values; "" for library kernels,
    and for what has none (`not_by_numba`)."""
    not_by_numba: str = ""
    """What a region holds that no Numba function is written for."""

    @property
    def result(self) -> str:
        """The type of what it writes first."""
        return self.writes[0].type if self.writes else ""


@dataclass(frozen=True)
class NodeOutcome:
    """What became of one node of the model."""

    node: ModelNode
    kind: str
    """kernel, view, numpy, control, rewritten or unused."""
    kernels: tuple[int, ...]
    text: str


@dataclass(frozen=True)
class Memory:
    """Bytes that the program holds and moves."""

    arena: int
    constants: int
    constant_count: int
    inputs: int
    outputs: int
    scratch: int
    """It counts that of all threads together."""


@dataclass(frozen=True)
class Explanation:
    """What became of a model, for one set of input shapes."""

    title: str
    shapes: Mapping[str, tuple[int, ...]]
    outputs: tuple[str, ...]
    threads: int
    cpu: str
    core: str
    """What its cores do in a cycle, by which tiles, prefetches and tasks were chosen."""
    nodes: tuple[NodeOutcome, ...]
    kernels: tuple[Kernel, ...]
    distinct: int
    """Compiled kernels; equal ones are shared."""
    memory: Memory
    applied: tuple[Applied, ...]
    declined: tuple[Declined, ...]
    on_numpy: tuple[tuple[str, str, str], ...] = ()
    """Nodes evaluated on NumPy: name, operator, reason."""
    notes: tuple[str, ...] = field(default=())

    @property
    def flops(self) -> int:
        return sum(kernel.flops for kernel in self.kernels)

    @property
    def bytes(self) -> int:
        return sum(kernel.bytes for kernel in self.kernels)

    @property
    def rewrites(self) -> Counter[str]:
        """How often each rewrite was made."""
        return Counter(entry.rewrite for entry in self.applied)


class HasCompiledModel(Protocol):
    """A session, or whatever else has compiled a model."""

    @property
    def compiled_model(self) -> CompiledModel: ...


def _planned(model: CompiledModel | HasCompiledModel) -> tuple[CompiledModel, Engine]:
    """A model and its engine, which has a plan. Fail for one that was opened from an artifact, which has none."""
    compiled = model if isinstance(model, CompiledModel) else model.compiled_model
    if not isinstance(compiled.engine, Engine):
        raise Fail(f"{compiled.title} is an artifact, which keeps no plan: explain the model that it was made of")
    return compiled, compiled.engine


@explained()
def has_steps(model: CompiledModel | HasCompiledModel, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether a run for inputs of these shapes has several steps, of which only a run tells all sizes."""
    compiled, engine = _planned(model)
    ordered = tuple(tuple(shapes[declared.name]) for declared in compiled.description.inputs)
    return engine.serving(ordered).schedule is not None


@explained()
def explain(model: CompiledModel | HasCompiledModel, shapes: Mapping[str, tuple[int, ...]]) -> Explanation:
    """What became of a model, or of a session's, for inputs of these shapes.

    Where sizes depend on data, those of the last run are taken; what no run has come to is left out. Fail for shapes
    that a node refuses, and for an artifact, which keeps no plan.
    """
    (title, described, _), main = _planned(model)
    ordered = tuple(tuple(shapes[declared.name]) for declared in described.inputs)
    operators = {node.name: node.operator for node in described.nodes}
    engine = main.serving(ordered)
    host = list(engine.schedule.reasons()) if engine.schedule is not None else []
    controls = list(engine.schedule.controls()) if engine.schedule is not None else []
    names = [entry.name for entry in described.outputs] if engine.compiled is not None else []
    kernels: list[Kernel] = []
    memories: list[Memory] = []
    symbols: set[str] = set()
    for compiled, sizes in _programs(engine, ordered):
        symbols.update(compiled.symbols)
        kernels += _kernels(engine, compiled, sizes, len(kernels), operators, names)
        memories.append(_memory(engine, compiled, sizes))
    report = engine.report
    remaining = {name for node in engine.graph for name in _origin(node)}
    return Explanation(
        title=title,
        shapes={declared.name: shape for declared, shape in zip(described.inputs, ordered, strict=True)},
        outputs=tuple(f"{entry.name} {entry.type} {entry.shape}" for entry in described.outputs),
        threads=main.settings.threads,
        cpu=main.target.cpu,
        core=main.target.described,
        nodes=tuple(_fates(described.nodes, kernels, host, controls, report.applied, remaining)),
        kernels=tuple(kernels),
        distinct=len(symbols),
        memory=_sum_of(memories),
        applied=tuple(report.applied),
        declined=tuple(report.declined),
        on_numpy=tuple((" ".join(_origin(node)), node.operator.name, reason) for node, reason in host),
        notes=tuple(_notes(engine, ordered)),
    )


def _programs(engine: Engine, shapes: Shapes) -> Iterator[tuple[CompiledPlan, Mapping[str, int]]]:
    """The native code of an engine in order, and the sizes it is looked at for."""
    sizes = engine.sizes(shapes)
    assert sizes is not None
    if engine.compiled is not None:
        yield engine.compiled, sizes
    elif engine.schedule is not None:
        for code, step in zip(engine.codes, engine.schedule.native_steps(), strict=True):
            if (told := step.explained_sizes(sizes)) is not None:
                yield code, told


def _notes(engine: Engine, shapes: Shapes) -> list[str]:
    if engine.compiled is not None:
        return list(engine.compiled.plan.notes)
    if engine.schedule is None:
        return []
    notes = [note for code in engine.codes for note in code.plan.notes]
    if any(step.explained_sizes(engine.sizes(shapes) or {}) is None for step in engine.schedule.native_steps()):
        notes.append("Some steps of the plan are not shown, as only a run can tell their sizes: run the model first.")
    return notes


# ---------------------------------------------------------------------------------------------- kernels


def _kernels(
    engine: Engine,
    compiled: CompiledPlan,
    sizes: Mapping[str, int],
    first: int,
    operators: Mapping[str, str],
    outputs: Sequence[str],
) -> Iterator[Kernel]:
    for index, (call, complete) in enumerate(compiled.plan.sized(sizes)):
        tasks, work = call.spec.tasks(complete), call.spec.work(complete)
        estimate = nanoseconds(work, call.spec.GFLOPS)
        yield Kernel(
            number=first + index,
            family=call.spec.family,
            label=_with_sizes(call.label, sizes),
            origin=call.origin,
            operators=tuple(operators.get(name, "") for name in call.origin),
            reads=_operands(call, written=False, sizes=sizes, outputs=outputs),
            writes=_operands(call, written=True, sizes=sizes, outputs=outputs),
            sizes=tuple((name, _plain(value)) for name, value in complete.named().items()),
            tasks=tasks,
            threads=threads_for(estimate, tasks, engine.settings.threads),
            flops=work.flops,
            bytes=work.bytes,
            scratch=call.spec.scratch_bytes(complete),
            microseconds=estimate / 1000,
            reason=call.reason or "a kernel of its own",
            notes=tuple(_call_notes(engine, call)),
            parameters=_parameters(call),
            formula=_formula(call, [_name(tensor.buffer, outputs) for tensor in call.tensors]),
            symbol=engine.code_of(call).symbol(engine.target),
            numba=_numba_source(call, operators),
            not_by_numba=not_by_numba(call),
        )


def _numba_source(call: KernelCall, operators: Mapping[str, str]) -> str:
    return write(call, operators=operators).text if is_region(call) and not not_by_numba(call) else ""


def _call_notes(engine: Engine, call: KernelCall) -> list[str]:
    if engine.settings.codegen != NUMBA or not is_region(call):
        return call.notes
    if why := not_by_numba(call):
        return [*call.notes, f"emitted as LLVM IR, as there is no Numba kernel of {why}"]
    if engine.code_of(call).source is None:
        return [*call.notes, "emitted as LLVM IR, as Numba failed to compile it"]
    return [*call.notes, "compiled by Numba"]


def _with_sizes(label: str, sizes: Mapping[str, int]) -> str:
    """A label with numbers for its symbolic sizes: "gemm batch*seqx1152x384" -> "gemm 128x1152x384"."""
    return " ".join("x".join(_product(piece, sizes) for piece in word.split("x")) for word in label.split(" "))


def _product(text: str, sizes: Mapping[str, int]) -> str:
    factors = [sizes.get(factor, int(factor) if factor.isdecimal() else None) for factor in text.split("*")]
    return text if None in factors else str(prod(factors))  # type: ignore[arg-type]


def _operands(
    call: KernelCall, *, written: bool, sizes: Mapping[str, int], outputs: Sequence[str]
) -> tuple[ExplainedOperand, ...]:
    """The tensors that a call writes or only reads, each once. Arguments as for `_operand`."""
    arguments: dict[StridedTensor, list[str]] = {}
    results = set(call.buffers.results())
    for place, (name, tensor) in enumerate(zip(_argument_names(call), call.tensors, strict=True)):
        if (place in results) == written:
            arguments.setdefault(tensor, []).append(name)
    return tuple(_operand(tensor, ", ".join(names), sizes, outputs) for tensor, names in arguments.items())


def _argument_names(call: KernelCall) -> list[str]:
    """What each of a call's tensors is to its kernel, in order: the spec's name for it, or an operand of a stage."""
    names = list(type(call.buffers).names())
    for stage, what in ((call.prologue, "prologue"), (call.epilogue, "epilogue")):
        if stage is not None:
            names += [f"{what}[{number}]" for number in range(len(stage.dtypes))]
            names += [f"bounds of the {what}"] * stage.bounded
    return names + ["asked for ahead"] * (
        len(call.tensors) - len(names)
    )  # `jitonnx.plan.weight_prefetch` puts them behind all


def _operand(
    tensor: StridedTensor, argument: str, sizes: Mapping[str, int], outputs: Sequence[str]
) -> ExplainedOperand:
    """A tensor for people. argument: what it is to the kernel. outputs: the model's names of the outputs, if the
    plan's are the model's."""
    shape = tuple(_number(dim, sizes) for dim in tensor.shape)
    strides = [_number(stride, sizes) for stride in tensor.strides]
    buffer = tensor.buffer
    axes = [axis for axis in range(len(shape)) if shape[axis] != 1 and strides[axis] != 0]
    order = sorted(axes, key=lambda axis: (-abs(strides[axis]), axis))
    elements = 1
    for dim, stride in zip(shape, strides, strict=True):
        elements *= dim if stride else 1
    return ExplainedOperand(
        argument=argument,
        buffer=f"{buffer.space}:{buffer.name}:{id(buffer):x}",
        name=_name(buffer, outputs),
        space=buffer.space,
        dtype=tensor.dtype.text,
        shape=shape,
        order=tuple(order),
        bytes=elements * tensor.dtype.itemsize,
    )


def _name(buffer: Buffer, outputs: Sequence[str]) -> str:
    return outputs[buffer.index] if buffer.space == "output" and outputs else buffer.name


def _number(dim: DimLike, sizes: Mapping[str, int]) -> int:
    return dim if isinstance(dim, int) else evaluate(dim, sizes)


def _parameters(call: KernelCall) -> tuple[tuple[str, str], ...]:
    """The fields of the kernel's specification; a region's are told by its formula and operands."""
    if isinstance(call.spec, RegionSpec):
        return (("loops", str(call.spec.rank)),)
    return tuple((entry.name, _plain(getattr(call.spec, entry.name))) for entry in fields(call.spec))


def _plain(value: Any) -> str:
    if isinstance(value, tuple) and all(isinstance(entry, int) for entry in value):
        return ", ".join(map(str, value))
    return str(value)


def _formula(call: KernelCall, names: Sequence[str]) -> tuple[str, ...]:
    """What a region, a prologue or an epilogue computes. `names`: of the call's tensors."""
    lines: list[str] = []
    if isinstance(call.spec, RegionSpec):
        for number, expr in enumerate(call.spec.exprs):
            lines += equations(expr, names[len(call.spec.inputs) + number], dict(enumerate(names)))
    for stage, own, what in ((call.prologue, "x", "prologue"), (call.epilogue, "result", "epilogue")):
        if stage is not None:
            further = names[stage.first_buffer : stage.first_buffer + len(stage.dtypes)]
            made = equations(stage.expr, own, dict(enumerate([own, *further])))
            lines += [f"{what}:", *("  " + line for line in made)]
            if stage.bounded:
                bounds = call.tensors[stage.first_buffer + len(stage.dtypes)].constant
                assert bounds is not None, "Bug: the bounds of an epilogue are no constant"
                lines.append(f"  {own} = min(max({own}, {bounds[0]:g}), {bounds[1]:g})")
    return tuple(lines)


# ---------------------------------------------------------------------------------------------- memory


def _memory(engine: Engine, compiled: CompiledPlan, sizes: Mapping[str, int]) -> Memory:
    program = compiled.plan.instantiate(sizes, compiled.symbols)
    return Memory(
        arena=program.arena_bytes,
        constants=sum(array.nbytes for array in program.constants),
        constant_count=len(program.constants),
        inputs=sum(_nbytes(spec) for spec in program.inputs),
        outputs=sum(_nbytes(spec) for spec in program.outputs),
        scratch=max((step.scratch for step in program.steps), default=0) * engine.settings.threads,
    )


def _nbytes(spec: Any) -> int:
    count: int = spec.dtype.itemsize
    for dim in spec.shape:
        count *= dim
    return count


def _sum_of(memories: Sequence[Memory]) -> Memory:
    return Memory(*(sum(getattr(memory, entry.name) for memory in memories) for entry in fields(Memory)))


# ---------------------------------------------------------------------------------------------- nodes


def _origin(node: Node) -> tuple[str, ...]:
    return node.origin or (node.name,)


def _fates(
    nodes: Sequence[ModelNode],
    kernels: Sequence[Kernel],
    host: Sequence[tuple[Node, str]],
    controls: Sequence[Node],
    applied: Sequence[Applied],
    remaining: set[str],
) -> Iterator[NodeOutcome]:
    """What became of each node: what is true of it first, in this order."""
    in_kernels: dict[str, list[int]] = {}
    for kernel in kernels:
        for name in kernel.origin:
            in_kernels.setdefault(name, []).append(kernel.number)
    on_numpy = {name: reason for node, reason in host for name in _origin(node)}
    steps = {name: node.operator for node in controls for name in _origin(node)}
    rewrites: dict[str, list[str]] = {}
    for entry in applied:
        for name in entry.origin:
            rewrites.setdefault(name, []).append(entry.rewrite)
    for node in nodes:
        numbers = tuple(in_kernels.get(node.name, ()))
        made = ", ".join(dict.fromkeys(rewrites.get(node.name, ())))
        if node.name in on_numpy:
            yield NodeOutcome(node, "numpy", numbers, f"evaluated on NumPy: {on_numpy[node.name]}")
        elif node.name in steps:
            what = "runs one of its graphs" if steps[node.name].decides else "runs its body natively"
            yield NodeOutcome(node, "control", (), f"a step that {what}")
        elif numbers:
            yield NodeOutcome(node, "kernel", numbers, f"rewritten first: {made}" if made else "")
        elif node.name in remaining:
            yield NodeOutcome(node, "view", (), "no work: says where elements lie, or holds sizes")
        elif made:
            yield NodeOutcome(node, "rewritten", (), f"gone: {made}")
        else:
            yield NodeOutcome(node, "unused", (), "gone: nothing that is left reads it")
