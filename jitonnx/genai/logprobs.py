"""How probable a token was, and which were the most probable ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jitonnx.genai.search import greatest


@dataclass(frozen=True)
class Logprobs:
    """Natural logarithms of probabilities."""

    token: float
    """The logarithm of the probability of the token that was chosen."""
    most: tuple[tuple[int, float], ...]
    """The most probable tokens with theirs, in falling order."""


def logprobs(logits: np.ndarray, token: int, count: int) -> Logprobs:
    """What the model's logits [vocabulary], float32, say of a token, and of the `count` greatest ones."""
    top = float(logits.max())
    total = top + float(np.log(np.exp(logits - np.float32(top)).sum(dtype=np.float64)))
    most = greatest(logits, min(count, len(logits))) if count else ()
    return Logprobs(float(logits[token]) - total, tuple((int(one), float(logits[one]) - total) for one in most))
