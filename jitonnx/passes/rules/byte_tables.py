"""Functions of a byte between quantised tensors, as tables of their 256 values."""

from __future__ import annotations

import numpy as np

from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Node, Value
from jitonnx.ops.fused import Lookup
from jitonnx.ops.onnx.activation import Relu
from jitonnx.ops.onnx.arithmetic import Add, Clip, IsNaN, Mul
from jitonnx.ops.onnx.logic import Where
from jitonnx.ops.onnx.quantization import DequantizeLinear, QuantizeLinear
from jitonnx.passes.quantized import BYTES, STEPS, dequantised
from jitonnx.passes.rewriting import Edit, Level, Result, array, producer, ranked, rule
from jitonnx.passes.rules.integer_moves import MOVES


@rule(
    "no NaN among integers",
    Where,
    equation="Where(IsNaN(DequantizeLinear(x)), a, y) = y",
    level=Level.EXTENDED,
)
def no_nan_among_integers(node: Node, edit: Edit) -> Result:
    """What exporters put behind a softmax for rows that are masked as a whole: integers are no NaN.

    before: Where(IsNaN(DequantizeLinear(x, s, z)), a, y)
    after:  y
    """
    condition, _, y = node.inputs
    asked = producer(condition, IsNaN)
    numbers = None if asked is None else dequantised(asked.inputs[0])
    if asked is None or numbers is None or y is None or y.shape != node.output.shape:
        return None
    scales = array(numbers.inputs[1])  # type: ignore[arg-type]
    if scales is None or not np.isfinite(scales).all():
        return None
    edit.shares([asked])
    return y


@rule(
    "table of bytes",
    QuantizeLinear,
    equation="QuantizeLinear(f(DequantizeLinear(x))) = table[x], the 256 values of it",
    level=Level.EXTENDED,
)
def table_of_bytes(node: Node, edit: Edit) -> Result:
    """An activation between quantised tensors, with all that is rounded on the way, as a table.

    before: QuantizeLinear(Mul(DequantizeLinear(x), DequantizeLinear(QuantizeLinear(Sigmoid(DequantizeLinear(x))))))
    after:  Lookup(x, table)
    """
    if node.output.dtype not in BYTES or not ranked(node):
        return None
    walk = _Bytes()
    source = walk.source(node.output)
    if source is None or source is node.output or not walk.pays(source) or source.shape != node.output.shape:
        return None
    if array(source) is not None:
        return None
    assert source.dtype is not None
    edit.shares(walk.nodes)
    with np.errstate(all="ignore"):
        table = walk.evaluated(node.output, source, np.arange(256, dtype=np.uint8).view(source.dtype.numpy))
    return edit.add(Lookup(), source, edit.constant(np.ascontiguousarray(table)))


_CHEAP = (Add, Clip, Mul, Relu)
"""Activations of these alone are done where their operand is made."""


class _Bytes:
    """What a number comes from by functions of a byte."""

    def __init__(self) -> None:
        self.nodes: dict[Node, None] = {}
        self._depth = 0

    def pays(self, source: Value) -> bool:
        """Whether what was walked through from `source` on is more than a few instructions, or has nobody to do it."""
        kinds = [node.operator for node in self.nodes]
        if isinstance(source.producer.operator if source.producer else None, MOVES):
            return True  # the bytes are there: nothing computes them, in whose epilogue this could be
        rounded = sum(isinstance(kind, QuantizeLinear) for kind in kinds)
        return rounded > 2 or not all(isinstance(kind, (*_CHEAP, DequantizeLinear, QuantizeLinear)) for kind in kinds)

    def source(self, value: Value) -> Value | None:
        """The one tensor of bytes, not a constant, that a tensor is made of element by element, by nodes that are then
        in `nodes`; None where there is none."""
        node = value.producer
        quantised = value.dtype in BYTES
        self._depth += 1
        if node is not None and self._depth <= STEPS and self._takes(node):
            found = [self.source(given) for given in self._varying(node)]
            if found and all(one is not None and one is found[0] for one in found):
                self.nodes[node] = None
                return found[0]
        return value if quantised else None

    def _takes(self, node: Node) -> bool:
        """Whether a node is a function of each element of its varying inputs."""
        operator = node.operator
        if len(node.outputs) != 1 or not ranked(node):
            return False
        constants = [array(given) for given in node.inputs[1:] if given is not None]
        if isinstance(operator, Lookup):
            return True
        if isinstance(operator, DequantizeLinear | QuantizeLinear):
            byte = node.inputs[0] if isinstance(operator, DequantizeLinear) else node.output
            float32 = node.output if isinstance(operator, DequantizeLinear) else node.inputs[0]
            types = (
                byte is not None and float32 is not None and (byte.dtype in BYTES, float32.dtype) == (True, DType.FLOAT)
            )
            return types and not operator.block_size and all(one is not None and one.size == 1 for one in constants)
        return operator.elementwise and operator.deterministic and node.output.dtype is DType.FLOAT

    def _varying(self, node: Node) -> list[Value]:
        """The inputs of a node but constants of one element; those of more are not bytes, and found not to be."""
        given = [value for value in node.inputs if value is not None]
        if isinstance(node.operator, DequantizeLinear | Lookup | QuantizeLinear):
            return given[:1]
        return [value for value in given if (constant := array(value)) is None or constant.size != 1]

    def evaluated(self, value: Value, source: Value, numbers: np.ndarray) -> np.ndarray:
        """What a tensor is where its source is `numbers`."""
        if value is source:
            return numbers
        constant = array(value)
        if constant is not None:
            return constant if isinstance(constant, np.ndarray) and constant.size != 1 else constant.reshape(())
        node = value.producer
        assert node is not None
        arrays = [None if given is None else self.evaluated(given, source, numbers) for given in node.inputs]
        return np.asarray(node.operator.evaluate(*arrays))


RULES = (
    no_nan_among_integers,
    table_of_bytes,
)
