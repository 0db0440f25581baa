"""OpenAI's interface: what the bodies of requests mean, and what answers and errors look like."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jitonnx.genai import LanguageModel, TurnUsage

MOST_CHOICES = 16
"""Answers to one request."""
_MOST_STOPS = 16
_WITHOUT_EFFECT = ("metadata", "model", "prompt_cache_key", "safety_identifier", "service_tier", "store", "user")
"""Parameters that say nothing about the answer."""
_NUMBERS = ("temperature", "top_p", "min_p", "repetition_penalty")
_COUNTS = ("max_completion_tokens", "max_tokens", "n", "seed", "top_k")
_TEXTS = ("stop", "stream", "stream_options")
_DEFAULTS: dict[str, tuple[Any, ...]] = {
    "best_of": (1,),
    "echo": (False,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "logprobs": (False,),
    "modalities": (["text"],),
    "parallel_tool_calls": (True, False),
    "presence_penalty": (0,),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
}
"""Parameters that are accepted with the values that ask for nothing alone."""


class ApiError(Exception):
    """An error that is told to the client."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code

    def body(self) -> dict[str, Any]:
        """The error in OpenAI's form."""
        kinds = {401: "authentication_error", 429: "rate_limit_error"}
        kind = kinds.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


@dataclass
class Asked:
    """What a request asks for."""

    prompts: list[np.ndarray]
    """Tokens, int32; each gets `choices` answers."""
    choices: int = 1
    most_tokens: int = 0
    """The most tokens of an answer; 0: as many as there is room for."""
    search: dict[str, float] = field(default_factory=dict)
    """Options of `TurnOptions`, by names."""
    seed: int | None = None
    stops: list[str] = field(default_factory=list)
    guidance: tuple[str, str] | None = None
    stream: bool = False
    is_usage_streamed: bool = False


class Body:
    """The JSON object of a request. Its errors are 400."""

    def __init__(self, data: bytes) -> None:
        try:
            told = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise ApiError(400, f"the body is no JSON: {error}") from error
        if not isinstance(told, dict):
            raise ApiError(400, "the body is to be a JSON object")
        self._told: dict[str, Any] = told

    def get(self, name: str, kinds: type | tuple[type, ...], what: str) -> Any:
        """A value of one of some types; None where it is not there. what: how errors call the types."""
        value = self._told.get(name)
        # True is an int to Python.
        is_wrong = isinstance(value, bool) and bool not in (kinds if isinstance(kinds, tuple) else (kinds,))
        if value is not None and (is_wrong or not isinstance(value, kinds)):
            raise ApiError(400, f"{name} is {_short(value)}: {what} is needed", param=name)
        return value

    def needed(self, name: str, kinds: type | tuple[type, ...], what: str) -> Any:
        """`get`, of what has to be there."""
        value = self.get(name, kinds, what)
        if value is None:
            raise ApiError(400, f"you must provide {name}: {what}", param=name, code="missing_required_parameter")
        return value

    def check_names(self, known: Sequence[str]) -> None:
        """Refuse parameters that are not known, and values that ask for what there is not."""
        for name, value in self._told.items():
            if name in _DEFAULTS and value is not None and value not in _DEFAULTS[name]:
                raise ApiError(400, f"{name} is not supported", param=name, code="unsupported_parameter")
            if name not in known and name not in _DEFAULTS and name not in _WITHOUT_EFFECT:
                raise ApiError(400, f"{name} is no parameter", param=name, code="unknown_parameter")

    def check_model(self, name: str) -> None:
        """Refuse another model than that of this name."""
        told = self.get("model", str, "a model's name")
        if told not in (None, name):
            raise ApiError(
                404,
                f"the model {_short(told)} does not exist: there is {name!r}",
                param="model",
                code="model_not_found",
            )


def read_chat(model: LanguageModel, body: Body) -> Asked:
    """What a body of /v1/chat/completions asks for."""
    body.check_names(["messages", "response_format", *_NUMBERS, *_COUNTS, *_TEXTS])
    messages = [_message(one) for one in body.needed("messages", list, "a list of messages")]
    if not messages:
        raise ApiError(400, "messages are empty: one at least is needed", param="messages")
    text = model.tokenizer.apply_chat_template(messages)
    asked = _common(body, [model.tokenizer.encode_with(text, add_special_tokens=False)])
    asked.guidance = _guidance(body.get("response_format", dict, "an object"))
    return asked


def read_completion(model: LanguageModel, body: Body) -> Asked:
    """What a body of /v1/completions asks for."""
    body.check_names(["prompt", *_NUMBERS, *_COUNTS, *_TEXTS])
    return _common(body, read_texts(model, body, "prompt"))


def read_texts(model: LanguageModel, body: Body, name: str) -> list[np.ndarray]:
    """The tokens of a text, of several, of tokens, or of several lists of them."""
    what = "a text, a list of texts, or of lists of tokens,"
    given = body.needed(name, (str, list), what)
    several = [given] if isinstance(given, str) or (given and isinstance(given[0], int)) else given
    made = []
    for one in several:
        if isinstance(one, str):
            made.append(model.tokenizer.encode_with(one, add_special_tokens=True))
        elif isinstance(one, list) and all(isinstance(token, int) and abs(token) < 1 << 31 for token in one):
            made.append(np.array(one, np.int32))
        else:
            raise ApiError(400, f"{name} is {_short(given)}: {what} is needed", param=name)
    if not made or not all(len(one) for one in made):
        raise ApiError(400, f"{name} has no tokens: there is nothing to go on from", param=name)
    return made


def _common(body: Body, prompts: list[np.ndarray]) -> Asked:
    asked = Asked(prompts)
    for name in _NUMBERS:
        if (value := body.get(name, (int, float), "a number")) is not None:
            asked.search[name] = float(value)
    counts = {name: body.get(name, int, "a whole number") for name in _COUNTS}
    for name, least in (("n", 1), ("max_tokens", 1), ("max_completion_tokens", 1), ("top_k", 0), ("seed", -(1 << 63))):
        if counts[name] is not None and counts[name] < least:
            raise ApiError(400, f"{name} is {counts[name]}: {least} or more is needed", param=name)
    asked.choices = counts["n"] or 1
    if asked.choices * len(prompts) > MOST_CHOICES:
        raise ApiError(400, f"{asked.choices * len(prompts)} answers are too many: {MOST_CHOICES} at most", param="n")
    asked.most_tokens = counts["max_completion_tokens"] or counts["max_tokens"] or 0
    if counts["top_k"] is not None:
        asked.search["top_k"] = counts["top_k"]
    if counts["seed"] is not None:
        asked.seed = counts["seed"] & 0x7FFFFFFF
    stops = body.get("stop", (str, list), "a text, or a list of texts,")
    asked.stops = [stops] if isinstance(stops, str) else stops or []
    if len(asked.stops) > _MOST_STOPS or not all(isinstance(stop, str) and stop for stop in asked.stops):
        raise ApiError(
            400, f"stop is {_short(stops)}: {_MOST_STOPS} texts at most, none empty, are needed", param="stop"
        )
    asked.stream = bool(body.get("stream", bool, "true or false"))
    options = body.get("stream_options", dict, "an object") or {}
    asked.is_usage_streamed = bool(options.get("include_usage"))
    return asked


def _message(given: Any) -> dict[str, Any]:
    """A message of a chat, whose content is a text."""
    if not isinstance(given, dict) or not isinstance(given.get("role"), str):
        raise ApiError(
            400, f"a message is {_short(given)}: an object with role and content is needed", param="messages"
        )
    content = given.get("content")
    if isinstance(content, list):
        for part in content:
            if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
                raise ApiError(
                    400,
                    f"a message has {_short(part)}: text alone is served; `jitonnx.genai.load` reads images, too",
                    param="messages",
                )
        content = "".join(part["text"] for part in content)
    if not isinstance(content, str):
        raise ApiError(400, f"a message has the content {_short(content)}: a text is needed", param="messages")
    return {**given, "content": content}


def _guidance(form: Mapping[str, Any] | None) -> tuple[str, str] | None:
    """What a response_format constrains the answer by."""
    kind = "text" if form is None else form.get("type")
    if kind == "text":
        return None
    schema: Any = {"type": "object"}
    if form is not None and kind == "json_schema":
        described = form.get("json_schema")
        schema = described.get("schema") if isinstance(described, dict) else None
        if not isinstance(schema, dict):
            raise ApiError(400, "response_format has no json_schema with a schema", param="response_format")
    elif kind != "json_object":
        raise ApiError(
            400,
            f"response_format is {_short(kind)}: text, json_object or json_schema is needed",
            param="response_format",
        )
    return "json_schema", json.dumps(schema)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


# ------------------------------------------------------------ answers


class Form:
    """How answers of /v1/chat/completions or /v1/completions look like."""

    def __init__(self, number: str, model: str, *, is_chat: bool) -> None:
        self._is_chat = is_chat
        kind = "chat.completion" if is_chat else "text_completion"
        self._head = {"id": f"{'chatcmpl' if is_chat else 'cmpl'}-{number}", "object": kind}
        self._rest = {"created": int(time.time()), "model": model}

    def whole(self, texts: Sequence[str], reasons: Sequence[str], used: dict[str, Any]) -> dict[str, Any]:
        """The answer in one piece."""
        choices = [
            {"index": index, **self._said("message", text), "logprobs": None, "finish_reason": reason}
            for index, (text, reason) in enumerate(zip(texts, reasons, strict=True))
        ]
        return {**self._head, **self._rest, "choices": choices, "usage": used}

    def piece(self, index: int, text: str, *, is_first: bool = False, reason: str | None = None) -> dict[str, Any]:
        """A piece of one of the answers, and at its end why it ends."""
        said = self._said("delta", text, is_first=is_first)
        return self._chunk([{"index": index, **said, "logprobs": None, "finish_reason": reason}])

    def usage(self, used: dict[str, Any]) -> dict[str, Any]:
        """What is told behind all pieces."""
        return {**self._chunk([]), "usage": used}

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        made = {**self._head, **self._rest, "choices": choices}
        if self._is_chat:
            made["object"] = "chat.completion.chunk"
        return made

    def _said(self, name: str, text: str, *, is_first: bool = True) -> dict[str, Any]:
        if not self._is_chat:
            return {"text": text}
        role = {"role": "assistant"} if is_first else {}
        return {name: {**role, "content": text} if text or is_first else role}


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


def embedding(row: np.ndarray, form: str) -> list[float] | str:
    """An embedding, float32 [size], as numbers, or, for "base64", as their bytes."""
    return base64.b64encode(row.astype("<f4").tobytes()).decode() if form == "base64" else row.tolist()


def event(data: Any) -> str:
    """An event of a stream (SSE)."""
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n"


END = "data: [DONE]\n\n"
"""The last event of a stream."""
