"""Calls of tools: how models write them, as their chat templates show, and how they are read out of an answer.

A call is a JSON object of a name and arguments, or a list of such, behind a mark that is the template's, or alone as
the whole answer: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>` (Hermes, Qwen, SmolLM),
`[TOOL_CALLS][{...}]` (Mistral), `<|tool_call|>[{...}]<|/tool_call|>` (Phi, Granite), `{"name": ..., "parameters":
{...}}` (Llama).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from jitonnx.genai import Tokenizer
from jitonnx.genai.stops import overlap

_FRONT = "<|python_tag|>"
"""What Llama may write in front of an object."""


@dataclass(frozen=True)
class CallForm:
    """How a model writes calls. mark: in front of them, "" for answers that are a call as a whole; begin and end: of
    one call alone, around its object. arguments: the key that templates show."""

    mark: str
    begin: str = ""
    end: str = ""
    arguments: str = "arguments"

    def grammar(self, tools: Sequence[dict[str, Any]], tokenizer: Tokenizer) -> str:
        """What an answer that is a call of one of some tools must be, in Lark's form."""
        functions = [tool["function"] for tool in tools]
        calls = [
            {
                "type": "object",
                "properties": {
                    "name": {"const": one["name"]},
                    self.arguments: one.get("parameters") or {"type": "object"},
                },
                "required": ["name", self.arguments],
                "additionalProperties": False,
            }
            for one in functions
        ]
        # As the models were taught to write it, and so that no white space goes on for ever.
        spaces = {"item_separator": ", ", "key_separator": ": ", "whitespace_flexible": False}
        schema = json.dumps({"x-guidance": spaces, **(calls[0] if len(calls) == 1 else {"anyOf": calls})})
        parts = [self._literal(text, tokenizer) for text in (self.mark, self.begin)]
        parts += ["call", self._literal(self.end, tokenizer)]
        return f"start: {' '.join(filter(None, parts))}\ncall: %json {schema}\n"

    @staticmethod
    def _literal(text: str, tokenizer: Tokenizer) -> str:
        """A text in a grammar; a special token is one by its number alone."""
        if not text:
            return ""
        tokens = tokenizer.encode_with(text, add_special_tokens=False)
        is_special = len(tokens) == 1 and tokenizer.is_special(int(tokens[0]))
        return f"<[{int(tokens[0])}]>" if is_special else json.dumps(text)


_FORMS = (
    CallForm("<tool_call>", "\n", "\n</tool_call>"),
    CallForm("<|tool_call|>", "[", "]"),
    CallForm("[TOOL_CALLS]", "[", "]"),
)
_ALONE = CallForm("", arguments="parameters")


def form_of(template: str) -> CallForm | None:
    """How a model writes calls, by its template for chats with tools; None where the template knows of none."""
    if "tools" not in template:
        return None
    return next((form for form in _FORMS if form.mark in template), _ALONE)


@dataclass(frozen=True)
class ToolCall:
    """A call. arguments: a JSON object, as a text."""

    name: str
    arguments: str
    number: str = field(default_factory=lambda: uuid.uuid4().hex[:9])
    """What its result is told under. (Nine characters: Mistral's templates take no others.)"""

    def told(self) -> dict[str, Any]:
        """The call in OpenAI's form."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.number, "type": "function", "function": function}


class CallReader:
    """Takes an answer piece by piece, and parts text from calls."""

    def __init__(self, form: CallForm) -> None:
        self._form = form
        self._held = ""
        """What may be the beginning of a mark, or is a call."""
        self._is_call = self._is_text = False
        """What the rest of the answer is known to be."""

    def push(self, piece: str) -> str:
        """Take a piece; the text that was not given yet and is sure to be none of a call."""
        self._held += piece
        if not (self._is_call or self._is_text):
            if self._form.mark:
                return self._up_to_mark()
            begun = self._held.lstrip()
            self._is_call = begun.startswith(("{", _FRONT))
            self._is_text = not self._is_call and not _FRONT.startswith(begun)
        if not self._is_text:
            return ""
        ready, self._held = self._held, ""
        return ready

    def _up_to_mark(self) -> str:
        place = self._held.find(self._form.mark)
        self._is_call = place >= 0
        count = place if self._is_call else len(self._held) - overlap(self._held, self._form.mark)
        ready, self._held = self._held[:count], self._held[count:]
        return ready

    def rest(self) -> tuple[str, list[ToolCall]]:
        """What was held back, where no more comes: calls, or the text, where it is none that can be read."""
        held, self._held = self._held, ""
        calls = _calls(held, self._form.mark) if self._is_call else []
        return ("", calls) if calls else (held, [])


def _calls(text: str, mark: str) -> list[ToolCall]:
    """The calls of a text; none if one of them cannot be read."""
    found = []
    try:
        for value in _values(text, mark):
            for one in value if isinstance(value, list) else [value]:
                told = one["arguments"] if "arguments" in one else one.get("parameters") or {}
                if not isinstance(one["name"], str):
                    return []
                found.append(ToolCall(one["name"], told if isinstance(told, str) else json.dumps(told)))
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return []
    return found


def _values(text: str, mark: str) -> Iterator[Any]:
    """The JSON values of a text; what is between them, marks and ends of calls, is passed over."""
    decoder, place = json.JSONDecoder(), len(mark)
    while begins := [found for sign in "{[" if (found := text.find(sign, place)) >= 0]:
        begin = min(begins)
        if mark and text.startswith(mark, begin):  # which may have a bracket itself
            place = begin + len(mark)
            continue
        value, place = decoder.raw_decode(text, begin)
        yield value
