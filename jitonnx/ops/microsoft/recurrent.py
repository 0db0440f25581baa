"""Recurrent layers of 8-bit weights.

As in onnxruntime: what goes into a product is quantised when it is there, as DynamicQuantizeLinear does, the input for
all steps at once and the state for the whole batch in each step. Products are exact sums of integers; all else is
float32.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Graph, Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError
from jitonnx.ir.types import TensorType
from jitonnx.ops.composite import Nodes, Parts
from jitonnx.ops.microsoft.base import Contributed, activated
from jitonnx.ops.onnx.arithmetic import Add, Clip, Max, Mul, Sub
from jitonnx.ops.onnx.cast import Cast
from jitonnx.ops.onnx.concat_split import Concat, Split
from jitonnx.ops.onnx.control_flow import Scan
from jitonnx.ops.onnx.gather import Gather
from jitonnx.ops.onnx.generators import ConstantOfShape, Range
from jitonnx.ops.onnx.logic import Less, Where
from jitonnx.ops.onnx.padding import Pad
from jitonnx.ops.onnx.quantization import DynamicQuantizeLinear, MatMulInteger
from jitonnx.ops.onnx.recurrent import LSTM
from jitonnx.ops.onnx.reduction import ReduceMax
from jitonnx.ops.onnx.reverse_sequence import ReverseSequence
from jitonnx.ops.onnx.shape import Reshape, Shape, Squeeze, Unsqueeze
from jitonnx.ops.onnx.slice import Slice


class DynamicQuantizeLSTM(Contributed):
    """ONNX's LSTM with weights W [directions, input, 4 * hidden] and R [directions, hidden, 4 * hidden] of 8 bits.

    Scales and zero points of the weights are those of a direction, [directions], or of each of its columns.
    """

    activation_alpha: tuple[float, ...] | None = None
    activation_beta: tuple[float, ...] | None = None
    activations: tuple[str, ...] | None = None
    clip: float | None = None
    direction: str = "forward"
    hidden_size: int | None = None
    input_forget: bool = False

    def compose(self, parts: Parts, x: Value, w: Value, r: Value, *others: Any) -> tuple[Value, ...]:
        bias, lengths, initial_h, initial_c, peepholes, w_scale, w_zero, r_scale, r_zero = others
        float_layer = LSTM(
            activation_alpha=self.activation_alpha,
            activation_beta=self.activation_beta,
            activations=self.activations,
            direction=self.direction,
        )
        directions, functions = float_layer.directions, float_layer.functions()
        hidden = self._checked_hidden(parts.context, x, w, r, directions)
        steps = parts.add(Shape(start=0, end=1), x)
        if lengths is not None:
            x = _up_to_longest(parts, x, lengths)
        numbers, x_scale, x_zero = parts.add_many(DynamicQuantizeLinear(), [x], 3)
        ran = []
        for d in range(directions):
            of_d = functools.partial(_of_direction, parts, d)
            sums = parts.add(MatMulInteger(), numbers, of_d(w), x_zero, of_d(w_zero))
            gates = _scaled(parts, sums, x_scale, of_d(w_scale))
            if bias is not None:
                halves = parts.add_many(Split(axis=0, num_outputs=2), [of_d(bias)], 2)
                gates = parts.add(Add(), gates, parts.add(Add(), *halves))
            states = [_zeros(parts, x, hidden) if state is None else of_d(state) for state in (initial_h, initial_c)]
            step = _Step(hidden, functions[3 * d : 3 * d + 3], self.clip or 0.0, input_forget=self.input_forget)
            weights = [of_d(r), of_d(r_scale), of_d(r_zero), None if peepholes is None else of_d(peepholes)]
            ran.append(
                _run(parts, step, gates, states, weights, lengths, backwards=self.direction == "reverse" or d == 1)
            )
        y, *last = (
            parts.add(Concat(axis=axis), *(parts.add(Unsqueeze(), value, _axes(parts, axis)) for value in values))
            for axis, values in zip((1, 0, 0), zip(*ran, strict=True), strict=True)
        )
        return (y if lengths is None else _padded(parts, y, steps), *last)

    def _checked_hidden(self, context: InferenceContext, x: Value, w: Value, r: Value, directions: int) -> int:
        """The number of hidden units. InferenceError for weights of other shapes than X and the attributes ask for."""
        if len(w.shape) != 3 or len(r.shape) != 3 or len(x.shape) != 3:
            raise InferenceError(f"X, W and R need three axes each: {x.type}, {w.type}, {r.type} given")
        hidden = r.shape[1] if self.hidden_size is None else self.hidden_size
        if not isinstance(hidden, int):
            raise InferenceError(f"hidden_size is not given, and {r.type} does not tell it")
        for name, value, shape in (("W", w, (x.shape[2], 4 * hidden)), ("R", r, (hidden, 4 * hidden))):
            if not all(map(context.demand_equal, value.shape, (directions, *shape))):
                wanted = ", ".join(map(str, (directions, *shape)))
                raise InferenceError(f"{name} has the type {value.type}, expected the shape [{wanted}]")
        return hidden


class _Step:
    """What a step does to the states."""

    def __init__(
        self, hidden: int, functions: tuple[tuple[str, float, float], ...], clip: float, *, input_forget: bool
    ) -> None:
        self._hidden, self._functions, self._clip, self._input_forget = hidden, functions, clip, input_forget

    def states(
        self, parts: Parts, gates: Value, h: Value, cell: Value, weights: list[Value], peepholes: Value | None
    ) -> tuple[Value, Value]:
        """h and the cell behind a step, of the input's part of the gates [batch, 4 * hidden] and those before."""
        r, r_scale, r_zero = weights
        numbers, scale, zero = parts.add_many(DynamicQuantizeLinear(), [h], 3)
        sums = parts.add(MatMulInteger(), numbers, r, zero, r_zero)
        gates = parts.add(Add(), gates, _scaled(parts, sums, scale, r_scale))
        i, o, f, new = parts.add_many(Split(axis=1, num_outputs=4), [gates], 4)
        p = (None,) * 3 if peepholes is None else parts.add_many(Split(axis=0, num_outputs=3), [peepholes], 3)
        i = self._gate(parts, 0, _peeped(parts, i, p[0], cell))
        if self._input_forget:
            f = parts.add(Sub(), parts.constant(np.float32(1)), i)
        else:
            f = self._gate(parts, 0, _peeped(parts, f, p[2], cell))
        fresh = parts.add(Mul(), i, self._gate(parts, 1, new))
        cell = parts.add(Add(), parts.add(Mul(), f, cell), fresh)
        o = self._gate(parts, 0, _peeped(parts, o, p[1], cell))
        return parts.add(Mul(), o, self._activated(parts, 2, cell)), cell

    def _gate(self, parts: Parts, which: int, x: Value) -> Value:
        if self._clip:
            x = parts.add(Clip(), x, *(parts.constant(np.float32(bound)) for bound in (-self._clip, self._clip)))
        return self._activated(parts, which, x)

    def _activated(self, parts: Parts, which: int, x: Value) -> Value:
        name, alpha, beta = self._functions[which]
        return activated(parts, x, name, (alpha, beta))


def _run(
    parts: Parts,
    step: _Step,
    gates: Value,
    states: list[Value],
    weights: list[Any],
    lengths: Value | None,
    *,
    backwards: bool,
) -> tuple[Value, Value, Value]:
    """One direction over all steps: Y [T, N, H], and the states [N, H] behind the last step of each sequence.

    gates: [T, N, 4 * H], the input's part. Weights that the body reads are states that do not change, so that it is
    closed: constants are constants of the body.
    """
    turn = backwards and lengths is not None
    if turn:
        gates = parts.add(ReverseSequence(time_axis=0, batch_axis=1), gates, parts.add(Cast(to=7), lengths))
    given = [value for value in (*weights, lengths) if value is not None and value.constant is None]
    carried, scanned = [*states, *given], [gates]
    if lengths is not None:
        scanned.append(_numbered(parts, gates))
    body = _body(step, [value.type for value in carried], scanned, weights, lengths)
    back = int(backwards and not turn)
    scan = Scan(
        num_scan_inputs=len(scanned),
        scan_input_directions=(back,) * len(scanned),
        scan_output_directions=(back,),
    )
    h, cell, *_, y = parts.add_many(scan, [*carried, *scanned], len(carried) + 1, [body])
    if turn:
        y = parts.add(ReverseSequence(time_axis=0, batch_axis=1), y, parts.add(Cast(to=7), lengths))
    if lengths is not None:
        y, h, cell = _ended(parts, y, lengths), *(_begun(parts, state, lengths) for state in (h, cell))
    return y, h, cell


def _body(step: _Step, carried: list[Any], scanned: list[Value], weights: list[Any], lengths: Value | None) -> Graph:
    """The graph of a step."""
    graph = Graph("step")
    own = iter([graph.add_input(f"state_{n}", type) for n, type in enumerate(carried)])
    rows = [graph.add_input(f"row_{n}", TensorType(value.dtype, value.shape[1:])) for n, value in enumerate(scanned)]
    parts = Nodes(graph, (), ())
    h, cell = next(own), next(own)
    inside: list[Any] = []
    for value in (*weights, lengths):
        if value is None:
            inside.append(None)
        else:
            inside.append(next(own) if value.constant is None else graph.add_constant(value.constant))
    *matrix, peepholes, ends = inside
    after = step.states(parts, rows[0], h, cell, matrix, peepholes)
    if ends is not None:
        active = parts.add(Unsqueeze(), parts.add(Less(), rows[1], ends), _axes(parts, 1))
        after = tuple(parts.add(Where(), active, new, old) for new, old in zip(after, (h, cell), strict=True))  # type: ignore[assignment]
    graph.outputs = [*after, *graph.inputs[2 : len(carried)], after[0]]
    return graph


def _up_to_longest(parts: Parts, x: Value, lengths: Value) -> Value:
    """The steps of x [T, N, I] that some sequence has: what is behind them has no part in the scale either."""
    longest = parts.add(ReduceMax(keepdims=True), parts.add(Cast(to=int(DType.INT64)), lengths), _axes(parts, 0))
    some = parts.add(Max(), longest, _axes(parts, 0))
    return parts.add(Slice(), x, _axes(parts, 0), some, _axes(parts, 0))


def _padded(parts: Parts, y: Value, steps: Value) -> Value:
    """y [t, directions, N, H] and zeros behind it, for all steps."""
    missing = parts.add(Sub(), steps, parts.add(Shape(start=0, end=1), y))
    zeros = (parts.constant(np.zeros(count, np.int64)) for count in (4, 3))
    return parts.add(Pad(), y, parts.add(Concat(axis=0), next(zeros), missing, next(zeros)))


def _numbered(parts: Parts, gates: Value) -> Value:
    """The number of each step, int32 [T]."""
    steps = parts.add(Squeeze(), parts.add(Shape(start=0, end=1), gates))
    zero, one = (parts.constant(np.int64(number)) for number in (0, 1))
    return parts.add(Cast(to=int(DType.INT32)), parts.add(Range(), zero, steps, one))


def _ended(parts: Parts, y: Value, lengths: Value) -> Value:
    """y [T, N, H], 0 from the end of each sequence on."""
    times = parts.add(Reshape(), _numbered(parts, y), parts.constant(np.array([-1, 1, 1], np.int64)))
    ends = parts.add(Reshape(), lengths, parts.constant(np.array([1, -1, 1], np.int64)))
    return parts.add(Where(), parts.add(Less(), times, ends), y, parts.constant(np.float32(0)))


def _begun(parts: Parts, state: Value, lengths: Value) -> Value:
    """A last state [N, H], 0 for sequences without a step, as onnxruntime has it."""
    some = parts.add(Less(), parts.constant(np.int32(0)), lengths)
    return parts.add(Where(), parts.add(Unsqueeze(), some, _axes(parts, 1)), state, parts.constant(np.float32(0)))


def _peeped(parts: Parts, gate: Value, peephole: Value | None, cell: Value) -> Value:
    return gate if peephole is None else parts.add(Add(), gate, parts.add(Mul(), peephole, cell))


def _scaled(parts: Parts, sums: Value, scale: Value, weights_scale: Value) -> Value:
    """int32 sums as float32, times both scales."""
    both = parts.add(Mul(), scale, weights_scale)
    return parts.add(Mul(), parts.add(Cast(to=int(DType.FLOAT)), sums), both)


def _of_direction(parts: Parts, direction: int, value: Value) -> Value:
    """What belongs to a direction: of a constant a constant."""
    if value.constant is not None:
        return parts.constant(np.ascontiguousarray(value.constant[direction]))
    return parts.add(Gather(), value, parts.constant(np.int64(direction)))


def _zeros(parts: Parts, x: Value, hidden: int) -> Value:
    """The initial state of a layer that is given none."""
    batch = parts.add(Shape(start=1, end=2), x)
    shape = parts.add(Concat(axis=0), batch, parts.constant(np.array([hidden], np.int64)))
    return parts.add(ConstantOfShape(), shape)


def _axes(parts: Parts, axis: int) -> Value:
    return parts.constant(np.array([axis], np.int64))
