"""The nine light models of the onnx package, compiled, against the outputs stored beside them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx.backend.test
import pytest
from onnx import TensorProto, numpy_helper

import jitonnx

LIGHT = Path(onnx.backend.test.__file__).parent / "data" / "light"
MODELS = sorted(path.stem for path in LIGHT.glob("*.onnx"))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", MODELS)
def test_light_model(name: str) -> None:
    session = jitonnx.InferenceSession(LIGHT / f"{name}.onnx")
    (declared,) = session.get_inputs()
    size = np.prod(declared.shape)
    ramp = (np.arange(size) / size).astype(np.float32).reshape(declared.shape)  # what onnx's own runner feeds
    (result,) = session.run(None, {declared.name: ramp})
    stored = numpy_helper.to_array(TensorProto.FromString((LIGHT / f"{name}_output_0.pb").read_bytes()))
    np.testing.assert_allclose(result, stored, rtol=1e-3, atol=1e-7)
    assert session.engine.schedule is None, "a node was left to NumPy"
