"""Docstrings as the site shows them: paragraphs of lines `name: what it is` become lists of parameters."""

import re
from typing import Any

import griffe

PARAMETER = re.compile(r"^(\*{0,2}[A-Za-z_]\w*(?:, \*{0,2}[A-Za-z_]\w*)*): (?=\S)")


class Parameters(griffe.Extension):
    """Rewrites the docstrings of all objects that are loaded."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = with_lists(obj.docstring.value)


def with_lists(docstring: str) -> str:
    """The docstring with its paragraphs of parameters as Markdown lists."""
    return "\n\n".join(_as_list(paragraph) for paragraph in docstring.split("\n\n"))


def _as_list(paragraph: str) -> str:
    lines = paragraph.splitlines()
    if not lines or not PARAMETER.match(lines[0]):
        return paragraph
    return "\n".join(PARAMETER.sub(r"- **\1**: ", line) if PARAMETER.match(line) else f"  {line}" for line in lines)
