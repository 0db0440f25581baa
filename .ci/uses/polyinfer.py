# requires: polyinfer==0.2.0, onnxruntime
import numpy as np
import polyinfer
from _inputs import network

model = polyinfer.load(network("small.onnx"), backend="onnxruntime", device="cpu")
result = model(np.linspace(-1, 1, 48, dtype=np.float32).reshape(3, 16))
