"""The encoder of a model of optimum's that has one: what it makes of a prompt, as inputs of the decoder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jitonnx import errors
from jitonnx.api.session import InferenceSession
from jitonnx.errors import InvalidArgument
from jitonnx.genai.config import Config
from jitonnx.genai.decoder import Decoder
from jitonnx.genai.optimum import BRANCH, CROSS

_HIDDEN, _MASK = "encoder_hidden_states", "encoder_attention_mask"


class Encoder:
    """A session of an encoder, and what gives the decoder its keys and values of the encoder's output.

    These do not change while a text is generated: the decoder's run without caches gives them, once, and its runs with
    caches take them as inputs.
    """

    def __init__(self, config: Config, decoder: Decoder, session: Callable[[str, str], InferenceSession]) -> None:
        """session: makes one of a file that the configuration names in a section, by the names of both.

        NotImplemented for an encoder of something else than tokens; InvalidArgument for a decoder that asks for more.
        """
        self._session = session("encoder", "filename")
        names = [one.name for one in self._session.get_inputs()]
        if "input_ids" not in names or not set(names) <= {"input_ids", "attention_mask"}:
            raise errors.NotImplemented(
                f"the encoder's inputs are {', '.join(names)}: those of tokens alone (input_ids, attention_mask) "
                "are supported"
            )
        self._takes_mask = "attention_mask" in names
        self._decoder = decoder
        self._first = session("decoder", "first") if config.get("model", "decoder", "first") else decoder.session
        self._cross = [name for name in decoder.extras if CROSS in name]
        presents = {one.name for one in self._first.get_outputs()}
        for name in decoder.extras:
            if name not in (_HIDDEN, _MASK) and not (name in self._cross and _present(name) in presents):
                raise InvalidArgument(f"input {name!r} of the decoder is none that an encoder gives")
        self.start = config.number("model", "decoder_start_token_id", default=-1)
        """The token that each text begins with."""
        if not 0 <= self.start < decoder.vocabulary:
            raise InvalidArgument(
                f"{config.name('decoder_start_token_id')} is {self.start}: the token is needed that texts begin with"
            )

    def read(self, tokens: np.ndarray) -> dict[str, np.ndarray]:
        """What the decoder takes for a prompt, int32 [tokens], by the names of its inputs."""
        ids = tokens[None].astype(np.int64)
        mask = np.ones_like(ids)
        (hidden, *_) = self._session.run(
            None, {"input_ids": ids, **({"attention_mask": mask} if self._takes_mask else {})}
        )
        given = {_HIDDEN: hidden, _MASK: mask}
        cross: list[Any] = []
        if self._cross:
            inputs = self._first.get_inputs()
            told = {
                size: length
                for one in inputs
                if one.name in given
                for size, length in zip(one.shape, given[one.name].shape, strict=True)
            }
            feeds = {one.name: self._fed(one, given, told) for one in inputs}
            cross = list(self._first.run([_present(name) for name in self._cross], feeds))
        found = {**given, **dict(zip(self._cross, cross, strict=True))}
        return {name: found[name] for name in self._decoder.extras}

    def _fed(self, entry: Any, given: dict[str, np.ndarray], told: dict[Any, int]) -> np.ndarray:
        """An input of the run without caches. told: sizes that the model has names for."""
        if entry.name in given:
            return given[entry.name]
        if entry.name == BRANCH:
            return np.zeros(1, bool)
        if entry.name == self._decoder.ids:
            return np.array([[self.start]])
        # A merged decoder has inputs for caches, which go unread.
        sizes = [size if isinstance(size, int) else told.get(size, 1) for size in entry.shape]
        return np.zeros(sizes, self._decoder.numpy(entry.name))


def _present(past: str) -> str:
    return past.replace("past_key_values", "present")
