"""`OrtValue`: a tensor that stays where it is from one run to the next, under onnxruntime's names."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jitonnx import errors
from jitonnx.api.devices import OrtDevice, OrtMemoryInfo, cpu_alone
from jitonnx.errors import InvalidArgument
from jitonnx.ir.dtypes import DType, of_numpy
from jitonnx.ir.strings import may_hold_text, string_array
from jitonnx.support import fork_safety

if TYPE_CHECKING:
    from jitonnx.api.sparse import SparseTensor

_STORED_AS: Mapping[DType, np.dtype[Any]] = {
    DType.BFLOAT16: np.dtype(np.uint16),
    DType.FLOAT8E4M3FN: np.dtype(np.uint8),
    DType.FLOAT8E4M3FNUZ: np.dtype(np.uint8),
    DType.FLOAT8E5M2: np.dtype(np.uint8),
    DType.FLOAT8E5M2FNUZ: np.dtype(np.uint8),
    DType.FLOAT8E8M0: np.dtype(np.uint8),
    DType.INT4: np.dtype(np.uint8),
    DType.UINT4: np.dtype(np.uint8),
    DType.FLOAT4E2M1: np.dtype(np.uint8),
    DType.INT2: np.dtype(np.uint8),
    DType.UINT2: np.dtype(np.uint8),
    DType.FLOAT6E2M3: np.dtype(np.uint8),
    DType.FLOAT6E3M2: np.dtype(np.uint8),
}
"""Types that NumPy lacks, and how their elements lie in an array: each in one of its own."""
_OF_TEXT = {f"tensor({dtype.text})": dtype for dtype in DType}
_PACKED_BITS = {
    **dict.fromkeys((DType.INT4, DType.UINT4, DType.FLOAT4E2M1), 4),
    **dict.fromkeys((DType.INT2, DType.UINT2), 2),
    **dict.fromkeys((DType.FLOAT6E2M3, DType.FLOAT6E3M2), 6),
}
"""Types of which onnxruntime holds several elements in a byte, and how many bits an element has there."""


class OrtValue:
    """A tensor, sparse or not, for which memory is there.

    Made by the class methods, of which those that start from an array use its memory. OrtValue(ortvalue) shares the
    other's; numpy_obj and session are accepted, without effect. device_type, device_id, vendor_id, memory_info: of
    the CPU, where the memory is. onnxruntime has an outer and an inner class of this name; here they are one.
    """

    _content: np.ndarray | SparseTensor | None
    """The elements of a tensor: C-contiguous, aligned, in native byte order, in the types of `_STORED_AS` for those
    that NumPy lacks, strings by reference. None for an output that was bound and has not been computed yet."""
    _dtype: DType

    def __init__(self, ortvalue: OrtValue, numpy_obj: Any = None, session: Any = None) -> None:
        if not isinstance(ortvalue, OrtValue):
            raise ValueError(
                "`Provided ortvalue` needs to be of type `onnxruntime.capi.onnxruntime_pybind11_state.OrtValue`; an "
                "array becomes one by OrtValue.ortvalue_from_numpy"
            )
        self._content, self._dtype = ortvalue._content, ortvalue._dtype

    @classmethod
    def of(cls, content: np.ndarray | SparseTensor | None, dtype: DType) -> OrtValue:
        """A value of this content, as `_content` says, of elements of dtype. (Not in onnxruntime.)"""
        made = cls.__new__(cls)
        made._content, made._dtype = content, dtype
        return made

    @classmethod
    def of_output(cls, array: Any, data_type: str) -> OrtValue:
        """An output of a run, of data_type in onnxruntime's words; None: not computed yet. (Not in onnxruntime.)

        NotImplemented for sequences, maps and optionals.
        """
        if data_type.startswith("sparse_tensor"):
            return cls.of(array, _OF_TEXT[data_type.removeprefix("sparse_")])
        if data_type not in _OF_TEXT:
            raise errors.NotImplemented(f"an OrtValue holds no {data_type}: have `run` give that output")
        dtype = _OF_TEXT[data_type]
        return cls.of(array if array is None or dtype not in _STORED_AS else array.view(_STORED_AS[dtype]), dtype)

    # ------------------------------------------------------------ making

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: Any, /, device_type: str | OrtDevice = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """A value that uses the memory of numpy_obj, an array: writes to one are seen in the other.

        Elements are copied where the array is not C-contiguous, not aligned or not in native byte order, and where it
        holds strings otherwise than as objects. Lists and numbers become arrays as NumPy makes them. RuntimeError for
        types that ONNX lacks, and devices other than the CPU.
        """
        cpu_alone(device_type, device_id, vendor_id)
        elements = np.asarray(numpy_obj)
        if may_hold_text(elements.dtype):
            return cls.of(_strings(elements), DType.STRING)
        dtype = _of_numpy(elements.dtype)
        elements = np.require(elements, elements.dtype.newbyteorder("="), ["C", "A"]).reshape(elements.shape)
        return cls.of(elements.view(_stored_as(dtype)), dtype)

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: np.ndarray, /, onnx_element_type: int) -> OrtValue:
        """A value that uses the memory of data, an array, whose bytes are elements of another type of the same size.

        onnx_element_type: as in onnx.TensorProto; BFLOAT16 (16) of uint16 for instance.
        """
        dtype = element_type(onnx_element_type)
        if dtype in _PACKED_BITS or dtype is DType.STRING:
            raise errors.NotImplemented(
                f"the bytes of an array are not seen as elements of {dtype.text}, which "
                + ("are texts" if dtype is DType.STRING else "onnxruntime holds several of in a byte")
                + ": give an array of that type to ortvalue_from_numpy"
            )
        stored = _stored_as(dtype)
        if data.dtype.itemsize != stored.itemsize or data.dtype.hasobject:
            raise InvalidArgument(
                f"Items size in the incoming array: {data.dtype.itemsize} specified by onnxtype: {stored.itemsize} "
                f"({dtype.text}; the array holds {data.dtype})"
            )
        return cls.of(np.require(data, None, ["C", "A"]).reshape(data.shape).view(stored), dtype)

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[int],
        element_type: Any,
        device_type: str | OrtDevice = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
        memory_info: OrtMemoryInfo | None = None,
    ) -> OrtValue:
        """A value of this shape, whose elements are not set (strings are "").

        element_type: a NumPy type, or a number as in onnx.TensorProto. memory_info: where it is to lie, instead of the
        device.
        """
        if memory_info is not None:
            return cls.ortvalue_from_shape_and_type_for_memory_info(shape, element_type, memory_info)
        cpu_alone(device_type, device_id, vendor_id)
        return cls.of(*_empty(shape, element_type))

    @classmethod
    def ortvalue_from_shape_and_type_for_memory_info(
        cls, shape: Sequence[int], element_type: Any, memory_info: OrtMemoryInfo
    ) -> OrtValue:
        """`ortvalue_from_shape_and_type` of shape and element_type; memory_info: where it is to lie.

        RuntimeError for memory that is not the CPU's.
        """
        memory_info.check_cpu()
        return cls.of(*_empty(shape, element_type))

    @classmethod
    def ort_value_from_sparse_tensor(cls, sparse_tensor: SparseTensor) -> OrtValue:
        """A value that holds a sparse tensor."""
        return cls.of(sparse_tensor, sparse_tensor.dtype)

    @classmethod
    def from_dlpack(cls, data: Any, /, is_bool: bool = False) -> OrtValue:
        """A value that uses the memory of data, another library's tensor, or a DLPack capsule.

        is_bool: a uint8 tensor holds bool. TypeError for what is no tensor; RuntimeError for tensors that are not the
        CPU's, or not contiguous.
        """
        if isinstance(data, OrtValue):
            return cls(data)
        if isinstance(data, np.ndarray) and data.flags.c_contiguous:
            return cls.ortvalue_from_numpy(data)
        with fork_safety.critical:
            from jitonnx.api.dlpack import imported

        return cls.of(*imported(data, is_bool or str(getattr(data, "dtype", "")) in ("bool", "torch.bool")))

    # ------------------------------------------------------------ what it holds

    def has_value(self) -> bool:
        """Whether there is anything; False for outputs that were bound and have not been computed yet."""
        return self._content is not None

    def is_tensor(self) -> bool:
        """Whether it holds a tensor that is not sparse."""
        return isinstance(self._content, np.ndarray)

    def is_sparse_tensor(self) -> bool:
        """Whether it holds a sparse tensor."""
        return self.has_value() and not self.is_tensor()

    def is_tensor_sequence(self) -> bool:
        """False: sequences are not supported yet."""
        return False

    def shape(self) -> list[int]:
        """The sizes of the tensor."""
        return list(self._content.shape) if isinstance(self._content, np.ndarray) else self._sparse().dense_shape()

    def data_type(self) -> str:
        """Name the type in onnxruntime's words: "tensor(float)"."""
        return f"tensor({self._dtype.text})" if not self.is_sparse_tensor() else self._sparse().data_type()

    def element_type(self) -> int:
        """The type of the elements, as in onnx.TensorProto."""
        return int(self._dtype)

    def element_size_in_bytes(self) -> int:
        """Bytes of an element in memory."""
        return self._elements().dtype.itemsize

    def tensor_size_in_bytes(self) -> int:
        """Bytes of the elements in memory; of those that onnxruntime packs in bytes, what they take there."""
        elements = self._elements()
        bits = _PACKED_BITS.get(self._dtype, 8 * elements.dtype.itemsize)
        return (elements.size * bits + 7) // 8

    def data_ptr(self) -> int:
        """The address of the first element. RuntimeError for strings, NotImplemented for types of a few
        bits."""
        elements = self._elements()
        if self._dtype is DType.STRING:
            raise RuntimeError("strings are Python's objects: there is no memory that holds them all")
        if self._dtype in _PACKED_BITS:
            raise errors.NotImplemented(
                f"elements of {self._dtype.text} are held in a byte each, and not packed as who asks for their address "
                "expects them: use numpy()"
            )
        return int(elements.ctypes.data)

    def device_name(self) -> str:
        """ "cpu"."""
        return "cpu"

    def as_sparse_tensor(self) -> SparseTensor:
        """The sparse tensor. RuntimeError if it holds none."""
        return self._sparse()

    # ------------------------------------------------------------ its elements

    def numpy(self) -> np.ndarray:
        """The elements as an array that shares their memory; of a type of ml_dtypes, where NumPy lacks it."""
        elements = self._elements()
        return elements.view(self._dtype.numpy if self._dtype in _STORED_AS else elements.dtype)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self.numpy()
        if copy is not None:
            return np.array(array, dtype=dtype, copy=copy)
        return array if dtype is None else np.asarray(array, dtype=dtype)

    def update_inplace(self, data: Any) -> None:
        """Copy the elements of an array or of another value here.

        data: as many elements, of the same type, or of the unsigned integers that stand for a type that NumPy lacks.
        TypeError for other things; InvalidArgument for other types and numbers of elements.
        """
        target = self._elements()
        if isinstance(data, OrtValue):
            source, dtype = data._elements(), data._dtype
        elif isinstance(data, np.ndarray):
            given = OrtValue.ortvalue_from_numpy(data)
            source, dtype = given._elements(), given._dtype
            if data.dtype == target.dtype:
                dtype = self._dtype
        else:
            raise TypeError("data must be a numpy.ndarray or an OrtValue.")
        if dtype is not self._dtype:
            raise InvalidArgument(
                f"The source and destination OrtValues must have the same data type: {self.data_type()} cannot be "
                f"updated with tensor({dtype.text})"
            )
        if source.size != target.size:
            raise InvalidArgument(
                f"The input size of numpy arrays does not match the size of the OrtValue: {source.size} elements for "
                f"a shape of {self.shape()}"
            )
        target[...] = source.reshape(target.shape)

    def __dlpack__(self, **options: Any) -> Any:
        with fork_safety.critical:
            from jitonnx.api.dlpack import exported

        given = {name: value for name, value in options.items() if value is not None and name != "stream"}
        return exported(self._elements(), self._dtype, **given)

    def to_dlpack(self) -> Any:
        """A DLPack capsule, which shares the memory. (onnxruntime's inner class has it.)"""
        return self.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __repr__(self) -> str:
        return f"<OrtValue {self.data_type()} {self.shape() if self.has_value() else 'without a value'}>"

    def _elements(self) -> np.ndarray:
        if isinstance(self._content, np.ndarray):
            return self._content
        what = "holds a sparse tensor" if self.has_value() else "has no value yet: the run that computes it comes first"
        raise RuntimeError(f"Only OrtValues that are Tensors are currently supported; this one {what}")

    def _sparse(self) -> SparseTensor:
        if self._content is None or isinstance(self._content, np.ndarray):
            raise RuntimeError(
                "This OrtValue does not contain SparseTensor. Check data_type() value. (It is "
                f"{self.data_type() if self.has_value() else 'without a value'}.)"
            )
        return self._content

    # onnxruntime's inner class is this one, too.

    @property
    def _ortvalue(self) -> OrtValue:
        return self

    def _get_c_value(self) -> OrtValue:
        return self

    ortvalue_from_shape_and_onnx_type = ortvalue_from_shape_and_type
    ortvalue_from_shape_and_onnx_type_for_memory_info = ortvalue_from_shape_and_type_for_memory_info


class OrtValueVector(list[OrtValue]):
    """A list of values, with the methods of onnxruntime's vectors."""

    def push_back(self, value: OrtValue) -> None:
        """Append a value."""
        self.append(value)

    def push_back_batch(
        self,
        tensors: Sequence[Any],
        pointers: Sequence[int],
        element_types: Sequence[Any],
        shapes: Sequence[Sequence[int]],
        devices: Sequence[OrtDevice],
    ) -> None:
        """Append values that use the memory at these addresses, and keep the tensors alive that it belongs to."""
        for tensor, pointer, kind, shape, device in zip(tensors, pointers, element_types, shapes, devices, strict=True):
            cpu_alone(device)
            self.append(OrtValue.of(*elements_at(pointer, kind, shape, tensor)))

    def reserve(self, count: int) -> None:
        """Accepted, without effect."""

    def shrink_to_fit(self) -> None:
        """Accepted, without effect."""

    def element_type_at(self, index: int) -> int:
        """The type of a value's elements, as in onnx.TensorProto."""
        return self[index].element_type()

    def bool_tensor_indices(self) -> list[int]:
        """Which of the values are tensors of bool."""
        return [index for index, value in enumerate(self) if value.element_type() == DType.BOOL]

    def dlpack_at(self, index: int) -> Any:
        """A DLPack capsule of a value."""
        return self[index].to_dlpack()

    def to_dlpacks(self, to_tensor: Callable[[Any], Any] | None) -> list[Any]:
        """What `to_tensor` makes of a DLPack capsule of each value; the capsules if it is None."""
        capsules: Iterable[Any] = (value.to_dlpack() for value in self)
        return list(capsules if to_tensor is None else map(to_tensor, capsules))


def copy_tensors(src: Sequence[OrtValue], dst: Sequence[OrtValue], stream: Any = None) -> None:
    """Copy the elements of values to others of the same types and sizes."""
    if len(src) != len(dst):
        raise InvalidArgument(f"{len(src)} values are to be copied to {len(dst)}")
    for source, target in zip(src, dst, strict=True):
        target.update_inplace(source)


def element_type(kind: Any) -> DType:
    """The type of elements that is meant: a NumPy type, or a number as in onnx.TensorProto. RuntimeError for others."""
    if hasattr(kind, "__index__") and not isinstance(kind, type):
        try:
            return DType(operator.index(kind))
        except ValueError:
            raise RuntimeError(f"tensor type {kind} is not supported: it is no number of ONNX's types") from None
    return _of_numpy(np.dtype(kind))


def elements_at(pointer: int, kind: Any, shape: Sequence[int], owner: Any = None) -> tuple[np.ndarray, DType]:
    """An array over memory that somebody else owns, and the type of its elements.

    pointer: its address. kind: as for `element_type`. owner: kept alive with the array. NotImplemented for elements
    that have no fixed place in memory.
    """
    dtype, sizes = element_type(kind), _sizes(shape)
    if dtype is DType.STRING or dtype in _PACKED_BITS:
        raise errors.NotImplemented(
            f"Only binding non-string Tensors is currently supported where memory is given by its address, and "
            f"tensors of {dtype.text} are not held there in a byte or more each: bind an array or an OrtValue"
        )
    stored = _stored_as(dtype)
    count = math.prod(sizes) * stored.itemsize
    if not count:
        return np.empty(sizes, stored), dtype
    if not hasattr(pointer, "__index__"):
        raise TypeError(f"the address of memory is an int, not {pointer!r}")
    if not operator.index(pointer):
        raise InvalidArgument(f"the address 0 is given for the memory of a tensor of shape {list(sizes)}")
    memory = _Memory(operator.index(pointer), count, owner)
    return np.asarray(memory).view(stored).reshape(sizes), dtype


class _Memory:
    """Bytes that somebody else owns, for NumPy to make an array of, which keeps this object."""

    def __init__(self, pointer: int, count: int, owner: Any) -> None:
        self._owner = owner
        self.__array_interface__ = {"version": 3, "data": (pointer, False), "typestr": "|u1", "shape": (count,)}


def _empty(shape: Sequence[int], kind: Any) -> tuple[np.ndarray, DType]:
    dtype, sizes = element_type(kind), _sizes(shape)
    if dtype is DType.STRING:
        return np.full(sizes, "", object), dtype
    return np.empty(sizes, _stored_as(dtype)), dtype


def _sizes(shape: Sequence[int]) -> tuple[int, ...]:
    sizes = tuple(map(operator.index, shape))
    if any(size < 0 for size in sizes):
        raise InvalidArgument(f"Tensor shape.Size() must be >= 0: the shape {list(sizes)} has a negative size")
    return sizes


def _stored_as(dtype: DType) -> np.dtype[Any]:
    if dtype in _STORED_AS:
        return _STORED_AS[dtype]
    return dtype.numpy


def _of_numpy(dtype: np.dtype[Any]) -> DType:
    try:
        return of_numpy(dtype.newbyteorder("="))
    except TypeError as error:
        raise RuntimeError(f"Numpy_type {dtype.num} can't be converted to MLDataType. ({error}.)") from error


def _strings(elements: np.ndarray) -> np.ndarray:
    """An object array of str: the array itself if it is one already. InvalidArgument for other objects."""
    if elements.dtype == object and elements.flags.c_contiguous and all(type(text) is str for text in elements.flat):
        return elements
    try:
        return string_array(elements, "the array")
    except ValueError as error:
        raise InvalidArgument(str(error)) from error
