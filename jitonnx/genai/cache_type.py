"""Caches of another type than the model's: half of the memory as float16 or bfloat16, a quarter as int8.

Of models whose attention is GroupQueryAttention, which rounds keys and values to the type of its caches as it adds
them. Integers need a scale for each channel of a head: what keys and values are is measured, on a text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from jitonnx.errors import InvalidArgument
from jitonnx.proto import onnx_pb2

if TYPE_CHECKING:
    from jitonnx.genai.decoder import Steps

_INTEGER = "int8"
_TYPES = {
    "float32": onnx_pb2.TensorProto.FLOAT,
    "float16": onnx_pb2.TensorProto.FLOAT16,
    "bfloat16": onnx_pb2.TensorProto.BFLOAT16,
    _INTEGER: onnx_pb2.TensorProto.INT8,
}
_ROOM = 1.25
"""The greatest number that integers reach, over the greatest that was measured: other texts have greater ones."""

_PAST_KEY, _PAST_VALUE, _KEY_SCALE, _VALUE_SCALE = 3, 4, 12, 13
"""Inputs of GroupQueryAttention."""

TEXT = """The lighthouse keeper counted 37 ships before noon; by evening, fog had swallowed every one of them. "Will \
they come back?" asked his daughter. He didn't answer at once. In 1912, he thought, nobody had asked such questions.

def area(width: float, height: float) -> float:
    if width < 0 or height < 0:
        raise ValueError(f"negative: {width}, {height}")
    return width * height

Die Brücke über den Fluss wurde 1998 gebaut und kostete 4,5 Millionen. La réunion commence à 9 h 30, n'est-ce pas ?
天气很好,我们去公园吧。 {"name": "Ada", "tags": ["x", "y"], "score": 0.75}
1. Water boils at 100 °C. 2. E = mc^2. 3. Whoever reads this far deserves a cup of tea.
"""
"""A text to measure on, of several kinds."""


@dataclass(frozen=True)
class CacheType:
    """name: float32, float16, bfloat16 or int8. tokens: int32, of a text to measure on, for int8."""

    name: str
    tokens: np.ndarray | None = None

    def __post_init__(self) -> None:
        """InvalidArgument for another name, and for int8 without tokens."""
        if self.name not in _TYPES:
            raise InvalidArgument(f"a cache's type is {self.name!r}: one of {', '.join(_TYPES)} is needed")
        if self.is_integer and (self.tokens is None or not len(self.tokens)):
            raise InvalidArgument(f"caches of {_INTEGER} are measured on a text: it has no tokens")

    @property
    def is_integer(self) -> bool:
        """Whether scales are needed, which are measured."""
        return self.name == _INTEGER


def measured(steps: Steps, tokens: np.ndarray) -> dict[str, np.ndarray]:
    """The scales of caches of integers, float32 [heads * depth], by the names of the pasts.

    steps: of one sequence, of which nothing is read, through the model as it is. tokens: int32.
    """
    steps.read(tokens[None])
    found = {}
    for past, value in steps.caches.values.items():
        rows = np.abs(value.numpy()[0].astype(np.float32))
        if rows.ndim == 3:  # heads, rows, depth
            found[past] = np.maximum(rows.max(1) * np.float32(_ROOM / 127), np.float32(1e-6)).reshape(-1)
    return found


def with_cache_type(data: bytes, name: str, scales: Mapping[str, np.ndarray]) -> bytes:
    """The model with caches of another type. scales: those of integers, by the names of the pasts.

    InvalidArgument for a model that has no GroupQueryAttention with caches among its inputs, or one whose caches are
    integers already.
    """
    model = onnx_pb2.ModelProto()
    model.ParseFromString(data)
    graph = model.graph
    types = {one.name: one.type.tensor_type for one in (*graph.input, *graph.output, *graph.value_info)}
    inputs = {one.name for one in graph.input}
    nodes = [
        node
        for node in graph.node
        if node.op_type == "GroupQueryAttention" and set(node.input[_PAST_KEY : _PAST_VALUE + 1]) <= inputs - {""}
    ]
    if not nodes:
        raise InvalidArgument(
            f"the type of caches cannot be {name}: it can be chosen for models of GroupQueryAttention alone, whose "
            "past_key and past_value are inputs"
        )
    for node in nodes:
        if any(attribute.name == "k_quant_type" and attribute.s != b"NONE" for attribute in node.attribute):
            raise InvalidArgument(f"the caches of node {node.name!r} are integers already: they stay what they are")
        caches = [*node.input[_PAST_KEY : _PAST_VALUE + 1], *node.output[1:3]]
        for cache in caches:
            if cache in types:
                types[cache].elem_type = _TYPES[name]
        if scales:
            _quantise(node, graph, scales)
    made: bytes = model.SerializeToString()
    return made


def _quantise(node: onnx_pb2.NodeProto, graph: onnx_pb2.GraphProto, scales: Mapping[str, np.ndarray]) -> None:
    """Have a node's caches be integers."""
    node.input.extend([""] * (_VALUE_SCALE + 1 - len(node.input)))
    for past, place in ((_PAST_KEY, _KEY_SCALE), (_PAST_VALUE, _VALUE_SCALE)):
        array = scales[node.input[past]]
        node.input[place] = f"{node.input[past]}.scale"
        graph.initializer.add(
            name=node.input[place],
            data_type=onnx_pb2.TensorProto.FLOAT,
            dims=array.shape,
            raw_data=array.astype("<f4").tobytes(),
        )
    for side in ("k", "v"):
        node.attribute.add(name=f"{side}_quant_type", type=onnx_pb2.AttributeProto.STRING, s=b"PER_CHANNEL")
    node.attribute.add(name="kv_cache_bit_width", type=onnx_pb2.AttributeProto.INT, i=8)
