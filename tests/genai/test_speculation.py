"""Tokens that are proposed and verified together: the same ones come, by fewer runs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto

import jitonnx.genai as ours
from bench.decoder import decoder
from jitonnx.errors import InvalidArgument
from jitonnx.genai.speculation import Lookup
from tests.genai.folders import SHAPE, write_folder

PROMPT = np.array([5, 6, 7, 8, 9, 5, 6, 7, 30, 31], np.int32)


@pytest.fixture(scope="module", params=[False, True], ids=["all logits", "last logits"])
def model(request: Any, model_folder: Path) -> ours.Model:
    return ours.Model(str(model_folder), last_logits=request.param)


@pytest.fixture(scope="module")
def draft(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> ours.Model:
    """The model with an altered weight, which agrees at times."""
    other = decoder(SHAPE)
    (scales,) = (one for one in other.graph.initializer if one.name == other.graph.node[-1].input[2])
    data = np.frombuffer(scales.raw_data, np.float32).copy()
    data[::7] *= 1.15
    scales.raw_data = data.tobytes()
    return ours.Model(str(write_folder(tmp_path_factory.mktemp("draft") / "model", other)))


def started(model: ours.Model, draft: ours.Model | None, speculative: dict[str, int], **options: Any) -> ours.Generator:
    params = ours.GeneratorParams(model)
    params.set_search_options(**{"max_length": 200, **options})
    params.set_speculative_options(**speculative)
    if draft is not None:
        params.set_draft_model(draft)
    return ours.Generator(model, params)


def steps(generator: ours.Generator) -> list[int]:
    made = []
    while not generator.is_done():
        generator.generate_next_token()
        made.append(int(generator.get_next_tokens()[0]))
    return made


OPTIONS: list[dict[str, Any]] = [
    {},
    {"do_sample": True, "random_seed": 3, "top_k": 5, "temperature": 0.2},
    {"repetition_penalty": 1.2},
    {"past_present_share_buffer": False},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("by_model", [False, True])
def test_tokens_are_the_same(model: ours.Model, draft: ours.Model, options: dict[str, Any], by_model: bool) -> None:
    for count in (1, 3, 16):
        plain = started(model, None, {}, **options)
        ahead = started(model, draft if by_model else None, {"ngram_size": 2, "max_draft_tokens": count}, **options)
        for generator in (plain, ahead):
            generator.append_tokens(PROMPT)
        expected = steps(plain)
        assert steps(ahead) == expected
        assert ahead.get_sequence(0).tolist() == plain.get_sequence(0).tolist()
        stats = ahead.get_speculative_stats()
        assert 0 < stats["draft_tokens_accepted"] <= stats["draft_tokens_proposed"]


def test_what_was_read_ahead_is_forgotten(model: ours.Model, draft: ours.Model) -> None:
    """By rewinding, by tokens that are appended, by logits that are set, and by an end."""
    for change in ("rewind", "append", "logits", "all"):
        made = []
        for proposing in (None, draft):
            generator = started(model, proposing, {"max_draft_tokens": 8})
            generator.append_tokens(PROMPT)
            for _ in range(5):
                generator.generate_next_token()
            if change == "rewind":
                generator.rewind_to(12)
            elif change == "append":
                generator.append_tokens(PROMPT[:3])
            elif change == "logits":
                logits = generator.get_logits()
                logits[0, 0, 77] = 1e9
                generator.set_logits(logits)
            else:
                generator.rewind_to(0)
                generator.append_tokens(PROMPT[:4])
            made.append((steps(generator), generator.get_sequence(0).tolist()))
        assert made[0] == made[1]


def test_tokens_are_onnxruntime_genais(model: ours.Model, model_folder: Path) -> None:
    theirs = pytest.importorskip("onnxruntime_genai")
    made = []
    for genai, one in ((ours, model), (theirs, theirs.Model(str(model_folder)))):
        params = genai.GeneratorParams(one)
        params.set_search_options(max_length=100)
        params.set_speculative_options(ngram_size=3, max_draft_tokens=6)
        assert params.get_speculative_options()["ngram_size"] == 3
        generator = genai.Generator(one, params)
        generator.append_tokens(PROMPT)
        made.append(steps(generator))
        assert generator.get_speculative_stats()["draft_tokens_accepted"] > 0
    assert made[0] == made[1]


def test_texts(model_folder: Path, draft: ours.Model) -> None:
    plain = ours.load(model_folder)
    ahead = ours.load(model_folder, draft=draft.config.folder)
    for prompt in ("hello world hello world hello", "kernel of the cache"):
        expected = plain.generate(prompt, max_new_tokens=40)
        assert plain.generate(prompt, max_new_tokens=40, prompt_lookup=6) == expected
        assert ahead.generate(prompt, max_new_tokens=40) == expected


def test_lookups() -> None:
    tokens = np.array([1, 2, 3, 4, 1, 2, 9, 7, 1, 2], np.int32)
    assert Lookup(2).propose(tokens, 3).tolist() == [9, 7, 1]
    assert Lookup(2).propose(tokens[:6], 8).tolist() == [3, 4, 1, 2]
    for size, few in ((2, tokens[:1]), (2, tokens[:2]), (3, tokens), (16, tokens)):
        assert Lookup(size).propose(few, 4).tolist() == []
    assert Lookup(2).propose(np.full(5, 3, np.int32), 4).tolist() == [3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ngram_size": 1}, "ngram_size must be 0 or between 2 and 16"),
        ({"max_draft_tokens": 0}, "max_draft_tokens must be between 1 and 16"),
        ({"max_draft_tokens": 1.5}, "a whole number"),
        ({"k": 3}, "'k' is no option"),
    ],
)
def test_wrong_options(model: ours.Model, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        ours.GeneratorParams(model).set_speculative_options(**options)


def test_what_tokens_cannot_be_proposed_for(language_model: ModelProto, model: ours.Model, tmp_path: Path) -> None:
    with pytest.raises(NotImplementedError, match="one sequence"):
        started(model, None, {"ngram_size": 2}, batch_size=2)
    window = {"window_size": 32, "slide_key_value_cache": False, "layers": [0, 1]}
    folder = write_folder(tmp_path / "window", language_model)
    config = ours.Config(str(folder))
    config.overlay(
        f'{{"model": {{"decoder": {{"sliding_window": {str(window).replace("F", "f").replace(chr(39), chr(34))}}}}}}}'
    )
    with pytest.raises(NotImplementedError, match="windows"):
        started(ours.Model(config), None, {"ngram_size": 2})
