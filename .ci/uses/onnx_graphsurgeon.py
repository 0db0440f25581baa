# requires: onnx-graphsurgeon==0.6.1
import numpy as np
import onnx
import onnx_graphsurgeon as gs
from onnx import TensorProto, helper, numpy_helper

graph = helper.make_graph(
    [
        helper.make_node("Transpose", ["w"], ["t"]),
        helper.make_node("Softmax", ["t"], ["s"], axis=1),
        helper.make_node("Shape", ["s"], ["n"]),
        helper.make_node("ConstantOfShape", ["n"], ["c"], value=numpy_helper.from_array(np.float32([2]))),
        helper.make_node("Mul", ["s", "c"], ["m"]),
        helper.make_node("MatMul", ["x", "m"], ["y"]),
    ],
    "foldable",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 6])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 5])],
    [numpy_helper.from_array(np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32), "w")],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
folded = gs.export_onnx(gs.import_onnx(model).fold_constants().cleanup())
onnx.checker.check_model(folded)
result = [
    [node.op_type for node in folded.graph.node],
    [numpy_helper.to_array(tensor) for tensor in folded.graph.initializer],
]
