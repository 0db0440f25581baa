"""Python source for Numba: a builder of indented lines, and scalar expressions as vector code.

What comes out for `maximum(x0 * x1 + 0.5, 0.0)`:

    t0 = x0 * x1
    t1 = t0 + float32(0.5)
    t2 = at_least(t1, float32(0.0))

float16 and bfloat16 lie in memory as 16 bits and are computed with as float32. Such a part of an expression is its bits
(an operand, a constant, what a cast rounded), or a float32 that nothing has rounded yet, as `expr.evaluate` has it.
float16(float(x0) + 1.0) of a float16 x0, as a region writes it:

    t0 = widen_float16(x0)
    t1 = t0 + np.float32(1.0)
    t2 = narrow_float16(t1)
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numba.core import types

from jitonnx.ir import expr as e
from jitonnx.ir.dtypes import HALVES, DType
from jitonnx.kernels import half, simd, vecmath

NUMBA_TYPES: dict[DType, Any] = {
    DType.FLOAT: types.float32,
    DType.DOUBLE: types.float64,
    DType.FLOAT16: types.uint16,
    DType.BFLOAT16: types.uint16,
    DType.BOOL: types.boolean,
    DType.INT8: types.int8,
    DType.INT16: types.int16,
    DType.INT32: types.int32,
    DType.INT64: types.int64,
    DType.UINT8: types.uint8,
    DType.UINT16: types.uint16,
    DType.UINT32: types.uint32,
    DType.UINT64: types.uint64,
}
"""Element types that generated code can hold, as Numba's; of half precision the bits."""


class Source:
    """Lines of a function under construction."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._depth = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """An indented block under `head`."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def namespace(lanes: int) -> dict[str, Any]:
    """What generated source can name: vector operations, vector mathematics, element types, `LANES`."""
    names: dict[str, Any] = {}
    for module in (
        vecmath,
        half,
        simd,
    ):  # vecmath's own imports are of another kind than simd's operations of equal name
        names.update({name: value for name, value in vars(module).items() if not name.startswith("_")})
    names.update({str(numba_type): numba_type for numba_type in NUMBA_TYPES.values()})
    # Scalars of generated code are made by NumPy's types, which Numba knows as casts; pointers take Numba's types.
    names.update(np=np, LANES=lanes)
    return names


def compile_source(source: str, name: str, names: Mapping[str, Any]) -> Callable[..., Any]:
    """The function `name` that `source` defines. Its file name tells its contents, for tracebacks and profilers."""
    digest = hashlib.sha256(source.encode()).hexdigest()[:12]
    scope = dict(names)
    exec(compile(source, f"<jitonnx {name} {digest}>", "exec"), scope)
    function: Callable[..., Any] = scope[name]
    function.__jitonnx_source__ = source  # type: ignore[attr-defined]
    return function


def literal(value: Any, dtype: DType) -> str:
    """A constant as source; it takes its type from the vector that it meets."""
    if dtype is DType.BOOL:
        return "True" if value else "False"
    if not dtype.is_float:
        return f"np.{dtype.numpy.name}({value!r})"
    if value != value:
        return f"np.{dtype.numpy.name}(np.nan)"
    if value in (float("inf"), float("-inf")):
        return f"np.{dtype.numpy.name}({'-' if value < 0 else ''}np.inf)"
    return f"np.{dtype.numpy.name}({value!r})"


_OPERATORS = {"add": "+", "sub": "-", "mul": "*", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_LOGIC = {"logical_and": "&", "logical_or": "|", "logical_xor": "^", "bitwise_and": "&", "bitwise_or": "|"}
_LOGIC |= {"bitwise_xor": "^", "shift_left": "<<", "shift_right": ">>"}
_RENAMED = {"abs": "absolute", "round": "rint"}


def emit_expr(source: Source, roots: Sequence[e.Expr], leaf: Callable[[e.Expr], str], prefix: str = "t") -> list[str]:
    """Write the statements that compute `roots`; the names that hold them, of half precision the bits.

    `leaf` gives the source of an operand (of half precision: its bits) or index; shared parts are computed once.
    """
    statements = _Statements(source, leaf, prefix)
    for root in roots:
        for node in e.children_first(root):
            statements.add(node)
    return [statements.stored(root) for root in roots]


class _Statements:
    """The statements of some expressions, and the names that hold their parts."""

    def __init__(self, source: Source, leaf: Callable[[e.Expr], str], prefix: str) -> None:
        self._source, self._leaf, self._prefix = source, leaf, prefix
        self._count = 0
        self._values: dict[e.Expr, str] = {}
        """Parts as they are computed with."""
        self._bits: dict[e.Expr, str] = {}
        """Parts of half precision as they are stored."""

    def add(self, node: e.Expr) -> None:
        """Compute a part whose arguments are there."""
        if node in self._values or node in self._bits:
            return
        if node.dtype in HALVES and self._add_bits(node):
            return
        if node.op == "constant":
            self._values[node] = literal(node.value, DType.FLOAT if node.dtype in HALVES else node.dtype)
        elif node.op in ("operand", "index"):
            self._values[node] = self._leaf(node)
        else:
            self._values[node] = self._name(_operation(node, [self.value(a) for a in node.arguments]))

    def _add_bits(self, node: e.Expr) -> bool:
        """Note a part of half precision that is rounded already, or compute one that is rounded now; else False."""
        if node.op == "operand":
            self._bits[node] = self._leaf(node)
        elif node.op == "cast" and e.is_rounded(node.arguments[0], node.dtype):
            self._values[node] = self.value(node.arguments[0])
        elif node.op == "cast":
            self._bits[node] = self._narrowed(self.value(node.arguments[0]), node.arguments[0].dtype, node.dtype)
        elif node.op == "where" and all(a.op == "constant" or a in self._bits for a in node.arguments[1:]):
            chosen = [self.value(node.arguments[0]), *map(self.stored, node.arguments[1:])]
            self._bits[node] = self._name(f"select({', '.join(chosen)})")
        else:
            return False
        return True

    def value(self, node: e.Expr) -> str:
        """The name of a part as it is computed with."""
        if node not in self._values:
            self._values[node] = self._name(f"widen_{node.dtype.text}({self._bits[node]})")
        return self._values[node]

    def stored(self, node: e.Expr) -> str:
        """The name of a part as it lies in memory."""
        if node.dtype not in HALVES:
            return self._values[node]
        if node not in self._bits:
            if node.op == "constant":
                self._bits[node] = _bits_literal(node.value, node.dtype)
            else:
                self._bits[node] = self._narrowed(self._values[node], DType.FLOAT, node.dtype)
        return self._bits[node]

    def _narrowed(self, value: str, source: DType, target: DType) -> str:
        """A number of any type rounded to half precision; to bfloat16 by way of float32, as ml_dtypes does it."""
        if source is DType.DOUBLE and target is DType.FLOAT16:
            return self._name(f"narrow_double_float16({value})")
        if source is not DType.FLOAT and source not in HALVES:
            value = self._name(f"convert({value}, {NUMBA_TYPES[DType.FLOAT]})")
        return self._name(f"narrow_{target.text}({value})")

    def _name(self, expression: str) -> str:
        name = f"{self._prefix}{self._count}"
        self._count += 1
        self._source.line(f"{name} = {expression}")
        return name


def _bits_literal(value: float, dtype: DType) -> str:
    """A constant of half precision as its bits."""
    with np.errstate(over="ignore"):
        return f"np.uint16({np.asarray(value, dtype.numpy).view(np.uint16).item()})"


def _operation(node: e.Expr, arguments: Sequence[str]) -> str:
    op, operands = node.op, node.arguments
    if op in _OPERATORS:
        return f"{arguments[0]} {_OPERATORS[op]} {arguments[1]}"
    if op in _LOGIC:
        return f"{arguments[0]} {_LOGIC[op]} {arguments[1]}"
    if op == "neg":
        return f"-{arguments[0]}"
    if op in ("logical_not", "bitwise_not"):
        return f"~{arguments[0]}"
    if op == "cast":
        if operands[0].dtype in HALVES and node.dtype is DType.FLOAT:
            return arguments[0]
        return f"convert({arguments[0]}, {NUMBA_TYPES[node.dtype]})"
    if op == "where":
        return f"select({', '.join(arguments)})"
    if op in ("maximum", "minimum"):
        return _extremum(op, operands, arguments)
    if op in ("div", "mod", "fmod"):
        return _division(op, node.dtype, arguments)
    return f"{_RENAMED.get(op, op)}({', '.join(arguments)})"


def _extremum(op: str, operands: Sequence[e.Expr], arguments: Sequence[str]) -> str:
    """One instruction where one side is a constant number; else with NaN of both sides kept."""
    for value, bound in ((0, 1), (1, 0)):
        if operands[bound].op == "constant" and operands[bound].value == operands[bound].value:
            return f"{'at_least' if op == 'maximum' else 'at_most'}({arguments[value]}, {arguments[bound]})"
    return f"{op}({arguments[0]}, {arguments[1]})"


def _division(op: str, dtype: DType, arguments: Sequence[str]) -> str:
    if dtype.is_float and op == "div":
        return f"{arguments[0]} / {arguments[1]}"
    function = {"div": "divide_integer", "mod": "modulo", "fmod": "remainder"}[op]
    return f"{function}({arguments[0]}, {arguments[1]})"
