"""Models to make artifacts of, and artifacts to spoil."""

import struct
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jitonnx.runtime.artifact import HEADER_OFFSET, PROLOGUE
from tests.session.models import model, node, tensor


def small_cnn(batch: int | str = 1) -> bytes:
    """x [batch, 3, 12, 12] -> y [batch, 5]: two convolutions, pooling, a product."""
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / 4).astype(np.float32)

    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c1"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Relu", ["c1"], ["r1"]),
        node("MaxPool", ["r1"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p1", "w2", "b2"], ["c2"], kernel_shape=[3, 3]),
        node("Relu", ["c2"], ["r2"]),
        node("GlobalAveragePool", ["r2"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        node("Gemm", ["f", "w3", "b3"], ["y"]),
    ]
    constants = {
        "w1": weights(8, 3, 3, 3),
        "b1": weights(8),
        "w2": weights(16, 8, 3, 3),
        "b2": weights(16),
        "w3": weights(16, 5),
        "b3": weights(5),
    }
    return model(nodes, [tensor("x", (batch, 3, 12, 12))], [tensor("y", (batch, 5))], constants)


def elementwise() -> bytes:
    """y = tanh(a) * a + b for a and b [N, M]."""
    nodes = [node("Tanh", ["a"], ["t"]), node("Mul", ["t", "a"], ["m"]), node("Add", ["m", "b"], ["y"])]
    shape = ("N", "M")
    return model(nodes, [tensor("a", shape), tensor("b", shape)], [tensor("y", shape)])


def images(batch: int = 1) -> dict[str, np.ndarray]:
    """Inputs of `small_cnn`."""
    return {"x": np.random.default_rng(1).standard_normal((batch, 3, 12, 12)).astype(np.float32)}


def pairs(rows: int, columns: int) -> dict[str, np.ndarray]:
    """Inputs of `elementwise`."""
    rng = np.random.default_rng(2)
    return {name: rng.standard_normal((rows, columns)).astype(np.float32) for name in "ab"}


class Parts(NamedTuple):
    """It says where the parts of an artifact begin, and where it ends."""

    header: int
    code: int
    constants: int
    end: int


def parts(path: Path) -> Parts:
    """Tell where the parts of the file lie, by its prologue."""
    _, _, header, code, constants = PROLOGUE.unpack(path.read_bytes()[: PROLOGUE.size])
    return Parts(*accumulate((header, code, constants), initial=HEADER_OFFSET))


def spoil(path: Path, offset: int) -> None:
    """Change one bit of one byte."""
    with open(path, "r+b") as file:
        file.seek(offset)
        (byte,) = struct.unpack("B", file.read(1))
        file.seek(offset)
        file.write(bytes([byte ^ 0x10]))
