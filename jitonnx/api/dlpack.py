"""Tensors to and from other libraries without a copy, by DLPack: what NumPy's own functions lack of it.

These are capsules as such, without the object that made them, and bfloat16, which DLPack has and NumPy does not: its
elements travel as 16-bit integers whose description in the capsule is another one.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from jitonnx.ir.dtypes import DType, of_numpy
from jitonnx.support.records import NamedTuple

_NAME = b"dltensor"
_CPU = 1
_UNSIGNED, _BFLOAT = 1, 4


class _Tensor(ctypes.Structure):
    """DLPack's DLTensor, with which its DLManagedTensor begins."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class Imported(NamedTuple):
    """Elements that another library made; those of bfloat16 are uint16."""

    elements: np.ndarray
    dtype: DType


def exported(elements: np.ndarray, dtype: DType, **options: Any) -> Any:
    """A capsule of these elements, which it keeps alive. BufferError for types that DLPack lacks.

    elements: of bfloat16 as uint16. options: what `__dlpack__` was given, as far as it was given.
    """
    if dtype is DType.BFLOAT16:
        capsule = elements.__dlpack__()
        _tensor(capsule).code = _BFLOAT
        return capsule
    if dtype is DType.STRING or elements.dtype != dtype.numpy:
        raise BufferError(f"DLPack has no tensors of {dtype.text}")
    return elements.__dlpack__(**options)


def imported(data: Any, is_bool: bool = False) -> Imported:
    """The elements of an object with `__dlpack__`, or of a capsule. is_bool: uint8 means bool.

    TypeError for what is neither; RuntimeError for tensors that are not the CPU's, or not contiguous.
    """
    capsule = data.__dlpack__() if hasattr(data, "__dlpack__") else data
    try:
        tensor = _tensor(capsule)
    except (TypeError, ValueError):
        raise TypeError(
            f"from_dlpack expected a valid DLPack capsule named 'dltensor', or an object that makes one; got {data!r}"
        ) from None
    if tensor.device_type != _CPU:
        raise RuntimeError(f"the tensor is on another device than the CPU (DLPack's type {tensor.device_type})")
    is_bfloat = tensor.code == _BFLOAT
    if is_bfloat:
        tensor.code = _UNSIGNED
    elements = np.from_dlpack(_Holder(capsule))
    if not elements.flags.c_contiguous:
        raise RuntimeError("jitonnx takes contiguous tensors by DLPack only: give a contiguous copy")
    if is_bfloat:
        return Imported(elements, DType.BFLOAT16)
    if is_bool and elements.dtype == np.uint8:
        elements = elements.view(np.bool_)
    return Imported(elements, of_numpy(elements.dtype))


def is_uint8(capsule: Any) -> bool:
    """Whether the tensor in a capsule is of uint8, as which old versions of DLPack give bool."""
    tensor = _tensor(capsule)
    return (tensor.code, tensor.bits) == (_UNSIGNED, 8)


def _tensor(capsule: Any) -> _Tensor:
    """What a capsule says about its tensor, to read and to change. TypeError or ValueError if it is none."""
    kind = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    get = kind(("PyCapsule_GetPointer", ctypes.pythonapi))  # one of our own: others set the types of the shared one
    return _Tensor.from_address(get(capsule, _NAME))


class _Holder:
    """A capsule as an object that NumPy takes."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CPU, 0
