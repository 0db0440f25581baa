"""Texts as vectors and pairs as scores, against onnxruntime a text at a time."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from jitonnx import errors
from jitonnx.genai import Embedder, Reranker
from tests.genai.encoders import LONGEST, WORDS, write_encoder

TEXTS = ["a small model", "here", "a model runs here a small model runs", "", "what is this", "runs " * 30]
POOLINGS: dict[str, Any] = {
    "mean": lambda rows: rows.mean(0),
    "cls": lambda rows: rows[0],
    "lasttoken": lambda rows: rows[-1],
    "max": lambda rows: rows.max(0),
    "mean_sqrt_len": lambda rows: rows.sum(0) / np.sqrt(len(rows)),
}


def tokens_of(*texts: str) -> list[int]:
    """[CLS] text [SEP] (text [SEP]), cut."""
    rows = [[WORDS.index(word) if word in WORDS else 1 for word in text.split()] for text in texts]
    return [2, *(token for row in rows for token in [*row, 3])]


def alone(folder: Path, ids: list[int], types: list[int] | None = None) -> np.ndarray:
    """What onnxruntime gives for one text."""
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    row = np.array([ids])
    feeds = {"input_ids": row, "attention_mask": np.ones_like(row)}
    feeds["token_type_ids"] = np.zeros_like(row) if types is None else np.array([types])
    found: np.ndarray = session.run(None, feeds)[0][0]
    return found


def unit(row: np.ndarray) -> np.ndarray:
    made: np.ndarray = row / np.linalg.norm(row)
    return made


@pytest.mark.parametrize(
    ("told", "names"),
    [
        (None, ["mean"]),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, ["cls"]),
        ({"pooling_mode": "lasttoken"}, ["lasttoken"]),
        ({"pooling_mode_max_tokens": True, "pooling_mode_mean_sqrt_len_tokens": True}, ["max", "mean_sqrt_len"]),
    ],
    ids=str,
)
def test_vectors(tmp_path: Path, told: Any, names: list[str]) -> None:
    folder = write_encoder(tmp_path, pooling=told)
    embedder = Embedder(folder, threads=1)
    rows = [
        alone(folder, [*tokens_of(text)[: LONGEST - 1], 3] if len(text) > 60 else tokens_of(text)) for text in TEXTS
    ]
    expected = np.stack([np.concatenate([POOLINGS[name](row) for name in names]) for row in rows])
    np.testing.assert_allclose(embedder.embed(TEXTS, normalize=False), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(embedder.embed(TEXTS[0]), unit(expected[0]), rtol=1e-5, atol=1e-6)
    many = embedder.embed([TEXTS[i % len(TEXTS)] for i in range(100)])
    np.testing.assert_allclose(many[96], unit(expected[0]), rtol=1e-5, atol=1e-6)
    assert embedder.embed([]).shape == (0, 0)


def test_vectors_that_the_model_pools(tmp_path: Path) -> None:
    embedder = Embedder(
        write_encoder(tmp_path, pooled=True, pooling={"pooling_mode": "unknown"}, place="onnx/model.onnx")
    )
    assert embedder.embed(TEXTS).shape == (6, 8)


def test_prompts(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path)
    told = {"prompts": {"query": "query: ", "passage": ""}, "default_prompt_name": "passage"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(told))
    embedder = Embedder(folder)
    plain, query = embedder.embed("here"), embedder.embed("here", prompt_name="query")
    assert np.array_equal(query, embedder.embed("query: here")) and not np.allclose(plain, query)
    assert np.array_equal(query, embedder.embed("here", prompt="query: "))
    with pytest.raises(errors.InvalidArgument, match="no prompt 'other': query, passage are known"):
        embedder.embed("here", prompt_name="other")


def test_scores(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path, classes=1)
    texts = [TEXTS[0], TEXTS[1], "", TEXTS[4]]
    scores = Reranker(folder).score("a model", texts)
    for text, score in zip(texts, scores, strict=True):
        ids = tokens_of("a model", text)
        logit = alone(folder, ids, [0] * 4 + [1] * (len(ids) - 4))[0]
        assert abs(score - 1 / (1 + np.exp(-logit))) < 1e-6


def test_folders_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(errors.NoSuchFile, match=r"no .*model.onnx and no .*onnx/model.onnx"):
        Embedder(tmp_path)
    with pytest.raises(errors.InvalidArgument, match="one logit a pair is needed"):
        Reranker(write_encoder(tmp_path / "classes", classes=3))
    with pytest.raises(errors.NotImplemented, match="asks for 'weightedmean'"):
        Embedder(write_encoder(tmp_path / "pooling", pooling={"pooling_mode_weightedmean_tokens": True}))
    folder = write_encoder(tmp_path / "dense")
    (folder / "modules.json").write_text(json.dumps([{"type": "sentence_transformers.models.Dense"}]))
    with pytest.raises(errors.NotImplemented, match="has a layer Dense"):
        Embedder(folder)
    with pytest.raises(errors.InvalidArgument, match=r"texts are \[5\]"):
        Embedder(write_encoder(tmp_path / "fine")).embed([5])  # type: ignore[list-item]
    (tmp_path / "fine" / "tokenizer.json").write_text("{")
    with pytest.raises(errors.InvalidArgument, match=r"tokenizer.json cannot be read"):
        Embedder(tmp_path / "fine")
