"""External data: where it may be, where it may not, and lengths that do not fit."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from jitonnx import errors
from jitonnx.engine.interpreter import evaluate
from jitonnx.model import load
from tests.model.models import X, model_of

W = np.arange(6, dtype=np.float32).reshape(2, 3)


def model_with(location: str, **entries: int | str) -> onnx.ModelProto:
    """y = x + w, with w in another file."""
    w = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=W.shape, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        w.external_data.add(key=key, value=str(value))
    return model_of([helper.make_node("Add", ["x", "w"], ["y"])], ["x"], ["y"], [w])


def write(folder: Path, model: onnx.ModelProto, name: str = "model.onnx") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(model.SerializeToString())
    return folder / name


def assert_loads(source: object, **options: object) -> None:
    (y,) = evaluate(load(source, **options).graph, {"x": X})
    np.testing.assert_array_equal(y, X + W)


def test_offset_and_length(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"z" * 10 + W.tobytes() + b"z" * 5)
    assert_loads(write(tmp_path, model_with("w.bin", offset=10, length=24)))
    assert_loads(write(tmp_path, model_with("w.bin", offset=10)))


def test_subfolder(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "w.bin").write_bytes(W.tobytes())
    assert_loads(write(tmp_path, model_with("data/w.bin")))
    assert_loads(write(tmp_path, model_with("data/../data/w.bin")))


def test_one_file_is_mapped_once(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(W.tobytes())
    model = model_with("w.bin")
    model.graph.initializer.add().CopyFrom(model.graph.initializer[0])
    model.graph.initializer[1].name = "v"
    model.graph.output.append(onnx.ValueInfoProto(name="v"))
    model.graph.output.append(onnx.ValueInfoProto(name="w"))
    graph = load(write(tmp_path, model)).graph
    assert np.shares_memory(graph.outputs[1].constant, graph.outputs[2].constant)


def test_bytes_need_a_folder(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(W.tobytes())
    data = model_with("w.bin").SerializeToString()
    with pytest.raises(errors.Fail, match="give external_data_folder"):
        load(data)
    assert_loads(data, external_data_folder=tmp_path)
    assert_loads(data, external_data_folder=str(tmp_path))


def test_relative_path_of_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "w.bin").write_bytes(W.tobytes())
    write(tmp_path, model_with("w.bin"))
    monkeypatch.chdir(tmp_path)
    assert_loads("model.onnx")


def test_cache_of_symbolic_links(tmp_path: Path) -> None:
    """Hugging Face's: the model and its data are links into one folder of blobs."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "1"
    write(blobs, model_with("w.bin"), "abc")
    (blobs / "def").write_bytes(W.tobytes())
    snapshot.mkdir(parents=True)
    (snapshot / "model.onnx").symlink_to("../../blobs/abc")
    (snapshot / "w.bin").symlink_to("../../blobs/def")
    assert_loads(snapshot / "model.onnx")


def test_link_out_of_the_folder_of_a_real_model(tmp_path: Path) -> None:
    path = write(tmp_path / "model", model_with("w.bin"))
    (tmp_path / "secret").write_bytes(W.tobytes())
    (path.parent / "w.bin").symlink_to(tmp_path / "secret")
    with pytest.raises(errors.Fail, match="escapes model directory"):
        load(path)


def test_folder_that_is_a_link_out(tmp_path: Path) -> None:
    path = write(tmp_path / "model", model_with("data/w.bin"))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "w.bin").write_bytes(W.tobytes())
    (path.parent / "data").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(errors.Fail, match="escapes model directory"):
        load(path)


@pytest.mark.parametrize(
    ("location", "text"),
    [
        ("../w.bin", "escapes model directory"),
        ("a/../../w.bin", "escapes model directory"),
        ("/etc/hostname", "Absolute path not allowed"),
        ("C:\\w.bin", "Absolute path not allowed"),
        ("\\\\host\\w.bin", "Absolute path not allowed"),
        ("missing.bin", "External data path does not exist"),
        ("", "no usable location"),
        ("w\0.bin", "no usable location"),
        (".", "not a regular file"),
    ],
)
def test_refused_locations(tmp_path: Path, location: str, text: str) -> None:
    (tmp_path / "w.bin").write_bytes(W.tobytes())
    path = write(tmp_path / "model", model_with(location))
    with pytest.raises(errors.Fail, match=text) as caught:
        load(path)
    assert "External data path validation failed for initializer 'w'" in str(caught.value)


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        ({"length": 20}, "has length 20 in 'w.bin', but its type and shape take 24"),
        ({"offset": 4}, "offset 4 with 24 bytes reaches past the end of 'w.bin', which has 24 bytes"),
        ({"offset": 1 << 62}, "reaches past the end"),
        ({"offset": -4}, "offset '-4', a byte count is expected"),
        ({"length": "many"}, "length 'many', a byte count is expected"),
    ],
)
def test_lengths_that_do_not_fit(tmp_path: Path, entries: dict, text: str) -> None:
    (tmp_path / "w.bin").write_bytes(W.tobytes())
    with pytest.raises(errors.Fail, match=text):
        load(write(tmp_path, model_with("w.bin", **entries)))


def test_empty_file(tmp_path: Path) -> None:
    (tmp_path / "w.bin").touch()
    with pytest.raises(errors.Fail, match="which has 0 bytes"):
        load(write(tmp_path, model_with("w.bin")))
