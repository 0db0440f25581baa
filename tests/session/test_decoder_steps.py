"""Decoders with pasts: all that their steps take is made when a session is, so that no step waits for a compiler."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from jitonnx.api.session import InferenceSession
from jitonnx.support.kernel_cache import KernelCache
from tests.artifact.test_whole import OLD, is_cached, options, wait_for
from tests.session.models import INT64, model, node, tensor

WORDS, DEPTH = 50, 8


def decoder(*, tokens: str = "input_ids", past: str = "past_key_values.0.key", present: str = "present.0.key") -> bytes:
    """A layer of attention whose mask of [new, new] fits where there is no past, or one new token: two plans."""
    nodes = [
        node("Gather", ["table", tokens], ["x"]),
        node("Unsqueeze", ["x", "one"], ["new"]),
        node("Concat", [past, "new"], [present], axis=2),
        node("Transpose", [present], ["turned"], perm=[0, 1, 3, 2]),
        node("MatMul", ["new", "turned"], ["scores"]),
        node("Shape", ["x"], ["length"], start=1, end=2),
        node("Concat", ["length", "length"], ["square"], axis=0),
        node("ConstantOfShape", ["square"], ["low"], value=onnx.helper.make_tensor("low", 1, [1], [-30.0])),
        node("Trilu", ["low", "first"], ["causal"]),
        node("Add", ["scores", "causal"], ["masked"]),
        node("Unsqueeze", ["attention_mask", "axes"], ["shown"]),
        node("Cast", ["shown"], ["factors"], to=1),
        node("Mul", ["masked", "factors"], ["known"]),
        node("Softmax", ["known"], ["weights"]),
        node("MatMul", ["weights", present], ["sums"]),
        node("Squeeze", ["sums", "one"], ["rows"]),
        node("MatMul", ["rows", "words"], ["logits"]),
    ]
    rng = np.random.default_rng(0)
    constants = {
        "table": rng.standard_normal((WORDS, DEPTH), np.float32),
        "words": rng.standard_normal((DEPTH, WORDS), np.float32),
        "one": np.array([1]),
        "axes": np.array([1, 2]),
        "first": np.array(1),
    }
    inputs = [
        tensor(tokens, ("batch", "sequence"), INT64),
        tensor("attention_mask", ("batch", "total"), INT64),
        tensor(past, ("batch", 1, "past", "depth")),
    ]
    outputs = [tensor("logits", ("batch", "sequence", WORDS)), tensor(present, ("batch", 1, "total", DEPTH))]
    return model(nodes, inputs, outputs, constants)


def steps(session: Any, batch: int, lengths: list[int]) -> list[np.ndarray]:
    """The logits of steps of so many new tokens."""
    rng = np.random.default_rng(batch)
    past, found = np.zeros((batch, 1, 0, DEPTH), np.float32), []
    for new in lengths:
        mask = np.ones((batch, past.shape[2] + new), np.int64)
        feeds = [rng.integers(0, WORDS, (batch, new)), mask, past]
        names = [entry.name for entry in session.get_inputs()]
        logits, past = session.run(None, dict(zip(names, feeds, strict=True)))
        found.append(logits)
    return found


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("lengths", [[7, 1, 1, 1], [1, 1, 1]])
def test_no_step_makes_a_plan(batch: int, lengths: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    session = InferenceSession(decoder(), options())
    known = len(session.engine.variants)
    assert known

    def put(*_: Any) -> None:
        raise AssertionError("something is compiled in a run")

    monkeypatch.setattr(KernelCache, "put", put)
    ours = steps(session, batch, lengths)
    assert len(session.engine.variants) == known
    theirs = steps(ort.InferenceSession(decoder(), providers=["CPUExecutionProvider"]), batch, lengths)
    assert all(np.allclose(a, b, rtol=1e-4, atol=1e-4) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("names", [{"tokens": "words_of"}, {"past": "cache"}, {"present": "next"}])
def test_what_is_no_decoder_by_its_names(names: dict[str, str]) -> None:
    """It is planned for other sizes when these come, as all models are."""
    session = InferenceSession(decoder(**names), options())
    assert not session.engine.variants
    assert len(steps(session, 1, [5, 1])) == 2 and session.engine.variants


def test_all_plans_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITONNX_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "decoder.onnx"
    path.write_bytes(decoder())
    time.sleep(OLD)
    first = steps(InferenceSession(path, options()), 1, [6, 1, 1])
    wait_for(tmp_path)
    session = InferenceSession(path, options())
    assert is_cached(session) and all(map(np.array_equal, first, steps(session, 1, [6, 1, 1]))) and is_cached(session)
