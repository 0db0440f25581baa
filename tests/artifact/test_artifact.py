"""Artifacts through sessions: what is saved comes back, and what is not as it should be is refused."""

import io
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jitonnx
from jitonnx import errors
from jitonnx.compat.backend import prepare
from jitonnx.model import load as load_model
from jitonnx.model.optimized import optimize_file
from jitonnx.runtime import artifact as reader
from jitonnx.runtime import artifact_writer
from jitonnx.runtime.artifact import PAGE_BYTES, ArtifactError, open_artifact
from jitonnx.runtime.linker import UnlinkableError
from jitonnx.support.artifact_magic import MAGIC
from jitonnx.target.cpu import CpuNeeded
from jitonnx.target.machine import Target
from jitonnx.tools.cli import main
from jitonnx.tools.info import describe
from tests.artifact.models import Parts, elementwise, images, pairs, parts, small_cnn, spoil
from tests.session.models import INT64, model, node, tensor
from tests.targets import on_x86_64

ROOT = Path(__file__).parents[2]
IS_LINKED_AHEAD = sys.platform == "linux" and os.uname().machine == "x86_64"


@pytest.fixture
def cnn(tmp_path: Path) -> Path:
    """An artifact of `small_cnn`."""
    path = tmp_path / "cnn.jitonnx"
    jitonnx.InferenceSession(small_cnn()).save(path)
    return path


def run(source: Any, feeds: dict[str, np.ndarray]) -> np.ndarray:
    """The output of a model, given as bytes, or of an artifact."""
    opened = jitonnx.InferenceSession if isinstance(source, bytes) and not source.startswith(MAGIC) else jitonnx.load
    (output,) = opened(source).run(None, feeds)
    return output


# ------------------------------------------------------------------------------------------------------- round trips


@pytest.mark.parametrize("most_held", [3, 512])
def test_files_are_written_by_spans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_held: int) -> None:
    """Pieces that a span's end cuts, several times too, and what is skipped between them."""
    monkeypatch.setattr(artifact_writer, "_SPAN_BYTES", 64)
    monkeypatch.setattr(artifact_writer, "_MOST_HELD", most_held)
    random, expected, pieces = np.random.default_rng(0), bytearray(), list[tuple[int, bytes]]()
    for size, skipped in ((10, 0), (54, 0), (0, 3), (1, 60), (300, 5), (7, 0), (64, 63), (2, 1)):
        expected += bytes(skipped)
        pieces.append((len(expected), random.bytes(size)))
        expected += pieces[-1][1]
    with open(tmp_path / "file", "wb") as file:
        artifact_writer._write(file.fileno(), pieces)
    assert (tmp_path / "file").read_bytes() == expected


def test_convolutions(cnn: Path) -> None:
    expected = run(small_cnn(), images())
    assert np.array_equal(run(cnn, images()), expected)
    assert np.array_equal(run(str(cnn), images()), expected)
    assert np.array_equal(run(cnn.read_bytes(), images()), expected)
    with open(cnn, "rb") as file:
        assert np.array_equal(run(file, images()), expected)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_same_bits_with_any_number_of_threads(cnn: Path, threads: int) -> None:
    options = jitonnx.SessionOptions()
    options.intra_op_num_threads = threads
    session = jitonnx.load(cnn, options)
    assert session.engine.settings.threads == threads
    for _ in range(3):
        assert np.array_equal(session.run(None, images())[0], run(small_cnn(), images()))


def test_several_shapes(tmp_path: Path) -> None:
    session = jitonnx.InferenceSession(elementwise())
    shapes = [(1, 5), (3, 5), (7, 64), (0, 4)]
    session.save(tmp_path / "e.jitonnx", [{"a": shape} for shape in shapes])
    opened = jitonnx.load(tmp_path / "e.jitonnx")
    for shape in [*shapes, *reversed(shapes)]:
        assert np.array_equal(opened.run(None, pairs(*shape))[0], session.run(None, pairs(*shape))[0])
    with pytest.raises(errors.InvalidArgument) as raised:
        opened.run(None, pairs(2, 5))
    text = "no program for the shapes a [2, 5], b [2, 5]. It was compiled for: a [1, 5], b [1, 5]; a [3, 5], b [3, 5]; "
    assert text in str(raised.value) and "jitonnx compile" in str(raised.value)
    assert np.array_equal(opened.run(["y"], pairs(3, 5))[0], session.run(None, pairs(3, 5))[0])


def test_shapes_that_break_what_a_plan_assumes(tmp_path: Path) -> None:
    """Inputs that disagree on a dimension have a plan of their own, and it is saved like any other."""
    nodes = [node("Add", ["a", "b"], ["y"])]
    source = model(nodes, [tensor("a", ("N",)), tensor("b", ("N",))], [tensor("y", ("N",))])
    feeds = {"a": np.ones(4, np.float32), "b": np.full(1, 2, np.float32)}
    session = jitonnx.InferenceSession(source)
    with pytest.warns(UserWarning, match="disagree"):
        session.run(None, feeds)
    session.run(None, {"a": feeds["a"], "b": feeds["a"]})
    session.save(tmp_path / "a.jitonnx")
    opened = jitonnx.load(tmp_path / "a.jitonnx")
    with pytest.warns(UserWarning, match="disagree"):
        assert opened.run(None, feeds)[0].tolist() == [3, 3, 3, 3]
    assert opened.run(None, {"a": feeds["a"], "b": feeds["a"]})[0].tolist() == [2, 2, 2, 2]


def test_shapes_it_was_run_with(tmp_path: Path) -> None:
    session = jitonnx.InferenceSession(elementwise())
    with pytest.raises(errors.InvalidArgument, match="say which shapes the artifact is for: 'a', 'b' can have any"):
        session.save(tmp_path / "e.jitonnx")
    session.run(None, pairs(2, 3))
    session.save(tmp_path / "e.jitonnx")
    assert open_artifact(tmp_path / "e.jitonnx").shapes == [((2, 3), (2, 3))]


def test_what_the_model_says(tmp_path: Path) -> None:
    source = model(
        [node("Relu", ["x"], ["y"])],
        [tensor("x", ("N", None, 2))],
        [tensor("y", ("N", None, 2))],
        producer_name="someone",
        domain="here",
        doc_string="what it is",
        model_version=3,
    )
    session = jitonnx.InferenceSession(source)
    session.save(tmp_path / "m.jitonnx", {"x": (1, 1, 2)})
    opened = jitonnx.load(tmp_path / "m.jitonnx")
    assert str(opened.get_inputs()) == str(session.get_inputs())
    assert str(opened.get_outputs()) == str(session.get_outputs())
    assert opened.get_modelmeta() == session.get_modelmeta()
    assert opened.get_overridable_initializers() == [] and opened.model_nodes == []
    assert opened.title == "m.jitonnx"
    saved = open_artifact(tmp_path / "m.jitonnx")
    assert saved.model.opsets == {"": 20} and saved.writer == jitonnx.__version__


def test_same_checks_as_with_the_model(tmp_path: Path) -> None:
    session = jitonnx.InferenceSession(elementwise())
    session.save(tmp_path / "e.jitonnx", {"a": (2, 3)})
    opened = jitonnx.load(tmp_path / "e.jitonnx")
    good = pairs(2, 3)
    wrong: list[Any] = [
        {"a": good["a"]},
        {**good, "c": good["a"]},
        {**good, "b": good["b"].astype(np.float64)},
        {**good, "b": good["b"][0]},
        {**good, "b": None},
        {**good, "b": [["x"]]},
    ]
    for feeds in wrong:
        told = []
        for either in (session, opened):
            with pytest.raises(errors.InvalidArgument) as raised:
                either.run(None, feeds)
            told.append(str(raised.value))
        assert told[0] == told[1]
    with pytest.raises(errors.InvalidArgument, match="Invalid output name:z"):
        opened.run(["z"], good)
    lists = {name: array.tolist() for name, array in good.items()}
    assert np.array_equal(opened.run(None, lists)[0], session.run(None, good)[0])
    strided = {name: np.asfortranarray(array) for name, array in good.items()}
    assert np.array_equal(opened.run(None, strided)[0], session.run(None, good)[0])


def test_errors_in_the_data(tmp_path: Path) -> None:
    """A gather tells of indices out of range, and runs again after that, from the artifact as from the model."""
    nodes = [node("Gather", ["table", "i"], ["y"], "look_up")]
    source = model(nodes, [tensor("i", (3,), INT64)], [tensor("y", (3,))], {"table": np.arange(5, dtype=np.float32)})
    jitonnx.InferenceSession(source).save(tmp_path / "g.jitonnx")
    for session in (jitonnx.InferenceSession(source), jitonnx.load(tmp_path / "g.jitonnx")):
        for _ in range(2):
            assert session.run(None, {"i": np.array([0, -1, 4])})[0].tolist() == [0, 4, 4]
            with pytest.raises(errors.InvalidArgument, match="look_up"):
                session.run(None, {"i": np.array([0, 5, 1])})


def test_options(cnn: Path, tmp_path: Path) -> None:
    options = jitonnx.SessionOptions()
    options.add_initializer("b1", np.zeros(8, np.float32))
    with pytest.raises(errors.Fail, match="not in an artifact"):
        jitonnx.load(cnn, options)
    options = jitonnx.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "profile")
    session = jitonnx.load(cnn, options)
    session.run(None, images())
    assert "gemm 1x5x16" in Path(session.end_profiling()).read_text()
    options = jitonnx.SessionOptions()
    options.intra_op_num_threads = 3
    jitonnx.InferenceSession(small_cnn(), options).save(cnn)
    assert open_artifact(cnn).threads == 3 and jitonnx.load(cnn).engine.settings.threads == 3


def test_code_is_opened_on_request_alone(cnn: Path, tmp_path: Path) -> None:
    """What is given as a model is never run as code, whatever its name or the format that is asked for."""
    model = tmp_path / "model.onnx"
    model.write_bytes(cnn.read_bytes())
    options = jitonnx.SessionOptions()
    options.add_session_config_entry("session.load_model_format", "ONNX")
    content = cnn.read_bytes()
    for source in (cnn, str(model), content, memoryview(content), lambda: io.BytesIO(content)):
        for given in (None, options):
            with pytest.raises(errors.InvalidProtobuf, match=r"machine code.* open it with jitonnx\.load"):
                jitonnx.InferenceSession(source() if callable(source) else source, given)

    def optimised(source: str) -> None:
        optimize_file(source, str(tmp_path / "optimised.onnx"), 99)

    for function in (prepare, describe, load_model, jitonnx.TrainingSession, optimised):
        with pytest.raises(errors.InvalidProtobuf, match=r"open it with jitonnx\.load"):
            function(str(model))
    options.add_session_config_entry("session.load_model_format", "JITONNX")
    for opened in (jitonnx.InferenceSession(str(model), options), jitonnx.load(model), jitonnx.load(cnn.read_bytes())):
        assert np.array_equal(opened.run(None, images())[0], run(small_cnn(), images()))
        assert opened.get_session_options().get_session_config_entry("session.load_model_format") == "JITONNX"


def test_what_only_reads_opens_no_code(cnn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checker, the differ and adapters, given an artifact by whatever name."""

    def opened(*given: Any, **_: Any) -> Any:
        raise AssertionError(f"an artifact was opened: {given}")

    monkeypatch.setattr(reader.Artifact, "__init__", opened)  # whoever opens one, by whatever name, makes this
    with pytest.raises(AssertionError, match="was opened"):
        jitonnx.load(cnn)
    (model := tmp_path / "model.onnx").write_bytes(cnn.read_bytes())
    (other := tmp_path / "other.onnx").write_bytes(small_cnn())
    for path in map(str, (cnn, model)):
        assert main(["check", path]) != 0
        for pair in ([path, str(other)], [str(other), path]):
            assert main(["diff", *pair]) != 0
        with pytest.raises(errors.Error):
            jitonnx.LoraAdapter().Load(path)
        with pytest.raises(errors.Error):
            jitonnx.AdapterFormat.read_adapter(path)


def test_processes_that_compile_know_no_artifacts() -> None:
    script = "import jitonnx.codegen.compiler, sys; sys.exit('jitonnx.runtime.artifact' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=False).returncode == 0


def test_what_load_refuses(tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(small_cnn())
    for source in (model, small_cnn()):
        with pytest.raises(errors.Fail, match=r"no compiled model of jitonnx.*InferenceSession opens ONNX models"):
            jitonnx.load(source)
    with pytest.raises(errors.NoSuchFile, match="File doesn't exist"):
        jitonnx.load(tmp_path / "none.jitonnx")
    with pytest.raises(errors.Fail, match="is no file"):
        jitonnx.load(tmp_path)
    with pytest.raises(TypeError, match="give the path of an artifact"):
        jitonnx.load(None)


def test_a_pickle_of_a_model_opens_no_code(tmp_path: Path) -> None:
    """A file that was a model when the session was pickled, and is an artifact when the pickle is read."""
    path = tmp_path / "model.onnx"
    path.write_bytes(small_cnn())
    session = jitonnx.InferenceSession(path)
    pickled = pickle.dumps(session)
    session.save(path)
    with pytest.raises(errors.InvalidProtobuf, match="machine code"):
        pickle.loads(pickled)


def test_pickled(cnn: Path) -> None:
    session = pickle.loads(pickle.dumps(jitonnx.load(cnn)))
    assert np.array_equal(session.run(None, images())[0], run(small_cnn(), images()))


# --------------------------------------------------------------------------------------------------- what is in a file


def test_constants_are_mapped_and_aligned(cnn: Path) -> None:
    place = parts(cnn)
    assert place.constants % PAGE_BYTES == 0 and place.end == cnn.stat().st_size
    constants = open_artifact(cnn).program(0).program.constants
    assert constants and all(array.ctypes.data % 64 == 0 and not array.flags.writeable for array in constants)
    from_bytes = open_artifact(b"".join([cnn.read_bytes()])).program(0).program.constants
    assert all(array.ctypes.data % 64 == 0 for array in from_bytes)


def test_equal_weights_are_stored_once(tmp_path: Path) -> None:
    """They are shared within a program, and between the programs for several shapes."""
    weights = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("Relu", ["h"], ["r"]), node("MatMul", ["r", "v"], ["y"])]
    shape = ("N", 256)
    source = model(nodes, [tensor("x", shape)], [tensor("y", shape)], {"w": weights, "v": weights.copy()})
    size = jitonnx.InferenceSession(source).save(tmp_path / "m.jitonnx", [{"x": (rows, 256)} for rows in (1, 2, 64)])
    assert size == (tmp_path / "m.jitonnx").stat().st_size < 1.5 * weights.nbytes


def test_explanation(cnn: Path) -> None:
    engine = jitonnx.load(cnn).engine
    assert "8 nodes became" in engine.explanation() and "programs for: x [1, 3, 12, 12]" in engine.explanation()


def test_written_whole_or_not_at_all(cnn: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = cnn.read_bytes()

    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="no space left"):
        jitonnx.InferenceSession(small_cnn()).save(cnn)
    assert cnn.read_bytes() == before and os.listdir(cnn.parent) == [cnn.name]


def test_code_that_llvm_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where objects cannot be linked ahead they are stored as they are."""

    def refuse(*_: object) -> None:
        raise UnlinkableError("not here")

    monkeypatch.setattr(artifact_writer, "link", refuse)
    path = tmp_path / "cnn.jitonnx"
    jitonnx.InferenceSession(small_cnn()).save(path)
    assert np.array_equal(run(path, images()), run(small_cnn(), images()))


# --------------------------------------------------------------------------------------------------- what is refused


def _never(*_: object) -> None:
    raise AssertionError("code was put into memory")


@pytest.mark.parametrize("part", [*range(reader.PROLOGUE.size), "digest", "header", "code", "code's end", "constants"])
def test_damage(cnn: Path, part: int | str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One wrong bit anywhere is found, in all but the constants without being asked, and before code is mapped."""
    monkeypatch.setattr(reader, "MappedCode", _never)
    monkeypatch.setattr(reader, "load", _never)
    place: Parts = parts(cnn)
    spoil(
        cnn,
        part
        if isinstance(part, int)
        else {
            "digest": reader.PROLOGUE.size,
            "header": (place.header + place.code) // 2,
            "code": (place.code + place.constants) // 2,
            "code's end": place.constants - 1,
            "constants": place.constants,
        }[part],
    )
    with pytest.raises(ArtifactError, match=r"damaged|cut off|format|no compiled model"):
        open_artifact(cnn, verify_constants=part == "constants")


def test_damaged_constants_are_found_on_request(cnn: Path) -> None:
    options = jitonnx.SessionOptions()
    options.add_session_config_entry("jitonnx.verify", "1")
    jitonnx.load(cnn, options)
    spoil(cnn, parts(cnn).constants)
    jitonnx.load(cnn)
    with pytest.raises(errors.Fail, match="constant 0 is not the one it was written with"):
        jitonnx.load(cnn, options)


@pytest.mark.parametrize("keep", [0, 5, 12, 60, 100, 3000, -4096, -1])
def test_truncated(cnn: Path, keep: int) -> None:
    content = cnn.read_bytes()
    cnn.write_bytes(content[:keep])
    with pytest.raises(ArtifactError, match="cut off"):
        open_artifact(cnn)
    with pytest.raises(errors.Error):
        jitonnx.load(cnn)
    cnn.write_bytes(content + b"\0")
    with pytest.raises(errors.Fail, match="should have"):
        jitonnx.load(cnn)


@pytest.mark.parametrize(
    ("other", "text"),
    [
        (CpuNeeded(*os.uname()[4:5], sys.platform, "imaginary", ("avx2048",), 256), "the CPU imaginary, and this one"),
        (CpuNeeded("pdp11", sys.platform, "pdp11", (), 2), "compiled for pdp11 on"),
        (CpuNeeded(os.uname().machine, "multics", "x", (), 16), f"on multics, and this is {os.uname().machine}"),
    ],
)
def test_other_cpu(tmp_path: Path, other: CpuNeeded, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Target, "needed_by", lambda self, features: other)
    path = tmp_path / "cnn.jitonnx"
    jitonnx.InferenceSession(small_cnn()).save(path)
    monkeypatch.setattr(reader, "MappedCode", _never)
    with pytest.raises(errors.Fail, match=re.escape(text)) as raised:
        jitonnx.load(path)
    assert "Compile the model again for this machine" in str(raised.value)


def test_writable_by_others(cnn: Path) -> None:
    cnn.chmod(0o646)
    with pytest.raises(errors.Fail, match=rf"holds machine code.*mode 646\): chmod go-w {re.escape(str(cnn))}"):
        jitonnx.load(cnn)
    run(cnn.read_bytes(), images())  # whoever reads it themselves has decided
    cnn.chmod(0o644)
    cnn.parent.chmod(0o757)
    with pytest.raises(errors.Fail, match=r"can be written by other users \(mode 757\)"):
        jitonnx.load(cnn)
    cnn.parent.chmod(0o1757)  # as /tmp: nobody else can exchange the file
    run(cnn, images())


def test_what_cannot_be_saved(cnn: Path, tmp_path: Path) -> None:
    with pytest.raises(errors.Fail, match="opened from an artifact"):
        jitonnx.load(cnn).save(tmp_path / "again.jitonnx")
    session = jitonnx.InferenceSession(elementwise())
    for shapes, text in (({"c": (1, 2)}, "no input 'c'"), ({}, "leave N, M open"), ({"a": (1, 2, 3)}, "does not fit")):
        with pytest.raises(errors.InvalidArgument, match=text):
            session.save(tmp_path / "e.jitonnx", shapes)
    assert not (tmp_path / "e.jitonnx").exists()


@on_x86_64
def test_for_another_cpu(tmp_path: Path) -> None:
    """A model can be compiled for a CPU that is not here; then it can be saved, and not run."""
    options = jitonnx.SessionOptions()
    options.add_session_config_entry("jitonnx.cpu", "x86-64-v3")
    path = tmp_path / "v3.jitonnx"
    jitonnx.InferenceSession(small_cnn(), options).save(path)
    needed = open_artifact(path).cpu
    assert needed.name == "x86-64-v3" and {"avx2", "fma"} <= set(needed.features) and needed.vector_bytes == 32
    assert np.allclose(run(path, images()), run(small_cnn(), images()), atol=1e-5)
    options.add_session_config_entry("jitonnx.cpu", "sapphirerapids")
    foreign = jitonnx.InferenceSession(small_cnn(), options)
    if foreign.engine.foreign:
        with pytest.raises(errors.Fail, match="can be saved but not run here"):
            foreign.run(None, images())
    foreign.save(path)
    options.add_session_config_entry("jitonnx.cpu", "z80")
    with pytest.raises(errors.InvalidArgument, match=r"jitonnx\.cpu: CPU 'z80' is not known"):
        jitonnx.InferenceSession(small_cnn(), options)


# --------------------------------------------------------------------------------------------------------- processes

_SCRIPT = """
import sys
import numpy as np
import jitonnx
session = jitonnx.load(sys.argv[1])
with np.load(sys.argv[2]) as stored:
    np.save(sys.argv[3], session.run(None, dict(stored))[0])
print(*sys.modules)
"""


def _start(artifact: Path, number: int = 0) -> subprocess.Popen[str]:
    """A process that runs the artifact, and has a kernel cache of its own, which is empty."""
    folder = artifact.parent
    arguments = [sys.executable, "-c", _SCRIPT, artifact, folder / "feeds.npz", folder / f"{number}.npy"]
    return subprocess.Popen(
        list(map(str, arguments)),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "JITONNX_CACHE_DIR": str(folder / "cache")},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_imports_nothing_that_compiles(tmp_path: Path) -> None:
    """The model is gone, nothing is compiled or cached, and neither LLVM nor our compiler is imported."""
    source, artifact = tmp_path / "cnn.onnx", tmp_path / "cnn.jitonnx"
    source.write_bytes(small_cnn())
    session = jitonnx.InferenceSession(source)
    session.save(artifact)
    source.unlink()
    np.savez(tmp_path / "feeds.npz", **images())
    with _start(artifact) as process:
        modules = set(process.communicate()[0].split())
    assert process.returncode == 0
    assert np.array_equal(np.load(tmp_path / "0.npy"), session.run(None, images())[0])
    ours = {"codegen", "plan", "passes", "ops", "model", "kernels", "emit", "target.machine"}
    ours |= {"engine.pipeline", "engine.schedule", "api.saved.saving", "runtime.linker"}
    unwanted = {"onnx", *(f"jitonnx.{name}" for name in ours), "jitonnx.proto.onnx_pb2"}
    if IS_LINKED_AHEAD:
        unwanted |= {"llvmlite", "llvmlite.binding"}
    assert not unwanted & modules
    assert not (tmp_path / "cache").exists()


def test_four_processes(cnn: Path) -> None:
    np.savez(cnn.parent / "feeds.npz", **images())
    processes = [_start(cnn, number) for number in range(4)]
    for process in processes:
        process.communicate(timeout=60)
    assert [process.returncode for process in processes] == [0] * 4
    expected = run(small_cnn(), images())
    assert all(np.array_equal(np.load(cnn.parent / f"{number}.npy"), expected) for number in range(4))
