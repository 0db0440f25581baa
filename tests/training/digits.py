"""The network of docs/examples/train_digits.py in NumPy, with its gradients: what training it is held to.

The network is written once, as a function over a set of operations (`network`). `Training` carries these out and
remembers how to take each one back (reverse-mode differentiation).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

EPSILON = 1e-5  # of the normalisations
MOMENTUM = 0.9  # of the running statistics


@dataclass(eq=False)
class GradTensor:
    """An array on its way through the network, [batch, height, width, channels], with the loss's gradient for it."""

    value: np.ndarray
    gradient: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.gradient = np.zeros_like(self.value)


class Training:
    """The operations in NumPy, in NHWC; each leaves on `tape` a function that adds to its inputs' gradients.

    With `update` false the normalisations use the running statistics, as in inference.
    """

    def __init__(self, weights: Mapping[str, np.ndarray], *, update: bool = True) -> None:
        self.weights = weights
        self.update = update
        self.running: dict[str, np.ndarray] = {}
        """The running statistics as they are afterwards."""
        self.gradients: dict[str, np.ndarray] = {}
        self.tape: list[Callable[[], None]] = []

    def backward(self) -> None:
        """Make `gradients` of all weights, given the gradient of the result, which the caller has set."""
        for step in reversed(self.tape):
            step()

    def convolution(self, name: str, x: GradTensor) -> GradTensor:
        """Convolve by one matrix product: each pixel's 3x3 neighbourhood is a row, the kernel a matrix."""
        weight = self.weights[f"{name}.weight"]
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
        scale, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        mean, variance = self._statistics(name, x.value)
        deviation = np.sqrt(variance + x.value.dtype.type(EPSILON))
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
        keys = f"{name}.running_mean", f"{name}.running_var"
        if not self.update:
            return self.weights[keys[0]], self.weights[keys[1]]
        batch = x.mean((0, 1, 2)), x.var((0, 1, 2))
        for key, value in zip(keys, batch, strict=True):
            self.running[key] = (MOMENTUM * self.weights[key] + (1 - MOMENTUM) * value).astype(x.dtype)
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
        weight = self.weights[f"{name}.weight"]
        result = GradTensor(x.value @ weight.T + self.weights[f"{name}.bias"])

        def back() -> None:
            self.gradients[f"{name}.weight"] = result.gradient.T @ x.value
            self.gradients[f"{name}.bias"] = result.gradient.sum(0)
            x.gradient += result.gradient @ weight

        self.tape.append(back)
        return result


def network(ops: Training, image: GradTensor) -> GradTensor:
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


def logits(ops: Training, images: np.ndarray) -> GradTensor:
    """The logits of images [N, 1, 8, 8]."""
    return network(ops, GradTensor(images.transpose(0, 2, 3, 1)))


def loss_of(ops: Training, images: np.ndarray, labels: np.ndarray) -> float:
    """Mean cross-entropy of the batch, images [N, 1, 8, 8] and labels [N]; its gradient for each weight is in `ops`."""
    found = logits(ops, images)
    shifted = found.value - found.value.max(1, keepdims=True)
    log_probabilities = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    rows = np.arange(len(labels))
    found.gradient = np.exp(log_probabilities)
    found.gradient[rows, labels] -= 1
    found.gradient /= len(labels)
    ops.backward()
    return float(-log_probabilities[rows, labels].mean())
