"""Caches of another type than the model's: nearly the same logits, in less memory."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto

import jitonnx.genai as ours
from bench.decoder import decoder
from jitonnx.errors import InvalidArgument
from jitonnx.ir.dtypes import DType
from jitonnx.tools.cli.common import CACHE_TYPES
from tests.genai.folders import SHAPE, write_folder, write_windowed_folder

PROMPT = np.arange(5, 95, dtype=np.int32)
TYPES = {"float32": (DType.FLOAT, 1e-5), "float16": (DType.FLOAT16, 5e-3), "bfloat16": (DType.BFLOAT16, 4e-2)}
TYPES["int8"] = (DType.INT8, 1e-1)


def logits_of(model: ours.LanguageModel) -> tuple[np.ndarray, Any]:
    """Behind a prompt and some steps; and the caches."""
    generator = ours.Generator(model.model, ours.GeneratorParams(model.model))
    found = []
    for tokens in (PROMPT, PROMPT[:1], PROMPT[7:10]):
        generator.append_tokens(tokens)
        found.append(generator.get_logits()[0, 0].copy())
    return np.stack(found), generator._steps.caches.values


@pytest.mark.parametrize("write", [write_folder, write_windowed_folder])
@pytest.mark.parametrize("name", TYPES)
def test_types(language_model: ModelProto, tmp_path: Path, write: Any, name: str) -> None:
    folder = write(tmp_path / "model", language_model)
    dtype, tolerance = TYPES[name]
    expected, _ = logits_of(ours.load(folder))
    results, caches = logits_of(ours.load(folder, cache_type=name))
    assert {int(value.element_type()) for value in caches.values()} == {int(dtype)}
    np.testing.assert_allclose(results, expected, atol=tolerance * np.abs(expected).max())


def test_an_engine(model_folder: Path) -> None:
    """Its lanes are of that type, and answers those of the same model alone."""
    model = ours.load(model_folder, cache_type="int8", calibration="the cache of the kernel")
    engine = ours.Engine(model.model)
    prompts = ["hello world", "the cache", "kernel"]
    requests = []
    for prompt in prompts:
        requests.append(engine.create_request())
        options = ours.TurnOptions(requests[-1])
        options.set_max_generated_tokens(6)
        requests[-1].begin_turn(model.tokenizer.encode(prompt), options)
    buffer = engine.create_event_buffer(64)
    made: dict[Any, list[int]] = {request: [] for request in requests}
    while engine.has_pending_requests():
        for event in engine.run(buffer) or ():
            if event.token is not None:
                made[event.request].append(event.token)
    for prompt, request in zip(prompts, requests, strict=True):
        stream = model.tokenizer.create_stream()
        assert "".join(map(stream.decode, made[request])) == model.generate(prompt, max_new_tokens=6)


def test_the_command_knows_all_types() -> None:
    assert set(CACHE_TYPES) == set(TYPES)


def test_what_cannot_be_chosen(model_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="one of float32, float16, bfloat16, int8 is needed"):
        ours.load(model_folder, cache_type="int4")
    with pytest.raises(InvalidArgument, match="it has no tokens"):
        ours.load(model_folder, cache_type="int8", calibration="")
    other = decoder(SHAPE)
    for node in other.graph.node:
        if node.op_type == "GroupQueryAttention":
            node.op_type = "Other"
    other.opset_import.add(domain="some", version=1)
    with pytest.raises(InvalidArgument, match="for models of GroupQueryAttention alone"):
        ours.load(write_folder(tmp_path / "other", other), cache_type="float16")
