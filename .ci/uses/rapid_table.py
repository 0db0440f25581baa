# requires: rapid-table==0.2.0, rapidocr-onnxruntime==1.4.4, pillow
from _inputs import table
from rapid_table import RapidTable

html, boxes, *_ = RapidTable()(table())
result = [html, boxes]
