"""`SparseTensor`, beside onnxruntime's."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import jitonnx
from tests.api.faces import assert_alike

VALUES = np.array([1, 2, 3], np.float32)
TEXTS = np.array(["xyz", "", "é"])
PLACES = np.array([0, 4, 8], np.int64)


def cpu(ort: ModuleType) -> Any:
    return ort.OrtDevice.make("cpu", 0)


def coo(ort: ModuleType, indices: np.ndarray = PLACES, values: np.ndarray = VALUES) -> Any:
    return ort.SparseTensor.sparse_coo_from_numpy([3, 3], values, indices, cpu(ort))


def csr(ort: ModuleType, outer: tuple[int, ...] = (0, 1, 2, 3), values: np.ndarray = VALUES) -> Any:
    columns = np.array([0, 1, 2], np.int64)
    return ort.SparseTensor.sparse_csr_from_numpy([3, 3], values, columns, np.array(outer, np.int64), cpu(ort))


def facts(tensor: Any) -> list[Any]:
    return [tensor.format(), tensor.dense_shape(), tensor.data_type(), tensor.device_name(), tensor.values()]


def in_value(ort: ModuleType) -> Any:
    value = ort.OrtValue.ort_value_from_sparse_tensor(coo(ort))
    told = [value.is_sparse_tensor(), value.is_tensor(), value.has_value(), value.shape(), value.data_type()]
    return [*told, value.element_type(), value.device_name(), facts(value.as_sparse_tensor())]


CASES = {
    "coo": (lambda ort: [*facts(coo(ort)), coo(ort).as_coo_view().indices()], ""),
    "coo by coordinates": (
        lambda ort: coo(ort, np.array([[0, 0], [1, 1], [2, 2]], np.int64)).as_coo_view().indices(), ""
    ),
    "int32 indices": (lambda ort: coo(ort, PLACES.astype(np.int32)).as_coo_view().indices(), ""),
    "values are shared and read-only": (
        lambda ort: (np.shares_memory(coo(ort).values(), VALUES), coo(ort).values().flags.writeable), ""
    ),
    "csr": (lambda ort: [*facts(csr(ort)), csr(ort).as_csrc_view().inner(), csr(ort).as_csrc_view().outer()], ""),
    "strings": (lambda ort: [*facts(coo(ort, values=TEXTS)), coo(ort, values=TEXTS).as_coo_view().indices()], ""),
    "strings of rows": (lambda ort: facts(csr(ort, values=TEXTS)), ""),
    "in a value": (in_value, ""),
    "too few indices": (lambda ort: coo(ort, PLACES[:2]), "must be equal to or twice the values size: 3"),
    "coo as csr": (lambda ort: coo(ort).as_csrc_view(), "This sparse tensor does not contain CSR(C) format"),
    "coo as blocks": (lambda ort: coo(ort).as_blocksparse_view(), "does not contain BlockSparse format"),
    "csr as coo": (lambda ort: csr(ort).as_coo_view(), "does not contain COO format"),
    "cuda": (lambda ort: coo(ort).to_cuda(ort.OrtDevice.make("cuda", 0)), "Cuda is not available in this build"),
    "array of a value": (
        lambda ort: ort.OrtValue.ort_value_from_sparse_tensor(coo(ort)).numpy(), "Only OrtValues that are Tensors are"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_sparse(name: str) -> None:
    assert_alike(*CASES[name])


def test_strings_as_objects_are_handed_on() -> None:
    """onnxruntime refuses to make them."""
    texts = coo(jitonnx, values=TEXTS.astype(object))
    (result,) = jitonnx.InferenceSession(handing_on(onnx.TensorProto.STRING)).run(None, {"x": texts})
    assert result.data_type() == "sparse_tensor(string)" and list(result.values()) == list(TEXTS)
    assert not texts.values().flags.writeable


def test_what_fits_badly_is_refused() -> None:
    with pytest.raises(jitonnx.Error, match="one outer index more than rows; 3 and 3 were given"):
        csr(jitonnx, (0, 1, 2))
    for values, text in (
        (np.array([b"a"]), r"array of numbers or strings, not NumPy's \|S1"),
        (np.array([None], object), "numbers, or all strings; one is None"),
    ):
        with pytest.raises(TypeError, match=text):
            jitonnx.SparseTensor.sparse_coo_from_numpy([3], values, np.array([0]), cpu(jitonnx))
    with pytest.raises(RuntimeError, match="the CPU's memory alone"):
        jitonnx.SparseTensor.sparse_coo_from_numpy([9], VALUES, PLACES, jitonnx.OrtDevice.make("cuda", 0))


def test_a_model_takes_no_sparse_value() -> None:
    from tests.session.models import relu_add

    session = jitonnx.InferenceSession(relu_add())
    sparse = jitonnx.OrtValue.ort_value_from_sparse_tensor(coo(jitonnx))
    with pytest.raises(RuntimeError, match="this one holds a sparse tensor"):
        session.run_with_ort_values(None, {"x": sparse})


def handing_on(dtype: int = onnx.TensorProto.FLOAT, operator: str = "") -> bytes:
    """A model with a sparse input [3, n], which is its output; with an operator, what that gives for it is."""
    given = helper.make_value_info("x", helper.make_sparse_tensor_type_proto(dtype, [3, "n"]))
    nodes = [helper.make_node(operator, ["x"], ["y"])] if operator else []
    graph = helper.make_graph(nodes, "g", [given], [onnx.ValueInfoProto(name="y" if operator else "x")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()


@pytest.mark.parametrize("make", [coo, csr])
def test_models_hand_sparse_tensors_on(make: Any) -> None:
    session = jitonnx.InferenceSession(handing_on())
    (declared,) = session.get_inputs()
    assert declared.type == "sparse_tensor(float)"
    (result,) = session.run(None, {"x": make(jitonnx)})
    assert facts(result)[:4] == facts(make(jitonnx))[:4]
    np.testing.assert_array_equal(result.values(), VALUES)


def test_sparse_inputs_that_do_not_fit() -> None:
    session = jitonnx.InferenceSession(handing_on(onnx.TensorProto.DOUBLE))
    with pytest.raises(jitonnx.errors.InvalidArgument, match=r"sparse_tensor\(double\).*sparse_tensor\(float\)"):
        session.run(None, {"x": coo(jitonnx)})
    with pytest.raises(jitonnx.errors.InvalidArgument, match="give a SparseTensor, not a ndarray"):
        session.run(None, {"x": np.eye(3)})
    other = jitonnx.SparseTensor.sparse_coo_from_numpy([2, 3], VALUES, PLACES[:3] // 2, cpu(jitonnx))
    with pytest.raises(jitonnx.errors.InvalidArgument, match=r"of shape \[2, 3\] was given"):
        jitonnx.InferenceSession(handing_on()).run(None, {"x": other})


SHAPES = {
    "flat": ([3, 3], [2, 3, 5]),
    "coordinates": ([3, 3], [[0, 2], [1, 0], [1, 2]]),
    "rank 3": ([2, 2, 3], [[0, 0, 2], [0, 1, 0], [0, 1, 2]]),
    "vector": ([9], [2, 3, 5]),
    "nothing": ([3, 3], []),
}


def stored(place: str, shape: list[int], indices: list[Any], dtype: type = np.float32, first: int = -1) -> bytes:
    """A model whose output is a sparse tensor of its own, as an initializer or as an attribute of a Constant; beside
    it, what Abs makes of that."""
    count = len(indices)
    values = numpy_helper.from_array(np.arange(first, first + count).astype(dtype), "c")
    proto = helper.make_sparse_tensor(values, numpy_helper.from_array(np.array(indices, np.int64), "i"), shape)
    nodes = [helper.make_node("Abs", ["c"], ["y"])]
    if place != "initializer":
        nodes.insert(0, helper.make_node("Constant", [], ["c"]))
        nodes[0].attribute.append(helper.make_attribute(place, proto))
    outputs = [
        helper.make_value_info("c", helper.make_sparse_tensor_type_proto(values.data_type, shape)),
        helper.make_tensor_value_info("y", values.data_type, shape),
    ]
    initializers = [proto] if place == "initializer" else []
    graph = helper.make_graph(nodes, "g", [], outputs, sparse_initializer=initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()


@pytest.mark.parametrize("place", ["initializer", "sparse_value", "value"])
@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("level", [0, 99])
def test_stored_sparse_tensors_as_outputs(place: str, kind: str, level: int) -> None:
    shape, indices = SHAPES[kind]
    options = jitonnx.SessionOptions()
    options.graph_optimization_level = jitonnx.GraphOptimizationLevel(level)
    session = jitonnx.InferenceSession(stored(place, shape, indices), options)
    assert [one.type for one in session.get_outputs()] == ["sparse_tensor(float)", "tensor(float)"]
    for _ in range(3):  # runs after the first take shorter ways
        sparse, dense = session.run(None, {})
        assert sparse.dense_shape() == shape and sparse.values().tolist() == [-1, 0, 1][: len(indices)]
        filled = np.zeros(shape, np.float32)
        filled.reshape(-1)[sparse.as_coo_view().indices()] = np.abs(sparse.values())
        np.testing.assert_array_equal(dense, filled)
    assert session.run(["c"], {})[0].as_coo_view().indices().tolist() == [2, 3, 5][: len(indices)]
    (value, _) = session.run_with_ort_values(None, {})
    assert value.is_sparse_tensor() and value.as_sparse_tensor().dense_shape() == shape


@pytest.mark.parametrize("place", ["initializer", "sparse_value", "value"])
@pytest.mark.parametrize("dtype", [np.float32, np.int8])
def test_stored_sparse_tensors_as_onnxruntime_gives_them(place: str, dtype: type) -> None:
    import onnxruntime

    model = stored(place, *SHAPES["flat"], dtype, first=1)  # onnxruntime leaves out zeros that are stored
    found = []
    for package in (onnxruntime, jitonnx):
        sparse = package.InferenceSession(model).run_with_ort_values(["c"], {})[0].as_sparse_tensor()
        found.append([*facts(sparse)[1:4], sparse.values().tolist(), sparse.as_coo_view().indices().tolist()])
    assert found[0] == found[1]


def test_a_stored_sparse_tensor_that_is_bound() -> None:
    session = jitonnx.InferenceSession(stored("initializer", *SHAPES["flat"]))
    binding = session.io_binding()
    for name in "cy":
        binding.bind_output(name)
    session.run_with_iobinding(binding)
    sparse, dense = binding.get_outputs()
    assert sparse.as_sparse_tensor().values().tolist() == [-1, 0, 1] and dense.numpy().sum() == 2


@pytest.mark.parametrize("operator", ["Relu", "Identity"])
def test_operators_refuse_sparse_tensors(operator: str) -> None:
    with pytest.raises(jitonnx.errors.InvalidGraph, match=rf"{operator} node.*'sparse_tensor\(float\)'.*is invalid"):
        jitonnx.InferenceSession(handing_on(operator=operator))
