# requires: leafparity==0.1.2, onnxmltools, lightgbm, scikit-learn
import numpy as np
from leafparity import analyze
from lightgbm import LGBMRegressor
from onnxmltools import convert_lightgbm
from onnxmltools.convert.common.data_types import FloatTensorType

random = np.random.default_rng(0)
X = random.normal(size=(300, 6))
model = LGBMRegressor(n_estimators=8, num_leaves=6, verbose=-1).fit(X, X[:, 0] * 2 + X[:, 1] ** 2)
converted = convert_lightgbm(model, initial_types=[("x", FloatTensorType([None, 6]))], target_opset=15)
with open("model.onnx", "wb") as file:
    file.write(converted.SerializeToString())
result = analyze(model, "model.onnx", background=X).to_summary_dict()
result.pop("run_seconds")
