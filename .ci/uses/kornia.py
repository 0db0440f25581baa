# requires: kornia==0.9.0, torch, onnx
import numpy as np
from _inputs import network, photo
from kornia.onnx import ONNXSequential

first = network("first.onnx", shape=(1, 3, 24, 32))
second = network("second.onnx", shape=(1, 1, 24, 32))
picture = photo((32, 24)).astype(np.float32).transpose(2, 0, 1)[None] / 255
result = ONNXSequential(first, second, io_maps=[[("y", "x")]])(picture)
