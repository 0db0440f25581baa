"""Code of ours that fails in itself: the model runs all the same, without what failed, and says so.

Every test breaks a part of the compiler on purpose and compares with onnxruntime.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np
import onnxruntime
import pytest

from jitonnx import GraphOptimizationLevel, InferenceSession, SessionOptions, errors
from jitonnx.codegen import build
from jitonnx.engine.pipeline import Engine
from jitonnx.engine.programs import CompiledParametricProgram
from jitonnx.ir.defects import STRICT, DefectWarning
from jitonnx.ops.onnx.softmax import Softmax
from jitonnx.passes.rewriting import Edit
from jitonnx.plan import make
from tests.session.models import model, node, tensor


@pytest.fixture(autouse=True)
def lenient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As users have it."""
    monkeypatch.setenv(STRICT, "0")
    with warnings.catch_warnings():
        warnings.simplefilter("always", DefectWarning)
        yield


def broken(*_: Any, **__: Any) -> NoReturn:
    """Fail as a mistake in our code would."""
    raise TypeError("Bug: the size N is not known before the run")


def numbers(*shape: int) -> np.ndarray:
    """Some floats."""
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def small(sizes: Any = ("N", 4)) -> bytes:
    """y = Relu(softmax(x w) + b) v."""
    nodes = [
        node("MatMul", ["x", "w"], ["p"], "project"),
        node("Softmax", ["p"], ["s"], "soften", axis=-1),
        node("Add", ["s", "b"], ["a"], "shift"),
        node("Relu", ["a"], ["r"], "rectify"),
        node("MatMul", ["r", "v"], ["y"], "again"),
    ]
    constants = {"w": numbers(4, 4), "b": numbers(4), "v": numbers(4, 3)}
    return model(nodes, [tensor("x", sizes)], [tensor("y", (sizes[0], 3))], constants)


def options(level: int = 99) -> SessionOptions:
    """Options of a rewriting level."""
    made = SessionOptions()
    made.graph_optimization_level = GraphOptimizationLevel(level)
    return made


def check(data: bytes, feeds: Any = (), level: int = 99) -> InferenceSession:
    """The session, whose results are right, and whose users are told."""
    theirs = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    with pytest.warns(DefectWarning, match="report"):
        session = InferenceSession(data, options(level))
        for x in feeds or (numbers(3, 4), numbers(5, 4), numbers(3, 4)):
            for ours, expected in zip(session.run(None, {"x": x}), theirs.run(None, {"x": x}), strict=True):
                np.testing.assert_allclose(ours, expected, 1e-4, 1e-5)
    return session


def on_host(session: InferenceSession) -> dict[str, str]:
    """The nodes on the host, with the reasons."""
    schedule = session._model.compiled().engine.schedule
    return {} if schedule is None else {one.operator.name: reason for one, reason in schedule.reasons()}


@pytest.mark.parametrize("level", [0, 99])
def test_a_kernel_that_cannot_be_chosen(level: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One node is evaluated on the host, and the others are not."""
    whole = make.selector_of

    def selector(computation: Any) -> Callable[..., None]:
        return broken if computation.name == "Softmax" else whole(computation)

    monkeypatch.setattr(make, "selector_of", selector)
    found = on_host(check(small(), level=level))
    assert list(found) == ["Softmax"]
    assert "TypeError: the size N is not known" in found["Softmax"] and "Bug" not in found["Softmax"]


def test_what_fails_only_if_it_is_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = make._plan_group

    def plan(planner: Any, group: Any) -> None:
        if len({statement.node for statement in group.statements}) > 1:
            broken()
        whole(planner, group)

    monkeypatch.setattr(make, "_plan_group", plan)
    assert not on_host(check(small()))


def test_what_fails_for_the_graph_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make, "_multiply_together", broken)
    assert not on_host(check(small()))


def test_a_planner_that_never_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make, "_copy_outputs", broken)
    assert {"MatMul", "Softmax"} <= set(on_host(check(small())))


def test_an_operator_that_cannot_be_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Softmax, "lower", broken)
    assert list(on_host(check(small()))) == ["Softmax"]


def test_a_kernel_that_does_not_compile(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Here, and in a process of its own."""
    monkeypatch.setenv("JITONNX_CACHE_DIR", str(tmp_path))
    whole = build.make_object

    def made(code: Any, symbol: str, target: Any) -> bytes:
        return broken() if "Softmax" in type(code.spec).__name__ else whole(code, symbol, target)

    monkeypatch.setattr(build, "make_object", made)
    assert list(on_host(check(small()))) == ["Softmax"]


@pytest.mark.parametrize("sizes", [("N", 4), (3, 4)])
def test_a_rewrite_that_fails(sizes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Edit, "consume", broken)
    nodes = [node("Sigmoid", ["x"], ["s"]), node("Mul", ["x", "s"], ["y"])]
    session = check(model(nodes, [tensor("x", sizes)], [tensor("y", sizes)]), [numbers(3, 4)])
    assert any("failed to make it" in str(one) for one in session._model.compiled().engine.report.declined)


def test_an_engine_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails while rewrites are made is made without, and a schedule that cannot be planned is the host's."""
    whole = Engine._prepare

    def prepare(engine: Engine) -> None:
        if engine.settings.choices.caution < limit:
            broken()
        whole(engine)

    monkeypatch.setattr(Engine, "_prepare", prepare)
    for limit in (1, 2):
        found = on_host(check(small()))
        assert bool(found) == (limit == 2)
    for sizes in (("N", 4), (3, 4)):
        check(small(sizes), [numbers(3, 4)])


@pytest.mark.parametrize("sizes", [("N", 4), (3, 4)])
def test_a_program_that_cannot_be_made(sizes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails in a run has the engine exchanged, for this run and those behind it."""
    limit, whole, calls = 0, CompiledParametricProgram.program, list[Any]()

    def program(compiled: Any, *arguments: Any) -> Any:
        calls.append(compiled)
        return broken() if len(calls) <= limit else whole(compiled, *arguments)

    monkeypatch.setattr(CompiledParametricProgram, "program", program)
    for times in (1, 2):
        limit = times
        calls.clear()
        check(small(sizes), [numbers(3, 4), numbers(3, 4)])


def test_an_input_with_a_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make, "_copy_outputs", broken)
    data = model(
        [node("Add", ["x", "b"], ["y"])],
        [tensor("x", ("N", 4)), tensor("b", (4,))],
        [tensor("y", ("N", 4))],
        {"b": numbers(4)},
    )
    with pytest.warns(DefectWarning):
        session = InferenceSession(data)
        (result,) = session.run(None, {"x": numbers(2, 4), "b": np.zeros(4, np.float32)})
    np.testing.assert_array_equal(result, numbers(2, 4))


def test_where_nothing_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of ours, that asks for a report and says nothing of bugs."""
    monkeypatch.setattr(Engine, "_prepare", broken)
    with pytest.warns(DefectWarning), pytest.raises(errors.EngineError, match="report") as caught:
        InferenceSession(small())
    assert "Bug" not in str(caught.value)


def test_tests_are_strict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STRICT, "1")
    monkeypatch.setattr(make, "_copy_outputs", broken)
    with pytest.raises(TypeError):
        InferenceSession(small())


def test_errors_of_models_and_inputs_are_none(recwarn: Any) -> None:
    with pytest.raises(errors.InvalidArgument):
        InferenceSession(small()).run(None, {"x": numbers(3, 5)})
    assert not [one for one in recwarn if issubclass(one.category, DefectWarning)]


def test_a_number_taken_for_a_size_that_is_negative() -> None:
    """It costs what reads it its kernel, and no run is evaluated on NumPy as a whole."""
    nodes = [
        node("Mul", ["e", "one"], ["n"]),
        node("Range", ["zero", "n", "one"], ["r"]),
        node("Cast", ["r"], ["f"], to=1),
        node("ReduceSum", ["f"], ["s"], keepdims=0),
        node("MatMul", ["x", "w"], ["p"]),
        node("Add", ["p", "s"], ["y"]),
    ]
    constants = {"one": np.int64(1), "zero": np.int64(0), "w": numbers(4, 4)}
    data = model(nodes, [tensor("x", ("N", 4)), tensor("e", (), 7)], [tensor("y", ("N", 4))], constants)
    theirs, ours = onnxruntime.InferenceSession(data), InferenceSession(data)
    for count in (3, -2, 2, -1, 0, 5):
        feeds = {"x": numbers(3, 4), "e": np.array(count)}
        np.testing.assert_allclose(ours.run(None, feeds)[0], theirs.run(None, feeds)[0], 1e-5, 1e-5)
    assert ours._model.compiled().engine.status().numpy_runs == 0
