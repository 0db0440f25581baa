# requires: polygraphy, onnx
import numpy as np
from _inputs import network
from polygraphy.backend.onnxrt import OnnxrtRunner, SessionFromOnnx

with OnnxrtRunner(SessionFromOnnx(network("small.onnx"))) as runner:
    outputs = runner.infer({"x": np.linspace(-1, 1, 48, dtype=np.float32).reshape(3, 16)})
    result = [dict(outputs), {name: list(map(str, told)) for name, told in runner.get_input_metadata().items()}]
