"""Audio of a prompt: files and bytes as samples, and `Audios` under onnxruntime-genai's name."""

from __future__ import annotations

import io
import os
import wave
from collections.abc import Sequence
from typing import Any

import numpy as np

from jitonnx.errors import InvalidArgument, NoSuchFile
from jitonnx.genai.extras import needed
from jitonnx.genai.log_mel import RATE

Source = str | os.PathLike[str] | bytes | bytearray | memoryview | np.ndarray
"""A file's place, what a file holds, or samples at 16 kHz."""

_RATES = (1000, 768000)
"""The least and the greatest, in Hz: of others sound is none, and resampling would take more memory than there is."""


class Audios:
    """Some sounds, each as samples."""

    def __init__(self, sounds: Sequence[np.ndarray]) -> None:
        self.sounds = list(sounds)
        """Float32 [samples], mono, at 16 kHz. (Not in onnxruntime-genai.)"""

    @classmethod
    def open(cls, *paths: str) -> Audios:
        """Read files: WAV, and with the package `soundfile` FLAC, MP3, Ogg and others.

        NoSuchFile for one that is not there, InvalidArgument for none at all and for what is no audio; ImportError
        without a package that is needed.
        """
        return cls._of(paths, "open", "files")

    @classmethod
    def open_bytes(cls, *contents: bytes) -> Audios:
        """As `open`, of what files hold."""
        return cls._of(contents, "open_bytes", "bytes of files")

    @classmethod
    def _of(cls, sources: Sequence[Source], name: str, what: str) -> Audios:
        if not sources:
            raise InvalidArgument(f"Audios.{name} was given nothing: {what} are needed")
        return cls([samples(one) for one in sources])


def samples(source: Source) -> np.ndarray:
    """The samples of a sound, float32 [samples], mono, at 16 kHz.

    source: a file's place, what it holds, or samples, floating-point and at 16 kHz already. Channels are averaged;
    another rate needs the package `soxr`. Errors as `Audios.open`; InvalidArgument for samples of another shape or
    type, and for those that are not finite.
    """
    if isinstance(source, np.ndarray):
        if source.ndim != 1 or source.dtype.kind != "f":
            raise InvalidArgument(
                f"the audio is {source.dtype} of shape {list(source.shape)}: floating-point numbers [samples] between "
                f"-1 and 1 are needed, one channel at {RATE} Hz"
            )
        if not np.isfinite(source).all():
            raise InvalidArgument("the audio has samples that are not finite")
        given: np.ndarray = source.astype(np.float32, copy=False)
        return given
    if isinstance(source, bytes | bytearray | memoryview):
        return _decoded(bytes(source), "the audio")
    if not isinstance(source, str | os.PathLike):
        raise InvalidArgument(f"the audio is {source!r}: a file's path, its bytes or an array of samples is needed")
    path = os.fspath(source)
    if not os.path.isfile(path):
        raise NoSuchFile(f"{path} does not exist: a file of audio is needed")
    with open(path, "rb") as file:
        return _decoded(file.read(), path)


def _decoded(content: bytes, name: str) -> np.ndarray:
    """The samples that a file holds. name: what errors call it."""
    found = _of_wav(content, name) if content[:4] == b"RIFF" and content[8:12] == b"WAVE" else None
    channels, rate = _of_other(content, name) if found is None else found
    if not np.isfinite(channels).all():
        raise InvalidArgument(f"{name} has samples that are not finite")
    if not _RATES[0] <= rate <= _RATES[1]:
        raise InvalidArgument(f"{name} is at {rate} Hz: rates from {_RATES[0]} to {_RATES[1]} are read")
    mono: np.ndarray = channels.mean(1, dtype=np.float32)
    if rate == RATE:
        return mono
    resampler = needed("soxr", f"{name} is at {rate} Hz, and resampling it to {RATE}", extra="speech")
    made: np.ndarray = resampler.resample(mono, rate, RATE).astype(np.float32, copy=False)
    return made


def _of_wav(content: bytes, name: str) -> tuple[np.ndarray, int] | None:
    """Samples float32 [samples, channels] of a WAV file, and their rate; None for one of another form than whole
    numbers, which Python's `wave` does not read."""
    try:
        with wave.open(io.BytesIO(content)) as file:
            width, count, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
            data = file.readframes(file.getnframes())
    except wave.Error:
        return None
    except EOFError as error:
        raise InvalidArgument(f"{name} is a WAV file that ends too early") from error
    if width > 4:
        raise InvalidArgument(f"{name} is a WAV file of {8 * width} bits a sample: 32 at most are read")
    data = data[: len(data) // (width * count) * (width * count)]
    numbers: np.ndarray
    if width == 1:
        numbers = (np.frombuffer(data, np.uint8).astype(np.float32) - 128) / 128
    else:  # whole numbers of 16, 24 or 32 bits: in the upper bytes of 32
        wide = np.zeros((len(data) // width, 4), np.uint8)
        wide[:, 4 - width :] = np.frombuffer(data, np.uint8).reshape(-1, width)
        numbers = wide.view("<i4")[:, 0].astype(np.float32) / np.float32(1 << 31)
    return numbers.reshape(-1, count), rate


def _of_other(content: bytes, name: str) -> tuple[np.ndarray, int]:
    """As `_of_wav`, by libsndfile, which knows its forms by their first bytes."""
    package: Any = needed("soundfile", f"{name} is no WAV file of whole numbers, and reading it", extra="speech")
    try:
        found, rate = package.read(io.BytesIO(content), dtype="float32", always_2d=True)
    except package.LibsndfileError as error:
        raise InvalidArgument(f"{name} ({len(content)} bytes) is no audio that can be read: {error}") from error
    return found, int(rate)
