"""Shapes of operator declarations that recur: elementwise operators, and helpers for inference."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, ClassVar

import numpy as np

from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dims import DimLike, maximum
from jitonnx.ir.dtypes import HALVES, DType, of_numpy
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import DataDependentError, InferenceError, Operator, as_tuple
from jitonnx.ir.types import TensorType, is_symbolic

FLOATS = frozenset({DType.FLOAT16, DType.BFLOAT16, DType.FLOAT, DType.DOUBLE})
SIGNED = frozenset({DType.INT8, DType.INT16, DType.INT32, DType.INT64})
INTEGERS = SIGNED | {DType.UINT8, DType.UINT16, DType.UINT32, DType.UINT64}
NUMBERS = FLOATS | INTEGERS
BOOLS = frozenset({DType.BOOL})


class Elementwise(Operator):
    """An operator whose output elements are `scalar` of the inputs' elements, with NumPy's broadcasting.

    A declaration gives `scalar` (what the compiler uses) and `evaluate` (the ground truth), which by default is
    `scalar` on NumPy; inputs have one type unless `infer_dtype` says otherwise.
    """

    elementwise = True
    result: ClassVar[DType | None] = None
    """Element type of the output where it is not the inputs' (BOOL for comparisons)."""

    def scalar(self, *operands: Any, **unused: Any) -> e.Expr:
        """The output element as an expression of the inputs' elements."""
        raise NotImplementedError

    def evaluate(self, *arrays: Any, **unused: Any) -> Any:
        """Compute `scalar` on NumPy. TypeError where it calls what is compiled for kernels alone."""
        values = [Value("", TensorType(of_numpy(array.dtype), array.shape)) for array in arrays]
        dtype = self.infer_dtype(*values)
        expression = self.scalar(*(computed(i, value) for i, value in enumerate(values)))
        result = e.evaluate(e.cast(expression, dtype) if dtype.is_float else expression, arrays)
        return np.broadcast_to(result, np.broadcast_shapes(*(array.shape for array in arrays)))

    def infer_dtype(self, *inputs: Value) -> DType:
        """Element type of the output."""
        return self.result or inputs[0].dtype

    def infer(self, context: InferenceContext, *inputs: Any, **unused: Any) -> TensorType:
        given = present(inputs)
        return TensorType(self.infer_dtype(*given), context.broadcast(*given))

    def lower(self, to: Lowering, *inputs: Value | None) -> Value:
        if type(self).scalar is Elementwise.scalar:  # a user's: it is evaluated by the host
            (result,) = to.host(self, inputs)
            return result
        given = present(inputs)
        expression = self.scalar(*(computed(i, value) for i, value in enumerate(given)))
        dtype = to.type.dtype
        assert dtype is not None
        return to.map(e.cast(expression, dtype) if dtype.is_float else expression, *given)


def computed(position: int, value: Value) -> e.Expr:
    """The element of operand `position` in the type in which it is computed with: half precision as float32."""
    element = e.operand(position, value.dtype)
    return e.cast(element, DType.FLOAT) if value.dtype in HALVES else element


def present(inputs: tuple[Value | None, ...]) -> list[Value]:
    """The inputs, none of which may be absent."""
    given = [value for value in inputs if value is not None]
    if len(given) != len(inputs):
        raise InferenceError("an input that is not optional is absent")
    return given


def normalize_axis(axis: int, rank: int, name: str = "axis") -> int:
    """An axis counted from the front. InferenceError outside [-rank, rank), so for every axis of a scalar."""
    if not -rank <= axis < rank:
        limits = (
            f"outside [{-rank}, {rank - 1}] for a tensor of rank {rank}" if rank else "not there: a scalar has none"
        )
        raise InferenceError(f"{name} {axis} is {limits}")
    return axis % rank


def normalize_axis_of_any(axis: int, rank: int, name: str = "axis") -> int:
    """What `normalize_axis` gives, but a scalar passes for a tensor of one axis, as in NumPy's and onnxruntime's
    reductions."""
    return normalize_axis(axis, max(rank, 1), name)


def integers_of(value: Value | None, what: str) -> list[int]:
    """Elements of an input that ranks depend on: axes, steps. DataDependentError where they are not known numbers."""
    if value is None:
        raise InferenceError(f"input {what} is absent")
    if value.constant is None:
        raise DataDependentError(f"the output's rank depends on the values of {what} ({value.name!r})")
    return [int(element) for element in value.constant.ravel().tolist()]


def count_of(value: Value | None) -> int:
    """How many elements an input has that ranks depend on. DataDependentError where only a run can tell."""
    count = None if value is None or value.type.shape is None else value.type.elements
    if not isinstance(count, int):
        raise DataDependentError("a rank depends on data")
    return count


def open_like(x: Value, axes: Iterable[int] | None = None) -> TensorType:
    """The type of `x`, its sizes on some axes (None: all) left to the run."""
    chosen = None if axes is None else {normalize_axis(axis, len(x.shape)) for axis in axes}
    return TensorType(
        x.dtype,
        tuple(None if chosen is None or axis in chosen else size for axis, size in enumerate(x.shape)),  # type: ignore[misc]
    )


def open_rank(dtype: DType, sizes: Value) -> TensorType:
    """The type of a tensor whose shape is the vector `sizes`, of which only the length is known."""
    (rank,) = sizes.shape or (1,)
    if not isinstance(rank, int):
        raise DataDependentError(f"the output's rank depends on the size of {sizes.name!r}")
    return TensorType(dtype, (None,) * rank)  # type: ignore[arg-type]


def widen(array: np.ndarray | None) -> Any:
    """float16 and bfloat16 as float32, in which they are computed; everything else as it is."""
    if array is not None and array.dtype.name in ("float16", "bfloat16"):
        return array.astype(np.float32)
    return array


def lower_halves(
    lower: Callable[..., Any], keeps: Callable[..., Collection[int]] = lambda *inputs: ()
) -> Callable[..., Any]:
    """Decorates a `lower` whose computations do not exist for half precision: it is computed in float32.

    Operands of half precision are converted, results rounded to the types of the node's outputs. keeps(self, to,
    *inputs): the numbers of inputs that are left as they are.
    """

    @functools.wraps(lower)
    def wrapper(self: Operator, to: Lowering, *inputs: Value | None) -> Any:
        if inputs[0] is None or inputs[0].dtype not in HALVES:
            return lower(self, to, *inputs)
        kept = keeps(self, to, *inputs)
        wide = [
            to.cast(x, DType.FLOAT) if x is not None and x.dtype in HALVES and number not in kept else x
            for number, x in enumerate(inputs)
        ]
        with to.computed_in(lambda dtype: DType.FLOAT if dtype in HALVES else dtype):
            results: Sequence[Value] = as_tuple(lower(self, to, *wide))
        return [to.cast(result, type.dtype or result.dtype) for result, type in zip(results, to.types, strict=False)]

    return wrapper


def factor(array: np.ndarray) -> np.ndarray:
    """A factor of a matrix product: widened, and copied where its elements are not aligned.

    Files put weights at any address, and NumPy multiplies those without BLAS, some forty times slower.
    """
    wide: np.ndarray = widen(array)
    return wide if wide.flags.aligned else wide.copy(order="K")


def lower_floating(lower: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a `lower` whose computations exist for float and double, the type of the first input deciding.

    Half precision goes through float32; an integer type is left to NumPy.
    """
    widened = lower_halves(lower)

    @functools.wraps(lower)
    def wrapper(self: Operator, to: Lowering, *inputs: Value | None) -> Any:
        given = inputs[0]
        assert given is not None
        if given.dtype in (DType.FLOAT, DType.DOUBLE, *HALVES):
            return widened(self, to, *inputs)
        return to.host(self, inputs)

    return wrapper


def lower_products(lower: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a `lower` of sums of products, which exist for float, double, int32 and int64.

    Half precision goes through float32. Other integers go through int32, or int64 if they have 64 bits: what wraps
    around is the same.
    """
    widened = lower_halves(lower)

    @functools.wraps(lower)
    def wrapper(self: Operator, to: Lowering, *inputs: Value | None) -> Any:
        given = inputs[0]
        assert given is not None
        if not given.dtype.is_integer or given.dtype in (DType.INT32, DType.INT64):
            return widened(self, to, *inputs)
        wide = DType.INT64 if given.dtype is DType.UINT64 else DType.INT32
        with to.computed_in(lambda _: wide):
            result = lower(self, to, *(x if x is None else to.cast(x, wide) for x in inputs))
        return to.cast(result, given.dtype)

    return wrapper


def integers(array: np.ndarray, what: str) -> np.ndarray:
    """Positions, axes or counts that an evaluation indexes with, as int64.

    In shape arithmetic they may be dimension expressions: DataDependentError.
    """
    if array.dtype == object and is_symbolic(array):
        raise DataDependentError(f"{what} is a dimension expression")
    return array.astype(np.int64)


def non_negative(dim: DimLike) -> DimLike:
    """The size max(dim, 0)."""
    return maximum(dim, 0)


def is_narrow(dtype: np.dtype[Any]) -> bool:
    """Whether arrays of `dtype` are floats of less than 32 bits, which are computed with as float32."""
    return dtype.itemsize < 4 and of_numpy(dtype).is_float


def via_float32(evaluate: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """An `evaluate` that for float16 and narrower computes in float32 and rounds once, at the end.

    The result gets the first input's type back, unless it is of another kind (bool, integer).
    """

    @functools.wraps(evaluate)
    def widened(self: Operator, *arrays: np.ndarray | None) -> np.ndarray:
        first = next(array for array in arrays if array is not None)
        if not is_narrow(first.dtype):
            return np.asarray(evaluate(self, *arrays))
        wide = (x.astype(np.float32) if x is not None and is_narrow(x.dtype) else x for x in arrays)
        result = np.asarray(evaluate(self, *wide))
        return result.astype(first.dtype) if result.dtype == np.float32 else result

    return widened


class Unary(Elementwise):
    """One input; `function` on NumPy arrays and `expression` on scalar expressions say the same."""

    function: ClassVar[Any]
    expression: ClassVar[Any]

    @via_float32
    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return type(self).function(x)

    def scalar(self, x: e.Expr) -> e.Expr:
        return type(self).expression(x)
