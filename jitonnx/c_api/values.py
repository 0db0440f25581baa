"""OrtValue and what tells of it: tensors, their types and shapes, and memory."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod

import numpy as np

from jitonnx.c_api.errors import NOT_IMPLEMENTED, Refused
from jitonnx.c_api.handles import find, new, read_array, release, store, write_array, write_bytes
from jitonnx.c_api.table import POINTER, SIZE, TEXT, function, getter
from jitonnx.ir.dtypes import DType, of_numpy
from jitonnx.ir.strings import strings_of
from jitonnx.support.records import dataclass

TENSOR = 1
"""ONNXType of the only kind of value that custom operators take and give."""

_ORDER = {DType.UINT2: 24, DType.INT2: 25, DType.FLOAT8E8M0: 26}
"""Types that ONNXTensorElementDataType numbers otherwise than ONNX."""
_NUMBERED = {_ORDER.get(dtype, int(dtype)): dtype for dtype in DType if dtype < DType.FLOAT6E2M3}
_PACKED = frozenset((DType.UINT4, DType.INT4, DType.FLOAT4E2M1, DType.UINT2, DType.INT2))
"""Libraries have several elements of these in a byte; arrays here have one."""


def element_type(number: int) -> DType | None:
    """The element type of an ONNXTensorElementDataType; None for UNDEFINED. Refused for others than tensors of whole
    bytes and strings."""
    if number == 0:
        return None
    dtype = _NUMBERED.get(number)
    if dtype is None or dtype in _PACKED:
        text = f"element type {number}" if dtype is None else f"tensors of {dtype.text}"
        raise Refused(f"{text} cannot be given to operators of libraries", NOT_IMPLEMENTED)
    return dtype


def number_of(dtype: DType | None) -> int:
    """The ONNXTensorElementDataType of an element type."""
    return 0 if dtype is None else _ORDER.get(dtype, int(dtype))


@dataclass
class TensorTypeAndShapeInfo:
    """dtype: None is UNDEFINED. shape: -1 is a size that is not known; None: not even the rank is.

    symbols: names of sizes, "" for those that have none.
    """

    dtype: DType | None = None
    shape: tuple[int, ...] | None = None
    symbols: tuple[bytes, ...] = ()


class TypeInfo:
    """A tensor's type, and the pointer of what tells of it, which lives as long."""

    def __init__(self, tensor: TensorTypeAndShapeInfo) -> None:
        self.tensor = new(tensor)


class Value:
    """A tensor. array: C-contiguous; of strings an array of str."""

    def __init__(self, array: np.ndarray, dtype: DType | None = None) -> None:
        self.dtype = of_numpy(array.dtype) if dtype is None else dtype
        if self.dtype in _PACKED:
            raise Refused(f"tensors of {self.dtype.text} cannot be given to operators of libraries", NOT_IMPLEMENTED)
        self.array = np.ascontiguousarray(array).reshape(array.shape)  # of rank 0 it would make one of rank 1
        self._encoded: list[bytes] | None = None
        self._buffers: dict[int, ctypes.Array[ctypes.c_char]] = {}
        self._shape: ctypes.Array[ctypes.c_int64] | None = None

    @property
    def address(self) -> int:
        """The address of the elements. Refused for strings."""
        if self.dtype is DType.STRING:
            raise Refused("the elements of a tensor of strings have no address", NOT_IMPLEMENTED)
        address: int = self.array.__array_interface__["data"][0]
        return address

    @property
    def texts(self) -> list[bytes]:
        """The strings, in UTF-8. Refused for numbers."""
        if self.dtype is not DType.STRING:
            raise Refused(f"the tensor is one of {self.dtype.text}, not of strings")
        if self._encoded is None:
            self._encoded = [text.encode("utf-8", "surrogateescape") for text in self.array.ravel().tolist()]
        return self._encoded

    def fill(self, texts: Sequence[bytes], first: int = 0) -> None:
        """Put strings into the tensor from element `first` on. Refused for more than there are elements."""
        if self.dtype is not DType.STRING:
            raise Refused(f"the tensor is one of {self.dtype.text}, not of strings")
        if first + len(texts) > self.array.size:
            raise Refused(f"{first + len(texts)} strings do not fit into a tensor of {self.array.size}")
        self.array.reshape(-1)[first : first + len(texts)] = strings_of(
            [text.decode("utf-8", "surrogateescape") for text in texts], (len(texts),)
        )
        self._encoded = None

    def buffer(self, element: int, length: int) -> int:
        """The address of memory for a string of `length` bytes, which becomes the element by `finished`."""
        if self.dtype is not DType.STRING or element >= self.array.size:
            raise Refused(f"the tensor has no string {element}")
        self._buffers[element] = ctypes.create_string_buffer(length)
        return ctypes.addressof(self._buffers[element])

    def finished(self) -> np.ndarray:
        """The array, with what was written to the memory of `buffer`."""
        for element, memory in self._buffers.items():
            self.fill([memory.raw], element)
        return self.array

    @property
    def info(self) -> TensorTypeAndShapeInfo:
        return TensorTypeAndShapeInfo(self.dtype, self.array.shape)

    def shape_address(self) -> int:
        """The address of the sizes, int64."""
        if self._shape is None:
            self._shape = (ctypes.c_int64 * self.array.ndim)(*self.array.shape)
        return ctypes.addressof(self._shape)


@dataclass
class MemoryInfo:
    """Memory of the CPU. kind: OrtAllocatorType; memory: OrtMemType."""

    name: bytes = b"Cpu"
    kind: int = 0
    id: int = 0
    memory: int = 0


CPU = new(MemoryInfo())
"""The pointer of the memory that all tensors lie in."""
_CPU_NAME = ctypes.create_string_buffer(b"Cpu")
_NO_TEXT = ctypes.create_string_buffer(b"")


def empty(dtype: DType | None, shape: Sequence[int]) -> np.ndarray:
    """A new array; strings are empty. Refused for sizes below 0, and for no element type."""
    if dtype is None or min(shape, default=0) < 0:
        raise Refused(f"a tensor of type {dtype and dtype.text} and sizes {list(shape)} is asked for")
    return np.full(shape, "", object) if dtype is DType.STRING else np.empty(shape, dtype.numpy)


# ---------------------------------------------------------------------------------------------- tensors


@function("CreateTensorAsOrtValue", POINTER, POINTER, SIZE, ctypes.c_int, POINTER)
def _create(allocator: int, shape: int, rank: int, kind: int, out: int) -> None:
    made = Value(empty(element_type(kind), read_array(shape, ctypes.c_int64, rank)))
    store(out, POINTER, new(made))


@function("CreateTensorWithDataAsOrtValue", POINTER, POINTER, SIZE, POINTER, SIZE, ctypes.c_int, POINTER)
def _create_with_data(info: int, data: int, count: int, shape: int, rank: int, kind: int, out: int) -> None:
    dtype, sizes = element_type(kind), read_array(shape, ctypes.c_int64, rank)
    if dtype is None or dtype is DType.STRING:
        raise Refused("a tensor in memory of the caller's is one of numbers")
    needed = prod(sizes) * dtype.itemsize
    if min(sizes, default=0) < 0 or needed > count or (needed and not data):
        raise Refused(f"{count} bytes at {data or 0:#x} are no tensor of {dtype.text} of sizes {sizes}")
    memory = (ctypes.c_uint8 * needed).from_address(data) if needed else b""
    store(out, POINTER, new(Value(np.frombuffer(memory, dtype.numpy).reshape(sizes))))


getter("IsTensor", Value, ctypes.c_int, lambda value: 1)
getter("IsSparseTensor", Value, ctypes.c_int, lambda value: 0)
getter("HasValue", Value, ctypes.c_int, lambda value: 1)
getter("GetTensorMutableData", Value, POINTER, lambda value: value.address)
getter("GetTensorData", Value, POINTER, lambda value: value.address)


@function("TensorAt", POINTER, POINTER, SIZE, POINTER)
def _element(value: int, place: int, rank: int, out: int) -> None:
    tensor = find(value, Value)
    at = read_array(place, ctypes.c_int64, rank)
    sizes: tuple[int, ...] = tensor.array.shape
    if rank != len(sizes) or not all(0 <= one < size for one, size in zip(at, sizes, strict=True)):
        raise Refused(f"there is no element {at} in a tensor of sizes {list(sizes)}")
    offset = sum(one * stride for one, stride in zip(at, tensor.array.strides, strict=True))
    store(out, POINTER, tensor.address + offset)


@function("GetTensorSizeInBytes", POINTER, POINTER)
def _bytes(value: int, out: int) -> None:
    tensor = find(value, Value)
    if tensor.dtype is DType.STRING:
        raise Refused("a tensor of strings has no size in bytes")
    store(out, SIZE, tensor.array.nbytes)


getter("GetTensorMemoryInfo", Value, POINTER, lambda value: CPU)
getter("GetValueType", Value, ctypes.c_int, lambda value: TENSOR)
getter("GetTypeInfo", Value, POINTER, lambda value: new(TypeInfo(value.info)))
getter("GetTensorTypeAndShape", Value, POINTER, lambda value: new(value.info))


@function("GetTensorElementTypeAndShapeDataReference", POINTER, POINTER, POINTER, POINTER)
def _shape_reference(value: int, kind: int, shape: int, rank: int) -> None:
    tensor = find(value, Value)
    store(kind, ctypes.c_int, number_of(tensor.dtype))
    store(shape, POINTER, tensor.shape_address() if tensor.array.ndim else None)
    store(rank, SIZE, tensor.array.ndim)


# ---------------------------------------------------------------------------------------------- strings


@function("FillStringTensor", POINTER, POINTER, SIZE)
def _fill(value: int, texts: int, count: int) -> None:
    tensor = find(value, Value)
    if count != tensor.array.size:
        raise Refused(f"{count} strings are given for a tensor of {tensor.array.size}")
    found = read_array(texts, TEXT, count)
    if None in found:
        raise Refused("a null pointer was given for a string")
    tensor.fill(found)


@function("FillStringTensorElement", POINTER, TEXT, SIZE)
def _fill_one(value: int, text: bytes | None, element: int) -> None:
    if text is None:
        raise Refused("a null pointer was given for a string")
    find(value, Value).fill([text], element)


getter("GetResizedStringTensorElementBuffer", Value, POINTER, Value.buffer, SIZE, SIZE)
getter("GetStringTensorDataLength", Value, SIZE, lambda value: sum(map(len, value.texts)))


@function("GetStringTensorContent", POINTER, POINTER, SIZE, POINTER, SIZE)
def _strings(value: int, out: int, room: int, offsets: int, count: int) -> None:
    texts = find(value, Value).texts
    joined = b"".join(texts)
    if len(joined) > room or count != len(texts):
        raise Refused(f"{room} bytes and {count} offsets are given for {len(joined)} bytes in {len(texts)} strings")
    write_bytes(out, joined)
    ends = np.cumsum([0, *map(len, texts)])
    write_array(offsets, SIZE, ends[:-1].tolist())


def _string(value: Value, element: int) -> bytes:
    texts = value.texts
    if element >= len(texts):
        raise Refused(f"there is no string {element} in a tensor of {len(texts)}")
    return texts[element]


getter("GetStringTensorElementLength", Value, SIZE, lambda value, element: len(_string(value, element)), SIZE)


@function("GetStringTensorElement", POINTER, SIZE, SIZE, POINTER)
def _string_of(value: int, room: int, element: int, out: int) -> None:
    text = _string(find(value, Value), element)
    if room < len(text):
        raise Refused(f"{room} bytes are too few for a string of {len(text)}")
    write_bytes(out, text)


# ---------------------------------------------------------------------------------------------- types and shapes


getter("CastTypeInfoToTensorInfo", TypeInfo, POINTER, lambda info: info.tensor)
getter("GetOnnxTypeFromTypeInfo", TypeInfo, ctypes.c_int, lambda info: TENSOR)


@function("GetDenotationFromTypeInfo", POINTER, POINTER, POINTER)
def _denotation(info: int, out: int, length: int) -> None:
    find(info, TypeInfo)
    store(out, POINTER, ctypes.cast(_NO_TEXT, POINTER).value)
    store(length, SIZE, 0)


@function("CreateTensorTypeAndShapeInfo", POINTER)
def _create_info(out: int) -> None:
    store(out, POINTER, new(TensorTypeAndShapeInfo(shape=())))


@function("SetTensorElementType", POINTER, ctypes.c_int)
def _set_type(info: int, kind: int) -> None:
    find(info, TensorTypeAndShapeInfo).dtype = element_type(kind)


@function("SetDimensions", POINTER, POINTER, SIZE)
def _set_shape(info: int, sizes: int, rank: int) -> None:
    find(info, TensorTypeAndShapeInfo).shape = tuple(read_array(sizes, ctypes.c_int64, rank))


@function("SetSymbolicDimensions", POINTER, POINTER, SIZE)
def _set_symbols(info: int, names: int, rank: int) -> None:
    found = find(info, TensorTypeAndShapeInfo)
    found.symbols = tuple(name or b"" for name in read_array(names, TEXT, rank))
    found.shape = found.shape if found.shape is not None and len(found.shape) == rank else (-1,) * rank


getter("GetTensorElementType", TensorTypeAndShapeInfo, ctypes.c_int, lambda info: number_of(info.dtype))


@function("TensorTypeAndShape_HasShape", POINTER, gives=ctypes.c_bool)
def _has_shape(info: int) -> bool:
    return find(info, TensorTypeAndShapeInfo).shape is not None


getter("GetDimensionsCount", TensorTypeAndShapeInfo, SIZE, lambda info: len(info.shape or ()))


@function("GetDimensions", POINTER, POINTER, SIZE)
def _shape(info: int, out: int, rank: int) -> None:
    write_array(out, ctypes.c_int64, (find(info, TensorTypeAndShapeInfo).shape or ())[:rank])


@function("GetSymbolicDimensions", POINTER, POINTER, SIZE)
def _symbols(info: int, out: int, rank: int) -> None:
    found = find(info, TensorTypeAndShapeInfo)
    names = found.symbols or (b"",) * len(found.shape or ())
    write_array(out, TEXT, names[:rank])


getter("GetTensorShapeElementCount", TensorTypeAndShapeInfo, SIZE, lambda info: max(prod(info.shape or ()), 0))


# ---------------------------------------------------------------------------------------------- memory


@function("CreateMemoryInfo", TEXT, ctypes.c_int, ctypes.c_int, ctypes.c_int, POINTER)
def _create_memory(name: bytes | None, kind: int, number: int, memory: int, out: int) -> None:
    if name != b"Cpu":
        raise Refused(f"there is no memory of {(name or b'').decode(errors='replace')!r}, but of 'Cpu' alone")
    store(out, POINTER, new(MemoryInfo(name, kind, number, memory)))


@function("CreateCpuMemoryInfo", ctypes.c_int, ctypes.c_int, POINTER)
def _create_cpu_memory(kind: int, memory: int, out: int) -> None:
    store(out, POINTER, new(MemoryInfo(kind=kind, memory=memory)))


@function("CompareMemoryInfo", POINTER, POINTER, POINTER)
def _compare_memory(one: int, other: int, out: int) -> None:
    store(out, ctypes.c_int, int(find(one, MemoryInfo) != find(other, MemoryInfo)))


getter("MemoryInfoGetName", MemoryInfo, POINTER, lambda info: ctypes.cast(_CPU_NAME, POINTER).value)
getter("MemoryInfoGetId", MemoryInfo, ctypes.c_int, lambda info: info.id)
getter("MemoryInfoGetMemType", MemoryInfo, ctypes.c_int, lambda info: info.memory)
getter("MemoryInfoGetType", MemoryInfo, ctypes.c_int, lambda info: info.kind)


@function("MemoryInfoGetDeviceType", POINTER, POINTER, gives=None)
def _device_type(info: int, out: int) -> None:
    find(info, MemoryInfo)
    store(out, ctypes.c_int, 0)


@function("MemoryInfoGetDeviceMemType", POINTER, gives=ctypes.c_int)
def _device_memory(info: int) -> int:
    find(info, MemoryInfo)
    return 0


@function("MemoryInfoGetVendorId", POINTER, gives=ctypes.c_uint32)
def _vendor(info: int) -> int:
    find(info, MemoryInfo)
    return 0


class _Allocator(ctypes.Structure):
    """OrtAllocator, whose functions libraries call themselves."""

    _fields_ = [("version", ctypes.c_uint32), *((name, POINTER) for name in ("alloc", "free", "info", "reserve")),
                *((f"unused{place}", POINTER) for place in range(8))]  # fmt: skip


_libc = ctypes.CDLL(None)
_libc.free.argtypes = [POINTER]
_libc.posix_memalign.argtypes = [POINTER, SIZE, SIZE]
_ALIGNMENT = 64
"""Bytes, as onnxruntime's allocator has them."""


def take_memory(count: int) -> int | None:
    """The address of memory that `free_memory` frees; None for no bytes. MemoryError where there is not as much."""
    out = POINTER()
    if count and _libc.posix_memalign(ctypes.byref(out), _ALIGNMENT, count):
        raise MemoryError(f"{count} bytes of memory are not there")
    return out.value


def free_memory(memory: int | None) -> None:
    """Free what `take_memory` gave."""
    _libc.free(memory)


def _allocate(allocator: int, count: int) -> int | None:
    try:
        return take_memory(count)
    except MemoryError:
        return None


def _free(allocator: int, memory: int | None) -> None:
    free_memory(memory)


def _allocator_memory(allocator: int) -> int:
    return CPU


_allocating = ctypes.CFUNCTYPE(POINTER, POINTER, SIZE)(_allocate)
_allocator_functions = (
    _allocating,
    ctypes.CFUNCTYPE(None, POINTER, POINTER)(_free),
    ctypes.CFUNCTYPE(POINTER, POINTER)(_allocator_memory),
    _allocating,
)
_ALLOCATOR = _Allocator(18, *(ctypes.cast(one, POINTER).value for one in _allocator_functions))
ALLOCATOR = ctypes.addressof(_ALLOCATOR)
"""The address of the allocator, which is the only one."""


@function("GetAllocatorWithDefaultOptions", POINTER)
def _default_allocator(out: int) -> None:
    store(out, POINTER, ALLOCATOR)


@function("AllocatorAlloc", POINTER, SIZE, POINTER)
def _alloc(allocator: int, count: int, out: int) -> None:
    store(out, POINTER, take_memory(count))


@function("AllocatorFree", POINTER, POINTER)
def _free_by(allocator: int, memory: int | None) -> None:
    free_memory(memory)


@function("AllocatorGetInfo", POINTER, POINTER)
def _info_of(allocator: int, out: int) -> None:
    store(out, POINTER, CPU)


@function("ReleaseAllocator", POINTER, gives=None)
def _release_allocator(allocator: int) -> None:
    """There is one, which stays."""


@function("ReleaseTypeInfo", POINTER, gives=None)
def _release_type(info: int | None) -> None:
    if info:
        release(find(info, TypeInfo).tensor)
        release(info)
