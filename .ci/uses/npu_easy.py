# requires: npu-easy==0.3.0, onnx, onnxruntime
import numpy as np
from _inputs import network
from npu_easy import NPUModel

model = NPUModel(network("small.onnx"))
x = np.linspace(-1, 1, 48, dtype=np.float32).reshape(3, 16)
result = [model.run(x), model.run_named(x), model.get_info()["provider"]]
