"""Elementwise operators: shapes that broadcast, all types, edge values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from jitonnx.ir.dtypes import COMPILED, of_numpy
from jitonnx.ops.registry import registry
from tests.ops.differential.drawing import Draw, is_real, newest_schema, node
from tests.ops.harness import Case

ATTRIBUTES: Mapping[str, Callable[[Draw], dict[str, Any]]] = {
    "Celu": lambda d: {"alpha": d.pick((1.0, 0.5, 3.0))},
    "Elu": lambda d: {"alpha": d.pick((1.0, 0.5, -2.0))},
    "Gelu": lambda d: {"approximate": d.pick(("none", "tanh"))},
    "HardSigmoid": lambda d: {"alpha": d.pick((0.2, 0.5)), "beta": d.pick((0.5, 0.1))},
    "IsInf": lambda d: {"detect_negative": d.integer(0, 1), "detect_positive": d.integer(0, 1)},
    "LeakyRelu": lambda d: {"alpha": d.pick((0.01, 0.5, 2.0))},
    "Selu": lambda d: {"alpha": d.pick((1.67, 0.5)), "gamma": d.pick((1.05, 2.0))},
    "Shrink": lambda d: {"bias": d.pick((0.0, 0.5)), "lambd": d.pick((0.5, 1.5))},
    "Swish": lambda d: {"alpha": d.pick((1.0, 0.5))},
    "ThresholdedRelu": lambda d: {"alpha": d.pick((1.0, 0.25))},
}
UNEDGED = frozenset({"Gelu", "Mish", "Selu", "Shrink", "Sum", "SwiGLU", "Swish"})
"""Operators of several steps, of which the ends of a type make what depends on their order."""
NO_SCALARS = frozenset({"Softsign"})
"""Operators whose reference fails at rank 0."""


def elementwise(operator: str) -> Callable[[Draw], Case]:
    """A strategy for an operator that needs nothing but its schema and attributes."""

    def drawn(d: Draw) -> Case:
        schema = newest_schema(operator)
        declared = schema.inputs
        variadic = declared[-1].option.name == "Variadic"
        count = d.integer(1, 4) if variadic else len(declared)
        types: dict[str, np.dtype[Any]] = {}
        arrays = []
        for at, shape in enumerate(d.broadcast(count)):
            entry = declared[min(at, len(declared) - 1)]
            dtype = types.setdefault(entry.type_str, d.dtype(operator, at))
            sizes = (1,) if operator in NO_SCALARS and not shape else shape
            arrays.append(d.array(sizes, dtype, edges=operator not in UNEDGED))
        attributes = ATTRIBUTES[operator](d) if operator in ATTRIBUTES else {}
        if operator == "Sum" and arrays[0].dtype.itemsize == 2:  # rewritten into sums of two, each of which is rounded
            attributes["atol"] = 0.1
        return node(operator, *arrays, **attributes)

    return drawn


def div(d: Draw) -> Case:
    dtype, (a, b) = d.dtype("Div"), d.broadcast(2)
    return node("Div", d.array(a, dtype, edges=True), divisor(d, b, dtype))


def divisor(d: Draw, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Divisors; whole ones are neither 0 nor, as the least number cannot be divided by it, -1."""
    if is_real(dtype):
        return d.array(shape, dtype, edges=True)
    found = d.array(shape, dtype, edges=True)
    return np.where((found == 0) | (found == dtype.type(-1 if dtype.kind == "i" else 0)), dtype.type(3), found)


def mod(d: Draw) -> Case:
    dtype, (a, b) = d.dtype("Mod"), d.broadcast(2)
    real = is_real(dtype)
    x, y = d.array(a, dtype, edges=not real), divisor(d, b, dtype)
    if real:
        y = np.where(np.isfinite(y.astype(np.float64)) & (abs(y.astype(np.float64)) > 0.1), y, dtype.type(0.75))
    return node("Mod", x, y.astype(dtype), fmod=1 if real else d.integer(0, 1))


def power(d: Draw) -> Case:
    dtype, (a, b) = d.dtype("Pow"), d.broadcast(2)
    kind = d.dtype("Pow", 1)
    kind = dtype if kind.itemsize == 2 else kind  # half precision beside another type is not what the oracle widens
    exponent = d.array(b, kind, edges=is_real(kind) and is_real(dtype), low=0, high=4)
    if not b:  # NumPy, and so onnx's reference, has a square root for it, which gives NaN of -inf and -0.0 of -0.0
        exponent = np.where(exponent == kind.type(0.5), kind.type(0.75), exponent)
    if not is_real(dtype):
        exponent = abs(np.rint(exponent.astype(np.float32))).astype(kind)
    return node("Pow", d.array(a, dtype, edges=is_real(dtype)), exponent, rtol=2e-5)


def bit_shift(d: Draw) -> Case:
    dtype, (a, b) = d.dtype("BitShift"), d.broadcast(2)
    amount = d.array(b, dtype, low=0, high=8 * dtype.itemsize - 1)
    return node("BitShift", d.array(a, dtype, edges=True), amount, direction=d.pick(("LEFT", "RIGHT")))


def clip(d: Draw) -> Case:
    dtype, ends = d.dtype("Clip"), [None, None]
    for at in range(2):
        if d.flag():
            ends[at] = d.array((), dtype)
    return node("Clip", d.array(d.shape(), dtype, edges=True), *ends, constants=d.known(1, 2) if all(ends) else ())


def cast(d: Draw) -> Case:
    return _cast(d, "Cast")


def cast_like(d: Draw) -> Case:
    return _cast(d, "CastLike")


def _cast(d: Draw, operator: str) -> Case:
    """Draw numbers that the other type has: beyond its range ONNX leaves open what comes out."""
    given, wanted = d.dtype(operator), of_numpy(d.pick(tuple(dtype.numpy for dtype in sorted(COMPILED))))
    whole = wanted.is_integer
    x = d.array(d.shape(), given, edges=not whole, low=0, high=100)
    if whole and is_real(given):
        x = abs(x) * given.type(20)
    if operator == "Cast":
        return node("Cast", x, to=int(wanted), widen=False)
    return node("CastLike", x, d.array((1,), wanted.numpy), widen=False)


def prelu(d: Draw) -> Case:
    dtype, shape = d.dtype("PRelu"), d.shape()
    slope = tuple(1 if d.flag() else size for size in shape[d.integer(0, len(shape)) :])
    return node("PRelu", d.array(shape, dtype, edges=True), d.array(slope, dtype))


def mean(d: Draw) -> Case:
    """onnx's reference fails where a later input has the larger shape."""
    dtype = d.dtype("Mean")
    arrays = [d.array(shape, dtype) for shape in d.broadcast(d.integer(1, 4))]
    expected = sum(x.astype(np.float64) for x in arrays) / len(arrays)
    return node("Mean", *arrays, expected=np.asarray(expected).astype(dtype))


def swiglu(d: Draw) -> Case:
    dtype, shape = d.dtype("SwiGLU"), d.shape()
    return node("SwiGLU", d.array(shape, dtype), d.array(shape, dtype), alpha=d.pick((1.0, 1.7)))


def dropout(d: Draw) -> Case:
    ratio = d.array((), np.float32) if d.flag() else None
    return node("Dropout", d.array(d.shape(), d.dtype("Dropout"), edges=True), ratio, outputs=d.integer(1, 2))


SPECIAL: dict[str, Callable[[Draw], Case]] = {
    "BitShift": bit_shift,
    "Cast": cast,
    "CastLike": cast_like,
    "Clip": clip,
    "Div": div,
    "Dropout": dropout,
    "Mean": mean,
    "Mod": mod,
    "PRelu": prelu,
    "SwiGLU": swiglu,
    "Pow": power,
}


def _plain(declaration: Any) -> bool:
    return not declaration.domain and getattr(declaration, "elementwise", False) and declaration.name not in SPECIAL


STRATEGIES: dict[tuple[str, str], Callable[[Draw], Case]] = {
    **{("", declaration.name): elementwise(declaration.name) for declaration in registry if _plain(declaration)},
    **{("", name): strategy for name, strategy in SPECIAL.items()},
}
