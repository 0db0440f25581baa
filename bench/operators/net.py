"""A model of one operator, or of a few that exporters write together, in the making.

A `Build` adds nodes to a `Net` and says what comes out. Inputs and weights are drawn from fixed seeds, so that a build
is the same model with the same feeds every time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import helper, numpy_helper

from jitonnx.model import load

OPSET = 23
"""The operator set of cases: the newest that onnxruntime has most kernels for."""
IR_VERSION = 10
ML, PREVIEW, TRAINING, MICROSOFT = "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training", "com.microsoft"
DOMAINS = {ML: 3, PREVIEW: 1, TRAINING: 1, MICROSOFT: 1}
"""The operator sets of other domains."""
Build: TypeAlias = "Callable[[Net], str | list[str]]"
"""Adds nodes and returns the outputs' names."""
Shape: TypeAlias = Sequence[int]


class Net:
    """A model in the making, and what to feed it."""

    def __init__(self) -> None:
        self.feeds: dict[str, np.ndarray] = {}
        self.weights: dict[str, np.ndarray] = {}
        self.nodes: list[onnx.NodeProto] = []
        self.opset, self.versions = OPSET, dict(DOMAINS)
        self.picked: str | None = None
        """An input or weight of which no more is read than comes out: what Gather or Slice picks from."""
        self._random = np.random.default_rng(0)

    def feed(self, shape: Shape, low: float | None = None, high: float = 1.0, dtype: str = "float32") -> str:
        """An input of values from the standard normal distribution, or evenly from [low, high)."""
        return self.feed_array(self._draw(shape, low, high, dtype))

    def feed_array(self, array: np.ndarray) -> str:
        """An input with this value."""
        name = f"x{len(self.feeds)}"
        self.feeds[name] = array
        return name

    def weight(self, *shape: int, dtype: str = "float32") -> str:
        """A constant of random values, small enough for sums over its rows to stay near 1."""
        fan_in = int(np.prod(shape[1:])) if len(shape) > 1 else 1
        return self.constant(self._draw(shape, None, 1.0, dtype) / np.asarray(fan_in**0.5, dtype))

    def constant(self, value: Any, dtype: str | None = None) -> str:
        """A constant: an array, a list or a number."""
        name = f"w{len(self.weights)}"
        self.weights[name] = np.asarray(value, dtype)
        return name

    def integers(self, *values: int) -> str:
        """A constant int64 vector: axes, sizes, splits."""
        return self.constant(values, "int64")

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output; an absent input is ''. Returns the output's name."""
        return self.nodes_outputs(operator, 1, *inputs, **attributes)[0]

    def nodes_outputs(self, operator: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        """Add a node with `count` outputs."""
        outputs = [f"y{len(self.nodes)}_{number}" for number in range(count)]
        self.nodes.append(helper.make_node(operator, inputs, outputs, **attributes))
        return outputs

    def model(self, outputs: str | list[str]) -> onnx.ModelProto:
        """The finished model, checked, with every value's shape inferred."""
        names = [outputs] if isinstance(outputs, str) else outputs
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in self.feeds.items()
        ]
        weights = [numpy_helper.from_array(array, name) for name, array in self.weights.items()]
        results = [onnx.ValueInfoProto(name=name) for name in names]
        graph = helper.make_graph(self.nodes, "case", inputs, results, weights)
        opsets = [helper.make_opsetid("", self.opset)]
        domains = sorted({node.domain for node in self.nodes} - {""})
        opsets += [helper.make_opsetid(domain, self.versions[domain]) for domain in domains]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
        typed = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
        if any(not info.type.tensor_type.HasField("shape") for info in typed.graph.output):  # ONNX infers none
            for info, value in zip(typed.graph.output, load(model.SerializeToString()).graph.outputs, strict=True):
                sizes = [size if isinstance(size, int) else None for size in value.shape]
                info.CopyFrom(helper.make_tensor_value_info(info.name, value.dtype, sizes))
        return typed

    def _draw(self, shape: Shape, low: float | None, high: float, dtype: str) -> np.ndarray:
        if low is None:
            return self._random.standard_normal(shape, np.float32).astype(dtype)
        if np.dtype(dtype).kind in "iub":
            return self._random.integers(int(low), int(high), shape).astype(dtype)
        return self._random.uniform(low, high, shape).astype(dtype)


def op(operator: str, *shapes: Shape, low: float | None = None, high: float = 1.0, **attributes: Any) -> Build:
    """One operator over float32 inputs of these shapes."""
    return lambda net: net.node(operator, *(net.feed(shape, low, high) for shape in shapes), **attributes)


def typed(operator: str, dtype: str, *shapes: Shape, low: float = 0, high: float = 100, **attributes: Any) -> Build:
    """One operator over inputs of another element type, evenly from [low, high)."""
    return lambda net: net.node(operator, *(net.feed(shape, low, high, dtype) for shape in shapes), **attributes)


def with_integers(operator: str, shape: Shape, *lists: Sequence[int], **attributes: Any) -> Build:
    """One operator over a float32 input with constant int64 vectors behind it: axes, sizes, repeats."""
    return lambda net: net.node(operator, net.feed(shape), *(net.integers(*values) for values in lists), **attributes)


def positive(operator: str, shape: Shape, axes: Sequence[int]) -> Build:
    """A reduction of numbers from [0, 1)."""
    return lambda net: net.node(operator, net.feed(shape, 0), net.integers(*axes))


def in_opset(version: int, build: Build) -> Build:
    """The model in another operator set."""

    def other(net: Net) -> str | list[str]:
        net.opset = version
        return build(net)

    return other


def before_22(build: Build) -> Build:
    """The model in operator set 21: onnxruntime lacks some operators in 22, which changed them in types alone."""
    return in_opset(21, build)


def newest(build: Build) -> Build:
    """The model in ONNX's newest operator set."""
    return in_opset(onnx.defs.onnx_opset_version(), build)
