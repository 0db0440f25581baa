# requires: occular-deskew==0.5.0
from _inputs import page
from occular_deskew import detect_angle
from PIL import Image

result = [detect_angle(Image.fromarray(page()).rotate(angle, expand=True, fillcolor="white")) for angle in (0, 90, 187)]
