"""Calls of tools are read out of answers, whole and in any pieces; what is none stays text."""

import json
from typing import Any

import numpy as np
import pytest

from jitonnx.serve.tool_calls import CallReader, form_of

HERMES = "{% if tools %}Answer within <tool_call></tool_call>{% endif %}"
MISTRAL = "{{ tools }}[TOOL_CALLS]"
PHI = "{{ tools }}<|tool_call|>"
LLAMA = "{{ tools }}"
ONE, OTHER = {"name": "f", "arguments": {"a": "{[}"}}, {"name": "g", "parameters": {}}


def read(template: str, text: str, size: int) -> tuple[str, list[tuple[str, Any]]]:
    """The text and the calls of an answer that comes in pieces of a size."""
    form = form_of(template)
    assert form is not None
    reader = CallReader(form)
    told = "".join(reader.push(text[begin : begin + size]) for begin in range(0, len(text), size))
    rest, calls = reader.rest()
    assert all(len(call.number) == 9 for call in calls)
    return told + rest, [(call.name, json.loads(call.arguments)) for call in calls]


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_calls(size: int) -> None:
    one, other, both = json.dumps(ONE), json.dumps(OTHER), json.dumps([ONE, OTHER])
    f, g = ("f", {"a": "{[}"}), ("g", {})
    assert read(HERMES, f"Let me <see.\n<tool_call>\n{one}\n</tool_call>", size) == ("Let me <see.\n", [f])
    assert read(HERMES, f"<tool_call>{one}</tool_call>\n<tool_call>{other}</tool_call>", size) == ("", [f, g])
    assert read(MISTRAL, f"[TOOL_CALLS]{both}", size) == ("", [f, g])
    assert read(MISTRAL, f"[TOOL_CALLS] [{one}][TOOL_CALLS] [{other}]", size) == ("", [f, g])
    assert read(PHI, f"<|tool_call|>{both}<|/tool_call|>", size) == ("", [f, g])
    assert read(LLAMA, f" <|python_tag|>{other}; {one}", size) == ("", [g, f])


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    ("template", "text"),
    [
        (HERMES, ""),
        (HERMES, "a <tool_cal"),
        (HERMES, "a <tool_call>{'name': 1}</tool_call> b"),
        (HERMES, '<tool_call>{"name": "f", "arguments": {"a": '),
        (HERMES, "<tool_call></tool_call>"),
        (MISTRAL, "[TOOL_CALLS][1]"),
        (MISTRAL, '{"name": "f", "arguments": {}}'),
        (LLAMA, 'It is {"name": "f", "parameters": {}}'),
        (LLAMA, " \n"),
        (LLAMA, "<|python_tag"),
        (LLAMA, '{"a": 1}'),
        (LLAMA, "{" * 5000),
    ],
)
def test_what_is_none_is_text(template: str, text: str, size: int) -> None:
    assert read(template, text, size) == (text, [])


def test_templates_that_know_of_no_tools() -> None:
    assert form_of("{{ messages }}") is None


def test_special_tokens_are_told_by_their_numbers() -> None:
    class Tokenizer:
        def encode_with(self, text: str, add_special_tokens: bool) -> Any:
            return np.array([5] if text == "[TOOL_CALLS]" else [1, 2])

        def is_special(self, token: int) -> bool:
            return token == 5

    form = form_of(MISTRAL)
    assert form is not None
    grammar = form.grammar([{"function": {"name": "f"}}], Tokenizer())  # type: ignore[arg-type]
    assert grammar.startswith('start: <[5]> "[" call "]"\n')
