"""What an operator asks while its kernel is made (OrtKernelInfo), runs (OrtKernelContext), or says what shapes it gives
(OrtShapeInferContext)."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jitonnx.c_api.errors import FAIL, NOT_IMPLEMENTED, Refused
from jitonnx.c_api.handles import Lent, find, new, read_array, store, write_array, write_text
from jitonnx.c_api.table import POINTER, SIZE, TEXT, function
from jitonnx.c_api.values import ALLOCATOR, TensorTypeAndShapeInfo, TypeInfo, Value, empty, take_memory
from jitonnx.ir.dtypes import DType
from jitonnx.support.log import LEVELS, logger
from jitonnx.support.records import NamedTuple

Attributes = Mapping[str, Any]
"""A node's attributes, as `RawNode` has them."""


class Port(NamedTuple):
    """An input or output of a node.

    constant: its elements, if they are known when the kernel is made. present: whether the node has it.
    """

    name: str
    info: TensorTypeAndShapeInfo
    constant: np.ndarray | None = None
    present: bool = True


class KernelInfo:
    """A node, whose kernel is made; lives as long as the kernel."""

    def __init__(
        self,
        name: str,
        operator: tuple[str, str, int],
        attributes: Attributes,
        inputs: Sequence[Port],
        outputs: Sequence[Port],
    ) -> None:
        self.name, self.operator, self.attributes, self.inputs, self.outputs = (
            name,
            operator,
            attributes,
            inputs,
            outputs,
        )
        self.lent = Lent()
        self._constants: dict[int, int] = {}

    def constant(self, index: int) -> int | None:
        """The pointer of an input that is constant; None for one that is not."""
        array = _at(self.inputs, index, "input").constant
        if array is not None and index not in self._constants:
            self._constants[index] = self.lent.new(Value(array))
        return self._constants.get(index)


class KernelContext:
    """A run of a kernel.

    inputs: arrays, None for those that are absent. outputs: their element types; None for what nobody wants.
    """

    def __init__(self, inputs: Sequence[np.ndarray | None], outputs: Sequence[DType | None]) -> None:
        self.lent = Lent()
        self.inputs = [None if array is None else self.lent.new(Value(array)) for array in inputs]
        self.dtypes = outputs
        self.outputs: list[Value | None] = [None] * len(outputs)
        self._pointers: list[int | None] = [None] * len(outputs)
        self.memory: list[np.ndarray] = []

    def output(self, index: int, shape: Sequence[int]) -> int | None:
        """The pointer of a result of these sizes; None for one that the node does not have."""
        if index >= len(self.outputs):
            raise Refused(f"the node has {len(self.outputs)} outputs; number {index} is asked for")
        dtype, known = self.dtypes[index], self.outputs[index]
        if dtype is None:
            return None
        if known is not None:
            if known.array.shape != tuple(shape):
                raise Refused(
                    f"output {index} has sizes {list(known.array.shape)}, and is asked for with {list(shape)}"
                )
        else:
            made = self.outputs[index] = Value(empty(dtype, shape), dtype)
            self._pointers[index] = self.lent.new(made)
        return self._pointers[index]


class ShapeInferContext:
    """A node whose outputs' shapes are asked for."""

    def __init__(self, inputs: Sequence[TensorTypeAndShapeInfo | None], attributes: Attributes, outputs: int) -> None:
        self.lent = Lent()
        self.inputs, self.attributes = inputs, attributes
        self.outputs: list[TensorTypeAndShapeInfo | None] = [None] * outputs


class Logger:
    """The log, of a node's kernel."""


LOGGER = new(Logger())


def _at(known: Sequence[Any], index: int, what: str) -> Any:
    if index >= len(known):
        raise Refused(f"there is no {what} {index}: the node has {len(known)}")
    return known[index]


# ---------------------------------------------------------------------------------------------- attributes


class OpAttr:
    """An attribute by itself."""

    def __init__(self, name: str, value: Any) -> None:
        self.name, self.value = name, value
        self.text = ctypes.create_string_buffer(_encoded(name))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _attribute(attributes: Attributes, name: bytes | None, kinds: Any, what: str) -> Any:
    text = (name or b"").decode("utf-8", "replace")
    value = attributes.get(text)
    if value is None:
        raise Refused(f"No attribute with name:'{text}' is defined.", FAIL)
    if not isinstance(value, kinds):
        raise Refused(f"Attribute name and type don't match: {text} is {value!r}, and {what} is asked for", FAIL)
    return value


def _all(value: Sequence[Any], kinds: Any, what: str) -> Sequence[Any]:
    if not all(isinstance(one, kinds) for one in value):
        raise Refused(f"Attribute name and type don't match: it is {value!r}, and {what} are asked for", FAIL)
    return value


@function("KernelInfoGetAttribute_float", POINTER, TEXT, POINTER)
def _float(info: int, name: bytes, out: int) -> None:
    store(out, ctypes.c_float, _attribute(find(info, KernelInfo).attributes, name, float, "a float"))


@function("KernelInfoGetAttribute_int64", POINTER, TEXT, POINTER)
def _int(info: int, name: bytes, out: int) -> None:
    store(out, ctypes.c_int64, _attribute(find(info, KernelInfo).attributes, name, int, "an int"))


@function("KernelInfoGetAttribute_string", POINTER, TEXT, POINTER, POINTER)
def _text(info: int, name: bytes, out: int, size: int) -> None:
    write_text(_encoded(_attribute(find(info, KernelInfo).attributes, name, str, "a string")), out, size)


def _numbers(kind: Any, kinds: Any, what: str) -> Callable[..., None]:
    def give(info: int, name: bytes, out: int, size: int) -> None:
        values = _all(_attribute(find(info, KernelInfo).attributes, name, tuple, what), kinds, what)
        room = read_array(size, SIZE, 1)[0]
        store(size, SIZE, len(values))
        if out:
            if room < len(values):
                raise Refused(f"there is room for {room} of {len(values)} values")
            write_array(out, kind, values)

    return give


function("KernelInfoGetAttributeArray_float", POINTER, TEXT, POINTER, POINTER)(
    _numbers(ctypes.c_float, float, "floats")
)
function("KernelInfoGetAttributeArray_int64", POINTER, TEXT, POINTER, POINTER)(_numbers(ctypes.c_int64, int, "ints"))


@function("KernelInfoGetAttributeArray_string", POINTER, TEXT, POINTER, POINTER, POINTER)
def _texts(info: int, name: bytes, allocator: int, out: int, size: int) -> None:
    values = _attribute(find(info, KernelInfo).attributes, name, tuple, "strings")
    texts = [_encoded(one) + b"\0" for one in _all(values, str, "strings")]
    store(size, SIZE, len(texts))
    store(out, POINTER, None)
    pointers = [_copied(text) for text in texts]  # which the caller frees, one by one
    place = take_memory(len(texts) * ctypes.sizeof(POINTER))
    write_array(place, POINTER, pointers)
    store(out, POINTER, place)


def _copied(text: bytes) -> int:
    place = take_memory(len(text))
    assert place is not None, "Bug: a text has at least its zero byte"
    ctypes.memmove(place, text, len(text))
    return place


@function("KernelInfoGetAttribute_tensor", POINTER, TEXT, POINTER, POINTER)
def _tensor(info: int, name: bytes, allocator: int, out: int) -> None:
    array = _attribute(find(info, KernelInfo).attributes, name, np.ndarray, "a tensor")
    store(out, POINTER, new(Value(array.copy())))


_INT, _INTS, _FLOAT, _FLOATS, _STRING, _STRINGS, _GRAPH, _TENSOR = range(1, 9)
"""OrtOpAttrType."""


def _kind(value: Any) -> int:
    single = {int: _INT, float: _FLOAT, str: _STRING}
    if type(value) in single:
        return single[type(value)]
    if isinstance(value, np.ndarray):
        return _TENSOR
    if isinstance(value, tuple) and value and type(value[0]) in single:
        return single[type(value[0])] + 1
    return 0


@function("OpAttr_GetType", POINTER, POINTER)
def _attribute_type(attribute: int, out: int) -> None:
    store(out, ctypes.c_int, _kind(find(attribute, OpAttr).value))


@function("OpAttr_GetName", POINTER, POINTER)
def _attribute_name(attribute: int, out: int) -> None:
    store(out, POINTER, ctypes.addressof(find(attribute, OpAttr).text))


@function("OpAttr_GetTensorAttributeAsOrtValue", POINTER, POINTER)
def _attribute_tensor(attribute: int, out: int) -> None:
    value = find(attribute, OpAttr).value
    if not isinstance(value, np.ndarray):
        raise Refused(f"the attribute is {value!r}, no tensor")
    store(out, POINTER, new(Value(value.copy())))


@function("CreateOpAttr", TEXT, POINTER, ctypes.c_int, ctypes.c_int, POINTER)
def _create_attribute(name: bytes | None, data: int, count: int, kind: int, out: int) -> None:
    read: dict[int, Any] = {
        _INT: lambda: read_array(data, ctypes.c_int64, 1)[0],
        _INTS: lambda: tuple(read_array(data, ctypes.c_int64, count)),
        _FLOAT: lambda: read_array(data, ctypes.c_float, 1)[0],
        _FLOATS: lambda: tuple(read_array(data, ctypes.c_float, count)),
        _STRING: lambda: _decoded(ctypes.string_at(data)) if data else "",
        _STRINGS: lambda: tuple(_decoded(one or b"") for one in read_array(data, TEXT, count)),
    }
    if kind not in read:
        raise Refused(f"attributes of OrtOpAttrType {kind} cannot be made", NOT_IMPLEMENTED)
    store(out, POINTER, new(OpAttr(_decoded(name or b""), read[kind]())))


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")


@function("ReadOpAttr", POINTER, ctypes.c_int, POINTER, SIZE, POINTER)
def _read_attribute(attribute: int, kind: int, data: int, room: int, out: int) -> None:
    value = find(attribute, OpAttr).value
    if kind != _kind(value) and not (isinstance(value, tuple) and not value):
        raise Refused(f"the attribute is {value!r}, which is not of OrtOpAttrType {kind}")
    if kind == _TENSOR:
        raise Refused("an attribute that is a tensor is read by OpAttr_GetTensorAttributeAsOrtValue")
    values = value if isinstance(value, tuple) else (value,)
    if kind in (_STRING, _STRINGS):
        content = b"".join(_encoded(one) + b"\0" for one in values)
    else:
        content = struct.pack(f"={len(values)}{'q' if kind in (_INT, _INTS) else 'f'}", *values)
    store(out, SIZE, len(content))
    if len(content) > room:
        raise Refused(f"{room} bytes are too few for an attribute of {len(content)}")
    if content:
        if not data:
            raise Refused("a null pointer was given for an attribute")
        ctypes.memmove(data, content, len(content))


# ---------------------------------------------------------------------------------------------- kernels


@function("KernelInfo_GetInputCount", POINTER, POINTER)
def _input_count(info: int, out: int) -> None:
    store(out, SIZE, len(find(info, KernelInfo).inputs))


@function("KernelInfo_GetOutputCount", POINTER, POINTER)
def _output_count(info: int, out: int) -> None:
    store(out, SIZE, len(find(info, KernelInfo).outputs))


@function("KernelInfo_GetInputName", POINTER, SIZE, POINTER, POINTER)
def _input_name(info: int, index: int, out: int, size: int) -> None:
    write_text(_encoded(_at(find(info, KernelInfo).inputs, index, "input").name), out, size)


@function("KernelInfo_GetOutputName", POINTER, SIZE, POINTER, POINTER)
def _output_name(info: int, index: int, out: int, size: int) -> None:
    write_text(_encoded(_at(find(info, KernelInfo).outputs, index, "output").name), out, size)


def _port_type(port: Port, out: int) -> None:
    if not port.present:
        raise Refused("the input or output is optional, and absent", FAIL)
    store(out, POINTER, new(TypeInfo(port.info)))


@function("KernelInfo_GetInputTypeInfo", POINTER, SIZE, POINTER)
def _input_type(info: int, index: int, out: int) -> None:
    _port_type(_at(find(info, KernelInfo).inputs, index, "input"), out)


@function("KernelInfo_GetOutputTypeInfo", POINTER, SIZE, POINTER)
def _output_type(info: int, index: int, out: int) -> None:
    _port_type(_at(find(info, KernelInfo).outputs, index, "output"), out)


@function("KernelInfoGetConstantInput_tensor", POINTER, SIZE, POINTER, POINTER)
def _constant_input(info: int, index: int, is_constant: int, out: int) -> None:
    pointer = find(info, KernelInfo).constant(index)
    store(is_constant, ctypes.c_int, int(pointer is not None))
    store(out, POINTER, pointer)


@function("KernelInfo_GetNodeName", POINTER, POINTER, POINTER)
def _node_name(info: int, out: int, size: int) -> None:
    write_text(_encoded(find(info, KernelInfo).name), out, size)


@function("KernelInfo_GetOperatorDomain", POINTER, POINTER, POINTER)
def _domain(info: int, out: int, size: int) -> None:
    write_text(_encoded(find(info, KernelInfo).operator[0]), out, size)


@function("KernelInfo_GetOperatorType", POINTER, POINTER, POINTER)
def _operator(info: int, out: int, size: int) -> None:
    write_text(_encoded(find(info, KernelInfo).operator[1]), out, size)


@function("KernelInfo_GetOperatorSinceVersion", POINTER, POINTER)
def _version(info: int, out: int) -> None:
    store(out, ctypes.c_int, find(info, KernelInfo).operator[2])


@function("KernelInfo_GetLogger", POINTER, POINTER)
def _info_logger(info: int, out: int) -> None:
    find(info, KernelInfo)
    store(out, POINTER, LOGGER)


@function("KernelInfoGetAllocator", POINTER, ctypes.c_int, POINTER)
def _info_allocator(info: int, memory: int, out: int) -> None:
    find(info, KernelInfo)
    store(out, POINTER, ALLOCATOR)


@function("CopyKernelInfo", POINTER, POINTER)
def _copy_info(info: int, out: int) -> None:
    store(out, POINTER, new(find(info, KernelInfo)))


# ---------------------------------------------------------------------------------------------- runs


@function("KernelContext_GetInputCount", POINTER, POINTER)
def _inputs(context: int, out: int) -> None:
    store(out, SIZE, len(find(context, KernelContext).inputs))


@function("KernelContext_GetOutputCount", POINTER, POINTER)
def _outputs(context: int, out: int) -> None:
    store(out, SIZE, len(find(context, KernelContext).outputs))


@function("KernelContext_GetInput", POINTER, SIZE, POINTER)
def _input(context: int, index: int, out: int) -> None:
    store(out, POINTER, _at(find(context, KernelContext).inputs, index, "input"))


@function("KernelContext_GetOutput", POINTER, SIZE, POINTER, SIZE, POINTER)
def _output(context: int, index: int, shape: int, rank: int, out: int) -> None:
    store(out, POINTER, find(context, KernelContext).output(index, read_array(shape, ctypes.c_int64, rank)))


@function("KernelContext_GetPreallocatedOutput", POINTER, SIZE, POINTER)
def _preallocated(context: int, index: int, out: int) -> None:
    _at(find(context, KernelContext).outputs, index, "output")
    store(out, POINTER, None)


@function("KernelContext_GetLogger", POINTER, POINTER)
def _context_logger(context: int, out: int) -> None:
    find(context, KernelContext)
    store(out, POINTER, LOGGER)


@function("KernelContext_GetAllocator", POINTER, POINTER, POINTER)
def _context_allocator(context: int, memory: int, out: int) -> None:
    find(context, KernelContext)
    store(out, POINTER, ALLOCATOR)


@function("KernelContext_GetScratchBuffer", POINTER, POINTER, SIZE, POINTER)
def _scratch(context: int, memory: int, count: int, out: int) -> None:
    kept = find(context, KernelContext).memory
    kept.append(np.empty(count, np.uint8))
    store(out, POINTER, kept[-1].__array_interface__["data"][0])


@function("KernelContext_GetGPUComputeStream", POINTER, POINTER)
def _stream(context: int, out: int) -> None:
    find(context, KernelContext)
    store(out, POINTER, None)


@function("KernelContext_GetSyncStream", POINTER, POINTER)
def _sync_stream(context: int, out: int) -> None:
    find(context, KernelContext)
    store(out, POINTER, None)


_LOOP = ctypes.CFUNCTYPE(None, POINTER, SIZE)


@function("KernelContext_ParallelFor", POINTER, POINTER, SIZE, SIZE, POINTER)
def _parallel_for(context: int, called: int, total: int, batches: int, data: int) -> None:
    find(context, KernelContext)
    if not called:
        raise Refused("a null pointer was given for a function")
    run = _LOOP(called)
    for index in range(total):
        run(data, index)


@function("Logger_LogMessage", POINTER, ctypes.c_int, TEXT, TEXT, ctypes.c_int, TEXT)
def _log(one: int, severity: int, text: bytes | None, file: bytes | None, line: int, called: bytes | None) -> None:
    find(one, Logger)
    if not 0 <= severity < len(LEVELS):
        raise Refused(f"there is no severity {severity}")
    where = f"{(file or b'').decode(errors='replace')}:{line} {(called or b'').decode(errors='replace')}"
    logger.log(LEVELS[severity], "%s [%s]", (text or b"").decode(errors="replace"), where)


@function("Logger_GetLoggingSeverityLevel", POINTER, POINTER)
def _severity(one: int, out: int) -> None:
    find(one, Logger)
    level = logger.getEffectiveLevel()
    store(out, ctypes.c_int, next((n for n, each in enumerate(LEVELS) if each >= level), len(LEVELS) - 1))


# ---------------------------------------------------------------------------------------------- shapes


@function("ShapeInferContext_GetInputCount", POINTER, POINTER)
def _inferred_inputs(context: int, out: int) -> None:
    store(out, SIZE, len(find(context, ShapeInferContext).inputs))


@function("ShapeInferContext_GetInputTypeShape", POINTER, SIZE, POINTER)
def _inferred_input(context: int, index: int, out: int) -> None:
    found = find(context, ShapeInferContext)
    info = _at(found.inputs, index, "input")
    if info is None:
        raise Refused(f"input {index} is absent", FAIL)
    store(out, POINTER, found.lent.new(info))


@function("ShapeInferContext_GetAttribute", POINTER, TEXT, POINTER)
def _inferred_attribute(context: int, name: bytes | None, out: int) -> None:
    found = find(context, ShapeInferContext)
    value = _attribute(found.attributes, name, object, "an attribute")
    store(out, POINTER, found.lent.new(OpAttr(_decoded(name or b""), value)))


@function("ShapeInferContext_SetOutputTypeShape", POINTER, SIZE, POINTER)
def _infer_output(context: int, index: int, info: int) -> None:
    found = find(context, ShapeInferContext)
    _at(found.outputs, index, "output")
    told = find(info, TensorTypeAndShapeInfo)
    found.outputs[index] = TensorTypeAndShapeInfo(told.dtype, told.shape, told.symbols)
