# requires: yolov8-onnx==1.0.4, onnx
import numpy as np
import onnx
from _inputs import photo
from onnx import TensorProto, helper, numpy_helper
from yolov8_onnx import DetectEngine

# What YOLOv8 returns of a picture: for each cell of a grid the middle and size of a box and the scores of classes.
random = np.random.default_rng(0)
sizes = {"conv": (16, 3, 8, 8), "box": (4, 16, 1, 1), "class": (3, 16, 1, 1)}
graph = helper.make_graph(
    [
        helper.make_node("Conv", ["images", "conv"], ["a"], strides=[32, 32]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "box"], ["c"]),
        helper.make_node("Sigmoid", ["c"], ["d"]),
        helper.make_node("Mul", ["d", "side"], ["boxes"]),
        helper.make_node("Conv", ["b", "class"], ["e"]),
        helper.make_node("Sigmoid", ["e"], ["classes"]),
        helper.make_node("Concat", ["boxes", "classes"], ["all"], axis=1),
        helper.make_node("Reshape", ["all", "flat"], ["output0"]),
    ],
    "detector",
    [helper.make_tensor_value_info("images", TensorProto.FLOAT, [1, 3, "height", "width"])],
    [helper.make_tensor_value_info("output0", TensorProto.FLOAT, [1, 7, "cells"])],
    [
        *(numpy_helper.from_array((random.normal(size=size) * 0.2).astype(np.float32), n) for n, size in sizes.items()),
        numpy_helper.from_array(np.float32(320), "side"),
        numpy_helper.from_array(np.array([1, 7, -1]), "flat"),
    ],
)
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), "yolo.onnx")
result = DetectEngine("yolo.onnx", image_size=320, conf_thres=0.1, iou_thres=0.5)(photo())
