"""Log-mel spectrograms: what models of speech take for sound (Whisper's, https://arxiv.org/abs/2212.04356, 2.2)."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from jitonnx import errors
from jitonnx.errors import InvalidArgument
from jitonnx.genai.config import Config, read_object

RATE = 16000
"""Samples a second."""

_PREPROCESSOR = "preprocessor_config.json"
_PIPELINE = "audio_processor_config.json"
_OPERATIONS = ("AudioDecoder", "STFTNorm", "LogMelSpectrum")
_BLOCK = 3000
"""Frames that are transformed at once."""
_LEAST_POWER = 1e-10
_RANGE = 8.0
"""Powers of ten between the loudest and what is cut off."""


@dataclass(frozen=True)
class LogMel:
    """How features are computed of samples."""

    mels: int = 80
    """Bands of frequencies."""
    length: int = 400
    """Samples of a frame."""
    hop: int = 160
    """Samples between two frames."""
    seconds: int = 30
    """The length of a window, which is what an encoder takes."""
    window: tuple[float, ...] = ()
    """The weights of a frame's samples; none: Hann's."""

    @property
    def samples(self) -> int:
        """The samples of a window."""
        return self.seconds * RATE

    @property
    def frames(self) -> int:
        """The frames of a window."""
        return self.samples // self.hop

    def features(self, samples: np.ndarray) -> np.ndarray:
        """The features of samples, float32 [mels, samples // hop], as Hugging Face's transformers has them: in front of
        the samples and behind them come the same ones backwards. InvalidArgument for less than a frame."""
        return self._spectrum(np.pad(samples, self.length // 2, mode="reflect"), len(samples))[0]

    def first_window(self, samples: np.ndarray) -> np.ndarray:
        """The features of the first window, float32 [mels, frames], as onnxruntime-genai has them: around the samples
        are zeros, and behind their frames the least value. InvalidArgument for less than a frame."""
        samples = samples[: self.samples]
        found, least = self._spectrum(np.pad(samples, self.length // 2), len(samples))
        made = np.full((self.mels, self.frames), least, np.float32)
        made[:, : found.shape[1]] = found
        return made

    def _spectrum(self, padded: np.ndarray, size: int) -> tuple[np.ndarray, np.float32]:
        """The features of so many samples with half a frame at both sides, and the least value that one can have."""
        count = size // self.hop
        if not count:
            raise InvalidArgument(
                f"the audio has {size} samples: {self.hop} at least are needed ({1000 * self.hop // RATE} ms)"
            )
        frames = np.lib.stride_tricks.sliding_window_view(padded, self.length)[:: self.hop][:count]
        weights = np.array(self.window) if self.window else np.hanning(self.length + 1)[:-1]
        filters = mel_filters(self.mels, self.length)
        made = np.empty((self.mels, count), np.float32)
        for begin in range(0, count, _BLOCK):
            spectrum = np.fft.rfft(frames[begin : begin + _BLOCK] * weights)
            power = spectrum.real**2 + spectrum.imag**2
            made[:, begin : begin + _BLOCK] = np.log10(np.maximum(filters @ power.T, _LEAST_POWER))
        least = made.max() - np.float32(_RANGE)
        return (np.maximum(made, least) + np.float32(4)) / np.float32(4), (least + np.float32(4)) / np.float32(4)


@functools.cache
def mel_filters(mels: int, length: int) -> np.ndarray:
    """The part that each frequency has in each band, [mels, length // 2 + 1]: triangles of the same area whose corners
    are at equal distances on Slaney's scale, from 0 to half the rate (Auditory Toolbox, 1998)."""
    corners = _hertz(np.linspace(0.0, _mel(RATE / 2), mels + 2))
    places = np.arange(length // 2 + 1) * (RATE / length)
    widths = np.diff(corners)
    slopes = corners[:, None] - places
    rising, falling = -slopes[:-2] / widths[:-1, None], slopes[2:] / widths[1:, None]
    made: np.ndarray = np.maximum(0.0, np.minimum(rising, falling)) * (2.0 / (corners[2:] - corners[:-2]))[:, None]
    return made


_LINEAR = 200.0 / 3.0
"""Hertz a step of Slaney's scale up to 1000 Hz, behind which steps are by a factor."""
_FIRST_STEP = 1000.0 / _LINEAR
_FACTOR = np.log(6.4) / 27.0


def _mel(hertz: float) -> float:
    return float(_FIRST_STEP + np.log(hertz / 1000.0) / _FACTOR) if hertz >= 1000.0 else hertz / _LINEAR


def _hertz(steps: np.ndarray) -> np.ndarray:
    made: np.ndarray = np.where(steps < _FIRST_STEP, steps * _LINEAR, 1000.0 * np.exp(_FACTOR * (steps - _FIRST_STEP)))
    return made


def log_mel_of(config: Config) -> LogMel:
    """How a folder's model has its features: of `audio_processor_config.json`, which onnxruntime-genai's model builder
    writes, or `preprocessor_config.json`, which comes with Hugging Face's models.

    InvalidArgument for a file that is not there or tells what it cannot; NotImplemented for features of another kind.
    """
    name = config.text("model", "speech", "config_filename", default=_PIPELINE)
    place = os.path.join(config.folder, name)
    if os.path.isfile(place):
        return _of_pipeline(read_object(place), place)
    place = os.path.join(config.folder, _PREPROCESSOR)
    if not os.path.isfile(place):
        raise InvalidArgument(
            f"{config.folder} has neither {name} nor {_PREPROCESSOR}: one of them says how the model has its audio"
        )
    told = read_object(place)
    kind = told.get("feature_extractor_type", "WhisperFeatureExtractor")
    if kind != "WhisperFeatureExtractor":
        raise errors.NotImplemented(f"{place} is for {kind}: audio is read as for Whisper alone")
    names = {"mels": "feature_size", "length": "n_fft", "hop": "hop_length", "seconds": "chunk_length"}
    if told.get("sampling_rate", RATE) != RATE:
        raise errors.NotImplemented(f"{place} has sampling_rate {told['sampling_rate']}: {RATE} is supported")
    return _checked({key: told[name] for key, name in names.items() if name in told}, place)


def _of_pipeline(told: Mapping[str, Any], place: str) -> LogMel:
    """What a list of operations of onnxruntime-extensions says. InvalidArgument for one that is not as for Whisper."""
    try:
        operations = [one["operation"] for one in told["feature_extraction"]["sequence"]]
        kinds = {one["type"]: dict(one.get("attrs", {})) for one in operations}
    except (KeyError, TypeError) as error:
        raise InvalidArgument(
            f"{place} has no list of operations at feature_extraction.sequence ({error!r})"
        ) from error
    unknown = [kind for kind in kinds if kind not in _OPERATIONS]
    if unknown or "LogMelSpectrum" not in kinds:
        raise errors.NotImplemented(
            f"{place} has operations {', '.join(kinds)}: {', '.join(_OPERATIONS)} are supported (Whisper's)"
        )
    spectrum, bands = kinds.get("STFTNorm", {}), kinds["LogMelSpectrum"]
    names = {"mels": "n_mel", "length": "n_fft", "hop": "hop_length", "seconds": "chunk_size"}
    made = {key: bands[name] for key, name in names.items() if name in bands}
    window = spectrum.get("hann_win", ())
    if not (isinstance(window, list | tuple) and all(isinstance(one, int | float) for one in window)):
        raise InvalidArgument(f"{place}: hann_win of STFTNorm is no list of numbers")
    return _checked({**made, "window": tuple(map(float, window))}, place)


def _checked(made: dict[str, Any], place: str) -> LogMel:
    for name, value in made.items():
        if name != "window" and (isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 1 << 16):
            raise InvalidArgument(f"{place}: {name} of the features is {value!r}: a whole number above 0 is needed")
    found = LogMel(**made)
    if found.window and len(found.window) != found.length:
        raise InvalidArgument(f"{place}: hann_win has {len(found.window)} weights, a frame {found.length} samples")
    return found
