"""What answers of OpenAI's interface look like, whole and in pieces."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from jitonnx.genai import TurnUsage
from jitonnx.serve.reading import Piece, TokenTold


class Form:
    """How answers of /v1/chat/completions or /v1/completions look like."""

    def __init__(self, number: str, model: str, *, is_chat: bool) -> None:
        self._is_chat = is_chat
        kind = "chat.completion" if is_chat else "text_completion"
        self._head = {"id": f"{'chatcmpl' if is_chat else 'cmpl'}-{number}", "object": kind}
        self._rest = {"created": int(time.time()), "model": model}

    def whole(self, answers: Sequence[Piece], reasons: Sequence[str], used: dict[str, Any]) -> dict[str, Any]:
        """The answers in one piece."""
        choices = [
            self._choice(index, self._message(answer), answer.tokens, reason)
            for index, (answer, reason) in enumerate(zip(answers, reasons, strict=True))
        ]
        return {**self._head, **self._rest, "choices": choices, "usage": used}

    def piece(self, index: int, piece: Piece, *, is_first: bool = False) -> dict[str, Any]:
        """A piece of one of the answers."""
        return self._chunk([self._choice(index, self._delta(piece, is_first=is_first), piece.tokens, None)])

    def end(self, index: int, reason: str) -> dict[str, Any]:
        """Why one of the answers ends."""
        return self._chunk([self._choice(index, {"delta": {}} if self._is_chat else {"text": ""}, [], reason)])

    def usage(self, used: dict[str, Any]) -> dict[str, Any]:
        """What is told behind all pieces."""
        return {**self._chunk([]), "usage": used}

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        made = {**self._head, **self._rest, "choices": choices}
        if self._is_chat:
            made["object"] = "chat.completion.chunk"
        return made

    def _choice(
        self, index: int, said: dict[str, Any], tokens: Sequence[TokenTold], reason: str | None
    ) -> dict[str, Any]:
        told = None
        if tokens:
            told = {"content": [_logprob(token) for token in tokens]} if self._is_chat else _logprobs(tokens)
        return {"index": index, **said, "logprobs": told, "finish_reason": reason}

    def _message(self, answer: Piece) -> dict[str, Any]:
        if not self._is_chat:
            return {"text": answer.text}
        message: dict[str, Any] = {"role": "assistant", "content": answer.text}
        if answer.calls:
            message["content"] = answer.text or None
            message["tool_calls"] = [call.told() for call in answer.calls]
        return {"message": message}

    def _delta(self, piece: Piece, *, is_first: bool) -> dict[str, Any]:
        if not self._is_chat:
            return {"text": piece.text}
        delta: dict[str, Any] = {"role": "assistant", "content": ""} if is_first else {}
        if piece.text:
            delta["content"] = piece.text
        if piece.calls:
            delta["tool_calls"] = [{"index": place, **call.told()} for place, call in enumerate(piece.calls)]
        return {"delta": delta}


def _logprob(token: TokenTold) -> dict[str, Any]:
    """A token of a chat's answer."""
    most = [_probable(text, logprob) for text, logprob in token.most]
    return {**_probable(token.text, token.logprob), "top_logprobs": most}


def _probable(text: str, logprob: float) -> dict[str, Any]:
    """bytes: None for a token that is a part of a character."""
    return {"token": text, "logprob": logprob, "bytes": None if "\ufffd" in text else list(text.encode())}


def _logprobs(tokens: Sequence[TokenTold]) -> dict[str, Any]:
    """Tokens of a completion."""
    return {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [token.logprob for token in tokens],
        "top_logprobs": [dict(token.most) for token in tokens],
        "text_offset": [token.offset for token in tokens],
    }


def used(usages: Sequence[TurnUsage], choices: int) -> dict[str, Any]:
    """What answers took; a prompt counts once, however many answers it has."""
    prompts = sum(usage.prompt_tokens for usage in usages[::choices])
    made = sum(usage.generated_tokens for usage in usages)
    cached = sum(usage.cached_prompt_tokens for usage in usages[::choices])
    return {
        "prompt_tokens": prompts,
        "completion_tokens": made,
        "total_tokens": prompts + made,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def embeddings(rows: Iterable[np.ndarray], encoding: str, model: str, tokens: int) -> dict[str, Any]:
    """Vectors, float32 [size] each, as numbers, or, for "base64", as their bytes; of texts of so many tokens."""
    data = [
        {"object": "embedding", "index": index, "embedding": _embedding(row, encoding)}
        for index, row in enumerate(rows)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": model, "usage": usage}


def _embedding(row: np.ndarray, encoding: str) -> list[float] | str:
    return base64.b64encode(row.astype("<f4").tobytes()).decode() if encoding == "base64" else row.tolist()


def event(data: Any) -> str:
    """An event of a stream (SSE)."""
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n"


END = "data: [DONE]\n\n"
"""The last event of a stream."""
