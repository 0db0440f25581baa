"""Speech to text: audio as features, folders of onnxruntime-genai's builder and optimum's, transcripts, errors."""

import io
import json
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import jitonnx.genai as ours
from jitonnx.errors import InvalidArgument, NoSuchFile, NotImplemented
from jitonnx.genai.audio import samples
from jitonnx.tools.cli import main
from tests.genai.whisper import PROMPT, generation, tokenizer, write_builders, write_optimums


def tone(seconds: float, rate: int = 16000, seed: int = 0) -> np.ndarray:
    t = np.arange(round(seconds * rate)) / rate
    noise = np.random.default_rng(seed).normal(size=t.size)
    made: np.ndarray = 0.3 * np.sin(2 * np.pi * (300 + 200 * np.sin(t)) * t) * np.abs(np.sin(0.7 * t)) + 0.05 * noise
    return np.clip(made, -1, 1).astype(np.float32)


def wav(sound: np.ndarray, *, rate: int = 16000, width: int = 2) -> bytes:
    """A WAV file of a sound, [samples] or [samples, channels], in so many bytes a sample."""
    numbers = (sound.astype(np.float64) * ((1 << (8 * width - 1)) - 1)).astype(np.int64)
    data = (numbers + 128).astype(np.uint8) if width == 1 else numbers.astype("<i4")
    parts = data.reshape(-1, 1).view(np.uint8)[:, :width]
    file = io.BytesIO()
    with wave.open(file, "wb") as made:
        made.setnchannels(1 if sound.ndim == 1 else sound.shape[1])
        made.setsampwidth(width)
        made.setframerate(rate)
        made.writeframes(parts.tobytes())
    return file.getvalue()


@pytest.fixture(scope="module")
def builders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_builders(tmp_path_factory.mktemp("speech") / "builders")


@pytest.fixture(scope="module")
def optimums(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_optimums(tmp_path_factory.mktemp("speech") / "optimums")


def generated(package: Any, folder: Path, sounds: list[bytes]) -> tuple[np.ndarray, list[list[int]]]:
    """Features and sequences, as the published example for Whisper makes them."""
    model = package.Model(str(folder))
    processor = model.create_multimodal_processor()
    inputs = processor([PROMPT] * len(sounds), audios=package.Audios.open_bytes(*sounds))
    features = inputs["audio_features"].as_numpy().copy()
    params = package.GeneratorParams(model)
    params.set_search_options(do_sample=False, num_beams=1, batch_size=len(sounds), max_length=24)
    generator = package.Generator(model, params)
    generator.set_inputs(inputs)
    while not generator.is_done():
        generator.generate_next_token()
    return features, [generator.get_sequence(place).tolist() for place in range(len(sounds))]


def test_tokens_are_those_of_onnxruntime_genai(builders: Path) -> None:
    theirs = pytest.importorskip("onnxruntime_genai")
    short, long = wav(tone(1.7)), wav(tone(31.0, seed=1))
    stereo = wav(np.stack([tone(2.0), tone(2.0, seed=2)], 1))
    for sounds in ([short], [stereo, long]):
        features, sequences = generated(ours, builders, sounds)
        expected, tokens = generated(theirs, builders, sounds)
        np.testing.assert_allclose(features, expected, atol=1e-4)
        assert sequences == tokens
        assert len(set(tokens[0])) > 5, "the model says the same all the time"


def test_a_processor_says_what_it_needs(builders: Path, model_folder: Path) -> None:
    model = ours.Model(builders)
    processor = model.create_multimodal_processor()
    audios = ours.Audios.open_bytes(wav(tone(0.5)))
    tokens = model.create_multimodal_processor().tokenizer.encode("hello world")
    assert processor.decode(tokens) == "hello world"
    stream = processor.create_stream()
    assert "".join(stream.decode(token) for token in tokens) == "hello world"
    for arguments, options, message in (
        ([PROMPT], {}, "Audios.open"),
        ([""], {"audios": audios}, "startoftranscript"),
        ([[PROMPT, "<|en|>"]], {"audios": ours.Audios(audios.sounds * 2)}, "4, 1 tokens"),
        ([[PROMPT, PROMPT]], {"audios": audios}, "prompts are 2, sounds 1"),
        ([PROMPT], {"audios": audios, "images": audios}, "takes no images"),
        ([PROMPT], {"audios": ours.Audios([np.zeros(100, np.float32)])}, "160 at least"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            processor(*arguments, **options)
    params = ours.GeneratorParams(model)
    params.set_search_options(batch_size=2)
    with pytest.raises(InvalidArgument, match="batch_size is 2"):
        ours.Generator(model, params).set_inputs(processor(PROMPT, audios=audios))
    params.set_search_options(batch_size=1)
    with pytest.raises(InvalidArgument, match=r"shape \[1, 80, 2999\]"):
        ours.Generator(model, params).set_model_input("audio_features", np.zeros((1, 80, 2999), np.float32))
    with pytest.raises(NotImplemented, match="'llama'"):
        ours.Model(model_folder).create_multimodal_processor()
    with pytest.raises(NotImplemented, match="nemotron"):
        model.create_streaming_processor()


@pytest.mark.parametrize("change", ["n_mel", "operation", "none"])
def test_folders_whose_features_do_not_fit(builders: Path, tmp_path: Path, change: str) -> None:
    folder = write_builders(tmp_path / "model")
    place = folder / "audio_processor_config.json"
    told = json.loads(place.read_text())
    operations = told["feature_extraction"]["sequence"]
    if change == "n_mel":
        operations[2]["operation"]["attrs"]["n_mel"] = 128
    elif change == "operation":
        operations[2]["operation"]["type"] = "Phi4AudioEmbed"
    place.write_text(json.dumps(told))
    if change == "none":
        place.unlink()
    expected = {"n_mel": "128 bands", "operation": "Phi4AudioEmbed", "none": "neither"}[change]
    with pytest.raises((InvalidArgument, NotImplemented), match=expected):
        ours.Model(folder).create_multimodal_processor()


# ------------------------------------------------------------ audio


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_wav_files(tmp_path: Path, width: int) -> None:
    sound = tone(0.3)
    np.testing.assert_allclose(samples(wav(sound, width=width)), sound, atol=2.1 * 2.0 ** (1 - 8 * width) + 1e-7)
    both = np.stack([sound, sound[::-1]], 1)
    path = tmp_path / "sound.wav"
    path.write_bytes(wav(both, width=width))
    np.testing.assert_allclose(samples(path), both.mean(1), atol=2.1 * 2.0 ** (1 - 8 * width) + 1e-7)


def test_other_forms_and_rates(tmp_path: Path) -> None:
    package = pytest.importorskip("soundfile")
    pytest.importorskip("soxr")
    sound = tone(1.0)
    for name, options, least in (
        ("a.flac", {}, 0.999),
        ("a.ogg", {}, 0.95),
        ("a.mp3", {}, 0.9),
        ("a.wav", {"subtype": "FLOAT"}, 0.999),
    ):
        package.write(tmp_path / name, sound, 16000, **options)
        found = samples(tmp_path / name)
        assert np.corrcoef(found[: sound.size], sound)[0, 1] > least, name
    for rate in (8000, 44100):
        found = samples(wav(tone(1.0, rate), rate=rate))
        assert found.dtype == np.float32 and abs(found.size - 16000) < 10
        slow = np.sin(2 * np.pi * 440 * np.arange(rate) / rate).astype(np.float32)
        again = samples(wav(slow, rate=rate))[1000:15000]
        np.testing.assert_allclose(again, np.sin(2 * np.pi * 440 * np.arange(1000, 15000) / 16000), atol=2e-3)


def test_audio_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = wav(tone(0.2))
    with pytest.raises(NoSuchFile, match=r"nowhere\.wav"):
        samples(tmp_path / "nowhere.wav")
    with pytest.raises(InvalidArgument, match="ends too early"):
        samples(whole[:30])
    assert samples(whole[:-5]).size == 3200 - 3
    for given, message in (
        (np.zeros((2, 5)), r"\[2, 5\]"),
        (np.zeros(5, np.int16), "int16"),
        (np.full(500, np.nan), "not finite"),
        (5, "a file's path"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            samples(given)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="at 3 Hz"):
        samples(wav(tone(0.2), rate=3))
    with pytest.raises(InvalidArgument, match="was given nothing"):
        ours.Audios.open()
    for package in ("soundfile", "soxr"):
        monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(ImportError, match=r"'soundfile': pip install 'jitonnx\[speech\]'"):
        samples(b"fLaC" + bytes(100))
    with pytest.raises(ImportError, match=r"8000 Hz.*'soxr': pip install 'jitonnx\[speech\]'"):
        samples(wav(tone(0.1, 8000), rate=8000))


# ------------------------------------------------------------ transcripts


def spoken(folder: Path, features: np.ndarray, prompt: list[int], allow: Callable[..., None]) -> list[int]:
    """By onnxruntime, without caches. features: of optimum's folder."""
    listen, speak = (onnxruntime.InferenceSession(str(folder / f"{one}_model.onnx")) for one in ("encoder", "decoder"))
    (hidden,) = listen.run(None, {"input_features": features})
    made: list[int] = []
    while len(prompt) + len(made) < 64:
        feeds = {"encoder_hidden_states": hidden, "input_ids": np.array([prompt + made])}
        logits = speak.run(["logits"], feeds)[0][0, -1]
        allow(logits, made)
        token = int(logits.argmax())
        if token == tokenizer().token_to_id("<|endoftext|>"):
            break
        made.append(token)
    return made


def test_transcripts(builders: Path, optimums: Path, tmp_path: Path) -> None:
    made = tokenizer()
    told = generation(made)
    first, sound = made.token_to_id("<|0.00|>"), tone(4.0)
    model = ours.load(optimums)
    found = model.transcribe(sound, language="de", task="translate")
    features = model._transcriber._form.features(np.pad(sound, (0, 480000 - sound.size)))[None]  # type: ignore[union-attr]

    def allow(logits: np.ndarray, said: list[int]) -> None:
        logits[told["suppress_tokens"] + ([] if said else told["begin_suppress_tokens"])] = -np.inf

    prompt = [made.token_to_id(f"<|{one}|>") for one in ("startoftranscript", "de", "translate", "notimestamps")]
    assert found.tokens == spoken(optimums, features, prompt, allow)
    assert found.language == "de" and len(set(found.tokens)) > 5
    assert found.text == made.decode([token for token in found.tokens if token < first]).strip() == str(found)
    # The same weights in the other folder, which tells no tokens, unless a file does.
    (tmp_path / "sound.wav").write_bytes(wav(sound, width=4))
    other = ours.load(builders)
    (builders / "generation_config.json").write_text(json.dumps(told))
    assert other.transcribe(tmp_path / "sound.wav", language="<|DE|>", task="translate").tokens[:1]
    assert ours.load(builders).transcribe(sound, language="de", task="translate") == found
    (builders / "generation_config.json").unlink()


def test_languages_are_found_out(optimums: Path, tmp_path: Path) -> None:
    made, sound = tokenizer(), tone(2.0, seed=5)
    model = ours.load(optimums)
    found = model.transcribe(sound)
    features = model._transcriber._form.features(np.pad(sound, (0, 480000 - sound.size)))[None]  # type: ignore[union-attr]
    ids = [made.token_to_id(f"<|{code}|>") for code in ("en", "de", "fr")]
    seen: list[np.ndarray] = []
    spoken(optimums, features, [made.token_to_id("<|startoftranscript|>")], lambda row, _: seen.append(row.copy()))
    assert found.language == ("en", "de", "fr")[int(seen[0][ids].argmax())]
    forced = write_optimums(tmp_path / "forced", forced_decoder_ids=[[1, made.token_to_id("<|fr|>")], [2, 1]])
    assert ours.load(forced).transcribe(sound).language == "fr"
    english = ours.load(write_optimums(tmp_path / "english", is_multilingual=False))
    assert english.transcribe(sound, max_new_tokens=3).language is None
    with pytest.raises(InvalidArgument, match="English alone"):
        english.transcribe(sound, task="translate")


def test_long_audio_goes_on_at_the_last_timestamp(optimums: Path) -> None:
    model, sound = ours.load(optimums), tone(70.0, seed=3)
    found = model.transcribe(sound, language="en")
    assert found == model.transcribe(sound, language="en", timestamps=True)
    assert found.segments and all(0 <= one.start <= one.end <= 70.0 and one.text for one in found.segments)
    starts = [one.start for one in found.segments]
    assert starts == sorted(starts) and starts[-1] > 30.0
    short = model.transcribe(sound[:64000], language="en", timestamps=True)
    assert all(one.end <= 4.0 for one in short.segments)
    assert short.tokens != model.transcribe(sound[:64000], language="en").tokens


def test_transcripts_that_cannot_be(optimums: Path, model_folder: Path) -> None:
    model = ours.load(optimums)
    for options, message in (
        ({"language": "xx"}, "de, en, fr"),
        ({"task": "sing"}, "transcribe or translate"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            model.transcribe(tone(1.0), **options)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="is empty"):
        model.transcribe(np.zeros(0, np.float32))
    with pytest.raises(InvalidArgument, match="use transcribe"):
        model.generate("hello")
    with pytest.raises(InvalidArgument, match="takes no audio"):
        ours.load(model_folder).transcribe(tone(1.0))


def test_the_command(optimums: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place, sound = tmp_path / "sound.wav", wav(tone(35.0))
    place.write_bytes(sound)
    found = ours.load(optimums).transcribe(sound, language="fr", timestamps=True)
    main(["transcribe", str(optimums), str(place), "--language", "fr"])
    assert capsys.readouterr().out == f"{found.text}\n"
    main(["transcribe", str(optimums), str(place), "--language", "fr", "--format", "srt"])
    text = capsys.readouterr().out
    assert text.startswith("1\n00:00:0") and text.count(" --> ") == len(found.segments)
    main(["transcribe", str(optimums), str(place), str(place), "--language", "fr", "--format", "json"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 2 and lines[0]["file"] == str(place) and lines[1]["language"] == "fr"
    assert [one["text"] for one in lines[0]["segments"]] == [one.text for one in found.segments]
