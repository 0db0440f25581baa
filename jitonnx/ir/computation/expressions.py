"""Scalar expressions: what is computed for one element of a region.

An expression is a hash-consed tree, so equal expressions are the same object and common parts are shared for nothing.
Leaves are inputs (`operand(i, dtype)`), constants, and the coordinates of the element (`index(axis)`). Operators build
them with plain arithmetic; codegen turns them into vector code, `evaluate` computes them on NumPy arrays for tests.

    x = operand(0, DType.FLOAT)
    hard_sigmoid = minimum(maximum(x * 0.2 + 0.5, 0.0), 1.0)
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, TypeAlias, Union

import numpy as np

from jitonnx.ir.computation.linked import LinkedFunction
from jitonnx.ir.dtypes import HALVES, DType
from jitonnx.support import fork_safety

Operand: TypeAlias = Union["Expr", float, int, bool]

UnaryOp: TypeAlias = Literal[
    "neg",
    "abs",
    "sign",
    "sqrt",
    "reciprocal",
    "exp",
    "log",
    "log1p",
    "expm1",
    "erf",
    "tanh",
    "sigmoid",
    "silu",
    "gelu",
    "gelu_tanh",
    "softplus",
    "mish",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "asinh",
    "acosh",
    "atanh",
    "floor",
    "ceil",
    "trunc",
    "round",
    "nearest",
    "nearest_low",
    "isnan",
    "isinf",
    "logical_not",
    "bitwise_not",
]
BinaryOp: TypeAlias = Literal[
    "add",
    "sub",
    "mul",
    "div",
    "fmod",
    "mod",
    "pow",
    "elu",
    "maximum",
    "minimum",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "logical_and",
    "logical_or",
    "logical_xor",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "shift_left",
    "shift_right",
]
OtherOp: TypeAlias = Literal[
    "operand",
    "constant",
    "index",
    "cast",
    "call",
    "where",
    "within",
    "quotient",
    "fma",
]
Op: TypeAlias = UnaryOp | BinaryOp | OtherOp
"""What an expression does at its root."""

_SMALL_INTEGERS = (DType.INT8, DType.UINT8, DType.INT16, DType.UINT16, DType.INT32)
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_PREDICATES = (*_COMPARISONS, "isnan", "isinf", "logical_and", "logical_or", "logical_xor", "logical_not")


def _operator(op: BinaryOp) -> Callable[[Expr, Operand], Expr]:
    return lambda a, b: binary(op, a, b)


def _turned(op: BinaryOp) -> Callable[[Expr, Operand], Expr]:
    return lambda b, a: binary(op, a, b)


class Expr:
    """One operation of a scalar expression. Build it with the functions of this module, never directly."""

    __slots__ = ("__weakref__", "arguments", "dtype", "op", "value")

    def __init__(self, op: Op, arguments: tuple[Expr, ...], dtype: DType, value: Any) -> None:
        self.op, self.arguments, self.dtype, self.value = op, arguments, dtype, value

    __add__, __radd__ = _operator("add"), _turned("add")
    __sub__, __rsub__ = _operator("sub"), _turned("sub")
    __mul__, __rmul__ = _operator("mul"), _turned("mul")
    __truediv__, __rtruediv__ = _operator("div"), _turned("div")
    __lt__, __le__, __gt__, __ge__ = _operator("lt"), _operator("le"), _operator("gt"), _operator("ge")

    def __neg__(self) -> Expr:
        return unary("neg", self)

    def __repr__(self) -> str:
        """Every part once, with its type: equal expressions have equal texts, in every process."""
        numbers: dict[Expr, int] = {}
        lines: list[str] = []
        for node in children_first(self):
            arguments = " ".join(f"%{numbers[a]}" for a in node.arguments)
            value = "" if node.value is None else repr(node.value)
            numbers[node] = len(lines)
            lines.append(f"{node.op}:{node.dtype.name} {value}{arguments}")
        return "<" + "; ".join(lines) + ">"

    def __reduce__(self) -> tuple[Any, ...]:
        return _make, (self.op, self.arguments, self.dtype, self.value)


_interned: weakref.WeakValueDictionary[tuple[Any, ...], Expr] = weakref.WeakValueDictionary()
_interning = fork_safety.lock()


def _make(op: Op, arguments: tuple[Expr, ...], dtype: DType, value: Any = None) -> Expr:
    # repr tells -0.0 from 0.0 and 1 from True, and makes NaN equal to itself.
    key = (op, tuple(map(id, arguments)), dtype, repr(value))
    with _interning:
        found = _interned.get(key)
        if found is None:
            found = _interned[key] = Expr(op, arguments, dtype, value)
        return found


def operand(position: int, dtype: DType) -> Expr:
    """The element of the computation's input number `position`."""
    return _make("operand", (), dtype, position)


def constant(value: Any, dtype: DType) -> Expr:
    """A number that is part of the code."""
    kind = float if dtype.is_float else bool if dtype is DType.BOOL else int
    return _make("constant", (), dtype, kind(value))


def index(axis: int) -> Expr:
    """The element's coordinate along `axis` of the output, an int64."""
    return _make("index", (), DType.INT64, axis)


def cast(x: Expr, dtype: DType) -> Expr:
    """`x` as another element type, by ONNX's Cast: float to integer truncates, to bool is `x != 0`."""
    if x.dtype is dtype:
        return x
    return constant(_cast_constant(x, dtype), dtype) if x.op == "constant" else _make("cast", (x,), dtype)


def cast_for_products(x: Expr) -> Expr:
    """float32 `x` as bfloat16 that products take, which read denormal numbers as 0: these may become 0."""
    if x.dtype is not DType.FLOAT:
        raise TypeError(f"{x.dtype.text} for products of bfloat16: cast it to float32 first")
    return cast(x, DType.BFLOAT16) if x.op == "constant" else _make("cast", (x,), DType.BFLOAT16, "for products")


def _cast_constant(x: Expr, dtype: DType) -> Any:
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(x.value, x.dtype.numpy).astype(dtype.numpy).item()


def _lift(value: Operand, dtype: DType) -> Expr:
    return value if isinstance(value, Expr) else constant(value, dtype)


def unary(op: UnaryOp, x: Expr) -> Expr:
    """One of UNARY applied to x."""
    return _make(op, (x,), DType.BOOL if op in _PREDICATES else x.dtype)


def binary(op: BinaryOp, a: Operand, b: Operand) -> Expr:
    """One of BINARY applied to a and b; a plain number takes the other's type. TypeError for two different types."""
    dtype = a.dtype if isinstance(a, Expr) else b.dtype  # type: ignore[union-attr]
    left, right = _lift(a, dtype), _lift(b, dtype)
    if left.dtype is not right.dtype:
        raise TypeError(f"{op} of {left.dtype.text} and {right.dtype.text}: cast one of them first")
    return _make(op, (left, right), DType.BOOL if op in _PREDICATES else dtype)


def call(function: LinkedFunction, *arguments: Expr) -> Expr:
    """What a compiled function gives. TypeError for arguments of other types than it takes."""
    if tuple(argument.dtype for argument in arguments) != function.arguments:
        given, wanted = (", ".join(d.text for d in row) for row in ([a.dtype for a in arguments], function.arguments))
        raise TypeError(f"{function.name} of ({given}): it takes ({wanted})")
    return _make("call", arguments, function.result, function)


def nearest(x: Expr) -> Expr:
    """The integer nearest to a float32 within ±2**21, ties to even, as int32. Of others it is any integer."""
    if x.dtype is not DType.FLOAT:
        raise TypeError(f"nearest of {x.dtype.text}: cast it to float32 first")
    return _make("nearest", (x,), DType.INT32)


def nearest_low(x: Expr) -> Expr:
    """What `nearest` gives, but that the 16 low bits alone are those of that integer: one instruction less."""
    if x.dtype is not DType.FLOAT:
        raise TypeError(f"nearest_low of {x.dtype.text}: cast it to float32 first")
    return _make("nearest_low", (x,), DType.INT32)


def within(x: Expr, low: Operand, high: Operand) -> Expr:
    """x, but `low` where it is less or not a number, and `high` where it is more."""
    return _make("within", (x, _lift(low, x.dtype), _lift(high, x.dtype)), x.dtype)


def quotient(number: Expr, step: Expr, factor: Expr) -> Expr:
    """number / step of finite float32, rounded as a division is, where factor is 1 / step: a product and two
    multiply-adds on CPUs that have these, a tenth as long as a division takes. The quotient must be a normal number."""
    if not number.dtype is step.dtype is factor.dtype is DType.FLOAT:
        raise TypeError(f"quotient of {number.dtype.text} and {step.dtype.text}: cast them to float32 first")
    return _make("quotient", (number, step, factor), DType.FLOAT)


def fma(a: Expr, b: Expr, c: Expr) -> Expr:
    """a * b + c of float32, rounded once, where a model's results hang on that. CPUs without multiply-adds, and NumPy,
    compute it in float64, which rounds twice where a sum of more than 53 bits lies half way between two float32."""
    if not a.dtype is b.dtype is c.dtype is DType.FLOAT:
        raise TypeError(f"fma of {a.dtype.text}, {b.dtype.text} and {c.dtype.text}: cast them to float32 first")
    return _make("fma", (a, b, c), DType.FLOAT)


_ROUNDS = ("fma", "nearest", "nearest_low", "quotient", "round")


def is_quantised(root: Expr) -> bool:
    """Whether numbers are made of small integers or rounded to such: models say of these which operation rounds."""
    return any(
        node.op in _ROUNDS
        or (node.op == "cast" and node.dtype is DType.FLOAT and node.arguments[0].dtype in _SMALL_INTEGERS)
        for node in children_first(root)
    )


def where(condition: Expr, a: Operand, b: Operand) -> Expr:
    """a where condition holds, else b."""
    dtype = a.dtype if isinstance(a, Expr) else b.dtype  # type: ignore[union-attr]
    return _make("where", (condition, _lift(a, dtype), _lift(b, dtype)), dtype)


def _unary_functions(*ops: UnaryOp) -> list[Callable[[Expr], Expr]]:
    def function(op: UnaryOp) -> Callable[[Expr], Expr]:
        def build(x: Expr) -> Expr:
            return unary(op, x)

        build.__name__ = op
        return build

    return [function(op) for op in ops]


def _binary_functions(*ops: BinaryOp) -> list[Callable[[Operand, Operand], Expr]]:
    def function(op: BinaryOp) -> Callable[[Operand, Operand], Expr]:
        def build(a: Operand, b: Operand) -> Expr:
            return binary(op, a, b)

        build.__name__ = op
        return build

    return [function(op) for op in ops]


def _erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf, otypes=[x.dtype])(x) if x.size else x


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind == "f":
        quotient: np.ndarray = a / b
        return quotient
    safe = np.where(b == 0, 1, b)
    inexact = np.remainder(a, safe) != 0
    whole: np.ndarray = (np.floor_divide(a, safe) + (inexact & ((a < 0) != (safe < 0)))).astype(a.dtype)
    return whole


UNARY: dict[UnaryOp, Callable[[np.ndarray], np.ndarray]] = {
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "sqrt": np.sqrt,
    "reciprocal": lambda x: np.ones((), x.dtype) / x,
    "exp": np.exp,
    "log": np.log,
    "log1p": np.log1p,
    "expm1": np.expm1,
    "erf": _erf,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: x * x.dtype.type(0.5) * (1 + _erf(x * x.dtype.type(math.sqrt(0.5)))),
    "gelu_tanh": lambda x: x / (1 + np.exp(x * -math.sqrt(8 / math.pi) * (1 + 0.044715 * x * x))),
    "softplus": lambda x: np.logaddexp(x, 0),
    "mish": lambda x: x * np.tanh(np.logaddexp(x, 0)),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.rint,
    "nearest": lambda x: np.rint(x).astype(np.int32),
    "nearest_low": lambda x: np.rint(x).astype(np.int32),
    "isnan": np.isnan,
    "isinf": np.isinf,
    "logical_not": np.logical_not,
    "bitwise_not": np.bitwise_not,
}
"""One-argument operations and what they mean on NumPy arrays."""

BINARY: dict[BinaryOp, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _divide,
    "fmod": np.fmod,
    "mod": np.mod,
    "pow": np.power,
    "elu": lambda x, alpha: np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x),
    "maximum": np.maximum,
    "minimum": np.minimum,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "shift_left": np.left_shift,
    "shift_right": np.right_shift,
}
"""Two-argument operations. div truncates integers towards zero; mod has the divisor's sign, fmod the dividend's."""
_ON_ARRAYS: Mapping[str, Callable[..., np.ndarray]] = dict([*UNARY.items(), *BINARY.items()])

(absolute, sign, sqrt, reciprocal, exp, log, log1p, expm1, erf, tanh, sigmoid) = _unary_functions(
    "abs", "sign", "sqrt", "reciprocal", "exp", "log", "log1p", "expm1", "erf", "tanh", "sigmoid"
)
(silu, gelu, gelu_tanh, softplus, mish) = _unary_functions("silu", "gelu", "gelu_tanh", "softplus", "mish")
(sin, cos, tan, asin, acos, atan, sinh, cosh, asinh, acosh, atanh) = _unary_functions(
    "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh"
)
(floor, ceil, trunc, round_even, isnan, isinf, logical_not, bitwise_not) = _unary_functions(
    "floor", "ceil", "trunc", "round", "isnan", "isinf", "logical_not", "bitwise_not"
)
(fmod, mod, power, elu, maximum, minimum, equal, not_equal) = _binary_functions(
    "fmod", "mod", "pow", "elu", "maximum", "minimum", "eq", "ne"
)
(logical_and, logical_or, logical_xor, bitwise_and, bitwise_or, bitwise_xor, shift_left, shift_right) = (
    _binary_functions(
        "logical_and",
        "logical_or",
        "logical_xor",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "shift_left",
        "shift_right",
    )
)


def children_first(root: Expr) -> list[Expr]:
    """Every expression below `root`, and root last; each once, arguments before what uses them."""
    order: dict[Expr, None] = {}
    stack: list[tuple[Expr, bool]] = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if node in order:
            continue
        if ready:
            order[node] = None
            continue
        stack.append((node, True))
        stack.extend((argument, False) for argument in reversed(node.arguments))
    return list(order)


def rebuild(node: Expr, arguments: Sequence[Expr]) -> Expr:
    """`node` with other arguments of the same types."""
    return node if not node.arguments else _make(node.op, tuple(arguments), node.dtype, node.value)


def substitute(root: Expr, replace: Callable[[Expr], Expr | None]) -> Expr:
    """`root` with every leaf for which `replace` gives an expression exchanged for it."""
    done: dict[Expr, Expr] = {}
    for node in children_first(root):
        replacement = replace(node) if not node.arguments else None
        done[node] = replacement if replacement is not None else rebuild(node, [done[a] for a in node.arguments])
    return done[root]


_COMMUTATIVE = ("add", "mul")


def ordered(root: Expr) -> Expr:
    """`root` with the terms of sums and the factors of products in one order: operands by number first, constants last.

    So x0 + x1 and x1 + x0 are equal, and compiled once.
    """
    done: dict[Expr, Expr] = {}
    for node in children_first(root):
        arguments = [done[a] for a in node.arguments]
        done[node] = rebuild(node, sorted(arguments, key=_rank) if node.op in _COMMUTATIVE else arguments)
    return done[root]


def _rank(term: Expr) -> tuple[int, int]:
    return (0, term.value) if term.op == "operand" else (2, 0) if term.op == "constant" else (1, 0)


def operands(root: Expr) -> set[int]:
    """Positions of the inputs that `root` reads."""
    return {node.value for node in children_first(root) if node.op == "operand"}


_ROUNDINGS = ("floor", "ceil", "trunc", "round", "nearest", "nearest_low")
_JUMPS = (*_COMPARISONS, *_ROUNDINGS, "isnan", "isinf", "sign", "mod", "fmod", "call")


def jumps(root: Expr) -> bool:
    """Whether a small difference between floating-point operands may make a large one of the result."""
    return any(
        (node.op in _JUMPS or (node.op == "cast" and not node.dtype.is_float)) and node.arguments[0].dtype.is_float
        for node in children_first(root)
        if node.arguments
    )


_KEEPS_NUMBERS = ("neg", "abs", "sign", "maximum", "minimum", "where", "floor", "ceil", "trunc", "round")
"""Operations whose results are numbers of every binary type that their operands are numbers of."""


def is_rounded(root: Expr, dtype: DType, operands: Collection[int] = ()) -> bool:
    """Whether all that a float32 `root` can be is a number of the 16-bit type `dtype`, so that rounding does nothing.

    What is computed in another type (an integer's sign) is none: it has to be converted.
    operands: positions of inputs of which that is known.
    """
    if root.dtype is not DType.FLOAT and root.dtype not in HALVES:
        return False
    todo = [root]
    while todo:
        node = todo.pop()
        if node.op == "cast":
            (source,) = node.arguments
            if node.dtype is not dtype and source.dtype is not DType.BOOL:
                if node.dtype is not DType.FLOAT or source.dtype is not dtype:
                    return False
                todo.append(source)
        elif node.op == "operand":
            if node.dtype is not dtype and node.value not in operands:
                return False
        elif node.op == "constant":
            if not _is_number(node, dtype):
                return False
        elif node.op in _KEEPS_NUMBERS:
            todo += node.arguments[-2:] if node.op == "where" else node.arguments
        else:
            return False
    return True


def _is_number(node: Expr, dtype: DType) -> bool:
    """Whether a constant is a number of a 16-bit type. NumPy need not know bfloat16 for it: that is another package."""
    if dtype is DType.BFLOAT16 and node.dtype is DType.FLOAT:
        return not int(np.float32(node.value).view(np.uint32)) & 0xFFFF
    return node.dtype is dtype or bool(node.value == _cast_constant(node, dtype))


def evaluate(root: Expr, arrays: Sequence[np.ndarray], shape: Sequence[int] = ()) -> np.ndarray:
    """`root` on NumPy arrays (broadcast together): the meaning of an expression, against which code is tested.

    Floats of less than 32 bits are computed with as float32: they are rounded by casts and at the end.
    """
    values: dict[Expr, np.ndarray] = {}
    for node in children_first(root):
        arguments = [values[a] for a in node.arguments]
        if node.op == "operand":
            values[node] = arrays[node.value].astype(_computed(node.dtype), copy=False)
        elif node.op == "constant":
            values[node] = np.asarray(node.value, _computed(node.dtype))
        elif node.op == "index":
            values[node] = np.indices(tuple(shape), np.int64, sparse=True)[node.value]
        elif node.op == "cast":
            values[node] = arguments[0].astype(node.dtype.numpy).astype(_computed(node.dtype), copy=False)
        elif node.op == "where":
            values[node] = np.where(*arguments)
        elif node.op == "quotient":
            values[node] = arguments[0] / arguments[1]
        elif node.op == "fma":
            a, b, c = (argument.astype(np.float64) for argument in arguments)
            values[node] = (a * b + c).astype(np.float32)
        elif node.op == "within":
            values[node] = np.minimum(np.fmax(*arguments[:2]), arguments[2])
        elif node.op == "call":
            raise TypeError(
                f"{node.value.name} is compiled for kernels alone, and NumPy cannot call it: "
                "its operator needs a method 'evaluate'"
            )
        else:
            values[node] = _ON_ARRAYS[node.op](*arguments)
    return values[root].astype(root.dtype.numpy, copy=False)


def _computed(dtype: DType) -> np.dtype[Any]:
    """The type in which elements of `dtype` are computed with."""
    return np.dtype(np.float32) if dtype.is_float and dtype.itemsize < 4 else dtype.numpy


def rows(root: Expr) -> list[tuple[Any, ...]]:
    """`root` as plain data: each expression below it once, root last, its arguments by their numbers."""
    numbers: dict[Expr, int] = {}
    for node in children_first(root):
        numbers[node] = len(numbers)
    return [
        (node.op, [numbers[a] for a in node.arguments], int(node.dtype), _plain_value(node.value)) for node in numbers
    ]


def _plain_value(value: Any) -> Any:
    if isinstance(value, LinkedFunction):
        return value.name, [int(dtype) for dtype in value.arguments], int(value.result), value.ir
    return value


def from_rows(given: Sequence[tuple[Any, ...]]) -> Expr:
    """The expression that `rows` made these of."""
    made: list[Expr] = []
    for op, arguments, dtype, value in given:
        if op == "call":
            name, types, result, ir = value
            value = LinkedFunction(name, tuple(map(DType, types)), DType(result), ir)
        made.append(_make(op, tuple(made[number] for number in arguments), DType(dtype), value))
    return made[-1]


def text(root: Expr) -> str:
    """`root` as readable text; shared parts are written out."""
    if root.op == "operand":
        return f"x{root.value}"
    if root.op == "constant":
        return repr(root.value)
    if root.op == "index":
        return f"index({root.value})"
    if root.op == "cast":
        return f"{root.dtype.text}({text(root.arguments[0])})"
    name = root.value.name if root.op == "call" else root.op
    return f"{name}({', '.join(map(text, root.arguments))})"
