"""What an installed wheel has to do under every Python: run, compare with NumPy, save, open, start from the cache."""

import os
import subprocess
import sys
import tempfile

import numpy as np

import jitonnx
from jitonnx.engine.interpreter import evaluate
from jitonnx.model import load
from jitonnx.tools import demo

images, labels = demo.test_images()
graph = load(demo.model_path()).graph
session = jitonnx.InferenceSession(demo.model_path())
for batch in (1, 3, len(images)):
    (result,) = session.run(None, {"image": images[:batch]})
    (expected,) = evaluate(graph, {"image": images[:batch]})
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-6)
try:
    session.run(None, {"image": images.astype(np.float64)})
except jitonnx.Error as error:
    assert "image" in str(error), error
else:
    raise AssertionError("doubles were taken for floats")
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "digits.jitonnx")
    session.save(path, {"image": images[:3].shape})
    np.testing.assert_array_equal(
        jitonnx.load(path).run(None, {"image": images[:3]})[0], session.run(None, {"image": images[:3]})[0]
    )
    page = os.path.join(folder, "page.html")
    subprocess.run([sys.executable, "-m", "jitonnx", "explain", str(demo.model_path()), "--html", page], check=True)
    assert os.path.getsize(page) > 10_000
print(f"Python {sys.version.split()[0]}: {jitonnx.get_build_info()}")
