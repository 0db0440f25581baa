# requires: onnxslim
from _inputs import network
from onnxslim import slim

slimmed = slim(network("small.onnx"), model_check=True)
result = [node.op_type for node in slimmed.graph.node]
