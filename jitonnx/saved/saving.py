"""From a compiled model to an artifact: programs for given shapes, and all that they need."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jitonnx.api.environment import get_version_string
from jitonnx.api.inputs import Size, choose_shapes, ends
from jitonnx.engine.pipeline import Compiled, Engine
from jitonnx.errors import Fail, InvalidArgument
from jitonnx.ir.declaration import Declaration
from jitonnx.runtime.artifact import Argument, ModelInfo, Part, SavedPlan, SavedProgram, ShapeRange
from jitonnx.runtime.artifact_writer import Contents, write
from jitonnx.runtime.driver import driver_code
from jitonnx.runtime.program import Flag, Shapes

if TYPE_CHECKING:
    from jitonnx.opening import OpenedModel
    from jitonnx.session import InferenceSession

NamedShapes = Mapping[str, Sequence[Size]]
Ends = tuple[Shapes, Shapes]
"""The least and the largest shapes of the inputs; the same for one set of shapes."""


def save(
    session: InferenceSession,
    path: str | os.PathLike[str],
    shapes: NamedShapes | Sequence[NamedShapes] | None,
    info: ModelInfo,
    threads: int,
) -> int:
    """Write a session's model, about which `info` tells, with programs for `shapes`; returns the file's size in bytes.

    Raises InvalidArgument for shapes that do not fit or leave something open, Fail for a model that needs NumPy.
    """
    engine, declared = session.engine, session.declared_inputs
    assert isinstance(engine, Engine), "Bug: an artifact is saved again"
    sets = _all_shapes(declared, engine, shapes)
    programs, parts = [], []
    for low, high in sets:
        if low == high:
            compiled, program = _program(engine, low)
            parts.append(compiled)
            programs.append(program)
    serving, ranges = _ranges(engine, [one for one in sets if one[0] != one[1]])
    parts += serving
    flags: dict[int, Flag] = {id(flag): flag for compiled in parts for flag in compiled.plan.flags}
    objects = {symbol: code for compiled in parts for symbol, code in compiled.objects().items()}
    return write(
        path,
        Contents(
            get_version_string(),
            engine.target.needed_by(feature for compiled in parts for feature in compiled.plan.features),
            threads,
            info,
            programs,
            list(flags.values()),
            objects,
            driver_code(engine.cache),
            _explanation(session, sets[0][0]),
            [_plan(compiled) for compiled in serving],
            [Part("plan", number) for number in range(len(serving))],
            ranges,
        ),
    )


def write_whole(engine: Engine, info: ModelInfo, path: Path) -> int:
    """Write what the kernel cache keeps of a model; returns the file's size in bytes.

    Explanations are left out: a session that is opened from it loads the model to give them. Raises
    ModelRequiresCompilation if the cache does not have all of the code any more.
    """
    compiled = engine.compiled
    assert compiled is not None, "Bug: a model that is not compiled is kept"
    fixed = engine.only_shapes is not None
    contents = Contents(
        get_version_string(),
        engine.target.needed_by(compiled.plan.features),
        engine.settings.threads,
        info,
        [_program(engine, engine.only_shapes)[1]] if engine.only_shapes is not None else [],
        list(compiled.plan.flags),
        compiled.objects(may_compile=False),
        driver_code(engine.cache),
        plans=[] if fixed else [_plan(compiled)],
        parts=[] if fixed else [Part("plan", 0)],
        open=True,
    )
    return write(path, contents, durable=True)


def model_info(model: OpenedModel) -> ModelInfo:
    """What an artifact says about a model."""
    return ModelInfo(
        [Argument(entry.name, entry.type, entry.shape) for entry in model.main.declared],
        [Argument(entry.name, entry.type, entry.shape) for entry in model.overridable.values()],
        [Argument(entry.name, entry.type, tuple(entry.shape)) for entry in model.outputs],
        model.metadata,
        model.opsets,
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
    return list(dict.fromkeys(_ordered(declared, one, engine.usual_sizes) for one in sets))


def _open(declared: Sequence[Declaration]) -> str:
    names = [
        entry.name for entry in declared if entry.shape is None or not all(isinstance(d, int) for d in entry.shape)
    ]
    return ", ".join(map(repr, names))


def _ordered(declared: Sequence[Declaration], shapes: NamedShapes, usual: Mapping[str, Sequence[int | None]]) -> Ends:
    low, high = (choose_shapes(declared, end, usual=usual) for end in ends(shapes))
    if low.assumed:
        given = ", ".join(f"{name}={list(shape)}" for name, shape in shapes.items()) or "nothing"
        raise InvalidArgument(f"the shapes leave {', '.join(low.assumed)} open (given: {given})")
    return low.in_order(declared), high.in_order(declared)


def _ranges(engine: Engine, wanted: Sequence[Ends]) -> tuple[list[Compiled], list[ShapeRange]]:
    """Plans that serve ranges of shapes, and which serves which."""
    plans: list[Compiled] = []
    ranges = []
    for low, high in wanted:
        fixed = [
            [a if a == b else None for a, b in zip(least, largest, strict=True)]
            for least, largest in zip(low, high, strict=True)
        ]
        # The ends of a range may not be what is assumed of sizes between them, as 1 where it is broadcast.
        usual = engine.serving_all(fixed)
        ends = [engine.serving(one) for one in (low, high)] if usual is engine else []
        for serving in dict.fromkeys([usual, *ends]):
            compiled = serving.compiled
            if compiled is None:
                raise Fail(f"no single program serves ranges of shapes: {serving.why_not_all()}")
            _check_no_blas(serving)
            if not any(compiled is known for known in plans):
                plans.append(compiled)
            ranges.append(ShapeRange(low, high, next(n for n, known in enumerate(plans) if known is compiled)))
    return plans, ranges


def _plan(compiled: Compiled) -> SavedPlan:
    from jitonnx.plan.outline_message import to_message

    message, arrays = to_message(compiled.plan.outline)
    return SavedPlan(message, arrays, compiled.symbols)


def _check_no_blas(engine: Engine) -> None:
    if engine.settings.choices.blas:
        raise Fail("the model cannot be saved as an artifact, as it is compiled to call this process's BLAS")


def _program(engine: Engine, shapes: Shapes) -> tuple[Compiled, SavedProgram]:
    """The program for one set of shapes, with the plan it comes from."""
    serving = engine.serving(shapes)
    if serving.schedule is not None:
        reasons = serving.schedule.explained()
        raise Fail(f"the model cannot be saved as an artifact, as it is run in several steps: {reasons}")
    _check_no_blas(serving)
    compiled, sizes = serving.compiled, serving.sizes(shapes)
    assert compiled is not None and sizes is not None, "Bug: an engine that serves shapes is neither cut nor compiled"
    program = compiled.plan.instantiate(sizes, compiled.symbols)
    return compiled, SavedProgram(program, compiled.plan.outline.is_short(program))


def _explanation(session: InferenceSession, shapes: Shapes) -> str:
    from jitonnx.explain import as_text, explain

    if session.engine.foreign is not None:  # memory is measured on a program made ready, which this machine cannot do
        return ""
    names = [entry.name for entry in session.declared_inputs]
    return as_text(explain(session, dict(zip(names, shapes, strict=True))))
