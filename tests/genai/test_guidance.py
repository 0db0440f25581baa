"""Output that a schema, a regular expression or a grammar constrains."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jitonnx.genai as ours
from jitonnx.errors import InvalidArgument

pytest.importorskip("llguidance")

SCHEMA = json.dumps({"type": "object", "properties": {"a": {"enum": ["x", "yz"]}, "b": {"type": "boolean"}},
                     "required": ["a", "b"], "additionalProperties": False,
                     "x-guidance": {"whitespace_flexible": False}})  # fmt: skip


@pytest.fixture(scope="module")
def model(model_folder: Path) -> ours.LanguageModel:
    return ours.load(model_folder)


def test_texts_are_as_they_have_to_be(model: ours.LanguageModel) -> None:
    for seed in (1, 2):
        options: dict[str, Any] = {"max_new_tokens": 60, "temperature": 1.0, "seed": seed}
        made = json.loads(model.generate("hello", guidance=("json_schema", SCHEMA), **options))
        assert made["a"] in ("x", "yz") and made["b"] in (True, False)
        text = model.generate("hello", guidance=("regex", "[ab]{3,5}c"), **options)
        assert re.fullmatch("[ab]{3,5}c", text)
        text = model.generate("hello", guidance=("lark_grammar", 'start: "one" | "two" " three"'), **options)
        assert text in ("one", "two three")


def test_requests_of_an_engine_beside_each_other(model: ours.LanguageModel) -> None:
    engine = ours.Engine(model.model)
    events = engine.create_event_buffer(16)
    said: dict[Any, list[int]] = {}
    for guidance in (("regex", "[ab]{3,5}c"), None, ("regex", "[xyz]{9}")):
        request = engine.create_request()
        options = ours.TurnOptions(request)
        options.set_max_generated_tokens(12)
        if guidance is not None:
            options.set_guidance(*guidance)
        request.begin_turn(model.tokenizer.encode("hello"), options)
        said[request] = []
    while engine.has_pending_requests():
        for event in engine.run(events) or ():
            if event.token is not None:
                said[event.request].append(event.token)
    first, free, second = (model.tokenizer.decode(tokens) for tokens in said.values())
    assert re.fullmatch("[ab]{3,5}c", first) and re.fullmatch("[xyz]{9}", second)
    assert free == model.generate("hello", max_new_tokens=12)


def test_rewinding_and_batches(model: ours.LanguageModel) -> None:
    params = ours.GeneratorParams(model.model)
    params.set_guidance("regex", "[ab]{3}[cd]{3}")
    params.set_search_options(batch_size=2, max_length=40)
    generator = ours.Generator(model.model, params)
    generator.append_tokens(np.array([[5, 6], [7, 8]], np.int32))
    while not generator.is_done():
        generator.generate_next_token()
    assert all(
        re.fullmatch("[ab]{3}[cd]{3}", model.tokenizer.decode(generator.get_sequence(row)[2:])) for row in range(2)
    )
    params.set_search_options(batch_size=1)
    generator = ours.Generator(model.model, params)
    generator.append_tokens(np.array([5, 6], np.int32))
    steps = 0
    while not generator.is_done():
        generator.generate_next_token()
        if steps in (1, 3):
            generator.rewind_to(generator.token_count() - 1)
        steps += 1
    assert re.fullmatch("[ab]{3}[cd]{3}", model.tokenizer.decode(generator.get_sequence(0)[2:]))


@pytest.mark.parametrize(
    ("kind", "data", "message"),
    [
        ("xml", "", "Unsupported guidance type: xml"),
        ("regex", "(", "unclosed group"),
        ("json_schema", "{", "is no JSON"),
        ("json_schema", '{"type": 5}', "type must be a string"),
        ("lark_grammar", "start: other", "other"),
    ],
)
def test_wrong_constraints(model: ours.LanguageModel, kind: str, data: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        model.generate("hello", guidance=(kind, data))


def test_the_package_that_is_missing(model: ours.LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(ImportError, match=r"jitonnx\[guidance\]"):
        model.generate("hello", guidance=("regex", "a+"))
