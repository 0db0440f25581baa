"""The onnx package's own node tests through sessions: compiled as users run them, and compared."""

from __future__ import annotations

import numpy as np
import pytest

from jitonnx import InferenceSession
from jitonnx.ir.dtypes import of_numpy
from tests.model.test_node_models import DISPUTED, arrays, assert_close, loaded, node_tests

ROUNDED_ONCE = 0.05
"""Relative tolerance for half precision: fused operators round once where what they stand for rounds at each step."""


@pytest.mark.parametrize("name", sorted(set(node_tests()) - set(DISPUTED)))
def test_node(name: str) -> None:
    if loaded(name) is None:
        return
    test = node_tests()[name]
    session = InferenceSession(test.model.SerializeToString())
    for inputs, outputs in test.data_sets:
        names = [value.name for value in test.model.graph.input]
        feeds = dict(zip(names, arrays(inputs), strict=False))
        for result, expected in zip(session.run(None, feeds), arrays(outputs), strict=True):
            if isinstance(expected, np.ndarray) and of_numpy(expected.dtype).name in ("FLOAT16", "BFLOAT16"):
                assert result.dtype == expected.dtype
                np.testing.assert_allclose(
                    result.astype(np.float32), expected.astype(np.float32), ROUNDED_ONCE, ROUNDED_ONCE
                )
            else:
                assert_close(result, expected, test)
