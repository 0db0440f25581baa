"""The nine light models of the onnx package, evaluated on NumPy, against the outputs stored beside them.

Their weights are made by ConstantOfShape, and their input is the ramp that onnx's own test runner feeds them.
"""

from pathlib import Path

import numpy as np
import onnx.backend.test
import pytest
from onnx import TensorProto, numpy_helper

from jitonnx.engine.interpreter import evaluate
from jitonnx.model import load

LIGHT = Path(onnx.backend.test.__file__).parent / "data" / "light"
MODELS = sorted(path.stem for path in LIGHT.glob("*.onnx"))


def test_there_are_nine() -> None:
    assert len(MODELS) == 9


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", MODELS)
def test_light_model(name: str) -> None:
    graph = load(LIGHT / f"{name}.onnx").graph
    (value,) = graph.inputs
    shape = tuple(map(int, value.shape))  # type: ignore[arg-type]
    size = np.prod(shape)
    ramp = (np.arange(size) / size).astype(np.float32).reshape(shape)
    (result,) = evaluate(graph, {value.name: ramp})
    stored = TensorProto.FromString((LIGHT / f"{name}_output_0.pb").read_bytes())
    np.testing.assert_allclose(result, numpy_helper.to_array(stored), rtol=1e-4, atol=1e-7)
