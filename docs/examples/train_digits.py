"""Trains the network of `jitonnx demo` on handwritten digits, as an ONNX training model that is built here.

    python docs/examples/train_digits.py FOLDER     # needs scikit-learn and onnx (the extra "dev"); half a minute

The model holds everything: the network, how its weights are drawn, and as the training step the network with the
statistics of a batch, the loss, a Gradient and an Adam for all weights. `jitonnx.TrainingSession` runs it. See
docs/training.md. FOLDER gets `digits.onnx`, the trained network alone, and `digits.npz`, the images kept aside, as the
demo has them. The seeds are fixed: the same libraries on the same machine give the same weights.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, StringStringEntryProto, TensorProto, checker, helper, numpy_helper

import jitonnx
from jitonnx.tools.demo import as_input

BATCH, EPOCHS, RATE, DECAY, EPSILON = 64, 20, 0.01, 1e-4, 1e-5
KEPT_ASIDE = 360
CONVOLUTIONS = {
    "stem.conv": (16, 1, 3, 3),
    "block.conv1": (16, 16, 3, 3),
    "block.conv2": (16, 16, 3, 3),
    "wide.conv": (32, 16, 3, 3),
}
"""Their weights, [out, in, height, width]."""
NORMALIZATIONS = {"stem.norm": 16, "block.norm1": 16, "block.norm2": 16, "wide.norm": 32}
SHAPES: dict[str, tuple[int, ...]] = {
    **{f"{name}.weight": shape for name, shape in CONVOLUTIONS.items()},
    **{f"{name}.{part}": (count,) for name, count in NORMALIZATIONS.items() for part in ("weight", "bias")},
    "classifier.weight": (10, 32),
    "classifier.bias": (10,),
}
"""What is trained."""
RUNNING = {
    f"{name}.{part}": (count,) for name, count in NORMALIZATIONS.items() for part in ("running_mean", "running_var")
}
"""Statistics of what the normalisations are given."""
PREVIEW = "ai.onnx.preview.training"
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


class Network:
    """The nodes up to the logits: stem, residual block, a wider convolution on 4x4 pixels, linear classifier.

    training: normalisations take the statistics of the batch, and give the running ones that follow, "*.next".
    """

    def __init__(self, *, training: bool = False) -> None:
        self.training, self.nodes, self.read = training, list[NodeProto](), list[str]()
        x = self._normalized("stem.norm", self._convolved("stem.conv", "image"))
        stem = self.node("Relu", "stem.relu", [x])
        x = self._normalized("block.norm1", self._convolved("block.conv1", stem))
        x = self.node("Relu", "block.relu1", [x])
        x = self._normalized("block.norm2", self._convolved("block.conv2", x))
        x = self.node("Relu", "block.relu2", [self.node("Add", "block.add", [x, stem])])
        x = self.node("MaxPool", "pool", [x], kernel_shape=[2, 2], strides=[2, 2], pads=[0, 0, 0, 0], ceil_mode=0)
        x = self._normalized("wide.norm", self._convolved("wide.conv", x))
        x = self.node("GlobalAveragePool", "average", [self.node("Relu", "wide.relu", [x])])
        x = self.node("Flatten", "average.flatten", [x], axis=1)
        weights = self._weights("classifier", "weight", "bias")
        self.logits = self.node("Gemm", "classifier", [x, *weights], alpha=1.0, beta=1.0, transB=1)

    def node(self, operator: str, name: str, inputs: Sequence[str], *further: str, **attributes: Any) -> str:
        """Add a node; returns the name of its first output."""
        name = f"training.{name}" if self.training else name
        outputs = [f"{name}.output", *further]
        self.nodes.append(helper.make_node(operator, inputs, outputs, name=name, **attributes))
        return outputs[0]

    def _weights(self, name: str, *parts: str) -> list[str]:
        names = [f"{name}.{part}" for part in parts]
        self.read += names
        return names

    def _convolved(self, name: str, x: str) -> str:
        window: dict[str, Any] = {"kernel_shape": [3, 3], "pads": [1] * 4, "strides": [1, 1], "dilations": [1, 1]}
        return self.node("Conv", name, [x, *self._weights(name, "weight")], **window, group=1)

    def _normalized(self, name: str, x: str) -> str:
        weights = self._weights(name, "weight", "bias", "running_mean", "running_var")
        further = [f"{weight}.next" for weight in weights[2:]] if self.training else []
        mode = {"training_mode": 1} if self.training else {}
        return self.node("BatchNormalization", name, [x, *weights], *further, epsilon=EPSILON, momentum=0.9, **mode)


def inference() -> GraphProto:
    """image [N, 1, 8, 8] -> probabilities [N, 10]; the weights are initializers, 0 until they are drawn."""
    network = Network()
    softmax = helper.make_node("Softmax", [network.logits], ["probabilities"], name="softmax", axis=1)
    return helper.make_graph(
        [*network.nodes, softmax],
        "digits",
        [helper.make_tensor_value_info("image", FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("probabilities", FLOAT, ["batch", 10])],
        [numpy_helper.from_array(np.zeros((SHAPES | RUNNING)[name], np.float32), name) for name in network.read],
    )


def initialization() -> GraphProto:
    """New weights: normal, as wide as ReLU asks for by their number of inputs (He et al. 2015); normalisations that
    change nothing yet."""
    nodes = []
    for seed, (name, shape) in enumerate((SHAPES | RUNNING).items()):
        if len(shape) == 1:
            is_one = name.endswith(("weight", "running_var"))
            value = numpy_helper.from_array(np.full(shape, is_one, np.float32))
            nodes.append(helper.make_node("Constant", [], [f"{name}.new"], value=value))
        else:
            scale = float(np.sqrt(2 / np.prod(shape[1:])))
            drawn = {"shape": shape, "scale": scale, "seed": float(seed)}
            nodes.append(helper.make_node("RandomNormal", [], [f"{name}.new"], **drawn))
    outputs = [helper.make_tensor_value_info(f"{name}.new", FLOAT, shape) for name, shape in (SHAPES | RUNNING).items()]
    return helper.make_graph(nodes, "initialization", [], outputs)


def algorithm() -> GraphProto:
    """labels [N] and the learning rate -> the loss, and all weights, moments, statistics and the number of the step as
    they are after it."""
    network, weights = Network(training=True), list(SHAPES)
    gradients = [f"{name}.gradient" for name in weights]
    moments = {f"{name}.{moment}": SHAPES[name] for moment in ("m", "v") for name in weights}
    new = [f"{name}.next" for name in (*weights, *moments)]
    adam = {"alpha": 0.9, "beta": 0.999, "epsilon": 1e-8, "norm_coefficient_post": DECAY}
    nodes = [
        *network.nodes,
        helper.make_node("SoftmaxCrossEntropyLoss", [network.logits, "labels"], ["loss"]),
        helper.make_node("Gradient", weights, gradients, domain=PREVIEW, xs=weights, y="loss"),
        helper.make_node("Adam", ["rate", "t", *weights, *gradients, *moments], new, domain=PREVIEW, **adam),
        helper.make_node("Add", ["t", "one"], ["t.next"]),
    ]
    state = SHAPES | moments | RUNNING
    outputs = [helper.make_tensor_value_info(f"{name}.next", FLOAT, shape) for name, shape in state.items()]
    start = {name: np.zeros(shape, np.float32) for name, shape in moments.items()}
    return helper.make_graph(
        nodes,
        "algorithm",
        [helper.make_tensor_value_info("labels", INT64, ["batch"]), helper.make_tensor_value_info("rate", FLOAT, [])],
        [
            helper.make_tensor_value_info("loss", FLOAT, []),
            *outputs,
            helper.make_tensor_value_info("t.next", INT64, []),
        ],
        [
            numpy_helper.from_array(np.asarray(array), name)
            for name, array in {**start, "t": np.int64(0), "one": np.int64(1)}.items()
        ],
    )


def _bindings(names: Iterable[str], suffix: str) -> list[StringStringEntryProto]:
    """What assigns an output to the initializer that it is named after."""
    return [
        StringStringEntryProto(key=name.removesuffix(suffix), value=name) for name in names if name.endswith(suffix)
    ]


def training_model() -> ModelProto:
    """The network with its training info."""
    model = helper.make_model(
        inference(),
        producer_name="train_digits",
        opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid(PREVIEW, 1)],
        ir_version=9,
        doc_string="Reads handwritten digits of 8x8 pixels, 0 (paper) to 1 (ink); trained on scikit-learn's digits.",
    )
    info, drawn, step = model.training_info.add(), initialization(), algorithm()
    info.initialization.CopyFrom(drawn)
    info.algorithm.CopyFrom(step)
    info.initialization_binding.extend(_bindings((output.name for output in drawn.output), ".new"))
    info.update_binding.extend(_bindings((output.name for output in step.output), ".next"))
    return model


class Split(NamedTuple):
    """The digits, as the data set has them (8x8 pixels, values 0 to 16), in two parts with the same mix of digits."""

    train_images: np.ndarray
    test_images: np.ndarray
    train_labels: np.ndarray
    test_labels: np.ndarray


def load_digits() -> Split:
    """scikit-learn's 1,797 digits, `KEPT_ASIDE` of them in the second part; uint8."""
    from sklearn import datasets, model_selection

    digits = datasets.load_digits()
    images, labels = digits.images.astype(np.uint8), digits.target.astype(np.uint8)
    return Split(
        *model_selection.train_test_split(images, labels, test_size=KEPT_ASIDE, stratify=labels, random_state=0)
    )


def train(split: Split, epochs: int = EPOCHS) -> jitonnx.TrainingSession:
    """A session of the trained model; the learning rate falls to zero along a half cosine."""
    images, labels = as_input(split.train_images), split.train_labels.astype(np.int64)
    session = jitonnx.TrainingSession(training_model())
    session.initialize()
    rng, batches = np.random.default_rng(0), len(images) // BATCH
    for epoch in range(epochs):
        order, losses = rng.permutation(len(images)), []
        for number in range(batches):
            rate = RATE * (1 + np.cos(np.pi * (epoch + number / batches) / epochs)) / 2
            batch = order[number * BATCH :][:BATCH]
            fed = {"image": images[batch], "labels": labels[batch], "rate": np.float32(rate)}
            losses.append(session.step(fed)["loss"])
        print(f"epoch {epoch + 1}: loss {np.mean(losses):.3f}, right {right(session, split):.3f}")
    return session


def right(session: jitonnx.TrainingSession, split: Split) -> float:
    """The share of the images kept aside that is recognised."""
    found = session.run({"image": as_input(split.test_images)})["probabilities"].argmax(1)
    return float(np.mean(found == split.test_labels))


def write(session: jitonnx.TrainingSession, split: Split, folder: Path) -> None:
    """Write the trained network, without what trains it, and the images kept aside."""
    folder.mkdir(parents=True, exist_ok=True)
    session.save(folder / "digits.onnx")
    model = ModelProto.FromString((folder / "digits.onnx").read_bytes())
    model.ClearField("training_info")
    del model.opset_import[1:]
    checker.check_model(model, full_check=True)
    (folder / "digits.onnx").write_bytes(model.SerializeToString())
    np.savez_compressed(folder / "digits.npz", images=split.test_images, labels=split.test_labels)


def main() -> None:
    """Train, and write both files."""
    parser = argparse.ArgumentParser(description="Train the network of `jitonnx demo`.")
    parser.add_argument("folder", type=Path, help="where to write digits.onnx and digits.npz")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    options, split = parser.parse_args(), load_digits()
    write(train(split, options.epochs), split, options.folder)


if __name__ == "__main__":
    main()
