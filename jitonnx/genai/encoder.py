"""The encoder of a model that has one: what it makes of a prompt, or of audio, as inputs of the decoder."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from jitonnx import errors
from jitonnx.api.session import InferenceSession
from jitonnx.errors import InvalidArgument
from jitonnx.genai.config import Config
from jitonnx.genai.decoder import Decoder, dtype_of
from jitonnx.genai.optimum import BRANCH, CROSS

FEATURES = "audio_features"
"""What onnxruntime-genai calls the input of audio, whatever the model calls it."""

_FEATURES = "input_features"
"""What optimum calls it."""
_HIDDEN, _MASK = "encoder_hidden_states", "encoder_attention_mask"
_CROSS = (
    ("cross_past_key_names", "past_key_cross_%d", "cross_present_key_names", "present_key_cross_%d"),
    ("cross_past_value_names", "past_value_cross_%d", "cross_present_value_names", "present_value_cross_%d"),
)
"""Keys of the configuration: the decoder's input and its default, the encoder's output and its default."""


class Encoder:
    """A session of an encoder, and what gives the decoder its keys and values of the encoder's output.

    These do not change while a text is generated, and the decoder's runs take them as inputs. In folders of
    onnxruntime-genai's model builder the encoder gives them; in optimum's the decoder's run without caches does, once.
    """

    def __init__(self, config: Config, decoder: Decoder, session: Callable[[str, str], InferenceSession]) -> None:
        """session: makes one of a file that the configuration names in a section, by the names of both.

        NotImplemented for an encoder of something else than tokens or audio; InvalidArgument for a decoder that asks
        for more.
        """
        self._session = session("encoder", "filename")
        inputs = {one.name: one for one in self._session.get_inputs()}
        told = config.text("model", "encoder", "inputs", FEATURES, default=FEATURES)
        self.features = next((name for name in (told, _FEATURES) if name in inputs), "")
        """The input of audio; "": the encoder is one of tokens."""
        required, allowed = ("input_ids", {"input_ids", "attention_mask"})
        if self.features:
            required, allowed = self.features, {self.features}
            self.features_shape = list(inputs[self.features].shape)
            """The sizes of that input, [sounds, bands, frames], as far as they are known."""
            self.features_type = dtype_of(self.features, inputs[self.features].type).numpy
        if required not in inputs or not set(inputs) <= allowed:
            raise errors.NotImplemented(
                f"the encoder's inputs are {', '.join(inputs)}: those of tokens alone (input_ids, attention_mask), or "
                f"of audio alone ({told} or {_FEATURES}), are supported"
            )
        self._takes_mask = "attention_mask" in inputs
        self._decoder = decoder
        self._first = session("decoder", "first") if config.get("model", "decoder", "first") else decoder.session
        outputs = {one.name for one in self._session.get_outputs()}
        presents = {one.name for one in self._first.get_outputs()}
        self._own: dict[str, str] = {}
        """Inputs of the decoder, and the encoder's outputs that they are."""
        self._cross: dict[str, str] = {}
        """Inputs of the decoder, and the outputs of its run without caches that they are."""
        for name in decoder.extras:
            own, present = _own(config, name), name.replace("past_key_values", "present")
            if own in outputs:
                self._own[name] = own
            elif CROSS in name and present in presents:
                self._cross[name] = present
            elif name != _HIDDEN and (name != _MASK or self.features):
                raise InvalidArgument(f"input {name!r} of the decoder is none that an encoder gives")
        self.start = config.number("model", "decoder_start_token_id", default=-1)
        """The token that each text begins with; -1 where audio comes with its own."""
        if not 0 <= self.start < decoder.vocabulary and (self._cross or not self.features):
            raise InvalidArgument(
                f"{config.name('decoder_start_token_id')} is {self.start}: the token is needed that texts begin with"
            )

    def read(self, tokens: np.ndarray) -> dict[str, np.ndarray]:
        """What the decoder takes for a prompt, int32 [tokens], by the names of its inputs."""
        ids = tokens[None].astype(np.int64)
        mask = np.ones_like(ids)
        return self._given({"input_ids": ids, **({"attention_mask": mask} if self._takes_mask else {})}, {_MASK: mask})

    def listen(self, features: np.ndarray) -> dict[str, np.ndarray]:
        """What the decoder takes for audio, [sounds, bands, frames], by the names of its inputs.

        InvalidArgument for features of another shape.
        """
        sizes = zip(self.features_shape[1:], features.shape[1:], strict=False)
        if features.ndim != 3 or any(isinstance(told, int) and told != size for told, size in sizes):
            raise InvalidArgument(
                f"{self.features} has shape {list(features.shape)}: {self.features_shape} is needed, as the processor "
                "that Model.create_multimodal_processor gives makes it"
            )
        return self._given({self.features: features.astype(self.features_type, copy=False)}, {})

    def _given(self, feeds: Mapping[str, np.ndarray], more: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What the decoder takes. feeds: of the encoder; more: of the decoder, beside the encoder's outputs."""
        names = [one.name for one in self._session.get_outputs()]
        outputs = dict(zip(names, self._session.run(None, dict(feeds)), strict=True))
        found = {_HIDDEN: outputs[names[0]], **more, **{name: outputs[own] for name, own in self._own.items()}}
        if self._cross:
            inputs = self._first.get_inputs()
            told = {
                size: length
                for one in inputs
                if one.name in found
                for size, length in zip(one.shape, found[one.name].shape, strict=True)
            }
            first = {one.name: self._fed(one, found, told) for one in inputs}
            found.update(zip(self._cross, self._first.run(list(self._cross.values()), first), strict=True))
        return {name: found[name] for name in self._decoder.extras}

    def _fed(self, entry: Any, found: Mapping[str, np.ndarray], told: Mapping[Any, int]) -> np.ndarray:
        """An input of the run without caches. told: sizes that the model has names for."""
        if entry.name in found:
            return found[entry.name]
        if entry.name == BRANCH:
            return np.zeros(1, bool)
        if entry.name == self._decoder.ids:
            return np.full((len(found[_HIDDEN]), 1), self.start, self._decoder.numpy(entry.name))
        # A merged decoder has inputs for caches, which go unread.
        sizes = [size if isinstance(size, int) else told.get(size, 1) for size in entry.shape]
        return np.zeros(sizes, self._decoder.numpy(entry.name))


def _own(config: Config, name: str) -> str:
    """The encoder's output that an input of the decoder is, by the configuration; "" for another input."""
    for past_key, past_default, present_key, present_default in _CROSS:
        past = config.text("model", "decoder", "inputs", past_key, default=past_default)
        match = re.fullmatch(re.escape(past).replace("%d", r"(\d+)"), name)
        if match and match.groups():
            present = config.text("model", "encoder", "outputs", present_key, default=present_default)
            return present.replace("%d", match[1])
    return ""
