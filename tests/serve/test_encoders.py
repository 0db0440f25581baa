"""Embeddings by clients of the package `openai`, and ranks over HTTP."""

import base64
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jitonnx.genai import Embedder, Reranker
from jitonnx.serve.server import loaded
from tests.genai.encoders import write_encoder

openai = pytest.importorskip("openai")
pytest.importorskip("prometheus_client")
httpx = pytest.importorskip("httpx")
from tests.serve.test_serve import NAME, client_of, served  # noqa: E402  (needs these packages)

TEXTS = ["a small model", "here", "a model runs here"]


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return loaded(write_encoder(tmp_path_factory.mktemp("embedder")), None, None)


@pytest.fixture(scope="module")
def address(embedder: Any) -> Iterator[str]:
    with served(embedder) as found:
        yield found


def test_embeddings(embedder: Any, address: str) -> None:
    assert isinstance(embedder, Embedder)
    client = client_of(address)
    expected = embedder.embed(TEXTS)
    for form in ("float", "base64"):
        made = client.embeddings.create(model=NAME, input=TEXTS, encoding_format=form)
        given = [row.embedding for row in made.data]
        rows = [np.frombuffer(base64.b64decode(row), "<f4") if isinstance(row, str) else row for row in given]
        np.testing.assert_allclose(rows, expected, atol=1e-6)
        assert made.usage.total_tokens == 3 * 2 + 3 + 1 + 4 and [row.index for row in made.data] == [0, 1, 2]
    assert client.models.list().data[0].id == NAME and httpx.get(f"{address}/health").status_code == 200
    with ThreadPoolExecutor(16) as pool:
        asked = [TEXTS[i % 3] for i in range(64)]
        rows = list(pool.map(lambda text: client.embeddings.create(model=NAME, input=text).data[0].embedding, asked))
    np.testing.assert_allclose(rows, embedder.embed(asked), atol=1e-6)
    assert "jitonnx_batch_texts_sum" in httpx.get(f"{address}/metrics").text


@pytest.mark.parametrize(
    ("param", "change"),
    [
        ("input", {"input": []}),
        ("input", {"input": [[1, 2]]}),
        ("dimensions", {"dimensions": 4}),
        (None, {"model": "x"}),
    ],
)
def test_wrong_requests(address: str, param: str | None, change: dict[str, Any]) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        client_of(address).embeddings.create(**{"model": NAME, "input": "here", **change})
    assert caught.value.status_code in (400, 404) and (param is None or caught.value.param == param)


def test_ranks(tmp_path: Path) -> None:
    config = {"architectures": ["BertForSequenceClassification"]}
    reranker = loaded(write_encoder(tmp_path, classes=1, config=config), None, None)
    assert isinstance(reranker, Reranker)
    scores = reranker.score("a model", TEXTS)
    with served(reranker) as address:
        body = {"model": NAME, "query": "a model", "documents": [*TEXTS[:2], {"text": TEXTS[2]}]}
        made = httpx.post(f"{address}/v1/rerank", json={**body, "return_documents": True}).json()
        assert [one["index"] for one in made["results"]] == np.argsort(-scores).tolist()
        assert [one["document"]["text"] for one in made["results"]] == [TEXTS[i] for i in np.argsort(-scores)]
        np.testing.assert_allclose([one["relevance_score"] for one in made["results"]], -np.sort(-scores), atol=1e-6)
        assert len(httpx.post(f"{address}/rerank", json={**body, "top_n": 1}).json()["results"]) == 1
        for change in ({"top_n": 0}, {"documents": []}, {"documents": [5]}, {"query": None}, {"other": 1}):
            assert httpx.post(f"{address}/v2/rerank", json={**body, **change}).status_code == 400
        assert httpx.post(f"{address}/v1/embeddings", json={"input": "a"}).status_code == 404
