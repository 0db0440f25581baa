# requires: hummingbird-ml==0.4.12, torch, scikit-learn<1.6, onnx, onnxscript>=0.7
import numpy as np
from hummingbird.ml import convert
from sklearn.ensemble import GradientBoostingClassifier

random = np.random.default_rng(0)
X = random.normal(size=(200, 8)).astype(np.float32)
model = GradientBoostingClassifier(n_estimators=10, random_state=0).fit(X, (X[:, 0] > 0).astype(int))
converted = convert(model, "onnx", X)
result = [converted.predict(X), converted.predict_proba(X)]
