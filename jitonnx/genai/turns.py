"""What a request asks of an `Engine`, and what an engine tells of it, under onnxruntime-genai's names."""

from __future__ import annotations

import dataclasses
import enum
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jitonnx.errors import InvalidArgument
from jitonnx.genai.guidance import check_kind
from jitonnx.genai.logit_adjustment import LogitAdjustment
from jitonnx.genai.logprobs import Logprobs
from jitonnx.genai.search import SearchOptions

if TYPE_CHECKING:
    from jitonnx.genai.engine import Request

_NONE: Mapping[int, float] = {}


class FinishReason(enum.IntEnum):
    """Why a turn has ended."""

    NONE = 0
    EOS = 1
    STOP_STRING = 2
    MAX_GENERATED_TOKENS = 3
    MAX_SESSION_TOKENS = 4
    CANCELLED = 5
    FAILED = 6


class EngineErrorCode(enum.IntEnum):
    """What has failed."""

    NONE = 0
    CAPACITY_DEFERRED = 1
    EXECUTION_CAPACITY_EXCEEDED = 2
    RETRYABLE_EXECUTION = 3
    REQUEST_UNSERVICEABLE = 4
    ENGINE_CONTRACT_FAILURE = 5
    ENGINE_EXECUTION_FAILURE = 6


class EngineEventFlags(enum.IntFlag):
    """What an event tells; several at once are combined."""

    NONE = 0
    TOKEN = 1
    TURN_FINISHED = 2
    CAPACITY_BLOCKED = 4
    FAILED = 8
    RETRYABLE = 16


@dataclass(frozen=True)
class TurnUsage:
    """What a turn took; of events other than the last of a turn all are 0."""

    prompt_tokens: int = 0
    generated_tokens: int = 0
    cached_prompt_tokens: int = 0
    """Tokens of the prompt that were not read, as some sequence had begun with them."""


@dataclass(frozen=True)
class EngineEvent:
    """A token of a request, or its end, or both."""

    request: Request
    turn_id: int
    flags: EngineEventFlags
    token: int | None = None
    finish_reason: FinishReason = FinishReason.NONE
    matched_stop_string_index: int | None = None
    error_code: EngineErrorCode = EngineErrorCode.NONE
    usage: TurnUsage = TurnUsage()
    logprobs: Logprobs | None = None
    """How probable the token was, where `TurnOptions.set_logprobs` asked for it. (Not in onnxruntime-genai.)"""


class EngineEventBuffer(Sequence[EngineEvent]):
    """The events of a step of an `Engine`, which makes it. InvalidArgument for a capacity below 1."""

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise InvalidArgument(f"the capacity of an event buffer is {capacity}: 1 or more is needed")
        self.capacity = capacity
        self._events: list[EngineEvent] = []

    def __len__(self) -> int:
        return len(self._events)

    def __getitem__(self, index: Any) -> Any:
        return self._events[index]

    def __iter__(self) -> Iterator[EngineEvent]:
        return iter(self._events)

    def take(self, events: deque[EngineEvent]) -> None:
        """Hold as many events as there is room for, in the place of those before. (Not in onnxruntime-genai.)"""
        self._events = [events.popleft() for _ in range(min(self.capacity, len(events)))]


@dataclass(frozen=True)
class EngineCapabilities:
    """What an engine can do."""

    configured_max_batch_size: int
    """Requests that are worked on at once."""
    max_request_length: int
    max_scheduled_tokens: int
    """The most tokens of prompts that are read in one step."""


class RequestOptions:
    """Options of a request."""

    def __init__(self) -> None:
        self.max_session_tokens = 0
        """The most tokens, of all turns, prompts included; 0: as the configuration says."""

    def set_max_session_tokens(self, count: int) -> None:
        """Set the most tokens. InvalidArgument for less than 0."""
        self.max_session_tokens = _at_least_0("max_session_tokens", count)


class TurnOptions:
    """Options of a turn; what is not set is as the configuration of the request's model says."""

    def __init__(self, request: Request) -> None:
        self._defaults = request.engine.defaults
        self._vocabulary = request.engine.model.decoder.vocabulary
        self.reset()

    def reset(self) -> None:
        """Unset all."""
        self.search: SearchOptions = dataclasses.replace(self._defaults)
        """How tokens are chosen. (Not in onnxruntime-genai.)"""
        self.max_generated_tokens = 0
        self.min_generated_tokens = 0
        self.seed: int | None = None
        self.stop_strings: tuple[str, ...] = ()
        self.guidance: tuple[str, str] | None = None
        self.adjustment = LogitAdjustment()
        """(Not in onnxruntime-genai.)"""
        self.logprobs: int | None = None
        """(Not in onnxruntime-genai.)"""

    def set_do_sample(self, do_sample: bool) -> None:
        """Draw tokens, or take the most probable one each time."""
        self.search.set("do_sample", do_sample)

    def set_temperature(self, temperature: float) -> None:
        """0: the most probable token each time."""
        self.search.set("temperature", temperature)

    def set_top_k(self, top_k: int) -> None:
        """Draw among the most probable tokens; 0: among all."""
        self.search.set("top_k", top_k)

    def set_top_p(self, top_p: float) -> None:
        """Draw among the fewest tokens that make up this probability."""
        self.search.set("top_p", top_p)

    def set_min_p(self, min_p: float) -> None:
        """Leave out tokens less probable than this part of the most probable one. (Not in onnxruntime-genai.)"""
        self.search.set("min_p", min_p)

    def set_repetition_penalty(self, penalty: float) -> None:
        """Above 1 what was there is less probable."""
        self.search.set("repetition_penalty", penalty)

    def set_no_repeat_ngram_size(self, size: int) -> None:
        """Have no run of so many tokens twice; 0: have any."""
        self.search.set("no_repeat_ngram_size", size)

    def set_logit_adjustment(
        self, *, presence_penalty: float = 0.0, frequency_penalty: float = 0.0, logit_bias: Mapping[int, float] = _NONE
    ) -> None:
        """Have the logits changed by what the turn has generated, and by token: see `LogitAdjustment`. (Not in
        onnxruntime-genai.)

        InvalidArgument for numbers that are not finite, and for tokens that the model does not have.
        """
        made = LogitAdjustment(float(presence_penalty), float(frequency_penalty), dict(logit_bias))
        made.check(self._vocabulary)
        self.adjustment = made

    def set_logprobs(self, count: int | None) -> None:
        """Have events tell how probable their token was, and so many of the most probable ones. None: neither. (Not in
        onnxruntime-genai.)"""
        self.logprobs = None if count is None else _at_least_0("logprobs", count)

    def set_seed(self, seed: int) -> None:
        """Have the turn draw what it draws each time with this seed. InvalidArgument for less than 0."""
        self.seed = _at_least_0("seed", seed)

    def clear_seed(self) -> None:
        """Go on drawing as the request has so far."""
        self.seed = None

    def set_max_generated_tokens(self, count: int) -> None:
        """The most tokens of the turn; 0: as many as there is room for."""
        self.max_generated_tokens = _at_least_0("max_generated_tokens", count)

    def set_min_generated_tokens(self, count: int) -> None:
        """Have the turn not end by itself before so many tokens."""
        self.min_generated_tokens = _at_least_0("min_generated_tokens", count)

    def set_stop_strings(self, texts: Sequence[str]) -> None:
        """Texts at which the turn ends. InvalidArgument for an empty one."""
        if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
            raise InvalidArgument(f"stop strings are {texts!r}: a list of texts is needed")
        for place, text in enumerate(texts):
            if not text:
                raise InvalidArgument(f"Stop string at index {place} is empty.")
        self.stop_strings = tuple(texts)

    def set_guidance(self, type: str, data: str) -> None:
        """Constrain what is generated, as `GeneratorParams.set_guidance`."""
        check_kind(type)
        self.guidance = (type, data)

    def clear_guidance(self) -> None:
        """Constrain nothing."""
        self.guidance = None


def _at_least_0(name: str, value: int) -> int:
    if isinstance(value, bool) or int(value) != value or value < 0:
        raise InvalidArgument(f"{name} is {value!r}: a whole number of 0 or more is needed")
    return int(value)
