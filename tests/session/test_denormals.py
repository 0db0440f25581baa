"""`session.set_denormal_as_zero`: in every thread of a run, and in no other code."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import jitonnx
from jitonnx.errors import InvalidArgument
from tests.targets import named, skip_unless_run_here

SMALL = np.float32(1e-39)
ENTRY = "session.set_denormal_as_zero"


def model(shape: list[Any]) -> bytes:
    """x * 1.5 + x, and rows times a matrix: kernels of both kinds, enough for two threads."""
    matrix = np.eye(64, dtype=np.float32)
    nodes = [
        helper.make_node("Mul", ["x", "factor"], ["scaled"]),
        helper.make_node("Add", ["scaled", "x"], ["y"]),
        helper.make_node("MatMul", ["x", "matrix"], ["z"]),
    ]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "yz"]
    constants = [
        helper.make_tensor("factor", TensorProto.FLOAT, (), [1.5]),
        helper.make_tensor("matrix", TensorProto.FLOAT, matrix.shape, matrix.ravel()),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    graph = helper.make_graph(nodes, "denormals", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def options(zeros: str | None, threads: int) -> jitonnx.SessionOptions:
    made = jitonnx.SessionOptions()
    made.intra_op_num_threads = threads
    if zeros is not None:
        made.add_session_config_entry(ENTRY, zeros)
    return made


@pytest.mark.parametrize("shape", [[4096, 64], ["n", 64]], ids=["fixed", "open"])
@pytest.mark.parametrize("threads", [1, 2])
def test_denormals_as_zero(shape: list[Any], threads: int) -> None:
    x = np.full((4096, 64), SMALL)
    flushing = jitonnx.InferenceSession(model(shape), options("1", threads))
    keeping = [jitonnx.InferenceSession(model(shape), options(zeros, threads)) for zeros in ("0", None)]
    for _ in range(3):
        assert all(np.all(result == 0) for result in flushing.run(None, {"x": x}))
        for session in keeping:
            y, z = session.run(None, {"x": x})
            np.testing.assert_allclose(y, 2.5 * SMALL, rtol=1e-5)
            np.testing.assert_array_equal(z, x)
        assert SMALL * np.float32(0.5) > 0, "the state of this thread is as it was"


def test_denormals_as_zero_in_artifacts(tmp_path: Path) -> None:
    path = tmp_path / "denormals.jitonnx"
    jitonnx.InferenceSession(model([8, 64]), options(None, 1)).save(path)
    (y, z) = jitonnx.load(path, options("1", 1)).run(None, {"x": np.full((8, 64), SMALL)})
    assert not y.any() and not z.any()


@pytest.mark.parametrize("cpu", ["host", "haswell", "x86-64-v2"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("shape", "axis"), [((64, 200), -1), ((7, 33), -1), ((3, 5000), -1), ((2, 21, 40), 1)])
def test_softmax_gives_no_denormals(shape: tuple[int, ...], axis: int, dtype: Any, cpu: str) -> None:
    """Exponentials differ by more than there are normal numbers; what is above these as often as there are elements is
    exact."""
    skip_unless_run_here(named(cpu))
    info = np.finfo(dtype)
    x = np.random.default_rng(1).uniform(1.2 * np.log(info.tiny), 0, shape).astype(dtype)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        [helper.make_node("Softmax", ["x"], ["y"], axis=axis)],
        "softmax",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", kind, shape)],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    chosen = options(None, 1)
    chosen.add_session_config_entry("jitonnx.cpu", cpu)
    (y,) = jitonnx.InferenceSession(proto.SerializeToString(), chosen).run(None, {"x": x})
    assert not np.any((y != 0) & (np.abs(y) < info.tiny))
    exact = np.exp(x.astype(np.longdouble))
    exact = exact / exact.sum(axis, keepdims=True)
    clear = exact > 2 * info.tiny * shape[axis]
    np.testing.assert_allclose(y[clear], exact[clear].astype(dtype), rtol=50 * info.eps)
    assert not y[exact < info.tiny / 2].any()


def test_another_word_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="give '0' or '1'"):
        jitonnx.InferenceSession(model([8, 64]), options("yes", 1))
