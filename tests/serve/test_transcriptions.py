"""Transcripts by clients of the package `openai`."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from jitonnx.genai import subtitles
from jitonnx.serve.server import loaded
from tests.genai.test_speech import tone, wav
from tests.genai.whisper import write_builders, write_optimums

openai = pytest.importorskip("openai")
pytest.importorskip("prometheus_client")
pytest.importorskip("python_multipart")
httpx = pytest.importorskip("httpx")
from tests.serve.test_serve import NAME, client_of, served  # noqa: E402  (needs these packages)

SOUND = ("speech.wav", wav(tone(3.0)))


@pytest.fixture(scope="module", params=[write_builders, write_optimums])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return loaded(request.param(tmp_path_factory.mktemp("speech") / "model"), None, None)


@pytest.fixture(scope="module")
def address(model: Any) -> Iterator[str]:
    with served(model) as found:
        yield found


def test_forms(model: Any, address: str) -> None:
    client = client_of(address)
    plain, timed = (model.transcribe(SOUND[1], language="en", timestamps=each) for each in (False, True))
    asked: dict[str, Any] = {"model": NAME, "file": SOUND, "language": "en"}
    assert client.audio.transcriptions.create(**asked).text == plain.text
    assert client.audio.transcriptions.create(response_format="text", **asked) == f"{plain.text}\n"
    assert client.audio.transcriptions.create(response_format="srt", **asked) == subtitles.srt(timed.segments)
    found = client.audio.transcriptions.create(response_format="vtt", **asked)
    assert found == subtitles.vtt(timed.segments) and found.startswith("WEBVTT\n")
    found = client.audio.transcriptions.create(response_format="verbose_json", **asked)
    assert found.text == timed.text and found.language == "en" and abs(float(found.duration) - 3.0) < 1e-6
    assert [(one.start, one.end, one.text) for one in found.segments] == [
        (one.start, one.end, one.text) for one in timed.segments
    ]
    asked.pop("language")
    with pytest.warns(DeprecationWarning):
        found = client.audio.translations.create(**asked)
    assert found.text == model.transcribe(SOUND[1], task="translate").text
    with ThreadPoolExecutor(4) as pool:
        texts = list(pool.map(lambda _: client.audio.transcriptions.create(language="en", **asked).text, range(6)))
    assert texts == [plain.text] * 6
    assert "jitonnx_audio_seconds_total" in httpx.get(f"{address}/metrics").text


@pytest.mark.parametrize(
    ("status", "param", "change"),
    [
        (400, None, {"file": ("speech.wav", b"no sound")}),
        (400, "file", {"file": "text"}),
        (400, None, {"language": "xx"}),
        (400, "response_format", {"response_format": "xml"}),
        (400, "temperature", {"temperature": "0.7"}),
        (400, "other", {"other": "1"}),
        (404, "model", {"model": "other"}),
    ],
)
def test_wrong_requests(address: str, status: int, param: str | None, change: dict[str, Any]) -> None:
    fields = {"model": NAME, "file": SOUND, **change}
    files = {name: value for name, value in fields.items() if isinstance(value, tuple)}
    data = {name: value for name, value in fields.items() if isinstance(value, str)}
    answer = httpx.post(f"{address}/v1/audio/transcriptions", files=files or {"x": b""}, data=data)
    assert answer.status_code == status
    assert answer.json()["error"]["param"] in (param, "x") if not files else answer.json()["error"]["param"] == param
