# requires: onnxruntime-easy==0.1.2, onnx, ml-dtypes
import numpy as np
import onnxruntime_easy
from _inputs import network

model = onnxruntime_easy.load(network("small.onnx"), device="cpu")
x = onnxruntime_easy.ort_value(np.linspace(-1, 1, 48, dtype=np.float32).reshape(3, 16))
result = [np.asarray(value) for value in model(x)]
