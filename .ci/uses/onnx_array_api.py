# requires: onnx-array-api, onnxruntime, pandas
import numpy as np
import onnx
from _inputs import network
from onnx_array_api.ort.ort_profile import ort_profile

x = np.linspace(-1, 1, 48, dtype=np.float32).reshape(3, 16)
told = ort_profile(onnx.load(network("small.onnx")), {"x": x}, repeat=3)
result = sorted({name for name in told["args_op_name"].dropna()} if "args_op_name" in told else told.columns)
