"""`OrtValue`, `OrtValueVector` and DLPack, beside onnxruntime's."""

from __future__ import annotations

import gc
import pickle
import weakref
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto

import jitonnx
from jitonnx import OrtValue, errors
from jitonnx.api.values import OrtValueVector
from jitonnx.compat.capi import _pybind_state as C
from jitonnx.ir.dtypes import DType
from tests.api.faces import assert_alike, plain

TYPES = ["f4", "f8", "f2", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"]


def numbers(shape: tuple[int, ...] = (2, 3), dtype: Any = np.float32) -> np.ndarray:
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


def facts(value: Any) -> list[Any]:
    """All that a value tells of itself but its address."""
    return [
        value.shape(),
        value.data_type(),
        value.element_type(),
        value.device_name(),
        value.tensor_size_in_bytes(),
        value.has_value(),
        value.is_tensor(),
        value.is_sparse_tensor(),
        value.is_tensor_sequence(),
    ]


def whole(value: Any) -> list[Any]:
    """Its facts and elements, read while it lives: onnxruntime's arrays do not keep its memory."""
    return [*facts(value), plain(value.numpy())]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (2, 3, 1)], ids=str)
def test_facts(dtype: str, shape: tuple[int, ...]) -> None:
    assert_alike(lambda ort: whole(ort.OrtValue.ortvalue_from_numpy(numbers(shape, dtype))))
    number = DType[{"?": "BOOL", "f4": "FLOAT", "f8": "DOUBLE", "f2": "FLOAT16"}.get(dtype, "INT8")]
    for kind in (np.dtype(dtype), np.dtype(dtype).type, int(number)):
        assert_alike(lambda ort, kind=kind: facts(ort.OrtValue.ortvalue_from_shape_and_type(shape, kind)))


SHARING = {
    "from numpy": lambda ort, x: ort.OrtValue.ortvalue_from_numpy(x).data_ptr() == x.ctypes.data,
    "numpy": lambda ort, x: np.shares_memory(ort.OrtValue.ortvalue_from_numpy(x).numpy(), x),
    "asarray": lambda ort, x: np.shares_memory(np.asarray(ort.OrtValue.ortvalue_from_numpy(x)), x),
    "array": lambda ort, x: np.shares_memory(np.array(ort.OrtValue.ortvalue_from_numpy(x)), x),
    "asarray of a type": lambda ort, x: np.asarray(ort.OrtValue.ortvalue_from_numpy(x), np.float64),
    "numpy from dlpack": lambda ort, x: np.shares_memory(np.from_dlpack(ort.OrtValue.ortvalue_from_numpy(x)), x),
    "from dlpack": lambda ort, x: ort.OrtValue.from_dlpack(x).data_ptr() == x.ctypes.data,
    "from a capsule": lambda ort, x: ort.OrtValue.from_dlpack(x.__dlpack__()).data_ptr() == x.ctypes.data,
    "from a value": lambda ort, x: np.shares_memory(
        ort.OrtValue.from_dlpack(ort.OrtValue.ortvalue_from_numpy(x)).numpy(), x
    ),
    "dlpack device": lambda ort, x: ort.OrtValue.ortvalue_from_numpy(x).__dlpack_device__(),
    "transposed": lambda ort, x: whole(ort.OrtValue.ortvalue_from_numpy(x.T)),
    "every other": lambda ort, x: whole(ort.OrtValue.ortvalue_from_numpy(x[:, ::2])),
    "read-only": lambda ort, x: whole(ort.OrtValue.ortvalue_from_numpy(np.broadcast_to(x[0], (2, 3)))),
    "bfloat16 of uint16": lambda ort, x: facts(
        ort.OrtValue.ortvalue_from_numpy_with_onnx_type(x.astype(np.uint16), TensorProto.BFLOAT16)
    ),
    "float of int32": lambda ort, x: facts(
        ort.OrtValue.ortvalue_from_numpy_with_onnx_type(x.view(np.int32), TensorProto.FLOAT)
    ),
    "bfloat16 of a shape": lambda ort, x: facts(ort.OrtValue.ortvalue_from_shape_and_type([3], TensorProto.BFLOAT16))[
        :-1
    ],
    "int4 of a shape": lambda ort, x: facts(ort.OrtValue.ortvalue_from_shape_and_type([3], TensorProto.INT4)),
    "on device 1": lambda ort, x: whole(ort.OrtValue.ortvalue_from_numpy(x, "cpu", 1)),
    "of another": lambda ort, x: whole(ort.OrtValue(ort.OrtValue.ortvalue_from_numpy(x)._ortvalue)),
}


@pytest.mark.parametrize("name", SHARING)
def test_sharing(name: str) -> None:
    assert_alike(lambda ort: SHARING[name](ort, numbers()))


def updated(ort: ModuleType, target: np.ndarray, source: Any) -> Any:
    """The array that a value uses, after an update of the value."""
    value = ort.OrtValue.ortvalue_from_numpy(target)
    value.update_inplace(ort.OrtValue.ortvalue_from_numpy(source[0]) if isinstance(source, list) else source)
    return target


UPDATES = {
    "array": (numbers() + 5, ""),
    "value": ([numbers() + 5], ""),
    "another shape": (numbers((6,)) + 5, ""),
    "transposed": (numbers((3, 2)).T + 5, ""),
    "too many": (numbers((2, 4)), "The input size of numpy arrays does not match the size of the OrtValue"),
    "another type of value": (
        [numbers(dtype=np.int32)],
        "The source and destination OrtValues must have the same data type",
    ),
    "a number": (3, "data must be a numpy.ndarray or an OrtValue."),
}


@pytest.mark.parametrize("name", UPDATES)
def test_update_inplace(name: str) -> None:
    source, says = UPDATES[name]
    assert_alike(lambda ort: updated(ort, numbers(), source), says)


def test_an_update_of_another_type_is_refused() -> None:
    """onnxruntime copies the bytes of float64 into float32."""
    with pytest.raises(errors.InvalidArgument, match=r"tensor\(float\) cannot be updated with tensor\(double\)"):
        updated(jitonnx, numbers(), np.ones((2, 3)))


REFUSED = {
    "longdouble": (
        lambda ort: ort.OrtValue.ortvalue_from_numpy(np.zeros(2, np.longdouble)), "can't be converted to MLDataType"
    ),
    "not a number of a type": (
        lambda ort: ort.OrtValue.ortvalue_from_shape_and_type([2], 99), "tensor type 99 is not supported"
    ),
    "negative size": (
        lambda ort: ort.OrtValue.ortvalue_from_shape_and_type([-2], np.float32), "shape.Size() must be >= 0"
    ),
    "another size of elements": (
        lambda ort: ort.OrtValue.ortvalue_from_numpy_with_onnx_type(np.ones(2, np.uint8), 16),
        "Items size in the incoming array: 1 specified by onnxtype: 2",
    ),
    "cuda": (lambda ort: ort.OrtValue.ortvalue_from_numpy(numbers(), "cuda"), "Can't allocate memory on the device"),
    "unknown device": (lambda ort: ort.OrtValue.ortvalue_from_numpy(numbers(), "foo"), "Unsupported device type: foo"),
    "of an array": (lambda ort: ort.OrtValue(numbers()), "`Provided ortvalue` needs to be of type"),
    "dlpack of a list": (lambda ort: ort.OrtValue.from_dlpack([1]), "from_dlpack expected a valid DLPack capsule"),
    "dlpack transposed": (lambda ort: ort.OrtValue.from_dlpack(numbers().T), "only"),
    "dense as sparse": (
        lambda ort: ort.OrtValue.ortvalue_from_numpy(numbers()).as_sparse_tensor(),
        "This OrtValue does not contain SparseTensor. Check data_type() value.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    assert_alike(*REFUSED[name])


def test_strings_are_shared_by_reference() -> None:
    """onnxruntime makes no values of strings."""
    texts = np.array([["a", "grüß"], ["", "d" * 100]], object)
    value = OrtValue.ortvalue_from_numpy(texts)
    assert (value.data_type(), value.element_type(), value.shape()) == ("tensor(string)", TensorProto.STRING, [2, 2])
    texts[0, 0] = "changed"
    assert value.numpy()[0, 0] == "changed" and np.shares_memory(value.numpy(), texts)
    value.update_inplace(np.array(list("wxyz")))
    assert texts.tolist() == [["w", "x"], ["y", "z"]]
    assert pickle.loads(pickle.dumps(value)).numpy().tolist() == texts.tolist()
    for other in (
        np.array(["a", "b"]),
        np.array([b"a", b"b"]),
        ["a", "b"],
        np.array(["a", "b"], np.dtypes.StringDType()),
    ):
        made = OrtValue.ortvalue_from_numpy(other)
        assert made.data_type() == "tensor(string)" and made.numpy().tolist() == ["a", "b"]
    assert OrtValue.ortvalue_from_shape_and_type([2], str).numpy().tolist() == ["", ""]
    assert OrtValue.ortvalue_from_shape_and_type([], TensorProto.STRING).numpy().tolist() == ""
    assert OrtValue.ortvalue_from_numpy(np.array(["a", None], object)).numpy().tolist() == ["a", "None"]
    with pytest.raises(errors.InvalidArgument, match=r"element 1 of the array is not UTF-8"):
        OrtValue.ortvalue_from_numpy(np.array(["a", b"\xff"], object))
    with pytest.raises(RuntimeError, match="no memory that holds them"):
        value.data_ptr()
    with pytest.raises(BufferError, match="no tensors of string"):
        value.to_dlpack()
    with pytest.raises(errors.InvalidArgument, match="cannot be updated"):
        value.update_inplace(numbers())


def test_types_that_numpy_lacks() -> None:
    """onnxruntime gives no arrays of these."""
    halves = np.array([1.5, -2, 0], ml_dtypes.bfloat16)
    value = OrtValue.ortvalue_from_numpy(halves)
    assert value.data_type() == "tensor(bfloat16)" and np.shares_memory(value.numpy(), halves)
    assert value.numpy().dtype == ml_dtypes.bfloat16
    value.update_inplace(np.array([0x4000, 0, 0], np.uint16))
    assert halves.tolist() == [2, 0, 0]
    same = OrtValue.from_dlpack(value.to_dlpack())
    assert same.data_type() == "tensor(bfloat16)" and same.data_ptr() == value.data_ptr()
    small = OrtValue.ortvalue_from_numpy(np.array([1, -3, 7], ml_dtypes.int4))
    assert small.numpy().tolist() == [1, -3, 7] and small.tensor_size_in_bytes() == 2
    with pytest.raises(errors.NotImplemented, match="held in a byte each"):
        small.data_ptr()
    with pytest.raises(errors.NotImplemented, match="holds several of in a byte"):
        OrtValue.ortvalue_from_numpy_with_onnx_type(np.ones(2, np.uint8), TensorProto.INT4)
    with pytest.raises(BufferError, match="no tensors of float8e5m2"):
        OrtValue.ortvalue_from_numpy(np.ones(2, ml_dtypes.float8_e5m2)).to_dlpack()


def test_big_endian_numbers_keep_their_values() -> None:
    """onnxruntime takes their bytes as they are."""
    value = OrtValue.ortvalue_from_numpy(np.array([1.0, 2.0], ">f4"))
    assert value.numpy().tolist() == [1, 2] and value.numpy().dtype.isnative


def test_bool_by_dlpack() -> None:
    truths = np.array([True, False])
    assert np.from_dlpack(OrtValue.ortvalue_from_numpy(truths)).dtype == bool
    assert OrtValue.from_dlpack(truths.__dlpack__()).data_type() == "tensor(bool)"
    capsule = truths.view(np.uint8).__dlpack__()
    assert C.is_dlpack_uint8_tensor(capsule)
    assert C.OrtValue.from_dlpack(capsule, True).data_type() == "tensor(bool)"


def test_a_value_keeps_its_memory_and_no_more() -> None:
    array = numbers()
    gone = weakref.ref(array)
    value = OrtValue.ortvalue_from_numpy(array)
    view, capsule = value.numpy(), value.to_dlpack()
    del array, value
    gc.collect()
    assert view.tolist() == numbers().tolist()
    other = np.from_dlpack(OrtValue.from_dlpack(capsule))
    del view, capsule
    gc.collect()
    assert other.tolist() == numbers().tolist()
    del other
    gc.collect()
    assert gone() is None


def vector(ort: ModuleType) -> Any:
    made = ort.capi.onnxruntime_pybind11_state.OrtValueVector()
    for array in (numbers(), numbers((2,), bool)):
        made.push_back(ort.OrtValue.ortvalue_from_numpy(array)._get_c_value())
    return made


VECTORS = {
    "length": lambda ort: (len(vector(ort)), bool(vector(ort))),
    "elements": vector,
    "at": lambda ort: vector(ort)[1],
    "types": lambda ort: [vector(ort).element_type_at(index) for index in (0, 1)],
    "dlpack": lambda ort: ort.OrtValue.from_dlpack(vector(ort).dlpack_at(0)),
    "all by dlpack": lambda ort: list(map(ort.OrtValue.from_dlpack, vector(ort).to_dlpacks(None)[:1])),
    "by a function": lambda ort: vector(ort).to_dlpacks(lambda capsule: 1),
    "room": lambda ort: (vector(ort).reserve(9), vector(ort).shrink_to_fit()),
}


def test_which_of_a_vector_are_bool() -> None:
    """Which onnxruntime 1.31 was asked for DLPack's sake; 1.32 is not."""
    assert vector(jitonnx).bool_tensor_indices() == [
        place for place, value in enumerate(vector(jitonnx)) if value.data_type() == "tensor(bool)"
    ]


@pytest.mark.parametrize("name", VECTORS)
def test_vectors(name: str) -> None:
    assert_alike(VECTORS[name])


def test_vector_over_memory_of_others() -> None:
    array = numbers()
    made, device = OrtValueVector(), C.OrtDevice(C.OrtDevice.cpu(), C.OrtDevice.default_memory(), 0)
    made.push_back_batch([array], [array.ctypes.data], [np.float32], [[3, 2]], [device])
    gone = weakref.ref(array)
    del array
    assert made[0].numpy().tolist() == numbers((3, 2)).tolist()
    made.clear()
    assert gone() is None


def test_copy_tensors() -> None:
    """onnxruntime's package for the CPU has no data transfer, and so refuses it."""
    target = numbers()
    jitonnx.copy_tensors([OrtValue.ortvalue_from_numpy(numbers() + 1)], [OrtValue.ortvalue_from_numpy(target)])
    assert target.tolist() == (numbers() + 1).tolist()
    with pytest.raises(errors.InvalidArgument, match="1 values are to be copied to 0"):
        jitonnx.copy_tensors([OrtValue.ortvalue_from_numpy(numbers())], [])
