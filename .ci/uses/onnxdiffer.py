# requires: onnxdiffer==0.1.2, onnx, onnxruntime
from _inputs import network
from onnxdiff import differ

result = differ(network("one.onnx"), network("two.onnx"))
