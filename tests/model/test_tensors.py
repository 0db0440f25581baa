"""Tensors: every element type in every field, strings, sparse ones, and sizes that do not fit."""

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from jitonnx import errors
from jitonnx.model import load
from jitonnx.model.external import ExternalData
from jitonnx.model.tensors import TensorReader
from jitonnx.model.wire import LARGE, Tickets, parse
from jitonnx.proto import TensorProto as OurTensor
from tests.model.models import model_of

READER = TensorReader(Tickets(), ExternalData(None))
PLAIN = (
    np.float32, np.float64, np.float16, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32,
    np.uint64, np.bool_, np.complex64, np.complex128,
)  # fmt: skip
EXTENDED = (
    ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2,
    ml_dtypes.float8_e5m2fnuz, ml_dtypes.float8_e8m0fnu, ml_dtypes.float4_e2m1fn, ml_dtypes.int4, ml_dtypes.uint4,
    ml_dtypes.int2, ml_dtypes.uint2, ml_dtypes.float6_e2m3fn, ml_dtypes.float6_e3m2fn,
)  # fmt: skip
SHAPES = ((2, 3), (5,), (), (0, 4))


def ours(tensor: TensorProto) -> OurTensor:
    return OurTensor.FromString(tensor.SerializeToString())


def sample(dtype: type, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers that every type has, the smallest and largest of the integers among them."""
    count = int(np.prod(shape))
    cycle = [1, 0, -1, -2] if np.dtype(dtype).kind != "u" and "u" not in np.dtype(dtype).name[:1] else [1, 0, 3, 2]
    if dtype is ml_dtypes.float8_e8m0fnu:
        cycle = [1, 2, 4, 0.5]
    return np.resize(np.array(cycle, np.float32), count).reshape(shape).astype(dtype)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [*PLAIN, *EXTENDED], ids=lambda dtype: np.dtype(dtype).name)
def test_raw_data(dtype: type, shape: tuple[int, ...]) -> None:
    array = sample(dtype, shape)
    result = READER.array(ours(numpy_helper.from_array(array)))
    assert result.dtype == array.dtype and result.shape == shape and not result.flags.writeable
    assert result.tobytes() == array.tobytes()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [*PLAIN, *EXTENDED], ids=lambda dtype: np.dtype(dtype).name)
def test_typed_fields(dtype: type, shape: tuple[int, ...]) -> None:
    array = sample(dtype, shape)
    element_type = helper.np_dtype_to_tensor_dtype(array.dtype)
    tensor = helper.make_tensor("t", element_type, shape, array.ravel())
    assert not tensor.raw_data
    result = READER.array(ours(tensor))
    assert result.dtype == array.dtype and result.shape == shape and not result.flags.writeable
    assert result.tobytes() == array.tobytes()


def test_strings() -> None:
    tensor = helper.make_tensor("t", TensorProto.STRING, (2, 1), [b"a", "ü".encode()])
    result = READER.array(ours(tensor))
    assert result.dtype == object and result.tolist() == [["a"], ["ü"]]


def test_raw_data_is_viewed_not_copied() -> None:
    array = np.arange(LARGE, dtype=np.float32)
    data = model_of([], [], ["w"], [numpy_helper.from_array(array, "w")]).SerializeToString()
    model, tickets = parse(memoryview(data))
    result = TensorReader(tickets, ExternalData(None)).array(model.graph.initializer[0])
    np.testing.assert_array_equal(result, array)
    assert np.shares_memory(result, np.frombuffer(data, np.uint8))


FAULTS = [
    (TensorProto(name="w", data_type=1, dims=[2], raw_data=b"\0" * 7), errors.Fail, "'w' has 7 bytes.*2 elements"),
    (TensorProto(name="w", data_type=22, dims=[5], raw_data=b"\0" * 2), errors.Fail, "take 3"),
    (TensorProto(name="w", data_type=1, dims=[3], float_data=[1, 2]), errors.Fail, "2 elements in float_data"),
    (TensorProto(name="w", data_type=1, dims=[3]), errors.Fail, "0 elements in float_data"),
    (TensorProto(name="w", data_type=1, dims=[-3], raw_data=b""), errors.Fail, "negative dimension"),
    (TensorProto(name="w", data_type=8, dims=[2], string_data=[b"a"]), errors.Fail, "1 strings"),
    (TensorProto(name="w", data_type=8, dims=[1], string_data=[b"\xff"]), errors.Fail, "not UTF-8"),
    (TensorProto(name="w", data_type=99, dims=[1]), errors.NotImplemented, "element type 99"),
]


@pytest.mark.parametrize(("tensor", "kind", "text"), FAULTS, ids=lambda value: value if isinstance(value, str) else "")
def test_faults(tensor: TensorProto, kind: type[errors.Error], text: str) -> None:
    with pytest.raises(kind, match=text):
        load(model_of([], [], [], [tensor]))


def sparse(indices: np.ndarray, dims: tuple[int, ...] = (3, 4)) -> onnx.SparseTensorProto:
    values = numpy_helper.from_array(np.array([1, 2, 3], np.float32), "w")
    return helper.make_sparse_tensor(values, numpy_helper.from_array(indices, "i"), dims)


@pytest.mark.parametrize("indices", [np.array([1, 6, 11]), np.array([[0, 1], [1, 2], [2, 3]])], ids=["flat", "nd"])
def test_sparse_initializer(indices: np.ndarray) -> None:
    model = load(model_of([], [], [onnx.ValueInfoProto(name="w")], sparse=[sparse(indices)]))
    expected = np.zeros((3, 4), np.float32)
    expected[[0, 1, 2], [1, 2, 3]] = 1, 2, 3
    np.testing.assert_array_equal(model.graph.outputs[0].constant, expected)


def test_sparse_initializer_out_of_range() -> None:
    with pytest.raises(errors.Fail, match=r"'w' has the index 12 in place 2, which is not in"):
        load(model_of([], [], ["w"], sparse=[sparse(np.array([1, 6, 12]))]))


CONSTANTS = [
    ({"value": numpy_helper.from_array(np.array([1, 2], np.float32))}, np.array([1, 2], np.float32)),
    ({"value_float": 1.5}, np.float32(1.5)),
    ({"value_floats": [1.5, 2]}, np.array([1.5, 2], np.float32)),
    ({"value_int": 3}, np.int64(3)),
    ({"value_ints": [3, 4]}, np.array([3, 4], np.int64)),
    ({"value_string": "a"}, np.array("a", object)),
    ({"value_strings": ["a", "b"]}, np.array(["a", "b"], object)),
    ({"sparse_value": sparse(np.array([0, 1, 2]), (4,))}, np.array([1, 2, 3, 0], np.float32)),
]


@pytest.mark.parametrize(
    ("attributes", "expected"),
    CONSTANTS,
    ids=lambda value: str(next(iter(value), "")) if isinstance(value, dict) else "",
)
def test_constant_nodes(attributes: dict, expected: np.ndarray) -> None:
    output = onnx.ValueInfoProto(name="c")
    model = load(model_of([helper.make_node("Constant", [], ["c"], **attributes)], [], [output]))
    constant = model.graph.outputs[0].constant
    assert constant.dtype == expected.dtype and constant.shape == expected.shape
    np.testing.assert_array_equal(constant, expected)
    assert len(model.graph) == 0


@pytest.mark.parametrize("attributes", [{}, {"value_int": 1, "value_float": 1.0}])
def test_constant_node_with_no_or_two_values(attributes: dict) -> None:
    with pytest.raises(errors.InvalidGraph, match="exactly one of value"):
        load(model_of([helper.make_node("Constant", [], ["c"], **attributes)], [], [onnx.ValueInfoProto(name="c")]))
