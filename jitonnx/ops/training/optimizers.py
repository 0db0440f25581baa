"""One step of an optimiser: tensors, their gradients and what the optimiser remembers of them, updated (preview).

Inputs are R (learning rate), T (number of updates so far) and then all tensors, all gradients, and all of each state;
outputs are all tensors, and all of each state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError, Operator
from jitonnx.ir.types import TensorType

DOMAIN = "ai.onnx.preview.training"


class _Optimizer(Operator):
    """What the optimisers share: the order of their inputs, and a step as an expression of one element."""

    domain = DOMAIN
    states: ClassVar[int]
    """How many tensors are remembered for each one that is optimised."""

    def _groups(self, given: Sequence[Value]) -> list[list[Value]]:
        """The tensors, their gradients, and each state, a list each."""
        count, rest = divmod(len(given), 2 + self.states)
        if rest or not count:
            raise InferenceError(
                f"{len(given)} inputs behind R and T: {self.name} takes {2 + self.states} for each tensor"
            )
        return [list(given[at : at + count]) for at in range(0, len(given), count)]

    def infer(self, context: InferenceContext, rate: Value, count: Value, *given: Value) -> list[TensorType]:
        for value in (rate, count):
            if not all(context.demand_equal(size, 1) for size in value.shape):
                raise InferenceError(f"{value.name!r} has the type {value.type}; a scalar is needed")
        tensors, *others = self._groups(given)
        for group in others:
            for tensor, value in zip(tensors, group, strict=True):
                fits = len(value.shape) == len(tensor.shape) and all(
                    map(context.demand_equal, value.shape, tensor.shape)
                )
                if value.dtype is not tensor.dtype or not fits:
                    raise InferenceError(f"{value.name!r} has the type {value.type}; {tensor.type} expected")
        states = others[1:]
        return [value.type for value in (*tensors, *(value for group in states for value in group))]

    def step(self, rate: e.Expr, count: e.Expr, x: e.Expr, gradient: e.Expr, *states: e.Expr) -> tuple[e.Expr, ...]:
        """The new element, and that of each state; all of one type, `count` too."""
        raise NotImplementedError

    def lower(self, to: Lowering, rate: Value, count: Value, *given: Value) -> list[Value]:
        groups = self._groups(given)
        results: list[list[Value]] = [[] for _ in range(1 + self.states)]
        for values in zip(*groups, strict=True):
            dtype = values[0].dtype
            scalars = [to.cast(to.reshape(value, ()), dtype) for value in (rate, count)]
            stepped = self.step(*(e.operand(i, dtype) for i in range(2 + len(values))))
            for column, expression in zip(results, stepped, strict=True):
                result = to.map(expression, *scalars, *values)
                column.append(to.broadcast(result, values[0].shape))
        return [value for column in results for value in column]


class Adagrad(_Optimizer):
    """A step against the gradient, divided by the root of the sum of its squares so far."""

    states = 1

    decay_factor: float = 0.0
    epsilon: float = 1e-6
    norm_coefficient: float = 0.0

    def step(self, rate: e.Expr, count: e.Expr, x: e.Expr, gradient: e.Expr, *states: e.Expr) -> tuple[e.Expr, ...]:
        regularized = x * self.norm_coefficient + gradient
        squares = states[0] + regularized * regularized
        decayed = rate / (count * self.decay_factor + 1)
        return x - decayed * regularized / (e.sqrt(squares) + self.epsilon), squares

    def evaluate(self, rate: np.ndarray, count: np.ndarray, *given: np.ndarray) -> tuple[np.ndarray, ...]:
        updated = []
        for x, gradient, squares in _by_tensor(given, 3):
            regularized = x.dtype.type(self.norm_coefficient) * x + gradient
            total = squares + regularized * regularized
            decayed = (rate.reshape(()) / (1 + count.reshape(()) * self.decay_factor)).astype(x.dtype)
            updated.append((x - decayed * regularized / (np.sqrt(total) + x.dtype.type(self.epsilon)), total))
        return _in_order(updated)


class Adam(_Optimizer):
    """A step against the running mean of the gradient, divided by the root of the running mean of its square."""

    states = 2

    alpha: float = 0.9
    beta: float = 0.999
    epsilon: float = 1e-6
    norm_coefficient: float = 0.0
    norm_coefficient_post: float = 0.0

    def step(self, rate: e.Expr, count: e.Expr, x: e.Expr, gradient: e.Expr, *states: e.Expr) -> tuple[e.Expr, ...]:
        regularized = x * self.norm_coefficient + gradient
        mean = states[0] * self.alpha + regularized * (1 - self.alpha)
        square = states[1] * self.beta + regularized * regularized * (1 - self.beta)
        ones = e.constant(1.0, x.dtype)

        def power(base: float) -> e.Expr:
            return e.power(e.constant(base, x.dtype), count)

        corrected = rate * e.sqrt(ones - power(self.beta)) / (ones - power(self.alpha))
        adjusted = e.where(e.constant(0.0, x.dtype) < count, corrected, rate)
        stepped = x - adjusted * mean / (e.sqrt(square) + self.epsilon)
        return stepped * (1 - self.norm_coefficient_post), mean, square

    def evaluate(self, rate: np.ndarray, count: np.ndarray, *given: np.ndarray) -> tuple[np.ndarray, ...]:
        updated = []
        for x, gradient, mean, square in _by_tensor(given, 4):
            kind, t = x.dtype.type, float(count.reshape(()))
            regularized = kind(self.norm_coefficient) * x + gradient
            mean = kind(self.alpha) * mean + kind(1 - self.alpha) * regularized
            square = kind(self.beta) * square + kind(1 - self.beta) * regularized * regularized
            adjusted = rate.reshape(())
            if t > 0:
                adjusted = adjusted * np.sqrt(1 - self.beta**t) / (1 - self.alpha**t)
            stepped = x - kind(adjusted) * mean / (np.sqrt(square) + kind(self.epsilon))
            updated.append((kind(1 - self.norm_coefficient_post) * stepped, mean, square))
        return _in_order(updated)


class Momentum(_Optimizer):
    """A step along what is left of the steps before and the gradient; with mode "nesterov" one ahead of that."""

    states = 1

    alpha: float
    beta: float
    mode: str
    norm_coefficient: float

    def infer(self, context: InferenceContext, rate: Value, count: Value, *given: Value) -> list[TensorType]:
        if self.mode not in ("standard", "nesterov"):
            raise InferenceError(f"mode {self.mode!r}: standard or nesterov expected")
        return super().infer(context, rate, count, *given)

    def step(self, rate: e.Expr, count: e.Expr, x: e.Expr, gradient: e.Expr, *states: e.Expr) -> tuple[e.Expr, ...]:
        regularized = x * self.norm_coefficient + gradient
        zero, one = e.constant(0.0, x.dtype), e.constant(1.0, x.dtype)
        adjusted = e.where(zero < count, e.constant(self.beta, x.dtype), one)
        velocity = states[0] * self.alpha + adjusted * regularized
        return x - rate * self._direction(regularized, velocity), velocity

    def _direction(self, regularized: e.Expr, velocity: e.Expr) -> e.Expr:
        return regularized + velocity * self.alpha if self.mode == "nesterov" else velocity

    def evaluate(self, rate: np.ndarray, count: np.ndarray, *given: np.ndarray) -> tuple[np.ndarray, ...]:
        updated = []
        for x, gradient, velocity in _by_tensor(given, 3):
            kind = x.dtype.type
            regularized = kind(self.norm_coefficient) * x + gradient
            adjusted = self.beta if count.reshape(()) > 0 else 1.0
            velocity = kind(self.alpha) * velocity + kind(adjusted) * regularized
            ahead = regularized + kind(self.alpha) * velocity if self.mode == "nesterov" else velocity
            updated.append((x - kind(rate.reshape(())) * ahead, velocity))
        return _in_order(updated)


def _by_tensor(given: Sequence[np.ndarray], parts: int) -> list[tuple[np.ndarray, ...]]:
    """What belongs to each tensor: itself, its gradient, its states."""
    count = len(given) // parts
    return [tuple(given[at::count]) for at in range(count)]


def _in_order(updated: Sequence[tuple[np.ndarray, ...]]) -> tuple[np.ndarray, ...]:
    """All tensors, then all of each state."""
    return tuple(part for column in zip(*updated, strict=True) for part in column)
