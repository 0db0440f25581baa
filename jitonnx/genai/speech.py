"""Prompts with audio, as inputs of models of speech (Whisper)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jitonnx.errors import InvalidArgument
from jitonnx.genai.audio import Audios
from jitonnx.genai.encoder import FEATURES, Encoder
from jitonnx.genai.log_mel import LogMel, log_mel_of
from jitonnx.genai.model import Model
from jitonnx.genai.multimodal import MultiModalProcessor
from jitonnx.genai.tensors import NamedTensors, Tensor


class SpeechProcessor(MultiModalProcessor):
    """Audio as features, and prompts: the tokens that a transcript begins with."""

    def __init__(self, model: Model) -> None:
        """InvalidArgument for a folder that does not say how its audio is read; errors of `Tokenizer`."""
        super().__init__(model)
        self._encoder = encoder_of(model)
        self._form = form_of(model)

    def __call__(
        self, prompt: str | Sequence[str] | None = None, *, images: Any = None, audios: Any = None
    ) -> NamedTensors:
        """`audio_features` [sounds, bands, frames] of `audios`, as `Audios.open` gives them, and `input_ids`
        [prompts, tokens]. Of a sound the first 30 s are read.

        InvalidArgument without a prompt, or without audio, for not as many prompts as sounds, and for other inputs.
        """
        if images is not None:
            raise InvalidArgument("the model takes no images: it is one of speech, give audios")
        if not isinstance(audios, Audios):
            raise InvalidArgument(f"audios is {audios!r}: what Audios.open gives is needed")
        prompts = [prompt] if isinstance(prompt, str) else list(prompt or ())
        if not prompts or not all(prompts):
            raise InvalidArgument(
                f"the prompt is {prompt!r}: what a transcript begins with is needed, as "
                "'<|startoftranscript|><|en|><|transcribe|><|notimestamps|>'"
            )
        if len(prompts) != len(audios.sounds):
            raise InvalidArgument(f"prompts are {len(prompts)}, sounds {len(audios.sounds)}: one for each is needed")
        tokens = [self.tokenizer.encode(one) for one in prompts]
        counts = ", ".join(str(len(one)) for one in tokens)
        if len({len(one) for one in tokens}) > 1:
            raise InvalidArgument(
                f"prompts have {counts} tokens: give those of one number together, as the model has no mask for padding"
            )
        features = np.stack([self._form.first_window(one) for one in audios.sounds])
        return NamedTensors(
            {
                FEATURES: Tensor(features.astype(self._encoder.features_type)),
                "input_ids": Tensor(np.stack(tokens)),
            }
        )


def encoder_of(model: Model) -> Encoder:
    """The encoder of a model of speech. InvalidArgument for another model."""
    if model.encoder is None or not model.encoder.features:
        raise InvalidArgument(f"{model.config.folder} has a model of text ({model.type}): it takes no audio")
    return model.encoder


def form_of(model: Model) -> LogMel:
    """How a model has its audio. InvalidArgument where its folder tells something else than the model has."""
    shape = encoder_of(model).features_shape
    form = log_mel_of(model.config)
    for size, told, what in ((form.mels, shape[1], "bands"), (form.frames, shape[2], "frames")):
        if isinstance(told, int) and told != size:
            raise InvalidArgument(
                f"the model takes audio of shape {list(shape)}, and its folder's configuration of features makes "
                f"{size} {what}: it is another model's"
            )
    return form
