"""Python source for Numba: a builder of indented lines, and scalar expressions as vector code.

What comes out for `maximum(x0 * x1 + 0.5, 0.0)`:

    t0 = x0 * x1
    t1 = t0 + float32(0.5)
    t2 = at_least(t1, float32(0.0))
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numba.core import types

from jitonnx.ir import expr as e
from jitonnx.ir.dtypes import DType
from jitonnx.kernels import simd, vecmath

NUMBA_TYPES: dict[DType, Any] = {
    DType.FLOAT: types.float32,
    DType.DOUBLE: types.float64,
    DType.FLOAT16: types.float16,
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
"""Element types that generated code can hold, as Numba's."""


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
    for module in (vecmath, simd):  # vecmath's own imports are of another kind than simd's operations of equal name
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
    """Write the statements that compute `roots` and return the names that hold them.

    `leaf` gives the source of an operand or index; shared parts are computed once.
    """
    names: dict[e.Expr, str] = {}
    for root in roots:
        for node in e.children_first(root):
            if node in names:
                continue
            if node.op == "constant":
                names[node] = literal(node.value, node.dtype)
            elif node.op in ("operand", "index"):
                names[node] = leaf(node)
            else:
                name = f"{prefix}{len(names)}"
                source.line(f"{name} = {_operation(node, [names[a] for a in node.arguments])}")
                names[node] = name
    return [names[root] for root in roots]


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
