"""The demonstration's model reads digits it never saw, and the example that trains it is the one that makes it."""

import numpy as np
import onnx
import onnx.reference
import onnxruntime
import pytest

from docs.examples import train_digits as digits
from jitonnx.tools import demo
from tests.training.digits import Training, logits

EXACT = 1e-5  # float32 sums of up to 144 products, on values up to about 10


@pytest.fixture(scope="module")
def model():
    return onnx.load(demo.model_path())


def structure(model):
    """The model without its weights' values."""
    stripped = onnx.ModelProto()
    stripped.CopyFrom(model)
    for tensor in stripped.graph.initializer:
        tensor.ClearField("raw_data")
    return stripped


def onnxruntime_output(model_bytes, images):
    session = onnxruntime.InferenceSession(model_bytes, providers=["CPUExecutionProvider"])
    return session.run(None, {"image": images})[0]


def test_images_are_as_the_model_takes_them():
    images, labels = demo.test_images()
    assert (images.shape, images.dtype) == ((360, 1, 8, 8), np.float32)
    assert (labels.shape, labels.dtype) == ((360,), np.int64)
    assert (images.min(), images.max()) == (0, 1)
    assert set(labels) == set(range(10))


def test_images_are_the_ones_kept_aside():
    split = digits.load_digits()
    images, labels = demo.test_images()
    np.testing.assert_array_equal(demo.as_input(split.test_images), images)
    np.testing.assert_array_equal(split.test_labels, labels)
    seen = {image.tobytes() for image in split.train_images}
    assert not any(image.tobytes() in seen for image in split.test_images)


def test_model_is_an_ordinary_small_export(model):
    onnx.checker.check_model(model, full_check=True)
    operators = {node.op_type for node in model.graph.node}
    assert operators == {
        *("Conv", "BatchNormalization", "Relu", "Add", "MaxPool"),
        *("GlobalAveragePool", "Flatten", "Gemm", "Softmax"),
    }
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    assert demo.model_path().stat().st_size < 300_000


def test_accuracy_with_onnxruntime():
    images, labels = demo.test_images()
    probabilities = onnxruntime_output(demo.model_path().read_bytes(), images)
    assert (probabilities.argmax(1) == labels).mean() >= 0.97


def test_reference_evaluator_agrees(model):
    images = demo.test_images()[0][:20]
    expected = onnx.reference.ReferenceEvaluator(model).run(None, {"image": images})[0]
    np.testing.assert_allclose(onnxruntime_output(model.SerializeToString(), images), expected, atol=EXACT)


def test_training_learns_repeats_and_makes_the_same_graph(model, tmp_path, capsys):
    split = digits.load_digits()
    session = digits.train(split, 2)
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == ["epoch 1", "epoch 2"]
    assert digits.right(session, split) >= 0.8

    digits.write(session, split, tmp_path)
    written = (tmp_path / "digits.onnx").read_bytes()
    assert structure(onnx.load_from_string(written)) == structure(model)
    digits.write(digits.train(split, 2), split, tmp_path / "again")
    assert written == (tmp_path / "again" / "digits.onnx").read_bytes()

    images = demo.as_input(split.test_images)
    scores = logits(Training(session.state, update=False), images).value
    probabilities = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    np.testing.assert_allclose(onnxruntime_output(written, images), probabilities, atol=EXACT)


def test_command_line_writes_both_files(tmp_path, monkeypatch, model):
    monkeypatch.setattr("sys.argv", ["train_digits.py", str(tmp_path / "new"), "--epochs", "1"])
    digits.main()
    assert structure(onnx.load(tmp_path / "new" / "digits.onnx")) == structure(model)
    with np.load(tmp_path / "new" / "digits.npz") as stored:
        np.testing.assert_array_equal(demo.as_input(stored["images"]), demo.test_images()[0])
