"""Trains a small convolutional network on handwritten digits, as an ONNX training model that is built here.

    python docs/examples/train_digits.py        # needs scikit-learn and onnx (the extra "dev"); some seconds

The model holds everything: the network, how its weights are drawn, and as the training step the loss, a Gradient and an
Adam for all weights. `jitonnx.TrainingSession` runs it. See docs/training.md.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from onnx import GraphProto, ModelProto, StringStringEntryProto, TensorProto, helper, numpy_helper

import jitonnx

BATCH, EPOCHS, RATE = 64, 12, 3e-3
SHAPES = {
    "conv1.weight": (16, 1, 3, 3),
    "conv1.bias": (16,),
    "conv2.weight": (32, 16, 3, 3),
    "conv2.bias": (32,),
    "linear.weight": (32 * 4, 10),
    "linear.bias": (10,),
}
"""The weights; a convolution's are [out, in, height, width]."""
PREVIEW = "ai.onnx.preview.training"
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def network() -> GraphProto:
    """images [N, 1, 8, 8] -> logits [N, 10]; the weights are initializers, zeros until they are drawn."""
    node = helper.make_node
    nodes = [
        node("Conv", ["images", "conv1.weight", "conv1.bias"], ["a1"], pads=[1, 1, 1, 1]),
        node("Relu", ["a1"], ["b1"]),
        node("MaxPool", ["b1"], ["c1"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["c1", "conv2.weight", "conv2.bias"], ["a2"], pads=[1, 1, 1, 1]),
        node("Relu", ["a2"], ["b2"]),
        node("MaxPool", ["b2"], ["c2"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Flatten", ["c2"], ["features"]),
        node("Gemm", ["features", "linear.weight", "linear.bias"], ["logits"]),
    ]
    return helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("images", FLOAT, ["N", 1, 8, 8])],
        [helper.make_tensor_value_info("logits", FLOAT, ["N", 10])],
        [numpy_helper.from_array(np.zeros(shape, np.float32), name) for name, shape in SHAPES.items()],
    )


def initialization() -> GraphProto:
    """New weights: normal, as wide as their number of inputs asks for; biases are 0."""
    nodes = []
    for seed, (name, shape) in enumerate(SHAPES.items()):
        if len(shape) == 1:
            zeros = numpy_helper.from_array(np.zeros(shape, np.float32))
            nodes.append(helper.make_node("Constant", [], [f"{name}.new"], value=zeros))
        else:
            inputs = shape[0] if len(shape) == 2 else int(np.prod(shape[1:]))
            scale = float(np.sqrt(2 / inputs))
            drawn = {"shape": shape, "scale": scale, "seed": float(seed)}
            nodes.append(helper.make_node("RandomNormal", [], [f"{name}.new"], **drawn))
    outputs = [helper.make_tensor_value_info(f"{name}.new", FLOAT, shape) for name, shape in SHAPES.items()]
    return helper.make_graph(nodes, "initialization", [], outputs)


def algorithm() -> GraphProto:
    """labels [N] -> the loss, and all weights, moments and the number of the step as they are after it."""
    weights = list(SHAPES)
    moments = [f"{name}.{moment}" for moment in ("m", "v") for name in weights]
    gradients = [f"{name}.gradient" for name in weights]
    new = [f"{name}.next" for name in (*weights, *moments)]
    nodes = [
        helper.make_node("SoftmaxCrossEntropyLoss", ["logits", "labels"], ["loss"]),
        helper.make_node("Gradient", weights, gradients, domain=PREVIEW, xs=weights, y="loss"),
        helper.make_node(
            "Adam", ["rate", "t", *weights, *gradients, *moments], new, domain=PREVIEW, alpha=0.9, beta=0.999
        ),
        helper.make_node("Add", ["t", "one"], ["t.next"]),
    ]
    start = {name: np.zeros(SHAPES[name.rpartition(".")[0]], np.float32) for name in moments}
    start |= {"rate": np.float32(RATE), "t": np.int64(0), "one": np.int64(1)}
    outputs = [helper.make_tensor_value_info("loss", FLOAT, [])]
    outputs += [
        helper.make_tensor_value_info(f"{name}.next", FLOAT, SHAPES.get(name, SHAPES.get(name.rpartition(".")[0])))
        for name in (*weights, *moments)
    ]
    outputs.append(helper.make_tensor_value_info("t.next", INT64, []))
    return helper.make_graph(
        nodes,
        "algorithm",
        [helper.make_tensor_value_info("labels", INT64, ["N"])],
        outputs,
        [numpy_helper.from_array(np.asarray(array), name) for name, array in start.items()],
    )


def training_model() -> ModelProto:
    """The network with its training info."""
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(PREVIEW, 1)]
    model = helper.make_model(network(), opset_imports=opsets, ir_version=10)
    info, drawn, step = model.training_info.add(), initialization(), algorithm()
    info.initialization.CopyFrom(drawn)
    info.algorithm.CopyFrom(step)
    for output in drawn.output:
        info.initialization_binding.append(
            StringStringEntryProto(key=output.name.removesuffix(".new"), value=output.name)
        )
    for output in step.output:
        if output.name.endswith(".next"):
            info.update_binding.append(StringStringEntryProto(key=output.name.removesuffix(".next"), value=output.name))
    return model


def digits() -> tuple[np.ndarray, np.ndarray]:
    """1,797 images [N, 1, 8, 8], from 0 to 1, and their labels, shuffled."""
    from sklearn.datasets import load_digits

    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    images = (data.images[order, None] / 16).astype(np.float32)
    return images, data.target[order].astype(np.int64)


def train(epochs: int = EPOCHS) -> float:
    """The share of 360 images kept aside that is recognised after training."""
    images, labels = digits()
    (images, kept), (labels, expected) = np.split(images, [-360]), np.split(labels, [-360])
    session = jitonnx.TrainingSession(training_model())
    session.initialize()
    rng = np.random.default_rng(1)
    for epoch in range(epochs):
        losses = []
        for batch in np.array_split(rng.permutation(len(images)), len(images) // BATCH):
            losses.append(session.step({"images": images[batch], "labels": labels[batch]})["loss"])
        found = session.run({"images": kept})["logits"].argmax(1)
        print(f"epoch {epoch + 1}: loss {np.mean(losses):.3f}, right {np.mean(found == expected):.3f}")
    with tempfile.TemporaryDirectory() as folder:
        session.save(Path(folder) / "digits.onnx")
        trained = jitonnx.InferenceSession(Path(folder) / "digits.onnx")  # training info is for training alone
        found = trained.run(None, {"images": kept})[0].argmax(1)
    return float(np.mean(found == expected))


if __name__ == "__main__":
    print(f"{train():.1%} of the images kept aside are recognised")
