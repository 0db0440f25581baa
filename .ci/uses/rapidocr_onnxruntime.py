# requires: rapidocr-onnxruntime==1.4.4, pillow
from _inputs import page
from rapidocr_onnxruntime import RapidOCR

result = RapidOCR()(page())[0]
