"""LLVM IR of scalar functions, such as Numba makes, as expressions: then they are compiled as ONNX's own operators are.

A function without loops becomes an expression in which both sides of each condition are computed and one is chosen, so
that vectors go through it. Its elementary functions are those of the kernel library; what that lacks (cbrt, lgamma) is
called once for each element.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.linked import SYMBOL, LinkedFunction
from jitonnx.ir.dtypes import DType

MATHEMATICS = frozenset(
    {
        *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign", "cos", "cosh", "erf"),
        *("erfc", "exp", "exp2", "expm1", "fabs", "floor", "fmod", "frexp", "hypot", "ldexp", "lgamma", "log", "log10"),
        *("log1p", "log2", "pow", "round", "sin", "sinh", "sqrt", "tan", "tanh", "tgamma", "trunc"),
    }
)
"""Functions of the C mathematics library, which every process has; with an f behind, of float32."""

_TYPES = {
    "i1": DType.BOOL,
    "i8": DType.INT8,
    "i16": DType.INT16,
    "i32": DType.INT32,
    "i64": DType.INT64,
    "float": DType.FLOAT,
    "double": DType.DOUBLE,
}
"""LLVM's integers have no sign; operations have. Here all have one, and what takes none casts."""
_UNSIGNED = {
    DType.INT8: DType.UINT8,
    DType.INT16: DType.UINT16,
    DType.INT32: DType.UINT32,
    DType.INT64: DType.UINT64,
}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}


class Untranslated(Exception):
    """Something for which there is no expression: a loop, memory, an instruction that is not known here."""


def expression(function: Any, arguments: Sequence[DType], result: DType) -> e.Expr:
    """What a C function (llvmlite's reference, all its values named) gives for operands of these types.

    Truth values are bytes in C, or bits. Raises: Untranslated.
    """
    blocks = {block.name: [*block.instructions] for block in function.blocks}
    known: dict[str, e.Expr] = {}
    for position, (argument, dtype) in enumerate(zip(function.arguments, arguments, strict=True)):
        known[argument.name] = e.cast(e.operand(position, dtype), _dtype(argument))
    returned = _Translation(blocks, known).run()
    return e.cast(returned, result)


class _Translation:
    """A function on its way. known: the values so far, by name."""

    def __init__(self, blocks: dict[str, list[Any]], known: dict[str, e.Expr]) -> None:
        self._blocks, self._known = blocks, known
        self._edges: dict[tuple[str, str], e.Expr] = {}
        """Whether control goes from one block to another, by both of their names."""

    def run(self) -> e.Expr:
        results: list[tuple[e.Expr, e.Expr]] = []
        for name in self._order():
            instructions = self._blocks[name]
            reached = self._reached(name)
            for one in instructions[:-1]:
                self._known[one.name] = self._phi(one, name) if one.opcode == "phi" else self._instruction(one)
            last = instructions[-1]
            if last.opcode == "ret":
                results.append((reached, self._value(next(iter(last.operands)))))
            else:
                self._leave(name, last, reached)
        return _chosen(results)

    def _order(self) -> list[str]:
        """The blocks, each behind all from which control comes. Untranslated where there is a loop."""
        first = next(iter(self._blocks))
        done: dict[str, bool] = {}
        order: list[str] = []
        stack = [(first, False)]
        while stack:
            name, ready = stack.pop()
            if ready:
                done[name] = True
                order.append(name)
            elif name not in done:
                done[name] = False
                stack.append((name, True))
                following = _targets(self._blocks[name][-1])
                if any(done.get(one) is False for one in following):
                    raise Untranslated("a loop")
                stack.extend((one, False) for one in following)
            elif not done[name]:
                raise Untranslated("a loop")
        return order[::-1]

    def _reached(self, name: str) -> e.Expr:
        ways = [condition for (_, target), condition in self._edges.items() if target == name]
        return _any(ways) if ways else e.constant(True, DType.BOOL)

    def _leave(self, name: str, last: Any, reached: e.Expr) -> None:
        operands = [*last.operands]
        if last.opcode == "br" and len(operands) == 1:
            ways = [(operands[0].name, reached)]
        elif last.opcode == "br":  # llvmlite has the block for false in front
            condition = self._value(operands[0])
            ways = [(operands[2].name, _both(reached, condition)), (operands[1].name, _both(reached, _not(condition)))]
        elif last.opcode == "switch":
            value = self._value(operands[0])
            pairs = zip(operands[2::2], operands[3::2], strict=True)
            cases = [(e.equal(value, self._value(case)), to.name) for case, to in pairs]
            ways = [(to, _both(reached, hit)) for hit, to in cases]
            ways.append((operands[1].name, _both(reached, _not(_any([hit for hit, _ in cases])))))
        else:
            raise Untranslated(last.opcode)
        for target, condition in ways:
            before = self._edges.get((name, target))
            self._edges[name, target] = condition if before is None else _any([before, condition])

    def _phi(self, one: Any, name: str) -> e.Expr:
        pairs = zip(one.incoming_blocks, one.operands, strict=True)
        return _chosen([(self._edges[block.name, name], self._value(value)) for block, value in pairs])

    def _value(self, operand: Any) -> e.Expr:
        if operand.name in self._known:
            return self._known[operand.name]
        dtype = _dtype(operand)
        kind = operand.value_kind.name
        if kind in ("undef_value", "poison_value"):
            return e.constant(0, dtype)  # it may be any number
        if kind not in ("constant_int", "constant_fp"):
            raise Untranslated(kind)
        value = operand.get_constant_value(signed_int=False)
        if dtype.is_integer and dtype is not DType.BOOL:
            bits = 8 * dtype.numpy.itemsize
            value &= (1 << bits) - 1
            value -= (value >> (bits - 1)) << bits
        return e.constant(value, dtype)

    def _instruction(self, one: Any) -> e.Expr:
        dtype, opcode = _dtype(one), one.opcode
        if opcode == "call":
            *given, callee = one.operands
            return _call(callee.name, [self._value(each) for each in given], dtype)
        operands = [self._value(each) for each in one.operands]
        if opcode in ("icmp", "fcmp"):
            return _compared(_predicate(one), *operands)
        if opcode in _CONVERSIONS:
            return _CONVERSIONS[opcode](operands[0], dtype)
        if opcode not in _INSTRUCTIONS:
            raise Untranslated(opcode)
        if dtype is DType.BOOL and opcode not in ("and", "or", "xor", "select", "freeze"):
            raise Untranslated(f"{opcode} of truth values")
        return _INSTRUCTIONS[opcode](*operands)


def _targets(last: Any) -> list[str]:
    return [operand.name for operand in last.operands if operand.value_kind.name == "basic_block"]


def _dtype(value: Any) -> DType:
    text = str(value.type)
    if text not in _TYPES:
        raise Untranslated(f"a value of type {text}")
    return _TYPES[text]


def _any(conditions: Iterable[e.Expr]) -> e.Expr:
    """One of them holds. Of both outcomes of a condition behind another, that other is left."""
    result: e.Expr | None = None
    for one in conditions:
        result = one if result is None else _either(result, one)
    assert result is not None, "Bug: a choice of nothing"
    return result


def _either(a: e.Expr, b: e.Expr) -> e.Expr:
    if _true(a) or _true(b) or a is _not(b):
        return e.constant(True, DType.BOOL)
    if a.op == b.op == "logical_and" and a.arguments[0] is b.arguments[0]:
        return _both(a.arguments[0], _either(a.arguments[1], b.arguments[1]))
    return e.logical_or(a, b)


def _both(a: e.Expr, b: e.Expr) -> e.Expr:
    return b if _true(a) else a if _true(b) else e.logical_and(a, b)


def _not(a: e.Expr) -> e.Expr:
    return a.arguments[0] if a.op == "logical_not" else e.logical_not(a)


def _true(a: e.Expr) -> bool:
    return a.op == "constant" and a.value is True


def _chosen(pairs: Sequence[tuple[e.Expr, e.Expr]]) -> e.Expr:
    """The value whose condition holds: one does, or nobody reads it."""
    result = pairs[-1][1]
    for condition, value in reversed(pairs[:-1]):
        result = value if value is result else e.where(condition, value, result)
    return result


def _unsigned(x: e.Expr) -> e.Expr:
    return e.cast(x, _UNSIGNED[x.dtype]) if x.dtype in _UNSIGNED else x


def _without_sign(operation: Callable[[e.Expr, e.Expr], e.Expr]) -> Callable[[e.Expr, e.Expr], e.Expr]:
    return lambda a, b: e.cast(operation(_unsigned(a), _unsigned(b)), a.dtype)


def _logical(of_bools: e.BinaryOp, of_integers: e.BinaryOp) -> Callable[[e.Expr, e.Expr], e.Expr]:
    return lambda a, b: e.binary(of_bools if a.dtype is DType.BOOL else of_integers, a, b)


_INSTRUCTIONS: dict[str, Callable[..., e.Expr]] = {
    "fadd": lambda a, b: a + b,
    "fsub": lambda a, b: a - b,
    "fmul": lambda a, b: a * b,
    "fdiv": lambda a, b: a / b,
    "frem": e.fmod,
    "fneg": lambda a: -a,
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "sdiv": lambda a, b: a / b,
    "srem": e.fmod,
    "udiv": _without_sign(lambda a, b: a / b),
    "urem": _without_sign(e.fmod),
    "shl": e.shift_left,
    "ashr": e.shift_right,
    "lshr": _without_sign(e.shift_right),
    "and": _logical("logical_and", "bitwise_and"),
    "or": _logical("logical_or", "bitwise_or"),
    "xor": _logical("logical_xor", "bitwise_xor"),
    "select": e.where,
    "freeze": lambda a: a,
}


def _extended(a: e.Expr, to: DType) -> e.Expr:
    return e.cast(_unsigned(a), to)


def _sign_extended(a: e.Expr, to: DType) -> e.Expr:
    return -e.cast(a, to) if a.dtype is DType.BOOL else e.cast(a, to)


def _truncated(a: e.Expr, to: DType) -> e.Expr:
    return e.not_equal(e.binary("bitwise_and", a, 1), 0) if to is DType.BOOL else e.cast(a, to)


_CONVERSIONS: dict[str, Callable[[e.Expr, DType], e.Expr]] = {
    "fpext": e.cast,
    "fptrunc": e.cast,
    "sitofp": _sign_extended,
    "uitofp": _extended,
    "fptosi": e.cast,
    "fptoui": lambda a, to: e.cast(e.cast(a, _UNSIGNED[to]), to),
    "sext": _sign_extended,
    "zext": _extended,
    "trunc": _truncated,
}

_PREDICATE = re.compile(r"= [if]cmp (?:[a-z]+ )*?(oeq|ogt|oge|olt|ole|one|ord|[us](?:gt|ge|lt|le)|ueq|une|uno|eq|ne) ")


def _predicate(one: Any) -> str:
    found = _PREDICATE.search(str(one))
    if found is None:
        raise Untranslated(str(one))
    return found[1]


_PLAIN: dict[str, e.BinaryOp] = {"gt": "gt", "ge": "ge", "lt": "lt", "le": "le", "eq": "eq", "ne": "ne"}
_OPPOSITE: dict[str, e.BinaryOp] = {"gt": "le", "ge": "lt", "lt": "ge", "le": "gt"}


def _compared(predicate: str, a: e.Expr, b: e.Expr) -> e.Expr:
    """What icmp or fcmp says. Comparisons of expressions are false for NaN, but "ne" is true."""
    kind, order = predicate[:-2], predicate[-2:]
    if a.dtype is DType.BOOL:
        if predicate not in ("eq", "ne"):
            raise Untranslated(f"{predicate} of truth values")
        return e.logical_xor(a, b) if predicate == "ne" else _not(e.logical_xor(a, b))
    if predicate in ("ord", "uno"):
        unordered = e.isnan(a) if a is b or b.op == "constant" else e.logical_or(e.isnan(a), e.isnan(b))
        return unordered if predicate == "uno" else _not(unordered)
    if predicate == "one":
        return e.logical_or(a < b, a > b)
    if predicate == "ueq":
        return _not(e.logical_or(a < b, a > b))
    if not a.dtype.is_float:
        a, b = (_unsigned(a), _unsigned(b)) if kind == "u" else (a, b)
    elif kind == "u" and order in _OPPOSITE:
        return _not(e.binary(_OPPOSITE[order], a, b))
    return e.binary(_PLAIN[order], a, b)


def _lesser(a: e.Expr, b: e.Expr) -> e.Expr:
    return e.where(e.isnan(a), b, e.where(b < a, b, a))


def _greater(a: e.Expr, b: e.Expr) -> e.Expr:
    return e.where(e.isnan(a), b, e.where(b > a, b, a))


def _rounded_away(a: e.Expr) -> e.Expr:
    """The nearest integer, of two equally near the one further from 0."""
    whole = e.trunc(a)
    return e.where(e.absolute(a - whole) >= 0.5, whole + e.sign(a), whole)


def _logarithm(base: float) -> Callable[[e.Expr], e.Expr]:
    """A logarithm of float32 by way of float64, so that powers of the base give whole numbers."""
    return lambda a: e.cast(e.log(e.cast(a, DType.DOUBLE)) * (1 / math.log(base)), DType.FLOAT)


def _signed_as(a: e.Expr, b: e.Expr) -> e.Expr:
    size = e.absolute(a)
    return e.where(e.logical_or(b < 0, e.reciprocal(b) < 0), -size, size)


_CALLS: dict[str, Callable[..., e.Expr]] = {
    **{name: getattr(e, name) for name in ("sqrt", "exp", "log", "log1p", "expm1", "erf", "tanh", "sin", "cos", "tan")},
    **{name: getattr(e, name) for name in ("asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh")},
    **{name: getattr(e, name) for name in ("floor", "ceil", "trunc", "fmod")},
    **dict.fromkeys(("rint", "nearbyint", "roundeven"), e.round_even),
    "fabs": e.absolute,
    "abs": lambda a, _: e.absolute(a),
    "pow": e.power,
    "exp2": lambda a: e.power(e.constant(2, a.dtype), a),
    "fmuladd": lambda a, b, c: a * b + c,
    **dict.fromkeys(("minnum", "fmin"), _lesser),
    **dict.fromkeys(("maxnum", "fmax"), _greater),
    "minimum": e.minimum,
    "maximum": e.maximum,
    "smin": e.minimum,
    "smax": e.maximum,
    "umin": _without_sign(e.minimum),
    "umax": _without_sign(e.maximum),
    "copysign": _signed_as,
    "round": _rounded_away,
}
"""Functions of the C library, with an f behind for float32, and intrinsics of LLVM."""
_SINGLE = {"log2": _logarithm(2), "log10": _logarithm(10)}
"""Functions that only float32 has."""
_INTRINSIC = re.compile(r"llvm\.([a-z0-9]+)\.(?:f32|f64|i\d+)")


def _call(name: str, given: list[e.Expr], result: DType) -> e.Expr:
    intrinsic = _INTRINSIC.fullmatch(name)
    if intrinsic:
        short = intrinsic[1]
    else:
        short = name if name in MATHEMATICS else name.removesuffix("f")
        if short not in MATHEMATICS:
            raise Untranslated(f"a call of {name}")
    if short in _SINGLE and result is DType.FLOAT:
        return _SINGLE[short](*given)
    if short in _CALLS:
        return _CALLS[short](*given)
    if math.prod(one.dtype.is_float for one in given) * result.is_float == 0:
        raise Untranslated(f"a call of {name}")
    kinds = [_NAMES[one.dtype] for one in given]
    named = ", ".join(f"{kind} %{i}" for i, kind in enumerate(kinds))
    ir = (
        f"declare {_NAMES[result]} @{name}({', '.join(kinds)})\n\n"
        f"define {_NAMES[result]} @{SYMBOL}({named}) alwaysinline {{\n"
        f"  %r = call {_NAMES[result]} @{name}({named})\n  ret {_NAMES[result]} %r\n}}\n"
    )
    return e.call(LinkedFunction(short, tuple(one.dtype for one in given), result, ir), *given)
