"""FlexAttention with graphs of all kinds against onnx's reference: evaluated, rewritten, compiled for open sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from jitonnx import GraphOptimizationLevel, InferenceSession, SessionOptions, errors
from jitonnx.engine.interpreter import evaluate
from jitonnx.model import load

RANDOM = np.random.default_rng(0)
TYPES = {np.float32: TensorProto.FLOAT, np.float64: TensorProto.DOUBLE, np.float16: TensorProto.FLOAT16}


def graph(nodes: Sequence[onnx.NodeProto], kind: int = TensorProto.FLOAT) -> onnx.GraphProto:
    """A graph from `a` to `b`."""
    inputs, outputs = ([helper.make_tensor_value_info(name, kind, [None] * 4)] for name in "ab")
    return helper.make_graph(list(nodes), "body", inputs, outputs)


def constant(name: str, value: Any) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(np.asarray(value)))


CAPPED = [
    constant("c", np.float32(5)),
    *(helper.make_node(*n) for n in (("Div", ["a", "c"], ["d"]), ("Tanh", ["d"], ["t"]))),
]
CAPPED += [helper.make_node("Mul", ["t", "c"], ["b"])]
BIASED = [helper.make_node("Add", ["a", "bias"], ["b"])]
HALVED = [constant("h", np.float32(0.5)), helper.make_node("Mul", ["a", "h"], ["b"])]


def model(dtype: Any = np.float32, heads: tuple[Any, Any] = (4, 2), bias: bool = False, **attributes: Any) -> bytes:
    kind = TYPES[dtype]
    node = helper.make_node("FlexAttention", ["q", "k", "v"], ["y"], domain="ai.onnx.preview", **attributes)
    inputs = [
        helper.make_tensor_value_info("q", kind, ["batch", heads[0], "rows", 8]),
        helper.make_tensor_value_info("k", kind, ["batch", heads[1], "columns", 8]),
        helper.make_tensor_value_info("v", kind, ["batch", heads[1], "columns", 6]),
    ]
    if bias:
        inputs.append(helper.make_tensor_value_info("bias", kind, ["rows", "columns"]))
    made = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", kind, None)])
    opsets = [helper.make_opsetid("", 24), helper.make_opsetid("ai.onnx.preview", 1)]
    return helper.make_model(made, opset_imports=opsets, ir_version=11).SerializeToString()


def feeds(dtype: Any, rows: int, columns: int, bias: bool) -> dict[str, np.ndarray]:
    shapes = {"q": (2, 4, rows, 8), "k": (2, 2, columns, 8), "v": (2, 2, columns, 6), "bias": (rows, columns)}
    made = {name: RANDOM.normal(size=shape).astype(dtype) for name, shape in shapes.items()}
    return made if bias else {name: x for name, x in made.items() if name != "bias"}


@pytest.mark.parametrize("level", [0, 99])
@pytest.mark.parametrize(
    ("dtype", "attributes"),
    [
        (np.float32, {}),
        (np.float32, {"scale": 0.25, "score_mod": graph(CAPPED)}),
        (np.float32, {"score_mod": graph(BIASED)}),
        (np.float32, {"prob_mod": graph(HALVED), "score_mod": graph(CAPPED)}),
        (np.float16, {"score_mod": graph(CAPPED), "softmax_precision": 1}),
        (np.float64, {}),
    ],
    ids=["plain", "capped", "bias from outside", "both", "half", "double"],
)
def test_against_the_reference(dtype: Any, attributes: dict[str, Any], level: int) -> None:
    bias = "bias" in str(attributes.get("score_mod"))
    data = model(dtype, bias=bias, **attributes)
    options = SessionOptions()
    options.graph_optimization_level = GraphOptimizationLevel(level)
    session = InferenceSession(data, options)
    tolerance = {np.float16: 1e-2, np.float32: 1e-5, np.float64: 1e-6}[dtype]  # the reference scales in float32
    for rows, columns in ((3, 5), (1, 1), (7, 2)):
        given = feeds(dtype, rows, columns, bias)
        if bias:  # which the reference does not see from within the graph
            scores = np.einsum("bhgsd,bhtd->bhgst", given["q"].reshape(2, 2, 2, rows, 8), given["k"]) / np.sqrt(8)
            weights = np.exp(scores + given["bias"])
            weights /= weights.sum(axis=-1, keepdims=True)
            expected = np.einsum("bhgst,bhtd->bhgsd", weights, given["v"]).reshape(2, 4, rows, 6)
        else:
            (expected,) = ReferenceEvaluator(onnx.load_from_string(data)).run(None, given)
        for result in (session.run(None, given)[0], evaluate(load(data).graph, given)[0]):
            assert result.dtype == dtype
            np.testing.assert_allclose(result, expected, tolerance, tolerance)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (model(heads=(3, 2)), "3 heads of Q do not divide among 2"),
        (
            model(score_mod=graph([helper.make_node("Cast", ["a"], ["b"], to=11)])),
            r"Type \(tensor\(double\)\) of output arg \(b\)",
        ),
        (model(prob_mod=graph([helper.make_node("Transpose", ["a"], ["b"], perm=[2, 1, 0, 3])])), "prob_mod gives"),
        (model(softmax_precision=7), "softmax_precision is 7"),
    ],
    ids=["heads", "type", "shape", "precision"],
)
def test_refused(data: bytes, text: str) -> None:
    with pytest.raises(errors.Error, match=text):
        InferenceSession(data).run(None, feeds(np.float32, 3, 5, False))
