"""The demonstration's model reads digits it never saw, and the script beside it is the one that makes it."""

import numpy as np
import onnx
import onnx.reference
import onnxruntime
import pytest

from jitonnx.tools import demo
from jitonnx.tools.demo import train

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
    assert (images.shape, images.dtype) == ((train.TEST_IMAGES, 1, 8, 8), np.float32)
    assert (labels.shape, labels.dtype) == ((train.TEST_IMAGES,), np.int64)
    assert (images.min(), images.max()) == (0, 1)
    assert set(labels) == set(range(10))


def test_images_are_the_ones_kept_aside():
    split = train.load_digits()
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


def test_gradients_agree_with_differences():
    """Backpropagation against central differences, in float64, at ten random numbers of each weight."""
    rng = np.random.default_rng(5)
    weights = train.initial_weights(rng, np.float64)
    for weight in weights.trained.values():
        weight += rng.normal(0, 0.1, weight.shape)
    images, labels = rng.random((4, 1, 8, 8)), np.array([3, 1, 4, 1])
    _, gradients = train.loss_and_gradients(weights, images, labels)
    assert gradients.keys() == weights.trained.keys()
    step = 1e-6
    for name, weight in weights.trained.items():
        for at in rng.choice(weight.size, min(10, weight.size), replace=False):
            original, losses = weight.flat[at], []
            for value in (original + step, original - step):
                weight.flat[at] = value
                losses.append(train.loss_and_gradients(weights, images, labels)[0])
            weight.flat[at] = original
            difference = (losses[0] - losses[1]) / (2 * step)
            np.testing.assert_allclose(gradients[name].flat[at], difference, rtol=1e-4, atol=1e-8, err_msg=name)


def test_training_learns_repeats_and_makes_the_same_graph(model):
    split = train.load_digits()
    lines: list[str] = []
    weights = train.train(split, epochs=2, log=lines.append)
    assert [line.partition(":")[0] for line in lines] == ["epoch  1", "epoch  2"]
    images = demo.as_input(split.test_images)
    assert train.accuracy(weights, images, split.test_labels) >= 0.8

    exported = train.export(weights)
    assert structure(exported) == structure(model)
    assert exported.SerializeToString() == train.export(train.train(split, 2, log=lines.append)).SerializeToString()

    ops = train.Training(weights, update=False)
    logits = train.network(ops, train.GradTensor(images.transpose(0, 2, 3, 1))).value
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(onnxruntime_output(exported.SerializeToString(), images), probabilities, atol=EXACT)


def test_command_line_writes_both_files(tmp_path, monkeypatch, capsys, model):
    monkeypatch.setattr("sys.argv", ["train", "--epochs", "1", "--output", str(tmp_path / "new")])
    train.main()
    assert f"written to {tmp_path / 'new'} after" in capsys.readouterr().out
    assert structure(onnx.load(tmp_path / "new" / "digits.onnx")) == structure(model)
    with np.load(tmp_path / "new" / "digits.npz") as stored:
        np.testing.assert_array_equal(demo.as_input(stored["images"]), demo.test_images()[0])
