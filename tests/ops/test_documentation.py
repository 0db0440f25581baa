"""The worked example of docs/operators.md is the code that runs."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_example_is_the_code() -> None:
    guide = (ROOT / "docs" / "operators.md").read_text(encoding="utf-8")
    declaration, table, sequence, control, composite, custom, compiled = re.findall(
        r"```python\n(.*?)```", guide, re.DOTALL
    )
    assert declaration in (ROOT / "jitonnx" / "ops" / "onnx" / "normalization.py").read_text(encoding="utf-8")
    assert sequence in (ROOT / "jitonnx" / "ops" / "onnx" / "sequence.py").read_text(encoding="utf-8")
    assert control in (ROOT / "jitonnx" / "ops" / "onnx" / "control_flow.py").read_text(encoding="utf-8")
    assert composite in (ROOT / "jitonnx" / "ops" / "microsoft" / "activation.py").read_text(encoding="utf-8")
    assert custom in (ROOT / "tests" / "session" / "test_custom_operators.py").read_text(encoding="utf-8")
    assert compiled in (ROOT / "tests" / "session" / "test_compiled_functions.py").read_text(encoding="utf-8")
    cases = (ROOT / "tests" / "ops" / "onnx" / "test_normalization.py").read_text(encoding="utf-8")
    assert all(line in cases for line in table.splitlines())
