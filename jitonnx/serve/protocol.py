"""OpenAI's interface: what the bodies of requests mean, and what errors look like."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jitonnx.genai import LanguageModel
from jitonnx.serve.tool_calls import CallForm, form_of

MOST_CHOICES = 16
"""Answers to one request."""
_MOST_STOPS = 16
_WITHOUT_EFFECT = ("metadata", "model", "prompt_cache_key", "safety_identifier", "service_tier", "store", "user")
"""Parameters that say nothing about the answer."""
_MOST_LOGPROBS = 20
_NUMBERS = ("temperature", "top_p", "min_p", "repetition_penalty")
_PENALTIES = ("presence_penalty", "frequency_penalty")
_COUNTS = ("max_completion_tokens", "max_tokens", "n", "seed", "top_k")
_OTHERS = ("logit_bias", "logprobs", "stop", "stream", "stream_options")
_COMMON = (*_NUMBERS, *_PENALTIES, *_COUNTS, *_OTHERS)
_OF_CHATS = (
    *("chat_template_kwargs", "messages", "parallel_tool_calls", "response_format"),
    *("tool_choice", "tools", "top_logprobs"),
)
_DEFAULTS: dict[str, tuple[Any, ...]] = {
    "best_of": (1,),
    "echo": (False,),
    "modalities": (["text"],),
    "suffix": ("",),
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
    adjustment: dict[str, Any] = field(default_factory=dict)
    """What `TurnOptions.set_logit_adjustment` is told."""
    logprobs: int | None = None
    """How many of the most probable tokens are told beside each; None: nothing is told of probabilities."""
    call_form: CallForm | None = None
    """How the model writes calls of tools, where there are any."""
    may_call_several: bool = True
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


def read_chat(model: LanguageModel, body: Body) -> Asked:
    """What a body of /v1/chat/completions asks for."""
    body.check_names([*_OF_CHATS, *_COMMON])
    messages = [_message(one) for one in body.needed("messages", list, "a list of messages")]
    if not messages:
        raise ApiError(400, "messages are empty: one at least is needed", param="messages")
    tools, needed = _tools(body)
    variables = body.get("chat_template_kwargs", dict, "an object")
    text = model.tokenizer.apply_chat_template(messages, tools=tools, variables=variables)
    asked = _common(body, [model.tokenizer.encode_with(text, add_special_tokens=False)])
    asked.guidance = _guidance(body.get("response_format", dict, "an object"))
    if tools:
        asked.call_form = form = form_of(model.tokenizer.tool_template)
        asked.may_call_several = body.get("parallel_tool_calls", bool, "true or false") is not False
        if form is None:
            raise ApiError(400, "the model's chat template knows of no tools", param="tools")
        if needed:
            if asked.guidance is not None:
                raise ApiError(400, "an answer is either a call or of a response_format", param="tool_choice")
            asked.guidance = "lark_grammar", form.grammar(needed, model.tokenizer)
    most = body.get("top_logprobs", int, "a whole number")
    if body.get("logprobs", bool, "true or false"):
        asked.logprobs = _at_most("top_logprobs", most or 0, _MOST_LOGPROBS)
    elif most:
        raise ApiError(400, "top_logprobs need logprobs to be true", param="top_logprobs")
    return asked


def read_completion(model: LanguageModel, body: Body) -> Asked:
    """What a body of /v1/completions asks for."""
    body.check_names(["prompt", *_COMMON])
    asked = _common(body, read_texts(model, body, "prompt"))
    most = body.get("logprobs", int, "a whole number")
    asked.logprobs = None if most is None else _at_most("logprobs", most, _MOST_LOGPROBS)
    return asked


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


def read_encoding(body: Body) -> str:
    """How a body of /v1/embeddings asks for numbers: "float" or "base64"."""
    form = body.get("encoding_format", str, "float or base64") or "float"
    if form not in ("float", "base64"):
        raise ApiError(400, f"encoding_format is {form!r}: float or base64 is needed", param="encoding_format")
    if body.get("dimensions", int, "a whole number") is not None:
        raise ApiError(400, "dimensions are not supported: embeddings have those of the model", param="dimensions")
    return str(form)


def _common(body: Body, prompts: list[np.ndarray]) -> Asked:
    asked = Asked(prompts)
    for name in _NUMBERS:
        if (value := body.get(name, (int, float), "a number")) is not None:
            asked.search[name] = float(value)
    for name in _PENALTIES:
        if (value := body.get(name, (int, float), "a number")) is not None:
            asked.adjustment[name] = float(value)
    if bias := body.get("logit_bias", dict, "an object of numbers by tokens"):
        asked.adjustment["logit_bias"] = _bias(bias)
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


def _bias(given: Mapping[str, Any]) -> dict[int, float]:
    """Numbers by tokens."""
    try:
        return {int(token): float(value) for token, value in given.items()}
    except (TypeError, ValueError) as error:
        message = f"logit_bias is {_short(given)}: numbers by tokens are needed"
        raise ApiError(400, message, param="logit_bias") from error


def _at_most(name: str, value: int, most: int) -> int:
    if not 0 <= value <= most:
        raise ApiError(400, f"{name} is {value}: 0 to {most} are supported", param=name)
    return value


def _message(given: Any) -> dict[str, Any]:
    """A message of a chat, whose content is a text, and whose calls have arguments that templates can read."""
    if not isinstance(given, dict) or not isinstance(given.get("role"), str):
        raise ApiError(
            400, f"a message is {_short(given)}: an object with role and content is needed", param="messages"
        )
    content, calls = given.get("content"), given.get("tool_calls")
    if isinstance(content, list):
        for part in content:
            if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
                raise ApiError(
                    400,
                    f"a message has {_short(part)}: text alone is served; `jitonnx.genai.load` reads images, too",
                    param="messages",
                )
        content = "".join(part["text"] for part in content)
    if content is None and calls:
        content = ""
    if not isinstance(content, str):
        raise ApiError(400, f"a message has the content {_short(content)}: a text is needed", param="messages")
    role = "system" if given["role"] == "developer" else given["role"]  # as templates know it
    return {
        **given,
        "role": role,
        "content": content,
        **({"tool_calls": [_call(one) for one in calls]} if calls else {}),
    }


def _call(given: Any) -> dict[str, Any]:
    """A call of a tool that a message tells of, its arguments as an object."""
    try:
        function = given["function"]
        told = function["arguments"]
        return {**given, "function": {**function, "arguments": json.loads(told) if isinstance(told, str) else told}}
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ApiError(
            400,
            f"a message has the call {_short(given)}: a function with name and arguments, as JSON, is needed",
            param="messages",
        ) from error


def _tools(body: Body) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The tools that an answer may call, and those of which it has to call one."""
    tools = body.get("tools", list, "a list of tools") or []
    for tool in tools:
        function = tool.get("function") if isinstance(tool, dict) and tool.get("type") == "function" else None
        if not (
            isinstance(function, dict)
            and isinstance(function.get("name"), str)
            and isinstance(function.get("parameters"), dict | None)
        ):
            message = f"a tool is {_short(tool)}: a function with name and parameters is needed"
            raise ApiError(400, message, param="tools")
    choice = body.get("tool_choice", (str, dict), "none, auto, required or a function")
    if choice in (None, "auto", "none"):
        return ([] if choice == "none" else tools), []
    if isinstance(choice, dict):
        named = choice.get("function")
        name = named.get("name") if isinstance(named, dict) else None
        needed = [tool for tool in tools if tool["function"]["name"] == name]
    else:
        needed = tools if choice == "required" else []
    if not needed:
        message = f"tool_choice is {_short(choice)}: none, auto, required, or a function among tools, is needed"
        raise ApiError(400, message, param="tool_choice")
    return tools, needed


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
