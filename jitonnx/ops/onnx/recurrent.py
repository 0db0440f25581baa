"""Recurrent layers: LSTM, GRU and RNN over whole sequences.

Inputs are X [T, N, I], W and R by direction, an optional bias B, sequence_lens [N], and initial states; layout 1 has
the batch in front of X, Y and the states. What lies behind the end of a shorter sequence is 0 in Y; the last state is
the one at its end, and 0 for an empty sequence, as in onnxruntime. `clip` bounds what goes into the gates' activations,
but not the cell on its way into LSTM's h, again as in onnxruntime.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dims import DimLike
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError, Operator
from jitonnx.ir.raw import RawNode
from jitonnx.ir.types import TensorType, contents_array
from jitonnx.ops.base import lower_halves, widen
from jitonnx.support.records import NamedTuple


class _Activation(NamedTuple):
    """f(x, alpha, beta), the defaults of both, and how many of them there are."""

    function: Callable[[np.ndarray, float, float], np.ndarray]
    alpha: float = 0.0
    beta: float = 0.0
    parameters: int = 0


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


ACTIVATIONS = {
    "Affine": _Activation(lambda x, a, b: a * x + b, 1.0, 0.0, 2),
    "Elu": _Activation(lambda x, a, b: np.where(x >= 0, x, a * np.expm1(x)), 1.0, parameters=1),
    "HardSigmoid": _Activation(lambda x, a, b: np.clip(a * x + b, 0, 1), 0.2, 0.5, 2),
    "LeakyRelu": _Activation(lambda x, a, b: np.where(x >= 0, x, a * x), 0.01, parameters=1),
    "Relu": _Activation(lambda x, a, b: np.maximum(x, 0)),
    "ScaledTanh": _Activation(lambda x, a, b: a * np.tanh(b * x), 1.0, 1.0, 2),
    "Sigmoid": _Activation(lambda x, a, b: _sigmoid(x)),
    "Softplus": _Activation(lambda x, a, b: np.logaddexp(x, x.dtype.type(0))),
    "Softsign": _Activation(lambda x, a, b: x / (1 + np.abs(x))),
    "Tanh": _Activation(lambda x, a, b: np.tanh(x)),
    "ThresholdedRelu": _Activation(lambda x, a, b: np.where(x >= a, x, 0), 1.0, parameters=1),
}
"""ONNX's activation functions for recurrent layers."""

_Gate = Callable[[np.ndarray], np.ndarray]


class _Direction(NamedTuple):
    """The operands of one direction: recurrent weights [gates * H, H], halves of the bias, peepholes, activations."""

    r: np.ndarray
    bias_w: np.ndarray
    bias_r: np.ndarray
    peepholes: np.ndarray
    functions: tuple[_Gate, ...]
    input_forget: bool
    linear_before_reset: bool


# The states [N, H] after one step, of those before it; x has been multiplied with W already.


def _lstm(x: np.ndarray, h: np.ndarray, cell: np.ndarray, of: _Direction) -> tuple[np.ndarray, np.ndarray]:
    f, g, last = of.functions
    i, o, forget, new = np.split(x + h @ of.r.T + (of.bias_w + of.bias_r), 4, axis=1)
    p_i, p_o, p_f = np.split(of.peepholes, 3)
    i = f(i + p_i * cell)
    forget = 1 - i if of.input_forget else f(forget + p_f * cell)
    cell = forget * cell + i * g(new)
    return f(o + p_o * cell) * last(cell), cell


def _gru(x: np.ndarray, h: np.ndarray, cell: np.ndarray, of: _Direction) -> tuple[np.ndarray, np.ndarray]:
    f, g = of.functions
    size = h.shape[1]
    r_zr, r_h = of.r[: 2 * size], of.r[2 * size :]
    bias = of.bias_w + of.bias_r
    z, reset = np.split(f(x[:, : 2 * size] + h @ r_zr.T + bias[: 2 * size]), 2, axis=1)
    candidate = x[:, 2 * size :] + of.bias_w[2 * size :]
    if of.linear_before_reset:
        candidate = candidate + reset * (h @ r_h.T + of.bias_r[2 * size :])
    else:
        candidate = candidate + ((reset * h) @ r_h.T + of.bias_r[2 * size :])
    h = (1 - z) * g(candidate) + z * h
    return h, h


def _rnn(x: np.ndarray, h: np.ndarray, cell: np.ndarray, of: _Direction) -> tuple[np.ndarray, np.ndarray]:
    (f,) = of.functions
    h = f(x + h @ of.r.T + (of.bias_w + of.bias_r))
    return h, h


_STEPS = {"LSTM": _lstm, "GRU": _gru, "RNN": _rnn}


def _gate(name: str, alpha: float, beta: float, bound: float) -> _Gate:
    function = ACTIVATIONS[name].function
    return lambda x: function(np.clip(x, -bound, bound), alpha, beta)


def _over_steps(
    step: Callable[..., tuple[np.ndarray, np.ndarray]],
    of: _Direction,
    x: np.ndarray,
    lengths: np.ndarray,
    states: tuple[np.ndarray, np.ndarray],
    *,
    backwards: bool,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One direction over all steps: Y [T, N, H] and the last states [N, H]. x: multiplied with W already."""
    steps, batch = x.shape[:2]
    # Which step each sequence takes as its number t: backwards from its own end, not from that of the longest.
    order = np.repeat(np.arange(steps)[:, None], batch, 1)
    live = order < lengths
    if backwards:
        order = np.where(live, lengths - 1 - order, order)
    inputs = np.take_along_axis(x, order[:, :, None], 0)
    h, cell = states
    y = np.zeros((steps, batch, h.shape[1]), x.dtype)
    for t in range(steps):
        new_h, new_cell = step(inputs[t], h, cell, of)
        mask = live[t][:, None]
        h, cell = np.where(mask, new_h, h), np.where(mask, new_cell, cell)
        np.put_along_axis(y, order[t][None, :, None], np.where(mask, new_h, 0)[None], 0)
    ran = (lengths > 0)[:, None]
    return y, np.where(ran, h, 0), np.where(ran, cell, 0)


def recurrent(  # noqa: PLR0913  (an operator's inputs, and its attributes by name)
    x: np.ndarray,
    w: np.ndarray | None,
    r: np.ndarray,
    b: np.ndarray | None = None,
    lengths: np.ndarray | None = None,
    initial_h: np.ndarray | None = None,
    initial_c: np.ndarray | None = None,
    p: np.ndarray | None = None,
    *,
    kind: str,
    direction: str,
    hidden: int,
    activations: tuple[tuple[str, float, float], ...],
    clip: float,
    input_forget: bool,
    linear_before_reset: bool,
) -> tuple[np.ndarray, ...]:
    """LSTM, GRU or RNN over x [T, N, I]: y [T, directions, N, H], the last h and, of LSTM, the last cell.

    w None: x has been multiplied with it already. activations: name, alpha and beta of each, by direction.
    """
    steps, batch, directions = x.shape[0], x.shape[1], r.shape[0]
    limit, per = clip or math.inf, len(activations) // directions
    # The third function of a direction, which only LSTM has, is applied to the cell and not to a gate.
    gates = tuple(_gate(*chosen, math.inf if i % per == 2 else limit) for i, chosen in enumerate(activations))
    b = np.zeros((directions, 2 * r.shape[1]), x.dtype) if b is None else b
    p = np.zeros((directions, 3 * hidden), x.dtype) if p is None else p
    nothing = np.zeros((directions, batch, hidden), x.dtype)
    h, cell = (nothing if state is None else state for state in (initial_h, initial_c))
    lengths = np.full(batch, steps) if lengths is None else lengths
    products = np.split(x, directions, axis=2) if w is None else [x @ one.T for one in w]
    ran = []
    for i in range(directions):
        own = gates[i * per : (i + 1) * per]
        bias_w, bias_r = np.split(b[i], 2)
        of = _Direction(r[i], bias_w, bias_r, p[i], own, input_forget, linear_before_reset)
        backwards = direction == "reverse" or i == 1
        ran.append(_over_steps(_STEPS[kind], of, products[i], lengths, (h[i], cell[i]), backwards=backwards))
    return tuple(np.stack(parts, axis) for parts, axis in zip(zip(*ran, strict=True), (1, 0, 0), strict=True))


class _Recurrent(Operator):
    """What the three layers share: attributes, shapes, directions, sequence lengths."""

    kind: ClassVar[c.RecurrentKind]
    gates: ClassVar[int]
    states: ClassVar[int] = 1
    """How many outputs there are beside Y."""
    default_activations: ClassVar[tuple[str, ...]]

    activation_alpha: tuple[float, ...] | None = None
    activation_beta: tuple[float, ...] | None = None
    activations: tuple[str, ...] | None = None
    clip: float = 0.0  # 0: none
    direction: str = "forward"
    hidden_size: int | None = None
    layout: int = 0

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        node.drop("output_sequence")  # version 1 said by it whether Y is wanted, which the node's outputs say too

    # ------------------------------------------------------------ attributes

    @property
    def directions(self) -> int:
        """1, or 2 if bidirectional. InferenceError for a direction that ONNX does not know."""
        if self.direction not in ("forward", "reverse", "bidirectional"):
            raise InferenceError(f"direction {self.direction!r}: one of forward, reverse, bidirectional expected")
        return 2 if self.direction == "bidirectional" else 1

    def functions(self) -> tuple[tuple[str, float, float], ...]:
        """Name, alpha and beta of each activation, all of the first direction first.

        The attributes' values are used up in order by the functions that have parameters.
        """
        names = self.activations or self.default_activations * self.directions
        if len(names) != len(self.default_activations) * self.directions:
            raise InferenceError(
                f"{len(names)} activations given, {len(self.default_activations)} a direction expected: {list(names)}"
            )
        known = {name.lower(): name for name in ACTIVATIONS}
        alphas, betas = list(self.activation_alpha or ()), list(self.activation_beta or ())
        chosen = []
        for name in names:
            if name.lower() not in known:
                raise InferenceError(f"activation {name!r}: one of {', '.join(ACTIVATIONS)} expected")
            function = ACTIVATIONS[known[name.lower()]]
            alpha = alphas.pop(0) if function.parameters >= 1 and alphas else function.alpha
            beta = betas.pop(0) if function.parameters >= 2 and betas else function.beta
            chosen.append((known[name.lower()], alpha, beta))
        return tuple(chosen)

    def _fields(self) -> dict[str, Any]:
        """What `recurrent` and `c.Recurrent` have in common, but for the size."""
        return {
            "kind": self.kind,
            "direction": self.direction,
            "activations": self.functions(),
            "clip": self.clip,
            "input_forget": bool(getattr(self, "input_forget", False)),
            "linear_before_reset": bool(getattr(self, "linear_before_reset", False)),
        }

    def computation(self, hidden: int, *, projected: bool = False) -> c.Recurrent:
        """What is computed. projected: see `c.Recurrent`."""
        return c.Recurrent(**self._fields(), hidden=hidden, projected=projected)

    # ------------------------------------------------------------ types

    def infer(
        self, context: InferenceContext, x: Value, w: Value, r: Value, *others: Value | None
    ) -> tuple[TensorType, ...]:
        if len(x.shape) != 3 or len(w.shape) != 3 or len(r.shape) != 3:
            raise InferenceError(f"X, W and R need three axes each: {x.type}, {w.type}, {r.type} given")
        if self.layout not in (0, 1):
            raise InferenceError(f"layout {self.layout}: 0 or 1 expected")
        self.functions()
        batch = x.shape[1 - self.layout]
        hidden = self.hidden_size if self.hidden_size is not None else r.shape[2]
        rows = hidden * self.gates
        expected: dict[str, tuple[Value, tuple[DimLike, ...]]]
        expected = {"W": (w, (self.directions, rows, x.shape[2])), "R": (r, (self.directions, rows, hidden))}
        shapes: dict[str, tuple[DimLike, ...]] = {
            "B": (self.directions, 2 * rows),
            "sequence_lens": (batch,),
            "initial_h": self._state_shape(batch, hidden),
            "initial_c": self._state_shape(batch, hidden),
            "P": (self.directions, 3 * hidden),
        }
        for (name, shape), value in zip(shapes.items(), others, strict=False):
            if value is not None:
                expected[name] = (value, shape)
        for name, (value, shape) in expected.items():
            if len(value.shape) != len(shape) or not all(map(context.demand_equal, value.shape, shape)):
                raise InferenceError(f"{name} has the type {value.type}, expected the shape {list(map(str, shape))}")
        return self.results(x, hidden)

    def results(self, x: Value, hidden: DimLike) -> tuple[TensorType, ...]:
        """The types of the outputs."""
        steps, batch = x.shape[:2] if self.layout == 0 else x.shape[1::-1]
        state = TensorType(x.dtype, self._state_shape(batch, hidden))
        y = (batch, steps, self.directions, hidden) if self.layout else (steps, self.directions, batch, hidden)
        return (TensorType(x.dtype, y), *(state,) * self.states)

    def _state_shape(self, batch: DimLike, hidden: DimLike) -> tuple[DimLike, ...]:
        return (batch, self.directions, hidden) if self.layout else (self.directions, batch, hidden)

    # ------------------------------------------------------------ evaluation

    def evaluate(self, x: np.ndarray, w: np.ndarray, r: np.ndarray, *others: np.ndarray | None) -> Sequence[np.ndarray]:
        return self.run(x, w, r, *others)

    def run(
        self, x: np.ndarray, w: np.ndarray | None, r: np.ndarray, *others: np.ndarray | None
    ) -> tuple[np.ndarray, ...]:
        """The outputs of the layer. w: None where X has been multiplied with it already. others: the bias and on."""
        b, lengths, initial_h, initial_c, p = (*others, *[None] * 5)[:5]
        steps = x.shape[self.layout]
        if lengths is not None and ((lengths < 0) | (lengths > steps)).any():
            raise ValueError(f"sequence_lens has elements outside of 0 ... {steps}: {lengths.tolist()}")
        by_batch = (x, initial_h, initial_c)
        inputs, h, cell = (array if array is None or not self.layout else array.swapaxes(0, 1) for array in by_batch)
        given = (widen(inputs), widen(w), widen(r), widen(b), lengths, widen(h), widen(cell), widen(p))
        y, *last = recurrent(*given, **self._fields(), hidden=r.shape[2])[: 1 + self.states]
        if self.layout:
            y, last = y.transpose(2, 0, 1, 3), [state.swapaxes(0, 1) for state in last]
        return tuple(np.ascontiguousarray(array.astype(x.dtype, copy=False)) for array in (y, *last))

    # ------------------------------------------------------------ lowering

    @lower_halves
    def lower(self, to: Lowering, *operands: Value | None) -> tuple[Value, ...]:
        """c.Recurrent, which has layout 0, with transposes around it for layout 1."""
        hidden = to.shape[-1]
        if not isinstance(hidden, int):  # the loop over time is code for a number of units
            return to.host(self, operands)
        time, batch = (1, 0) if self.layout else (0, 2)
        y_shape = (to.shape[time], self.directions, to.shape[batch], hidden)
        state_shape = (self.directions, to.shape[batch], hidden)
        types = [TensorType(to.type.dtype, shape) for shape in (y_shape, *(state_shape,) * self.states)]
        if (lengths := operands[4] if len(operands) > 4 else None) is not None:
            steps, rows = (to.dimensions(contents_array((to.shape[axis],), ())) for axis in (time, batch))
            length, most = e.cast(e.operand(0, lengths.dtype), DType.INT64), e.operand(1, DType.INT64)
            wrong = e.logical_or(length < 0, length > most)
            to.check(to.map(wrong, lengths, steps), "sequence_lens has an element outside of 0 ... seq_length")
            longest = to.reduce("max", to.cast(lengths, DType.INT64), (0,), keepdims=True)
            read = to.map(e.operand(0, DType.INT64) * e.operand(1, DType.INT64), longest, rows)
            operands = (*operands, *[None] * (8 - len(operands)), read)
        if not self.layout:
            return to.emit_many(self.computation(hidden), operands, types)
        by_batch = (0, 5, 6)  # X, initial_h, initial_c
        turned = [
            to.transpose(value, (1, 0, 2)) if value is not None and position in by_batch else value
            for position, value in enumerate(operands)
        ]
        y, *states = to.emit_many(self.computation(hidden), turned, types)
        return (to.transpose(y, (2, 0, 1, 3)), *(to.transpose(state, (1, 0, 2)) for state in states))


class LSTM(_Recurrent):
    """Long short-term memory with optional peepholes P; outputs Y, Y_h, Y_c. Gates in the order i, o, f, c."""

    kind = "LSTM"
    gates = 4
    states = 2
    default_activations = ("Sigmoid", "Tanh", "Tanh")

    input_forget: bool = False


class GRU(_Recurrent):
    """Gated recurrent unit; outputs Y, Y_h. Gates in the order z, r, h."""

    kind = "GRU"
    gates = 3
    default_activations = ("Sigmoid", "Tanh")

    linear_before_reset: bool = False


class RNN(_Recurrent):
    """The simple recurrent layer H = f(X Wᵀ + H Rᵀ + B); outputs Y, Y_h."""

    kind = "RNN"
    gates = 1
    default_activations = ("Tanh",)
