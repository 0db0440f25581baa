"""What an operator asks while its kernel is made (OrtKernelInfo), runs (OrtKernelContext), or says what shapes it gives
(OrtShapeInferContext)."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jitonnx.c_api.errors import FAIL, NOT_IMPLEMENTED, Refused
from jitonnx.c_api.handles import Lent, find, new, read_array, store, write_array
from jitonnx.c_api.table import POINTER, SIZE, TEXT, function, getter
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


def _asked(kind: type, what: str, given: Callable[[Any], Any] = lambda value: value) -> Callable[..., Any]:
    """What tells a node's attribute of one kind. given: what a library is given of its value."""
    return lambda info, name, *allocator: given(_attribute(info.attributes, name, kind, what))


def _all(value: Sequence[Any], kinds: Any, what: str) -> Sequence[Any]:
    if not all(isinstance(one, kinds) for one in value):
        raise Refused(f"Attribute name and type don't match: it is {value!r}, and {what} are asked for", FAIL)
    return value


getter("KernelInfoGetAttribute_float", KernelInfo, ctypes.c_float, _asked(float, "a float"), TEXT)
getter("KernelInfoGetAttribute_int64", KernelInfo, ctypes.c_int64, _asked(int, "an int"), TEXT)
getter("KernelInfoGetAttribute_string", KernelInfo, TEXT, _asked(str, "a string", _encoded), TEXT)


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


_copied_tensor = _asked(np.ndarray, "a tensor", lambda array: new(Value(array.copy())))
getter("KernelInfoGetAttribute_tensor", KernelInfo, POINTER, _copied_tensor, TEXT, POINTER)


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


getter("OpAttr_GetType", OpAttr, ctypes.c_int, lambda attribute: _kind(attribute.value))
getter("OpAttr_GetName", OpAttr, POINTER, lambda attribute: ctypes.addressof(attribute.text))


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


def _type_of(port: Port) -> int:
    if not port.present:
        raise Refused("the input or output is optional, and absent", FAIL)
    return new(TypeInfo(port.info))


def _of_port(what: str, tell: Callable[[Port], Any]) -> Callable[[KernelInfo, int], Any]:
    """What tells something of one of a node's inputs or outputs."""
    return lambda info, index: tell(_at(getattr(info, f"{what}s"), index, what))


getter("KernelInfo_GetInputCount", KernelInfo, SIZE, lambda info: len(info.inputs))
getter("KernelInfo_GetOutputCount", KernelInfo, SIZE, lambda info: len(info.outputs))
getter("KernelInfo_GetInputName", KernelInfo, TEXT, _of_port("input", lambda port: _encoded(port.name)), SIZE)
getter("KernelInfo_GetOutputName", KernelInfo, TEXT, _of_port("output", lambda port: _encoded(port.name)), SIZE)
getter("KernelInfo_GetInputTypeInfo", KernelInfo, POINTER, _of_port("input", _type_of), SIZE)
getter("KernelInfo_GetOutputTypeInfo", KernelInfo, POINTER, _of_port("output", _type_of), SIZE)


@function("KernelInfoGetConstantInput_tensor", POINTER, SIZE, POINTER, POINTER)
def _constant_input(info: int, index: int, is_constant: int, out: int) -> None:
    pointer = find(info, KernelInfo).constant(index)
    store(is_constant, ctypes.c_int, int(pointer is not None))
    store(out, POINTER, pointer)


getter("KernelInfo_GetNodeName", KernelInfo, TEXT, lambda info: _encoded(info.name))
getter("KernelInfo_GetOperatorDomain", KernelInfo, TEXT, lambda info: _encoded(info.operator[0]))
getter("KernelInfo_GetOperatorType", KernelInfo, TEXT, lambda info: _encoded(info.operator[1]))
getter("KernelInfo_GetOperatorSinceVersion", KernelInfo, ctypes.c_int, lambda info: info.operator[2])
getter("KernelInfo_GetLogger", KernelInfo, POINTER, lambda info: LOGGER)
getter("KernelInfoGetAllocator", KernelInfo, POINTER, lambda info, memory: ALLOCATOR, ctypes.c_int)
getter("CopyKernelInfo", KernelInfo, POINTER, new)


# ---------------------------------------------------------------------------------------------- runs


getter("KernelContext_GetInputCount", KernelContext, SIZE, lambda context: len(context.inputs))
getter("KernelContext_GetOutputCount", KernelContext, SIZE, lambda context: len(context.outputs))
getter(
    "KernelContext_GetInput", KernelContext, POINTER, lambda context, index: _at(context.inputs, index, "input"), SIZE
)


@function("KernelContext_GetOutput", POINTER, SIZE, POINTER, SIZE, POINTER)
def _output(context: int, index: int, shape: int, rank: int, out: int) -> None:
    store(out, POINTER, find(context, KernelContext).output(index, read_array(shape, ctypes.c_int64, rank)))


@function("KernelContext_GetPreallocatedOutput", POINTER, SIZE, POINTER)
def _preallocated(context: int, index: int, out: int) -> None:
    _at(find(context, KernelContext).outputs, index, "output")
    store(out, POINTER, None)


getter("KernelContext_GetLogger", KernelContext, POINTER, lambda context: LOGGER)
getter("KernelContext_GetAllocator", KernelContext, POINTER, lambda context, memory: ALLOCATOR, POINTER)


@function("KernelContext_GetScratchBuffer", POINTER, POINTER, SIZE, POINTER)
def _scratch(context: int, memory: int, count: int, out: int) -> None:
    kept = find(context, KernelContext).memory
    kept.append(np.empty(count, np.uint8))
    store(out, POINTER, kept[-1].__array_interface__["data"][0])


getter("KernelContext_GetGPUComputeStream", KernelContext, POINTER, lambda context: None)
getter("KernelContext_GetSyncStream", KernelContext, POINTER, lambda context: None)


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


getter("ShapeInferContext_GetInputCount", ShapeInferContext, SIZE, lambda context: len(context.inputs))


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
