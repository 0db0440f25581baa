# requires: sit4onnx==1.0.10, onnx, onnxruntime
import numpy as np
from _inputs import network
from sit4onnx import inference

x = np.linspace(-1, 1, 48, dtype=np.float32).reshape(3, 16)
result = inference(
    network("small.onnx"),
    test_loop_count=2,
    onnx_execution_provider="cpu",
    numpy_ndarrays_for_testing=[x],
    non_verbose=True,
)
