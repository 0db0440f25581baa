"""Features, rules of logits and segments, beside those of Hugging Face's transformers, where it is installed."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from jitonnx.genai.log_mel import LogMel
from jitonnx.genai.speech_tokens import SpeechTokens
from tests.genai.test_speech import tone

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

TEXT, TIMES = 40, 60
TOKENS = SpeechTokens(
    start=TEXT + 1,
    end=TEXT,
    no_timestamps=TEXT + 5,
    languages={"en": TEXT + 2, "de": TEXT + 3},
    tasks={"transcribe": TEXT + 4},
    own_language=None,
    suppressed=np.array([3, 7, TEXT + 1]),
    suppressed_first=np.array([5, TEXT]),
    latest_first=20,
)
WORDS = TOKENS.first_time + TIMES


@pytest.mark.parametrize("mels", [80, 128])
def test_features(mels: int) -> None:
    from transformers import WhisperFeatureExtractor

    theirs, ours = WhisperFeatureExtractor(feature_size=mels), LogMel(mels)
    for seconds in (0.5, 31.3):
        sound = tone(seconds)
        told = {"sampling_rate": 16000, "return_tensors": "np"}
        expected = theirs(sound, truncation=False, padding="longest", **told)["input_features"][0]
        np.testing.assert_allclose(ours.features(sound), expected, atol=1e-4)
    padded = np.pad(tone(1.0), (0, ours.samples - 16000))
    expected = theirs(padded[:16000], sampling_rate=16000, return_tensors="np")["input_features"][0]
    np.testing.assert_allclose(ours.features(padded), expected, atol=1e-4)


@pytest.mark.parametrize("has_latest", [True, False])
@pytest.mark.parametrize("timestamps", [True, False])
def test_rules_of_logits(has_latest: bool, timestamps: bool) -> None:
    from transformers.generation.logits_process import (
        SuppressTokensAtBeginLogitsProcessor,
        SuppressTokensLogitsProcessor,
        WhisperTimeStampLogitsProcessor,
    )

    tokens = TOKENS if has_latest else dataclasses.replace(TOKENS, latest_first=None)
    told = SimpleNamespace(no_timestamps_token_id=tokens.no_timestamps, eos_token_id=tokens.end, bos_token_id=None)
    told.max_initial_timestamp_index = tokens.latest_first
    begin = 3
    theirs = [
        SuppressTokensAtBeginLogitsProcessor(tokens.suppressed_first.tolist(), begin),
        SuppressTokensLogitsProcessor(tokens.suppressed.tolist()),
    ]
    if timestamps:
        theirs.append(WhisperTimeStampLogitsProcessor(told, begin))
    random = np.random.default_rng(0)
    for _ in range(60):  # sequences that obey the rules, of logits that make texts or timestamps more probable
        said: list[int] = []
        for _ in range(random.integers(1, 30)):
            logits = random.normal(size=WORDS).astype(np.float32)
            logits[tokens.first_time :] += random.choice([-8.0, -3.0, 0.0, 8.0])
            expected = torch.from_numpy(logits.copy())[None]
            ids = torch.tensor([[tokens.start] * begin + said])
            for one in theirs:
                expected = one(ids, expected)
            tokens.allow(logits, said, timestamps=timestamps)
            np.testing.assert_array_equal(logits, expected[0].numpy())
            if (token := int(logits.argmax())) == tokens.end:
                break
            said.append(token)


def test_segments() -> None:
    from transformers.models.whisper.generation_whisper import WhisperGenerationMixin

    random = np.random.default_rng(1)
    for _ in range(200):
        said, time = [TOKENS.first_time], 0
        for _ in range(random.integers(1, 6)):
            said += random.integers(0, TEXT, random.integers(1, 4)).tolist()
            time = min(time + int(random.integers(1, 15)), TIMES - 1)
            said += [TOKENS.first_time + time] * int(random.integers(0, 3))
        frames = int(random.integers(100, 3000))
        expected, offset = WhisperGenerationMixin._retrieve_segment(
            seek_sequence=torch.tensor(said),
            seek_outputs=[None],
            time_offset=torch.zeros(1, dtype=torch.float64),
            timestamp_begin=TOKENS.first_time,
            seek_num_frames=torch.tensor([frames]),
            time_precision=0.02,
            time_precision_features=0.01,
            input_stride=2,
            prev_idx=0,
            idx=0,
            return_token_timestamps=False,
            decoder_input_ids=torch.zeros(1, 3),
        )
        pieces, following = TOKENS.divide(said, frames / 100)
        assert [one.tokens for one in pieces] == [one["tokens"].tolist() for one in expected]
        assert [one.start for one in pieces] == pytest.approx([float(one["start"]) for one in expected])
        assert [one.end for one in pieces] == pytest.approx([float(one["end"]) for one in expected], abs=0.011)
        assert int(offset) == (frames if following is None else round(following * 100))
