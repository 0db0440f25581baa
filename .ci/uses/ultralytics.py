# requires: ultralytics, torchvision, onnx, onnxslim, pillow
import os

os.environ["YOLO_AUTOINSTALL"] = "false"
import torch
from _inputs import photo
from ultralytics import YOLO

torch.manual_seed(0)
file = YOLO("yolov8n.yaml").export(format="onnx", imgsz=160, opset=17, simplify=False)
found = YOLO(file, task="detect").predict(photo((160, 160)), imgsz=160, conf=0.0001, verbose=False)[0]
result = [found.boxes.xyxy, found.boxes.conf, found.boxes.cls]
