# requires: rapidocr==3.10.0, pillow
from _inputs import page
from rapidocr import RapidOCR

found = RapidOCR()(page())
result = [found.boxes, found.txts, found.scores]
