"""Repeated tensors: every version, no repeats."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from jitonnx import InferenceSession
from tests.ops.harness import Case, case, check, each_version, ints

RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(3, 4, 5)).astype(np.float32)


CASES: list[Case] = [
    case(
        "Tile",
        1,
        X,
        np.array([2], np.float32),
        np.array([1], np.float32),
        constants=(1, 2),
        expected=np.tile(X, (1, 2, 1)),
    ),
    *each_version("Tile", X, ints(2, 1, 3), since=6, constants=(1,)),
    case("Tile", 13, X, ints(1, 0, 2), constants=(1,)),
    case("Tile", 13, X, ints(1, 2, 1)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_tile(case: Case) -> None:
    check(case)


def test_a_scalar_and_repeats_of_an_open_length() -> None:
    graph = helper.make_graph(
        [helper.make_node("Tile", ["x", "repeats"], ["y"])],
        "tile",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, []),
            helper.make_tensor_value_info("repeats", TensorProto.INT64, ["axes"]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=10)
    (y,) = InferenceSession(model.SerializeToString()).run(None, {"x": np.float32(3), "repeats": ints()})
    assert y.shape == () and y == 3
