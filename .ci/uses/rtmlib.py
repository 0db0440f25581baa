# requires: rtmlib==0.0.16, onnx
import numpy as np
import onnx
from _inputs import photo
from onnx import TensorProto, helper, numpy_helper
from rtmlib import RTMPose

# What RTMPose returns of a picture: for each of 17 points, how likely each half pixel of a row and of a column is.
random = np.random.default_rng(0)
sizes = {"conv": (17, 3, 5, 5), "row": (24 * 32, 96), "column": (24 * 32, 128)}
graph = helper.make_graph(
    [
        helper.make_node("Conv", ["x", "conv"], ["a"], strides=[2, 2], pads=[2, 2, 2, 2]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Reshape", ["b", "flat"], ["d"]),
        helper.make_node("MatMul", ["d", "row"], ["simcc_x"]),
        helper.make_node("MatMul", ["d", "column"], ["simcc_y"]),
    ],
    "pose",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 64, 48])],
    [helper.make_tensor_value_info(f"simcc_{axis}", TensorProto.FLOAT, ["n", 17, None]) for axis in "xy"],
    [
        *(numpy_helper.from_array(random.normal(size=size).astype(np.float32), name) for name, size in sizes.items()),
        numpy_helper.from_array(np.array([0, 17, -1]), "flat"),
    ],
)
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), "pose.onnx")
pose = RTMPose("pose.onnx", model_input_size=(48, 64), backend="onnxruntime")
result = pose(photo(), [[20, 10, 200, 220], [100, 40, 310, 230]])
