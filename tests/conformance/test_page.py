"""docs/conformance.md is what the rows and the marks of tests say today."""

from __future__ import annotations

from tests.conformance.__main__ import PAGE, page
from tests.conformance.rows import ROWS


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tests.conformance"


def test_there_are_a_hundred_sentences() -> None:
    assert sum(map(len, ROWS.values())) >= 100
