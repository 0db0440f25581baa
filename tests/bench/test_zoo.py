"""The benchmark models: filled from seeds they are the recorded ones, byte for byte, however they are made."""

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import jitonnx
from bench import zoo
from bench.zoo import weights
from bench.zoo.quantize import quantize

SMALL = ["mlp_tiny", "unet_gn"]  # none of its weights left out; ten left out
CHECKSUMS = {
    "mlp_tiny": "39133c7c48d1b0e14f5c58f6875005409e3cedffeb0c3e86e6f79dcd7608d674",
    "unet_gn": "b2f41db16a253261bb90586516f8d12ac0ad6fc45bc4d96cbad0230ba9f15794",
}


def test_names_are_the_eighteen_models_of_the_folder():
    graphs = {path.stem for path in Path(zoo.__file__).parent.glob("*.onnx")}
    assert set(zoo.names()) == graphs
    assert zoo.names() == sorted(zoo.names())
    assert len(zoo.names()) == 18


@pytest.mark.parametrize("name", SMALL)
def test_model_has_the_recorded_bytes(name):
    assert hashlib.sha256(zoo.model(name).SerializeToString()).hexdigest() == CHECKSUMS[name]


@pytest.mark.parametrize("name", SMALL)
def test_written_file_equals_the_model_in_memory(name, tmp_path, monkeypatch):
    monkeypatch.setattr(weights, "_CHUNK", 1000)  # most weights are then written in several pieces
    (path,) = zoo.materialize(tmp_path, [name])
    assert path == tmp_path / f"{name}.onnx"
    assert path.read_bytes() == zoo.model(name).SerializeToString()
    assert sorted(child.name for child in tmp_path.iterdir()) == [f"{name}.npz", f"{name}.onnx"]


@pytest.mark.parametrize("name", zoo.names())
def test_every_weight_has_its_data_or_can_be_filled(name):
    model = zoo._skeleton(name)
    assert len(model.graph.node) == zoo._manifest()[name]["nodes"]
    for tensor in model.graph.initializer:
        normal = weights.left_out(tensor)
        nbytes = onnx.numpy_helper.to_array(tensor).nbytes if normal is None else normal.nbytes
        assert (
            nbytes == np.prod(tensor.dims, dtype=int) * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
        )


@pytest.mark.parametrize("name", zoo.names())
def test_feeds_fit_the_inputs_and_repeat(name):
    feeds = zoo.feeds(name)
    inputs = {value.name: value.type.tensor_type for value in zoo._skeleton(name).graph.input}
    assert feeds.keys() == inputs.keys()
    for key, array in feeds.items():
        assert array.dtype == onnx.helper.tensor_dtype_to_np_dtype(inputs[key].elem_type)
        assert array.ndim == len(inputs[key].shape.dim)
        for size, dimension in zip(array.shape, inputs[key].shape.dim, strict=True):
            assert dimension.dim_param or dimension.dim_value == size
        np.testing.assert_array_equal(array, zoo.feeds(name)[key])


def test_feeds_are_stored_beside_the_model(tmp_path):
    zoo.materialize(tmp_path, ["mlp_tiny"])
    with np.load(tmp_path / "mlp_tiny.npz") as stored:
        assert stored.files == ["x"]
        np.testing.assert_array_equal(stored["x"], zoo.feeds("mlp_tiny")["x"])


def test_a_sound_file_is_kept_and_a_damaged_one_replaced(tmp_path):
    (path,) = zoo.materialize(tmp_path, ["mlp_tiny"])
    sound, first = path.read_bytes(), path.stat()
    zoo.materialize(tmp_path, ["mlp_tiny"])
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (first.st_ino, first.st_mtime_ns)
    path.write_bytes(sound[:-1])
    zoo.materialize(tmp_path, ["mlp_tiny"])
    assert path.read_bytes() == sound


def test_a_failed_write_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError), zoo._replacing(tmp_path / "x.onnx") as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_weights_that_differ_from_the_recorded_ones_warn(tmp_path, monkeypatch):
    monkeypatch.setitem(zoo._checksums(), "mlp_tiny.onnx", "0" * 64)
    with pytest.warns(UserWarning, match=r"mlp_tiny\.onnx: the weights differ from the reference ones"):
        zoo.materialize(tmp_path, ["mlp_tiny"])


def test_cutting_does_not_change_the_numbers(monkeypatch):
    normal = weights.Normal(1000, np.float32(0.5), np.float32(2), seed=3)
    whole = b"".join(normal.chunks())
    expected = np.random.default_rng(3).standard_normal(1000, dtype=np.float32) * np.float32(2) + np.float32(0.5)
    monkeypatch.setattr(weights, "_CHUNK", 7)
    assert b"".join(normal.chunks()) == whole == expected.tobytes()


@pytest.mark.parametrize("call", [zoo.model, zoo.feeds, lambda name: zoo.materialize("unused", [name])])
def test_unknown_names_are_refused(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KeyError, match=r"no model 'alexnet' in the zoo; it has bert_base, .*vit_b_16"):
        call("alexnet")


def test_only_float32_weights_are_left_out():
    tensor = onnx.TensorProto(name="w", dims=[2], data_type=onnx.TensorProto.INT8, doc_string="normal 0 1 5")
    with pytest.raises(ValueError, match="weight 'w': only float32 can be left out, its data_type is 3"):
        weights.left_out(tensor)


def test_command_line(tmp_path):
    command = [sys.executable, "-m", "bench.zoo.materialize", str(tmp_path)]
    root = Path(zoo.__file__).parents[2]
    done = subprocess.run([*command, "mlp_tiny"], cwd=root, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (f"{tmp_path / 'mlp_tiny.onnx'}\n", "")
    refused = subprocess.run([*command, "alexnet"], cwd=root, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "no model alexnet; there are bert_base" in refused.stderr


@pytest.mark.parametrize("form", ["qdq", "qoperator"])
def test_quantised_model_runs(form, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    (path,) = zoo.materialize(tmp_path, ["mlp_tiny"])
    feeds, out = zoo.feeds("mlp_tiny"), tmp_path / "quantised.onnx"
    quantize(path, out, form, feeds)
    session = onnxruntime.InferenceSession(str(out), providers=["CPUExecutionProvider"])
    wanted, given = session.run(None, feeds)[0], jitonnx.InferenceSession(str(out)).run(None, feeds)[0]
    np.testing.assert_allclose(given, wanted, atol=0.02 * np.abs(wanted).max())
