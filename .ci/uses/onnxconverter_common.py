# requires: onnxconverter-common, onnx
import numpy as np
import onnx
from _inputs import network
from onnxconverter_common.auto_mixed_precision import auto_convert_mixed_precision
from onnxruntime import InferenceSession

x = np.random.default_rng(0).normal(size=(3, 16)).astype(np.float32)
mixed = auto_convert_mixed_precision(
    onnx.load(network("small.onnx")), {"x": x}, rtol=0.1, atol=0.05, keep_io_types=True
)
result = InferenceSession(mixed.SerializeToString()).run(None, {"x": x})
TOLERANCE = 1e-2
