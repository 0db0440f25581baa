"""Random graphs on strings: rewrites, which know movement of any elements, must not take them for numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from jitonnx.engine.interpreter import evaluate
from jitonnx.ir.assumptions import holds
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import GraphError, Value
from jitonnx.ir.operator import Operator, evaluate_arrays
from jitonnx.ops.onnx.arithmetic import Neg
from jitonnx.ops.onnx.cast import Cast
from jitonnx.ops.onnx.concat_split import Concat, Split
from jitonnx.ops.onnx.gather import Gather
from jitonnx.ops.onnx.identity import Identity
from jitonnx.ops.onnx.logic import Equal, Where
from jitonnx.ops.onnx.padding import Pad
from jitonnx.ops.onnx.shape import Expand, Flatten, Reshape, Transpose, Unsqueeze
from jitonnx.ops.onnx.slice import Slice
from jitonnx.ops.onnx.tile import Tile
from jitonnx.passes import optimize
from tests.passes.graphs import Build

Array = np.ndarray


class Random:
    """A graph that grows by random steps on random earlier values, which are known as arrays too."""

    def __init__(self, seed: int, symbolic: bool) -> None:
        self.rng, self.build = np.random.default_rng(seed), Build()
        self.shape = tuple(self.rng.integers(1, 5, self.rng.integers(1, 4)).tolist())
        x = np.array([f"t{i}" for i in range(np.prod(self.shape))], object).reshape(self.shape)
        dims = [f"d{i}" for i in range(x.ndim)] if symbolic else self.shape
        self.known: list[tuple[Value, Array]] = [(self.build.input(x, dims), x)]

    def add(self, operator: Operator, *inputs: tuple[Value, Array] | Array, outputs: int = 1) -> tuple[Value, Array]:
        """A node on values and constants; the last output is what comes of it."""
        pairs = [x if isinstance(x, tuple) else (self.build.graph.add_constant(x), x) for x in inputs]
        values = self.build.ops(operator, outputs, *[value for value, _ in pairs])
        arrays = evaluate_arrays(operator, [array for _, array in pairs])
        self.known += zip(values, arrays, strict=True)
        return self.known[-1]

    def words(self, shape: tuple[int, ...]) -> Array:
        words = np.empty(shape, object)
        words[...] = self.rng.choice(["c0", "c1", ""], shape)
        return words

    def step(self) -> None:
        """One step of a kind that suits the value."""
        strings = [pair for pair in self.known if pair[1].dtype == object]
        x = strings[self.rng.integers(len(strings))]
        array, rng = x[1], self.rng
        axis = int(rng.integers(max(array.ndim, 1)))
        size = array.shape[axis] if array.ndim else 0
        choices = rng.integers(0, 2, array.shape).astype(bool) | (rng.random() < 0.3)
        steps: list[Callable[[], object]] = [
            lambda: self.add(Identity(), x),
            lambda: self.add(Cast(to=int(DType.STRING)), x),
            lambda: self.add(Flatten(axis=int(rng.integers(array.ndim + 1))), x),
            lambda: self.add(Reshape(allowzero=1), x, np.array(rng.permutation(array.shape), np.int64)),
            lambda: self.add(Transpose(perm=tuple(rng.permutation(array.ndim).tolist())), x),
            lambda: self.add(Unsqueeze(), x, np.array([axis])),
            lambda: self.add(Tile(), x, rng.integers(1, 3, array.ndim)),
            lambda: self.add(Expand(), x, np.array([2, *(1 for _ in array.shape)])),
            lambda: self.add(Where(), choices, x, self.words(array.shape)),
            lambda: self.add(
                Cast(to=int(DType.STRING)),
                self.add(Neg(), self.add(Cast(to=int(DType.FLOAT)), self.add(Equal(), x, self.words(array.shape)))),
            ),
        ]
        if size:
            first, last, stride = (
                int(rng.integers(-size, size)),
                int(rng.integers(-size, size)),
                int(rng.integers(1, 3)),
            )
            bounds = [first, last, axis, stride] if rng.random() < 0.5 else [last, first, axis, -stride]
            part = int(rng.integers(size + 1))
            indices = rng.integers(-size, size, rng.integers(0, 3, rng.integers(0, 3)))
            steps += [
                lambda: self.add(Gather(axis=axis), x, indices),
                lambda: self.add(Slice(), x, *(np.array([bound]) for bound in bounds)),
                lambda: self.add(Concat(axis=axis), x, self.words(array.shape)),
                lambda: self.add(Concat(axis=axis), x, x),
                lambda: self.add(Split(axis=axis), x, np.array([part, size - part]), outputs=2),
                lambda: self.add(Pad(), x, np.eye(1, 2 * array.ndim, axis, np.int64)[0], np.array("p", object)),
            ]
        try:
            steps[rng.integers(len(steps))]()
        except GraphError:  # open sizes that cannot be what others were assumed to be
            assert not all(kind.type.static for kind in self.build.graph.inputs)

    def as_assumed(self) -> bool:
        """Whether the sizes are what the graph takes them to be; an engine makes another graph where they are not."""
        sizes = {f"d{axis}": size for axis, size in enumerate(self.shape)}
        return all(holds(pair, sizes) for pair in self.build.graph.assumptions)


@pytest.mark.parametrize("symbolic", [False, True], ids=["fixed", "open"])
def test_rewrites_keep_strings(symbolic: bool) -> None:
    rewritten = 0
    for seed in range(150):
        random = Random(seed, symbolic)
        for _ in range(8):
            random.step()
        graph = random.build.graph
        graph.outputs = [value for value, _ in random.known[-3:]]
        report = optimize(graph, verify_fully=True)
        if not random.as_assumed():
            continue
        rewritten += len(report.applied)
        for given, (_, wanted) in zip(evaluate(graph, random.build.feeds), random.known[-3:], strict=True):
            assert given.dtype == wanted.dtype and given.shape == wanted.shape, f"seed {seed}"
            assert given.tolist() == wanted.tolist(), f"seed {seed}"
    assert rewritten > 200
