"""docs/where.md and docs/instruction-sets.md are true: files are there, and what is named of them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [(ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("where.md", "instruction-sets.md")]
ROW = re.compile(r"^\| (?!question|step|---)(.+?) \| `(\S+?)` \| (.*)\|$", re.MULTILINE)
ROWS = [row for page in PAGES for row in ROW.findall(page)]


def test_there_are_rows() -> None:
    counts = [len(re.findall(r"^\| .*`.*\.py`", page, re.MULTILINE)) for page in PAGES]
    assert len(ROWS) == sum(counts) and min(counts) > 15


@pytest.mark.parametrize("question, path, names", ROWS, ids=[path for _, path, _ in ROWS])
def test_a_file_has_what_is_said_of_it(question: str, path: str, names: str) -> None:
    text = (ROOT / path).read_text(encoding="utf-8")
    for name in re.findall(r"`(\w+)`", names):
        assert re.search(rf"^\s*(?:def|class) {name}\b|^{name}\b", text, re.MULTILINE), (
            f"{path} has no {name}: {question}"
        )


def test_rooms_are_those_of_the_table() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rooms = {path.parent.name for path in (ROOT / "jitonnx").glob("*/__init__.py")} | {"kernels", "proto"}
    assert set(re.findall(r"^\| `(\w+)/` \|", page, re.MULTILINE)) == rooms


def test_few_modules_stand_in_the_root() -> None:
    assert len([*(ROOT / "jitonnx").glob("*.py")]) <= 6


def test_the_glossary_is_short() -> None:
    page = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    terms = re.findall(r"^\| (.+?) \|", page, re.MULTILINE)[2:]
    assert 20 < len(terms) <= 60 and terms == sorted(terms, key=str.lower)
