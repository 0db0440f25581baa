"""What a case of `bench.operators` has to do at least, whatever runs it: arithmetic and bytes, and which limit binds.

Arithmetic is counted from the ONNX nodes, in the unit of the machine's FMA peak: a multiply-add is two operations, and
so is every other vector instruction, since it takes the place of one. A convolution counts as the direct algorithm: one
that needs fewer products (Winograd) can go beyond the limit. Bytes are inputs, weights and outputs, each once. Where
both take less time than a call that does nothing, the call binds.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
import onnx

from bench import machine
from bench.arguments import CLOCKS
from bench.operators.net import Net

_TRANSCENDENTAL = 24
"""Operations an element of exp, log, erf, sin ...: reduction of the range and a polynomial, about 12 instructions."""
_DIVISION = 8
"""A vector unit does a division or root in the time of about four multiplications."""

_PER_ELEMENT = {
    **dict.fromkeys(("Exp", "Log", "Erf", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan"), _TRANSCENDENTAL),
    **dict.fromkeys(("Sinh", "Cosh", "Tanh", "Asinh", "Acosh", "Atanh", "Elu", "Selu", "Celu"), _TRANSCENDENTAL),
    **dict.fromkeys(("Sigmoid", "Gelu"), _TRANSCENDENTAL + _DIVISION),
    **dict.fromkeys(("Softplus", "Mish"), 2 * _TRANSCENDENTAL),
    **dict.fromkeys(("Softmax", "LogSoftmax", "ReduceLogSumExp", "SoftmaxCrossEntropyLoss"), _TRANSCENDENTAL + 8),
    **dict.fromkeys(("Div", "Mod", "Sqrt", "Reciprocal", "Softsign"), _DIVISION),
    **dict.fromkeys(("LayerNormalization", "GroupNormalization", "InstanceNormalization"), 10),
    **dict.fromkeys(("MeanVarianceNormalization", "RMSNormalization", "LpNormalization"), 6),
    "LRN": 2 * _TRANSCENDENTAL,
}
"""Operations for each element of the larger of first input and output, where they are not 2."""

_SIMPLE_POWERS: dict[float | None, int] = {2.0: 2, 3.0: 4, 0.5: _DIVISION}
"""Operations of a power with this exponent; others are exp(exponent * log(x))."""

_MOVING = frozenset(
    ("Reshape", "Transpose", "Concat", "Split", "Slice", "Pad", "Expand", "Tile", "DepthToSpace", "SpaceToDepth")
) | frozenset(
    ("Gather", "GatherND", "GatherElements", "ScatterND", "ScatterElements", "Identity", "ReverseSequence", "MaxUnpool")
)
"""Operators that do no arithmetic."""


class Work(NamedTuple):
    """What has to be done."""

    flops: int
    bytes: int
    element_bytes: int
    """Size of the elements that the arithmetic is on: the FMA peak is that of float32, of float64 half, of bool four
    times that."""
    byte_products: int = 0
    """Operations of products of bytes, for which CPUs have instructions of their own; `flops` are the others."""
    rounded_products: int = 0
    """Operations of products whose operands are rounded to bfloat16, which tile registers multiply."""


def work(model: onnx.ModelProto, net: Net, outputs: Sequence[np.ndarray], precision: str = "float32") -> Work:
    """The work of a case whose outputs are these. precision: of products with constant weights, which take two bytes an
    element with bfloat16.
    """
    read = {name: array.nbytes for name, array in (net.feeds | net.weights).items()}
    written = sum(array.nbytes for array in outputs)
    if net.picked is not None:
        read[net.picked] = written
    shapes = _shapes(model)
    kinds = {
        **dict.fromkeys(_OF_BYTES, "bytes"),
        **dict.fromkeys(_ROUNDED if precision == "bfloat16" else (), "rounded"),
    }
    counted = dict.fromkeys(("", "bytes", "rounded"), 0)
    for node in model.graph.node:
        kind = kinds.get(node.op_type, "")
        counted[kind] += _flops(node, shapes, net.feeds | net.weights)
        if kind == "rounded" and node.input[1] in net.weights:
            read[node.input[1]] = net.weights[node.input[1]].size * 2
    size = _element_bytes(net.feeds.values(), outputs[0])
    return Work(counted[""], sum(read.values()) + written, size, counted["bytes"], counted["rounded"])


def _element_bytes(feeds: Iterable[np.ndarray], output: np.ndarray) -> int:
    """Size of the elements that arithmetic is on: of integers and truth values alone the widest, of floats 4 or more.

    A vector instruction does four times as many int8 or bool as float32; float16 is computed with as float32.
    """
    arrays = [*feeds, output]
    if all(array.dtype.kind in "biu" for array in arrays):
        return max(array.itemsize for array in arrays)
    return max(4, output.itemsize)


class Bound(NamedTuple):
    """The limit that binds some work."""

    limit: str
    """"FMA", "dots" (products of bytes), "tiles" (of bfloat16), "call", or where data of this size lie: "L1", "L2",
    "L3" or "memory"."""
    amount: float
    """What is counted against it: floating-point operations (of float32), bytes, or one call."""

    @property
    def unit(self) -> str:
        """The unit of rates, with as many a second of what is counted."""
        return {"FMA": "GFLOP/s", "dots": "GOP/s", "tiles": "GFLOP/s", "call": "Mcall/s"}.get(self.limit, "GB/s")

    def rate(self, seconds: float) -> float:
        """The rate in `unit`, when the work is done in so many seconds."""
        return self.amount / seconds / (1e6 if self.limit == "call" else 1e9)


class Limits:
    """The machine's limits at a number of threads: the FMA peak, copying as many bytes, and what a call costs at all.

    They change with the clock and with what else the machine does, so `bench.operators` measures them in turns with the
    runtimes. Which limit binds is decided by a first look at each.
    """

    def __init__(self, threads: int, cpu: str = "host", clock: str = "wall") -> None:
        """cpu: LLVM's name of the CPU whose vectors the FMA peak is that of. clock: a key of CLOCKS, to time it by."""
        self.threads, self.cpu, self.clock = threads, cpu, CLOCKS[clock]
        self._first: dict[Bound, float] = {}
        self._call = call_of_nothing(threads)

    def described(self) -> dict[str, Bound]:
        """A bound of each kind, to tell the limits by: copies of half of each cache."""
        copies = {level: Bound(level, nbytes) for level, nbytes in machine.working_sets().items()}
        return {
            "FMA": Bound("FMA", 1e9),
            "dots": Bound("dots", 1e9),
            "tiles": Bound("tiles", 1e9),
            **copies,
            "call": Bound("call", 1),
        }

    def seconds(self, bound: Bound, rounds: int = 3) -> float:
        """The time of the work at its limit, measured now: the best of `rounds` looks of about 10 ms."""
        measured = self._measured_as(bound)
        return self._measure(measured, rounds) * bound.amount / measured.amount

    def binding(self, work: Work) -> Bound:
        """The limit under which the work takes longest."""
        bounds = [
            Bound("FMA", work.flops * work.element_bytes / 4),
            Bound("dots", work.byte_products),
            Bound("tiles", work.rounded_products),
            Bound(self._level(work.bytes), work.bytes),
            Bound("call", 1),
        ]
        return max(bounds, key=self._at_first)

    def _at_first(self, bound: Bound) -> float:
        """The time of the work at its limit, by the first look at this limit."""
        measured = self._measured_as(bound)
        if measured not in self._first:
            self._first[measured] = self._measure(measured, rounds=20)
        return self._first[measured] * bound.amount / measured.amount

    def _measured_as(self, bound: Bound) -> Bound:
        """What is measured for a bound: copies of just its size, as bandwidth falls little by little at a cache's edge.

        Copies of less than a step of every thread, or of far more than the caches, run at the same rates as those.
        """
        if bound.limit in ("FMA", "dots", "tiles", "call"):
            return Bound(bound.limit, 1)
        least, most = machine.smallest_copy(self.threads), machine.working_sets()["memory"]
        return Bound(bound.limit, max(least, min(int(bound.amount), most)))

    def _measure(self, bound: Bound, rounds: int) -> float:
        if bound.limit == "FMA":
            return bound.amount / machine.fma_peak(self.threads, rounds, self.cpu, self.clock) / 1e9
        if bound.limit == "dots":
            return bound.amount / machine.byte_peak(self.threads, rounds, self.cpu, self.clock) / 1e9
        if bound.limit == "tiles":
            return bound.amount / machine.bfloat16_peak(self.threads, rounds, self.cpu, self.clock) / 1e9
        if bound.limit == "call":
            return min(timeit.repeat(self._call, number=100, repeat=rounds)) / 100
        nbytes = int(bound.amount)
        rate = machine.copy_bandwidth(nbytes, self.threads, rounds=rounds)
        if bound.limit == "memory":
            rate = max(rate, machine.copy_bandwidth(nbytes, self.threads, streaming=True, rounds=rounds))
        return nbytes / rate / 1e9

    def _level(self, nbytes: int) -> str:
        """The smallest cache that holds so many bytes; threads share the largest, and have their own others."""
        sizes = machine.cache_sizes() or {"L1": 32 << 10, "L2": 1 << 20, "L3": 32 << 20}
        largest = max(sizes.values())
        for level, size in sorted(sizes.items(), key=lambda item: item[1]):
            if nbytes <= (size if size == largest else size * self.threads):
                return level
        return "memory"


def call_of_nothing(threads: int) -> Callable[[], object]:
    """A run of the least model that there is, whose time is that of the call: it adds two numbers."""
    import jitonnx

    net = Net()
    model = net.model(net.node("Add", net.feed(()), net.feed(())))
    options = jitonnx.SessionOptions()
    options.intra_op_num_threads = threads
    session = jitonnx.InferenceSession(model.SerializeToString(), options)
    return lambda: session.run(None, net.feeds)


def _shapes(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """The shape of every value; sizes that depend on data are 0."""
    graph = model.graph
    found = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        found[value.name] = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
    return found


def _flops(node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]], given: Mapping[str, np.ndarray]) -> int:
    """Operations of one node. given: what is known of its inputs."""
    inputs, out = [shapes.get(name, ()) for name in node.input], shapes[node.output[0]]
    if node.op_type in _MOVING:
        return 0
    if node.op_type in _PRODUCTS:
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type in _RECURRENT and len(node.input) > 4 and node.input[4]:
            attributes["sequence_lens"] = given[node.input[4]]
        return _PRODUCTS[node.op_type](inputs, out, attributes)
    elements = max(prod(shape) for shape in (*inputs[:1], out))
    if node.op_type == "Pow":
        exponent = given.get(node.input[1])
        return (
            _SIMPLE_POWERS.get(
                float(exponent) if exponent is not None and exponent.ndim == 0 else None, 2 * _TRANSCENDENTAL
            )
            * elements
        )
    return _PER_ELEMENT.get(node.op_type, 2) * elements


_RECURRENT = ("LSTM", "GRU", "RNN")
_Shapes = Sequence[tuple[int, ...]]
_Attributes = Mapping[str, Any]


def _einsum(inputs: _Shapes, out: tuple[int, ...], attributes: _Attributes) -> int:
    terms = attributes["equation"].decode().split("->")[0].split(",")
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, inputs, strict=True):
        sizes |= zip(term, shape, strict=True)
    return 2 * prod(sizes.values())


def _attention(inputs: _Shapes, out: tuple[int, ...], attributes: _Attributes) -> int:
    """Scores, softmax, weighted sum; half of it where rows see only what is before them."""
    batch, heads, queries, size = inputs[0]
    pairs = batch * heads * queries * inputs[1][2] // (2 if attributes.get("is_causal") else 1)
    return pairs * (2 * size + 2 * inputs[2][3] + _PER_ELEMENT["Softmax"])


def _recurrent(inputs: _Shapes, out: tuple[int, ...], attributes: _Attributes) -> int:
    """Each step and row of the batch: input and state times all gates' weights, and the gates' functions."""
    steps, batch, _ = inputs[0]
    gates = inputs[1][0] * inputs[1][1]
    taken = sum(attributes.get("sequence_lens", [steps] * batch))
    return int(taken) * (2 * prod(inputs[1]) + 2 * prod(inputs[2]) + _TRANSCENDENTAL * gates)


def _pooling(inputs: _Shapes, out: tuple[int, ...], attributes: _Attributes) -> int:
    return 2 * prod(out) * prod(attributes["kernel_shape"])


_PRODUCTS: dict[str, Callable[[_Shapes, tuple[int, ...], _Attributes], int]] = {
    "Conv": lambda inputs, out, _: 2 * prod(out) * prod(inputs[1][1:]),
    "DeformConv": lambda inputs, out, _: 2 * prod(out) * prod(inputs[1][1:]) + 8 * prod(inputs[2]) * inputs[0][1],
    "ConvTranspose": lambda inputs, out, _: 2 * prod(inputs[0]) * prod(inputs[1][1:]),
    "MatMul": lambda inputs, out, _: 2 * prod(out) * inputs[0][-1],
    "QLinearConv": lambda inputs, out, _: 2 * prod(out) * prod(inputs[3][1:]),
    "QLinearMatMul": lambda inputs, out, _: 2 * prod(out) * inputs[0][-1],
    "Gemm": lambda inputs, out, _: 2 * prod(out) * inputs[0][1],
    "Einsum": _einsum,
    "Attention": _attention,
    **dict.fromkeys(_RECURRENT, _recurrent),
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool"), _pooling),
}
"""Operations by shapes of inputs and output, and attributes."""

_OF_BYTES = ("QLinearConv", "QLinearMatMul")
_ROUNDED = ("MatMul", "Gemm", "Conv")
"""Their weights are constants, as in the cases that are measured so."""
