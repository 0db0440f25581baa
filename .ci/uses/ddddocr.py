# requires: ddddocr==1.6.1
import cv2
import ddddocr
from _inputs import page

picture = cv2.imencode(".png", page("7x4K9", (200, 100)))[1].tobytes()
result = [
    ddddocr.DdddOcr(show_ad=False).classification(picture),
    ddddocr.DdddOcr(show_ad=False, old=True).classification(picture),
    ddddocr.DdddOcr(det=True, show_ad=False).detection(picture),
]
