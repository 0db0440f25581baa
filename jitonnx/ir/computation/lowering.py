"""Lowering: operators turned into computations.

`Lowering` is what an operator's `lower` is given: each method appends one computation and returns its result as a value
with a type. The outcome is a list of statements, in order, over values that are graph inputs, constants or results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from jitonnx.ir.assumptions import Assumptions
from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.defects import is_defect
from jitonnx.ir.dims import Dim, DimLike
from jitonnx.ir.dtypes import COMPILED, HALVES, DType
from jitonnx.ir.errors import FunctionError
from jitonnx.ir.graph import Graph, Node, Value, describe
from jitonnx.ir.inference import InferenceContext, inferring, unnoted
from jitonnx.ir.operator import DataDependentError, InferenceError, Operator, as_tuple
from jitonnx.ir.types import Shape, TensorType, is_symbolic, type_of
from jitonnx.support.records import dataclass

if TYPE_CHECKING:
    from jitonnx.ir.computation.drawing import Distribution


@dataclass(eq=False)
class Statement:
    """outputs = computation(inputs), on behalf of a node of the graph."""

    computation: c.Computation
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    node: Node

    def __repr__(self) -> str:
        inputs = ", ".join(value.name if value else "" for value in self.inputs)
        return f"{', '.join(map(str, self.outputs))} = {self.computation.name}({inputs})"


class Lowering:
    """Collects the statements of a graph. Methods take and return values; `computations` tells their meanings."""

    def __init__(self, context: InferenceContext) -> None:
        self.context = context
        """Answers about sizes, see `Operator.infer`."""
        self.statements: list[Statement] = []
        self._node: Node | None = None
        self._types: tuple[TensorType, ...] = ()
        self._counter = 0
        self._casts: dict[tuple[Value, DType], Value] = {}
        self.unnamed: set[Value] = set()
        """Results that are no node's yet: one that is gets the name of the node's output, by which errors call it."""
        self.counts: dict[Value, Value] = {}
        """The results that are counted, each with how many elements it has along the axis of a size only data tells."""

    @property
    def wanted(self) -> int:
        """How many outputs the node being lowered has; an operator need not compute those behind them."""
        assert self._node is not None
        return len(self._node.outputs)

    @property
    def types(self) -> tuple[TensorType, ...]:
        """The types of what the operator is to give: those of the node's outputs, as they were inferred."""
        return self._types

    @property
    def type(self) -> TensorType:
        """The type of the first output."""
        return self._types[0]

    @property
    def shape(self) -> Shape:
        """The shape of the first output."""
        shape = self._types[0].shape
        assert shape is not None
        return shape

    def begin(self, node: Node) -> None:
        """What follows is said on behalf of a node."""
        self._node, self._types = node, tuple(value.type for value in node.outputs)

    @contextmanager
    def computed_in(self, dtypes: Callable[[DType], DType]) -> Iterator[None]:
        """A block in which the operator is to give other element types than the node's outputs have."""
        types = self._types
        self._types = tuple(TensorType(dtypes(type.dtype), type.shape) for type in types)  # type: ignore[arg-type]
        try:
            yield
        finally:
            self._types = types

    # ------------------------------------------------------------ elementwise and views

    def map(self, expression: e.Expr, *operands: Value) -> Value:
        """`expression` of the operands, broadcast."""
        shape = self.context.broadcast_shapes(*(value.shape for value in operands))
        if shape is None:
            raise InferenceError(f"shapes do not broadcast: {', '.join(map(repr, operands))}")
        fitted = [self._with_ones(value, shape) for value in operands]
        return self.emit(c.Map(expression), fitted, TensorType(expression.dtype, shape))

    def fill(self, expression: e.Expr, shape: Sequence[DimLike]) -> Value:
        """A tensor of `shape`; the expression reads coordinates only."""
        return self.emit(c.Fill(expression, tuple(shape)), (), TensorType(expression.dtype, tuple(shape)))

    def draw(self, distribution: Distribution, seed: int | None, dtype: DType, shape: Sequence[DimLike]) -> Value:
        """A tensor of random numbers; without a seed of float32 or float64."""
        computation = c.Draw(distribution, seed, dtype, tuple(shape))
        return self.emit(computation, (), TensorType(dtype, tuple(shape)))

    def constant(self, array: np.ndarray) -> Value:
        """A constant of the code."""
        return Value(self._fresh("constant"), type_of(array), array)

    def dimensions(self, contents: np.ndarray) -> Value:
        """An int64 tensor of dimension expressions: a constant of the program, once sizes are known."""
        type = TensorType(DType.INT64, tuple(map(int, contents.shape)))
        return Value(self._fresh("dims"), type, contents if is_symbolic(contents) else contents.astype(np.int64))

    def cast(self, x: Value, dtype: DType) -> Value:
        """x with another element type; the same value each time. Half-precision weights are widened here."""
        if x.dtype is dtype:
            return x
        if (x, dtype) not in self._casts:
            if x.dtype in HALVES and dtype is DType.FLOAT and x.constant is not None:
                cast = self.constant(x.constant.astype(np.float32))
            else:
                cast = self.map(e.cast(e.operand(0, x.dtype), dtype), x)
            self._casts[x, dtype] = cast
        return self._casts[x, dtype]

    def transpose(self, x: Value, permutation: Sequence[int]) -> Value:
        """Axes in another order."""
        permutation = tuple(permutation)
        if permutation == tuple(range(len(permutation))):
            return x
        return self.emit(
            c.Transpose(permutation), (x,), TensorType(x.dtype, tuple(x.shape[axis] for axis in permutation))
        )

    def reshape(self, x: Value, shape: Sequence[DimLike]) -> Value:
        """Another shape of as many elements."""
        if tuple(shape) == x.shape:
            return x
        return self.emit(c.Reshape(tuple(shape)), (x,), TensorType(x.dtype, tuple(shape)))

    def broadcast(self, x: Value, shape: Sequence[DimLike]) -> Value:
        """Repeated to `shape`."""
        if tuple(shape) == x.shape:
            return x
        return self.emit(c.Broadcast(tuple(shape)), (self._with_ones(x, shape),), TensorType(x.dtype, tuple(shape)))

    def _with_ones(self, x: Value, shape: Sequence[DimLike]) -> Value:
        """The value as it is broadcast to `shape`, with 1 for the sizes that are taken to be 1.

        Expressions stand for them where the sizes of a run are an example of what is assumed: `n//2` for 3 elements.
        """
        missing = len(shape) - len(x.shape)
        sizes = tuple(
            1 if dim != shape[missing + axis] and self._is_repeated(dim, shape[missing + axis]) else dim
            for axis, dim in enumerate(x.shape)
        )
        return x if sizes == x.shape else self.emit(c.Broadcast(sizes), (x,), TensorType(x.dtype, sizes))

    def _is_repeated(self, dim: DimLike, size: DimLike) -> bool:
        """Whether an axis of a size that is not known to be 1 is repeated to another size."""
        return (
            isinstance(dim, Dim) and size != 1 and not self.context.assume_equal(dim, size)
        ) and self.context.assume_equal(dim, 1)

    def slice(self, x: Value, starts: Sequence[DimLike], steps: Sequence[int], shape: Sequence[DimLike]) -> Value:
        """Elements starts[a] + i * steps[a] of each axis a; one entry an axis in all three."""
        if tuple(shape) == x.shape and all(step == 1 for step in steps):
            return x
        computation = c.Slice(tuple(starts), tuple(steps), tuple(shape))
        return self.emit(computation, (x,), TensorType(x.dtype, tuple(shape)))

    # ------------------------------------------------------------ everything that keeps a plain pattern

    def emit(self, computation: c.Computation, operands: Sequence[Value | None], type: TensorType) -> Value:
        """Append a computation with one result of the given type."""
        (value,) = self.emit_many(computation, operands, [type])
        return value

    def emit_many(
        self, computation: c.Computation, operands: Sequence[Value | None], types: Sequence[TensorType]
    ) -> tuple[Value, ...]:
        """Append a computation with several results."""
        assert self._node is not None
        outputs = tuple(Value(self._fresh(computation.name.lower()), type) for type in types)
        self.statements.append(Statement(computation, tuple(operands), outputs, self._node))
        self.unnamed.update(outputs)
        return outputs

    def counted(
        self, computation: c.Computation, operands: Sequence[Value | None], dtype: DType, capacity: DimLike
    ) -> Value:
        """Append a computation whose result has an axis of a size that only data tells.

        It lies in memory for `capacity` elements, without gaps from the beginning on; a second result, an int64,
        says how many there are along that axis.
        """
        return self.counted_together(computation, operands, [(TensorType(dtype, (capacity,)), True)])[0]

    def counted_together(
        self, computation: c.Computation, operands: Sequence[Value | None], types: Sequence[tuple[TensorType, bool]]
    ) -> tuple[Value, ...]:
        """Append a computation with several results, of which some have an axis of a size that only data tells.

        Those, marked by True behind their types, lie in memory as `counted` says. Behind all results there is one more
        for each of them, in order: how many elements it has along that axis.
        """
        counts = [TensorType(DType.INT64, (1,)) for _, is_open in types if is_open]
        made = self.emit_many(computation, operands, [*(type for type, _ in types), *counts])
        results = made[: len(types)]
        told = [result for result, (_, is_open) in zip(results, types, strict=True) if is_open]
        self.counts.update(zip(told, made[len(types) :], strict=True))
        return results

    def check(self, condition: Value, text: str) -> None:
        """A run is an error if the condition, of bools, holds anywhere; `text` says why."""
        self.emit(c.Check(text), (condition,), TensorType(DType.BOOL, (0,)))

    def concat(self, operands: Sequence[Value], axis: int) -> Value:
        """Operands one behind the other along `axis` (>= 0)."""
        shape = list(operands[0].shape)
        shape[axis] = sum(value.shape[axis] for value in operands)
        return self.emit(c.Concat(axis), operands, TensorType(operands[0].dtype, tuple(shape)))

    def reduce(self, kind: c.ReductionKind, x: Value, axes: Sequence[int], *, keepdims: bool) -> Value:
        """Reduced over `axes` (>= 0, sorted); none: over nothing."""
        shape = tuple(1 if axis in axes else dim for axis, dim in enumerate(x.shape) if keepdims or axis not in axes)
        return self.emit(c.Reduce(kind, tuple(axes), keepdims), (x,), TensorType(x.dtype, shape))

    def matmul(self, a: Value, b: Value) -> Value:
        """a [..., m, k] times b [..., k, n], both of rank 2 at least."""
        batch = self.context.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        if batch is None:
            raise InferenceError(f"leading axes of {a} and {b} do not broadcast")
        a, b = (self._with_ones(x, (*batch, *x.shape[-2:])) for x in (a, b))
        return self.emit(c.MatMul(), (a, b), TensorType(a.dtype, (*batch, a.shape[-2], b.shape[-1])))

    def host(self, operator: Operator, operands: Sequence[Value | None]) -> tuple[Value, ...]:
        """Evaluated on NumPy between native programs."""
        return self.emit_many(c.Host(operator, tuple(type.dtype for type in self.types)), operands, self.types)

    def _fresh(self, stem: str) -> str:
        self._counter += 1
        return f"{stem}_{self._counter}"


@dataclass
class Lowered:
    """A graph as statements: the planner's input.

    outputs: those of the graph; then the counts of those that are counted (`Lowering.counted`), in order.
    given_shapes: of the inputs, over the variables that the assumptions are about; see `Graph.given_shapes`.
    """

    inputs: list[Value]
    outputs: list[Value]
    statements: list[Statement]
    given_shapes: list[Shape]
    assumptions: Assumptions


def spelled(node: Node) -> tuple[list[Statement], tuple[Value, ...]]:
    """The computations of one node, over its own inputs, and their results."""
    to = Lowering(unnoted())
    to.begin(node)
    return to.statements, as_tuple(node.operator.lower(to, *node.inputs))


class LoweringDefect(Exception):
    """The lowering of a node's operator failed in itself."""

    def __init__(self, node: Node, error: Exception) -> None:
        super().__init__(f"{describe(node)}: {error}")
        self.node, self.error = node, error


def lower(graph: Graph) -> Lowered:
    """The statements of a graph whose types are inferred. Errors name the node; LoweringDefect are our own."""
    with inferring(graph.assumptions.apart()) as context:
        return _lowered(graph, context)


def _lowered(graph: Graph, context: InferenceContext) -> Lowered:
    to = Lowering(context)
    values: dict[Value, Value] = {}
    measured = {binding.value for binding in graph.bindings.values()}

    def resolve(value: Value | None) -> Value | None:
        return None if value is None else values.get(value, value)

    for node in graph:
        if all(value.contents is not None for value in node.outputs):  # shape arithmetic: known before the run
            continue
        to.begin(node)
        inputs = [resolve(value) for value in node.inputs]
        try:
            if not _compiled(node):
                results = to.host(node.operator, inputs)
            elif all(
                0 in value.shape and value not in measured for value in node.outputs
            ):  # no kernel needs to know about tensors without elements, but where it is to tell a size
                results = tuple(to.fill(e.constant(0, value.dtype), value.shape) for value in node.outputs)
            else:
                results = _lowered_or_host(to, node.operator, inputs)
        except InferenceError as error:
            raise InferenceError(f"{describe(node)}: {error}") from error
        except FunctionError as error:
            raise FunctionError(f"{describe(node)}: {error}") from error
        except Exception as error:
            if not is_defect(error):
                raise
            raise LoweringDefect(node, error) from error
        for value, result in zip(node.outputs, results, strict=False):
            values[value] = result if result in to.counts else _settled(to, result, value.type)
            if values[value] in to.unnamed:
                to.unnamed.remove(values[value])
                values[value].name = value.name
    outputs = [values.get(value, value) for value in graph.outputs]
    outputs += [to.counts[value] for value in outputs if value in to.counts]
    given_shapes = graph.given_shapes or [value.shape for value in graph.inputs]
    return Lowered(list(graph.inputs), outputs, to.statements, given_shapes, graph.assumptions)


def _lowered_or_host(to: Lowering, operator: Operator, inputs: Sequence[Value | None]) -> tuple[Value, ...]:
    """What an operator lowers to; the host evaluates it where that takes the elements of an input that a run computes,
    though the output's sizes do not: axes that are fed, as many as there are."""
    before = len(to.statements)
    try:
        return as_tuple(operator.lower(to, *inputs))
    except DataDependentError:
        del to.statements[before:]
        return to.host(operator, inputs)


def _settled(to: Lowering, result: Value, type: TensorType) -> Value:
    """What an operator gives, seen with the numbers that the graph's assumptions settle in the place of its sizes."""
    if type.shape is None or type.shape == result.type.shape or result.type.shape is None:
        return result
    sizes = tuple(b if isinstance(b, int) else a for a, b in zip(result.shape, type.shape, strict=True))
    return to.broadcast(result, sizes)


def _compiled(node: Node) -> bool:
    """Whether generated code can hold all elements that a node reads and writes."""
    return all(value is None or value.dtype in COMPILED for value in (*node.inputs, *node.outputs))
