"""Benchmark models, compiled, against their evaluation on NumPy: where onnxruntime is not at hand.

python .ci/models.py mlp_tiny squeezenet1_1
"""

import sys

import numpy as np

import jitonnx
from bench import zoo
from bench.models import difference
from jitonnx.engine.interpreter import evaluate
from jitonnx.model import load

LARGEST = 1e-4

for name in sys.argv[1:]:
    source, feeds = zoo.model(name).SerializeToString(), zoo.feeds(name)
    options = jitonnx.SessionOptions()
    options.intra_op_num_threads = 1
    outputs = jitonnx.InferenceSession(source, options).run(None, feeds)
    expected = [np.asarray(array) for array in evaluate(load(source).graph, feeds)]
    apart = difference(outputs, expected)
    print(f"{name}: {apart:.1e}", flush=True)
    if not apart <= LARGEST:
        sys.exit(f"{name} differs from NumPy by {apart:.1e} of its largest value; {LARGEST} is allowed")
