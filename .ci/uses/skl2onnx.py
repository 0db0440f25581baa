# requires: skl2onnx==1.20.0, scikit-learn>=1.7, pillow
import numpy as np
from onnxruntime import InferenceSession
from skl2onnx import to_onnx
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

X, y = load_iris(return_X_y=True)
X = X.astype(np.float32)
result = []
for model in (RandomForestClassifier(20, random_state=0), make_pipeline(StandardScaler(), LogisticRegression())):
    converted = to_onnx(model.fit(X, y), X[:1], options={"zipmap": False})
    result.append(InferenceSession(converted.SerializeToString()).run(None, {"X": X}))
