"""Logits that are changed by what an answer holds, and token by token, as OpenAI's interface has it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from jitonnx.errors import InvalidArgument


@dataclass(frozen=True)
class LogitAdjustment:
    """What is taken from logits, and added to them, before a token is chosen.

    Of the tokens of an answer, without its prompt, `presence` is taken from the logit of each, and `frequency` as many
    times as it is there; `bias` is added to those of the tokens that it names.
    """

    presence: float = 0.0
    frequency: float = 0.0
    bias: Mapping[int, float] = field(default_factory=dict)

    def check(self, vocabulary: int) -> None:
        """InvalidArgument for numbers that are not finite, and for tokens that are none of the vocabulary."""
        for name, value in (("presence_penalty", self.presence), ("frequency_penalty", self.frequency)):
            if not math.isfinite(value):
                raise InvalidArgument(f"{name} is {value}: a finite number is needed")
        for token, value in self.bias.items():
            if not 0 <= token < vocabulary:
                raise InvalidArgument(f"logit_bias names token {token}, which is none of the model's {vocabulary}")
            if not math.isfinite(value):
                raise InvalidArgument(f"logit_bias of token {token} is {value}: a finite number is needed")

    def __bool__(self) -> bool:
        return bool(self.presence or self.frequency or self.bias)

    def apply(self, logits: np.ndarray, generated: np.ndarray) -> None:
        """Change the logits [vocabulary], in place, behind the tokens of an answer [tokens]."""
        if self.presence or self.frequency:
            tokens, counts = np.unique(generated, return_counts=True)
            logits[tokens] -= np.float32(self.presence) + np.float32(self.frequency) * counts.astype(np.float32)
        if self.bias:
            logits[list(self.bias)] += np.array(list(self.bias.values()), np.float32)
