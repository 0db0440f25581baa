"""Write docs/conformance.md: what ONNX's documents ask of readers of models, and the tests that show it.

python -m tests.conformance            write the page
python -m tests.conformance --check    only say whether it is up to date (exit status 1 if not)
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.conformance.rows import ROWS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "conformance.md"
HEAD = """# Conformance

What the IR specification, the versioning rules and onnx.proto ask of those who read models, in our words; what jitonnx
does; and the tests that show it. Written by `python -m tests.conformance` from `tests/conformance/rows.py` and the
marks of tests.

"Refused": an error of `jitonnx check`, and no session is made; both name the place ([checker.md](checker.md)).

"""


def marked() -> Iterator[tuple[str, str]]:
    """The name of a row, and a test that bears it."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "mark.conformance" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.FunctionDef):
                continue
            test = f"{path.relative_to(ROOT)}::{node.name}"
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.conformance":
                    yield from ((ast.literal_eval(name), test) for name in mark.args)


def page() -> str:
    """The text of the page. ValueError for a row without a test, or a mark without a row."""
    tests: dict[str, list[str]] = {name: [] for rows in ROWS.values() for name in rows}
    for name, test in marked():
        if name not in tests:
            raise ValueError(f"{test} bears {name!r}, which is no row")
        tests[name].append(test)
    missing = [name for name, found in tests.items() if not found]
    if missing:
        raise ValueError(f"no test bears {', '.join(missing)}")
    parts = [HEAD, f"{len(tests)} sentences, {len({test for found in tests.values() for test in found})} tests.\n"]
    for section, rows in ROWS.items():
        parts.append(f"\n## {section}\n\n| what is asked | what jitonnx does | tests |\n|---|---|---|\n")
        for name, row in rows.items():
            links = "<br>".join(f"`{test.removeprefix('tests/')}`" for test in tests[name])
            parts.append(f"| {row.sentence} | {row.answer} | {links} |\n")
    return "".join(parts)


def main() -> int:
    text = page()
    if sys.argv[1:] == ["--check"]:
        return int(PAGE.read_text(encoding="utf-8") != text)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
