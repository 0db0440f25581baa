# requires: spox==0.18.0
import numpy as np
import spox.opset.ai.onnx.v17 as op
from onnxruntime import InferenceSession
from spox import Tensor, argument, build
from spox._future import ValuePropBackend, set_value_prop_backend

set_value_prop_backend(ValuePropBackend.ONNXRUNTIME)
folded = op.add(op.const(np.arange(4.0)), op.const(2.5))
x = argument(Tensor(np.float64, ("n", 4)))
model = build({"x": x}, {"y": op.mul(x, folded)})
result = [folded._get_value(), InferenceSession(model.SerializeToString()).run(None, {"x": np.ones((2, 4))})]
