# requires: onnxmltools==1.16.0, lightgbm, scikit-learn
import numpy as np
from lightgbm import LGBMRegressor
from onnxmltools import convert_lightgbm
from onnxmltools.convert.common.data_types import FloatTensorType
from onnxruntime import InferenceSession

random = np.random.default_rng(0)
X = random.normal(size=(300, 6)).astype(np.float32)
model = LGBMRegressor(n_estimators=20, verbose=-1).fit(X, X[:, 0] * 2 + X[:, 1] ** 2)
converted = convert_lightgbm(model, initial_types=[("x", FloatTensorType([None, 6]))], target_opset=15)
result = InferenceSession(converted.SerializeToString()).run(None, {"x": X})
