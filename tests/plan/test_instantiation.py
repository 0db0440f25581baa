"""Programs that one native call makes are those that Python makes; what is wrong is left to Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bench import boxes, text_models
from jitonnx import errors
from jitonnx.engine.compiled_plan import CompiledPlan
from jitonnx.engine.pipeline import Engine, Settings
from jitonnx.model import load
from jitonnx.plan import size_program
from jitonnx.runtime.execution_contexts import ExecutionContextPool
from jitonnx.runtime.layout import ROW
from jitonnx.runtime.program import OutOfBounds, Program
from jitonnx.runtime.tables import Tables, make_tables
from jitonnx.support.kernel_cache import KernelCache
from tests.session.models import model, node, tensor


@pytest.fixture(autouse=True)
def recording_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is recorded as soon as it is met."""
    monkeypatch.setattr(size_program, "_RECORDING_SECONDS", 60.0)


def described(program: Program, tables: Tables) -> list[Any]:
    """All of a program that does not depend on where it lies in memory, and on how much room its arena has."""
    steps = [step._replace(slots=tuple(s._replace(offset=0) for s in step.slots)) for step in program.steps]
    outer = [slot for step in program.steps for slot in step.slots if step.tasks and slot.space in ("input", "output")]
    rows = tables.records
    shared = {name: rows[name].tolist() for name in ROW.names or () if name not in ("sizes", "pointers", "kernel")}
    contents = [constant.tolist() for constant in program.constants if constant is not None and constant.size < 9]
    numbers = (tables.row_count, tables.participants, tables.shared_end, tables.scratch_stride, program.nanoseconds)
    return [steps, outer, list(program.inputs), list(program.outputs), shared, contents, numbers]


def sound(program: Program) -> None:
    """Every operand in the arena begins within it."""
    for step in program.steps:
        for slot in step.slots:
            if slot.space == "arena" and step.tasks:
                assert 0 <= slot.offset <= program.arena_bytes


def compiled_parts(data: Any) -> list[CompiledPlan]:
    engine = Engine(load(data).graph, Settings(threads=1), KernelCache())
    return list(engine.codes)  # type: ignore[arg-type]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("source", [boxes.detector, text_models.recogniser, text_models.detector])
@pytest.mark.parametrize("threads", [1, 2])
def test_as_python_makes_them(source: Any, threads: int) -> None:
    random = np.random.default_rng(0)
    by_native = 0
    for part in compiled_parts(source()):
        outline, common = part.outline, part._common
        names = outline._derivation.evaluate.variables
        for _ in range(40):
            sizes = {name: int(random.integers(1, 40)) * (8 if name in ("h", "w") else 1) for name in names}
            try:
                program = outline.instantiate(sizes, common.wiring)
            except OutOfBounds:  # sizes that only runs tell, and none does: more are kept than there are
                assert outline.instantiate_natively(sizes, part._native, threads) is None
                continue
            made = outline.instantiate_natively(sizes, part._native, threads)
            if made is None:
                continue
            by_native += 1
            assert described(*made) == described(program, make_tables(program, common, threads))
            sound(made[0])
    assert by_native > 30


def test_no_two_buffers_that_are_alive_together_overlap() -> None:
    (part,) = compiled_parts(text_models.recogniser())
    outline, common = part.outline, part._common
    random = np.random.default_rng(1)
    checked = 0
    for _ in range(30):
        sizes = {"n": int(random.integers(1, 7)), "w": int(random.integers(80, 800))}
        numbers = outline._derivation(sizes).numbers
        outline.instantiate(sizes, common.wiring)
        made = outline.instantiate_natively(sizes, part._native, 1)
        if made is None:
            continue
        assert part._native._plan is not None
        offsets = part._native._plan.offsets
        places = [
            (int(offset), int(offset + numbers[buffer.bytes]), buffer.life)
            for offset, buffer in zip(offsets, outline.arena, strict=True)
        ]
        for number, (begin, end, life) in enumerate(places):
            assert end <= made[0].arena_bytes
            for other_begin, other_end, other in places[:number]:
                together = life.first <= other.last and other.first <= life.last
                assert not together or end <= other_begin or other_end <= begin or begin == end
        checked += 1
    assert checked > 20


def test_tensors_beyond_all_memory() -> None:
    nodes = [node("Add", ["x", "y"], ["s"]), node("Mul", ["s", "s"], ["z"])]
    (part,) = compiled_parts(model(nodes, [tensor("x", ("A", 1)), tensor("y", (1, "B"))], [tensor("z", ("A", "B"))]))
    frames = ExecutionContextPool()
    for size in range(3, 9):
        part.program({"A": size, "B": 2 * size}, 1, frames)
    for huge in (1 << 31, 1 << 40):
        with pytest.raises(errors.Fail, match="beyond all memory"):
            part.program({"A": huge, "B": huge}, 1, frames)
    part.program({"A": 5, "B": 7}, 1, frames)
