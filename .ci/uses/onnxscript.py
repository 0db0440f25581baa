# requires: onnxscript==0.7.2
import numpy as np
from onnxscript import FLOAT, script
from onnxscript import opset18 as op


@script()
def softshrink(x: FLOAT["N", "M"]) -> FLOAT["N", "M"]:  # noqa: F821
    least = op.CastLike(0.5, x)
    return op.Where(op.Abs(x) > least, x - op.Sign(x) * least, op.CastLike(0.0, x))


x = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)
result = [softshrink(x), op.Softmax(x, axis=0), op.TopK(x, np.array([3]))]
