"""Whisper's tokens: what a transcript begins with, which tokens may come next, and what timestamps divide it into.

The rules are those of OpenAI's `whisper.decoding` and `whisper.transcribe`, as Hugging Face's transformers has them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jitonnx.errors import InvalidArgument
from jitonnx.genai.config import read_object
from jitonnx.genai.model import Model
from jitonnx.genai.tokenizer import Tokenizer

TASKS = ("transcribe", "translate")
SECONDS = 0.02
"""What a timestamp counts."""

_FILES = ("generation_config.json", "config.json")
_SPECIAL = ("translate", "transcribe", "startoflm", "startofprev", "nospeech")
_ENGLISH = 51864
"""The size of the vocabulary of those of Whisper's models that know English alone, yet have tokens of languages."""
_LANGUAGE = re.compile(r"<\|([a-z]{2,3})\|>")


@dataclass(frozen=True)
class SpeechTokens:
    """The tokens of a model that mean something, and those that it may not say."""

    start: int
    """The token in front of all others."""
    end: int
    no_timestamps: int
    """Behind a transcript's first tokens where it is to have no timestamps. Those come behind this token, by their
    time, and all text before the end token."""
    languages: dict[str, int]
    """By their codes; none where the model knows English alone."""
    tasks: dict[str, int]
    own_language: str | None
    """The code of a model which was made for one language; None: it is to be told or found out."""
    suppressed: np.ndarray
    """Never said, int64."""
    suppressed_first: np.ndarray
    """Not said first, int64."""
    latest_first: int | None
    """The greatest first timestamp."""

    @property
    def first_time(self) -> int:
        """The timestamp of 0 s."""
        return self.no_timestamps + 1

    def language(self, given: str) -> int:
        """The token of a language, by its code, "en" or "<|en|>". InvalidArgument for an unknown one."""
        code = given.lower().removeprefix("<|").removesuffix("|>")
        if code not in self.languages:
            raise InvalidArgument(
                f"language is {given!r}; those of the model are: {', '.join(sorted(self.languages)) or 'English alone'}"
            )
        return self.languages[code]

    def prompt(self, language: int | None, task: str, *, timestamps: bool) -> list[int]:
        """What a transcript begins with. language: None for a model of English alone."""
        made = [self.start] if language is None else [self.start, language, self.tasks[task]]
        return made if timestamps else [*made, self.no_timestamps]

    def allow(self, logits: np.ndarray, said: Sequence[int], *, timestamps: bool) -> None:
        """Have logits [vocabulary] be the least ones, in place, of tokens that may not come behind those that were
        said since the beginning."""
        least = -np.inf
        logits[self.suppressed] = least
        if not said:
            logits[self.suppressed_first] = least
        if not timestamps:
            return
        logits[self.no_timestamps] = least
        # Timestamps come in pairs, an end and a beginning, but for the first one and the last.
        first, times = self.first_time, [token for token in said if token >= self.first_time]
        is_time = bool(said) and said[-1] >= first
        is_pair = is_time and (len(said) < 2 or said[-2] >= first)
        if is_pair:
            logits[first:] = least
        elif is_time:
            logits[: self.end] = least
        if times:  # time goes on
            logits[first : times[-1] + (not is_time or is_pair)] = least
        if not said:
            logits[:first] = least
            if self.latest_first is not None:
                logits[first + self.latest_first + 1 :] = least
        # A timestamp comes where some timestamp is more probable than the most probable text.
        most = logits.max()
        if np.isfinite(most):
            with np.errstate(divide="ignore"):
                together = np.log(np.exp(logits[first:] - most).sum()) + most
            if together > logits[:first].max():
                logits[:first] = least

    def divide(self, said: Sequence[int], seconds: float) -> tuple[list[Piece], float | None]:
        """The pieces of what was said of a window of so many seconds, and the second at which the next window begins;
        None: behind this one."""
        first = self.first_time
        is_time = [token >= first for token in said]
        ends = [place + 1 for place in range(len(said) - 1) if is_time[place] and is_time[place + 1]]
        if not ends:
            times = [token - first for token in said if token >= first]
            last = times[-1] * SECONDS if times and times[-1] else seconds
            return [Piece(0.0, last, list(said))], None
        is_whole = is_time[-2:] == [False, True]  # nothing is said behind the last timestamp
        if is_whole:
            ends.append(len(said))
        else:
            ends[-1] += 1
        pieces, begin = [], 0
        for place, end in enumerate(ends):
            tokens = list(said[begin:end])
            last = tokens[-1] if is_whole or place < len(ends) - 1 else tokens[-2]
            pieces.append(Piece((tokens[0] - first) * SECONDS, (last - first) * SECONDS, tokens))
            begin = end
        return pieces, None if is_whole else (said[begin - 2] - first) * SECONDS


@dataclass(frozen=True)
class Piece:
    """Tokens between two timestamps of a window, these included, and their seconds."""

    start: float
    end: float
    tokens: list[int]


def speech_tokens(model: Model, tokenizer: Tokenizer) -> SpeechTokens:
    """The tokens of a model: as `generation_config.json` tells them, and else as the tokenizer has them.

    InvalidArgument for a tokenizer that lacks one that is needed, and for a file that tells what is none.
    """
    told = _Told(model)
    start = told.token("decoder_start_token_id")
    if start is None:
        start = tokenizer.to_token_id("<|startoftranscript|>")
    no_timestamps = told.token("no_timestamps_token_id")
    if no_timestamps is None:
        no_timestamps = tokenizer.to_token_id("<|notimestamps|>")
    languages = {code.strip("<|>"): token for code, token in told.tokens_by_name("lang_to_id").items()}
    tasks = told.tokens_by_name("task_to_id")
    is_multilingual = told.get("is_multilingual", model.decoder.vocabulary != _ENGLISH)
    if is_multilingual and not languages:
        languages = _languages(tokenizer)
    if languages and not tasks:
        tasks = {task: tokenizer.to_token_id(f"<|{task}|>") for task in TASKS}
    suppressed = told.tokens("suppress_tokens")
    if suppressed is None:
        known = tokenizer.tokens()
        suppressed = [start, *(known[name] for one in _SPECIAL if (name := f"<|{one}|>") in known)]
    if not model.ends:
        raise InvalidArgument(f"{model.config.name('model', 'eos_token_id')} is not there: it ends a transcript")
    return SpeechTokens(
        start=start,
        end=model.ends[0],
        no_timestamps=no_timestamps,
        languages=languages if is_multilingual else {},
        tasks=tasks,
        own_language=_own_language(told, languages) if is_multilingual else None,
        suppressed=np.array(suppressed, np.int64),
        suppressed_first=np.array(told.tokens("begin_suppress_tokens") or [], np.int64),
        latest_first=told.token("max_initial_timestamp_index"),
    )


def _languages(tokenizer: Tokenizer) -> dict[str, int]:
    """The languages that a tokenizer has tokens of, by their codes."""
    found = {match[1]: token for text, token in tokenizer.tokens().items() if (match := _LANGUAGE.fullmatch(text))}
    return found if len(found) > 1 else {}


def _own_language(told: _Told, languages: dict[str, int]) -> str | None:
    """The language that a folder names, or has behind the first token."""
    if isinstance(language := told.get("language"), str):
        return language
    forced = told.get("forced_decoder_ids")
    codes = {token: code for code, token in languages.items()}
    firsts = (
        [pair[1] for pair in forced if isinstance(pair, list) and len(pair) == 2 and pair[0] == 1]
        if isinstance(forced, list)
        else []
    )
    return next((codes[token] for token in firsts if token in codes), None)


class _Told:
    """What a folder's files tell of its model's tokens."""

    def __init__(self, model: Model) -> None:
        folder, self._vocabulary = model.config.folder, model.decoder.vocabulary
        places = [os.path.join(folder, name) for name in _FILES]
        self._files = [(place, read_object(place)) for place in places if os.path.isfile(place)]

    def get(self, name: str, default: Any = None) -> Any:
        """A value, of the first file that has it."""
        return next((told[name] for _, told in self._files if told.get(name) is not None), default)

    def token(self, name: str) -> int | None:
        """A token, or a number of some. InvalidArgument for what is none."""
        found = self.tokens(name)
        return None if found is None else found[0] if found else None

    def tokens(self, name: str) -> list[int] | None:
        """Tokens. InvalidArgument for what are none."""
        found = self.get(name)
        if found is None:
            return None
        return [self._checked(name, one) for one in (found if isinstance(found, list) else [found])]

    def tokens_by_name(self, name: str) -> dict[str, int]:
        """Tokens by what they are called. InvalidArgument for what are none."""
        found = self.get(name, {})
        if not isinstance(found, dict):
            raise InvalidArgument(f"{name} in {self._place(name)} is {found!r}: an object of tokens is needed")
        return {key: self._checked(name, one) for key, one in found.items()}

    def _checked(self, name: str, token: Any) -> int:
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < self._vocabulary:
            raise InvalidArgument(
                f"{name} in {self._place(name)} has {token!r}: a token of the model's {self._vocabulary} is needed"
            )
        return token

    def _place(self, name: str) -> str:
        return next(place for place, told in self._files if told.get(name) is not None)
