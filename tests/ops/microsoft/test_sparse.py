"""Products of sparse matrices, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import jitonnx

VALUES, ROWS, COLUMNS = np.arange(1, 6), np.array([0, 0, 1, 3, 3]), np.array([1, 4, 0, 2, 3])


def product(element: int, **attributes: Any) -> bytes:
    """A SparseToDenseMatMul of a [4, 5] and b."""
    node = helper.make_node("SparseToDenseMatMul", ["a", "b"], ["y"], domain="com.microsoft", **attributes)
    inputs = [helper.make_sparse_tensor_value_info("a", element, [4, 5])]
    inputs += [helper.make_tensor_value_info("b", element, ["k", "n"])]
    graph = helper.make_graph([node], "product", inputs, [helper.make_tensor_value_info("y", element, None)])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()


def sparse(module: Any, dtype: Any, kind: str) -> Any:
    device, values = module.OrtDevice.make("cpu", 0), VALUES.astype(dtype)
    make = module.SparseTensor.sparse_coo_from_numpy
    if kind == "rows":
        outer = np.searchsorted(ROWS, np.arange(5))
        made = module.SparseTensor.sparse_csr_from_numpy([4, 5], values, COLUMNS, outer, device)
    elif kind == "linear":
        made = make([4, 5], values, ROWS * 5 + COLUMNS, device)
    else:
        made = make([4, 5], values, np.stack([ROWS, COLUMNS], 1), device)
    return module.OrtValue.ort_value_from_sparse_tensor(made)


def run(module: Any, model: bytes, b: np.ndarray, kind: str) -> np.ndarray:
    session = module.InferenceSession(model, providers=["CPUExecutionProvider"])
    given = {"a": sparse(module, b.dtype, kind), "b": module.OrtValue.ortvalue_from_numpy(b)}
    (y,) = session.run_with_ort_values(["y"], given)
    array: np.ndarray = y.numpy()
    return array


@pytest.mark.parametrize("transposed", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64, np.uint32, np.uint64])
def test_product(dtype: type, transposed: tuple[int, int]) -> None:
    alpha = {"alpha": 0.5} if np.dtype(dtype).kind == "f" else {}
    model = product(
        helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), transA=transposed[0], transB=transposed[1], **alpha
    )
    shape = (4 if transposed[0] else 5, 3)
    b = np.random.default_rng(0).integers(0, 9, shape[::-1] if transposed[1] else shape).astype(dtype)
    expected = run(onnxruntime, model, b, "coordinates")
    for kind in ("coordinates", "rows", "linear"):  # onnxruntime has no kernel for linear indices
        y = run(jitonnx, model, b, kind)
        np.testing.assert_array_equal(y, expected)
        assert y.dtype == dtype


def test_matrices_that_do_not_fit() -> None:
    with pytest.raises(jitonnx.errors.Error, match=r"have no product|do not fit"):
        run(jitonnx, product(TensorProto.FLOAT), np.ones((4, 3), np.float32), "rows")
    session = jitonnx.InferenceSession(product(TensorProto.FLOAT))
    device = jitonnx.OrtDevice.make("cpu", 0)
    outside = jitonnx.SparseTensor.sparse_coo_from_numpy([4, 5], np.array([1], np.float32), np.array([[4, 0]]), device)
    with pytest.raises(jitonnx.errors.Error, match="index of axis 0 is not in a matrix"):
        session.run(None, {"a": outside, "b": np.ones((5, 3), np.float32)})
