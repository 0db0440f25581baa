"""Trains the demonstration's model and writes it with the images kept aside: `digits.onnx` and `digits.npz`.

    python -m jitonnx.tools.demo.train        # needs scikit-learn and onnx, which are in the extra "dev"; about 10 s

The network is written once, as a function over a set of operations (`network`). `Training` carries these operations
out in NumPy and remembers how to take each one back (reverse-mode differentiation); `Export` writes the ONNX node of
each. The seed is fixed: the same libraries on the same machine give the same weights.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np

from jitonnx.tools.demo import as_input

if TYPE_CHECKING:
    from onnx import ModelProto

EPOCHS = 20
TEST_IMAGES = 360
_BATCH = 64
_LEARNING_RATE = 0.01
_WEIGHT_DECAY = 0.02
_EPSILON = 1e-5  # of the normalisations
_MOMENTUM = 0.9  # of the running statistics
_OPSET = 20
_IR_VERSION = 9

# Shapes as ONNX has them: convolutions [out, in, height, width], the classifier [out, in].
CONVOLUTIONS = {
    "stem.conv": (16, 1, 3, 3),
    "block.conv1": (16, 16, 3, 3),
    "block.conv2": (16, 16, 3, 3),
    "wide.conv": (32, 16, 3, 3),
}
NORMALIZATIONS = {"stem.norm": 16, "block.norm1": 16, "block.norm2": 16, "wide.norm": 32}
CLASSIFIER = {"classifier": (10, 32)}

T = TypeVar("T")


class Operations(Protocol[T]):
    """What `network` is written in; `T` stands for an array [batch, ...] between two layers."""

    def convolution(self, name: str, x: T) -> T:
        """3x3 convolution with padding 1, without bias."""

    def normalization(self, name: str, x: T) -> T:
        """Batch normalization, a channel each."""

    def relu(self, name: str, x: T) -> T:
        """max(x, 0)."""

    def add(self, name: str, x: T, y: T) -> T:
        """x + y."""

    def max_pool(self, name: str, x: T) -> T:
        """The largest of each 2x2 pixels."""

    def average_pool(self, name: str, x: T) -> T:
        """The mean over all pixels: [batch, channels]."""

    def linear(self, name: str, x: T) -> T:
        """x @ weight.T + bias."""


def network(ops: Operations[T], image: T) -> T:
    """The model up to its logits: stem, residual block, a wider convolution on 4x4 pixels, linear classifier."""
    x = ops.convolution("stem.conv", image)
    stem = ops.relu("stem.relu", ops.normalization("stem.norm", x))
    x = ops.convolution("block.conv1", stem)
    x = ops.relu("block.relu1", ops.normalization("block.norm1", x))
    x = ops.normalization("block.norm2", ops.convolution("block.conv2", x))
    x = ops.relu("block.relu2", ops.add("block.add", x, stem))
    x = ops.convolution("wide.conv", ops.max_pool("pool", x))
    x = ops.relu("wide.relu", ops.normalization("wide.norm", x))
    return ops.linear("classifier", ops.average_pool("average", x))


class Weights(NamedTuple):
    """All numbers of the network by name."""

    trained: dict[str, np.ndarray]
    running: dict[str, np.ndarray]  # means and variances of the normalisations' inputs


def initial_weights(rng: np.random.Generator, dtype: type[np.floating] = np.float32) -> Weights:
    """Random weights: normal, scaled for ReLU (He et al. 2015); normalisations that change nothing yet."""
    trained, running = {}, {}
    for name, shape in (CONVOLUTIONS | CLASSIFIER).items():
        fan_in = np.prod(shape[1:])
        trained[f"{name}.weight"] = (rng.standard_normal(shape) * np.sqrt(2 / fan_in)).astype(dtype)
    for name, (outputs, _) in CLASSIFIER.items():
        trained[f"{name}.bias"] = np.zeros(outputs, dtype)
    for name, channels in NORMALIZATIONS.items():
        trained[f"{name}.weight"], trained[f"{name}.bias"] = np.ones(channels, dtype), np.zeros(channels, dtype)
        running[f"{name}.running_mean"] = np.zeros(channels, dtype)
        running[f"{name}.running_var"] = np.ones(channels, dtype)
    return Weights(trained, running)


@dataclass(eq=False)
class GradTensor:
    """An array on its way through the network, [batch, height, width, channels], with the loss's gradient for it."""

    value: np.ndarray
    gradient: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.gradient = np.zeros_like(self.value)


class Training(Operations[GradTensor]):
    """The operations in NumPy, in NHWC; each leaves on `tape` a function that adds to its inputs' gradients.

    With `update` false the normalisations use the running statistics, as in inference.
    """

    def __init__(self, weights: Weights, *, update: bool = True) -> None:
        self.weights = weights
        self.update = update
        self.gradients: dict[str, np.ndarray] = {}
        self.tape: list[Callable[[], None]] = []

    def backward(self) -> None:
        """Make `gradients` of all weights, given the gradient of the result, which the caller has set."""
        for step in reversed(self.tape):
            step()

    def convolution(self, name: str, x: GradTensor) -> GradTensor:
        """Convolve by one matrix product: each pixel's 3x3 neighbourhood is a row, the kernel a matrix."""
        weight = self.weights.trained[f"{name}.weight"]
        outputs, inputs = weight.shape[:2]
        height, width = x.value.shape[1:3]
        padded = np.pad(x.value, ((0, 0), (1, 1), (1, 1), (0, 0)))
        windows = [np.s_[:, i : i + height, j : j + width] for i in range(3) for j in range(3)]
        rows = np.concatenate([padded[window] for window in windows], axis=-1).reshape(-1, 9 * inputs)
        matrix = weight.transpose(2, 3, 1, 0).reshape(9 * inputs, outputs)
        result = GradTensor((rows @ matrix).reshape(*x.value.shape[:3], outputs))

        def back() -> None:
            gradient = result.gradient.reshape(-1, outputs)
            self.gradients[f"{name}.weight"] = (rows.T @ gradient).reshape(3, 3, inputs, outputs).transpose(3, 2, 0, 1)
            for_rows = (gradient @ matrix.T).reshape(*x.value.shape[:3], 9 * inputs)
            for_padded = np.zeros_like(padded)
            for window, part in zip(windows, np.split(for_rows, 9, axis=-1), strict=True):
                for_padded[window] += part
            x.gradient += for_padded[:, 1:-1, 1:-1]

        self.tape.append(back)
        return result

    def normalization(self, name: str, x: GradTensor) -> GradTensor:
        """Ioffe and Szegedy 2015, "Batch Normalization", with their gradients."""
        scale, bias = self.weights.trained[f"{name}.weight"], self.weights.trained[f"{name}.bias"]
        mean, variance = self._statistics(name, x.value)
        deviation = np.sqrt(variance + x.value.dtype.type(_EPSILON))
        normal = (x.value - mean) / deviation
        result = GradTensor(normal * scale + bias)

        def back() -> None:
            pixels = (0, 1, 2)
            self.gradients[f"{name}.weight"] = (result.gradient * normal).sum(pixels)
            self.gradients[f"{name}.bias"] = result.gradient.sum(pixels)
            gradient = result.gradient * scale
            along = normal * (gradient * normal).mean(pixels)
            x.gradient += (gradient - gradient.mean(pixels) - along) / deviation

        self.tape.append(back)
        return result

    def _statistics(self, name: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance a channel: of this batch, which then enter the running ones, or the running ones."""
        running = self.weights.running
        keys = f"{name}.running_mean", f"{name}.running_var"
        if not self.update:
            return running[keys[0]], running[keys[1]]
        batch = x.mean((0, 1, 2)), x.var((0, 1, 2))
        for key, value in zip(keys, batch, strict=True):
            running[key] = (_MOMENTUM * running[key] + (1 - _MOMENTUM) * value).astype(x.dtype)
        return batch

    def relu(self, name: str, x: GradTensor) -> GradTensor:
        """The gradient passes where x is above zero."""
        result = GradTensor(np.maximum(x.value, 0))

        def back() -> None:
            x.gradient += result.gradient * (x.value > 0)

        self.tape.append(back)
        return result

    def add(self, name: str, x: GradTensor, y: GradTensor) -> GradTensor:
        """The gradient goes to both."""
        result = GradTensor(x.value + y.value)

        def back() -> None:
            x.gradient += result.gradient
            y.gradient += result.gradient

        self.tape.append(back)
        return result

    def max_pool(self, name: str, x: GradTensor) -> GradTensor:
        """The gradient goes to the largest of the four, in equal parts where several are."""
        batch, height, width, channels = x.value.shape
        blocks = x.value.reshape(batch, height // 2, 2, width // 2, 2, channels)
        largest = blocks.max((2, 4), keepdims=True)
        result = GradTensor(largest.reshape(batch, height // 2, width // 2, channels))

        def back() -> None:
            chosen = blocks == largest
            parts = result.gradient.reshape(largest.shape) / chosen.sum((2, 4), keepdims=True)
            x.gradient += (chosen * parts).reshape(x.value.shape).astype(x.value.dtype)

        self.tape.append(back)
        return result

    def average_pool(self, name: str, x: GradTensor) -> GradTensor:
        """The gradient is spread over the pixels."""
        result = GradTensor(x.value.mean((1, 2)))

        def back() -> None:
            x.gradient += result.gradient[:, None, None] / np.prod(x.value.shape[1:3]).astype(x.value.dtype)

        self.tape.append(back)
        return result

    def linear(self, name: str, x: GradTensor) -> GradTensor:
        """One matrix product, two for the gradients."""
        weight = self.weights.trained[f"{name}.weight"]
        result = GradTensor(x.value @ weight.T + self.weights.trained[f"{name}.bias"])

        def back() -> None:
            self.gradients[f"{name}.weight"] = result.gradient.T @ x.value
            self.gradients[f"{name}.bias"] = result.gradient.sum(0)
            x.gradient += result.gradient @ weight

        self.tape.append(back)
        return result


def loss_and_gradients(weights: Weights, images: np.ndarray, labels: np.ndarray) -> tuple[float, dict[str, np.ndarray]]:
    """Mean cross-entropy of the batch, images [N, 1, 8, 8] and labels [N], and its gradient for each trained weight."""
    ops = Training(weights)
    logits = network(ops, GradTensor(images.transpose(0, 2, 3, 1)))
    shifted = logits.value - logits.value.max(1, keepdims=True)
    log_probabilities = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    rows = np.arange(len(labels))
    logits.gradient = np.exp(log_probabilities)
    logits.gradient[rows, labels] -= 1
    logits.gradient /= len(labels)
    ops.backward()
    return float(-log_probabilities[rows, labels].mean()), ops.gradients


def accuracy(weights: Weights, images: np.ndarray, labels: np.ndarray) -> float:
    """The share of `images` [N, 1, 8, 8] that the network in inference gives the right one of `labels` [N]."""
    logits = network(Training(weights, update=False), GradTensor(images.transpose(0, 2, 3, 1)))
    return float((logits.value.argmax(1) == labels).mean())


class Adam:
    """Kingma and Ba 2015, with the weight decay of Loshchilov and Hutter 2019; changes the weights in place."""

    def __init__(self, weights: dict[str, np.ndarray]) -> None:
        self.weights = weights
        self.first = {name: np.zeros_like(weight) for name, weight in weights.items()}
        self.second = {name: np.zeros_like(weight) for name, weight in weights.items()}
        self.steps = 0

    def step(self, gradients: dict[str, np.ndarray], rate: float) -> None:
        """One step with the learning rate `rate`."""
        self.steps += 1
        for name, weight in self.weights.items():
            gradient, first, second = gradients[name], self.first[name], self.second[name]
            first += 0.1 * (gradient - first)
            second += 0.001 * (gradient**2 - second)
            direction = first / (1 - 0.9**self.steps) / (np.sqrt(second / (1 - 0.999**self.steps)) + 1e-8)
            weight -= rate * (direction + _WEIGHT_DECAY * weight)


class Split(NamedTuple):
    """The digits, as the data set has them (8x8 pixels, values 0 to 16), in two parts with the same mix of digits."""

    train_images: np.ndarray
    test_images: np.ndarray
    train_labels: np.ndarray
    test_labels: np.ndarray


def load_digits() -> Split:
    """scikit-learn's 1,797 digits, `TEST_IMAGES` of them kept aside; uint8."""
    from sklearn import datasets, model_selection

    digits = datasets.load_digits()
    images, labels = digits.images.astype(np.uint8), digits.target.astype(np.uint8)
    return Split(
        *model_selection.train_test_split(images, labels, test_size=TEST_IMAGES, stratify=labels, random_state=0)
    )


def train(split: Split, epochs: int = EPOCHS, seed: int = 0, log: Callable[[str], None] = print) -> Weights:
    """The network trained on `split`; the learning rate falls to zero along a half cosine."""
    rng = np.random.default_rng(seed)
    weights = initial_weights(rng)
    optimizer = Adam(weights.trained)
    images, labels = as_input(split.train_images), split.train_labels
    steps = epochs * (len(images) // _BATCH)
    for epoch in range(epochs):
        order, losses = rng.permutation(len(images)), []
        for start in range(0, len(images) - _BATCH + 1, _BATCH):
            batch = order[start : start + _BATCH]
            loss, gradients = loss_and_gradients(weights, images[batch], labels[batch])
            optimizer.step(gradients, _LEARNING_RATE * (1 + np.cos(np.pi * optimizer.steps / steps)) / 2)
            losses.append(loss)
        right = accuracy(weights, as_input(split.test_images), split.test_labels)
        log(f"epoch {epoch + 1:2}: loss {np.mean(losses):.4f}, test accuracy {right:.4f}")
    return weights


class Export(Operations[str]):
    """The operations as ONNX nodes, as PyTorch's exporter writes them; a value is its name."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights.trained | weights.running
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []

    def node(self, operator: str, name: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        """Add a node; returns the name of its output, by default made from the node's."""
        from onnx import helper

        output = output or f"{name}.output"
        self.nodes.append(helper.make_node(operator, inputs, [output], name=name, **attributes))
        return output

    def weight(self, name: str) -> str:
        """Add a weight as an initializer; returns its name."""
        from onnx import numpy_helper

        self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(self.weights[name]), name))
        return name

    def convolution(self, name: str, x: str) -> str:
        """Conv."""
        square: dict[str, Any] = {
            "kernel_shape": [3, 3],
            "pads": [1, 1, 1, 1],
            "strides": [1, 1],
            "dilations": [1, 1],
            "group": 1,
        }
        return self.node("Conv", name, [x, self.weight(f"{name}.weight")], **square)

    def normalization(self, name: str, x: str) -> str:
        """BatchNormalization, not yet folded into the convolution before it."""
        weights = [self.weight(f"{name}.{part}") for part in ("weight", "bias", "running_mean", "running_var")]
        return self.node("BatchNormalization", name, [x, *weights], epsilon=_EPSILON, momentum=_MOMENTUM)

    def relu(self, name: str, x: str) -> str:
        """Relu."""
        return self.node("Relu", name, [x])

    def add(self, name: str, x: str, y: str) -> str:
        """Add."""
        return self.node("Add", name, [x, y])

    def max_pool(self, name: str, x: str) -> str:
        """MaxPool."""
        return self.node("MaxPool", name, [x], kernel_shape=[2, 2], strides=[2, 2], pads=[0, 0, 0, 0], ceil_mode=0)

    def average_pool(self, name: str, x: str) -> str:
        """GlobalAveragePool, which keeps height and width as 1, and Flatten."""
        return self.node("Flatten", f"{name}.flatten", [self.node("GlobalAveragePool", name, [x])], axis=1)

    def linear(self, name: str, x: str) -> str:
        """Gemm."""
        weights = [self.weight(f"{name}.{part}") for part in ("weight", "bias")]
        return self.node("Gemm", name, [x, *weights], alpha=1.0, beta=1.0, transB=1)


def export(weights: Weights) -> "ModelProto":
    """The network with Softmax at its end as an ONNX model."""
    from onnx import TensorProto, checker, helper

    ops = Export(weights)
    ops.node("Softmax", "softmax", [network(ops, "image")], "probabilities", axis=1)
    graph = helper.make_graph(
        ops.nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", 10])],
        ops.initializers,
    )
    model = helper.make_model(
        graph,
        producer_name="jitonnx.demo.train",
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_IR_VERSION,
        doc_string="Reads handwritten digits of 8x8 pixels, 0 (paper) to 1 (ink); trained on scikit-learn's digits.",
    )
    checker.check_model(model, full_check=True)
    return model


def main() -> None:
    """Train, print the accuracy and write both files."""
    parser = argparse.ArgumentParser(
        prog="python -m jitonnx.tools.demo.train", description="Train the demonstration's model."
    )
    parser.add_argument("--output", type=Path, default=Path(__file__).parent, help="folder to write to")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    arguments = parser.parse_args()
    started = time.perf_counter()
    split = load_digits()
    weights = train(split, arguments.epochs)
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / "digits.onnx").write_bytes(export(weights).SerializeToString())
    np.savez_compressed(arguments.output / "digits.npz", images=split.test_images, labels=split.test_labels)
    print(f"written to {arguments.output} after {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
