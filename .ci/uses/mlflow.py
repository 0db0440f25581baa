# requires: mlflow-skinny, onnx, pandas
import mlflow.onnx
import numpy as np
import onnx
from _inputs import network

mlflow.onnx.save_model(onnx.load(network("small.onnx")), "saved")
result = mlflow.pyfunc.load_model("saved").predict(np.linspace(-1, 1, 48, dtype=np.float32).reshape(3, 16))
