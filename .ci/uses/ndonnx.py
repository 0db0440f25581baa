# requires: ndonnx==0.23.0
import ndonnx as nd
import numpy as np
from onnxruntime import InferenceSession

x = nd.asarray(np.random.default_rng(0).normal(size=(6, 5)))
names = nd.asarray(np.array(["one", "two", "three"]))
values = [
    nd.sum(x, axis=0),
    nd.std(x),
    nd.argsort(x, axis=1),
    nd.cumulative_sum(x, axis=0),
    nd.where(x > 0, x, nd.exp(x)),
    nd.unique_values(nd.astype(nd.round(x * 2), nd.int64)),
    names + nd.asarray(np.array("!")),
]
given = nd.argument(shape=("n", 5), dtype=nd.float64)
made = nd.build({"x": given}, {"y": nd.mean(given, axis=1) * 2})
ran = InferenceSession(made.SerializeToString())
result = [value.unwrap_numpy() for value in values]
result.append(ran.run(None, {one.name: np.ones((2, 5)) for one in ran.get_inputs()}))
