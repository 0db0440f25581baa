"""Tokens of an answer as what clients are told: text, how probable tokens were, calls of tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from jitonnx.genai import Tokenizer, TokenizerStream
from jitonnx.genai.logprobs import Logprobs
from jitonnx.genai.stops import Stops
from jitonnx.serve.protocol import Asked
from jitonnx.serve.tool_calls import CallReader, ToolCall


class Generated(NamedTuple):
    """A token of an answer."""

    token: int
    logprobs: Logprobs | None = None


@dataclass(frozen=True)
class TokenTold:
    """A token with the natural logarithm of its probability, and those of the most probable ones."""

    text: str
    offset: int
    """Where it begins in the texts of the answer's tokens."""
    logprob: float
    most: Sequence[tuple[str, float]]


@dataclass
class Piece:
    """A part of an answer."""

    text: str = ""
    tokens: list[TokenTold] = field(default_factory=list)
    """Where a client asks for them."""
    calls: list[ToolCall] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.text or self.tokens or self.calls)

    def add(self, other: Piece) -> None:
        """Have another part follow."""
        self.text += other.text
        self.tokens += other.tokens
        self.calls += other.calls


class Reading:
    """An answer, token by token."""

    def __init__(self, tokenizer: Tokenizer, asked: Asked) -> None:
        self._tokenizer, self._asked = tokenizer, asked
        self._stream = TokenizerStream(tokenizer, keeps_special=asked.call_form is not None)
        self._stops = Stops(asked.stops)
        self._calls = CallReader(asked.call_form) if asked.call_form is not None else None
        self._offset = 0

    def push(self, generated: Generated) -> Piece:
        """Take a token; what can be told."""
        text = self._stops.push(self._stream.decode(generated.token))
        if self._calls is not None:
            text = self._calls.push(text)
        return Piece(text, self._told(generated))

    def rest(self) -> Piece:
        """What was held back, where no more comes."""
        text = self._stops.rest()
        if self._calls is None:
            return Piece(text)
        text = self._calls.push(text)
        more, calls = self._calls.rest()
        return Piece(text + more, calls=calls if self._asked.may_call_several else calls[:1])

    def _told(self, generated: Generated) -> list[TokenTold]:
        found = generated.logprobs
        if found is None:
            return []
        most = [(self._tokenizer.token_text(token), logprob) for token, logprob in found.most]
        told = TokenTold(self._tokenizer.token_text(generated.token), self._offset, found.token, most)
        self._offset += len(told.text)
        return [told]
