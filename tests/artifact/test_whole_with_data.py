"""Models with data in other files, kept as a whole: packed weights in the kernel cache, others where they lie."""

import os
import shutil
import threading
import time
from pathlib import Path

import numpy as np
import onnx
import pytest

from jitonnx.api.saved import model_cache
from jitonnx.api.session import InferenceSession
from jitonnx.errors import Fail
from jitonnx.runtime.artifact import ArtifactError, open_artifact
from jitonnx.support import mapped_files
from jitonnx.support.background_jobs import StoppedError
from jitonnx.support.mapped_files import FileChangedError
from tests.artifact.test_whole import OLD, is_cached, options, wait_for
from tests.session.models import FLOAT, INT64, node, proto, tensor

ROWS, WIDTH = 3000, 128


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder `m` with a model, a table that is read where it lies and a matrix that is packed in a file beside it."""
    monkeypatch.setenv("JITONNX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(mapped_files, "COPIED_BYTES", 1 << 16)
    made = tmp_path / "m"
    made.mkdir()
    write(made / "model.onnx", 0)
    time.sleep(OLD)
    return made


def write(path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    constants = {
        "table": rng.standard_normal((ROWS, WIDTH), np.float32),
        "matrix": rng.standard_normal((WIDTH, 96), np.float32),
    }
    nodes = [
        node("Gather", ["table", "ids"], ["rows"]),
        node("Add", ["rows", "x"], ["sums"]),
        node("MatMul", ["sums", "matrix"], ["y"]),
    ]
    inputs = [tensor("ids", ("N",), INT64), tensor("x", ("N", WIDTH), FLOAT)]
    made = proto(nodes, inputs, [tensor("y", ("N", 96), FLOAT)], constants)
    onnx.save_model(made, path, save_as_external_data=True, location="model.data", size_threshold=1024)


def result(session: InferenceSession) -> np.ndarray:
    return np.asarray(session.run(None, {"ids": np.array([5, 0, ROWS - 1]), "x": np.ones((3, WIDTH), np.float32)})[0])


def opened(path: Path) -> InferenceSession:
    """A session opened from what another one kept."""
    first = InferenceSession(path / "model.onnx", options())
    wait_for(path.parent)
    session = InferenceSession(path / "model.onnx", options())
    assert not is_cached(first) and is_cached(session) and np.array_equal(result(first), result(session))
    return session


def test_what_is_not_packed_stays_where_it_is(folder: Path) -> None:
    session = opened(folder)
    (path,) = wait_for(folder.parent)
    assert WIDTH * 96 * 4 < path.stat().st_size < ROWS * WIDTH * 4
    artifact = open_artifact(
        path, data_path=lambda location: str(folder / (location or "model.onnx")), verify_constants=True
    )
    assert [file.location for file in artifact.data_files] == ["", "model.data"]
    assert [file.name for file in artifact.mapped_data] == [str(folder / "model.data")]
    with pytest.raises(ArtifactError, match="needs files of the model"):
        open_artifact(path)
    assert session.model_nodes and not is_cached(session) and result(session).shape == (3, 96)


@pytest.mark.parametrize("replaced", [True, False])
def test_changed_data_is_noticed(folder: Path, replaced: bool) -> None:
    """Whether it is written in place, of the same size, or another file takes its place."""
    session, data = opened(folder), folder / "model.data"
    before = result(session)
    other = folder.parent / "other"
    other.mkdir()
    write(other / "model.onnx", 1)
    if replaced:
        os.replace(other / "model.data", data)
        assert np.array_equal(result(session), before)
    else:
        data.write_bytes((other / "model.data").read_bytes())
        with pytest.raises(FileChangedError, match=r"model\.data was written to"):
            result(session)
    with pytest.raises(Fail, match=r"model\.data was written to since the session was made"):
        _ = session.engine
    time.sleep(OLD)
    again = InferenceSession(folder / "model.onnx", options())
    assert not is_cached(again) and not np.array_equal(result(again), before)
    wait_for(folder.parent, lambda _: is_cached(InferenceSession(folder / "model.onnx", options())))
    assert np.array_equal(result(InferenceSession(folder / "model.onnx", options())), result(again))
    data.unlink()
    with pytest.raises(Fail, match=r"model\.data"):
        InferenceSession(folder / "model.onnx", options())


def test_data_is_that_beside_the_name_given(folder: Path) -> None:
    """Two folders link to the same model file, each with data of its own."""
    other = folder.parent / "other"
    other.mkdir()
    os.symlink(folder / "model.onnx", other / "model.onnx")
    write(folder.parent / "model.onnx", 2)
    shutil.move(folder.parent / "model.data", other / "model.data")
    time.sleep(OLD)
    here = result(opened(folder))
    there = InferenceSession(other / "model.onnx", options())
    assert not is_cached(there) and not np.array_equal(result(there), here)


def test_bytes_with_a_folder(folder: Path) -> None:
    """As `jitonnx.genai` opens models that it has rewritten; those without a folder are not kept."""
    content = (folder / "model.onnx").read_bytes()
    beside = {"session.model_external_initializers_file_folder_path": str(folder)}
    made = options()
    for key, entry in beside.items():
        made.add_session_config_entry(key, entry)
    first = InferenceSession(content, made)
    wait_for(folder.parent)
    session, other = InferenceSession(content, made), InferenceSession(content + b"\x12\x01x", made)
    assert is_cached(session) and not is_cached(other) and not is_cached(first)
    assert np.array_equal(result(session), result(first))
    assert session.model_nodes and not is_cached(session)
    write(folder / "model.onnx", 1)
    assert not is_cached(InferenceSession(content, made))


def test_a_folder_that_a_relative_path_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(folder)
    monkeypatch.chdir(folder)
    session = InferenceSession("model.onnx", options())
    monkeypatch.chdir("/")
    assert is_cached(session) and session.model_nodes and result(session).shape == (3, 96)


def test_writing_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = threading.Event()
    go_on = model_cache._until_late(stop)
    go_on()
    monkeypatch.setattr(model_cache, "LAST_SECONDS", 0.01)
    stop.set()
    go_on()
    time.sleep(0.02)
    with pytest.raises(StoppedError, match="took too long"):
        go_on()


def test_nothing_is_left_of_what_is_given_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_more() -> None:
        raise StoppedError("the process was about to end")

    monkeypatch.setattr(model_cache, "_until_late", lambda _: no_more)
    session = InferenceSession(folder / "model.onnx", options())
    time.sleep(OLD)
    assert result(session).shape == (3, 96)
    assert not [path for path in (folder.parent / "cache").iterdir() if ".model" in path.name]
