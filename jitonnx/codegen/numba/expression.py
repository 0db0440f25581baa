"""Scalar expressions as Python statements on NumPy's scalars, which Numba compiles.

Every value has the type that it is computed with. Numba computes integers in 64 bits, so what is narrower is converted
back behind each operation. float16 and bfloat16 are float32 in between: what a cast rounds is rounded, and what is
stored (`stored`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

from jitonnx.codegen.numba.writing import Uncovered, Writer, brackets
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.dtypes import COMPILED, HALVES, DType

Leaf = Callable[[e.Expr], str]

_LONGEST = 80
"""Characters of an expression, about, before a part of it gets a line of its own."""
_WIDE = (DType.INT64, DType.UINT64)


def kind(dtype: DType) -> str:
    """The NumPy type that elements of a type are computed with."""
    return "np.float32" if dtype in HALVES else "np.bool_" if dtype is DType.BOOL else f"np.{dtype.numpy.name}"


def memory_kind(dtype: DType) -> str:
    """What elements are in memory: the bits of half precision, bytes for truth values."""
    return "uint16" if dtype in HALVES else "uint8" if dtype is DType.BOOL else dtype.numpy.name


def loaded(element: str, dtype: DType) -> str:
    """An element in memory as it is computed with."""
    if dtype in HALVES:
        return f"widen_{dtype.text}({element})"
    return f"{element} != 0" if dtype is DType.BOOL else element


def stored(value: str, dtype: DType) -> str:
    """A value as it lies in memory."""
    if dtype in HALVES:
        return f"narrow_{dtype.text}({value})"
    return f"np.uint8({value})" if dtype is DType.BOOL else value


def number(value: float, dtype: DType) -> str:
    """A constant of a type."""
    if dtype is DType.BOOL:
        return str(bool(value))
    text = repr(value) if math.isfinite(value) else "np.nan" if value != value else f"{'-' * (value < 0)}np.inf"
    return f"{kind(dtype)}({text})"


def exponential(kind_of: str) -> str:
    """What is called for e**x of a NumPy type."""
    return "exp" if kind_of == "np.float32" else "np.exp"


def write_expressions(code: Writer, roots: Sequence[e.Expr], leaf: Leaf) -> list[str]:
    """Write what computes some expressions: the texts of their values. Shared parts have a line of their own.

    leaf: the text of an operand, as it is computed with, or of an index. Uncovered names what has no text.
    """
    nodes = list(dict.fromkeys(node for root in roots for node in e.children_first(root)))
    uses = Counter(argument for node in nodes for argument in node.arguments)
    uses.update(roots)
    uses.update(argument for node in nodes if node.op in _REPEATING for argument in node.arguments)
    texts: dict[e.Expr, str] = {}
    for node in nodes:
        text = leaf(node) if node.op in ("operand", "index") else _text(node, [texts[a] for a in node.arguments])
        long = len(text) > _LONGEST and node not in roots
        shared = uses[node] > 1 and node.op != "constant" and not text.isidentifier()
        texts[node] = code.named("t", text) if long or shared else text
    return [texts[root] for root in roots]


_INFIX = {"add": "+", "sub": "-", "mul": "*", "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^"}
_INFIX |= {"shift_left": "<<", "shift_right": ">>"}
_COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_LOGICAL = {"logical_and": "&", "logical_or": "|", "logical_xor": "^"}
_NUMPY = {"sqrt": "sqrt", "log": "log", "log1p": "log1p", "expm1": "expm1", "tanh": "tanh", "sin": "sin"}
_NUMPY |= {"cos": "cos", "tan": "tan", "asin": "arcsin", "acos": "arccos", "atan": "arctan", "sinh": "sinh"}
_NUMPY |= {"cosh": "cosh", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh"}
_ROUNDED = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "rint"}
_FORMULAS = {
    "exp": "{exp}({x})",
    "reciprocal": "{T}(1.0) / {x}",
    "sigmoid": "{T}(1.0) / ({T}(1.0) + {exp}(-{x}))",
    "silu": "{x} / ({T}(1.0) + {exp}(-{x}))",
    "gelu": "{T}(0.5) * {x} * {T}(erfc(-{x} * {T}(0.7071067811865476)))",
    "gelu_tanh": "{x} / ({T}(1.0) + {exp}({x} * {T}(-1.5957691216057308) * ({T}(1.0) + {T}(0.044715) * {x} * {x})))",
    "softplus": "maximum({x}, {T}(0.0)) + np.log1p({exp}(-abs({x})))",
    "mish": "{x} * np.tanh(maximum({x}, {T}(0.0)) + np.log1p({exp}(-abs({x}))))",
    "erf": "{T}(erf({x}))",
    "elu": "{y} * np.expm1({x}) if {x} < 0 else {x}",
    "pow": "np.power({x}, {y})",
}
"""Operations of floats by their arguments and their type T. gelu: 1 + erf(a) of negative a would lose digits."""
_REPEATING = ("sign", "silu", "gelu", "gelu_tanh", "mish", "softplus", "elu")
"""Operations whose texts have an argument twice."""


def _text(node: e.Expr, given: Sequence[str]) -> str:
    if node.dtype not in COMPILED:
        raise Uncovered(f"numbers of {node.dtype.text}")
    if node.op == "constant":
        return number(node.value, node.dtype)
    if node.op == "cast":
        return _cast(given[0], node.arguments[0].dtype, node.dtype)
    source = node.arguments[0].dtype
    x, y = brackets(given[0]), brackets(given[-1])
    if node.op in _COMPARED:
        return f"{x} {_COMPARED[node.op]} {y}"
    if node.op == "where":
        return f"{brackets(given[1])} if {given[0]} else {y}"
    if node.op in ("isnan", "isinf"):
        if not source.is_float:
            return "False"
        return f"np.isnan({given[0]})" if node.op == "isnan" else f"np.isinf({given[0]})"
    if node.op in _LOGICAL:
        return f"{x} {_LOGICAL[node.op]} {y}"
    if node.op == "logical_not" or (node.op == "bitwise_not" and source is DType.BOOL):
        return f"not {x}"
    if node.op in ("nearest", "nearest_low"):
        return _cast(f"np.rint({given[0]})", source, DType.INT32)
    if node.op in ("maximum", "minimum", "within"):
        return f"{node.op}({', '.join(given)})"
    if node.op == "call":
        raise Uncovered(f"a call of the compiled function {node.value.name}")
    text = (_float_operation if source.is_float else _integer_operation)(node, given)
    if text is None:
        raise Uncovered(f"{node.op} of {source.text}")
    return text


def _float_operation(node: e.Expr, given: Sequence[str]) -> str | None:
    x, y, kind_of = brackets(given[0]), brackets(given[-1]), kind(node.dtype)
    if node.op in ("add", "sub", "mul"):
        return f"{x} {_INFIX[node.op]} {y}"
    if node.op == "div":
        return f"{x} / {y}"
    if node.op == "quotient":
        return f"{x} / {brackets(given[1])}"
    if node.op == "fma":
        a, b, c = (f"np.float64({text})" for text in given)
        return f"{kind_of}({a} * {b} + {c})"
    if node.op == "neg":
        return f"-{x}"
    if node.op == "abs":
        return f"abs({given[0]})"
    if node.op == "sign":
        return f"{kind_of}(1.0) if {x} > 0 else {kind_of}(-1.0) if {x} < 0 else {x}"
    if node.op in _NUMPY or node.op in _ROUNDED:
        return f"np.{_NUMPY.get(node.op) or _ROUNDED[node.op]}({given[0]})"
    if node.op == "fmod":
        return f"np.fmod({given[0]}, {given[1]})"
    if node.op == "mod":
        return f"modulo_float({given[0]}, {given[1]})"
    if node.op in _FORMULAS:
        return _FORMULAS[node.op].format(T=kind_of, exp=exponential(kind_of), x=x, y=y)
    return None


def _integer_operation(node: e.Expr, given: Sequence[str]) -> str | None:
    dtype, x, y = node.dtype, brackets(given[0]), brackets(given[-1])
    unsigned = "_unsigned" if dtype.name.startswith("U") else ""
    if dtype is DType.BOOL:
        return f"{x} {_INFIX[node.op]} {y}" if node.op.startswith("bitwise_") else None
    if node.op in _INFIX:
        text = f"{x} {_INFIX[node.op]} {y}"
    elif node.op == "div":
        text = f"divide{unsigned}({given[0]}, {given[1]})"
    elif node.op == "mod" or (node.op == "fmod" and unsigned):
        text = f"modulo{unsigned}({given[0]}, {given[1]})"
    elif node.op == "fmod":
        text = f"remainder({given[0]}, {given[1]})"
    elif node.op in _ROUNDED or (node.op == "abs" and unsigned):
        return given[0]
    elif node.op == "abs":
        text = f"abs({given[0]})"
    elif node.op == "neg":
        text = f"-{x}"
    elif node.op == "bitwise_not":
        text = f"~{x}"
    else:
        return None
    return f"{kind(dtype)}({text})"


def _cast(x: str, old: DType, new: DType) -> str:
    """The text of ONNX's Cast: floats saturate, integers wrap around."""
    if old is new:
        return x
    if new is DType.BOOL:
        return f"{brackets(x)} != 0"
    if new in HALVES:
        if old is DType.DOUBLE and new is DType.FLOAT16:
            return f"round_double_float16({x})"
        return f"round_{new.text}({x if old in (DType.FLOAT, *HALVES) else f'np.float32({x})'})"
    if old.is_float and new.is_integer:
        return _to_integer(x, old, new)
    return x if kind(old) == kind(new) else f"{kind(new)}({x})"


def _to_integer(x: str, old: DType, new: DType) -> str:
    if new in _WIDE:
        return f"to_{new.text}({x})"
    bits = 8 * new.itemsize
    low, high = (0, (1 << bits) - 1) if new.name.startswith("U") else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    wide = "np.float64" if bits == 32 else kind(old)
    value = x if wide == kind(old) else f"{wide}({x})"
    return f"{kind(new)}(bounded({value}, {wide}({low}.0), {wide}({high}.0)))"
