"""docs/coverage.md is what the registry and the planner say today, and no operator of ONNX is left out."""

from __future__ import annotations

import re
import warnings

from tests.ops import coverage

VERSIONS = 659
"""Operator versions that the onnx package lists."""


def test_the_page_is_current() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        page = coverage.page()
    assert page == coverage.PAGE.read_text(encoding="utf-8"), "python -m tests.ops.coverage writes it anew"


def test_all_versions_are_listed() -> None:
    page = coverage.PAGE.read_text(encoding="utf-8").partition(coverage.REASONS)[0]
    cells = [line.split("|")[2] for line in page.splitlines() if re.match(r"\| [A-Z]", line)]
    assert sum(len(cell.split(";")) for cell in cells) == VERSIONS
