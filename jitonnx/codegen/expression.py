"""Scalar expressions as code on vectors.

Every part of an expression is a vector of as many lanes, constants too. Floats may be contracted: a product and a sum
next to each other become one multiply-add. Not so where numbers are quantised or were: there each operation rounds, as
the model has it, since a last place decides which integer comes out.

float16 and bfloat16 lie in memory as 16 bits and are computed with as float32. Such a part of an expression is its bits
(an operand, a constant, what a cast rounded), or a float32 that nothing has rounded yet, as `expr.evaluate` has it: of
float16(float(x0) + 1.0) with a float16 x0 these are the bits of x0, widened, the sum, and that narrowed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence

import numpy as np

from jitonnx.emit import half, simd, ssa, types
from jitonnx.emit.builder import KernelBuilder
from jitonnx.emit.mathematics import vecmath
from jitonnx.emit.ssa import SSAValue
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.dtypes import HALVES, DType

ELEMENTS: dict[DType, types.ElementType] = {
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
"""Element types that generated code can hold, as they lie in buffers; of half precision the bits."""

Leaf = Callable[[e.Expr], SSAValue]


_WRITTEN_OUT = 4
"""Uses of an elementary function up to which each is written out where functions may be called. A longer chain of them
waits for results, not for calls: 60 of Tanh, Abs, Neg, Relu and Sigmoid take as long by calls, within 1 %, and compile
in a quarter of the time."""


def emit_expr(
    code: KernelBuilder, roots: Sequence[e.Expr], lanes: int, leaf: Leaf, *, calls: bool = False
) -> list[SSAValue]:
    """Compute `roots` on vectors of `lanes`: their values, of half precision the bits.

    `leaf` gives an operand (of half precision: its bits) or index; shared parts are computed once. calls: elementary
    functions that are used often may be called, for which no more is in registers than these expressions need.
    """
    contracts = not any(map(e.is_quantised, roots))
    parts = _Parts(code, lanes, leaf, _used_often(roots) if calls else frozenset(), contracts=contracts)
    for root in roots:
        for node in e.children_first(root):
            parts.add(node)
    return [parts.stored(root) for root in roots]


def _used_often(roots: Sequence[e.Expr]) -> frozenset[str]:
    """The elementary functions that are used more than `_WRITTEN_OUT` times."""
    nodes = dict.fromkeys(node for root in roots for node in e.children_first(root))
    uses = Counter(node.op for node in nodes if node.op not in _SHORT)
    return frozenset(op for op, count in uses.items() if count > _WRITTEN_OUT)


class _Parts:
    """The parts of some expressions that have been computed.

    called: the elementary functions that are called; contracts: whether products and sums may be rounded together.
    """

    def __init__(
        self, code: KernelBuilder, lanes: int, leaf: Leaf, called: Collection[str], *, contracts: bool
    ) -> None:
        self._code, self._lanes, self._leaf, self._called = code, lanes, leaf, called
        self._contracts = contracts
        self._values: dict[e.Expr, SSAValue] = {}
        """They are what is computed with."""
        self._bits: dict[e.Expr, SSAValue] = {}
        """Those of half precision as they are stored."""

    def add(self, node: e.Expr) -> None:
        """Compute a part whose arguments are there."""
        if node in self._values or node in self._bits:
            return
        if node.dtype in HALVES and self._add_bits(node):
            return
        if node.op == "constant":
            dtype = DType.FLOAT if node.dtype in HALVES else node.dtype
            self._values[node] = self._code.number(ELEMENTS[dtype], node.value, self._lanes)
        elif node.op in ("operand", "index"):
            self._values[node] = self._leaf(node)
        elif node.op in self._called:
            self._values[node] = self._code.function(getattr(vecmath, node.op), [self.value(a) for a in node.arguments])
        else:
            self._values[node] = _operation(node, [self.value(a) for a in node.arguments], contracts=self._contracts)

    def _add_bits(self, node: e.Expr) -> bool:
        """Note a part of half precision that is rounded already, or compute one that is rounded now; else False."""
        if node.op == "operand":
            self._bits[node] = self._leaf(node)
        elif node.op == "cast" and e.is_rounded(node.arguments[0], node.dtype):
            self._values[node] = self.value(node.arguments[0])
        elif node.op == "cast":
            value = self.value(node.arguments[0])
            self._bits[node] = half.narrow_for_products(value) if node.value else _narrowed(value, node.dtype)
        elif node.op == "where" and all(a.op == "constant" or a in self._bits for a in node.arguments[1:]):
            self._bits[node] = ssa.select(self.value(node.arguments[0]), *map(self.stored, node.arguments[1:]))
        else:
            return False
        return True

    def value(self, node: e.Expr) -> SSAValue:
        """A part as it is computed with."""
        if node not in self._values:
            self._values[node] = half.widen(self._bits[node], node.dtype.text)
        return self._values[node]

    def stored(self, node: e.Expr) -> SSAValue:
        """A part as it lies in memory."""
        if node.dtype not in HALVES:
            return self._values[node]
        if node not in self._bits:
            if node.op == "constant":
                bits = _bits_of(node.value, node.dtype)
                self._bits[node] = self._code.number(types.uint16, bits, self._lanes)
            else:
                self._bits[node] = _narrowed(self._values[node], node.dtype)
        return self._bits[node]


def _bits_of(value: float, dtype: DType) -> int:
    """A number of half precision as its bits."""
    with np.errstate(over="ignore"):
        return int(np.asarray(value, dtype.numpy).view(np.uint16).item())


def _narrowed(x: SSAValue, target: DType) -> SSAValue:
    """A number of any type rounded to half precision; to bfloat16 by way of float32, as ml_dtypes does it."""
    if target is DType.FLOAT16 and x.element is types.float64:
        return half.narrow_double_float16(x)
    single = simd.convert(x, types.float32)
    return half.narrow_float16(single) if target is DType.FLOAT16 else half.narrow_bfloat16(single)


_OPERATORS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "shift_left": "<<", "shift_right": ">>"}
_OPERATORS |= {"logical_and": "&", "logical_or": "|", "logical_xor": "^"}
_OPERATORS |= {"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^"}
_COMPARISONS: dict[str, Callable[[SSAValue, SSAValue], SSAValue]] = {
    "eq": SSAValue.equals,
    "ne": SSAValue.differs,
    "lt": SSAValue.__lt__,
    "le": SSAValue.__le__,
    "gt": SSAValue.__gt__,
    "ge": SSAValue.__ge__,
}
_FUNCTIONS: dict[str, Callable[..., SSAValue]] = {
    **_COMPARISONS,
    "neg": SSAValue.__neg__,
    "logical_not": SSAValue.__invert__,
    "bitwise_not": SSAValue.__invert__,
    "where": ssa.select,
    "abs": ssa.absolute,
    "round": ssa.rint,
    "nearest": ssa.nearest_integer,
    "nearest_low": ssa.nearest_low,
    "within": ssa.within,
    "quotient": simd.quotient,
    "fma": simd.multiply_add,
    "sqrt": ssa.sqrt,
    "isnan": ssa.isnan,
    "isinf": simd.isinf,
    "floor": simd.floor,
    "ceil": simd.ceil,
    "trunc": simd.trunc,
    "mod": simd.modulo,
    "fmod": simd.remainder,
}
"""What operations do; those that are not here are vecmath's functions of the same name."""
_SHORT = {
    *(*_OPERATORS, *_FUNCTIONS, "constant", "operand", "index", "cast", "call", "maximum", "minimum"),
    *("reciprocal", "sign", "hard_sigmoid", "softsign"),
}
"""The operations that take no longer than a call."""


def _operation(node: e.Expr, arguments: Sequence[SSAValue], *, contracts: bool) -> SSAValue:
    op, operands = node.op, node.arguments
    if op == "div" and node.dtype.is_integer:
        return simd.divide_integer(*arguments)
    if op in _OPERATORS:
        return (simd.contracted if contracts else simd.combined)(_OPERATORS[op], *arguments)
    if op == "cast":
        if operands[0].dtype in HALVES and node.dtype is DType.FLOAT:
            return arguments[0]
        return simd.convert(arguments[0], ELEMENTS[node.dtype])
    if op == "call":
        return simd.each_lane(node.value.symbol, node.value.module, ELEMENTS[node.dtype], arguments)
    if op in ("maximum", "minimum"):
        return _extremum(op, operands, arguments)
    function: Callable[..., SSAValue] = _FUNCTIONS.get(op) or getattr(vecmath, op)
    return function(*arguments)


def _extremum(op: str, operands: Sequence[e.Expr], arguments: Sequence[SSAValue]) -> SSAValue:
    """One instruction where one side is a constant number; else with NaN of both sides kept."""
    for value, bound in ((0, 1), (1, 0)):
        if operands[bound].op == "constant" and operands[bound].value == operands[bound].value:
            limit = ssa.at_least if op == "maximum" else ssa.at_most
            return limit(arguments[value], arguments[bound])
    return simd.maximum(*arguments) if op == "maximum" else simd.minimum(*arguments)
