"""`Engine` and `Request`: many sequences at once, which join and leave between steps (continuous batching).

A step reads a piece of the prompts that have come, and gives one more token of each sequence whose prompt is read: one
run of the model for all of them, as products with weights take little longer for many rows than for one.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from jitonnx import errors
from jitonnx.errors import InvalidArgument
from jitonnx.genai.generator import GeneratorParams
from jitonnx.genai.guidance import Guide
from jitonnx.genai.lanes import Lanes
from jitonnx.genai.logprobs import Logprobs, logprobs
from jitonnx.genai.model import Model
from jitonnx.genai.search import Random, SearchOptions, choose, penalise
from jitonnx.genai.stops import Stops
from jitonnx.genai.tokenizer import Tokenizer, TokenizerStream
from jitonnx.genai.turns import (
    EngineCapabilities,
    EngineErrorCode,
    EngineEvent,
    EngineEventBuffer,
    EngineEventFlags,
    FinishReason,
    RequestOptions,
    TurnOptions,
    TurnUsage,
)

_LANES = 16
"""Sequences at once, where the configuration does not tell."""
_PIECE = 128
"""Tokens of prompts that are read in a step, while other sequences wait for their next tokens."""
_LARGE_PIECE = 512
"""The same while none does."""
_SHORT = 32
"""Tokens of a prompt, that is read together with others."""


class _Turn:
    """What a request is at."""

    def __init__(self, number: int, begin: int, prompt: int, options: TurnOptions, request: Request) -> None:
        self.number, self.prompt_tokens, self.options = number, prompt, options
        self.begin = begin
        """The length of the sequence before."""
        self.generated_tokens = self.cached_tokens = 0
        self.search = dataclasses.replace(options.search)
        self.search.min_length = begin + prompt + options.min_generated_tokens if options.min_generated_tokens else 0
        self.stops: Stops | None = None
        self.stream: TokenizerStream | None = None
        if options.stop_strings:
            self.stops, self.stream = Stops(options.stop_strings), request.engine.tokenizer.create_stream()
        self.guide = Guide(request.engine.model, *options.guidance) if options.guidance else None
        self.adjustment, self.most_logprobs = options.adjustment, options.logprobs
        self.logprobs: Logprobs | None = None
        """How probable the last token was, if that is asked for."""
        changes = self.search.changes_logits or self.guide is not None or bool(self.adjustment)
        self.is_plain = not (self.search.is_sampling or changes or self.most_logprobs is not None)
        """Whether each token is that of the greatest logit, and nothing else is asked for."""

    @property
    def usage(self) -> TurnUsage:
        """What it took so far."""
        return TurnUsage(self.prompt_tokens, self.generated_tokens, self.cached_tokens)


class Request:
    """A sequence that grows by turns: tokens that are given, and those that are generated behind them.

    `Engine.create_request` makes it.
    """

    def __init__(self, engine: Engine, options: RequestOptions) -> None:
        self.engine = engine
        self.tokens = np.zeros(0, np.int32)
        """All tokens, of prompts and answers. (Not in onnxruntime-genai.)"""
        self.error: BaseException | None = None
        """What the last turn failed by. (Not in onnxruntime-genai.)"""
        most = options.max_session_tokens or engine.defaults.max_length
        self.max_tokens = min(most, engine.model.context_length)
        self.turn: _Turn | None = None
        self.random = Random(engine.defaults.random_seed)
        self._begins: dict[int, int] = {}
        """The lengths before turns, by their ids."""
        self._turns = 0
        self._is_closed = False

    def begin_turn(self, tokens: Any, turn_options: TurnOptions | None = None) -> int:
        """Append tokens, int32, and have an answer generated; the turn's id.

        InvalidArgument for no tokens, more than there is room for, tokens that the model does not have, options that
        make no sense, before the last turn has ended, and for a closed request.
        """
        if self._is_closed:
            raise InvalidArgument("Cannot use a closed request.")
        if self.turn is not None:
            raise InvalidArgument("BeginTurn is only valid for a new request or after the current turn is complete.")
        given = np.asarray(tokens).reshape(-1)
        if not given.size or given.dtype.kind not in "iu":
            raise InvalidArgument(f"Expected at least one input token for generation. Received {given.size}.")
        before = len(self.tokens)
        if before + given.size >= self.max_tokens:
            raise InvalidArgument(
                f"Appending input_tokens_count ({given.size}) to current_sequence_length ({before}) must leave room "
                f"for at least one generated token before max_session_tokens ({self.max_tokens})."
            )
        self.engine.model.check_tokens(given)
        options = turn_options or TurnOptions(self)
        if options.search.num_beams != 1:
            raise InvalidArgument(
                f"num_beams is {options.search.num_beams}: beam search is not supported by the engine; set it to 1, or "
                "use a Generator"
            )
        options.search.check(self.engine.model.context_length, self.engine.model.decoder.vocabulary)
        turn = _Turn(self._turns + 1, before, given.size, options, self)
        self._turns = turn.number
        if options.seed is not None:
            self.random = Random(options.seed)
        self._begins[turn.number] = before
        self.tokens = np.concatenate([self.tokens, given.astype(np.int32)])
        self.turn, self.error = turn, None
        self.engine.join(self)
        return turn.number

    def cancel_turn(self, turn_id: int) -> bool:
        """End a turn, of which an event tells; whether it had not ended. InvalidArgument before the first turn."""
        if not self._turns:
            raise InvalidArgument("Cannot cancel a request before a turn has begun.")
        if self.turn is None or self.turn.number != turn_id:
            return False
        self.engine.finish(self, FinishReason.CANCELLED)
        return True

    def rewind_to_start_of_turn(self, turn_id: int) -> None:
        """Forget a turn and those behind it. InvalidArgument for an unknown one, and while a turn is going on."""
        if turn_id not in self._begins:
            raise InvalidArgument(f"Cannot rewind to unknown Turn ID {turn_id}.")
        if self.turn is not None:
            raise InvalidArgument("A request can be rewound after its turn is complete.")
        self.tokens = self.tokens[: self._begins[turn_id]]
        self._begins = {number: length for number, length in self._begins.items() if number < turn_id}

    def set_draft_tokens(self, tokens: Any) -> None:
        """NotImplemented, always: `Engine.max_draft_tokens_per_proposal` is 0."""
        raise errors.NotImplemented("tokens cannot be proposed to an Engine: max_draft_tokens_per_proposal() is 0")

    def close(self) -> None:
        """End the request; events of it are not given any more."""
        if not self._is_closed:
            self._is_closed = True
            self.engine.leave(self)


class Engine:
    """Requests to a model that are worked on together.

    `run` makes a step. All calls of an engine and its requests are to be made by one thread at a time, but for
    `create_request` and `begin_turn`, which may be called while another thread runs.
    """

    def __init__(self, model: Model, *, max_batch_size: int | None = None) -> None:
        """max_batch_size: how many sequences are worked on at once (default: as the configuration says, or 16; not in
        onnxruntime-genai).

        NotImplemented for models whose caches are not updated in place (past_present_share_buffer), and for beams.
        InvalidArgument for options of the configuration that make no sense.
        """
        config = model.config
        self.model = model
        self.defaults: SearchOptions = GeneratorParams(model).options
        """How tokens are chosen where a turn does not say. (Not in onnxruntime-genai.)"""
        if not self.defaults.past_present_share_buffer:
            raise errors.NotImplemented(
                f"{config.name('search', 'past_present_share_buffer')} is not true: sequences that join and leave need "
                "a model that updates its caches in place, as GroupQueryAttention does; use a Generator"
            )
        if self.defaults.min_length:
            raise InvalidArgument(
                f"{config.name('search', 'min_length')} is {self.defaults.min_length}: an Engine has a least number of "
                "tokens a turn instead (TurnOptions.set_min_generated_tokens)"
            )
        count = max_batch_size
        for kind in ("dynamic_batching", "static_batching"):
            if count is None and config.get("engine", kind) is not None:
                count = config.number("engine", kind, "max_batch_size", default=_LANES)
        self._count = _LANES if count is None else count
        if self._count < 1:
            raise InvalidArgument(f"max_batch_size is {self._count}: 1 or more sequences at once are needed")
        self._lanes = Lanes(model.decoder, self._count, model.context_length)
        self._waiting: deque[Request] = deque()
        self._decoding: list[Request] = []
        """Those in the first lanes, whose prompts are read."""
        self._reading: list[Request] = []
        """Those in the lanes behind, whose prompts are not."""
        self._events: deque[EngineEvent] = deque()
        self._used = [0] * self._count
        """The step in which a lane was used last."""
        self._step_number = 0
        self._tokenizer: Tokenizer | None = None

    # ------------------------------------------------------------ requests

    def create_request(self, *, options: RequestOptions | None = None) -> Request:
        """A new request."""
        return Request(self, options or RequestOptions())

    def has_pending_requests(self) -> bool:
        """Whether there is something to do, or to tell."""
        return bool(self._waiting or self._decoding or self._reading or self._events)

    def create_event_buffer(self, capacity: int) -> EngineEventBuffer:
        """A buffer for events, which `run` fills. InvalidArgument for a capacity below 1."""
        return EngineEventBuffer(capacity)

    def get_capabilities(self) -> EngineCapabilities:
        """What the engine can do."""
        return EngineCapabilities(self._count, self.model.context_length, _LARGE_PIECE)

    def max_draft_tokens_per_proposal(self) -> int:
        """0: no tokens can be proposed."""
        return 0

    def get_speculative_stats(self) -> dict[str, Any]:
        """The counts of tokens that were proposed: none."""
        return {}

    @property
    def load(self) -> tuple[int, int]:
        """How many requests are worked on, and how many wait. (Not in onnxruntime-genai.)"""
        return len(self._decoding) + len(self._reading), len(self._waiting)

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's, of which stop strings and guidance make use. (Not in onnxruntime-genai.)"""
        if self._tokenizer is None:
            self._tokenizer = Tokenizer(self.model)
        return self._tokenizer

    def run(self, buffer: EngineEventBuffer) -> EngineEventBuffer | None:
        """Make a step, unless events of the last one are left, and put events into a buffer. None without any.

        What fails a single request, or a run, is told by events: `EngineEventFlags.FAILED`, and `Request.error`. Ctrl-C
        fails the run that it comes in, and is raised.
        """
        if not self._events:
            self._step()
        buffer.take(self._events)
        return buffer if len(buffer) else None

    # ------------------------------------------------------------ joining and leaving, for requests

    def join(self, request: Request) -> None:
        """Take up a request whose turn has begun."""
        self._waiting.append(request)

    def leave(self, request: Request) -> None:
        """Forget a request."""
        if request.turn is not None:
            self.finish(request, FinishReason.CANCELLED)
        self._events = deque(event for event in self._events if event.request is not request)

    def finish(
        self,
        request: Request,
        reason: FinishReason,
        token: int | None = None,
        error_code: EngineErrorCode = EngineErrorCode.NONE,
    ) -> None:
        """End a request's turn and tell of it. What its lane holds stays there, for prompts that begin alike."""
        turn = request.turn
        assert turn is not None
        request.turn = None
        if request in self._waiting:
            self._waiting.remove(request)
        elif request in self._decoding:
            # Lanes of sequences that are decoded lie one behind the other, and those of prompts behind them.
            place, last = self._decoding.index(request), len(self._decoding) - 1
            self._exchange(place, last)
            self._exchange(last, last + len(self._reading))
            self._decoding[place] = self._decoding[last]
            self._decoding.pop()
            self._reading = self._reading[-1:] + self._reading[:-1]
        else:
            place, last = self._reading.index(request), len(self._reading) - 1
            self._exchange(len(self._decoding) + place, len(self._decoding) + last)
            self._reading[place] = self._reading[last]
            self._reading.pop()
        flags = EngineEventFlags.TURN_FINISHED
        if token is not None:
            flags |= EngineEventFlags.TOKEN
        if error_code:
            flags |= EngineEventFlags.FAILED
        matched = turn.stops.matched if turn.stops is not None else None
        told = turn.logprobs if token is not None else None
        self._events.append(
            EngineEvent(request, turn.number, flags, token, reason, matched, error_code, turn.usage, told)
        )

    # ------------------------------------------------------------ a step

    def _step(self) -> None:
        self._step_number += 1
        while self._waiting and len(self._decoding) + len(self._reading) < self._count:
            self._admit(self._waiting[0])
            self._waiting.popleft()
        decoding = list(self._decoding)
        if self._reading:
            self._read()
        if decoding:
            # Those whose prompts have just been read have their token, and lie behind.
            self._run(decoding, 0, np.stack([one.tokens[-1:] for one in decoding]))

    def _admit(self, request: Request) -> None:
        """Give a request the lane behind those in use, with what some lane holds of its beginning."""
        turn = request.turn
        assert turn is not None
        lanes, target = self._lanes, len(self._decoding) + len(self._reading)
        # One token at least is read, for its logits.
        shared = [_common(lanes.tokens[lane], request.tokens[:-1]) for lane in range(self._count)]
        shared = [count if lanes.can_cut(lane, count) else 0 for lane, count in enumerate(shared)]
        source = max(range(self._count), key=shared.__getitem__)
        count = shared[source]
        is_free = source >= target
        if count and is_free and 2 * count >= lanes.length(source):
            self._exchange(source, target)
        else:
            # The lane is taken that is unused for the longest time, and the source is left to others.
            victim = min(range(target, self._count), key=lambda lane: (lanes.length(lane) > 0, self._used[lane]))
            self._exchange(victim, target)
            source = victim if source == target else target if source == victim else source
            if count and source != target:
                lanes.copy(source, target)
        lanes.cut(target, count)
        turn.cached_tokens = max(count - turn.begin, 0)
        self._reading.append(request)

    def _read(self) -> None:
        """Read a piece of prompts: of the first one, and of short ones beside it."""
        lanes, behind = self._lanes, len(self._decoding)
        most = _PIECE if behind else _LARGE_PIECE
        missing = [len(one.tokens) - lanes.length(behind + place) for place, one in enumerate(self._reading)]
        count, steps = 1, min(missing[0], most)
        if lanes.can_pad and steps <= _SHORT:
            for more in missing[1:]:
                wider = max(steps, more)
                if more > _SHORT or (count + 1) * wider > most:
                    break
                count, steps = count + 1, wider
        # Padding must not reach beyond what positions there are.
        longest = max(lanes.length(behind + place) for place in range(count))
        if longest + steps > self.model.context_length:
            count, steps = 1, min(missing[0], most)
        group = self._reading[:count]
        tokens = np.zeros((count, steps), np.int32)
        for place, request in enumerate(group):
            begin = lanes.length(behind + place)
            piece = request.tokens[begin : begin + steps]
            tokens[place, : len(piece)] = piece
        self._run(group, behind, tokens, np.minimum(missing[:count], steps))

    def _run(self, group: Sequence[Request], first: int, tokens: np.ndarray, counts: np.ndarray | None = None) -> None:
        """Run the model on tokens of requests in lanes from the first on, and choose the next ones."""
        if counts is None:
            counts = np.ones(len(group), np.int64)
        for lane in range(first, first + len(group)):
            self._used[lane] = self._step_number
        try:
            logits = self._lanes.read(first, tokens, counts, counts[:, None] - 1)[:, 0]
        except BaseException as error:  # Ctrl-C, too
            for request in group:
                request.error = error
                self.finish(request, FinishReason.FAILED, error_code=EngineErrorCode.ENGINE_EXECUTION_FAILURE)
            if not isinstance(error, errors.Error | MemoryError):
                raise
            return
        ready = [place for place, one in enumerate(group) if self._lanes.length(first + place) == len(one.tokens)]
        if first == len(self._decoding):  # prompts, some of which are read
            self._arrange([group[place] for place in ready])
        best = logits.argmax(1)
        for place in ready:
            request = group[place]
            try:
                token = self._chosen(request, logits[place], int(best[place]))
            except errors.Error as error:
                request.error = error
                self.finish(request, FinishReason.FAILED, error_code=EngineErrorCode.REQUEST_UNSERVICEABLE)
            else:
                self._append(request, token)

    def _arrange(self, ready: Sequence[Request]) -> None:
        """Have requests whose prompts are read follow those that are decoded."""
        for request in ready:
            place, behind = self._reading.index(request), len(self._decoding)
            self._exchange(behind + place, behind)
            self._reading[place] = self._reading[0]
            self._reading.pop(0)
            self._decoding.append(request)

    def _chosen(self, request: Request, logits: np.ndarray, best: int) -> int:
        """The next token. best: that of the greatest logit."""
        turn = request.turn
        assert turn is not None
        if turn.is_plain:
            return best
        rows, told = logits[None], turn.most_logprobs
        given = logits if told is None else logits.copy()
        if turn.search.changes_logits:
            penalise(rows, [request.tokens], turn.search, self.model.ends)
        if turn.adjustment:
            turn.adjustment.apply(logits, request.tokens[turn.begin + turn.prompt_tokens :])
        if turn.guide is not None:
            turn.guide.mask(logits)
        token = int(choose(rows, turn.search, request.random, np.zeros(1, bool))[0])
        if turn.guide is not None:
            turn.guide.accept(token)
        if told is not None:
            turn.logprobs = logprobs(given, token, told)
        return token

    def _append(self, request: Request, token: int) -> None:
        """Add a token to a request, and end its turn if that is the last one."""
        turn = request.turn
        assert turn is not None
        if token in self.model.ends:
            self.finish(request, FinishReason.EOS)
            return
        request.tokens = np.append(request.tokens, np.int32(token))
        turn.generated_tokens += 1
        if turn.stops is not None and turn.stream is not None:
            turn.stops.push(turn.stream.decode(token))
            if turn.stops.matched is not None:
                self.finish(request, FinishReason.STOP_STRING, token)
                return
        if turn.guide is not None and turn.guide.is_at_end:
            self.finish(request, FinishReason.EOS, token)
        elif turn.generated_tokens == turn.options.max_generated_tokens:
            self.finish(request, FinishReason.MAX_GENERATED_TOKENS, token)
        elif len(request.tokens) == request.max_tokens:
            self.finish(request, FinishReason.MAX_SESSION_TOKENS, token)
        else:
            flags = EngineEventFlags.TOKEN
            self._events.append(EngineEvent(request, turn.number, flags, token, logprobs=turn.logprobs))

    def _exchange(self, one: int, other: int) -> None:
        self._lanes.exchange(one, other)
        self._used[one], self._used[other] = self._used[other], self._used[one]


def _common(one: np.ndarray, other: np.ndarray) -> int:
    """How many tokens two sequences begin with."""
    count = min(len(one), len(other))
    differing = one[:count] != other[:count]
    return int(differing.argmax()) if differing.any() else count
