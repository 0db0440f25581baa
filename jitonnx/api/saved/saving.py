"""Makes an artifact of a compiled model: programs for given shapes, and all that they need."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jitonnx.api.environment import get_version_string
from jitonnx.api.inputs import Ends, NamedShapes, ends_in_order
from jitonnx.engine.compiled_plan import CompiledPlan
from jitonnx.engine.pipeline import Engine
from jitonnx.engine.schedule_message import NotStorable
from jitonnx.engine.schedule_message import to_message as steps_to_message
from jitonnx.errors import Fail, InvalidArgument
from jitonnx.ir.declaration import Declaration
from jitonnx.plan.parametric_program_message import to_message
from jitonnx.runtime.artifact import (
    Argument,
    ModelInfo,
    Part,
    SavedPlan,
    SavedProgram,
    SavedSchedule,
    ShapeRange,
)
from jitonnx.runtime.artifact_writer import ArtifactContents, write
from jitonnx.runtime.driver import PARTS, driver_code
from jitonnx.runtime.program import Shapes

if TYPE_CHECKING:
    from jitonnx.api.compiled_model import CompiledModel
    from jitonnx.api.description import ModelDescription
    from jitonnx.support.mapped_files import DataFile


def save(
    model: CompiledModel,
    path: str | os.PathLike[str],
    shapes: NamedShapes | Sequence[NamedShapes] | None,
    threads: int,
) -> int:
    """Write a model with programs for `shapes`; returns the file's size in bytes.

    threads: of a run, where who opens the file does not say; 0: as many as there are CPUs.
    Raises InvalidArgument for shapes that do not fit or leave something open, Fail for what no file can hold.
    """
    engine, declared = model.engine, model.description.inputs
    assert isinstance(engine, Engine), "Bug: an artifact is saved again"
    sets = _all_shapes(declared, engine, shapes)
    parts = _Parts()
    programs, ranges = [], list[ShapeRange]()
    try:
        for low, high in sets:
            serving = _serving(engine, low, high)
            for one in serving:
                _check_no_blas(one)
            if low == high and serving[0].compiled is not None:
                programs.append(parts.program(serving[0], low))
            else:
                ranges += [ShapeRange(low, high, parts.add(one)) for one in serving]
    except NotStorable as error:
        raise Fail(f"the model cannot be saved as an artifact: {error}") from error
    explanation = _explanation(model, sets[0][0])
    contents = parts.contents(engine, model_info(model.description), threads, programs, ranges, explanation)
    return write(path, contents)


def write_cached(
    engines: Sequence[Engine],
    examples: Sequence[Shapes],
    info: ModelInfo,
    files: Sequence[DataFile],
    path: Path,
    go_on: Callable[[], None],
) -> int:
    """Write what the kernel cache keeps of a model; returns the file's size in bytes.

    engines: those that have a plan, the most usual first. examples: shapes that the first is not for, and others are.
    files: the model's, in which weights stay that lie there. go_on: as of `artifact_writer.write`.

    Explanations are left out: a session that is opened from it loads the model to give them. Raises
    ModelRequiresCompilation if the cache does not have all of the code any more, NotStorable where no file can hold
    what is run.
    """
    parts = _Parts(may_compile=False)
    programs = []
    for engine in engines:
        if engine.compiled is not None and engine.only_shapes is not None:
            programs.append(parts.program(engine, engine.only_shapes))
        else:
            parts.add(engine)
    contents = parts.contents(engines[0], info, engines[0].settings.threads, programs, examples=examples, files=files)
    return write(path, contents, durable=True, go_on=go_on)


class _Parts:
    """What engines give to a file: their code, plans and schedules, each once."""

    def __init__(self, *, may_compile: bool = True) -> None:
        self._may_compile = may_compile
        self._engines: list[Engine] = []
        self._codes: list[CompiledPlan] = []
        self._plans: list[SavedPlan] = []
        self._schedules: list[SavedSchedule] = []
        self._parts: dict[Engine, Part] = {}

    def program(self, engine: Engine, shapes: Shapes) -> SavedProgram:
        """The program for one set of shapes, of an engine that has a plan for them."""
        compiled, sizes = engine.compiled, engine.sizes(shapes)
        assert compiled is not None and sizes is not None, "Bug: an engine that serves shapes is not compiled"
        self._codes.append(compiled)
        program = compiled.plan.instantiate(sizes, compiled.symbols)
        return SavedProgram(program, compiled.plan.outline.is_short(program))

    def add(self, engine: Engine) -> int:
        """The number of the part that an engine is."""
        if engine not in self._parts:
            self._parts[engine] = self._plan(engine) if engine.compiled is not None else self._schedule(engine)
        return list(self._parts).index(engine)

    def contents(  # noqa: PLR0913  (the fields of `ArtifactContents`)
        self,
        engine: Engine,
        info: ModelInfo,
        threads: int,
        programs: Sequence[SavedProgram],
        ranges: Sequence[ShapeRange] = (),
        explanation: str = "",
        examples: Sequence[Shapes] | None = None,
        files: Sequence[DataFile] = (),
    ) -> ArtifactContents:
        """All of it. Arguments as for `Contents`; engine: the model's."""
        flags = {id(flag): flag for compiled in self._codes for flag in compiled.flags}
        objects: dict[str, bytes] = {}
        for compiled in self._codes:
            if not objects.keys() >= set(compiled.symbols):
                objects |= compiled.objects(may_compile=self._may_compile)
        return ArtifactContents(
            get_version_string(),
            engine.target.needed_by(feature for compiled in self._codes for feature in compiled.plan.features),
            threads,
            info,
            programs,
            list(flags.values()),
            objects,
            driver_code(engine.cache, self._driver_parts()),
            explanation,
            self._plans,
            self._schedules,
            list(self._parts.values()),
            ranges,
            examples,
            files,
        )

    def _driver_parts(self) -> Sequence[str]:
        """Those that the file holds: all of them, or, where the kernel cache has the others, those that it needs."""
        if self._may_compile:
            return tuple(PARTS)
        return "runs", *(["sizes"] if self._plans else []), *(["chains"] if self._schedules else [])

    def _plan(self, engine: Engine) -> Part:
        assert engine.compiled is not None
        return Part("plan", self._saved(engine.compiled))

    def _schedule(self, engine: Engine) -> Part:
        assert engine.schedule_plan is not None, f"Bug: an engine without a plan is saved: {engine.unplanned}"
        message, arrays = steps_to_message(engine.schedule_plan, engine.input_conditions)
        self._schedules.append(SavedSchedule(message, arrays, [self._saved(code) for code in engine.codes]))
        return Part("schedule", len(self._schedules) - 1)

    def _saved(self, compiled: CompiledPlan) -> int:
        message, arrays = to_message(compiled.outline)
        self._codes.append(compiled)
        self._plans.append(SavedPlan(message, arrays, compiled.symbols))
        return len(self._plans) - 1


def model_info(description: ModelDescription) -> ModelInfo:
    """What an artifact says about a model."""
    return ModelInfo(
        [Argument(entry.name, entry.type, entry.shape) for entry in description.inputs],
        [Argument(entry.name, entry.type, entry.shape) for entry in description.overridable.values()],
        [Argument(entry.name, entry.type, tuple(entry.shape)) for entry in description.outputs],
        [Argument(entry.name, entry.type, entry.shape) for entry in description.declared_outputs],
        description.metadata,
        description.opsets,
        description.warnings,
    )


def _all_shapes(
    declared: Sequence[Declaration], engine: Engine, shapes: NamedShapes | Sequence[NamedShapes] | None
) -> list[Ends]:
    """Every set of shapes, or range of such, in the order of the inputs."""
    if shapes is None:
        found = engine.known_shapes() or ([engine.only_shapes] if engine.only_shapes is not None else [])
        if not found:
            raise InvalidArgument(
                f"say which shapes the artifact is for: {_open(declared)} can have any. Give shapes={{...}} to save() "
                "(--shape INPUT=1,2,3 to `jitonnx compile`), or run the model with the shapes first"
            )
        return [(one, one) for one in found]
    sets = [shapes] if isinstance(shapes, Mapping) else shapes
    if not isinstance(sets, Sequence) or not all(isinstance(one, Mapping) for one in sets):
        raise TypeError(f"shapes are a dict of shapes by input name, or a list of such; got {shapes!r}")
    return list(dict.fromkeys(ends_in_order(declared, one, engine.usual_sizes) for one in sets))


def _open(declared: Sequence[Declaration]) -> str:
    names = [
        entry.name for entry in declared if entry.shape is None or not all(isinstance(d, int) for d in entry.shape)
    ]
    return ", ".join(map(repr, names))


def _serving(engine: Engine, low: Shapes, high: Shapes) -> list[Engine]:
    """The engines that serve a set of shapes, or a range of such."""
    if low == high:
        return [engine.serving(low)]
    fixed = [
        [a if a == b else None for a, b in zip(least, largest, strict=True)]
        for least, largest in zip(low, high, strict=True)
    ]
    # The ends of a range may not be what is assumed of sizes between them, as 1 where it is broadcast.
    usual = engine.serving_all(fixed)
    ends = [engine.serving(one) for one in (low, high)] if usual is engine else []
    return list(dict.fromkeys([usual, *ends]))


def _check_no_blas(engine: Engine) -> None:
    if engine.settings.choices.blas:
        raise Fail("the model cannot be saved as an artifact, as it is compiled to call this process's BLAS")


def _explanation(model: CompiledModel, shapes: Shapes) -> str:
    from jitonnx.api.explanation import explain
    from jitonnx.api.explanation_text import as_text

    if model.engine.foreign is not None:  # memory is measured on a program made ready, which this machine cannot do
        return ""
    names = [entry.name for entry in model.description.inputs]
    return as_text(explain(model, dict(zip(names, shapes, strict=True))))
