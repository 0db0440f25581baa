# requires: qonnx==1.0.0
import numpy as np
from _inputs import network
from qonnx.core.modelwrapper import ModelWrapper
from qonnx.core.onnx_exec import execute_onnx
from qonnx.transformation.infer_shapes import InferShapes

model = ModelWrapper(network("small.onnx")).transform(InferShapes())
model.set_tensor_shape("x", [3, 16])
result = execute_onnx(model, {"x": np.linspace(-1, 1, 48, dtype=np.float32).reshape(3, 16)})
