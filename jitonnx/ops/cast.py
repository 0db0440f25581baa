"""Changing element types: by value (Cast, CastLike) and by bits (BitCast)."""

from __future__ import annotations

import numpy as np

from jitonnx.ir import expr as e
from jitonnx.ir.dtypes import DType, of_numpy
from jitonnx.ir.graph import Value
from jitonnx.ir.lowering import Lowering
from jitonnx.ir.operator import DataDependentError, InferenceError, Operator
from jitonnx.ir.raw import RawNode
from jitonnx.ir.types import TensorType, is_symbolic
from jitonnx.ops.base import FLOATS, INTEGERS

_FLOAT8 = (DType.FLOAT8E4M3FN, DType.FLOAT8E4M3FNUZ, DType.FLOAT8E5M2, DType.FLOAT8E5M2FNUZ)
_PLAIN = FLOATS | INTEGERS | {DType.BOOL}
"""Types between which generated code converts; the others are converted on NumPy."""


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
                return to.map(_truncated(e.operand(0, x.dtype), dtype), x)
            return to.cast(x, dtype)
        (result,) = to.host(self, inputs, (TensorType(dtype, x.shape),))
        return result

    def _convert(self, x: np.ndarray, dtype: DType) -> np.ndarray:
        return convert(x, dtype, bool(self.saturate), self.round_mode)


class Cast(_Cast):
    """The input's elements converted to the type `to`."""

    versions = (1, 6, 9, 13, 19, 21, 23, 24, 25, 28)
    inputs = ("input",)
    outputs = ("output",)
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
        return _dtype(self.to)

    def infer(self, x: Value) -> TensorType:
        return self._infer(x, self.dtype)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return self._convert(x, self.dtype)

    def lower(self, to: Lowering, x: Value) -> Value:
        return self._lower(to, x, self.dtype, x)


class CastLike(_Cast):
    """The first input's elements converted to the second's type."""

    versions = (15, 19, 21, 23, 24, 25)
    inputs = ("input", "target_type")
    outputs = ("output",)
    symbolic = False

    def infer(self, x: Value, like: Value) -> TensorType:
        return self._infer(x, like.dtype)

    def evaluate(self, x: np.ndarray, like: np.ndarray) -> np.ndarray:
        return self._convert(x, of_numpy(like.dtype))

    def lower(self, to: Lowering, x: Value, like: Value) -> Value:
        return self._lower(to, x, like.dtype, x, like)


class BitCast(Operator):
    """The input's bits read as another type of the same width."""

    versions = (26,)
    inputs = ("input",)
    outputs = ("output",)

    to: int

    def infer(self, x: Value) -> TensorType:
        dtype = _dtype(self.to)
        if dtype is DType.STRING or x.dtype is DType.STRING or dtype.numpy.itemsize != x.dtype.numpy.itemsize:
            raise InferenceError(f"{x.dtype.text} and {dtype.text} have different widths")
        return TensorType(dtype, x.shape)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return x.view(_dtype(self.to).numpy)

    def lower(self, to: Lowering, x: Value) -> Value:
        (result,) = to.host(self, (x,), (self.infer(x),))
        return result


def _dtype(number: int) -> DType:
    try:
        return DType(number)
    except ValueError:
        raise InferenceError(f"attribute to is {number}, which is no element type known here") from None


# ---------------------------------------------------------------------------------------------- conversions


def convert(x: np.ndarray, dtype: DType, saturate: bool = True, round_mode: str = "up") -> np.ndarray:
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
        return _to_float8(x.astype(np.float32), dtype, saturate)
    if dtype is DType.FLOAT8E8M0:
        return _to_power_of_two(x.astype(np.float32), target, saturate, round_mode)
    if dtype is DType.FLOAT4E2M1:
        return np.clip(x.astype(np.float32), -6, 6).astype(target)
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


def _truncated(x: e.Expr, dtype: DType) -> e.Expr:
    """`_truncate` as an expression; a cast alone leaves numbers out of range open."""
    if dtype is DType.UINT64:
        upper = x >= 2.0**63
        return e.where(upper, e.cast(x, dtype), e.cast(_truncated(x, DType.INT64), dtype))
    if dtype is DType.UINT32:
        return e.cast(_truncated(x, DType.INT64), dtype)
    if dtype in (DType.INT64, DType.INT32):
        bits = 63 if dtype is DType.INT64 else 31
        inside = e.logical_and(x >= -(2.0**bits), x < 2.0**bits)  # false for NaN, too
        return e.where(inside, e.cast(x, dtype), -(2**bits))
    return e.cast(_truncated(x, DType.INT32), dtype)


def _low_bits(x: np.ndarray, dtype: DType) -> np.ndarray:
    """The lowest 4 or 2 bits as an integer of that width."""
    bits = 4 if dtype in (DType.INT4, DType.UINT4) else 2
    low = x.astype(np.int64) & ((1 << bits) - 1)
    if dtype in (DType.INT4, DType.INT2):
        low = (low ^ (1 << (bits - 1))) - (1 << (bits - 1))
    return low.astype(np.int8).astype(dtype.numpy)


def _to_float8(x: np.ndarray, dtype: DType, saturate: bool) -> np.ndarray:
    if saturate:
        import ml_dtypes

        largest = float(ml_dtypes.finfo(dtype.numpy).max)
        x = np.clip(x, -largest, largest)
    return x.astype(dtype.numpy)


def _to_power_of_two(x: np.ndarray, target: np.dtype, saturate: bool, round_mode: str) -> np.ndarray:
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
    """Numbers in text as onnxruntime writes them: floats with as many digits as their type can hold."""
    digits = 17 if x.dtype == np.float64 else 8

    def text(element: object) -> str:
        value = float(element)  # type: ignore[arg-type]
        if np.isnan(value):
            return "NaN"
        if np.isinf(value):
            return "INF" if value > 0 else "-INF"
        return f"{value:.{digits}g}"

    if x.dtype.kind in "iub":
        return np.array([str(int(element)) for element in x.ravel().tolist()], object).reshape(x.shape)
    return np.array([text(element) for element in x.ravel()], object).reshape(x.shape)


def _parse(x: np.ndarray, dtype: DType) -> np.ndarray:
    """Texts as numbers; "2.7" as an integer is truncated."""
    numbers = np.empty(x.shape, object)
    for position, text in np.ndenumerate(x):
        try:
            numbers[position] = int(text) if dtype.is_integer and _is_integer(text) else float(text)
        except ValueError:
            raise ValueError(f"{text!r} is no {dtype.text}") from None
    if dtype.is_integer and all(isinstance(number, int) for number in numbers.flat):
        return numbers.astype(dtype.numpy)
    return convert(numbers.astype(np.float64), dtype)


def _is_integer(text: str) -> bool:
    return text.strip().lstrip("+-").isdecimal()


OPERATORS = (BitCast, Cast, CastLike)
