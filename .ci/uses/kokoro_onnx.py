# requires: kokoro-onnx==0.6.1, onnx
import numpy as np
import onnx
from kokoro_onnx import Kokoro
from onnx import TensorProto, helper, numpy_helper

# What Kokoro's model has: tokens, a style and a speed; here each token becomes 600 samples.
random = np.random.default_rng(0)
sizes = {"embedding": (256, 64), "toned": (256, 64), "wave": (64, 600)}
graph = helper.make_graph(
    [
        helper.make_node("Gather", ["embedding", "tokens"], ["e"]),
        helper.make_node("MatMul", ["style", "toned"], ["t"]),
        helper.make_node("Add", ["e", "t"], ["a"]),
        helper.make_node("Div", ["a", "speed"], ["s"]),
        helper.make_node("Tanh", ["s"], ["b"]),
        helper.make_node("MatMul", ["b", "wave"], ["w"]),
        helper.make_node("Reshape", ["w", "flat"], ["audio"]),
    ],
    "speech",
    [
        helper.make_tensor_value_info("tokens", TensorProto.INT64, [1, "n"]),
        helper.make_tensor_value_info("style", TensorProto.FLOAT, [1, 256]),
        helper.make_tensor_value_info("speed", TensorProto.FLOAT, [1]),
    ],
    [helper.make_tensor_value_info("audio", TensorProto.FLOAT, ["samples"])],
    [
        *(numpy_helper.from_array(random.normal(size=size).astype(np.float32), name) for name, size in sizes.items()),
        numpy_helper.from_array(np.array([-1]), "flat"),
    ],
)
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), "kokoro.onnx")
np.savez("voices.npz", own=random.normal(size=(510, 1, 256)).astype(np.float32))
kokoro = Kokoro("kokoro.onnx", "voices.npz")
result = [kokoro.create("Hello world. It runs here.", "own", speed=speed) for speed in (1.0, 1.3)]
