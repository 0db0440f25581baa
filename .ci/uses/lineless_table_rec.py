# requires: lineless-table-rec==0.0.1, rapidocr-onnxruntime==1.4.4, pillow
import cv2
from _inputs import table
from lineless_table_rec import LinelessTableRecognition

cv2.imwrite("table.png", table())
result = LinelessTableRecognition()("table.png")[0]
