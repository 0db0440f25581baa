"""Requests that join and leave between steps get what each gets alone, as onnxruntime-genai's `Engine` tells it."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto

import jitonnx.genai as ours
from jitonnx.errors import InvalidArgument
from jitonnx.genai.decoder import Bound
from tests.genai.folders import SHAPE, with_state, write_folder, write_windowed_folder

EVENT = ("request", "turn_id", "flags", "token", "finish_reason", "matched_stop_string_index", "error_code")
USAGE = ("prompt_tokens", "generated_tokens", "cached_prompt_tokens")
RANDOM = np.random.default_rng(3)


def prompt(length: int) -> np.ndarray:
    return RANDOM.integers(4, SHAPE.vocabulary, length).astype(np.int32)


@pytest.fixture(scope="module")
def model(model_folder: Path) -> ours.Model:
    return ours.Model(str(model_folder))


def alone(model: ours.Model, tokens: np.ndarray, count: int, **options: Any) -> list[int]:
    """What a Generator gives behind a prompt."""
    params = ours.GeneratorParams(model)
    params.set_search_options(max_length=len(tokens) + count, **options)
    generator = ours.Generator(model, params)
    generator.append_tokens(tokens)
    while not generator.is_done():
        generator.generate_next_token()
    return generator.get_sequence(0)[len(tokens) :].tolist()


def _copied(event: Any) -> Any:
    made = SimpleNamespace(**{name: getattr(event, name) for name in EVENT})
    made.usage = SimpleNamespace(**{name: getattr(event.usage, name) for name in USAGE})
    return made


class Told:
    """Events of requests, in the order in which they came."""

    def __init__(self, engine: Any, capacity: int = 64) -> None:
        self.engine, self.buffer = engine, engine.create_event_buffer(capacity)
        self.events: list[Any] = []

    def step(self) -> None:
        found = self.engine.run(self.buffer)
        # Those of onnxruntime-genai are views of the buffer.
        self.events += [] if found is None else [_copied(one) for one in found]

    def finish(self) -> None:
        while self.engine.has_pending_requests():
            self.step()

    def tokens(self, request: Any) -> list[int]:
        return [one.token for one in self.events if one.request is request and one.token is not None]

    def end(self, request: Any) -> Any:
        (found,) = [one for one in self.events if one.request is request and int(one.flags) & 2]
        return found


def asked(engine: Any, tokens: np.ndarray, count: int = 0, genai: Any = ours, **options: Any) -> Any:
    request = engine.create_request()
    turn = genai.TurnOptions(request)
    turn.set_max_generated_tokens(count)
    for name, value in options.items():
        getattr(turn, f"set_{name}")(value)
    request.begin_turn(tokens, turn)
    return request


def test_requests_that_join_and_leave_get_what_they_get_alone(model: ours.Model) -> None:
    """More requests than lanes, of unequal lengths, in some steps none joins."""
    told = Told(ours.Engine(model, max_batch_size=3))
    sizes = [(5, 9), (40, 3), (1, 20), (70, 6), (2, 1), (33, 12), (7, 7), (150, 5)]
    given = []
    for number, (length, count) in enumerate(sizes):
        tokens = prompt(length)
        given.append((asked(told.engine, tokens, count), tokens, count))
        for _ in range(number % 3):
            told.step()
    told.finish()
    for request, tokens, count in given:
        assert told.tokens(request) == alone(model, tokens, count)
        end = told.end(request)
        assert end.finish_reason == ours.FinishReason.MAX_GENERATED_TOKENS
        assert (end.usage.prompt_tokens, end.usage.generated_tokens) == (len(tokens), count)
    assert told.engine.load == (0, 0)


@pytest.mark.parametrize("kind", ["window", "state"])
def test_windows_and_states(language_model: ModelProto, tmp_path: Path, kind: str) -> None:
    """What cannot be padded or rewound is read by itself, moves with its sequence, and begins anew."""
    if kind == "window":
        folder = write_windowed_folder(tmp_path / kind, language_model)
    else:
        folder = write_folder(tmp_path / kind, with_state(language_model))
    model = ours.Model(str(folder))
    told = Told(ours.Engine(model, max_batch_size=3))
    sizes = [(5, 30), (40, 3), (1, 20), (150, 6), (150, 9)]
    same = prompt(150)
    given = [(same if length == 150 else prompt(length), count) for length, count in sizes]
    requests = []
    for number, (tokens, count) in enumerate(given):
        requests.append(asked(told.engine, tokens, count))
        for _ in range(number):
            told.step()
    told.finish()
    for request, (tokens, count) in zip(requests, given, strict=True):
        assert told.tokens(request) == alone(model, tokens, count)


def test_short_prompts_are_read_together(model: ours.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[tuple[int, ...]] = []
    engine = ours.Engine(model)
    read = engine._lanes.read
    monkeypatch.setattr(engine._lanes, "read", lambda *given: (runs.append(given[1].shape), read(*given))[1])
    told = Told(engine)
    prompts = [prompt(length) for length in (9, 3, 12, 1)]
    requests = [asked(engine, tokens, 4) for tokens in prompts]
    told.finish()
    assert runs == [(4, 12), (4, 1), (4, 1), (4, 1)]
    assert [told.tokens(one) for one in requests] == [alone(model, tokens, 4) for tokens in prompts]


def test_padding_stays_within_the_positions(model: ours.Model) -> None:
    """A long sequence beside short ones, at the end of the context."""
    told = Told(ours.Engine(model))
    tokens = prompt(250)
    first = asked(told.engine, tokens, 3)
    told.finish()
    second = first.begin_turn(prompt(1))
    prompts = [prompt(20) for _ in range(3)]
    others = [asked(told.engine, tokens, 2) for tokens in prompts]
    told.finish()
    assert second == 2 and len(first.tokens) == 256
    assert [told.tokens(one) for one in others] == [alone(model, tokens, 2) for tokens in prompts]


@pytest.mark.parametrize(
    "options",
    [{}, {"repetition_penalty": 1.5}, {"no_repeat_ngram_size": 1}],
    ids=str,
)
def test_tokens_are_onnxruntime_genais(model: ours.Model, model_folder: Path, options: dict[str, Any]) -> None:
    """Of several turns, too, and behind one that was forgotten."""
    theirs = pytest.importorskip("onnxruntime_genai")
    prompts = [prompt(length) for length in (5, 17, 3)]
    made = []
    for genai, engine in ((ours, ours.Engine(model)), (theirs, theirs.Engine(theirs.Model(str(model_folder))))):
        told = Told(engine)
        request = asked(engine, prompts[0], 6, genai, **options)
        told.finish()
        for number, tokens in enumerate(prompts):
            turn = genai.TurnOptions(request)
            turn.set_max_generated_tokens(5)
            request.begin_turn(tokens, turn)
            told.finish()
            if number == 1:
                request.rewind_to_start_of_turn(3)
        made.append(
            [
                (
                    int(e.flags),
                    e.turn_id,
                    e.token,
                    int(e.finish_reason),
                    e.usage.prompt_tokens,
                    e.usage.generated_tokens,
                )
                for e in told.events
            ]
        )
    assert made[0] == made[1]


def test_seeds(model: ours.Model) -> None:
    """Draws are those of the request alone, whatever runs beside it."""
    told = Told(ours.Engine(model))
    options = {"do_sample": True, "top_k": 20, "temperature": 1.5}
    prompts = [prompt(length) for length in (5, 17, 3)]
    requests = [asked(told.engine, tokens, 6, seed=number, **options) for number, tokens in enumerate(prompts)]
    told.finish()
    for number, (request, tokens) in enumerate(zip(requests, prompts, strict=True)):
        assert told.tokens(request) == alone(model, tokens, 6, random_seed=number, **options)


def test_ends(language_model: ModelProto, model: ours.Model, tmp_path: Path) -> None:
    """By a token that says so, which is not told; the next turn goes on behind what is there."""
    tokens = prompt(6)
    expected = alone(model, tokens, 12)
    ends = [next(one for place, one in enumerate(expected) if place > 2 and one not in expected[:place])]
    folder = write_folder(tmp_path / "ending", language_model, eos_token_id=ends)
    theirs = pytest.importorskip("onnxruntime_genai")
    made = []
    for genai in (ours, theirs):
        told = Told(genai.Engine(genai.Model(str(folder))))
        request = told.engine.create_request()
        request.begin_turn(tokens)
        told.finish()
        turn = genai.TurnOptions(request)
        turn.set_max_generated_tokens(3)
        request.begin_turn(np.array([9], np.int32), turn)
        told.finish()
        made.append([(int(e.flags), e.turn_id, e.token, int(e.finish_reason)) for e in told.events])
    assert made[0] == made[1]
    count = expected.index(ends[0])
    assert made[0][:count] == [(1, 1, token, 0) for token in expected[:count]]
    assert made[0][count] == (2, 1, None, int(ours.FinishReason.EOS))


def test_stop_strings(model: ours.Model) -> None:
    told = Told(ours.Engine(model))
    tokens = np.arange(40, 48, dtype=np.int32)
    expected = alone(model, tokens, 12)
    texts = [told.engine.tokenizer.decode([one]) for one in expected]
    place = next(n for n in range(2, 12) if texts[n].isprintable() and texts[n] and texts[n] not in texts[:n])
    request = asked(told.engine, tokens, 12, stop_strings=["never there", texts[place]])
    told.finish()
    end = told.end(request)
    assert end.finish_reason == ours.FinishReason.STOP_STRING and end.matched_stop_string_index == 1
    assert told.tokens(request) == expected[: place + 1]


def test_the_most_tokens_of_a_session(model: ours.Model) -> None:
    told = Told(ours.Engine(model))
    options = ours.RequestOptions()
    options.set_max_session_tokens(5)
    request = told.engine.create_request(options=options)
    request.begin_turn(prompt(3))
    told.finish()
    assert told.end(request).finish_reason == ours.FinishReason.MAX_SESSION_TOKENS and len(request.tokens) == 5
    with pytest.raises(InvalidArgument, match=r"must leave room .* max_session_tokens \(5\)"):
        request.begin_turn(prompt(1))


def test_cancelling_and_closing_frees_lanes(model: ours.Model) -> None:
    """While a prompt is read, while tokens come, and while it waits; the others go on."""
    told = Told(ours.Engine(model, max_batch_size=3))
    tokens = [prompt(length) for length in (6, 9, 200, 4)]
    kept, gone, long, waiting = requests = [asked(told.engine, one, 8) for one in tokens]
    told.step()
    told.step()
    assert told.engine.load == (3, 1)
    assert gone.cancel_turn(1) and not gone.cancel_turn(1)
    long.close()
    assert waiting.cancel_turn(1)
    told.finish()
    assert told.end(gone).finish_reason == told.end(waiting).finish_reason == ours.FinishReason.CANCELLED
    assert told.tokens(kept) == alone(model, tokens[0], 8)
    assert not [one for one in told.events if one.request is long and one.flags & ours.EngineEventFlags.TURN_FINISHED]
    gone.begin_turn(prompt(2))
    told.step()
    for one in requests:
        one.close()
    assert not told.engine.has_pending_requests()
    with pytest.raises(Exception, match="closed"):
        kept.begin_turn(tokens[0])


def test_prompts_that_begin_alike_are_read_once(model: ours.Model) -> None:
    """From a lane that is free, from one in use, and where another one has the better beginning."""
    told = Told(ours.Engine(model, max_batch_size=4))
    system = prompt(40)
    first = asked(told.engine, np.concatenate([system, prompt(5)]), 3)
    told.finish()
    for count in (6, 2):
        tokens = np.concatenate([system, prompt(count)])
        pair = [asked(told.engine, tokens, 3), asked(told.engine, tokens, 3)]
        told.finish()
        for one in pair:
            assert told.tokens(one) == alone(model, tokens, 3)
            assert told.end(one).usage.cached_prompt_tokens in (40, len(tokens) - 1)
    first.begin_turn(prompt(3))
    told.step()
    assert told.events[-1].token is not None


def test_events_that_do_not_fit_come_later(model: ours.Model) -> None:
    told = Told(ours.Engine(model), capacity=2)
    prompts = [prompt(4) for _ in range(5)]
    requests = [asked(told.engine, tokens, 6) for tokens in prompts]
    told.finish()
    assert [told.tokens(one) for one in requests] == [alone(model, tokens, 6) for tokens in prompts]


def test_what_fails_a_run_ends_its_requests(model: ours.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that come later are worked on."""
    told = Told(ours.Engine(model))
    request = asked(told.engine, prompt(4), 6)
    with monkeypatch.context() as patch:
        patch.setattr(told.engine._lanes, "_reserve", _fail)
        told.step()
    end = told.end(request)
    assert end.finish_reason == ours.FinishReason.FAILED and end.flags & ours.EngineEventFlags.FAILED
    assert isinstance(request.error, MemoryError)
    tokens = prompt(4)
    request.begin_turn(tokens)
    told.finish()


def test_an_interrupt_is_raised_and_others_go_on(model: ours.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(ours.Engine(model, max_batch_size=1))
    tokens = [prompt(4), prompt(5)]
    first, second = (asked(told.engine, one, 6) for one in tokens)

    def interrupt(bound: Bound, options: Any) -> np.ndarray:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Bound, "run", interrupt)
        with pytest.raises(KeyboardInterrupt):
            told.step()
    told.finish()
    assert told.end(first).finish_reason == ours.FinishReason.FAILED and isinstance(first.error, KeyboardInterrupt)
    assert told.tokens(second) == alone(model, tokens[1], 6)


def test_states_of_a_run_that_fails_are_forgotten(
    language_model: ModelProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it may have written is not taken for what the sequence's tokens give."""
    model = ours.Model(str(write_folder(tmp_path / "state", with_state(language_model))))
    told = Told(ours.Engine(model, max_batch_size=2))
    tokens = prompt(9)
    request = asked(told.engine, tokens, 20)
    told.step()
    told.step()
    run = Bound.run

    def fail(bound: Bound, options: Any) -> np.ndarray:
        run(bound, options)
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Bound, "run", fail)
        told.step()
    assert told.end(request).finish_reason == ours.FinishReason.FAILED
    whole = request.tokens
    request.begin_turn(np.array([9], np.int32))
    told.step()
    assert told.events[-1].token == alone(model, np.append(whole, np.int32(9)), 1)[0]


def _fail(rows: int) -> None:
    raise MemoryError


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda engine, request: request.begin_turn(np.zeros(0, np.int32)), "Expected at least one input token"),
        (lambda engine, request: request.begin_turn(np.array([5000], np.int32)), "token 5000 is none of the model's"),
        (lambda engine, request: request.begin_turn(np.full(256, 5, np.int32)), "must leave room"),
        (lambda engine, request: request.cancel_turn(1), "before a turn has begun"),
        (lambda engine, request: request.rewind_to_start_of_turn(1), "unknown Turn ID 1"),
        (lambda engine, request: asked(engine, prompt(3), temperature=-1.0), "temperature"),
        (lambda engine, request: asked(engine, prompt(3), stop_strings=["a", ""]), "Stop string at index 1 is empty"),
        (lambda engine, request: asked(engine, prompt(3), -1), "max_generated_tokens is -1"),
        (lambda engine, request: engine.create_event_buffer(0), "capacity of an event buffer"),
        (lambda engine, request: ours.Engine(engine.model, max_batch_size=0), "max_batch_size is 0"),
    ],
)
def test_wrong_requests(model: ours.Model, wrong: Callable[[Any, Any], Any], message: str) -> None:
    engine = ours.Engine(model)
    with pytest.raises(InvalidArgument, match=message):
        wrong(engine, engine.create_request())
    assert not engine.has_pending_requests()


def test_models_that_it_is_not_for(model_folder: Path) -> None:
    config = ours.Config(str(model_folder))
    config.overlay('{"search": {"past_present_share_buffer": false}}')
    with pytest.raises(Exception, match="updates its caches in place"):
        ours.Engine(ours.Model(config))
    config.overlay('{"search": {"past_present_share_buffer": true, "min_length": 3}}')
    with pytest.raises(Exception, match="set_min_generated_tokens"):
        ours.Engine(ours.Model(config))
