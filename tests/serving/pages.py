"""The applications of docs/serving.md."""

from __future__ import annotations

import re
from pathlib import Path


def application(heading: str) -> str:
    """The program below that heading."""
    text = (Path(__file__).resolve().parents[2] / "docs/serving.md").read_text(encoding="utf-8")
    found = re.search(r"^```python\n(.*?)^```$", text.partition(f"\n## {heading}\n")[2], re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]
