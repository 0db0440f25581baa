"""Artifacts for ranges of shapes: programs are made of the plan in the file, with the bits of a session's."""

import importlib
import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

import jitonnx
import jitonnx.kernels
from jitonnx import errors
from jitonnx.engine.pipeline import Engine
from jitonnx.engine.schedule_message import ScheduleError
from jitonnx.engine.schedule_message import from_message as steps_from_message
from jitonnx.engine.schedule_message import to_message as steps_to_message
from jitonnx.kernels.spec import KernelSpec
from jitonnx.plan.parametric_program_message import ParametricProgramError, from_message, to_message
from jitonnx.runtime.artifact import open_artifact
from tests.artifact.models import elementwise, images, pairs, parts, small_cnn, spoil
from tests.session.models import BOOL, INT64, STRING, model, node, tensor

ROOT = Path(__file__).parents[2]
RNG = np.random.default_rng(3)


def weights(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / 4).astype(np.float32)


def attention() -> bytes:
    """x [batch, seq, 16] -> y [batch, seq, 8]: four heads, a normalisation, two products, a scale by the length."""
    nodes = [
        *(node("MatMul", ["x", f"w{name}"], [f"{name}0"]) for name in "qkv"),
        *(node("Reshape", [f"{name}0", "heads"], [f"{name}1"]) for name in "qkv"),
        *(node("Transpose", [f"{name}1"], [name], perm=[0, 2, 1, 3]) for name in "qv"),
        node("Transpose", ["k1"], ["k"], perm=[0, 2, 3, 1]),
        node("MatMul", ["q", "k"], ["s"]),
        node("Softmax", ["s"], ["p"], axis=-1),
        node("MatMul", ["p", "v"], ["o"]),
        node("Transpose", ["o"], ["o1"], perm=[0, 2, 1, 3]),
        node("Reshape", ["o1", "merged"], ["o2"]),
        node("Add", ["o2", "x"], ["r"]),
        node("LayerNormalization", ["r", "scale", "bias"], ["n"], axis=-1),
        node("MatMul", ["n", "w1"], ["h"]),
        node("Tanh", ["h"], ["t"]),
        node("MatMul", ["t", "w2"], ["z"]),
        node("Shape", ["x"], ["length"], start=1, end=2),
        node("Cast", ["length"], ["divisor"], to=1),
        node("Div", ["z", "divisor"], ["y"]),
    ]
    constants = {
        **{f"w{name}": weights(16, 16) for name in "qkv"},
        "heads": np.array([0, 0, 4, 4]),
        "merged": np.array([0, 0, 16]),
        "scale": weights(16),
        "bias": weights(16),
        "w1": weights(16, 32),
        "w2": weights(32, 8),
    }
    return model(nodes, [tensor("x", ("batch", "seq", 16))], [tensor("y", ("batch", "seq", 8))], constants)


def sequences(batch: int, length: int) -> dict[str, np.ndarray]:
    """Inputs of `attention`."""
    return {"x": np.random.default_rng(length).standard_normal((batch, length, 16)).astype(np.float32)}


def saved(source: bytes, path: Path, shapes: Any) -> tuple[jitonnx.InferenceSession, jitonnx.InferenceSession]:
    """A session for the model, and one for an artifact made of it."""
    session = jitonnx.InferenceSession(source)
    session.save(path, shapes)
    return session, jitonnx.load(path)


def same(one: jitonnx.InferenceSession, other: jitonnx.InferenceSession, feeds: dict[str, np.ndarray]) -> bool:
    return all(map(np.array_equal, one.run(None, feeds), other.run(None, feeds)))


# ------------------------------------------------------------------------------------------------------- round trips


def test_attention(tmp_path: Path) -> None:
    session, opened = saved(attention(), tmp_path / "a.jitonnx", {"x": ((0, 4), (1, 300), 16)})
    for batch, length in [(1, 1), (1, 7), (4, 300), (2, 33), (1, 7), (0, 5), (3, 128)]:
        assert same(session, opened, sequences(batch, length))
    assert open_artifact(tmp_path / "a.jitonnx").shapes == []
    assert "programs for: x [0:4, 1:300, 16]" in opened.engine.explanation()


def test_images(tmp_path: Path) -> None:
    """Convolutions, pooling and their sizes, quotients among them, with the batch open."""
    session, opened = saved(small_cnn("N"), tmp_path / "c.jitonnx", {"x": ((1, 8), 3, 12, 12)})
    for batch in (1, 2, 8, 5):
        assert same(session, opened, images(batch))


def test_open_sizes_of_images(tmp_path: Path) -> None:
    nodes = [
        node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3], strides=[2, 2]),
        node("MaxPool", ["c"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("GlobalAveragePool", ["p"], ["y"]),
    ]
    source = model(nodes, [tensor("x", (1, 3, "H", "W"))], [tensor("y", (1, 8, 1, 1))], {"w": weights(8, 3, 3, 3)})
    session, opened = saved(source, tmp_path / "c.jitonnx", {"x": (1, 3, (9, 64), (9, 64))})
    for height, width in [(9, 9), (64, 64), (13, 30)]:
        assert same(session, opened, {"x": np.random.default_rng(0).random((1, 3, height, width), np.float32)})


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_same_bits_with_any_number_of_threads(tmp_path: Path, threads: int) -> None:
    session, _ = saved(attention(), tmp_path / "a.jitonnx", {"x": ((1, 8), (1, 300), 16)})
    options = jitonnx.SessionOptions()
    options.intra_op_num_threads = threads
    assert same(session, jitonnx.load(tmp_path / "a.jitonnx", options), sequences(8, 200))


def test_several_ranges_and_shapes(tmp_path: Path) -> None:
    """Ranges share a plan; shapes have programs of their own beside them."""
    wanted = [{"a": (1, (1, 8))}, {"a": (16, 16)}, {"a": (2, (4, 8))}]
    session, opened = saved(elementwise(), tmp_path / "e.jitonnx", wanted)
    for rows, columns in [(1, 3), (16, 16), (2, 8)]:
        assert same(session, opened, pairs(rows, columns))
    artifact = open_artifact(tmp_path / "e.jitonnx")
    assert artifact.shapes == [((16, 16), (16, 16))]
    assert [one.part for one in artifact.ranges] == [0, 0]
    with pytest.raises(errors.InvalidArgument) as raised:
        opened.run(None, pairs(2, 3))
    assert "compiled for: a [16, 16], b [16, 16]; a [1, 1:8], b [1, 1:8]; a [2, 4:8], b [2, 4:8]." in str(raised.value)


def test_errors_in_the_data(tmp_path: Path) -> None:
    """The words that kernels set on an error are among the constants of a plan as they are among a program's."""
    nodes = [node("Gather", ["table", "i"], ["y"], "look_up")]
    source = model(
        nodes, [tensor("i", ("N",), INT64)], [tensor("y", ("N",))], {"table": np.arange(5, dtype=np.float32)}
    )
    _, opened = saved(source, tmp_path / "g.jitonnx", {"i": ((1, 9),)})
    for _ in range(2):
        assert opened.run(None, {"i": np.array([0, -1, 4])})[0].tolist() == [0, 4, 4]
        with pytest.raises(errors.InvalidArgument, match="look_up"):
            opened.run(None, {"i": np.array([0, 5, 1])})


def test_programs_are_given_up_for_new_ones(tmp_path: Path) -> None:
    session, _ = saved(elementwise(), tmp_path / "e.jitonnx", {"a": ((1, 2000), (1, 2000))})
    options = jitonnx.SessionOptions()
    options.add_session_config_entry("jitonnx.program_megabytes", "1")
    opened = jitonnx.load(tmp_path / "e.jitonnx", options)
    for rows in range(1, 1200):
        opened.engine.program(((rows, 1), (rows, 1)))
    assert opened.engine.known_program(((1, 1), (1, 1))) is None
    assert opened.engine.known_program(((1199, 1), (1199, 1))) is not None
    assert same(session, opened, pairs(1, 1))


# ----------------------------------------------------------------------------------------------------------- refusals


def test_outside_of_the_range(tmp_path: Path) -> None:
    _, opened = saved(attention(), tmp_path / "a.jitonnx", {"x": (1, (4, 64), 16)})
    for batch, length in [(1, 3), (1, 65), (2, 8)]:
        with pytest.raises(errors.InvalidArgument) as raised:
            opened.run(None, sequences(batch, length))
        text = (
            f"no program for the shapes x [{batch}, {length}, 16] (input 'x' is outside of the range). It was compiled"
        )
        assert text in str(raised.value) and "for: x [1, 4:64, 16]." in str(raised.value)
    with pytest.raises(errors.InvalidArgument, match="rank"):
        opened.run(None, {"x": np.zeros((4, 16), np.float32)})


def test_what_a_plan_assumes(tmp_path: Path) -> None:
    nodes = [node("Add", ["a", "b"], ["y"])]
    source = model(nodes, [tensor("a", ("N",)), tensor("b", ("M",))], [tensor("y", ("K",))])
    session, opened = saved(source, tmp_path / "a.jitonnx", {"a": ((1, 8),), "b": ((1, 8),)})
    ones = np.ones(8, np.float32)
    assert same(session, opened, {"a": ones[:5], "b": ones[:5]})
    with pytest.raises(errors.InvalidArgument, match=r"\[5\], \[1\], although .* the code is for (N = M|M = N)\. Comp"):
        opened.run(None, {"a": ones[:5], "b": ones[:1]})


def test_the_ends_of_a_range_may_break_what_a_plan_assumes(tmp_path: Path) -> None:
    nodes = [node("Squeeze", ["a"], ["s"]), node("Neg", ["s"], ["y"])]
    source = model(nodes, [tensor("a", ("N", 3))], [tensor("y", None)])
    session, opened = saved(source, tmp_path / "a.jitonnx", {"a": ((1, 8), 3)})
    ones = np.ones((8, 3), np.float32)
    for rows in (5, 1, 8, 2, 1):
        assert same(session, opened, {"a": ones[:rows]})


def test_models_that_are_run_in_steps(tmp_path: Path) -> None:
    """They are saved for single shapes, and for ranges of them."""
    find = model([node("NonZero", ["x"], ["y"], "find")], [tensor("x", ("N",))], [tensor("y", (1, None), INT64)])
    for source, served, inside, outside in (
        (find, (4,), [(4,)], (5,)),
        (find, ((1, 9),), [(1,), (9,)], (10,)),
        (cut_for_open_sizes(), (1, 1, (4, 9), 4), [(1, 1, 4, 4), (1, 1, 9, 4)], (1, 1, 3, 4)),
    ):
        session, opened = saved(source, tmp_path / "r.jitonnx", {"x": served})
        for shape in inside:
            assert same(session, opened, {"x": np.arange(np.prod(shape), dtype=np.float32).reshape(shape)})
        with pytest.raises(errors.InvalidArgument, match="It was compiled for: x "):
            opened.run(None, {"x": np.ones(outside, np.float32)})
    assert "NonZero" in saved(find, tmp_path / "r.jitonnx", {"x": (4,)})[1].engine.explanation()


def test_steps_that_meet_what_they_are_not_for(tmp_path: Path) -> None:
    """A session for the model evaluates such a run on NumPy; an artifact has no model."""
    nodes = [node("Compress", ["x", "c"], ["a"]), node("Compress", ["x", "d"], ["b"]), node("Add", ["a", "b"], ["y"])]
    inputs = [tensor("x", ("N",)), *(tensor(name, ("N",), BOOL) for name in "cd")]
    session, opened = saved(model(nodes, inputs, [tensor("y", None)]), tmp_path / "m.jitonnx", {"x": ((1, 9),)})
    feeds = {"x": np.arange(4, dtype=np.float32), "c": np.arange(4) > 1, "d": np.arange(4) < 2}
    assert same(session, opened, feeds)
    feeds["d"] = np.arange(4) < 1
    assert session.run(None, feeds)[0].tolist() == [2, 3]
    with pytest.raises(errors.Fail, match=r"was not compiled for what this run meets: .* was taken to be"):
        opened.run(None, feeds)


def test_what_has_no_ranges(tmp_path: Path) -> None:
    source = model([node("Relu", ["x"], ["y"])], [tensor("x", None)], [tensor("y", None)])
    with pytest.raises(errors.Fail, match="no single plan serves ranges of shapes: not even the rank"):
        jitonnx.InferenceSession(source).save(tmp_path / "r.jitonnx", {"x": ((1, 4),)})
    assert not (tmp_path / "r.jitonnx").exists()


def cut_for_open_sizes() -> bytes:
    """An image and how many rows it has, 5 at most; as many as a comparison of sizes says."""
    nodes = [
        node("Shape", ["x"], ["rows"], start=2, end=3),
        node("Less", ["rows", "five"], ["few"]),
        node("Where", ["few", "rows", "five"], ["chosen"]),
        node("ConstantOfShape", ["chosen"], ["ones"], value=helper.make_tensor("one", 1, [1], [1.0])),
        node("ReduceSum", ["ones"], ["number"], keepdims=0),
        node("Add", ["x", "number"], ["y"]),
    ]
    return model(nodes, [tensor("x", ("N", 1, "H", "W"))], [tensor("y", None)], {"five": np.array([5])})


def test_a_range_where_the_rest_is_known(tmp_path: Path) -> None:
    """Fixed sizes are made use of where the model cannot be planned without them."""
    options = jitonnx.SessionOptions()
    options.add_session_config_entry("jitonnx.compile", "before")
    session = jitonnx.InferenceSession(cut_for_open_sizes(), options)
    _, opened = saved(cut_for_open_sizes(), tmp_path / "r.jitonnx", {"x": ((1, 4), 1, 5, 6)})
    for batch in (1, 3, 4):
        assert same(session, opened, {"x": np.random.default_rng(batch).random((batch, 1, 5, 6), np.float32)})


@pytest.mark.parametrize("size", [(3, 1), (1, 2, 3), (-1, 4), ()])
def test_what_is_no_range(tmp_path: Path, size: Any) -> None:
    with pytest.raises(errors.InvalidArgument, match="is no range of sizes for 'a'"):
        jitonnx.InferenceSession(elementwise()).save(tmp_path / "e.jitonnx", {"a": (1, size)})


def test_ranges_that_do_not_fit(tmp_path: Path) -> None:
    session = jitonnx.InferenceSession(elementwise())
    with pytest.raises(errors.InvalidArgument, match=r"'a' is \[4, 2\] and 'b' is \[5, 2\].*do not broadcast"):
        session.save(tmp_path / "e.jitonnx", {"a": ((1, 4), 2), "b": ((1, 5), 2)})
    with pytest.raises(errors.InvalidArgument, match="does not fit"):
        jitonnx.InferenceSession(small_cnn("N")).save(tmp_path / "e.jitonnx", {"x": (1, (1, 3), 12, 12)})


# ------------------------------------------------------------------------------------------------------------ messages


def test_damage(tmp_path: Path) -> None:
    """A plan lies in the header, which is compared with its checksum before anything is made of it."""
    path = tmp_path / "a.jitonnx"
    saved(attention(), path, {"x": (1, (1, 64), 16)})
    whole = path.read_bytes()
    begin, end = parts(path).header, parts(path).code
    for offset in np.linspace(begin, end - 1, 20, dtype=int).tolist():
        path.write_bytes(whole)
        spoil(path, offset)
        with pytest.raises(errors.Fail, match="damaged"):
            jitonnx.load(path)


def message() -> tuple[dict[str, Any], list[Any]]:
    engine = jitonnx.InferenceSession(attention()).engine
    assert isinstance(engine, Engine) and engine.compiled is not None
    plan, arrays = to_message(engine.compiled.plan.outline)
    return json.loads(json.dumps(plan)), arrays


def test_an_outline_comes_back() -> None:
    plan, arrays = message()
    outline = from_message(plan, arrays)
    again, _ = to_message(outline)
    assert json.loads(json.dumps(again)) == plan


def test_resized_images(tmp_path: Path) -> None:
    """Tables of positions and weights are made with each program, also where NumPy's are read of an artifact."""
    nodes = [
        node("Resize", ["x", "", "scales"], ["doubled"], mode="linear"),
        node("Resize", ["doubled", "", "", "sizes"], ["y"], mode="linear", antialias=1, axes=[2, 3]),
    ]
    constants = {"scales": np.array([1, 1, 2, 1.5], np.float32), "sizes": np.array([10, 20])}
    source = model(nodes, [tensor("x", (1, 3, "H", "W"))], [tensor("y", (1, 3, 10, 20))], constants)
    session, opened = saved(source, tmp_path / "r.jitonnx", {"x": (1, 3, (1, 64), (1, 64))})
    for height, width in [(9, 9), (64, 64), (1, 30), (9, 9)]:
        assert same(session, opened, {"x": np.random.default_rng(0).random((1, 3, height, width), np.float32)})


@pytest.mark.parametrize("fault", ["family", "name", "field", "number", "operand", "expression", "function"])
def test_messages_that_are_no_plan(fault: str) -> None:
    plan, arrays = message()
    if fault == "family":
        plan["specs"][0][0] = "gemm.kernel"
    elif fault == "name":
        plan["specs"][0][1] = "Work"
    elif fault == "field":
        plan["specs"][0][2]["nonsense"] = None
    elif fault == "number":
        plan["numbers"].append(1 << 20)
    elif fault == "operand":
        plan["calls"][0][3].append(0)
    else:
        left = len(plan["expressions"]) if fault == "expression" else 0
        plan["expressions"].append([[1, ["//" if fault == "expression" else "exec", left, 0]]])
    with pytest.raises(ParametricProgramError, match="a plan that cannot be read"):
        from_message(plan, arrays)


@pytest.mark.parametrize("fault", ["module", "class", "attribute", "step", "value", "type", "array"])
def test_messages_that_are_no_schedule(fault: str) -> None:
    nodes = [node("StringNormalizer", ["t"], ["u"], stopwords=["a"]), node("Identity", ["u"], ["y"])]
    engine = jitonnx.InferenceSession(model(nodes, [tensor("t", ("N",), STRING)], [tensor("y", None, STRING)])).engine
    assert isinstance(engine, Engine) and engine.schedule_plan is not None
    message, arrays = steps_to_message(engine.schedule_plan, engine.input_conditions)
    steps = json.loads(json.dumps(message))
    assert steps_from_message(steps, arrays)
    _, host, *_ = next(step for step in steps["graph"]["steps"] if step[0] == "host")
    if fault in ("module", "class"):
        host[1][fault == "class"] = {"module": "..errors", "class": "Any"}[fault]
    elif fault == "attribute":
        host[1][2]["nonsense"] = 1
    elif fault == "step":
        steps["graph"]["steps"].append(["exec"])
    elif fault == "value":
        host[2][0] = len(steps["values"])
    else:
        steps["values"][0][1 if fault == "type" else 2] = ["nonsense"] if fault == "type" else [7, "float32", [1]]
    with pytest.raises(ScheduleError, match="steps that cannot be read"):
        steps_from_message(steps, arrays)


def test_every_spec_can_be_found() -> None:
    """What names a spec in a file is its family and its class: the module `spec` of the family has to hold it, unless
    it is but the base of those of several families, without buffers."""
    for module in pkgutil.walk_packages(jitonnx.kernels.__path__, "jitonnx.kernels."):
        if module.name.endswith(".spec"):
            importlib.import_module(module.name)
    every = [*_subclasses(KernelSpec)]
    library = [spec for spec in every if spec.__module__.startswith("jitonnx.kernels.") and hasattr(spec, "BUFFERS")]
    assert len(library) > 20
    for spec in library:
        family = spec.__module__.split(".")[2]
        if spec.__name__ != "BlasSpec":  # refused: it calls this process's library
            assert getattr(importlib.import_module(f"jitonnx.kernels.{family}.spec"), spec.__name__) is spec


def _subclasses(cls: type) -> list[type]:
    return [found for direct in cls.__subclasses__() for found in (direct, *_subclasses(direct))]


# ----------------------------------------------------------------------------------------------------------- processes

_SCRIPT = """
import sys
import numpy as np
import jitonnx
session = jitonnx.load(sys.argv[1])
with np.load(sys.argv[2]) as stored:
    np.savez(sys.argv[3], **{name: session.run(None, {"x": stored[name]})[0] for name in stored})
print(*sys.modules)
"""


def test_imports_nothing_that_compiles(tmp_path: Path) -> None:
    """It runs without the model and a kernel cache; neither LLVM nor what plans and lowers is imported."""
    session, _ = saved(attention(), tmp_path / "a.jitonnx", {"x": (1, (1, 64), 16)})
    feeds = {f"x{length}": sequences(1, length)["x"] for length in (1, 20, 64)}
    np.savez(tmp_path / "feeds.npz", **feeds)
    arguments = [sys.executable, "-c", _SCRIPT, *(str(tmp_path / name) for name in ("a.jitonnx", "feeds.npz", "y.npz"))]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JITONNX_CACHE_DIR": str(tmp_path / "cache")}
    modules = subprocess.run(arguments, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    with np.load(tmp_path / "y.npz") as outputs:
        for name, array in feeds.items():
            assert np.array_equal(outputs[name], session.run(None, {"x": array})[0])
    ours = [
        "codegen",
        "passes",
        "ops",
        "model",
        "target.machine",
        "engine.pipeline",
        "engine.schedule",
        "api.saved.saving",
    ]
    ours += [
        "plan.plan",
        "plan.planner",
        "plan.make",
        "plan.selection",
        "plan.tensor",
        "ir.computation.expressions",
        "ir.graph",
    ]
    ours += ["emit.module", "emit.builder", "kernels.gemm.kernel"]
    unwanted = {"onnx", *(f"jitonnx.{name}" for name in ours), "jitonnx.proto.onnx_pb2"}
    if sys.platform == "linux" and os.uname().machine == "x86_64":
        unwanted |= {"llvmlite", "llvmlite.binding"}
    assert not unwanted & set(modules.split())
    assert not (tmp_path / "cache").exists()
