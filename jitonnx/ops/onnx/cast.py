"""Changing element types: by value (Cast, CastLike) and by bits (BitCast)."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dtypes import DType, of_numpy
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import DataDependentError, InferenceError, Operator
from jitonnx.ir.raw import RawNode
from jitonnx.ir.strings import strings_of
from jitonnx.ir.types import TensorType, is_symbolic
from jitonnx.ops.base import FLOATS, INTEGERS
from jitonnx.support import fork_safety

_FLOAT8 = (DType.FLOAT8E4M3FN, DType.FLOAT8E4M3FNUZ, DType.FLOAT8E5M2, DType.FLOAT8E5M2FNUZ)
_PLAIN = FLOATS | INTEGERS | {DType.BOOL}
"""Types between which generated code converts; the others are converted on NumPy."""


_SATURATED = {DType.FLOAT4E2M1: 6.0, DType.FLOAT6E2M3: 7.5, DType.FLOAT6E3M2: 28.0}
"""Types without infinities and NaN, and the largest number of each, which stands for all larger ones."""


class _Cast(Operator):
    """Conversion by value; saturate and round_mode concern 8-bit floats."""

    symbolic = True

    saturate: int = 1
    round_mode: str = "up"

    def _infer(self, x: Value, dtype: DType) -> TensorType:
        if self.round_mode not in ("up", "down", "nearest"):
            raise InferenceError(f"round_mode is {self.round_mode!r}; 'up', 'down' and 'nearest' are known")
        return TensorType(dtype, x.shape)

    def _lower(self, to: Lowering, x: Value, dtype: DType, *inputs: Value) -> Value:
        if x.dtype is dtype:
            return x
        if x.dtype in _PLAIN and dtype in _PLAIN:
            if x.dtype in FLOATS and dtype in INTEGERS:
                return to.map(truncated(e.operand(0, x.dtype), dtype), x)
            return to.cast(x, dtype)
        (result,) = to.host(self, inputs)
        return result

    def _convert(self, x: np.ndarray, dtype: DType) -> np.ndarray:
        return convert(x, dtype, saturate=bool(self.saturate), round_mode=self.round_mode)


class Cast(_Cast):
    """The input's elements converted to the type `to`."""

    elementwise = True

    to: int

    @classmethod
    def upgrade(cls, node: RawNode) -> None:
        """Version 1 named the type in text."""
        to = node.attributes.get("to")
        if isinstance(to, str):
            names = {dtype.name: dtype for dtype in DType}
            if to.upper() not in names:
                raise InferenceError(f"attribute to is {to!r}, which is no element type")
            node.attributes["to"] = int(names[to.upper()])

    @property
    def dtype(self) -> DType:
        """The type converted to. InferenceError for one that is not known here."""
        return DType(self.to)

    def infer(self, context: InferenceContext, x: Value) -> TensorType:
        return self._infer(x, self.dtype)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return self._convert(x, self.dtype)

    def lower(self, to: Lowering, x: Value) -> Value:
        return self._lower(to, x, self.dtype, x)


class CastLike(_Cast):
    """The first input's elements converted to the second's type."""

    symbolic = False

    def infer(self, context: InferenceContext, x: Value, like: Value) -> TensorType:
        return self._infer(x, like.dtype)

    def contents(self, x: Value, like: Value) -> np.ndarray | None:
        return x.contents if x.dtype is like.dtype else None

    def evaluate(self, x: np.ndarray, like: np.ndarray) -> np.ndarray:
        return self._convert(x, of_numpy(like.dtype))

    def lower(self, to: Lowering, x: Value, like: Value) -> Value:
        return self._lower(to, x, like.dtype, x, like)


class BitCast(Operator):
    """The input's bits read as another type of the same width."""

    to: int

    def infer(self, context: InferenceContext, x: Value) -> TensorType:
        dtype = DType(self.to)
        if dtype is DType.STRING or x.dtype is DType.STRING or dtype.numpy.itemsize != x.dtype.numpy.itemsize:
            raise InferenceError(f"{x.dtype.text} and {dtype.text} have different widths")
        return TensorType(dtype, x.shape)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return x.view(DType(self.to).numpy)

    def lower(self, to: Lowering, x: Value) -> Value:
        dtype = DType(self.to)
        return x if dtype is x.dtype else to.emit(c.BitCast(dtype), (x,), TensorType(dtype, x.shape))


# ---------------------------------------------------------------------------------------------- conversions


def convert(x: np.ndarray, dtype: DType, *, saturate: bool = True, round_mode: str = "up") -> np.ndarray:
    """`x` as elements of `dtype`, by the rules of ONNX's Cast (what they leave open as onnxruntime does it on x86)."""
    if x.dtype == object and is_symbolic(x):
        if dtype not in (DType.INT32, DType.INT64):
            raise DataDependentError(f"a dimension expression as {dtype.text}")
        return x
    target = dtype.numpy
    if dtype is DType.STRING:
        return _texts(x) if x.dtype != object else x
    if x.dtype == object:
        return _parse(x, dtype)
    if dtype is DType.BOOL:
        return x != 0
    if dtype in _FLOAT8:
        return _to_float8(x.astype(np.float32), dtype, saturate=saturate)
    if dtype is DType.FLOAT8E8M0:
        return _to_power_of_two(x.astype(np.float32), target, saturate=saturate, round_mode=round_mode)
    if dtype in _SATURATED:
        return np.clip(x.astype(np.float32), -_SATURATED[dtype], _SATURATED[dtype]).astype(target)
    if dtype.is_integer and x.dtype.kind not in "iub":
        return _truncate(x, dtype)
    if dtype.is_integer and dtype not in INTEGERS:
        return _low_bits(x.astype(np.int64), dtype)
    return x.astype(target)


def _truncate(x: np.ndarray, dtype: DType) -> np.ndarray:
    """Floats towards zero. Out of range: like the processor, which converts to 32 or 64 bits and cuts off the rest."""
    wide = x.astype(np.float64) if x.dtype.itemsize < 8 else x
    if dtype is DType.UINT64:
        return np.where(wide >= 2.0**63, wide.astype(np.uint64), wide.astype(np.int64).astype(np.uint64))
    if dtype in (DType.INT64, DType.UINT32):
        return wide.astype(np.int64).astype(dtype.numpy)
    narrow = np.where((wide > -(2.0**31) - 1) & (wide < 2.0**31), wide, -(2.0**31)).astype(np.int32)
    return narrow.astype(dtype.numpy) if dtype in INTEGERS else _low_bits(narrow, dtype)


def truncated(x: e.Expr, dtype: DType) -> e.Expr:
    """A float as an integer, as `cast_array` has it; a cast alone leaves numbers out of range open."""
    if dtype is DType.UINT64:
        upper = x >= 2.0**63
        return e.where(upper, e.cast(x, dtype), e.cast(truncated(x, DType.INT64), dtype))
    if dtype is DType.UINT32:
        return e.cast(truncated(x, DType.INT64), dtype)
    if dtype in (DType.INT64, DType.INT32):
        bits = 63 if dtype is DType.INT64 else 31
        inside = e.absolute(x) < 2.0**bits  # false for NaN, and for the least integer, which it becomes all the same
        return e.where(inside, e.cast(x, dtype), -(2**bits))
    return e.cast(truncated(x, DType.INT32), dtype)


def _low_bits(x: np.ndarray, dtype: DType) -> np.ndarray:
    """The lowest 4 or 2 bits as an integer of that width."""
    bits = 4 if dtype in (DType.INT4, DType.UINT4) else 2
    low = x.astype(np.int64) & ((1 << bits) - 1)
    if dtype in (DType.INT4, DType.INT2):
        low = (low ^ (1 << (bits - 1))) - (1 << (bits - 1))
    return low.astype(np.int8).astype(dtype.numpy)


def _to_float8(x: np.ndarray, dtype: DType, *, saturate: bool) -> np.ndarray:
    if saturate:
        with fork_safety.critical:
            import ml_dtypes

        finfo: Any = ml_dtypes.finfo
        largest = float(finfo(dtype.numpy).max)
        x = np.clip(x, -largest, largest)
    return x.astype(dtype.numpy)


def _to_power_of_two(x: np.ndarray, target: np.dtype, *, saturate: bool, round_mode: str) -> np.ndarray:
    """FLOAT8E8M0, an exponent alone: the byte b means 2 ** (b - 127), 255 means NaN."""
    mantissa, exponent = np.frexp(np.abs(x))  # |x| = mantissa * 2 ** exponent, mantissa in [1/2, 1)
    power = exponent.astype(np.int64) - 1 + 127
    if round_mode == "up":
        power += mantissa > 0.5
    elif round_mode == "nearest":
        power += mantissa >= 0.75
    largest, out = 254, np.isinf(x)
    if saturate:
        byte = np.where(out, largest, np.clip(power, 0, largest))
        byte = np.where(x == 0, 0, byte)
    else:
        byte = np.where(out | (power > largest) | (power < 0) | (x == 0), 255, power)
    return np.where(np.isnan(x), 255, byte).astype(np.uint8).view(target)


def _texts(x: np.ndarray) -> np.ndarray:
    """Numbers in text as onnxruntime writes them: floats, of any width, with up to eight digits."""

    def text(value: float) -> str:
        if math.isnan(value):
            return "NaN"
        if math.isinf(value):
            return "INF" if value > 0 else "-INF"
        return f"{value:.8g}"

    if x.dtype.kind in "iub":
        return strings_of([str(int(element)) for element in x.ravel().tolist()], x.shape)
    return strings_of([text(float(element)) for element in x.ravel()], x.shape)


_SPACE = r"[ \t\n\v\f\r]*"
_INTEGER = re.compile(rf"{_SPACE}([+-]?[0-9]+)")
_NUMBER = re.compile(
    rf"{_SPACE}(?P<sign>[+-]?)(?:(?P<special>infinity|inf|nan)"
    r"|(?P<hexadecimal>0x(?:[0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)(?:p[+-]?[0-9]+)?)"
    r"|(?P<decimal>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?))",
    re.IGNORECASE | re.ASCII,
)


def _parse(x: np.ndarray, dtype: DType) -> np.ndarray:
    """Texts as numbers, by the rules of the C functions that onnxruntime calls: what follows a number is not looked at.

    For integers, as for bool, that is also a point and what follows; integers beyond the type wrap round, as long as 64
    bits can hold them. ValueError for a text that does not begin with a number, or with one beyond 64 bits.
    """
    parse = _integer if dtype.is_integer or dtype is DType.BOOL else _number
    numbers = [parse(text, dtype) for text in x.ravel().tolist()]
    if parse is _number:
        return convert(np.array(numbers, np.float64).reshape(x.shape), dtype)
    return convert(np.array([number % 2**64 for number in numbers], np.uint64).reshape(x.shape), dtype)


def _integer(text: str, dtype: DType) -> int:
    """std::stoll; for unsigned types std::stoull, which takes negative numbers too."""
    number = int(found[1]) if (found := _INTEGER.match(text)) else None
    low, high = (-(2**63), 2**63) if dtype.name.startswith("INT") else (1 - 2**64, 2**64)
    if number is None or not low <= number < high:
        raise ValueError(f"{text!r} is no {dtype.text}")
    return number


def _number(text: str, dtype: DType) -> float:
    """std::stod, but for numbers too small for normal ones, which it refuses."""
    if text.isascii() and text[:1] > " " and "_" not in text:  # where Python reads a number, C reads the same
        try:
            if math.isfinite(number := float(text)):
                return number
        except ValueError:
            pass
    found = _NUMBER.match(text)
    if not found:
        raise ValueError(f"{text!r} is no {dtype.text}")
    sign, special, hexadecimal, decimal = found.group("sign", "special", "hexadecimal", "decimal")
    try:
        number = float.fromhex(sign + hexadecimal) if hexadecimal else float(sign + (special or decimal))
    except OverflowError:  # of `fromhex`; `float` gives infinity
        number = math.inf
    if math.isinf(number) and not special:
        raise ValueError(f"{text!r} is beyond the range of {dtype.text}")
    return number
