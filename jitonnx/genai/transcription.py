"""Audio to text, window by window."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from jitonnx.errors import InvalidArgument
from jitonnx.genai.audio import Source, samples
from jitonnx.genai.encoder import FEATURES
from jitonnx.genai.generator import Generator, GeneratorParams
from jitonnx.genai.log_mel import RATE
from jitonnx.genai.model import Model
from jitonnx.genai.speech import form_of
from jitonnx.genai.speech_tokens import TASKS, Piece, speech_tokens
from jitonnx.genai.tokenizer import Tokenizer


@dataclass(frozen=True)
class Segment:
    """A part of a transcript: its text, and the seconds at which it begins and ends (start, end)."""

    start: float
    end: float
    text: str


@dataclass(frozen=True)
class Transcript:
    """What was said.

    language: its code, told or found out; None of a model that knows English alone. segments: those that have text, by
    timestamps, or each window of 30 s where there are none. tokens: all that the model said, timestamps among them.
    seconds: of the audio.
    """

    text: str
    language: str | None
    segments: list[Segment] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        return self.text


class Transcriber:
    """Transcripts by one model."""

    def __init__(self, model: Model, tokenizer: Tokenizer) -> None:
        """InvalidArgument for a model that takes no audio, or whose folder does not say enough."""
        self._model, self._tokenizer = model, tokenizer
        self._form = form_of(model)
        self._tokens = speech_tokens(model, tokenizer)

    def transcript(
        self, audio: Source, *, language: str | None, task: str, timestamps: bool, max_new_tokens: int | None
    ) -> Transcript:
        """As `LanguageModel.transcribe`."""
        tokens = self._tokens
        if task not in TASKS:
            raise InvalidArgument(f"task is {task!r}: {' or '.join(TASKS)} is needed")
        if task != "transcribe" and not tokens.languages:
            raise InvalidArgument(f"task is {task!r}, and the model knows English alone: it transcribes")
        if max_new_tokens is not None and max_new_tokens < 1:
            raise InvalidArgument(f"max_new_tokens is {max_new_tokens}: 1 or more is needed")
        told = None if language is None else tokens.language(language)
        if told is None and tokens.own_language is not None:
            told = tokens.language(tokens.own_language)
        sound = samples(audio)
        features, seconds = self._features(sound)
        is_long = features.shape[1] > self._form.frames
        generator = self._generator()
        window = self._listen(generator, features, 0)
        if told is None and tokens.languages:
            told = self._detected(generator)
        has_times = timestamps or is_long
        prompt = np.array(tokens.prompt(told, task, timestamps=has_times), np.int32)
        said: list[int] = []
        heard: list[int] = []
        segments: list[Segment] = []
        begin = 0
        while True:
            one = self._said(generator, prompt, max_new_tokens, timestamps=has_times)
            pieces, following = (
                tokens.divide(one, window * self._frame_seconds) if has_times else ([Piece(0.0, seconds, one)], None)
            )
            offset = begin * self._frame_seconds
            for piece in pieces:
                said += piece.tokens
                if offset + piece.start >= seconds:  # of the silence behind the sound
                    continue
                heard += piece.tokens
                if text := self._text(piece.tokens):
                    segments.append(Segment(offset + piece.start, min(offset + piece.end, seconds), text))
            begin += window if following is None else round(following / self._frame_seconds)
            if begin * self._frame_seconds >= seconds or begin >= features.shape[1]:
                break
            window = self._listen(generator, features, begin)
        codes: dict[int | None, str] = {token: code for code, token in tokens.languages.items()}
        return Transcript(self._text(heard), codes.get(told), segments, said, seconds)

    @property
    def _frame_seconds(self) -> float:
        return self._form.hop / RATE

    def _features(self, sound: np.ndarray) -> tuple[np.ndarray, float]:
        """The features of a sound, with silence behind one that is shorter than a window, and its seconds."""
        missing = max(self._form.samples - len(sound), 0)
        if not len(sound):
            raise InvalidArgument("the audio is empty: samples are needed")
        return self._form.features(np.pad(sound, (0, missing))), len(sound) / RATE

    def _generator(self) -> Generator:
        """A generator that is used for window after window."""
        params = GeneratorParams(self._model)
        params.set_search_options(batch_size=1, do_sample=False, max_length=self._model.context_length)
        return Generator(self._model, params)

    def _listen(self, generator: Generator, features: np.ndarray, begin: int) -> int:
        """Have the generator begin anew with a window; how many of its frames are there."""
        part = features[:, begin : begin + self._form.frames]
        window = np.zeros((1, self._form.mels, self._form.frames), np.float32)
        window[0, :, : part.shape[1]] = part
        generator.set_model_input(FEATURES, window)
        return int(part.shape[1])

    def _detected(self, generator: Generator) -> int:
        """The language's token that is the most probable one at the beginning."""
        generator.append_tokens(np.array([self._tokens.start], np.int32))
        logits = generator.get_logits()[0, 0]
        found = list(self._tokens.languages.values())
        return found[int(np.argmax(logits[found]))]

    def _said(
        self, generator: Generator, prompt: np.ndarray, max_new_tokens: int | None, *, timestamps: bool
    ) -> list[int]:
        """The tokens that the model says of a window, without the one that ends them."""
        generator.rewind_to(0)
        generator.append_tokens(prompt)
        said: list[int] = []
        while not generator.is_done() and (max_new_tokens is None or len(said) < max_new_tokens):
            logits = generator.get_logits()[0, 0]
            self._tokens.allow(logits, said, timestamps=timestamps)
            generator.set_logits(logits)
            generator.generate_next_token()
            token = int(generator.get_next_tokens()[0])
            if token in self._model.ends:
                break
            said.append(token)
        return said

    def _text(self, tokens: list[int]) -> str:
        """The text of tokens, timestamps left out."""
        return self._tokenizer.decode([token for token in tokens if token < self._tokens.first_time]).strip()
