"""The worked examples of docs/operators.md are code that runs."""

import math
import re
from pathlib import Path

import numba
import numpy as np

import jitonnx
from tests.session.models import node, proto, tensor

ROOT = Path(__file__).resolve().parents[2]


def examples() -> list[str]:
    guide = (ROOT / "docs" / "operators.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", guide, re.DOTALL)


def test_the_example_is_the_code() -> None:
    declaration, table, sequence, control, composite, custom, _, compiled, kernel, _ = examples()
    assert declaration in (ROOT / "jitonnx" / "ops" / "onnx" / "normalization.py").read_text(encoding="utf-8")
    assert sequence in (ROOT / "jitonnx" / "ops" / "onnx" / "sequence.py").read_text(encoding="utf-8")
    assert control in (ROOT / "jitonnx" / "ops" / "onnx" / "control_flow.py").read_text(encoding="utf-8")
    assert composite in (ROOT / "jitonnx" / "ops" / "microsoft" / "activation.py").read_text(encoding="utf-8")
    assert custom in (ROOT / "tests" / "session" / "test_custom_operators.py").read_text(encoding="utf-8")
    assert compiled in (ROOT / "tests" / "session" / "test_compiled_functions.py").read_text(encoding="utf-8")
    assert kernel in (ROOT / "tests" / "session" / "test_user_kernels.py").read_text(encoding="utf-8")
    cases = (ROOT / "tests" / "ops" / "onnx" / "test_normalization.py").read_text(encoding="utf-8")
    assert all(line in cases for line in table.splitlines())


def test_the_function_that_numba_compiles_runs() -> None:
    """It stays registered: no other model of the tests has its domain."""
    exec(examples()[6], {"__name__": "example", "jitonnx": jitonnx, "numba": numba, "math": math, "np": np})
    made = proto([node("Snake", ["x"], ["y"], domain="my.domain", alpha=0.5)], [tensor("x")], [tensor("y")])
    made.opset_import.add(domain="my.domain", version=1)
    x = np.linspace(-6, 2, 12).astype(np.float32).reshape(4, 3)
    (y,) = jitonnx.InferenceSession(made.SerializeToString()).run(None, {"x": x})
    expected = np.where(x > -4, x + np.sin(0.5 * x) ** 2 / 0.5, x * np.exp(x + 4))
    np.testing.assert_allclose(y, expected, 1e-5, 1e-6)
