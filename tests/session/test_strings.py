"""Strings: fed, evaluated, handed out, as constants, beside numbers; and never in native memory."""

import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from jitonnx import GraphOptimizationLevel, InferenceSession, SessionOptions, load
from jitonnx.engine.schedule import NativeStep
from jitonnx.errors import Error, InvalidArgument
from jitonnx.ir.dtypes import DType
from jitonnx.plan.tensor import Buffer
from jitonnx.runtime.layout import address
from jitonnx.runtime.program import Slot, Step, Steps, TensorKinds
from jitonnx.runtime.tables import Common
from tests.session.string_models import CASES, REFUSED, Case, feeds_of, model_of, wholes

ROOT = Path(__file__).parents[2]
WHOLES = wholes()


def session_of(model: bytes, level: int = 99, **entries: str) -> InferenceSession:
    """A session with a level of rewrites and configuration entries."""
    options = SessionOptions()
    options.graph_optimization_level = GraphOptimizationLevel(level)
    for key, value in entries.items():
        options.add_session_config_entry(key.replace("_", "."), value)
    return InferenceSession(model, options)


def assert_equal(outputs: list[Any], expected: Any) -> None:
    """AssertionError unless all is equal, types and shapes too."""
    for output, known in zip(outputs, expected, strict=True):
        assert isinstance(output, np.ndarray) and output.dtype == known.dtype and output.shape == known.shape
        assert output.flags.owndata and output.flags.c_contiguous and output.flags.writeable
        assert repr(output.tolist()) == repr(known.tolist())
        assert output.dtype != object or all(type(text) is str for text in output.flat)


def expected_of(case: Case) -> Any:
    """What the case gives: as it says itself, else by onnxruntime."""
    if case.expected is not None:
        return case.expected
    session = onnxruntime.InferenceSession(model_of(case))
    # Of a tensor of rank 0 onnxruntime takes no element.
    return session.run(None, {name: np.array(x) for name, x in feeds_of(case).items()})


@pytest.mark.parametrize("case", CASES, ids=str)
def test_operator(case: Case) -> None:
    """Fed in fixed and in open sizes, and all constant; rewritten or not."""
    expected, feeds = expected_of(case), feeds_of(case)
    for level in (0, 99):
        for session in (session_of(model_of(case), level), session_of(model_of(case, symbolic=True), level)):
            for _ in range(3):
                assert_equal(session.run(None, feeds), expected)
        assert_equal(session_of(model_of(case, constant=True), level).run(None, {}), expected)


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_strings_that_are_no_numbers(case: Case) -> None:
    with pytest.raises(Exception, match="sto"):
        expected_of(case)
    (text,) = case.inputs[0]
    with pytest.raises(Error) as caught:
        session_of(model_of(case)).run(None, feeds_of(case))
    assert "tested" in str(caught.value) and repr(text) in str(caught.value)


@pytest.mark.parametrize("name", WHOLES)
def test_model(name: str) -> None:
    model, feeds, expected = WHOLES[name]
    if expected is None:
        expected = onnxruntime.InferenceSession(model).run(None, feeds)
    for session in (session_of(model, 0), session_of(model), session_of(model, jitonnx_compile="before")):
        for _ in range(3):
            outputs = session.run(None, feeds)
            assert_equal(outputs, expected)
            for output in outputs:
                output.fill("gone" if output.dtype == object else 0)  # outputs belong to the caller


def test_300_runs_with_fresh_strings(tmp_path: Path) -> None:
    """They go in a process whose allocator checks all memory: outputs are right, and no reference is lost or kept."""
    numbers = {"Cast", "CastLike", "numbers behind strings"}  # strings for which no others can stand
    cases = [(str(case), model_of(case), feeds_of(case), case.operator not in numbers) for case in CASES]
    models = [(name, whole.model, whole.feeds, name not in numbers) for name, whole in WHOLES.items()]
    given = tmp_path / "models"
    given.write_bytes(pickle.dumps([*models, *cases]))
    environment = {**os.environ, "PYTHONMALLOC": "debug", "PYTHONFAULTHANDLER": "1"}
    command = [sys.executable, "-m", "tests.session.string_runs", str(given)]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]


# ---------------------------------------------------------------------------------------------- parts, threads


def steps_of(session: InferenceSession) -> list[str]:
    """What the steps are: "native", or the operator that Python evaluates."""
    steps = session.engine.schedule.steps
    return ["native" if isinstance(step, NativeStep) else step.host.node.operator.name for step in steps]


def families_of(session: InferenceSession) -> set[str]:
    return {call.spec.family for step in session.engine.schedule.native_steps() for call in step.compiled.plan.calls}


def test_numbers_beside_strings_stay_compiled() -> None:
    session = session_of(WHOLES["strings beside numbers"].model)
    assert steps_of(session) == ["native", "Gather", "Concat"]
    assert families_of(session) >= {"gemm"}


def test_numbers_behind_strings_are_compiled() -> None:
    model, feeds, _ = WHOLES["numbers behind strings"]
    session = session_of(model, jitonnx_compile="before")
    session.run(None, feeds)
    assert steps_of(session) == ["Cast", "native", "Cast"]
    assert families_of(session) >= {"gemm"}


def test_strings_whose_shape_alone_counts_need_no_cut() -> None:
    model, feeds, _ = WHOLES["a shape of strings"]
    session = session_of(model)
    assert session.engine.schedule is None and session.engine.compiled is not None
    for texts in ([], ["a"], ["a", "b"] * 5):
        (y,) = session.run(None, {**feeds, "text": texts})
        assert y.tolist() == [3.0] * len(texts)


def test_several_threads() -> None:
    session = session_of(WHOLES["strings beside numbers"].model)
    failed: list[str] = []

    def run(number: int) -> None:
        for turn in range(100):
            texts = [f"{number} {turn} {place}" for place in range(1 + (number + turn) % 4)]
            x = np.full((len(texts), 4), number, np.float32)
            y, joined, text = session.run(None, {"x": x, "text": texts, "index": np.array([0])})
            if joined.tolist() != [*texts, "first"] or text.tolist() != texts or not (y[:, 0] == 24 * number).all():
                failed.append(f"{texts}: {joined}, {text}, {y}")

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


# ---------------------------------------------------------------------------------------------- feeds


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (np.array(["a", "b\0c", "é日", ""]), ["a", "b\0c", "é日", ""]),
        (np.array(["ab", "c"], ">U4"), ["ab", "c"]),
        (np.array([b"a", "é".encode()]), ["a", "é"]),
        (np.array([b"a\0", np.str_("b\0-"), "c\0", np.bytes_(b"d")], object), ["a\0", "b\0-", "c\0", "d"]),
        (np.array([["a", "b"], ["c", "d"]])[:, 1], ["b", "d"]),
        (["a", b"b", np.str_("c")], ["a", "b", "c"]),
        (("a", "b"), ["a", "b"]),
        ([], []),
        (np.array([], "<U3"), []),
        (np.char.array(["a"]), ["a"]),
    ],
    ids=lambda value: getattr(value, "dtype", type(value).__name__),
)
def test_feeds(given: Any, expected: list[str]) -> None:
    for name in ("an input that is an output", "a function's default"):
        session = session_of(WHOLES[name].model)
        for _ in range(2):
            outputs = session.run(None, {"text": given})
            assert outputs[0].dtype == object and outputs[0].tolist()[: len(expected)] == expected
            assert all(type(text) is str for text in outputs[0])


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (np.array([b"a", b"\xff"], object), "element 1 of input 'text' is not UTF-8"),
        (np.array(["a", "\ud800"], object), "element 1 of input 'text' is '.ud800', which UTF-8 cannot encode"),
        (np.array([1, 2]), r"Actual: \(tensor\(int64\)\) , expected: \(tensor\(string\)\).*\.astype\(str\)"),
        ("a", "Invalid rank for input: text Got: 0 Expected: 1"),
    ],
    ids=str,
)
def test_feeds_that_are_no_strings(given: Any, text: str) -> None:
    session = session_of(WHOLES["an input that is an output"].model)
    session.run(None, {"text": ["a", "b"]})  # what is plain is known by now
    with pytest.raises(InvalidArgument, match=text):
        session.run(None, {"text": given})


def test_a_feed_may_change_while_outputs_live() -> None:
    session = session_of(WHOLES["an input that is an output"].model)
    given = np.array(["a", "b"], object)
    (output,) = session.run(None, {"text": given})
    given[0] = "changed"
    assert output.tolist() == ["a", "b"]


def test_replaced_initializers() -> None:
    options = SessionOptions()
    options.add_initializer("labels", np.array(["x", b"y", "z\0"], object))
    (labels,) = InferenceSession(WHOLES["an initializer"].model, options).run(None, {"x": np.zeros(2, np.float32)})
    assert labels.tolist() == ["x", "y", "z\0"]
    options.add_initializer("labels", np.array(["x", 1, "z"], object))
    (labels,) = InferenceSession(WHOLES["an initializer"].model, options).run(None, {"x": np.zeros(2, np.float32)})
    assert labels.tolist() == ["x", "1", "z"]
    options.add_initializer("labels", np.array(["x", b"\xff", "z"], object))
    with pytest.raises(InvalidArgument, match="element 1 of what replaces initializer 'labels' is not UTF-8"):
        InferenceSession(WHOLES["an initializer"].model, options)


# ---------------------------------------------------------------------------------------------- kept and saved


def test_artifacts(tmp_path: Path) -> None:
    for name in ("strings beside numbers", "an initializer"):
        model, feeds, _ = WHOLES[name]
        session = session_of(model)
        expected = session.run(None, feeds)
        session.save(tmp_path / "model.jitonnx", {name: x.shape for name, x in feeds.items()})
        assert_equal(load(tmp_path / "model.jitonnx").run(None, feeds), expected)
    model, feeds, _ = WHOLES["a shape of strings"]
    for size in (3, (0, 5)):
        session_of(model).save(tmp_path / "model.jitonnx", {"text": (size,)})
        artifact = load(tmp_path / "model.jitonnx")
        assert artifact.run(None, {**feeds, "text": ["a", "b", "c"]})[0].tolist() == [3.0] * 3
        with pytest.raises(InvalidArgument, match=r"expected: \(tensor\(string\)\)"):
            artifact.run(None, {**feeds, "text": np.zeros(3)})


@pytest.mark.parametrize("name", ["an input of fixed size passed on", "constants"])
def test_pickles_and_models_in_the_cache(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITONNX_CACHE_DIR", str(tmp_path / "cache"))
    model, feeds, _ = WHOLES[name]
    path = tmp_path / "model.onnx"
    path.write_bytes(model)
    expected = InferenceSession(model).run(None, feeds)
    for _ in range(2):
        session = InferenceSession(path)
        assert_equal(session.run(None, feeds), expected)
        assert_equal(pickle.loads(pickle.dumps(session)).run(None, feeds), expected)


def test_in_the_background() -> None:
    model, feeds, _ = WHOLES["strings beside numbers"]
    session = session_of(model, jitonnx_compile="background")
    expected = session.run(None, feeds)
    assert session.wait_until_compiled(60)
    assert_equal(session.run(None, feeds), expected)


# ---------------------------------------------------------------------------------------------- never in native memory


def test_no_memory_is_described_for_strings() -> None:
    strings = np.array(["a"], object)
    with pytest.raises(AssertionError, match="Bug: the strings of 'text' would lie in native memory"):
        Buffer("text", "arena", 1, DType.STRING)
    with pytest.raises(TypeError, match="Bug: native code would read or write references to Python's objects"):
        address(strings)
    text = TensorKinds.of(["text"], [strings.dtype], [1])
    nothing = TensorKinds.of([], [], [])
    steps = Steps.of([Step("kernel", (Slot("input", 0),))])
    for inputs, outputs in ((text, nothing), (nothing, text)):
        wiring = steps.wiring if inputs is text else Steps.of([]).wiring
        with pytest.raises(ValueError, match="Bug: native code would read or write the strings of 'text'"):
            Common(wiring, [], inputs, outputs, {"kernel": 0})
    with pytest.raises(TypeError, match="Bug: native code"):
        Common(Steps.of([]).wiring, [strings], nothing, nothing, {})
