"""Random graphs of what rewrites meet most: they must come to an end, keep types and results."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from jitonnx.ir.graph import Value
from jitonnx.ops.onnx.activation import Relu, Sigmoid
from jitonnx.ops.onnx.arithmetic import Add, Div, Mul, Neg, Sub
from jitonnx.ops.onnx.concat_split import Concat, Split
from jitonnx.ops.onnx.gather import Gather
from jitonnx.ops.onnx.identity import Identity
from jitonnx.ops.onnx.logic import Where
from jitonnx.ops.onnx.matmul import Gemm, MatMul
from jitonnx.ops.onnx.normalization import LayerNormalization
from jitonnx.ops.onnx.reduction import ReduceMax, ReduceMean
from jitonnx.ops.onnx.shape import Expand, Flatten, Reshape, Squeeze, Transpose, Unsqueeze
from jitonnx.ops.onnx.slice import Slice
from jitonnx.ops.onnx.softmax import Softmax
from tests.passes.graphs import Build, rewritten

Step = Callable[["Random"], "Value | None"]


class Random:
    """A graph that grows by random steps on random earlier values."""

    def __init__(self, build: Build, seed: int) -> None:
        self.build, self.rng = build, np.random.default_rng(seed)
        self.values = [build.input(self.rng.standard_normal((2, 3, 4)).astype(np.float32))]
        self.values.append(build.input(self.rng.standard_normal((1, 3, 4)).astype(np.float32)))

    def pick(self, least: int = 0) -> Value:
        """A value, newer ones more often, of at least so many axes."""
        fitting = [value for value in self.values if len(value.shape) >= least]
        return fitting[-1 - min(int(self.rng.exponential(2)), len(fitting) - 1)]

    def number(self, *shape: int) -> np.ndarray:
        return (self.rng.integers(1, 9, shape) / 4).astype(np.float32)

    def factorise(self, size: int) -> list[int]:
        """A random shape of so many elements."""
        shape = []
        while size > 1:
            factor = int(self.rng.choice([d for d in range(2, size + 1) if size % d == 0]))
            shape.append(factor)
            size //= factor
        for _ in range(int(self.rng.integers(0, 2))):
            shape.insert(int(self.rng.integers(0, len(shape) + 1)), 1)
        return shape or [1]


def transpose(r: Random) -> Value:
    x = r.pick()
    return r.build.op(Transpose(perm=tuple(int(axis) for axis in r.rng.permutation(len(x.shape)))), x)


def reshape(r: Random) -> Value:
    x = r.pick()
    return r.build.op(Reshape(), x, np.array(r.factorise(int(np.prod(x.shape)))))


def flatten(r: Random) -> Value:
    x = r.pick()
    return r.build.op(Flatten(axis=int(r.rng.integers(0, len(x.shape) + 1))), x)


def unsqueeze(r: Random) -> Value:
    x = r.pick()
    return r.build.op(Unsqueeze(), x, np.array([int(r.rng.integers(0, len(x.shape) + 1))]))


def squeeze(r: Random) -> Value | None:
    x = r.pick()
    ones = [axis for axis, size in enumerate(x.shape) if size == 1]
    return r.build.op(Squeeze(), x, np.array(ones)) if ones and len(ones) < len(x.shape) else None


def slice_(r: Random) -> Value:
    x = r.pick(1)
    axis = int(r.rng.integers(0, len(x.shape)))
    size, step = int(x.shape[axis]), int(r.rng.choice([1, 1, 2, -1]))  # type: ignore[call-overload]
    start = int(r.rng.integers(0, size))
    bounds = ([size - 1 - start], [-(size + 1)]) if step < 0 else ([start], [size])
    return r.build.op(Slice(), x, *map(np.array, (*bounds, [axis], [step])))


def split(r: Random) -> Value | None:
    x = r.pick(1)
    axis = int(r.rng.integers(0, len(x.shape)))
    size = int(x.shape[axis])  # type: ignore[call-overload]
    if size < 2:
        return None
    first = int(r.rng.integers(1, size))
    parts = r.build.ops(Split(axis=axis), 2, x, np.array([first, size - first]))
    r.values.append(parts[0])
    return parts[1]


def gather(r: Random) -> Value:
    x = r.pick(2)
    axis = int(r.rng.integers(0, len(x.shape)))
    size = int(x.shape[axis])  # type: ignore[call-overload]
    choices = [np.array(size - 1), np.array([0]), np.arange(size)[::-1].copy(), np.array([[-1, -1]]), np.arange(size)]
    return r.build.op(Gather(axis=axis), x, choices[int(r.rng.integers(len(choices)))])


def unary(r: Random) -> Value:
    return r.build.op([Relu(), Neg(), Sigmoid(), Identity()][int(r.rng.integers(4))], r.pick())


def by_constant(r: Random) -> Value:
    x = r.pick(1)
    operator = [Add(), Mul(), Sub(), Div()][int(r.rng.integers(4))]
    axis = int(r.rng.integers(0, len(x.shape)))
    shapes = [(), (1,), (int(x.shape[-1]),), (int(x.shape[axis]), *(1,) * (len(x.shape) - axis - 1))]  # type: ignore[call-overload]
    constant = r.number(*shapes[int(r.rng.integers(len(shapes)))])
    neutral = np.full_like(constant, 1 if isinstance(operator, Mul | Div) else 0)
    constant = neutral if r.rng.random() < 0.2 else constant
    swapped = operator.commutative and r.rng.random() < 0.5
    return r.build.op(operator, constant, x) if swapped else r.build.op(operator, x, constant)


def binary(r: Random) -> Value | None:
    x = r.pick()
    others = [value for value in r.values if value.shape == x.shape]
    other = others[int(r.rng.integers(len(others)))]
    return r.build.op([Add(), Mul()][int(r.rng.integers(2))], x, other)


def matmul(r: Random) -> Value:
    x = r.pick(2)
    product = r.build.op(MatMul(), x, r.number(int(x.shape[-1]), int(r.rng.integers(1, 5))))  # type: ignore[call-overload]
    return r.build.op(Add(), product, r.number(int(product.shape[-1]))) if r.rng.random() < 0.5 else product  # type: ignore[call-overload]


def gemm(r: Random) -> Value | None:
    x = r.pick(2)
    if len(x.shape) != 2:
        return None
    flipped = bool(r.rng.integers(2))
    rows, columns = (int(size) for size in x.shape)  # type: ignore[call-overload]
    weight = r.number(3, rows if flipped else columns)
    return r.build.op(Gemm(transA=flipped, transB=True, alpha=0.5, beta=2.0), x, weight, r.number(3))


def expand(r: Random) -> Value | None:
    x = r.pick()
    if not any(size == 1 for size in x.shape) or np.prod(x.shape) > 60:
        return None
    return r.build.op(Expand(), x, np.array([2 if size == 1 else size for size in x.shape]))


def concat(r: Random) -> Value:
    x = r.pick(1)
    others = [value for value in r.values if value.shape == x.shape]
    return r.build.op(Concat(axis=int(r.rng.integers(0, len(x.shape)))), x, others[int(r.rng.integers(len(others)))])


def reduce(r: Random) -> Value:
    x = r.pick(2)
    axis = int(r.rng.integers(0, len(x.shape)))
    operator = [ReduceMean, ReduceMax][int(r.rng.integers(2))]
    return r.build.op(operator(keepdims=int(r.rng.integers(2))), x, np.array([axis]))


def norm(r: Random) -> Value:
    x = r.pick(2)
    size = int(x.shape[-1])  # type: ignore[call-overload]
    return r.build.op(LayerNormalization(), x, r.number(size), r.number(size))


def softmax(r: Random) -> Value:
    return r.build.op(Softmax(axis=-1), r.pick(1))


def where(r: Random) -> Value:
    x = r.pick(1)
    condition = r.rng.random(tuple(x.shape[-1:])) < 0.5  # type: ignore[arg-type]
    return r.build.op(Where(), condition, x, r.number())


STEPS: tuple[Step, ...] = (
    transpose,
    transpose,
    reshape,
    reshape,
    flatten,
    unsqueeze,
    squeeze,
    slice_,
    split,
    gather,
    unary,
    by_constant,
    by_constant,
    binary,
    matmul,
    gemm,
    expand,
    concat,
    reduce,
    norm,
    softmax,
    where,
)


def random_graph(seed: int, length: int) -> Callable[[Build], list[Value]]:
    """The author of a random graph; the outputs are its newest values."""

    def author(build: Build) -> list[Value]:
        r = Random(build, seed)
        for _ in range(length):
            value = STEPS[int(r.rng.integers(len(STEPS)))](r)
            if value is not None and np.prod(value.shape) <= 600:  # type: ignore[arg-type]
                r.values.append(value)
        return r.values[-2:]

    return author


@pytest.mark.parametrize("seed", range(150))
def test_random_graph_computes_the_same(seed: int) -> None:
    rewritten(random_graph(seed, 4 + seed % 20), rtol=2e-4, atol=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 2000))
def test_more_random_graphs_compute_the_same(seed: int) -> None:
    rewritten(random_graph(seed, 5 + seed % 40), rtol=1e-3, atol=1e-3)
