"""Element types: ONNX's numbering, onnxruntime's names, NumPy's dtypes."""

from __future__ import annotations

import enum
import functools
from typing import Any

import numpy as np

from jitonnx.support import fork_safety


class DType(enum.IntEnum):
    """Element type of a tensor, numbered as ONNX's TensorProto.DataType."""

    FLOAT = 1
    UINT8 = 2
    INT8 = 3
    UINT16 = 4
    INT16 = 5
    INT32 = 6
    INT64 = 7
    STRING = 8
    BOOL = 9
    FLOAT16 = 10
    DOUBLE = 11
    UINT32 = 12
    UINT64 = 13
    COMPLEX64 = 14
    COMPLEX128 = 15
    BFLOAT16 = 16
    FLOAT8E4M3FN = 17
    FLOAT8E4M3FNUZ = 18
    FLOAT8E5M2 = 19
    FLOAT8E5M2FNUZ = 20
    UINT4 = 21
    INT4 = 22
    FLOAT4E2M1 = 23
    FLOAT8E8M0 = 24
    UINT2 = 25
    INT2 = 26
    FLOAT6E2M3 = 27
    FLOAT6E3M2 = 28

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype (from ml_dtypes for what NumPy lacks; ImportError says what to install)."""
        return _numpy_dtype(self)

    @property
    def itemsize(self) -> int:
        """Bytes of one element in memory (unpacked: a 4-bit number takes one)."""
        if self in _ML_DTYPES:  # known without that package
            return 2 if self is DType.BFLOAT16 else 1
        return _numpy_dtype(self).itemsize

    @property
    def is_float(self) -> bool:
        return self in _FLOATS

    @property
    def is_integer(self) -> bool:
        return self in _INTEGERS

    @property
    def text(self) -> str:
        """onnxruntime's name inside `tensor(...)`: float, double, int64 …"""
        return self.name.lower()


_FLOATS = frozenset(
    (
        DType.FLOAT,
        DType.FLOAT16,
        DType.DOUBLE,
        DType.BFLOAT16,
        DType.FLOAT8E4M3FN,
        DType.FLOAT8E4M3FNUZ,
        DType.FLOAT8E5M2,
        DType.FLOAT8E5M2FNUZ,
        DType.FLOAT4E2M1,
        DType.FLOAT6E2M3,
        DType.FLOAT6E3M2,
        DType.FLOAT8E8M0,
    )
)
_INTEGERS = frozenset(dtype for dtype in DType if dtype.name.startswith(("INT", "UINT")))
HALVES = (DType.FLOAT16, DType.BFLOAT16)
"""The element types that are stored in 16 bits and computed in float32."""
COMPILED = frozenset((DType.FLOAT, DType.DOUBLE, DType.BOOL, *HALVES)) | frozenset(
    DType[f"{sign}INT{bits}"] for sign in ("", "U") for bits in (8, 16, 32, 64)
)
"""Element types that generated code computes with; operators on others are evaluated on NumPy."""

_NUMPY_NAMES = {DType.FLOAT: "float32", DType.DOUBLE: "float64", DType.STRING: "object", DType.BOOL: "bool"}
_ML_DTYPES = {
    DType.BFLOAT16: "bfloat16",
    DType.FLOAT8E4M3FN: "float8_e4m3fn",
    DType.FLOAT8E4M3FNUZ: "float8_e4m3fnuz",
    DType.FLOAT8E5M2: "float8_e5m2",
    DType.FLOAT8E5M2FNUZ: "float8_e5m2fnuz",
    DType.UINT4: "uint4",
    DType.INT4: "int4",
    DType.FLOAT4E2M1: "float4_e2m1fn",
    DType.FLOAT8E8M0: "float8_e8m0fnu",
    DType.UINT2: "uint2",
    DType.INT2: "int2",
    DType.FLOAT6E2M3: "float6_e2m3fn",
    DType.FLOAT6E3M2: "float6_e3m2fn",
}


@functools.cache
def _numpy_dtype(dtype: DType) -> np.dtype[Any]:
    if dtype not in _ML_DTYPES:
        return np.dtype(_NUMPY_NAMES.get(dtype, dtype.name.lower()))
    try:
        with fork_safety.critical:
            import ml_dtypes
    except ImportError as error:
        raise ImportError(f"tensors of {dtype.text} need the package ml_dtypes: pip install ml_dtypes") from error
    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _ML_DTYPES[dtype]))
    return found


@functools.cache
def of_numpy(dtype: np.dtype[Any]) -> DType:
    """The element type of NumPy arrays of `dtype`. TypeError for one that ONNX does not have."""
    if dtype.kind in "OUST":
        return DType.STRING
    for candidate in DType:
        if candidate not in _ML_DTYPES and candidate is not DType.STRING and candidate.numpy == dtype:
            return candidate
    for candidate, name in _ML_DTYPES.items():
        if dtype.name == name:
            return candidate
    raise TypeError(f"NumPy dtype {dtype} has no ONNX element type")
