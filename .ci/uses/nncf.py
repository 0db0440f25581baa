# requires: nncf==3.4.0, onnx, onnxruntime
import nncf
import numpy as np
import onnx
from _inputs import network
from onnxruntime import InferenceSession

random = np.random.default_rng(0)
model = onnx.load(network("small.onnx", shape=(1, 3, 16, 16)))
pictures = [random.normal(size=(1, 3, 16, 16)).astype(np.float32) for _ in range(8)]
quantized = nncf.quantize(model, nncf.Dataset(pictures, lambda x: {"x": x}), subset_size=8)
result = [
    [node.op_type for node in quantized.graph.node],
    InferenceSession(quantized.SerializeToString()).run(None, {"x": pictures[0]}),
]
TOLERANCE = 2e-2
