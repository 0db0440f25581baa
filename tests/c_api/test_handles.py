"""The functions of onnxruntime's C interface that are native code, called as a library calls them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from jitonnx.c_api import functions, table
from jitonnx.c_api.contexts import KernelContext
from jitonnx.c_api.errors import Refused
from jitonnx.c_api.records import lend_context
from jitonnx.c_api.values import Value
from jitonnx.ir.dtypes import DType
from jitonnx.runtime.layout import HANDLE_ROOM, HANDLE_SLOTS
from jitonnx.runtime.native.names import C_API

NUMBERS = np.arange(6, dtype=np.int16).reshape(2, 3)
STRINGS = np.array([["abc", "dé"], ["", "x"]], object)
DEEP = np.ones((1,) * (HANDLE_ROOM + 1), np.float32)


def call(name: str, *arguments: Any) -> None:
    """Refused where the function gives a status."""
    place = table.api() + functions.NAMES.index(name) * ctypes.sizeof(ctypes.c_void_p)
    given = [ctypes.cast(one, ctypes.c_void_p).value if isinstance(one, ctypes.Array) else one for one in arguments]
    kind = ctypes.CFUNCTYPE(None if name.startswith("Release") else ctypes.c_void_p, *[ctypes.c_int64] * len(arguments))
    failed = table.take_status(kind(ctypes.c_void_p.from_address(place).value or 0)(*given))
    if failed is not None:
        raise failed


def asked(name: str, *arguments: Any, count: int = 1) -> Any:
    """What a function writes to the last of its arguments; a list with a count."""
    out = (ctypes.c_int64 * max(count, 1))()
    call(name, *arguments, out, *((count,) if name == "GetDimensions" else ()))
    return list(out)[:count] if name == "GetDimensions" else out[0]


@pytest.fixture
def context() -> Iterator[tuple[int, KernelContext]]:
    arrays = [NUMBERS, None, STRINGS, DEEP]
    made = KernelContext(arrays, [DType.INT16, None, DType.STRING, DType.FLOAT], [DType.FLOAT, DType.STRING])
    pointer = made.lent.new(made)
    lend_context(pointer, made.inputs, len(made.outputs))
    yield pointer, made
    made.lent.release()


def described(value: int) -> tuple[int, int, list[int]]:
    """The element type, the elements and the sizes of a tensor."""
    info = asked("GetTensorTypeAndShape", value)
    rank = asked("GetDimensionsCount", info)
    told = (
        asked("GetTensorElementType", info),
        asked("GetTensorShapeElementCount", info),
        asked("GetDimensions", info, count=rank),
    )
    call("ReleaseTensorTypeAndShapeInfo", info)
    return told


def test_what_a_kernel_asks(context: tuple[int, KernelContext]) -> None:
    pointer, made = context
    assert asked("KernelContext_GetInputCount", pointer) == 4
    assert asked("KernelContext_GetOutputCount", pointer) == 2
    numbers, absent, strings, deep = (asked("KernelContext_GetInput", pointer, index) for index in range(4))
    assert not absent
    assert described(numbers) == (DType.INT16, 6, [2, 3])
    assert described(strings) == (DType.STRING, 4, [2, 2])
    assert described(deep) == (DType.FLOAT, 1, [1] * DEEP.ndim)
    assert asked("GetTensorData", numbers) == asked("GetTensorMutableData", numbers) == NUMBERS.ctypes.data
    assert asked("GetStringTensorDataLength", strings) == 7
    content, starts = ctypes.create_string_buffer(7), (ctypes.c_int64 * 4)()
    call("GetStringTensorContent", strings, content, 7, starts, 4)
    assert (content.raw, list(starts)) == ("abcdéx".encode(), [0, 3, 6, 6])
    assert [asked("GetStringTensorElementLength", strings, index) for index in range(4)] == [3, 3, 0, 1]
    call("GetStringTensorElement", strings, 3, 1, content)
    assert content.raw[:3] == "dé".encode()
    result = made.output(1, (2,))
    assert result is not None and described(result) == (DType.STRING, 2, [2])
    memory = asked("GetTensorMemoryInfo", result)
    assert ctypes.string_at(asked("MemoryInfoGetName", memory)) == b"Cpu"


def test_what_is_wrong_gives_a_status(context: tuple[int, KernelContext]) -> None:
    pointer, made = context
    strings, room = made.inputs[2], ctypes.create_string_buffer(8)
    for name, arguments in (
        ("KernelContext_GetInput", (pointer, 4, room)),
        ("KernelContext_GetInput", (pointer, 0, 0)),
        ("KernelContext_GetInputCount", (made.inputs[0], room)),
        ("GetTensorData", (strings, room)),
        ("GetTensorData", (12345678, room)),
        ("GetTensorData", (0, room)),
        ("GetTensorTypeAndShape", (pointer, room)),
        ("GetDimensionsCount", (24, room)),
        ("GetStringTensorContent", (strings, room, 6, room, 4)),
        ("GetStringTensorContent", (strings, 0, 7, room, 4)),
        ("GetStringTensorElement", (strings, 2, 0, room)),
        ("GetStringTensorElementLength", (strings, 4, room)),
        ("GetStringTensorDataLength", (made.inputs[0], room)),
    ):
        with pytest.raises(Refused):
            call(name, *arguments)
    made.lent.release()
    with pytest.raises(Refused):
        asked("KernelContext_GetInputCount", pointer)
    assert described(table.new(Value(NUMBERS)))[2] == [2, 3]  # which native code has not been told of


def test_shapes_outlive_tensors_and_change_alone(context: tuple[int, KernelContext]) -> None:
    value = context[1].inputs[0]
    first, second = (asked("GetTensorTypeAndShape", value) for _ in range(2))
    context[1].lent.release()
    call("SetDimensions", first, (ctypes.c_int64 * 1)(7), 1)
    assert asked("GetDimensions", first, count=asked("GetDimensionsCount", first)) == [7]
    assert asked("GetDimensions", second, count=2) == [2, 3]
    for info in (first, second):
        call("ReleaseTensorTypeAndShapeInfo", info)
        with pytest.raises(Refused):
            asked("GetDimensionsCount", info)


def test_more_shapes_than_there_are_slots(context: tuple[int, KernelContext]) -> None:
    value = context[1].inputs[0]
    held = [asked("GetTensorTypeAndShape", value) for _ in range(HANDLE_SLOTS + 20)]
    assert len(set(held)) == len(held)
    assert all(asked("GetDimensions", info, count=2) == [2, 3] for info in held)
    for info in held:
        call("ReleaseTensorTypeAndShapeInfo", info)
    assert described(value or 0)[2] == [2, 3]


def test_all_native_functions_are_of_the_interface() -> None:
    assert set(C_API) <= set(functions.NAMES)
