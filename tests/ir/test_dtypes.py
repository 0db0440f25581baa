"""Element types: what is known of them without ml_dtypes, which models of usual types do without."""

import subprocess
import sys

import pytest

from jitonnx.ir.dtypes import DType
from tests.session.models import relu_add

_WITHOUT = """
import sys
sys.modules["ml_dtypes"] = None                    # importing it fails
import jitonnx
session = jitonnx.InferenceSession(bytes.fromhex(sys.argv[1]))
print(session.run(None, {"x": [[1.0, -2.0, 3.0]]})[0].tolist())
assert "importlib.metadata" not in sys.modules     # it takes longer than all that a warm session imports
"""


@pytest.mark.parametrize("dtype", DType)
def test_bytes_of_an_element(dtype: DType) -> None:
    assert dtype.itemsize == dtype.numpy.itemsize


def test_a_session_without_ml_dtypes() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _WITHOUT, relu_add().hex()], capture_output=True, text=True, timeout=120
    )
    assert ran.stdout == "[[2.0, 2.0, 6.0]]\n", ran.stderr
