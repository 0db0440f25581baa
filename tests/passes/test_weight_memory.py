"""What rewrites leave in memory of a model's file: nothing of the weights that others now stand for."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from jitonnx.model.load import load
from jitonnx.passes.pipeline import optimize

K, N = 512, 1024
WEIGHT_BYTES = 4 * K * N


def _scaled(nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray]) -> None:
    nodes.append(helper.make_node("MatMul", ["x", "w0"], ["product"]))
    nodes.append(helper.make_node("Mul", ["product", "scale"], ["y"]))
    weights["scale"] = np.linspace(1, 2, N).astype(np.float32)


def _side_by_side(nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray]) -> None:
    nodes += [helper.make_node("MatMul", ["x", f"w{i}"], [f"product{i}"]) for i in range(3)]
    nodes.append(helper.make_node("Max", [f"product{i}" for i in range(3)], ["y"]))


def _normalised(nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray]) -> None:
    nodes.append(helper.make_node("Gemm", ["x", "w0"], ["product"], alpha=0.5))
    nodes.append(helper.make_node("BatchNormalization", ["product", *(f"n{i}" for i in range(4))], ["y"]))
    weights.update({f"n{i}": np.linspace(1, 2, N).astype(np.float32) for i in range(4)})


def _file_bytes_in_memory(path: Path) -> int:
    """Resident bytes of a file's mappings in this process."""
    found = re.findall(rf"{re.escape(str(path))}\n(?:\S.*\n)*?Rss:\s+(\d+) kB", Path("/proc/self/smaps").read_text())
    return 1024 * sum(map(int, found))


@pytest.mark.skipif(sys.platform != "linux", reason="pages are given back on Linux")
@pytest.mark.parametrize("build", [_scaled, _side_by_side, _normalised])
def test_rewritten_weights_do_not_keep_the_file_in_memory(build, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weights = {f"w{i}": rng.normal(size=(K, N)).astype(np.float32) for i in range(3)}
    nodes: list[onnx.NodeProto] = []
    build(nodes, weights)
    used = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, K])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, N])],
        [numpy_helper.from_array(array, name) for name, array in weights.items() if name in used],
    )
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    rewritten = load(path).graph
    given = [value for node in rewritten for value in node.inputs]  # keeps the file mapped
    assert optimize(rewritten).applied
    assert _file_bytes_in_memory(path) < WEIGHT_BYTES // 4
    assert len(given) > 1
